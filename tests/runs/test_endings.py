"""Reasons for the end of runs, also those of idle clients."""

import pytest

import simfl
from simfl.scenario import from_mapping

pytestmark = pytest.mark.usefixtures("without_numbers")

BASE = {
    "data": {"set": "digits"},
    "clients": {"count": 4, "seconds_per_example": "1 ms"},
    "algorithm": {"kind": "adpsgd", "batch_size": 8},
    "topology": "complete",
    "stop": {"updates": 400},
}
NEVER = [{"at": "100 ms", "back": "never"}]


def run(tmp_path, algorithm=None, **sections):
    options = {**BASE, **sections, "algorithm": {**BASE["algorithm"], **(algorithm or {})}}
    return simfl.run(from_mapping(options), out=tmp_path)


def test_the_reason_distinguishes_clients_that_left_from_clients_without_data(tmp_path):
    left = [{"clients": [2], "crash": NEVER}, {"clients": [1], "crash": NEVER}]
    made = run(tmp_path, {"kind": "without_replacement_sgd"}, availability=left, stop={"updates": 4000})
    assert made.manifest.reason == (
        "nothing left to happen: each of 2 clients (0, 3) has used its data 1 time, each of 2 clients (1, 2) has left"
    )


def test_the_reason_distinguishes_clients_that_left_from_spent_budgets(tmp_path):
    private = {"mechanism": "gaussian", "noise_multiplier": 4.0, "epsilon": 1.0, "delta": 1e-5}
    away = [{"clients": [3], "crash": [{"at": "1 ms", "back": "never"}]}]
    made = run(tmp_path, privacy=private, availability=away, stop={"epochs": 100})
    ended = "nothing left to happen: each of 3 clients (0, 1, 2) has spent its privacy budget, client 3 has left"
    assert made.manifest.reason == ended


@pytest.mark.parametrize("epochs", [0.9, 1.367])
def test_a_run_ends_by_epochs_only_after_making_them(epochs, tmp_path):
    """A client with large rounds leaves, so that the planned number of updates makes fewer passes."""
    growing = {"kind": "async_fl", "sizes": {"kind": "polynomial", "a": 4}, "weights": [1, 1, 1, 8]}
    growing["gate"] = {"kind": "rounds", "ahead": 9}
    away = [{"clients": [3], "crash": [{"at": "1 s", "back": "never"}]}]
    made = run(tmp_path, growing, availability=away, stop={"epochs": epochs}, evaluate={"every": {"epochs": 0.1}})
    last = made.metrics.iloc[-1]
    assert made.manifest.reason == "epochs"
    assert epochs <= last["epochs"] < epochs + 0.2
    assert made.metrics["rounds"].is_monotonic_increasing
    assert 0.05 < made.metrics["epochs"].diff().max() < 0.3
    assert len(made.metrics) < 30, "evaluated as often as asked, to the end"


def test_a_run_without_updates_exits_with_1(simfl_, tmp_path):
    late = {**BASE, "availability": [{"all": True, "join": "2 s"}], "stop": {"time": "1 s"}}
    (tmp_path / "late.yaml").write_text(from_mapping({**late, "name": "late"}).to_yaml())
    code, _, said = simfl_("run", "late.yaml", "--quiet")
    assert code == 1
    assert "late/001: the run has no update; time\n" in said, "they will join"


@pytest.mark.parametrize("every", [{"time": "100 ms"}, {"updates": 10}])
def test_a_run_to_a_time_reports_that_nothing_was_left_to_happen(every, tmp_path):
    """The server does not come back, so that no client continues, however long the run is."""
    made = run(
        tmp_path, {"kind": "fedavg", "local_steps": 2}, server={"offline": [["200 ms", "never"]]}, stop={"time": "2 s"},
        evaluate={"every": every},
    )  # fmt: skip
    assert made.manifest.time_s == 2.0
    assert made.manifest.reason.startswith(
        "time; nothing was left to happen before it: every client waits for the server; messages from client "
    )
    assert made.manifest.reason.endswith("never arrive: the server is offline, or cut off, permanently")
    assert run(tmp_path, stop={"time": "300 ms"}, evaluate={"every": every}).manifest.reason == "time"
