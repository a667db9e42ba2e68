"""Options, texts and the progress bar of `utility-graph` and `plan`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Annotated, Literal

import typer

from simfl.errors import ScenarioError

CLIPPING_NORMS = "0.1,0.25,0.5,1,2,4"
NOISE_MULTIPLIERS = "1.5,2,3,4,6,8,12,16,24,32"

Reading = Literal["all", "last", "figure"]
"""The noise that is added to w*."""
IN_WORDS = {
    "all": "noise of all planned rounds, added up",
    "last": "noise of the last round only, the best case",
    "figure": "noise of a gradient sum on the model, as the paper's figures are captioned",
}

Clips = Annotated[str, typer.Option("--clipping-norms", metavar="C,C,...", help="Clipping norms of the graph.")]
Sigmas = Annotated[str, typer.Option("--noise-multipliers", metavar="S,S,...", help="Noise multipliers of the graph.")]
_given = functools.partial(typer.Option, show_default=False)
Epochs = Annotated[float | None, _given("--epochs", help="k, gradients per example; the scenario's by default.")]
GraphDelta = Annotated[
    float | None, _given("--delta", help="Delta in (0, 1); 1/N by default, N the client's examples.")
]
TargetLoss = Annotated[float, typer.Option("--target-loss", help="Allowed relative loss of accuracy.")]
Draws = Annotated[int, typer.Option("--draws", min=1, help="Draws of the noise per point.")]
_NOISE = "The noise on the trained model: of all planned rounds, of the last one, or as in the paper's figures."
ChosenReading = Annotated[Reading, typer.Option("--noise", help=_NOISE)]
_CLIENT = "Train only on this client's examples; on all clients' by default."
Client = Annotated[int | None, _given("--client", help=_CLIENT)]


def parse_grid(option: str, text: str) -> tuple[float, ...]:
    """Return the numbers of a comma-separated list, sorted."""
    from simfl.papers.proactive_dp.utility import check_grid

    try:
        values = [float(word) for word in text.split(",")]
    except ValueError:
        raise ScenarioError(f"{option}: expected numbers with commas between them, found {text!r}") from None
    return check_grid(option, values)


def loss_in_words(loss: float) -> str:
    """Write a loss of accuracy in per cent."""
    return f"{100.0 * loss:.4g} %"


@contextlib.contextmanager
def progress_bar(label: str) -> Iterator[Callable[[float], None]]:
    """Show a progress bar on a terminal; yield a function that sets the share."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", style="bold"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=1.0)
        yield lambda share: bar.update(task, completed=share)
