"""Names that a minor version may change: what an algorithm of your own is made of.

    from simfl.experimental import Algorithm, RoundAlgorithm

An algorithm sees the inside of a run (`self.tape`, `self.world`, `self.batches`, ...), which may change when a new kind
of algorithm needs it. What does not change before 2.0 is on the page docs/stability.md.
"""

from simfl.algorithms import Algorithm, RoundAlgorithm
from simfl.scenario.algorithms.base import AlgorithmConfig
from simfl.scenario.seams import Uses

__all__ = ["Algorithm", "AlgorithmConfig", "RoundAlgorithm", "Uses"]
