"""What `utility-graph` and `plan` share: their scenario, drawing its utility graph, and keeping that in a file.

The graph is one of the whole federation: w* is trained on all clients' examples together, each step with as many of
them as a round of all clients has, n B, and with the scenario's step sizes. That is what synchronous rounds compute,
and to first order what asynchronous ones do. `client` trains on one client's examples, as the paper's client does.
"""

from __future__ import annotations

import contextlib
import csv
import enum
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simfl.errors import DataError, ScenarioError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from simfl.scenario import Scenario
    from simfl.simulation.setup import Setup
    from simfl.theory.proactive_dp.utility import Task, UtilityGraph

CLIPPING_NORMS = "0.1,0.25,0.5,1,2,4"
NOISE_MULTIPLIERS = "1.5,2,3,4,6,8,12,16,24,32"
TABLE = "utility-graph.csv"

_DEFAULT = "clients: {count: 1}\nalgorithm: {kind: sync_sgd}\nstop: {epochs: 10}\n"
_SETTINGS = "# "


class Reading(enum.StrEnum):
    """What the noise on w* stands for."""

    all = "all"
    last = "last"
    figure = "figure"


IN_WORDS = {
    "all": "noise of all planned rounds, added up",
    "last": "noise of the last round only, the best case",
    "figure": "noise of a gradient sum on the model, as the paper's figures are captioned",
}

BaseScenario = Annotated[
    Path | None,
    typer.Argument(
        metavar="SCENARIO", help="Scenario file (YAML); by default one client with digits.", show_default=False
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY.PATH=VALUE", help="Change a field, for example --set data.set=mnist."),
]
Clips = Annotated[str, typer.Option("--clip", metavar="C,C,...", help="Clipping norms of the graph.")]
Sigmas = Annotated[str, typer.Option("--sigma", metavar="S,S,...", help="Noise multipliers of the graph.")]
Epochs = Annotated[
    float | None,
    typer.Option("--epochs", help="k, gradients per example; by default the scenario's.", show_default=False),
]
GraphDelta = Annotated[
    float | None,
    typer.Option("--delta", help="Delta in (0, 1); by default 1/N, N a client's examples.", show_default=False),
]
TargetLoss = Annotated[float, typer.Option("--target-loss", help="Relative loss of accuracy that is allowed.")]
Draws = Annotated[int, typer.Option("--draws", min=1, help="Draws of the noise per point.")]
ChosenReading = Annotated[
    Reading,
    typer.Option(
        "--noise",
        help="The noise on the trained model: of all planned rounds, of the last one, or that of the paper's figures.",
    ),
]
Client = Annotated[
    int | None,
    typer.Option(
        "--client", help="Train on this client's examples alone; by default on all clients'.", show_default=False
    ),
]


@dataclass(frozen=True, eq=False)
class Base:
    """The scenario that is planned for, made ready.

    Attributes:
        scenario: valid.
        content: what its file says, overrides applied.
        setup: data, model and training.
        epochs: k.
        num_examples: N of the client that has fewest.
        delta: of the plan.
    """

    scenario: Scenario
    content: dict[str, Any]
    setup: Setup
    epochs: float
    num_examples: int
    delta: float

    @property
    def num_clients(self) -> int:
        """The number of clients, n."""
        return self.scenario.clients.count

    @property
    def gradients(self) -> int:
        """K of all clients together, in k epochs."""
        return round(self.epochs * int(self.setup.training.sizes.sum()))

    @property
    def task(self) -> Task:
        """What is trained and tested."""
        from simfl.theory.proactive_dp.utility import Task

        data, setup = self.setup.dataset, self.setup
        return Task(setup.model, data.train_x, data.train_y, data.test_x, data.test_y, setup.training.initial)


def open_base(
    path: Path | None, overrides: Sequence[str] | None, *, epochs: float | None = None, delta: float | None = None
) -> Base:
    """Load a scenario and its data.

    Args:
        path: of the scenario; None takes one client with the embedded digits.
        overrides: of the form key.path=value.
        epochs: k; those of the scenario by default.
        delta: 1/N by default.

    Raises:
        ScenarioError, DataError: the scenario cannot be run, or says no epochs.
    """
    from simfl.scenario import apply_overrides, load, loads
    from simfl.scenario.own_code import look_beside
    from simfl.scenario.syntax import read
    from simfl.simulation.assembly import assemble

    changes = list(overrides or [])
    look_beside([] if path is None else [path])
    scenario = load(path, changes) if path is not None else loads(_DEFAULT, "digits", changes)
    text = _DEFAULT if path is None else path.read_text(encoding="utf-8-sig")
    content = apply_overrides(read(text, str(path)).content, changes)
    if epochs is None:
        epochs = scenario.stop.epochs
    if epochs is None:
        raise ScenarioError(f"{scenario.name}: expected --epochs, because the scenario does not stop after epochs")
    _check_sampling(scenario, content)
    setup = assemble(scenario)
    fewest = int(setup.training.sizes.min())
    return Base(scenario, content, setup, epochs, fewest, 1.0 / fewest if delta is None else delta)


def algorithm_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section `algorithm` of a scenario's content, which may also be a bare word."""
    given = content.get("algorithm")
    return {"kind": given} if isinstance(given, str) else dict(given or {})


def _check_sampling(scenario: Scenario, content: Mapping[str, Any]) -> None:
    """Refuse an algorithm that cannot run what is planned, before anything is computed."""
    from simfl.scenario import from_mapping

    try:
        from_mapping({**content, "algorithm": {**algorithm_of(content), "batch_size": 1, "sampling": "poisson"}})
    except ScenarioError:
        raise ScenarioError(
            f"algorithm.kind: expected one that takes batch_size and sampling: poisson, which Theorem B.4 is about, "
            f"found {scenario.algorithm.kind}; use for example sync_sgd or adpsgd"
        ) from None


def parse_grid(option: str, text: str) -> tuple[float, ...]:
    """Return the numbers of a comma-separated list, sorted."""
    from simfl.theory.proactive_dp.utility import check_grid

    try:
        values = [float(word) for word in text.split(",")]
    except ValueError:
        raise ScenarioError(f"{option}: expected numbers with commas between them, found {text!r}") from None
    return check_grid(option, values)


def steps_of(setup: Setup, rounds: int) -> NDArray[np.float64]:
    """Return the step size of each round, [T], on the mean gradient: every client takes one step per round."""
    import numpy as np

    schedule, count, total = setup.training.step_size, setup.scenario.clients.count, int(setup.training.sizes.sum())
    if not callable(schedule):
        return np.full(rounds, float(schedule))
    examples = count * setup.training.batch_size
    return np.array([schedule(i * count, i * examples, i * examples / total) for i in range(rounds)])


def draw_graph(
    base: Base,
    *,
    clipping_norms: Sequence[float],
    noise_multipliers: Sequence[float],
    reading: str,
    draws: int,
    client: int | None = None,
    told: Callable[[float], None] = lambda share: None,
) -> UtilityGraph:
    """Draw the utility graph of a scenario.

    Args:
        base: the scenario.
        clipping_norms: a grid.
        noise_multipliers: a grid, increasing.
        reading: all, last or figure.
        draws: of noise per point.
        client: whose examples to train on; None takes all clients'.
        told: told how far it is.
    """
    from dataclasses import replace

    from simfl.theory.proactive_dp.planning import planned_rounds
    from simfl.theory.proactive_dp.utility import draw_batches, noise_factors, utility_graph

    setup, task, batch_size = base.setup, base.task, base.setup.training.batch_size
    rounds = max(1, round(base.gradients / (base.num_clients * batch_size)))
    together = batch_size * base.num_clients
    if client is not None:
        if not 0 <= client < base.num_clients:
            raise ScenarioError(f"--client: expected 0 to {base.num_clients - 1}, found {client}")
        shares = setup.shares
        own = shares.indices[shares.offsets[client] : shares.offsets[client + 1]]
        task, together = replace(task, train_x=task.train_x[own], train_y=task.train_y[own]), batch_size
    steps = steps_of(setup, rounds)
    planned = planned_rounds(noise_multipliers, num_examples=base.num_examples, epochs=base.epochs, delta=base.delta)
    factors = noise_factors(reading, steps=steps, batch_size=batch_size, num_clients=base.num_clients, rounds=planned)
    batches = draw_batches(len(task.train_y), together, rounds, setup.streams.generator("utility-graph"))
    return utility_graph(
        task,
        batches,
        steps,
        clipping_norms=clipping_norms,
        noise_multipliers=noise_multipliers,
        noise_factors=factors,
        draws=draws,
        key=setup.streams.key("utility-graph"),
        told=told,
    )


# --- the table --------------------------------------------------------------------------------------------------------


def settings_of(base: Base, reading: str) -> dict[str, Any]:
    """Return what a graph must agree in with a plan that is made from it."""
    return {"scenario": base.scenario.digest(), "epochs": base.epochs, "delta": base.delta, "noise": reading}


def write_graph(path: Path, graph: UtilityGraph, settings: Mapping[str, Any]) -> None:
    """Write a graph as CSV, with what it is about as JSON in a comment on the first line."""
    from simfl.theory.proactive_dp.utility import UtilityRow

    about = {
        **settings,
        "unclipped_accuracy": graph.unclipped_accuracy,
        "draws": graph.draws,
        "gradients": graph.gradients,
    }
    text = io.StringIO()
    text.write(f"{_SETTINGS}{json.dumps(about)}\n")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(UtilityRow._fields)
    table.writerows([f"{value:.9g}" for value in row] for row in graph.rows())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.getvalue(), encoding="utf-8")
    except OSError as error:
        raise ScenarioError(f"{path}: cannot write the table: {error.strerror}") from error


def read_graph(folder: Path, settings: Mapping[str, Any]) -> UtilityGraph:
    """Read the graph that `simfl privacy utility-graph --out FOLDER` wrote.

    Args:
        folder: or the table in it.
        settings: what it must be about.

    Raises:
        DataError: there is none, or it cannot be read.
        ScenarioError: it is about something else.
    """
    from simfl.theory.proactive_dp.utility import UtilityGraph, UtilityRow

    path = folder / TABLE if folder.is_dir() else folder
    try:
        first, *lines = path.read_text(encoding="utf-8").splitlines()
        about = json.loads(first.removeprefix(_SETTINGS))
        names, *table = csv.reader(lines)
        if tuple(names) != UtilityRow._fields:
            raise ValueError("other columns")
        rows = [UtilityRow(*map(float, line)) for line in table]
        norms = tuple(sorted({row.clipping_norm for row in rows}))
        curves = [[row for row in rows if row.clipping_norm == norm] for norm in norms]
        if not rows or len({tuple(row.noise_multiplier for row in curve) for curve in curves}) != 1:
            raise ValueError("rows are missing")
        graph = UtilityGraph(
            clipping_norms=norms,
            noise_multipliers=tuple(row.noise_multiplier for row in curves[0]),
            noise_factors=tuple(row.noise_factor for row in curves[0]),
            accuracies=tuple(curve[0].accuracy_without_noise for curve in curves),
            unclipped_accuracy=float(about["unclipped_accuracy"]),
            ratios=tuple(tuple(row.ratio for row in curve) for curve in curves),
            lows=tuple(tuple(row.ratio_low for row in curve) for curve in curves),
            highs=tuple(tuple(row.ratio_high for row in curve) for curve in curves),
            draws=int(about["draws"]),
            gradients=int(about["gradients"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"--graph: {path}: expected the table of a utility graph, found an error ({error}); draw one with "
            "'simfl privacy utility-graph'"
        ) from None
    other = [name for name, value in settings.items() if about.get(name) != value]
    if other:
        raise ScenarioError(
            f"--graph: {path}: expected a graph with the same scenario, --set, --epochs, --delta and --noise, found "
            f"another {other[0]}; draw it again, or leave --graph out"
        )
    return graph


# --- words and bars ---------------------------------------------------------------------------------------------------


def loss_in_words(loss: float) -> str:
    """Write a loss of accuracy in per cent, with no more digits than it has."""
    return f"{100.0 * loss:.4g} %"


def show_frontier(bound: str, sigma: float) -> str:
    """Write a sigma on the frontier together with how it is known."""
    sign = {"interpolated": "", "grid_ends": "≥ ", "below_grid": "< "}[bound]
    return f"{sign}{sigma:.4g}"


@contextlib.contextmanager
def progress_bar(label: str) -> Iterator[Callable[[float], None]]:
    """Show on stderr how far the work is, where somebody sees it."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}", style="bold"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=1.0)

        def told(share: float) -> None:
            bar.update(task, completed=share)

        yield told
