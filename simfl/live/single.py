"""One client's arithmetic on its own data, computed on request, as on a worker."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from simfl.tape.inputs import inputs_of
from simfl.tape.kernels import change_of_round, gradient_of_batch, positions_of_batch
from simfl.tape.problem import LearningProblem

Params = NDArray[np.float32]


class SingleClient:
    """One client's gradients and local rounds, with a simulated run's mini-batches.

    Args:
        problem: that of all clients, without noise and clipping; the other clients' examples are dropped.
        client: its number.
        device: where to compute.
    """

    def __init__(self, problem: LearningProblem, client: int, device: jax.Device) -> None:
        operation, data = problem.operation, problem.data
        own = data.indices[data.offsets[client] : data.offsets[client + 1]]
        arrays = problem.arrays() | {
            "x": inputs_of(data.train_x[own], data.scaling, problem.model),
            "y": data.train_y[own],
            "table": np.arange(len(own), dtype=np.int32),
            "offsets": np.zeros(len(data.sizes), dtype=np.int32),
        }
        self._data = jax.device_put(arrays, device)
        self._client, self._lanes, self._size = client, operation.lanes, min(problem.batches.size, len(own))
        gradient, positions = gradient_of_batch(operation), positions_of_batch(operation)

        def one(params: jax.Array, data: Any, ints: jax.Array) -> jax.Array:
            return gradient(params, data, ints, positions(data, ints), jnp.float32(0.0))[0]

        self._gradient: Any = jax.jit(one)
        self._change: Any = jax.jit(change_of_round(operation)) if operation.local else None

    def gradient(self, params: Params, draw: int, size: int) -> Params:
        """Return the sum of gradients of mini-batch `draw`, f32 [d]."""
        total = np.zeros_like(params)
        for first in range(0, size, self._lanes):
            ints = np.array([self._client, draw, first, min(size - first, self._lanes)], dtype=np.int32)
            total = total + np.asarray(self._gradient(params, self._data, ints))
        return total

    def change(self, params: Params, draw: int, steps: int, step_size: float) -> Params:
        """Return the change by the `steps` local steps from `draw` on, f32 [d]."""
        ints = np.array([self._client, draw, steps, self._size], dtype=np.int32)
        floats = np.array([0.0, step_size, 0.0, 0.0, 0.0], dtype=np.float32)
        return np.asarray(self._change(params, self._data, ints, floats, np.int32(steps))[0])
