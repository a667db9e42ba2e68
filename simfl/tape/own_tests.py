"""Each client's model on the client's own test examples, perhaps after local steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from simfl.tape import kernels
from simfl.tape.evaluation import Evaluator, Examples
from simfl.tape.layout import padded_size
from simfl.tape.problem import Batches, LearningProblem, Operation, Optimizing, OwnTests


class OwnMeasures:
    """Measures models on the test examples of one client at a time.

    Examples are padded to powers of two, so that few sizes are compiled.
    """

    def __init__(self, evaluator: Evaluator, problem: LearningProblem, own: OwnTests) -> None:
        self._evaluator, self._own, data = evaluator, own, problem.data
        self._tests: list[Examples | None] = []
        for begin, end in zip(own.offsets[:-1].tolist(), own.offsets[1:].tolist(), strict=True):
            part, total = own.indices[begin:end], padded_size(end - begin)
            of_client = evaluator.examples(data.test_x[part], data.test_y[part], total=total) if len(part) else None
            self._tests.append(of_client)
        self._train: Callable[..., jax.Array] | None = None
        if own.local is not None:
            size = min(problem.batches.size, int(data.sizes.max()))
            batches, operation = Batches("shuffle", problem.batches.size), problem.operation
            plain = dataclasses.replace(
                operation, batches=batches, lanes=size, clip=None, own_norms=False, noise=None, blocks=1, local=True,
                projects=False, optimizing=Optimizing(), corrected=False, alternates=own.local.parts is not None,
            )  # fmt: skip
            self._train = local_program(problem.model.size, plain, own.local.count)
            self._sizes = np.minimum(data.sizes, size)

    def __call__(
        self, model_of: Callable[[int], Any], center: NDArray[np.float64], data: Mapping[str, Any]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Return the loss, accuracy and distance of each client's model, [K]; NaN without tests.

        `model_of` returns a client's parameters; the distance is theirs from `center`, before local steps. `data` are
        the arguments of the executor's programs.
        """
        loss, accuracy, distance = np.full((3, len(self._tests)), np.nan)
        for client, tests in enumerate(self._tests):
            model = model_of(client)
            distance[client] = np.linalg.norm(np.asarray(model, dtype=np.float64) - center)
            if tests is None:
                continue
            if (local := self._own.local) is not None and self._train is not None:
                given = {**data, "data_key": local.key, "proximal": np.float32(0.0), "power": np.float32(1.0)}
                if local.parts is not None:
                    given |= {"personal": local.parts, "personal_steps": np.int32(local.count)}
                names = np.int32(client), np.int32(self._sizes[client]), np.float32(local.step_size)
                model = self._train(model, given, *names)
            loss[client], accuracy[client], _ = self._evaluator.measure(model, tests)
        return loss, accuracy, distance


@kernels.kept
def local_program(operation: Operation, steps: int) -> Any:
    """Return (params, data, client, size of a mini-batch, eta) -> params after local steps."""
    change = kernels.change_of_round(operation)

    def run(params: jax.Array, data: Any, client: jax.Array, size: jax.Array, eta: jax.Array) -> jax.Array:
        names = jnp.stack([client, jnp.int32(0), jnp.int32(steps), size])
        none = jnp.float32(0.0)
        return params + change(params, data, names, jnp.stack([none, eta, none, none, none]), jnp.int32(steps))[0]

    return jax.jit(run)
