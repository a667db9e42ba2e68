"""Running sums: lost or late messages lose nothing of what they carry.

Tian, Sun, Scutari 2018, "Achieving linear convergence in distributed asynchronous multi-agent optimization",
https://arxiv.org/abs/1803.10359 (ASY-SONATA). A sender i that gives shares s_1, s_2, ... to j keeps the sum of all:

    i:  rho_ji <- rho_ji + s_n, and sends (n, rho_ji)
    j:  on (n, rho) with n above the last used number:   adds rho - (the rho that it used last)

A message that comes after a later one is not used. So the sum over all clients, of what they hold and of what was given
and not yet used, never changes, whatever is lost or overtaken.

simfl does not form rho - rho': it adds the shares between the two, which is the same without the rounding of sums that
grow with time. A lost share is added to the next one, which every later message contains, too. Only an observer is
shown rho, which is what a message contains.
"""

from __future__ import annotations

from simfl.algorithms.disclosure import observed
from simfl.tape import Model, Tape
from simfl.world import Network

#: A share of a client's x, and of its weight.
Share = tuple[Model, float]


class RunningSums:
    """The shares that clients gave to others, and that the others have not used yet.

    Args:
        tape: of the run.
        network: carries the messages, perhaps before an observer's eyes.
    """

    def __init__(self, tape: Tape, network: Network) -> None:
        self._tape, self._network = tape, network
        self._given: dict[tuple[int, int], dict[int, Share]] = {}  # numbers rise
        self._sums: dict[tuple[int, int], Model] = {}
        self._last_lost: dict[tuple[int, int], int] = {}  # of links whose newest share was lost

    def give(self, source: int, target: int, number: int, share: Share) -> Model | None:
        """Give a share, with a number above the last one; return rho for observers."""
        link = source, target
        given = self._given.setdefault(link, {})
        given[number] = share
        if (last := self._last_lost.pop(link, None)) is not None:
            self.lose(source, target, last)
        if not observed(self._network):
            return None
        rho = self._sums[link] = self._add(self._sums.get(link, Model((), ())), share[0])
        return rho

    def lose(self, source: int, target: int, number: int) -> None:
        """Add a share whose message was lost to the next one."""
        given = self._given[source, target]
        if number in given:  # else a later message was used
            later = next((at for at in given if at > number), None)
            if later is None:
                self._last_lost[source, target] = number
                return
            (model, weight), (next_model, next_weight) = given.pop(number), given[later]
            given[later] = self._add(model, next_model), weight + next_weight

    def _add(self, one: Model, other: Model) -> Model:
        return self._tape.settle(self._tape.combine((1.0, one), (1.0, other)))

    def use(self, source: int, target: int, number: int) -> dict[int, Share]:
        """Return the unused shares up to a message's number, which are then used."""
        given = self._given[source, target]
        return {at: given.pop(at) for at in [at for at in given if at <= number]}

    def unused(self) -> list[Share]:
        """Return all shares that are not used yet."""
        return [share for given in self._given.values() for share in given.values()]
