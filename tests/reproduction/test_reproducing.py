"""A study of two algorithms on the digits, which runs and is read like those of the papers."""

import csv
import dataclasses
import errno
import os

import pytest

from simfl.comparison.sweeps import Sweep, SweepRun
from simfl.errors import ScenarioError
from simfl.reproduction.evidence import Reading, Verdict, exactly
from simfl.reproduction.pages import unfinished
from simfl.reproduction.papers import Experiment, Number, Paper, PaperClaim, Runs, Section
from simfl.reproduction.reading import judged
from simfl.reproduction.reproducing import find_paper, part_of, reproduce, scenarios_folder, with_the_data
from simfl.version import __version__, commit

SMALL = ("clients.count=4", "stop={epochs: 2}", "record.updates=false")
MADE = "accuracy after 2 epochs"
DEMO = Section("demo")


def experiments(quick):
    kinds = ("sync",) if quick else ("sync", "adpsgd")
    return [Experiment(DEMO, (kind,), f"demo/{kind}.yaml", SMALL, seeds=2) for kind in kinds]


def numbers(runs):
    for kind, values in runs.accuracies(DEMO).items():
        yield Number(MADE, kind, "%", values, paper=90.0)


def learns(runs):
    accuracies = runs.accuracy(DEMO, ("sync",))
    yield Reading({}, [exactly(min(accuracies) > 20, f"{accuracies[0]:.1f} %")])


def both(runs):
    for bar in (20, 99):
        yield Reading({"bar": str(bar)}, [exactly(min(runs.accuracy(DEMO, ("adpsgd",))) > bar, "AD-PSGD")])


def drawn(runs):
    from simfl.plots import plot_groups

    return plot_groups([runs.group(DEMO, ("sync",), "SYNC")]).figure


PAPER = Paper(
    name="made_up",
    title="Somebody: A paper",
    page="papers.md",
    data=(),
    minutes=(1, 1),
    experiments=experiments,
    numbers=(numbers,),
    claims=(PaperClaim("SYNC learns.", learns, headline=True, figure="curves"), PaperClaim("So does AD-PSGD.", both)),
    figures={"curves": ("SYNC", drawn)},
    untested=(("It is the best.", "nobody can know"),),
    deviations=("It is small.",),
)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    return reproduce(PAPER, quick=True, out=tmp_path_factory.mktemp("made-up"), jobs=1)


def test_a_study_is_run_and_its_claims_are_judged(quick):
    assert [run.status for run in quick.swept.runs] == ["done", "done"]
    verdicts = [Verdict.REPRODUCED, Verdict.NOT_RUN, Verdict.UNDECIDABLE]
    assert [claim.verdict for claim in quick.claims] == verdicts
    assert quick.claims[1].evidence == "run by `simfl reproduce made-up`"
    page = quick.page.read_text(encoding="utf-8")
    assert quick.page.name == "made_up-quick.md"
    for piece in (
        "# Somebody: A paper",
        "simfl reproduce made-up --quick",
        "2 of 2 runs",
        "| SYNC learns. | **reproduced, quick form** |",
        "![SYNC](figures/made_up-quick/curves.png)",
        "- It is small.",
        f"### {MADE}\n\n2 seeds.",
    ):
        assert piece in page
    assert quick.figures[0][0].stat().st_size > 10_000
    with (quick.page.parent / "made_up-quick.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert float(row["ours"]) == pytest.approx(quick.numbers[0].interval.mean, rel=1e-5)
    assert float(row["ours"]) - 90 == pytest.approx(float(row["difference"]), abs=1e-3)
    assert row["seeds"] == "2"
    with (quick.page.parent / "made_up-quick-about.csv").open(newline="") as file:
        (about,) = csv.DictReader(file)
    assert (about["command"], about["simfl"]) == ("simfl reproduce made-up --quick", __version__)
    assert about["runs"] == "2 of 2"
    assert (quick.page.parent / "made_up-quick-lost.csv").read_text() == "runs,ended\n"
    assert about["processor"]
    assert "/" not in "".join(about[key] for key in ("command", "commit", "minutes")), "no paths"


def test_the_full_form_reuses_runs_of_the_quick_one(quick):
    before = {run.folder for run in quick.swept.finished}
    stamps = {name: (quick.swept.folder / name / "manifest.json").stat().st_mtime_ns for name in before}
    full = reproduce(PAPER, out=quick.page.parents[1], jobs=1)
    assert len(full.swept.finished) == 4
    assert before < {run.folder for run in full.swept.finished}
    assert stamps == {name: (full.swept.folder / name / "manifest.json").stat().st_mtime_ns for name in before}
    assert [claim.verdict for claim in full.claims][:2] == [Verdict.REPRODUCED, Verdict.MIXED]
    page = full.page.read_text(encoding="utf-8")
    assert "quick form" not in page
    assert "### So does AD-PSGD.\n\nMixed: 1 yes, 1 no, 0 undecided.\n\n| reading |" in page
    assert "| bar = 99 | no | AD-PSGD |" in page
    with (full.page.parent / "made_up-readings.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["reading"], row["held"]) for row in rows] == [
        ("the only one", "yes"), ("bar = 20", "yes"), ("bar = 99", "no"),
    ]  # fmt: skip


def test_a_part_of_a_study_runs_with_more_seeds_beside_the_page_of_the_study(quick):
    part = reproduce(part_of(PAPER, False, "^demo, sync$", 3), out=quick.page.parents[1], jobs=1)
    assert [(run.label, run.seed) for run in part.swept.runs] == [("demo, sync", seed) for seed in (1, 2, 3)]
    assert [claim.words for claim in part.claims[:2]] == ["reproduced, part", "not run in this form"]
    assert part.page.name == "made_up-part.md"
    assert "`simfl reproduce made-up --only '^demo, sync$' --seeds 3`" in part.page.read_text(encoding="utf-8")


def test_runs_that_follow_from_others_are_planned_when_these_are_done(tmp_path):
    asked = []

    def later(runs, quick):
        asked.append([cell[0] for cell in runs.cells(DEMO)])
        more = Experiment(DEMO, ("adpsgd",), "demo/adpsgd.yaml", SMALL, seeds=1, first=3)
        return [more] if runs.has(DEMO, ("sync",)) else []

    study = dataclasses.replace(PAPER, later=later, shown=(MADE,))
    outcome = reproduce(study, quick=True, out=tmp_path, jobs=1)
    assert asked == [["sync"], ["sync", "adpsgd"]]
    assert [(run.label, run.seed) for run in outcome.swept.runs] == [
        ("demo, sync", 1), ("demo, sync", 2), ("demo, adpsgd", 3),
    ]  # fmt: skip
    page = outcome.page.read_text(encoding="utf-8")
    assert f"## {MADE}\n" in page
    assert f"### {MADE}" not in page
    assert page.index(f"## {MADE}") < page.index("## Numbers")


def test_a_failed_run_leaves_its_claims_without_a_verdict(tmp_path, monkeypatch):
    from simfl.runs import runner

    def fail(*arguments, **options):
        raise RuntimeError("a mistake")

    monkeypatch.setattr(runner, "run", fail)
    outcome = reproduce(PAPER, quick=True, out=tmp_path, jobs=1)
    assert [str(claim.verdict) for claim in outcome.claims][:1] == ["not decidable here"]
    assert not outcome.numbers
    page = outcome.page.read_text(encoding="utf-8")
    assert "- demo, sync, seeds 1, 2: failed: RuntimeError: a mistake" in page


def test_a_disk_that_is_full_at_the_end_is_one_line(quick, monkeypatch):
    def full(swept):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Sweep, "write_table", full)
    with pytest.raises(ScenarioError, match="cannot write the results: No space left on device; choose --out"):
        reproduce(PAPER, quick=True, out=quick.page.parents[1], jobs=1)


def test_two_experiments_of_one_name_are_rejected(tmp_path):
    twice = dataclasses.replace(PAPER, experiments=lambda quick: experiments(True) * 2)
    with pytest.raises(ValueError, match="two experiments 'demo', 'sync'"):
        reproduce(twice, out=tmp_path)


def test_bad_input_gives_one_line(simfl_, tmp_path, monkeypatch):
    for arguments, line in [
        (
            ["nope"],
            "reproduce: expected one of adp2sgd, adp2sgd-cifar, async-fl, asynchrony, byzantine-gossip, mapa, "
            "network-privacy, proactive-dp, theorems, user-privacy, without-replacement, found 'nope'",
        ),
        (["mapa", "--jobs", "0"], "--jobs: expected at least 1, found 0"),
        (["mapa", "--device", "tpu"], "--device: expected cpu or gpu, found 'tpu'"),
        (["mapa", "--only", "(", "--dry-run"], "--only: expected a regular expression, found '('"),
        (
            ["mapa", "--only", "x y", "--dry-run"],
            "--only: expected a part of mapa such as 'Figure 6, LR, even or odd on",
        ),
        (
            ["mapa", "--dry-run", "--scenarios", str(tmp_path)],
            "expected the folder of the papers' scenarios, found none",
        ),
    ]:
        monkeypatch.setenv("SIMFL_DATA", str(tmp_path))
        (tmp_path / "usps").mkdir(exist_ok=True)
        (tmp_path / "mnist").mkdir(exist_ok=True)
        err = simfl_.refused("reproduce", *arguments)
        assert line in err


def test_missing_data_is_found_before_anything_runs(simfl_, tmp_path, monkeypatch):
    monkeypatch.delenv("SIMFL_DATA", raising=False)
    err = simfl_.refused("reproduce", "mapa", "--out", str(tmp_path / "out"))
    assert err == (
        "reproduce: expected the data sets usps, mnist, found none (SIMFL_DATA is not set); "
        "set SIMFL_DATA=FOLDER, then simfl data fetch usps mnist\n"
    )
    assert not (tmp_path / "out").exists()


def test_the_quick_form_leaves_out_what_needs_missing_data_and_its_claims_say_what_to_fetch(simfl_, monkeypatch):
    monkeypatch.delenv("SIMFL_DATA", raising=False)
    code, out, err = simfl_("reproduce", "adp2sgd", "--quick", "--dry-run")
    assert (code, out) == (0, f"adp2sgd: 20 runs, about {find_paper('adp2sgd').minutes[0]} minutes on two cores\n")
    assert err == "adp2sgd: without mnist, which is missing; set SIMFL_DATA=FOLDER, then simfl data fetch mnist\n"
    study = with_the_data(find_paper("adp2sgd"), ["mnist"], scenarios_folder())
    (headline, *_) = judged(study, Runs({}), quick=True)
    assert (headline.words, headline.evidence) == (
        "not run in this form", "run by `simfl reproduce adp2sgd` after `simfl data fetch mnist`"
    )  # fmt: skip
    assert with_the_data(find_paper("mapa"), ["usps", "mnist"], scenarios_folder()) is find_paper("mapa")


def test_the_list_names_the_papers(simfl_):
    out = simfl_.printed("reproduce", "--list")
    assert "without-replacement" in out


def test_runs_that_did_not_end_share_a_line_with_their_other_seeds():
    def run(label, seeds, status, reason=""):
        return SweepRun("", label, {}, {}, *seeds[:1], "", status, reason, 0.0, *seeds[1:])

    infinite = "the loss was not finite at {} s of virtual time"
    lost = [run("SYNC, step 0.8", (seed,), "diverged", infinite.format(seed / 7)) for seed in (10, 2, 4)]
    lost += [run("SYNC, step 0.8", (3,), "failed", "no space is left")]
    lost += [run("AD-PSGD", (0, seed), "missing") for seed in (1, 0)]
    assert list(unfinished(lost)) == [
        ("AD-PSGD, seeds 0/0, 0/1", "missing"),
        ("SYNC, step 0.8, seeds 2, 4, 10", "diverged: the loss was not finite"),
        ("SYNC, step 0.8, seed 3", "failed: no space is left"),
    ]


def test_a_study_of_runs_from_several_commits_names_each(quick, monkeypatch):
    from simfl.records.folder import RunFolder
    from simfl.reproduction import about

    read = RunFolder.read_manifest
    made = {run.folder: commit for run, commit in zip(quick.swept.runs, ("0123456789", ""), strict=True)}

    def of_another(folder):
        manifest = read(folder)
        return dataclasses.replace(manifest, extra={**manifest.extra, "commit": made[folder.path.name]})

    assert about.commits(quick.swept) == commit(), "all of this one"
    monkeypatch.setattr(RunFolder, "read_manifest", of_another)
    assert about.commits(quick.swept) == "0123456789 (1 runs); unknown (1 runs)"
