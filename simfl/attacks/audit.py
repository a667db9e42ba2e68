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
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from simfl.accounts.check import claims_of
from simfl.accounts.network import Network, assumptions_of, statement_of
from simfl.attacks.adversary import listen
from simfl.attacks.faults import shown
from simfl.attacks.noise import FALSE_ALARMS
from simfl.attacks.planting import Kind, PlantedScenario
from simfl.attacks.scorers import ReleaseScorer, ViewScorer
from simfl.attacks.statistics import (
    AuditVerdict,
    Profile,
    default_guesses,
    epsilon_lower_bound,
    error_at,
    judge,
    profile_p_value,
    right_guesses,
)
from simfl.errors import ConditionError, ScenarioError
from simfl.privacy import checks
from simfl.privacy.accounting import Composition, Neighbors, delta_of, epsilon_of
from simfl.privacy.assumptions import assumptions
from simfl.privacy.releases import Releases
from simfl.records.claims import Claimed
from simfl.scenario import Scenario
from simfl.tape.executor import choose_device

#: Points at which a certified curve is evaluated, in units of its epsilon.
CURVE = (0.08, 0.16, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95, 1.05, 1.2)


@dataclass(frozen=True, kw_only=True)
class Report:
    """The results that all audits share.

    `correct` of `guesses` guesses were right; `guesses` is fixed in advance. `complete`: whether all releases were
    heard. Epsilons and the bound hold at `delta`. `certified` is NaN if nothing is certified. Epsilon is at least
    `lower_bound` at this `confidence`, 1 - beta; the bound would be `ceiling` with all guesses right. `p_value` is at
    least the chance of as many right guesses if the certified epsilon holds (1 if there is none). Below beta the
    epsilon is `refuted`: there is an error in the proof, the accounting or the code. `sees`: for each fault, whether
    all simulated audits of it showed it. `statement`: the meaning of the ledger's epsilon, or why there is none.
    `assumptions` are those of the certified epsilon, by name.
    """

    scenario: str
    client: int
    canaries: int
    guesses: int
    correct: int
    complete: bool
    neighbors: str
    delta: float
    certified: float
    confidence: float
    lower_bound: float
    p_value: float
    refuted: bool
    ceiling: float
    sees: dict[str, bool]
    statement: str
    assumptions: dict[str, str]

    @property
    def passed(self) -> bool:
        """Whether the audit shows no error."""
        return self.complete and not self.refuted


@dataclass(frozen=True, kw_only=True)
class AuditReport(Report):
    """The result of an audit of one client's releases, in the local view.

    `releases` were heard, and the ledger counted `accounted`. If it counted fewer, something was sent and not accounted
    for; if it counted more, the audit missed some, and its results are invalid. `examples` includes the canaries;
    `sampling_rate` is the mean of q. `claimed` is the scenario's claim, NaN without one that can be tested. `decisive`:
    all guesses right would have refuted the certified epsilon (the claimed one, if nothing is certified).

    Some of the `noise_releases` are another client's; `noise_pairs` of them were compared, and `noise_numbers` numbers
    contain only noise. Three p-values bound the chance, for correct noise and all three tests together, of such little
    noise (`noise_p_value`), of numbers so far from the declared law (`law_p_value`), and of such dependent noise
    (`dependence_p_value`). Each one below `FALSE_ALARMS` is an alarm.
    """

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
    noise_pairs: int
    noise_numbers: int
    noise_p_value: float
    noise_missing: bool
    law_p_value: float
    noise_of_other_law: bool
    dependence_p_value: float
    noise_dependent: bool

    @property
    def passed(self) -> bool:
        """Whether the audit shows no error."""
        noise_wrong = self.noise_missing or self.noise_of_other_law or self.noise_dependent
        return super().passed and not (self.claim_refuted or noise_wrong)


@dataclass(frozen=True, kw_only=True)
class PairwiseReport(Report):
    """The results of an audit of what one observer learns about one client.

    `distance`: hops between them over used links. The `messages` that reached the observer contain `heard` of the
    client's `gradients`. `published` is the epsilon of the view for fixed gradients, which is not certified;
    `certified` is the smaller of the pairwise and the ledger's, as `certified_by` tells.
    """

    observer: str
    distance: float
    messages: int
    gradients: int
    heard: int
    published: float
    certified_by: str


def audit(scenario: Scenario | str | Path, **options: Any) -> AuditReport | PairwiseReport:
    """Run an audit of a scenario with the options of `Audit`, and report."""
    return Audit(scenario, **options).run()


class Audit(PlantedScenario):
    """An audit that is ready to run; tests change its `setup` before.

    Args:
        scenario: a scenario with privacy, or the path of one.
        canaries: m.
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
        canaries: int = 1000,
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
        self.device, self.confidence = choose_device(device), confidence
        checks.whole(1, canaries=canaries)
        checks.one_of(get_args(Kind), kind=kind)
        guesses = default_guesses(canaries) if guesses is None else guesses
        self.guess_numbers = [guesses] if isinstance(guesses, int) else [*guesses]
        for number in self.guess_numbers:
            if not 1 <= number <= canaries:
                raise ValueError(f"guesses: expected an integer from 1 to {canaries}, the canaries, found {number}")
        if not self.guess_numbers:
            raise ValueError("guesses: expected one number of guesses or more, found none")
        self._share = error_at(confidence) / len(self.guess_numbers)
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

    def _judge(self, scores: NDArray[np.float64], profile: Profile) -> AuditVerdict:
        delta, confidence = self.ledger.delta, self.confidence
        return judge(scores, self.included, self.guess_numbers, delta=delta, profile=profile, confidence=confidence)

    def _shared(self, verdict: AuditVerdict, certified: float) -> dict[str, Any]:
        """Return the fields of a `Report` except `complete`, `sees` and words."""
        guesses, delta = verdict.guesses, self.ledger.delta
        return {
            **vars(verdict),
            "scenario": self.scenario.name,
            "client": self.client,
            "neighbors": self.ledger.terms.neighbors,
            "delta": delta,
            "certified": certified,
            "confidence": self.confidence,
            "refuted": verdict.p_value < 1.0 - self.confidence,
            "ceiling": epsilon_lower_bound(guesses, guesses, self.canaries, delta, 1.0 - self._share),
        }

    def _shown(self, scorer: ReleaseScorer | ViewScorer, profile: Profile) -> dict[str, bool]:
        """Return which broken mechanisms all of their simulated audits refute."""

        def refuted(coins: NDArray[np.bool_], scores: NDArray[np.float64]) -> bool:
            counts = ((right_guesses(scores, coins, guesses), guesses) for guesses in self.guess_numbers)
            return any(profile_p_value(*count, self.canaries, profile) < self._share for count in counts)

        return {name: all(map(refuted, *simulated)) for name, simulated in scorer.simulated.items()}

    def _report_of_view(self, scorer: ViewScorer) -> PairwiseReport:
        network, seen = self.network, scorer.seen
        certified, certified_by, published = scorer.account()
        profile: Profile = [(certified, self.ledger.delta)] if math.isfinite(certified) else []
        return PairwiseReport(
            **self._shared(self._judge(scorer.scores(), profile), certified),
            complete=bool(scorer.heard[seen].all()),
            sees=self._shown(scorer, profile),
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
        verdict, on_claim = self._judge(scorer.scores, profile), self._judge(scorer.scores, claimed)
        made, bound, accounted = verdict.guesses, profile or claimed, releases.total(client)
        noise, own = check.verdict(), check.heard[client]
        guessed = {name: scorer.heard > 0 and seen for name, seen in self._shown(scorer, bound).items()}
        by_noise = shown(check.law, check.blank.size, own, check.heard.total() - own)
        return AuditReport(
            **self._shared(verdict, certified),
            complete=scorer.heard == accounted,
            sees={**guessed, **{name: seen or guessed.get(name, False) for name, seen in by_noise.items()}},
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
            claim_refuted=on_claim.p_value < 1.0 - self.confidence,
            decisive=scorer.heard > 0 and profile_p_value(made, made, self.canaries, bound) < self._share,
            noise_releases=noise.releases,
            noise_pairs=noise.pairs,
            noise_numbers=noise.numbers,
            noise_p_value=noise.too_small,
            noise_missing=noise.too_small < FALSE_ALARMS,
            law_p_value=noise.other_law,
            noise_of_other_law=noise.other_law < FALSE_ALARMS,
            dependence_p_value=noise.dependent,
            noise_dependent=noise.dependent < FALSE_ALARMS,
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


@lru_cache(maxsize=64)
def curve(composition: Composition, epsilon: float, delta: float, neighbors: Neighbors) -> Profile:
    """Return some of the (epsilon, delta) that hold for releases composed.

    `epsilon` is theirs at `delta`; if it is NaN or infinite, the profile is empty.
    """
    if not math.isfinite(epsilon):
        return ()
    points = [(epsilon, delta)]
    # Above 40 a curve is expensive and has little use. Below 1/2 the numerical accountant is slow, and only needed
    # without other points.
    if 0.0 < epsilon < 40.0:
        epsilons = [share * epsilon for share in CURVE if share * epsilon >= 0.5 or epsilon < 1.0]
        points += [(one, delta_of(composition, one, neighbors=neighbors)) for one in epsilons]
    return tuple(points)
