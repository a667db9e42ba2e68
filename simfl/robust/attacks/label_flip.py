"""Label flipping. Tolpegin et al. 2020, https://arxiv.org/abs/2007.08432."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from simfl.models.lazy import jax, jnp
from simfl.robust.base import AbstractAttack

if TYPE_CHECKING:
    from simfl.tape.maps import Given


@dataclass(frozen=True)
class LabelFlip(AbstractAttack):
    """Train on flipped labels: class y of c classes becomes c - 1 - y."""

    kind: ClassVar[str] = "label_flip"
    summary: ClassVar[str] = "trains on flipped labels, c - 1 - y for class y of c, from the start"
    knows: ClassVar[Literal["own", "everything"]] = "own"
    on_data: ClassVar[bool] = True

    def __call__(self, rows: Any, given: Given) -> jax.Array:
        """Return the model as it is."""
        return jnp.asarray(rows)[0]

    def labels(self, y: NDArray[Any], num_classes: int) -> NDArray[Any]:
        """Return the flipped labels."""
        return np.asarray(num_classes - 1 - y, dtype=y.dtype)
