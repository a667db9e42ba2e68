"""`simfl privacy check`: privacy claims compared with the accountant.

A claim is the epsilon that a paper (or a report) states for a run; the account is the epsilon of its releases under a
view and a neighboring relation. Both use the same releases: those that a run recorded, or those that a scenario plans,
with the same number for every client.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import cast

import numpy as np

from simfl import plugins
from simfl.assembly.setup import Setup
from simfl.comparison.claims import Check, Claimed, Finding
from simfl.errors import DataError, ScenarioError
from simfl.privacy.assumptions import assumptions
from simfl.privacy.cohorts import CohortLedger
from simfl.privacy.ledger import NOT_CERTIFIED, Ledger
from simfl.privacy.releases import Releases
from simfl.privacy.shuffled import KnownUses
from simfl.privacy.terms import View
from simfl.records import Run, RunFolder
from simfl.runs.runner import prepare
from simfl.scenario import from_mapping
from simfl.scenario.own_code import nothing_loaded
from simfl.scenario.privacy import MechanismConfig, StatedClaim

#: Relative difference of epsilons up to which clients are shown together.
ALIKE = 0.05

VIEWS: tuple[View, ...] = ("local_transcript", "global_hidden")


def check_run(run: Run) -> Check:
    """Compare claims about a run with the account of its recorded releases.

    A run is data: no code of a user is loaded for it.

    Raises:
        ScenarioError, DataError: there is nothing to check, or its scenario needs something that is not installed.
    """
    with nothing_loaded():
        setup = prepare(from_mapping(run.scenario))
        try:
            return check(setup, run)
        except (ValueError, ArithmeticError, LookupError) as error:  # releases that no run can have recorded
            reason = " ".join(str(error).split())
            raise DataError(f"{run.folder}: its releases cannot be accounted for: {reason}") from error


def check(setup: Setup, run: Run | None = None) -> Check:
    """Compare claims with the account of recorded releases, or of planned ones.

    Raises:
        ScenarioError: there is nothing to check, or the scenario's plan does not say how much is released.
    """
    ledger, privacy = setup.ledger, setup.scenario.privacy
    if ledger is None or privacy is None:
        raise ScenarioError("privacy: expected a privacy section to check, found none; add one to the scenario")
    releases = setup.kind.planned(setup) if run is None else recorded(ledger, run)
    claims = claims_of(privacy, ledger, releases)
    delta = claims[0].delta if claims else ledger.delta
    accounts = _accounts(ledger, releases, delta, {claim.neighbors for claim in claims})
    own = np.nan_to_num(accounts[ledger.terms.view, ledger.terms.neighbors], nan=math.inf)
    groups: list[list[int]] = []
    for client in np.argsort(-own, kind="stable").tolist():
        first = groups[-1][0] if groups else client
        alike = own[client] == own[first] or own[client] >= (1 - ALIKE) * own[first]
        if groups and alike and (not claims or _same(claims[client], claims[first])):
            groups[-1].append(client)
        else:
            groups.append([client])
    findings = [
        Finding(
            tuple(clients),
            (min(map(releases.total, clients)), max(map(releases.total, clients))),
            claims[clients[0]] if claims else None,
            {key: float(epsilons[clients[0]]) for key, epsilons in accounts.items()},
            ledger.terms.view,
            ledger.terms.by_server,
        )
        for clients in groups
    ]
    subject = setup.scenario.name if run is None else f"{run.name} ({run.folder.name})"
    statement, assumed = ledger.statement_of(releases), assumptions(ledger, releases)
    per_client = _per_client(ledger.with_terms(delta=delta), releases, run)
    return Check(subject, run is None, statement, delta, tuple(findings), assumed, per_client)


def _per_client(ledger: Ledger, releases: Releases, run: Run | None) -> tuple[float, ...]:
    """Return the epsilon of each client by itself, where users own several clients.

    One client adds nothing; the user's other clients take part as they did. Empty where it is the user's epsilon, or
    where the releases of single clients are not known.
    """
    if not isinstance(ledger, CohortLedger) or ledger.plan.users is None or ledger.plan.strategy is not None:
        return ()
    if not ledger.accounts_for(releases):
        return ()
    clients, alone = len(ledger.sizes), ledger.with_terms()
    alone.plan = dataclasses.replace(ledger.plan, users=None)
    own = Releases([0] * clients)
    if ledger.amplifies(releases):
        own.cohorts, own.counts = releases.cohorts, [releases.cohorts] * clients
    elif run is not None:
        for client, updates in run.cohorts[["client", "updates"]].itertuples(index=False):
            own.counts[client] += int(updates) ** 2
    else:
        return ()
    return tuple(alone.final_epsilon(own).tolist())


def _same(one: Claimed, other: Claimed) -> bool:
    """Whether the claims for two clients are equal, within `ALIKE`."""
    if math.isnan(one.epsilon) or math.isnan(other.epsilon):
        return math.isnan(one.epsilon) and math.isnan(other.epsilon)
    return abs(one.epsilon - other.epsilon) <= ALIKE * max(one.epsilon, other.epsilon)


def recorded(ledger: Ledger, run: Run) -> Releases:
    """Return a run's recorded releases, and the reason if they cannot be certified."""
    releases = Releases([0] * len(ledger.sizes))
    stated = str(run.manifest.extra.get("privacy", ""))
    if ledger.accounted and stated.startswith(NOT_CERTIFIED):
        releases.refusal = stated.removeprefix(NOT_CERTIFIED)
    if ledger.by_passes:
        releases.passes = _uses(ledger, run)
        if releases.passes is None:
            releases.refusal = releases.refusal or (
                "the run did not record how often an example is in a release of shuffled data; run it again"
            )
    columns = ["client", "batch_size", "sampling_rate", "level", "count"]
    for client, size, rate, level, count in run.releases[columns].itertuples(index=False):
        if not (0 <= client < len(ledger.sizes) and size >= 1 and 0 <= level < math.inf and count >= 0):
            raise DataError(
                f"{run.folder}: releases: expected those of {len(ledger.sizes)} clients, found client {client} with "
                f"{count} of {size} examples at level {level:g}; the table is damaged"
            )
        if ledger.counts_cohorts and rate < 1.0:
            releases.counts[client] = int(count)  # of all users, drawn or not
            releases.cohorts = ledger.cohorts_after(int(count))
        elif size == ledger.nominal(int(ledger.sizes[client])) and level == ledger.levels[client]:
            releases.counts[client] += int(count)
        else:
            releases.others.setdefault(int(client), {})[int(size), float(level)] = int(count)
    return releases


def _uses(ledger: Ledger, run: Run) -> list[KnownUses] | None:
    """Return uses of each client's examples; None if an old run did not record them."""
    if not RunFolder(run.folder).table_path("uses").exists():
        return None
    known: list[dict[int, int]] = [{} for _ in ledger.sizes]
    for client, copies, count in run.uses[["client", "copies", "count"]].itertuples(index=False):
        if not (0 <= client < len(known) and copies >= 0 and count >= 0):
            raise DataError(f"{run.folder}: uses: found client {client} of {len(known)}; the table is damaged")
        known[int(client)][int(copies)] = int(count)
    return [KnownUses(own) for own in known]


def _accounts(
    ledger: Ledger, releases: Releases, delta: float, relations: set[str]
) -> dict[tuple[str, str], np.ndarray]:
    """Return each client's epsilon under both views and under some relations."""
    epsilons: dict[tuple[str, str], np.ndarray] = {}
    own = ledger.terms.neighbors
    for neighbors in sorted({own, *relations}, key=lambda relation: relation != own):
        if neighbors != own and ledger.pure:
            continue  # the epsilon of one release is that of the scenario's relation
        book = ledger.with_terms(neighbors=neighbors, delta=delta)
        for view in VIEWS if not book.terms.by_server else (book.terms.view,):
            epsilons[view, neighbors] = book.final_epsilon(releases, view)
    return epsilons


#: (mechanism, ledger, releases) -> the claims of all clients.
ClaimFunction = Callable[[MechanismConfig, Ledger, Releases], list[Claimed]]


def claims_of(privacy: MechanismConfig, ledger: Ledger, releases: Releases) -> list[Claimed]:
    """Return the claim for every client; an empty list if the scenario has none."""
    if privacy.claim is None:
        return []
    kind = privacy.claim.kind
    claim = _CORE_CLAIMS[kind] if kind in _CORE_CLAIMS else plugins.load("claims", kind)
    return claim(privacy, ledger, releases)


def _stated(privacy: MechanismConfig, ledger: Ledger, releases: Releases) -> list[Claimed]:
    claim = cast(StatedClaim, privacy.claim)
    delta = ledger.delta if claim.delta is None else claim.delta
    stated = Claimed(claim.epsilon, delta, claim.neighbors or ledger.terms.neighbors, claim.source or "stated")
    return [stated] * len(ledger.sizes)


def _per_release(privacy: MechanismConfig, ledger: Ledger, releases: Releases) -> list[Claimed]:
    if not ledger.pure:
        raise ScenarioError(
            "privacy.claim: expected stated, adp2sgd or proactive_dp with Gaussian noise, found per_release, which "
            "is the claim of Laplace noise"
        )
    neighbors = ledger.terms.neighbors
    return [Claimed(level, ledger.delta, neighbors, "the epsilon of one release") for level in ledger.levels]


def check_gaussian(privacy: MechanismConfig, ledger: Ledger) -> None:
    """Raise a `ScenarioError` unless noise is Gaussian, on clipped gradients."""
    if ledger.pure or math.isnan(ledger.terms.clipping_norm):
        raise ScenarioError(
            f"privacy.claim: expected stated or per_release with mechanism {ledger.terms.mechanism}, found "
            f"{getattr(privacy.claim, 'kind', None)}, which is about Gaussian noise on clipped gradients"
        )


_CORE_CLAIMS: Mapping[str, ClaimFunction] = {"stated": _stated, "per_release": _per_release}
