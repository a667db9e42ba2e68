"""The checked inputs of a run, and the base class of algorithms' kinds.

`simfl.assembly.assemble` serves all algorithms. It asks an algorithm's `Kind` for everything that depends on the
algorithm, in the order in which a `Setup` is filled. The methods of `Kind` serve most algorithms. `Setup` and `Kind`
refer to each other, so both are in this file.
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
from simfl.algorithms.personal import PersonalParts
from simfl.assembly.devices import Device, capacities_of, devices_of
from simfl.assembly.links import links_of
from simfl.data import Dataset, Partition
from simfl.errors import ScenarioError
from simfl.models import AbstractModel
from simfl.privacy.cohorts import CohortPlan
from simfl.privacy.correlated import Correlation
from simfl.privacy.ledger import Ledger
from simfl.privacy.releases import Releases
from simfl.records.tables import OWN, VALIDATION
from simfl.scenario import Scenario
from simfl.scenario.algorithms import AlgorithmConfig
from simfl.scenario.schedules import Schedule
from simfl.streams import Streams
from simfl.tape import LearningProblem
from simfl.tape.problem import Clip, Sampling
from simfl.world import Changing, Topology
from simfl.world.changing import ContactCuts, Contacts
from simfl.world.link_values import LinkModel
from simfl.world.underlay import Underlay


@dataclass(frozen=True)
class Start:
    """The model of a file from which training continues.

    `params` is f32 [d]; `digest` is that of `simfl.records.models`.
    """

    path: Path
    params: NDArray[np.float32]
    digest: str


@dataclass(frozen=True)
class Own:
    """Objects from Python that replace sections, as in `simfl.run(..., model=net)`."""

    model: Any = None
    data: Any = None

    def __bool__(self) -> bool:
        return bool(self.given)

    @property
    def given(self) -> dict[str, Any]:
        """The objects by section."""
        return {name: value for name, value in (("model", self.model), ("data", self.data)) if value is not None}


@dataclass(frozen=True)
class Protection:
    """The noise of each client, and the ledger that accounts for it.

    Attributes:
        clipping_norm: C, the bound of clipping; None for no clipping.
        clip: the unit that is clipped.
        sampler: name of the unit noise in `simfl.privacy.noise`.
        scales: each client's factor on the unit noise on the sum of a mini-batch.
        stds: each client's standard deviation of that noise on each coordinate.
        ledger: None without privacy.
        warnings: lines for the user.
        correlation: of each client's noise with other noise; None if it is independent.
        cohorts: how a server adds noise to sums of updates; None if it does not.
    """

    clipping_norm: float | None
    clip: Clip
    sampler: str
    scales: list[float]
    stds: list[float]
    ledger: Ledger | None = None
    warnings: tuple[str, ...] = ()
    correlation: Correlation | None = None
    cohorts: CohortPlan | None = None


NOTHING_OWN = Own()
C = TypeVar("C", bound=AlgorithmConfig)


@dataclass
class Setup:
    """A scenario that is ready to run: data loaded, graph built, everything checked.

    From `protection` on, attributes are set in this order; each may depend on those before it.

    Attributes:
        partition: the examples of each client; `tests` its test examples, if `evaluate.clients` is own.
        model: is evaluated; `moved` is trained.
        changing: the graph at each time, if it changes; `topology` then has the links that are known beforehand.
        start: the initial model, if it is not random.
        personal: the parts of the model that stay at clients, if there are any.
        problem: for the executor.
        training: the plain values of local training.
        options: further arguments of the algorithm.
        warnings: lines for the user.
        rows: of the bank, once `simfl.assembly.memory.rows_of` has counted them.
    """

    scenario: Scenario
    kind: Kind[Any]
    algorithm: type[Algorithm]
    streams: Streams
    dataset: Dataset
    partition: Partition
    model: AbstractModel
    topology: Topology
    underlay: Underlay | None = None
    start: Start | None = None
    changing: Changing | None = None
    own: Own = NOTHING_OWN
    tests: Partition | None = None
    personal: PersonalParts | None = None
    protection: Protection = field(init=False)
    problem: LearningProblem = field(init=False)
    training: Training = field(init=False)
    options: dict[str, Any] = field(init=False)
    warnings: list[str] = field(init=False)
    rows: int | None = field(init=False, default=None)

    @functools.cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Examples per client, int [K]."""
        return np.asarray(self.partition.sizes, dtype=np.int64)

    @functools.cached_property
    def holders(self) -> NDArray[np.bool_] | None:
        """The sets of clients that hold one example, bool [s, K]; None if none share."""
        return self.partition.holders() if int(np.bincount(self.partition.indices).max()) > 1 else None

    @functools.cached_property
    def devices(self) -> list[Device] | None:
        """Each client's device, [K]; None without a file of devices."""
        return devices_of(self.scenario, self.streams)

    @functools.cached_property
    def links(self) -> LinkModel:
        """The behavior of the links."""
        capacities = None if self.devices is None else capacities_of(self.devices)
        links = links_of(self.scenario, self.streams, self.topology, capacities)
        if not isinstance(self.changing, Contacts):
            return links
        return dataclasses.replace(links, cuts=ContactCuts(links.cuts, self.changing))

    @functools.cached_property
    def learning(self) -> Streams:
        """The streams of learning: initial model, mini-batches, noise.

        All other draws are those of the world, from `streams`: data, partition, graph, times, faults, partners.
        """
        return Streams(self.scenario.seed_of_learning)

    @property
    def of_validation(self) -> tuple[str, ...]:
        """The columns of metrics that the validation part has; none without one."""
        own = tuple(f"validation_{name}" for name in self.model.metric_names)
        return () if self.dataset.validation is None else (*VALIDATION, *own)

    @property
    def of_clients(self) -> tuple[str, ...]:
        """The columns of metrics that clients' own test examples have; none without."""
        return () if self.tests is None else OWN

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of metrics that model, validation part and own test examples have."""
        return *self.model.metric_names, *self.of_validation, *self.of_clients

    @property
    def tasks(self) -> int:
        """The number of models trained on the same data; `moved` is one of them."""
        return len(self.model.task_models) if self.scenario.algorithm.uses.gradient == "of_task" else 1

    @property
    def moved(self) -> AbstractModel:
        """The model that an update changes: the model, or that of one task."""
        return self.model.task_models[0] if self.scenario.algorithm.uses.gradient == "of_task" else self.model

    @property
    def noisy(self) -> int | None:
        """The number of first parameters that carry noise; None for all."""
        privacy = self.scenario.privacy
        return self.moved.first_convolution if privacy is not None and privacy.partial else None

    @property
    def dimension(self) -> int:
        """The number of parameters with noise."""
        return self.noisy or self.moved.size

    @property
    def ledger(self) -> Ledger | None:
        """The ledger of releases; None without privacy."""
        return self.protection.ledger


class Kind(Generic[C]):
    """The differences of one family of algorithms, for a valid scenario."""

    #: The sections of the schema that it serves, with those derived from them.
    sections: ClassVar[tuple[type[AlgorithmConfig], ...]] = ()
    #: The sampling of mini-batches with `sampling: auto` and without privacy.
    usual_sampling: ClassVar[Sampling] = "shuffle"
    #: The account of releases of single mini-batches.
    ledger: ClassVar[type[Ledger]] = Ledger
    #: Whether each client's mini-batches stay the same, and it keeps a vector for each of them, and their sum.
    keeps_table: ClassVar[bool] = False

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.config = cast(C, scenario.algorithm)

    @property
    def local(self) -> bool:
        """Whether many local steps are one operation."""
        return False

    @property
    def refusal(self) -> str | None:
        """The reason why no mechanism can be certified; None if one can."""
        return None

    @property
    def sampling(self) -> Sampling:
        """The sampling of mini-batches.

        Poisson sampling amplifies privacy. Local rounds, and updates that are clipped as a whole, need batches of a
        fixed size.
        """
        if self.config.sampling != "auto":
            return self.config.sampling
        privacy = self.scenario.privacy
        return self.usual_sampling if privacy is None or privacy.protects != "example" or self.local else "poisson"

    @property
    def resized(self) -> bool:
        """Whether mini-batches change their sizes in a run."""
        return False

    @property
    def released_whole(self) -> bool:
        """Whether each release is one operation's noisy sum."""
        return True

    def round_steps(self, sizes: Sequence[int]) -> list[int] | None:
        """Return the mini-batches of each client's update, [K]; None: one."""
        return None

    def update_examples(self, sizes: Sequence[int]) -> float:
        """Return the examples of an update, averaged over clients."""
        steps, each = self.round_steps(sizes) or [1] * len(sizes), self.batch_sizes(sizes)
        return sum(count * size for count, size in zip(steps, each, strict=True)) / len(steps)

    def batch_sizes(self, sizes: Sequence[int]) -> list[int]:
        """Return the examples of each client's mini-batch, on average, [K]."""
        return [min(self.config.batch_size, n) for n in sizes]

    def planned_total(self, sizes: Sequence[int]) -> float:
        """Return the updates of all clients at which the run stops; inf if it does not."""
        stop = self.scenario.stop
        ends = [] if stop.updates is None else [float(stop.updates)]
        if stop.epochs is not None:
            ends.append(stop.epochs * float(sum(sizes)) / self.update_examples(sizes))
        return min(ends, default=math.inf)

    def planned_updates(self, sizes: Sequence[int]) -> int:
        """Return each client's updates until the stop, if all take part equally."""
        return max(1, math.ceil(self.planned_total(sizes) / len(sizes) - 1e-9))

    def planned_releases(self, sizes: Sequence[int]) -> int:
        """Return each client's releases until the stop, at most those it can be in.

        A selector may choose the same clients again and again: then they are in all that are made at a time.
        """
        most = getattr(self.scenario.privacy, "most_of_a_user", None)
        planned, selection = self.planned_updates(sizes), self.scenario.selection
        if selection is not None and selection.kind != "uniform":
            planned = math.ceil(self.planned_total(sizes) / self.config.at_a_time(len(sizes)) - 1e-9)
        return planned if most is None else min(planned, most)

    def protection(self, setup: Setup) -> Protection | None:
        """Return a special protection; None for that of `assembly/privacy.py`."""
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
        if ledger.draws_secretly:  # the number of the server's releases keeps the budget
            return None
        budgets = np.broadcast_to(np.asarray(privacy.epsilon_budget, dtype=float), count)
        return self.releases_within(ledger, budgets.tolist())

    def releases_within(self, ledger: Ledger, budgets: Sequence[float]) -> list[int]:
        """Return the number of releases within each client's budget."""
        return ledger.allowances(budgets)

    def options(self, setup: Setup) -> dict[str, Any]:
        """Return further arguments of the algorithm's constructor."""
        return self.config.own_options()

    def warnings(self, setup: Setup) -> Iterable[str]:
        """Return warnings for the user, one line each."""
        return ()

    def planned(self, setup: Setup) -> Releases:
        """Return every client's planned releases, within the budgets.

        Raises:
            ScenarioError: the run ends at a time.
        """
        check_planned(self.scenario)
        count, allowed = self.planned_releases(setup.sizes.tolist()), setup.training.allowances
        clients, plan = range(len(setup.sizes)), setup.protection.cohorts
        counts = [count] * len(clients)
        if plan is not None and plan.users is not None:  # all clients of a user in one sum, which costs the most
            owned = [len(plan.clients_of(k)) for k in clients]
            counts = [count * (m if plan.gate is not None else m**2) for m in owned]
        planned = Releases(counts if allowed is None else list(map(min, counts, allowed)))
        if plan is not None and plan.releases is not None:
            sums = math.floor(count / plan.share + 1e-9) if plan.rate else plan.releases
            planned.cohorts = min(plan.releases, sums)
            most = [plan.releases * (1 if plan.gate else len(plan.clients_of(k)) ** 2) for k in clients]
            planned.counts = [min(made, limit) for made, limit in zip(planned.counts, most, strict=True)]
        return planned


def check_planned(scenario: Scenario) -> None:
    """Reject a run whose stop does not determine the number of releases.

    Raises:
        ScenarioError: the run ends at a time.
    """
    if scenario.stop.epochs is None and scenario.stop.updates is None:
        raise ScenarioError(
            "stop: expected epochs or updates, from which the number of releases follows, found only a time; add one, "
            "or run the scenario and check the run's folder"
        )
