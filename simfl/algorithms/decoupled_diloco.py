"""Decoupled DiLoCo: learners never wait, and a server merges what a quorum sent.

Douillard et al. 2026, "Decoupled DiLoCo for resilient distributed pre-training", https://arxiv.org/abs/2604.21428.
Clients are the paper's learners and the server its syncer; their turns are those of `simfl.algorithms.fragmented`.

    clients:  never wait; after each turn, take in the fragments that have come, and send fragment n mod P
    server:   for each fragment p:  wait until K of M clients have sent it since its last step (the quorum),
              then for margin * slack longer, or until all have sent it;  then take the step, and send X_p to all

    slack = tau * (time of a mini-batch) - (time from the first to the K-th message) - (time of a message to clients)
    weights w_j = tokens * tokens / steps, of client j since X_p came to it last;  D is their radial-directional mean

Tokens are examples. The time of a mini-batch is the shortest one of clients that have sent the fragment, so that with
a margin below 1 the result comes back within tau mini-batches of any of them. The paper's server polls clients; here
they send without being asked. A client that sends p again before the step replaces its message.

Privacy: as in `simfl.algorithms.fragmented`.

Faults: those of `simfl.algorithms.server`. A client that crashed or was away takes the server's whole model. While the
server is offline, or cut off, clients train on; their messages wait. Fragments do not reach an absent client.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import simpy

from simfl.algorithms.fragmented import Fragmented
from simfl.tape import Model
from simfl.tape.recording import Round


@dataclass
class Gathering:
    """What has come of a fragment since its last step: by client, weight and model."""

    began_s: float = math.inf
    came: dict[int, tuple[float, Model]] = field(default_factory=dict)
    #: The shortest time of a mini-batch, seconds.
    step_s: float = math.inf
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
        quorum: int = 1,
        overlap_steps: float = 5.0,
        margin: float = 0.8,
        averaging: str = "radial",
        **options: Any,
    ) -> None:
        """Take the options.

        Args:
            quorum: K in 1 ... number of clients.
            overlap_steps: tau, mini-batches.
            margin: the share of the slack that the server waits, in [0, 1].
            averaging: "radial" or "mean".
            options: the options of `Fragmented`.
        """
        super().set_up(averaging=averaging, **options)
        self.quorum, self.overlap_steps, self.margin = quorum, overlap_steps, margin
        self.gathering = [Gathering() for _ in range(self.cut.count)]
        #: Steps since each fragment came to each client.
        self.since = [[0] * self.cut.count for _ in range(self.num_clients)]
        self.present: set[int] = set()
        self._began_s = [0.0] * self.num_clients

    # -- the clients ---------------------------------------------------------------------------

    def content(self, client: int) -> Any:
        """Return a message with the whole model."""
        self.since[client] = [0] * self.cut.count
        return super().content(client)

    def gradient_at(self, me: int, content: Any) -> Round:
        """Promise the client's next turn at its model."""
        self.present.add(me)
        self._began_s[me] = self.clock.now
        return super().gradient_at(me, content)

    def push(self, me: int, change: Round, read: int) -> simpy.Event:
        """End a turn; the next one begins at once."""
        step_s, since = (self.clock.now - self._began_s[me]) / self.steps[me], self.since[me]
        model, fragment = self.finished(me, change, read), (self.turn[me] - 1) % self.cut.count
        since[:] = [count + self.steps[me] for count in since]
        arrived, self.inbox[me] = self.inbox[me], {}
        model = self.mixed(model, arrived)
        for one in arrived:
            since[one] = 0
        if since[fragment]:
            weight = float(since[fragment]) * self._nominal**2
            self.report(me, fragment, model, lambda: self._came(me, fragment, model, weight, step_s))
        return self.clock.event().succeed((model, self.read(me)))

    # -- the server ----------------------------------------------------------------------------

    def _came(self, client: int, fragment: int, model: Model, weight: float, step_s: float) -> None:
        """Take a client's fragment; the quorum begins the grace."""
        now, this = self.clock.now, self.gathering[fragment]
        this.began_s, this.step_s = min(this.began_s, now), min(this.step_s, step_s)
        this.came[client] = weight, model
        begins = len(this.came) >= self.quorum and not this.enough
        this.enough = this.enough or begins
        if this.enough and self.present <= this.came.keys():
            self._step(fragment, this)
        elif begins:
            ways = [(self.server, k) for k in sorted(self.present)]
            message_s = max(self.world.network.expected_s(ways, self.cut.bytes(fragment)))
            slack_s = self.overlap_steps * this.step_s - (now - this.began_s) - message_s
            grace_s = max(0.0, self.margin * slack_s)
            self.clock.call_at(now + grace_s, lambda: self.when_up(lambda: self._step(fragment, this)))

    def _step(self, fragment: int, this: Gathering) -> None:
        """Take the step of a fragment, once, and send the result."""
        if self.gathering[fragment] is not this:
            return
        self.gathering[fragment] = Gathering()
        self.merge(fragment, [this.came[k] for k in sorted(this.came)])
        self.broadcast(fragment, self.present)

    def forget(self, client: int) -> None:
        """Stop expecting the client's fragments."""
        self.present.discard(client)
        super().forget(client)
        for fragment, this in enumerate(self.gathering):
            if this.enough and self.present <= this.came.keys():
                self._step(fragment, this)

    def leave(self, me: int) -> None:
        """Stop expecting the fragments of a client that has left."""
        self.forget(me)
