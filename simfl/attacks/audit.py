"""Audit the privacy of a scenario by canaries among one client's data.

The audited run has the scenario's own data, model, algorithm, world, sampling, clipping, noise and executor, and
canaries that are planted before the ledger is built (`planting`), so it differs from the run without them. The auditor
is one of two adversaries (`scorers`):

- By default it has the local view: it hears all releases of one client and knows the models at which the gradients were
  taken. It also knows the mini-batches if the account does not assume that they are secret (shuffled data, or
  amplification: false). A listening tape provides the releases: when a promise of this client is sent or used, the tape
  records the same operation again, separately. Client and draw determine batch and noise, so this is the released
  vector, bit for bit within a run. Heard and accounted releases must agree. The noise itself is tested too (`noise`):
  its size, its law, and whether it is drawn afresh, also for another client.
- With an observer it has the messages to that node, the server or all links. Its bound is compared with the epsilon
  certified for this observer, and shown beside the one that papers publish for its view.

The report also lists which of many faults of a mechanism the audit would have shown. Statistics and references are in
`statistics`. A lower bound near 0 proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from simfl.accounts.check import claims_of
from simfl.accounts.network import Network, assumptions_of, statement_of
from simfl.attacks.adversary import listen
from simfl.attacks.faults import shown
from simfl.attacks.judging import Judge, NoiseReport, Report, curve
from simfl.attacks.planting import Kind, PlantedScenario
from simfl.attacks.scorers import ReleaseScorer, ViewScorer
from simfl.attacks.statistics import AuditVerdict, Profile
from simfl.attacks.users import UserAudit, UserReport
from simfl.comparison.claims import Claimed
from simfl.errors import ConditionError, ScenarioError
from simfl.privacy import checks
from simfl.privacy.accounting import epsilon_of
from simfl.privacy.assumptions import assumptions
from simfl.privacy.releases import Releases
from simfl.scenario import Scenario, load
from simfl.scenario.privacy import CohortGaussian
from simfl.tape.executor import choose_device


@dataclass(frozen=True, kw_only=True)
class AuditReport(NoiseReport):
    """The result of an audit of one client's releases, in the local view.

    `releases` were heard, and the ledger counted `accounted`. If it counted fewer, something was sent and not accounted
    for; if it counted more, the audit missed some, and its results are invalid. `examples` includes the canaries;
    `sampling_rate` is the mean of q. `claimed` is the scenario's claim, NaN without one that can be tested. `decisive`:
    all guesses right would have refuted the certified epsilon (the claimed one, if nothing is certified).

    Some of the `noise_releases`, whose noise was tested, are another client's.
    """

    client: int
    kind: str
    releases: int
    accounted: int
    examples: int
    sampling_rate: float
    mechanism: str
    view: str
    claimed: float
    claimed_delta: float
    source: str
    claim_p_value: float
    claim_refuted: bool
    decisive: bool
    noise_releases: int

    @property
    def passed(self) -> bool:
        """Whether the audit shows no error."""
        return super().passed and not self.claim_refuted


@dataclass(frozen=True, kw_only=True)
class PairwiseReport(Report):
    """The results of an audit of what one observer learns about one client.

    `distance`: hops between them over used links. The `messages` that reached the observer contain `heard` of the
    client's `gradients`. `published` is the epsilon of the view for fixed gradients, which is not certified;
    `certified` is the smaller of the pairwise and the ledger's, as `certified_by` tells.
    """

    client: int
    observer: str
    distance: float
    messages: int
    gradients: int
    heard: int
    published: float
    certified_by: str


def audit(scenario: Scenario | str | Path, **options: Any) -> AuditReport | PairwiseReport | UserReport:
    """Run an audit of a scenario with the options of `Audit`, and report.

    With `privacy: {unit: user}` the canaries are users, and the options are those of `UserAudit`.
    """
    checked = scenario if isinstance(scenario, Scenario) else load(scenario)
    if not isinstance(checked.privacy, CohortGaussian):
        return Audit(checked, **options).run()
    usual = {"client": 0, "kind": "gradient", "in_place": False, "observer": None}
    for name, value in usual.items():
        if options.pop(name, value) != value:
            raise ScenarioError(
                f"--{name.replace('_', '-')}: expected none with unit: user, whose canaries are users and whose "
                "adversary sees the models that the server releases"
            )
    return UserAudit(checked, **options).run()


class Audit(PlantedScenario):
    """An audit that is ready to run; tests change its `setup` before.

    Args:
        scenario: a scenario with privacy, or the path of one.
        canaries: m, 1,000 by default.
        client: the client whose data they join.
        kind: "gradient": the canary's gradient is one coordinate direction, cut to the clipping norm. This is the
            strongest canary; it tests the noise, the sampling, the clipping and the accounting. "input": random inputs
            with random labels, whose gradients the scenario's own model computes and clips.
        in_place: canaries replace as many of the client's own examples, so the rate and the epsilon are those of the
            scenario. Otherwise they are added: the client has n + m examples and a smaller rate, and the epsilon is
            that of this larger data set.
        guesses: number of guesses, or several numbers to try at a shared error; by default a number that depends only
            on m.
        confidence: 1 - beta.
        seed: of coins and canaries; that of the scenario by default.
        device: "cpu" or "gpu"; JAX's default otherwise.
        observer: a client by number, "server", or "links" for all links; by default every release is heard.

    Raises:
        ScenarioError: there is nothing to audit, no room for the canaries, or no account of the observer's view.
    """

    def __init__(
        self,
        scenario: Scenario | str | Path,
        *,
        canaries: int | None = None,
        client: int = 0,
        kind: Kind = "gradient",
        in_place: bool = False,
        guesses: int | Sequence[int] | None = None,
        confidence: float = 0.95,
        seed: int | None = None,
        device: str | None = None,
        observer: int | str | None = None,
    ) -> None:
        if observer is not None and kind != "gradient":
            raise ScenarioError(
                "--kind: expected gradient with --observer, found input; leave --kind out: messages on a network are "
                "scored along directions"
            )
        self.device = choose_device(device)
        canaries = 1000 if canaries is None else canaries
        checks.one_of(get_args(Kind), kind=kind)
        self.judge = Judge(canaries, guesses, confidence)
        super().__init__(scenario, canaries, client, kind, in_place, seed, observed=observer is not None)
        if observer is not None:
            self.network = Network(self.setup)
            self.observer = self.network.observer([observer])
            if client in self.observer.nodes:
                raise ScenarioError(
                    f"--observer: expected another node than client {client}, which knows its own examples; name "
                    "another one, or leave it out for an adversary that hears every release"
                )

    def run(self) -> AuditReport | PairwiseReport:
        """Run the scenario, listen, guess, and judge.

        Raises:
            RunError: the run failed or was interrupted.
        """
        if self._observed:
            view = ViewScorer(self, self.network, self.observer)
            self.listen(view)
            return self._report_of_view(view)
        scorer = ReleaseScorer(self)
        return self._report_of_releases(scorer, self.listen(scorer))

    def listen(self, scorer: ReleaseScorer | ViewScorer) -> Releases:
        """Run the scenario, and return the account of its releases; see `run` for errors."""
        return listen(self.setup, self.device, scorer.clients, scorer.hear, scorer.factor)

    def _verdict(self, scores: NDArray[np.float64], profile: Profile) -> AuditVerdict:
        return self.judge.verdict(scores, self.included, self.ledger.delta, profile)

    def _shared(self, scores: NDArray[np.float64], profile: Profile, certified: float) -> dict[str, Any]:
        """Return the fields of a `Report` except `complete`, `sees` and words."""
        return {
            **self.judge.fields(self._verdict(scores, profile), self.ledger.delta, certified),
            "scenario": self.scenario.name,
            "neighbors": self.ledger.terms.neighbors,
        }

    def _report_of_view(self, scorer: ViewScorer) -> PairwiseReport:
        network, seen = self.network, scorer.seen
        certified, certified_by, published = scorer.account()
        profile: Profile = [(certified, self.ledger.delta)] if math.isfinite(certified) else []
        return PairwiseReport(
            **self._shared(scorer.scores(), profile, certified),
            client=self.client,
            complete=bool(scorer.heard[seen].all()),
            sees=self.judge.shown(scorer.simulated, profile),
            statement=statement_of(self.setup, network.replay.releases),
            assumptions=assumptions_of(self.setup, network.replay.releases),
            observer=self.observer.name,
            distance=float(network.distances(self.observer)[self.client]),
            messages=len(scorer.rows),
            gradients=len(scorer.own),
            heard=int(np.count_nonzero(seen[scorer.own])),
            published=published,
            certified_by=certified_by,
        )

    def _report_of_releases(self, scorer: ReleaseScorer, releases: Releases) -> AuditReport:
        ledger, terms, client, check = self.ledger, self.ledger.terms, self.client, scorer.check
        composition = tuple(ledger.compositions(releases, "local_transcript")[client])
        try:
            epsilon = epsilon_of(composition, terms.delta, neighbors=terms.neighbors, accountant=terms.accountant)
        except ConditionError:
            epsilon = math.nan
        certified = epsilon if ledger.accounts_for(releases) else math.nan
        profile = curve(composition, certified, terms.delta, terms.neighbors)
        claim = self._claim(releases, epsilon)
        claimed: Profile = [] if claim is None or math.isnan(claim.epsilon) else [(claim.epsilon, claim.delta)]
        shared, on_claim = self._shared(scorer.scores, profile, certified), self._verdict(scorer.scores, claimed)
        made, bound, accounted = shared["guesses"], profile or claimed, releases.total(client)
        noise, own = check.verdict(), check.heard[client]
        guessed = {name: scorer.heard > 0 and seen for name, seen in self.judge.shown(scorer.simulated, bound).items()}
        by_noise = shown(check.law, check.blank.size, own, check.heard.total() - own)
        return AuditReport(
            **shared,
            **AuditReport.noise_fields(noise),
            **AuditReport.draw_fields(scorer.draws.verdict()),
            client=client,
            complete=scorer.heard == accounted,
            sees={
                **guessed,
                **{name: seen or guessed.get(name, False) for name, seen in by_noise.items()},
                **scorer.draws.shows(self.trials),
            },
            statement=ledger.statement_of(releases),
            assumptions=assumptions(ledger, releases),
            kind=self.kind,
            releases=scorer.heard,
            accounted=accounted,
            examples=int(self.setup.training.sizes[client]),
            sampling_rate=scorer.sampling_rate,
            mechanism=terms.mechanism,
            view=terms.view,
            claimed=claimed[0][0] if claimed else math.nan,
            claimed_delta=claimed[0][1] if claimed else math.nan,
            source=claim.source if claim is not None and claimed else "",
            claim_p_value=on_claim.p_value,
            claim_refuted=on_claim.p_value < 1.0 - self.judge.confidence,
            decisive=scorer.heard > 0 and self.judge.refutes(made, made, bound),
            noise_releases=noise.releases,
        )

    def _claim(self, releases: Releases, epsilon: float) -> Claimed | None:
        """Return the claim for the client; None without one that canaries can test."""
        claims, terms = claims_of(self.privacy, self.ledger, releases), self.ledger.terms
        if claims:
            claim = claims[self.client]
            # A canary and its opposite differ by removing one example and adding another one.
            return None if self.replaces and claim.neighbors == "add_or_remove" else claim
        if self.privacy.second_moment == "paper":
            return Claimed(epsilon, terms.delta, terms.neighbors, "as if its noise were private")
        return None
