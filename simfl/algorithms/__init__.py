"""The algorithms: each class with a `kind` is one that scenarios may name."""

from __future__ import annotations

from collections.abc import Mapping

from simfl.algorithms.base import Algorithm
from simfl.algorithms.training import Training
from simfl.algorithms.two_functions import ClientData, ClientUpdate, RoundAlgorithm
from simfl.catalogue import Items

__all__ = ["ALGORITHMS", "Algorithm", "ClientData", "ClientUpdate", "RoundAlgorithm", "Training"]

ALGORITHMS: Mapping[str, type[Algorithm]] = Items(__name__, Algorithm, "algorithms")  # type: ignore[type-abstract]
"""The algorithms by the word that names them in a scenario; `summary` of each is one line about it."""
