"""DivShare: asynchronous gossip of fragments of models with random others.

Biswas, Kermarrec, Marouani, Pires, Sharma, de Vos 2025, "Boosting asynchronous decentralized learning with model
fragmentation", WWW, https://arxiv.org/abs/2410.12918, with one mini-batch in a round. P = 1 / Omega fragments are a
random partition of the coordinates, the same one for all clients (`simfl.tape.fragments`):

    each client i repeats, without waiting:
        x_i <- x_i - step * gradient at x_i                                     (takes time)
        forget the fragments that are still to be sent
        put (fragment f of x_i, receiver) into the queue for J random receivers of every fragment f, and shuffle it
        in each fragment: x_i <- the mean of x_i and of what came from others since the last mean
    meanwhile: send one fragment of the queue after the other

Of a fragment of one sender, the newest one counts, by the sender's round. The next fragment of the queue follows when
the last byte of the one before has left, at the pace of the slowest of link, uplink and the receiver's downlink. So a
client with a slow uplink sends a part of its queue in a round, and the order decides which.

Privacy. An observer of a fragment is charged as if it saw the whole model, which is an upper bound.

Faults. A lost message is sent again, beside the queue. A fragment for a client that is offline, cut off or gone is
lost. A client that goes offline forgets its queue. A client that crashes loses its gradient; no client waits for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import ClassVar

from simfl.algorithms.base import Algorithm
from simfl.tape import Model
from simfl.tape.fragments import Fragments
from simfl.world.availability import Outcome
from simfl.world.engine import Process


class DivShare(Algorithm):
    """Clients that send fragments of their models to random others, and never wait."""

    kind: ClassVar[str] = "divshare"
    summary: ClassVar[str] = "DivShare: fragments of models to random others, without waiting; queues are flushed"
    family: ClassVar[str] = "gossip"
    who_waits: ClassVar[str] = "no client waits"
    what_travels: ClassVar[str] = "fragments of models, to random others, as many as the links carry in a round"
    what_is_private: ClassVar[str] = "an example (`gaussian`, `laplace_l2`, `laplace`) or a client (`gaussian_update`)"

    def set_up(self, *, fragments: int, peers: int | None) -> None:
        """Take the options."""
        count, initial = self.num_clients, self.tape.constant(self.training.initial)
        self.model: list[Model] = [initial] * count
        seed = int(self.world.streams.generator("fragments").integers(2**31))
        self.cut = Fragments.equal(len(self.training.initial), fragments, seed)
        #: J.
        self.peers = min(count - 1, max(1, (count - 1).bit_length()) if peers is None else peers)
        #: Fragments and receivers that are still to be sent, the next one last; and the number of the queue.
        self._queue: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        self._queues = [0] * count
        #: When the last byte of a client's last fragment leaves, seconds.
        self._left_s = [0.0] * count
        #: What came since the last mean: by sender and fragment, the sender's round and model.
        self._inbox: list[dict[tuple[int, int], tuple[int, Model]]] = [{} for _ in range(count)]

    def start(self) -> None:
        """Start the clients."""
        for client in range(self.num_clients):
            self.clock.start(self.worker(client), client)

    def models(self) -> Sequence[Model]:
        """Return one model per client."""
        return self.model

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield all pairs of clients."""
        return combinations(range(self.num_clients), 2)

    def worker(self, me: int) -> Process:
        """Repeat: compute, step, fill the queue, average."""
        yield self.world.joined(me)
        while self._trivial or (yield from self.world.until_back(me)):
            gradient, read_at = self.batches.gradient(self.model[me], me), self.updates
            size, outcome = gradient.size, (yield self.compute(me))
            if outcome is not Outcome.DONE:
                self._fill(me, [])
                if outcome is Outcome.GONE:
                    return
                self.batches.lost(gradient)
                continue
            step_size = self.step_size()
            self.model[me] = self.descent.step(me, self.model[me], gradient, step_size)
            del gradient  # a suspended process would keep it, and the model in it, alive
            self.updated(me, self.updates - read_at, size, step_size)
            self._share(me)
            self._average(me)

    def _share(self, me: int) -> None:
        """Replace the queue by the fragments of the model as it is now."""
        generator = self.world.streams.generator("divshare", me, self.client_updates[me])
        queue: list[tuple[int, int]] = []
        for fragment in range(self.cut.count):
            others = generator.choice(self.num_clients - 1, self.peers, replace=False).tolist() if self.peers else ()
            queue += [(fragment, other + (other >= me)) for other in others]
        self._fill(me, [queue[at] for at in generator.permutation(len(queue)).tolist()])
        self._send_on(me, self._queues[me], self.model[me])

    def _fill(self, me: int, queue: list[tuple[int, int]]) -> None:
        """Begin another queue; what was still to be sent of the last one is forgotten."""
        self._queue[me] = queue
        self._queues[me] += 1

    def _send_on(self, me: int, number: int, model: Model) -> None:
        """Send the queue one by one, while it is the one of this number."""
        network, queue, now = self.world.network, self._queue[me], self.clock.now
        if number != self._queues[me] or not (self._trivial or self.world.availability.online(me, now)):
            return
        while queue and self._left_s[me] <= now:
            fragment, target = queue.pop()
            size = self.cut.bytes(fragment)
            self._left_s[me] = now + network.carrier.paced_s(me, target, size + network.links.overhead)
            network.send(
                me,
                target,
                size,
                lambda fragment=fragment, target=target: self._receive(target, me, fragment, number, model),  # type: ignore[misc]
                lambda: None,
                model,
            )
        if queue:
            self.clock.call_at(self._left_s[me], lambda: self._send_on(me, number, model))

    def _receive(self, me: int, source: int, fragment: int, number: int, model: Model) -> None:
        if number >= self._inbox[me].get((source, fragment), (-1, model))[0]:
            self._inbox[me][source, fragment] = number, model

    def _average(self, me: int) -> None:
        """Replace each fragment by the mean of it and of those that came."""
        inbox = self._inbox[me]
        came = [0] * self.cut.count
        for _, fragment in inbox:
            came[fragment] += 1
        shares = {fragment: 1.0 / (1 + count) for fragment, count in enumerate(came) if count}
        parts = [(shares[fragment], model, fragment) for (_, fragment), (_, model) in sorted(inbox.items())]
        inbox.clear()
        self.model[me] = self.cut.combine(self.tape, self.model[me], parts, shares)
