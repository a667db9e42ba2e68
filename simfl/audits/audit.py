"""Audit the privacy of a scenario: run it with canaries among one client's data and guess which of them were there.

What is audited is the run itself: the scenario's data, model, algorithm, world, sampling, clipping, noise and executor,
with the canaries planted before the ledger is built. The auditor is the adversary of the local view, who sees all that
one client ever released and the models that its gradients were taken at; and the mini-batches too, if the account does
not count on their being secret (shuffled data, or amplification: false). A tape that listens gives it to them: whenever
the algorithm uses a gradient of this client, the tape records the same operation once more on its own. Client and draw
name batch and noise, so that this is the released vector, bit for bit.

A canary is in or out by a fair coin. "Out" under add_or_remove means that an example without gradient holds its place,
which for Poisson sampling is the same as being absent at the same rate q; under replace_one a canary with the opposite
gradient takes the place. So the number of examples, and with it q and the epsilon, does not depend on the coins.

Statistics and references are in `simfl.audits.statistics`. What a run cannot show: a lower bound near 0 proves nothing.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from simfl.audits.adversary import ListeningTape, Scorer, positions_program
from simfl.audits.canary import EXCESS, ORDINARY, SILENT, CanaryModel, with_codes
from simfl.audits.check import claims_of
from simfl.audits.statistics import Profile, default_guesses, epsilon_lower_bound, judge, profile_p_value
from simfl.data import Dataset, Partition
from simfl.errors import ConditionError, ScenarioError
from simfl.models import AbstractModel
from simfl.privacy.accounting import Accountant, Composition, Neighbors, Release, delta_of, epsilon_of
from simfl.privacy.ledger import Ledger
from simfl.privacy.passes import OnePassLedger
from simfl.privacy.releases import Releases
from simfl.records import RunFolder
from simfl.records.claims import Claimed
from simfl.scenario import Scenario, load
from simfl.simulation.assembly import assemble
from simfl.simulation.kinds import find_algorithm
from simfl.simulation.runner import Simulation
from simfl.simulation.setup import Setup
from simfl.streams import Streams
from simfl.tape.executor import choose_device

Kind = Literal["gradient", "input"]

#: Examples of the client's own, at most, by which the auditor predicts what they add to a release.
OWN_EXAMPLES = 2000
#: What a heard release is multiplied by where the run projects every step onto a ball: so small that nothing is cut.
WHISPER = 2.0**-40
#: Where a certified curve is looked at, in units of its epsilon.
CURVE = (0.08, 0.16, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95, 1.05, 1.2)


@dataclass(frozen=True)
class AuditReport:
    """What an audit found.

    Attributes:
        scenario: name of the scenario.
        client: whose releases were audited.
        kind: of canaries.
        canaries: m.
        guesses, correct: r guesses, fixed in advance, and how many were right.
        releases: what the adversary heard: releases of the client.
        accounted: releases that the ledger counted; fewer than heard means that something was not accounted for.
        examples: of the client, canaries included.
        sampling_rate: q = B / examples.
        neighbors, mechanism, view: as the scenario declares them; what is certified here is for local_transcript.
        delta: of both epsilons and of the lower bound.
        certified: epsilon that the accountant certifies for what the client released, NaN if it certifies none.
        confidence: 1 - beta of the lower bound and of each refutation.
        lower_bound: epsilon is not smaller than this.
        p_value: chance of so many right guesses, at most, if all that is certified held; 1 if nothing is.
        refuted: whether that is below beta: there is an error in the proof, in the accounting or in the code.
        claimed, claimed_delta: what is claimed (privacy.claim of the scenario), NaN without a claim that can be tested.
        source: who claims it.
        claim_p_value, claim_refuted: the same for the claim.
        ceiling: the lower bound, had all guesses been right: an audit of so many guesses cannot show more.
        decisive: whether all guesses right would have refuted what is certified (or claimed, if nothing is).
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
    statement: str


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
    """Run a scenario with canaries and say what the adversary learned; the arguments are those of `Audit`."""
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
    """An audit made ready. Between making and running it, `setup` may be changed: so a test breaks the mechanism.

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
        if privacy.unit == "client":
            raise ScenarioError(
                "privacy.mechanism: expected a mechanism that protects examples, found gaussian_update, which protects "
                "whole clients: canaries among one client's examples say nothing of it; audit mechanism: gaussian"
            )
        if not 0 <= client < self.scenario.clients.count:
            raise ScenarioError(f"client: expected 0 to {self.scenario.clients.count - 1}, found {client}")
        self.privacy = privacy
        usual = "replace_one" if privacy.counts_uses else "add_or_remove"
        self.replaces = getattr(privacy, "neighbors", usual) == "replace_one"
        streams = Streams(self.scenario.seed if seed is None else seed)
        self.included: NDArray[np.bool_] = streams.generator("canary-coins").random(canaries) < 0.5
        self._generator = streams.generator("canaries")
        self.setup: Setup = assemble(self.scenario, self._plant)
        #: Bound C; None where nothing is clipped.
        self.clipping_norm = self.setup.problem.clipping.norm
        if self.setup.problem.rounds is not None:
            raise ScenarioError(
                "algorithm.kind: expected an algorithm whose clients send gradients, found "
                f"{self.scenario.algorithm.kind}, whose clients train locally; an audit does not know what a canary "
                "does to the result"
            )

    def _plant(
        self, dataset: Dataset, shares: Partition, model: AbstractModel
    ) -> tuple[Dataset, Partition, AbstractModel]:
        """Put the canaries among the client's examples; all that is derived from data comes after."""
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
        # Where nothing is clipped there is no norm to measure a canary by: many times the noise shows what may happen.
        named = [getattr(self.privacy, name, None) for name in ("clipping_norm", "lipschitz", "noise_std")]
        unit = max(float(value) for value in (*named, 0.0) if value is not None) or 1.0
        wrapped = CanaryModel.around(model, count if self.kind == "gradient" else 1, EXCESS * unit)
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
        few = kept if len(kept) <= OWN_EXAMPLES else self._generator.choice(kept, OWN_EXAMPLES, replace=False)
        self._own = np.array(dataset.train_x[few]), np.array(dataset.train_y[few]), len(kept)
        labels: Any = np.concatenate((dataset.train_y, y))
        planted = replace(
            dataset,
            train_x=np.concatenate((with_codes(dataset.train_x, ORDINARY), with_codes(x, codes))),
            train_y=labels,
            test_x=with_codes(dataset.test_x, ORDINARY),
        )
        return planted, Partition(np.concatenate(parts), offsets), wrapped

    def _draw_inputs(self, x: NDArray[np.float32], y: NDArray[Any], dataset: Dataset) -> None:
        """Fill in inputs of random signs, as large as any of the data, with random labels; all far from the data."""
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
        scorer = self._scorer()
        factor = 1.0 if setup.problem.radius is None else WHISPER
        listening = partial(ListeningTape, client=self.client, hear=scorer.hear, factor=factor)
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
        return self._report(ledger, releases, scorer)

    def _scorer(self) -> Scorer:
        training = self.setup.training
        client = self.client
        scale = training.noise_scale[client] if training.noise_scale is not None else 0.0
        ledger = self.setup.ledger
        known = ledger is not None and (not ledger.terms.amplification or ledger.sampling == "shuffle")
        return Scorer(
            model=self.setup.model,
            own=self._own,
            inputs=self._inputs if self.kind == "input" else None,
            canaries=self.canaries,
            clipping_norm=self.clipping_norm,
            rate=min(1.0, training.batch_size / int(training.sizes[client])),
            replaces=self.replaces and self.kind == "gradient",
            std_per_scale=training.each_noise_std()[client] / scale if scale else 1.0,
            batch=self._batch_of if known else None,
        )

    def _batch_of(self, draw: int, size: int) -> NDArray[np.bool_]:
        """Return which canaries are in a mini-batch of the client, bool [m]; they are the last of its examples."""
        problem, client = self.setup.problem, self.client
        examples = int(problem.data.sizes[client])
        first, present = examples - self.canaries, np.zeros(examples, dtype=np.bool_)
        lanes = min(examples, problem.max_batch)
        program = positions_program(problem.batches.sampling, problem.batches.size, lanes)
        for at in range(0, size, lanes):
            numbers = (np.int32(number) for number in (client, draw, at, examples))
            found = np.asarray(program(problem.keys.data, *numbers))
            present[found[: size - at]] = True
        return present[first:]

    def _report(self, ledger: Ledger, releases: Releases, scorer: Scorer) -> AuditReport:
        terms, client, size = ledger.terms, self.client, int(self.setup.training.sizes[self.client])
        composition = composition_of(ledger, releases, client)
        epsilon = _epsilon_or_nan(composition, terms.delta, terms.neighbors, terms.accountant)
        certified = epsilon if ledger.certifies(releases) else math.nan
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
        return AuditReport(
            scenario=self.scenario.name,
            client=client,
            kind=self.kind,
            canaries=self.canaries,
            guesses=made,
            correct=verdict.correct,
            releases=scorer.heard,
            accounted=releases.counts[client] + sum(releases.others.get(client, {}).values()),
            examples=size,
            sampling_rate=min(1.0, self.setup.training.batch_size / size),
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
            decisive=profile_p_value(made, made, self.canaries, profile or claimed) < share,
            statement=ledger.statement_of(releases),
        )

    def _claim(self, ledger: Ledger, releases: Releases, epsilon: float) -> Claimed | None:
        """Return what is claimed for the client; None without a claim, or if these canaries cannot test it."""
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
    """Return what one client's releases amount to, for an adversary who sees them all and knows whose they are."""
    if isinstance(ledger, OnePassLedger):
        return ((Release(ledger.level, 1.0, "none"), int(ledger.passes(releases)[client])),)
    return ledger.compositions(releases, "local_transcript")[client]


def curve(composition: Composition, epsilon: float, delta: float, neighbors: Neighbors) -> Profile:
    """Return some of the (epsilon, delta) that hold for releases composed; none if nothing is certified.

    Args:
        composition: the releases.
        epsilon: theirs at `delta`; NaN or infinite for none.
        delta: in (0, 1).
        neighbors: what neighboring data sets are.
    """
    if not math.isfinite(epsilon):
        return []
    points = [(epsilon, delta)]
    # Beyond 40 a curve costs much and says little; below 1/2 the numerical accountant is slow, and not needed
    # unless there is nothing else.
    if 0.0 < epsilon < 40.0:
        chosen = [share * epsilon for share in CURVE if share * epsilon >= 0.5 or epsilon < 1.0]
        points += [(one, delta_of(composition, one, neighbors=neighbors)) for one in chosen]
    return points


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
