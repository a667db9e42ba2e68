"""Reports are one self-contained page with the values of the tables."""

import json
import os
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

import simfl
from simfl.accounts.check import check_run
from simfl.errors import DataError, ScenarioError
from simfl.plots import color_of
from simfl.records import read, results, tables, time_to_accuracy
from simfl.reports.content import gather
from simfl.reports.page import write_report
from simfl.scenario import loads
from tests.chromium import browser, needs_browser

VOID = {"meta", "link", "br", "line", "input", "img"}


class Page(HTMLParser):
    """Reads a page, and fails where elements are not nested."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.tags, self.words = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.append((tag, given))
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given[key] for key in ("href", "src") if key in given]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in {"script", "style"}:
            self.words.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.words))


PRIVATE = {"mechanism": "gaussian", "noise_multiplier": 2.0, "clipping_norm": 1.0, "delta": 1e-5}


@pytest.fixture
def written(make_run, tmp_path):
    runs = [make_run(name="study", algorithm=kind, rate=rate) for kind, rate in (("adpsgd", 2), ("sync_sgd", 1))]
    return write_report(runs, tmp_path / "r.html", check=check_run), runs


def data_of(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_simfl_report_writes_the_same_page(make_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = read(make_run())
    assert simfl.report(run) == Path("report.html")
    write_report([run.folder], "other.html")
    assert Path("report.html").read_text() == Path("other.html").read_text()


def test_the_page_loads_no_other_file(written):
    text = written[0].read_text(encoding="utf-8")
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    for link in page.links:
        assert link.startswith("data:") or link[1:] in page.ids, link
    assert not re.search(r"@import|url\((?!#frame)|https?://(?!www\.w3\.org/2000/svg)|fetch\(|import\(", text)
    assert str(written[1][0].parent) not in text  # where runs lie on a disk says nothing to others
    assert ("html", {"lang": "en"}) in page.tags
    headings = [tag for tag, _ in page.tags if re.fullmatch(r"h\d", tag)]
    assert headings[0] == "h1"
    assert headings.count("h1") == 1


def test_the_page_states_the_findings(written):
    path, runs = written
    page = Page(path.read_text(encoding="utf-8"))
    target = min(read(run).metrics["test_accuracy"].max() for run in runs)
    slow = read(runs[1]).metrics
    fast = read(runs[0]).metrics
    times = [frame["time_s"][frame["test_accuracy"] >= target].iloc[0] for frame in (fast, slow)]
    assert f"{target:.2%}, which every run reached, took {times[0]:.4g} s of virtual time with AD-PSGD" in page.text
    assert f"{times[1]:.4g} s with SYNC: {times[1] / times[0]:.3g} times faster." in page.text
    assert "add no noise" in page.text
    for run in runs:
        assert read(run).manifest.digest[:16] in page.text
        assert f"study/{run.name}" in page.text


def test_curves_have_the_numbers_and_the_colors_of_all_figures(written):
    text = written[0].read_text(encoding="utf-8")
    data = data_of(text)
    assert [one["label"] for one in data["series"]] == ["AD-PSGD", "SYNC"]
    for one, run in zip(data["series"], written[1], strict=True):
        metrics = read(run).metrics
        curve = one["curves"]["time"]["test_accuracy"]
        assert [row[0] for row in curve] == pytest.approx(metrics["time_s"].tolist(), rel=1e-4)
        assert [row[1] for row in curve] == pytest.approx(metrics["test_accuracy"].tolist(), rel=1e-4)
        assert "epsilon" not in one["curves"]
    assert f"--s0:{color_of('adpsgd')};--s1:{color_of('sync_sgd')};" in text


def test_names_cannot_break_out_of_the_page(make_run, tmp_path):
    evil = 'x<script>alert("1")<'
    run = make_run(name=evil)
    text = write_report([run], tmp_path / "r.html", check=check_run).read_text(encoding="utf-8")
    assert "<script>alert" not in text
    Page(text)


def test_seeds_become_intervals(tmp_path):
    base = "name: s\ndata: {set: digits}\nclients: {count: 4}\nalgorithm: sync_sgd\nstop: {updates: 40}\n"
    runs = [
        simfl.run(loads(f"{base}seed: {seed}\nevaluate: {{every: {{updates: 8}}}}", "s"), out=tmp_path)
        for seed in (1, 2, 3)
    ]
    content = gather([run.folder for run in runs])
    (part,) = content.parts
    last = [run.metrics["test_accuracy"].iloc[-1] for run in runs]
    assert part.measures["accuracy"].mean == pytest.approx(sum(last) / 3, rel=1e-12)
    x, mean, low, high = part.curves["updates"]["test_accuracy"][-1]
    assert x == 40
    assert mean == pytest.approx(sum(last) / 3, rel=1e-4)
    assert (low, high) == pytest.approx((min(last), max(last)), rel=1e-4), "three seeds: no interval"
    assert low < mean < high
    assert sum(part.times.values()) == pytest.approx(1.0, rel=1e-6)
    assert "--seed 2; simfl run" in "".join(content.commands)


@pytest.mark.slow
def test_the_page_compares_claim_and_account(tmp_path):
    text = (
        "name: p\ndata: {set: digits}\nclients: {count: 4}\nalgorithm: {kind: adpsgd, batch_size: 16}\n"
        "privacy: {mechanism: gaussian, noise_multiplier: 2, delta: 1.0e-5, claim: {epsilon: 0.01, source: a hope}}\n"
        "stop: {updates: 40}\nevaluate: {every: {updates: 20}}\n"
    )
    run = simfl.run(loads(text, "p"), out=tmp_path)
    page = Page(write_report([run.folder], tmp_path / "r.html", check=check_run).read_text(encoding="utf-8"))
    assert "claims too little" in page.text
    assert "Claim: a hope." in page.text
    assert run.manifest.extra["privacy"] in page.text
    assert page.text.count("Assumptions of the account") == 1
    assert all(f"{name}: " in page.text for name in run.manifest.extra["assumptions"])
    assert f"{run.epsilon_and_delta()[0]:.4g}" in page.text
    (part,) = gather([run.folder]).parts
    final = part.measures["epsilon"].mean
    assert final == run.epsilon_and_delta()[0] == run.metrics["epsilon"].iloc[-1]
    assert part.curves["time"]["epsilon"][-1][1] == pytest.approx(final, rel=1e-4), "curves end where tables do"
    assert "before the end an upper bound" in (tmp_path / "r.html").read_text(encoding="utf-8"), "so says the axis"


def test_a_claim_that_cannot_be_checked_has_its_reason(make_run, tmp_path):
    run = make_run(privacy=PRIVATE)  # whose scenario names an algorithm alone, and whose table of releases is missing
    page = Page(write_report([run], tmp_path / "r.html", check=check_run).read_text(encoding="utf-8"))
    assert "Claim and account could not be worked out here: " in page.text


def test_groups_are_compared_with_a_baseline(written, tmp_path):
    path = write_report(written[1], tmp_path / "b.html", baseline="SYNC", target=0.9)
    page = Page(path.read_text(encoding="utf-8"))
    times = [time_to_accuracy(read(run), 0.9) for run in written[1]]
    assert "Target: a test accuracy of 90.00%, that every run reached; read off between two evaluations." in page.text
    assert "Speed-up: how many times less virtual time to the target than SYNC." in page.text
    assert f"{times[1] / times[0]:.3g}" in page.text
    with pytest.raises(ScenarioError, match="--baseline: expected the label"):
        write_report(written[1], tmp_path / "b.html", baseline="nobody")


def test_invalid_arguments_are_rejected(tmp_path, make_run, simfl_):
    run = make_run()
    with pytest.raises(DataError, match="expected the folder of a run"):
        write_report([tmp_path / "nothing"], tmp_path / "r.html", check=check_run)
    with pytest.raises(ScenarioError, match="cannot write the report"):
        write_report([run], tmp_path / "no" / "r.html")
    assert simfl_("report", run, "-o", "page.html") == (0, "page.html\n", "")


@needs_browser
def test_a_browser_draws_the_page(written, tmp_path):
    command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    done = subprocess.run(
        [*command, "--virtual-time-budget=2000", "--dump-dom", written[0].as_uri()],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert len(re.findall(r'<path class="curve"', done.stdout)) == 2
    assert re.search(r'<select id="x"><option value="time">virtual time</option>', done.stdout)
    assert "nothing to show" not in done.stdout.split("</main>")[0]


@pytest.mark.parametrize("name", ["manifest.json", "scenario.yaml", "metrics.parquet", "clients.parquet"])
def test_a_pipe_in_a_run_gives_one_line(make_run, tmp_path, name, simfl_):
    folder = make_run()
    (folder / name).unlink()
    os.mkfifo(folder / name)
    code, _, said = simfl_("report", folder, "-o", "report.html")
    assert (code, said.count("\n")) == (2, 1)
    assert f"{name}: " in said
    assert "found a device or a pipe" in said


def test_a_pipe_in_place_of_a_sweeps_plan_gives_one_line(tmp_path, simfl_):
    os.mkfifo(tmp_path / "sweep.json")
    code, _, said = simfl_("report", tmp_path, "-o", "report.html")
    assert (code, said.count("\n")) == (2, 1)
    assert "sweep.json: expected the plan of a sweep: found a device or a pipe" in said


def test_a_report_of_long_tables_does_not_read_them_at_once(make_run, tmp_path, monkeypatch):
    folder = make_run()
    usual = write_report([folder], tmp_path / "usual.html").read_text()
    monkeypatch.setattr("simfl.records.tables.ROWS_PER_CHUNK", 40)  # of 41
    read_whole = tables.read_table

    def read(path, *more):
        assert path.name != "metrics.parquet", "read at once"
        return read_whole(path, *more)

    monkeypatch.setattr(tables, "read_table", read)
    monkeypatch.setattr(results, "read_table", read)
    long = write_report([folder], tmp_path / "long.html").read_text()
    assert Page(long).words == Page(usual).words
