"""Robust aggregation rules, and hostile clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from simfl.scenario.clients import exactly_one
from simfl.scenario.fields import (
    ByKind,
    ClassSection,
    Clients,
    Config,
    Count,
    Index,
    NonNegative,
    Number,
    OpenShare,
    OwnCode,
    OwnName,
    Positive,
    Probability,
    Seconds,
    option,
    variant,
)
from simfl.scenario.problems import Problem
from simfl.scenario.units import format_time

_TOLERATED = "number of attackers that are tolerated; with too few models, the largest number below half of them"


class RuleConfig(ClassSection):
    """Base of aggregation rules; fields are arguments of the rule's class."""

    beside: ClassVar[frozenset[str]] = frozenset({"before"})


class Mixing(Config):
    """Nearest-neighbor mixing: each model becomes the mean of its n - f nearest."""

    kind: Literal["nearest_neighbor_mixing"] = variant("nearest_neighbor_mixing")
    f: Index = option(
        1, "number of attackers that are tolerated; the n - f nearest of n models are averaged, one if f is n or more"
    )


Before = Annotated[Mixing, ByKind()]


class Mixable(RuleConfig):
    """Base of rules over many models."""

    before: Before | None = option(None, "replaces the models before the rule combines them; null: nothing")


class MeanRule(Mixable):
    """The weighted mean, which is not robust."""

    kind: Literal["mean"] = variant("mean")


class MedianRule(Mixable):
    """The median of each coordinate."""

    kind: Literal["median"] = variant("median")


class TrimmedMeanRule(Mixable):
    """The mean of each coordinate without its f smallest and f largest values."""

    kind: Literal["trimmed_mean"] = variant("trimmed_mean")
    f: Index = option(1, _TOLERATED)


_NEIGHBORS = (
    "how many nearest others count in a model's score, of n models: n - f - 1 (as in byzfl, which counts the model "
    "itself too) or n - f - 2 (as in the paper)"
)


class KrumRule(Mixable):
    """The model nearest to its n - f - 1 nearest others."""

    kind: Literal["krum"] = variant("krum")
    f: Index = option(1, _TOLERATED)
    neighbors: Literal["n - f - 1", "n - f - 2"] = option("n - f - 1", _NEIGHBORS)


class MultiKrumRule(Mixable):
    """The mean of the n - f models with the smallest scores of Krum."""

    kind: Literal["multi_krum"] = variant("multi_krum")
    f: Index = option(1, _TOLERATED)
    neighbors: Literal["n - f - 1", "n - f - 2"] = option("n - f - 1", _NEIGHBORS)


class GeometricMedianRule(Mixable):
    """Smoothed Weiszfeld steps to the geometric median."""

    kind: Literal["geometric_median"] = variant("geometric_median")
    nu: Positive = option(0.1, "smallest distance in a denominator")
    steps: Count = option(3, "number of steps")


class CenteredClippingRule(Mixable):
    """The mean of differences to a center, clipped to norm tau."""

    kind: Literal["centered_clipping"] = variant("centered_clipping")
    tau: Positive = option(100.0, "bound on the L2 norm of a difference")
    steps: Count = option(1, "number of steps of the center")


class ClippedGossipRule(RuleConfig):
    """The own model plus weighted differences to it, clipped to norm tau."""

    kind: Literal["clipped_gossip"] = variant("clipped_gossip")
    tau: Positive = option(1.0, "bound on the L2 norm of a difference")


class BalanceRule(RuleConfig):
    """The own model averaged with the mean of models that are close to it."""

    kind: Literal["balance"] = variant("balance")
    alpha: Probability = option(0.5, "weight of the own model")
    gamma: Positive = option(0.3, "largest distance at the start, as a share of the own model's norm")
    kappa: NonNegative = option(1.0, "the largest distance shrinks by exp(-kappa) until the end of the run")


class OwnRule(Mixable, OwnCode):
    """A rule of your own, a subclass of `simfl.robust.base.AbstractRule`."""

    kind: OwnName = Field(description="module and class of the rule, as in my_module:MyRule")


class AttackConfig(ClassSection):
    """Base of attacks; further fields are arguments of the attack's class."""

    beside: ClassVar[frozenset[str]] = frozenset({"clients", "share", "start"})
    #: Whether it changes the attackers' labels and not what they send.
    on_data: ClassVar[bool] = False

    clients: Clients | None = option(None, "the attackers, by number; the first is 0")
    share: OpenShare | None = option(None, "the share of all clients that are attackers, drawn once; at least one")
    start: Seconds = option(0.0, "virtual time from which the attack replaces messages", alias="from")

    def problems(self) -> Iterator[Problem]:
        """Yield a problem unless one of clients and share is given."""
        return exactly_one(self, "clients", "share")


class SignFlipAttack(AttackConfig):
    """Minus the model or update that an honest client would send."""

    kind: Literal["sign_flip"] = variant("sign_flip")


class IpmAttack(AttackConfig):
    """Inner-product manipulation: the honest mean times -tau."""

    kind: Literal["ipm"] = variant("ipm")
    tau: Positive = option(2.0, "factor")


class AlieAttack(AttackConfig):
    """A little is enough: the honest mean plus tau standard deviations."""

    kind: Literal["alie"] = variant("alie")
    tau: Number = option(1.5, "standard deviations in each coordinate")


class GaussianAttack(AttackConfig):
    """Gaussian noise instead of a model."""

    kind: Literal["gaussian"] = variant("gaussian")
    mean: Number = option(0.0, "mean of each coordinate")
    std: NonNegative = option(1.0, "standard deviation of each coordinate")


class MimicAttack(AttackConfig):
    """A copy of one honest message."""

    kind: Literal["mimic"] = variant("mimic")
    row: Index = option(0, "which of the honest messages, by the number of their senders; the last if there are fewer")


class DissensusAttack(AttackConfig):
    """Pushes a receiver away from its honest neighbors."""

    kind: Literal["dissensus"] = variant("dissensus")
    epsilon: Positive = option(1.5, "above 1, gossip moves the receiver away from its honest neighbors")


class LabelFlipAttack(AttackConfig):
    """Trains on flipped labels, c - 1 - y for class y of c, from the start."""

    on_data: ClassVar[bool] = True

    kind: Literal["label_flip"] = variant("label_flip")

    def problems(self) -> Iterator[Problem]:
        """Also yield a problem if the attack begins later."""
        yield from super().problems()
        if self.start > 0.0:
            yield Problem(
                "0 s with 'label_flip'", format_time(self.start), "labels are flipped from the start", ("from",)
            )


class OwnAttack(AttackConfig, OwnCode):
    """An attack of your own, a subclass of `simfl.robust.base.AbstractAttack`."""

    kind: OwnName = Field(description="module and class of the attack, as in my_module:MyAttack")


RULES = (
    MeanRule
    | MedianRule
    | TrimmedMeanRule
    | KrumRule
    | MultiKrumRule
    | GeometricMedianRule
    | CenteredClippingRule
    | ClippedGossipRule
    | BalanceRule
)
ATTACKS = SignFlipAttack | IpmAttack | AlieAttack | GaussianAttack | MimicAttack | DissensusAttack | LabelFlipAttack
