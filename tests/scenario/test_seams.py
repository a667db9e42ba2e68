"""What an algorithm does with messages, sums and steps decides what a scenario may ask of it."""

import pytest

from simfl.algorithms.fedbuff import FedBuff
from simfl.assembly.assemble import assemble
from simfl.errors import ScenarioError
from simfl.scenario import from_mapping
from simfl.scenario.own_code import nothing_loaded
from simfl.scenario.seams import CHANNELS, SUMS, Uses
from tests.algorithms.custom import Alone

HERE = "tests.scenario.test_seams"


class Buffered(FedBuff):
    """An algorithm of a user, derived from one of simfl's."""


class Paired(Alone):
    """An algorithm of a user that says what it does."""

    uses = Uses(channel="pairs", sum="pair", step="clients")


def setup_of(kind, **sections):
    data = {"set": "logistic", "samples": 160, "dimension": 4}
    content = {"data": data, "model": "logistic", "clients": 4, "stop": {"updates": 12}, "algorithm": {"kind": kind}}
    return assemble(from_mapping({**content, **sections}))


def test_a_class_that_derives_from_an_algorithm_takes_what_that_takes():
    compressed = setup_of(f"{HERE}:Buffered", compression={"kind": "top_k"}).training.compression
    assert compressed.scheme == "error_feedback"
    assert setup_of(f"{HERE}:Buffered", aggregation={"kind": "median"}).training.rule is not None


def test_a_class_says_what_it_does():
    algorithm = {"kind": f"{HERE}:Paired", "optimizer": "momentum"}
    setup = setup_of("", algorithm=algorithm, compression={"kind": "top_k", "gamma": 0.5})
    assert setup.training.compression.scheme == "choco"
    assert setup.training.optimizer.momentum == 0.9
    assert setup_of(f"{HERE}:Paired", aggregation="balance").training.rule is not None
    with pytest.raises(ScenarioError, match=r"expected balance or clipped_gossip with .*Paired', found 'median'"):
        setup_of(f"{HERE}:Paired", aggregation="median")


@pytest.mark.parametrize(
    ("kind", "sections", "reason"),
    [
        ("tests.algorithms.custom:Alone", {"compression": {"kind": "top_k"}}, "its class names no channel"),
        ("tests.algorithms.custom:Alone", {"privacy": {"unit": "user"}}, "its class names no sum of updates"),
        ("sgp", {"aggregation": "median"}, "what arrives must add up to what was sent, which a rule ends"),
        ("swift", {"compression": {"kind": "top_k"}}, "who missed one cannot rebuild an estimate: remove it"),
        ("rennala", {"privacy": {"unit": "user", "noise_multiplier": 2}}, "its clients send gradients"),
    ],
)
def test_refusals_have_the_reason(kind, sections, reason):
    with pytest.raises(ScenarioError, match=reason):
        setup_of(kind, **sections)


def test_a_use_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match=r"uses: channel: expected server, rounds, pairs, .* found 'pair'"):
        Uses(channel="pair")


def test_what_takes_nothing_says_why():
    assert all(channel.schemes or channel.why for channel in CHANNELS.values())
    assert all(one.rules or one.why for one in SUMS.values())


def test_a_scenario_is_read_without_its_code():
    content = {"algorithm": {"kind": "no_such_module:Mine"}, "compression": {"kind": "top_k", "gamma": 0.5}}
    with nothing_loaded():
        assert from_mapping(content).compression.kind == "top_k"
