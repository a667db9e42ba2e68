"""Planning before training: utility graph, planned scenario, rehearsal.

Proactive DP, van Dijk et al. 2021, https://arxiv.org/abs/2102.09030.

The graph is that of the whole federation: w* is trained on all clients' examples together, n B of them in each step, as
in a round of all clients, with the scenario's step sizes. Synchronous rounds compute exactly this; asynchronous ones
do to first order. With `client`, w* is trained on one client's examples, as in the paper.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.assembly.assemble import assemble
from simfl.assembly.setup import Setup
from simfl.errors import DataError, ScenarioError
from simfl.papers.proactive_dp import utility
from simfl.papers.proactive_dp.planning import Rehearsal, TrainingPlan, planned_rounds, rehearse
from simfl.papers.proactive_dp.utility import Progress, Task, UtilityGraph, UtilityRow, draw_batches, noise_factors
from simfl.scenario import Scenario, apply_overrides, from_mapping, load
from simfl.scenario.loading import content_of
from simfl.scenario.own_code import look_beside

TABLE = "utility-graph.csv"

_SETTINGS = "# "


@dataclass(frozen=True, eq=False)
class Base:
    """The scenario to plan for, with its data loaded."""

    scenario: Scenario  # validated
    content: dict[str, Any]  # of its file, with the overrides
    setup: Setup  # data, model and training
    epochs: float  # k
    num_examples: int  # N, the fewest of a client
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
    """Load a scenario and its data; by default k is the scenario's, and delta 1/N.

    Raises:
        ScenarioError, DataError: the scenario cannot run, or does not stop after epochs.
    """
    changes = list(overrides or [])
    look_beside([path])
    scenario = load(path, changes)
    content = apply_overrides(content_of(path), changes)
    try:  # before computing anything
        from_mapping({**content, "algorithm": {**algorithm_of(content), "batch_size": 1, "sampling": "poisson"}})
    except ScenarioError:
        raise ScenarioError(
            f"algorithm.kind: expected one with batch_size and sampling: poisson, which Theorem B.4 assumes, "
            f"found {scenario.algorithm.kind}; use for example sync_sgd or adpsgd"
        ) from None
    privacy = scenario.privacy
    if privacy is not None and privacy.correlated is not None:
        raise ScenarioError(
            f"privacy.noise: expected null, found {privacy.correlated}: Theorem B.4 assumes independent noise in "
            "every round; remove it"
        )
    epochs = scenario.stop.epochs if epochs is None else epochs
    if epochs is None:
        raise ScenarioError(f"{scenario.name}: expected --epochs, because the scenario does not stop after epochs")
    setup = assemble(scenario)
    fewest, size = int(setup.training.sizes.min()), setup.training.batch_size
    if size > fewest:
        raise ScenarioError(
            f"algorithm.batch_size: expected at most {fewest}, the examples of the smallest client, found {size}: "
            "Theorem B.4 assumes batches of one size; lower it"
        )
    return Base(scenario, content, setup, epochs, fewest, 1.0 / fewest if delta is None else delta)


def algorithm_of(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section `algorithm`, which a file may shorten to its kind."""
    section = content.get("algorithm")
    return {"kind": section} if isinstance(section, str) else dict(section or {})


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
    """Draw the utility graph of a scenario for a reading; see `utility_graph`.

    Grids are increasing. With `client`, models are trained on that client's examples only.
    """
    setup, task, batch_size = base.setup, base.task, base.setup.training.batch_size
    together = batch_size * base.num_clients
    rounds = max(1, round(base.gradients / together))
    if client is not None:
        if not 0 <= client < base.num_clients:
            raise ScenarioError(f"--client: expected 0 to {base.num_clients - 1}, found {client}")
        share = setup.partition.indices[setup.partition.offsets[client] : setup.partition.offsets[client + 1]]
        task, together = replace(task, train_x=task.train_x[share], train_y=task.train_y[share]), batch_size
    steps = steps_of(setup, rounds)
    planned = planned_rounds(noise_multipliers, num_examples=base.num_examples, epochs=base.epochs, delta=base.delta)
    factors = noise_factors(reading, steps=steps, batch_size=batch_size, num_clients=base.num_clients, rounds=planned)
    batches = draw_batches(len(task.train_y), together, rounds, setup.streams.generator("utility-graph"))
    key = setup.streams.key("utility-graph")
    return utility.utility_graph(
        task, batches, steps, clipping_norms=clipping_norms, noise_multipliers=noise_multipliers,
        noise_factors=factors, draws=draws, key=key, progress=progress,
    )  # fmt: skip


def settings_of(base: Base, reading: str) -> dict[str, Any]:
    """Return the settings that a plan must share with its graph."""
    return {"scenario": base.scenario.digest(), "epochs": base.epochs, "delta": base.delta, "noise": reading}


def write_graph(path: Path, graph: UtilityGraph, settings: Mapping[str, Any]) -> None:
    """Write a graph as CSV, with its settings as JSON in a comment on the first line."""
    numbers = {name: getattr(graph, name) for name in ("unclipped_accuracy", "draws", "gradients")}
    lines = [f"{_SETTINGS}{json.dumps({**settings, **numbers})}", ",".join(UtilityRow._fields)]
    lines += [",".join(f"{value:.9g}" for value in row) for row in graph.rows()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    except OSError as error:
        raise ScenarioError(f"{path}: cannot write the table: {error.strerror}") from error


def read_graph(folder: Path, settings: Mapping[str, Any]) -> UtilityGraph:
    """Read the graph that `simfl privacy utility-graph --out FOLDER` wrote.

    `folder` may also be the table in it.

    Raises:
        DataError: the table is missing or cannot be read.
        ScenarioError: the graph has other settings.
    """
    path = folder / TABLE if folder.is_dir() else folder
    try:
        first, names, *lines = path.read_text(encoding="utf-8").splitlines()
        about = json.loads(first.removeprefix(_SETTINGS))
        if tuple(names.split(",")) != UtilityRow._fields:
            raise ValueError("other columns")
        rows = np.array([line.split(",") for line in lines], dtype=np.float64)
        curves = [rows[rows[:, 0] == norm] for norm in np.unique(rows[:, 0])]
        if len({tuple(curve[:, 1]) for curve in curves}) != 1:
            raise ValueError("rows are missing")
        columns = zip(*(map(tuple, curve.T.tolist()) for curve in curves), strict=True)
        norms, sigmas, factors, ratios, lows, highs, _, accuracies = columns
        clips, levels = (tuple(values[0] for values in one) for one in (norms, accuracies))
        unclipped, counts = float(about["unclipped_accuracy"]), (int(about["draws"]), int(about["gradients"]))
        graph = UtilityGraph(clips, sigmas[0], factors[0], levels, unclipped, ratios, lows, highs, *counts)
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
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
    utility graph. The claimed epsilon is also the budget, so that a client that runs faster than planned stops before
    it exceeds the claim.
    """
    content, factor = base.content, plan.batch_size / base.setup.training.batch_size
    step_size = rescaled(base.scenario.resolved()["algorithm"]["step_size"], factor)
    algorithm = algorithm_of(content)
    algorithm |= {"step_size": step_size, "batch_size": plan.batch_size, "sampling": "poisson"}
    noise = {"clipping_norm": plan.clipping_norm, "noise_multiplier": plan.noise_multiplier}
    promised = {"delta": plan.delta, "epsilon": float(f"{plan.claimed_epsilon:.6g}")}
    planned = {"name": f"{base.scenario.name}-planned", "algorithm": algorithm}
    planned |= {"privacy": {"mechanism": "gaussian", **noise, **promised}}
    planned |= {"stop": {"updates": plan.rounds * base.num_clients}}
    changed = {**content, **planned}
    order = ["name", "description", *(key for key in content if key not in planned), *planned]
    return {key: changed[key] for key in dict.fromkeys(order) if key in changed}


def rescaled(step: Mapping[str, Any], factor: float) -> dict[str, Any] | float:
    """Return a step size schedule for batches that are larger by a factor > 0.

    At equal numbers of examples, the step is the old one times the factor. A schedule that decreases with the number
    of updates decreases faster, because there are fewer updates.

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
