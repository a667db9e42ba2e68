import re

import pytest

from simfl.records import read
from simfl.scenario import load, loads

DIGITS = "clients: {count: 1}\nalgorithm: {kind: sync_sgd}\nstop: {epochs: 10}\n"
GRID = "digits.yaml --epochs 6 --clipping-norms 0.5,1 --noise-multipliers 1.5,2,3 --draws 4"
LOSS = ("--target-loss", 0.3)
PLAN = (f"privacy plan {GRID}", *LOSS)


@pytest.fixture(autouse=True)
def digits(tmp_path):
    (tmp_path / "digits.yaml").write_text(DIGITS)


@pytest.mark.parametrize("command", ["plan", "utility-graph"])
def test_a_missing_scenario_is_an_error(simfl_, tmp_path, command):
    err = simfl_.refused("privacy", command)
    assert err == f"simfl privacy {command}: Missing argument 'SCENARIO'; see simfl privacy {command} --help\n"
    assert [path.name for path in tmp_path.iterdir()] == ["digits.yaml"]


@pytest.mark.slow
def test_a_planned_scenario_runs_and_spends_the_certified_epsilon(simfl_, tmp_path):
    out = simfl_.printed(*PLAN)
    assert re.search(r"^  epsilon +\S+ +claim of Theorem B\.4 at delta 0\.00069541", out, re.MULTILINE)
    certified = float(re.search(r"^  epsilon +(\S+) +certified at delta", out, re.MULTILINE)[1])
    low, high = (float(re.search(rf"expected at {word} +([\d.]+)%", out)[1]) for word in ("least", "most"))
    assert "written: planned.yaml; next: simfl run planned.yaml" in out
    planned = load(tmp_path / "planned.yaml")
    assert planned.name == "digits-planned"
    assert planned.algorithm.sampling == "poisson"
    assert planned.privacy.delta == 1 / 1438
    assert planned.privacy.epsilon > certified
    assert planned.algorithm.step_size.value == pytest.approx(0.4 * planned.algorithm.batch_size / 32, rel=1e-5)

    assert simfl_("run", "planned.yaml", "--quiet")[0] == 0
    run = read(tmp_path / "results" / "digits-planned" / "001")
    assert run.manifest.updates == planned.stop.updates
    assert run.clients["epsilon"].max() == pytest.approx(certified, rel=1e-3)
    assert low - 3.0 <= 100 * run.metrics["test_accuracy"].iloc[-1] <= high + 3.0


def test_comments_state_the_plan_the_claim_and_the_certified_epsilon(simfl_, tmp_path):
    (tmp_path / "planned.yaml").write_text("replaced")
    plan = simfl_.result(*PLAN, "--set", "description=mine", "--force")["plan"]
    text = (tmp_path / "planned.yaml").read_text()
    comments = [line for line in text.splitlines() if line.startswith("#")]
    for pattern in (
        rf"^# Claimed: +\({plan['claimed_epsilon']:.6g}, 0\.00069541\)-DP by Theorem B\.4\.$",
        rf"^# Certified: \({plan['certified_epsilon']:.6g}, 0\.00069541\)-DP by an accountant, for {plan['rounds']} ",
        r"^# Neither counts what the utility graph learned",
        rf"^# Batches of {plan['batch_size']} of 1,438 examples on average\.",
        rf"^# {plan['rounds']} rounds of 1 clients?\.$",
    ):
        assert re.search(pattern, "\n".join(comments), re.MULTILINE), pattern
    assert loads(text).description == "mine"


def test_a_stored_graph_gives_the_same_plan(simfl_, tmp_path):
    assert simfl_(f"privacy utility-graph {GRID}", "--out", "graph")[0] == 0
    assert simfl_(*PLAN)[0] == 0
    words = "privacy plan digits.yaml --graph graph"
    assert simfl_(f"{words} --epochs 6 --draws 4 --out again.yaml", *LOSS)[0] == 0
    assert (tmp_path / "again.yaml").read_text() == (tmp_path / "planned.yaml").read_text()
    err = simfl_.refused(f"{words} --epochs 7 --out other.yaml", *LOSS)
    assert "found another epochs" in err


def test_a_file_is_not_replaced_without_force(simfl_, tmp_path):
    (tmp_path / "planned.yaml").write_text("mine")
    err = simfl_.refused(*PLAN)
    assert err == "planned.yaml: the file exists; choose another name, or --force to replace it\n"
    assert (tmp_path / "planned.yaml").read_text() == "mine"


@pytest.mark.slow
def test_a_plan_keeps_the_rest_of_the_scenario(simfl_, tmp_path):
    (tmp_path / "base.yaml").write_text(
        "algorithm: adpsgd  # a bare word\nclients: {count: 2}\nslowdowns: [{clients: [1], factor: 3}]\n"
        "topology: complete\nstop: {epochs: 6, accuracy: 0.99}\n"
        "privacy: {mechanism: gaussian, clipping_norm: 9, neighbors: replace_one}\n"
    )
    words = "base.yaml --clipping-norms 1 --noise-multipliers 1.5,2 --draws 2 --target-loss 0.6"
    out = simfl_.printed(f"privacy plan {words}")
    assert "adpsgd: the rounds of each client are an outcome" in out
    planned, base = load(tmp_path / "planned.yaml"), load(tmp_path / "base.yaml")
    assert planned.algorithm.kind == "adpsgd"
    assert (planned.slowdowns, planned.topology, planned.clients) == (base.slowdowns, base.topology, base.clients)
    assert planned.privacy.neighbors == "add_or_remove"
    assert planned.privacy.clipping_norm < 9
    assert planned.stop.updates % 2 == 0
    assert planned.stop.accuracy is None


def test_an_impossible_loss_is_an_error_of_one_line(simfl_, tmp_path):
    err = simfl_.refused(f"privacy plan {GRID}", "--target-loss", 0.001)
    assert re.match(r"target loss: expected an accuracy of at least .*\n$", err)
    assert not (tmp_path / "planned.yaml").exists()
