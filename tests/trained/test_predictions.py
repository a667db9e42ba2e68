"""Use of a run's model: predictions, other data, and runs that start from it."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_digits

import simfl
from simfl.errors import DataError, ScenarioError
from simfl.records.models import digest_parts, write_models
from simfl.runs.runner import prepare, run
from simfl.scenario import loads
from simfl.trained.predictions import evaluate

DATA = "{set: digits, classes: [7, 1, 3], normalize: standard}"
TEXT = """
data: {data}
clients: {{count: 2, seconds_per_example: 1 ms}}
algorithm: {{kind: sync_sgd, batch_size: 8, step_size: 0.5, {algorithm}}}
stop: {{updates: 16}}
evaluate: {{every: {{updates: 16}}, clients: true, metrics: [auc, worst_decile_models]}}
record: {{client_models: true}}
"""


def scenario(further="", data=DATA, algorithm=""):
    return loads(TEXT.format(data=data, algorithm=algorithm) + further, "trained")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A short run on three of the digits, whose features are standardized."""
    return run(scenario(), out=tmp_path_factory.mktemp("results"))


@pytest.fixture(scope="module")
def digits():
    """All digits as their loader gives them, and their labels."""
    x, y = load_digits(return_X_y=True)
    return (x / 16).astype(np.float32), y


def test_evaluation_on_its_test_set_equals_that_of_the_run(trained):
    measures, last = trained.evaluate(metrics=["auc", "macro_f1"]), trained.metrics.iloc[-1]
    assert measures["examples"] == len(prepare(scenario()).dataset.test_y)
    assert (measures["loss"], measures["accuracy"], measures["auc"]) == (
        last["test_loss"],
        last["test_accuracy"],
        last["auc"],
    )
    assert trained.evaluate("train")["examples"] == len(prepare(scenario()).dataset.train_y)


def test_a_run_without_client_models_stores_none(trained):
    assert trained.metrics["worst_decile_models"].isna().all()
    assert not (trained.folder / "client_models.npz").exists()
    assert trained.manifest.extra["warnings"] == [
        "evaluate.clients: sync_sgd has one model for all clients: there is no table client_metrics; "
        "set evaluate.clients: false",
        "record.client_models: sync_sgd has one model for all clients: there is no file client_models.npz; "
        "set record.client_models: false",
    ]


def test_predictions_are_labels_after_the_same_transformations(trained, digits):
    x, y = digits
    chosen = np.isin(y, [1, 3, 7])
    labels = trained.predict(x[chosen])
    assert set(labels.tolist()) == {1, 3, 7}
    assert np.mean(labels == y[chosen]) > 0.8
    scores = simfl.predict(trained, x[chosen].reshape(-1, 8, 8), scores=True)
    assert scores.shape == (chosen.sum(), 3)
    np.testing.assert_array_equal(np.array([7, 1, 3])[scores.argmax(axis=1)], labels)
    with pytest.raises(DataError, match=r"^x: expected examples of shape \(64,\), as in digits, found \(3,\)"):
        trained.predict(np.zeros((2, 3)))


def test_evaluation_on_other_data_uses_the_labels_of_the_file(trained, digits, tmp_path):
    x, y = digits
    own = np.isin(y, [1, 3, 7])
    expected = {"examples": int(own.sum()), "accuracy": pytest.approx(np.mean(trained.predict(x[own]) == y[own]))}
    np.savez(tmp_path / "other.npz", x=x, y=y)  # also of the digits that the run left out
    np.savetxt(
        tmp_path / "other.csv",
        np.column_stack([x, y]),
        delimiter=",",
        header=",".join([*(f"pixel{i}" for i in range(64)), "digit"]),
        comments="",
    )
    for measures in (
        evaluate(trained, (x, y)),
        trained.evaluate(tmp_path / "other.npz"),
        trained.evaluate(tmp_path / "other.csv", label="digit"),
    ):
        assert {key: measures[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("tset", "data: expected test, train, or an .npz, .csv or .parquet file, found 'tset'"),
        ("nothing.npz", r"data: nothing\.npz: no such file"),
        ((np.zeros((2, 64)), [1, 2, 3]), "data: expected one label for each of 2 examples, found shape"),
        ((np.zeros((2, 64)), [4, 5]), "data: expected labels 7, 1, 3, as in digits, found 4; remove such examples"),
        ((np.zeros((2, 64)), ["a", "b"]), "data: expected labels like 7, found <U1"),
    ],
)
def test_data_that_does_not_fit_is_rejected(trained, data, message):
    with pytest.raises((DataError, ScenarioError), match=message):
        trained.evaluate(data)
    with pytest.raises(ScenarioError, match=r"metrics: expected some of macro_f1, .* found 'ac'"):
        trained.evaluate(metrics=["ac"])


def test_a_run_starts_from_the_model_of_another(trained, tmp_path):
    setup = prepare(scenario(f"init: {{from: {trained.folder}}}"))
    np.testing.assert_array_equal(setup.training.initial, setup.model.joined(trained.model))
    result = run(setup, out=tmp_path)
    assert result.metrics["test_loss"].iloc[0] == trained.metrics["test_loss"].iloc[-1]
    assert result.metrics["test_loss"].iloc[-1] < result.metrics["test_loss"].iloc[0]
    digest = digest_parts(trained.model)
    assert trained.manifest.extra["models"]["model"] == digest
    assert result.manifest.extra["init"] == {"from": str(trained.folder / "model.npz"), "digest": digest}


def test_an_initial_model_that_does_not_fit_is_rejected(trained, tmp_path):
    with pytest.raises(ScenarioError, match=r"^init\.from: .*nothing there; name the folder of a run"):
        prepare(scenario(f"init: {{from: {tmp_path}}}"))
    wrong = (
        r"model\.npz: expected weights \[10, 64\], bias \[10\] of model softmax, found weights \[3, 64\], bias \[3\]"
    )
    with pytest.raises(ScenarioError, match=rf"^init\.from: .*{wrong}; use the model and data"):
        prepare(scenario(f"init: {{from: {trained.folder}}}", data="digits"))
    write_models(tmp_path / "nan.npz", {name: part * np.nan for name, part in trained.model.items()})
    with pytest.raises(ScenarioError, match="expected finite numbers, found a model that has diverged"):
        prepare(scenario(f"init: {{from: {tmp_path / 'nan.npz'}}}"))


def test_every_task_starts_from_its_own_part_of_the_model(tmp_path):
    model = "model: one_vs_all\ninit: {{from: {}}}\n".format(tmp_path / "tasks.npz")
    tasks = np.arange(3 * 65, dtype=np.float32).reshape(3, 65)
    write_models(tmp_path / "tasks.npz", {"tasks": tasks})
    text = TEXT[: TEXT.index("evaluate")]
    text = text.replace("sync_sgd", "random_walk_sgd").format(data=DATA, algorithm="")
    training = prepare(loads(text + model, "tasks")).training
    np.testing.assert_array_equal(training.tasks_initial, tasks)
    np.testing.assert_array_equal(training.initial, tasks[0])


def test_an_account_excludes_spending_of_an_earlier_run(trained):
    private = "privacy: {mechanism: gaussian, clipping_norm: 1, noise_multiplier: 2}\n"
    plain, further = (prepare(scenario(private + more)) for more in ("", f"init: {{from: {trained.folder}}}"))
    what = f"not counting what training the model that it starts from ({trained.folder}/model.npz) released"
    assert not any("not counting" in warning for warning in plain.warnings)
    (warning,) = [warning for warning in further.warnings if "not counting" in warning]
    assert warning.startswith("init.from: epsilon covers this run alone, ")
    assert what in warning
    assert plain.ledger is not None
    assert further.ledger is not None
    planned = plain.kind.planned(plain)
    assert what in further.ledger.statement_of(planned)
    assert further.ledger.statement_of(planned).startswith(plain.ledger.statement_of(planned))
    assert further.ledger.largest(planned) == plain.ledger.largest(planned)


def test_evaluate_command_prints_the_same_numbers(simfl_, trained):
    code, shown, _ = simfl_("evaluate", trained.folder, "--metrics", "auc")
    assert code == 0
    accuracy = f"{trained.metrics['test_accuracy'].iloc[-1]:.2%}"
    assert accuracy in shown
    code, shown, said = simfl_("evaluate", trained.folder, "--json", "-", "--data", "train")
    (printed,) = json.loads(shown)
    assert (code, said, printed["run"], printed["data"]) == (0, "", str(trained.folder), "train")
    assert printed["loss"] == trained.evaluate("train")["loss"]
