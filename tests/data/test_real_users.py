"""The scenario of docs/users.md whose users are schools, with a small stand-in for the data."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import simfl
from simfl.errors import ScenarioError
from simfl.scenario import loads

PAGE = Path(__file__).parents[2] / "docs" / "users.md"
SCHOOLS = 30


@pytest.fixture
def text(tmp_path, monkeypatch):
    """Write a table like that of Chem97, and return the scenario of the page."""
    draw = np.random.default_rng(0)
    school = np.concatenate([np.arange(SCHOOLS), draw.integers(0, SCHOOLS, 300), np.arange(SCHOOLS)])
    gcse = draw.normal(size=len(school))
    table = pd.DataFrame(
        {
            "gender": draw.choice(["M", "F"], len(school)),
            "age": draw.integers(-6, 6, len(school)),
            "gcse": gcse,
            "school": [f"s{number}" for number in school],
            "passed": (gcse + 0.5 * draw.normal(size=len(school)) > 0).astype(int),
        }
    )
    (tmp_path / "table").mkdir()
    table.to_csv(tmp_path / "table" / "chem97.csv", index=False)
    monkeypatch.setenv("SIMFL_DATA", str(tmp_path))
    (found,) = re.findall(r"```yaml\n(name: schools\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return found


def test_every_school_is_a_user(text, tmp_path):
    setup = simfl.prepare(loads(text, overrides=[f"clients.count={SCHOOLS}", "privacy.releases=10"]))
    owners = np.asarray(setup.dataset.groups)
    assert len(set(owners.tolist())) == SCHOOLS
    for client in range(SCHOOLS):
        assert len(set(owners[setup.partition.of(client)].tolist())) == 1
    run = simfl.run(setup, out=tmp_path)
    assert f"each of {SCHOOLS} enrolled users in each of 10 releases" in run.manifest.extra["privacy"]
    assert run.epsilon_and_delta()[0] > 0


def test_another_number_of_schools_is_one_line(text):
    with pytest.raises(ScenarioError, match=r"clients\.count: expected 30, the number of owners"):
        simfl.prepare(loads(text))
