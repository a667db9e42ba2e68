"""Steps along gradients: plain SGD, by clients or a server.

Optimizers are in `simfl.algorithms.optimizers`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import simpy
from mypy_extensions import mypyc_attr

from simfl.algorithms.training import Training
from simfl.compiled import Integer, Number
from simfl.each import number
from simfl.tape.recording import Gradient, Model, Round, Tape

Terms = Sequence[tuple[Number, Model | Gradient]]


class State(NamedTuple):
    """An optimizer's state: a model for each row, and the number of its updates."""

    rows: tuple[Model, ...]
    updates: int


@mypyc_attr(allow_interpreted_subclasses=True)
class Descent:
    """Steps of plain SGD, whose optimizer has no state.

    Methods that take a client take 0 if there is one model of all clients. Gradients are consumed.

    Args:
        tape: records the steps.
        training: has the step sizes, the penalty and the sizes of mini-batches.
    """

    def __init__(self, tape: Tape, training: Training) -> None:
        self._tape, self._l2 = tape, training.l2
        #: Whether states of the optimizer are averaged with models.
        self.averages = False
        #: Combinations on the tape beside that of a plain step.
        self.combines: Number = 0.0
        #: Nominal examples of a mini-batch, by the client of promises.
        self.sizes = [size for size in training.batch_sizes for _ in range(training.tasks)]
        step_size = training.step_size
        #: The step size, or a function of updates, examples and epochs that returns it.
        self.schedule = step_size if callable(step_size) else number(step_size)
        #: The step size if it is always the same; otherwise None.
        self.constant: Number | None = None if callable(step_size) else number(step_size)
        self.examples_per_update, self._total = training.examples_per_update, training.num_examples

    def size_after(self, updates: Integer, examples: Integer) -> Number:
        """Return the step size after updates that took a number of examples."""
        schedule = self.schedule
        return schedule(updates, examples, examples / self._total) if callable(schedule) else schedule

    def terms(
        self, gradient: Gradient, step_size: Number, share: Number = 1.0
    ) -> tuple[tuple[Number, Model | Gradient], ...]:
        """Return the terms of -step * share * (sum / b + l2 * model), b = min(B, n)."""
        scale, size = -step_size * share, self.sizes[gradient.client]
        if self._l2:
            return (scale / size, gradient), (scale * self._l2, gradient.model)
        return ((scale / size, gradient),)

    def mean(self, gradient: Gradient, share: Number = 1.0) -> Terms:
        """Return the terms of share * (sum / b + l2 * model), the mean gradient."""
        return self.terms(gradient, -1.0, share)

    def step(self, client: Integer, base: Model, gradient: Gradient, step_size: Number) -> Model:
        """Return the model after a step from `base`."""
        if not self._l2:
            return self._tape.step(base, -step_size / self.sizes[gradient.client], gradient)
        return self._tape.combine((1.0, base), *self.terms(gradient, step_size))

    def along(self, client: Integer, base: Model, terms: Terms, step_size: Number) -> Model:
        """Return the model after a step from `base`; `terms` add up to the gradient."""
        return self._tape.combine((1.0, base), *((-step_size * coef, value) for coef, value in terms))

    def along_all(self, base: Model, gradients: Sequence[Gradient], step_size: Number) -> Model:
        """Return the one model after a step along the mean of clients' gradients."""
        share = 1.0 / len(gradients)
        terms = [term for gradient in gradients for term in self.terms(gradient, step_size, share)]
        return self._tape.combine((1.0, base), *terms)

    # -- the state of an optimizer -------------------------------------------------------------

    def kept(self, client: Integer) -> State:
        """Return the state that the client's next round begins with, if it is kept."""
        return State((), 0)

    def trained(self, change: Round) -> Model | Round:
        """Return the change of a round that is complete, and keep its optimizer's state.

        Without states that are kept it is the promise: what is not used is not computed.
        """
        return change

    def shown(self, client: Integer) -> State | None:
        """Return the state that travels with a model; None if states are not averaged."""
        return None

    def average(self, client: Integer, terms: Sequence[tuple[Number, State | None]]) -> None:
        """Replace a state by a linear combination of states that includes it."""

    def take(self, client: Integer, state: State | None) -> None:
        """Replace a state."""

    def rows(self, client: Integer) -> tuple[Model, ...]:
        """Return the rows of a state."""
        return ()

    def begin(self, client: Integer) -> None:
        """Reset a state to the initial one."""

    def crashes(self, client: Integer, ending: simpy.Event) -> None:
        """Note that the client crashes at an event, before any process learns of it."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ServerDescent:
    """Plain steps of a server's model.

    Args:
        tape: records the steps.
        descent: that of the clients, which knows their mini-batches.
        in_order: whether what arrives is summed at once and in order.
    """

    def __init__(self, tape: Tape, descent: Descent, in_order: bool) -> None:
        self._tape, self._descent, self._in_order = tape, descent, in_order

    def step(self, model: Model, gradient: Gradient, step_size: Number) -> Model:
        """Return the model after a step along a client's gradient."""
        return self._tape.apply((1.0, model), *self._descent.terms(gradient, step_size))

    def along(self, model: Model, terms: Terms, step_size: Number) -> Model:
        """Return the model after a step; `terms` add up to the gradient."""
        return self._tape.apply((1.0, model), *((-step_size * coef, value) for coef, value in terms))

    def known(self, model: Model) -> Terms:
        """Return what a result of `by` has beside its terms, if it is their sum."""
        return ((1.0, model),)

    def factor(self, step_size: Number) -> Number:
        """Return the factor of the terms of a mean change that `by` takes."""
        return step_size

    def by(self, model: Model, terms: Terms, step_size: Number) -> Model:
        """Return the model after a step by `factor` times the mean of clients' changes."""
        gather: Callable[..., Model] = self._tape.apply if self._in_order else self._tape.combine
        return gather((1.0, model), *terms)
