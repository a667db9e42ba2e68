"""Count clients' releases: the tape reports every promise that it uses or sends.

A promise has a kind: its batch size, which sets the sampling rate, and its level, the noise relative to the change by
an example (or a client). If both are those of the scenario, it is a release of the nominal kind. After a release whose
kind the tally cannot determine, there is no epsilon; `Releases.refusal` is the reason.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from simfl.each import number
from simfl.errors import RunError
from simfl.privacy.shuffled import Passes, Uses
from simfl.privacy.terms import Terms

#: Relative difference up to which levels are equal: the rounding error of a multiplied and divided scale.
ROUNDING = 1e-9


@dataclass
class Releases:
    """Every client's releases so far.

    Attributes:
        counts: releases of the nominal kind (the scenario's batch size and the client's noise), by client.
        others: other kinds, by client: (batch size, noise level) -> number of releases. The noise level is a noise
            multiplier, or the epsilon of one release for pure mechanisms.
        refusal: why these releases cannot be certified; None if they can.
        dearer: clients with releases that may cost more than those of the nominal kind.
        passes: for each client, the largest number of releases that contain one example; for each pair
            client * tasks + task if several tasks are trained on the same data. None without passes over shuffled
            data, or if it follows from the number of releases because none was lost.
        cohorts: releases of a server's sums of updates, if it adds the noise once per sum.
    """

    #: Whether mini-batches are counted by number, so that skipped ones count as released.
    numbered: ClassVar[bool] = False

    counts: list[int]
    others: dict[int, dict[tuple[int, float], int]] = field(default_factory=dict)
    refusal: str | None = None
    dearer: set[int] = field(default_factory=set)
    passes: Sequence[Uses] | None = None
    cohorts: int = 0

    def total(self, client: int) -> int:
        """Return the number of the client's releases."""
        return self.counts[client] + sum(self.others.get(client, {}).values())

    def totals(self) -> list[int]:
        """Return the number of releases of each client."""
        totals = list(self.counts)
        for client, kinds in self.others.items():
            totals[client] += sum(kinds.values())
        return totals

    def add(self, client: int, batch_size: int, level: float, count: int = 1) -> None:
        """Record releases of another kind."""
        kinds = self.others.setdefault(client, {})
        kinds[batch_size, level] = kinds.get((batch_size, level), 0) + count


class Promise(Protocol):
    """A gradient or a round of local steps; see `simfl.tape.recording.Gradient`."""

    client: int
    draw: int
    expected: int
    noise_scale: float
    released: bool

    @property
    def begin(self) -> tuple[int, int]:
        """The batch's start in the shuffled data: (draw, first example)."""

    @property
    def examples(self) -> int:
        """Examples in the mini-batch."""

    @property
    def size(self) -> int:
        """Examples in the mini-batch if one operation takes all of them."""

    @property
    def own_norm(self) -> float | None:
        """The clipping norm, None for the scenario's."""


class Nominal(Protocol):
    """The part of a ledger that a tally reads; see `simfl.privacy.ledger.Ledger`."""

    terms: Terms
    sizes: NDArray[np.int64]
    sampling: str
    levels: list[float]
    pure: bool
    tasks: int

    @property
    def by_passes(self) -> bool:
        """Whether the account counts uses of an example in passes over shuffled data."""

    def nominal(self, examples: int) -> int:
        """Return the nominal mini-batch of a client by its number of examples."""

    def kinds(self, releases: Releases) -> list[tuple[int, int, float, float, int]]:
        """Return the kinds of releases: (client, batch size, rate, level, count)."""


class Tally(Releases):
    """The releases that a tape has seen.

    `ledger`, `scales` (noise scales of the clients, [K]) and `clipping_norm` (C; inf without clipping) define the
    nominal kind. `rounds`: whether clients promise changes by rounds of local steps. `now` returns the virtual time in
    seconds.
    """

    def __init__(
        self,
        ledger: Nominal,
        scales: Sequence[float],
        clipping_norm: float,
        rounds: bool = False,
        now: Callable[[], float] = lambda: 0.0,
    ) -> None:
        super().__init__([0] * len(ledger.sizes))
        if ledger.by_passes:
            self.passes = self._passes = [Passes(int(n)) for n in ledger.sizes for _ in range(ledger.tasks)]
        self.ledger = ledger
        #: Nominal batches, and places between numbered ones, by the client of promises.
        self._batches = [ledger.nominal(int(n)) for n in ledger.sizes for _ in range(ledger.tasks)]
        self._poisson = ledger.sampling == "poisson"
        self._scales = [number(scale) for scale in scales]
        self._norm = clipping_norm
        # The change of a round whose gradients are clipped one by one is not bounded: its ledger certifies nothing.
        self._unproved = rounds and ledger.terms.unit == "example"
        self._mean = not rounds and ledger.terms.unit == "client"
        self._now = now
        #: Number of the newest mini-batch with noise, by the client of promises.
        self.newest = [-1] * (len(ledger.sizes) * ledger.tasks)
        #: Number of promises with noise that are neither released nor lost, by the client of promises.
        self.promised = [0] * len(self.newest)
        #: Maximum number of releases of each client; None for any number.
        self.limits: Sequence[int] | None = None

    def count(self, promise: Promise) -> None:
        """Count a promise that is consumed, or sent."""
        client = promise.client
        if self.limits is not None:
            self._check_limit(client)
        promise.released = True
        if promise.noise_scale:
            self.promised[client] -= 1
        batch = self._batches[client]
        if (
            (promise.expected if self._poisson else promise.size) == batch
            and promise.noise_scale == self._scales[client]
            and promise.own_norm is None
        ):
            self.counts[client] += 1
            if self.passes is not None and not self._passes[client].add(promise.draw * batch, batch):
                self._refuse_overlap(promise)
        elif self._unproved:
            if promise.noise_scale:  # the last one of a round's operations has the noise
                self._add(client, promise.expected or promise.examples, self.ledger.levels[client])
        else:
            self._count_other(promise)

    def _pass(self, promise: Promise, examples: int) -> None:
        """Record the part of the client's shuffled data that the promise uses."""
        if self.passes is not None:
            draw, first = promise.begin
            if not self._passes[promise.client].add(draw * self._batches[promise.client] + first, examples):
                self._refuse_overlap(promise)

    def _refuse_overlap(self, promise: Promise) -> None:
        self.refuse(
            f"client {promise.client} takes mini-batch {promise.draw} of its shuffled data, part of which another "
            "release has taken; number mini-batches so that each begins where the one before ends"
        )

    def send(self, promise: Promise) -> None:
        """Count a promise that a client sends, unless it was counted before."""
        if not promise.released:
            self.count(promise)

    def hold(self, promise: Promise) -> None:
        """Refuse an account: the client keeps a promise until a later release covers it."""
        self.refuse(
            f"client {promise.client} keeps the result of a gradient until later, and the account cannot prove which "
            "noise protects it"
        )

    def name(self, promise: Promise) -> None:
        """Record a new promise with noise; each number may be used for noise once."""
        newest = self.newest[promise.client]
        self.promised[promise.client] += 1
        if self.limits is not None and self._dearer(promise.client, *self._kind_of(promise)):
            self.dearer.add(promise.client)  # before it is computed: the budget was planned for the nominal kind
        if promise.draw > newest:
            self.newest[promise.client] = promise.draw
        else:
            self.refuse(
                f"client {promise.client} draws the noise of mini-batch {promise.draw} after that of mini-batch "
                f"{newest}, so the same noise may be used twice; number mini-batches in the order of their draws"
            )

    def forget(self, promise: Promise) -> None:
        """Forget an unused promise with noise; if newest, its number may be used again."""
        client = promise.client
        self.promised[client] -= 1
        if self.newest[client] == promise.draw:
            self.newest[client] -= 1

    def _check_limit(self, client: int, more: int = 1) -> None:
        """End the run before a client releases more than its budget allows.

        Raises:
            RunError: the next release would exceed the budget.
        """
        assert self.limits is not None
        made, most = self.total(client), self.limits[client]
        if made + more > most:
            raise RunError(
                f"client {client}: expected at most {most} releases, as its budget allows, found {made + more}: "
                "the algorithm makes several at a time, and promises them too late to be stopped; promise gradients "
                "before computing them, or raise privacy.epsilon"
            )

    def look(self, client: int) -> None:
        """Refuse an account: the algorithm reads a loss on a client's examples."""
        self.refuse(f"the algorithm reads losses of client {client}, which no noise protects")

    def shares(self, terms: Sequence[tuple[float, Promise]]) -> dict[int, int]:
        """Return the number of updates in a sum, by client."""
        return Counter(promise.client for _, promise in terms)

    def count_sum(self, terms: Sequence[tuple[float, Promise]], noise_scale: float) -> None:
        """Count the releases of a sum of promises to which a server adds noise.

        m updates of one client with weights of at most 1 change the sum m times as much as one. With Gaussian noise
        this costs exactly as much as m^2 releases.
        """
        shares = self.shares(terms)
        for _, promise in terms:
            promise.released = True
        if not self.ledger.terms.by_server or self.passes is not None:
            self.refuse("the server adds the noise, and receives the updates of clients before it does")
            return
        largest = max(1.0, *(abs(coef) for coef, _ in terms))
        for client, share in shares.items():
            if self._scales[client] and not noise_scale:
                self.refuse(f"the sum of updates that holds client {client}'s carries no noise")
            else:
                if self.limits is not None:
                    self._check_limit(client, share**2)
                self._add(client, self._batches[client], self._level(client, noise_scale / largest), share**2)

    def _count_other(self, promise: Promise) -> None:
        client, norm = promise.client, promise.own_norm
        batch, level = self._kind_of(promise)
        if self._scales[client] and not promise.noise_scale:
            self.refuse(f"client {client} releases mini-batch {promise.draw} without noise")
        elif not batch:
            self.refuse(
                f"client {client} releases mini-batch {promise.draw} of {promise.examples} examples, whose "
                "sampling rate is unknown; use whole promises of self.gradient or self.tape.gradient"
            )
        elif self.ledger.sampling == "without_replacement" and batch > self.ledger.sizes[client]:
            self.refuse(
                f"client {client} releases mini-batch {promise.draw} of {batch} examples, and has "
                f"{self.ledger.sizes[client]}: one would be in it several times"
            )
        elif norm is not None and norm > self._norm * 1e9:
            self.refuse(f"client {client} releases mini-batch {promise.draw} without clipping")
        else:
            self._pass(promise, promise.examples)
            self._add(client, batch, level)

    def _kind_of(self, promise: Promise) -> tuple[int, float]:
        """Return the batch size, 0 if unknown, and the level of noise of a release."""
        norm, batch = promise.own_norm, promise.expected if self._poisson else promise.examples
        relative = 1.0 if norm is None else self._norm / norm
        if self._mean and batch:  # the mean over the batch is clipped, and its sum is released
            relative *= self._batches[promise.client] / batch
        return batch, self._level(promise.client, promise.noise_scale * relative)

    def _dearer(self, client: int, batch: int, level: float) -> bool:
        usual = self.ledger.levels[client]
        return batch > self._batches[client] or (level > usual if self.ledger.pure else level < usual)

    def _level(self, client: int, scale: float) -> float:
        """Return the level of noise of a scale, at the nominal clipping norm."""
        nominal, level = self._scales[client], self.ledger.levels[client]
        if not nominal or abs(scale / nominal - 1.0) <= ROUNDING:
            return level
        if not scale:
            return math.inf if self.ledger.pure else 0.0
        return level * nominal / scale if self.ledger.pure else level * scale / nominal

    def _add(self, client: int, batch: int, level: float, count: int = 1) -> None:
        usual = self.ledger.levels[client]
        if batch == self._batches[client] and level == usual:
            self.counts[client] += count
            return
        self.add(client, batch, level, count)
        if self._dearer(client, batch, level):
            self.dearer.add(client)

    def refuse(self, reason: str) -> None:
        """Certify nothing from now on; only the first reason is kept."""
        if self.refusal is None:
            self.refusal = f"{reason} (at {self._now():.6g} s of virtual time)"

    def compare(self, own: Releases) -> Releases:
        """Return an algorithm's own account, refused if it is smaller than the tally."""
        if own is self:
            return own
        said, seen = self._kinds_of(own), self._kinds_of(self)
        for (client, batch, level), count in seen.items():
            declared = said.get((client, batch, level), 0)
            if declared < count:
                self.refuse(
                    f"the algorithm's own account says too little: expected {count} releases of client {client} with "
                    f"batch size {batch} and level {level:g}, as its gradients show, found {declared}"
                )
                break
        own.passes = self.passes  # only the tape knows their places in the data
        own.refusal = own.refusal or self.refusal
        return own

    def _kinds_of(self, releases: Releases) -> Mapping[tuple[int, int, float], int]:
        return {(client, batch, level): count for client, batch, _, level, count in self.ledger.kinds(releases)}
