"""The table of equal privacy: which algorithms it has, and that the page says what the stored runs say."""

import csv
from pathlib import Path

import pytest
import yaml

from simfl.errors import ScenarioError
from simfl.papers.asynchrony.algorithms import BY_NAME, ENTRIES
from simfl.scenario import load

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "scenarios" / "asynchrony"
PAGE = (ROOT / "docs" / "asynchrony.md").read_text(encoding="utf-8")
STUDY = yaml.safe_load((FOLDER / "studies" / "private.yaml").read_text(encoding="utf-8"))
OF_CLIENTS = yaml.safe_load((FOLDER / "studies" / "private-clients.yaml").read_text(encoding="utf-8"))
WORLDS, BUDGETS = ("equal", "straggler"), ("1", "3", "10")


def read(name):
    """What `simfl compare --csv` wrote."""
    with (ROOT / "results" / "reference" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def stored():
    """Of the table of examples: (algorithm, world, budget) -> row."""
    return {(row["algorithm"], row["slowdowns"], row["privacy"]): row for row in read("asynchrony-private")}


def interval(row, column, digits, unit=1.0):
    """A mean ± half of its interval."""
    mean, low, high = (float(row[column + part]) * unit for part in ("", "_low", "_high"))
    return f"{mean:.{digits}f} ± {(high - low) / 2:.{digits}f}"


def row_of_page(name, timed, ended):
    cells = [
        interval(row, "to_target_time_s", 2) if row["reached"] == row["runs"] else f"{row['reached']} of {row['runs']}"
        for row in timed
    ]
    cells += [interval(row, "test_accuracy", 1, 100) for row in ended]
    return f"| {name} | {' | '.join(cells)} |"


def test_the_page_says_how_many_algorithms_are_certified_for_examples_and_how_many_ran():
    certified = set()
    for entry in ENTRIES:
        options = f"algorithm={{{entry.options}, batch_size: 128, {entry.tuned}: 0.5, sampling: poisson}}"
        try:
            load(FOLDER / "private.yaml", [options])
        except ScenarioError:
            continue
        certified.add(entry.name)
    ran = STUDY["grid"]["algorithm"]
    assert certified >= ran.keys()
    (sentence,) = [line for line in PAGE.split("\n\n") if line.startswith("**What is not in the table.**")]
    sentence = sentence.replace("\n", " ")
    assert f"Of the {len(ENTRIES)} algorithms, {len(certified)} are certified for examples." in sentence
    assert all((name in sentence) == (name in certified - ran.keys()) for name in certified)
    assert f"The other {len(ENTRIES) - len(certified)} send the change of many steps" in sentence


def test_algorithms_have_the_settings_of_the_study_without_privacy():
    for name, options in STUDY["grid"]["algorithm"].items():
        same = yaml.safe_load(f"{{{BY_NAME[name].options}}}") | {"sampling": "poisson", "batch_size": 128}
        assert options == same


def test_every_setting_spent_at_most_its_budget(stored):
    settings = {(one, world, budget) for one in STUDY["grid"]["algorithm"] for world in WORLDS for budget in BUDGETS}
    assert settings == stored.keys()
    for row in stored.values():
        assert 0.9 * float(row["privacy"]) < float(row["epsilon_high"]) <= float(row["privacy"])
        assert int(row["runs"]) == len(STUDY["seeds"])


def test_the_page_has_the_rows_of_the_stored_table(stored):
    for name in STUDY["grid"]["algorithm"]:
        timed = [stored[name, world, budget] for world in WORLDS for budget in BUDGETS]
        assert row_of_page(name, timed, [stored[name, world, "1"] for world in WORLDS]) in PAGE


def test_the_page_has_the_rows_of_the_table_of_clients_and_their_budgets():
    rows = {(row["case"], row["epsilon_set"]): row for row in read("asynchrony-private-clients")}
    names = [case["label"] for case in OF_CLIENTS["list"]]
    assert rows.keys() == {(name, budget) for name in names for budget in BUDGETS}
    for name in names:
        of_budgets = [rows[name, budget] for budget in BUDGETS]
        assert row_of_page(name, of_budgets, of_budgets) in PAGE
        for budget, row in zip(BUDGETS, of_budgets, strict=True):
            assert float(row["epsilon_high"]) <= float(budget), "nothing is spent beyond the budget"
            assert int(row["runs"]) == len(OF_CLIENTS["seeds"])
