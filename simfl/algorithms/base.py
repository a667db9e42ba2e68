"""The base class of algorithms: clients that compute, a tape, and counters.

An algorithm is a file of SimPy processes close to its paper's pseudo-code. It decides when things happen and records
on the tape (`simfl.tape`) what happens to models. It never sees a parameter of a model: a `Model` or a `Gradient` is a
promise of a value that JAX computes later.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import simpy
from mypy_extensions import mypyc_attr
from numpy.typing import NDArray

from simfl.algorithms.aggregation import Aggregation
from simfl.algorithms.batches import Batches
from simfl.algorithms.budgets import Budgets
from simfl.algorithms.optimizers import Optimizer
from simfl.algorithms.steps import Descent
from simfl.algorithms.times import Times
from simfl.algorithms.training import Training
from simfl.compiled import Integer, Number
from simfl.privacy.releases import Releases
from simfl.tape.recording import Model, Tape
from simfl.tape.tuning import STEPS
from simfl.world import World
from simfl.world.availability import CRASHED, DONE, GONE

#: A row of the table `updates`: time_s, client, peer, round, staleness, sample_size, step_size, noise_std.
UpdateRow = tuple[float, int, int, int, int, int, float, float]
OnUpdate = Callable[[UpdateRow], None]
#: Stands in the integer columns `peer` and `round` of an update without one.
NO_NUMBER: Final = -1


class Marks:
    """When a run is evaluated, or ends.

    Args:
        epochs: returns passes over all clients' examples after a number of updates.
        updates_in: returns the number of updates in passes.
    """

    def __init__(self, epochs: Callable[[int], Number], updates_in: Callable[[Number], Number]) -> None:
        self.epochs, self.updates_in = epochs, updates_in
        #: Called when the updates reach `next`; returns the next mark.
        self.call: Callable[[], int] = lambda: 2**62
        self.next = 2**62
        #: Whether the run ends after this update, although clients may still compute.
        self.ends = False

    def end(self, updates: int) -> None:
        """Note that the update of this number, which is applied now, is the last."""
        self.ends, self.next = True, min(self.next, updates)


@mypyc_attr(allow_interpreted_subclasses=True)
class Algorithm:
    """Base of all algorithms.

    It does not inherit from `abc.ABC`: compiled classes would share one cache of `isinstance`.

    Args:
        on_update: called with an `UpdateRow` for every applied update, or None.
        options: the algorithm's own options, passed to `set_up`.
    """

    #: Its name in scenarios.
    kind: ClassVar[str]
    #: One line for `simfl list`.
    summary: ClassVar[str] = ""
    #: For `simfl list algorithms` and docs/algorithms.md: one of `simfl.cli.listing.FAMILIES`, which clients wait for
    #: which others, what messages contain, and what each privacy mechanism protects. simfl's own have all four.
    family: ClassVar[str] = ""
    who_waits: ClassVar[str] = ""
    what_travels: ClassVar[str] = ""
    what_is_private: ClassVar[str] = ""
    #: Its name in legends and tables; "": that of `simfl.looks.name_of`, which is `kind` for a user's class.
    title: ClassVar[str] = ""
    #: Approximate number of linear combinations per gradient; `set_up` may change it, as `combines`.
    combines_per_gradient: ClassVar[float] = 0.25
    #: Steps that the executor runs per call; a window of recorded operations has at least as many.
    steps_per_call: ClassVar[int] = STEPS

    def __init__(
        self,
        world: World,
        tape: Tape,
        training: Training,
        on_update: OnUpdate | None = None,
        **options: Any,
    ) -> None:
        for name in ("set_up", "start", "models"):
            if getattr(type(self), name) is getattr(Algorithm, name):
                raise TypeError(f"{type(self).__name__}: expected a method {name}, found none; see CONTRIBUTING.md")
        self.world = world
        self.clock = world.clock
        self.tape = tape
        self.training = training
        self.num_clients = world.num_clients
        self.updates = 0
        self.round_num = 0
        self.client_updates = [0] * self.num_clients
        self.client_dropped = [0] * self.num_clients
        #: Updates of each client that came too early, and were thrown away.
        self.client_early = [0] * self.num_clients
        #: The times of clients.
        self.times = Times(world.clock, world.availability, self.num_clients)
        #: May be replaced before `start`, as `on_update` may.
        self.marks = Marks(training.epochs, training.updates_in)
        self.on_update: OnUpdate = on_update or (lambda row: None)
        self._trivial: bool = world.availability.trivial
        #: The steps of clients, or those of the one model.
        self.descent = Descent(tape, training)
        if training.optimizer is not None:
            self.descent = Optimizer(tape, training, training.optimizer, training.optimizer.shared)
        self.batches = Batches(tape, training, world.streams, self.descent)
        #: Releases of each client, as counted by the tape, or by the algorithm if it keeps its own account.
        self.releases = tape.releases or Releases([0] * self.num_clients)
        draws = self.batches.draws
        self.budgets = Budgets(world.clock, training.allowances, self.releases, tape.releases, draws)
        if tape.releases is not None:
            tape.releases.limits = training.allowances
        #: None if messages are combined as the algorithm says.
        self.aggregation: Aggregation | None = None
        #: Returns the clients' own models, of those that are evaluated.
        self.of_clients: Callable[[Sequence[Model]], Sequence[Model]] = lambda models: models
        #: Approximate number of linear combinations per gradient; the executor reserves lanes for them.
        self.combines: float = self.combines_per_gradient
        self.set_up(**options)
        self.combines += self.descent.combines

    @abstractmethod
    def set_up(self, *arguments: Any, **options: Any) -> None:
        """Take the algorithm's options by name and put the initial models on the tape.

        The options in a scenario must match the signature of this method in the subclass.
        """

    @abstractmethod
    def start(self) -> None:
        """Start the processes, in the order of client ids."""

    @abstractmethod
    def models(self) -> Sequence[Model]:
        """Return the models whose mean is evaluated: one per client, or one for all."""

    def memory(self) -> dict[str, NDArray[Any]]:
        """Return the arrays, by name, that a checkpoint needs from `Tape.probe`.

        All other state is reconstructed on resume by replaying the world.
        """
        return {}

    def remember(self, memory: dict[str, NDArray[Any]]) -> None:
        """Restore what `memory` returned at the same moment of an earlier run."""
        assert not memory, "an algorithm with a memory restores it itself"

    def evaluated(self) -> Sequence[Model]:
        """Return the models whose mean is evaluated, without those of attackers."""
        models, hostility = self.models(), self.training.hostility
        if hostility is None or len(models) != self.num_clients:
            return models
        return [model for client, model in enumerate(models) if client not in hostility.clients]

    def aggregator(self, most_senders: int | None = None) -> Aggregation | None:
        """Return what combines messages; None without a rule and an attack.

        `most_senders` is the largest number of clients that one receiver hears. None means its neighbors, which are all
        clients if the graph changes.
        """
        training = self.training
        hostility = None if training.hostility is None or training.hostility.attack is None else training.hostility
        if training.rule is None and hostility is None:
            return None
        if most_senders is None:
            clients, topology = range(self.num_clients), self.world.topology
            changing = self.world.changing is not None
            most_senders = len(clients) if changing else max(len(topology.neighbors(k)) for k in clients)
        planned = training.planned_updates
        self.aggregation = Aggregation(
            self.tape,
            training.rule,
            hostility,
            len(training.initial),
            most_senders,
            lambda: self.clock.now,
            lambda: min(1.0, self.updates / planned),
        )
        return self.aggregation

    def client_models(self) -> Sequence[Model]:
        """Return the models of clients that are evaluated one by one; by default `models`."""
        return self.of_clients(self.models())

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield the pairs of clients that communicate, each pair once."""
        neighbors = self.world.topology.neighbors
        return ((one, other) for one in range(self.num_clients) for other in neighbors(one) if one < other)

    @property
    def clipping_norm(self) -> Number | Model:
        """The clipping norm that the holder of the evaluated model uses; inf for none.

        A model has a norm that follows from data in each entry. Algorithms that change the norm override this.
        """
        return self.training.clipping_norm

    @property
    def chains(self) -> int:
        """Approximate number of gradients that are independent of each other."""
        return self.num_clients

    @property
    def ending(self) -> str:
        """Why no event is left, if not due to departures or spent privacy budgets."""
        return ""

    def awaits(self, client: Integer) -> str:
        """Say what an active client waits for, "waits for ...", when no event is left."""
        del client
        return "waits"

    # -- the work of clients -----------------------------------------------------------------

    def compute(self, client: Integer, examples: Integer | None = None) -> simpy.Event:
        """Let the client compute a mini-batch or `examples`; the value is an `Outcome`.

        A client whose privacy budget is spent does not start: the outcome is `GONE`.
        """
        if self.budgets.limited and self.budgets.stops(client):
            return self.clock.timeout(0.0, GONE)
        size = examples or self.batches.sizes[client]
        return self.compute_for(client, self.world.compute.duration(client, size, self.clock.now))

    def compute_for(self, client: Integer, seconds: Number) -> simpy.Event:
        """Let the client compute for `seconds`; the event's value is an `Outcome`."""
        now = self.clock.now
        if self._trivial:
            self.times.computes(client, seconds, now + seconds, False)
            return self.clock.timeout(seconds, DONE)
        when, outcome = self.world.availability.finish(client, now, seconds)
        if outcome is not DONE:
            seconds = self.times.present_s(client, now, when)  # until the client crashes or leaves; this work is lost
        self.times.computes(client, seconds, when, outcome is not DONE)
        ending = self.clock.timeout(when - now, outcome)
        if outcome is CRASHED:
            self.descent.crashes(client, ending)
        return ending

    def step_size(self) -> Number:
        """Return the step size of the next update."""
        descent, updates = self.descent, self.updates
        if descent.constant is not None:
            return descent.constant
        return descent.size_after(updates, round(descent.examples_per_update * updates))

    def updated(
        self,
        client: Integer,
        staleness: Integer,
        size: Integer,
        step_size: Number,
        peer: int | None = None,
        round_num: int | None = None,
        noise_std: Number | None = None,
    ) -> None:
        """Record that an update of `client` was applied now."""
        self.updates += 1
        self.client_updates[client] += 1
        if noise_std is None:
            noise_std = self.batches.noise_std[client]
        peer, round_num = NO_NUMBER if peer is None else peer, NO_NUMBER if round_num is None else round_num
        self.on_update((self.clock.now, client, peer, round_num, staleness, size, step_size, noise_std))
        if self.updates >= self.marks.next:
            self.marks.next = self.marks.call()

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Count the updates inside as one: no evaluation or stop comes between them."""
        marks = self.marks
        mark, marks.next = marks.next, 2**62
        yield
        marks.next = mark if self.updates < mark else marks.call()

    @property
    def rounds(self) -> int:
        """Completed rounds; for asynchronous algorithms, updates per client on average."""
        return self.round_num or self.updates // self.num_clients


@dataclass
class Countdown:
    """An event that happens after `count` ticks."""

    event: simpy.Event
    count: int
    done: list[int] = field(default_factory=list)

    def tick(self, who: Integer | None = None) -> None:
        """Count one tick, by `who`."""
        if who is not None:
            self.done.append(who)
        self.count -= 1
        if self.count == 0:
            self.event.succeed()
