"""`simfl list` reads the content of the catalogues from source files."""

import contextlib
import io
import re

from rich.console import Console

from simfl.algorithms import ALGORITHMS
from simfl.cli import listing, screen
from simfl.compression.compressors import COMPRESSORS
from simfl.data import DATASETS
from simfl.errors import ScenarioError
from simfl.models import MODELS
from simfl.robust.attacks import ATTACKS
from simfl.robust.rules import RULES
from simfl.scenario.loading import from_mapping
from simfl.scenario.optimizers import summaries
from simfl.selection.selectors import SELECTORS
from simfl.world.changing import CHANGING
from simfl.world.topology import TOPOLOGIES


def lines(entries):
    return {name: entry.summary for name, entry in entries.items()}


def test_listed_algorithms_are_those_of_the_catalogue():
    assert lines(listing.algorithms()) == {kind: one.summary for kind, one in ALGORITHMS.items()}


def test_every_algorithm_says_who_waits_what_travels_and_what_is_private():
    """A new algorithm says it by four literals beside its summary; docs/make_reference.py copies them to the page."""
    entries = listing.algorithms()
    for kind, one in ALGORITHMS.items():
        own = {word: vars(one).get(name, "") for word, name in listing.DETAILS.items()}
        assert all(own.values()), f"{kind}: give it {', '.join(listing.DETAILS.values())}, each a literal"
        assert dict(entries[kind].details) == own, kind
        assert one.family in listing.FAMILIES
        for text in (one.who_waits, one.what_travels, one.what_is_private):
            assert len(text) <= 150, f"{kind}: one line, found {text!r}"
            assert text[0].islower(), f"{kind}: words that continue a line, found {text!r}"
            assert text[-1] != ".", f"{kind}: words that continue a line, found {text!r}"
    assert [entry.details["family"] for entry in entries.values()] == sorted(
        (one.family for one in ALGORITHMS.values()), key=listing.FAMILIES.index
    )


#: What an algorithm needs so that a scenario with privacy is valid, beside its kind.
NEEDS = {"mapa": {"step_size": None}, "deep_q_sgd": {"explore_to": 1.0}, "privsgp_vr": {"sampling": "auto"}}
CERTIFIED = ("gaussian", "laplace_l2", "laplace", "gaussian_update", "one_pass_gaussian")


def accepted(kind, mechanism):
    """Whether a scenario with an algorithm and a mechanism is valid, in some form."""
    for noise in ({"epsilon": 1.0}, {"noise_multiplier": 1.0}, {"epsilon": 1.0, "neighbors": "replace_one"}):
        algorithm = {"kind": kind, "sampling": "shuffle", **NEEDS.get(kind, {})}
        clients = {"count": 1 if kind == "centralized_sgd" else 16}
        privacy = {"mechanism": mechanism, **noise}
        with contextlib.suppress(ScenarioError):
            from_mapping({"algorithm": algorithm, "clients": clients, "privacy": privacy, "stop": {"epochs": 1}})
            return True
    return False


def test_mechanisms_that_algorithms_say_they_support_are_those_that_scenarios_accept():
    for kind, one in ALGORITHMS.items():
        said = set(re.findall(r"`(\w+)`", one.what_is_private)) & set(CERTIFIED)
        assert said == {mechanism for mechanism in CERTIFIED if accepted(kind, mechanism)}, kind


def test_details_of_algorithms_fit_in_80_and_50_columns():
    entries = listing.algorithms()
    for width in (80, 50):
        console = Console(width=width, record=True, file=io.StringIO())
        details = {kind: entry.plain for kind, entry in entries.items()}
        screen.show_details("algorithms", {kind: entry.summary for kind, entry in entries.items()}, details, console)
        lines = console.export_text().splitlines()
        assert max(map(len, lines)) <= width
        text = " ".join(" ".join(line.split()) for line in lines)
        for kind, entry in entries.items():
            assert f"  {kind}" in lines
            shown = " ".join(f"{label} {words}" for label, words in entry.plain.items())
            assert f"{kind} {entry.summary} {shown}" in text


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


def test_listed_rules_attacks_and_selectors_are_those_of_the_catalogues():
    assert lines(listing.selectors()) == {kind: one.summary for kind, one in SELECTORS.items()}
    assert lines(listing.rules()) == {kind: one.summary for kind, one in RULES.items()}
    assert lines(listing.attacks()) == {kind: one.summary for kind, one in ATTACKS.items()}


def test_origins_are_the_plugins_that_list_the_modules():
    entries = listing.algorithms()
    assert (entries["mapa"].origin, entries["deep_q_sgd"].origin) == ("mapa", "without_replacement")
    assert {entry.origin for entry in listing.models().values()} == {"simfl"}
    assert "simfl privacy plan" in listing.attached()["proactive_dp"].summary
