"""The scenario of `simfl new`: a complete small example with commented options.

A line that begins with `#` and no space after it is an option: without the `#` it takes the place of the line with
the same key, if there is one, and the scenario is still valid.
"""

_TEMPLATE = """\
# yaml-language-server: $schema=simfl.schema.json
# A scenario of simfl. Check it with 'simfl validate FILE', run it with 'simfl run FILE'.
# For an editor that completes and checks this file: 'simfl schema > simfl.schema.json' in this folder.
# To use a line that is commented out, remove its '#' and the line with the same key above it, if there is one.
# Times take ns, us, ms, s, min, h, d (a plain number is in seconds); bandwidths take Mbit/s, Gbit/s, MB/s and so on.

#name: my-scenario            # names the folder of results; by default the name of this file
#description: what this is about
seed: 0                      # every random draw follows from it

data:
  set: digits                # embedded in scikit-learn, needs no file
  #set: mnist                # below the folder that SIMFL_DATA names; also cifar10, libsvm, npz, table (path: FILE),
                             # or with a known optimum: quadratic, logistic, linear
  #normalize: unit_sphere    # or standard: each feature to mean 0, deviation 1
  #pca: 20                   # number of principal components to keep
  #test_fraction: 0.3        # share of the examples set aside for testing
  partition: {kind: iid}
  #partition: {kind: iid, sizes: {kind: power_law, exponent: 1.0}}
  #partition: {kind: dirichlet, alpha: 0.5}
  #partition: {kind: shards, shards_per_client: 2}
  #partition: {kind: by_label, labels_per_client: 2}
  #partition: {kind: resample, size: 200}
                             # or, of a table or npz file, a client for each value: {kind: by_column, column: hospital}

model: {kind: softmax}       # also linear, quadratic, logistic, lenet5, resnet
#model: {kind: softmax, l2: 1.0e-4}
#model: {kind: mlp, hidden: [64, 32], activation: relu}

clients:
  count: 16
  seconds_per_example: 100 us
  #speed: {kind: uniform, low: 0.5, high: 2.0}       # factor on the compute time, once per client
  #speed: {kind: trace, path: devices.csv, column: factor}
  #seconds_per_batch: 2 ms                           # that every mini-batch takes beside, however small it is
  #devices: devices.csv                              # name, seconds_per_example, memory, uplink, share, ...
  #trace: {path: speeds.csv, every: 24 h}            # time, client, factor
  jitter: {kind: lognormal, sigma: 0.1}              # factor on each computation; also uniform, exponential

slowdowns:
  - {clients: [3], factor: 10}                       # one client, ten times slower
#slowdowns: [{random: 1, factor: 2}]                 # one client drawn afresh in every iteration
#slowdowns: [{fraction: 0.25, factor: 3, from: 10 s, until: 1 min}]

topology: {kind: ring}       # also complete, star, exponential, graphml and edge_list (with path: FILE)
#topology: {kind: torus, rows: 4}
#topology: {kind: regular, degree: 4}
#topology: {kind: erdos_renyi, probability: 0.4}
#topology: {kind: watts_strogatz, neighbors: 4, rewiring: 0.1}
#topology: {kind: barabasi_albert, attachments: 2}
#topology: {kind: tree, branching: 2}
#topology: {kind: ring, mixing: max_degree}          # weights of gossip: metropolis, uniform or max_degree

links:
  latency: 1 ms
  #latency: {kind: exponential, mean: 5 ms}          # also uniform (low, high), lognormal (mean, sigma)
  bandwidth: 1 Gbit/s        # null: unlimited
  #loss: 0.01                # probability that a message is lost and sent again
  #resend_timeout: 200 ms
  #fifo: true                # messages do not overtake each other
  #partitions: [{groups: [[0, 1, 2]], from: 10 s, until: 20 s}]   # these three against all others
  #uplink: 20 Mbit/s         # a client's own capacity for all it sends
  #downlink: 100 Mbit/s      # a client's own capacity for all it receives

#availability: [{clients: [5], join: 10 s}]
#availability: [{fraction: 0.25, offline: [[10 s, 20 s], [1 min, 2 min]]}]
#availability: [{fraction: 0.5, offline: [[8 h, 20 h]], every: 24 h}]
#availability: [{all: true, trace: {path: hours.csv, draw: true}, every: 24 h}]   # client, from, to
#availability: [{all: true, random: {up: {kind: exponential, mean: 5 min}, down: 10 s}}]
#availability: [{clients: [2], crash: [{at: 30 s, back: 40 s}, {at: 2 min, back: never}]}]

algorithm:
  kind: adpsgd               # pairwise averaging without waiting
  #kind: my_module:MyAlgorithm                       # a class of your own
  step_size: 0.4
  #step_size: {kind: by_epochs, values: [0.4, 0.04], boundaries: [15]}
  #step_size: {kind: inverse, initial: 0.4, beta: 0.01, count: updates}
  #step_size: {kind: inverse_sqrt, initial: 0.4, beta: 0.1, count: epochs}
  #step_size: {kind: warm_up, initial: 0.1, epochs: 2, then: 0.4}
  #step_size: {kind: cosine, initial: 0.4, length: 20, count: epochs}     # also exponential, one_cycle
  #optimizer: {kind: momentum, momentum: 0.9}        # also nesterov, adam, my_module:make (a chain of optax)
  batch_size: 32
  #sampling: shuffle         # auto, poisson, shuffle or with_replacement
  #exchange: atomic          # averaging in no time, whatever the links are, instead of by messages
  #pairing: everyone         # auto, senders (on bipartite topologies) or everyone
#algorithm: {kind: sync_sgd, step_size: 0.4}         # all-reduce: all wait for the slowest
#algorithm: {kind: decentralized_sgd, step_size: 0.4}

#privacy: {mechanism: gaussian, clipping_norm: 1.0, noise_multiplier: 1.0, delta: 1.0e-5}
#privacy: {mechanism: gaussian_unclipped, noise_std: 1.0}

stop: {epochs: 20}           # whichever comes first of time, updates, epochs and accuracy
#stop: {time: 1 h, updates: 10000, accuracy: 0.95}
evaluate: {every: {epochs: 0.5}}
#evaluate: {every: {time: 1 s}, clients: true}       # of each client's model as well
#evaluate: {every: {epochs: 0.5}, gradients: 1000}   # norm of the gradient, share of the examples that are clipped
#execution: {window: 1024, width: 4}                 # auto chooses both
#record: {updates: true, messages: true, timeline: true}   # tables besides metrics and clients
"""


def template() -> str:
    """Return a commented scenario to start from; it is valid as it stands."""
    return _TEMPLATE
