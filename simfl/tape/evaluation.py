"""Evaluation of models on the device: loss, accuracy and predictions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.sharding import NamedSharding
from numpy.typing import NDArray

from simfl.data.base import AS_IS, Scaling
from simfl.models import AbstractModel
from simfl.tape import kernels
from simfl.tape.inputs import Inputs, inputs_of
from simfl.tape.layout import padded_size

#: Examples evaluated at a time.
CHUNK_EXAMPLES = 500
#: Examples evaluated at a time by convolutional models. Loss and accuracy share one forward pass, which must be small.
CHUNK_IMAGES = 100
#: Examples on the device at a time, when a model predicts for a large set.
CHUNK_ANSWERS = 20_000

Params: TypeAlias = jax.Array | NDArray[np.float32]
#: Examples on the device in whole chunks: x, y, and weight, which is 0 for the padding of the last chunk.
Examples = tuple[Inputs, jax.Array, jax.Array]


class Evaluator:
    """Evaluates a model with any parameters.

    Args:
        model: pure functions of a flat vector.
        device: where to compute, or how examples are distributed over several devices.
        scaling: how integer features are converted.
    """

    def __init__(self, model: AbstractModel, device: jax.Device | NamedSharding, scaling: Scaling = AS_IS) -> None:
        self.model = model
        self.device = device
        self.scaling = scaling
        self.chunk = CHUNK_IMAGES if model.convolutional else CHUNK_EXAMPLES

    def examples(
        self, x: NDArray[Any], y: NDArray[Any], chunk: int | None = None, total: int | None = None
    ) -> Examples:
        """Put a set onto the device, filled up to whole chunks, or to `total` examples."""
        count = max(len(x), 1)
        chunk = min(chunk or self.chunk, count)
        total = total or -(-count // chunk) * chunk
        take = np.minimum(np.arange(total), max(len(x) - 1, 0))
        weight = (np.arange(total) < len(x)).astype(np.float32)
        inputs = inputs_of(x[take], self.scaling, self.model)
        examples: Examples = jax.device_put((inputs, y[take], weight), self.device)
        return examples

    def measure(self, params: Params, examples: Examples) -> tuple[float, float, dict[str, float]]:
        """Return the mean loss with the penalty, the accuracy, and the model's metrics."""
        x, y, weight = examples
        program = kernels.evaluation_program(weight.shape, self.model, self._chunk_of(len(weight)))
        loss, correct, metrics = program(params, x, y, weight)
        return float(loss), float(correct), {name: float(metrics[name]) for name in self.model.metric_names}

    def _chunk_of(self, count: int) -> int:
        """Return how many of some padded examples are measured at a time."""
        chunk = min(self.chunk, count)
        return chunk if count % chunk == 0 else padded_size(chunk + 1) // 2  # a power of two

    def validated(self, params: Params, parts: Sequence[Examples]) -> dict[str, float]:
        """Return what `measure` does of the validation part, if there is one, by column."""
        measures: dict[str, float] = {}
        for part in parts:
            loss, accuracy, own = self.measure(params, part)
            measures |= {f"validation_{name}": value for name, value in own.items()}
            measures |= {"validation_loss": loss, "validation_accuracy": accuracy}
        return measures

    def answers(
        self, params: Params, x: NDArray[Any], y: NDArray[Any]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the predictions, f32 [n, ...], and which are correct, f32 [n]."""
        outputs = []
        for at in range(0, len(x), CHUNK_ANSWERS):
            part = slice(at, at + CHUNK_ANSWERS)
            some = self.examples(x[part], y[part])
            program = kernels.answers_program(some[2].shape, self.model, min(self.chunk, len(some[2])))
            scores, right = program(params, *some[:2])
            count = len(x[part])
            outputs.append((np.asarray(scores)[:count], np.asarray(right)[:count]))
        return np.concatenate([scores for scores, _ in outputs]), np.concatenate([right for _, right in outputs])
