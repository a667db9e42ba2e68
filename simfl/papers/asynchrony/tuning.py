"""The worlds, the rule that tunes step sizes, and what is measured of a run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence

from simfl.comparison.comparing import cost_of_accuracy
from simfl.comparison.targets import Target
from simfl.papers.asynchrony.algorithms import BY_NAME, ENTRIES, GOSSIP, QUICK, Entry
from simfl.records import Run
from simfl.records.costs import ACCURACY
from simfl.reproduction.evidence import NotMeasuredError, measured
from simfl.reproduction.papers import Experiment, Runs, Section
from simfl.studies.tune import WIDER
from simfl.studies.tuning import Rule, beyond

WORLDS = ("equal", "straggler", "tails", "regions")
TARGET = 0.9
"""The test accuracy whose cost is compared."""
GRID = range(-4, 4)
"""Powers of two that multiply the center of a grid."""
MOST = 2
"""The most times that a grid is widened, as `tune.widen` of a study."""
TUNING_SEEDS, FINAL_SEEDS = 3, 6
"""Seeds that tune, from 1 on, and the fresh ones that follow them. A median of six has a 95 % interval."""
FEWER_SEEDS = {"DivShare": 3}
"""Fresh seeds of algorithms whose runs take ten times longer than others."""
EVERY_MS = {"equal": 50, "straggler": 100, "tails": 100, "regions": 100}
"""Time between evaluations; twice that while tuning."""
OWN = ("equal", "straggler")
"""The worlds in which clients' own models are evaluated too, which takes longer than their training."""

RULE = Rule(ACCURACY, False, "least time", "time_s", Target(TARGET))
"""The rule of `tune` that chooses step sizes; `simfl.studies.tuning.beyond` widens their grids."""

TUNING = Section("Tuning", numbers=("{:g}",))
FINAL = Section("Time to accuracy")


def experiments(quick: bool) -> Sequence[Experiment]:
    """Return the runs that tune the step size of every algorithm in every world."""
    worlds, entries = (WORLDS[:2], [BY_NAME[name] for name in QUICK]) if quick else (WORLDS, ENTRIES)
    powers = range(-1, 3) if quick else GRID
    return [_tuning(world, entry, power, quick) for world in worlds for entry in entries for power in powers]


def later(runs: Runs, quick: bool) -> Sequence[Experiment]:
    """Return the runs with the best step sizes.

    Where the best is at the border of a grid, more values are tried first.
    """
    made: list[Experiment] = []
    for world, entry in itertools.product(WORLDS, ENTRIES):
        powers = powers_of(runs, world, entry)
        least = 4 if quick else len(GRID)
        if len(powers) < least or (not quick and (len(powers) - least) % WIDER):
            continue  # interrupted, or a run failed
        best = tuned(runs, world, entry)
        wider = not quick and len(powers) < least + MOST * WIDER
        more = [power for end in _ends(powers, best) for power in beyond(best, end)][:WIDER] if wider else []
        made += [_tuning(world, entry, power, quick) for power in more]
        if not more:
            made.append(_final(world, entry, best, quick))
    return made


def _tuning(world: str, entry: Entry, power: int, quick: bool) -> Experiment:
    changes = (*_changes(entry, power), f"evaluate={{every: {{time: {2 * EVERY_MS[world]} ms}}}}")
    return Experiment(TUNING, (world, entry.name, step_of(entry, power)), f"asynchrony/{world}.yaml", changes,
                      1 if quick else TUNING_SEEDS)  # fmt: skip


def _final(world: str, entry: Entry, power: int, quick: bool) -> Experiment:
    each = str(entry.family == GOSSIP and world in OWN).lower()
    changes = (*_changes(entry, power), f"evaluate={{every: {{time: {EVERY_MS[world]} ms}}, clients: {each}}}")
    seeds = 2 if quick else FEWER_SEEDS.get(entry.name, FINAL_SEEDS)
    return Experiment(FINAL, (world, entry.name), f"asynchrony/{world}.yaml", changes, seeds, TUNING_SEEDS + 1)


def _changes(entry: Entry, power: int) -> tuple[str, ...]:
    return (entry.section(step_of(entry, power)), "record={updates: false, messages: false}")


def step_of(entry: Entry, power: int) -> float:
    """Return a value of an algorithm's grid."""
    return float(f"{entry.center * 2.0**power:.4g}")


def powers_of(runs: Runs, world: str, entry: Entry) -> list[int]:
    """Return the powers of two of the values that were tried."""
    steps = [cell[-1] for cell in runs.cells(TUNING, world, entry.name)]
    return [round(math.log2(step / entry.center)) for step in steps]


def tuned(runs: Runs, world: str, entry: Entry) -> int:
    """Return the power of two of the best step size on the tuning seeds.

    It is the one with which the most runs reach the target, then the one with the least mean time of these runs, then
    of their bytes; if none does, the one with the best mean of the runs' best accuracies. A run that diverges does not
    reach the target.
    """
    return runs.once(_tuned, world, entry)


def _tuned(runs: Runs, world: str, entry: Entry) -> int:
    powers = powers_of(runs, world, entry)
    if not powers:
        raise NotMeasuredError(f"{entry.name} in {world}: not tuned")

    def order(power: int) -> tuple[float, float, float]:
        return RULE.order(list(runs.of(TUNING, (world, entry.name, step_of(entry, power))).values()))

    return min(sorted(powers), key=order)


def border(runs: Runs, world: str, entry: Entry) -> bool:
    """Return whether the best step size is the least or the largest that was tried."""
    powers = powers_of(runs, world, entry)
    return bool(_ends(powers, tuned(runs, world, entry)))


def _ends(powers: Collection[int], best: int) -> list[int]:
    """Return the ends of a grid where its best value is: 0 the first, 1 the last."""
    return [end for end, power in enumerate((min(powers), max(powers))) if power == best]


def cost(run: Run, column: str) -> float:
    """Return the cost of the target accuracy; infinite if never reached."""
    value = math.nan if run.status == "diverged" else cost_of_accuracy(run, TARGET)[column]
    return math.inf if math.isnan(value) else value


def own_time(run: Run) -> float:
    """Return when the mean of own models' accuracies reached the target, seconds.

    It is infinite if it never did, and NaN if own models were not evaluated.
    """
    if not run.scenario["evaluate"]["clients"]:
        return math.nan
    if run.status == "diverged":
        return math.inf
    mean = run.client_metrics.groupby("time_s")["test_accuracy"].mean()
    times, values = mean.index.to_numpy(), mean.to_numpy()
    reached = values >= TARGET
    if not reached.any():
        return math.inf
    after = int(reached.argmax())
    if not after:
        return float(times[0])
    share = (TARGET - values[after - 1]) / (values[after] - values[after - 1])
    return float(times[after - 1] + share * (times[after] - times[after - 1]))


def ranks(runs: Runs, world: str) -> dict[str, float]:
    """Return the ranks in a world; those that never reach the target share the last."""
    return runs.once(_ranks, world)


def _ranks(runs: Runs, world: str) -> dict[str, float]:
    times = {name: measured(costs(runs, world, name)).mean for _, name in runs.cells(FINAL, world)}
    return {name: 1.0 + sum(other < time for other in times.values()) for name, time in times.items()}


def costs(runs: Runs, world: str, name: str, column: str = "time_s") -> tuple[float, ...]:
    """Return the cost of the target by fresh seed."""
    return tuple(cost(run, column) for run in runs.of(FINAL, (world, name)).values())
