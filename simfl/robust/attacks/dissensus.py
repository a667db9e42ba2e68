"""Dissensus. He, Karimireddy, Jaggi 2022, https://arxiv.org/abs/2202.01545."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from simfl.models.lazy import jax, jnp
from simfl.robust.base import AbstractAttack, Among, weighted_sum, weights_of
from simfl.scenario.fields import Positive, option

if TYPE_CHECKING:
    from simfl.tape.maps import Given


@dataclass(frozen=True)
class Dissensus(AbstractAttack):
    """Move the target's gossip average away from its neighbors.

    x_0 - epsilon sum_j w_j (x_j - x_0) / w_0

    Row 0 is the target's model, the others are those of its honest neighbors. The scalars of the call are weights at
    the target: first the sum of the attackers' weights, then those of the honest neighbors. Without scalars, all
    weights are equal.
    """

    kind: ClassVar[str] = "dissensus"
    summary: ClassVar[str] = "pushes a receiver away from its honest neighbors"
    among: ClassVar[Among | None] = "own"

    epsilon: Positive = option(1.5, "above 1, gossip moves the receiver away from its honest neighbors")

    def __call__(self, rows: Any, given: Given) -> jax.Array:
        """Return the model for the target."""
        models = jnp.asarray(rows)
        weights = weights_of(models, given)
        towards = jnp.where(given.present[:, None], models - models[0], 0.0)
        return models[0] - self.epsilon * weighted_sum(weights, towards) / weights[0]
