"""The clients' protection in plain values."""

from __future__ import annotations

from dataclasses import dataclass

from simfl.privacy.correlated import Correlation
from simfl.privacy.ledger import Ledger
from simfl.privacy.rounding import Grid
from simfl.tape.problem import Clip


@dataclass(frozen=True)
class Protection:
    """The noise of each client, and the ledger that accounts for it.

    Attributes:
        clipping_norm: C, bound on what is clipped; None for no clipping.
        clip: what is clipped.
        sampler: name of the unit noise in `simfl.privacy.noise`.
        scales: what multiplies the unit noise on the sum of a mini-batch, of each client.
        stds: standard deviation of that noise on each coordinate, of each client.
        ledger: accounts for the releases; None without privacy.
        warnings: lines the user should read.
        grid: of gradients and noise; None for noise on real numbers.
        correlation: what the noise of a release is made of; None: the client's own alone.
    """

    clipping_norm: float | None
    clip: Clip
    sampler: str
    scales: list[float]
    stds: list[float]
    ledger: Ledger | None = None
    warnings: tuple[str, ...] = ()
    grid: Grid | None = None
    correlation: Correlation | None = None
