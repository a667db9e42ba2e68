"""CA2FL: FedBuff whose server calibrates updates by a cache of the last ones.

Wang, Cao, Wu, Chen and Chen 2024, "Tackling the data heterogeneity in asynchronous federated learning with cached
update calibration", ICLR, https://openreview.net/forum?id=4aywmeb97I. The server keeps h_i, the last update of each of
the N clients, 0 at first:

    clients:  as in FedBuff:  take w^t, train, send Delta = w_Q - w^t
    server:   with M updates in the buffer B:  h = 1/N sum_i h_i,  v = h + 1/M sum_{i in B} (Delta_i - h_i)
              w^{t+1} = w^t + eta v,  then h_i = Delta_i for i in B,  B is empty

So a client that has sent nothing for long still counts by its last update, and v estimates the mean over all clients.
If a client has several updates in a buffer, all are compared with the h_i before the step; the newest one stays.
Updates have no weight that falls with their staleness, except that of a staleness bound.

Privacy: caches are functions of the noisy updates that clients sent, so they are no further releases.

Faults: those of FedBuff. A client that has left stays in the cache, as a client that is slow.
"""

from __future__ import annotations

from typing import Any, ClassVar

from simfl.algorithms.cache import Cache
from simfl.algorithms.fedbuff import FedBuff
from simfl.algorithms.sums import Part


class CA2FL(FedBuff):
    """A server that takes one step for every M calibrated updates."""

    summary: ClassVar[str] = "CA2FL: FedBuff whose server corrects updates by the cached last one of every client"
    family: ClassVar[str] = "servers"
    who_waits: ClassVar[str] = "no client waits; with `after_update: wait`, clients wait for the server's step"
    what_travels: ClassVar[str] = "the model to clients, their changes to the server"
    what_is_private: ClassVar[str] = "a client (`gaussian_update`)"
    kind: ClassVar[str] = "ca2fl"
    combines_per_gradient = 3.0

    def set_up(self, **options: Any) -> None:
        """Take the options of FedBuff; the cache is empty."""
        super().set_up(**options)
        self.cache = Cache(self.tape, self.num_clients)

    def calibrated(self, parts: list[Part]) -> list[Part]:
        """Return the terms of v for the updates, and put these into the cache."""
        tape, cache, share = self.tape, self.cache, 1.0 / self.num_clients
        changes = [(part.client, tape.settle(tape.combine((1.0, part.change)))) for part in parts]
        made = []
        for part, (client, change) in zip(parts, changes, strict=True):
            terms = [(share, cache.total), (1.0, change)]
            if client in cache.latest:
                terms.append((-1.0, cache.latest[client]))
            made.append(part._replace(change=tape.combine(*terms)))
        for client, change in changes:
            cache.put(client, change)
        return made
