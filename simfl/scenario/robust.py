"""Robust aggregation rules, and hostile clients: sections of `simfl.robust`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field

from simfl.scenario.clients import exactly_one
from simfl.scenario.fields import ByKind, Clients, OpenShare, OwnCode, OwnName, Seconds, option
from simfl.scenario.problems import Problem
from simfl.scenario.sections import ClassSection, Sections
from simfl.scenario.units import format_time


class Mixing(ClassSection):
    """Base of rules that replace models before another rule combines them."""


class RuleConfig(ClassSection):
    """Base of aggregation rules."""


class Mixable(RuleConfig):
    """Base of rules over many models."""

    before: Annotated[Mixing, ByKind()] | None = option(
        None, "replaces the models before the rule combines them; null: nothing"
    )


class OwnRule(Mixable, OwnCode):
    """A rule of your own, a subclass of `simfl.robust.base.AbstractRule`."""

    kind: OwnName = Field(description="module and class of the rule, as in my_module:MyRule")


class AttackConfig(ClassSection):
    """Base of attacks."""

    #: Whether it changes the attackers' labels and not what they send.
    on_data: ClassVar[bool] = False

    clients: Clients | None = option(None, "the attackers, by number; the first is 0")
    share: OpenShare | None = option(None, "the fraction of all clients that are attackers, drawn once; at least one")
    start: Seconds = option(0.0, "virtual time from which the attack replaces messages", alias="from")

    def problems(self) -> Iterator[Problem]:
        """Yield a problem unless one of clients and share is given, or of late flips."""
        yield from exactly_one(self, "clients", "share")
        if self.on_data and self.start > 0.0:
            found = format_time(self.start)
            yield Problem(f"0 s with {self.kind!r}", found, "labels are flipped from the start", ("from",))


class OwnAttack(AttackConfig, OwnCode):
    """An attack of your own, a subclass of `simfl.robust.base.AbstractAttack`."""

    kind: OwnName = Field(description="module and class of the attack, as in my_module:MyAttack")


_RULES, _ATTACKS = "simfl.robust.rules:RULES", "simfl.robust.attacks:ATTACKS"
_FIRST = "mean median trimmed_mean krum multi_krum geometric_median centered_clipping clipped_gossip"
_BASES = {"many": Mixable, "own": RuleConfig}

Mixing.variants = Sections(_RULES, lambda rule: Mixing if rule.among == "before" else None, "Mixing")
RuleConfig.variants = Sections(_RULES, lambda rule: _BASES.get(rule.among), "{}Rule", _FIRST, OwnRule)
_FIRST = "sign_flip ipm alie gaussian mimic"
AttackConfig.variants = Sections(_ATTACKS, lambda _: AttackConfig, "{}Attack", _FIRST, OwnAttack)

Aggregation = Annotated[RuleConfig, ByKind(external=OwnRule)]
Attackers = Annotated[AttackConfig, ByKind(external=OwnAttack)]
