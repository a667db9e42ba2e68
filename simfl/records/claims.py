"""Privacy claims beside certified accounts, in plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

RELATIONS = {"add_or_remove": "one more or less", "replace_one": "one replaced"}
"""Neighboring relations, in words."""

VIEWS = {"local_transcript": "certified", "global_hidden": "if senders were hidden"}
"""What an epsilon under each view is called: the second supposes more than a scenario can establish."""

MOST_GROUPS = 6
"""Number of groups shown; further ones spent less."""


@dataclass(frozen=True)
class Claimed:
    """The claim for one client.

    Attributes:
        epsilon: NaN where nothing is claimed.
        delta: of the claim.
        neighbors: under which relation.
        source: who claims it.
        objection: the condition of the theorem that the run violates, empty if none.
    """

    epsilon: float
    delta: float
    neighbors: str
    source: str
    objection: str = ""


@dataclass(frozen=True)
class Finding:
    """Claim and account of clients whose epsilons are within 5 % of each other.

    Attributes:
        clients: who they are; the first one's numbers stand for all, no client spent more.
        releases: the fewest and the most that one of them made.
        claimed: what is claimed, None without a claim.
        certified: (view, neighbors) -> epsilon that the accountant finds at the claim's delta, which is certified in
            the view `local_transcript`; NaN where there is none.
        view: the scenario's.
        by_server: whether the server adds the noise, and what is certified holds for its models.
    """

    clients: tuple[int, ...]
    releases: tuple[int, int]
    claimed: Claimed | None
    certified: Mapping[tuple[str, str], float]
    view: str
    by_server: bool = False

    @property
    def who(self) -> str:
        """The clients in words."""
        return f"client {self.clients[0]}" if len(self.clients) == 1 else f"{len(self.clients)} clients"

    @property
    def account(self) -> float:
        """The epsilon to compare: the scenario's view, the claim's neighbors."""
        if self.claimed is None:
            return math.nan
        return self.certified.get((self.view, self.claimed.neighbors), math.nan)

    @property
    def certain(self) -> bool:
        """Whether the account is certified, without assumptions on hidden senders."""
        return self.view == "local_transcript"

    @property
    def ratio(self) -> float:
        """Claimed over accounted epsilon: below 1 the claim is too small; NaN if unknown."""
        if self.claimed is None or not self.account > 0:
            return math.nan
        return self.claimed.epsilon / self.account

    @property
    def understated(self) -> bool:
        """Whether the claim is below the account, or no account is certified."""
        if self.claimed is None or math.isnan(self.claimed.epsilon):
            return False
        return math.isnan(self.account) or self.claimed.epsilon < self.account * (1 - 1e-9)


@dataclass(frozen=True)
class Check:
    """The findings about a scenario or a run.

    Attributes:
        subject: what was checked.
        planned: whether the releases are planned; else they were recorded.
        statement: the ledger's own words.
        delta: of the certified epsilons.
        findings: one for each group of clients, the most expensive first.
    """

    subject: str
    planned: bool
    statement: str
    delta: float
    findings: tuple[Finding, ...]

    @property
    def understated(self) -> bool:
        """Whether any claim is below its account."""
        return any(finding.understated for finding in self.findings)
