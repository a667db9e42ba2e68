"""Each problem of a scenario is one line in plain words, whatever its source."""

import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.errors import ScenarioError
from simfl.scenario import from_mapping, loads
from tests.scenario.broken import ADPSGD, BROKEN
from tests.scenario.strategies import scenarios

JARGON = re.compile(
    r"pydantic|input should|validation|value error|type=|union|_tag|<\w+>|traceback|nonetype|str\b|dict\b", re.I
)
LINE = re.compile(r"fuzz: ([\w.]+: )?expected .+, found .+; .+")


def test_broken_scenarios_are_many_and_their_messages_plain() -> None:
    """`tests/test_bad_input.py` gives each of them to the command line."""
    assert len({case.text for case in BROKEN}) == len(BROKEN) >= 100
    assert not [case.message for case in BROKEN if JARGON.search(case.message)]


def test_problems_are_in_the_order_of_the_file() -> None:
    text = "stop: {epochs: 0}\nclients:\n  jitter: {kind: lognormal, sigma: -1}\n  count: 0\n"
    text += "algorithm: {kind: adpsgd, batch: 3}\n"
    with pytest.raises(ScenarioError) as caught:
        loads(text, "f.yaml")
    assert str(caught.value).splitlines() == [
        "f.yaml: stop.epochs: expected a number > 0, found 0; choose a value in this range",
        "f.yaml: clients.jitter.sigma: expected a number >= 0 and <= 5, found -1; choose a value in this range",
        "f.yaml: clients.count: expected an integer >= 1, found 0; choose a value in this range",
        "f.yaml: algorithm.batch: expected a key of kind adpsgd, found 'batch'; did you mean 'batch_size'?",
    ]


@pytest.mark.parametrize(
    ("name", "kind"), [("FedBuff", "fedbuff"), ("AD-PSGD", "adpsgd"), ("D-PSGD", "decentralized_sgd")]
)
def test_the_name_of_an_algorithm_in_tables_leads_to_its_kind(name: str, kind: str) -> None:
    with pytest.raises(ScenarioError, match=rf"found '{name}'; did you mean '{kind}'\?$"):
        loads(f"algorithm: {name}", "f.yaml")


def test_all_contradictions_between_sections_are_listed() -> None:
    text = "algorithm: decentralized_sgd\ntopology: {kind: tree, mixing: uniform}\n"
    text += "slowdowns: [{clients: [16], factor: 2}]\nmodel: linear\n"
    with pytest.raises(ScenarioError) as caught:
        loads(text, "f.yaml")
    assert [line.split(": ")[1] for line in str(caught.value).splitlines()] == [
        "topology.mixing",
        "slowdowns.0.clients.0",
        "model",
    ]


def test_at_most_ten_problems_are_listed() -> None:
    text = ADPSGD + "record:\n" + "".join(f"  zz{letter}: 1\n" for letter in "abcdefghijkl")
    with pytest.raises(ScenarioError) as caught:
        loads(text, "f.yaml")
    written = str(caught.value).splitlines()
    assert len(written) == 11
    assert written[9].startswith("f.yaml: record.zzj: ")
    assert written[10] == "f.yaml: expected no more problems, found 2 more; fix these first"


def test_problem_of_a_short_form_names_the_key_in_the_file() -> None:
    for text, key in [
        ("algorithm: adpsg", "algorithm"),
        ("algorithm: {kind: adpsgd, step_size: quick}", "algorithm.step_size"),
        (ADPSGD + "links: {latency: -3 ms}", "links.latency"),
        (ADPSGD + "topology: graphml", "topology"),
    ]:
        with pytest.raises(ScenarioError) as caught:
            loads(text, "f.yaml")
        assert str(caught.value).startswith(f"f.yaml: {key}: expected ")


JUNK: list[Any] = [None, True, -1, 0, 7.5, "", "junk", "10 ms", "1 Mbit/s", [], [1], [[1, 2]], {}, {"kind": "junk"}]
JUNK += [{"a": 1}, float("inf"), float("nan"), 10**400, "x" * 200, {1: 2}, {"kind": ["list"]}, {"kind": None}, object()]


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(inner_path for key, item in inner for inner_path in _paths(item, (*path, key)))]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(mapping=scenarios, seed=st.integers(0, 2**32))
def test_junk_anywhere_is_accepted_or_has_plain_messages(mapping: dict[str, Any], seed: int) -> None:
    generator = random.Random(seed)
    resolved = from_mapping(mapping).resolved()
    path = generator.choice(_paths(resolved)[1:])
    holder: Any = resolved
    for part in path[:-1]:
        holder = holder[part]
    if generator.random() < 0.2 and isinstance(holder, dict):
        holder["jnuk"] = generator.choice(JUNK)
    else:
        holder[path[-1]] = generator.choice(JUNK)
    for line in _refused(lambda: from_mapping(resolved, "fuzz")):
        assert LINE.fullmatch(line), line
        assert not JARGON.search(line), line


def _refused(action: Callable[[], object]) -> list[str]:
    try:
        action()
    except ScenarioError as error:
        return str(error).splitlines()
    return []


def test_key_like_an_internal_tag_is_unknown() -> None:
    with pytest.raises(ScenarioError, match=r"'?<'?"):
        loads("{'<': 1, algorithm: adpsgd}")
