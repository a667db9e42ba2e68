"""Problems whose optimum is known: suboptimality and distance, against closed forms."""

import numpy as np
import pytest

import simfl
from simfl.data.synthetic import load_linear, load_logistic, load_quadratic
from simfl.errors import ScenarioError
from simfl.streams import Streams

LOADERS = {"quadratic": load_quadratic, "linear": load_linear, "logistic": load_logistic}


def scenario(kind, **changes):
    """Return four clients that take steps with their whole shares, so that no draw is left."""
    base = {
        "data": {"set": kind, "samples": 64, "dimension": 5, "condition_number": 4.0},
        "model": {"kind": kind},
        "clients": {"count": 4},
        "topology": {"kind": "complete"},
        "algorithm": {"kind": "sync_sgd", "batch_size": 16, "sampling": "shuffle", "step_size": 0.5},
        "stop": {"epochs": 30},
        "evaluate": {"every": {"epochs": 1}, "metrics": ["suboptimality", "distance"]},
    }
    return {**base, **changes}


def run(tmp_path, kind, **changes):
    return simfl.run(scenario(kind, **changes), out=tmp_path)


def test_gradient_descent_on_a_quadratic_contracts_by_the_eigenvalues(tmp_path):
    table = run(tmp_path, "quadratic").metrics
    data = load_quadratic(None, Streams(0), samples=64, dimension=5, condition_number=4.0)
    h = data.curvature.astype(float)
    away = -data.optimum[None, :] * (1 - 0.5 * h) ** np.arange(len(table))[:, None]
    np.testing.assert_allclose(table["distance"], np.linalg.norm(away, axis=1), rtol=1e-4, atol=2e-6)
    np.testing.assert_allclose(table["suboptimality"], 0.5 * (away**2 @ h), rtol=1e-3, atol=1e-12)


@pytest.mark.parametrize("kind", LOADERS)
def test_the_suboptimality_is_zero_at_the_optimum_and_the_loss_above_it_elsewhere(kind):
    data = LOADERS[kind](None, Streams(3), samples=200, dimension=6, l2=0.01)
    assert abs(data.suboptimality(data.optimum)) < 1e-15
    generator = np.random.default_rng(0)
    for _ in range(10):
        w = data.optimum + 0.1 * generator.standard_normal(len(data.optimum))
        assert data.suboptimality(w) == pytest.approx(loss(kind, data, w) - data.optimal_loss, rel=1e-9)
        assert data.suboptimality(w) > 0


def loss(kind, data, w, l2=0.01):
    if kind == "quadratic":
        return 0.5 * (((data.train_x.astype(float) - w) ** 2) @ data.curvature.astype(float)).mean() + l2 / 2 * (w @ w)
    z = data.train_x.astype(float) @ w[:-1] + w[-1]
    each = 0.5 * (z - data.train_y) ** 2 if kind == "linear" else np.logaddexp(0, -(2.0 * data.train_y - 1) * z)
    return each.mean() + l2 / 2 * (w @ w)


@pytest.mark.parametrize("kind", LOADERS)
def test_a_run_ends_at_the_first_evaluation_below_the_goal(tmp_path, kind):
    ended = run(tmp_path, kind, stop={"epochs": 2000, "suboptimality": 1e-3}, evaluate={"every": {"epochs": 1}})
    values = ended.metrics["suboptimality"]
    assert values.iloc[-1] <= 1e-3 < values.iloc[-2]
    assert ended.manifest.reason == "suboptimality"
    assert "distance" not in ended.metrics


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"evaluate": {"every": {"epochs": 1}, "metrics": ["distance"]}},
         "evaluate.metrics: expected data of known optimum (quadratic, logistic, linear) with the model of that "
         "kind, found distance with data 'digits' and model 'softmax'; remove it, or choose such data and model"),
        ({"stop": {"epochs": 3, "suboptimality": 1e-6}, "evaluate": {"every": {"epochs": 1}}},
         "stop.suboptimality: expected data of known optimum (quadratic, logistic, linear) with the model of that "
         "kind, found 1e-06 with data 'digits' and model 'softmax'; remove it, or choose such data and model"),
    ],
)  # fmt: skip
def test_a_problem_without_a_known_optimum_is_refused(changes, line):
    with pytest.raises(ScenarioError) as caught:
        simfl.load(scenario("quadratic", data={"set": "digits"}, model={"kind": "softmax"}, **changes))
    assert line in str(caught.value)


def test_a_goal_that_may_never_be_reached_needs_an_end():
    with pytest.raises(ScenarioError, match="only suboptimality, which may never be reached"):
        simfl.load(scenario("quadratic", stop={"suboptimality": 1e-6}))


@pytest.mark.slow(but=["4"])
@pytest.mark.parametrize("size", [4, 16])
def test_gradient_noise_has_the_stated_mean_square_whatever_the_batch(tmp_path, size):
    # One client, curvature 1 and a step of 1: each step goes to the mean of its batch, minus the noise.
    changes = {
        "data": {"set": "quadratic", "samples": 16, "curvature": [1.0] * 50, "noise": 0.0},
        "clients": {"count": 2},
        "algorithm": {"kind": "sync_sgd", "batch_size": min(size, 8), "step_size": 1.0, "gradient_noise": 3.0},
        "stop": {"updates": 300},
        "evaluate": {"every": {"updates": 2}, "metrics": ["distance"]},
    }
    squares = run(tmp_path, "quadratic", **changes).metrics["distance"].to_numpy()[1:] ** 2
    # The mean of two clients' gradients has half of sigma^2; a chi-square of 50 degrees has deviation sqrt(2/50).
    error = 4.5 * np.sqrt(2 / 50) / np.sqrt(len(squares))
    assert squares.mean() == pytest.approx(4.5, abs=4 * error)


@pytest.mark.parametrize(
    ("algorithm", "privacy", "line"),
    [
        ("fedavg", None, "algorithm.gradient_noise: expected 0 with fedavg, found 3: noise is added to single "),
        (
            "sync_sgd",
            {"mechanism": "gaussian", "clipping_norm": 1.0, "noise_multiplier": 1.0},
            "algorithm.gradient_noise: expected 0 beside privacy, found 3.0; remove it: no account counts this noise",
        ),
    ],
)
def test_gradient_noise_that_theory_does_not_know_is_refused(tmp_path, algorithm, privacy, line):
    kind = {"kind": algorithm, "batch_size": 16, "gradient_noise": 3.0}
    with pytest.raises(ScenarioError) as caught:
        run(tmp_path, "quadratic", algorithm=kind, **({} if privacy is None else {"privacy": privacy}))
    assert line in str(caught.value)
