"""simfl in 150 lines has the tables of simfl, and its page has its code."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

import simfl

DOCS = Path(__file__).parents[1] / "docs"
FILE = DOCS / "in_150_lines.py"


@pytest.fixture(scope="module")
def small():
    spec = importlib.util.spec_from_file_location("in_150_lines", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_has_150_lines_and_the_page_has_its_parts():
    text = FILE.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    parts = re.findall(r"```python\n(.*?)```", (DOCS / "in_150_lines.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(parts) == 4
    plain = re.sub(r"^ +", "", text, flags=re.MULTILINE)
    assert all(re.sub(r"^ +", "", part.strip(), flags=re.MULTILINE) in plain for part in parts)


@pytest.mark.parametrize(("name", "options"), [("adpsgd", "ADPSGD"), ("sync", "SYNC")])
def test_its_tables_are_those_of_simfl(small, name, options, tmp_path):
    """Times, clients, neighbors and staleness are equal; a loss may differ in the last bit of 32."""
    world = small.World(getattr(small, name))
    world.run()
    run = simfl.run({**small.SCENARIO, "algorithm": getattr(small, options)}, out=tmp_path)
    columns = ["time_s", "client", "peer", "staleness"]
    assert world.updates == list(run.updates[columns].itertuples(index=False, name=None))
    measured = run.metrics[["time_s", "updates", "train_loss", "test_accuracy"]].to_numpy()
    np.testing.assert_allclose(world.metrics, measured, rtol=3e-7)
    page = (DOCS / "in_150_lines.md").read_text(encoding="utf-8")
    ((updates, accuracy),) = re.findall(rf"^{name}: (\d+) updates, test accuracy (\S+)%$", page, re.MULTILINE)
    assert int(updates) == len(world.updates)
    assert float(accuracy) == pytest.approx(100 * world.metrics[-1][-1], abs=1), "rounding is a matter of the machine"
