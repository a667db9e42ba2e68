import inspect
import json
import math
import re
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from simfl.accounts import shared
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


@pytest.mark.parametrize(("error", "line"), [
    (MemoryError(),
     "privacy so: expected a computation that fits into memory, found a larger one; take smaller arguments"),
    (OverflowError(), "privacy so: expected arguments that keep every step between 1e-308 and "),
    (ValueError("z: found -1"), "privacy so: z: found -1"),
])  # fmt: skip
def test_errors_of_arguments_give_one_line(error, line):
    def command():
        raise error

    with pytest.raises(ScenarioError) as raised:
        shared.one_line_errors("so", command)()
    assert str(raised.value).startswith(line)


@pytest.mark.parametrize("width", [44, 60, 80, 120, 200])
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


def test_json_is_one_valid_object(capsys):
    result = Found(math.inf, np.float64(1e-5), (Part(2.0), Part(math.nan), Part(-math.inf)))
    shared.present("Title", ROWS, notes=["said"], result=result, as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "title": "Title",
        "result": {"epsilon": "inf", "delta": 1e-5, "parts": [{"z": 2.0}, {"z": None}, {"z": "-inf"}]},
        "notes": ["said"],
    }


def test_json_without_a_result_has_the_rows(capsys):
    shared.present("Title", ROWS, as_json=True)
    assert json.loads(capsys.readouterr().out)["result"] == {
        "standard deviation of the noise on the sum, sigma": 4.46628,
        "epsilon": "inf",
        "steps": 58594,
        "holds": False,
        "nothing": None,
    }


def test_arrays_become_plain_values():
    value = {"rates": np.array([0.5, np.nan]), "count": np.int64(3), "kind": "replace_one"}
    assert shared.to_json(value) == {"rates": [0.5, None], "count": 3, "kind": "replace_one"}


@pytest.mark.parametrize(("value", "words"), [
    (0.01744638, "0.0174464"), (58594, "58,594"), (58594.0, "58,594"), (1e-5, "1e-5"), (2.77777e-10, "2.77777e-10"),
    (2.2e14, "2.2e14"), (1.0, "1"), (math.nan, "–"), (-math.inf, "-∞"), (True, "yes"), ("pld", "pld"),
])  # fmt: skip
def test_numbers_have_at_most_six_digits(value, words):
    assert shared.show(value) == words


def test_every_option_value_has_a_description():
    for options in (get_args(shared.Neighbors), get_args(shared.Accountant), get_args(shared.Sampling)):
        assert set(options) <= set(shared.IN_WORDS)


def test_a_wrong_argument_gives_one_line_and_the_signature_is_kept():
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


def theorem(epsilon: float, num_workers: int = 4, *, rule: Literal["one", "two"] = "one", steps: int = 1) -> None:
    """Say nothing.

    Args:
        epsilon: > 0, that is wanted,
            over two lines.
        num_workers: number of workers, see `rule`.
        rule, steps: K, of the recipe.

    Returns:
        nothing: at all.
    """


def test_options_are_the_arguments_of_a_theorem():
    def command(
        first: Annotated[
            shared.Arguments,
            shared.OptionsOf(f"{__name__}:theorem", rename={"num_workers": "workers"}, leave_out=("steps",)),
        ],
        second: Annotated[
            shared.Arguments,
            shared.OptionsOf(f"{__name__}:theorem", leave_out=("num_workers", "rule"), defaults={"steps": None}),
        ],
        extra: Annotated[bool, typer.Option("--extra")] = False,
    ) -> None:
        print(json.dumps([first, second, extra]))

    app = typer.Typer(add_completion=False)
    app.command()(shared.with_options(command))
    run = CliRunner().invoke
    printed = json.loads(run(app, ["--epsilon", "2", "--rule", "two", "--extra"]).stdout)
    assert printed == [{"epsilon": 2.0, "num_workers": 4, "rule": "two"}, {"epsilon": 2.0, "steps": None}, True]
    assert run(app, ["--epsilon", "1", "--rule", "three"]).exit_code == 2
    assert run(app, []).exit_code == 2, "epsilon has no default"
    words = " ".join(re.sub(r"[^\x20-\x7e]", " ", run(app, ["--help"], env={"COLUMNS": "160"}).stdout).split())
    for said in (
        "--epsilon <float> > 0, that is wanted, over two lines. [required]",
        "--workers <int> Number of workers,",
    ):
        assert said in words


def test_helps_are_the_descriptions_in_the_docstring():
    assert shared.argument_helps(inspect.getdoc(theorem)) == {
        "epsilon": "> 0, that is wanted, over two lines.",
        "num_workers": "Number of workers, see rule.",
        "rule": "K, of the recipe.",
        "steps": "K, of the recipe.",
    }
