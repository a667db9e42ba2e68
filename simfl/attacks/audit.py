"""Audits: run a scenario with canaries and guess which were included.

What is audited is a run of the scenario's own data, model, algorithm, world, sampling, clipping, noise and executor,
with canaries that are planted before the ledger is built: it is not the run without them. The auditor is the adversary
of the local view, who sees all that one client ever released and the models that its gradients were taken at; and the
mini-batches too, if the account does not count on their being secret (shuffled data, or amplification: false). A tape
that listens gives it to them: whenever a promise of this client is sent or used, the tape records the same operation
once more on its own. Client and draw name batch and noise, so that this is the released vector, bit for bit within a
run. Hearing and account must come to one number.

A canary is in or out by a fair coin. "Out" under add_or_remove means that an example without gradient holds its place,
which for Poisson sampling is the same as being absent at the same rate q; under replace_one a canary with the opposite
gradient takes the place. So the number of examples, and with it q and the epsilon, does not depend on the coins.

Statistics and references are in `statistics`. What a run cannot show: a lower bound near 0 proves nothing.
The noise itself is tested, too (`simfl.attacks.noise`): its size, its law, and whether it is drawn afresh, also for
another client. For that the model has coordinates at its end that no example touches. What the audit would have seen of
a mechanism that is broken in one of many ways is part of its report.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from simfl.accounts.check import claims_of
from simfl.attacks.adversary import Circumstances, ListeningTape, Ordinary, Scorer, positions_in
from simfl.attacks.canary import EXCESS, ORDINARY, OWN_EXCESS, SILENT, CanaryModel, with_codes
from simfl.attacks.faults import shown
from simfl.attacks.noise import BLANK, FALSE_ALARMS, NoiseCheck, NoiseLaw
from simfl.attacks.statistics import (
    Profile,
    default_guesses,
    epsilon_lower_bound,
    judge,
    profile_p_value,
    right_guesses,
)
from simfl.build.assembly import assemble
from simfl.build.kinds import find_algorithm
from simfl.build.setup import Setup
from simfl.data import Dataset, Partition
from simfl.errors import ConditionError, ScenarioError
from simfl.models import AbstractModel
from simfl.privacy.accounting import Accountant, Composition, Neighbors, delta_of, epsilon_of
from simfl.privacy.ledger import Ledger
from simfl.privacy.mechanisms import MECHANISMS
from simfl.privacy.releases import Releases
from simfl.records import RunFolder
from simfl.records.claims import Claimed
from simfl.runs.runner import Simulation
from simfl.scenario import Scenario, load
from simfl.streams import Streams
from simfl.tape import Gradient
from simfl.tape.executor import choose_device

Kind = Literal["gradient", "input"]

#: Examples of the client's own, at most, by which the auditor predicts what they add to a release.
OWN_EXAMPLES = 2000
#: Releases of another client that are heard, for noise that two clients share.
OTHERS = 8
#: What a heard release is multiplied by where the run projects every step onto a ball: so small that nothing is cut.
WHISPER = 2.0**-40
#: Where a certified curve is looked at, in units of its epsilon.
CURVE = (0.08, 0.16, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95, 1.05, 1.2)


@dataclass(frozen=True)
class AuditReport:
    """The result of an audit.

    Attributes:
        scenario: name of the scenario.
        client: whose releases were audited.
        kind: of canaries.
        canaries: m.
        guesses, correct: r guesses, fixed in advance, and how many were right.
        releases: what the adversary heard: releases of the client.
        accounted: releases that the ledger counted.
        complete: whether the two agree. If the ledger counted fewer, something was sent and not accounted for; if it
            counted more, the audit is deaf to some, and what it says of them is worth nothing.
        examples: of the client, canaries included.
        sampling_rate: q, the mean over releases.
        neighbors, mechanism, view: as the scenario declares them; what is certified here is for local_transcript.
        delta: of both epsilons and of the lower bound.
        certified: epsilon that the accountant certifies for what the client released, NaN if it certifies none.
        confidence: 1 - beta of the lower bound and of each refutation.
        lower_bound: epsilon is not smaller than this.
        p_value: bound on the chance of this many correct guesses if the certified account holds; 1 if nothing is.
        refuted: whether that is below beta: there is an error in the proof, in the accounting or in the code.
        claimed, claimed_delta: what is claimed (privacy.claim of the scenario), NaN without a claim that can be tested.
        source: who claims it.
        claim_p_value, claim_refuted: the same for the claim.
        ceiling: the lower bound, had all guesses been right: an audit with this number of guesses cannot show more.
        decisive: whether all guesses right would have refuted what is certified (or claimed, if nothing is).
        noise_releases, noise_pairs: releases whose noise was tested, and pairs of them that were compared; some of
            another client's are among them.
        noise_numbers: numbers in these releases that hold noise alone.
        noise_p_value: chance, at most, of so little noise if it were as declared. This chance and the two that follow
            hold for all three tests together.
        noise_missing: whether that is below `FALSE_ALARMS`.
        law_p_value: chance, at most, of numbers so far from the declared law.
        noise_of_other_law: whether that is below `FALSE_ALARMS`.
        dependence_p_value: chance, at most, of noise so dependent if it were drawn afresh for each release and
            coordinate.
        noise_dependent: whether that is below `FALSE_ALARMS`.
        sees: ways in which a mechanism may be broken, and whether all of some made-up audits of it, with as many
            releases, showed it.
        statement: what the epsilon means, or why there is none.
    """

    scenario: str
    client: int
    kind: str
    canaries: int
    guesses: int
    correct: int
    releases: int
    accounted: int
    complete: bool
    examples: int
    sampling_rate: float
    neighbors: str
    mechanism: str
    view: str
    delta: float
    certified: float
    confidence: float
    lower_bound: float
    p_value: float
    refuted: bool
    claimed: float
    claimed_delta: float
    source: str
    claim_p_value: float
    claim_refuted: bool
    ceiling: float
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
    sees: dict[str, bool]
    statement: str

    @property
    def passed(self) -> bool:
        """Whether nothing was found to be wrong."""
        noise_wrong = self.noise_missing or self.noise_of_other_law or self.noise_dependent
        return self.complete and not (self.refuted or self.claim_refuted or noise_wrong)


def audit(
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
) -> AuditReport:
    """Run an audit of a scenario; the arguments are those of `Audit`."""
    plan = Audit(
        scenario,
        canaries=canaries,
        client=client,
        kind=kind,
        in_place=in_place,
        guesses=guesses,
        confidence=confidence,
        seed=seed,
        device=device,
    )
    return plan.run()


class Audit:
    """A prepared audit. Tests change `setup` before running it.

    Args:
        scenario: a scenario with privacy, or the path of one.
        canaries: m, number of canaries.
        client: whose data they join.
        kind: "gradient": the canary's gradient is one coordinate direction, cut to the clipping norm: the strongest
            canary there is, and it tests the noise, the sampling, the clipping and the accounting. "input": random
            inputs with random labels, whose gradients the scenario's own model computes and clips.
        in_place: canaries take the place of the client's own examples, as many as there are, which leaves the rate
            and the epsilon as the scenario has them. Else they are added: the client has n + m examples, a smaller
            rate, and the epsilon is that of this larger data set.
        guesses: how many guesses to make, or several numbers to be tried at a shared error; by default a number that
            depends on m alone.
        confidence: 1 - beta.
        seed: of coins and canaries; that of the scenario by default.
        device: "cpu" or "gpu"; JAX's default otherwise.

    Raises:
        ScenarioError: if there is nothing to audit, or no room for the canaries.
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
    ) -> None:
        self.scenario = scenario if isinstance(scenario, Scenario) else load(scenario)
        self.device = choose_device(device)
        self.canaries, self.client, self.kind, self.in_place = canaries, client, kind, in_place
        self.confidence = confidence
        if canaries < 1:
            raise ValueError(f"canaries: expected an integer >= 1, found {canaries}")
        if kind not in ("gradient", "input"):
            raise ValueError(f"kind: expected gradient or input, found {kind!r}")
        if not 0.0 < confidence < 1.0:
            raise ValueError(f"confidence: expected a number between 0 and 1, found {confidence}")
        self.guess_numbers = _guess_numbers(guesses, canaries)
        privacy = self.scenario.privacy
        if privacy is None:
            raise ScenarioError("privacy: expected a mechanism to audit, found none; add a section privacy")
        if self.scenario.algorithm.noise_of_server:
            raise ScenarioError(
                "algorithm.noise: expected noise that clients add to what they send, found noise: server; an audit "
                "hears what clients send, which that noise does not cover; audit clients that add their own"
            )
        if privacy.unit == "client":
            raise ScenarioError(
                "privacy.mechanism: expected a mechanism that protects examples, found gaussian_update, which protects "
                "whole clients: canaries among one client's examples say nothing of it; audit mechanism: gaussian"
            )
        if getattr(privacy, "quantise", False):
            raise ScenarioError(
                "privacy.quantise: expected false, found true; an audit knows the law of noise on real numbers: audit "
                "the same scenario without quantise"
            )
        if privacy.correlated is not None:
            raise ScenarioError(
                f"privacy.noise: expected null, found {privacy.correlated}; an audit knows the law of noise that "
                "is drawn afresh for every release: audit the same scenario without noise"
            )
        if not 0 <= client < self.scenario.clients.count:
            raise ScenarioError(f"client: expected 0 to {self.scenario.clients.count - 1}, found {client}")
        self.privacy = privacy
        usual = "replace_one" if privacy.counts_uses else "add_or_remove"
        self.replaces = getattr(privacy, "neighbors", usual) == "replace_one"
        streams = Streams(self.scenario.seed if seed is None else seed)
        self.included: NDArray[np.bool_] = streams.generator("canary-coins").random(canaries) < 0.5
        self._generator = streams.generator("canaries")
        self._trials = streams.generator("canary-trials")
        self.setup: Setup = assemble(self.scenario, self._plant)
        #: Bound C; None where nothing is clipped.
        self.clipping_norm = self.setup.problem.clipping.norm
        if self.setup.problem.rounds is not None:
            raise ScenarioError(
                "algorithm.kind: expected an algorithm whose clients send gradients, found "
                f"{self.scenario.algorithm.kind}, whose clients train locally; an audit does not know what a canary "
                "does to the result"
            )
        if self.setup.problem.blocks > 1:
            raise ScenarioError(
                f"algorithm.mask: expected 1, found {self.setup.problem.blocks}; an audit listens to all entries of an "
                "update, and masking them changes nothing about the account"
            )

    def _plant(
        self, dataset: Dataset, shares: Partition, model: AbstractModel
    ) -> tuple[Dataset, Partition, AbstractModel]:
        """Put the canaries among the client's examples, before anything is derived."""
        dataset = dataset.floats()  # codes are added to them
        count, own = self.canaries, shares.of(self.client)
        if self.in_place and count > len(own):
            raise ScenarioError(
                f"canaries: expected at most {len(own)} in place, the examples of client {self.client}, found {count}; "
                "ask for fewer, or add them to its data"
            )
        if model.num_tasks > 1 and find_algorithm(self.scenario.algorithm.kind).moves_tasks:
            raise ScenarioError(
                "model.kind: expected a model that moves as a whole, found one_vs_all, whose tasks move on their own; "
                "use model: {kind: logistic} on data with two classes"
            )
        if model.tokens and self.kind == "input":
            raise ScenarioError(
                f"canary: expected gradient with model '{model.kind}', found input: examples of random signs are not "
                "text; use --canary gradient"
            )
        # Where nothing is clipped there is no norm to measure a canary by: a multiple of the noise is used.
        named = [getattr(self.privacy, name, None) for name in ("clipping_norm", "lipschitz", "noise_std")]
        unit = max(float(value) for value in (*named, 0.0) if value is not None) or 1.0
        excess = OWN_EXCESS if find_algorithm(self.scenario.algorithm.kind).own_clipping else EXCESS
        wrapped = CanaryModel.around(model, count if self.kind == "gradient" else 1, excess * unit)
        wrapped = replace(wrapped, blank=self._blank(wrapped.touched))
        x = np.zeros((count, model.num_features), dtype=np.float32)
        y = np.zeros(count, dtype=dataset.train_y.dtype)
        if self.kind == "gradient":
            number = np.arange(1, count + 1, dtype=np.float32)
            codes = np.where(self.included, number, -number if self.replaces else np.float32(SILENT))
        else:
            self._draw_inputs(x, y, dataset)
            codes = np.where(self.included, np.float32(ORDINARY), np.float32(SILENT))
        self._inputs = x.reshape(count, *model.input_shape), y
        kept = np.sort(self._generator.choice(own, len(own) - count, replace=False)) if self.in_place else own
        rows = len(dataset.train_x) + np.arange(count)
        parts = [shares.of(k) for k in range(shares.num_clients)]
        parts[self.client] = np.concatenate((kept, rows)).astype(shares.indices.dtype)
        offsets = np.concatenate(([0], np.cumsum([len(part) for part in parts]))).astype(shares.offsets.dtype)
        self._ordinary = {self.client: self._some(dataset, kept)}
        if len(parts) > 1:
            other = (self.client + 1) % len(parts)
            self._ordinary[other] = self._some(dataset, parts[other])
        labels: Any = np.concatenate((dataset.train_y, y))
        planted = replace(
            dataset,
            train_x=np.concatenate((with_codes(dataset.train_x, ORDINARY), with_codes(x, codes))),
            train_y=labels,
            test_x=with_codes(dataset.test_x, ORDINARY),
            groups=None,  # who holds what is settled
        )
        return planted, Partition(np.concatenate(parts), offsets), wrapped

    def _blank(self, touched: int) -> int:
        """Return the number of additional coordinates that hold only noise."""
        if self.privacy.partial:
            return 0  # the last coordinates carry no noise
        make = MECHANISMS.get(self.privacy.made_by)  # None for noise of one pass, which is Gaussian
        gaussian = make is None or make.sampler == "gaussian"
        return BLANK if gaussian else min(BLANK, touched)  # Laplace noise grows with the number of coordinates

    def _some(self, dataset: Dataset, rows: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[Any], int]:
        """Return (x, y, count) of a client's examples, at most some."""
        few = rows if len(rows) <= OWN_EXAMPLES else self._generator.choice(rows, OWN_EXAMPLES, replace=False)
        return np.array(dataset.train_x[few]), np.array(dataset.train_y[few]), len(rows)

    def _draw_inputs(self, x: NDArray[np.float32], y: NDArray[Any], dataset: Dataset) -> None:
        """Fill in inputs of random signs, as large as the largest data, random labels."""
        largest = float(np.abs(dataset.train_x).max()) or 1.0
        factor = 1.0 if dataset.num_classes else EXCESS
        x[:] = factor * largest * self._generator.choice((-1.0, 1.0), x.shape)
        if dataset.num_classes:
            y[:] = self._generator.integers(0, dataset.num_classes, len(y))
        else:
            spread = EXCESS * max(1.0, float(np.abs(dataset.train_y).max(initial=0.0)))
            y[:] = spread * self._generator.choice((-1.0, 1.0), len(y))

    def run(self) -> AuditReport:
        """Run the scenario, listen to the client, guess, and judge.

        Raises:
            RunError: the run failed.
        """
        setup, ledger = self.setup, self.setup.ledger
        assert ledger is not None, "a scenario with privacy has a ledger"
        model = setup.model
        assert isinstance(model, CanaryModel), "an audit runs on the model with canaries"
        ordinary = {client: Ordinary(model, examples) for client, examples in self._ordinary.items()}
        scorer = Scorer(
            ordinary[self.client],
            inputs=self._inputs if self.kind == "input" else None,
            canaries=self.canaries,
            replaces=self.replaces and self.kind == "gradient",
            generator=self._trials,
        )
        check = NoiseCheck(NoiseLaw(setup.protection.sampler, setup.dimension), model.blank)

        def hear(models: NDArray[np.float32], releases: NDArray[np.float32], promises: Sequence[Gradient]) -> None:
            for client in ordinary:
                own = [row for row, promise in enumerate(promises) if promise.client == client]
                if not own:
                    continue
                known = [self._circumstances(promises[row]) for row in own]
                rest = ordinary[client].without(models[own], releases[own], known)
                if client == self.client:
                    scorer.hear(models[own], rest, known)
                unit = np.array([one.declared for one in known])[:, None] / self._std_per_scale(client)
                noisy = unit[:, 0] > 0.0
                check.hear(client, rest[noisy, : setup.dimension] / unit[noisy])

        listening = partial(
            ListeningTape,
            clients={client: math.inf if client == self.client else OTHERS for client in ordinary},
            hear=hear,
            factor=1.0 if setup.problem.radius is None else WHISPER,
        )
        simulation = Simulation(setup, self.device, tape=listening)
        try:
            with tempfile.TemporaryDirectory() as temporary:
                simulation.run(RunFolder.create(Path(temporary), "audit"))
            tape = simulation.tape
            assert isinstance(tape, ListeningTape), "the simulation records on the tape it was given"
            tape.deliver()
            releases = simulation.account()
        finally:
            simulation.release()
        return self._report(ledger, releases, scorer, check)

    def _std_per_scale(self, client: int) -> float:
        """Return the standard deviation per coordinate of a client's noise of scale 1."""
        protection = self.setup.protection
        return protection.stds[client] / protection.scales[client] if protection.scales[client] else 1.0

    def _circumstances(self, promise: Gradient) -> Circumstances:
        """Return the adversary's knowledge of a release."""
        client, training, ledger = promise.client, self.setup.training, self.setup.ledger
        assert ledger is not None, "a scenario with privacy has a ledger"
        scales = training.each_noise_std() if training.noise_scale is None else training.noise_scale
        usual, unit = float(scales[client]), self._std_per_scale(client)
        # What is accounted for is the mechanism's, in proportion where promises have scales of their own.
        share = promise.noise_scale / usual if usual else 1.0
        norm = self.clipping_norm if promise.own_norm is None else promise.own_norm
        known = not ledger.terms.amplification or ledger.sampling == "shuffle"
        return Circumstances(
            rate=min(1.0, (promise.expected or promise.examples) / int(training.sizes[client])),
            norm=math.inf if norm is None else norm,
            std=promise.noise_scale * unit,
            declared=share * self.setup.protection.scales[client] * unit,
            copies=self._copies_in(promise) if known and client == self.client else None,
        )

    def _copies_in(self, promise: Gradient) -> NDArray[np.int64]:
        """Return how often each canary is in a batch of the client, int [m]."""
        problem = self.setup.problem
        examples = int(problem.data.sizes[self.client])
        copies = np.bincount(positions_in(problem, promise), minlength=examples)
        return copies[examples - self.canaries :]

    def _report(self, ledger: Ledger, releases: Releases, scorer: Scorer, check: NoiseCheck) -> AuditReport:
        noise = check.verdict()
        terms, client, size = ledger.terms, self.client, int(self.setup.training.sizes[self.client])
        composition = tuple(composition_of(ledger, releases, client))
        epsilon = _epsilon_or_nan(composition, terms.delta, terms.neighbors, terms.accountant)
        certified = epsilon if ledger.accounts_for(releases) else math.nan
        profile = curve(composition, certified, terms.delta, terms.neighbors)
        claim = self._claim(ledger, releases, epsilon)
        claimed: Profile = [] if claim is None or math.isnan(claim.epsilon) else [(claim.epsilon, claim.delta)]
        included, numbers, level = self.included, self.guess_numbers, 1.0 - self.confidence
        verdict = judge(
            scorer.scores, included, numbers, delta=terms.delta, profile=profile, confidence=self.confidence
        )
        on_claim = judge(
            scorer.scores, included, numbers, delta=terms.delta, profile=claimed, confidence=self.confidence
        )
        made, share = verdict.guesses, level / len(numbers)
        accounted, bound = releases.total(client), profile or claimed
        return AuditReport(
            scenario=self.scenario.name,
            client=client,
            kind=self.kind,
            canaries=self.canaries,
            guesses=made,
            correct=verdict.correct,
            releases=scorer.heard,
            accounted=accounted,
            complete=scorer.heard == accounted,
            examples=size,
            sampling_rate=scorer.rates / scorer.heard if scorer.heard else 0.0,
            neighbors=terms.neighbors,
            mechanism=terms.mechanism,
            view=terms.view,
            delta=terms.delta,
            certified=certified,
            confidence=self.confidence,
            lower_bound=verdict.lower_bound,
            p_value=verdict.p_value,
            refuted=verdict.p_value < level,
            claimed=claimed[0][0] if claimed else math.nan,
            claimed_delta=claimed[0][1] if claimed else math.nan,
            source=claim.source if claim is not None and claimed else "",
            claim_p_value=on_claim.p_value,
            claim_refuted=on_claim.p_value < level,
            ceiling=epsilon_lower_bound(made, made, self.canaries, terms.delta, 1.0 - share),
            decisive=scorer.heard > 0 and profile_p_value(made, made, self.canaries, bound) < share,
            noise_releases=noise.releases,
            noise_pairs=noise.pairs,
            noise_numbers=noise.numbers,
            noise_p_value=noise.too_small,
            noise_missing=noise.too_small < FALSE_ALARMS,
            law_p_value=noise.other_law,
            noise_of_other_law=noise.other_law < FALSE_ALARMS,
            dependence_p_value=noise.dependent,
            noise_dependent=noise.dependent < FALSE_ALARMS,
            sees=self._sees(scorer, check, bound),
            statement=ledger.statement_of(releases),
        )

    def _sees(self, scorer: Scorer, check: NoiseCheck, profile: Profile) -> dict[str, bool]:
        """Return the broken mechanisms that the audit would have detected."""
        level = (1.0 - self.confidence) / len(self.guess_numbers)

        def refuted(scores: NDArray[np.float64], coins: NDArray[np.bool_]) -> bool:
            for guesses in self.guess_numbers:
                correct = right_guesses(scores, coins, guesses)
                if profile_p_value(correct, guesses, self.canaries, profile) < level:
                    return True
            return False

        guessed = {
            name: scorer.heard > 0 and all(refuted(one, coin) for coin, one in zip(coins, scores, strict=True))
            for name, (coins, scores) in scorer.made_up.items()
        }
        own, others = check.heard[self.client], check.heard.total() - check.heard[self.client]
        by_noise = shown(check.law, check.blank.size, own, others)
        return {**guessed, **{name: seen or guessed.get(name, False) for name, seen in by_noise.items()}}

    def _claim(self, ledger: Ledger, releases: Releases, epsilon: float) -> Claimed | None:
        """Return the claim for the client; None without one that canaries can test."""
        claims = claims_of(self.privacy, ledger, releases)
        if claims:
            claim = claims[self.client]
            # A canary and its opposite are two steps of adding and removing apart.
            return None if self.replaces and claim.neighbors == "add_or_remove" else claim
        if self.privacy.second_moment == "paper":
            terms = ledger.terms
            return Claimed(epsilon, terms.delta, terms.neighbors, "as if its noise were private")
        return None


def composition_of(ledger: Ledger, releases: Releases, client: int) -> Composition:
    """Return one client's releases as a composition, for an observer of all."""
    return ledger.compositions(releases, "local_transcript")[client]


@lru_cache(maxsize=64)
def curve(composition: Composition, epsilon: float, delta: float, neighbors: Neighbors) -> Profile:
    """Return some valid (epsilon, delta) of composed releases, or none.

    Args:
        composition: the releases.
        epsilon: theirs at `delta`; NaN or infinite for none.
        delta: in (0, 1).
        neighbors: what neighboring data sets are.
    """
    if not math.isfinite(epsilon):
        return ()
    points = [(epsilon, delta)]
    # Beyond 40 a curve costs much and says little; below 1/2 the numerical accountant is slow, and not needed
    # unless there is nothing else.
    if 0.0 < epsilon < 40.0:
        chosen = [share * epsilon for share in CURVE if share * epsilon >= 0.5 or epsilon < 1.0]
        points += [(one, delta_of(composition, one, neighbors=neighbors)) for one in chosen]
    return tuple(points)


def _epsilon_or_nan(composition: Composition, delta: float, neighbors: Neighbors, accountant: Accountant) -> float:
    try:
        return epsilon_of(composition, delta, neighbors=neighbors, accountant=accountant)
    except ConditionError:
        return math.nan


def _guess_numbers(guesses: int | Sequence[int] | None, canaries: int) -> list[int]:
    numbers = [default_guesses(canaries)] if guesses is None else [guesses] if isinstance(guesses, int) else [*guesses]
    for number in numbers:
        if not 1 <= number <= canaries:
            raise ValueError(f"guesses: expected an integer from 1 to {canaries}, the canaries, found {number}")
    if not numbers:
        raise ValueError("guesses: expected one number of guesses or more, found none")
    return numbers
