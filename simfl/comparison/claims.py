"""Claims about privacy against certified accounts, as plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

RELATIONS = {"add_or_remove": "one more or less", "replace_one": "one replaced"}
"""Neighboring relations -> description."""

VIEWS = {"local_transcript": "certified", "global_hidden": "if senders were hidden"}
"""Views -> name of their epsilon; a scenario cannot establish the second one's assumption."""

MOST_GROUPS = 6
"""Number of client groups shown; the others spent less."""


@dataclass(frozen=True)
class Claimed:
    """A claim for one client: epsilon (NaN without a claim), delta, and its source.

    `neighbors` is the neighboring relation; `objection` is the theorem's condition that the run violates, or "".
    """

    epsilon: float
    delta: float
    neighbors: str
    source: str
    objection: str = ""


@dataclass(frozen=True)
class Finding:
    """Claim and account of clients whose epsilons are within 5 % of each other.

    The first client's epsilons stand for all and are the largest. `releases` are the smallest and largest number of one
    client. `certified` maps (view, neighbors) to the accountant's epsilon at the claim's delta, NaN without one; it is
    certified in the view `local_transcript`. `by_server`: the server adds the noise, and the account is of its models.
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
        """The epsilon to compare the claim with, for its neighbors."""
        if self.claimed is None:
            return math.nan
        return self.certified.get((self.view, self.claimed.neighbors), math.nan)

    @property
    def certain(self) -> bool:
        """Whether the account is certified; hidden senders are an assumption."""
        return self.view == "local_transcript"

    @property
    def ratio(self) -> float:
        """Claimed epsilon over the account's; NaN if one is missing."""
        if self.claimed is None or not self.account > 0:
            return math.nan
        return self.claimed.epsilon / self.account

    @property
    def understated(self) -> bool:
        """Whether the claim is below the certified epsilon, or none can be certified."""
        if self.claimed is None or math.isnan(self.claimed.epsilon):
            return False
        return math.isnan(self.account) or self.claimed.epsilon < self.account * (1 - 1e-9)


@dataclass(frozen=True)
class Check:
    """The findings about a scenario or a run, the most expensive clients first.

    `planned` says whether the releases are planned rather than recorded; `statement` is the ledger's, `delta` that of
    the certified epsilons. `assumptions` are those of the account, by name. `per_client` are the epsilons of single
    clients, if users own several clients and the findings are theirs.
    """

    subject: str
    planned: bool
    statement: str
    delta: float
    findings: tuple[Finding, ...]
    assumptions: Mapping[str, str] = field(default_factory=dict)
    per_client: tuple[float, ...] = ()

    @property
    def understated(self) -> bool:
        """Whether any claim is smaller than its certified epsilon."""
        return any(finding.understated for finding in self.findings)
