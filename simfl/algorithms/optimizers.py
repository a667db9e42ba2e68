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

import simpy

from simfl.algorithms.steps import Descent, ServerDescent, State, Terms
from simfl.algorithms.training import OptimizerPlan, Training
from simfl.tape import Gradient, Model, Tape
from simfl.tape.recording import Round


class Optimizer(Descent):
    """Takes steps and keeps the states.

    Args:
        tape: records the steps.
        training: as of `Descent`.
        plan: the optimizer.
        chain: whether each step starts from the result of the step before, as with one model, which has one state.
            Otherwise each client has its own.
    """

    def __init__(self, tape: Tape, training: Training, plan: OptimizerPlan, chain: bool) -> None:
        super().__init__(tape, training)
        self.plan, self._chain = plan, chain
        self.averages = plan.averages
        self.combines = 0.0 if tape.serial_steps else 1.0
        self._sums = training.cohorts is not None
        #: Sums velocities and models.
        self._gather = tape.apply if chain else tape.combine
        self._add = tape.apply if chain or tape.serial_steps else tape.combine
        if plan.initial is None:
            self._initial = State((Model((), ()),) * plan.rows, 0)
        else:
            self._initial = State(tuple(tape.constant(row) for row in plan.initial), 0)
        self._states = [self._initial] * (1 if chain else len(training.sizes))

    def step(self, client: int, base: Model, gradient: Gradient, step_size: float) -> Model:
        """Return the model after a step from `base`."""
        return self.along(client, base, self.mean(gradient), step_size)

    def along_all(self, base: Model, gradients: Sequence[Gradient], step_size: float) -> Model:
        """Return the one model after a step along the mean of clients' gradients."""
        share = 1.0 / len(gradients)
        return self.along(0, base, [term for gradient in gradients for term in self.mean(gradient, share)], step_size)

    def along(self, client: int, base: Model, terms: Terms, step_size: float) -> Model:
        """Return the model after a step from `base`; `terms` add up to the gradient."""
        tape, plan, state = self._tape, self.plan, self._states[client]
        if plan.initial is not None:
            gradient = tape.combine(*terms)
            model, rows = tape.transform(gradient, base, state.rows, state.updates, step_size)
            self._states[client] = State(rows, state.updates + 1)
            return model
        kept = 1.0 - step_size * plan.weight_decay
        if not plan.momentum:
            return self._gather((kept, base), *((-step_size * coef, value) for coef, value in terms))
        before = state.rows[0]
        velocity = tape.settle(self._gather(*((plan.momentum, before),) if before.rows else (), *terms))
        self._states[client] = State((velocity,), state.updates + 1)
        if not plan.nesterov:
            return self._add((kept, base), (-step_size, velocity))
        # g + beta v' = (1 + beta) v' - beta v
        share = step_size * plan.momentum
        return self._add((kept, base), (-step_size - share, velocity), (share, before))

    def crashes(self, client: int, ending: simpy.Event) -> None:
        """Let the client lose its state, if the plan says so."""
        if self.plan.loses:
            assert ending.callbacks is not None
            ending.callbacks.append(lambda _: self.begin(0 if self._chain else client))

    def begin(self, client: int) -> None:
        """Reset a state to the initial one."""
        self._states[client] = self._initial

    def kept(self, client: int) -> State:
        """Return the state that the client's next round begins with, if it is kept."""
        return self._states[client] if self._tape.state_rows else super().kept(client)

    def trained(self, change: Round) -> Model | Round:
        """Return the change of a round that is complete, and keep its optimizer's state.

        If a server adds the noise to sums, it is still the promise, which counts when it is in a sum.
        """
        if not self._tape.state_rows:
            return change
        made = self._tape.complete(change) if self._sums else self._tape.combine((1.0, change))
        self.take(change.client, State(change.after, change.count + change.steps))
        return made

    def rows(self, client: int) -> tuple[Model, ...]:
        """Return the rows of a state."""
        return self._states[client].rows

    def shown(self, client: int) -> State | None:
        """Return the state that travels with a model; None if states are not averaged."""
        return self._states[client] if self.plan.averages else None

    def average(self, client: int, terms: Sequence[tuple[float, State | None]]) -> None:
        """Replace a state by a linear combination of states that includes it.

        Rows that do not hold real numbers, and the number of updates, stay as they are.
        """
        if not self.plan.averages:
            return
        if len(terms) == 1 and terms[0][0] == 1.0:
            self.take(client, terms[0][1])
            return
        rows, updates = self._states[client]
        averaged = [
            self._tape.combine(*((coef, state.rows[k]) for coef, state in terms if state is not None))
            for k in range(min(self.plan.averaged, len(rows)))
        ]
        self._states[client] = State((*averaged, *rows[len(averaged) :]), updates)

    def take(self, client: int, state: State | None) -> None:
        """Replace a state."""
        if state is not None:
            self._states[client] = state


class ServerOptimizer(ServerDescent):
    """Steps of a server's optimizer, along gradients or against mean changes.

    Args:
        optimizer: of the server's one model.
    """

    def __init__(self, tape: Tape, descent: Descent, in_order: bool, optimizer: Optimizer) -> None:
        super().__init__(tape, descent, in_order)
        self._optimizer = optimizer

    def step(self, model: Model, gradient: Gradient, step_size: float) -> Model:
        """Return the model after a step along a client's gradient."""
        return self.along(model, self._descent.mean(gradient), step_size)

    def along(self, model: Model, terms: Terms, step_size: float) -> Model:
        """Return the model after a step; `terms` add up to the gradient."""
        return self._optimizer.along(0, model, terms, step_size)

    def known(self, model: Model) -> Terms:
        """Return nothing: a step is a function of the state, too."""
        return ()

    def factor(self, step_size: float) -> float:
        """Return 1: the optimizer has the step size."""
        return 1.0

    def by(self, model: Model, terms: Terms, step_size: float) -> Model:
        """Return the model after a step; minus the mean change serves as the gradient."""
        if self._in_order:
            terms = ((1.0, self._tape.apply((1.0, self._tape.combine()), *terms)),)
        return self.along(model, [(-coef, value) for coef, value in terms], step_size)
