"""Runs in FedJAX's environment: FEATURES CLASSES CLIENTS; prints updates/s.

Synchronous rounds of federated averaging by FedJAX's own algorithm and its jitted backend. Every client computes ten
mini-batches of 32: fewer would be unfair to this backend. The first round, which compiles, does not count.
"""

# mypy: ignore-errors
from __future__ import annotations

import sys
import time

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

BATCH, STEPS, ROUNDS = 32, 10, 60


def main() -> None:
    """Measure, and print."""
    features, classes, clients = map(int, sys.argv[1:])
    transformed = hk.transform(lambda batch: hk.Linear(classes)(batch["x"]))

    def loss(batch, predictions):
        one_hot = jax.nn.one_hot(batch["y"], classes)
        return -jnp.sum(one_hot * jax.nn.log_softmax(predictions), axis=-1)

    sample = {"x": np.zeros((1, features), np.float32), "y": np.zeros(1, np.int32)}
    model = fedjax.create_model_from_haiku(transformed, sample, loss, {}, train_kwargs={})
    gradient = fedjax.model_grad(model)
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        gradient,
        fedjax.optimizers.sgd(0.1),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=BATCH, num_epochs=1),
    )
    generator = np.random.default_rng(0)
    data = [
        fedjax.ClientDataset(
            {
                "x": generator.standard_normal((STEPS * BATCH, features), dtype=np.float32),
                "y": generator.integers(classes, size=STEPS * BATCH).astype(np.int32),
            }
        )
        for _ in range(clients)
    ]
    state = algorithm.init(model.init(jax.random.PRNGKey(0)))
    began = 0.0
    for number in range(ROUNDS + 1):
        if number == 1:
            jax.block_until_ready(state.params)
            began = time.perf_counter()
        keys = jax.random.split(jax.random.PRNGKey(number), clients)
        names = [str(client).encode() for client in range(clients)]
        state, _ = algorithm.apply(state, list(zip(names, data, keys, strict=True)))
    jax.block_until_ready(state.params)
    print(ROUNDS * clients * STEPS / (time.perf_counter() - began))


if __name__ == "__main__":
    main()
