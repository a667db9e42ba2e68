"""The adversary of a privacy audit: observes releases, and scores canaries.

See `simfl.attacks.audit`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from simfl.attacks.canary import CanaryModel
from simfl.attacks.faults import TRIALS
from simfl.errors import ScenarioError
from simfl.models import AbstractModel
from simfl.tape import Gradient, Model, Tape
from simfl.tape.draws import Drawing, batch_positions
from simfl.tape.problem import LearningProblem

#: Releases that are scored together.
HEARD_AT_A_TIME = 16
#: Least noise that the scores assume, in clipping norms: without noise any score would do.
LEAST_NOISE = 1e-3
#: Neighboring canaries from which the noise is estimated; with fewer canaries than a quarter of it, it is believed.
BLOCK = 64
#: Ways in which a mechanism may be broken: what the noise is multiplied by, and whether gradients are clipped.
BROKEN = {"noise off": (0.0, True), "noise halved": (0.5, True), "clipping off": (1.0, False)}

Hear = Callable[[NDArray[np.float32], NDArray[np.float32], Sequence[Gradient]], None]
"""Told of some releases: models they were taken at f32 [k, d], releases f32 [k, d], and the promises [k]."""


class ListeningTape(Tape):
    """A tape that also passes on the releases of some clients.

    It hears every promise of theirs once: when it is sent or consumed, whichever comes first, on whatever path. The
    tape's tally counts the same promises by means of its own, so that the two can be compared.

    Args:
        words: of `Tape`.
        clients: whose releases, and how many of each at most.
        hear: told of them, some at a time.
        factor: a power of two by which releases are multiplied while they are rows of the executor.
        options: of `Tape`.
    """

    def __init__(
        self, *words: Any, clients: Mapping[int, float], hear: Hear, factor: float = 1.0, **options: Any
    ) -> None:
        super().__init__(*words, **options)
        self._left = dict(clients)
        self._hear = hear
        self._factor = factor
        self._pending: list[tuple[Model, Model, Gradient]] = []

    def combine(self, *terms: tuple[float, Model | Gradient]) -> Model:
        """See `Tape.combine`; promises of the target clients are also recorded separately."""
        self._listen(terms)
        return super().combine(*terms)

    def apply(self, *terms: tuple[float, Model | Gradient]) -> Model:
        """The same of `Tape.apply`."""
        self._listen(terms)
        return super().apply(*terms)

    def release(self, promise: Gradient) -> None:
        """The same of `Tape.release`."""
        self._listen([(1.0, promise)])
        super().release(promise)

    def hold(self, promise: Gradient) -> None:
        """Refuse: a held promise is part of a later release and not seen by itself."""
        raise ScenarioError(
            "algorithm.kind: expected an algorithm whose clients send what they compute, found one whose client "
            f"{promise.client} keeps it until a later release covers it, which an audit cannot take apart; audit "
            "another algorithm"
        )

    def _listen(self, terms: Sequence[tuple[float, Model | Gradient]]) -> None:
        for _, value in terms:
            if isinstance(value, Gradient) and self._left.get(value.client) and not value.heard:
                value.heard = True
                self._left[value.client] -= 1
                release = super().combine((self._factor, value.twin()))
                self._pending.append((value.model, release, value.twin()))
                if len(self._pending) >= HEARD_AT_A_TIME:
                    self.deliver()

    def deliver(self) -> None:
        """Fetch the pending releases, in pieces of one shape, and pass them on."""
        while self._pending:
            heard, self._pending = self._pending[:HEARD_AT_A_TIME], self._pending[HEARD_AT_A_TIME:]
            count = len(heard)
            filled = heard + heard[-1:] * (HEARD_AT_A_TIME - count)
            values = self.values([model for model, _, _ in filled] + [release for _, release, _ in filled])
            models, releases = values[:count], values[HEARD_AT_A_TIME : HEARD_AT_A_TIME + count]
            self._hear(models, releases / np.float32(self._factor), [promise for _, _, promise in heard])


@dataclass(frozen=True)
class Circumstances:
    """The adversary's knowledge of one release beside its numbers.

    Attributes:
        rate: q, at which its batch is drawn.
        norm: C, to which gradients are clipped; inf for no clipping.
        std: standard deviation of the noise per coordinate, as the client's promise has it.
        declared: the same as the account has it.
        copies: how often each canary is in the batch, int [m]; None if that is secret.
    """

    rate: float
    norm: float
    std: float
    declared: float
    copies: NDArray[np.int64] | None = None


class Ordinary:
    """The mean contribution of ordinary examples to a release.

    Args:
        model: the model with canaries.
        examples: (x, y, count) of the client's ordinary examples: some of them, and how many there are.
    """

    def __init__(self, model: CanaryModel, examples: tuple[NDArray[np.float32], NDArray[Any], int]) -> None:
        self.model = model
        self.x, self.y, self.count = examples

    def without(
        self, models: NDArray[np.float32], releases: NDArray[np.float32], known: Sequence[Circumstances]
    ) -> NDArray[np.float64]:
        """Return releases [k, d] at models [k, d] without that average."""
        rest = releases.astype(np.float64)
        if self.count:
            size = self.model.inner.size
            program = _expectation_program(self.model.inner)
            for row, (w, one) in enumerate(zip(models, known, strict=True)):
                total = program(w[:size], self.x, self.y, np.float32(one.norm))
                rest[row, :size] -= one.rate * self.count / len(self.x) * np.asarray(total, dtype=np.float64)
        return rest

    def spread(self, known: Circumstances) -> float:
        """Return the variance per coordinate from sampling, for isotropic gradients."""
        if np.isinf(known.norm):
            return 0.0
        return known.rate * (1 - known.rate) * self.count * known.norm**2 / self.model.touched


class Scorer:
    """Sums the log-likelihood ratios of canaries over releases.

    With Gaussian noise of deviation s, rate q and canary gradients g (in) and g' (out), the score grows by

        l(g) - l(g'),   l(g) = ln(1 - q + q exp((<r, g> - |g|^2 / 2) / s^2)),   l(0) = 0,

    where r is the release minus what the other examples add on average. That is the logarithm of the likelihood ratio
    if the others add nothing else; for other noise it is a sensible score, and any score makes a valid audit. Each
    release has a rate, a noise and a clipping norm of its own. Who knows the batch, in which the canary is c times, has

        l(g) = (c <r, g> - c^2 |g|^2 / 2) / s^2.

    The deviation s is the one that the promise declares, unless gradient canaries show that it is off by more than a
    factor of two in the square: it is estimated for each release and each block of neighboring coordinates, so that
    noise that misses some of the parameters, or changes from release to release, is used against the mechanism.

    The same scores of releases that are made up, of mechanisms broken on purpose, say what the audit would have seen.

    Args:
        ordinary: the client's ordinary examples.
        inputs: (x, y) of input canaries; None for gradient canaries.
        canaries: m.
        replaces: whether "out" means the opposite gradient.
        generator: of the made-up releases.
    """

    def __init__(
        self,
        ordinary: Ordinary,
        *,
        inputs: tuple[NDArray[np.float32], NDArray[Any]] | None,
        canaries: int,
        replaces: bool,
        generator: np.random.Generator,
    ) -> None:
        self.model = ordinary.model
        self.scores = np.zeros(canaries)
        self.heard = 0
        self.rates = 0.0
        self._ordinary, self._inputs, self._replaces, self._generator = ordinary, inputs, replaces, generator
        shape = TRIALS, canaries
        #: Coins bool [trials, m] and scores f64 [trials, m] of the audits that are made up.
        self.made_up = {name: (generator.random(shape) < 0.5, np.zeros(shape)) for name in BROKEN}

    def hear(self, models: NDArray[np.float32], rest: NDArray[np.float64], known: Sequence[Circumstances]) -> None:
        """Score releases without ordinary examples' means, and their models, [k, d]."""
        self.heard += len(rest)
        self.rates += sum(one.rate for one in known)
        if self._inputs is None:
            norms = _column(min(one.norm, self.model.norm) for one in known)
            along = norms * rest[:, self.model.coordinates]
            squared, excess = np.broadcast_to(norms**2, along.shape), self.model.norm / norms
        else:
            size, program = self.model.inner.size, _input_program(self.model.inner)
            increments = []
            for w, r, one in zip(models, rest, known, strict=True):
                given = np.float32(one.rate), np.float32(one.norm)
                increments.append(program(w[:size], r[:size].astype(np.float32), *self._inputs, *given))
            along, squared, excess = (
                np.stack([np.asarray(part[j], np.float64) for part in increments]) for j in range(3)
            )
        spread = _column(self._ordinary.spread(one) for one in known)
        self.scores += self._gain(along, squared, _column(one.std**2 for one in known) + spread, known)
        declared = _column(one.declared**2 for one in known)
        for name, (factor, clips) in BROKEN.items():
            coins, scores = self.made_up[name]
            variance = factor**2 * declared + spread
            for trial, coin in enumerate(coins):
                inside = np.where(coin, 1.0, -1.0 if self._replaces else 0.0) * self._present(known, len(coin))
                made_up = (1.0 if clips else excess) * inside * squared
                made_up += np.sqrt(squared * variance) * self._generator.standard_normal(squared.shape)
                scores[trial] += self._gain(made_up, squared, variance, known)

    def _present(self, known: Sequence[Circumstances], canaries: int) -> NDArray[np.float64]:
        """Return how often each canary is in batches, [k, m], drawn where they are secret."""
        rows = [self._generator.random(canaries) < one.rate if one.copies is None else one.copies for one in known]
        return np.stack(rows).astype(np.float64)

    def _gain(
        self,
        along: NDArray[np.float64],
        squared: NDArray[np.float64],
        variances: NDArray[np.float64],
        known: Sequence[Circumstances],
    ) -> NDArray[np.float64]:
        """Return the scores' increments, [m], from <r, g>, |g|^2 and variances."""
        if self._inputs is None:
            variances = self._estimated(along, squared, variances, known)
        variances = np.maximum(variances, LEAST_NOISE**2 * squared.max(initial=0.0, axis=1, keepdims=True))
        variances = np.where(variances > 0.0, variances, 1.0)
        gain = _log_ratio(along, squared, variances, known)
        if self._replaces:
            gain -= _log_ratio(-along, squared, variances, known)
        total: NDArray[np.float64] = gain.sum(axis=0)
        return total

    def _estimated(
        self,
        along: NDArray[np.float64],
        squared: NDArray[np.float64],
        declared: NDArray[np.float64],
        known: Sequence[Circumstances],
    ) -> NDArray[np.float64]:
        """Return the noise variance at every canary, [k, m], measured and declared.

        The variance over a block holds that of the coins and the sampling, C^2 (q/2) (1 - q/2), too (q C^2 for
        opposite canaries).
        """
        norms = np.sqrt(squared)
        variances = np.broadcast_to(declared, norms.shape).copy()
        count = norms.shape[1]
        if count < BLOCK // 4:
            return variances
        measured, rate = along / norms, _column(one.rate for one in known)
        coins = norms[:, :1] ** 2 * (rate if self._replaces else rate / 2 * (1 - rate / 2))
        for block in np.array_split(np.argsort(self.model.coordinates), max(1, count // BLOCK)):
            estimate = np.maximum(measured[:, block].var(axis=1, keepdims=True) - coins, 0.0)
            off = (estimate < declared / 2) | (estimate > 2 * declared)
            variances[:, block] = np.where(off, estimate, declared)
        return variances


def _column(values: Any) -> NDArray[np.float64]:
    return np.array(list(values), dtype=np.float64)[:, None]


def _log_ratio(
    along: NDArray[np.float64],
    squared: NDArray[np.float64],
    variances: NDArray[np.float64],
    known: Sequence[Circumstances],
) -> NDArray[np.float64]:
    """Return l(g) of `Scorer`, [k, m]."""
    gain = (along - squared / 2) / variances
    for row, one in enumerate(known):
        if one.copies is not None:
            gain[row] = (one.copies * along[row] - one.copies**2 * squared[row] / 2) / variances[row]
        elif one.rate < 1.0:
            gain[row] = np.logaddexp(np.log1p(-one.rate), np.log(one.rate) + gain[row])
    return gain


@functools.lru_cache(maxsize=8)
def _expectation_program(model: AbstractModel) -> Any:
    """Return (w, x, y, clipping norm) -> sum of the examples' clipped gradients."""

    def run(w: jax.Array, x: jax.Array, y: jax.Array, norm: jax.Array) -> jax.Array:
        return model.clipped_gradient_sum(w, x, y, jnp.ones(len(x)), norm)

    return jax.jit(run)


@functools.lru_cache(maxsize=8)
def _input_program(model: AbstractModel) -> Any:
    """Return the program of (<r_i, g_i>, |g_i|^2, raw norm over clipped norm), [m].

    For input canaries with clipped gradients g_i; r_i is the release minus what all other canaries add on average, each
    being in with probability 1/2.
    """

    def run(
        w: jax.Array, release: jax.Array, x: jax.Array, y: jax.Array, rate: jax.Array, norm: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        norms = model.gradient_norms(w, x, y)
        scale = jnp.minimum(1.0, norm / norms)
        total = model.clipped_gradient_sum(w, x, y, jnp.ones(len(x)), norm)
        rest = release - 0.5 * rate * total
        # <grad of loss_i, rest> for all i is one derivative in the direction of `rest`.
        _, along = jax.jvp(lambda v: model.losses(v, x, y), (w,), (rest,))
        squared = (scale * norms) ** 2
        return scale * along + 0.5 * rate * squared, squared, 1.0 / scale

    return jax.jit(run)


@functools.lru_cache(maxsize=8)
def positions_program(sampling: Drawing, batch_size: int, lanes: int) -> Any:
    """Return (key, client, draw, first, n) -> positions int32 [lanes] of a batch."""

    def run(key: jax.Array, client: jax.Array, draw: jax.Array, first: jax.Array, n: jax.Array) -> jax.Array:
        return batch_positions(sampling, key, client, draw, first, batch_size, lanes, n)

    return jax.jit(run)


def positions_in(problem: LearningProblem, promise: Gradient) -> NDArray[np.int64]:
    """Return the places of a mini-batch's examples, with repetitions, [b]."""
    examples = int(problem.data.sizes[promise.client])
    lanes = min(examples, problem.max_batch)
    program = positions_program(problem.batches.sampling, problem.batches.size, lanes)
    positions = []
    for piece in promise.pieces or (promise,):
        for at in range(0, piece.size, lanes):
            numbers = (np.int32(number) for number in (promise.client, piece.draw, piece.first_or_steps + at, examples))
            positions.append(np.asarray(program(problem.keys.data, *numbers), dtype=np.int64)[: piece.size - at])
    return np.concatenate(positions) if positions else np.zeros(0, dtype=np.int64)
