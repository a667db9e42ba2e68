"""SGP: stochastic gradient push, gossip over directed graphs with push-sum.

Assran, Loizou, Ballas, Rabbat 2019, "Stochastic gradient push for distributed deep learning",
https://arxiv.org/abs/1811.10792, Algorithm 1, and Algorithm 2 (overlap):

    each client i, round k:   x_i <- x_i - step * gradient at z_i
                              send (p_ji x_i, p_ji w_i) to every out-neighbor j of this round, keep (p_ii x_i, p_ii w_i)
                              wait for the messages of its in-neighbors of round k - overlap, then
                              x_i <- x_i + all x received,  w_i <- w_i + all w received,  z_i = x_i / w_i

Every column of P sums to 1 (p_ji = 1 / (1 + number of out-neighbors)); its rows need not. The weight w_i starts at 1
and measures the bias of x_i, which z_i removes. The sum of all w, including those in flight, is the number of clients,
however late messages are. If a client leaves permanently, its x and w, and those in flight to it, are lost in the same
proportion, so that z stays an average of models.

A client waits for its in-neighbors only: with overlap 0 for this round's messages, with overlap s for those sent s
rounds ago, so that messages travel while it computes. Clients neither send to nor wait for clients that have left or
have not joined. A client that joins late starts in a round that no client has reached.

A client sends in every round, so up to s + 1 of its exchanges are under way. In the authors' program
(https://github.com/facebookresearch/stochastic_gradient_push, `overlap` and `synch_freq`) a client has one exchange
under way: it adds what has come, waits for it after `synch_freq` + 1 rounds at the latest, and then sends the next.
With s = 1 both wait for the message of the round before; the program adds it before it sends, and here a client adds it
after it has sent.

Graphs: `one_peer` (the paper's: in round k, client i sends to i + 2^(k mod P) only, P hops in turn), `exponential` (to
all i + 2^h), `ring` (to i + 1), `topology` (both ways over the scenario's links). In the first three, i is a position
among the clients that are left when the first client reaches the round. (On a fixed ring, a client whose predecessor
has left would give its weight away and get none.) If the `topology` changes, a round uses the graph at that time.

Compression. A client shows s_i in place of x_i: an estimate of x_i, or Q(x_i) with or without an error memory. With n
out-neighbors:

    send (gamma p_ji s_i, gamma p_ji w_i);  x_i <- x_i - n gamma p_ji s_i,  w_i <- w_i - n gamma p_ji w_i

So P becomes (1 - gamma) I + gamma P for both, and the sums of x and w stay, whatever s_i is. With estimates and
gamma = 1 this is the quantized push-sum of Taheri, Mokhtari, Hassani, Pedarsani 2020, https://arxiv.org/abs/2002.09964;
it needs a compressor that leaves out little. With `one_peer`, a client has an estimate for each receiver, because each
of them hears one message in P; in other graphs all its receivers have the same estimate.

Faults. Clients wait, `overlap` rounds later, for a lost message, a partition and a crashed client. Weight in flight is
counted, and is lost only with a client that leaves permanently. If a partition does not end, no client continues.

Lost messages. With `lost: sums`, links do not send them again. A message has the running sums of the shares of x and w
that its sender has ever sent to the receiver (`simfl.algorithms.running_sums`), so that the next message makes up for
it. A client waits for in-neighbors until the resend timeout of the links is over, then goes on without them, and it
adds what comes when it comes. So it does not wait for clients that are slow, crashed or cut off either. Their gradients
count less: the limit is that of losses weighted by the rounds that clients make. A step from x changes z by 1/w times
as much. A client that hears nothing for a while would give all of its w away; below 1/8 it repeats its sums and gives
nothing more.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any, ClassVar

import simpy

from simfl.algorithms.disclosure import merged, observed
from simfl.algorithms.neighbor_rounds import NeighborRounds
from simfl.algorithms.pushing import pushing_of
from simfl.algorithms.running_sums import RunningSums, Share
from simfl.tape import Gradient, Model
from simfl.world.availability import Outcome
from simfl.world.engine import Process

#: With running sums, a client with less w gives nothing more away.
_LEAST = 1.0 / 8.0
#: Out-neighbors and in-neighbors of every client in a round.
Edges = tuple[list[list[int]], list[list[int]]]


class SGP(NeighborRounds):
    """Rounds of gradient steps and pushes along directed edges."""

    kind: ClassVar[str] = "sgp"
    summary: ClassVar[str] = "SGP: stochastic gradient push over directed graphs; waits for the in-neighbors"
    family: ClassVar[str] = "gossip"
    who_waits: ClassVar[str] = (
        "each client waits for what its in-neighbors sent `overlap` rounds ago; with `lost: sums`, until a timeout"
    )
    what_travels: ClassVar[str] = "parts of models with their weights, along directed edges"
    what_is_private: ClassVar[str] = "an example (`gaussian`, `laplace_l2`, `laplace`) or a client (`gaussian_update`)"

    def set_up(self, *, graph: str, overlap: int, lost: str) -> None:  # type: ignore[override]
        """Take the options."""
        super().set_up()
        self.overlap = overlap
        self.graph = graph
        self._neighbors = self.world.neighbors()
        self._changes = graph == "topology" and self.world.changing is not None
        self._edges: dict[int, Edges] = {}  # by round, for current rounds, if clients come and go
        self._built: dict[int, tuple[Sequence[int], Edges]] = {}  # clients and edges of the last graph, by phase
        #: w of every client; `model` holds x.
        self.weight = [1.0] * self.num_clients
        #: What a client pushes of its x.
        self._pushing = pushing_of(self, self.model, graph == "one_peer")
        self.combines += self._pushing.beside
        #: Sum of w in flight to clients or in their inboxes.
        self.flying = 0.0
        self._inbox: list[dict[tuple[int, int], Share]] = [{} for _ in range(self.num_clients)]
        self._received: list[set[tuple[int, int]]] = [set() for _ in range(self.num_clients)]
        #: With running sums: those, the newest round heard of each sender, and the round up to which no client waits.
        self._sums = RunningSums(self.tape, self.world.network) if lost == "sums" else None
        self._newest: list[dict[int, int]] = [{} for _ in range(self.num_clients)]
        self._waited: list[int] = [-1] * self.num_clients

    def edges(self, round_num: int) -> Edges:
        """Return the edges of a round, built when a client first asks for them."""
        if self._trivial and not self.budgets.limited and not self._changes:
            return self._build(range(self.num_clients), round_num)
        edges = self._edges.get(round_num)
        if edges is None:
            edges = self._build([k for k in range(self.num_clients) if self.takes_part(k, round_num)], round_num)
            oldest = self.rounds - self.overlap
            self._edges = {kept: old for kept, old in self._edges.items() if kept >= oldest}
            self._edges[round_num] = edges
        return edges

    def _build(self, clients: Sequence[int], round_num: int) -> Edges:
        """Return the edges of a round among `clients`."""
        count = len(clients)
        hops = [1] if self.graph == "ring" else [2**power for power in range(max(count - 1, 0).bit_length())]
        phase = round_num % len(hops) if self.graph == "one_peer" and hops else 0
        built = self._built.get(phase)
        if built is not None and built[0] == clients and not self._changes:
            return built[1]
        if self.graph == "one_peer":
            hops = hops[phase : phase + 1]
        targets: list[list[int]] = [[] for _ in range(self.num_clients)]
        sources: list[list[int]] = [[] for _ in range(self.num_clients)]
        for place, client in enumerate(clients):
            if self.graph == "topology":
                targets[client] = list(self._neighbors(client))
            elif count > 1:
                targets[client] = [clients[(place + hop) % count] for hop in hops]
            for target in targets[client]:
                sources[target].append(client)
        self._built[phase] = clients, (targets, sources)
        return targets, sources

    def models(self) -> Sequence[Model]:
        """Return z, one model per client."""
        return [self.debiased(k) for k in range(self.num_clients)]

    def debiased(self, client: int) -> Model:
        """Return z = x / w."""
        weight, model = self.weight[client], self.model[client]
        return model if weight == 1.0 else self.tape.combine((1.0 / weight, model))

    def worker(self, me: int) -> Process:
        """Repeat: compute, step, push, wait, absorb."""
        yield from self.join(me)
        while True:
            round_num = self._client_round[me]
            gradient = self._gradient_at(me)
            size = gradient.size
            while (outcome := (yield self.compute(me))) is Outcome.CRASHED:
                pass  # computed again at the same model: other clients still wait for this round
            if outcome is Outcome.GONE:
                self.leave(me)
                return
            step_size = self.step_size()
            self.model[me] = self._step(me, gradient, step_size)
            self.updated(me, 0, size, step_size, round_num=round_num)
            self.push(me, round_num)
            if not (yield from self.wait_for(me, round_num - self.overlap)):
                return
            self._received[me] = {key for key in self._received[me] if key[0] > round_num - self.overlap}
            self.absorb(me, round_num)
            self._client_round[me] = round_num + 1

    def _gradient_at(self, me: int) -> Gradient:
        """Promise the client's next gradient."""
        return self.batches.gradient(self.debiased(me), me)

    def _step(self, me: int, gradient: Gradient, step_size: float) -> Model:
        """Return x after a step along the gradient, which is consumed."""
        return self.descent.step(me, self.model[me], gradient, step_size)

    def push(self, me: int, round_num: int) -> None:
        """Send an equal share of x and w to each out-neighbor, and keep one."""
        targets = [k for k in self.edges(round_num)[0][me] if self.takes_part(k, round_num)]
        if not targets:
            return
        share = 1.0 / (1 + len(targets))
        if self._sums is not None:
            self._push_sums(me, targets, round_num, share, self._sums)
            return
        sent, kept, part, left, shown = self._pushing.split(me, targets, share, self.model[me])
        weight = part * self.weight[me]
        self.model[me], self.weight[me] = kept, left * self.weight[me]
        if shown is None and observed(self.world.network):
            shown = self.debiased(me)
        for target in targets:
            self.flying += weight
            self.world.network.send(
                me,
                target,
                self._pushing.bytes(me, target, round_num, self._first_round[me]),
                lambda target=target: self._receive(target, me, round_num, (sent, weight)),  # type: ignore[misc]
                content=shown,
            )

    def _push_sums(self, me: int, targets: Sequence[int], round_num: int, share: float, sums: RunningSums) -> None:
        """Send the running sums of shares, x and w, once."""
        size, sent = self.training.model_bytes + 4, (Model((), ()), 0.0)
        if self.weight[me] >= _LEAST:
            sent = self.model[me], self.weight[me] = (
                self.tape.combine((share, self.model[me])),
                share * self.weight[me],
            )
        for target in targets:
            self.flying += sent[1]
            rho = sums.give(me, target, round_num, sent)
            self.world.network.send(
                me,
                target,
                size,
                lambda target=target: self._receive_sums(target, me, round_num, sums),  # type: ignore[misc]
                refused=lambda target=target: sums.lose(me, target, round_num),  # type: ignore[misc]
                once=True,
                beside=() if rho is None else (rho,),
            )

    def _receive_sums(self, me: int, source: int, round_num: int, sums: RunningSums) -> None:
        for number, share in sums.use(source, me, round_num).items():
            self._inbox[me][number, source] = share
        self._newest[me][source] = max(round_num, self._newest[me].get(source, -1))
        self.wake(me)

    def wait_for(self, me: int, round_num: int) -> Generator[simpy.Event, Any, bool]:
        """Wait for a round's shares, with running sums until the resend timeout."""
        if self._sums is not None and next(iter(self.missing(me, round_num)), None) is not None:
            self.clock.call_at(
                self.clock.now + self.world.network.links.resend_timeout_s, lambda: self._go_on(me, round_num)
            )
        return (yield from super().wait_for(me, round_num))

    def _go_on(self, me: int, round_num: int) -> None:
        """Let a client stop waiting for a round's shares."""
        if round_num > self._waited[me]:
            self._waited[me] = round_num
            self.wake(me)

    def absorb(self, me: int, round_num: int) -> None:
        """Add the received shares of rounds up to this one."""
        inbox = self._inbox[me]
        ready = [key for key in inbox if key[0] <= round_num or self._sums is not None]
        if not ready:
            return
        shares = [inbox.pop(key) for key in sorted(ready)]
        for _, weight in shares:
            self.flying -= weight
            self.weight[me] += weight
        self.model[me] = self.tape.combine((1.0, self.model[me]), *((1.0, model) for model, _ in shares))
        merged(self.world.network, me, self.model[me])

    def _receive(self, me: int, source: int, round_num: int, share: Share) -> None:
        self._inbox[me][round_num, source] = share
        self._received[me].add((round_num, source))
        self.wake(me)

    def missing(self, me: int, round_num: int) -> Iterable[int]:
        """Yield the in-neighbors of the round whose shares have not arrived."""
        if round_num >= self._first_round[me] and round_num > self._waited[me]:
            received, newest = self._received[me], self._newest[me]
            for k in self.edges(round_num)[1][me]:
                heard = newest.get(k, -1) >= round_num if self._sums is not None else (round_num, k) in received
                if not heard and self.takes_part(k, round_num):
                    yield k

    def awaits(self, client: int) -> str:
        """Name the in-neighbors whose shares are missing."""
        round_num = self._client_round[client] - self.overlap
        missing = ", ".join(map(str, self.missing(client, round_num)))
        return f"waits for the share of round {round_num} of client {missing}"
