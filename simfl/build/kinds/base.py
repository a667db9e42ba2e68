"""From an algorithm's schema to its run: what is special about an algorithm, asked of one object.

`assemble` serves all algorithms and knows none. What it needs to know of one it asks its `Kind`, in the order in which
a `Setup` is filled; the answers here are those of most algorithms. A family whose options mean something else than
arguments of its class has a file beside this one.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

import numpy as np

from simfl.algorithms import Algorithm
from simfl.build.privacy import Protection, protect
from simfl.errors import ScenarioError, nearest
from simfl.privacy.ledger import Ledger
from simfl.privacy.releases import Releases
from simfl.scenario import Scenario
from simfl.scenario.algorithms import AlgorithmConfig
from simfl.scenario.schedules import Schedule
from simfl.tape.draws import Sampling

if TYPE_CHECKING:
    from simfl.build.setup import Setup

C = TypeVar("C", bound=AlgorithmConfig)


class Kind(Generic[C]):
    """What is special about the algorithm of a scenario.

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
        """Whether clients run many local steps as one operation, rather than single gradients."""
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
        """Whether each release is the noisy sum of one mini-batch, in one operation, as noise on a grid needs it."""
        return True

    def round_steps(self, sizes: Sequence[int]) -> list[int] | None:
        """Return how many mini-batches make an update of each client, [K]; None: one for all."""
        return None

    def update_examples(self, sizes: Sequence[int]) -> float:
        """Return how many examples are behind an update, on average over the clients."""
        steps, batch_size = self.round_steps(sizes), self.config.batch_size
        return float(batch_size) if steps is None else batch_size * sum(steps) / len(steps)

    def planned_updates(self, sizes: Sequence[int]) -> int:
        """Return how many updates each client makes if all take part equally often until the run stops."""
        stop = self.scenario.stop
        ends = [] if stop.updates is None else [float(stop.updates)]
        if stop.epochs is not None:
            ends.append(stop.epochs * float(sum(sizes)) / self.update_examples(sizes))
        return max(1, math.ceil(min(ends) / len(sizes) - 1e-9))

    def protection(self, setup: Setup) -> Protection:
        """Return the noise of each client, and the ledger that accounts for it."""
        return protect(setup)

    def step_size(self, setup: Setup) -> Schedule:
        """Return the step size of each update."""
        return self.config.step_size.schedule()

    def problem(self, setup: Setup) -> dict[str, Any]:
        """Return what the arithmetic has beside that of all algorithms: fields of `simfl.tape.LearningProblem`."""
        return {}

    def allowances(self, setup: Setup) -> list[int] | None:
        """Return how many releases each client may make within its budget; None without one."""
        privacy, ledger, count = self.scenario.privacy, setup.ledger, len(setup.sizes)
        if privacy is None or privacy.epsilon_budget is None or ledger is None or not ledger.accounted:
            return None
        budgets = np.broadcast_to(np.asarray(privacy.epsilon_budget, dtype=float), count)
        return self.releases_within(ledger, budgets.tolist())

    def releases_within(self, ledger: Ledger, budgets: Sequence[float]) -> list[int]:
        """Return how many releases the ledger grants each client for its budget."""
        return ledger.allowances(budgets)

    def options(self, setup: Setup) -> dict[str, Any]:
        """Return what the algorithm's constructor is given beside what all are."""
        return self.config.own_options()

    def warnings(self, setup: Setup) -> Iterable[str]:
        """Return what the user should know before the run, one line each."""
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
        """Return what every client releases if all take part equally often, within their budgets.

        Raises:
            ScenarioError: the run ends at a time.
        """
        self.check_planned()
        count, allowed = self.planned_updates(setup.sizes.tolist()), setup.training.allowances
        clients = range(len(setup.sizes))
        return Releases([count if allowed is None else min(count, allowed[k]) for k in clients])


def options_of(algorithm: type[Algorithm]) -> tuple[dict[str, bool], bool]:
    """Return the options that an algorithm takes, and whether it may take others too.

    They are the arguments of `set_up`, and those that an `__init__` adds to that of `Algorithm`. Where a class hands
    arguments on (`**options`), those of the class above count as well; what a user's own class does with what it
    hands on nobody can know.

    Returns:
        By name whether an option has to be given; and whether any other name may be an option.
    """
    found: dict[str, bool] = {}
    others = builds_itself = False
    above = algorithm.__mro__[: algorithm.__mro__.index(Algorithm)]
    for method in ("__init__", "set_up"):
        for depth, owner in enumerate(one for one in above if method in vars(one)):
            own = not owner.__module__.startswith("simfl.")
            builds_itself |= own and method == "__init__"
            parameters = list(inspect.signature(vars(owner)[method]).parameters.values())[1:]
            for one in parameters:
                if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
                    asked = method == "set_up" and depth == 0 and not builds_itself
                    found.setdefault(one.name, asked and one.default is one.empty)
            if not any(one.kind is one.VAR_KEYWORD for one in parameters):
                break
            others |= own
    taken = {
        one.name for one in inspect.signature(Algorithm.__init__).parameters.values() if one.kind != one.VAR_KEYWORD
    }
    return {name: needed for name, needed in found.items() if name not in taken}, others


def check_options(algorithm: type[Algorithm], options: Mapping[str, Any]) -> None:
    """Refuse options that an algorithm does not take, and the lack of those that it needs.

    Raises:
        ScenarioError: with one line.
    """
    known, others = options_of(algorithm)
    for name in options:
        if name not in known and not others:
            listed = f"one of {', '.join(sorted(known))}" if known else "none"
            raise ScenarioError(
                f"algorithm.options: expected {listed}, the options of {algorithm.__name__}, found {name!r}"
                f"{nearest(name, known)}"
            )
    for name, needed in known.items():
        if needed and name not in options:
            raise ScenarioError(
                f"algorithm.options: expected a value of {name!r}, which {algorithm.__name__} asks for, found nothing; "
                "add it"
            )
