"""Planning before training: utility graph, planned scenario, rehearsal.

Proactive DP, van Dijk et al. 2021, https://arxiv.org/abs/2102.09030.

The graph is one of the whole federation: w* is trained on all clients' examples together, n B of them in each step, as
in a round of all clients, with the scenario's step sizes. Synchronous rounds compute exactly this, asynchronous ones
to first order. `client` trains on one client's examples, as the paper's client does.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.build.assembly import assemble
from simfl.build.setup import Setup
from simfl.errors import DataError, ScenarioError
from simfl.papers.proactive_dp.planning import Rehearsal, TrainingPlan, planned_rounds, rehearse
from simfl.papers.proactive_dp.utility import (
    Progress,
    Task,
    UtilityGraph,
    UtilityRow,
    draw_batches,
    noise_factors,
    utility_graph,
)
from simfl.scenario import Scenario, apply_overrides, from_mapping, load
from simfl.scenario.loading import content_of
from simfl.scenario.own_code import look_beside

TABLE = "utility-graph.csv"

_SETTINGS = "# "


@dataclass(frozen=True, eq=False)
class Base:
    """The scenario to plan for, with its data loaded."""

    scenario: Scenario  # valid
    content: dict[str, Any]  # what its file says, overrides applied
    setup: Setup  # data, model and training
    epochs: float  # k
    num_examples: int  # N of the client that has fewest
    delta: float  # of the plan

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
        """The training and test task."""
        data, setup = self.setup.dataset.floats(), self.setup
        return Task(setup.model, data.train_x, data.train_y, data.test_x, data.test_y, setup.training.initial)


def open_base(
    path: Path, overrides: Sequence[str] | None, *, epochs: float | None = None, delta: float | None = None
) -> Base:
    """Load a scenario and its data; k is by default that of the scenario, delta 1/N.

    Raises:
        ScenarioError, DataError: the scenario cannot be run, or does not stop after epochs.
    """
    changes = list(overrides or [])
    look_beside([path])
    scenario = load(path, changes)
    content = apply_overrides(content_of(path), changes)
    if epochs is None:
        epochs = scenario.stop.epochs
    if epochs is None:
        raise ScenarioError(f"{scenario.name}: expected --epochs, because the scenario does not stop after epochs")
    _check_sampling(scenario, content)
    privacy = scenario.privacy
    if privacy is not None and privacy.correlated is not None:
        raise ScenarioError(
            f"privacy.noise: expected null, found {privacy.correlated}: Theorem B.4 is about noise drawn afresh for "
            "every round; remove it"
        )
    setup = assemble(scenario)
    fewest = int(setup.training.sizes.min())
    return Base(scenario, content, setup, epochs, fewest, 1.0 / fewest if delta is None else delta)


def algorithm_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section `algorithm`, which may also be a word."""
    given = content.get("algorithm")
    return {"kind": given} if isinstance(given, str) else dict(given or {})


def _check_sampling(scenario: Scenario, content: Mapping[str, Any]) -> None:
    """Reject an algorithm that cannot run a plan, before anything is computed."""
    try:
        from_mapping({**content, "algorithm": {**algorithm_of(content), "batch_size": 1, "sampling": "poisson"}})
    except ScenarioError:
        raise ScenarioError(
            f"algorithm.kind: expected one that takes batch_size and sampling: poisson, which Theorem B.4 is about, "
            f"found {scenario.algorithm.kind}; use for example sync_sgd or adpsgd"
        ) from None


def steps_of(setup: Setup, rounds: int) -> NDArray[np.float64]:
    """Return the step size of each round, [T], on the mean gradient."""
    schedule, count, total = setup.training.step_size, setup.scenario.clients.count, int(setup.training.sizes.sum())
    if not callable(schedule):
        return np.full(rounds, float(schedule))
    examples = count * setup.training.batch_size
    return np.array([schedule(i * count, i * examples, i * examples / total) for i in range(rounds)])


def draw_graph(
    base: Base,
    clipping_norms: Sequence[float],
    noise_multipliers: Sequence[float],
    reading: str,
    draws: int,
    client: int | None = None,
    progress: Progress = lambda share: None,
) -> UtilityGraph:
    """Draw the utility graph of a scenario; see `utility_graph`.

    Args:
        base: the scenario.
        clipping_norms, noise_multipliers: increasing grids.
        reading: all, last or figure.
        draws: of noise per point.
        client: trains on this client's examples alone, by default on all clients'.
        progress: receives the share of the work that is done.
    """
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
    key = setup.streams.key("utility-graph")
    return utility_graph(
        task, batches, steps, clipping_norms=clipping_norms, noise_multipliers=noise_multipliers,
        noise_factors=factors, draws=draws, key=key, progress=progress,
    )  # fmt: skip


def settings_of(base: Base, reading: str) -> dict[str, Any]:
    """Return the settings that a graph and a plan made from it must share."""
    return {"scenario": base.scenario.digest(), "epochs": base.epochs, "delta": base.delta, "noise": reading}


def write_graph(path: Path, graph: UtilityGraph, settings: Mapping[str, Any]) -> None:
    """Write a graph as CSV, with its settings as JSON in a comment on the first line."""
    numbers = {name: getattr(graph, name) for name in ("unclipped_accuracy", "draws", "gradients")}
    about = {**settings, **numbers}
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
        settings: that the graph must have.

    Raises:
        DataError: the table is missing or cannot be read.
        ScenarioError: the graph has other settings.
    """
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


def planned_content(base: Base, plan: TrainingPlan) -> dict[str, Any]:
    """Return the content of the planned scenario: the base's, with the plan's changes.

    Step sizes are multiplied by the new batch size over the old one: a gradient then moves the model as far as in the
    utility graph, whatever the batch. The claimed epsilon is also the budget, so that a client that runs faster than
    planned stops before it spends more.
    """
    content = base.content
    old = base.setup.training.batch_size
    algorithm = algorithm_of(content)
    algorithm["step_size"] = rescaled(base.scenario.resolved()["algorithm"]["step_size"], plan.batch_size / old)
    algorithm |= {"batch_size": plan.batch_size, "sampling": "poisson"}
    privacy = {
        "mechanism": "gaussian",
        "clipping_norm": plan.clipping_norm,
        "noise_multiplier": plan.noise_multiplier,
        "delta": plan.delta,
        "epsilon": float(f"{plan.claimed_epsilon:.6g}"),
    }
    planned = {
        "name": f"{base.scenario.name}-planned",
        "algorithm": algorithm,
        "privacy": privacy,
        "stop": {"updates": plan.rounds * base.num_clients},
    }
    first = ["name", "description", *(key for key in content if key not in planned), *planned]
    return {key: planned.get(key, content.get(key)) for key in dict.fromkeys(first) if key in {**content, **planned}}


def rescaled(step: Mapping[str, Any], factor: float) -> dict[str, Any] | float:
    """Return a step size schedule for batches larger by a factor > 0.

    A schedule that falls with the number of updates falls faster, because there are fewer of them: at equal numbers of
    examples the step is the old one times the factor.

    Raises:
        ScenarioError: the schedule is of a kind that cannot be rescaled.
    """

    def times(value: float) -> float:
        return float(f"{value * factor:.6g}")

    kind = step["kind"]
    if kind == "constant":
        return times(step["value"])
    if kind == "by_epochs":
        return {**step, "values": [times(value) for value in step["values"]]}
    if kind == "warm_up":
        return {**step, "initial": times(step["initial"]), "then": rescaled(step["then"], factor)}
    if kind not in ("inverse", "inverse_sqrt"):
        raise ScenarioError(
            f"algorithm.step_size: {kind}: expected constant, by_epochs, inverse, inverse_sqrt or warm_up, which can "
            "be rescaled to another batch size"
        )
    faster = factor if kind == "inverse" else math.sqrt(factor)
    beta = step["beta"] * (faster if step["count"] == "updates" else 1.0)
    return {**step, "initial": times(step["initial"]), "beta": float(f"{beta:.6g}")}


def rehearse_plan(
    base: Base, content: Mapping[str, Any], plan: TrainingPlan, draws: int
) -> tuple[Scenario, TrainingPlan, Rehearsal]:
    """Check the planned scenario, and train its rounds once without noise.

    Returns:
        The scenario, the plan with the epsilon that the scenario's ledger certifies, and the rehearsal.
    """
    planned = from_mapping(content, "the planned scenario")
    setup = assemble(planned)
    assert setup.ledger is not None, "the plan is private"
    certified = float(setup.ledger.final_epsilon(setup.kind.planned(setup)).max())
    plan = replace(plan, certified_epsilon=certified)
    task, together = base.task, plan.batch_size * base.num_clients
    batches = draw_batches(len(task.train_y), together, plan.rounds, setup.streams.generator("utility-graph"))
    steps, key = steps_of(setup, plan.rounds), setup.streams.key("utility-graph")
    return planned, plan, rehearse(task, batches, steps, plan, num_clients=base.num_clients, draws=draws, key=key)
