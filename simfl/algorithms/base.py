"""What algorithms have in common: clients that compute, a tape that records, counts that are kept.

An algorithm is a file of SimPy processes close to its paper's pseudo-code. It decides when things
happen and says to the tape what happens to models; it never sees a number of a model.
"""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import simpy
from numpy.typing import NDArray

from simfl.algorithms.optimizers import Optimizer, OptimizerPlan, Terms
from simfl.privacy.releases import Releases
from simfl.streams import Streams
from simfl.tape import Gradient, Model, Tape
from simfl.tape.executor import STEPS
from simfl.tape.recording import Round
from simfl.world import World
from simfl.world.availability import Outcome
from simfl.world.compute import Draws

#: A row of the table `updates`: time_s, client, peer, round, staleness, sample_size, step_size, noise_std.
UpdateRow = tuple[float, int, int, int, int, int, float, float]


@dataclass(frozen=True)
class Training:
    """The plain values of local training, the same for every algorithm.

    Attributes:
        initial: f32 [d], the model all clients begin with.
        sizes: examples per client, int [K].
        batch_size: B, nominal examples of a mini-batch.
        sampling: "poisson", "shuffle" or "with_replacement".
        step_size: step on the mean gradient: a number, or (updates, examples, epochs) -> number.
        l2: lambda of lambda/2 ||w||^2; its gradient is added without clipping or noise, since it
            does not depend on data.
        noise_std: standard deviation of the noise on each coordinate of a mini-batch's sum: of all clients, or
            one for each.
        noise_scale: what multiplies the noise of unit scale, [K]; that is noise_std for Gaussian noise, the default.
        allowances: releases that each client may make before its privacy budget is spent; None for no budget.
        tasks: models that are trained on the same data, each on its own, of which `initial` is one.
        tasks_initial: f32 [tasks, d], what each of them begins with; None: all with `initial`.
        update_examples: examples behind an update, on average, where that is a round of several mini-batches; 0: B.
        clipping_norm: C of each example's gradient, or of each update where these are clipped; inf for no clipping.
        optimizer: of steps on single gradients; None: plain SGD.
        server_optimizer: of a server's steps; None: plain SGD.
    """

    initial: NDArray[np.float32]
    sizes: NDArray[np.int64]
    batch_size: int
    sampling: str
    step_size: float | Callable[[int, int, float], float]
    l2: float = 0.0
    noise_std: float | Sequence[float] = 0.0
    noise_scale: Sequence[float] | None = None
    allowances: Sequence[int] | None = None
    tasks: int = 1
    tasks_initial: NDArray[np.float32] | None = None
    update_examples: float = 0.0
    clipping_norm: float = math.inf
    optimizer: OptimizerPlan | None = None
    server_optimizer: OptimizerPlan | None = None

    def each_noise_std(self) -> list[float]:
        """The standard deviation of each client's noise, [K]."""
        std = self.noise_std
        return [float(std)] * len(self.sizes) if isinstance(std, float | int) else [float(value) for value in std]

    @property
    def model_bytes(self) -> int:
        """Bytes of a model in a message: 4 per parameter, and as many for each row of an optimiser's state with it."""
        optimizer = self.optimizer
        rows = optimizer.rows if optimizer is not None and optimizer.travels else 0
        return 4 * len(self.initial) * (1 + rows)


@dataclass(slots=True)
class Times:
    """What a client did with its time, in seconds of virtual time; the rest of the time that it was there it waited."""

    compute_s: float = 0.0
    communicate_s: float = 0.0


class Observer(Protocol):
    """Is told what clients do with their time, as it is counted in `Times`."""

    def computes(self, client: int, until: float, lost: bool) -> None:
        """The client computes from now until then; `lost` if a crash or its leaving destroys the result."""

    def communicated(self, client: int, seconds: float) -> None:
        """The client has communicated for so many seconds, up to now."""


class BatchSizes:
    """How many examples a client's next mini-batch has.

    Poisson sampling takes each of the n examples with probability B/n: a binomial number of them.
    """

    def __init__(self, training: Training, streams: Streams) -> None:
        self._nominal = training.batch_size
        self._constant = training.batch_size if training.sampling != "poisson" else None
        self._streams = streams
        self._sizes = training.sizes.tolist()
        self._draws: dict[int, Draws] = {}
        if self._constant is None:
            for n in sorted(set(self._sizes)):
                rate = training.batch_size / n
                self._draws[n] = Draws(streams, "batch", lambda g, k, n=n, q=rate: g.binomial(n, q, k))  # type: ignore[misc]

    def next(self, client: int) -> int:
        """Return the size of the client's next mini-batch."""
        if self._constant is not None:
            return self._constant
        return int(self._draws[self._sizes[client]].next(client))

    def draw(self, client: int, draw: int, size: int) -> int:
        """Draw the size of the client's Poisson batch number `draw`, which has `size` examples on average.

        Raises:
            ValueError: the client has fewer examples, or a batch would always be empty.
        """
        if size == self._nominal:
            return int(self._draws[self._sizes[client]].next(client))
        n = self._sizes[client]
        if not 1 <= size <= n:
            raise ValueError(
                f"client {client}: size: expected 1 to {n}, the examples that it has, as sampling poisson draws so "
                f"many on average, found {size}"
            )
        return int(self._streams.generator("round-batch", client, draw).binomial(n, size / n))


class Algorithm(ABC):
    """Base of all algorithms.

    Args:
        world: what decides when things happen.
        tape: what records operations on models.
        training: the plain values of local training.
        on_update: called with an `UpdateRow` for every applied update.
        options: those of the algorithm's own.
    """

    #: What scenarios call it.
    kind: ClassVar[str]
    #: One line for `simfl list`.
    summary: ClassVar[str] = ""
    #: Whether it can move several tasks on the same data, each on its own (`Training.tasks`).
    moves_tasks: ClassVar[bool] = False
    #: Whether each of its gradients has a clipping norm of its own.
    own_clipping: ClassVar[bool] = False
    #: Whether all its steps on gradients are taken by `descend`, so that an optimiser takes them.
    takes_optimizer: ClassVar[bool] = False
    #: Whether it has one model, whose steps follow one another.
    one_model: ClassVar[bool] = False
    #: Linear combinations recorded per gradient, roughly; the executor reserves lanes for them.
    combines_per_gradient: float = 0.25
    #: Steps of the executor per call: as many as the windows have at least.
    steps_per_call: int = STEPS

    def __init__(
        self,
        world: World,
        tape: Tape,
        training: Training,
        on_update: Callable[[UpdateRow], None] = lambda row: None,
        **options: Any,
    ) -> None:
        self.world = world
        self.clock = world.clock
        self.tape = tape
        self.training = training
        self.num_clients = world.num_clients
        self.updates = 0
        self.round_num = 0
        self.client_updates = [0] * self.num_clients
        self.client_dropped = [0] * self.num_clients
        self.times = [Times() for _ in range(self.num_clients)]
        #: Told what clients do with their time; may be set before the start.
        self.observer: Observer | None = None
        #: Called when `updates` reaches `next_mark`; returns the next mark.
        self.on_mark: Callable[[], int] = lambda: 2**62
        self.next_mark = 2**62
        #: Given an `UpdateRow` for every applied update; may be replaced before the start.
        self.on_update = on_update
        self._draws = [0] * self.num_clients
        self._in_passes = training.sampling == "shuffle"
        tape.draw_size = BatchSizes(training, world.streams).draw if training.sampling == "poisson" else None
        self._nominal, self._l2 = training.batch_size, training.l2
        self._per_update = training.update_examples or self._nominal
        self._total = int(training.sizes.sum())
        self._trivial = world.availability.trivial
        self._connected = not world.network.links.cuts
        # Bound once: these run for every event.
        self._duration = world.compute.duration
        self._timeout = world.clock.timeout
        step_size = training.step_size
        self._schedule = step_size if callable(step_size) else float(step_size)
        self._noise_std = training.each_noise_std()
        scale = training.noise_scale
        self._noise_scale = self._noise_std if scale is None else [float(value) for value in scale]
        self._seen = tape.releases or Releases([0] * self.num_clients)
        #: What each client let others see: what the tape counts, unless the algorithm keeps an account of its own.
        self.releases = self._seen
        self._allowances = training.allowances
        self._counted = [0] * self.num_clients
        self._at_a_time = [1] * self.num_clients
        if tape.releases is not None:
            tape.releases.limits = training.allowances
        #: When each client had spent its privacy budget, in seconds of virtual time.
        self.exhausted_s: dict[int, float] = {}
        #: When what each client computes comes to an end, by itself, by a crash or because it leaves.
        self.busy_until = [0.0] * self.num_clients
        #: What takes the steps, with its states; None for plain SGD.
        self.optimizer: Optimizer | None = None
        if training.optimizer is not None:
            states = 1 if self.one_model else self.num_clients
            self.optimizer = Optimizer(tape, training.optimizer, states, self.one_model)
        self.set_up(**options)
        if self.optimizer is not None and not tape.serial_steps:  # the model behind a step is a sum of its own
            self.combines_per_gradient += 1.0

    @abstractmethod
    def set_up(self, *arguments: Any, **options: Any) -> None:
        """Take the algorithm's own options, by name, and put the initial models on the tape.

        A subclass names those that it takes; what a scenario gives is checked against its signature.
        """

    @abstractmethod
    def start(self) -> None:
        """Start the processes, clients in order of their ids."""

    @abstractmethod
    def models(self) -> Sequence[Model]:
        """The models whose mean is evaluated: one per client, or the one global model."""

    def memory(self) -> dict[str, NDArray[Any]]:
        """What an algorithm keeps of numbers that it was told (`Tape.probe`): arrays by name, for a checkpoint.

        All else follows again from playing the world again.
        """
        return {}

    def remember(self, memory: dict[str, NDArray[Any]]) -> None:
        """Take over what `memory` returned at the same moment of an earlier run."""
        assert not memory, "an algorithm with a memory takes it over itself"

    def client_models(self) -> Sequence[Model]:
        """The clients' own models, where each is evaluated: those of `models` unless the algorithm says otherwise."""
        return self.models()

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield who talks with whom, each pair once."""
        neighbors = self.world.topology.neighbors
        return ((one, other) for one in range(self.num_clients) for other in neighbors(one) if one < other)

    @property
    def clipping_norm(self) -> float:
        """The clipping norm in force now, where the model that is evaluated is held; inf for no clipping.

        That of the problem, for the whole run; algorithms that change it as they go say what it is now.
        """
        return self.training.clipping_norm

    @property
    def chains(self) -> int:
        """Roughly how many gradients do not depend on each other at any time; the executor reserves lanes for them."""
        return self.num_clients

    @property
    def ending(self) -> str:
        """Why nothing may be left to happen, beside clients that have left or spent their privacy budgets."""
        return ""

    def awaits(self, client: int) -> str:
        """What a client waits for that has not left and has something left to spend: "waits for ...", or what it did.

        Asked when nothing is left to happen.
        """
        del client
        return "waits"

    # -- what clients do ---------------------------------------------------------------------

    def compute(self, client: int, examples: int | None = None) -> simpy.Event:
        """Let the client compute one mini-batch, or so many examples; the event's value is an `Outcome`.

        A client whose privacy budget is spent does not begin: it is gone.
        """
        if self._allowances is not None:
            made, before = self._seen.total(client), self._counted[client]
            self._counted[client], self._at_a_time[client] = made, max(made - before, self._at_a_time[client])
            if self.exhausted(client):
                return self._timeout(0.0, Outcome.GONE)
        return self.compute_for(client, self._duration(client, examples or self._nominal, self.clock.now))

    def compute_for(self, client: int, seconds: float) -> simpy.Event:
        """Let the client compute for so long; as `compute` otherwise."""
        now = self.clock.now
        if self._trivial:
            self.times[client].compute_s += seconds
            self.busy_until[client] = now + seconds
            if self.observer is not None:
                self.observer.computes(client, now + seconds, lost=False)
            return self._timeout(seconds, Outcome.DONE)
        when, outcome = self.world.availability.finish(client, now, seconds)
        if outcome is not Outcome.DONE:
            seconds = self.present_s(client, now, when)  # until it crashed or left: computed, and lost
        self.times[client].compute_s += seconds
        self.busy_until[client] = when
        if self.observer is not None:
            self.observer.computes(client, when, lost=outcome is not Outcome.DONE)
        ending = self.clock.timeout(when - now, outcome)
        if outcome is Outcome.CRASHED and (optimizer := self.optimizer) is not None:
            whose = 0 if self.one_model else client
            ending.callbacks.append(lambda _: optimizer.lose(whose))  # before anybody learns of the crash
        return ending

    def communicated(self, client: int, seconds: float) -> None:
        """Count that the client has communicated for so many seconds, up to now."""
        times = self.times[client]
        before = times.communicate_s
        times.communicate_s += seconds
        if self.observer is not None:
            self.observer.communicated(client, times.communicate_s - before)  # so that intervals add up to the sum

    def exhausted(self, client: int) -> bool:
        """Whether the client's next release would exceed its privacy budget; when that began is kept.

        It may make as many at a time as it ever did, or has promised. Who promises a release that is dearer than
        planned has nothing left. Of shuffled data as many mini-batches may be handed out as may be released one after
        the other: where some were lost, fewer releases touch as many passes. So it is where releases are numbered.
        """
        if self._allowances is None:
            return False
        promised = 0 if self.tape.releases is None else self.tape.releases.promised[client]
        after = self._seen.total(client) + max(self._at_a_time[client], promised)
        if self._in_passes or self._seen.numbered:
            after = max(after, self._draws[client])
        if after <= self._allowances[client] and client not in self._seen.dearer:
            return False
        self.exhausted_s.setdefault(client, self.clock.now)
        return True

    def computed_s(self, client: int) -> float:
        """Seconds that the client has computed up to now: lost work too, the mini-batch under way in part."""
        now, until = self.clock.now, self.busy_until[client]
        ahead = self.present_s(client, now, until) if until > now else 0.0
        return self.times[client].compute_s - ahead

    def waited_s(self, client: int) -> float:
        """Seconds up to now in which the client was there, and neither computed nor communicated.

        A message that is still on its way counts as waiting.
        """
        now = self.clock.now
        waited = self.present_s(client, 0.0, now) - self.computed_s(client) - self.times[client].communicate_s
        return waited if waited > 1e-11 * now else 0.0  # what is left of rounding

    def present_s(self, client: int, start: float, end: float) -> float:
        """Seconds of [start, end] in which the client is there."""
        if self._trivial:
            return end - start
        availability = self.world.availability
        return max(0.0, end - start - (availability.offline_s(client, end) - availability.offline_s(client, start)))

    def joined(self, client: int) -> simpy.Event:
        """An event at the time at which the client joins the run; it never happens if the client never does."""
        joins_s = self.world.availability.joins_s(client)
        return self.clock.event() if math.isinf(joins_s) else self.clock.timeout(joins_s)

    def meets_s(self, client: int, nodes: Sequence[int]) -> float:
        """When the client is there and no partition separates `nodes`: now, or later; infinite if never again."""
        time, before = self.clock.now, -1.0
        while before < time < math.inf:
            before = time
            time = self.world.network.joined_s(nodes, self.world.availability.back_s(client, time))
        return time

    def until_back(self, client: int) -> Generator[simpy.Event, Any, bool]:
        """Wait until the client is there, for as long as it is away; false if it has left for good.

        Somebody else's message or departure may end a client's waiting while it is away.
        """
        while (back_s := self.world.availability.back_s(client, self.clock.now)) > self.clock.now:
            if math.isinf(back_s):
                return False
            yield self.clock.timeout(back_s - self.clock.now)
        return True

    def gradient(self, model: Model, client: int) -> Gradient:
        """Read `model` and promise the client's next mini-batch gradient at it (a sum, with its noise)."""
        draw = self._draws[client]
        self._draws[client] = draw + 1
        return self.tape.gradient(model, client, draw, self._nominal, self._noise_scale[client])

    def train(self, model: Model, client: int, steps: int, step: tuple[float, float, float, float]) -> Round:
        """Read `model` and promise its change by the client's next `steps` mini-batches; see `Round` for `step`."""
        draw = self._draws[client]
        self._draws[client] = draw + steps
        return self.tape.train(model, client, draw, steps, self._nominal, step, self._noise_scale[client])

    def lost(self, promise: Gradient) -> bool:
        """A crash has destroyed what a client computed: the promise will not be used.

        Shuffled data goes on where it was: the client's next mini-batch is the lost one, whose noise nobody has seen,
        so that no pass lacks it. That needs that the client was promised nothing after it.

        Returns:
            Whether the mini-batch is handed out again.
        """
        client, last = promise.client, promise.draw + promise.steps
        again = self.tape.lose(promise) and self._in_passes and last == self._draws[client]
        if again:
            self._draws[client] = promise.draw
        return again

    def step_size(self) -> float:
        """The step size of the next update."""
        schedule = self._schedule
        if isinstance(schedule, float):
            return schedule
        examples = round(self.updates * self._per_update)
        return schedule(self.updates, examples, examples / self._total)

    def descent(
        self, gradient: Gradient, step_size: float, share: float = 1.0
    ) -> tuple[tuple[float, Model | Gradient], ...]:
        """Return the terms of - step * share * (sum of gradients / B + l2 * model), for `Tape.combine`."""
        scale = -step_size * share
        if self._l2:
            return (scale / self._nominal, gradient), (scale * self._l2, gradient.model)
        return ((scale / self._nominal, gradient),)

    def descend(self, who: int, base: Model, gradient: Gradient, step_size: float, share: float = 1.0) -> Model:
        """Return the model after a step from `base`: by plain SGD base + `descent`, or as the optimiser has it.

        Args:
            who: whose step it is; of one model for all, 0.
            base: what the step starts from.
            gradient: consumed.
            step_size: eta.
            share: of the gradient.
        """
        optimizer = self.optimizer
        if optimizer is None:
            if not self._l2:
                return self.tape.combine((1.0, base), (-step_size * share / self._nominal, gradient))
            return self.tape.combine((1.0, base), *self.descent(gradient, step_size, share))
        return optimizer.step(who, base, self.ascent(gradient, share), step_size)

    def ascent(self, gradient: Gradient, share: float = 1.0) -> Terms:
        """Return the terms of share * (sum of gradients / B + l2 * model), what an optimiser takes for the gradient."""
        return self.descent(gradient, -1.0, share)

    def updated(
        self,
        client: int,
        staleness: int,
        size: int,
        step_size: float,
        peer: int = -1,
        round_num: int = -1,
        noise_std: float | None = None,
    ) -> None:
        """Record that an update of `client` was applied now, with the noise that its updates have by default."""
        self.updates += 1
        self.client_updates[client] += 1
        if noise_std is None:
            noise_std = self._noise_std[client]
        self.on_update((self.clock.now, client, peer, round_num, staleness, size, step_size, noise_std))
        if self.updates >= self.next_mark:
            self.next_mark = self.on_mark()

    def merged(self, node: int, model: Model) -> None:
        """Say that a round's sum of what came to a node is in its model: all that it learns where sums are secure."""
        if self.world.network.witness is not None:
            self.world.network.witness.merged(node, model)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Count the updates inside as one: nobody evaluates or stops half-way through a round."""
        mark, self.next_mark = self.next_mark, 2**62
        yield
        self.next_mark = mark if self.updates < mark else self.on_mark()

    @property
    def epochs(self) -> float:
        """Passes over all clients' examples so far, by nominal sizes; with several tasks, on average over them."""
        return self.updates * self._per_update / (self._total * self.training.tasks)

    def updates_after(self, epochs: float) -> float:
        """Return how many updates make so many passes."""
        return epochs * self._total * self.training.tasks / self._per_update

    @property
    def rounds(self) -> int:
        """Completed rounds; for asynchronous algorithms, updates per client on average."""
        return self.round_num or self.updates // self.num_clients


@dataclass
class Countdown:
    """An event that happens when `count` things have happened."""

    event: simpy.Event
    count: int
    done: list[int] = field(default_factory=list)

    def tick(self, who: int | None = None) -> None:
        """One more happened, done by `who`."""
        if who is not None:
            self.done.append(who)
        self.count -= 1
        if self.count == 0:
            self.event.succeed()
