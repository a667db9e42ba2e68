"""Chooses clipping norm, noise, batch and rounds from a utility graph.

Van Dijk et al. 2021, "Proactive DP: A Multiple Target Optimization Framework for DP-SGD",
https://arxiv.org/abs/2102.09030, Section 3.3 and Figure 15. The utility graph (`utility`) gives the clipping norm C and
the noise multiplier sigma. The main equation gives epsilon, and Theorem B.4 batch and rounds (`theorems`). An
accountant certifies the same releases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simfl.errors import ConditionError
from simfl.papers.proactive_dp import utility
from simfl.papers.proactive_dp.theorems import SLACK, plan_rounds
from simfl.papers.proactive_dp.utility import Bound, Floats, Task, UtilityGraph, accuracy_of, frontier, train_clipped
from simfl.privacy.accounting import Release
from simfl.privacy.accounting import epsilon_of as certified_epsilon_of


def planned_rounds(
    noise_multipliers: Sequence[float], *, num_examples: int, epochs: float, delta: float
) -> tuple[float, ...]:
    """Return the rounds of Theorem B.4 for each sigma, NaN without a plan."""

    def planned(sigma: float) -> float:
        try:
            return float(plan_rounds(num_examples, epochs=epochs, delta=delta, sigma=sigma).rounds)
        except ConditionError:
            return math.nan

    return tuple(planned(sigma) for sigma in noise_multipliers)


@dataclass(frozen=True)
class TrainingPlan:
    """A client's plan with its claimed and its certified epsilon.

    Both epsilons: neighbors by adding or removing one example, Poisson sampling; the adversary sees everything that the
    client sends.
    """

    target_loss: float  # allowed, relative to `reference`
    clipping_norm: float  # C
    noise_multiplier: float  # sigma
    bound: Bound  # grid_ends: sigma is the largest of the grid, and more noise might keep the accuracy
    expected_accuracy: float  # by the utility graph
    reference: float  # the best accuracy of the graph without noise
    num_examples: int  # N of the client
    epochs: float  # k = rounds * batch_size / N
    delta: float  # of both epsilons
    batch_size: int  # s, expected
    rounds: int  # T
    gamma: float  # the constant of Theorem B.4's bound on T
    claimed_epsilon: float  # by Theorem B.4
    certified_epsilon: float  # by the accountants


def plan(
    graph: UtilityGraph, *, target_loss: float, num_examples: int, epochs: float, delta: float | None = None
) -> TrainingPlan:
    """Return the plan with the smallest epsilon that keeps the accuracy.

    sigma is the largest on the frontiers against the reference, rounded down to four digits. If several clipping norms
    reach it, the one with the best accuracy is used. Then epsilon = 2 ln(1/delta) / (sigma^2 - 2), and the largest
    batch s and T = K / s follow from Theorem B.4.

    target_loss in (0, 1) is relative to the best accuracy of the graph without noise; N and k = `epochs` are those of
    one client, and delta is 1/N by default.

    Raises:
        ConditionError: no point of the graph keeps the accuracy, or a condition of Theorem B.4 fails.
    """
    delta = 1.0 / num_examples if delta is None else delta
    reached = [point for point in frontier(graph, target_loss, against="reference") if point.bound != "below_grid"]
    if not reached:
        most = max((row.accuracy for row in graph.rows() if math.isfinite(row.ratio)), default=math.nan)
        raise ConditionError(
            f"target loss: expected an accuracy of at least {(1.0 - target_loss) * graph.reference:.4g} "
            f"(the best without noise is {graph.reference:.4g}), found {most:.4g} at most in the utility graph; allow "
            "more loss, add smaller sigma or other clipping norms to the grid, or train for more epochs on more data"
        )
    best = max(reached, key=lambda point: (_round_down(point.noise_multiplier), point.accuracy))
    sigma = _round_down(best.noise_multiplier)
    rounds = plan_rounds(num_examples, epochs=epochs, delta=delta, sigma=sigma)
    release = Release(sigma, rounds.batch / num_examples, "poisson")
    certified = certified_epsilon_of([(release, rounds.rounds)], delta)
    chosen = (target_loss, best.clipping_norm, sigma, best.bound, best.accuracy, graph.reference)
    schedule = (num_examples, rounds.epochs, delta, rounds.batch, rounds.rounds, rounds.gamma)
    return TrainingPlan(*chosen, *schedule, rounds.epsilon, certified)


def _round_down(value: float) -> float:
    """Round down to four digits: less noise keeps the accuracy."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return float(f"{math.floor(value / unit * (1.0 + SLACK)) * unit:.4g}")


@dataclass(frozen=True)
class Rehearsal:
    """The expected accuracy of a plan's batches and rounds, without private training."""

    accuracy: float  # of w*, trained in the planned rounds without noise
    last: float  # mean accuracy of w* with the last round's noise, the best case
    all: float  # mean accuracy of w* with the noise of all rounds, added up: the bad case


def rehearse(
    task: Task,
    batches: NDArray[np.int32],
    steps: Floats,
    plan: TrainingPlan,
    *,
    num_clients: int,
    draws: int = 20,
    key: NDArray[np.uint32],
) -> Rehearsal:
    """Train without noise in the plan's rounds; add the plan's noise at the end.

    `batches` are mini-batches of all clients together in the planned rounds, int32 [T, B], `steps` the rounds' steps on
    the mean gradient, [T], and `key` is a raw threefry key, uint32 [2].
    """
    task = task.on_device()
    params = train_clipped(task, batches, steps, plan.clipping_norm)
    factors = [
        utility.noise_factors(
            reading, steps=steps, batch_size=plan.batch_size, num_clients=num_clients, rounds=[len(steps)]
        )
        for reading in ("last", "all")
    ]
    stds = plan.clipping_norm * plan.noise_multiplier * np.array(factors)[:, 0]
    last, all_ = utility.perturbed_accuracies(task, params, stds, draws, key).mean(axis=1).tolist()
    return Rehearsal(accuracy_of(task, params), last, all_)
