"""What a run needs, all of it checked: the answer of `simfl.build.assembly.assemble`."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simfl.algorithms import Algorithm, Training
from simfl.build.devices import Device, capacities_of, devices_of
from simfl.build.links import links_of
from simfl.data import Dataset, Partition
from simfl.models import AbstractModel
from simfl.privacy.ledger import Ledger
from simfl.scenario import Scenario
from simfl.streams import Streams
from simfl.tape import LearningProblem
from simfl.world import Changing, Topology
from simfl.world.changing import ContactCuts, Contacts
from simfl.world.links import LinkModel
from simfl.world.underlay import Underlay

if TYPE_CHECKING:
    from simfl.build.kinds import Kind
    from simfl.build.privacy import Protection


@dataclass(frozen=True)
class Start:
    """A model to go on from.

    Attributes:
        path: its file.
        params: f32 [d].
        digest: of its content, as in `simfl.records.models`.
    """

    path: Path
    params: NDArray[np.float32]
    digest: str


@dataclass(frozen=True)
class Own:
    """What was given from Python in place of sections of a scenario, as `simfl.run(scenario, model=...)` takes it.

    Attributes:
        model: takes the place of `model`; None: as the scenario says.
        data: takes the place of the data set in `data`; likewise.
    """

    model: Any = None
    data: Any = None

    def __bool__(self) -> bool:
        return bool(self.given)

    @property
    def given(self) -> dict[str, Any]:
        """What there is, by name."""
        return {name: value for name, value in (("model", self.model), ("data", self.data)) if value is not None}


NOTHING_OWN = Own()


@dataclass
class Setup:
    """A scenario made ready: data loaded, graph built, everything checked.

    From `protection` on, attributes are filled in this order, and what fills one may read those before it.

    Attributes:
        scenario: what was asked for.
        kind: what is special about its algorithm.
        algorithm: the class of its algorithm.
        streams: the random streams of its seed.
        dataset: the data.
        shares: which client holds which examples.
        model: pure functions; what is evaluated.
        topology: the graph.
        underlay: the network beneath, where there is one.
        changing: the graph at each time, where it changes; `topology` then has the links that are known beforehand.
        start: the model that is begun with, where that is not one that is drawn.
        own: what was given from Python.
        protection: the noise of each client, and the ledger that accounts for it.
        problem: what the executor computes.
        training: the plain values of local training.
        options: what the algorithm is given beside them.
        warnings: lines the user should read.
    """

    scenario: Scenario
    kind: Kind[Any]
    algorithm: type[Algorithm]
    streams: Streams
    dataset: Dataset
    shares: Partition
    model: AbstractModel
    topology: Topology
    underlay: Underlay | None = None
    start: Start | None = None
    changing: Changing | None = None
    own: Own = NOTHING_OWN
    protection: Protection = field(init=False)
    problem: LearningProblem = field(init=False)
    training: Training = field(init=False)
    options: dict[str, Any] = field(init=False)
    warnings: list[str] = field(init=False)

    @functools.cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Examples per client, int [K]."""
        return np.asarray(self.shares.sizes, dtype=np.int64)

    @functools.cached_property
    def holders(self) -> NDArray[np.bool_] | None:
        """The sets of clients that hold one example, bool [s, K]; None where no two clients hold the same one."""
        return self.shares.holders() if int(np.bincount(self.shares.indices).max()) > 1 else None

    @functools.cached_property
    def devices(self) -> list[Device] | None:
        """Each client's device, [K]; None where all are as the scenario says."""
        return devices_of(self.scenario, self.streams)

    @functools.cached_property
    def links(self) -> LinkModel:
        """How the links behave."""
        own = None if self.devices is None else capacities_of(self.devices)
        links = links_of(self.scenario, self.streams, self.topology, own)
        if not isinstance(self.changing, Contacts):
            return links
        return dataclasses.replace(links, cuts=ContactCuts(links.cuts, self.changing))

    @property
    def tasks(self) -> int:
        """How many models are trained on the same data, each on its own, of which `moved` is one."""
        return self.model.num_tasks if self.algorithm.moves_tasks else 1

    @property
    def moved(self) -> AbstractModel:
        """What an update changes: the model, or that of one task."""
        return self.model.task if self.algorithm.moves_tasks else self.model

    @property
    def noisy(self) -> int | None:
        """How many parameters, the first ones, carry noise; None for all."""
        privacy = self.scenario.privacy
        return self.moved.first_convolution if privacy is not None and privacy.partial else None

    @property
    def dimension(self) -> int:
        """How many parameters carry noise, where there is any."""
        return self.noisy or self.moved.size

    @property
    def ledger(self) -> Ledger | None:
        """Accounts for the releases, None without privacy."""
        return self.protection.ledger
