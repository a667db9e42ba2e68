"""Settings of the without-replacement paper: steps, bounds, radii, and contradictions."""

import math

import pytest

from simfl.assembly.assemble import assemble
from simfl.errors import ScenarioError
from simfl.scenario import loads

TEXT = """
data: {{set: digits, normalize: unit_sphere_with_constant}}
model: {{kind: one_vs_all, intercept: false, l2: {l2}}}
clients: {{count: 4}}
algorithm: {{kind: {kind}{options}}}
"""


def _steps(kind: str, options: str = "", l2: float = 0.0) -> list[float]:
    training = assemble(loads(TEXT.format(kind=kind, options=options, l2=l2), "s")).training
    schedule = training.step_size
    return [schedule(t, 0, 0.0) if callable(schedule) else schedule for t in (0, 1, 99_999)]


@pytest.mark.parametrize(("kind", "options", "l2", "steps"), [
    ("without_replacement_sgd", "", 0.0, [0.1, 0.1, 0.1]),
    ("without_replacement_sgd", "", 1e-4, [0.5 / 1.0001, 0.5 / 1.0001, 0.2]),
    ("without_replacement_sgd", ", step_clip: null", 1e-4, [20_000, 10_000, 0.2]),
    ("without_replacement_sgd", ", step_clip: 0.25", 1e-4, [0.25, 0.25, 0.2]),
    ("without_replacement_sgd", ", step_size: 3", 0.0, [0.5, 0.5, 0.5]),
    ("deep_q_sgd", ", step_clip: null", 1e-4, [200_000, 100_000, 2.0]),
    ("deep_q_sgd", ", step_clip: null, explore_to: 1", 1e-4, [20_000, 10_000, 0.2]),
    ("random_walk_sgd", ", step_clip: null", 0.0, [1.0, math.sqrt(0.5), 1e5**-0.5]),
    ("random_walk_sgd", "", 0.0, [0.5, 0.5, 1e5**-0.5]),
])  # fmt: skip
def test_step_sizes_follow_the_paper(kind: str, options: str, l2: float, steps: list[float]) -> None:
    assert _steps(kind, options, l2) == pytest.approx(steps)


@pytest.mark.parametrize(
    ("options", "l2", "radius"),
    [("", 0.0, None), ("", 1e-4, 1e4), (", projection: null", 1e-4, None), (", projection: 7", 0.0, 7.0)],
)
def test_radius_follows_the_paper(options: str, l2: float, radius: float | None) -> None:
    setup = assemble(loads(TEXT.format(kind="without_replacement_sgd", options=options, l2=l2), "s"))
    assert setup.problem.radius == (None if radius is None else pytest.approx(radius))
    assert setup.problem.num_tasks == setup.training.tasks == 10
    assert setup.problem.model.size == 65
    assert setup.model.size == 650


def test_other_algorithms_train_all_tasks_together() -> None:
    setup = assemble(loads(TEXT.format(kind="adpsgd", options="", l2=0.0), "s"))
    assert setup.problem.num_tasks == 1
    assert setup.problem.model.size == 650


@pytest.mark.parametrize(("text", "line"), [
    ("algorithm: {kind: adpsgd}\nprivacy: {mechanism: one_pass_gaussian}\n",
     "privacy.mechanism: expected another mechanism, because the algorithm may use an example more often than "),
    ("algorithm: {kind: deep_q_sgd}\nprivacy: {mechanism: gaussian}\n",
     "privacy.mechanism: expected one_pass_gaussian for algorithm 'deep_q_sgd', found 'gaussian'; use it"),
    ("model: {kind: one_vs_all}\nalgorithm: {kind: without_replacement_sgd}\nprivacy: {mechanism: laplace_l2}\n",
     "privacy.mechanism: expected one_pass_gaussian for tasks on the same data, found 'laplace_l2'; use it"),
    ("algorithm: {kind: without_replacement_sgd, step_clip: none}\n",
     "algorithm.step_clip: expected auto, null or a number > 0, found 'none'; write one of them"),
    ("algorithm: {kind: deep_q_sgd, sampling: poisson}\n", "algorithm.sampling: expected shuffle, found 'poisson'"),
    ("algorithm: {kind: without_replacement_sgd, contention: race, order: rounds}\n", "algorithm.order: expected "
     "random or round_robin with contention: race, in which no node waits, found 'rounds'; choose one, or "
     "contention: token"),
    ("algorithm: {kind: deep_q_sgd, order: newest}\n",
     "algorithm.order: expected random, round_robin, fewest or rounds, found 'newest'"),
    ("algorithm: {kind: random_walk_sgd}\nprivacy: {mechanism: one_pass_gaussian, delta: never}\n",
     "privacy.delta: expected auto or a number > 0 and < 1, found 'never'; write auto or a number"),
    ("algorithm: {kind: random_walk_sgd}\nprivacy: {mechanism: one_pass_gaussian, delta: 2}\n",
     "privacy.delta: expected a number > 0 and < 1, found 2"),
])  # fmt: skip
def test_contradictory_settings_are_rejected(text: str, line: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        loads(text, "s")
    assert line in str(caught.value)
