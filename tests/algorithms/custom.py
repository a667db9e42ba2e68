"""Algorithms of a user's own, as `kind: tests.algorithms.custom:Alone` names them."""

import simpy

from simfl.algorithms import Algorithm
from simfl.world.availability import Outcome


class Alone(Algorithm):
    """Every client trains on its own data, without messages."""

    summary = "no communication at all"

    def set_up(self, boost=1.0):
        self.boost = boost
        self.model = [self.tape.constant(self.training.initial)] * self.num_clients

    def start(self):
        for client in range(self.num_clients):
            self.clock.start(self.worker(client), client)

    def models(self):
        return self.model

    def worker(self, me):
        yield self.world.joined(me)
        while True:
            gradient = self.batches.gradient(self.model[me], me)
            size = gradient.size
            if (yield self.compute(me)) is not Outcome.DONE:
                continue
            step_size = self.boost * self.step_size()
            self.model[me] = self.tape.combine((1.0, self.model[me]), *self.descent.terms(gradient, step_size))
            self.after_update(me)
            self.updated(me, 0, size, step_size)

    def after_update(self, me):
        """Called after each update; subclasses fail here."""


class Broken(Alone):
    """Fails in the middle of a run."""

    def after_update(self, me):
        if self.updates == 30:
            raise ZeroDivisionError("by mistake")


class Mistaken(Alone):
    """Fails before a run begins."""

    def set_up(self):
        len(self.num_clients)


class Raising(Alone):
    """Raises the error of its options, at the place of its options."""

    def set_up(self, where, error):
        self.error = {error.__name__: error for error in ERRORS}[error]
        self.where, self.calls = where, 0
        self.fall("set_up")
        super().set_up()

    def fall(self, where):
        if where == self.where:
            raise self.error

    def start(self):
        self.fall("start")
        super().start()

    def models(self):
        self.fall("models")
        return super().models()

    def client_models(self):
        self.fall("client_models")
        return super().models()

    def pairs(self):
        self.fall("pairs")
        return super().pairs()

    def after_update(self, me):
        if self.updates == 30:
            self.fall("process")


ERRORS = (ZeroDivisionError, SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration)


class Workshop(Alone):
    """Clients share two machines, hand in their work, and start again when the foreman interrupts them.

    It uses SimPy's tools: a Resource for the machines, a Store for the work, a condition on the first of two events,
    and an interrupt.
    """

    def set_up(self, machines=2, patience_s=0.05):
        super().set_up()
        self.machines = simpy.Resource(self.clock, machines)
        self.work = simpy.Store(self.clock)
        self.patience_s = patience_s
        self.interrupts = 0

    def start(self):
        self.workers = [self.clock.start(self.worker(client), client) for client in range(self.num_clients)]
        self.clock.start(self.foreman())

    def worker(self, me):
        yield self.world.joined(me)
        while True:
            with self.machines.request() as machine:
                yield machine
                gradient = self.batches.gradient(self.model[me], me)
                try:
                    if (yield self.compute(me)) is not Outcome.DONE:
                        continue
                except simpy.Interrupt:
                    self.batches.lost(gradient)
                    self.interrupts += 1
                    continue
            yield self.work.put((me, gradient))

    def foreman(self):
        while True:
            came, late = self.work.get(), self.clock.timeout(self.patience_s)
            yield came | late
            if not came.triggered:
                came.cancel()
                self.busy()[0].interrupt("too slow")
                continue
            me, gradient = came.value
            size, step_size = gradient.size, self.step_size()
            self.model[me] = self.tape.combine((1.0, self.model[me]), *self.descent.terms(gradient, step_size))
            self.updated(me, 0, size, step_size)

    def busy(self):
        return [request.proc for request in self.machines.users]
