"""simfl in 150 lines: a heap of events, one jitted step, AD-PSGD and SYNC (docs/in_150_lines.md)."""

import heapq
import itertools

import jax
import jax.numpy as jnp
import numpy as np

import simfl
from simfl.streams import Streams
from simfl.tape.draws import batch_positions

# 1. The scenario. Messages take no time: AD-PSGD exchanges at once, and SYNC waits for gradients alone.
SCENARIO = {
    "seed": 1,
    "data": "digits",
    "clients": {"count": 16, "seconds_per_example": "100 us", "jitter": {"kind": "lognormal", "sigma": 0.1}},
    "slowdowns": [{"clients": [3], "factor": 10}],
    "links": {"latency": "0 s", "bandwidth": None},
    "stop": {"time": "1 s"},
    "evaluate": {"every": {"time": "100 ms"}},
}
ADPSGD = {"kind": "adpsgd", "exchange": "atomic", "step_size": 0.4, "batch_size": 32}
SYNC = {"kind": "sync_sgd", "step_size": 0.4, "batch_size": 32}
CLIENTS, BATCH, STEP, STOP, EVERY = range(16), 32, 0.4, 1.0, 0.1

# 2. Draws. Each has a name: (seed, purpose, client, count). So both algorithms meet the same speeds and mini-batches.
STREAMS, KEY = Streams(SCENARIO["seed"]), Streams(SCENARIO["seed"]).key("data")


def draws(purpose, client, law):
    """Yield a client's draws for a purpose, in blocks of 32."""
    for block in itertools.count():
        yield from law(STREAMS.generator(purpose, client, block))


# 3. Learning: softmax regression on the data of each client, one jitted gradient.
SETUP = simfl.prepare({**SCENARIO, "algorithm": ADPSGD})
DATA, PARTITION = SETUP.dataset, SETUP.partition
TRAIN_X, TRAIN_Y, TEST_X, TEST_Y = map(jnp.asarray, (DATA.train_x, DATA.train_y, DATA.test_x, DATA.test_y))
OWN = [jnp.asarray(PARTITION.indices[slice(*PARTITION.offsets[k : k + 2])]) for k in CLIENTS]


def loss(model, x, y):
    """Return the mean cross entropy of a model, weights [10, 64] and bias [10]."""
    logits = x @ model[0].T + model[1]
    return jnp.mean(jax.nn.logsumexp(logits, 1) - logits[jnp.arange(len(y)), y])


@jax.jit
def gradient(model, own, client, draw):
    """Return the gradient of mini-batch number `draw` of a client at a model."""
    at = batch_positions("shuffle", KEY, client, draw, jnp.int32(0), BATCH, BATCH, jnp.int32(len(own)))
    return jax.grad(loss)(model, TRAIN_X[own[at]], TRAIN_Y[own[at]])


@jax.jit
def evaluate(models):
    """Return the training loss and the test accuracy of the mean of some models."""
    model = [sum(parts) / len(models) for parts in zip(*models, strict=True)]
    right = jnp.argmax(TEST_X @ model[0].T + model[1], 1) == TEST_Y
    return loss(model, TRAIN_X, TRAIN_Y), jnp.mean(right)


# 4. The world: a heap of (time, number, call). Calls at one time come in the order in which they were added.
class World:
    """A clock, the models of all clients, and the tables of a run of one algorithm."""

    def __init__(self, algorithm):
        self.now, self.heap, self.numbers = 0.0, [], itertools.count()
        self.models = [[jnp.zeros((10, 64)), jnp.zeros(10)]] * 16
        self.draws = [itertools.count() for _ in CLIENTS]
        self.jitter = [draws("jitter", k, lambda g: np.exp(g.normal(-(0.1**2) / 2, 0.1, 32)).tolist()) for k in CLIENTS]
        self.neighbor = [draws("neighbor", k, lambda g: g.random(32).tolist()) for k in CLIENTS]
        self.updates, self.metrics = [], []
        algorithm(self)

    def after(self, seconds, call):
        """Call a function some seconds from now."""
        heapq.heappush(self.heap, (self.now + seconds, next(self.numbers), call))

    def compute_s(self, client):
        """Return the seconds of the client's next mini-batch: examples x pace x jitter x slowdown."""
        return BATCH * 100e-6 * next(self.jitter[client]) * (10 if client == 3 else 1)

    def gradient(self, client):
        """Return the gradient of a client's next mini-batch at its model as it is now."""
        return gradient(self.models[client], OWN[client], client, next(self.draws[client]))

    def run(self):
        """Let events happen until the stop time, and evaluate between them."""
        marks = [n * EVERY for n in range(round(STOP / EVERY) + 1)]
        while marks:
            time, _, call = heapq.heappop(self.heap)
            while marks and marks[0] <= time * (1 + 1e-9):
                values = map(float, evaluate(self.models))
                self.metrics.append((marks.pop(0), len(self.updates), *values))
            if time < STOP:
                self.now = time
                call()


# 5. Two algorithms.
def adpsgd(world):
    """Let every client work at its own pace."""
    for client in CLIENTS:
        work(world, client)


def work(world, me):
    """Compute a gradient, average with a random neighbor, take the step, and begin again."""
    read, g = len(world.updates), world.gradient(me)

    def done():
        peer = -1
        if me % 2 == 0:  # on a ring, clients of even number begin exchanges
            near = sorted([(me - 1) % 16, (me + 1) % 16])
            peer = near[int(next(world.neighbor[me]) * 2)]
            world.models[me] = world.models[peer] = mean([world.models[me], world.models[peer]])
        world.models[me] = [w - STEP * d for w, d in zip(world.models[me], g, strict=True)]
        world.updates.append((world.now, me, peer, len(world.updates) - read))
        work(world, me)

    world.after(world.compute_s(me), done)


def sync(world):
    """Compute gradients of all clients at one model; when the slowest is done, step along their mean."""
    gradients = [world.gradient(k) for k in CLIENTS]

    def done():
        model = [w - STEP * d for w, d in zip(world.models[0], mean(gradients), strict=True)]
        world.models = [model] * 16
        world.updates += [(world.now, k, -1, 0) for k in CLIENTS]
        sync(world)

    world.after(max(world.compute_s(k) for k in CLIENTS), done)


def mean(models):
    """Return the mean of models, part by part."""
    return [sum(parts) / len(models) for parts in zip(*models, strict=True)]


if __name__ == "__main__":
    for algorithm in (adpsgd, sync):
        world = World(algorithm)
        world.run()
        print(f"{algorithm.__name__}: {len(world.updates)} updates, test accuracy {world.metrics[-1][-1]:.2%}")
