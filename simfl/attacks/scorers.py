"""The two adversaries of an audit, as scores of the canaries.

Both score a canary by the logarithm of the likelihood ratio of the heard releases with it and without it, or an
approximation: the audit is valid for any score. Both also score audits of deliberately broken mechanisms, by simulated
releases, to tell which faults the audit would have shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.accounts.network import Network, Observer, local_epsilons
from simfl.attacks.adversary import Circumstances, Ordinary, along_inputs
from simfl.attacks.draws import DrawCheck
from simfl.attacks.faults import TRIALS
from simfl.attacks.noise import NoiseCheck, NoiseLaw
from simfl.attacks.planting import PlantedScenario
from simfl.tape import Gradient
from simfl.threads import one_thread

Floats = NDArray[np.float64]

#: Releases of another client that are heard, for noise that two clients share.
OTHERS = 8
#: Factor of heard releases if the run projects every step onto a ball: small enough that nothing is cut.
WHISPER = 2.0**-40
#: Least noise that the scores assume, in clipping norms.
LEAST_NOISE = 1e-3
#: Number of neighboring canaries from which noise is estimated. With fewer than a quarter of it, the declared one is
#: used.
BLOCK = 64
#: Ways in which a mechanism may be broken: the factor of the noise, and whether gradients are clipped.
BROKEN = {"noise off": (0.0, True), "noise halved": (0.5, True), "clipping off": (1.0, False)}


class ReleaseScorer:
    """The local view: every release of the client, and mini-batches if not secret.

    With Gaussian noise of deviation s, rate q and canary gradients g (in) and g' (out), each release adds to the score

        l(g) - l(g'),   l(g) = ln(1 - q + q exp((<r, g> - |g|^2 / 2) / s^2)),   l(0) = 0,

    where r is the release minus the mean contribution of the other examples. This is the logarithm of the likelihood
    ratio if their contribution has no variance; for other noise it is a useful score. Each release has its own rate,
    noise and clipping norm. If the batch is known, and the canary is in it c times,

        l(g) = (c <r, g> - c^2 |g|^2 / 2) / s^2.

    The deviation s is the declared one, unless gradient canaries show that its square is wrong by more than a factor of
    two. It is estimated for each release and each block of neighboring coordinates, so the audit uses noise that is
    missing on some parameters, or varies between releases, against the mechanism.

    Attributes:
        clients: maximum number of heard releases of each client.
        scores: of the canaries, [m].
        simulated: coins bool [trials, m] and scores [trials, m] of audits of each broken mechanism.
        check: tests of the noise, also of another client's.
        draws: tests of secret draws.
    """

    def __init__(self, planted: PlantedScenario) -> None:
        setup, self._planted, self._generator = planted.setup, planted, planted.trials
        self._replaces = planted.replaces and planted.kind == "gradient"
        self._ordinary = {client: Ordinary(planted.model, some) for client, some in planted.ordinary.items()}
        self.clients = {client: math.inf if client == planted.client else OTHERS for client in self._ordinary}
        self.factor = 1.0 if setup.problem.radius is None else WHISPER
        self.check = NoiseCheck(NoiseLaw(setup.protection.sampler, setup.dimension), planted.model.blank)
        self.draws = DrawCheck(independent=False)
        self.scores = np.zeros(planted.canaries)
        self.heard = 0
        self._rates = 0.0
        shape = TRIALS, planted.canaries
        self.simulated = {name: (self._generator.random(shape) < 0.5, np.zeros(shape)) for name in BROKEN}

    @property
    def sampling_rate(self) -> float:
        """The mean of q over the client's releases."""
        return self._rates / self.heard if self.heard else 0.0

    def hear(self, models: NDArray[np.float32], releases: NDArray[np.float32], promises: Sequence[Gradient]) -> None:
        """Score some releases [k, d], at models [k, d], and test their noise."""
        for client, ordinary in self._ordinary.items():
            rows = [row for row, promise in enumerate(promises) if promise.client == client]
            if not rows:
                continue
            facts = [self._planted.circumstances(promises[row]) for row in rows]
            rest = ordinary.without(models[rows], releases[rows], facts)
            if client == self._planted.client:
                self._score(models[rows], rest, facts)
                for row, one in zip(rows, facts, strict=True):
                    if one.copies is None and one.rate < 1.0:
                        self.draws.hear(one.rate, self._planted.batch(promises[row]) > 0)
            unit = np.array([one.declared for one in facts])[:, None] / self._planted.std_per_scale(client)
            noisy = unit[:, 0] > 0.0
            self.check.hear(client, rest[noisy, : self._planted.setup.dimension] / unit[noisy])

    def _score(self, models: NDArray[np.float32], rest: Floats, facts: Sequence[Circumstances]) -> None:
        """Score releases of the client without its ordinary examples' mean, [k, d]."""
        model = self._planted.model
        self.heard += len(rest)
        self._rates += sum(one.rate for one in facts)
        if self._planted.kind == "gradient":
            norms = _column(min(one.norm, model.norm) for one in facts)
            along = norms * rest[:, model.coordinates]
            squared, excess = np.broadcast_to(norms**2, along.shape), model.norm / norms
        else:
            inner, size, inputs = model.inner, model.inner.size, self._planted.inputs
            rows = [
                along_inputs(
                    inner, w[:size], r[:size].astype(np.float32), *inputs, *map(np.float32, (one.rate, one.norm))
                )
                for w, r, one in zip(models, rest, facts, strict=True)
            ]
            along, squared, excess = (np.stack(part).astype(np.float64) for part in zip(*rows, strict=True))
        spread = _column(self._ordinary[self._planted.client].spread(one) for one in facts)
        self.scores += self._gain(along, squared, _column(one.std**2 for one in facts) + spread, facts)
        declared = _column(one.declared**2 for one in facts)
        for name, (factor, clips) in BROKEN.items():
            coins, scores = self.simulated[name]
            variance = factor**2 * declared + spread
            for trial, coin in enumerate(coins):
                inside = np.where(coin, 1.0, -1.0 if self._replaces else 0.0) * self._present(facts, len(coin))
                simulated = (1.0 if clips else excess) * inside * squared
                simulated += np.sqrt(squared * variance) * self._generator.standard_normal(squared.shape)
                scores[trial] += self._gain(simulated, squared, variance, facts)

    def _present(self, facts: Sequence[Circumstances], canaries: int) -> Floats:
        """Return how often each canary is in batches, [k, m]; secret batches are drawn."""
        rows = [self._generator.random(canaries) < one.rate if one.copies is None else one.copies for one in facts]
        return np.stack(rows).astype(np.float64)

    def _gain(self, along: Floats, squared: Floats, variances: Floats, facts: Sequence[Circumstances]) -> Floats:
        """Return the scores' increments, [m], from <r, g>, |g|^2 and variances."""
        if self._planted.kind == "gradient":
            variances = self._estimated(along, squared, variances, facts)
        variances = np.maximum(variances, LEAST_NOISE**2 * squared.max(initial=0.0, axis=1, keepdims=True))
        variances = np.where(variances > 0.0, variances, 1.0)
        gain = _log_ratio(along, squared, variances, facts)
        if self._replaces:
            gain -= _log_ratio(-along, squared, variances, facts)
        total: Floats = gain.sum(axis=0)
        return total

    def _estimated(self, along: Floats, squared: Floats, declared: Floats, facts: Sequence[Circumstances]) -> Floats:
        """Return the noise variance at every canary, [k, m]: measured, or as declared.

        The variance over a block includes that of the coins and the sampling, C^2 (q/2) (1 - q/2) (q C^2 for opposite
        canaries).
        """
        norms = np.sqrt(squared)
        variances = np.broadcast_to(declared, norms.shape).copy()
        count = norms.shape[1]
        if count < BLOCK // 4:
            return variances
        units, rate = along / norms, _column(one.rate for one in facts)
        coins = norms[:, :1] ** 2 * (rate if self._replaces else rate / 2 * (1 - rate / 2))
        for block in np.array_split(np.argsort(self._planted.model.coordinates), max(1, count // BLOCK)):
            estimate = np.maximum(units[:, block].var(axis=1, keepdims=True) - coins, 0.0)
            off = (estimate < declared / 2) | (estimate > 2 * declared)
            variances[:, block] = np.where(off, estimate, declared)
        return variances


def _column(values: Any) -> Floats:
    return np.array(list(values), dtype=np.float64)[:, None]


def _log_ratio(along: Floats, squared: Floats, variances: Floats, facts: Sequence[Circumstances]) -> Floats:
    """Return l(g) of `ReleaseScorer`, [k, m]."""
    gain = (along - squared / 2) / variances
    for row, one in enumerate(facts):
        if one.copies is not None:
            gain[row] = (one.copies * along[row] - one.copies**2 * squared[row] / 2) / variances[row]
        elif one.rate < 1.0:
            gain[row] = np.logaddexp(np.log1p(-one.rate), np.log(one.rate) + gain[row])
    return gain


class ViewScorer:
    """The view A g + B xi of all noisy gradients at a node, the server or all links.

    Every message is a sum of releases, in which each gradient comes with its noise. So the view is A r with r the
    releases (`simfl.accounts.views`). Let M = A^T (B B^T)^+ A. Let d_j be the contribution of canary j to the client's
    gradients in its direction (its clipped norm times the number of its copies in each batch, or times the probability
    of being in it if batches are secret). The score is

        d_j^T M r_j - d_j^T M d_j / 2.

    r_j are the releases' coordinates in that direction, without the mean contribution of ordinary examples. If batches
    are known, this is the logarithm of the likelihood ratio.

    Attributes:
        clients: all but those of the observer.
        own: places of the client's k gradients among all n.
        releases: in the canaries' directions, [n, m].
        present: number of copies of canaries in each of the client's gradients, or their probability, [k, m].
        heard: which of the n releases were heard.
        simulated: coins bool [trials, m] and scores [trials, m] of audits of each broken mechanism, after `scores`.
    """

    factor = 1.0

    def __init__(self, planted: PlantedScenario, network: Network, observer: Observer) -> None:
        network.require_linear("--observer")
        self._planted, self._network, self._observer = planted, network, observer
        batches = network.knowledge.batches
        self._places = {(one.client, one.draw, one.begin): place for place, one in enumerate(batches)}
        self.own = np.flatnonzero(network.owners == planted.client)
        self._row_of = {place: row for row, place in enumerate(self.own.tolist())}
        ordinary = planted.ordinary.items()
        self._ordinary = {k: Ordinary(planted.model, some) for k, some in ordinary if k not in observer.nodes}
        self.clients = dict.fromkeys(self._ordinary, math.inf)
        self.releases = np.zeros((len(batches), planted.canaries))
        self._norms, self.present = np.zeros((len(self.own), 1)), np.zeros((len(self.own), planted.canaries))
        self.heard = np.zeros(len(batches), dtype=bool)
        self.simulated: dict[str, tuple[NDArray[np.bool_], Floats]] = {}
        self.rows = network.seen(observer)
        self.a, self.b = network.matrices(self.rows, observer)

    @property
    def signals(self) -> Floats:
        """The contribution of canaries to each of the client's gradients, [k, m]."""
        return self._norms * self.present

    def hear(self, models: NDArray[np.float32], releases: NDArray[np.float32], promises: Sequence[Gradient]) -> None:
        """Keep releases [k, d], at models [k, d], in the canaries' directions."""
        model = self._planted.model
        for row, promise in enumerate(promises):
            place = self._places.get((promise.client, promise.draw, promise.begin))
            if place is None:
                continue
            facts, some = self._planted.circumstances(promise), slice(row, row + 1)
            rest = self._ordinary[promise.client].without(models[some], releases[some], [facts])
            self.releases[place], self.heard[place] = rest[0, model.coordinates], True
            if place in self._row_of:
                own = self._row_of[place]
                self._norms[own] = min(facts.norm, model.norm)
                self.present[own] = facts.rate if facts.copies is None else facts.copies

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Which of the n releases are contained in the observer's messages."""
        return np.any(self.a != 0.0, axis=0)  # type: ignore[no-any-return]

    def scores(self) -> Floats:
        """Return the scores of the canaries, [m]; simulate broken mechanisms."""
        whitened = self._network.view(self.a, self.b).whitened
        weights = whitened[:, self.own].T @ whitened  # [k, n] of M
        inner, signals, replaces = weights[:, self.own], self.signals, self._planted.replaces
        squared = (signals * (inner @ signals)).sum(axis=0)
        scores = scores_of(signals, weights @ self.releases, squared, replaces)
        generator, rates = self._planted.trials, self.present
        norms = np.divide(signals, rates, out=np.zeros_like(signals), where=rates > 0)
        secret = (rates > 0) & (rates < 1)
        for name in ("noise off", "noise halved"):
            trials = []
            for _ in range(TRIALS):
                coins = generator.random(len(scores)) < 0.5
                present = np.where(secret, generator.random(rates.shape) < rates, rates)
                added = norms * present * np.where(coins, 1.0, -1.0 if replaces else 0.0)
                simulated = scores_of(signals, inner @ added, squared, replaces)
                std = BROKEN[name][0] * np.sqrt(np.maximum(squared, 0.0))
                trials.append((coins, simulated + std * generator.standard_normal(len(scores))))
            all_coins, all_scores = zip(*trials, strict=True)
            self.simulated[name] = np.stack(all_coins), np.stack(all_scores)
        return scores

    @one_thread()
    def account(self) -> tuple[float, str, float]:
        """Return what is certified, by which account, and what is published."""
        network, client = self._network, self._planted.client
        local = float(local_epsilons(self._planted.setup, network.replay.releases)[client])
        checked = network.check(self._observer)
        if checked and not self.rows:
            return 0.0, "pairwise", 0.0
        if math.isnan(local):
            return math.nan, "local", math.nan
        closed = network.closed_view(self.rows, self.a, self.b, self._observer) if checked else None
        pairwise, published = (
            math.inf if view is None else float(network.spent(view, [client])[1][0])
            for view in (closed, network.view(self.a, self.b))
        )
        published = min(published, pairwise, local)
        return (pairwise, "pairwise", published) if pairwise < local else (local, "local", published)


def scores_of(signals: Floats, filtered: Floats, squared: Floats, replaces: bool) -> Floats:
    """Return scores f64 [m]; half the log-likelihood ratio if `replaces`.

    `signals` are d [k, m], `filtered` the client's rows of M r [k, m], `squared` d^T M d [m]. `replaces`: a canary that
    is out has the opposite gradient; otherwise it has none.
    """
    scores: Floats = (signals * filtered).sum(axis=0)
    return scores if replaces else scores - squared / 2
