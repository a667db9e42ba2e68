"""The seed of a run, or that of its world and that of its learning."""

from __future__ import annotations

from typing import Any, NamedTuple


class Crossed(NamedTuple):
    """The two seeds of a run."""

    world: int
    learning: int

    def __str__(self) -> str:
        return f"{self.world}/{self.learning}"


Seed = int | Crossed


def seed_of(seed: int, learning_seed: Any = None) -> Seed:
    """Return a run's seed, or its two seeds."""
    return seed if learning_seed is None else Crossed(seed, int(learning_seed))


def pair_of(seed: Seed) -> Crossed:
    """Return the seed of the world and that of learning."""
    return Crossed(seed, seed) if isinstance(seed, int) else seed
