"""Shell completion of `--set`."""

import pytest

from simfl.cli.completion import complete_override

FEDERATED = ("fedasync", "fedat", "fedavg", "fedbuff", "feddyn", "fednova", "fedprox")


@pytest.mark.parametrize(("begun", "ways"), [
    ("se", ["seed=", "selection.", "server."]),
    ("clients.s", ["clients.seconds_per_batch=", "clients.seconds_per_example=", "clients.speed."]),
    ("algorithm.step_size.initial", ["algorithm.step_size.initial="]),
    ("evaluate.every.e", ["evaluate.every.epochs="]),
    ("init.", ["init.from="]),
    ("algorithm.kind=fed", [f"algorithm.kind={kind}" for kind in FEDERATED]),
    ("data.set=l", ["data.set=leaf", "data.set=libsvm", "data.set=linear", "data.set=logistic"]),
    ("seed=", []),
    ("nothing.at.all", []),
])  # fmt: skip
def test_a_field_is_completed_step_by_step(begun, ways):
    assert complete_override(begun) == ways


def test_the_shell_gets_completions_from_the_command(simfl_, monkeypatch):
    monkeypatch.setenv("_SIMFL_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "simfl run a.yaml --set clients.co")
    monkeypatch.setenv("COMP_CWORD", "4")
    code, shown, _ = simfl_()
    assert (code, shown.split()) == (0, ["clients.count="])
