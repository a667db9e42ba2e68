"""A server's sum: what it makes of the updates that came, and who may be in it.

An algorithm says which updates are in a release and how much each of them counts. It takes a step along the terms of
`Sum.release`. It does not know what else happens to a sum:

- `Sum`: the weighted mean;
- `RuledSum`, `ComparedSum`: what a robust rule makes of updates, or of each client's model beside the server's;
- `LastNoise`: a sum with noise, where m updates of a client count as m^2 releases;
- `simfl.algorithms.cohorts`: a sum of users' updates with noise, whose users follow rules of participation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from simfl.algorithms.admission import Owner, Participation
from simfl.algorithms.aggregation import Aggregation, Message, Weighted
from simfl.algorithms.steps import Descent, Terms
from simfl.tape import Gradient, Model, Tape


class Part(NamedTuple):
    """An update in a release: scale * change, with weight `mass` in the mean."""

    client: int
    change: Model | Gradient
    scale: float = 1.0
    mass: float = 1.0


class Released(NamedTuple):
    """A release: the sum of c * value over its terms, divided by `total`.

    `noise_std` has the noise of each update for the table of updates; None: that of the client.
    """

    terms: list[tuple[float, Any]]
    total: float
    noise_std: list[float | None]


class Shown(NamedTuple):
    """What the server may learn of a sum beside its release.

    Attributes:
        updates: the updates of a sum that was aborted, by client; none if it learns nothing of it.
        parts: why it can compute sums of some of the clients; empty if it cannot.
    """

    updates: Mapping[int, Any]
    parts: str


def _terms_of(descent: Descent, sent: Gradient | Model, share: float = 1.0) -> Terms:
    return descent.mean(sent, share) if isinstance(sent, Gradient) else ((share, sent),)


class Sum:
    """The weighted mean of updates.

    Args:
        server: has the tape and the account of releases.
    """

    #: Whether releases are counted by the sum. Otherwise each update is a release of its own.
    counts: ClassVar[bool] = False
    #: Whether it must be told each update, and not their sum alone.
    reads_each: bool = False

    def __init__(self, server: Owner) -> None:
        self._server = server
        self._tape: Tape = server.tape

    @property
    def ended(self) -> str:
        """Why there will be no further release; empty if there may be one."""
        return ""

    @property
    def norm(self) -> Model | None:
        """The clipping norm of the next release in every entry, if it follows from data."""
        return None

    @property
    def of_none(self) -> bool:
        """Whether there is a release even if no update came."""
        return False

    def sent(self, change: Gradient) -> None:
        """Count an update in flight, whether the server uses it or not."""
        self._tape.release(change)

    def release(self, model: Model, parts: Sequence[Part], planned: float) -> Released:
        """Return the release of updates.

        Args:
            model: any model of the server.
            parts: the updates.
            planned: how many updates were to come; a divisor that does not depend on who came is made of it.
        """
        terms = [(part.scale * part.mass, part.change) for part in parts]
        return Released(terms, sum(part.mass for part in parts), [None] * len(parts))

    def step(self, descent: Descent, model: Model, gradients: Sequence[Gradient], step_size: float) -> Model:
        """Return the model after a step along the mean of gradients, one of each client."""
        return descent.along_all(model, gradients, step_size)

    def mean(self, descent: Descent, sent: Sequence[tuple[int, Gradient | Model]], divisor: float) -> Terms:
        """Return the terms of a sum of mean gradients (a model is decoded), divided."""
        share = 1.0 / divisor
        return [term for _, one in sent for term in _terms_of(descent, one, share)]

    def model_of(self, model: Model, read: Model, part: Part) -> Released:
        """Return the release of a client's model: that which it read, and its change."""
        terms, total, noise_std = self.release(model, [part], 1.0)
        return Released([(1.0, read), *terms], total, noise_std)

    def shown(self, model: Model, known: Sequence[tuple[float, Any]], factor: float) -> None:
        """Note the model that a release led to: known terms (or none) + factor * sum."""

    def aborted(self, shown: Shown) -> None:
        """Forget the updates in the next release: it is not made."""


class RuledSum(Sum):
    """What a robust rule makes of updates, after attackers have replaced theirs."""

    def __init__(self, server: Owner, aggregation: Aggregation) -> None:
        super().__init__(server)
        self._aggregation, self.reads_each = aggregation, server.training.rule is not None

    def step(self, descent: Descent, model: Model, gradients: Sequence[Gradient], step_size: float) -> Model:
        """Return the model after a step along what the rule makes of gradients."""
        sent = [(one.client, one) for one in gradients]
        return descent.along(0, model, self.mean(descent, sent, len(sent)), step_size)

    def mean(self, descent: Descent, sent: Sequence[tuple[int, Gradient | Model]], divisor: float) -> Terms:
        """Return what the rule makes of them, times their number over the divisor."""
        share, combine = 1.0 / len(sent), self._tape.combine
        ordered = sorted(sent, key=lambda one: one[0])
        messages = [Message(client, combine(*_terms_of(descent, one)), share) for client, one in ordered]
        return [(len(sent) / divisor, self._aggregation(self._server.server, messages))]

    def release(self, model: Model, parts: Sequence[Part], planned: float) -> Released:
        """Return what the rule makes of the updates, in the order of clients."""
        total = sum(part.mass for part in parts)
        messages = [
            Message(part.client, self._tape.combine((part.scale, part.change)), part.mass / total)
            for part in sorted(parts, key=lambda part: part.client)
        ]
        return Released([(1.0, self._aggregation(self._server.server, messages))], 1.0, [None] * len(parts))


class ComparedSum(RuledSum):
    """What a robust rule makes of each client's model beside the server's.

    Attackers that know everything know the last change of each honest client that the server took.
    """

    def __init__(self, server: Owner, aggregation: Aggregation) -> None:
        super().__init__(server, aggregation)
        #: The last change of each honest client, if attackers know it.
        self.known: dict[int, Model] = {}

    def model_of(self, model: Model, read: Model, part: Part) -> Released:
        """Return what the rule makes of a client's model and the server's."""
        client, hostility = part.client, self._server.training.hostility
        change = self._tape.combine((part.scale, part.change))
        known = [Weighted(self.known[k], 1.0 / len(self.known)) for k in sorted(self.known)]
        (sent,) = self._aggregation.received([Message(client, change, 1.0)], known=known)
        if hostility is not None and client not in hostility.clients and hostility.knows_others:
            self.known[client] = change
        message = Message(client, self._tape.combine((1.0, read), (1.0, sent)), 1.0)
        made = self._aggregation.combined(self._server.server, [message], Weighted(model, 0.0))
        return Released([(1.0, made)], 1.0, [None])


class LastNoise(Sum):
    """A sum with noise of a given scale, which is drawn with its last update.

    Weights are at most 1, so m updates of one client move the sum by at most m C: they are accounted as m^2 releases.

    Args:
        users: those in the next release.
    """

    counts = True

    def __init__(self, server: Owner, noise_scale: float, users: Participation) -> None:
        super().__init__(server)
        self._noise_scale, self._users = noise_scale, users

    def sent(self, change: Gradient) -> None:
        """Count nothing: the sum is what is released."""

    def release(self, model: Model, parts: Sequence[Part], planned: float) -> Released:
        """Return the sum with its noise."""
        self._users.close()
        terms, total, noise_std = super().release(model, parts, planned)
        noise_std[-1] = self._noise_scale
        return Released(self._tape.with_noise(terms, self._noise_scale), total, noise_std)

    def aborted(self, shown: Shown) -> None:
        """Forget the updates in the next release."""
        self._users.abort()
