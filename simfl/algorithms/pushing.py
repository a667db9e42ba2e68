"""What a client pushes to others, and what it keeps.

It pushes equal shares of its vector, or of what takes its place:

- `Pushing`: whole vectors;
- `CompressedPushing`: a client shows s in place of x, so that P becomes (1 - gamma) I + gamma P. Where each receiver
  hears one message in several, a client has an estimate for each of them; otherwise all have the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from simfl.algorithms.base import Algorithm
from simfl.compression.base import CompressionPlan, Pairs
from simfl.compression.schemes import PAIRWISE
from simfl.tape import Model


class Split(NamedTuple):
    """What a message has of a vector, what its owner keeps, and the shares of both.

    `shown` is the vector that the receivers know, if it is not that of the owner.
    """

    sent: Model
    kept: Model
    share: float
    left: float
    shown: Model | None


class Pushing:
    """Shares of whole vectors.

    Args:
        owner: has the tape and the plan of training.
    """

    #: Combinations beside those of whole vectors.
    beside: float = 0.0

    def __init__(self, owner: Algorithm) -> None:
        self._tape, self._model_bytes = owner.tape, owner.training.model_bytes

    def bytes(self, me: int, target: int, round_num: int, first_round: float) -> int:
        """Return the size of a message of the round, and note that it is sent."""
        return self._model_bytes

    def split(self, me: int, targets: Sequence[int], share: float, model: Model) -> Split:
        """Return what each target gets of the client's vector, and what is left."""
        part = self._tape.combine((share, model))
        return Split(part, part, share, share, None)


class CompressedPushing(Pushing):
    """Shares of what a scheme of compression shows.

    Args:
        owner: as of `Pushing`.
        plan: how messages are compressed.
        models: the initial model of each client.
        apart: whether each round has one target, and each target its own memory.
    """

    beside = 1.0

    def __init__(self, owner: Algorithm, plan: CompressionPlan, models: Sequence[Model], apart: bool) -> None:
        super().__init__(owner)
        self._plan, self._apart, scheme, known = plan, apart, PAIRWISE[plan.scheme], dict(enumerate(models))
        self._common, self._pairs = scheme(owner.tape, plan, known), Pairs(scheme, owner.tape, plan, known)

    def bytes(self, me: int, target: int, round_num: int, first_round: float) -> int:
        """Return the size of a compressed message, or of a whole one if needed."""
        return self._plan.bytes if self._apart else self._common.bytes(me, target, round_num, first_round)

    def split(self, me: int, targets: Sequence[int], share: float, model: Model) -> Split:
        """Return what each target gets of what is shown, and what is left of the vector."""
        memory = self._pairs.of(me, targets[0]) if self._apart else self._common
        shown, share, combine = memory.show(me, model), share * self._plan.gamma, self._tape.combine
        kept = combine((1.0, model), (-share * len(targets), shown))
        return Split(combine((share, shown)), kept, share, 1.0 - share * len(targets), shown)


def pushing_of(owner: Algorithm, models: Sequence[Model], apart: bool) -> Pushing:
    """Return what the plan of training asks for; see `CompressedPushing`."""
    plan = owner.training.compression
    return Pushing(owner) if plan is None else CompressedPushing(owner, plan, models, apart)
