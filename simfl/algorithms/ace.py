"""ACE: at each arrival the server steps along the mean of all clients' updates.

Chang, Yao, Krishnamurthy, Shelton, Chakraborty, Swami, Oymak and Roy-Chowdhury 2025, "Mitigating participation
imbalance bias in asynchronous federated learning", https://arxiv.org/abs/2511.19066:

    clients:  take w^t, train for Q steps, send Delta = w_Q - w^t
    server:   on receipt of Delta of client i:  u_i <- Delta,  w^{t+1} = w^t + eta mean of u_k over k in A,
              send w^{t+1} to client i

ACE has all clients in A, so that each counts alike, whatever its speed. ACED, with `max_age: a`, has only those whose
update is at most a steps of the server old, counted from the model that it was trained from: it leaves out clients that
are too slow, or away. The paper begins with one update of every client; here A has, until then, the clients that have
sent one. The new update is in A in any case. The paper's clients send one stochastic gradient, which is Q = 1, the
default of a scenario.

Privacy: the cache is a function of the noisy updates that clients sent, so it is no further release.

Faults: those of `simfl.algorithms.server`. Without `max_age`, a client that has left still counts by its last update.
"""

from __future__ import annotations

from typing import Any, ClassVar

from simfl.algorithms.cache import Cache
from simfl.algorithms.disclosure import merged
from simfl.algorithms.local_rounds import LocalRounds, Update


class ACE(LocalRounds):
    """A server that steps along the mean of cached updates; no client waits."""

    summary: ClassVar[str] = "ACE: a server steps at each arrival along the mean of the last updates of all clients"
    family: ClassVar[str] = "servers"
    who_waits: ClassVar[str] = "no client waits"
    what_travels: ClassVar[str] = "the model to clients, their changes to the server"
    what_is_private: ClassVar[str] = "a client (`gaussian_update`)"
    kind: ClassVar[str] = "ace"
    combines_per_gradient = 2.0

    def set_up(self, *, server_step: float, max_age: int | None, **options: Any) -> None:  # type: ignore[override]
        """Take the options."""
        super().set_up(**options)
        self.server_step = server_step
        self.max_age = max_age
        self.cache = Cache(self.tape, self.num_clients)
        #: The version of the model that each cached update was trained from.
        self._read_at: dict[int, int] = {}

    def take(self, update: Update) -> None:
        """Put an update into the cache and step along the mean."""
        if update.weight == 0.0:
            self.drop(update)
            return
        tape, cache, client = self.tape, self.cache, update.client
        change = tape.settle(tape.combine((update.weight, update.change)))
        self._read_at[client] = self.version - update.staleness
        cache.put(client, change)
        if self.max_age is None:
            terms = [(1.0 / len(cache.latest), cache.total)]
        else:
            oldest = self.version - self.max_age
            young = [one for k, one in cache.latest.items() if k == client or self._read_at[k] >= oldest]
            terms = [(1.0 / len(young), one) for one in young]
        # minus the mean change serves as the gradient
        gradient = [(-share, one) for share, one in terms]
        self.server_model = self.server_descent.along(self.server_model, gradient, self.server_step)
        merged(self.world.network, self.server, self.server_model)
        self.applied()
        self.updated(client, update.staleness, update.examples, update.step_size)
        self.hand_out(client, update.came)
