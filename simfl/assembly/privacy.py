"""The noise and the ledger, from the privacy section."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.assembly.cohorts import check_adaptive, check_end, cohorts_of, planned_sums, within_budget
from simfl.assembly.setup import Protection, Setup
from simfl.errors import ScenarioError
from simfl.plugins import is_simfls
from simfl.privacy.accounting import Accountant
from simfl.privacy.calibration import least_noise
from simfl.privacy.cohorts import CohortLedger
from simfl.privacy.correlated import Correlation, InTime, Pairwise
from simfl.privacy.correlated_cohorts import CorrelatedCohortLedger
from simfl.privacy.distributed import DiscreteLedger
from simfl.privacy.in_time import InTimeLedger, noising_coefficients, participation
from simfl.privacy.ledger import Ledger
from simfl.privacy.mechanisms import MECHANISMS
from simfl.privacy.over_graph import over_graph
from simfl.privacy.terms import OF_HOLDERS, Terms
from simfl.records.display import show_range

#: A warning says that a client has few examples if it has less than this.
HANDFUL = 10

_PARTIAL = (
    "only the gradient of the first convolution carries noise; those of all other layers, which are functions of the "
    "raw examples, are sent as they are"
)


_SHARED: dict[str | None, str] = {
    "pairwise": "own noise alone: all neighbors may tell what they share",
    "over_graph": "own noise alone: all other clients may tell what they share",
}


def protect(setup: Setup) -> Protection:
    """Return the protection of the privacy section.

    Raises:
        ConditionError: if a budget cannot be kept with any noise.
    """
    privacy, kind, count = setup.scenario.privacy, setup.kind, len(setup.sizes)
    if privacy is None:
        noise = _noise_of_theory(setup)
        return Protection(None, "example", "gaussian", noise, noise)
    from simfl.privacy.noise import unit_std  # imports JAX

    make = MECHANISMS[privacy.mechanism]
    given = {name: getattr(privacy, name) for name in type(privacy).model_fields if name != "unit"}
    if privacy.by_server:  # the account of a server's sums has one view
        del given["view"]
    adaptive = privacy.adaptive is not None
    if adaptive:  # noise comes in units of the present norm
        given["clipping_norm"] = 1.0
    terms = Terms(
        unit=make.unit,
        refusal=make.refusal or (_PARTIAL if privacy.partial else kind.refusal),
        by_server=setup.scenario.noise_of_server,
        disregards=_SHARED.get(privacy.correlated),
        **_arguments(Terms, {"clipping_norm": math.nan, **given}),
    )
    level, noising = given[make.level], _noising_of(setup)
    levels = _calibrated(setup, terms, given["epsilon"], noising) if level is None else _each(level, count)
    try:
        mechanisms = [make(**_arguments(make, {**given, make.level: level})) for level in levels]
    except ValueError as error:  # the schema does not know calibrated levels, or the limits of a plugin's mechanism
        raise ScenarioError(f"privacy.{error}") from None
    # Noise is added to the sum of a mini-batch, which the algorithms then divide by its size to get an update.
    shares = kind.batch_sizes(setup.sizes.tolist()) if make.unit == "client" and not kind.local else [1] * count
    scales = [share * mechanism.scale(setup.dimension) for share, mechanism in zip(shares, mechanisms, strict=True)]
    unit = unit_std(make.sampler, setup.dimension)
    correlation = _correlation_of(setup, scales, noising)
    stretch = [1.0 if correlation is None else correlation.stretch(client) for client in range(count)]
    ledger = _ledger(setup, terms, setup.sizes, levels, make.pure, noising)
    plan = ledger.plan if isinstance(ledger, CohortLedger) else None
    check_adaptive(plan)
    if plan is not None and ledger.draws_secretly and given["epsilon"] is not None:
        check_end(setup, plan)
    return Protection(
        clipping_norm=math.inf if adaptive else given.get("clipping_norm"),
        clip="example" if make.unit == "example" else "update",
        sampler=make.sampler,
        scales=scales,
        stds=[scale * unit * stretched for scale, stretched in zip(scales, stretch, strict=True)],
        ledger=ledger,
        correlation=correlation,
        cohorts=plan,
    )


def _noise_of_theory(setup: Setup) -> list[float]:
    """Return the deviations of `algorithm.gradient_noise` per coordinate of sums, [K]."""
    algorithm = setup.scenario.algorithm
    if algorithm.gradient_noise and (setup.kind.local or algorithm.uses.gradient == "own_norm" or setup.tasks > 1):
        raise ScenarioError(
            f"algorithm.gradient_noise: expected 0 with {algorithm.kind}, found {algorithm.gradient_noise:g}: noise is "
            "added to single mini-batch gradients of one model; use decentralized_sgd or sync_sgd, for example"
        )
    sizes = setup.kind.batch_sizes(setup.sizes.tolist())
    return [size * algorithm.gradient_noise / math.sqrt(setup.dimension) for size in sizes]


def noise_of(setup: Setup) -> dict[str, tuple[float, float]]:
    """Return the least and largest noise of clients by field; empty without noise."""
    privacy, ledger = setup.scenario.privacy, setup.ledger
    if privacy is None or ledger is None:
        return {}
    field = MECHANISMS[privacy.mechanism].level if privacy.mechanism in MECHANISMS else "noise_multiplier"
    return {field: (min(ledger.levels), max(ledger.levels))}


def annotated(setup: Setup) -> str:
    """Return the resolved scenario as YAML, with the noise of a budget as comment."""
    lines = [
        f"# Noise of this run: privacy.{field} = {show_range(*ends)}, computed from privacy.epsilon.\n"
        for field, ends in noise_of(setup).items()
        if getattr(setup.scenario.privacy, field, None) is None
    ]
    return "".join(lines) + setup.scenario.to_yaml()


def _ledger(
    setup: Setup,
    terms: Terms,
    sizes: NDArray[np.int64],
    levels: Sequence[float],
    pure: bool,
    noising: tuple[float, ...] | None,
) -> Ledger:
    """Return the ledger for clients of these sizes."""
    batches = setup.scenario.algorithm.batch_size, setup.kind.sampling
    plan = cohorts_of(setup, levels[0] * terms.clipping_norm)
    if plan is not None:
        made = CohortLedger if plan.grid is None else DiscreteLedger
        if plan.strategy is not None:
            made = CorrelatedCohortLedger
        ledger = made(terms, sizes, *batches, levels, plan)
        ledger.plan = within_budget(setup, ledger)
        return ledger
    if noising is None:
        of_examples = setup.kind.ledger(terms, sizes, *batches, levels, pure)
        of_examples.resized = setup.kind.resized
        return of_examples
    return InTimeLedger(dataclasses.replace(terms, amplification=False), sizes, *batches, levels, noising)


def _noising_of(setup: Setup) -> tuple[float, ...] | None:
    """Return the coefficients of noise correlated over time; None for other noise.

    Raises:
        ScenarioError: releases are not single mini-batches, their number is not planned, or jax_privacy is missing.
    """
    privacy, algorithm, stop = setup.scenario.privacy, setup.scenario.algorithm, setup.scenario.stop
    if privacy is None or (noise := privacy.shared_noise) is None:
        return None
    single = setup.kind.released_whole and not setup.kind.local and algorithm.uses.gradient != "own_norm"
    if not single or algorithm.noise_of_server or setup.tasks > 1:
        raise ScenarioError(
            f"privacy.noise: expected null, found {privacy.correlated}, with {algorithm.kind}: noise is correlated "
            "between releases of single mini-batches of one model; use adpsgd or decentralized_sgd, for example"
        )
    if noise.correlated != "in_time":
        return None
    strategy, window = noise.strategy, noise.window
    if strategy.size is None:
        return noising_coefficients(strategy.kind, window)
    if noise.horizon is None and stop.epochs is None and stop.updates is None:
        raise ScenarioError(
            "privacy.noise.horizon: expected a number of releases, or stop.epochs or stop.updates, from which it "
            f"follows, found only a time; add it: strategy {strategy.kind} is made for a number of releases"
        )
    releases = noise.horizon or setup.kind.planned_updates(setup.sizes.tolist())
    takes = participation(setup.kind.sampling, int(setup.sizes.min()), algorithm.batch_size, releases)
    return noising_coefficients(strategy.kind, window, size=strategy.size, releases=releases, takes=takes)


def _correlation_of(setup: Setup, scales: Sequence[float], noising: tuple[float, ...] | None) -> Correlation | None:
    """Return the composition of each release's noise; None if it is independent.

    Args:
        setup: accepted by `_noising_of`.
        scales: standard deviation of each client's own noise on the sum of a mini-batch, [K].
        noising: the result of `_noising_of`.

    Raises:
        ScenarioError: there are no neighbors, they change, or there is no noise.
    """
    privacy, algorithm = setup.scenario.privacy, setup.scenario.algorithm
    if privacy is None or (noise := privacy.shared_noise) is None:
        return None
    if min(scales) == 0.0:
        raise ScenarioError(
            "privacy.noise_multiplier: expected more than 0 beside noise, found 0: correlated noise comes in units of "
            "a client's own, without which nothing is private; raise it"
        )
    if noise.correlated == "in_time":
        assert noising is not None, "`_noising_of` returned them"
        return InTime(noising)
    wrong = f"privacy.noise: expected null, found {noise.correlated}, with"
    if not algorithm.follows_topology:
        raise ScenarioError(
            f"{wrong} {algorithm.kind}, whose clients have no neighbors in topology; use decentralized_sgd, adpsgd, "
            "gossip_learning, or sgp with graph: topology"
        )
    if setup.changing is not None:
        raise ScenarioError(
            f"{wrong} topology '{setup.scenario.topology.kind}', which changes: seeds are shared over edges that stay"
        )
    if noise.correlated == "over_graph":
        mixing = setup.topology.mixing_matrix(setup.scenario.topology.mixing).toarray()
        return over_graph(mixing, scales, setup.learning.key("pair-noise"), noise.ridge)
    edges = sorted((k, m) for k in range(len(scales)) for m in setup.topology.neighbors(k) if k < m)
    std = noise.pair_multiplier * privacy.clipping_norm  # type: ignore[attr-defined]
    return Pairwise.over(edges, std, scales, setup.learning.key("pair-noise"))


def qualified(protection: Protection, setup: Setup) -> Protection:
    """Return the protection; its ledger names what it does not count and trusts."""
    start, ledger, kind = setup.start, protection.ledger, setup.scenario.algorithm.kind
    if ledger is None:
        return protection
    uncounted, warnings = [], protection.warnings
    if setup.holders is not None and ledger.terms.unit == "example" and not ledger.counts_holders:
        uncounted.append(OF_HOLDERS)
    if start is not None:
        what = f"what training the model that it starts from ({start.path}) released of the same data"
        uncounted.append(what)
        if ledger.accounted:
            covers = f"init.from: epsilon covers this run alone, not counting {what}"
            warnings = (*warnings, f"{covers}; add what that run spent on the same data")
    if (aside := setup.dataset.validation) is not None:
        form = getattr(setup.scenario.data.validation, "kind", None)
        theirs = form == "clients" or (form is None and setup.dataset.groups is not None)
        whose = "are of the clients' own data" if theirs else "no client holds"
        uncounted.append(
            f"what evaluations tell, and what is chosen by them, of the {len(aside[1]):,} examples of data.validation, "
            f"which {whose}: it covers training examples only"
        )
    if not (is_simfls(setup.algorithm) and is_simfls(type(setup.kind))):
        uncounted.append(
            f"what the code of {kind} makes of data beside the gradients of the tape, nor that it may drop gradients "
            "for their sizes"
        )
    trusts = [*_trusted(setup, protection)]
    if not uncounted and not trusts:
        return protection
    ledger = ledger.with_terms(uncounted=tuple(uncounted), trusts=" and that ".join(trusts) or None)
    return dataclasses.replace(protection, ledger=ledger, warnings=warnings)


def _trusted(setup: Setup, protection: Protection) -> Iterator[str]:
    """Yield what code outside of simfl must do for the epsilon to hold."""
    privacy, model = setup.scenario.privacy, setup.model
    if protection.clip == "example" and model.clipped_by is not None:
        yield f"{model.clipped_by} of model {setup.scenario.model.kind} clips every example"
    mechanism = MECHANISMS.get(privacy.mechanism) if privacy is not None else None
    if mechanism is not None and not is_simfls(mechanism):
        yield f"mechanism {mechanism.kind} of {mechanism.__module__} adds the noise of its {mechanism.level}"


def privacy_warnings(setup: Setup) -> Iterator[str]:
    """Yield warnings about facts that epsilon does not cover."""
    ledger, data, sizes = setup.ledger, setup.scenario.data, setup.sizes
    if ledger is None or not ledger.accounted:
        return
    if ledger.terms.trusts is not None:
        advice = f"; without {setup.model.clipped_by}, simfl clips every example itself" * bool(setup.model.clipped_by)
        yield f"privacy: epsilon holds only if {ledger.terms.trusts}, which simfl cannot prove{advice}"
    smallest, whole = int(np.argmin(sizes)), ledger.terms.unit != "example"
    n = len(sizes) if whole else int(sizes[smallest])
    if ledger.delta * n > 1.001:  # some papers take 1/n, rounded
        whose = f"{ledger.terms.unit}s" if whole else f"examples of client {smallest}"
        yield (
            f"privacy.delta: {ledger.delta:g} is more than 1/{n}, one over the number of {whose}: publishing one of "
            f"them as it is would keep such a promise; use less than {1 / n:.2g}"
        )
    if not whole and n < HANDFUL:
        few = int(np.count_nonzero(sizes < HANDFUL))
        yield (
            f"data.partition: found {few} client{'s' * (few > 1)} with fewer than {HANDFUL} examples, client "
            f"{smallest} with {n}: epsilon hides one example, not what so few have in common"
        )
    bare = [] if ledger.pure else [client for client, level in enumerate(ledger.levels) if level == 0]
    if bare and setup.scenario.privacy is not None and "noise_multiplier" in dict(setup.scenario.privacy.lists()):
        shown = ", ".join(map(str, bare[:8])) + (", ..." if len(bare) > 8 else "")
        yield (
            f"privacy.noise_multiplier: 0 for client{'s' * (len(bare) > 1)} {shown}: no noise, no privacy and an "
            "infinite epsilon; give every client more than 0"
        )
    if (fitted := getattr(data, "fitted", ())) and getattr(data, "fit_on", None) is None:
        yield (
            f"data.{fitted[0]}: statistics of all clients' examples are taken before training, outside of "
            "epsilon; take them from public ones with data.fit_on: {public: 1000}"
        )


def _arguments(of: type[Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the values of the fields of a dataclass, by name."""
    return {field.name: given[field.name] for field in dataclasses.fields(of) if field.name in given}


def _each(value: float | Sequence[float], count: int) -> list[float]:
    return [float(item) for item in np.broadcast_to(np.asarray(value, dtype=float), count)]


def _calibrated(
    setup: Setup, terms: Terms, epsilon: float | Sequence[float], noising: tuple[float, ...] | None
) -> list[float]:
    """Return each client's noise multiplier that spends its budget as planned."""
    planned = setup.kind.planned_releases(setup.sizes.tolist())
    # A client's planned epsilon depends only on its size and budget.
    kinds = list(zip(setup.sizes.tolist(), _each(epsilon, len(setup.sizes)), strict=True))
    accountant = terms.accountant if len(set(kinds)) <= 4 else "renyi"
    stds: dict[tuple[int, float], float] = {}
    for n, budget in dict.fromkeys(kinds):
        probe = _ledger(setup, terms, np.array([n]), [1.0], False, noising)
        if not probe.accounted:
            raise ScenarioError(f"privacy.epsilon: expected terms under which an epsilon holds; {probe.statement}")
        steps = planned_sums(setup, probe) if isinstance(probe, CohortLedger) else planned

        def spent(level: float, by: Accountant, probe: Ledger = probe, steps: int = steps) -> float:
            return probe.epsilon_as_planned(steps, by, level)

        stds[n, budget] = least_noise(spent, budget, accountant)
    return [stds[kind] for kind in kinds]
