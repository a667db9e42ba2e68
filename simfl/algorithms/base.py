"""The base class of algorithms: clients that compute, a tape, and counters.

An algorithm is a file of SimPy processes close to its paper's pseudo-code. It decides when things happen and records
on the tape (`simfl.tape`) what happens to models. It never sees a parameter of a model: a `Model` or a `Gradient` is a
promise of a value that JAX computes later.
"""

from __future__ import annotations

import contextlib
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np
import simpy
from mypy_extensions import mypyc_attr
from numpy.typing import NDArray

from simfl.algorithms.aggregation import Aggregation, Hostility
from simfl.algorithms.budgets import Budgets
from simfl.algorithms.optimizers import Optimizer, OptimizerPlan, State, Terms
from simfl.algorithms.times import Times
from simfl.compiled import Integer, Number, as_call
from simfl.compression.base import CompressionPlan
from simfl.each import number
from simfl.privacy.cohorts import CohortPlan
from simfl.privacy.releases import Releases
from simfl.robust.base import AbstractRule
from simfl.streams import Streams
from simfl.tape.recording import Gradient, Model, Round, Tape
from simfl.tape.tuning import STEPS
from simfl.world import World
from simfl.world.availability import CRASHED, DONE, GONE
from simfl.world.compute import Compute, Draws
from simfl.world.links import Network
from simfl.world.secure_sums import SumProtocol

#: A row of the table `updates`: time_s, client, peer, round, staleness, sample_size, step_size, noise_std.
UpdateRow = tuple[float, int, int, int, int, int, float, float]
OnUpdate = Callable[[UpdateRow], None]
#: Stands in the integer columns `peer` and `round` of an update without one.
NO_NUMBER: Final = -1


def _numbers(values: Sequence[Number]) -> list[Number]:
    """Return numbers of Python, or of a group; a list has these."""
    return values if isinstance(values, list) else [number(value) for value in values]


@dataclass(frozen=True)
class Training:
    """The plain values of local training, the same for every algorithm.

    Attributes:
        initial: f32 [d], the initial model of all clients.
        sizes: number of examples of each client, int [K].
        batch_size: B, nominal examples of a mini-batch; a client that has fewer takes all of them.
        sampling: "poisson", "shuffle" or "with_replacement".
        step_size: step on the mean gradient: a number, or (updates, examples, epochs) -> number.
        l2: lambda of lambda/2 ||w||^2; its gradient does not depend on data and is added without clipping or noise.
        noise_std: standard deviation of the noise on each coordinate of the sum of a mini-batch's gradients: one number
            for all clients, or one per client, [K].
        noise_scale: factor by which noise of unit scale is multiplied, per client, [K]; the default is noise_std, which
            is right for Gaussian noise.
        allowances: releases that each client may make before its privacy budget is spent; None for no budget.
        tasks: number of models that are trained independently on the same data.
        tasks_initial: f32 [tasks, d], the initial model of each task; None: all start with `initial`.
        update_examples: average number of examples of an update, if an update is a round of several mini-batches; 0
            means B.
        clipping_norm: C, the bound on each example's gradient, or on each update if updates are clipped; inf for no
            clipping.
        optimizer: the optimizer of steps on single gradients, or the state of that of local steps, if clients keep it
            between rounds; None: plain SGD, or a new state in each round.
        server_optimizer: the optimizer of a server's steps; None: plain SGD.
        rule: makes one model of several; None: the algorithm's weighted mean.
        hostility: the hostile clients; None: all are honest.
        planned_updates: number of updates of all clients until the end of the run; inf if it is not known.
        compression: how messages are compressed; None: they are not.
        cohorts: how the server adds noise to sums of updates; None: it does not.
        streams: of learning, from which the sizes of Poisson batches are drawn; None: those of the world.
        secure_sum: the protocol by which a server learns sums of updates only; None if it sees the updates.
    """

    initial: NDArray[np.float32]
    sizes: NDArray[np.int64]
    batch_size: int
    sampling: str
    step_size: Number | Callable[[int, int, float], float]
    l2: Number = 0.0
    noise_std: Number | Sequence[Number] = 0.0
    noise_scale: Sequence[Number] | None = None
    allowances: Sequence[int] | None = None
    tasks: int = 1
    tasks_initial: NDArray[np.float32] | None = None
    update_examples: Number = 0.0
    clipping_norm: Number = math.inf
    optimizer: OptimizerPlan | None = None
    server_optimizer: OptimizerPlan | None = None
    rule: AbstractRule | None = None
    hostility: Hostility | None = None
    planned_updates: Number = math.inf
    compression: CompressionPlan | None = None
    cohorts: CohortPlan | None = None
    streams: Streams | None = None
    secure_sum: SumProtocol | None = None

    @property
    def batch_sizes(self) -> list[int]:
        """The nominal examples of each client's mini-batch, min(B, n), [K]."""
        return [min(self.batch_size, n) for n in self.sizes.tolist()]

    def each_noise_std(self) -> list[Number]:
        """Return the standard deviation of each client's noise, [K]."""
        std = self.noise_std
        return [float(std)] * len(self.sizes) if isinstance(std, float | int) else _numbers(std)

    @property
    def model_bytes(self) -> int:
        """Bytes of a model in a message, with the optimizer's state if it is sent too."""
        optimizer = self.optimizer
        rows = optimizer.rows if optimizer is not None and optimizer.travels else 0
        return 4 * len(self.initial) * (1 + rows)

    @property
    def message_bytes(self) -> int:
        """Bytes of what takes a model's place in a message: compressed, or the model."""
        return self.model_bytes if self.compression is None else self.compression.bytes

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        """Support `copy` and `pickle`."""
        return as_call(self)


class BatchSizes:
    """Sizes of mini-batches: b = min(B, n), or with Poisson sampling Binomial(n, b/n).

    `streams` are those of the world, which a training without streams of its own draws from.
    """

    def __init__(self, training: Training, streams: Streams) -> None:
        self._nominal = training.batch_sizes
        self._constant = training.sampling != "poisson"
        streams = self._streams = training.streams or streams
        self._sizes = training.sizes.tolist()
        self._draws: dict[int, Draws] = {}
        if not self._constant:
            for n in sorted(set(self._sizes)):
                rate = min(training.batch_size, n) / n
                self._draws[n] = Draws(streams, "batch", lambda g, k, n=n, q=rate: g.binomial(n, q, k))  # type: ignore[misc]

    def next(self, client: Integer) -> int:
        """Return the size of the client's next mini-batch."""
        if self._constant:
            return self._nominal[client]
        return int(self._draws[self._sizes[client]].next(client))

    def draw(self, client: Integer, draw: Integer, size: Integer) -> int:
        """Draw the size of the client's Poisson batch number `draw`, of mean `size`.

        Raises:
            ValueError: `size` is below 1 or above the client's number of examples.
        """
        if size == self._nominal[client]:
            return int(self._draws[self._sizes[client]].next(client))
        n = self._sizes[client]
        if not 1 <= size <= n:
            raise ValueError(
                f"client {client}: size: expected 1 to {n}, its number of examples, as the mean of Poisson sampling, "
                f"found {size}"
            )
        return int(self._streams.generator("round-batch", client, draw).binomial(n, size / n))


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
    #: Its name in legends and tables; "": that of `simfl.plots.name_of`, which is `kind` for a user's class.
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
        #: The times of clients.
        self.times = Times(world.clock, world.availability, self.num_clients)
        #: Called when `updates` reaches `next_mark`; returns the next mark.
        self.on_mark: Callable[[], int] = lambda: 2**62
        self.next_mark = 2**62
        #: Whether the run ends after this update, although clients may still compute.
        self.ends_now = False
        #: May be replaced before `start`.
        self.on_update: OnUpdate = on_update or (lambda row: None)
        self._draws = [0] * self.num_clients
        self._in_passes = training.sampling == "shuffle"
        tape.draw_size = BatchSizes(training, world.streams).draw if training.sampling == "poisson" else None
        self._nominal, self._l2 = training.batch_size, training.l2
        #: Nominal examples of a mini-batch, by the client of promises.
        self.batch_sizes = [size for size in training.batch_sizes for _ in range(training.tasks)]
        self._per_update: Number = training.update_examples or self._nominal
        self._total = int(training.sizes.sum())
        self._trivial: bool = world.availability.trivial
        self._connected = not world.network.links.cuts
        # Bound once: these run for every event.
        self._bytes_of_model, self._bytes_of_message = training.model_bytes, training.message_bytes
        self._paces: Compute = world.compute
        self._network: Network = world.network
        self._timeout = world.clock.timeout
        step_size = training.step_size
        self._schedule = step_size if callable(step_size) else number(step_size)
        self._constant_step: Number | None = None if callable(step_size) else number(step_size)
        self._noise_std = training.each_noise_std()
        scale = training.noise_scale
        self._noise_scale = self._noise_std if scale is None else _numbers(scale)
        #: Releases of each client, as counted by the tape, or by the algorithm if it keeps its own account.
        self.releases = tape.releases or Releases([0] * self.num_clients)
        if training.cohorts is not None:  # the server adds the noise
            self._noise_scale = self._noise_std = [0.0] * self.num_clients
        self.budgets = Budgets(world.clock, training.allowances, self.releases, tape.releases, self._draws)
        self._ends = training.allowances is not None or training.cohorts is not None
        if tape.releases is not None:
            tape.releases.limits = training.allowances
        #: None for plain SGD.
        self.optimizer: Optimizer | None = None
        #: None if messages are combined as the algorithm says.
        self.aggregation: Aggregation | None = None
        if training.optimizer is not None:
            shared = training.optimizer.shared
            self.optimizer = Optimizer(tape, training.optimizer, 1 if shared else self.num_clients, shared)
        #: Approximate number of linear combinations per gradient; the executor reserves lanes for them.
        self.combines: float = self.combines_per_gradient
        self.set_up(**options)
        if self.optimizer is not None and not tape.serial_steps:  # each step of the optimizer is one more combination
            self.combines += 1.0

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
        return self.models()

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield the pairs of clients that communicate, each pair once."""
        neighbors = self.world.topology.neighbors
        return ((one, other) for one in range(self.num_clients) for other in neighbors(one) if one < other)

    @property
    def clipping_norm(self) -> Number:
        """The clipping norm that the holder of the evaluated model uses; inf for none.

        Algorithms that change the norm during a run override this.
        """
        return self.training.clipping_norm

    @property
    def client_early(self) -> list[int]:
        """Updates of each client that came too early, and were thrown away."""
        return [0] * self.num_clients

    @property
    def adapted_norm(self) -> Model | None:
        """A model whose entries are the present clipping norm, if it follows from data."""
        return None

    @property
    def chains(self) -> int:
        """Approximate number of gradients that are independent of each other."""
        return self.num_clients

    @property
    def ending(self) -> str:
        """Why no event is left, if not due to departures or spent privacy budgets."""
        return ""

    def end_now(self) -> None:
        """Note that the update that is applied now is the last one: the run ends after it."""
        self.ends_now, self.next_mark = True, min(self.next_mark, self.updates)

    @property
    def owes(self) -> bool:
        """Whether messages under way may show a release that is not counted yet."""
        return False

    def close(self) -> None:
        """Count what messages under way will show after the end of the run."""

    def awaits(self, client: Integer) -> str:
        """Say what an active client waits for, "waits for ...", when no event is left."""
        del client
        return "waits"

    # -- the work of clients -----------------------------------------------------------------

    def compute(self, client: Integer, examples: Integer | None = None) -> simpy.Event:
        """Let the client compute a mini-batch or `examples`; the value is an `Outcome`.

        A client whose privacy budget is spent does not start: the outcome is `GONE`.
        """
        if self._ends:
            self.budgets.computes(client)
            if self.exhausted(client):
                return self._timeout(0.0, GONE)
        return self.compute_for(
            client, self._paces.duration(client, examples or self.batch_sizes[client], self.clock.now)
        )

    def compute_for(self, client: Integer, seconds: Number) -> simpy.Event:
        """Let the client compute for `seconds`; the event's value is an `Outcome`."""
        now = self.clock.now
        if self._trivial:
            self.times.computes(client, seconds, now + seconds, False)
            return self._timeout(seconds, DONE)
        when, outcome = self.world.availability.finish(client, now, seconds)
        if outcome is not DONE:
            seconds = self.times.present_s(client, now, when)  # until the client crashes or leaves; this work is lost
        self.times.computes(client, seconds, when, outcome is not DONE)
        ending = self._timeout(when - now, outcome)
        if outcome is CRASHED and self.optimizer is not None:
            # before any process learns of the crash
            ending.callbacks.append(_losing(self.optimizer, 0 if self.optimizer.plan.shared else client))
        return ending

    def exhausted(self, client: Integer) -> bool:
        """Whether the client's next release would exceed its privacy budget."""
        return self.budgets.spent(client)

    def gradient(self, model: Model, client: Integer) -> Gradient:
        """Promise the client's next mini-batch gradient at `model`: a sum with noise."""
        draw = self._draws[client]
        self._draws[client] = draw + 1
        return self.tape.gradient(model, client, draw, self.batch_sizes[client], self._noise_scale[client])

    def train(
        self,
        model: Model,
        client: Integer,
        steps: Integer,
        step: tuple[Number, Number, Number, Number],
        correction: Model | None = None,
    ) -> Round:
        """Promise the change of `model` by the client's next `steps` mini-batches.

        See `Round` for `step`; `correction` is added to each gradient. If clients keep the states of their optimizers
        between rounds, `trained` must follow before the client's next round.
        """
        draw = self._draws[client]
        self._draws[client] = draw + steps
        scale, size = self._noise_scale[client], self.batch_sizes[client]
        if not self.tape.state_rows or self.optimizer is None:
            return self.tape.train(model, client, draw, steps, size, step, scale, correction=correction)
        state = self.optimizer.state(client)
        return self.tape.train(model, client, draw, steps, size, step, scale, 0, correction, state.rows, state.updates)

    def trained(self, change: Round) -> Model | Round:
        """Return the change of a round that is complete, and keep its optimizer's state.

        Without states that are kept it is the promise: what is not used is not computed. If a server adds the noise to
        sums, it is still the promise, which counts when it is in a sum.
        """
        if not self.tape.state_rows or self.optimizer is None:
            return change
        made = self.tape.combine((1.0, change)) if self.training.cohorts is None else self.tape.complete(change)
        self.optimizer.take(change.client, State(change.after, change.count + change.steps))
        return made

    def lost(self, promise: Gradient) -> bool:
        """Drop a promise that a crash destroyed; return whether its batch is used again.

        With shuffled data, the client's next mini-batch is the lost one, so that every pass over the data is complete.
        Its noise can be drawn again because it was never revealed. This requires that the lost promise is the client's
        newest.
        """
        client, last = promise.client, promise.draw + promise.steps
        again = self.tape.lose(promise) and self._in_passes and last == self._draws[client]
        if again:
            self._draws[client] = promise.draw
        return again

    def step_size(self) -> Number:
        """Return the step size of the next update."""
        if self._constant_step is not None:
            return self._constant_step
        examples = round(self._per_update * self.updates)
        schedule = self._schedule
        assert callable(schedule)
        return schedule(self.updates, examples, examples / self._total)

    def descent(
        self, gradient: Gradient, step_size: Number, share: Number = 1.0
    ) -> tuple[tuple[Number, Model | Gradient], ...]:
        """Return the terms of -step * share * (sum / b + l2 * model), b = min(B, n)."""
        scale, size = -step_size * share, self.batch_sizes[gradient.client]
        if self._l2:
            return (scale / size, gradient), (scale * self._l2, gradient.model)
        return ((scale / size, gradient),)

    def descend(self, who: Integer, base: Model, gradient: Gradient, step_size: Number, share: Number = 1.0) -> Model:
        """Return the model after a step from `base`, by `descent` or the optimizer.

        `who` is the client whose state the optimizer uses, 0 if there is one model. The gradient is consumed.
        """
        optimizer = self.optimizer
        if optimizer is None:
            if not self._l2:
                return self.tape.step(base, -step_size * share / self.batch_sizes[gradient.client], gradient)
            return self.tape.combine((1.0, base), *self.descent(gradient, step_size, share))
        return optimizer.step(who, base, self.ascent(gradient, share), step_size)

    def ascent(self, gradient: Gradient, share: Number = 1.0) -> Terms:
        """Return the terms of share * (sum / b + l2 * model), the mean gradient."""
        return self.descent(gradient, -1.0, share)

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
            noise_std = self._noise_std[client]
        peer, round_num = NO_NUMBER if peer is None else peer, NO_NUMBER if round_num is None else round_num
        self.on_update((self.clock.now, client, peer, round_num, staleness, size, step_size, noise_std))
        if self.updates >= self.next_mark:
            self.next_mark = self.on_mark()

    def merged(self, node: int, model: Model) -> None:
        """Tell the network's witness that the node's model contains a round's sum."""
        if self._network.witness is not None:
            self._network.witness.merged(node, model)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Count the updates inside as one: no evaluation or stop comes between them."""
        mark, self.next_mark = self.next_mark, 2**62
        yield
        self.next_mark = mark if self.updates < mark else self.on_mark()

    @property
    def epochs(self) -> Number:
        """Passes over all clients' examples, by nominal sizes; the mean over tasks."""
        return self._per_update * self.updates / (self._total * self.training.tasks)

    def updates_after(self, epochs: Number) -> Number:
        """Return the number of updates in `epochs` passes."""
        return epochs * self._total * self.training.tasks / self._per_update

    @property
    def rounds(self) -> int:
        """Completed rounds; for asynchronous algorithms, updates per client on average."""
        return self.round_num or self.updates // self.num_clients


def _losing(optimizer: Optimizer, whose: Integer) -> Callable[[simpy.Event], None]:
    """Return a callback of a crash, which loses an optimizer's state."""
    return lambda _: optimizer.lose(whose)


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
