"""What steps draw before they run: mini-batches, with their examples, and noise.

The settings of a group share draws. A run alone also draws before its steps if its examples exceed a cache: taken one
step after the other, they take twice as long. Where another core is idle, it draws for the next steps meanwhile.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from simfl.tape import kernels
from simfl.tape.cores import further_core, moved
from simfl.tape.problem import LearningProblem
from simfl.tape.tuning import CACHE_BYTES, MOST_DRAWN_BYTES

#: The number of steps of a call, and the integers of its gradients.
Drawing = tuple[np.int32, NDArray[np.int32]]


class Ahead:
    """Draws for the steps of the next call; one instance per executor.

    Args:
        problem: the arithmetic.
        shapes: those of the programs' arguments.
        steps, width: steps of a call, and gradients of a step.
        device: where steps run, if it is one device whose program runs all steps; None: nothing is drawn before.
        settings: the number of settings.
        beside: whether another core may draw.
    """

    def __init__(
        self,
        problem: LearningProblem,
        shapes: Any,
        steps: int,
        width: int,
        device: jax.Device | None,
        settings: int,
        beside: bool,
    ) -> None:
        operation, x = problem.operation, problem.data.train_x
        noise_bytes = 4 * steps * width * problem.model.size if kernels.draws_noise(operation) else 0
        taken_bytes = steps * width * operation.lanes * x[:1].nbytes
        self._shares = device is not None and not operation.local and noise_bytes <= MOST_DRAWN_BYTES
        self._takes = x.nbytes > CACHE_BYTES and taken_bytes <= MOST_DRAWN_BYTES
        self._alone = self._shares and self._takes and device is not None and device.platform == "cpu"
        self._program_of = functools.partial(kernels.draws_program, shapes, operation)
        self._here, self._core = device, further_core(1) if beside and self.draws_for(settings) else None
        self._thread = ThreadPoolExecutor(1, "simfl-draws") if self._core is not None else None
        self._data: dict[int, Any] = {}  # on the other core, by setting

    def draws_for(self, settings: int) -> bool:
        """Return whether settings of equal draws draw before their steps."""
        return (self._shares and settings > 1) or self._alone

    def drawn(self, calls: Sequence[Drawing], first_name: int, data: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield what the steps of each call draw, in order; see `kernels.draws_program`."""
        program = self._program_of(first_name, self._takes)
        begun: Callable[[], dict[str, Any]] | None = None
        for following in (*calls, None):
            before, begun = begun, following and self._begin(program, following, data)
            if before is not None:
                yield before()

    def close(self) -> None:
        """End the thread, and let go of the data."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
        self._data.clear()

    def _begin(self, program: Callable[..., Any], call: Drawing, data: dict[str, Any]) -> Callable[[], dict[str, Any]]:
        """Begin to draw; call what is returned for the draws."""
        if self._thread is None:
            return functools.partial(program, *call, data)
        future: Future[dict[str, Any]] = self._thread.submit(self._draw, program, *call, data)
        return future.result

    def _draw(self, program: Callable[..., Any], steps: np.int32, ints: Any, data: dict[str, Any]) -> Any:
        assert self._core is not None
        assert self._here is not None
        if id(data) not in self._data:
            self._data[id(data)] = moved(data, self._core)
        drawn = program(steps, jax.device_put(ints, self._core), self._data[id(data)])
        return jax.block_until_ready(moved(drawn, self._here))
