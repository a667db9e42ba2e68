"""Each problem of a scenario is one line in plain words, whatever its source."""

import re
from typing import Any

import pytest

from simfl.errors import ScenarioError
from simfl.scenario import loads
from tests.scenario.broken import ADPSGD, BROKEN

JARGON = re.compile(
    r"pydantic|input should|validation(?!,)|value error|type=|union|_tag|<\w+>|traceback|nonetype|str\b|dict\b", re.I
)


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


def test_key_like_an_internal_tag_is_unknown() -> None:
    with pytest.raises(ScenarioError, match=r"'?<'?"):
        loads("{'<': 1, algorithm: adpsgd}")
