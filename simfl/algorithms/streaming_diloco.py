"""Streaming DiLoCo: fragments are synchronized one by one, and applied later.

Douillard et al. 2025, "Streaming DiLoCo with overlapping communication: Towards a distributed free lunch",
https://arxiv.org/abs/2501.18512, Algorithm 2. The turns are those of `simfl.algorithms.fragmented`, the same ones for
all clients:

    clients:  after turn n:  send fragment n mod P of x;
              wait for the result X_p of turn n - delay, p its fragment, and take x_p <- alpha x_p + (1 - alpha) X_p
    server:   when all clients have sent the fragment of turn n:  take the step on their mean, send X_p to all

So a result is applied tau = delay * L mini-batches after its fragment was sent, even if it comes earlier, and a client
waits only if it comes later. With P = 1, delay = 0 and alpha = 0 this is DiLoCo. The paper's clients average by
all-reduce; here they have a server. The paper also quantizes messages.

Privacy: as in `simfl.algorithms.fragmented`.

Faults: those of `simfl.algorithms.server`. The server does not wait for a client that crashed in a turn, or missed a
result. When it is back, it takes the whole model and joins in a turn that no client has started. Others wait for the
fragment of a client that is cut off.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar

import simpy

from simfl.algorithms.fragmented import Fragment, Fragmented
from simfl.tape import Model
from simfl.tape.recording import Round


class StreamingDiLoCo(Fragmented):
    """Clients in step, whose fragments travel while they train on."""

    kind: ClassVar[str] = "streaming_diloco"
    summary: ClassVar[str] = "Streaming DiLoCo: one fragment at a time is synchronized, and applied some turns later"
    family: ClassVar[str] = "low communication"
    who_waits: ClassVar[str] = "a client waits for a fragment's mean if it takes longer than `delay` turns"
    what_travels: ClassVar[str] = "fragments of models, both ways"
    what_is_private: ClassVar[str] = "a client (`gaussian_update`)"

    def set_up(self, *, delay: int, **options: Any) -> None:  # type: ignore[override]
        """Take the options."""
        super().set_up(**options)
        self.delay = min(delay, self.cut.count - 1)
        #: The first turn of each client that takes part.
        self.first: dict[int, int] = {}
        #: Fragments sent, by turn and client.
        self.came: dict[int, dict[int, Model]] = {}
        self.results: list[dict[int, Fragment]] = [{} for _ in range(self.num_clients)]
        #: What each client waits for: the turn, and what to do with its result.
        self.pending: dict[int, tuple[int, Callable[[Fragment | None], None]]] = {}
        self._next = 0

    # -- the clients ---------------------------------------------------------------------------

    def content(self, client: int) -> Any:
        """Return a message with the whole model; the client joins in a new turn."""
        first = 0 if self.clock.now == 0.0 else self._next
        self.first[client] = self.turn[client] = first
        self._next = max(self._next, first + 1)
        self.results[client] = {}
        return super().content(client)

    def push(self, me: int, change: Round, read: int) -> simpy.Event:
        """End a turn: send a fragment, and apply an older one."""
        number, came = self.turn[me], self.clock.event()
        taking_part = me in self.first  # or else a result did not reach it, and others go on
        model = self.finished(me, change, number % self.cut.count if taking_part else None)
        if not taking_part:
            return self.request(me)
        self._next = max(self._next, number + 2)
        receive = functools.partial(self._take, me, number, model)
        self.report(me, number % self.cut.count, model, receive)
        wanted = number - self.delay

        def apply(result: Fragment | None) -> None:
            fragment = wanted % self.cut.count
            came.succeed(None if result is None else (self.mixed(me, model, {fragment: result}), self.read(me)))

        if wanted < self.first[me]:
            came.succeed((model, self.read(me)))
        elif wanted in self.results[me]:
            apply(self.results[me].pop(wanted))
        else:
            self.pending[me] = wanted, apply
        return came

    def _arrived(self, client: int, number: int, result: Fragment) -> None:
        """Keep the result of a turn, or give it to the client that waits for it."""
        if number < self.first.get(client, math.inf):
            return
        wanted, apply = self.pending.get(client, (-1, None))
        if apply is not None and wanted == number:
            del self.pending[client]
            apply(result)
        else:
            self.results[client][number] = result

    def _missed(self, client: int, number: int) -> None:
        """Note that a result came while the client was away: it joins anew."""
        if number >= self.first.get(client, math.inf):
            _, apply = self.pending.pop(client, (-1, None))
            self.miss(client)
            if apply is not None:
                apply(None)

    # -- the server ----------------------------------------------------------------------------

    def _take(self, client: int, number: int, model: Model) -> None:
        """Take a client's fragment of a turn."""
        if self.first.get(client, math.inf) <= number:
            self.came.setdefault(number, {})[client] = model
            self._step_if_complete()

    def _step_if_complete(self) -> None:
        """Take the steps of turns whose fragments have all come."""
        for number in sorted(self.came):
            members = [client for client, first in sorted(self.first.items()) if first <= number]
            if not self.came[number].keys() >= set(members):
                return
            sent, fragment = self.came.pop(number), number % self.cut.count
            self.merge(fragment, [(1.0, sent[client]) for client in sorted(sent)])
            result = self.stepped[fragment], self.server_model
            for client in members:
                arrived = functools.partial(self._arrived, client, number, result)
                missed = functools.partial(self._missed, client, number)
                self.to_client(client, arrived, self.cut.bytes(fragment), missed, self.server_model)

    def forget(self, client: int) -> None:
        """Stop expecting the client's fragments."""
        self.first.pop(client, None)
        self.pending.pop(client, None)
        super().forget(client)
        self._step_if_complete()
