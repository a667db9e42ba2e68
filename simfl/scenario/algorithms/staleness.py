"""Bounds on staleness, and the algorithms that take one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from simfl.scenario.algorithms.base import AlgorithmConfig
from simfl.scenario.fields import Config, Index, Settled, option
from simfl.scenario.optimizers import ServerOptimizer, ServerSgd
from simfl.scenario.problems import Problem


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

    uses_topology: ClassVar[bool] = False
    has_server: ClassVar[bool | None] = True
    #: Why its server takes no optimizer; "" where it does.
    no_server_optimizer: ClassVar[str] = ""

    server_optimizer: Settled[ServerOptimizer] = option(
        ServerSgd(), "what the server's step makes of the mean change, or of a gradient; sgd: the step is along it"
    )

    def optimizer_problems(self) -> Iterator[Problem]:
        """Yield also a server's optimizer that the algorithm does not support."""
        yield from super().optimizer_problems()
        if self.no_server_optimizer and self.server_optimizer != ServerSgd():
            at = ("algorithm", "server_optimizer")
            yield Problem(f"sgd with '{self.kind}'", repr(self.server_optimizer.kind), self.no_server_optimizer, at)
