"""A run from its first event to its last table: its end, its evaluations, its files."""

import collections
import gc
import itertools
import math
import threading

import jax
import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score

from simfl.algorithms import Algorithm
from simfl.data import Dataset
from simfl.errors import DataError, RunError, ScenarioError
from simfl.privacy.accounting import Release, epsilon_of
from simfl.records import read
from simfl.records.models import digest_parts
from simfl.runs.runner import Simulation, prepare, run
from simfl.scenario import loads
from simfl.tape import Tape
from simfl.tape.executor import Executor
from simfl.tape.measures import OwnClasses
from simfl.world import World
from tests.algorithms.custom import ERRORS

pytestmark = pytest.mark.usefixtures("without_numbers")

ALGORITHMS = ["sync_sgd", "decentralized_sgd", "adpsgd"]
every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)


def scenario(kind="adpsgd", **sections):
    """Eight clients of about 180 digits each, batches of 8 in 8 ms; sections are given as YAML."""
    defaults = {
        "data": "{set: digits}",
        "clients": "{count: 8, seconds_per_example: 1 ms}",
        "links": "{latency: 0 s, bandwidth: null}",
        "stop": "{updates: 80}",
        "evaluate": "{every: {updates: 20}}",
        "algorithm": f"{{kind: {kind}, batch_size: 8, step_size: 0.5}}",
    }
    return loads("\n".join(f"{key}: {value}" for key, value in {**defaults, **sections}.items()), "run")


def ended(result):
    return result.status, result.manifest.reason


# -- when it ends ------------------------------------------------------------------------------


@every_algorithm
@pytest.mark.parametrize("updates", [64, 70])
def test_a_run_ends_after_the_given_updates(algorithm, updates, tmp_path):
    result = run(scenario(algorithm, stop=f"{{updates: {updates}}}"), out=tmp_path)
    assert ended(result) == ("done", "updates")
    # SYNC counts whole rounds of eight.
    expected = 8 * math.ceil(updates / 8) if algorithm == "sync_sgd" else updates
    assert result.manifest.updates == len(result.updates) == expected
    assert result.metrics["updates"].iloc[-1] == expected
    assert result.clients["updates"].sum() == expected
    assert result.manifest.time_s == pytest.approx(0.008 * math.ceil(updates / 8))


@every_algorithm
def test_a_run_ends_at_a_virtual_time(algorithm, tmp_path):
    result = run(scenario(algorithm, stop="{time: 50 ms}"), out=tmp_path)
    assert ended(result) == ("done", "time")
    assert result.manifest.time_s == 0.050
    assert result.metrics["time_s"].iloc[-1] == 0.050
    assert result.manifest.updates == 8 * 6, "48 ms of whole batches"
    assert result.updates["time_s"].max() == pytest.approx(0.048)
    np.testing.assert_allclose(result.clients["compute_s"], 0.050)


@every_algorithm
@pytest.mark.parametrize("tenths", [3, 7, 8])
def test_what_happens_at_the_last_time_or_at_an_evaluation_is_after_it(algorithm, tenths, tmp_path):
    """Sums of 0.1 s are above 0.3 and 0.6, below 0.8 and 1.0, and equal to 0.5 and 0.7: rounding decides nothing."""
    exact = {"stop": f"{{time: {tenths / 10} s}}", "evaluate": "{every: {time: 100 ms}}"}
    result = run(scenario(algorithm, clients="{count: 8, seconds_per_example: 12.5 ms}", **exact), out=tmp_path)
    assert ended(result) == ("done", "time")
    assert result.manifest.time_s == result.metrics["time_s"].iloc[-1] == tenths / 10
    np.testing.assert_allclose(result.metrics["time_s"], np.arange(tenths + 1) / 10)
    assert result.metrics["updates"].tolist() == [0, *range(0, 8 * tenths, 8)]
    assert result.manifest.updates == len(result.updates) == 8 * (tenths - 1)


def test_a_run_ends_after_the_given_epochs(tmp_path):
    setup = prepare(scenario(stop="{epochs: 0.5}", evaluate="{every: {epochs: 0.1}}"))
    total = int(setup.training.sizes.sum())
    result = run(setup, out=tmp_path)
    assert ended(result) == ("done", "epochs")
    assert result.manifest.updates == math.ceil(0.5 * total / 8)
    np.testing.assert_allclose(result.metrics["epochs"], result.metrics["updates"] * 8 / total)
    expected = [math.ceil(i * 0.1 * total / 8 - 1e-9) for i in range(6)]
    assert result.metrics["updates"].tolist() == expected


def test_the_first_of_several_rules_ends_the_run(tmp_path):
    result = run(scenario(stop="{time: 1 h, updates: 33, epochs: 50}"), out=tmp_path)
    assert (ended(result), result.manifest.updates) == (("done", "updates"), 33)
    result = run(scenario(stop="{time: 20 ms, updates: 33000}"), out=tmp_path)
    assert (ended(result), result.manifest.time_s) == (("done", "time"), 0.020)


@every_algorithm
def test_a_target_accuracy_ends_the_run_at_the_evaluation_that_reaches_it(algorithm, tmp_path):
    whole = run(scenario(algorithm, stop="{updates: 400}"), out=tmp_path)
    accuracy = whole.metrics["test_accuracy"]
    target = (accuracy.iloc[0] + accuracy.max()) / 2
    result = run(scenario(algorithm, stop=f"{{updates: 400, accuracy: {target}}}"), out=tmp_path)
    assert ended(result) == ("done", "accuracy")
    reached = int(np.argmax(accuracy >= target))
    assert 0 < reached < len(accuracy) - 1
    columns = [name for name in whole.metrics.columns if name not in ("wall_s", "bytes_sent", "messages")]
    assert result.metrics[columns].equals(whole.metrics[columns].iloc[: reached + 1])
    counts = ["bytes_sent", "messages"]
    assert result.metrics[counts].iloc[:-1].equals(whole.metrics[counts].iloc[:reached])
    if algorithm != "sync_sgd":  # its all-reduce is not a message of a client
        assert result.metrics["bytes_sent"].iloc[-1] == result.clients["bytes"].sum()
    assert result.manifest.time_s == whole.metrics["time_s"].iloc[reached]
    assert result.manifest.updates == whole.metrics["updates"].iloc[reached] == len(result.updates)


@pytest.mark.slow(but=["metric: messages, at_least: 21-sgp"])
@pytest.mark.parametrize("algorithm", ["adpsgd", "decentralized_sgd", "sgp"])
@pytest.mark.parametrize(
    "goal",
    ["metric: updates, at_least: 37", "metric: epsilon, at_least: 0.5", "metric: messages, at_least: 21"],
)
def test_the_last_row_counts_a_message_sent_when_a_goal_ends_the_run(algorithm, goal, tmp_path):
    more = {"privacy": "{mechanism: gaussian, clipping_norm: 1, noise_multiplier: 1}"} if "epsilon" in goal else {}
    links, every = "{latency: 1 ms, overhead: 0 B}", "{every: {updates: 1}}"
    stop = f"{{updates: 400, {goal}}}"
    result = run(scenario(algorithm, stop=stop, links=links, evaluate=every, **more), out=tmp_path)
    assert " at least " in result.manifest.reason
    assert result.manifest.updates > 0
    last = result.metrics.iloc[-1]
    assert last["bytes_sent"] == result.clients["bytes"].sum()
    message_bytes = 4 * result.manifest.extra["model_size"]
    if algorithm != "sgp":
        assert last["messages"] == last["bytes_sent"] / message_bytes


@pytest.mark.slow
@pytest.mark.numbers
@every_algorithm
def test_a_run_that_diverges_is_a_result(algorithm, tmp_path):
    huge = f"{{kind: {algorithm}, batch_size: 8, step_size: 1.0e+38}}"
    result = run(
        scenario(algorithm=huge, stop="{updates: 100000}", evaluate="{every: {updates: 16}, clients: true}"),
        out=tmp_path,
    )
    assert result.status == "diverged"
    assert "the loss was not finite" in result.manifest.reason
    assert result.manifest.updates < 100, "it ended soon"
    losses = result.metrics["train_loss"]
    assert np.isfinite(losses.iloc[0])
    assert not np.isfinite(losses.iloc[-1])
    again = read(result.folder)
    assert len(again.updates) == again.manifest.updates
    assert len(again.clients) == 8
    if algorithm != "sync_sgd":  # its all-reduce is not a message of a client
        assert losses.index[-1] == len(losses) - 1
        assert again.metrics["bytes_sent"].iloc[-1] == again.clients["bytes"].sum()
    if algorithm != "sync_sgd":
        assert len(again.client_metrics) == 8 * len(losses)


@every_algorithm
def test_a_run_ends_when_all_clients_have_left(algorithm, tmp_path):
    gone = "[{all: true, crash: [{at: 50 ms, back: never}]}]"
    result = run(scenario(algorithm, availability=gone, stop="{updates: 100000}"), out=tmp_path)
    assert ended(result) == ("done", "nothing left to happen: every client has left")
    assert result.manifest.time_s == pytest.approx(0.050)
    assert result.manifest.updates == 48
    np.testing.assert_allclose(result.clients["offline_s"], 0.0, atol=1e-9)
    timed = run(scenario(availability=gone, stop="{updates: 100000}", evaluate="{every: {time: 10 ms}}"), out=tmp_path)
    assert ended(timed) == ended(result), "evaluations do not keep an idle world running"


# -- when it is measured -----------------------------------------------------------------------


def test_evaluations_take_place_at_the_configured_times(tmp_path):
    result = run(scenario(stop="{time: 50 ms}", evaluate="{every: {time: 11 ms}}"), out=tmp_path)
    np.testing.assert_allclose(result.metrics["time_s"], [0.0, 0.011, 0.022, 0.033, 0.044, 0.050])
    assert result.metrics["updates"].tolist() == [0, 8, 16, 32, 40, 48]


@pytest.mark.parametrize(("every", "expected"), [(20, [0, 20, 40, 60, 80]), (33, [0, 33, 66, 80]), (500, [0, 80])])
def test_evaluations_take_place_at_the_configured_updates(every, expected, tmp_path):
    result = run(scenario(evaluate=f"{{every: {{updates: {every}}}}}"), out=tmp_path)
    assert result.metrics["updates"].tolist() == expected


def test_sync_is_evaluated_after_whole_rounds(tmp_path):
    result = run(scenario("sync_sgd", evaluate="{every: {updates: 3}}", stop="{updates: 30}"), out=tmp_path)
    assert result.metrics["updates"].tolist() == [0, 8, 16, 24, 32]
    assert result.metrics["rounds"].tolist() == [0, 1, 2, 3, 4]
    assert result.metrics["time_s"].is_unique


@pytest.mark.slow
@pytest.mark.numbers
def test_evaluating_more_often_changes_no_model(tmp_path):
    seldom = run(scenario(evaluate="{every: {updates: 80}}"), out=tmp_path)
    often = run(scenario(evaluate="{every: {updates: 1}, clients: true}"), out=tmp_path)
    measures = ["train_loss", "test_loss", "test_accuracy", "consensus_distance"]
    assert often.metrics[measures].iloc[-1].tolist() == seldom.metrics[measures].iloc[-1].tolist()
    assert often.updates.equals(seldom.updates)
    assert len(often.client_metrics) == 81 * 8


@pytest.mark.numbers
def test_each_clients_own_model_is_evaluated_on_request(tmp_path):
    alone = "{kind: 'tests.algorithms.custom:Alone', batch_size: 8, step_size: 0.5}"
    by_label = "{set: digits, partition: {kind: by_label, labels_per_client: 2}}"
    result = run(
        scenario(algorithm=alone, data=by_label, evaluate="{every: {updates: 80}, clients: true}"), out=tmp_path
    )
    last = result.client_metrics[result.client_metrics["updates"] == 80]
    assert last["client"].tolist() == list(range(8))
    assert last["test_accuracy"].between(0.05, 0.35).all(), "two classes of ten cannot be worth more"
    assert last["test_accuracy"].nunique() > 4
    squares = result.client_metrics["consensus_distance"] ** 2
    means = squares.groupby(result.client_metrics["updates"]).mean() ** 0.5
    assert means.to_numpy() == pytest.approx(result.metrics["consensus_distance"].to_numpy(), rel=1e-5)
    assert (last["consensus_distance"] > 0).all()


# -- what it writes ----------------------------------------------------------------------------


def test_epsilons_of_all_releases_are_in_the_tables(tmp_path):
    privacy = "{mechanism: gaussian, clipping_norm: 1.0, noise_multiplier: 1.5, delta: 1.0e-6}"
    slow = "[{clients: [2], factor: 5}]"
    result = run(scenario(privacy=privacy, slowdowns=slow, stop="{updates: 120}"), out=tmp_path)
    clients = result.clients
    assert clients["updates"].nunique() > 1
    expected = [
        epsilon_of([(Release(1.5, 8 / n), int(made))], 1e-6)
        for n, made in zip(clients["samples"], clients["updates"], strict=True)
    ]
    np.testing.assert_allclose(clients["epsilon"], expected)
    assert (clients["delta"] == 1e-6).all()
    assert result.metrics["epsilon"].iloc[0] == 0.0
    assert result.metrics["epsilon"].is_monotonic_increasing
    assert result.metrics["epsilon"].iloc[-1] >= clients["epsilon"].max(), "Renyi over time, tightened at the end"
    assert (result.updates["noise_std"] == 1.5).all()
    assert result.updates["sample_size"].nunique() > 4, "Poisson batches"
    literal = run(scenario(privacy="{mechanism: gaussian_unclipped, noise_std: 0.1}"), out=tmp_path)
    assert literal.clients["epsilon"].isna().all()
    assert literal.metrics["epsilon"].isna().all()
    assert literal.manifest.extra["privacy"].startswith("not certified: ")


def test_progress_is_reported_and_never_falls(tmp_path):
    told = []
    run(scenario(stop="{updates: 400}"), out=tmp_path, progress=told.append)
    assert told[-1].fraction == 1.0
    assert told[-1].updates == 400
    assert told[-1].accuracy is not None
    for one, later in itertools.pairwise(told):
        assert one.fraction <= later.fraction
        assert one.time_s <= later.time_s


# -- what goes wrong ---------------------------------------------------------------------------


def test_a_failed_run_names_client_and_time_and_keeps_its_measurements(tmp_path):
    broken = "{kind: 'tests.algorithms.custom:Broken', batch_size: 8}"
    with pytest.raises(
        RunError, match=r"^client 6, virtual time 0\.032 s: ZeroDivisionError: by mistake in \S*custom\.py:\d+$"
    ):
        run(scenario(algorithm=broken), out=tmp_path)
    (folder,) = (tmp_path / "run").iterdir()
    result = read(folder)
    assert result.status == "failed"
    assert "by mistake" in result.manifest.reason
    assert len(result.updates) == 30


@pytest.mark.slow(but=["gradient", "0", "1"])
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("where", ["set_up", "start", "models", "client_models", "pairs", "process"])
def test_an_error_in_a_users_algorithm_is_one_line_with_file_and_line(where, error, tmp_path):
    if error is KeyboardInterrupt and where in ("set_up", "client_models"):
        pytest.skip("before a run begins this is Ctrl-C")
    options = f"options: {{where: {where}, error: {error.__name__}}}"
    own = f"{{kind: 'tests.algorithms.custom:Raising', batch_size: 8, {options}}}"
    words = (
        "RuntimeError: generator raised StopIteration"
        if (where, error) == ("process", StopIteration)
        else error.__name__
    )
    with pytest.raises(RunError, match=rf"^[^\n]*: {words} in \S*custom\.py:\d+$"):
        run(scenario(algorithm=own, record="{client_models: true}"), out=tmp_path)
    begun = where not in ("set_up", "client_models")
    assert (tmp_path / "run").exists() == begun, "no folder of a run that never began"
    if begun:
        result = read(tmp_path / "run" / "001")
        assert (result.status, words in result.manifest.reason) == ("failed", True)
        assert len(result.updates) == 30 * (where == "process")
        assert not list(result.folder.glob("*.arrows"))


@pytest.mark.parametrize("models", [None, [], {}, "ab", [1, 2]])
def test_a_users_algorithm_with_invalid_models_is_rejected(models, tmp_path, monkeypatch):
    # By name: tests of edited code reload this module, and the run takes the class of the reloaded one.
    monkeypatch.setattr("tests.algorithms.custom.Alone.models", lambda self: models)
    own = "{kind: 'tests.algorithms.custom:Alone', batch_size: 8}"
    with pytest.raises(RunError, match=r"^models: expected a list of models of the tape, .*, found "):
        run(scenario(algorithm=own), out=tmp_path)


def test_a_users_algorithm_takes_its_options_and_rejects_others(tmp_path):
    own = "{{kind: 'tests.algorithms.custom:Alone', batch_size: 8, step_size: 0.25, options: {{{}}}}}"
    result = run(scenario(algorithm=own.format("boost: 2.0")), out=tmp_path)
    assert (result.updates["step_size"] == 0.5).all()
    assert (result.updates["peer"] == -1).all()
    with pytest.raises(ScenarioError, match=r"^algorithm\.options: expected one of boost, .* found 'bost'"):
        run(scenario(algorithm=own.format("bost: 2.0")), out=tmp_path / "other")
    assert not (tmp_path / "other").exists(), "no folder of a run that never began"


@pytest.mark.numbers
def test_a_diverged_run_names_the_first_evaluation_that_was_not_finite(tmp_path):
    result = run(scenario(algorithm="{kind: adpsgd, batch_size: 8, step_size: 1.0e+30}"), out=tmp_path)
    first = result.metrics["time_s"][~np.isfinite(result.metrics["train_loss"])].iloc[0]
    assert result.manifest.reason == f"the loss was not finite at {first:.6g} s of virtual time"


@pytest.mark.parametrize(
    ("kind", "clients_with"),
    [("adpsgd", {(k, (k + 1) % 8) for k in range(8)}), ("async_sgd", {(k, 8) for k in range(8)})],
)
def test_edges_are_stored_outside_the_digest(kind, clients_with, tmp_path, monkeypatch):
    wanted = scenario(kind, topology="{kind: ring}")
    kept = run(wanted, out=tmp_path)
    pairs = set(zip(kept.edges["source"], kept.edges["target"], strict=True))
    assert pairs == {(min(pair), max(pair)) for pair in clients_with}
    monkeypatch.setattr("simfl.runs.recorder.MOST_EDGES", 7)
    left_out = run(wanted, out=tmp_path)
    assert left_out.manifest.digest == kept.manifest.digest
    with pytest.raises(DataError, match="recorded no table of edges; only graphs of up to 100,000"):
        _ = left_out.edges


def test_a_run_leaves_no_objects_in_its_process(tmp_path):
    def left():
        gc.collect()
        kinds = (Simulation, Executor, World, Tape, Algorithm, Dataset)
        objects = collections.Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, kinds))
        return objects, len(jax.live_arrays()), threading.active_count()

    before = left()
    for algorithm in ALGORITHMS:
        run(scenario(algorithm), out=tmp_path)
    with pytest.raises(RunError):
        run(scenario(algorithm="{kind: 'tests.algorithms.custom:Broken', batch_size: 8}"), out=tmp_path)
    assert left() == before


# -- the models that it keeps ------------------------------------------------------------------


@pytest.mark.numbers
def test_a_run_stores_the_model_of_its_last_evaluation(tmp_path):
    setup = prepare(
        scenario("adpsgd", evaluate="{every: {updates: 40}, clients: true}", record="{client_models: true}")
    )
    model, dataset = setup.model, setup.dataset
    result = run(setup, out=tmp_path)
    assert {name: part.shape for name, part in result.model.items()} == dict(model.layout)
    own = result.client_models
    for name, part in result.model.items():
        assert own[name].shape == (8, *part.shape)
        np.testing.assert_allclose(own[name].mean(axis=0), part, atol=1e-6)
    right = model.correct(model.joined(result.model), dataset.test_x, dataset.test_y)
    assert float(right.mean()) == pytest.approx(result.metrics["test_accuracy"].iloc[-1])
    third = model.joined({name: part[3] for name, part in own.items()})
    last = result.client_metrics[result.client_metrics["client"] == 3].iloc[-1]
    assert float(model.correct(third, dataset.test_x, dataset.test_y).mean()) == pytest.approx(last["test_accuracy"])
    assert result.manifest.extra["models"] == {
        "model": digest_parts(result.model),
        "client_models": digest_parts(result.client_models),
    }


@pytest.mark.numbers
def test_further_measures_add_columns_and_change_nothing_else(tmp_path):
    plain = scenario(evaluate="{every: {updates: 40}, clients: true}", stop="{updates: 40}")
    names = "macro_f1, auc, worst_decile, worst_decile_models, own_classes, own_classes_models"
    more = scenario(evaluate=f"{{every: {{updates: 40}}, clients: true, metrics: [{names}]}}", stop="{updates: 40}")
    before, setup = run(plain, out=tmp_path), prepare(more)
    model, dataset = setup.model, setup.dataset
    result = run(setup, out=tmp_path)
    assert list(result.metrics.columns) == [*before.metrics.columns, *names.split(", ")]
    for table in ("updates", "clients", "client_metrics"):
        assert result.manifest.tables[table] == before.manifest.tables[table]
    same = [column for column in before.metrics if column != "wall_s"]
    pd.testing.assert_frame_equal(result.metrics[same], before.metrics[same])
    last = result.metrics.iloc[-1]
    params = model.joined(result.model)
    scores = np.asarray(model.predict(params, dataset.test_x))
    assert last["macro_f1"] == f1_score(dataset.test_y, scores.argmax(axis=1), average="macro")
    own = [setup.partition.of(client) for client in range(8)]
    accuracy = [float(model.correct(params, dataset.train_x[part], dataset.train_y[part]).mean()) for part in own]
    assert last["worst_decile"] == pytest.approx(min(accuracy))
    clients = result.client_metrics[result.client_metrics["updates"] == last["updates"]]
    assert last["worst_decile_models"] == clients["test_accuracy"].min()
    mixes = OwnClasses(dataset.test_y, dataset.train_y, setup.partition.indices, setup.partition.offsets)
    right = np.asarray(model.correct(params, dataset.test_x, dataset.test_y))
    assert last["own_classes"] == pytest.approx(mixes.accuracy(right).mean())
    assert last["own_classes_models"] == pytest.approx(clients["test_accuracy"].mean(), abs=0.1)
    assert 0.5 < last["auc"] <= 1


def test_client_models_are_stored_on_request_only(tmp_path):
    result = run(scenario(stop="{updates: 8}"), out=tmp_path)
    assert result.model["weights"].shape == (10, 64)
    with pytest.raises(DataError, match=r"client_models\.npz: .*set record\.client_models: true"):
        _ = result.client_models


# -- windows -----------------------------------------------------------------------------------
