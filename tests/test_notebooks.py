"""Every notebook runs from top to bottom, from a folder of its own, and is kept without outputs."""

import itertools
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
#: Fewer seeds, and shorter runs: what is tested is that every cell runs, not what it finds.
SHORTER = {
    r"\bseeds: \d+": "seeds: 2",
    r"\bstop: {updates: 2000}": "stop: {updates: 400}",
    r"\bstop: {epochs: 16}": "stop: {epochs: 4}",
    r"\bstop: {time: 1 s}": "stop: {time: 300 ms}",
    r"\bgradients: (\d+)000": r"gradients: \g<1>00",
}


def test_there_are_notebooks():
    assert "quickstart.ipynb" in [path.name for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path, tmp_path, monkeypatch):
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell, (long, short) in itertools.product(cells, SHORTER.items()):
        cell.source = re.sub(long, short, cell.source)
    assert not any(cell.outputs for cell in cells)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    # Whatever fails is raised, with its cell. A folder elsewhere: notebooks may not depend on where they are started.
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
    drawn = [output for cell in cells for output in cell.outputs if "image/png" in output.get("data", {})]
    assert len(drawn) == sum("plt.show()" in cell.source for cell in cells) >= 1
    assert not any(output.get("name") == "stderr" for cell in cells for output in cell.outputs)
