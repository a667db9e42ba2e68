"""What audits of examples and of users share: reports, and verdicts on guesses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.attacks.draws import DrawVerdict
from simfl.attacks.noise import FALSE_ALARMS, NoiseVerdict
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
from simfl.privacy import checks
from simfl.privacy.accounting import Composition, Neighbors, delta_of

Floats = NDArray[np.float64]
Coins = NDArray[np.bool_]

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
class NoiseReport(Report):
    """The results of an audit that also tests noise and draws of what it heard.

    `noise_pairs` of the releases were compared, and `noise_numbers` numbers contain only noise. Three p-values bound
    the chance, for correct noise and all three tests together, of such little noise (`noise_p_value`), of numbers so
    far from the declared law (`law_p_value`), and of such dependent noise (`dependence_p_value`). Each one below
    `FALSE_ALARMS` is an alarm.

    If draws are secret, `drawn` members were in the releases and `drawn_expected` follow from the declared rates.
    `draws_p_value` bounds the chance of such draws (`simfl.attacks.draws`), which raises an alarm in the same way.
    """

    noise_pairs: int
    noise_numbers: int
    noise_p_value: float
    noise_missing: bool
    law_p_value: float
    noise_of_other_law: bool
    dependence_p_value: float
    noise_dependent: bool
    drawn: int
    drawn_expected: float
    draws_p_value: float
    draws_wrong: bool

    @staticmethod
    def draw_fields(draws: DrawVerdict) -> dict[str, Any]:
        """Return the fields that follow from a verdict on the draws."""
        return {
            "drawn": draws.drawn,
            "drawn_expected": draws.expected,
            "draws_p_value": draws.p_value,
            "draws_wrong": draws.p_value < FALSE_ALARMS,
        }

    @staticmethod
    def noise_fields(noise: NoiseVerdict) -> dict[str, Any]:
        """Return the fields that follow from a verdict on the noise."""
        return {
            "noise_pairs": noise.pairs,
            "noise_numbers": noise.numbers,
            "noise_p_value": noise.too_small,
            "noise_missing": noise.too_small < FALSE_ALARMS,
            "law_p_value": noise.other_law,
            "noise_of_other_law": noise.other_law < FALSE_ALARMS,
            "dependence_p_value": noise.dependent,
            "noise_dependent": noise.dependent < FALSE_ALARMS,
        }

    @property
    def noise_wrong(self) -> bool:
        """Whether a test of the noise raises an alarm."""
        return self.noise_missing or self.noise_of_other_law or self.noise_dependent

    @property
    def passed(self) -> bool:
        """Whether the audit shows no error."""
        return super().passed and not self.noise_wrong and not self.draws_wrong


class Judge:
    """Judges guesses about canaries.

    `guesses` is their number, or several numbers to try at a shared error; by default it depends on the number of
    canaries only. `confidence` is 1 - beta.
    """

    def __init__(self, canaries: int, guesses: int | Sequence[int] | None, confidence: float) -> None:
        checks.whole(1, canaries=canaries)
        guesses = default_guesses(canaries) if guesses is None else guesses
        self.canaries, self.confidence = canaries, confidence
        self.guess_numbers = [guesses] if isinstance(guesses, int) else [*guesses]
        for number in self.guess_numbers:
            if not 1 <= number <= canaries:
                raise ValueError(f"guesses: expected an integer from 1 to {canaries}, the canaries, found {number}")
        if not self.guess_numbers:
            raise ValueError("guesses: expected one number of guesses or more, found none")
        self._share = error_at(confidence) / len(self.guess_numbers)

    def verdict(self, scores: Floats, included: Coins, delta: float, profile: Profile) -> AuditVerdict:
        """Guess the coins, and compare with what a certified curve allows."""
        return judge(scores, included, self.guess_numbers, delta=delta, profile=profile, confidence=self.confidence)

    def fields(self, verdict: AuditVerdict, delta: float, certified: float) -> dict[str, Any]:
        """Return the fields of a `Report` that follow from a verdict."""
        guesses = verdict.guesses
        return {
            **vars(verdict),
            "delta": delta,
            "certified": certified,
            "confidence": self.confidence,
            "refuted": verdict.p_value < 1.0 - self.confidence,
            "ceiling": epsilon_lower_bound(guesses, guesses, self.canaries, delta, 1.0 - self._share),
        }

    def refutes(self, correct: int, guesses: int, profile: Profile) -> bool:
        """Whether this number of right guesses refutes a certified curve."""
        return profile_p_value(correct, guesses, self.canaries, profile) < self._share

    def shown(self, simulated: Mapping[str, tuple[Coins, Floats]], profile: Profile) -> dict[str, bool]:
        """Return which broken mechanisms all of their simulated audits refute.

        `simulated` has the coins and the scores of each one's audits, [trials, m].
        """

        def refuted(coins: Coins, scores: Floats) -> bool:
            counts = ((right_guesses(scores, coins, guesses), guesses) for guesses in self.guess_numbers)
            return any(self.refutes(*count, profile) for count in counts)

        return {name: all(map(refuted, *audits)) for name, audits in simulated.items()}


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
