"""Models of clients, one by one, on their own test examples or on the common ones."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from simfl.tape import kernels
from simfl.tape.evaluation import Evaluator, Examples
from simfl.tape.layout import padded_size
from simfl.tape.problem import Batches, LearningProblem, LocalSteps, Operation, Optimizing


class EachClient:
    """Measures models one by one, on the common test set or on clients' own examples.

    Own examples are padded to powers of two, so that few sizes are compiled.

    Args:
        evaluator: measures one model.
        problem: says who has which test examples.
        common: the test set.
    """

    def __init__(self, evaluator: Evaluator, problem: LearningProblem, common: Examples) -> None:
        self._evaluator, self._common, data = evaluator, common, problem.data
        self._tests: list[Examples | None] | None = None
        if (own := problem.measured.own) is None:
            return
        self._tests, self._local = [], own.local
        for begin, end in itertools.pairwise(own.offsets.tolist()):
            part, total = own.indices[begin:end], padded_size(end - begin)
            of_client = evaluator.examples(data.test_x[part], data.test_y[part], total=total) if len(part) else None
            self._tests.append(of_client)
        if own.local is not None:
            size = min(problem.batches.size, int(data.sizes.max()))
            plain = dataclasses.replace(
                problem.operation, batches=Batches("shuffle", problem.batches.size), lanes=size, clip=None,
                own_norms=False, noise=None, blocks=1, local=True, projects=False, optimizing=Optimizing(),
                corrected=False, own_pull=False, alternates=own.local.parts is not None,
            )  # fmt: skip
            self._train = local_program(problem.model.size, plain, own.local.count)
            self._sizes = np.minimum(data.sizes, size)

    def __call__(
        self, mean: jax.Array, model_of: Callable[[int], jax.Array], count: int, data: Mapping[str, Any]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return the loss, accuracy and distance of each model, [K]; NaN without tests.

        `model_of` returns the parameters of one of `count` models; own examples test the mean model unless each client
        has a model. Distances are from the mean, before local steps. `data` are the arguments of programs.
        """
        tests = [self._common] * count if self._tests is None else self._tests
        center = np.asarray(mean, dtype=np.float64)
        loss, accuracy, distance = np.full((3, len(tests)), np.nan)
        for client, examples in enumerate(tests):
            model = model_of(client) if count == len(tests) else mean
            distance[client] = np.linalg.norm(np.asarray(model, dtype=np.float64) - center)
            if self._tests is not None and self._local is not None:
                model = self._after_steps(client, model, self._local, data)
            if examples is not None:
                loss[client], accuracy[client], _ = self._evaluator.measure(model, examples)
        return loss, accuracy, distance

    def _after_steps(self, client: int, model: jax.Array, local: LocalSteps, data: Mapping[str, Any]) -> Any:
        """Return a model after a client's local steps."""
        given = {**data, "data_key": local.key, "proximal": np.float32(0.0), "power": np.float32(1.0)}
        if local.parts is not None:
            given |= {"personal": local.parts, "personal_steps": np.int32(local.count)}
        size = np.int32(self._sizes[client])
        return self._train(model, given, np.int32(client), size, np.float32(local.step_size))


@kernels.kept
def local_program(operation: Operation, steps: int) -> Any:
    """Return (params, data, client, size of a batch, eta) -> params after steps."""
    change = kernels.change_of_round(operation)

    def run(params: jax.Array, data: Any, client: jax.Array, size: jax.Array, eta: jax.Array) -> jax.Array:
        names = jnp.stack([client, jnp.int32(0), jnp.int32(steps), size])
        none = jnp.float32(0.0)
        return params + change(params, data, names, jnp.stack([none, eta, none, none, none]), jnp.int32(steps))[0]

    return jax.jit(run)
