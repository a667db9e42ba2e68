"""An edited text loads as the overridden scenario, and is otherwise unchanged."""

import difflib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.errors import ScenarioError
from simfl.live.editing import edited
from simfl.scenario import loads

TEXT = """\
# measured soon
clients:            # who
  count: 4          # few
  # how fast
  seconds_per_example: 100 us   # a guess
  jitter:
    kind: lognormal
    sigma: 0.3
  # behind jitter

links: {latency: 1 ms, rules: []}  # all alike
algorithm: adpsgd
stop:
  time: 5 s"""
CHANGES = {
    "clients.seconds_per_example": ["0.00025"],
    "clients.seconds_per_batch": ["1.2e-05", "3 ms"],
    "clients.jitter": ["{kind: lognormal, sigma: 0.1}", "exponential", "{kind: uniform, low: 0.5, high: 1.5}"],
    "clients.speed": ["{kind: list, values: [1, 2.5, 1, 1]}", "{kind: lognormal, sigma: 0.5}"],
    "links.latency": ["0.0004", "{kind: exponential, mean: 1 ms}"],
    "links.bandwidth": ["12.5 Mbit/s", "null"],
    "links.rules": ["[{all: true, loss: 0.1}, {clients: [1], latency: 3 ms}]"],
    "server.uplink": ["1 Gbit/s"],
    "regions": ["{names: ['a, b', '#c'], counts: [2, 2]}"],
    "description": ["'it: says {so}, # twice'"],
    "record.messages": ["true"],
}


def test_edits_keep_comments_order_and_style():
    changes = [
        "clients.seconds_per_batch=0.0123",
        "clients.seconds_per_example=1.2e-05",
        "clients.jitter={kind: lognormal, sigma: 0.12}",
        "links.bandwidth=12.5 Mbit/s",
        "record.messages=true",
    ]
    assert (
        edited(TEXT, changes)
        == TEXT.replace("100 us", "1.2e-05")
        .replace("    sigma: 0.3\n", "    sigma: 0.12\n  seconds_per_batch: 0.0123\n")
        .replace("rules: []}", "rules: [], bandwidth: 12.5 Mbit/s}")
        + "\nrecord:\n  messages: true\n"
    )


@pytest.mark.parametrize(
    ("text", "changes", "expected"),
    [
        ("{algorithm: sync_sgd}", ["clients.count=3"], "{algorithm: sync_sgd, clients: {count: 3}}"),
        ("algorithm: sync_sgd\nclients:\n", ["clients.count=3"], "algorithm: sync_sgd\nclients: {count: 3}\n"),
        ("clients: {}\nalgorithm: sync_sgd", ["clients.count=3"], "clients: {count: 3}\nalgorithm: sync_sgd"),
        ("clients: {count: 2,}  # two\nalgorithm: sync_sgd\n", ["clients.jitter=exponential"],
         "clients: {count: 2, jitter: exponential,}  # two\nalgorithm: sync_sgd\n"),
        ("algorithm: sync_sgd\nslowdowns:\n- clients:\n  - 0\n  - 1\n  factor: 2 # slow\n",
         ["slowdowns.0.clients=[3]", "slowdowns.0.until=5 s"],
         "algorithm: sync_sgd\nslowdowns:\n- clients: [3]\n  factor: 2 # slow\n  until: 5 s\n"),
        ("algorithm: sync_sgd\ndescription: |\n  two\n\n  lines\n\nseed: 1\n", ["description=one", "seed=2"],
         "algorithm: sync_sgd\ndescription: one\n\nseed: 2\n"),
        ("algorithm: sync_sgd\r\nseed: 1\r\n", ["seed=2", "name=x"], "algorithm: sync_sgd\r\nseed: 2\r\nname: x\n"),
        ("'algorithm' : \"sync_sgd\"   # quoted: {so}\n", ["algorithm=adpsgd"],
         "'algorithm' : adpsgd   # quoted: {so}\n"),
        ("# nothing\n---\nalgorithm: sync_sgd\n", ["seed=2"], "# nothing\n---\nalgorithm: sync_sgd\nseed: 2\n"),
    ],
)  # fmt: skip
def test_edits_follow_the_style_of_their_surroundings(text, changes, expected):
    assert edited(text, changes) == expected


@pytest.mark.parametrize(("text", "change"), [
    ("algorithm: sync_sgd\ndescription: &d words\nname: *d\n", "name=other"),
    ("algorithm: sync_sgd\ndescription: &d words\nname: *d\n", "description=other"),
    ("algorithm: sync_sgd\nslowdowns: []\n", "slowdowns.0={clients: [0], factor: 2}"),
])  # fmt: skip
def test_edit_returns_none_without_a_single_place(text, change):
    assert loads(text, overrides=[change]) != loads(text)
    assert edited(text, [change]) is None


def test_invalid_change_is_rejected():
    with pytest.raises(ScenarioError, match=r"clients\.count: expected an integer >= 1"):
        edited(TEXT, ["clients.count=0"])


@settings(max_examples=40, deadline=None, derandomize=True)
@given(path=st.sampled_from(sorted(Path("scenarios").rglob("*.yaml"))), data=st.data())
def test_shipped_scenarios_can_be_edited_in_place(path, data):
    text = path.read_text()
    if "\nbase:" in text or text.startswith("base:"):
        return
    keys = data.draw(st.lists(st.sampled_from(sorted(CHANGES)), min_size=1, max_size=4, unique=True))
    changes = [f"{key}={data.draw(st.sampled_from(CHANGES[key]))}" for key in keys]
    try:
        expected = loads(text, overrides=changes)
    except ScenarioError:
        return
    changed = edited(text, changes)
    assert changed is not None
    assert loads(changed) == expected
    gone = [line[2:] for line in difflib.ndiff(text.splitlines(), changed.splitlines()) if line.startswith("- ")]
    kept = [line.partition("#")[2] for line in gone if "#" in line]
    assert all(comment in changed for comment in kept), "a line may change, not what is said about it"
