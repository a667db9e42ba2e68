"""`simfl list` reads the content of the catalogues from source files."""

from simfl.algorithms import ALGORITHMS
from simfl.cli import listing
from simfl.compression.compressors import COMPRESSORS
from simfl.data import DATASETS
from simfl.models import MODELS
from simfl.robust.attacks import ATTACKS
from simfl.robust.rules import RULES
from simfl.scenario.optimizers import summaries
from simfl.world.changing import CHANGING
from simfl.world.topology import TOPOLOGIES


def lines(entries):
    return {name: entry.summary for name, entry in entries.items()}


def test_listed_algorithms_are_those_of_the_catalogue():
    assert lines(listing.algorithms()) == {kind: one.summary for kind, one in ALGORITHMS.items()}


def test_listed_models_are_those_of_the_catalogue():
    assert lines(listing.models()) == {kind: one.summary for kind, one in MODELS.items()}


def test_listed_data_sets_are_those_of_the_catalogue():
    assert lines(listing.data()) == {kind: one.summary for kind, one in DATASETS.items()}


def test_listed_topologies_are_those_of_the_catalogue():
    assert lines(listing.topologies()) == {**TOPOLOGIES, **CHANGING}


def test_listed_optimizers_are_those_of_the_schema():
    assert lines(listing.optimizers()) == summaries()


def test_listed_compressors_are_those_of_the_catalogue():
    assert lines(listing.compressors()) == {kind: one.summary for kind, one in COMPRESSORS.items()}


def test_listed_rules_and_attacks_are_those_of_the_catalogues():
    assert lines(listing.rules()) == {kind: one.summary for kind, one in RULES.items()}
    assert lines(listing.attacks()) == {kind: one.summary for kind, one in ATTACKS.items()}


def test_origins_are_the_plugins_that_list_the_modules():
    entries = listing.algorithms()
    assert (entries["mapa"].origin, entries["deep_q_sgd"].origin) == ("mapa", "without_replacement")
    assert {entry.origin for entry in listing.models().values()} == {"simfl"}
    assert "simfl privacy plan" in listing.attached()["proactive_dp"].summary
