"""Clients as processes: SYNC, D-PSGD, AD-PSGD and FedAsync.

A client computes in a separate thread while its process serves messages. Models are thus exchanged and averaged during
a gradient, as in the simulated world. Vectors never change after they are made, so they are sent and kept without
copies.

In the mode `real`, computing takes its time on this machine, multiplied by the scenario's slowdowns and speeds. In the
mode `slept`, it takes the time that the world draws: the client computes the gradient and sleeps for the rest. The
draws come from the streams of the simulated run, so durations are the same. A crash pauses the process and destroys
its gradient; it continues from its last model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from simfl.algorithms.batches import BatchSizes
from simfl.algorithms.training import Training
from simfl.live.single import SingleClient
from simfl.live.transport import Transport, Vector
from simfl.world import World
from simfl.world.availability import Outcome
from simfl.world.collectives import fastest, pairs_of
from simfl.world.compute import Draws

# Kinds of messages, as MPI tags.
ROW, SNAPSHOT, STOP, MODEL, ASK, ANSWER, REFUSAL, PART, UPDATE, REQUEST, STATISTICS = range(2, 13)
#: Messages between clients and the coordinator that a simulated run does not send.
UNSIMULATED = (ROW, SNAPSHOT, STOP)

Mode = Literal["slept", "real"]


class StoppedError(Exception):
    """The coordinator has ended the run."""


class Worker(ABC):
    """One client.

    Args:
        client: its number, which is its MPI rank. The coordinator's rank follows that of the last client.
        world: the scenario's world; its clock and links are not used.
        training: the plain values of local training.
        arithmetic: computes its gradients.
        transport: its links.
        begin: when the run begins, by the transport's clock.
        mode: how long computing takes.
        options: the algorithm's options, as in a simulated run.
    """

    def __init__(
        self,
        client: int,
        world: World,
        training: Training,
        arithmetic: SingleClient,
        transport: Transport,
        begin: float,
        mode: Mode = "slept",
        **options: Any,
    ) -> None:
        self.me, self.world, self.training = client, world, training
        self.arithmetic, self.transport, self.begin, self.mode = arithmetic, transport, begin, mode
        self.count = world.num_clients
        self.coordinator = self.count
        self.model: Vector = training.initial
        self.rounds = self.updates = 0
        #: Models at the moments when the coordinator requested them.
        self.snapshots: list[Vector] = []
        self.compute_s = self.communicate_s = self.late_s = 0.0
        self._stopped = False
        self._draws = 0
        self._parts: dict[tuple[int, int], Vector] = {}
        self._sizes, self._batch = BatchSizes(training, world.streams), training.batch_sizes[client]
        self._thread = ThreadPoolExecutor(1)
        step_size = training.step_size
        self._schedule = step_size if callable(step_size) else lambda *_: float(step_size)
        transport.handlers |= {SNAPSHOT: self._on_snapshot, STOP: self._on_stop, PART: self._on_part}
        self.set_up(**options)

    @abstractmethod
    def set_up(self, *arguments: Any, **options: Any) -> None:
        """Take the options, and set the handlers of messages."""

    @abstractmethod
    def work(self) -> None:
        """Run the algorithm until the run is stopped."""

    # -- shared by all algorithms ------------------------------------------------------------

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return self.transport.clock.monotonic() - self.begin

    def run(self) -> None:
        """Work until the coordinator ends the run."""
        try:
            self.wait(lambda: False, until=0.0)
            self.work()
        except StoppedError:
            pass
        self.snapshots.append(self.model)
        self._thread.shutdown()

    def wait(self, ready: Callable[[], bool], until: float = np.inf) -> bool:
        """Serve messages until `ready` or a time; return `ready`.

        Raises:
            StoppedError: the run is over.
        """
        is_ready = self.transport.wait(lambda: self._stopped or ready(), self.begin + until)
        if self._stopped:
            raise StoppedError
        return is_ready

    def compute(self, task: Callable[[], Vector], examples: int | None = None) -> Vector | None:
        """Return a task's result after its time; None if a crash destroyed it."""
        begin = self.now
        future = self._thread.submit(task)
        if self.mode == "real":  # an example takes a second in this world, so the draw for one is the slowness factor
            self.wait(future.done)
            drawn = (self.now - begin) * self.world.compute.duration(self.me, 1, begin)
        else:
            drawn = self.world.compute.duration(self.me, examples or self._batch, begin)
        until, outcome = self.world.availability.finish(self.me, begin, drawn)
        self.wait(lambda: False, until)
        if not future.done():
            self.wait(future.done)
            self.late_s += self.now - until
        self.compute_s += drawn
        return future.result() if outcome is Outcome.DONE else None

    @property
    def away(self) -> bool:
        """Whether the client is offline: it refuses exchanges."""
        return not self.world.availability.trivial and not self.world.availability.online(self.me, self.now)

    def gradient(self) -> tuple[Vector | None, int]:
        """Return a mini-batch's sum of gradients, None after a crash, and its size."""
        model, draw, size = self.model, self._draws, self._sizes.next(self.me)
        self._draws = draw + 1
        return self.compute(lambda: self.arithmetic.gradient(model, draw, size)), size

    def step_size(self, updates: int) -> float:
        """Return the step size after that many updates of all clients."""
        examples = round(updates * (self.training.update_examples or self.training.batch_size))
        return float(self._schedule(updates, examples, examples / int(self.training.sizes.sum())))

    def descended(self, base: Vector, at: Vector, gradient: Vector, step_size: float) -> Vector:
        """Return base - step_size (gradient / B + l2 at); `at` is the gradient's model."""
        direction = gradient / np.float32(self._batch)
        if self.training.l2:
            direction = direction + np.float32(self.training.l2) * at
        return base - np.float32(step_size) * direction

    def updated(self, size: int, step_size: float, read_s: float, peer: int = -1, round_num: int = -1) -> None:
        """Report an update, applied now, to the coordinator."""
        self.updates += 1
        self.transport.send(self.coordinator, ROW, (self.now, peer, round_num, read_s, size, step_size))

    def statistics(self) -> tuple[float, ...]:
        """Return compute_s, communicate_s, bytes, messages and late_s."""
        sent = self.transport
        return (self.compute_s, self.communicate_s, sent.sent_bytes, sent.messages, self.late_s)

    def _on_snapshot(self, source: int, numbers: NDArray[np.float64], vector: Vector) -> None:
        self.snapshots.append(self.model)

    def _on_stop(self, source: int, numbers: NDArray[np.float64], vector: Vector) -> None:
        self._stopped = True

    def _on_part(self, source: int, numbers: NDArray[np.float64], vector: Vector) -> None:
        self._parts[int(numbers[0]), int(numbers[1])] = vector


class SyncWorker(Worker):
    """SYNC: an all-reduce of gradients after every iteration."""

    def set_up(self, *, all_reduce: str) -> None:
        """Choose the same all-reduce as the simulated run."""
        size, network = self.training.model_bytes, self.world.network
        if all_reduce in ("auto", "ideal") and self.count > 1:
            all_reduce = fastest(self.count, size, lambda step: np.array(network.expected_s(pairs_of(step), step.size)))
        self.all_reduce = all_reduce
        self._step, self._since = 0, 0.0

    def work(self) -> None:
        """Repeat: compute, reduce, step."""
        while True:
            read_s, at = self.now, self.model
            gradient, size = self.gradient()
            if gradient is None:
                continue
            mean = self.reduced(gradient) / np.float32(self.count)
            step_size = self.step_size(self.rounds * self.count)
            self.model = self.descended(at, at, mean, step_size)
            self.rounds += 1
            self.updated(size, step_size, read_s, round_num=self.rounds - 1)

    def reduced(self, vector: Vector) -> Vector:
        """Return the sum of all clients' vectors."""
        if self.count == 1:
            return vector
        self._step, self._since = 0, self.now
        total = self._ring(vector) if self.all_reduce == "ring" else self._of_a_power(vector)
        self.communicate_s += self.now - self._since
        return total

    def swap(self, target: int, source: int, part: Vector | None) -> Vector:
        """Send a part to `target` and return the part of `source`; -1 stands for none."""
        key = self.rounds, self._step
        self._step += 1
        if target >= 0:
            self.transport.send(target, PART, key, part)
        if source < 0:
            return np.zeros(0, np.float32)
        waited = not self.wait(lambda: key in self._parts, 0.0) and self.wait(lambda: key in self._parts)
        if waited and key[1] in (0, 1):  # waiting for the slowest client is not communication
            self._since = self.now
        return self._parts.pop(key)

    def _ring(self, vector: Vector) -> Vector:
        count, after, before = self.count, (self.me + 1) % self.count, (self.me - 1) % self.count
        parts = np.array_split(vector, count)
        for step in range(count - 1):
            at = (self.me - step - 1) % count
            parts[at] = parts[at] + self.swap(after, before, parts[(self.me - step) % count])
        for step in range(count - 1):
            parts[(self.me - step) % count] = self.swap(after, before, parts[(self.me - step + 1) % count])
        return np.concatenate(parts)

    def _doubling(self, vector: Vector, power: int) -> Vector:
        distance = 1
        while distance < power:
            partner = self.me ^ distance
            vector = vector + self.swap(partner, partner, vector)
            distance *= 2
        return vector

    def _halving(self, vector: Vector, power: int) -> Vector:
        halves: list[tuple[int, bool]] = []  # partner, whether this client keeps the upper half
        distance = power // 2
        while distance:
            partner, upper = self.me ^ distance, bool(self.me & distance)
            low, high = np.array_split(vector, 2)
            sent, kept = (low, high) if upper else (high, low)
            vector = kept + self.swap(partner, partner, sent)
            halves.append((partner, upper))
            distance //= 2
        for partner, upper in reversed(halves):
            other = self.swap(partner, partner, vector)
            vector = np.concatenate((other, vector) if upper else (vector, other))
        return vector

    def _of_a_power(self, vector: Vector) -> Vector:
        """Reduce among the largest power of two clients; the rest joins before and after."""
        power = 1 << (self.count.bit_length() - 1)
        partner = self.me - power if self.me >= power else self.me + power
        if self.me >= power:
            self.swap(partner, -1, vector)
            self._step = -1  # the last one
            return self.swap(-1, partner, None)
        if partner < self.count:
            vector = vector + self.swap(-1, partner, None)
        self._step = 1
        total = self._halving(vector, power) if self.all_reduce == "halving" else self._doubling(vector, power)
        if partner < self.count:
            self._step = -1
            self.swap(partner, -1, total)
        return total


class GossipWorker(Worker):
    """D-PSGD: rounds of gossip with all neighbors."""

    def set_up(self, *, mixing: str) -> None:
        """Take the client's row of the mixing matrix."""
        row = self.world.topology.mixing_matrix(mixing).tocsr()[[self.me]].toarray()[0]
        self.weights = {j: np.float32(row[j]) for j in self.world.topology.neighbors(self.me)}
        self.own = np.float32(row[self.me])

    def work(self) -> None:
        """Repeat: send, compute, wait for the neighbors, mix, step."""
        while True:
            read_s, at, round_num = self.now, self.model, self.rounds
            for neighbor in self.weights:
                self.transport.send(neighbor, PART, (round_num, self.me), at)
            gradient, size = self.gradient()
            while gradient is None:  # the neighbors wait for this round's model
                gradient, size = self.gradient()
            self.wait(lambda: all((round_num, j) in self._parts for j in self.weights))  # noqa: B023
            mixed = self.own * at
            for j, weight in self.weights.items():
                mixed = mixed + weight * self._parts.pop((round_num, j))
            step_size = self.step_size(round_num * self.count)
            self.model = self.descended(mixed, at, gradient, step_size)
            self.rounds = round_num + 1
            self.updated(size, step_size, read_s, round_num=round_num)


class PairWorker(Worker):
    """AD-PSGD: averages with a random neighbor while computing."""

    def set_up(self, *, exchange: str, pairing: str, **_: Any) -> None:
        """Decide which clients start exchanges; see `simfl.algorithms.adpsgd`.

        Two requests that cross are one exchange, as there. A request says which one of the neighbor had arrived before.
        """
        assert exchange == "messages", "processes exchange models by messages"
        topology = self.world.topology
        senders = topology.is_bipartite if pairing == "auto" else pairing == "senders"
        self.starts = self.me in set(topology.sides()[0]) if senders else True
        self._neighbors = list(topology.neighbors(self.me))
        self._choice = Draws(self.world.streams, "neighbor", lambda g, n: g.random(n))
        #: Number, neighbor and model of the last request, and its answer; requests are numbered from 1.
        self._request, self._peer, self._sent = 0, -1, self.model
        self._answered: bool | None = True
        #: By neighbor: the number of its last request that has arrived.
        self._heard = dict.fromkeys(self._neighbors, 0)
        #: By neighbor: the number of the last request that crossed one of the neighbor's, and what that one subtracts.
        self._crossed: dict[int, tuple[int, Vector]] = {}
        self.transport.handlers |= {ASK: self._on_ask, ANSWER: self._on_answer, REFUSAL: self._on_refusal}

    def ask(self, peer: int) -> None:
        """Send the model to a neighbor, and expect an answer."""
        self._request, self._peer, self._sent, self._answered = self._request + 1, peer, self.model, None
        self.transport.send(peer, ASK, (self._request, self._heard[peer]), self._sent)

    def _on_ask(self, source: int, numbers: NDArray[np.float64], vector: Vector) -> None:
        if self.away:
            self.transport.send(source, REFUSAL, (numbers[0],))
            return
        self._heard[source] = int(numbers[0])
        if crosses := self._answered is None and self._peer == source and numbers[1] < self._request:
            difference = np.float32(0.5) * (vector - self._sent)
            self._crossed[source], self._answered = (self._request, difference), True
        else:
            difference = np.float32(0.5) * (vector - self.model)
        self.model = self.model + difference
        if not crosses:
            self.transport.send(source, ANSWER, (), difference)

    def _on_answer(self, source: int, numbers: NDArray[np.float64], vector: Vector) -> None:
        self.model, self._answered = self.model - vector, True

    def _on_refusal(self, source: int, numbers: NDArray[np.float64], vector: Vector) -> None:
        number, difference = self._crossed.get(source, (0, vector))
        if numbers[0] == number:  # the neighbor was offline and did not see the request that is its answer
            self.transport.send(source, ANSWER, (), difference)
        else:
            self._answered = False

    def work(self) -> None:
        """Repeat: send the model to a neighbor, compute, wait for the answer, step."""
        while True:
            read_s, at, peer = self.now, self.model, -1
            if self.starts and self._neighbors:
                peer = self._neighbors[int(self._choice.next(self.me) * len(self._neighbors))]
                self.ask(peer)
            gradient, size = self.gradient()
            if peer >= 0:
                since = self.now
                self.wait(lambda: self._answered is not None)
                if not self._answered:  # an offline neighbor, which a simulated client notices by a timeout
                    self.wait(lambda: False, read_s + self.world.network.links.resend_timeout_s)
                    peer = -1
                self.communicate_s += self.now - since
            if gradient is None:
                continue
            step_size = self.step_size(self.updates * self.count)
            self.model = self.descended(self.model, at, gradient, step_size)
            self.updated(size, step_size, read_s, peer)


class ServedWorker(Worker):
    """A client of FedAsync: rounds of local steps; the server is the coordinator."""

    def set_up(self, *, steps: Sequence[int], **_: Any) -> None:
        """Take the number of mini-batches of a round."""
        self.steps = steps[self.me]
        self.version = 0
        self._has_model = True
        self.transport.handlers[MODEL] = self._on_model

    def _on_model(self, source: int, numbers: NDArray[np.float64], vector: Vector) -> None:
        self.model, self.version, self._has_model = vector, int(numbers[0]), True

    def work(self) -> None:
        """Repeat: wait for the model, train, send the change."""
        while True:
            since = self.now
            self.wait(lambda: self._has_model)
            self.communicate_s += self.now - since
            self._has_model = False
            model, draw, step_size = self.model, self._draws, self.step_size(self.version)
            self._draws += self.steps
            change = self.compute(
                lambda: self.arithmetic.change(model, draw, self.steps, step_size),  # noqa: B023
                self.steps * self._batch,
            )
            if change is None:
                self.transport.send(self.coordinator, REQUEST)
                continue
            self.updates += 1
            self.transport.send(self.coordinator, UPDATE, (self.version, step_size), change)


#: The algorithms that can run live, by kind.
WORKERS: dict[str, type[Worker]] = {
    "sync_sgd": SyncWorker, "decentralized_sgd": GossipWorker, "adpsgd": PairWorker, "fedasync": ServedWorker,
}  # fmt: skip
