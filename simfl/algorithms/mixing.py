"""What neighbors show each other in a round, and what a client makes of it.

An algorithm sends `show` to each neighbor, with `bytes`, and replaces its model by `mix` of the messages. It does not
know what else happens to models on their way:

- `Mixing`: the mean of models, and of the states of optimizers if these travel; `LeadingMixing` and `CommonMixing` make
  it in another order, or once a round;
- `CompressedMixing`: compressed messages, by a scheme of gossip that remembers what neighbors know;
- `PersonalMixing`: one of these in the shared part of models, where each client keeps a part for itself;
- `RuledMixing`: what a robust rule makes of the models, after attackers have replaced theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mypy_extensions import mypyc_attr

from simfl.algorithms.aggregation import Aggregation, Message, Weighted
from simfl.algorithms.base import Algorithm
from simfl.algorithms.personal import PersonalParts
from simfl.algorithms.steps import State
from simfl.compiled import Integer, Number
from simfl.compression.base import AbstractScheme
from simfl.compression.schemes import SCHEMES
from simfl.tape.recording import Model


class Shown(NamedTuple):
    """A message: a model, and the state of an optimizer if it travels."""

    model: Model
    state: State | None


#: A sender, its weight at the receiver, and its message.
Heard = tuple[int, Number, Shown]


@mypyc_attr(allow_interpreted_subclasses=True)
class Mixing:
    """The mean of models.

    Args:
        owner: has the tape, the optimizer and the plan of training.
    """

    def __init__(self, owner: Algorithm) -> None:
        self.tape = owner.tape
        self.descent = owner.descent
        self.model_bytes = owner.training.model_bytes
        #: Models that enter a mean beside those of the messages and the client's own.
        self.beside = 0

    def show(self, me: Integer, model: Model) -> Shown:
        """Return what the client sends to its neighbors in a round."""
        return Shown(model, self.descent.shown(me))

    def bytes(self, me: Integer, neighbor: Integer, round_num: Integer, first_round: Number) -> int:
        """Return the size of a message of the round, and note that it is sent."""
        return self.model_bytes

    def mix(self, me: Integer, round_num: Integer, own: Weighted, heard: list[Heard]) -> Model:
        """Return the client's model after the messages of a round, and average the states.

        The messages are taken out of `heard`, so that their rows are free.
        """
        terms: list[tuple[Number, Model]] = [(weight, message.model) for _, weight, message in heard]
        terms.append((own.weight, own.model))
        states = [(weight, message.state) for _, weight, message in heard]
        if self.descent.averages:
            self.descent.average(me, [*states, (own.weight, self.descent.shown(me))])
        heard.clear()
        mixed = self.made(round_num, terms)
        del terms, states  # models first: the order in which rows are free is recorded
        return mixed

    def made(self, round_num: Integer, terms: list[tuple[Number, Model]]) -> Model:
        """Return the mean."""
        return self.tape.combine(*terms)

    def after(self, me: Integer, model: Model, stepped: Model) -> Model:
        """Return the client's next model, from those before and after its step."""
        return stepped


@mypyc_attr(allow_interpreted_subclasses=True)
class LeadingMixing(Mixing):
    """The mean with the client's own model as the first term.

    The caller keeps what it heard until it has the mean.
    """

    def mix(self, me: Integer, round_num: Integer, own: Weighted, heard: list[Heard]) -> Model:
        """Return the mean, and average the states."""
        mixed = self.tape.combine((own.weight, own.model), *((weight, message.model) for _, weight, message in heard))
        if self.descent.averages:
            states = [(weight, message.state) for _, weight, message in heard]
            self.descent.average(me, [(own.weight, self.descent.shown(me)), *states])
        return mixed


@mypyc_attr(allow_interpreted_subclasses=True)
class CommonMixing(Mixing):
    """The mean on a complete graph, which is computed once a round."""

    def __init__(self, owner: Algorithm) -> None:
        super().__init__(owner)
        self._mean: tuple[tuple[int, int], Model] | None = None

    def made(self, round_num: Integer, terms: list[tuple[Number, Model]]) -> Model:
        """Return the mean of the round."""
        if self._mean is None or self._mean[0] != (round_num, len(terms)):
            terms.sort(key=lambda term: -term[0])
            self._mean = (round_num, len(terms)), self.tape.settle(self.tape.combine(*terms))
        return self._mean[1]


@mypyc_attr(allow_interpreted_subclasses=True)
class CompressedMixing(Mixing):
    """Compressed messages; states of optimizers are not averaged."""

    def __init__(self, owner: Algorithm, scheme: AbstractScheme) -> None:
        super().__init__(owner)
        self.scheme, self.beside = scheme, 1

    def show(self, me: Integer, model: Model) -> Shown:
        """Return what neighbors have of the client's model after the message."""
        return Shown(self.scheme.show(me, model), None)

    def bytes(self, me: Integer, neighbor: Integer, round_num: Integer, first_round: Number) -> int:
        """Return the size of a compressed message, or of a whole one if needed."""
        return self.scheme.bytes(me, neighbor, round_num, first_round)

    def mix(self, me: Integer, round_num: Integer, own: Weighted, heard: list[Heard]) -> Model:
        """Return what the scheme makes of the messages."""
        models = [(weight, message.model) for _, weight, message in heard]
        heard.clear()
        return self.scheme.mix(me, own.model, models)

    def after(self, me: Integer, model: Model, stepped: Model) -> Model:
        """Return the scheme's correction of the step."""
        return self.scheme.after(me, model, stepped)


@mypyc_attr(allow_interpreted_subclasses=True)
class RuledMixing(Mixing):
    """What a robust rule makes of the models, after attackers have replaced theirs."""

    def __init__(self, owner: Algorithm, aggregation: Aggregation) -> None:
        super().__init__(owner)
        self.aggregation = aggregation

    def mix(self, me: Integer, round_num: Integer, own: Weighted, heard: list[Heard]) -> Model:
        """Return what the rule makes of the models, in the order of their senders."""
        mail = [Message(sender, message.model, weight) for sender, weight, message in heard]
        heard.clear()
        return self.aggregation(me, sorted(mail), own)


@mypyc_attr(allow_interpreted_subclasses=True)
class PersonalMixing(Mixing):
    """Another mixing, in the shared part of models."""

    def __init__(self, owner: Algorithm, means: Mixing, parts: PersonalParts) -> None:
        super().__init__(owner)
        self._means, self._parts = means, parts

    def mix(self, me: Integer, round_num: Integer, own: Weighted, heard: list[Heard]) -> Model:
        """Return the client's model after the messages of a round, with its personal part."""
        mixed = self._means.mix(me, round_num, own, heard)
        return self._parts.joined(self.tape, mixed, own.model)


def mixing_of(owner: Algorithm, models: Sequence[Model], plain: type[Mixing]) -> Mixing:
    """Return what the plan of training asks for.

    Args:
        owner: the algorithm.
        models: the initial model of each client.
        plain: the kind for whole models and no rule.
    """
    aggregation, plan = owner.aggregator(), owner.training.compression
    if plan is not None:
        return CompressedMixing(owner, SCHEMES[plan.scheme](owner.tape, plan, dict(enumerate(models))))
    if aggregation is not None:
        return RuledMixing(owner, aggregation)
    personal = owner.training.personal
    return plain(owner) if personal is None else PersonalMixing(owner, plain(owner), personal)
