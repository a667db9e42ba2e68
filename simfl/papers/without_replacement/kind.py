"""Noise and ledger of the mechanism `one_pass_gaussian`.

Jin, He, Dai, "Decentralized Differentially Private Without-Replacement SGD": std(N_t) of Lemmas 4 and 5, as noise on
the sum of a mini-batch's gradients. A warning and the ledger state what the paper's (epsilon, delta) does not cover.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from simfl.accounts.plans import classic_limit, classic_std
from simfl.assembly.kinds.base import Kind
from simfl.assembly.setup import Protection, Setup
from simfl.papers.without_replacement.config import DeepQSgd, OnePassGaussian, PassedModels, UnclippedOnePass
from simfl.papers.without_replacement.passes import OnePassClaim, OnePassLedger, most_uses
from simfl.papers.without_replacement.steps import Capped
from simfl.papers.without_replacement.theory import dp_sgd_noise
from simfl.privacy.gaussian import analytic_std
from simfl.privacy.mechanisms import UnclippedGaussian
from simfl.privacy.releases import Releases
from simfl.privacy.shuffled import KnownUses, planned_uses
from simfl.privacy.terms import Terms
from simfl.scenario import Scenario
from simfl.scenario.schedules import Schedule

#: Models for which Lemma 5 holds: a clipped gradient of theirs is still the gradient of a convex function.
CONVEX = ("logistic", "one_vs_all")


class PassedKind(Kind[PassedModels]):
    """Models that go from node to node; each node uses up its data."""

    sections = (PassedModels,)

    def protection(self, setup: Setup) -> Protection | None:
        """Return noise for the uses of an example, if the mechanism counts them."""
        privacy = self.scenario.privacy
        if privacy is None or not privacy.counts_uses:
            return super().protection(setup)
        holders = int(np.bincount(setup.partition.indices).max())
        norm = largest_norm(setup.dataset.floats().train_x)
        return protect_one_pass(self.scenario, setup.sizes, setup.tasks, holders, norm)

    def step_size(self, setup: Setup) -> Schedule:
        """Return the bounded step size of a task's t-th update."""
        l2 = setup.moved.l2
        return Capped(self.config.largest_step(l2), self.config.steps(l2))

    def problem(self, setup: Setup) -> dict[str, Any]:
        """Return that each step ends with a projection."""
        return {"radius": self.config.radius(setup.moved.l2)}

    def planned(self, setup: Setup) -> Releases:
        """Return every client's releases until the run stops.

        Without a number of updates or epochs at which it stops, all data is used up.
        """
        privacy, stop, tasks = self.scenario.privacy, self.scenario.stop, setup.tasks
        if privacy is None or not privacy.counts_uses:
            return super().planned(setup)
        size, pairs = self.config.batch_size, len(setup.sizes) * tasks
        ends = [] if stop.updates is None else [float(stop.updates)]
        ends += [] if stop.epochs is None else [stop.epochs * float(setup.sizes.sum()) * tasks / size]
        each = math.ceil(min(ends) / pairs - 1e-9) if ends else math.inf
        batches = [int(min(each, visits_of(self.config) * n // size)) for n in setup.sizes.tolist()]
        used = [KnownUses(planned_uses(n, {size: b})) for n, b in zip(setup.sizes.tolist(), batches, strict=True)]
        return Releases([tasks * b for b in batches], passes=[uses for uses in used for _ in range(tasks)])


def visits_of(config: PassedModels) -> int:
    """Return how often an example is used."""
    return getattr(config, "visits", 1)


def largest_norm(x: NDArray[np.float32]) -> float:
    """Return the largest L2 norm of an example."""
    flat = x.reshape(len(x), -1)
    return float(np.sqrt(np.einsum("ij,ij->i", flat, flat).max()))


def protect_one_pass(scenario: Scenario, sizes: NDArray[np.int64], tasks: int, holders: int, norm: float) -> Protection:
    """Return the protection that the privacy section describes.

    Args:
        scenario: valid, its mechanism is one_pass_gaussian.
        sizes: examples per client, int [K].
        tasks: models trained on the same data, c.
        holders: the largest number of clients that hold one example.
        norm: the largest norm of an example.
    """
    privacy, config, l2 = cast(OnePassGaussian, scenario.privacy), _config(scenario), scenario.model.l2
    visits = visits_of(config)
    delta = max(int(sizes.sum()), 2) ** -2.0 if privacy.delta == "auto" else float(privacy.delta)
    lipschitz = privacy.lipschitz or 1.0 + l2 * (config.radius(l2) or (1.0 / l2 if l2 else 0.0))
    if privacy.budget == "joint":
        std = analytic_std if privacy.calibration == "analytic" else _classic
        level = std(
            privacy.epsilon, delta, 2.0 * math.sqrt(most_uses(sizes, config.batch_size, visits, tasks * holders))
        )
    else:
        level = dp_sgd_noise(
            privacy.epsilon, delta, batch_size=config.batch_size, visits=visits, calibration=privacy.calibration
        ).noise_multiplier
    clips = not isinstance(privacy, UnclippedOnePass)
    refusal = _uncovered(scenario, int(sizes.max()), norm) if clips else UnclippedGaussian.refusal
    terms = Terms(privacy.mechanism, delta, lipschitz, "replace_one", refusal=refusal)
    claim = OnePassClaim(privacy.epsilon, delta, privacy.calibration, privacy.budget, visits)
    ledger = OnePassLedger(terms, sizes, config.batch_size, level, tasks, holders, claim)
    stds = [level * lipschitz] * len(sizes)
    warnings = [] if refusal is None else [f"privacy: epsilon is not certified: {refusal}"]
    warnings += _warnings(scenario, ledger, lipschitz, norm)
    return Protection(lipschitz if clips else None, "example", "gaussian", stds, stds, ledger, tuple(warnings))


def _config(scenario: Scenario) -> PassedModels:
    return cast(PassedModels, scenario.algorithm)


def _classic(epsilon: float, delta: float, sensitivity: float) -> float:
    return classic_std(epsilon, delta, sensitivity, beyond=True)


def _uncovered(scenario: Scenario, largest: int, norm: float) -> str | None:
    """Return why the paper's proof does not cover the run; None if it does."""
    if not _config(scenario).own_models:
        return None
    config, l2 = cast(DeepQSgd, scenario.algorithm), scenario.model.l2
    if config.explore_to < 1.0 or config.explore_from < 1.0:
        return (
            "the network decides by private losses and models, and all nodes see when it decides for the global "
            "model; explore_from: 1 with explore_to: 1 decides by coin and is covered"
        )
    if scenario.model.kind not in CONVEX:
        return f"Lemma 5 needs a convex loss, and model {scenario.model.kind} is not known to have one when clipped"
    smoothness = norm**2 + getattr(scenario.model, "intercept", False) + l2
    steps, bound = config.steps(l2), config.largest_step(l2)
    most = max(min(bound, steps(t, 0, 0.0)) for t in range(largest // config.batch_size + 1))
    if most > (1.0 + 1e-6) / (2.0 * smoothness):
        return (
            f"Lemma 5 needs step sizes of at most 1/(2 mu) = {1 / (2 * smoothness):.4g}, and they begin at {most:.4g}: "
            "a node's own steps may spread what one example changes; set algorithm.step_clip"
        )
    return None


def _warnings(scenario: Scenario, ledger: OnePassLedger, lipschitz: float, norm: float) -> Iterator[str]:
    """Yield warnings before a run."""
    privacy = cast(OnePassGaussian, scenario.privacy)
    intercept = getattr(scenario.model, "intercept", False)
    steepest = math.sqrt(norm**2 + intercept)
    if (
        scenario.model.kind in CONVEX
        and not isinstance(privacy, UnclippedOnePass)
        and steepest > lipschitz * (1.0 + 1e-5)
    ):
        yield (
            f"privacy.lipschitz: gradients may have norms up to {steepest:.4g} and are clipped to {lipschitz:.4g}; "
            "normalize: unit_sphere_with_constant has norms of 1, with the intercept"
        )
    if privacy.budget == "per_task" and ledger.most > 1:
        of = f"{ledger.tasks} tasks" if ledger.tasks > 1 else "one task"
        at = f" at {ledger.holders} clients" if ledger.holders > 1 else ""
        yield (
            f"privacy.budget: per_task: epsilon {privacy.epsilon:g} is that of one task and client; what an example "
            f"spends in {of}{at} is {ledger.epsilon_of_passes(ledger.most):.4g}; budget: joint keeps it within epsilon"
        )
    limit = classic_limit(ledger.delta)
    if privacy.calibration == "classic" and privacy.epsilon / ledger.claim.visits > limit:
        yield (
            f"privacy.calibration: classic noise is too little for an epsilon above {limit:.4g} at this delta; "
            "use analytic"
        )
