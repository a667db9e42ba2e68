"""AUDP: asynchronous updates with differential privacy.

Li, Yang, Ren and Zhao 2019, https://arxiv.org/abs/1912.07902, Section 5.1. `AsyncSGD` with noise on what clients push,
and step sizes that know its variance:

    1/gamma_t = L (tau + 1) + sqrt(Delta_b + 1) sqrt(t),   Delta_b = sigma²/b + E||noise on the mean||²       (10)

The sensitivity of a mean over b examples is dS = 2 C/b if each example's gradient is clipped to C and one of them is
replaced: the noise on the mean, and with it Delta_b, follows from `privacy`.

Faults: as `AsyncSGD`.
"""

from __future__ import annotations

from typing import ClassVar

from simfl.algorithms.async_sgd import AsyncSGD


class AUDP(AsyncSGD):
    """Asynchronous SGD whose steps are made for the noise in the gradients."""

    summary: ClassVar[str] = "AUDP: asynchronous SGD with a server, steps that know the noise in the gradients"
    family: ClassVar[str] = "papers"
    who_waits: ClassVar[str] = "no client waits; with `delays: cyclic`, updates wait for their turn"
    what_travels: ClassVar[str] = "gradients to the server, the model to clients"
    what_is_private: ClassVar[str] = "an example (`gaussian`, `laplace_l2`, `laplace`) or a client (`gaussian_update`)"
    kind: ClassVar[str] = "audp"

    def set_up(self, *, delays: str) -> None:  # type: ignore[override]
        """Take the options."""
        super().set_up(delays=delays, delay_limit=None)
