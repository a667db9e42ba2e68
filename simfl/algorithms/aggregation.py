"""Aggregation of messages, some of which may come from hostile clients.

A receiver calls an `Aggregation` with the messages of clients. It replaces the messages of attackers by the result of
the attack on the models that the attacker knows, and then applies the rule. Attack and rule are functions of models on
the tape, so the simulation does not wait for numbers. The device sums how much of each message counted, in rows of the
bank: one sum for each pair of receiver and sender. Evaluations read the sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from simfl.robust.base import AbstractAttack, AbstractRule, padded
from simfl.robust.counted import Counted
from simfl.tape import Model, Tape
from simfl.tape.layout import padded_size


@dataclass(frozen=True)
class Hostility:
    """Hostile clients.

    Attributes:
        clients: the attackers.
        attack: replaces their messages; None if the attack changes their data and not their messages.
        from_s: virtual time from which messages are replaced, seconds.
    """

    clients: frozenset[int]
    attack: AbstractAttack | None
    from_s: float = 0.0

    @property
    def knows_others(self) -> bool:
        """Whether attackers know what honest clients send."""
        return self.attack is not None and self.attack.knows == "everything"


class Weighted(NamedTuple):
    """A model and its weight."""

    model: Model
    weight: float


class Message(NamedTuple):
    """A client's model or update, and its weight at the receiver."""

    sender: int
    model: Model
    weight: float


class Tallies(NamedTuple):
    """How much of the messages counted since the last call of `tallies`.

    Attributes:
        pairs: (receiver, sender, number of messages).
        places: index of each pair's sum in the concatenated `models`, [pairs].
        models: rows of sums.
    """

    pairs: list[tuple[int, int, int]]
    places: list[int]
    models: list[Model]


class Aggregation:
    """Combines the messages that a receiver has.

    Args:
        tape: records the functions.
        rule: None for the weighted mean.
        hostility: the attackers; None if there are none.
        size: d, the number of parameters.
        most_senders: the largest number of clients that send to one receiver.
        now: returns the virtual time, seconds.
        progress: returns the share of the run that is over.
    """

    def __init__(
        self,
        tape: Tape,
        rule: AbstractRule | None,
        hostility: Hostility | None,
        size: int,
        most_senders: int,
        now: Callable[[], float],
        progress: Callable[[], float],
    ) -> None:
        self._tape, self._now, self._progress = tape, now, progress
        self._hostility = hostility
        self._size, self._rows = size, max(1, -(-most_senders // size))
        self._rule = None if rule is None else Counted(rule, self._rows)
        self._zero = tape.constant(np.zeros(size, dtype=np.float32))
        self._sums: dict[int, Sequence[Model]] = {}
        self._places: dict[int, dict[int, int]] = {}
        self._heard: Counter[tuple[int, int]] = Counter()

    def __call__(
        self,
        receiver: int,
        messages: Sequence[Message],
        own: Weighted | None = None,
        known: Sequence[Weighted] = (),
    ) -> Model:
        """Return the aggregate of messages.

        Args:
            receiver: the receiver's number.
            messages: in the order of their senders.
            own: the receiver's own model, if it has one.
            known: honest models that attackers know in addition to the honest messages.
        """
        models = self.received(messages, own, known)
        return self.combined(
            receiver, [message._replace(model=model) for message, model in zip(messages, models, strict=True)], own
        )

    def combined(self, receiver: int, messages: Sequence[Message], own: Weighted | None = None) -> Model:
        """Return what the rule makes of messages as they were received."""
        models, weights = [message.model for message in messages], [message.weight for message in messages]
        if own is not None:
            models, weights = [own.model, *models], [own.weight, *weights]
        if self._rule is None:
            return self._tape.combine(*zip(weights, models, strict=True))
        places = [-1] * (own is not None)
        seats = self._places.setdefault(receiver, {})
        for message in messages:
            self._heard[receiver, message.sender] += 1
            places.append(seats.setdefault(message.sender, len(seats)))
        blanks = padded_size(self._rows + len(models)) - self._rows - len(models)
        numbers = [self._progress(), *weights, *[0.0] * blanks, *map(float, places), *[-1.0] * blanks]
        sums = self._sums.get(receiver, [self._zero] * self._rows)
        made = self._tape.map(self._rule, [*sums, *models], scalars=numbers, outputs=1 + self._rows, pads=True)
        self._sums[receiver] = made[1:]
        return made[0]

    def tallies(self) -> Tallies | None:
        """Return the sums since the last call and reset them; None without a rule."""
        if self._rule is None:
            return None
        at = {receiver: index * self._rows * self._size for index, receiver in enumerate(sorted(self._sums))}
        pairs = [(*pair, count) for pair, count in sorted(self._heard.items())]
        places = [at[receiver] + self._places[receiver][sender] for receiver, sender, _ in pairs]
        models = [model for receiver in at for model in self._sums[receiver]]
        self._sums, self._heard = {}, Counter()
        return Tallies(pairs, places, models)

    def received(
        self, messages: Sequence[Message], own: Weighted | None = None, known: Sequence[Weighted] = ()
    ) -> list[Model]:
        """Return the received models; the attack replaces those of attackers."""
        models = [message.model for message in messages]
        hostility = self._hostility
        if hostility is None or hostility.attack is None or self._now() < hostility.from_s:
            return models
        attack, clients = hostility.attack, hostility.clients
        rows = [Weighted(model, weight) for sender, model, weight in messages if sender not in clients]
        rows += known
        if own is not None and not attack.messages_only:
            rows = [Weighted(own.model, sum(m.weight for m in messages if m.sender in clients)), *rows]
        common: Model | None = None
        for at, message in enumerate(messages):
            if message.sender not in clients:
                continue
            alone = attack.knows == "own" or not rows
            if alone or common is None:
                basis = [Weighted(message.model, 1.0)] if alone else rows
                weights = padded([one.weight for one in basis])
                (models[at],) = self._tape.map(
                    attack, [one.model for one in basis], scalars=weights, client=message.sender, pads=True
                )
                common = None if alone else models[at]
            else:
                models[at] = common
        return models
