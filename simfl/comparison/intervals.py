"""Seeds of runs, and the variance between them.

A run has one seed, or two: that of its world (compute times, links, availability, partners) and that of its learning
(initial model, mini-batches, noise). Runs of W worlds x L learning seeds are crossed. Their values follow

    y_wl = mu + a_w + b_l + e_wl,

with independent a, b and e of mean 0 (two-way random effects without replication). The residual e is how differently
the learning seeds fare in different worlds: a run repeated is the same run. With the mean squares MS of the worlds, the
learning seeds and the residual, E MS_w = s_e^2 + L s_w^2, E MS_l = s_e^2 + W s_l^2, E MS_e = s_e^2 (Searle, Casella and
McCulloch 1992, "Variance components", chapter 4).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.records.seeds import Seed, pair_of

CONFIDENCE = 0.95


def crossed(seeds: Sequence[Seed], values: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return values [n, ...] as a table [W, L, ...]; None for plain seeds.

    It has no entries if the runs of some pair of seeds are missing.
    """
    if all(isinstance(seed, int) for seed in seeds):
        return None
    pairs = list(map(pair_of, seeds))
    worlds, learnings = ({name: i for i, name in enumerate(sorted(set(part)))} for part in zip(*pairs, strict=True))
    if len(set(pairs)) < len(worlds) * len(learnings):
        return np.empty((0, 0, *values.shape[1:]))
    table = np.empty((len(worlds), len(learnings), *values.shape[1:]))
    for pair, value in zip(pairs, values, strict=True):
        table[worlds[pair.world], learnings[pair.learning]] = value
    return table


def half_widths(seeds: Sequence[Seed], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return half of the 95% intervals of means over runs, of values [n, ...].

    Plain seeds: Student's t. Crossed ones: Student's t of min(W, L) - 1 degrees of freedom with the variance
    (MS_w + MS_l) / (W L), whose mean is that of the mean over runs plus s_e^2 / (W L). Both choices are on the wide
    side, as Hsu's for two means is. NaN for fewer than two runs, and if runs of some pair of seeds are missing.
    """
    table = crossed(seeds, values)
    if table is None or (table.size and min(table.shape[:2]) == 1):
        count = len(values)
        if count < 2:
            return np.full(values.shape[1:], math.nan)
        return np.asarray(students_t(count - 1) * values.std(axis=0, ddof=1) / math.sqrt(count))
    if not table.size:
        return np.full(values.shape[1:], math.nan)
    worlds, learnings = table.shape[:2]
    of_worlds, of_learning, _ = _mean_squares(table)
    variance = (of_worlds + of_learning) / (worlds * learnings)
    return np.asarray(students_t(min(worlds, learnings) - 1) * np.sqrt(variance))


def students_t(freedom: int) -> float:
    """Return the quantile for an interval; its import takes 0.2 s."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + CONFIDENCE / 2))


def _mean_squares(table: NDArray[np.float64]) -> tuple[Any, Any, Any]:
    """Return the mean squares of worlds, learning seeds and residual of [W, L, ...]."""
    worlds, learnings = table.shape[:2]
    mean, by_world, by_learning = table.mean(axis=(0, 1)), table.mean(axis=1), table.mean(axis=0)
    rest = table - by_world[:, None] - by_learning[None] + mean
    return (
        learnings * ((by_world - mean) ** 2).sum(axis=0) / (worlds - 1),
        worlds * ((by_learning - mean) ** 2).sum(axis=0) / (learnings - 1),
        (rest**2).sum(axis=(0, 1)) / ((worlds - 1) * (learnings - 1)),
    )


@dataclass(frozen=True)
class Spread:
    """A standard deviation with its 95% interval."""

    value: float
    low: float
    high: float


def components(values: Mapping[Seed, float]) -> dict[str, Spread] | None:
    """Return the spread between worlds, between learning seeds, and the residual.

    Estimates are those of the analysis of variance, 0 where they would be negative. The intervals hold for normal
    effects: that of the residual is exact, the others are those of Tukey and Williams (1962, "A confidence interval for
    variance components", Biometrika 49), which hold at least about as often as they say.

    Returns:
        The standard deviations by name; None for plain seeds, fewer than two of a kind, or if there is no number for
        some pair of seeds.
    """
    table = crossed(list(values), np.array(list(values.values()), dtype=float))
    if table is None or not table.size or min(table.shape) < 2 or not np.isfinite(table).all():
        return None
    worlds, learnings = table.shape
    of_worlds, of_learning, rest = map(float, _mean_squares(table))
    freedom = (worlds - 1) * (learnings - 1)
    return {
        "world": _spread(of_worlds, worlds - 1, rest, freedom, learnings),
        "learning": _spread(of_learning, learnings - 1, rest, freedom, worlds),
        "residual": _of_chi_square(rest, freedom),
    }


def _of_chi_square(square: float, freedom: int) -> Spread:
    from scipy.special import chdtri

    upper, lower = (1.0 - CONFIDENCE) / 2, (1.0 + CONFIDENCE) / 2
    ends = [math.sqrt(freedom * square / float(chdtri(freedom, tail))) for tail in (upper, lower)]
    return Spread(math.sqrt(square), *ends)


def _spread(square: float, freedom: int, rest: float, freedom_rest: int, count: int) -> Spread:
    """Return the spread of an effect whose mean square is over `count` runs."""
    from scipy.special import chdtri, fdtri

    variance = max(0.0, square - rest) / count
    ends = []
    for tail in ((1.0 - CONFIDENCE) / 2, (1.0 + CONFIDENCE) / 2):
        beyond = freedom * (square - rest * float(fdtri(freedom, freedom_rest, 1.0 - tail)))
        ends.append(math.sqrt(max(0.0, beyond) / (count * float(chdtri(freedom, tail)))))
    return Spread(math.sqrt(variance), *ends)
