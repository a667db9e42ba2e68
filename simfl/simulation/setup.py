"""What a run needs, all of it checked: the answer of `simfl.simulation.assembly.assemble`."""

from __future__ import annotations

from dataclasses import dataclass, field

from simfl.algorithms import Algorithm, Training
from simfl.data import Dataset, Partition
from simfl.models import AbstractModel
from simfl.privacy.ledger import Ledger
from simfl.scenario import Scenario
from simfl.streams import Streams
from simfl.tape import LearningProblem
from simfl.world import Topology


@dataclass
class Setup:
    """A scenario made ready: data loaded, graph built, everything checked.

    Attributes:
        scenario: what was asked for.
        streams: the random streams of its seed.
        dataset: the data.
        shares: which client holds which examples.
        model: pure functions.
        topology: the graph.
        problem: what the executor computes.
        training: the plain values of local training.
        ledger: accounts for the releases, None without privacy.
        warnings: lines the user should read.
    """

    scenario: Scenario
    streams: Streams
    dataset: Dataset
    shares: Partition
    model: AbstractModel
    topology: Topology
    problem: LearningProblem
    training: Training
    ledger: Ledger | None
    algorithm: type[Algorithm]
    warnings: list[str] = field(default_factory=list)
