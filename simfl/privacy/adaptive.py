"""Clipping norms that follow a quantile of the norms of users' updates.

Andrew, Thakkar, McMahan, Ramaswamy 2021, "Differentially private learning with adaptive clipping", NeurIPS,
https://arxiv.org/abs/1905.03871, Algorithm 1. Release t of a server has the norm C_t. With the updates u_i of a cohort
S, weights 0 <= w_i <= 1 and the fixed divisor m,

    b_i     = 1/2 if |u_i| <= C_t, else -1/2
    s_t     = sum over S of w_i u_i min(1, C_t / |u_i|) + N(0, (z_s C_t)^2 I)
    b_t     = 1/2 + (sum over S of b_i + N(0, sigma_b^2)) / m
    C_{t+1} = C_t exp(-eta (b_t - gamma))

so that a share gamma of all updates is not clipped. (The paper has b_i in {0, 1} and subtracts 1/2 from each.) An
update of norm 0 has b_i = 0: a user that sends nothing adds nothing, and an update that was not finite is such a one.

**Account.** An update moves s_t by at most C_t and the count by 1/2. In units of their noise both together are moved by
at most sqrt(z_s^-2 + (2 sigma_b)^-2), so the pair is one Gaussian release with noise multiplier z for

    z_s = (z^-2 - (2 sigma_b)^-2)^(-1/2)                                                (their Theorem 1)

A replaced update moves both twice as far, m updates of one user move both m times as far, and a user who is not in S
moves neither. So every account of `simfl.privacy.cohorts` holds as with a fixed norm. C_t follows from the earlier
releases: it may be published, and Gaussian releases compose adaptively.

The norm is the server's state on the device: a row whose entries are all C_t. The world never learns it, so times do
not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from simfl.each import square_root
from simfl.models.base import clipping_factor
from simfl.models.lazy import jax, jnp

#: Rows that `adapted_sum` reads before the updates: the norm, the noise of the sum, that of the count.
BEFORE = 3
#: Scalars that it reads before the weights of the updates: eta, gamma, m.
RULE = 3


@dataclass(frozen=True)
class AdaptiveNorm:
    """How a clipping norm follows a quantile of norms.

    Attributes:
        start: C_0.
        quantile: gamma.
        learning_rate: eta.
        count_noise: sigma_b.
        members: m.
    """

    start: float
    quantile: float
    learning_rate: float
    count_noise: float
    members: float

    def noise_on_sum(self, noise_multiplier: float) -> float:
        """Return z_s, with which sum and count together have the noise multiplier z.

        Raises:
            ValueError: the count's noise is so small that it alone tells as much, or so large that it alone moves the
                norm.
        """
        z, most = noise_multiplier, self.members / self.learning_rate
        if z == 0.0 and self.count_noise == 0.0:
            return 0.0
        if z == 0.0:
            raise ValueError(f"expected 0 without noise on the sum, found {self.count_noise:g}; leave it out")
        share = z / (2.0 * self.count_noise) if self.count_noise else math.inf
        if share >= 1.0:
            raise ValueError(
                f"expected more than {z / 2.0:g}, half of the noise multiplier {z:g}, found {self.count_noise:g}: the "
                "count alone would cost as much as the whole release; raise it"
            )
        if self.count_noise > most:
            raise ValueError(
                f"expected at most {most:g}, the {self.members:g} users of a sum divided by learning_rate, found "
                f"{self.count_noise:g}: noise alone would change the norm by a factor of e in a release; lower it"
            )
        on_sum: float = z / square_root((1.0 - share) * (1.0 + share))
        return on_sum

    def numbers(self, weights: Sequence[float], rows: int) -> list[float]:
        """Return the scalars of `adapted_sum`; `rows` is the number of rows with padding."""
        padding = [0.0] * (rows - BEFORE - len(weights))
        return [self.learning_rate, self.quantile, self.members, *weights, *padding]


@dataclass(frozen=True)
class AdaptedSum:
    """A clipped sum and the next norm, a function for `Tape.map`.

    The rows are that of C_t, z_s times noise of unit scale, sigma_b times noise of unit scale (of which the first entry
    is used), and the updates.
    """

    def __call__(self, rows: Any, given: Any) -> tuple[jax.Array, jax.Array]:
        """Return s_t and the row of C_{t+1}."""
        norm, updates, present = rows[0, 0], rows[BEFORE:], given.present[BEFORE:]
        (rate, quantile, members), weights = given.scalars[:RULE], given.scalars[RULE:]
        squared = jnp.sum(updates * updates, axis=1)
        # Selections, not products: rows that are padding hold anything.
        scale = jnp.where(present, weights * clipping_factor(squared, norm), 0.0)
        clipped = jnp.where(present[:, None], scale[:, None] * updates, 0.0)
        bits = jnp.where(present & (squared > 0.0), jnp.where(jnp.sqrt(squared) <= norm, 0.5, -0.5), 0.0)
        share = 0.5 + (jnp.sum(bits) + rows[2, 0]) / members
        total = jnp.sum(clipped, axis=0) + norm * rows[1]
        return total, jnp.full_like(rows[0], norm * jnp.exp(-rate * (share - quantile)))


adapted_sum = AdaptedSum()
