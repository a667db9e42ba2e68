"""Options of all algorithms, and of those with a server or a bound on staleness."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

from pydantic import Field, model_validator
from pydantic.fields import FieldInfo

from simfl.scenario.compression import Compression
from simfl.scenario.fields import OF_CLIENTS, SETTLED, Arithmetic, Config, Count, Index, NonNegative, Settled, option
from simfl.scenario.optimizers import (
    USUAL_STEPS,
    Optimizer,
    OptimizerState,
    ServerOptimizer,
    ServerSgd,
    Sgd,
    usual_step,
)
from simfl.scenario.problems import Path, Problem, show, show_default
from simfl.scenario.schedules import ConstantStep, StepSize
from simfl.scenario.seams import Uses

if TYPE_CHECKING:
    from simfl.scenario.availability import Absence
    from simfl.scenario.clients import Population, Slowdown
    from simfl.scenario.control import Evaluate, Execution, Stop
    from simfl.scenario.data import DataConfig
    from simfl.scenario.links import Links, Server
    from simfl.scenario.models import ModelConfig
    from simfl.scenario.personal import Personal
    from simfl.scenario.privacy import MechanismConfig
    from simfl.scenario.regions import Regions
    from simfl.scenario.robust import AttackConfig, RuleConfig
    from simfl.scenario.secure_sums import SecureSumConfig
    from simfl.scenario.selection import SelectorConfig
    from simfl.scenario.topologies import TopologyConfig
    from simfl.scenario.underlay import Underlay


class Sections(Protocol):
    """The sections of a scenario that checks read; see `simfl.scenario.Scenario`."""

    # `Scenario` and `AlgorithmConfig` refer to each other; this protocol avoids a circular import.

    data: DataConfig
    model: ModelConfig
    clients: Population
    slowdowns: tuple[Slowdown, ...]
    topology: TopologyConfig
    regions: Regions | None
    links: Links
    underlay: Underlay | None
    server: Server
    availability: tuple[Absence, ...]
    algorithm: AlgorithmConfig
    selection: SelectorConfig | None
    aggregation: RuleConfig | None
    attackers: AttackConfig | None
    privacy: MechanismConfig | None
    compression: Compression | None
    personal: Personal | None
    stop: Stop
    evaluate: Evaluate
    execution: Execution

    @property
    def noise_of_server(self) -> bool:
        """Whether a server adds the noise of the privacy section, not each client."""
        raise NotImplementedError


def states(*names: str, why: str = "") -> dict[str, str]:
    """Return which fields of an optimizer's state keep their defaults, and why.

    Args:
        names: the fields that a scenario may set.
        why: the reason for the others.
    """
    reasons = dict.fromkeys(OptimizerState.model_fields, why) | {"rounds": "its clients make no rounds of local steps"}
    return {
        f"optimizer.state.{name}": "" if name in names else f"remove it: {reason}" for name, reason in reasons.items()
    }


#: With gossip, states may be lost, averaged and sent.
GOSSIPED = states("crash", "average", "travels")


class AlgorithmConfig(Config):
    """Base of all algorithms: mini-batch gradient steps."""

    # The fields of a subclass are the options of its algorithm. Fields that are `Settled[...]` are not passed to the
    # algorithm: its kind in `simfl.assembly.kinds` uses them.

    uses: ClassVar[Uses] = Uses()
    #: The options that keep their defaults, and why, by key path below `algorithm`; a subclass has those of its bases,
    #: too, and allows an option again by the reason "".
    fixed: ClassVar[Mapping[str, str]] = states(why="its clients have no optimizer of their own beside the one model")
    #: Why it needs a graph that does not change, and what to do; "" if the graph may change.
    one_graph: ClassVar[str] = ""
    #: The default step sizes of optimizers: the field of the step, that of the optimizer, and the steps by kind.
    optimizer_steps: ClassVar[tuple[tuple[str, str, Mapping[str, float]], ...]] = (
        ("step_size", "optimizer", USUAL_STEPS),
    )

    if TYPE_CHECKING:  # each class names itself
        kind: str

    @classmethod
    def named(cls) -> bool:
        """Return whether this is an algorithm, not only a base class."""
        return "kind" in cls.model_fields and not cls.model_fields["kind"].is_required()

    @property
    def keeps_states(self) -> bool:
        """Whether optimizers keep their states between rounds of local steps."""
        return self.optimizer.state.rounds == "keep"

    def nodes_beside_server(self, scenario: Sections) -> Sequence[str | None]:
        """Return the region, or None, of each node that is neither client nor the server."""
        del scenario
        return ()

    @property
    def vectors(self) -> int:
        """The number of vectors as large as a model in a message."""
        return 2 if self.uses.channel == "two_vectors" else 1

    @property
    def follows_topology(self) -> bool:
        """Whether clients talk to their neighbors in `topology`."""
        return self.uses.graph != "none" and getattr(self, "graph", "topology") == "topology"

    @property
    def has_server(self) -> bool | None:
        """Whether there is a server; None if that is not known."""
        return self.uses.server

    @property
    def noise_of_server(self) -> bool:
        """Whether the server adds the noise of the privacy section, not each client."""
        return False

    @property
    def selects(self) -> bool:
        """Whether a server chooses which clients take part."""
        fields = type(self).model_fields
        return "fraction" in fields or ("concurrency" in fields and "concurrency" not in self.reasons())

    def at_a_time(self, clients: int) -> int:
        """Return the largest number of clients that take part at a time."""
        share, given = getattr(self, "fraction", 1.0), getattr(self, "concurrency", None)
        return max(1, math.ceil(share * clients - 1e-9)) if given is None else min(given, clients)

    @property
    def protocol(self) -> SecureSumConfig | None:
        """The protocol of its secure sums; None if its server sees updates."""
        return None

    def members(self, clients: int) -> int:
        """Return the nominal number of updates in a sum of its server."""
        return clients

    def mixed(self, clients: int) -> int:
        """Return how many models a function takes, if that changes; else 1."""
        del clients
        return 1

    def settled(self, scenario: Sections) -> Self:
        """Return the section with the defaults that depend on other sections."""
        del scenario
        return self

    @classmethod
    def options_of_class(cls) -> dict[str, FieldInfo]:
        """Return the fields that are arguments of the algorithm's `set_up`, by name."""
        return {
            name: field
            for name, field in cls.model_fields.items()
            if name != "kind" and name not in AlgorithmConfig.model_fields and SETTLED not in field.metadata
        }

    @classmethod
    def defaults_of_class(cls) -> dict[str, Any]:
        """Return the defaults of arguments of `set_up` that are no sections."""
        given = {name: field.default for name, field in cls.options_of_class().items() if not field.is_required()}
        return {name: value for name, value in given.items() if not isinstance(value, Config)}

    def own_options(self) -> dict[str, Any]:
        """Return the options that the algorithm's `set_up` takes, by name."""
        return {name: getattr(self, name) for name in self.options_of_class()}

    def contradictions(self, scenario: Sections) -> Iterator[Problem]:
        """Yield conflicts with other sections, each with its full key path."""
        return iter(())

    def warnings(self, scenario: Sections) -> Iterator[str]:
        """Yield warnings about combinations with other sections."""
        return iter(())

    @model_validator(mode="before")
    @classmethod
    def _fill_in_steps(cls, data: Any) -> Any:
        """Fill in the default step sizes of optimizers."""
        for name, optimizer, steps in cls.optimizer_steps if isinstance(data, Mapping) else ():
            if name in cls.model_fields and name not in data:
                usual = usual_step(data.get(optimizer), steps)
                data = data if usual is None else {**data, name: usual}
        return data

    @classmethod
    def reasons(cls) -> dict[str, str]:
        """Return why options keep their defaults, by key path below `algorithm`."""
        merged: dict[str, str] = {}
        for base in reversed(cls.__mro__):
            merged.update(vars(base).get("fixed", {}))
        return {path: reason for path, reason in merged.items() if reason}

    def unsupported(self, scenario: Sections) -> Iterator[Problem]:
        """Yield changed defaults, and what the number of clients or the graph excludes."""
        at: Path
        reasons, count, topology = self.reasons(), scenario.clients.count, scenario.topology
        for path, reason in reasons.items():
            *sections, name = path.split(".")
            owner = functools.reduce(getattr, sections, self)
            value, default = getattr(owner, name), type(owner).model_fields[name].default
            if value != default and not reasons.keys() & sections:
                same = hasattr(value, "kind") and value.kind == default.kind
                found = f"{value.kind} with options" if same else show(value)
                yield Problem(
                    f"{show_default(default)} with '{self.kind}'", found, reason, ("algorithm", *sections, name)
                )
        for name, field in type(self).model_fields.items():
            if OF_CLIENTS in field.metadata and (getattr(self, name) or 0) > count:
                expected, at = f"at most clients.count, which is {count}", ("algorithm", name)
                yield Problem(expected, str(getattr(self, name)), "lower it or add clients", at)
        if self.one_graph and topology.changes:
            at = ("topology", "kind")
            yield Problem(f"a graph that stays with '{self.kind}'", show(topology), self.one_graph, at)

    step_size: StepSize = option(
        ConstantStep(value=0.4),
        "step size on the mean gradient of a mini-batch: a number or a schedule; by default 0.001 beside adam, 1 "
        "beside an optimizer of your own",
    )
    optimizer: Optimizer = option(Sgd(), "the optimizer of a client's steps; sgd: a step along the mean gradient")
    batch_size: Count = option(32, "examples per mini-batch; with sampling poisson, on average")
    small_clients: Literal["refuse", "use_all"] = option(
        "refuse",
        "clients with fewer than batch_size examples; refuse: an error; use_all: their mini-batches are all that "
        "they hold",
    )
    sampling: Literal["auto", "poisson", "without_replacement", "shuffle", "with_replacement"] = option(
        "auto",
        "how mini-batches are drawn: poisson (each example on its own), without_replacement (a new subset of "
        "fixed size), shuffle (once per pass), with_replacement, or auto: poisson with privacy, else shuffle",
    )
    gradient_noise: Arithmetic[NonNegative] = option(
        0.0,
        "sigma of noise N(0, sigma^2/d I) on each mini-batch's mean gradient, whatever its size; it gives no "
        "privacy, and needs privacy: null",
    )


class StalenessBound(Config):
    """The largest staleness of an update, and the policy for staler ones."""

    bound: Index = Field(description="updates applied between the read of a model and the application of its update")
    policy: Literal["wait", "drop", "down_weight"] = option(
        "wait",
        "wait: fast clients' updates are held back; drop: too stale updates are thrown away; "
        "down_weight: they count (bound + 1) / (staleness + 1)",
    )


class BoundedConfig(AlgorithmConfig):
    """Base of algorithms that can keep a bound on staleness."""

    staleness_bound: Settled[StalenessBound | None] = option(
        None, "the largest staleness of an update that is applied; null: any"
    )


class ServerAlgorithmConfig(BoundedConfig):
    """Base of algorithms with a server, to which every client has a link."""

    uses: ClassVar[Uses] = Uses(graph="none", server=True, channel="server", sum="single")

    server_optimizer: Settled[ServerOptimizer] = option(
        ServerSgd(), "the optimizer of the server's steps; sgd: a step along the mean change or gradient"
    )
