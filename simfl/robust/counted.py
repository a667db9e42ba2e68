"""A rule that sums how much of each model counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simfl.models.lazy import jnp
from simfl.robust.base import AbstractRule

if TYPE_CHECKING:
    from simfl.tape.maps import Given


@dataclass(frozen=True)
class Counted:
    """A rule that also keeps sums of how much it accepted.

    `Tape.map` calls it with the rows of sums, followed by the models. The scalars are the progress of the run, a weight
    for each model, and the place of each model's sum (-1 for none).

    Attributes:
        rule: the rule.
        rows: m >= 1, number of rows of sums.
    """

    rule: AbstractRule
    rows: int

    def __call__(self, rows: Any, given: Given) -> list[Any]:
        """Return the aggregate, then the m rows of sums."""
        rows = jnp.asarray(rows)
        models, present = rows[self.rows :], given.present[self.rows :]
        count, numbers = len(models), given.scalars
        progress, weights, places = numbers[0], numbers[1 : 1 + count], numbers[1 + count :].astype(jnp.int32)
        terms = models, present, weights.astype(rows.dtype), progress
        accepted = jnp.where(present & (places >= 0), self.rule.accepted(*terms), 0.0)
        sums = rows[: self.rows].reshape(-1).at[jnp.maximum(places, 0)].add(accepted.astype(rows.dtype))
        return [self.rule.aggregate(*terms), *sums.reshape(self.rows, -1)]
