"""The plan of a server's releases, and whether its draw of users amplifies."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from simfl.assembly.setup import Setup
from simfl.errors import ScenarioError
from simfl.privacy.adaptive import AdaptiveNorm
from simfl.privacy.cohorts import MOST_RELEASES, CohortLedger, CohortPlan, Gate
from simfl.privacy.distributed import GridSum
from simfl.privacy.in_time import Participation
from simfl.privacy.strategies import Strategy, Tree, banded, blt, square_root
from simfl.scenario import Scenario
from simfl.scenario.privacy import BandedNoise, BltNoise, CohortGaussian, SquareRootNoise, TreeNoise
from simfl.scenario.schedules import ConstantStep

#: Noise on the count of updates that are not clipped, as a share of the users of a sum (Andrew et al. 2021).
COUNT_NOISE = 0.05


def cohorts_of(setup: Setup, noise_scale: float) -> CohortPlan | None:
    """Return how the server releases sums of users' updates; None if it does not."""
    if setup.scenario.privacy is None or (privacy := setup.scenario.privacy.of_sums) is None:
        return None
    rate = getattr(setup.scenario.algorithm, "fraction", 1.0) if privacy.cohorts == "poisson" else None
    rule, gate, groups = privacy.participation, None, None
    if rule is not None:
        gate = Gate(rule.min_separation, rule.at_most, rule.early == "wait")
    if privacy.groups is not None and rate is not None:
        users = len(set(setup.scenario.clients.owners or range(setup.scenario.clients.count)))
        order = setup.streams.generator("user-groups").permutation(users)
        groups, rate = tuple((order % privacy.groups).tolist()), min(1.0, rate * privacy.groups)
        gate = Gate(privacy.groups)  # as their turns are
    least = _least(setup.scenario)
    parts = least - privacy.colluding if privacy.where == "secure_sum" else 0
    reason, grid = next(_shown(setup, privacy), None), _grid(setup, privacy, parts, noise_scale)
    owners, strategy = setup.scenario.clients.owners, strategy_of(privacy)
    adaptive = _adaptive(setup.scenario, privacy, noise_scale)
    return CohortPlan(
        noise_scale, rate, privacy.releases, reason, gate, least, parts, grid, strategy, owners, groups, adaptive
    )


def _adaptive(scenario: Scenario, privacy: CohortGaussian, noise_multiplier: float) -> AdaptiveNorm | None:
    """Return how the clipping norm follows the updates; None if it is fixed."""
    given, members = privacy.adaptive, divisor_of(scenario)
    if given is None:
        return None
    noise = given.count_noise
    if noise is None:
        noise = members * COUNT_NOISE if noise_multiplier else 0.0
    return AdaptiveNorm(given.start, given.quantile, given.learning_rate, noise, members)


def check_adaptive(plan: CohortPlan | None) -> None:
    """Reject a noise multiplier that cannot be split between a sum and its count.

    Raises:
        ScenarioError: the noise of the count is too small, or too large.
    """
    if plan is not None and plan.adaptive is not None:
        try:
            plan.adaptive.noise_on_sum(plan.noise_scale)
        except ValueError as error:
            raise ScenarioError(f"privacy.clipping_norm.count_noise: {error}") from None


def within_budget(setup: Setup, ledger: CohortLedger) -> CohortPlan:
    """Return the plan; secret draws end when the budget of all users is spent.

    Raises:
        ScenarioError: the budget is not enough for one release.
    """
    privacy, plan = setup.scenario.privacy, ledger.plan
    budget: Any = None if privacy is None else privacy.epsilon_budget  # one number, as users are alike
    if privacy is None or budget is None or privacy.calibrated or plan.rate is None:
        return plan
    most = plan.releases or MOST_RELEASES
    ledger.plan = dataclasses.replace(plan, releases=most)
    if not ledger.draws_secretly:
        return plan
    made = ledger.lasts(ledger.drawn, budget, most, ledger.drawn_accountant)  # draws are secret: all users share it
    if not made:
        raise ScenarioError(
            f"privacy.epsilon: expected a budget for one release or more, found {budget:g}; raise it, or "
            "privacy.noise_multiplier"
        )
    return dataclasses.replace(plan, releases=made)


def planned_sums(setup: Setup, ledger: CohortLedger) -> int:
    """Return the number of sums that a user is planned to be in.

    Raises:
        ScenarioError: it is an outcome.
    """
    plan, sizes, privacy = ledger.plan, setup.sizes.tolist(), setup.scenario.privacy
    planned = setup.kind.planned_releases(sizes)
    if plan.users is not None and not ledger.draws_secretly:
        if plan.gate is None:
            raise ScenarioError(
                "privacy.noise_multiplier: expected a number beside clients.users, found null: how many updates of a "
                f"user are in a sum is an outcome, because draws do not amplify ({plan.unamplified}); or use "
                "privacy.participation"
            )
        planned = setup.kind.planned_updates(sizes) * max(map(len, plan.clients.values()))
        planned = min(planned, getattr(privacy, "most_of_a_user", None) or planned)
    if plan.rate is not None and plan.releases is not None:
        planned = min(planned, math.ceil(plan.share * plan.releases - 1e-9))  # as often as users are drawn
    return planned


def check_end(setup: Setup, plan: CohortPlan) -> None:
    """Reject a stop before the last of secret draws that share a budget.

    Raises:
        ScenarioError: the run may end earlier, and then counts in full.
    """
    scenario, stop = setup.scenario, setup.scenario.stop
    why = "a run that ends before its last release counts in full, which may be more than the budget"
    for name in ("time", "epochs", "accuracy", "suboptimality", "metric"):
        if (found := getattr(stop, name)) is not None:
            raise ScenarioError(
                f"stop.{name}: expected null with privacy.epsilon and cohorts: poisson, found {found}: {why}; the "
                f"server ends it after {plan.releases} releases"
            )
    assert plan.releases is not None
    least = plan.releases * scenario.clients.count
    if stop.updates is not None and stop.updates < least:
        raise ScenarioError(
            f"stop.updates: expected at least {least}, the most in {plan.releases} releases of "
            f"{scenario.clients.count} clients, with privacy.epsilon and cohorts: poisson, found {stop.updates}: {why}"
            "; raise it"
        )


def _grid(setup: Setup, privacy: CohortGaussian, parts: int, noise_scale: float) -> GridSum | None:
    """Return how users round updates and add discrete noise; None without it."""
    algorithm, norm = setup.scenario.algorithm, privacy.clipping_norm
    if not privacy.discrete:
        return None
    assert algorithm.protocol is not None, "the schema says so"
    assert not privacy.adaptive, "the schema says so"
    members, bits = algorithm.members(setup.scenario.clients.count), algorithm.protocol.bits
    try:
        return GridSum.of(setup.dimension, bits, members, parts, norm, noise_scale)  # type: ignore[arg-type]
    except ValueError as error:
        raise ScenarioError(f"algorithm.secure_sum.bits: {error}") from None


def _least(scenario: Scenario) -> int:
    """Return the least number of updates in a secure sum; 0 without one."""
    secure = scenario.algorithm.protocol
    return 0 if secure is None else secure.threshold_of(scenario.algorithm.members(scenario.clients.count))


def divisor_of(scenario: Scenario) -> float:
    """Return the nominal number of updates in a sum, by which the server divides it."""
    algorithm, privacy = scenario.algorithm, scenario.privacy
    if hasattr(algorithm, "buffer_size"):
        return float(algorithm.buffer_size)
    if not hasattr(algorithm, "fraction"):
        return 1.0
    share = float(algorithm.fraction) * scenario.clients.count
    drawn = getattr(privacy, "cohorts", None) == "poisson"
    return share if drawn else float(max(1, math.ceil(share - 1e-9)))


def strategy_of(privacy: CohortGaussian) -> Strategy | None:
    """Return how noise is correlated over a server's releases; None if it is not.

    Raises:
        ScenarioError: jax_privacy is needed and not installed, or finds no matrix.
    """
    noise, apart, made = privacy.noise, privacy.separation, privacy.releases
    if noise is None or apart is None or made is None:
        return None
    match noise:
        case TreeNoise():
            return Tree(noise.restart_every, noise.estimate == "efficient")
        case SquareRootNoise():
            return square_root(min(noise.bands, made))
        case BandedNoise():
            return banded(noise.bands, made)
        case BltNoise():
            return blt(noise.buffers, made, Participation(apart, privacy.most_of_a_user or made))


def _shown(setup: Setup, privacy: CohortGaussian) -> Iterator[str]:
    """Yield the reasons why the draw of users does not amplify privacy."""
    scenario = setup.scenario
    algorithm = scenario.algorithm
    if _least(scenario):
        yield "a secure sum is aborted if too few survive, and later cohorts may show how many were drawn"
    if scenario.selection is not None and scenario.selection.kind != "uniform":
        yield f"selection {scenario.selection.kind} chooses users by what it knows of them, not by independent draws"
    if privacy.cohorts != "poisson":
        fixed = hasattr(algorithm, "fraction")
        yield (
            "a cohort of a fixed number of users is not made of independent draws; use privacy.cohorts: poisson"
            if fixed
            else "users are in a cohort because they were fast, not by a secret draw"
        )
    if scenario.availability or scenario.server.offline or setup.links.cuts:
        yield (
            "availability, outages or cuts decide which of the drawn users take part, and when, so later cohorts may "
            "show who was drawn"
        )
    if getattr(algorithm, "deadline", None) is not None:
        yield "a deadline makes it depend on the other drawn users whose update is in time"
    if not isinstance(setup.kind.step_size(setup), ConstantStep):
        yield "the step size depends on the number of updates, which shows how many users were drawn"
    if privacy.participation is not None:
        yield "by privacy.participation, who may be in a cohort depends on earlier draws"
    if privacy.releases is None and privacy.epsilon is None:
        yield "privacy.releases: null, and the length of the run may show who was drawn"
