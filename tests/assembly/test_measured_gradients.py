"""`evaluate.gradients`: further columns of metrics, from the scenario to the figure."""

import numpy as np
import pytest

import simfl
from simfl.comparison.sweeps import open_groups
from simfl.errors import DataError, ScenarioError
from simfl.papers.mapa.mapa import StageRule
from simfl.records import GRADIENTS, METRICS, SCHEMAS
from simfl.records.tables import digest_table
from simfl.runs.runner import prepare, run
from simfl.scenario import loads
from simfl.tape.executor import Executor
from tests.helpers import softmax_gradient

PRIVATE = "{mechanism: gaussian, clipping_norm: 0.5, noise_multiplier: 0.5}"
MAPA = "{kind: mapa, batch_size: 12, sampling: without_replacement, largest_staleness: 2}"
RADIUS_ONLY = "{mechanism: laplace_l2_radius_only, epsilon_per_release: 100.0, clipping_norm: 5.0}"
#: Stages of MAPA, short enough for a short run: first version, clipping norm, noise, step size.
STAGES = [StageRule(0, 5.0, 1.0, 0.1), StageRule(20, 3.0, 0.6, 0.1), StageRule(30, 2.0, 0.4, 0.1)]


PASSING = "{kind: without_replacement_sgd, batch_size: 8, step_size: 0.5}"
EVALUATE_ONCE = "{every: {updates: 400}, gradients: 50}"


def scenario(gradients, algorithm="{kind: adpsgd, batch_size: 8, step_size: 0.5}", **sections):
    given = {
        "data": "{set: digits}",
        "clients": "{count: 4, seconds_per_example: 1 ms, jitter: {kind: lognormal, sigma: 0.4}}",
        "algorithm": algorithm,
        "stop": "{updates: 60}",
        "evaluate": f"{{every: {{updates: 15}}, clients: true, gradients: {gradients}}}",
        "record": "{updates: true, messages: true, timeline: true}",
        **sections,
    }
    return loads("\n".join(f"{key}: {value}" for key, value in given.items() if value), "measured")


@pytest.fixture
def evaluated(monkeypatch):
    """Return the list of models that later runs evaluate, f32 [d] each: means of the executor's models."""
    means = []
    evaluate = Executor.evaluate

    def listening(self, rows, coefs, *more):
        means.append(self.fetch(rows, coefs).mean(axis=0, dtype=np.float64))
        return evaluate(self, rows, coefs, *more)

    monkeypatch.setattr(Executor, "evaluate", listening)
    return means


def expected(problem, count, models, norms):
    """Return the columns `gradient_norm` and `clipped_share`, in float64."""
    x, y = problem.data.train_x[:count], problem.data.train_y[:count]
    rows = []
    for model, norm in zip(models, norms, strict=True):
        each = np.array([softmax_gradient(model, x[i : i + 1], y[i : i + 1]) for i in range(count)])
        lengths = np.linalg.norm(each, axis=1)
        mean = (each * np.minimum(1.0, norm / lengths)[:, None]).mean(axis=0)
        rows.append((np.linalg.norm(mean), (lengths > norm).mean()))
    return np.array(rows).T


@pytest.mark.parametrize("privacy", ["", PRIVATE], ids=["plain", "private"])
def test_measuring_gradients_changes_nothing_else(privacy, tmp_path, evaluated):
    off = run(scenario(0, privacy=privacy), out=tmp_path)
    models = len(evaluated)
    setup = prepare(scenario(50, privacy=privacy))
    on = run(setup, out=tmp_path)
    assert off.metrics.columns.tolist() == METRICS.names
    assert on.metrics.columns.tolist() == METRICS.names + GRADIENTS.names
    skip = ("wall_s", *GRADIENTS.names)
    written = [name for name in SCHEMAS if (off.folder / f"{name}.parquet").exists()]
    assert {"metrics", "clients", "updates", "messages", "timeline", "client_metrics"} <= set(written)
    for name in written:
        paths = [result.folder / f"{name}.parquet" for result in (off, on)]
        assert digest_table(paths[0], skip) == digest_table(paths[1], skip), name
    metrics, norm = on.metrics, 0.5 if privacy else np.inf
    lengths, shares = expected(setup.problem, 50, evaluated[models:], [norm] * len(metrics))
    np.testing.assert_allclose(metrics["gradient_norm"], lengths, rtol=2e-5)
    np.testing.assert_allclose(metrics["clipped_share"], shares, atol=1e-6)
    np.testing.assert_array_equal(metrics["clipping_norm"], [0.5 if privacy else np.nan] * len(metrics))
    assert (shares > 0.0).all() if privacy else (shares == 0.0).all()


def test_measured_norm_follows_the_servers_stage(tmp_path, evaluated, monkeypatch):
    monkeypatch.setattr("simfl.papers.mapa.kind.stage_rules", lambda scenario, size: STAGES)
    setup = prepare(scenario(50, MAPA, privacy=RADIUS_ONLY, links="{latency: 2 ms}"))
    result = run(setup, out=tmp_path)
    norms = [5.0, 5.0, 2.0, 2.0, 2.0]
    assert result.metrics["updates"].tolist() == [0, 15, 30, 45, 60], "the third stage begins with the third evaluation"
    np.testing.assert_array_equal(result.metrics["clipping_norm"], norms)
    lengths, shares = expected(setup.problem, 50, evaluated, norms)
    np.testing.assert_allclose(result.metrics["gradient_norm"], lengths, rtol=2e-5)
    np.testing.assert_allclose(result.metrics["clipped_share"], shares, atol=1e-6)
    assert shares[0] == 0.0 < shares[2]


@pytest.mark.slow
def test_tasks_are_measured_at_the_joined_model(tmp_path):
    model = "{kind: one_vs_all, intercept: false}"
    setup = prepare(scenario(50, PASSING, model=model, stop="{updates: 400}", evaluate=EVALUATE_ONCE))
    assert setup.problem.num_tasks == 10
    result = run(setup, out=tmp_path)
    first = result.metrics.iloc[0]
    x, y = setup.problem.data.train_x[:50], setup.problem.data.train_y[:50]
    mean = ((0.5 - (y[:, None] == np.arange(10)))[:, :, None] * x[:, None, :].astype(float)).mean(axis=0)
    assert first["gradient_norm"] == pytest.approx(np.linalg.norm(mean), rel=1e-5), "all tasks begin at zero"
    assert np.isfinite(result.metrics["gradient_norm"]).all()


def test_more_examples_than_in_the_set_are_rejected():
    count = len(prepare(scenario(0)).problem.data.train_x)
    message = rf"^evaluate\.gradients: expected at most {count}, .* found {count + 1}; lower it$"
    assert prepare(scenario(count)).problem.measured.gradient_examples == count
    with pytest.raises(ScenarioError, match=message):
        prepare(scenario(count + 1))
    with pytest.raises(ScenarioError, match=r"evaluate\.gradients: expected an integer >= 0, found -1"):
        scenario(-1)


def test_measured_gradients_can_be_drawn(tmp_path):
    result = run(scenario(20, privacy=PRIVATE), out=tmp_path)
    plain = run(scenario(0), out=tmp_path)
    for column in GRADIENTS.names:
        (line,) = simfl.plot(result, x="updates", y=column).get_lines()
        np.testing.assert_array_equal(line.get_ydata(), result.metrics[column])
        assert len(simfl.plots.plot_groups(open_groups([result.folder])[0], "updates", column).get_lines()) == 1
    with pytest.raises(DataError, match=r"measured no norm of .*; set evaluate\.gradients: 1000, or choose one of "):
        simfl.plot([result, plain], y="gradient_norm")
    with pytest.raises(DataError, match=r"measured no share of .*; set evaluate\.gradients: 1000, or choose one of "):
        simfl.plots.plot_groups(open_groups([plain.folder])[0], "updates", "clipped_share")


@pytest.mark.parametrize("gradients", [50, 2000])
def test_gradients_are_not_measured_on_examples_that_only_attackers_hold(gradients, tmp_path):
    """Attackers 0 and 2 train on flipped labels; the norm is that of honest examples at the last model."""
    attackers = "{clients: [0, 2], kind: label_flip}"
    count = min(gradients, len(prepare(scenario(0)).dataset.train_x))
    given = scenario(count, attackers=attackers, data="{set: digits, partition: {kind: iid}}")
    setup, done = prepare(given), run(given, out=tmp_path)
    honest = np.sort(np.concatenate([setup.partition.of(k) for k in (1, 3)]))[:count]
    params = np.concatenate([part.ravel() for part in done.model.values()])
    gradient = softmax_gradient(params, setup.dataset.train_x[honest], setup.dataset.train_y[honest]) / len(honest)
    assert done.metrics["gradient_norm"].iloc[-1] == pytest.approx(np.linalg.norm(gradient), rel=1e-3)
