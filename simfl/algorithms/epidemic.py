"""Epidemic Learning: rounds of gossip with random others, drawn in every round.

de Vos, Farhadkhani, Guerraoui, Kermarrec, Pires, Sharma 2023, "Epidemic learning: boosting decentralized learning with
randomized communication", NeurIPS, https://arxiv.org/abs/2310.01972, Algorithm 1, with one local step:

    each client i, round r:   x_i <- x_i - step * gradient at x_i
                              send x_i to s random others; S_i are the clients that send to i
                              wait for the models of S_i, then   x_i <- (x_i + sum_{j in S_i} x_j) / (1 + |S_i|)

With `graph: local` (EL-Local) each client draws its s receivers independently, so that the number of models that it
hears differs. With `oracle` (EL-Oracle) the links of a round are a random graph in which every client has s neighbors.
All clients know the draws of a round, as from a common seed, and so the clients to wait for. The average of a round
does not keep the mean of all models with `local`; it does in expectation, and with `oracle` exactly.

Faults. Clients wait for a lost message, a partition and a crashed client. A round is drawn among the clients that take
part when the first of them reaches it. If then s times their number is odd, `oracle` draws a graph of s + 1 neighbors;
among s or fewer clients, all send to all. A client neither sends to nor waits for clients that have left.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import ClassVar

from simfl.algorithms.aggregation import Weighted
from simfl.algorithms.disclosure import merged
from simfl.algorithms.mixing import LeadingMixing, Shown, mixing_of
from simfl.algorithms.neighbor_rounds import NeighborRounds
from simfl.world.availability import Outcome
from simfl.world.changing import random_receivers
from simfl.world.engine import Process


class Epidemic(NeighborRounds):
    """Rounds of steps and of averages with random senders."""

    kind: ClassVar[str] = "epidemic"
    summary: ClassVar[str] = "Epidemic Learning: each client sends to random others, drawn in every round"
    family: ClassVar[str] = "gossip"
    who_waits: ClassVar[str] = "each client waits for the clients that drew it in the round"
    what_travels: ClassVar[str] = "models, to random others"
    what_is_private: ClassVar[str] = "an example (`gaussian`, `laplace_l2`, `laplace`) or a client (`gaussian_update`)"

    def set_up(self, *, peers: int | None, graph: str) -> None:  # type: ignore[override]
        """Take the options."""
        super().set_up()
        #: s.
        self.peers = max(1, (self.num_clients - 1).bit_length()) if peers is None else peers
        self.graph = graph
        #: By current round: the receivers and the senders of each client.
        self._drawn: dict[int, tuple[dict[int, list[int]], dict[int, list[int]]]] = {}
        self._inbox: list[dict[tuple[int, int], Shown]] = [{} for _ in range(self.num_clients)]
        self._means = mixing_of(self, self.model, LeadingMixing)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield all pairs of clients."""
        return itertools.combinations(range(self.num_clients), 2)

    def drawn(self, round_num: int) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
        """Return the receivers and the senders of each client; the first use draws."""
        if round_num not in self._drawn:
            clients = [k for k in range(self.num_clients) if self.takes_part(k, round_num)]
            generator = self.world.streams.generator("epidemic", 0, round_num)
            places = random_receivers(len(clients), self.peers, generator, regular=self.graph == "oracle")
            receivers = {k: [clients[at] for at in own] for k, own in zip(clients, places, strict=True)}
            senders: dict[int, list[int]] = {k: [] for k in clients}
            for sender, own in receivers.items():
                for receiver in own:
                    senders[receiver].append(sender)
            oldest = self.rounds
            self._drawn = {kept: old for kept, old in self._drawn.items() if kept >= oldest}
            self._drawn[round_num] = receivers, senders
        return self._drawn[round_num]

    def worker(self, me: int) -> Process:
        """Repeat: compute, step, send, wait, average."""
        yield from self.join(me)
        while True:
            round_num = self._client_round[me]
            gradient = self.batches.gradient(self.model[me], me)
            size = gradient.size
            while (outcome := (yield self.compute(me))) is Outcome.CRASHED:
                pass  # computed again at the same model: other clients still wait for this round
            if outcome is Outcome.GONE:
                self.leave(me)
                return
            step_size = self.step_size()
            self.model[me] = self.descent.step(me, self.model[me], gradient, step_size)
            self.updated(me, 0, size, step_size, round_num=round_num)
            self._push(me, round_num)
            if not (yield from self.wait_for(me, round_num)):
                return
            self._average(me, round_num)
            self._client_round[me] = round_num + 1

    def _push(self, me: int, round_num: int) -> None:
        """Send the model to the receivers of the round."""
        sent = self._means.show(me, self.model[me])
        for receiver in self.drawn(round_num)[0].get(me, ()):
            if self.takes_part(receiver, round_num):
                self.world.network.send(
                    me,
                    receiver,
                    self._means.bytes(me, receiver, round_num, self._first_round[me]),
                    lambda receiver=receiver: self._receive(receiver, me, round_num, sent),  # type: ignore[misc]
                    content=sent.model,
                )

    def _receive(self, me: int, source: int, round_num: int, sent: Shown) -> None:
        if round_num >= self._client_round[me]:  # a message of a client that left may arrive too late
            self._inbox[me][round_num, source] = sent
            self.wake(me)

    def _average(self, me: int, round_num: int) -> None:
        """Replace the model by the mean of it and of the received ones."""
        inbox = self._inbox[me]
        senders = [j for j in self.drawn(round_num)[1].get(me, ()) if (round_num, j) in inbox]
        if not senders:
            return
        share = 1.0 / (1 + len(senders))
        heard = [(j, share, inbox.pop((round_num, j))) for j in senders]
        self.model[me] = self._means.mix(me, round_num, Weighted(self.model[me], share), heard)
        merged(self.world.network, me, self.model[me])

    def missing(self, me: int, round_num: int) -> Iterable[int]:
        """Yield the senders of the round whose models have not arrived."""
        senders = self.drawn(round_num)[1].get(me, ())
        return (j for j in senders if (round_num, j) not in self._inbox[me] and self.takes_part(j, round_num))

    def awaits(self, client: int) -> str:
        """Name the senders whose models are missing."""
        round_num = self._client_round[client]
        missing = ", ".join(map(str, self.missing(client, round_num)))
        return f"waits for the model of round {round_num} of client {missing}"
