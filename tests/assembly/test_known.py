"""The stated constants of problems with known optimum, against closed forms in NumPy."""

import numpy as np
import pytest

import simfl
from simfl.assembly.forecast import forecast

BASE = {"clients": {"count": 4}, "stop": {"updates": 8}}


def stated(tmp_path, kind="quadratic", sampling="with_replacement", batch_size=1, noise=0.0, l2=0.0, **data):
    scenario = {
        "data": {"set": kind, **data},
        "model": {"kind": kind, "l2": l2},
        "algorithm": {
            "kind": "sync_sgd", "sampling": sampling, "batch_size": batch_size, "gradient_noise": noise,
        },
        **BASE,
    }  # fmt: skip
    setup = simfl.prepare(scenario)
    return setup, forecast(setup).problem


def test_constants_of_given_quadratics_are_those_of_their_matrices(tmp_path):
    generator = np.random.default_rng(2)
    roots = generator.normal(size=(12, 3, 3))
    a, b = (
        np.float32(roots @ roots.swapaxes(1, 2)).astype(float),
        np.float32(generator.normal(size=(12, 3))).astype(float),
    )
    np.savez(tmp_path / "a.npz", A=a, b=b, client=np.repeat(np.arange(4), 3))
    setup, problem = stated(tmp_path, path=str(tmp_path / "a.npz"), l2=0.2, noise=0.5, batch_size=2, sampling="shuffle")
    l2 = 0.2 * np.eye(3)
    best = np.linalg.solve(a.mean(axis=0) + l2, b.mean(axis=0))
    each = a @ best - b  # without the penalty, whose gradient is the same for all
    means = each.reshape(4, 3, 3).mean(axis=1)
    zetas = np.linalg.norm(means + 0.2 * best, axis=1)
    spread = ((each.reshape(4, 3, 3) - means[:, None]) ** 2).sum(axis=2).mean(axis=1)
    values = np.linalg.eigvalsh(a.mean(axis=0) + l2)
    largest = max(np.linalg.eigvalsh(part.mean(axis=0) + l2)[-1] for part in a.reshape(4, 3, 3, 3))
    assert problem == pytest.approx(
        {
            "smoothness": values[-1],
            "client_smoothness": largest,
            "strong_convexity": values[0],
            "optimal_loss": -b.mean(axis=0) @ best / 2,
            "zeta": np.sqrt(np.mean(zetas**2)),
            "zeta_max": zetas.max(),
            "sigma": np.sqrt(spread.max() / 2 * (3 - 2) / (3 - 1) + 0.25),
        },
        rel=1e-5,
    )
    assert setup.dataset.optimum == pytest.approx(best, rel=1e-5)


def test_zeta_of_drawn_quadratics_is_the_distance_of_the_owners_means(tmp_path):
    data = {"samples": 80, "dimension": 3, "condition_number": 5.0, "owners": 4, "heterogeneity": 2.0}
    setup, problem = stated(tmp_path, **data)
    points, h = setup.dataset.train_x.astype(float), setup.dataset.curvature.astype(float)
    means = np.array([points[k::4].mean(axis=0) for k in range(4)])
    zetas = np.linalg.norm(h * (points.mean(axis=0) - means), axis=1)
    assert (problem["zeta"], problem["zeta_max"]) == pytest.approx((np.sqrt(np.mean(zetas**2)), zetas.max()))
    assert (problem["smoothness"], problem["strong_convexity"]) == pytest.approx((1.0, 0.2))
    variances = [((h * (points[k::4] - means[k])) ** 2).sum(axis=1).mean() for k in range(4)]
    assert problem["sigma"] == pytest.approx(np.sqrt(max(variances)))
    assert setup.warnings == []


def test_the_smoothness_of_a_logistic_problem_is_that_at_zero(tmp_path):
    data = {"samples": 80, "dimension": 3, "owners": 4, "heterogeneity": 1.0}
    setup, problem = stated(tmp_path, "logistic", l2=0.05, sampling="poisson", batch_size=5, **data)
    x = np.concatenate([setup.dataset.train_x.astype(float), np.ones((80, 1))], axis=1)
    w, y = setup.dataset.optimum, 2.0 * setup.dataset.train_y - 1
    assert problem["smoothness"] == pytest.approx(np.linalg.eigvalsh(x.T @ x / 320)[-1] + 0.05)
    assert problem["strong_convexity"] == 0.05
    each = -(y / (1 + np.exp(y * (x @ w))))[:, None] * x
    np.testing.assert_allclose(each.mean(axis=0) + 0.05 * w, 0, atol=1e-8)
    zetas = [np.linalg.norm(each[k::4].mean(axis=0) + 0.05 * w) for k in range(4)]
    assert problem["zeta_max"] == pytest.approx(max(zetas))
    # Poisson batches: each of 20 examples with probability 1/4, and the sum is divided by 5.
    assert problem["sigma"] == pytest.approx(np.sqrt(max((each[k::4] ** 2).sum() * 0.25 * 0.75 / 25 for k in range(4))))


def test_a_problem_without_known_optimum_has_no_constants(tmp_path):
    setup = simfl.prepare({"data": "digits", "algorithm": {"kind": "sync_sgd"}, **BASE})
    assert forecast(setup).problem is None


@pytest.mark.parametrize(
    ("algorithm", "samples", "line"),
    [
        (
            {"kind": "decentralized_sgd"},
            10,
            "data.partition: clients hold 2 to 3 examples each, so that an example counts 0.833 to 1.25 times with "
            "algorithm 'decentralized_sgd'; the stated optimum, f* and zeta weigh all 10 examples alike: use shares of "
            "equal size",
        ),
        ({"kind": "decentralized_sgd"}, 12, None),
        ({"kind": "corrected_gossip", "weighting": "data"}, 10, None),
        ({"kind": "corrected_gossip", "weighting": "uniform"}, 10, "counts 0.833 to 1.25 times"),
    ],
)
def test_shares_of_different_sizes_are_warned_of(algorithm, samples, line):
    scenario = {
        "data": {"set": "linear", "samples": samples, "dimension": 2},
        "model": {"kind": "linear"},
        "algorithm": {**algorithm, "batch_size": 1},
        "evaluate": {"metrics": ["distance"]},
        **BASE,
    }
    warnings = [warning for warning in simfl.prepare(scenario).warnings if warning.startswith("data.partition")]
    assert len(warnings) == (line is not None)
    assert line is None or line in warnings[0]
    assert not simfl.prepare({**scenario, "evaluate": {"metrics": []}}).warnings


ATTACKED = {
    "clients": {"count": 4, "seconds_per_example": "1 ms"},
    "algorithm": {"kind": "fedavg", "local_steps": 1, "batch_size": 12, "step_size": 0.5},
    "stop": {"updates": 4000, "suboptimality": 1e-7},
    "evaluate": {"every": {"updates": 40}, "metrics": ["suboptimality", "distance"]},
    "aggregation": {"kind": "krum", "f": 1},
}  # fmt: skip


@pytest.mark.parametrize("kind", ["quadratic", "linear", "logistic"])
def test_with_attackers_the_optimum_is_that_of_the_honest_clients(kind):
    """In float64: the gradient of the honest examples' mean loss is 0, and the constants are those of their problem."""
    data = {"set": kind, "samples": 48, "dimension": 3, "owners": 4, "heterogeneity": 0.4, "noise": 0.2}
    sections = {"data": data, "model": {"kind": kind, "l2": 0.1}, **ATTACKED}
    setup = simfl.prepare(simfl.load({**sections, "attackers": {"clients": [0, 2], "kind": "sign_flip"}}))
    honest = np.concatenate([setup.partition.of(k) for k in (1, 3)])
    known, w = setup.dataset.known, setup.problem.measured.optimum
    np.testing.assert_allclose(known.gradients(w)[honest].mean(axis=0) + 0.1 * w, 0.0, atol=1e-7)
    assert np.linalg.norm(known.gradients(w).mean(axis=0) + 0.1 * w) > 0.01
    assert setup.problem.measured.suboptimality(w) == pytest.approx(0.0, abs=1e-12)
    away = w + np.eye(len(w))[0]
    assert setup.problem.measured.suboptimality(away) > 0.01
    constants = forecast(setup).problem
    least, largest = known.curvatures(honest)
    assert (constants["strong_convexity"], constants["smoothness"]) == pytest.approx((least + 0.1, largest + 0.1))
    own = [known.gradients(w)[setup.partition.of(k)].mean(axis=0) + 0.1 * w for k in (1, 3)]
    assert constants["zeta_max"] == pytest.approx(max(np.linalg.norm(each) for each in own))


@pytest.mark.slow
def test_a_run_with_attackers_stops_at_the_optimum_of_the_honest_clients(tmp_path):
    """Honest clients hold equal points, which a median returns; those of the attacker are far away."""
    points = np.repeat([[1.0, 2.0], [1.0, 2.0], [-5.0, 9.0], [1.0, 2.0]], 12, axis=0)
    a = np.repeat(np.eye(2)[None], 48, axis=0)
    np.savez(tmp_path / "points.npz", A=a, b=points, client=np.repeat(np.arange(4), 12))
    data = {"set": "quadratic", "path": str(tmp_path / "points.npz")}
    scenario = simfl.load(
        {"data": data, "model": "quadratic", **ATTACKED, "aggregation": "median",
         "attackers": {"clients": [2], "kind": "sign_flip"}}
    )  # fmt: skip
    run = simfl.run(scenario, out=tmp_path)
    assert run.manifest.reason == "suboptimality"
    assert run.metrics["distance"].iloc[-1] < 1e-3
