"""Audit the privacy of users by canary users.

Some users of a scenario become canaries. The update of a canary, clipped by the run's own code, is C times a direction
of its own; a fair coin decides whether the user sends it or nothing (its opposite under replace_one). All else is the
scenario's: who takes part when does not depend on the coins. The auditor knows the models that the server releases, and
who is in which sum if the account does not assume that this is secret. From a released model, the one before and the
divisor that the scenario fixes follows a sum with its noise:

    s_t = (x_{t+1} - known terms) / factor

An adaptive clipping norm C_t is published, so the auditor knows it, too. Its counts are not tested.

The guess about a canary is the inner product of its direction with the sums that it may be in (Steinke, Nasr and
Jagielski 2023, "Privacy auditing with one (1) training run", https://arxiv.org/abs/2305.08846), as a likelihood ratio.
Correlated noise and noise on a grid are taken apart first (`simfl.attacks.sum_noise`). In secure sums the auditor is
the server, without the users that collude with it.

Five more verdicts need no guesses: the tests of the noise (`simfl.attacks.noise`), draws that are not at the rate of
the account (`simfl.attacks.draws`), a sum that the ledger has not counted, a user that is in sums more often than
`privacy.participation` allows, and a divisor that depends on who came, which shows as noise of another size.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.accounts.refusals import refuse_attackers
from simfl.assembly.assemble import assemble
from simfl.assembly.setup import Setup
from simfl.attacks.canary import ORDINARY, OWN_EXCESS, SILENT, CanaryModel, with_codes
from simfl.attacks.draws import DrawCheck
from simfl.attacks.faults import shown
from simfl.attacks.judging import Judge, NoiseReport, curve
from simfl.attacks.noise import BLANK
from simfl.attacks.sum_noise import MOST_RELEASES
from simfl.attacks.sums import ServerScorer, Sum, listen_to_server
from simfl.data import Dataset, Partition
from simfl.errors import ScenarioError
from simfl.models import AbstractModel
from simfl.privacy.assumptions import assumptions
from simfl.privacy.cohorts import CohortLedger, CohortPlan
from simfl.privacy.releases import Releases
from simfl.scenario import Scenario, load
from simfl.scenario.privacy import CohortGaussian
from simfl.streams import Streams
from simfl.tape.executor import choose_device


@dataclass(frozen=True, kw_only=True)
class UserReport(NoiseReport):
    """The result of an audit of users.

    Of the server's sums, `releases` were heard. The ledger counted `accounted`, with aborted secure sums that the
    server may learn. `canaries` of the `users` are canaries. A user was in a sum `most_in_a_sum` times at most, its
    sums were `closest` apart at least (0 if no user was in two), and it was in `most_sums` at most:
    `participation_broken` if the scenario's rule allows less. `decisive`: all guesses right would have refuted the
    certified epsilon.
    """

    users: int
    releases: int
    accounted: int
    amplified: bool
    most_in_a_sum: int
    closest: int
    most_sums: int
    participation_broken: bool
    decisive: bool

    @property
    def passed(self) -> bool:
        """Whether the audit shows no error."""
        return super().passed and not self.participation_broken


class UserAudit:
    """An audit of users that is ready to run; tests change its `setup` before.

    Args:
        scenario: one with `privacy: {unit: user}`, or its path.
        canaries: number of users that are canaries; half of them by default.
        guesses, confidence: as in `simfl.attacks.audit.Audit`.
        seed: of coins and of the choice of canaries; that of the scenario by default.
        device: "cpu" or "gpu"; JAX's default otherwise.

    Raises:
        ScenarioError: there is nothing to audit, or no such audit.
    """

    def __init__(
        self,
        scenario: Scenario | str | Path,
        *,
        canaries: int | None = None,
        guesses: int | Sequence[int] | None = None,
        confidence: float = 0.95,
        seed: int | None = None,
        device: str | None = None,
    ) -> None:
        self.scenario = scenario if isinstance(scenario, Scenario) else load(scenario)
        for problem in _problems(self.scenario):
            raise ScenarioError(problem)
        owners = self.scenario.clients.owners or tuple(range(self.scenario.clients.count))
        #: The user of each client, [K].
        self.owners: NDArray[np.int64] = np.array(owners)
        count = int(self.owners.max()) + 1
        self.canaries = max(1, count // 2) if canaries is None else canaries
        if not 1 <= self.canaries <= count:
            raise ScenarioError(f"canaries: expected 1 to {count}, the number of users, found {canaries}")
        self.device = choose_device(device)
        self.judge = Judge(self.canaries, guesses, confidence)
        streams = Streams(self.scenario.seed if seed is None else seed)
        self.included: NDArray[np.bool_] = streams.generator("canary-coins").random(self.canaries) < 0.5
        chosen = streams.generator("canaries").choice(count, self.canaries, replace=False)
        #: The users that are canaries, int [m].
        self.chosen: NDArray[np.int64] = np.sort(chosen)
        self.trials = streams.generator("canary-trials")
        privacy = self.scenario.privacy
        self.replaces = getattr(privacy, "neighbors", "") == "replace_one"
        assert isinstance(privacy, CohortGaussian), "checked by `_problems`"
        norm = privacy.clipping_norm
        #: C, or the first one.
        self.norm: float = norm if isinstance(norm, float) else norm.start
        self.setup: Setup = assemble(self.scenario, self._plant)
        if self.setup.training.server_optimizer is not None:
            raise ScenarioError(
                "algorithm.server_optimizer: expected sgd, found another one; it comes after the noise, so audit the "
                "same scenario without it"
            )
        if self.setup.model.l2:
            raise ScenarioError(
                f"model.l2: expected 0, found {self.setup.model.l2:g}; with it, a canary that sends nothing would send "
                "the decay of the model: audit the same scenario without l2"
            )

    @property
    def model(self) -> CanaryModel:
        """The model of the run."""
        assert isinstance(self.setup.model, CanaryModel), "an audit runs on the model with canaries"
        return self.setup.model

    @property
    def ledger(self) -> CohortLedger:
        """The ledger of the run."""
        assert isinstance(self.setup.ledger, CohortLedger), "checked by `_problems`"
        return self.setup.ledger

    def run(self) -> UserReport:
        """Run the scenario, read the models, guess, and judge.

        Raises:
            RunError: the run failed or was interrupted.
        """
        scorer = ServerScorer(self)
        return self._report(scorer, listen_to_server(self.setup, self.device, scorer))

    def _plant(
        self, dataset: Dataset, partition: Partition, model: AbstractModel
    ) -> tuple[Dataset, Partition, AbstractModel]:
        """Replace all data of the canaries."""
        dataset = dataset.floats()  # for the codes
        around = CanaryModel.around(model, self.canaries, OWN_EXCESS * self.norm)
        around = replace(around, blank=BLANK, beside=True)
        numbers = np.arange(1, self.canaries + 1, dtype=np.float32)
        codes = np.where(self.included, numbers, -numbers if self.replaces else np.float32(SILENT))
        parts, size = [partition.of(user) for user in range(partition.num_clients)], len(dataset.train_x)
        owned: list[NDArray[np.float32]] = []
        for code, user in zip(codes, self.chosen.tolist(), strict=True):
            for client in np.flatnonzero(self.owners == user).tolist():
                count = len(parts[client])
                parts[client] = np.arange(size, size + count).astype(partition.indices.dtype)
                size += count
                owned.append(np.full(count, code, dtype=np.float32))
        added = np.concatenate(owned)
        x = np.zeros((len(added), *dataset.train_x.shape[1:]), dtype=np.float32)
        labels: Any = np.concatenate((dataset.train_y, np.zeros(len(added), dtype=dataset.train_y.dtype)))
        ordinary = dataset.mapped(lambda part: with_codes(part, ORDINARY))
        planted = replace(
            ordinary,
            train_x=np.concatenate((ordinary.train_x, with_codes(x, added))),
            train_y=labels,
            groups=None,  # the partition is final
        )
        offsets = np.concatenate(([0], np.cumsum([len(part) for part in parts]))).astype(partition.offsets.dtype)
        return planted, Partition(np.concatenate(parts), offsets), around

    def _report(self, scorer: ServerScorer, releases: Releases) -> UserReport:
        ledger, noise, sums = self.ledger, scorer.check.verdict(), scorer.sums
        first = np.array(
            [np.flatnonzero(self.owners == user)[0] for user in self.chosen]
        )  # all have the user's account
        epsilons = ledger.final_epsilon(releases)[first]
        certified = float(np.max(epsilons)) if ledger.accounts_for(releases) else math.nan
        dearest = int(first[int(np.argmax(np.nan_to_num(epsilons)))])
        composition = tuple(ledger.compositions(releases)[dearest])
        profile = curve(composition, certified, ledger.delta, ledger.terms.neighbors)
        verdict = self.judge.verdict(scorer.scores, self.included, ledger.delta, profile)
        guessed = {
            name: scorer.heard > 0 and seen for name, seen in self.judge.shown(scorer.simulated, profile).items()
        }
        by_noise = shown(scorer.check.law, scorer.check.blank.size, scorer.heard, 0)
        draws, plan = DrawCheck(independent=True), self.ledger.plan
        if plan.rate is not None and ledger.amplifies(releases):
            for one in sums:
                draws.hear(plan.rate, np.isin(np.arange(ledger.users), [*one.members]))
        most, closest, made, broken = _participation(sums, self.setup.protection.cohorts)
        summed = sum(one.is_heard for one in sums)
        heard = [sum(one.members[user][0] ** 2 for one in sums if user in one.members) for user in self.owners.tolist()]
        counted = [releases.total(user) for user in range(len(ledger.sizes))]
        return UserReport(
            **self.judge.fields(verdict, ledger.delta, certified),
            **UserReport.noise_fields(noise),
            **UserReport.draw_fields(draws.verdict()),
            scenario=self.scenario.name,
            neighbors=ledger.terms.neighbors,
            complete=scorer.heard == summed and len(sums) == releases.cohorts and heard == counted,
            sees={
                **guessed,
                **{name: seen or guessed.get(name, False) for name, seen in by_noise.items()},
                **draws.shows(self.trials),
            },
            statement=ledger.statement_of(releases),
            assumptions=assumptions(ledger, releases),
            users=ledger.users,
            releases=scorer.heard,
            accounted=releases.cohorts,
            amplified=ledger.amplifies(releases),
            most_in_a_sum=most,
            closest=closest,
            most_sums=made,
            participation_broken=broken,
            decisive=scorer.heard > 0 and self.judge.refutes(verdict.guesses, verdict.guesses, profile),
        )


def _participation(sums: Sequence[Sum], plan: CohortPlan | None) -> tuple[int, int, int, bool]:
    """Return how often users were in sums, and whether the plan's rule was broken.

    The largest number of updates of a user in a sum, the smallest distance between two sums of a user, 0 without any,
    and the largest number of sums of a user.
    """
    most = max((count for one in sums for count, _ in one.members.values()), default=0)
    last: dict[int, int] = {}
    made: Counter[int] = Counter()
    apart = []
    for number, one in enumerate(sums):
        for user in one.members:
            made[user] += 1
            if user in last:
                apart.append(number - last[user])
            last[user] = number
    closest, largest = min(apart, default=0), max(made.values(), default=0)
    gate = None if plan is None else plan.gate
    if gate is None:
        return most, closest, largest, False
    often = gate.at_most is not None and largest > gate.at_most
    return most, closest, largest, most > 1 or (bool(apart) and closest < gate.separation) or often


def _problems(scenario: Scenario) -> Iterator[str]:
    if not isinstance(scenario.privacy, CohortGaussian):
        yield "privacy.unit: expected user, whose noise a server adds to sums of updates"
        return
    made = scenario.privacy.releases or 0
    if scenario.privacy.correlated is not None and made > MOST_RELEASES:
        yield (
            f"privacy.releases: expected at most {MOST_RELEASES} in an audit of correlated noise, found {made}; a "
            "matrix of all of them is taken apart"
        )
    if scenario.privacy.groups is not None:
        yield (
            f"privacy.groups: expected null, found {scenario.privacy.groups}; an audit of users scores draws from all "
            "users: audit the same scenario without groups"
        )
        return
    if momentum := getattr(scenario.algorithm, "momentum", 0.0):
        yield (
            f"algorithm.momentum: expected 0, found {momentum:g}; it comes after the noise, so audit the same scenario "
            "without it"
        )
        return
    if scenario.algorithm.uses.sum == "adaptive":
        yield f"algorithm.kind: expected steps along sums, found {scenario.algorithm.kind!r}; audit fedbuff instead"
        return
    refuse_attackers(scenario, "an audit is about users that follow the algorithm")
