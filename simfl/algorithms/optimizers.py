"""Optimizers: momentum as sums of models, others as transformations on the tape.

    momentum:   v <- beta v + g,   w <- (1 - eta lambda) w - eta v             (v and w are linear in gradients)
    Nesterov:   the same v,        w <- (1 - eta lambda) w - eta (g + beta v)
    any other:  (w, state) <- `Tape.transform` of (g, w, state)

g is the mean gradient after clipping and noise, plus the gradient of the L2 penalty; lambda is the decoupled weight
decay. A step starts from the model that it is applied to, which may differ from the model at which the gradient was
taken. A state belongs to a client, or to the one model of all clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfl.tape import Gradient, Model, Tape

Terms = Sequence[tuple[float, Model | Gradient]]


@dataclass(frozen=True)
class OptimizerPlan:
    """An optimizer in plain values.

    Attributes:
        momentum: beta >= 0.
        nesterov: whether momentum is Nesterov's.
        weight_decay: lambda >= 0; for linear optimizers (SGD and momentum) only.
        initial: f32 [s, d], the initial state of a transformation on the tape, or its rows; None for linear optimizers.
        averaged: number of leading rows of that state that hold real numbers and may be averaged.
        loses: whether a client that crashes loses its state.
        averages: whether states are averaged with the models.
        travels: whether messages with a model contain the state.
        shared: whether there is one state, that of the one model of all clients.
    """

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    initial: NDArray[np.float32] | Sequence[Any] | None = None
    averaged: int = 1
    loses: bool = False
    averages: bool = False
    travels: bool = False
    shared: bool = False

    @property
    def rows(self) -> int:
        """Rows of a state, each as large as a model."""
        return int(self.momentum > 0.0) if self.initial is None else len(self.initial)


class State(NamedTuple):
    """An optimizer's state: a model for each row, and the number of its updates."""

    rows: tuple[Model, ...]
    updates: int


class Optimizer:
    """Takes steps and keeps the states.

    Args:
        states: number of states: one for each client, or one in all.
        chain: whether each step starts from the result of the step before, as with one model.
    """

    def __init__(self, tape: Tape, plan: OptimizerPlan, states: int, chain: bool) -> None:
        self.plan = plan
        self._tape = tape
        #: Sums velocities and models.
        self._gather = tape.apply if chain else tape.combine
        self._add = tape.apply if chain or tape.serial_steps else tape.combine
        if plan.initial is None:
            self._initial = State((Model((), ()),) * plan.rows, 0)
        else:
            self._initial = State(tuple(tape.constant(row) for row in plan.initial), 0)
        self._states = [self._initial] * states

    def step(self, who: int, base: Model, terms: Terms, step_size: float) -> Model:
        """Return the model after a step from `base`; `terms` add up to the gradient."""
        tape, plan, state = self._tape, self.plan, self._states[who]
        if plan.initial is not None:
            gradient = tape.combine(*terms)
            model, rows = tape.transform(gradient, base, state.rows, state.updates, step_size)
            self._states[who] = State(rows, state.updates + 1)
            return model
        kept = 1.0 - step_size * plan.weight_decay
        if not plan.momentum:
            return self._gather((kept, base), *((-step_size * coef, value) for coef, value in terms))
        before = state.rows[0]
        velocity = tape.settle(self._gather(*((plan.momentum, before),) if before.rows else (), *terms))
        self._states[who] = State((velocity,), state.updates + 1)
        if not plan.nesterov:
            return self._add((kept, base), (-step_size, velocity))
        # g + beta v' = (1 + beta) v' - beta v
        share = step_size * plan.momentum
        return self._add((kept, base), (-step_size - share, velocity), (share, before))

    def lose(self, who: int) -> None:
        """Reset the state after a crash, if the plan says so."""
        if self.plan.loses:
            self.begin(who)

    def begin(self, who: int) -> None:
        """Reset the state to the initial one."""
        self._states[who] = self._initial

    def state(self, who: int) -> State:
        """Return a state."""
        return self._states[who]

    def rows(self, who: int) -> tuple[Model, ...]:
        """Return the rows of a state."""
        return self._states[who].rows

    def shown(self, who: int) -> State | None:
        """Return the state that travels with a model; None if states are not averaged."""
        return self._states[who] if self.plan.averages else None

    def average(self, who: int, terms: Sequence[tuple[float, State | None]]) -> None:
        """Replace a state by a linear combination of states that includes it.

        Rows that do not hold real numbers, and the number of updates, stay as they are.
        """
        if not self.plan.averages:
            return
        if len(terms) == 1 and terms[0][0] == 1.0:
            self.take(who, terms[0][1])
            return
        rows, updates = self._states[who]
        averaged = [
            self._tape.combine(*((coef, state.rows[k]) for coef, state in terms if state is not None))
            for k in range(min(self.plan.averaged, len(rows)))
        ]
        self._states[who] = State((*averaged, *rows[len(averaged) :]), updates)

    def take(self, who: int, state: State | None) -> None:
        """Replace a state."""
        if state is not None:
            self._states[who] = state
