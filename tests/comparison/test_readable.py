"""A comparison for readers: few columns, means with intervals."""

import pandas as pd
import pytest

from simfl import compare
from simfl.comparison.comparing import compare_groups
from simfl.comparison.readable import Comparison, to_latex
from simfl.comparison.sweeps import Sweep, SweepRun, open_groups
from simfl.records import read


@pytest.fixture
def comparison(make_run):
    return compare([make_run(rate=1.0), make_run(algorithm="sync_sgd", rate=0.5)])


def test_a_comparison_keeps_its_numbers_and_shows_measures_as_rows(comparison):
    assert isinstance(comparison, pd.DataFrame)
    assert len(comparison.columns) > 20
    shown = comparison.readable()
    assert list(shown.columns) == ["adpsgd", "sync_sgd"]
    assert shown.index[0] == "test accuracy"
    assert shown.loc["test accuracy", "adpsgd"] == "95.00%"
    page = comparison._repr_html_()
    assert page.count("<th>") > len(shown)
    assert "to_target" not in page
    assert "target: a test accuracy of" in page


def test_latex_is_a_tabular_with_a_row_for_each_group(comparison):
    text = comparison.latex()
    assert text == to_latex(comparison)
    assert text.count(r" \\") == 3
    assert r" & test accuracy & time to 94.43\% & " in text
    body = [line for line in text.splitlines() if not line.startswith("%")]
    assert body[0].startswith(r"\begin{tabular}{lr")
    assert body[-1] == r"\end{tabular}"
    assert not any("_" in line.replace(r"\_", "") for line in body), "what LaTeX would obey is escaped"


def test_the_command_writes_latex(simfl_, make_run, tmp_path):
    one, other = make_run(), make_run(algorithm="sync_sgd", rate=0.5)
    code, out, _ = simfl_("compare", one, other, "--latex", "-")
    assert (code, out) == (0, to_latex(compare_groups(open_groups([one, other])[0])))
    assert simfl_("compare", one, other, "--latex", tmp_path / "t.tex")[0] == 0
    assert (tmp_path / "t.tex").read_text() == out


def test_a_run_is_a_column_in_notebooks(make_run):
    page = read(make_run())._repr_html_()
    assert page.index("<th>name</th>") < page.index("<td>demo</td>") < page.index("<th>run</th>")


@pytest.mark.parametrize(("count", "columns"), [(2, True), (9, False)])
def test_few_runs_of_a_sweep_are_columns_in_notebooks(make_run, count, columns):
    folders = [make_run() for _ in range(count)]
    runs = [SweepRun(path.name, f"k={k}", {"k": str(k)}, {}, 1, "x", status="done") for k, path in enumerate(folders)]
    study = {"compare": {"x": ["time"], "y": "test_accuracy", "target": None}}
    sweep = Sweep(folders[0].parent, "s", "", "0", study, {"k": [run.label for run in runs]}, tuple(runs))
    page = sweep._repr_html_()
    assert ("<th>test_accuracy</th>" in page.partition("<tbody>")[2]) == columns


def test_a_part_of_a_comparison_is_a_plain_frame(comparison):
    assert not isinstance(comparison[["label"]], Comparison), "a part of it is a plain frame"
