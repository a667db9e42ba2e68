"""NoLoCo: DiLoCo without an all-reduce; small random groups mix their outer steps.

Kolehmainen, Blagoev, Donaghy, Ersoy, Nies 2025, "NoLoCo: no-all-reduce low communication training method for large
models", https://arxiv.org/abs/2506.10911; the equations are those of the authors' program,
https://github.com/gensyn-ai/noloco (`sparse_optimizer_c.py`). Client i has slow weights phi_i and a momentum delta_i, 0
at first. In each round, all clients are divided at random into groups of n; G is the group of client i:

    D_i <- the change of the model by H local steps from phi_i
    send (phi_i, D_i) to the other clients of G, and wait for theirs
    delta_i <- alpha delta_i + beta mean_G(D) + gamma (mean_G(phi) - phi_i)
    phi_i   <- phi_i + delta_i

beta is `outer_step`, alpha `momentum`, gamma `consensus`, n `group`; the program has beta = gamma = 0.7, alpha = 0.5, n
= 2. With one group of all clients this is the program's DiLoCo, whose momentum does not look ahead. A message has two
vectors. In the program, the first client of a group adds up and sends the two means back: with n = 2 as many bytes, but
one after the other. The paper's random routes through the stages of a pipeline are not here.

Clients know the draws of a round, as from a common seed. If their number is not a multiple of n, as the program asks,
the last group is smaller.

Faults. A client waits for its group only, through a lost message, a partition and a crash. A round is drawn among the
clients that take part when the first of them reaches it. No client waits for one that has left.

Privacy: a client clips and noises the change D as a whole. All else is a function of such changes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

import simpy

from simfl.algorithms.disclosure import merged
from simfl.algorithms.neighbor_rounds import NeighborRounds
from simfl.tape import Model
from simfl.tape.recording import Round
from simfl.world.availability import Outcome
from simfl.world.engine import Process


class NoLoCo(NeighborRounds):
    """Rounds of local steps and of outer steps with the means of a random group."""

    kind: ClassVar[str] = "noloco"
    summary: ClassVar[str] = "NoLoCo: DiLoCo without an all-reduce; random pairs average models and changes"
    family: ClassVar[str] = "low communication"
    who_waits: ClassVar[str] = "each client waits for the others of its group of the round"
    what_travels: ClassVar[str] = "two vectors, the model and its change, to the others of the group"
    what_is_private: ClassVar[str] = "a client (`gaussian_update`)"
    combines_per_gradient: ClassVar[float] = 3.0

    def set_up(  # type: ignore[override]
        self, *, group: int, outer_step: float, momentum: float, consensus: float, steps: Sequence[int] | None = None
    ) -> None:
        """Take the options.

        Args:
            steps: H, mini-batches of a round at each client, [K]; one each by default.
        """
        super().set_up()
        self.steps = [1] * self.num_clients if steps is None else list(steps)
        self.group, self.outer_step, self.momentum, self.consensus = group, outer_step, momentum, consensus
        #: delta of each client.
        self.velocity = [Model((), ())] * self.num_clients
        self._drawn: dict[int, dict[int, list[int]]] = {}
        self._inbox: list[dict[tuple[int, int], tuple[Model, ...]]] = [{} for _ in range(self.num_clients)]

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield all pairs of clients."""
        return itertools.combinations(range(self.num_clients), 2)

    def compute(self, client: int, examples: int | None = None) -> simpy.Event:
        """Let the client compute a round, or `examples`."""
        return super().compute(client, examples or self.steps[client] * self.batches.sizes[client])

    def others(self, client: int, round_num: int) -> list[int]:
        """Return the other clients of a client's group; the first use draws."""
        if round_num not in self._drawn:
            clients = [k for k in range(self.num_clients) if self.takes_part(k, round_num)]
            order = self.world.streams.generator("noloco", 0, round_num).permutation(clients).tolist()
            groups = [order[at : at + self.group] for at in range(0, len(order), self.group)]
            oldest = self.rounds
            self._drawn = {kept: old for kept, old in self._drawn.items() if kept >= oldest}
            self._drawn[round_num] = {k: sorted(j for j in one if j != k) for one in groups for k in one}
        return self._drawn[round_num].get(client, [])

    def worker(self, me: int) -> Process:
        """Repeat: train, send, wait for the group, take the outer step."""
        yield from self.join(me)
        while True:
            round_num = self._client_round[me]
            change = self.batches.train(self.model[me], me, self.steps[me], (self.step_size(), 0.0, 0.0, 0.0))
            while (outcome := (yield self.compute(me))) is Outcome.CRASHED:
                pass  # computed again at the same model: the group still waits for this round
            if outcome is Outcome.GONE:
                self.leave(me)
                return
            size, step_size = change.all_examples, change.step[0]
            mine = self._message(me, self.descent.trained(change))
            del change
            self._show(me, round_num, mine)
            if not (yield from self.wait_for(me, round_num)):
                return
            self._step(me, round_num, mine)
            del mine
            self._client_round[me] = round_num + 1
            self.updated(me, 0, size, step_size, round_num=round_num)

    def _message(self, me: int, change: Model | Round) -> tuple[Model, ...]:
        """Return the model and its change."""
        return self.model[me], self.tape.combine((1.0, change))

    def _show(self, me: int, round_num: int, mine: tuple[Model, ...]) -> None:
        """Send a message to the others of the group."""
        for other in self.others(me, round_num):
            if self.takes_part(other, round_num):
                self.world.network.send(
                    me,
                    other,
                    len(mine) * self.training.model_bytes,
                    lambda other=other: self._receive(other, me, round_num, mine),  # type: ignore[misc]
                    content=mine[0],
                    beside=mine[1:],
                )

    def _receive(self, me: int, source: int, round_num: int, sent: tuple[Model, ...]) -> None:
        if round_num >= self._client_round[me]:  # a message of a client that left may arrive too late
            self._inbox[me][round_num, source] = sent
            self.wake(me)

    def _heard(self, me: int, round_num: int, mine: tuple[Model, ...]) -> list[tuple[Model, ...]]:
        """Return the client's own message, and those that came from the group."""
        heard = [self._inbox[me].pop((round_num, j), None) for j in self.others(me, round_num)]
        return [mine, *(one for one in heard if one is not None)]

    def _step(self, me: int, round_num: int, mine: tuple[Model, ...]) -> None:
        """Take the outer step with what came from the group."""
        group = self._heard(me, round_num, mine)
        share, combine = 1.0 / len(group), self.tape.combine
        pull = combine((-self.consensus, mine[0]), *((self.consensus * share, model) for model, *_ in group))
        along = combine(*((self.outer_step * share, change) for *_, change in group))
        merged(self.world.network, me, combine((1.0, pull), (1.0, along)))
        self.velocity[me] = self.tape.settle(combine((self.momentum, self.velocity[me]), (1.0, along), (1.0, pull)))
        self.model[me] = self.tape.settle(combine((1.0, mine[0]), (1.0, self.velocity[me])))

    def missing(self, me: int, round_num: int) -> Iterable[int]:
        """Yield the others of the group whose messages have not arrived."""
        others = self.others(me, round_num)
        return (j for j in others if (round_num, j) not in self._inbox[me] and self.takes_part(j, round_num))

    def awaits(self, client: int) -> str:
        """Name the clients whose messages are missing."""
        round_num = self._client_round[client]
        return f"waits for round {round_num} of client {', '.join(map(str, self.missing(client, round_num)))}"
