"""Every notebook runs from top to bottom, from an empty folder, and is stored with the outputs of its code."""

import itertools
import re
import runpy
import subprocess
import sys
import types
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
#: The one that runs in a process of its own, as users start it; the others run in this one.
IN_A_KERNEL = next(path for path in NOTEBOOKS if path.stem == "gradient_inversion")
#: The first that users open, and the one with models of its own. Runs of the others compute nothing, in a third of the
#: time: the loss falls at each evaluation all the same.
COMPUTED = ("quickstart", "own_model")
#: Fewer seeds and shorter runs: these tests check that every cell runs, not its results.
SHORTER = {
    r"\bseeds: \d+": "seeds: 2",
    r"\bstop: {updates: 2000}": "stop: {updates: 400}",
    r"\bstop: {updates: 240}": "stop: {updates: 72}",
    r"\bstop: {epochs: 16}": "stop: {epochs: 4}",
    r"\bstop: {time: 1 s}": "stop: {time: 300 ms}",
    r"\bstop: {time: 4 s}": "stop: {time: 800 ms}",
    r'"stop": {"epochs": \d+': '"stop": {"epochs": 2',
    r"\bgradients: (\d+)000": r"gradients: \g<1>00",
}


MAKE = runpy.run_path(str(Path(__file__).parents[1] / "docs" / "make_notebooks.py"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_those_of_the_code(path):
    assert MAKE["is_current"](path), "run docs/make_notebooks.py"
    notebook = nbformat.read(path, as_version=4)
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == sum(
        "plt.show()" in cell.source for cell in notebook.cells if cell.cell_type == "code"
    )
    assert not any(output.output_type == "error" or output.get("name") == "stderr" for output in outputs)
    assert path.stat().st_size < 500_000, "small enough to be stored"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_first_cell_installs_simfl_in_colab_alone(path):
    first = next(cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code")
    assert first.source.startswith("import subprocess")
    assert 'if "google.colab" in sys.modules' in first.source
    assert not first.outputs


def test_the_first_cell_asks_for_a_restart_if_the_kernel_goes_on_with_a_replaced_package(monkeypatch):
    cell = MAKE["INSTALL"].format(packages='["simfl", "flax"]')
    commands = []
    monkeypatch.setattr(subprocess, "run", lambda command, check: commands.append(command))
    exec(cell, {})
    assert not commands
    monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
    exec(cell, {})
    assert commands == [[sys.executable, "-m", "pip", "install", "--quiet", "simfl", "flax"]]
    monkeypatch.setattr(np, "__version__", "2.0.2")
    with pytest.raises(SystemExit, match="Restart session"):
        exec(cell, {})


def test_notebooks_need_no_clone():
    for path in NOTEBOOKS:
        cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        assert not any("__file__" in source for source in cells), path
        for source in cells:
            if written := re.match(r"%%writefile \{FOLDER\}/(\S+)\n", source):
                beside = path.with_suffix("") / written[1]  # pages run it, and a test of the site validates it
                assert source[written.end() :] + "\n" == beside.read_text(encoding="utf-8"), beside


def test_quickstart_and_examples_are_listed():
    page = (Path(__file__).parents[1] / "docs" / "examples.md").read_text(encoding="utf-8")
    assert {path.name for path in NOTEBOOKS} == set(re.findall(r"notebooks/(\w+\.ipynb)\)", page))


def cells_of(path):
    """Return the cells of code of a notebook, and the notebook."""
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell, (long, short) in itertools.product(cells, SHORTER.items()):
        cell.source = re.sub(long, short, cell.source)
    assert any("plt.show()" in cell.source for cell in cells)
    return cells, notebook


@pytest.mark.slow
@pytest.mark.usefixtures("without_numbers")
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.numbers] if path.stem in COMPUTED else [], id=path.stem)
        for path in NOTEBOOKS
        if path != IN_A_KERNEL
    ],
)
def test_every_notebook_runs(path, tmp_path, monkeypatch):
    """It runs in this process, which has imported JAX and compiled many programs."""
    here, temporary = tmp_path / "here", tmp_path / "temporary"
    here.mkdir()
    temporary.mkdir()
    monkeypatch.chdir(here)  # notebooks may not depend on where they are started
    monkeypatch.syspath_prepend(str(here))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    shell = InteractiveShell()
    for cell in cells_of(path)[0]:
        shown = []
        monkeypatch.setattr(plt, "show", lambda shown=shown: shown.append(plt.get_fignums()) or plt.close("all"))
        with capture_output() as output:
            shell.run_cell(cell.source).raise_error()
        assert len(shown) == ("plt.show()" in cell.source)
        assert all(shown), "there is a figure"
        assert not output.stderr
    assert not list(here.iterdir()), "nothing is left where a notebook was started"


@pytest.mark.slow
def test_a_notebook_runs_in_a_kernel(tmp_path, monkeypatch):
    cells, notebook = cells_of(IN_A_KERNEL)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    # An error is raised with its cell.
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
    drawn = [output for cell in cells for output in cell.outputs if "image/png" in output.get("data", {})]
    assert len(drawn) == sum("plt.show()" in cell.source for cell in cells)
    assert not any(output.get("name") == "stderr" for cell in cells for output in cell.outputs)
