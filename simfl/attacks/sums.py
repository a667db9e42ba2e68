"""Read a server's releases from its models, and score canary users by them."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import NDArray

from simfl.algorithms.server import ServerAlgorithm
from simfl.attacks.canary import OWN_EXCESS
from simfl.attacks.faults import TRIALS
from simfl.attacks.noise import NoiseCheck, NoiseLaw
from simfl.build.cohorts import factor_of
from simfl.build.setup import Setup
from simfl.errors import RunError
from simfl.privacy.releases import Releases
from simfl.records import RunFolder
from simfl.runs.runner import Simulation
from simfl.tape import Gradient, Model, Tape

if TYPE_CHECKING:
    from simfl.attacks.users import UserAudit

#: Number of releases whose numbers are read together.
READ_AT_A_TIME = 8
#: Ways in which a server may be broken: the factor of the noise, and whether updates are clipped.
BROKEN = {"noise off": (0.0, True), "noise halved": (0.5, True), "clipping off": (1.0, False)}

Sum = dict[int, tuple[int, float]]
"""User -> number of its updates in a sum, and the sum of their weights."""


class ServerScorer:
    """Scores canaries by the sums of updates that released models show.

    With noise of deviation s and the share a of a canary's update in a sum, a y in its direction adds to the score

        (a y - a^2 / 2) / s^2,    or   ln(1 - q + q exp((C y - C^2 / 2) / s^2))

    if the draw of users, each with probability q, is secret; then C is times the number of the user's clients.

    Attributes:
        sums: who was in which sum, by the tape's operations.
        scores: of the canaries, [m].
        simulated: coins bool [trials, m] and scores [trials, m] of audits of each broken server.
        check: tests of the noise.
    """

    def __init__(self, audit: UserAudit) -> None:
        setup, plan = audit.setup, audit.setup.protection.cohorts
        assert plan is not None, "the scenario has unit: user"
        self.owners = audit.owners
        self._audit, self._plan, self._factor = audit, plan, factor_of(audit.scenario)
        self._rate = plan.rate if audit.ledger.plan.unamplified is None else None
        self._clients = np.array([np.count_nonzero(audit.owners == user) for user in audit.chosen])
        self.check = NoiseCheck(NoiseLaw(setup.protection.sampler, setup.dimension), audit.model.blank)
        self.sums: list[Sum] = []
        self.heard = 0
        self.scores = np.zeros(audit.canaries)
        shape = TRIALS, audit.canaries
        self.simulated = {name: (audit.trials.random(shape) < 0.5, np.zeros(shape)) for name in BROKEN}

    def hear(self, steps: NDArray[np.float64], factors: Sequence[float]) -> None:
        """Score some releases: what they added to known terms, [k, d], and factors."""
        audit, scale = self._audit, self._plan.noise_scale
        divided = np.array([factor if self._factor is None else self._factor for factor in factors])
        sums = steps / divided[:, None]
        along = -sums[:, audit.model.coordinates]  # a step against the gradient
        shares = np.zeros(along.shape)
        for row, members in enumerate(self.sums[self.heard : self.heard + len(sums)]):
            for canary, user in enumerate(audit.chosen.tolist()):
                shares[row, canary] = audit.norm * members.get(user, (0, 0.0))[1]
        self.heard += len(sums)
        self.scores += self._gain(along, shares, scale)
        for name, (factor, clips) in BROKEN.items():
            coins, scores = self.simulated[name]
            for trial, coin in enumerate(coins):
                inside = np.where(coin, 1.0, -1.0 if audit.replaces else 0.0) * shares * (1.0 if clips else OWN_EXCESS)
                noise = factor * scale * audit.trials.standard_normal(along.shape)
                scores[trial] += self._gain(inside + noise, shares, scale)
        if scale:
            self.check.hear(0, sums[:, : audit.setup.dimension] / scale)

    def _gain(self, along: NDArray[np.float64], shares: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
        """Return the scores' increments, [m]."""
        variance, replaces = scale**2 or 1.0, self._audit.replaces
        if self._rate is not None:
            rate, norm = self._rate, self._audit.norm * self._clients
            ratio = (norm * along - norm**2 / 2) / variance
            gain = np.logaddexp(np.log1p(-rate), np.log(rate) + ratio) if rate < 1.0 else ratio
        else:
            gain = (2 * shares * along if replaces else shares * along - shares**2 / 2) / variance
        total: NDArray[np.float64] = gain.sum(axis=0)
        return total


class WatchingTape(Tape):
    """A tape that takes down who is in which sum of updates."""

    sums: list[Sum]
    #: The user of each client, [K].
    owners: NDArray[np.int64]

    def noised(
        self,
        model: Model,
        terms: Sequence[tuple[Any, Gradient]],
        noise_scale: Any,
        counted: Any = None,
        correlated: Any = None,
    ) -> Any:
        """Note who is in the sum; see `Tape.noised`."""
        counts: Counter[int] = Counter()
        weights: Counter[int] = Counter()
        for weight, update in terms:
            user = int(self.owners[update.client])
            counts[user] += 1
            weights[user] += abs(float(weight))  # type: ignore[assignment]
        self.sums.append({user: (count, float(weights[user])) for user, count in counts.items()})
        return super().noised(model, terms, noise_scale, counted, correlated)


def listen_to_server(setup: Setup, device: jax.Device, scorer: ServerScorer) -> Releases:
    """Run a scenario, read the model after each release, and return the account.

    Raises:
        RunError: the run failed or was interrupted.
    """
    simulation = Simulation(setup, device, tape=WatchingTape)
    tape, algorithm = simulation.tape, simulation.algorithm
    assert isinstance(tape, WatchingTape)
    assert isinstance(algorithm, ServerAlgorithm)
    assert algorithm.cohorts is not None
    tape.sums, tape.owners = scorer.sums, scorer.owners
    pending: list[tuple[Model, Sequence[tuple[float, Any]], float]] = []

    def read() -> None:
        while pending:
            some, pending[:] = pending[:READ_AT_A_TIME], pending[READ_AT_A_TIME:]
            models = [model for model, _, _ in some] + [model for _, known, _ in some for _, model in known]
            values = iter(tape.values(models).astype(np.float64))
            steps = np.stack([next(values) for _ in some])
            for row, (_, known, _) in enumerate(some):
                for coef, _ in known:
                    steps[row] -= coef * next(values)
            scorer.hear(steps, [factor for _, _, factor in some])

    def heard(model: Model, known: Sequence[tuple[float, Any]], factor: float) -> None:
        pending.append((model, known, factor))
        if len(pending) >= READ_AT_A_TIME:
            read()

    algorithm.cohorts.on_model = heard
    try:
        with tempfile.TemporaryDirectory() as temporary:
            simulation.run(RunFolder.create(Path(temporary), "audit"))
        if simulation.status == "interrupted":
            raise RunError(f"{setup.scenario.name}: the run was interrupted: its releases are not complete")
        read()
        return simulation.account()
    finally:
        simulation.release()
