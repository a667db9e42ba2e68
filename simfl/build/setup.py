"""The checked inputs of a run, and the base class of algorithms' kinds.

`simfl.build.assembly.assemble` serves all algorithms and knows none. What it needs to know of one it asks its `Kind`,
in the order in which a `Setup` is filled; the answers here are those of most algorithms. A setup has a kind and a kind
is asked about a setup: both are in this file.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from simfl.algorithms import Algorithm, Training
from simfl.build.devices import Device, capacities_of, devices_of
from simfl.build.links import links_of
from simfl.build.protection import Protection
from simfl.data import Dataset, Partition
from simfl.errors import ScenarioError
from simfl.models import AbstractModel
from simfl.privacy.ledger import Ledger
from simfl.privacy.releases import Releases
from simfl.scenario import Scenario
from simfl.scenario.algorithms import AlgorithmConfig
from simfl.scenario.schedules import Schedule
from simfl.streams import Streams
from simfl.tape import LearningProblem
from simfl.tape.problem import Sampling
from simfl.world import Changing, Topology
from simfl.world.changing import ContactCuts, Contacts
from simfl.world.links import LinkModel
from simfl.world.underlay import Underlay


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
    """Objects given from Python, as in `simfl.run(scenario, model=...)`.

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
        """The given objects by name."""
        return {name: value for name, value in (("model", self.model), ("data", self.data)) if value is not None}


NOTHING_OWN = Own()
C = TypeVar("C", bound=AlgorithmConfig)


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
        """The sets of clients that hold one example, bool [s, K]; None if none share."""
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
        """The number of models trained on the same data; `moved` is one of them."""
        return self.model.num_tasks if self.algorithm.moves_tasks else 1

    @property
    def moved(self) -> AbstractModel:
        """The model that an update changes: the model, or that of one task."""
        return self.model.task if self.algorithm.moves_tasks else self.model

    @property
    def noisy(self) -> int | None:
        """How many parameters, the first ones, carry noise; None for all."""
        privacy = self.scenario.privacy
        return self.moved.first_convolution if privacy is not None and privacy.partial else None

    @property
    def dimension(self) -> int:
        """The number of parameters with noise."""
        return self.noisy or self.moved.size

    @property
    def ledger(self) -> Ledger | None:
        """Accounts for the releases, None without privacy."""
        return self.protection.ledger


class Kind(Generic[C]):
    """The differences of one family of algorithms.

    Args:
        scenario: valid.
    """

    #: The algorithms that it serves, by kind.
    kinds: ClassVar[tuple[str, ...]] = ()
    #: How mini-batches are drawn where neither the scenario nor privacy says so.
    usual_sampling: ClassVar[Sampling] = "shuffle"

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.config = cast(C, scenario.algorithm)

    @property
    def local(self) -> bool:
        """Whether many local steps are one operation."""
        return False

    @property
    def refusal(self) -> str | None:
        """Why nothing can be certified, whatever the mechanism; None if something can."""
        return None

    @property
    def sampling(self) -> Sampling:
        """How mini-batches are drawn.

        Privacy is amplified by Poisson sampling, but local rounds, and updates that are clipped as a whole, have
        batches of one size.
        """
        if self.config.sampling != "auto":
            return self.config.sampling
        privacy = self.scenario.privacy
        return self.usual_sampling if privacy is None or privacy.unit == "client" or self.local else "poisson"

    @property
    def released_whole(self) -> bool:
        """Whether each release is one operation's noisy sum, as a noise grid needs."""
        return True

    def round_steps(self, sizes: Sequence[int]) -> list[int] | None:
        """Return the mini-batches of each client's update, [K]; None: one."""
        return None

    def update_examples(self, sizes: Sequence[int]) -> float:
        """Return the examples of an update, averaged over clients."""
        steps, batch_size = self.round_steps(sizes), self.config.batch_size
        return float(batch_size) if steps is None else batch_size * sum(steps) / len(steps)

    def planned_updates(self, sizes: Sequence[int]) -> int:
        """Return each client's updates until the stop, if all take part equally."""
        stop = self.scenario.stop
        ends = [] if stop.updates is None else [float(stop.updates)]
        if stop.epochs is not None:
            ends.append(stop.epochs * float(sum(sizes)) / self.update_examples(sizes))
        return max(1, math.ceil(min(ends) / len(sizes) - 1e-9))

    def protection(self, setup: Setup) -> Protection | None:
        """Return a special protection; None: that of `build/privacy.py`."""
        return None

    def step_size(self, setup: Setup) -> Schedule:
        """Return the step size of each update."""
        return self.config.step_size

    def problem(self, setup: Setup) -> dict[str, Any]:
        """Return further fields of `simfl.tape.LearningProblem`."""
        return {}

    def allowances(self, setup: Setup) -> list[int] | None:
        """Return the releases within each client's budget; None without a budget."""
        privacy, ledger, count = self.scenario.privacy, setup.ledger, len(setup.sizes)
        if privacy is None or privacy.epsilon_budget is None or ledger is None or not ledger.accounted:
            return None
        budgets = np.broadcast_to(np.asarray(privacy.epsilon_budget, dtype=float), count)
        return self.releases_within(ledger, budgets.tolist())

    def releases_within(self, ledger: Ledger, budgets: Sequence[float]) -> list[int]:
        """Return how many releases the ledger grants each client for its budget."""
        return ledger.allowances(budgets)

    def options(self, setup: Setup) -> dict[str, Any]:
        """Return further arguments of the algorithm's constructor."""
        return self.config.own_options()

    def warnings(self, setup: Setup) -> Iterable[str]:
        """Return warnings for the user, one line each."""
        return ()

    def check_planned(self) -> None:
        """Refuse a run whose end says nothing about how often clients take part.

        Raises:
            ScenarioError: it ends at a time.
        """
        stop = self.scenario.stop
        if stop.epochs is None and stop.updates is None:
            raise ScenarioError(
                "stop: expected epochs or updates, from which the number of releases follows, found only a time; "
                "add one, or run the scenario and check the run's folder"
            )

    def planned(self, setup: Setup) -> Releases:
        """Return every client's planned releases, within the budgets.

        Raises:
            ScenarioError: the run ends at a time.
        """
        self.check_planned()
        count, allowed = self.planned_updates(setup.sizes.tolist()), setup.training.allowances
        clients = range(len(setup.sizes))
        return Releases([count if allowed is None else min(count, allowed[k]) for k in clients])
