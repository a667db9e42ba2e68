"""From scenarios to the steps and stages of the AUDP and MAPA paper: its numbers, and what scenarios change in them."""

import math

import pytest

from simfl.assembly.assemble import assemble, build_algorithm
from simfl.assembly.world import build_world
from simfl.errors import ScenarioError
from simfl.papers.mapa import theory as mapa
from simfl.scenario import from_mapping
from simfl.tape import Tape
from tests.helpers import NullExecutor

STAGED = {"kind": "mapa", "batch_size": 12, "largest_staleness": 5, "sampling": "without_replacement"}
RADIUS_ONLY = {"mechanism": "laplace_l2_radius_only", "epsilon_per_release": 0.1}
CORRECT = {"mechanism": "laplace_l2", "epsilon_per_release": 0.1, "neighbors": "replace_one"}


def setup_of(algorithm, privacy=None, count=5, **sections):
    return assemble(
        from_mapping(
            {
                "clients": {"count": count},
                "algorithm": algorithm,
                "privacy": privacy,
                "stop": {"updates": 5000},
                **sections,
            }
        )
    )


def algorithm_of(setup):
    tape = Tape(NullExecutor(), **setup.problem.recorded)
    return build_algorithm(setup, build_world(setup), tape, lambda row: None)


def test_stages_match_the_papers():
    """sigma = 30, b = 12, delta = 1e-3, epsilon = 0.1, tau = 5, L = 10, f(x_1) - f* = 50: the table of Algorithm 1."""
    setup = setup_of({**STAGED, "failure_probability": 1e-3}, RADIUS_ONLY)
    stages = algorithm_of(setup).stages
    assert [stage.first for stage in stages[:5]] == [0, 1, 3, 10, 36]
    assert [stage.clipping_norm for stage in stages[:3]] == pytest.approx([1341.473, 670.737, 335.368], abs=1e-3)
    assert [stage.step_size for stage in stages[:3]] == pytest.approx([0.0011250, 0.00112497, 0.00112487], abs=1e-8)
    assert [stage.noise for stage in stages[:2]] == pytest.approx([1341.473, 670.737], abs=1e-3)
    assert any("clipping begins at 1341.47 (Theorem 3)" in line for line in setup.warnings)


def test_noise_belongs_to_the_clipping_norm():
    """The sum has noise of scale 2C/epsilon_k, that is, the mean one of dS/epsilon_k with C = b dS/2."""
    setup = setup_of(STAGED, {**CORRECT, "clipping_norm": 3.0, "epsilon_per_release": [0.1, 0.2, 0.4, 0.8, 1.6]})
    assert setup.training.noise_scale == pytest.approx([2 * 3.0 / e for e in (0.1, 0.2, 0.4, 0.8, 1.6)])
    assert setup.training.noise_std[0] == pytest.approx(2 * 3.0 / 0.1 * math.sqrt(setup.model.size + 1))
    first = algorithm_of(setup).stages[0]
    assert (first.clipping_norm, first.noise) == (pytest.approx(3.0), pytest.approx(1.0))
    assert setup.ledger.certified
    assert setup.ledger.levels == [0.1, 0.2, 0.4, 0.8, 1.6]


def test_in_high_dimension_the_recipe_has_one_stage_and_warns():
    wide = {**CORRECT, "clipping_norm": 1000.0}
    setup = setup_of(STAGED, wide)
    assert len(algorithm_of(setup).stages) == 1
    assert any("mapa stays in its first stage" in line and "650 parameters" in line for line in setup.warnings)
    paper = setup_of({**STAGED, "second_moment": "paper"}, wide)
    assert len(algorithm_of(paper).stages) > 3
    limited = setup_of({**STAGED, "second_moment": "paper", "stages": 2}, wide)
    assert algorithm_of(limited).stages == algorithm_of(paper).stages[:2]


@pytest.mark.parametrize(("algorithm", "expected"), [
    ({"kind": "async_sgd"}, lambda t: 1 / (10 * 6**2 + math.sqrt(t + 1) * 5 / (50 * math.sqrt(12)))),
    ({"kind": "async_sgd", "largest_staleness": 2, "smoothness": 3.0, "sampling_std": 7.0, "radius": 2.0},
     lambda t: 1 / (3 * 9 + math.sqrt(t + 1) * 7 / (2 * math.sqrt(12)))),
    ({"kind": "audp"}, lambda t: 1 / (10 * 6 + math.sqrt(900 / 12 + 1) * math.sqrt(t))),
    ({"kind": "audp", "without_logarithm": True}, lambda t: 1 / (10 * 37 + math.sqrt(76 * t))),
], ids=["asgd", "asgd with options", "audp", "audp without logarithm"])  # fmt: skip
def test_null_step_sizes_follow_the_papers_formulas(algorithm, expected):
    steps = setup_of({"batch_size": 12, "step_size": None, **algorithm}).training.step_size
    for t in (1, 2, 100, 5000):
        assert steps(t - 1, 0, 0.0) == pytest.approx(expected(t), rel=1e-12)


def test_one_machine_has_no_delay():
    steps = setup_of({"kind": "centralized_sgd", "batch_size": 12, "step_size": None}, count=1).training.step_size
    assert steps(0, 0, 0.0) == pytest.approx(1 / (10 + math.sqrt(2) * 5 / (50 * math.sqrt(12))))


@pytest.mark.parametrize(("privacy", "moment", "expected"), [
    (CORRECT, "exact", 650 * 651 * (2.0 / 12 / 0.1) ** 2),
    (CORRECT, "paper", 2 * (2.0 / 12 / 0.1) ** 2),
    (RADIUS_ONLY, "exact", 2 * (2.0 / 12 / 0.1) ** 2),
    ({**CORRECT, "neighbors": "add_or_remove"}, "paper", 2 * (1.0 / 12 / 0.1) ** 2),
    ({"mechanism": "gaussian", "noise_multiplier": 3.0}, "exact", 650 * (3.0 / 12) ** 2),
], ids=["exact", "paper", "radius only", "half the sensitivity", "gaussian"])  # fmt: skip
def test_audp_steps_use_the_variance_of_the_noise_added(privacy, moment, expected):
    algorithm = {"kind": "audp", "batch_size": 12, "sampling": "without_replacement", "second_moment": moment}
    steps = setup_of(algorithm, privacy).training.step_size
    assert steps.variance == pytest.approx(900 / 12 + expected, rel=1e-12)
    assert steps(0, 0, 0.0) == pytest.approx(mapa.audp_step_size(steps.problem, steps.variance, 1))


@pytest.mark.parametrize(("algorithm", "privacy", "count", "message"), [
    ({"kind": "mapa"}, None, 5, r"privacy: expected laplace_l2 for algorithm 'mapa', found nothing"),
    ({"kind": "mapa"}, {"mechanism": "gaussian"}, 5, r"expected laplace_l2 for algorithm 'mapa', found 'gaussian'"),
    ({"kind": "mapa"}, {"mechanism": "laplace_l2"}, 5, r"privacy\.neighbors: expected replace_one for algorithm"),
    ({"kind": "mapa", "step_size": 0.1}, CORRECT, 5, r"algorithm\.step_size: expected null, because the stages"),
    ({"kind": "centralized_sgd"}, None, 5, r"clients\.count: expected 1, the machine that has all the data, found 5"),
    ({"kind": "async_sgd", "delays": "cyclic", "staleness_bound": {"bound": 3}}, None, 5,
     r"algorithm\.staleness_bound: expected no bound with delays 'cyclic', found a staleness bound"),
    ({"kind": "audp"}, {**CORRECT, "noise_on": "first_convolution"}, 5,
     r"privacy\.noise_on: found 'first_convolution' with model 'softmax', expected a convolutional model"),
])  # fmt: skip
def test_contradictory_scenarios_are_refused(algorithm, privacy, count, message):
    with pytest.raises(ScenarioError, match=message):
        setup_of(algorithm, privacy, count)


def test_noise_on_the_first_convolution_alone_is_never_certified():
    setup = setup_of({"kind": "audp"}, {**CORRECT, "noise_on": "first_convolution"}, model={"kind": "lenet5"})
    size = 6 * (25 + 1)
    assert setup.problem.noise.first == size
    assert setup.training.noise_std[0] == pytest.approx(2.0 / 0.1 * math.sqrt(size + 1))
    assert not setup.ledger.certified
    assert "sent as they are" in setup.ledger.statement
    assert any(line.startswith("privacy.noise_on: first_convolution sends") for line in setup.warnings)


def test_a_clipped_mean_has_the_stages_and_noise_of_the_listing_at_b_times_its_epsilon():
    """Line 5 of Algorithm 1 as printed: C = b dS/2 bounds the mean, and its noise has scale dS/epsilon."""
    staged = {**STAGED, "failure_probability": 1e-3}
    as_printed = {"mechanism": "laplace_l2_radius_only_mean", "epsilon_per_release": mapa.printed_epsilon(0.1, 12)}
    each, mean = setup_of(staged, RADIUS_ONLY), setup_of(staged, as_printed)
    for one, other in zip(algorithm_of(each).stages, algorithm_of(mean).stages, strict=True):
        assert (one.first, one.noise) == (other.first, other.noise)
        assert other.clipping_norm == pytest.approx(one.clipping_norm, rel=1e-12)
        assert other.step_size == pytest.approx(one.step_size, rel=1e-12)
    assert mean.training.noise_scale == pytest.approx(each.training.noise_scale), "on the sum"
    assert (each.problem.clipping.clip, mean.problem.clipping.clip) == ("example", "update")
    assert not mean.ledger.certified
    assert any("laplace_l2_radius_only_mean is not private" in line for line in mean.warnings)
