"""The terms of a privacy promise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from simfl.privacy.accounting import Accountant, Neighbors
from simfl.privacy.rounding import Rounding

View = Literal["local_transcript", "global_hidden"]


@dataclass(frozen=True)
class Terms:
    """The promise of a ledger to an example, or to all data of a client (`unit`).

    Attributes:
        clipping_norm: C; NaN where nothing is clipped.
        view: what the adversary sees.
        amplification: whether sampling counts.
        refusal: why nothing can be promised, None if something can.
        by_server: whether the server adds the noise, to sums of what clients send it: then it sees what they send.
        rounding: where the noise is on a grid; None where it is on real numbers.
        uncounted: other earlier releases of the same data, in words; None without any.
        disregards: noise that does not count, in words, because the adversary may know it; None where all counts.
    """

    mechanism: str
    delta: float
    clipping_norm: float = 1.0
    neighbors: Neighbors = "add_or_remove"
    view: View = "local_transcript"
    accountant: Accountant = "tightest"
    amplification: bool = True
    unit: Literal["example", "client"] = "example"
    refusal: str | None = None
    by_server: bool = False
    rounding: Rounding | None = None
    uncounted: str | None = None
    disregards: str | None = None
