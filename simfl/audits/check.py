"""What is claimed about privacy, held against what the accountant certifies: `simfl privacy check`.

A claim is what a paper (or a report) says that a run spends; the account is what its releases cost under a view and a
neighboring relation. Both are computed from the same releases: those that a run recorded, or those that a scenario
plans, every client taking part equally often.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import numpy as np

from simfl.errors import ConditionError, DataError, ScenarioError
from simfl.privacy.ledger import NOT_CERTIFIED, Ledger, View
from simfl.privacy.releases import Releases
from simfl.privacy.shuffled import KnownUses
from simfl.records import Run, RunFolder
from simfl.records.claims import Check, Claimed, Finding
from simfl.scenario import from_mapping
from simfl.scenario.own_code import nothing_loaded
from simfl.scenario.privacy import MechanismConfig, StatedClaim
from simfl.simulation.runner import prepare
from simfl.simulation.setup import Setup

#: Clients whose epsilons differ by less are shown together.
ALIKE = 0.05

VIEWS: tuple[View, ...] = ("local_transcript", "global_hidden")


def check_run(run: Run) -> Check:
    """Hold what is claimed about a run against what is certified for the releases that it recorded.

    A run is data: nothing of a user's own code is loaded for it.

    Raises:
        ScenarioError, DataError: there is nothing to check, or its scenario needs what is not here.
    """
    with nothing_loaded():
        setup = prepare(from_mapping(run.scenario))
        try:
            return check(setup, run)
        except (ValueError, ArithmeticError, LookupError) as error:  # what no run of the scenario could have recorded
            raise DataError(
                f"{run.folder}: its releases cannot be accounted for: {' '.join(str(error).split())}"
            ) from error


def check(setup: Setup, run: Run | None = None) -> Check:
    """Hold what is claimed against what is certified.

    Args:
        setup: the scenario, made ready.
        run: whose recorded releases count; by default those that the scenario plans.

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
        first = groups[-1][0] if groups else None
        alike = first is not None and (own[client] == own[first] or own[client] >= (1 - ALIKE) * own[first])
        if first is not None and alike and (not claims or _same(claims[client], claims[first])):
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
    return Check(subject, run is None, ledger.statement_of(releases), delta, tuple(findings))


def _same(one: Claimed, other: Claimed) -> bool:
    """Whether the same is claimed of two clients, within what makes them alike."""
    if math.isnan(one.epsilon) or math.isnan(other.epsilon):
        return math.isnan(one.epsilon) and math.isnan(other.epsilon)
    return abs(one.epsilon - other.epsilon) <= ALIKE * max(one.epsilon, other.epsilon)


def recorded(ledger: Ledger, run: Run) -> Releases:
    """Return what a run recorded, and why nothing of it can be certified, if so."""
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
    table = run.releases
    for client, size, level, count in zip(
        table["client"], table["batch_size"], table["level"], table["count"], strict=True
    ):
        if not (0 <= client < len(ledger.sizes) and size >= 1 and 0 < level < math.inf and count >= 0):
            raise DataError(
                f"{run.folder}: releases: expected those of {len(ledger.sizes)} clients, found client {client} with "
                f"{count} of {size} examples at level {level:g}; the table is damaged"
            )
        if size == ledger.batch_size and level == ledger.levels[client]:
            releases.counts[client] += int(count)
        else:
            releases.others.setdefault(int(client), {})[int(size), float(level)] = int(count)
    return releases


def _uses(ledger: Ledger, run: Run) -> list[KnownUses] | None:
    """Return how often an example of each client is in a release; None where an old run does not say."""
    if not RunFolder(run.folder).table_path("uses").exists():
        return None
    known: list[dict[int, int]] = [{} for _ in ledger.sizes]
    table = run.uses
    for client, copies, count in zip(table["client"], table["copies"], table["count"], strict=True):
        if not (0 <= client < len(known) and copies >= 0 and count >= 0):
            raise DataError(f"{run.folder}: uses: found client {client} of {len(known)}; the table is damaged")
        known[int(client)][int(copies)] = int(count)
    return [KnownUses(own) for own in known]


def _accounts(
    ledger: Ledger, releases: Releases, delta: float, relations: set[str]
) -> dict[tuple[str, str], np.ndarray]:
    """Return each client's epsilon under both views, and under the relations that are asked for."""
    found: dict[tuple[str, str], np.ndarray] = {}
    own = ledger.terms.neighbors
    for neighbors in sorted({own, *relations}, key=lambda relation: relation != own):
        if neighbors != own and ledger.pure:
            continue  # the epsilon of one release is that of the scenario's relation
        book = ledger.with_terms(neighbors=neighbors, delta=delta)
        for view in VIEWS if not book.terms.by_server else (book.terms.view,):
            found[view, neighbors] = book.final_epsilon(releases, view)
    return found


# -- claims ----------------------------------------------------------------------------------


def claims_of(privacy: MechanismConfig, ledger: Ledger, releases: Releases) -> list[Claimed]:
    """Return what is claimed for every client; nothing where the scenario names no claim."""
    return [] if privacy.claim is None else _CLAIMS[privacy.claim.kind](privacy, ledger, releases)


def _stated(privacy: MechanismConfig, ledger: Ledger, releases: Releases) -> list[Claimed]:
    """What the scenario says itself."""
    claim = cast(StatedClaim, privacy.claim)
    delta = ledger.delta if claim.delta is None else claim.delta
    stated = Claimed(claim.epsilon, delta, claim.neighbors or ledger.terms.neighbors, claim.source or "stated")
    return [stated] * len(ledger.sizes)


def _per_release(privacy: MechanismConfig, ledger: Ledger, releases: Releases) -> list[Claimed]:
    """The epsilon of one release of each client."""
    if not ledger.pure:
        raise ScenarioError(
            "privacy.claim: expected stated, adp2sgd or proactive_dp with Gaussian noise, found per_release, which "
            "is the claim of Laplace noise"
        )
    neighbors = ledger.terms.neighbors
    return [Claimed(level, ledger.delta, neighbors, "the epsilon of one release") for level in ledger.levels]


def _about_gaussian_noise(privacy: MechanismConfig, ledger: Ledger) -> None:
    if ledger.pure or math.isnan(ledger.terms.clipping_norm):
        raise ScenarioError(
            f"privacy.claim: expected stated or per_release with mechanism {ledger.terms.mechanism}, found "
            f"{getattr(privacy.claim, 'kind', None)}, which is about Gaussian noise on clipped gradients"
        )


def _adp2sgd(privacy: MechanismConfig, ledger: Ledger, releases: Releases) -> list[Claimed]:
    """The smallest epsilon for which Theorem 2 asks for no more noise than there is."""
    _about_gaussian_noise(privacy, ledger)
    from simfl.theory.adp2sgd import smallest_admissible_epsilon, theorem2

    count = len(ledger.sizes)
    setting = {
        "num_workers": count,
        "examples": int(ledger.sizes.min()),
        "batch_size": ledger.batch_size,
        "steps": max(1, sum(releases.total(k) for k in range(count))),
    }
    level = min(ledger.levels)

    def enough(epsilon: float) -> bool:
        return theorem2(epsilon, ledger.delta, **setting).noise_multiplier <= level

    source, objection, epsilon = "A(DP)²SGD, Theorem 2", "", math.nan
    try:
        least = smallest_admissible_epsilon(ledger.delta, **setting)
        if math.isinf(least):
            raise ConditionError("Theorem 2 covers no epsilon for these batches and steps")
        epsilon = _smallest(enough, least * (1 + 1e-9))
        if math.isinf(epsilon):
            objection = "Theorem 2 covers no epsilon with so little noise"
            epsilon = math.nan
    except ConditionError as error:
        objection = str(error)
    return [Claimed(epsilon, ledger.delta, "replace_one", source, objection)] * count


def _smallest(enough: Callable[[float], bool], least: float) -> float:
    """Return the smallest number >= least that is enough, within 1e-6 of itself, inf if there is none that is near."""

    def covered(epsilon: float) -> bool:
        try:
            return enough(epsilon)
        except ConditionError:
            return False  # too large: the theorem's other condition bounds epsilon from above

    if covered(least):
        return least
    high = least
    while not covered(high):
        high *= 1.1
        if high > 1e4 * least:
            return math.inf
    low = high / 1.1
    while high - low > 1e-6 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if covered(middle) else (middle, high)
    return high


def _proactive(privacy: MechanismConfig, ledger: Ledger, releases: Releases) -> list[Claimed]:
    """Theorem B.4 for each client's own rounds."""
    _about_gaussian_noise(privacy, ledger)
    from simfl.theory.proactive_dp.theorems import claimed_epsilon

    source = "Proactive DP, Theorem B.4"
    rows: dict[int, list[tuple[int, int]]] = {}
    noise: dict[int, set[float]] = {}
    for client, size, _, level, count in ledger.kinds(releases):
        rows.setdefault(client, []).append((size, count))
        noise.setdefault(client, set()).add(level)
    found: dict[tuple[int, float, tuple[tuple[int, int], ...]], Claimed] = {}
    result = []
    for client, n in enumerate(ledger.sizes.tolist()):
        schedule = tuple(rows.get(client, ()))
        level = min(noise.get(client, {ledger.levels[client]}))
        key = n, level, schedule
        if key not in found:
            epsilon, objection = 0.0, ""
            if schedule:
                try:
                    epsilon = claimed_epsilon(schedule, n, sigma=level, delta=ledger.delta)
                except ConditionError as error:
                    epsilon, objection = math.nan, str(error)
            found[key] = Claimed(epsilon, ledger.delta, "add_or_remove", source, objection)
        result.append(found[key])
    return result


_CLAIMS = {"stated": _stated, "per_release": _per_release, "adp2sgd": _adp2sgd, "proactive_dp": _proactive}
