"""What a pair of clients show each other, and what they make of it.

An algorithm sends `show` to a neighbor, with `bytes`. When it arrives, the neighbor answers with `show`: `meet` lets it
average, and `settle` the client that started the exchange. `merge` is for messages without an answer. The
algorithm does not know what else happens to models on their way:

- `Pairing`: the mean of models;
- `StatefulPairing`: also that of the states of optimizers, which travel with the models;
- `CompressedPairing`: compressed messages, with what each side remembers, and what a refusal takes back;
- `PersonalPairing`: the mean of the shared parts, where each client keeps a part for itself;
- `RuledPairing`: what a robust rule makes of the models, after attackers have replaced theirs.
"""

from __future__ import annotations

import functools
from typing import Any

from mypy_extensions import mypyc_attr

from simfl.algorithms.aggregation import Aggregation, Message, Weighted
from simfl.algorithms.personal import PersonalParts
from simfl.algorithms.staleness import OwnUpdates
from simfl.algorithms.steps import State
from simfl.compiled import Integer, Number
from simfl.compression.base import CompressionPlan, Pairs
from simfl.compression.schemes import PAIRWISE
from simfl.tape.recording import Model

#: A message: the state of an optimizer if it travels, a model, and what takes the message back if it is refused. They
#: are freed from the last to the first; a compiled tuple of fixed length frees them in another order.
Shown = tuple[Any, ...]


def _nothing() -> None:
    """Do nothing when a message is refused."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Pairing:
    """The mean of two models.

    Args:
        owner: has the models, the tape and the plan of training.
    """

    def __init__(self, owner: OwnUpdates) -> None:
        self.owner, self.tape, self.bytes = owner, owner.tape, owner.training.message_bytes
        #: The share of a difference by which each of a pair approaches the other.
        self.half: Number = 0.5
        #: Models that enter a mean beside the two.
        self.beside = 0.0
        #: Whether a message changes what the receiver keeps, so that the next one must not overtake it.
        self.remembers = False
        #: The difference in flight to each client.
        self.in_flight: dict[int, Model] = {}

    def show(self, starter: Integer, peer: Integer, who: Integer) -> Shown:
        """Return a message of one of the pair."""
        return None, self.owner.present(who), _nothing

    def meet(self, starter: Integer, peer: Integer, shown: Shown, other: Shown, crossing: bool) -> None:
        """Let the peer average; the starter will `settle` when it gets the answer.

        `crossing`: the peer's message was sent earlier, and its model may have changed.
        """
        difference = self.tape.combine((self.half, shown[1]), (-self.half, other[1]))
        self.owner.move(peer, 1.0, difference)
        self.in_flight[starter] = difference

    def settle(self, starter: Integer) -> None:
        """Let the starter subtract the difference."""
        self.owner.move(starter, -1.0, self.in_flight.pop(starter))

    def average(self, one: Integer, other: Integer) -> None:
        """Replace both models by their mean."""
        model = self.owner.model
        model[one] = model[other] = self.tape.combine((0.5, model[one]), (0.5, model[other]))

    def merge(self, me: Integer, source: Integer, share: Number, shown: Shown) -> None:
        """Replace a share of the client's model by the one in a message."""
        model = self.owner.model
        model[me] = self.tape.combine((1.0 - share, model[me]), (share, shown[1])) if share < 1.0 else shown[1]


@mypyc_attr(allow_interpreted_subclasses=True)
class StatefulPairing(Pairing):
    """The mean of two models and of the states of their optimizers."""

    def __init__(self, owner: OwnUpdates) -> None:
        super().__init__(owner)
        self.descent = owner.descent
        #: The peer's state in flight to each client. Not a difference: a second moment must not become negative.
        self._states_in_flight: dict[int, State | None] = {}

    def show(self, starter: Integer, peer: Integer, who: Integer) -> Shown:
        """Return a message with model and state."""
        return self.descent.shown(who), self.owner.present(who), _nothing

    def meet(self, starter: Integer, peer: Integer, shown: Shown, other: Shown, crossing: bool) -> None:
        """Let the peer average its state, too."""
        super().meet(starter, peer, shown, other, crossing)
        self._states_in_flight[starter] = other[0]
        self.descent.average(peer, [(0.5, shown[0]), (0.5, self.descent.shown(peer))])

    def settle(self, starter: Integer) -> None:
        """Let the starter average its state, too."""
        super().settle(starter)
        states = [(0.5, self.descent.shown(starter)), (0.5, self._states_in_flight.pop(starter))]
        self.descent.average(starter, states)

    def average(self, one: Integer, other: Integer) -> None:
        """Replace both models and both states by their means."""
        super().average(one, other)
        states = [(0.5, self.descent.shown(one)), (0.5, self.descent.shown(other))]
        self.descent.average(one, states)
        self.descent.average(other, states)

    def merge(self, me: Integer, source: Integer, share: Number, shown: Shown) -> None:
        """Merge the states, too."""
        super().merge(me, source, share, shown)
        if share < 1.0:
            self.descent.average(me, [(-share + 1.0, self.descent.shown(me)), (share, shown[0])])
        else:
            self.descent.take(me, shown[0])


@mypyc_attr(allow_interpreted_subclasses=True)
class CompressedPairing(Pairing):
    """Compressed messages."""

    def __init__(self, owner: OwnUpdates, plan: CompressionPlan) -> None:
        super().__init__(owner)
        scheme = PAIRWISE[plan.scheme]
        self._gamma, self.half, self.beside = plan.gamma, plan.gamma * 0.5, 1.0
        self._memories, self.remembers = Pairs(scheme, owner.tape, plan, dict(enumerate(owner.model))), scheme.remembers

    def show(self, starter: Integer, peer: Integer, who: Integer) -> Shown:
        """Return what the other of the pair has after a compressed message.

        A refusal makes the starter forget what the peer did not get.
        """
        memory = self._memories.of(starter, peer)
        if who != starter:
            return None, memory.show(who, self.owner.present(who)), _nothing
        before, model = memory.shown[who], memory.show(who, self.owner.present(who))
        return None, model, functools.partial(memory.undo, who, before, model)

    def merge(self, me: Integer, source: Integer, share: Number, shown: Shown) -> None:
        """Move towards the difference of what the two showed each other."""
        model, share = self.owner.model, self._gamma * share
        mine = self._memories.of(me, source).shown[me]
        model[me] = self.tape.combine((1.0, model[me]), (share, shown[1]), (-share, mine))


@mypyc_attr(allow_interpreted_subclasses=True)
class RuledPairing(Pairing):
    """What a robust rule makes of both models, after attackers have replaced theirs."""

    def __init__(self, owner: OwnUpdates, aggregation: Aggregation) -> None:
        super().__init__(owner)
        self.aggregation, self._hostility = aggregation, owner.training.hostility
        self._neighbors = owner.world.neighbors()

    def meet(self, starter: Integer, peer: Integer, shown: Shown, other: Shown, crossing: bool) -> None:
        """Let the peer hear the starter's model; the starter hears the peer's."""
        mine, theirs, models = shown[1], other[1], self.owner.model
        difference = self.tape.combine((1.0, mine), (-1.0, self.heard(starter, peer, mine, theirs)))
        self.in_flight[starter] = difference
        heard = self.heard(peer, starter, theirs, mine)
        if crossing:
            heard = self.tape.combine((1.0, models[peer]), (1.0, heard), (-1.0, theirs))
        models[peer] = heard

    def average(self, one: Integer, other: Integer) -> None:
        """Let both hear each other's model."""
        model = self.owner.model
        mine = self.heard(one, other, model[one], model[other])
        model[one], model[other] = mine, self.heard(other, one, model[other], model[one])

    def heard(self, me: Integer, peer: Integer, mine: Model, sent: Model) -> Model:
        """Return what the rule makes of a client's model and its neighbor's."""
        known: list[Weighted] = []
        if self._hostility is not None and peer in self._hostility.clients:
            honest = [k for k in self._neighbors(me) if k not in self._hostility.clients]
            known = [Weighted(self.owner.model[k], 0.5 / len(honest)) for k in honest]
        return self.aggregation(me, [Message(peer, sent, 0.5)], Weighted(mine, 0.5), known)


@mypyc_attr(allow_interpreted_subclasses=True)
class PersonalPairing(Pairing):
    """The mean of the shared parts of two models."""

    def __init__(self, owner: OwnUpdates, parts: PersonalParts) -> None:
        super().__init__(owner)
        self._parts = parts

    def meet(self, starter: Integer, peer: Integer, shown: Shown, other: Shown, crossing: bool) -> None:
        """Let the peer average; the starter will `settle` when it gets the answer."""
        change = self._parts.shared(self.tape, self.tape.combine((self.half, shown[1]), (-self.half, other[1])))
        self.owner.move(peer, 1.0, change)
        self.in_flight[starter] = change

    def average(self, one: Integer, other: Integer) -> None:
        """Replace both shared parts by their mean."""
        model, mine, theirs = self.owner.model, self.owner.model[one], self.owner.model[other]
        mean = self.tape.combine((0.5, mine), (0.5, theirs))
        model[one] = self._parts.joined(self.tape, mean, mine)
        model[other] = self._parts.joined(self.tape, mean, theirs)

    def merge(self, me: Integer, source: Integer, share: Number, shown: Shown) -> None:
        """Replace a share of the client's shared part by the one in a message."""
        before = self.owner.model[me]
        super().merge(me, source, share, shown)
        self.owner.model[me] = self._parts.joined(self.tape, self.owner.model[me], before)


def pairing_of(owner: OwnUpdates) -> Pairing:
    """Return what the plan of training asks for."""
    aggregation, plan = owner.aggregator(), owner.training.compression
    if plan is not None:
        return CompressedPairing(owner, plan)
    if aggregation is not None:
        return RuledPairing(owner, aggregation)
    if (personal := owner.training.personal) is not None:
        return PersonalPairing(owner, personal)
    return StatefulPairing(owner) if owner.descent.averages else Pairing(owner)
