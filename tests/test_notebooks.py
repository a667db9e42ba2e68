"""Every notebook runs from top to bottom, from a folder of its own, and is kept without outputs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks():
    assert "quickstart.ipynb" in [path.name for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path, tmp_path, monkeypatch):
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in cells)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    # Whatever fails is raised, with its cell. A folder elsewhere: notebooks may not depend on where they are started.
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
    drawn = [output for cell in cells for output in cell.outputs if "image/png" in output.get("data", {})]
    assert len(drawn) == sum("plt.show()" in cell.source for cell in cells) >= 1
    assert not any(output.get("name") == "stderr" for cell in cells for output in cell.outputs)
