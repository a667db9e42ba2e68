"""`--set key.path=value`: what it changes, and how it is refused."""

import pytest

from simfl.errors import ScenarioError
from simfl.scenario import apply_overrides, loads

TEXT = """\
algorithm: {kind: adpsgd, step_size: 0.4}
slowdowns:
  - {clients: [3], factor: 10}
  - {random: 1, factor: 2}
topology: ring
"""


def test_overrides_change_a_copy_of_mappings_and_lists() -> None:
    original = {"a": {"b": 1}, "c": [{"d": 2}]}
    changed = apply_overrides(original, ["a.b=5", "c.0.d=[1, 2]", "c.1.d=x", "e.f.g=10 ms", "h.0=1e-3", "a.i=null"])
    assert changed == {
        "a": {"b": 5, "i": None},
        "c": [{"d": [1, 2]}, {"d": "x"}],
        "e": {"f": {"g": "10 ms"}},
        "h": [1e-3],
    }
    assert original == {"a": {"b": 1}, "c": [{"d": 2}]}


def test_overrides_are_applied_in_order() -> None:
    overrides = ["slowdowns.0.factor=3", "seed=1", "seed=2", "topology={kind: torus, rows: 2}", "stop.time=1 h"]
    scenario = loads(TEXT, overrides=overrides)
    assert scenario.slowdowns[0].factor == 3.0
    assert scenario.slowdowns[1].factor == 2.0
    assert scenario.seed == 2
    assert scenario.topology.kind == "torus"
    assert (scenario.stop.time, scenario.stop.epochs) == (3600.0, None)


def test_override_value_may_have_an_equals_sign_or_be_empty() -> None:
    assert loads(TEXT, overrides=["description=a=b"]).description == "a=b"
    assert loads(TEXT + "privacy: {mechanism: gaussian}\n", overrides=["privacy="]).privacy is None


def test_override_can_correct_the_file() -> None:
    with pytest.raises(ScenarioError):
        loads(TEXT + "seed: x\n")
    assert loads(TEXT + "seed: x\n", overrides=["seed=3"]).seed == 3


@pytest.mark.parametrize(("override", "message"), [
    ("seed", "--set: expected key.path=value, found 'seed'; write for example seed=3"),
    ("=3", "--set: expected key.path=value, found '=3'; write for example seed=3"),
    ("a..b=3", "--set: expected key.path=value, found 'a..b=3'; write for example seed=3"),
    ("a. b=3", "--set: expected key.path=value, found 'a. b=3'; write for example seed=3"),
    ("seed=[1", "--set: seed:2:1: expected well-formed YAML, found an error (did not find expected ',' or ']'); "
     "check quotes, brackets, colons and indentation"),
    ("seed=!!python/name:os.system",
     "--set: seed:1:1: expected plain YAML, found the tag '!!python/name:os.system'; remove the tag"),
    ("slowdowns.3.factor=3",
     "--set: slowdowns.3.factor: expected at most 2, because slowdowns has 2 items, found 3; count from 0"),
    ("slowdowns.first.factor=3", "--set: slowdowns.first.factor: expected a number, because slowdowns is a list, "
     "found 'first'; write slowdowns.0 for its first item"),
    ("algorithm.step_size.value=3", "--set: algorithm.step_size.value: expected a mapping or list at "
     "algorithm.step_size, found 0.4; set algorithm.step_size as a whole, as in algorithm.step_size={...}"),
    ("topology.mixing=uniform", "--set: topology.mixing: expected a mapping or list at topology, found 'ring'; set "
     "topology as a whole, as in topology={...}"),
    ("seed=x", "--set: seed: expected an integer >= 0 and < 18446744073709551616, found 'x'; write a whole number"),
    ("algorithm.stepsize=1",
     "--set: algorithm.stepsize: expected a key of kind adpsgd, found 'stepsize'; did you mean 'step_size'?"),
    ("stop.accuracy=0.9", "--set: stop: expected at least one of time, updates and epochs, found only accuracy, "
     "which may never be reached; add for example epochs: 20"),
    ("slowdowns.0.random=1", "f.yaml: slowdowns.0: expected exactly one of clients, fraction, regions and random, "
     "found clients and random; keep one of clients and random"),
])  # fmt: skip
def test_invalid_overrides_have_exact_messages(override: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        loads(TEXT, "f.yaml", [override])
    assert str(caught.value) == message


def test_problems_of_the_file_precede_those_of_overrides() -> None:
    with pytest.raises(ScenarioError) as caught:
        loads(TEXT + "seed: -1\n", "f.yaml", ["clients.count=0"])
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == ["f.yaml", "--set"]
