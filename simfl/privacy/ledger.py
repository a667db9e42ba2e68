"""Account for each client's releases: (epsilon, delta) by dp-accounting.

The ledger reads the releases that a run recorded, not a plan: in asynchronous runs, the number of a client's releases
is an outcome. It composes the releases of each client (batch sizes and noise may change between releases), under the
neighboring relation and the view of the scenario. Releases that it cannot certify have no epsilon (NaN), and a reason.

Views:

- `local_transcript`: the adversary sees everything that one client ever sent, and knows the client. Each client's data
  is sampled at its own rate q = B / n_k, in each of its releases.
- `global_hidden`: the adversary sees all updates in their order, but not their senders. Then an example of a client is
  in the next update with probability q p_k; with p_k = 1/K, all updates are releases at rate max_k B / (K n_k). Hidden
  names are not enough: the clients' updates must also have the same distribution, which a scenario cannot establish.
  This epsilon is reported because papers assume it, and every statement says so; it is not certified. A client's own
  transcript reveals at least as much, so no client's epsilon is larger than in the other view.

Shuffled data is accounted by passes: in every pass an example is in one batch, and the adversary may know which. A
batch that reaches from one pass into the next may hold an example twice, which is a release of twice the sensitivity
(`simfl.privacy.shuffled`).
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from simfl.privacy.accounting import (
    Accountant,
    Release,
    RenyiTable,
    central_releases,
    epsilon_of,
    pairs_of,
    refusal,
    renyi_to_epsilon,
)
from simfl.privacy.calibration import releases_within
from simfl.privacy.releases import Releases, Tally
from simfl.privacy.shuffled import KnownUses, Uses, planned_uses
from simfl.privacy.terms import Terms, View

Composition = tuple[tuple[Release, int], ...]

#: Start of a statement that gives the reason why there is no epsilon.
NOT_CERTIFIED = "not certified: "
#: End of a statement: outputs of a run that no epsilon covers.
OUTSIDE = "outside of it: evaluations, statistics of the data taken before training, the sizes that batches really had"
#: End of a statement where some clients are hostile.
HONEST = "for honest clients, whatever the attackers send; the attackers themselves have no epsilon"
#: Maximum number of compositions whose privacy loss distributions are computed at the end of a run.
AFFORDABLE = 8
#: Share of a budget at which the search for the number of releases ends.
ENOUGH = 0.998
#: Number of kinds of releases above which the Renyi accountant uses integer orders only.
MANY_KINDS = 24


def greatest(epsilons: NDArray[np.float64]) -> float:
    """Return the largest epsilon of clients that have one; NaN if none has."""
    return float(np.fmax.reduce(epsilons))


class Ledger:
    """Accounts for the releases of a run.

    `sizes` are the examples per client, int [K]; `batch_size` is B, the nominal examples per mini-batch, or all of a
    client that has fewer. `levels` are
    the noise multipliers of each client's releases, float [K], or for a `pure` mechanism the epsilon of each release.
    """

    #: Whether the account of an example includes the releases of all clients that hold it.
    counts_holders: ClassVar[bool] = False
    #: Whether releases are sums of clients' updates, to which a server adds noise (`simfl.privacy.cohorts`).
    counts_cohorts: ClassVar[bool] = False
    #: The counter of a run's releases.
    counted_by: ClassVar[type[Tally]] = Tally
    #: Whether each epsilon has a closed form, so that all of them are as cheap as the largest.
    closed_form: ClassVar[bool] = False
    #: Number of models trained on the same data; their promises have client * tasks + task as the client.
    tasks: int = 1
    #: Hostile clients, which may send their data as they are: they have no epsilon.
    attackers: frozenset[int] = frozenset()
    #: Whether batches change their sizes, which only releases say.
    resized: bool = False

    def __init__(
        self,
        terms: Terms,
        sizes: NDArray[np.int64],
        batch_size: int,
        sampling: str,
        levels: Sequence[float],
        pure: bool = False,
    ) -> None:
        self.sizes = np.asarray(sizes, dtype=np.int64)
        self.batch_size = batch_size
        self.sampling = sampling
        self.levels = [float(level) for level in levels]
        self.pure = pure
        self._smallest = int(self.sizes.min())
        self._promise(terms)

    def _promise(self, terms: Terms) -> None:
        self.terms = terms
        self.delta = terms.delta
        self._refusal = terms.refusal or self._reason()
        kinds = {(int(n), level) for n, level in zip(self.sizes, self.levels, strict=True)}
        self._views = RenyiTable(closed_form=True)
        self._table = RenyiTable(closed_form=len(kinds) > MANY_KINDS)

    def with_terms(self, **changes: Any) -> Self:
        """Return the same ledger with some fields of `Terms` changed."""
        other = copy.copy(self)
        other._promise(dataclasses.replace(self.terms, **changes))
        return other

    def nominal(self, examples: int) -> int:
        """Return the nominal mini-batch of a client by its number of examples."""
        return min(self.batch_size, examples)

    @property
    def by_passes(self) -> bool:
        """Whether the account counts uses of an example in passes over shuffled data."""
        return self.sampling == "shuffle" and self.terms.unit == "example"

    @property
    def draws_secretly(self) -> bool:
        """Whether planned releases are accounted as a server's secret draws."""
        return False

    def cohorts_after(self, count: int) -> int:
        """Return the releases of a server, of which a user was drawn for `count`."""
        return count

    def _reason(self) -> str | None:
        return refusal(self.sampling, self.terms.neighbors) if self.terms.unit == "example" else None

    @property
    def accounted(self) -> bool:
        """Whether there is an epsilon under the terms and their assumptions."""
        return self._refusal is None

    @property
    def certified(self) -> bool:
        """Whether an epsilon holds for any data, not only if clients' data are alike."""
        return self.accounted and not self._hides(None)

    @property
    def statement(self) -> str:
        """One line: the meaning of the epsilon, or the reason why there is none."""
        return self._said_of(None)

    def _stated(self, sizes: set[int]) -> str:
        """Return the statement on batches of these sizes; without any, of the nominal."""
        terms = self.terms
        if self._refusal is not None:
            return f"{NOT_CERTIFIED}{self._refusal}"
        relation = {
            ("client", "add_or_remove"): "a client that takes part or sends noise only",
            ("client", "replace_one"): "replacing all data of one client",
            ("example", "add_or_remove"): "adding or removing one example",
            ("example", "replace_one"): "replacing one example",
        }[terms.unit, terms.neighbors]
        view = {
            "local_transcript": "local view (all that the client ever sent)",
            "global_hidden": "global view: holds only if the senders of updates stay hidden and all clients' data "
            "are alike",
        }[terms.view]
        if terms.by_server:
            relation = relation.replace("sends noise only", "adds nothing")
            view = "central view (the server's models; the server itself sees what clients send)"
        if terms.disregards is not None:
            view = f"{view}, {terms.disregards}"
        whom = "of a client" if terms.unit == "example" else "with its data"
        return (
            f"(epsilon, delta = {self.delta:g}) per {terms.unit} {whom}, neighboring data sets by {relation}, {view}, "
            f"{self._sampled(sizes)}, {self._accountant}; {OUTSIDE}"
        )

    @property
    def _accountant(self) -> str:
        return {
            "tightest": "Renyi accountant, tightened at the end by privacy loss distributions where affordable",
            "renyi": "Renyi accountant",
            "pld": "privacy loss distributions",
        }[self.terms.accountant]

    def _sampled(self, sizes: set[int]) -> str:
        """In words: how examples are chosen for a release, and which part is secret."""
        if self.terms.unit != "example":
            return "no sampling within a client"
        sizes = sizes or (set() if self.resized else {self.batch_size})
        if self.terms.view == "global_hidden" and not self.by_passes and self.terms.amplification:
            whole = f"/({len(self.sizes)} * {self._smallest})"
            rate = _ends({min(size, self._smallest) for size in sizes}, whole)
            return f"an example in an update with probability {rate}, the smallest n held fixed"
        fewer = max(sizes, default=0) > self._smallest
        some = f"{_ends(sizes)}, or all where n is less," if fewer else _ends(sizes)
        batch = {
            "poisson": f"each of a client's n examples in a batch with probability {_ends(sizes, '/n')}"
            f"{', at most 1' * fewer}, n held fixed",
            "shuffle": f"batches of {some} of a client's n shuffled examples, accounted by passes",
        }.get(self.sampling, f"batches of {some} of a client's n examples drawn afresh, n held fixed")
        return batch if self.terms.amplification else f"{batch}, no amplification by sampling"

    def certifies(self, releases: Releases) -> bool:
        """Whether an epsilon holds for these releases and any data."""
        return self.certified and releases.refusal is None

    def accounts_for(self, releases: Releases) -> bool:
        """Whether there is an epsilon of these releases under the terms."""
        return self.accounted and releases.refusal is None

    def statement_of(self, releases: Releases) -> str:
        """Return the meaning of the releases' epsilon in one line, or why there is none."""
        if self.accounted and releases.refusal is not None:
            return f"{NOT_CERTIFIED}{releases.refusal}"
        parts, terms = [self._said_of(releases)], self.terms
        if self.accounted and terms.uncounted:
            parts.append(f"not counting {'; nor '.join(terms.uncounted)}")
        if self.accounted and terms.trusts is not None:
            parts.append(f"assuming that {terms.trusts}")
        if self.accounted and self.attackers:
            parts.append(HONEST)
        return "; ".join(parts)

    def _said_of(self, releases: Releases | None) -> str:
        """Return the first part of `statement_of`; of planned releases if none are given."""
        if releases is None:
            return self._stated(set())
        nominal = {self.batch_size} if any(releases.counts) else set()
        return self._stated(nominal.union(size for kinds in releases.others.values() for size, _ in kinds))

    # -- releases ------------------------------------------------------------------------------

    def compositions(self, releases: Releases, view: View | None = None) -> list[Composition]:
        """Return the composition of each client's releases."""
        if self.by_passes:  # an adversary that sees more than one pass may recognize the client by its order
            return [
                self._of_uses(uses, [level for _, level in self._kinds_of(client, releases)])
                for client, (uses,) in enumerate(self.uses(releases))
            ]
        if self._hides(view):
            return self._hidden(releases)
        composed = functools.cache(lambda n, level, count: self._composition(n, {(self.nominal(n), level): count}))
        return [
            self._composition(n, self._kinds_of(client, releases))
            if client in releases.others
            else composed(n, level, releases.counts[client])
            for client, (n, level) in enumerate(zip(self.sizes.tolist(), self.levels, strict=True))
        ]

    def _release(self, level: float, rate: float, sampling: str) -> Release:
        if not self.terms.amplification:
            sampling, rate = "none", 1.0
        if self.pure:
            return Release(0.0, rate, sampling, level)  # type: ignore[arg-type]
        return Release(level, rate, sampling)  # type: ignore[arg-type]

    def _composition(self, n: int, kinds: Mapping[tuple[int, float], int]) -> Composition:
        kinds = {kind: count for kind, count in sorted(kinds.items()) if count}
        if self.terms.unit != "example":
            return tuple((self._release(level, 1.0, "none"), count) for (_, level), count in kinds.items())
        if self.sampling == "shuffle":
            uses = planned_uses(n, _batches(kinds), self.pure)
            return self._of_uses(KnownUses(uses), [level for _, level in kinds])
        return tuple(
            (self._release(level, min(1.0, size / n), self.sampling), count) for (size, level), count in kinds.items()
        )

    def _of_uses(self, uses: Uses, levels: Sequence[float]) -> Composition:
        """Return the composition of shuffled data, as if all had the least noise."""
        if not levels:
            return ()
        if not self.pure:
            return ((self._release(min(levels), 1.0, "none"), uses.cost),)
        copies = sorted(uses.copies(additive=True).items())
        return tuple((self._release(m * max(levels), 1.0, "none"), count) for m, count in copies)

    def _kinds_of(self, client: int, releases: Releases) -> dict[tuple[int, float], int]:
        """Return (batch size, level) -> count of one client's releases."""
        usual = self.nominal(int(self.sizes[client])), self.levels[client]
        kinds = dict(releases.others.get(client, {}))
        kinds[usual] = kinds.get(usual, 0) + releases.counts[client]
        return {kind: count for kind, count in kinds.items() if count}

    def uses(self, releases: Releases) -> list[list[Uses]]:
        """Return the most releases that one example of each client is in; [K][tasks].

        Released batches that were not recorded are taken to be consecutive.
        """
        if releases.passes is None:
            return [
                [KnownUses(planned_uses(n, _batches(self._kinds_of(client, releases)), self.pure))]
                for client, n in enumerate(self.sizes.tolist())
            ]
        each = len(releases.passes) // len(self.sizes)
        return [list(releases.passes[at : at + each]) for at in range(0, len(releases.passes), each)]

    def copies(self, releases: Releases) -> list[tuple[int, int, int]]:
        """Return (client, copies of one example in a release, number of such releases).

        It is empty unless data is shuffled. Tasks are added up.
        """
        rows = []
        for client, tasks in enumerate(self.uses(releases) if self.by_passes else []):
            total: Counter[int] = Counter()
            for uses in tasks:
                total.update(uses.copies(self.pure))
            rows += [(client, copies, count) for copies, count in sorted(total.items()) if count]
        return rows

    def _hidden(self, releases: Releases) -> list[Composition]:
        """Return all updates as releases at rate max_k B / (K n_k), for every client."""
        count = len(self.sizes)
        kinds: Counter[tuple[int, float]] = Counter()
        for client in range(count):
            kinds.update(self._kinds_of(client, releases))
        sampling = "poisson" if self.sampling == "poisson" else "without_replacement"
        whole = tuple(
            (self._release(level, min(size, self._smallest) / (count * self._smallest), sampling), made)
            for (size, level), made in sorted(kinds.items())
        )
        return [whole] * count

    def kinds(self, releases: Releases) -> list[tuple[int, int, float, float, int]]:
        """Return (client, batch size, sampling rate, level, count) of every kind."""
        rows = []
        for client, n in enumerate(self.sizes.tolist()):
            kinds = sorted(self._kinds_of(client, releases).items())
            rows += [(client, size, min(1.0, size / n), level, count) for (size, level), count in kinds]
        return rows

    # -- epsilon -------------------------------------------------------------------------------

    def _renyi(self, compositions: Iterable[Composition]) -> dict[Composition, float]:
        """Return epsilon of each by the Renyi accountant, all at once."""
        distinct = list(dict.fromkeys(compositions))
        pairs = [pairs_of(composition, self.terms.neighbors) for composition in distinct]
        kinds = list(dict.fromkeys(pair for composition in pairs for pair, _ in composition))
        if not kinds:
            return dict.fromkeys(distinct, 0.0)
        column = {pair: index for index, pair in enumerate(kinds)}
        table = self._table.divergences(kinds)
        total = np.empty((len(distinct), table.shape[1]))
        for row, composition in enumerate(pairs):
            made = {column[pair]: float(count) for pair, count in composition}
            used = sorted(made)
            counts = np.array([made[kind] for kind in used])
            total[row] = np.nan_to_num(counts[:, None] * table[used], nan=math.inf, posinf=math.inf).sum(axis=0)
        epsilons = renyi_to_epsilon(self._table.orders, total, self.delta)
        return dict(zip(distinct, epsilons.tolist(), strict=True))

    def epsilon_of_views(self, views: Sequence[Mapping[int, Mapping[tuple[int, float], int]]]) -> NDArray[np.float64]:
        """Return epsilon by the Renyi accountant at integer orders, for views.

        Each view is {client: {(batch size, level): count}}, the releases of all clients that hold an example.
        """
        other = copy.copy(self)
        other._table = self._views
        compositions = [
            tuple(part for client, kinds in view.items() for part in self._composition(int(self.sizes[client]), kinds))
            for view in views
        ]
        epsilons = other._renyi(compositions)
        return np.array([epsilons[composition] for composition in compositions])

    def epsilon_of_all(self, releases: Releases) -> float:
        """Return epsilon of an example that all clients hold; NaN if not certified."""
        if not self.certifies(releases):
            return math.nan
        whole = tuple(part for one in self.compositions(releases, "local_transcript") for part in one)
        return self._renyi([whole])[whole]

    def _tight(self, composition: Composition) -> float:
        return epsilon_of(composition, self.delta, neighbors=self.terms.neighbors, accountant=self.terms.accountant)

    def largest(self, releases: Releases) -> float:
        """Return the largest epsilon over clients, which the metrics show over time.

        Of clients with equal data sizes and noise, only the one with the most releases is accounted for.
        """
        if not self.accounts_for(releases):
            return math.nan
        if self.closed_form or self._hides(None) or self.attackers:
            return greatest(self.epsilon(releases))
        if releases.others or self.by_passes:
            compositions = self.compositions(releases)
        else:
            most: dict[tuple[int, float], int] = {}
            for n, level, count in zip(self.sizes.tolist(), self.levels, releases.counts, strict=True):
                most[n, level] = max(count, most.get((n, level), 0))
            compositions = [
                self._composition(n, {(self.nominal(n), level): count}) for (n, level), count in most.items()
            ]
        if self.terms.accountant == "pld":
            return max(self._tight(composition) for composition in dict.fromkeys(compositions))
        return max(self._renyi(compositions).values())

    def _hides(self, view: View | None) -> bool:
        """Whether a view hides senders and its account differs for that reason.

        An adversary that does not know the senders learns no more than one that does. So a client's epsilon is the
        smaller one of the two, and a budget, whose allowances are computed for the client's transcript, holds in this
        view too. An adversary that knows shared noise can identify the sender of an update.
        """
        hidden = (view or self.terms.view) == "global_hidden" and self.terms.disregards is None
        return hidden and self.terms.unit == "example" and not self.by_passes

    def epsilon(self, releases: Releases, view: View | None = None) -> NDArray[np.float64]:
        """Return each client's epsilon by the Renyi accountant, float [K]; NaN if none."""
        return self._of_honest(self._epsilons(releases, view, final=False))

    def final_epsilon(self, releases: Releases, view: View | None = None) -> NDArray[np.float64]:
        """Return each client's epsilon at the end, as tight as is affordable, float [K].

        If not every client is affordable, at most `AFFORDABLE` numbers of releases get a tight epsilon. A client whose
        releases differ then counts as if all of them were as expensive as the most expensive one. A number in between
        gets the epsilon of the next larger number. Both only replace a client's Renyi epsilon if they are smaller.
        """
        return self._of_honest(self._epsilons(releases, view, final=True))

    def _of_honest(self, epsilons: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the epsilons with NaN for attackers."""
        return np.where(np.isin(np.arange(len(self.sizes)), list(self.attackers)), math.nan, epsilons)

    def _epsilons(self, releases: Releases, view: View | None, final: bool) -> NDArray[np.float64]:
        if not self.accounts_for(releases):
            return np.full(len(self.sizes), math.nan)
        compositions = self.compositions(releases, view)
        distinct = list(dict.fromkeys(compositions))
        tighten = final and self.terms.accountant == "tightest"
        if self.terms.accountant == "pld" or (tighten and sum(map(len, distinct)) <= AFFORDABLE):
            epsilons = {composition: self._tight(composition) for composition in distinct}
        else:
            epsilons = self._renyi(distinct)
            if tighten:
                self._tighten(epsilons)
        epsilon = np.array([epsilons[composition] for composition in compositions])
        if self._hides(view):
            epsilon = np.minimum(epsilon, self._epsilons(releases, "local_transcript", final))
        return epsilon

    def _tighten(self, epsilons: dict[Composition, float]) -> None:
        """Lower epsilons by the exact ones of some numbers of releases of each kind."""
        by_kind: dict[Release, dict[int, list[Composition]]] = {}
        for composition in filter(None, epsilons):
            release, count = _dearest(composition)
            by_kind.setdefault(release, {}).setdefault(count, []).append(composition)
        if len(by_kind) > AFFORDABLE:
            return
        affordable = sum(map(len, by_kind.values())) <= AFFORDABLE
        for release, alike in by_kind.items():
            counts, points = sorted(alike), len(alike) if affordable else AFFORDABLE // len(by_kind)
            exact = sorted({counts[-1 - (len(counts) * i) // points] for i in range(points)})
            bounds = [self._tight(((release, count),)) for count in exact]
            for count, compositions in alike.items():
                bound = bounds[int(np.searchsorted(exact, count))]
                for composition in compositions:
                    epsilons[composition] = min(epsilons[composition], bound)

    # -- before the run ------------------------------------------------------------------------

    def epsilon_after(self, client: int, count: int, accountant: Accountant, level: float | None = None) -> float:
        """Return a client's epsilon after `count` releases at the nominal or given level."""
        n = int(self.sizes[client])
        kind = self.nominal(n), self.levels[client] if level is None else level
        composition = self._composition(n, {kind: count})
        return epsilon_of(composition, self.delta, neighbors=self.terms.neighbors, accountant=accountant)

    def epsilon_as_planned(self, count: int, accountant: Accountant, level: float) -> float:
        """Return the first client's epsilon after `count` planned releases at a level."""
        return self.epsilon_after(0, count, accountant, level)

    def affords(self, budgets: Sequence[float], kinds: Sequence[int]) -> bool:
        """Whether `final_epsilon` is tight for every client that spent its budget.

        Client k has `budgets[k]` and makes `kinds[k]` kinds of releases.
        """
        if self.terms.accountant == "pld" or sum(kinds) <= AFFORDABLE:
            return True
        clients = list(zip(self.sizes.tolist(), self.levels, map(float, budgets), strict=True))
        alike = {client[:2] for client in clients}
        return max(kinds) == 1 and len(alike) == len(set(clients)) <= AFFORDABLE

    def lasts(self, composed: Callable[[int], Composition], budget: float, most: int, by: Accountant) -> int:
        """Return how many releases a client may make within its budget, at most `most`.

        If one epsilon takes a second of numerical composition, the last 0.2 % of a budget may stay unused.
        `composed` is number of releases -> composition.
        """

        def spent(count: int) -> float:
            return epsilon_of(composed(count), self.delta, neighbors=self.terms.neighbors, accountant=by)

        if not most:
            return 0
        first = central_releases(composed(1), budget, self.delta, neighbors=self.terms.neighbors)
        exact = self.pure or self.by_passes or by == "renyi"
        return releases_within(spent, budget, most, min(most, first), 1.0 if exact else ENOUGH)

    def allowances(self, budgets: Sequence[float], most: int = 2**31) -> list[int]:
        """Return the nominal releases within each client's budget, at most `most`.

        The accountant is that of `final_epsilon`: the one of the terms if that is affordable for every client, or for
        all clients of a kind together, which must share one budget; otherwise the Renyi accountant.
        """
        by: Accountant = self.terms.accountant if self.affords(budgets, [1] * len(self.sizes)) else "renyi"

        @functools.cache
        def allowed(n: int, level: float, budget: float) -> int:
            return self.lasts(lambda count: self._composition(n, {(self.nominal(n), level): count}), budget, most, by)

        return [allowed(*kind) for kind in zip(self.sizes.tolist(), self.levels, map(float, budgets), strict=True)]


def _ends(sizes: set[int], whole: str = "") -> str:
    """Return sizes of batches in words, each as a part of a whole."""
    if not sizes:
        return f"its size{whole}"
    return " to ".join(f"{size}{whole}" for size in sorted({min(sizes), max(sizes)}))


def _dearest(composition: Composition) -> tuple[Release, int]:
    """Return a release that costs at least as much as each of these, and their number."""
    releases = [release for release, _ in composition]
    pure = [release.pure_epsilon for release in releases if release.pure_epsilon is not None]
    dearest = dataclasses.replace(
        releases[0],
        noise_multiplier=min(release.noise_multiplier for release in releases),
        sampling_rate=max(release.sampling_rate for release in releases),
        pure_epsilon=max(pure) if pure else None,
    )
    return dearest, sum(count for _, count in composition)


def _batches(kinds: Mapping[tuple[int, float], int]) -> dict[int, int]:
    batches: Counter[int] = Counter()
    for (size, _), count in kinds.items():
        batches[size] += count
    return batches
