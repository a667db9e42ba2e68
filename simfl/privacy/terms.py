"""The terms of a privacy promise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simfl.privacy.accounting import MOVED, Accountant, Neighbors

#: One of the releases that an account of single clients does not count.
OF_HOLDERS = "what other clients that hold the same example release"

View = Literal["local_transcript", "global_hidden"]


@dataclass(frozen=True)
class Terms:
    """What a ledger promises to an example, a client or a user (`unit`).

    Attributes:
        clipping_norm: C; NaN without clipping.
        view: what the adversary sees.
        amplification: whether sampling amplifies.
        refusal: why there is no promise; None if there is one.
        by_server: whether the server adds the noise to sums of updates; then it sees the updates without noise.
        uncounted: other releases of the same data that are not counted, in words.
        trusts: code outside of simfl that must do as it says for the epsilon to hold, in words; None without any.
        disregards: noise that is not counted because the adversary may know it, in words; None if all is counted.
    """

    mechanism: str
    delta: float
    clipping_norm: float = 1.0
    neighbors: Neighbors = "add_or_remove"
    view: View = "local_transcript"
    accountant: Accountant = "tightest"
    amplification: bool = True
    unit: Literal["example", "client", "user"] = "example"
    refusal: str | None = None
    by_server: bool = False
    uncounted: tuple[str, ...] = ()
    trusts: str | None = None
    disregards: str | None = None

    @property
    def moved(self) -> float:
        """The change of a sum by neighbors, in clipping norms."""
        return MOVED[self.neighbors]
