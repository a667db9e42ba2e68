"""Decoupled DiLoCo: learners never wait, and a server merges what a quorum sent.

Douillard et al. 2026, "Decoupled DiLoCo for resilient distributed pre-training", https://arxiv.org/abs/2604.21428.
Clients are the paper's learners and the server its syncer; their turns are those of `simfl.algorithms.fragmented`.

    clients:  never wait; after each turn, take in the fragments that have come, and send fragment n mod P
    server:   for each fragment p:  wait until K of M clients have sent it since its last step (the quorum),
              then for margin * slack longer, or until all have sent it;  then take the step, and send X_p to all

    slack = tau * (time of a mini-batch) - (time since the first of the K sent it) - (time of a message to clients)
    weights w_j = tokens * tokens / steps, of client j since X_p came to it last;  D is their radial-directional mean

Tokens are examples. The time of a mini-batch is the shortest one of the quorum's clients. So the result comes back to
each of these within tau mini-batches, if the quorum comes in that time and messages take their expected times. If the
quorum comes later, the server steps at once. The paper's server polls clients, and the first term that is subtracted is
its wait for the quorum; here clients send without being asked, so it begins when the first one sends. A client that
sends p again before the step replaces its message.

The quorum is one of the clients that are still in the run: if fewer than K are left, all of them are enough. Clients
that are away for a time, or cut off, count.

Fragments consist of whole tensors, of about equal sizes, as in the paper (`Fragments.packed`). There may be fewer
tensors than P: then turns that send nothing lie between the others, and H stays P L. The mean is radial-directional for
each tensor, and plain for embeddings.

What this rests on: the paper's abstract, and what four public programs and summaries cite of its equations; its text
could not be read. They agree on P = H = 24, tau = 2, K = 1, the weights and both means. The paper gives no numbers for
the step and the momentum of the server, which are DiLoCo's here, and the programs differ in the margin.

Privacy: as in `simfl.algorithms.fragmented`.

Faults: those of `simfl.algorithms.server`. A client that crashed or was away takes the server's whole model. While the
server is offline, or cut off, clients train on; their messages wait. Fragments do not reach an absent client.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import simpy

from simfl.algorithms.fragmented import Fragment, Fragmented
from simfl.tape import Model
from simfl.tape.fragment_steps import FragmentStep
from simfl.tape.fragments import Fragments
from simfl.tape.recording import Round


class Sent(NamedTuple):
    """A client's fragment: when it was sent, and what its mini-batches took, seconds."""

    weight: float
    model: Model
    sent_s: float
    step_s: float


@dataclass
class Gathering:
    """What has come of a fragment since its last step, by client."""

    came: dict[int, Sent] = field(default_factory=dict)
    #: Whether the quorum has come.
    enough: bool = False


class DecoupledDiLoCo(Fragmented):
    """Learners that never wait, and a server that merges what a quorum has sent."""

    kind: ClassVar[str] = "decoupled_diloco"
    summary: ClassVar[str] = "Decoupled DiLoCo: learners never wait, a server merges fragments of a quorum"
    family: ClassVar[str] = "low communication"
    who_waits: ClassVar[str] = "no client waits; the server waits for a quorum and a grace"
    what_travels: ClassVar[str] = "fragments of models, both ways"
    what_is_private: ClassVar[str] = "a client (`gaussian_update`)"

    def set_up(  # type: ignore[override]
        self,
        *,
        fragments: int,
        quorum: int,
        overlap_steps: float,
        margin: float,
        averaging: str,
        tensors: Sequence[tuple[int, bool]] | None = None,
        **options: Any,
    ) -> None:
        """Take the options.

        Args:
            tensors: length of each tensor of the model, and whether it is an embedding; None: P blocks of about equal
                sizes, each a tensor.
        """
        self.tensors = tensors
        super().set_up(fragments=fragments, **options)
        if averaging == "radial":
            radial = [(length, True) for length in self.cut.lengths]
            if tensors is not None:
                radial = [(length, not embeds) for length, embeds in tensors]
            self.outer = FragmentStep(self.cut, tuple(radial))
        self.quorum, self.overlap_steps, self.margin = quorum, overlap_steps, margin
        #: The number of turns in a round, and the fragments that are sent in them, by turn.
        self.turns_per_round = fragments
        self._fragment_at = {each * fragments // self.cut.count: each for each in range(self.cut.count)}
        self.coming = [Gathering() for _ in range(self.cut.count)]
        #: Steps since each fragment came to each client.
        self.since = [[0] * self.cut.count for _ in range(self.num_clients)]
        #: Fragments that have come to each client since its last turn.
        self.inbox: list[dict[int, Fragment]] = [{} for _ in range(self.num_clients)]
        #: Clients that have joined and not left, and those of them that train now.
        self.members: set[int] = set()
        self.present: set[int] = set()
        self._began_s = [0.0] * self.num_clients

    def cut_into(self, fragments: int) -> Fragments:
        """Return at most this number of fragments, of whole tensors."""
        if self.tensors is None:
            return super().cut_into(fragments)
        return Fragments.packed([length for length, _ in self.tensors], fragments)

    # -- the clients ---------------------------------------------------------------------------

    def enter(self, me: int) -> None:
        """Note that the client has joined."""
        self.members.add(me)

    def leave(self, me: int) -> None:
        """Tell the server, now or when it is back, that the client has left."""
        self.service.when_up(functools.partial(self._part_with, me))

    def content(self, client: int) -> Any:
        """Return a message with the whole model."""
        self.since[client] = [0] * self.cut.count
        self.inbox[client] = {}
        return super().content(client)

    def gradient_at(self, me: int, content: Any) -> Round:
        """Promise the client's next turn at its model."""
        self.present.add(me)
        self._began_s[me] = self.clock.now
        return super().gradient_at(me, content)

    def push(self, me: int, change: Round, read: int) -> simpy.Event:
        """End a turn; the next one begins at once."""
        now, since = self.clock.now, self.since[me]
        fragment = self._fragment_at.get(self.turn[me] % self.turns_per_round)
        model = self.finished(me, change, fragment)
        since[:] = [count + self.steps[me] for count in since]
        arrived, self.inbox[me] = self.inbox[me], {}
        model = self.mixed(me, model, arrived)
        for one in arrived:
            since[one] = 0
        if fragment is not None and since[fragment]:
            weight, step_s = (
                float(since[fragment]) * self.batches.sizes[me] ** 2,
                (now - self._began_s[me]) / self.steps[me],
            )
            sent = Sent(weight, model, now, step_s)
            self.report(me, fragment, model, functools.partial(self._came, me, fragment, sent))
        return self.clock.event().succeed((model, self.read(me)))

    # -- the server ----------------------------------------------------------------------------

    def _came(self, client: int, fragment: int, sent: Sent) -> None:
        """Take a client's fragment."""
        self.coming[fragment].came[client] = sent
        self._look_at(fragment)

    def _look_at(self, fragment: int) -> None:
        """Begin the grace with the quorum, and take the step if all have sent."""
        this, now = self.coming[fragment], self.clock.now
        if not this.enough and len(this.came) < max(1, min(self.quorum, len(self.members))):
            return
        if self.present <= this.came.keys():
            self._step(fragment, this)
        elif not this.enough:
            this.enough = True
            ways = [(self.server, k) for k in sorted(self.present)]
            message_s = max(self.world.network.expected_s(ways, self.cut.bytes(fragment)))
            quorum_s = now - min(one.sent_s for one in this.came.values())
            step_s = min(one.step_s for one in this.came.values())
            grace_s = max(0.0, self.margin * (self.overlap_steps * step_s - quorum_s - message_s))
            self.clock.call_at(now + grace_s, lambda: self.service.when_up(lambda: self._step(fragment, this)))

    def _step(self, fragment: int, this: Gathering) -> None:
        """Take the step of a fragment, once, and send the result."""
        if self.coming[fragment] is not this:
            return
        self.coming[fragment] = Gathering()
        self.merge(fragment, [(this.came[k].weight, this.came[k].model) for k in sorted(this.came)])
        result, size = (self.stepped[fragment], self.server_model), self.cut.bytes(fragment)
        for client in sorted(self.present):
            receive = functools.partial(self._arrived, client, fragment, result)
            self.to_client(client, receive, size, lambda: None, self.server_model)

    def _arrived(self, client: int, fragment: int, result: Fragment) -> None:
        """Keep a fragment that came to a client, unless it has a newer one."""
        newest = self.inbox[client].get(fragment, (self.held[client][fragment],))[0]
        if result[0] > newest:
            self.inbox[client][fragment] = result

    def _part_with(self, client: int) -> None:
        """Stop counting on a client that has left."""
        self.members.discard(client)
        self.forget(client)

    def forget(self, client: int) -> None:
        """Stop expecting the client's fragments."""
        self.present.discard(client)
        super().forget(client)
        for fragment in range(self.cut.count):
            self._look_at(fragment)
