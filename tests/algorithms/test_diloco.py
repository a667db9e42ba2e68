"""DiLoCo: its rounds written out in NumPy, and the clock of the public notebook."""

import numpy as np
import pytest

from tests.algorithms.test_optimizers import D, run, start
from tests.helpers import batch_gradient, make_problem, make_world
from tests.helpers import run_without_numbers as timed

#: Seconds of a step of the four workers of google-deepmind/asyncdiloco, AsyncLocalSGDToyExample.ipynb.
STEP_S = (0.58, 0.75, 1.51, 3.33)
STEPS, ETA, DECAY, LR, BETA = 5, 0.003, 0.1, 0.7, 0.9


def adamw(problem, w, moments, client, draw):
    """Return a model and moments after a round of Kingma and Ba's Algorithm 1 with decoupled decay, float64."""
    m, v, t = moments
    for h in range(STEPS):
        g = batch_gradient(problem, w, client, draw + h, 8) / 8
        m, v, t = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g, t + 1
        w = w - ETA * (m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8) + DECAY * w)
    return w, (m, v, t)


@pytest.mark.numbers
@pytest.mark.slow
def test_rounds_equal_the_listing_in_numpy():
    problem = make_problem(3, local=True)
    section = {"optimizer": {"kind": "adam", "weight_decay": DECAY}}
    models = run(
        problem, "diloco", section, updates=12, step_size=ETA, initial=start(), server_step=LR, weighting="uniform",
        steps=[STEPS] * 3,
    )  # fmt: skip
    x, momentum = start().astype(np.float64), np.zeros(D)
    moments = [(np.zeros(D), np.zeros(D), 0)] * 3
    for r in range(4):
        total = np.zeros(D)
        for k in range(3):
            w, moments[k] = adamw(problem, x, moments[k], k, r * STEPS)
            total += (x - w) / 3
        momentum = BETA * momentum + total
        x = x - LR * (total + BETA * momentum)
    np.testing.assert_allclose(models[0], x, rtol=0, atol=1e-5)
    assert np.abs(x - start()).max() > 0.05


def test_phases_end_at_the_recorded_times_of_the_notebook():
    world = make_world(4, seconds_per_example=1 / 8, speeds=list(STEP_S))
    _, rows = timed("diloco", world, updates=20, steps=[20] * 4)
    ends = [row[0] for row in rows]
    assert ends == pytest.approx([66.60 * (1 + i // 4) for i in range(20)], abs=1e-6)
