"""Personal parts of models: what clients keep when they send and average the rest.

Arivazhagan, Aggarwal, Singh, Choudhary 2019, "Federated learning with personalization layers",
https://arxiv.org/abs/1912.00818 (FedPer). The coordinates of a model are cut in two fragments: 0 is shared, 1 is
personal. A message has the bytes of the shared ones. An algorithm does not know of this: it has

- a `PersonalChannel` to a server: a client that gets a model keeps its own personal part, and what it sends back is 0
  there, so that the server's personal part stays as it began;
- a `PersonalMixing` of neighbors or a `PersonalPairing`: what others sent changes the shared part alone.

Privacy: noise and clipping are those of the whole change or gradient, before any part is left out. So what is sent is
a function of what the account counts, and moves by at most the clipping norm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from simfl.tape.fragments import Fragments
from simfl.tape.recording import Model, Tape

#: The fragment of the personal coordinates.
PERSONAL: Final = 1


@dataclass(frozen=True)
class PersonalParts:
    """The shared and the personal coordinates; `cut` has them as fragments 0 and 1."""

    cut: Fragments

    @property
    def shared_size(self) -> int:
        """The number of shared coordinates."""
        return self.cut.lengths[0]

    def joined(self, tape: Tape, shared: Model, own: Model) -> Model:
        """Return a model with the shared part of one and the personal part of another."""
        return self.cut.combine(tape, shared, [(1.0, own, PERSONAL)], {PERSONAL: 0.0})

    def shared(self, tape: Tape, change: Model) -> Model:
        """Return a change with 0 in the personal part."""
        return self.cut.combine(tape, change, (), {PERSONAL: 0.0})

    def grown(self, tape: Tape, own: Model, change: Model) -> Model:
        """Return a model after a change of its personal part."""
        return self.cut.combine(tape, own, [(1.0, change, PERSONAL)])
