"""Scenarios whose messages no account or audit covers."""

from __future__ import annotations

from simfl.errors import ScenarioError
from simfl.scenario import Scenario


def refuse_cohorts(scenario: Scenario) -> None:
    """Reject noise that a server adds to sums of users' updates.

    Raises:
        ScenarioError: the noise is not a client's, so what a message contains is not known by the client's promises.
    """
    if scenario.algorithm.protocol is not None:
        raise ScenarioError(
            "algorithm.secure_sum: expected null, found a protocol: who learns what from masked messages is not "
            "accounted for; remove it"
        )
    if scenario.privacy is not None and scenario.privacy.by_server:
        raise ScenarioError(
            "privacy.unit: expected noise that clients add to what they send, found user: who learns what from the "
            "messages of a server that adds noise to sums is not accounted for; use mechanism: gaussian_update"
        )


def refuse_attackers(scenario: Scenario, why: str) -> None:
    """Raise a `ScenarioError` of one line if the scenario has attackers."""
    if scenario.attackers is not None:
        raise ScenarioError(
            f"attackers: expected null, found {scenario.attackers.kind!r}: {why}; use --set attackers=null"
        )
