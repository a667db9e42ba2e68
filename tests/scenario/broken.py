"""Invalid scenarios, each with its exact message.

The line has `{file}` where the name of the file belongs; see `Broken.line`. The CLI tests use this table as well.
"""

from typing import NamedTuple

ADPSGD = "algorithm: {kind: adpsgd}\n"


class Broken(NamedTuple):
    """A broken scenario: its YAML, and the message."""

    text: str
    message: str

    def line(self, file: object) -> str:
        """Return the message for a file of this name."""
        return self.message.replace("{file}", str(file))

    def __repr__(self) -> str:
        return self.message.removeprefix("{file}")[:60]


def _bomb(first: str, begin: str, end: str) -> str:
    """Return ten million values in a few lines: each line repeats the previous one ten times."""
    lines = [f"a: {first}"]
    for old, new in zip("abcdefg", "bcdefgh", strict=True):
        lines.append(f"{new}: &{new} {begin}{', '.join([f'*{old}'] * 10)}{end}")
    return "\n".join(lines) + "\n"


def _deep(first: str, begin: str, end: str) -> str:
    """Return aliases of aliases, 600 levels deep."""
    return f"a: &a0 {first}\n" + "".join(f"b{i}: &a{i} {begin}*a{i - 1}{end}\n" for i in range(1, 600))


def _read(table: str) -> list[Broken]:
    """Read scenarios, each followed by its message: an arrow, and lines indented by three.

    A scenario without an algorithm gets AD-PSGD on its first line; a message without `{file}` begins with it.
    """
    cases, text, message = [], "", ""
    for line in [*table.splitlines(), ""]:
        if line.startswith("-> ") or (message and line.startswith("   ")):
            message += line[2:]
            continue
        if message:
            beginning = "" if "algorithm" in text else ADPSGD
            cases.append(Broken(beginning + text, message[1:] if "{file}" in message else "{file}:" + message))
            text, message = "", ""
        text += line + "\n"
    return cases


MANY = "expected at most 500,000 values with aliases expanded, found more; use fewer aliases"
DEEP = "{file}:1:4: expected at most 50 levels with aliases expanded, found more; nest less"
BROKEN = [
    Broken("", "{file}: expected key: value pairs, found an empty document; 'simfl new' writes an example"),
    Broken("algorithm:\n\tkind: adpsgd\n", "{file}:2:1: expected spaces, found a tab; indent with spaces"),
    Broken(
        ADPSGD + 'description: "\a"\n',
        "{file}: expected text, found the control character 0x07; remove it or write it as an escape",
    ),
    Broken(_bomb("&a [x, x, x]", "[", "]"), "{file}:7:4: " + MANY),
    Broken(_bomb("&a {x: 1}", "{<<: [", "]}"), "{file}:7:12: " + MANY),
    Broken(_deep("[x]", "[", "]"), DEEP),
    Broken(_deep("{x: 1}", "{<<: ", "}"), DEEP),
    Broken(
        ADPSGD + "slowdowns: " + "[" * 1000 + "]" * 1000 + "\n",
        "{file}:2:61: expected at most 50 levels, found more; nest less",
    ),
    Broken(
        "seed: 1\n",
        "{file}: algorithm: expected a value (the algorithm that trains the model), found nothing; "
        "add algorithm: {kind: sync_sgd}",
    ),
    Broken(
        "seed: " + "9" * 5000 + "\n" + ADPSGD,
        "{file}: seed: expected an integer >= 0 and < 18446744073709551616, found "
        "'9999999999999999999999999999999999999...'; write a whole number",
    ),
    Broken(
        ADPSGD + 'data: {set: npz, path: "a\\0b"}\n',
        "{file}: data.path: expected a text on one line, found 'a\\x00b'; remove the control characters",
    ),
]
BROKEN += _read("""\
- algorithm
- adpsgd
-> expected key: value pairs, found ['algorithm', 'adpsgd']; 'simfl new' writes an example
algorithm: {kind: adpsgd
seed: 1
-> {file}:2:5: expected well-formed YAML, found an error (did not find expected ',' or '}'); check quotes,
   brackets, colons and indentation
algorithm: {kind: 'adpsgd}
-> {file}:2:1: expected well-formed YAML, found an error (found unexpected end of stream); check quotes, brackets,
   colons and indentation
algorithm: kind: adpsgd
-> {file}:1:16: expected well-formed YAML, found an error (mapping values are not allowed in this context); check
   quotes, brackets, colons and indentation
description: @home
-> {file}:2:14: expected a YAML value, found '@'; put the value in quotes
---
seed: 1
-> {file}:2:1: expected one YAML document, found a second; put each in its own file
clients:
  count: 4
  count: 8
-> {file}:4:3: clients.count: expected each key once, found it again (first on line 3); remove one
seed: *seed
-> {file}:2:7: expected the name of an anchor, found an unknown alias; define it with & before
? [1, 2]
: 3
-> {file}:2:3: expected a word as key, found a list or mapping; write key: value
algorithm: !!python/object/apply:os.system ['true']
-> {file}:1:12: expected plain YAML, found the tag '!!python/object/apply:os.system'; remove the tag
description: !!python/name:os.system ''
-> {file}:2:14: expected plain YAML, found the tag '!!python/name:os.system'; remove the tag
seed: !seed 1
-> {file}:2:7: expected plain YAML, found the tag '!seed'; remove the tag
slowdowns: &rules [*rules]
-> {file}:2:12: expected values, found an alias to what contains it; write the value out
algoritm: {kind: adpsgd}
algorithm: {kind: adpsgd}
-> algoritm: expected a key of a scenario, found 'algoritm'; did you mean 'algorithm'?
clients: {cuont: 4}
-> clients.cuont: expected a key of clients, found 'cuont'; did you mean 'count'?
record: {everything: true}
-> record.everything: expected a key of record (updates, messages, timeline, epsilon, client_models, play), found
   'everything'; remove it
record: {play: true, messages: false}
-> record.messages: expected true beside play: true, found false; remove it, or play
data: {partition: {kind: iid, alpha: 0.3}}
-> data.partition.alpha: expected a key of kind iid (sizes), found 'alpha'; remove it, or choose kind dirichlet
algorithm: {kind: sync_sgd, exchange: atomic}
-> algorithm.exchange: expected a key of kind sync_sgd (step_size, optimizer, batch_size, small_clients, sampling,
   gradient_noise, all_reduce), found 'exchange'; remove it, or choose kind adpsgd or a2cid2
data: {set: digits, path: digits.csv}
-> data.path: expected a key of set digits (validation, partition, classes, class_groups, normalize, pca, pca_center,
   fit_on, augment, test_fraction), found 'path'; remove it, or choose set mnist, fashion_mnist, emnist, cifar10,
   cifar100, svhn, libsvm, npz, table, leaf, huggingface, text, quadratic, logistic or linear
topology: {kind: rign}
-> topology.kind: expected ring, complete, bipartite, star, torus, regular, erdos_renyi, watts_strogatz,
   barabasi_albert, exponential, tree, graphml, gml, pajek, edge_list, adjacency_list, one_peer, peer_sampling,
   sequence or contacts, found 'rign'; did you mean 'ring'?
algorithm: {kind: ad_psgd}
-> algorithm.kind: expected a name that 'simfl list algorithms' has, or my_module:MyClass, found 'ad_psgd'; did
   you mean 'adpsgd'?
algorithm: {kind: corrected_gossip, step_factors: [1, 2]}
clients: 2
-> algorithm.step_factors: expected null with method exact_diffusion, found a list; only nids has a step for each
   client
algorithm: {kind: corrected_gossip, method: nids, step_factors: [1, 2]}
clients: 4
-> algorithm.step_factors: expected one factor for each of the 4 clients, found 2; list as many
algorithm: {kind: corrected_gossip, optimizer: momentum}
-> algorithm.optimizer: expected sgd with 'corrected_gossip', found 'momentum'; its corrections are those of plain
   steps
algorithm: {kind: sgp, lost: sums}
compression: {kind: top_k, share: 0.1, gamma: 0.3}
-> algorithm.lost: expected resend with compressed messages, found 'sums'; what a compressor leaves out is not in
   the sums
algorithm: {kind: k_gt, local_steps: 2, local_epochs: 1}
-> algorithm.local_epochs: expected local_steps or local_epochs, found both; remove one of them
algorithm: {kind: k_gt}
privacy: {clipping_norm: 1, noise_multiplier: 1}
-> privacy.mechanism: expected 'gaussian_update' with 'k_gt', found 'gaussian'; a client sends what many steps
   changed, which is clipped as a whole
algorithm: {kind: ditto}
privacy: {mechanism: gaussian_update, noise_multiplier: 1}
-> privacy: expected null with ditto, found 'gaussian_update'; personal models are trained without noise, and the
   run keeps them; use fedavg
algorithm: {kind: scaffold, proximal: 0.1}
-> algorithm.proximal: expected 0 with 'scaffold', found 0.1; use fedprox or feddyn
algorithm: {kind: feddyn, server_step: 0.5}
-> algorithm.server_step: expected 1 with 'feddyn', found 0.5; its server makes the step of the penalty
data: {set: digits, partition: {kind: by_column, column: writer}}
-> data.partition.kind: expected another kind for data set 'digits', which has no columns, found 'by_column'; use
   iid, or a set that is a file: table or npz
algorithm: {kind: decentralized_sgd}
compression: {kind: top_k}
aggregation: {kind: median}
-> aggregation: expected null beside compressed gossip, found 'median'; neighbors average estimates that all of
   them keep, which a rule would end: leave one out, or use a server
evaluate: {every: {epochs: 1}, metrics: [makro_f1]}
-> evaluate.metrics: expected macro_f1, balanced_accuracy, auc, worst_decile, worst_decile_models, own_classes,
   own_classes_models, mae, rmse, r2, suboptimality or distance, found 'makro_f1'; did you mean 'macro_f1'?
data: quadratic
model: quadratic
evaluate: {metrics: [auc]}
-> evaluate.metrics: expected none with model 'quadratic', which has no classes, found 'auc'; remove it
evaluate: {metrics: [worst_decile_models]}
-> evaluate.clients: expected true with metric 'worst_decile_models', found false; set it, or choose worst_decile
simfl: 2
-> simfl: expected 1, found 2; this is simfl 1.0.0; 'simfl new' writes its form
data: {set: minst}
-> data.set: expected digits, mnist, fashion_mnist, emnist, cifar10, cifar100, svhn, libsvm, npz, table, leaf,
   huggingface, text, quadratic, logistic, linear or my_data:load, found 'minst'; did you mean 'mnist'?
privacy: {mechanism: gausian}
-> privacy.mechanism: expected gaussian, gaussian_update, gaussian_cohort, discrete_gaussian, laplace_l2, laplace,
   gaussian_unclipped, laplace_l2_radius_only, laplace_l2_radius_only_mean, one_pass_gaussian or
   one_pass_gaussian_unclipped, found 'gausian'; did you mean 'gaussian'?
privacy: {noise_multiplier: 1, quantize: true}
-> privacy.quantize: expected a key of privacy, found 'quantize', which was removed; delete it: the noise of
   examples is one of real numbers
record: {tape: true}
-> record.tape: expected a key of record, found 'tape', which was removed; delete it: simfl sweep plays runs that
   differ in arithmetic alone together
clients: {jitter: {sigma: 0.1}}
-> clients.jitter.kind: expected constant, uniform, lognormal or exponential, found nothing; add 'kind' with one
   of them
links: {latency: {path: latencies.csv}}
-> links.latency: expected a value for all links, found a file; a column latency of topology: {kind: edge_list,
   path: ...} gives each link its own; links.rules with kind: trace gives values over time
clients: 0
-> clients: expected an integer >= 1, found 0; choose a value in this range
evaluate: {every: 10}
-> evaluate.every: expected a mapping, found 10; write key: value pairs (time, updates, epochs)
topology: {kind: graphml}
-> topology.path: expected a value (GraphML file with one node per client), found nothing; add path
algorithm: {kind: 'my module:MyAlgorithm'}
-> algorithm.kind: expected a name like my_module:my_name, found 'my module:MyAlgorithm'; write module, colon,
   name
clients: {count: many}
-> clients.count: expected an integer >= 1, found 'many'; write a whole number
clients: {count: true}
-> clients.count: expected an integer >= 1, found true; write a whole number
clients: {count: 2.5}
-> clients.count: expected an integer >= 1, found 2.5; write a whole number
clients: {count: 0}
-> clients.count: expected an integer >= 1, found 0; choose a value in this range
seed: -1
-> seed: expected an integer >= 0 and < 18446744073709551616, found -1; choose a value in this range
algorithm: {kind: adpsgd, step_size: .inf}
-> algorithm.step_size: expected a finite number >= 0, found inf; write a finite number
algorithm: {kind: adpsgd, step_size: -0.1}
-> algorithm.step_size: expected a number >= 0, found -0.1; choose a value in this range
links: {fifo: yes}
-> links.fifo: expected true or false, found 'yes'; write true or false
links: 3
-> links: expected a mapping, found 3; write key: value pairs (latency, bandwidth, loss, resend_timeout, fifo,
   sharing, uplink, downlink, rules, startup, overhead, partitions)
stop:
-> stop: expected a mapping, found nothing; fill it in or remove it
slowdowns: 3
-> slowdowns: expected a list, found 3; write it as [ ... ]
algorithm: {kind: adpsgd, exchange: message}
-> algorithm.exchange: expected atomic or messages, found 'message'; did you mean 'messages'?
name: 7
-> name: expected a name of at most 100 letters, digits and . _ + -, which begins with a letter or digit, found 7;
   put it in quotes
name: ../elsewhere
-> name: expected a name of at most 100 letters, digits and . _ + -, which begins with a letter or digit, found
   '../elsewhere'; it names a folder of results
privacy: {noise_multiplier: -1}
-> privacy.noise_multiplier: expected a number >= 0, found -1; choose a value in this range
privacy: {noise_multiplier: [1, 2]}
-> privacy.noise_multiplier: expected 16 values, one for each client, found 2; change the list or clients.count
privacy: {epsilon: 2}
stop: {time: 1 s}
-> privacy.noise_multiplier: expected a noise multiplier beside epsilon, found null; add it, or stop.epochs, from
   which the number of releases follows
algorithm: {kind: adpsgd, sampling: poisson}
privacy: gaussian_update
-> algorithm.sampling: expected shuffle, without_replacement or with_replacement with mechanism 'gaussian_update',
   found 'poisson'; an update is clipped as a whole
privacy: {clipping_norm: 0}
-> privacy.clipping_norm: expected a number > 0, found 0; choose a value in this range
privacy: {delta: 1}
-> privacy.delta: expected a number > 0 and < 1, found 1; choose a value in this range
links: {loss: 1}
-> links.loss: expected a number >= 0 and <= 0.9999, found 1; choose a value in this range
execution: {window: large}
-> execution.window: expected auto or an integer >= 1, found 'large'; write auto or a whole number
model: {kind: mlp, hidden: []}
-> model.hidden: expected a list that is not empty, found []; write it as [ ... ]
links: {latency: 3 parsecs}
-> links.latency: expected a time like '10 ms', found '3 parsecs'; use one of the units ns, us, ms, s, min, h, d
clients: {seconds_per_example: 3 MS}
-> clients.seconds_per_example: expected a time like '10 ms', found '3 MS'; did you mean 'ms'?
slowdowns: [{clients: [1], factor: 2, from: -1 s}]
-> slowdowns.0.from: expected a time >= 0, found '-1 s'; choose a value in this range
links: {bandwidth: 1000000}
-> links.bandwidth: expected a bandwidth like '100 Mbit/s', found 1000000; write a number and a unit such as
   Mbit/s or MB/s
links: {bandwidth: 100 mbit/s}
-> links.bandwidth: expected a bandwidth like '100 Mbit/s', found '100 mbit/s'; did you mean 'Mbit/s'?
stop: {time: a while}
-> stop.time: expected a time like '10 ms', found 'a while'; write a number and one of the units ns, us, ms, s,
   min, h, d
stop: {}
-> stop: expected at least one of time, updates and epochs, found none of them; add for example epochs: 20
stop: {accuracy: 0.9}
-> stop: expected at least one of time, updates and epochs, found only accuracy, which may never be reached; add
   for example epochs: 20
stop: {metric: test_loss, at_most: 0.5}
-> stop: expected at least one of time, updates and epochs, found only test_loss, which may never be reached; add
   for example epochs: 20
stop: {epochs: 2, metric: test_loss}
-> stop.metric: expected at_least or at_most beside it, found neither; give one of them
stop: {epochs: 2, at_most: 0.5}
-> stop.at_most: expected a metric beside it, found none; add metric, or remove it
evaluate: {metrics: [mae]}
-> evaluate.metrics: expected none with model 'softmax', which has no targets, found 'mae'; remove it
evaluate: {every: {time: 1 s, epochs: 1}}
-> evaluate.every: expected exactly one of time, updates and epochs, found time and epochs; keep one of time and
   epochs
slowdowns: [{factor: 2}]
-> slowdowns.0: expected exactly one of clients, fraction, regions and random, found none of them; add clients
slowdowns: [{clients: [1], random: 1, factor: 2}]
-> slowdowns.0: expected exactly one of clients, fraction, regions and random, found clients and random; keep one
   of clients and random
slowdowns: [{fraction: 0.5}]
-> slowdowns.0.factor: expected a value (factor on the compute time: 10 is ten times slower), found nothing; add
   factor
slowdowns: [{clients: [1], factor: 2, from: 10 s, until: 1 s}]
-> slowdowns.0.until: expected a time after 'from', which is 10 s, found 1 s; swap from and until
slowdowns: [{clients: [3, 16], factor: 2}]
-> slowdowns.0.clients.1: expected a client below clients.count, which is 16, found 16; clients are numbered from
   0
slowdowns: [{clients: [3, 3], factor: 2}]
-> slowdowns.0.clients: expected each client once, found client 3 more than once; list every client only once
regions: {names: [eu, us], counts: [8, 8]}
slowdowns: [{regions: [us, ue], factor: 2}]
-> slowdowns.0.regions.1: expected a name of regions.names, found 'ue'; name it there
availability: [{regions: [eu], join: 1 s}]
-> availability.0.regions.0: expected a name of regions.names, found 'eu'; add regions
regions: {names: [eu, us], counts: [8, 8]}
slowdowns: [{regions: [us, us], factor: 2}]
-> slowdowns.0.regions: expected each region once, found region us more than once; list every region only once
slowdowns: [{random: 17, factor: 2}]
-> slowdowns.0.random: expected at most clients.count, which is 16, found 17; lower it or add clients
availability: [{join: 3 s}]
-> availability.0: expected exactly one of clients, fraction, regions and all, found none of them; add clients
availability: [{all: true, every: 1 h, join: 1 s}]
-> availability.0.every: expected times that come again, offline, crash or a plain trace, found none of them; add
   some, or remove 'every': random absences and FedScale's go on by themselves
availability: [{all: true, every: 1 h, crash: [{at: 1 s}]}]
-> availability.0.every: expected a return from every crash, found never; add 'back', or remove 'every'
availability: [{all: true, every: 1 h, offline: [[30 min, 60 min], [70 min, 90 min]]}]
-> availability.0.every: expected more than 1 h, from the first begin to the last end, found 1 h; choose a longer
   time
availability: [{all: true}]
-> availability.0: expected at least one of join, offline, random, crash and trace, found none of them; say when
   these clients are away, or remove the rule
availability: [{all: true, trace: {path: a.json, layout: fedscale}, every: 1 h}]
-> availability.0.every: expected times that come again, offline, crash or a plain trace, found none of them; add
   some, or remove 'every': random absences and FedScale's go on by themselves
availability: [{all: true, offline: [[1 s, 5 s], [4 s, 6 s]]}]
-> availability.0.offline.1: expected a begin after the interval before it has ended, at 5 s, found 4 s; sort them
   and remove overlaps
availability: [{all: true, offline: [[5 s, 1 s]]}]
-> availability.0.offline.0: expected an end after the begin, found [5 s, 1 s]; choose a later time
availability: [{all: true, offline: [5 s]}]
-> availability.0.offline.0: expected an interval like [10 s, 20 s], found '5 s'; write its begin and its end
availability: [{clients: [2], crash: [{at: 30 s, back: 20 s}]}]
-> availability.0.crash.0.back: expected a return after the crash at 30 s, found 20 s; choose a later time
availability: [{clients: [2], crash: [{at: 3 s, back: never}, {at: 9 s}]}]
-> availability.0.crash.1.at: expected nothing after a crash without return, found 9 s; remove it or add 'back'
availability: [{all: true, random: {up: 0 s, down: 1 s}}]
-> availability.0.random.up: expected a time > 0, found 0 s; choose a longer time, or 'join' for clients that are
   absent at first
clients: {count: 3, speed: {kind: list, values: [1, 2]}}
-> clients.speed.values: expected 3 values, one for each client, found 2; change the list or clients.count
clients: {speed: {kind: uniform, low: 2, high: 1}}
-> clients.speed.high: expected a number >= low, which is 2, found 1; swap low and high
data: {partition: {kind: iid, sizes: {kind: listed, values: [5]}}}
-> data.partition.sizes.values: expected 16 values, one for each client, found 1; change the list or clients.count
data: {partition: {kind: by_label, sizes: {kind: listed, values: [5]}}}
-> data.partition.sizes.kind: expected equal or power_law, found 'listed', which by_label cannot keep; use other
   sizes, or partition kind: iid
data: {partition: {kind: by_label, labels_per_client: 11}}
-> data.partition.labels_per_client: expected at most 10, the classes of data set 'digits', found 11; lower it
data: {partition: {kind: resample}}
-> data.partition.size: expected an integer >= 1, found nothing; add the number of examples that each client draws
data: {set: logistic, samples: 8}
model: {kind: logistic}
-> data.samples: expected at least one example for each of the 16 clients, found 8; draw more samples or use fewer
   clients
data: {set: quadratic, dimension: 3, curvature: [1, 2, 3]}
model: {kind: quadratic}
-> data.dimension: expected nothing beside 'curvature', found 3; remove dimension or curvature
data: {set: quadratic, partition: {kind: shards}}
model: {kind: quadratic}
-> data.partition.kind: expected iid or resample for data set 'quadratic' with model 'quadratic', which has no
   classes, found 'shards'; choose one of them
model: {kind: logistic}
-> model.kind: expected one_vs_all, softmax, svm, mlp, cnn, lenet5, resnet, vgg or mobilenet for the 10 classes of
   data set 'digits', found 'logistic'; choose one of them
data: {set: libsvm, path: a9a}
model: {kind: quadratic}
-> data.set: expected data set 'quadratic' for model 'quadratic', found 'libsvm'; set data.set: quadratic, or
   choose another model
data: {set: quadratic}
-> model.kind: expected quadratic for the points of data set 'quadratic', found 'softmax'; set model.kind:
   quadratic
data: {set: logistic}
model: {kind: lenet5}
-> model.kind: expected logistic, one_vs_all, softmax, svm or mlp for the two classes of data set 'logistic',
   found 'lenet5'; choose one of them
data: {set: mnist, pca: 50}
model: {kind: lenet5}
-> data.pca: expected no pca with model 'lenet5', which needs images, found 50; remove pca, or choose model kind:
   softmax or mlp
data: {set: digits, classes: [3, 3]}
-> data.classes: expected at least two different classes, found [3, 3]; list each once
data: {set: mnist, classes: [0, 10]}
-> data.classes: expected classes below 10, as many as data set 'mnist' has, found 10; classes are numbered from 0
data: {set: digits, class_groups: [[0, 1, 2]]}
-> data.class_groups: expected at least two groups, with every class in at most one, found [[0, 1, 2]]; list each
   class once
data: {set: mnist, class_groups: [[0, 1], [10]]}
-> data.class_groups: expected classes below 10, as many as data set 'mnist' has, found 10; classes are numbered
   from 0
data: {set: mnist, classes: [0, 1], class_groups: [[0, 1], [2]]}
-> data.class_groups: expected classes or class_groups, found both; remove one
data: {set: libsvm, path: a9a, classes: [0, 1]}
model: {kind: linear}
-> model.kind: expected logistic, one_vs_all, softmax, svm, mlp, cnn, lenet5, resnet, vgg or mobilenet for the two
   classes of data set 'libsvm', found 'linear'; choose one of them
data: {set: mnist, classes: [0, 1], partition: {kind: by_label, labels_per_client: 3}}
-> data.partition.labels_per_client: expected at most 2, the classes of data set 'mnist', found 3; lower it
data: {set: linear}
model: {kind: linear}
stop: {epochs: 2, accuracy: 0.9}
-> stop.accuracy: expected no accuracy with model 'linear', found 0.9; stop by time, updates or epochs
clients: {count: 1}
-> clients.count: expected at least 2 clients for topology 'ring', found 1; add clients, or use algorithm kind:
   sync_sgd
topology: {kind: regular, degree: 16}
-> topology.degree: expected fewer than clients.count, which is 16, found 16; lower degree or add clients
clients: {count: 5}
topology: {kind: regular, degree: 3}
-> topology.degree: expected an even number, because the number of clients, 5, is odd, found 3; change degree or
   clients.count by one
topology: {kind: torus, rows: 3}
-> topology.rows: expected a divisor of clients.count, which is 16, with at least 2 columns, found 3; change rows
   or clients.count
clients: {count: 17}
topology: {kind: torus}
-> topology: expected clients.count = rows * columns, both >= 2, found 17 clients; choose clients.count with a
   divisor, or topology kind: ring
topology: {kind: watts_strogatz, neighbors: 16}
-> topology.neighbors: expected fewer than clients.count, which is 16, found 16; lower neighbors or add clients
topology: {kind: watts_strogatz, neighbors: 5}
-> topology.neighbors: expected an even number, found 5; take as many on either side
topology: {kind: barabasi_albert, attachments: 16}
-> topology.attachments: expected fewer than clients.count, which is 16, found 16; lower attachments or add
   clients
topology: {kind: tree, branching: 1}
-> topology.branching: expected an integer >= 2, found 1; choose a value in this range
algorithm: decentralized_sgd
topology: {kind: star, mixing: uniform}
-> topology.mixing: expected metropolis or max_degree for topology 'star', whose degrees differ, found 'uniform';
   use metropolis
algorithm: {kind: adpsgd, pairing: senders}
clients: {count: 15}
-> algorithm.pairing: expected auto or everyone, because topology 'ring' of 15 clients is not bipartite, found
   'senders'; use pairing: everyone, or an even ring
links: {partitions: [{from: 1 s, until: 2 s}]}
-> links.partitions.0: expected exactly one of groups and fraction, found none of them; add groups
links: {partitions: [{fraction: 0.5, from: 3 s, until: 2 s}]}
-> links.partitions.0.until: expected a time after 'from', which is 3 s, found 2 s; swap from and until
links: {partitions: [{groups: [[0, 1], [1, 2]]}]}
-> links.partitions.0.groups: expected each client in one group, found client 1 more than once; list every client
   only once
links: {partitions: [{groups: [[0, 16]]}]}
-> links.partitions.0.groups.0.1: expected a client below clients.count, which is 16, found 16; clients are
   numbered from 0
links: {partitions: [{groups: [[0, serve]]}]}
-> links.partitions.0.groups.0.1: expected a client by number, server, or a name of regions.names, found 'serve';
   add regions
links: {partitions: [{groups: [[0, server]]}]}
-> links.partitions.0.groups.0.1: expected clients alone, found 'server'; remove it: algorithm 'adpsgd' has no
   server
clients: {count: 3}
links: {partitions: [{groups: [[0, 1, 2]]}]}
-> links.partitions.0.groups: expected a node that is cut off, found all nodes in one group; leave some out, or
   add a group
links: {rules: [{latency: 1 ms}]}
-> links.rules.0: expected exactly one of clients, fraction, regions, between and all, found none of them; add
   clients
links: {rules: [{all: true}]}
-> links.rules.0: expected at least one of latency, bandwidth, loss, uplink and downlink, found none of them; say
   what differs
links: {rules: [{clients: [16], loss: 0.1}]}
-> links.rules.0.clients.0: expected a client below clients.count, which is 16, found 16; clients are numbered
   from 0
links: {rules: [{regions: [eu], loss: 0.1}]}
-> links.rules.0.regions.0: expected a client by number, server, or a name of regions.names, found 'eu'; add
   regions
links: {rules: [{all: true, latency: -1 ms}]}
-> links.rules.0.latency: expected a time >= 0, found '-1 ms'; choose a value in this range
links: {rules: [{between: [0, 1], uplink: 1 Mbit/s}]}
-> links.rules.0.uplink: expected clients whose own capacity it is, found uplink between two sides; name clients,
   fraction, regions or all, without direction; or use bandwidth
links: {rules: [{all: true, loss: 0.1, every: 1 s}]}
-> links.rules.0.every: expected 'until' beside 'every', found none; say when it ends each time
regions: {names: [eu, us], counts: [8, 8], latency: [[1 ms, 2 ms], [3 ms]]}
-> regions.latency: expected 2 values, one for each of regions.names, found 1; change the row
regions: {names: [eu, us], counts: [8, 7]}
-> regions.counts: expected counts that add up to clients.count, which is 16, found 15; change them or
   clients.count
server: {offline: [[1 s, 2 s]]}
-> server.offline: expected no outage of a server that is not there, found one; remove it: algorithm 'adpsgd' has
   no server
algorithm: {kind: fedavg}
server: {offline: [[1 s, never], [3 s, 4 s]]}
-> server.offline.1: expected nothing after an interval without end, found 3 s; remove it or name the end
stop: {time: 1 s}
evaluate: {every: {time: 1.0e-12}}
-> evaluate.every.time: expected at most 1,000,000 evaluations until stop.time, which is 1 s, found 0.001 ns;
   evaluate less often
evaluate: {every: {time: 1 ns}}
-> evaluate.every.time: expected at most 1,000 evaluations from one update to the next, or a stop.time, found 1
   ns; evaluate less often
links: {latency: 1.0e+13}
-> links.latency: expected a time of at most 1e+12 s, found 10000000000000.0; choose a shorter time
links: {latency: {kind: lognormal, mean: 1 ms, sigma: 1000}}
-> links.latency.sigma: expected a number >= 0 and <= 5, found 1000; choose a value in this range
algorithm: {kind: deep_q_sgd, memory: 5}
model: {kind: one_vs_all}
-> algorithm.replay: expected at most memory, which is 5, found 10; lower it or raise memory
algorithm:
  kind: adpsgd
  step_size: {kind: by_epochs, values: [0.4], boundaries: [10]}
-> algorithm.step_size.values: expected one step size more than boundaries, that is 2, found 1; give one value
   before, between and after the boundaries
algorithm:
  kind: adpsgd
  step_size: {kind: by_epochs, values: [0.4, 0.1, 0.2], boundaries: [10, 5]}
-> algorithm.step_size.boundaries.1: expected an epoch after 10, found 5; sort the boundaries
""")
