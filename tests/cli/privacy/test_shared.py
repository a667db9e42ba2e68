import json
import math
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from simfl.cli.privacy import shared
from simfl.errors import ConditionError, ScenarioError

ROWS = (
    "What the paper claims",
    ("standard deviation of the noise on the sum, sigma", 4.46628, "claim of Theorem 2, sum of B gradients"),
    "What an accountant says",
    ("epsilon", math.inf, "not certified"),
    ("steps", 58594, ""),
    ("holds", False, "neighbors: one example replaced by another, certified"),
    ("nothing", None, ""),
)


@dataclass(frozen=True)
class Part:
    z: float


@dataclass(frozen=True)
class Found:
    epsilon: float
    delta: float
    parts: tuple[Part, ...]


def test_importing_the_commands_needs_nothing_heavy():
    heavy = "{'jax', 'numpy', 'pandas', 'matplotlib', 'pyarrow', 'scipy', 'dp_accounting'}"
    code = f"import sys, simfl.cli.privacy; print(*{heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_tables_fit_the_terminal_and_keep_every_word(capsys, monkeypatch, width):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))
    shared.present("Title", ROWS, notes=["a note " * 30])
    out = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert max(map(len, out.splitlines())) <= width
    for word in ("Title", "paper", "claims", "4.46628", "58,594", "∞", "no", "–", "replaced"):
        assert word in out
    assert out.split().count("note") == 30


def test_json_is_one_object_that_any_parser_reads(capsys):
    found = Found(math.inf, np.float64(1e-5), (Part(2.0), Part(math.nan), Part(-math.inf)))
    shared.present("Title", ROWS, notes=["said"], result=found, as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "title": "Title",
        "result": {"epsilon": "inf", "delta": 1e-5, "parts": [{"z": 2.0}, {"z": None}, {"z": "-inf"}]},
        "notes": ["said"],
    }


def test_json_without_a_result_of_its_own_has_the_rows(capsys):
    shared.present("Title", ROWS, as_json=True)
    assert json.loads(capsys.readouterr().out)["result"] == {
        "standard deviation of the noise on the sum, sigma": 4.46628,
        "epsilon": "inf",
        "steps": 58594,
        "holds": False,
        "nothing": None,
    }


def test_arrays_and_words_of_options_become_plain():
    value = {"rates": np.array([0.5, np.nan]), "count": np.int64(3), "kind": shared.Neighbors.replace_one}
    assert shared.to_json(value) == {"rates": [0.5, None], "count": 3, "kind": "replace_one"}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.01744638, "0.0174464"),
        (58594, "58,594"),
        (58594.0, "58,594"),
        (1e-5, "1e-5"),
        (2.77777e-10, "2.77777e-10"),
        (2.2e14, "2.2e14"),
        (1.0, "1"),
        (math.nan, "–"),
        (-math.inf, "-∞"),
        (True, "yes"),
        ("pld", "pld"),
    ],
)
def test_numbers_are_written_for_readers(value, words):
    assert shared.show(value) == words


def test_every_option_has_its_words():
    for options in (shared.Neighbors, shared.Accountant, shared.Sampling):
        assert set(options) <= set(shared.IN_WORDS)


def test_a_wrong_argument_becomes_one_line_and_the_signature_stays():
    app = typer.Typer()

    @app.command()
    def other() -> None: ...

    def command(epsilon: shared.Epsilon, twice: Annotated[bool, typer.Option("--twice")] = False) -> None:
        """Say it."""
        if twice:
            raise ConditionError("the condition is violated")
        if epsilon < 0:
            raise ValueError(f"epsilon: expected a number > 0, found {epsilon:g}")
        print(epsilon)

    app.command("say")(shared.one_line_errors("say", command))
    run = CliRunner().invoke
    assert run(app, ["say", "--epsilon", "2"]).stdout == "2.0\n"
    with pytest.raises(ScenarioError, match=r"^privacy say: epsilon: expected a number > 0, found -1$"):
        run(app, ["say", "--epsilon", "-1"], catch_exceptions=False)
    with pytest.raises(ConditionError, match=r"^the condition is violated$"):
        run(app, ["say", "--epsilon", "1", "--twice"], catch_exceptions=False)
