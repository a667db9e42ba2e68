"""Every paper's study can be planned, and all of its results are computed from runs."""

import functools
import itertools
import random

import pandas as pd
import pytest

from simfl.papers.adp2sgd import theory
from simfl.papers.network_privacy import study as network_privacy
from simfl.papers.proactive_dp import study as proactive_dp
from simfl.plots.curves import save_and_close
from simfl.reproduction import pages
from simfl.reproduction.evidence import Verdict
from simfl.reproduction.pages import cell, draw, numbers_of
from simfl.reproduction.reading import counted, judged
from simfl.reproduction.reproducing import PAPERS, find_paper, plan_of, scenarios_folder
from tests.papers.made_up import all_experiments, made_up
from tests.plots.gray import alike_in_gray

pytestmark = pytest.mark.slow

papers = pytest.mark.parametrize("name", PAPERS, scope="module")  # one study after the other: its runs are kept
least_delta = functools.cache(theory._least_delta)


@pytest.fixture(autouse=True)
def no_world_is_played_again(monkeypatch):
    """Replace accounts of networks and utility graphs, which take minutes, by made-up values; keep other accounts."""

    def account(run):
        rows = [
            (run.manifest.time_s, str(observer), client, 1.0 + client % 3, run.epsilon_and_delta()[0])
            for observer, client in itertools.permutations(range(4), 2)
        ]
        table = pd.DataFrame(rows, columns=["time_s", "observer", "client", "distance", "epsilon"])
        return table.assign(published=table["epsilon"] / table["distance"], local=table["epsilon"])

    def solved(graph, kind, steps, noise=False):
        return dict.fromkeys(["neighbors", "slow", "32 bits", "each", "beyond", "noise"], (steps / 50,) * 5)

    def predicted(quiet, private):
        accuracy = 100 * private.metrics["test_accuracy"].iloc[-1]
        return {"figure": accuracy - 2, "last": accuracy + 1, "all": accuracy - 1}

    monkeypatch.setattr(proactive_dp, "predicted", predicted)
    monkeypatch.setattr(network_privacy, "account", account)
    monkeypatch.setattr(theory, "_least_delta", least_delta)
    monkeypatch.setattr(network_privacy, "solved", solved)


@functools.cache
def all_of(name):
    """Return all experiments of a study in full."""
    return all_experiments(find_paper(name), False, epsilon=0.5)


@papers
def test_all_scenarios_of_a_study_are_valid_and_the_quick_form_is_much_smaller(name):
    paper, runs = find_paper(name), []
    for quick in (True, False):
        plan, keys = plan_of(paper, quick, scenarios_folder())
        runs.append(len(plan.runs))
        assert list(keys) == list(paper.experiments(quick))
        assert sum(own.seeds for own in keys) >= len(plan.runs)
        labels = [(own.section.title, own.label) for own in keys]
        assert len(set(labels)) == len(labels), "tables tell them apart by their labels"
        assert [run.seed for run in plan.runs] == sorted(run.seed for run in plan.runs)
    assert paper.name == name
    assert runs[0] <= runs[1] / 2


@papers
def test_the_quick_form_judges_the_headlines(name, tmp_path):
    paper = find_paper(name)
    experiments = all_experiments(paper, True, epsilon=0.01)
    runs = made_up(experiments, lambda own, seed: 0.8 + 0.001 * seed, epsilon=0.01)
    claims = judged(paper, runs, quick=True)
    assert any(claim.headline for claim in claims)
    for claim in claims:
        if claim.headline:
            assert claim.readings, claim
    drawn = {path.stem for path, _ in draw(paper, runs, tmp_path)}
    assert {claim.figure for claim in claims if claim.headline} <= drawn
    assert not drawn - set(paper.figures)


@papers
def test_all_claims_numbers_and_figures_come_from_runs(name, tmp_path, monkeypatch):
    alike = []

    def saved(figure, *paths):
        alike.extend((paths[0].stem, *pair) for pair in alike_in_gray(figure))
        return save_and_close(figure, *paths)

    monkeypatch.setattr(pages, "save_and_close", saved)
    paper = find_paper(name)
    experiments = all_of(name)
    places = {own: i for i, own in enumerate(experiments)}

    def accuracy(own, seed):
        return 0.5 + 0.4 * places[own] / len(places) + 0.001 * seed

    runs = made_up(experiments, accuracy, epsilon=0.5)
    claims = judged(paper, runs)
    assert all(claim.readings or claim.verdict == Verdict.UNDECIDABLE for claim in claims), claims
    for claim in claims:
        labels = [reading.label for reading in claim.readings]
        assert len(set(labels)) == len(labels), "readings of a claim are told apart by their choices"
    assert all(claim.evidence for claim in claims)
    figures = dict(draw(paper, runs, tmp_path))
    assert {path.stem for path in figures} == set(paper.figures)
    assert all(path.stat().st_size > 10_000 for path in figures)
    assert not alike, "curves of a gray print"
    assert {claim.figure for claim in claims} <= {"", *paper.figures}
    numbers = counted(paper, runs)
    text = "\n".join(numbers_of(numbers))
    assert all(cell(number) in text for number in numbers)
    # Other runs, other numbers: nothing is typed in.
    others = counted(
        paper, made_up(experiments, lambda *place: 0.97 - 0.5 * accuracy(*place), epsilon=0.9, time_s=20.0)
    )
    values = {(number.part, number.row, number.column): number.values for number in others}
    changed = sum(values.get((number.part, number.row, number.column)) != number.values for number in numbers)
    assert changed > len(numbers) / 3


@papers
def test_missing_runs_are_neither_judged_nor_drawn(name, tmp_path):
    """An interrupted study still has a page, whichever runs it had finished."""
    paper = find_paper(name)
    experiments = all_of(name)
    for one in random.Random(name).sample(experiments, min(20, len(experiments))):
        runs = made_up([one], epsilon=0.5)
        assert len(judged(paper, runs)) == len(paper.claims) + len(paper.untested), "--only that one"
        counted(paper, runs)
    for some in (experiments[:1], experiments[1::3]):
        runs = made_up(some, epsilon=0.5)
        figures = list(draw(paper, runs, tmp_path))
        assert len(figures) <= len(paper.figures) * bool(some)
        assert len(judged(paper, runs)) == len(paper.claims) + len(paper.untested)
        for text in numbers_of(counted(paper, runs)):
            assert text
    claims = judged(paper, made_up([]))
    # What is computed by a calculator alone needs no run.
    assert any(claim.verdict == Verdict.UNDECIDABLE for claim in claims)
    assert not any(claim.verdict == Verdict.REPRODUCED and claim.headline for claim in claims)
