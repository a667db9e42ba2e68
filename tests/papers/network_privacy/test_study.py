"""The measurements of the study of whole networks, on small worlds."""

import csv
import itertools
import shlex
import types
from pathlib import Path

import pandas as pd
import pytest

from simfl.accounts.network import network, reconstruct
from simfl.accounts.walks import epsilons_of_walk, walk_of
from simfl.papers.network_privacy import study
from simfl.scenario import load
from simfl.world.topology import build_topology

pytestmark = pytest.mark.slow


def runs_of(table):
    """Runs that all have the same account."""
    study_runs = types.SimpleNamespace(each=lambda section, cell, measure: tuple(measure(None) for _ in range(5)))
    return study_runs, lambda run: table


def test_medians_are_over_the_named_pairs(monkeypatch):
    rows = [
        ("0", 1, 1.0, 4.0, 3.0), ("0", 2, 2.0, 3.0, 1.0), ("0", 3, 1.0, 0.5, 0.2),
        ("3", 1, 3.0, 2.0, 0.4), ("3", 2, 1.0, 2.5, 0.6), ("2", 1, 1.0, 6.0, 5.0),
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=["observer", "client", "distance", "epsilon", "published"])
    runs, account = runs_of(table)
    monkeypatch.setattr(study, "account", account)
    medians = {who: study.pairs(runs, (), who, "epsilon") for who in ("a neighbor", "the farthest")}
    assert medians == {"a neighbor": (5.0,) * 5, "the farthest": (3.0,) * 5}, "the slow worker is left out"
    assert study.pairs(runs, (), "the slow one", "published") == (0.2,) * 5
    assert study.pairs(runs, (), "for the slow one", "published") == (0.5,) * 5


@pytest.mark.parametrize("kind", study.SOLVERS)
def test_shares_equal_those_of_each_attackers_report(kind):
    """One matrix for all attackers gives the result of `Network.reconstruction` for each of them."""
    shares = {name: values[0] for name, values in study.solved("Florentine families", kind, 5).items()}
    folder = study.scenarios_folder() / "network_privacy"
    topology = f"topology={{kind: edge_list, path: {folder / 'florentine.txt'}}}"
    changes = [f"algorithm.kind={kind}", "clients.count=15", topology, "stop.updates=75", "seed=1"]
    pairs = reconstruct(load(folder / "solved.yaml", changes)).pairs
    each = pairs.groupby("observer")
    assert shares["slow"] == pytest.approx(each["slow_recovered"].mean().mean())
    assert shares["32 bits"] == pytest.approx((pairs["slow_rounding"] < 0.1).groupby(pairs["observer"]).mean().mean())
    assert shares["neighbors"] == pytest.approx((pairs["distance"] == 1.0).groupby(pairs["observer"]).mean().mean())
    assert 0.1 < shares["slow"] < 0.9


def test_a_difference_of_less_than_a_twentieth_is_none():
    assert study.less((1.83,) * 5, (1.83,) * 5, "").held is False
    assert study.less((1.80,) * 5, (1.83,) * 5, "").held is True, "without a draw any difference is one"
    assert study.less((1.80, 1.86, 1.83, 1.80, 1.86), (1.83,) * 5, "").held is False
    assert study.less((1.5, 2.1, 1.8, 1.5, 2.1), (1.83,) * 5, "").held is None


@pytest.mark.parametrize(("far", "held"), [
    ({"epsilon": 1.0, "published": 0.1}, [True] * 4),
    ({"epsilon": 3.0, "published": 0.1}, [False, True] * 2),
    ({"epsilon": 3.0, "published": 3.5}, [False] * 4),
])  # fmt: skip
def test_distance_protects_if_the_farthest_learn_half(far, held, monkeypatch):
    def pairs(runs, cell, who, column):
        return (4.0,) * 5 if who == "a neighbor" else (far[column],) * 5

    monkeypatch.setattr(study, "pairs", pairs)
    readings = list(study.farther_is_safer(None))
    assert [reading.held for reading in readings] == held
    assert readings[0].evidence == f"ε for a neighbor 4.00, for the farthest on a ring {far['epsilon']:.2f} (bar: half)"
    assert readings[0].label == "account: certified, algorithm: A(DP)²SGD"
    assert not any(reading.own for reading in readings), "the study is not of one paper"


def test_asynchrony_protects_only_if_all_worlds_agree(monkeypatch):
    """If attackers on AD-PSGD solve for as many gradients in some worlds, protection by asynchrony is not shown."""
    shares = {"decentralized_sgd": (0.5,) * 5, "adpsgd": (0.1, 0.2, 0.4, 0.6, 0.9)}
    monkeypatch.setattr(study, "solved", lambda graph, kind, steps: {"32 bits": shares[kind]})
    runs = types.SimpleNamespace(require=lambda section: None)
    assert {reading.held for reading in study.asynchrony_protects(runs)} == {None}
    shares["adpsgd"] = (0.1, 0.2, 0.1, 0.2, 0.1)
    assert {reading.held for reading in study.asynchrony_protects(runs)} == {True}


def close(cell, value):
    return abs(float(cell.split()[0]) - value) <= 0.0051


def test_the_page_has_the_measured_numbers():
    """The tables of docs/network_privacy.md are those of the full form."""
    root = Path(__file__).parents[3]
    with (root / "results" / "reference" / "network_privacy.csv").open(encoding="utf-8", newline="") as file:
        measured = {(row["row"], row["column"]): float(row["ours"]) for row in csv.DictReader(file)}
    page = (root / "docs" / "network_privacy.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| ")]
    workers = {row[0]: row[1:] for row in rows if len(row) == 8 and row[0].strip("-")}
    assert len(workers) == 9
    columns = ["a neighbor, certified", "a neighbor, as published", "the farthest, certified"]
    columns += [
        "the farthest, as published",
        "the slow one, certified",
        "worst worker's own model, %",
        "virtual time, s",
    ]
    for name, cells in workers.items():
        for column, cell in zip(columns, cells, strict=True):
            assert float(cell.split()[0]) == pytest.approx(measured[f"case II, {name}", column], abs=0.0051), (
                name,
                column,
            )
    solved = {row[0]: row[1:] for row in rows if len(row) == 7 and "PSGD" in row[0]}
    assert len(solved) == 8
    for name, cells in solved.items():
        graph, algorithm = name.partition(",")[0].split(" of ")[0].replace("4-", ""), name.rpartition(", ")[2]
        row = f"{graph}, {algorithm}"
        wanted = ["neighbors", *(f"the same, 32 bits, {steps}" for steps in study.STEPS)]
        wanted.append(f"each gradient by itself, {study.EACH}")
        for column, cell in zip(wanted, cells, strict=True):
            assert close(cell, measured[row, column]), (name, column)


def test_the_page_has_the_numbers_of_its_commands_on_walks_and_gossip():
    """The table of accounts of docs/network_privacy.md, by the commands above it."""
    root = Path(__file__).parents[3]
    page = (root / "docs" / "network_privacy.md").read_text(encoding="utf-8").partition("## A model that walks")[2]
    block = page.split("```")[1]
    assert "simfl privacy walk --graph ring --clients 16 --steps 300 --noise-multiplier 2\n" in block
    gossip, dp_sgd = (shlex.split(one, comments=True) for one in block.split("simfl privacy network ")[1:])
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| ")]
    rows = [row for row in rows if len(row) == 9][2:]
    table = {(rows[3 * (n // 3)][0], int(row[1])): row[2:] for n, row in enumerate(rows)}
    assert len(table) == 10

    def pairs(words, *changes):
        given = [after for word, after in itertools.pairwise(words) if word == "--set"]
        report = network(load(root / words[0], [*given, *changes]))
        return report.pairs.groupby("distance").median(numeric_only=True)

    wanted = {}
    w = walk_of(build_topology("ring", 16, None))
    for distance in (1, 4, 8):
        of_walk = epsilons_of_walk(w, 300, distance, 0, 2.0, 1e-5)
        wanted["a walk, secret order", distance] = [
            None, None, of_walk.certified, of_walk.nonexpansive, of_walk.published, of_walk.renyi, of_walk.at_least
        ]  # fmt: skip
    walk = ("algorithm.kind=multi_walk", "algorithm.walks=1")
    for name, changes in (("a walk in a run", walk), ("AD-PSGD", ())):
        by_pld = pairs(gossip, *changes)
        by_renyi = pairs(gossip, *changes, "privacy.accountant=renyi")
        for distance in (1, 4, 8):
            one = by_pld.loc[distance]
            wanted[name, distance] = [
                by_renyi["local"][distance], one["local"], one["pairwise"], None, one["published"], None, None
            ]  # fmt: skip
    one = pairs(dp_sgd).loc[1]
    wanted["DP-SGD-5, 4 nodes", 1] = [None, one["local"], one["pairwise"], None, one["published"], None, None]
    for place, values in wanted.items():
        shown = [float(cell) if cell else None for cell in table[place]]
        assert shown == [value if value is None else pytest.approx(value, abs=0.0051) for value in values], place
