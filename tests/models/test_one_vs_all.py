"""One-vs-all: independent binary models side by side, and the largest score wins."""

import numpy as np
import pytest

from tests.models.cases import KEY, MODELS, quick_jit

WHOLE = MODELS["one_vs_all"]


def _examples(count: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    params = generator.standard_normal(WHOLE.size).astype(np.float32)
    x = generator.standard_normal((count, 6)).astype(np.float32)
    return params, x, generator.integers(0, 4, count).astype(np.int32)


def test_its_parameters_losses_and_gradients_are_those_of_its_tasks_one_after_the_other() -> None:
    task = WHOLE.task_models[0]
    params, x, y = _examples()
    rows = params.reshape(4, task.size)
    weight = np.ones(len(x), np.float32)
    losses = sum(quick_jit(task.losses)(rows[c], x, (y == c).astype(np.int32)) for c in range(4))
    assert quick_jit(WHOLE.losses)(params, x, y) == pytest.approx(losses, rel=1e-5)
    gradients = [quick_jit(task.gradient_sum)(rows[c], x, (y == c).astype(np.int32), weight) for c in range(4)]
    assert quick_jit(WHOLE.gradient_sum)(params, x, y, weight) == pytest.approx(np.concatenate(gradients), abs=1e-4)
    scores = np.stack([quick_jit(task.predict)(row, x) for row in rows], axis=1)
    assert quick_jit(WHOLE.predict)(params, x) == pytest.approx(scores, abs=1e-5)
    assert np.array_equal(quick_jit(WHOLE.correct)(params, x, y) == 1.0, scores.argmax(axis=1) == y)
    assert WHOLE.size == 4 * task.size == 28
    assert task.l2 == WHOLE.l2
    assert not np.any(quick_jit(WHOLE.init)(KEY))
