"""Run the notebooks and store them with their outputs, which the site shows.

    python docs/make_notebooks.py            # the notebooks whose code has changed since they were stored
    python docs/make_notebooks.py NAME ...   # these ones

Each notebook has the digest of its code in its metadata; a test compares it, so that outputs are those of the code.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from PIL import Image

FOLDER = Path(__file__).parents[1] / "notebooks"
#: The first cell of code, which does nothing outside of Colab.
INSTALL = """\
import subprocess
import sys
from importlib.metadata import version

if "google.colab" in sys.modules:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *{packages}], check=True)
    # A kernel that has imported these would go on with the versions that were replaced.
    imported = {{name: sys.modules[name] for name in ("numpy", "pandas") if name in sys.modules}}
    if any(module.__version__ != version(name) for name, module in imported.items()):
        raise SystemExit("simfl is installed: choose Runtime > Restart session, then run all cells again")"""
#: Figures are at most this wide in the stored notebook, in pixels.
WIDTH = 900


def digest_of(notebook: Any) -> str:
    """Return the SHA-256 of a notebook's code cells, in hexadecimal."""
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code" and cell.get("id") != "install"]
    return hashlib.sha256("\0".join(code).encode()).hexdigest()


def is_current(path: Path) -> bool:
    """Return whether a notebook's outputs are those of its code."""
    notebook = nbformat.read(path, as_version=4)
    return bool(notebook.metadata.get("simfl", {}).get("code") == digest_of(notebook))


def store(path: Path) -> None:
    """Run a notebook in an empty folder, and write it with small outputs."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook, timeout=1800, kernel_name="python3", resources={"metadata": {"path": folder}}
        ).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [_small(output) for output in cell.outputs if output.get("name") != "stderr"]
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "simfl": {"code": digest_of(notebook)},
    }
    nbformat.write(notebook, path)


def with_installation(path: Path) -> None:
    """Put a cell first that installs simfl in Colab, and a link to Colab once pyproject.toml names the repository."""
    notebook = nbformat.read(path, as_version=4)
    imported = {word for cell in notebook.cells for word in re.findall(r"^(?:from|import) (\w+)", cell.source, re.M)}
    further = [package for package in ("equinox", "flax", "torch") if package in imported]
    cells = [cell for cell in notebook.cells if cell.get("id") != "install"]
    cell = nbformat.v4.new_code_cell(INSTALL.format(packages=json.dumps(["simfl", *further])), id="install")
    project = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    place = project.get("urls", {}).get("Repository", "").partition("://github.com/")[2].strip("/")
    title = re.sub(r"\n\n\[Open in Colab\].*", "", cells[0].source)
    link = f"https://colab.research.google.com/github/{place}/blob/main/notebooks/{path.name}"
    cells[0].source = title + f"\n\n[Open in Colab]({link})" * bool(place)
    notebook.cells = [cells[0], cell, *cells[1:]]
    nbformat.write(notebook, path)


def _small(output: Any) -> Any:
    """Return an output without this machine's folders, and with a small image."""
    if "text" in output:
        output.text = _portable(output.text)
    data = output.get("data", {})
    for kind in ("text/html", "text/plain"):
        if kind in data:
            data[kind] = _portable(data[kind])
    if "image/png" in data:
        image = Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).convert("RGB")
        image.thumbnail((WIDTH, 10 * WIDTH), Image.Resampling.LANCZOS)
        file = io.BytesIO()
        image.quantize(128).save(file, "PNG", optimize=True)
        data["image/png"] = base64.b64encode(file.getvalue()).decode()
    return output


def _portable(text: str) -> str:
    text = re.sub(re.escape(tempfile.gettempdir()) + r"/simfl-\w+", "TEMPORARY", text)  # `mkdtemp(prefix="simfl-")`
    return re.sub(r"/[\w./-]*/(?:tmp|temp)\w*(?=/|\b)", "TEMPORARY", text.replace(tempfile.gettempdir(), "/tmp"))


if __name__ == "__main__":
    for notebook_path in sorted(FOLDER.glob("*.ipynb")):
        with_installation(notebook_path)
    names = sys.argv[1:]
    for notebook_path in sorted(FOLDER.glob("*.ipynb")):
        if notebook_path.stem in names if names else not is_current(notebook_path):
            print(notebook_path, flush=True)
            store(notebook_path)
