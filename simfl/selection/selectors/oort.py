"""Oort: clients that are useful and fast, and some that are new.

Lai, Zhu, Madhyastha, Chowdhury 2021, "Oort: efficient federated learning via guided participant selection", OSDI,
https://arxiv.org/abs/2010.06081, Algorithm 1, with the rule and the defaults of the authors' program (FedScale,
`thirdparty/oort/oort.py`). In round R, with the utility U_k, the time t_k and the last round L_k of client k:

    U_k = n_k sqrt(mean of squared losses)      as k reported; before, n_k, the examples that its round uses
    score = (min(U_k, c) - min U) / (max U - min U) + sqrt(0.1 log R / L_k),   times (T / t_k)^penalty if t_k > T

c is a high quantile of the utilities, min U is lowered by 0.1 %, and T is the quantile `threshold` of all t_k. A share
`exploration` of a round, which falls from round to round, is drawn among clients that never took part, by n_k times
the same penalty; the others by score among those with high scores. The pacer: every `pacer_step` rounds, if the sum of
the utilities of exploited clients changed by less than a tenth, T grows; if it grew sixfold, T falls.

Differences. Losses are those of mini-batches (`Clients.losses`) and not of examples. Times are expected ones. The first
choice is random, as in the program, whose R is one less. A choice of one client (`concurrency`) explores with the
chance `exploration`: the program rounds that share down to none. Where too few clients are new, others fill the round:
the program repeats those that it explored before. A client whose last update was dropped counts by its earlier report.
The program can exclude clients after many rounds; its default does not, and there is no such option here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from simfl.scenario.fields import Count, NonNegative, Positive, Probability, Share, option
from simfl.selection.base import AbstractSelector, Clients, Reads


@dataclass
class Pace:
    """What Oort remembers: T's quantile, exploration, exploited clients, utilities."""

    threshold: float
    exploration: float
    exploited: list[int] = field(default_factory=list)
    history: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Oort(AbstractSelector):
    """Draws clients by the utility of their data and their speed, and new ones."""

    kind: ClassVar[str] = "oort"
    summary: ClassVar[str] = "draws clients by reported losses and speed, and explores new ones (Oort)"
    reads: ClassVar[Reads] = "losses"

    exploration: Probability = option(0.9, "fraction of new clients in a round, at first")
    exploration_decay: Share = option(0.98, "factor on this fraction after each round")
    exploration_min: Probability = option(0.3, "the smallest fraction; the paper has 0.2")
    threshold: Share = option(0.3, "quantile of the clients' times from which on a time lowers the score, at first")
    penalty: NonNegative = option(2.0, "exponent of T / t_k for slower clients; 0: time has no effect")
    pacer_step: Count = option(20, "rounds after which the threshold may change")
    pacer_delta: Positive = option(0.05, "change of the threshold")
    clip: Share = option(0.9, "quantile of the utilities above which they count alike; the paper has 0.95")
    cut_off: Probability = option(0.05, "the smallest score of a candidate, as a fraction of the first one not needed")
    window: Positive = option(5.0, "candidates for exploration, in multiples of the clients that explore")

    def begin(self) -> Pace:
        """Return the state before the first round."""
        return Pace(self.threshold, self.exploration)

    def choose(self, candidates: Sequence[int], size: int, clients: Clients) -> list[int]:
        """Draw clients by score, and new ones; the first choice is random."""
        pace: Pace = clients.memory
        if clients.number == 1:
            return clients.drawn(candidates, [1.0] * len(candidates), size)
        self._pace(pace, clients)
        penalty = self._penalties(candidates, clients, pace)
        scores = self.scores(candidates, clients, penalty)
        pace.exploration = max(pace.exploration * self.exploration_decay, self.exploration_min)
        new = int(size * pace.exploration) if size > 1 else int(clients.draw() < pace.exploration)
        unknown = [k for k in candidates if k not in clients.losses]
        count = min(size - new, len(scores)) if unknown else min(size, len(scores))
        pace.exploited = self._by_score(scores, count, clients)
        rewards = {k: clients.trained[k] * penalty[k] for k in unknown}
        new = min(len(unknown), size - len(pace.exploited))
        first = sorted(unknown, key=lambda k: -rewards[k])[: max(new, int(self.window * new))]
        cohort = clients.drawn(first, [rewards[k] for k in first], new) + pace.exploited
        rest = [k for k in candidates if k not in cohort]  # none is left out where the others are too few
        return cohort + clients.drawn(rest, [scores.get(k, 0.0) for k in rest], size - len(cohort))

    def scores(self, candidates: Sequence[int], clients: Clients, penalty: dict[int, float]) -> dict[int, float]:
        """Return the scores of the candidates that have reported."""
        utility = {k: self.utility(k, clients) for k in candidates}
        ordered = sorted(value for value in utility.values() if value > 0.0) or [0.0]
        most = ordered[min(int(len(ordered) * self.clip), len(ordered) - 1)]
        least = 0.999 * ordered[0]
        spread, spoken = max(ordered[-1] - least, 1e-4), [k for k in candidates if k in clients.losses]
        log = 0.1 * math.log(clients.number)
        scores = {k: (min(utility[k], most) - least) / spread + math.sqrt(log / clients.last[k]) for k in spoken}
        return {k: abs(score * penalty[k]) for k, score in scores.items()}

    @staticmethod
    def utility(client: int, clients: Clients) -> float:
        """Return U_k."""
        losses = clients.losses.get(client, (1.0,))
        return clients.trained[client] * math.sqrt(sum(loss * loss for loss in losses) / len(losses))

    def _penalties(self, candidates: Sequence[int], clients: Clients, pace: Pace) -> dict[int, float]:
        """Return the factor of each candidate's time."""
        if pace.threshold >= 1.0:
            return dict.fromkeys(candidates, 1.0)
        times = sorted(clients.seconds(k) for k in range(len(clients.last)))
        prefer = times[min(int(len(times) * pace.threshold), len(times) - 1)]
        late = {k: max(1e-4, clients.seconds(k)) for k in candidates}
        return {k: (prefer / t) ** self.penalty if t > prefer else 1.0 for k, t in late.items()}

    def _pace(self, pace: Pace, clients: Clients) -> None:
        """Note the utility of the clients exploited last, and move the threshold."""
        came = [k for k in pace.exploited if k in clients.losses]
        pace.history.append(sum(self.utility(k, clients) for k in came) / (len(came) + 1e-4))
        step, number = self.pacer_step, clients.number
        if number < 2 * step or number % step:
            return
        before, now = sum(pace.history[-2 * step : -step]), sum(pace.history[-step:])
        if abs(now - before) <= 0.1 * before:
            pace.threshold = min(1.0, pace.threshold + self.pacer_delta)
        elif abs(now - before) >= 5.0 * before:
            pace.threshold = max(self.pacer_delta, pace.threshold - self.pacer_delta)

    def _by_score(self, scores: dict[int, float], count: int, clients: Clients) -> list[int]:
        """Draw clients by score among those above the cut-off, or ten times as many."""
        ordered = sorted(scores, key=lambda k: -scores[k])
        if not count:
            return []
        cut = scores[ordered[min(count, len(ordered) - 1)]] * self.cut_off
        first = next((n for n, k in enumerate(ordered) if scores[k] < cut and n > 10 * count), len(ordered))
        return clients.drawn(ordered[:first], [scores[k] for k in ordered[:first]], count)
