"""FedAvg: synchronous federated learning.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas 2017, "Communication-efficient learning of deep networks from
decentralized data", https://arxiv.org/abs/1602.05629, Algorithm 1 (FederatedAveraging):

    every round:  S = max(fraction K, 1) random clients
                  each k in S takes w, trains for H mini-batches (or E passes over its data), sends w_k - w
                  w <- w + sum over S of n_k (w_k - w) / sum over S of n_k        (times a server step, 1 by default)

A server optimizer uses minus the mean change as the gradient, and the server step as its step size. This gives FedAvgM
(Hsu, Qi, Brown 2019, https://arxiv.org/abs/1909.06335), FedAdam, FedYogi and FedAdagrad (Reddi et al. 2021,
https://arxiv.org/abs/2003.00295, Algorithm 2).

The server waits for all clients of S that have not left permanently. With a `deadline`, it waits for those that are
done by then, up to rounding, and for at least one. Later updates are dropped. Only online clients are chosen. A client
that crashes starts its round again; a client that is offline when the model arrives skips the round.

Privacy protects all data of a client together: each client clips its update to norm C and adds noise before it sends
it. The server sees which clients take part, and no epsilon assumes that this is secret. With `privacy.unit: user` the
server adds the noise to the sum of a round and divides by fraction K, whoever came (McMahan et al. 2018, DP-FedAvg):

    every round:  S = each of K clients with probability fraction  (`cohorts: poisson`), or as above
                  w <- w + (sum over S of the clipped w_k - w, plus N(0, (z C)^2 I)) / (fraction K)

Faults. Lost messages make a round longer. The server chooses clients that are online and reachable. It waits for the
update of a client that becomes unreachable, unless there is a deadline. While the server is offline, no round starts or
ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar

import simpy
from mypy_extensions import mypyc_attr

from simfl.algorithms.choosing import Selection
from simfl.algorithms.disclosure import merged
from simfl.algorithms.server import ServerAlgorithm
from simfl.algorithms.sums import Part
from simfl.compiled import Number
from simfl.tape.recording import Model, Round
from simfl.world.availability import CRASHED, GONE
from simfl.world.engine import ROUNDING, Process


@mypyc_attr(allow_interpreted_subclasses=True)
class FedAvg(ServerAlgorithm):
    """Rounds of local training on some clients, whose models the server averages."""

    summary: ClassVar[str] = "FedAvg: rounds in which some clients train locally and a server averages"
    family: ClassVar[str] = "rounds"
    who_waits: ClassVar[str] = "the server waits for all selected clients, or until a `deadline`"
    what_travels: ClassVar[str] = "the model to clients, their changes to the server"
    what_is_private: ClassVar[str] = "a client (`gaussian_update`), or a user, not from the server (`gaussian_cohort`)"
    kind: ClassVar[str] = "fedavg"
    combines_per_gradient: ClassVar[float] = 0.3
    #: Whether a client that would miss the deadline makes fewer steps.
    partial_work: ClassVar[bool] = False
    in_order: ClassVar[bool] = False
    #: Whether `selection` chooses the clients that take part.
    selects: ClassVar[bool] = True
    #: Vectors as large as the model in a message.
    vectors: ClassVar[int] = 1

    def set_up(  # type: ignore[override]
        self,
        *,
        fraction: Number,
        weighting: str,
        server_step: Number,
        deadline: Number | None,
        steps: Sequence[int] | None = None,
    ) -> None:
        """Take the options.

        Args:
            steps: mini-batches of a round at each client, [K]; one each by default.
        """
        super().set_up()
        #: What the server sends beside the model.
        self.control = Model((), ())
        self.steps = [1] * self.num_clients if steps is None else list(steps)
        self.fraction = fraction
        self.weights = [float(n) if weighting == "data" else 1.0 for n in self.training.sizes]
        self.server_step = server_step
        #: Bytes of a message of several vectors; None for one, perhaps compressed.
        self._message_bytes = None if self.vectors == 1 else self.vectors * self.training.model_bytes
        self.take_rule(self.num_clients)
        self._clients = Presence(self)
        self._deadline = None if deadline is None else Deadline(self, deadline)
        self.gathering.on_busy = self._clients.occupied
        self.selection = Selection(self, self.steps, self.vectors)

    @property
    def chains(self) -> int:
        """The number of clients in a round."""
        return self._cohort_size(range(self.num_clients))

    def start(self) -> None:
        """Start the server."""
        self.clock.start(self.rounds_of(range(self.num_clients)))

    # -- the server ----------------------------------------------------------------------------

    def rounds_of(self, members: Sequence[int], ended: Callable[[], bool] = lambda: False) -> Process:
        """Choose clients among `members`, wait for them and average, until `ended`."""
        while not ended():
            if not (yield from self.service.until_up()):
                return
            if self.sum.ended or self.gathering.hopeless(members):
                return
            candidates = self._clients.free(members)
            if not candidates:
                coming = self._clients.coming(members)
                if coming is None:
                    return  # all clients have left or spent their privacy budgets
                yield coming
                continue
            cohort = self.admission.choose(candidates, self._cohort_size(members), self.selection)
            yield from self._round(cohort)

    def _cohort_size(self, members: Sequence[int]) -> int:
        """Return how many of the members take part in a round."""
        return max(1, math.ceil(self.fraction * len(members) - 1e-9))

    def _round(self, cohort: list[int]) -> Process:
        """Send the model, wait for the updates, step."""
        this = RoundUnderWay(self, cohort)
        for client in cohort:
            self._clients.occupied(client, True)
            self._ask(client, this)
        if self._deadline is not None:
            self._deadline.watch(this)
        if cohort:
            yield this.over
        if not (yield from self.service.until_up()):
            return
        this.closed = True
        members = yield from self.gathering.members(this.came)
        for client in sorted(this.came.keys() - set(members)):
            self.client_dropped[client] += 1
            del this.came[client]
        if this.came or (self.sum.of_none and self.gathering.is_open):
            self._step(this)
            this.came.clear()

    def _ask(self, client: int, this: RoundUnderWay) -> None:
        """Send a client the model; nothing keeps what undoes a refusal beyond the message."""

        def missed() -> None:
            self._done(client, this, None)

        if self.clock.now == 0.0 and self.round_num == 0:  # all clients have the initial model
            self.clock.start(self.client(client, this.model, this), client)
            return
        shown, refused = self.channel.down(client, this.model, missed)

        def begin() -> None:
            self.clock.start(self.client(client, shown, this), client)

        self.to_client(client, begin, self._message_bytes, refused, shown)

    def _step(self, this: RoundUnderWay) -> None:
        """Step along the mean of the changes that came."""
        came, before = [], self.server_model
        for client in sorted(this.came):
            if self.admission.affords(client):
                self.admission.join(client)
                came.append(client)
            else:
                self.client_dropped[client] += 1
        released = self.sum.release(before, self._parts(this, came), float(self.chains))
        factor = self.server_descent.factor(self.server_step)
        terms = self._terms(this, [(factor * c / released.total, change) for c, change in released.terms])
        self.server_model = self.server_descent.by(before, terms, self.server_step)
        self.sum.shown(self.server_model, self.server_descent.known(before), factor / released.total)
        merged(self.world.network, self.server, self.server_model)
        self.round_num += 1
        with self.together():
            for k, std in zip(came, released.noise_std, strict=True):
                self.applied()
                self.updated(k, 0, this.sizes[k], this.step_size, round_num=this.number, noise_std=std)

    def _parts(self, this: RoundUnderWay, came: Sequence[int]) -> list[Part]:
        """Return the updates in the sum."""
        return [Part(k, this.came[k], 1.0, self.weights[k]) for k in came]

    def _terms(
        self, this: RoundUnderWay, terms: list[tuple[Number, Model | Round]]
    ) -> list[tuple[Number, Model | Round]]:
        """Return the terms of the step, of those of the mean change by client."""
        del this
        return terms

    def _correction(self, me: int, this: RoundUnderWay) -> Model | None:
        """Return what is added to each gradient of a client's round; None for nothing."""
        del me, this
        return None

    def _done(self, client: int, this: RoundUnderWay, change: Model | Round | None, examples: int = 0) -> None:
        """Note that a client's update has arrived, or that none will."""
        self._clients.occupied(client, False)
        if not this.closed:
            this.settle(client, change, examples)
        elif change is not None:
            self.client_dropped[client] += 1

    # -- clients -------------------------------------------------------------------------------

    def client(self, me: int, model: Model, this: RoundUnderWay) -> Process:
        """Train and send the update; train again after a crash."""
        since = self.clock.now
        keys_s = self.gathering.work_s(me)
        self.exchanges.communicated(me, self.times.present_s(me, this.began_s, since))
        while True:
            steps, seconds = self.steps[me], self._seconds(me)
            if self._deadline is not None and self.partial_work:
                size = self._message_bytes or self.channel.up_bytes
                steps, seconds = self._deadline.within(me, this, steps, seconds, keys_s, size)
            outcome = yield self.compute_for(me, seconds + keys_s)
            if outcome is not CRASHED:
                break
        if outcome is GONE:
            self._done(me, this, None)
            return
        made, examples = self._train(me, model, this, steps)
        sent_s = self.clock.now
        report = self.selection.report(me, model, self.batches.draws[me] - steps, steps)
        sent = self.channel.up(me, ((1.0, made),)) or made

        def arrived() -> None:
            self.exchanges.communicated(me, self.times.present_s(me, sent_s, self.clock.now))
            report()
            self._done(me, this, sent, examples)

        self.gathering.send(me, 0, arrived, self._message_bytes, sent)

    def _seconds(self, me: int) -> Number:
        """Return the duration of a client's round that begins now."""
        return self.world.compute.duration(me, self.steps[me] * self.batches.sizes[me], self.clock.now)

    def _train(self, me: int, model: Model, this: RoundUnderWay, steps: int) -> tuple[Model | Round, int]:
        """Return a client's change of the model, and the examples it took."""
        change = self.batches.train(model, me, steps, (this.step_size, 0.0, 0.0, 0.0), self._correction(me, this))
        self.sum.sent(change)
        examples = change.all_examples
        return self.descent.trained(change), examples


class RoundUnderWay:
    """A round: its clients, those it waits for, its model and version, the changes."""

    def __init__(self, server: FedAvg, cohort: Sequence[int]) -> None:
        self.over, self.count, self.missing = server.clock.event(), len(cohort), set(cohort)
        self.number, self.step_size, self.began_s = server.round_num, server.step_size(), server.clock.now
        self.model, self.version, self.control = server.server_model, server.version, server.control
        self.came: dict[int, Model | Round] = {}
        self.sizes: dict[int, int] = {}
        self.closed = self._expired = False
        self._least = server.gathering.least

    def settle(self, client: int, change: Model | Round | None, examples: int) -> None:
        """Note that a client's update has arrived, or that none will."""
        self.missing.discard(client)
        if change is not None:
            self.came[client], self.sizes[client] = change, examples
        if not self.over.triggered and (not self.missing or (self._expired and len(self.came) >= self._least)):
            self.over.succeed()

    def expire(self) -> None:
        """End as soon as enough updates have arrived."""
        self._expired = True
        if len(self.came) >= self._least:
            self.over.succeed()


class Presence:
    """Which clients a server may choose for a round, and when others come.

    Args:
        server: has the clients' budgets and admission.
    """

    def __init__(self, server: ServerAlgorithm) -> None:
        self._server, self._world = server, server.world
        #: Clients that are training or sending; they are not chosen again before they are done.
        self._busy: set[int] = set()
        self._freed: simpy.Event | None = None

    def free(self, members: Sequence[int]) -> list[int]:
        """Return the members that could take part in a round that starts now."""
        server, world = self._server, self._world
        free = [k for k in members if k not in self._busy]
        if server.budgets.limited:
            free = [k for k in free if not server.budgets.spent(k)]
        if server.admission.holds_back:
            free = [k for k in free if not server.admission.shuts(k)]
        if world.availability.trivial and not world.network.links.cuts:
            return free
        now = server.clock.now
        return [k for k in free if world.meets_s(k, (k, server.server)) == now]

    def coming(self, members: Sequence[int]) -> simpy.Event | None:
        """Return the event after which another member may be free; None if none will be."""
        server, clock = self._server, self._server.clock
        if any(k in self._busy for k in members):  # clients that missed a deadline still train
            self._freed = clock.event()
            return self._freed
        waits = [self._world.meets_s(k, (k, server.server)) for k in members if not server.budgets.spent(k)]
        coming_s = min((when for when in waits if when > clock.now), default=math.inf)
        return None if math.isinf(coming_s) else clock.timeout(coming_s - clock.now)

    def occupied(self, client: int, busy: bool) -> None:
        """Note that a client is busy, or free to be chosen again."""
        if busy:
            self._busy.add(client)
            return
        self._busy.discard(client)
        if (freed := self._freed) is not None:
            self._freed = None
            freed.succeed()


class Deadline:
    """When rounds end, and how many steps a client can make before.

    Args:
        server: has the clock and the network.
        seconds: after the beginning of a round.
    """

    def __init__(self, server: ServerAlgorithm, seconds: Number) -> None:
        self._server, self._clock, self._seconds = server, server.clock, seconds

    def watch(self, this: RoundUnderWay) -> None:
        """End a round at the deadline, after what is late by no more than rounding."""
        self._clock.call_last(this.began_s + self._seconds, lambda: self._expire(this))

    def _expire(self, this: RoundUnderWay) -> None:
        if this.over.triggered:
            return
        next_s, end_s = self._clock.peek(), this.began_s + self._seconds
        if next_s <= end_s + ROUNDING * self._seconds + 4.0 * math.ulp(end_s):
            self._clock.call_last(next_s, lambda: self._expire(this))
        else:
            this.expire()

    def within(
        self, me: int, this: RoundUnderWay, steps: int, seconds: Number, keys_s: Number, size: int
    ) -> tuple[int, Number]:
        """Return the number of steps that a client makes, and their duration in seconds.

        It makes those after which its update should arrive by the deadline, and at least one. `keys_s` are the seconds
        of its other work before it sends `size` bytes.
        """
        left_s = this.began_s + self._seconds - self._clock.now - keys_s - self._way_up_s(me, this, size)
        left_s *= 1.0 + ROUNDING
        if left_s >= seconds:
            return steps, seconds
        made = max(1, int(left_s * steps / seconds)) if left_s > 0.0 else 1
        return made, seconds * made / steps

    def _way_up_s(self, me: int, this: RoundUnderWay, size: int) -> Number:
        """Return how long a client's update should take to be processed, seconds.

        This is the mean on an idle network. Where updates wait for each other at the server, the last one of the round.
        """
        size = self._server.gathering.bytes_up(size)
        server, network = self._server.world.server, self._server.world.network
        received_s = (size + network.links.overhead) / server.downlink if server.downlink else 0.0
        waits_s = (this.count - 1) * max(received_s, server.seconds_per_update)
        return network.expected_s([(me, self._server.server)], size)[0] + server.seconds_per_update + waits_s
