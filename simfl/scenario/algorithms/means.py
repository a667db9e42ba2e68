"""Servers whose model is a mean of models: FedAT, FAVAS and AREA."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Literal

from simfl.scenario.algorithms.base import Sections
from simfl.scenario.algorithms.local_rounds import BufferedConfig, LocalRoundsConfig
from simfl.scenario.fields import (
    Arithmetic,
    Count,
    Index,
    NonNegative,
    PositiveSeconds,
    Settled,
    Share,
    option,
    variant,
)
from simfl.scenario.problems import Problem
from simfl.scenario.seams import Uses

_MEAN = "its server averages models and takes no step; use fedbuff"


class NoStaleness(LocalRoundsConfig):
    """Base of algorithms that choose when clients train, without a staleness bound."""

    fixed: ClassVar[Mapping[str, str]] = {
        "server_optimizer": _MEAN,
        "concurrency": "use fraction",
        "staleness_bound": "remove it: no update waits or is dropped",
    }
    concurrency: Settled[Count | None] = option(None, "must be null: fraction says how many clients take part")


class FedAT(NoStaleness):
    """FedAT: tiers of equally fast clients, synchronous inside, asynchronous between."""

    uses: ClassVar[Uses] = replace(LocalRoundsConfig.uses, sum="tiers")
    kind: Literal["fedat"] = variant("fedat")
    proximal: Settled[Arithmetic[NonNegative]] = option(
        0.1, "mu of the pull mu (w - w_0) towards the server's model w_0"
    )
    tiers: Count = option(
        2, "M, tiers of equal size by the clients' times in a first round of all; without effect beside tier_of"
    )
    tier_of: tuple[Index, ...] | None = option(
        None, "the tier of each client, 0 for the fastest; null: tiers are measured"
    )
    fraction: Share = option(1.0, "fraction of a tier's clients that take part in its round, drawn at random")
    weighting: Literal["data", "uniform"] = option(
        "data", "how the mean of a tier weighs clients: by their examples, or all alike"
    )

    def contradictions(self, scenario: Sections) -> Iterator[Problem]:
        """Yield also tiers without clients, and clients without a tier."""
        yield from super().contradictions(scenario)
        count, given = scenario.clients.count, self.tier_of
        if given is None:
            if self.tiers > count:
                expected, found = f"at most clients.count, which is {count}", str(self.tiers)
                yield Problem(expected, found, "lower it or add clients", ("algorithm", "tiers"))
        elif len(given) != count:
            expected = f"{count} tiers, one for each of clients.count"
            yield Problem(expected, str(len(given)), "add or remove some", ("algorithm", "tier_of"))
        elif empty := sorted(set(range(max(given))) - set(given)):
            expected = f"each tier from 0 to {max(given)}, the largest"
            yield Problem(expected, f"none in tier {empty[0]}", "leave out no number", ("algorithm", "tier_of"))


class FAVAS(NoStaleness):
    """FAVAS: a server periodically averages with random clients, which it interrupts."""

    uses: ClassVar[Uses] = replace(LocalRoundsConfig.uses, channel="models", sum="interrupted")
    kind: Literal["favas"] = variant("favas")
    fraction: Share = option(0.2, "fraction of the clients that the server asks at a time, drawn at random")
    period: PositiveSeconds = option(1.0, "time from a step of the server to its next requests")
    divisor: Literal["expected", "actual"] = option(
        "expected",
        "alpha, by which a client divides its change: its mean number of steps in answers so far (expected), or "
        "its present number times the fraction of answers with a step (actual)",
    )


class AREA(BufferedConfig):
    """AREA: the server's model is the exact mean of the clients' last models."""

    uses: ClassVar[Uses] = replace(LocalRoundsConfig.uses, channel="residuals", sum="corrected")
    fixed: ClassVar[Mapping[str, str]] = {"server_optimizer": _MEAN}
    kind: Literal["area"] = variant("area")
    buffer_size: Count = option(3, "K, updates that make a step of the server")
    weighting: Literal["data", "uniform"] = option(
        "data",
        "how clients count: their local steps are as long as their fraction of the examples, 1 on average "
        "(data), or equally long (uniform)",
    )
