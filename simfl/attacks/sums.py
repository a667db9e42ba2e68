"""Read a server's releases from its models, and score canary users by them."""

from __future__ import annotations

import math
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np
from numpy.typing import NDArray

from simfl.algorithms.cohorts import Cohorts
from simfl.algorithms.server import ServerAlgorithm
from simfl.assembly.cohorts import divisor_of
from simfl.assembly.setup import Setup
from simfl.attacks.canary import OWN_EXCESS, CanaryModel
from simfl.attacks.faults import TRIALS
from simfl.attacks.noise import NoiseCheck, NoiseLaw
from simfl.attacks.sum_noise import Floats, Whitening, normal_on_grid
from simfl.errors import RunError
from simfl.privacy.cohorts import CohortLedger
from simfl.privacy.distributed import GridSum
from simfl.privacy.releases import Releases
from simfl.records import RunFolder
from simfl.runs.runner import Simulation
from simfl.scenario import Scenario
from simfl.tape import Model

#: Number of releases whose numbers are read together.
READ_AT_A_TIME = 8
#: Ways in which a server may be broken: the factor of the noise, and whether updates are clipped.
BROKEN = {"noise off": (0.0, True), "noise halved": (0.5, True), "clipping off": (1.0, False)}


class CanaryUsers(Protocol):
    """What the scorer needs of `simfl.attacks.users.UserAudit`.

    Attributes:
        owners: the user of each client, [K].
        canaries: m.
        chosen: the users that are canaries, [m].
        norm: C, or the first one.
        replaces: whether a canary sends an update or its opposite.
        trials: draws of simulated audits.
    """

    scenario: Scenario
    setup: Setup
    owners: NDArray[np.int64]
    canaries: int
    chosen: NDArray[np.int64]
    norm: float
    replaces: bool
    trials: np.random.Generator

    @property
    def model(self) -> CanaryModel:
        """The model of the run."""

    @property
    def ledger(self) -> CohortLedger:
        """The ledger of the run."""


@dataclass(frozen=True)
class Sum:
    """One release.

    Attributes:
        members: user -> number of its updates, and the sum of their weights.
        is_heard: whether a model shows the sum; otherwise it is a secure sum that was aborted, and that the server may
            learn all the same.
    """

    members: dict[int, tuple[int, float]]
    is_heard: bool

    @property
    def updates(self) -> int:
        """The number of updates."""
        return sum(count for count, _ in self.members.values())


class ServerScorer:
    """Scores canaries by the sums of updates that released models show.

    With noise of deviation s and the share a of a canary's update in a sum, a y in its direction adds to the score

        (a y - a^2 / 2) / s^2,    or   ln(1 - q + q exp((C y - C^2 / 2) / s^2))

    if the draw of users, each with probability q, is secret; then C is times the number of the user's clients. If noise
    is correlated over releases, W a and W y take the place of a and y: their noise is not (`simfl.attacks.sum_noise`).
    In a secure sum of n updates, s^2 is (z C)^2 n / (t - c).

    Attributes:
        sums: who was in which release.
        scores: of the canaries, [m].
        simulated: coins bool [trials, m] and scores [trials, m] of audits of each broken server.
        check: tests of the noise.
    """

    def __init__(self, audit: CanaryUsers) -> None:
        setup, plan = audit.setup, audit.setup.protection.cohorts
        assert plan is not None, "the scenario has unit: user"
        self._audit, self._plan, self._factor = audit, plan, _factor_of(audit.scenario)
        self._rate = plan.rate if audit.ledger.plan.unamplified is None else None
        self._clients = np.array([np.count_nonzero(audit.owners == user) for user in audit.chosen])
        self._whitening: Whitening | None = None
        if plan.strategy is not None:
            assert plan.releases is not None, "the account is for a number of releases"
            self._whitening = Whitening(plan.strategy, plan.releases)
        self._grid = plan.grid if isinstance(plan.grid, GridSum) else None
        # Noise on a grid is turned into normal numbers.
        sampler = "gaussian" if self._grid is not None else setup.protection.sampler
        self.check = NoiseCheck(NoiseLaw(sampler, setup.dimension), audit.model.blank)
        self.sums: list[Sum] = []
        self.heard = 0
        self._next = 0
        self.scores = np.zeros(audit.canaries)
        shape = TRIALS, audit.canaries
        self.simulated = {name: (audit.trials.random(shape) < 0.5, np.zeros(shape)) for name in BROKEN}

    def note(self, members: Sequence[tuple[float, int]], is_heard: bool) -> None:
        """Note who is in a release; members are weights and clients."""
        counts: Counter[int] = Counter()
        weights: dict[int, float] = defaultdict(float)
        for weight, client in members:
            user = int(self._audit.owners[client])
            counts[user] += 1
            weights[user] += abs(float(weight))
        self.sums.append(Sum({user: (count, weights[user]) for user, count in counts.items()}, is_heard))

    def hear(self, steps: Floats, factors: Sequence[float], norms: Sequence[float] | None = None) -> None:
        """Score releases: what they added to known terms, [k, d], factors, norms."""
        norms = [self._audit.norm] * len(steps) if norms is None else norms
        for step, factor, norm in zip(steps, factors, norms, strict=True):
            while not self.sums[self._next].is_heard:
                self._next += 1
            self._hear(step / (factor if self._factor is None else self._factor), self.sums[self._next], norm)
            self._next += 1
            self.heard += 1

    def _hear(self, total: Floats, release: Sum, norm: float) -> None:
        """Score one sum with its noise, [d], clipped to a norm."""
        audit, dimension = self._audit, self._audit.setup.dimension
        scale = self._scale(release.updates, norm)
        unit = scale or 1.0
        weights = [release.members.get(user, (0, 0.0))[1] for user in audit.chosen.tolist()]
        values, shares = total / unit, norm * np.array(weights) / unit
        if self._whitening is not None:
            both = self._whitening.next(np.concatenate((values, shares)))
            values, shares = both[: len(values)], both[len(values) :]
        if scale:
            noise = values[:dimension]
            if self._grid is not None:
                noise = normal_on_grid(total[:dimension], self._grid, release.updates, audit.trials)
            self.check.hear(0, noise[None])
        self.scores += self._gain(-values[audit.model.coordinates], shares, norm / unit)  # a step against the gradient
        for name, (factor, clips) in BROKEN.items():
            coins, scores = self.simulated[name]
            inside = np.where(coins, 1.0, -1.0 if audit.replaces else 0.0) * shares * (1.0 if clips else OWN_EXCESS)
            noise = factor * (scale > 0.0) * audit.trials.standard_normal(coins.shape)
            scores += self._gain(self._wrapped(inside + noise, unit), shares, norm / unit)

    def _scale(self, updates: int, norm: float) -> float:
        """Return the deviation of the noise that the scenario declares for a sum."""
        scale, parts = self._plan.noise_scale, self._plan.parts
        if self._plan.adaptive is not None:
            return self._plan.adaptive.noise_on_sum(scale) * norm
        return scale * math.sqrt(updates / parts) if parts else scale

    def _wrapped(self, values: Floats, unit: float) -> Floats:
        """Return what is left of values in the range of a secure sum on a grid."""
        if self._grid is None:
            return values
        span = 2.0**self._grid.bits * self._grid.step / unit
        return np.asarray((values + span / 2) % span - span / 2)

    def _gain(self, along: Floats, shares: Floats, norm: float) -> Floats:
        """Return the scores' increments, [..., m], for noise of deviation 1."""
        if self._rate is not None:
            rate, whole = self._rate, norm * self._clients
            ratio = whole * along - whole**2 / 2
            return np.logaddexp(np.log1p(-rate), np.log(rate) + ratio) if rate < 1.0 else ratio
        return 2 * shares * along if self._audit.replaces else shares * along - shares**2 / 2


def listen_to_server(setup: Setup, device: jax.Device, scorer: ServerScorer) -> Releases:
    """Run a scenario, read the model after each release, and return the account.

    Raises:
        RunError: the run failed or was interrupted.
    """
    simulation = Simulation(setup, device)
    tape, algorithm = simulation.tape, simulation.algorithm
    assert isinstance(algorithm, ServerAlgorithm)
    cohorts = algorithm.sum
    assert isinstance(cohorts, Cohorts)
    pending: list[tuple[Model, Sequence[tuple[float, Any]], float, Model | None]] = []
    norms = [cohorts.norm]  # of the release under way, if it is adaptive

    def read() -> None:
        while pending:
            some, pending[:] = pending[:READ_AT_A_TIME], pending[READ_AT_A_TIME:]
            models = [model for model, *_ in some] + [model for _, known, *_ in some for _, model in known]
            values = iter(tape.values(models).astype(np.float64))
            steps = np.stack([next(values) for _ in some])
            for row, (_, known, *_) in enumerate(some):
                for coef, _ in known:
                    steps[row] -= coef * next(values)
            adapted = [norm for *_, norm in some if norm is not None]
            clipped = tape.values(adapted)[:, 0].astype(np.float64).tolist() if adapted else None
            scorer.hear(steps, [factor for _, _, factor, _ in some], clipped)

    def heard(model: Model, known: Sequence[tuple[float, Any]], factor: float) -> None:
        pending.append((model, known, factor, norms[0]))
        norms[0] = cohorts.norm
        if len(pending) >= READ_AT_A_TIME:
            read()

    cohorts.on_release, cohorts.on_model = scorer.note, heard
    try:
        with tempfile.TemporaryDirectory() as temporary:
            simulation.run(RunFolder.create(Path(temporary), "audit"))
        if simulation.status == "interrupted":
            raise RunError(f"{setup.scenario.name}: the run was interrupted: its releases are not complete")
        read()
        return simulation.account()
    finally:
        simulation.release()


def _factor_of(scenario: Scenario) -> float | None:
    """Return the factor by which every sum enters the model; None if it varies.

    It follows from the scenario alone, so that an audit can tell if the server divides by anything else.
    """
    algorithm = scenario.algorithm
    if not hasattr(algorithm, "buffer_size") and not hasattr(algorithm, "fraction"):
        return None
    return float(getattr(algorithm, "server_step", 1.0)) / divisor_of(scenario)
