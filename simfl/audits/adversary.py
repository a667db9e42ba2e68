"""The adversary of a privacy audit: hears what one client releases, and scores canaries by it.

See `simfl.audits.audit`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from simfl.audits.canary import CanaryModel
from simfl.models import AbstractModel
from simfl.tape import Gradient, Model, Tape
from simfl.tape.draws import Sampling, batch_positions

#: Releases that are scored together.
HEARD_AT_A_TIME = 16
#: Least noise that the scores assume, in clipping norms: without noise any score would do.
LEAST_NOISE = 1e-3
#: Neighboring canaries from which the noise is estimated; with fewer canaries than a quarter of it, it is believed.
BLOCK = 64


class ListeningTape(Tape):
    """A tape that gives away what one client releases; what it records for the others is as on any tape.

    Args:
        words: of `Tape`.
        client: whose releases.
        hear: told of some releases at a time: see `Scorer.hear`.
        factor: a power of two by which releases are multiplied while they are rows of the executor.
        options: of `Tape`.
    """

    def __init__(
        self,
        *words: Any,
        client: int,
        hear: Callable[[NDArray[np.float32], NDArray[np.float32], Sequence[Gradient]], None],
        factor: float = 1.0,
        **options: Any,
    ) -> None:
        super().__init__(*words, **options)
        self._client = client
        self._hear = hear
        self._factor = factor
        self._pending: list[tuple[Model, Model, Gradient]] = []

    def combine(self, *terms: tuple[float, Model | Gradient]) -> Model:
        """As `Tape.combine`; each of the client's gradients among the terms is recorded by itself, too."""
        for _, value in terms:
            if isinstance(value, Gradient) and value.client == self._client:
                name = value.twin()
                release = super().combine((self._factor, value.twin()))
                self._pending.append((value.model, release, name))
        result = super().combine(*terms)
        if len(self._pending) >= HEARD_AT_A_TIME:
            self.deliver()
        return result

    def deliver(self) -> None:
        """Fetch what is pending, in pieces of one shape, and tell it."""
        while self._pending:
            heard, self._pending = self._pending[:HEARD_AT_A_TIME], self._pending[HEARD_AT_A_TIME:]
            count = len(heard)
            filled = heard + heard[-1:] * (HEARD_AT_A_TIME - count)
            values = self.values([model for model, _, _ in filled] + [release for _, release, _ in filled])
            models, releases = values[:count], values[HEARD_AT_A_TIME : HEARD_AT_A_TIME + count]
            self._hear(models, releases / np.float32(self._factor), [gradient for _, _, gradient in heard])


class Scorer:
    """The adversary: adds up, for every canary, how much likelier each release is with it than without it.

    With Gaussian noise of deviation s, rate q and canary gradients g (in) and g' (out), the score grows by

        l(g) - l(g'),   l(g) = ln(1 - q + q exp((<r, g> - |g|^2 / 2) / s^2)),   l(0) = 0,

    where r is the release minus what the other examples add on average. That is the logarithm of the likelihood ratio
    if the others add nothing else; for other noise it is a sensible score, and any score makes a valid audit.

    The deviation s is the one that the scenario declares, unless gradient canaries show that it is off by more than a
    factor of two in the square: it is estimated for each release and each block of neighboring coordinates, so that
    noise that misses some of the parameters, or changes from release to release, is used against the mechanism.

    Args:
        model: the model with canaries.
        own: (x, y, count) of the client's ordinary examples: some of them, and how many there are.
        inputs: (x, y) of input canaries; None for gradient canaries.
        canaries: m.
        clipping_norm: C; None for no clipping.
        rate: q.
        replaces: whether "out" means the opposite gradient.
        std_per_scale: standard deviation of the noise per coordinate for noise of scale 1.
        batch: (draw, size) -> which canaries are in a mini-batch, bool [m]: then l(g) is the exponent where the canary
            is and 0 where it is not. None if mini-batches are secret.
    """

    def __init__(
        self,
        *,
        model: AbstractModel,
        own: tuple[NDArray[np.float32], NDArray[Any], int],
        inputs: tuple[NDArray[np.float32], NDArray[Any]] | None,
        canaries: int,
        clipping_norm: float | None,
        rate: float,
        replaces: bool,
        std_per_scale: float,
        batch: Callable[[int, int], NDArray[np.bool_]] | None = None,
    ) -> None:
        assert isinstance(model, CanaryModel), "an audit runs on the model with canaries"
        self.model = model
        self.scores = np.zeros(canaries)
        self.heard = 0
        self._norm = model.norm if clipping_norm is None else min(clipping_norm, model.norm)
        self._rate, self._replaces, self._unit = rate, replaces, std_per_scale
        # What the sampling of the client's own examples adds to the noise, if their gradients point everywhere.
        self._spread = 0.0 if clipping_norm is None else rate * (1 - rate) * own[2] * clipping_norm**2 / model.size
        self._project = _input_program(model.inner, clipping_norm, rate) if inputs is not None else None
        self._expect = _expectation_program(model.inner, clipping_norm) if own[2] else None
        self._own = own[0], own[1]
        self._own_factor = rate * own[2] / max(1, len(own[0]))
        self._inputs = inputs
        self._batch = batch

    def hear(self, models: NDArray[np.float32], releases: NDArray[np.float32], gradients: Sequence[Gradient]) -> None:
        """Take some releases, f32 [k, d], the models they were taken at, f32 [k, d], and their names, [k]."""
        self.heard += len(releases)
        rest = releases.astype(np.float64)
        size = self.model.inner.size
        if self._expect is not None:
            expected = [np.asarray(self._expect(w[:size], *self._own), dtype=np.float64) for w in models]
            rest[:, :size] -= self._own_factor * np.stack(expected)
        scales = np.array([gradient.noise_scale for gradient in gradients])
        variances = ((scales * self._unit) ** 2 + self._spread)[:, None]
        if self._inputs is None:
            found = rest[:, self.model.coordinates]
            variances = self._estimated(found, variances)
            along, squared = self._norm * found, np.full_like(found, self._norm**2)
        else:
            assert self._project is not None, "input canaries have their program"
            pairs = [self._project(w[:size], r[:size], *self._inputs) for w, r in zip(models, rest, strict=True)]
            along, squared = (np.stack([np.asarray(pair[j], np.float64) for pair in pairs]) for j in range(2))
        variances = np.maximum(variances, (LEAST_NOISE * self._norm) ** 2)
        present: NDArray[np.bool_] | None = None
        if self._batch is not None:
            present = np.stack([self._batch(gradient.draw, gradient.examples) for gradient in gradients])
        gain = self._log_ratio((along - squared / 2) / variances, present)
        if self._replaces:
            gain -= self._log_ratio((-along - squared / 2) / variances, present)
        self.scores += gain.sum(axis=0)

    def _estimated(self, found: NDArray[np.float64], declared: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the noise's variance at every canary, [k, m], from what was heard there and what is declared, [k, 1].

        The variance over a block holds that of the coins and the sampling, C^2 (q/2) (1 - q/2), too (q C^2 for
        opposite canaries).
        """
        count = found.shape[1]
        variances = np.broadcast_to(declared, found.shape).copy()
        if count < BLOCK // 4:
            return variances
        share = self._rate / 2
        coins = self._norm**2 * (self._rate if self._replaces else share * (1 - share))
        for block in np.array_split(np.argsort(self.model.coordinates), max(1, count // BLOCK)):
            estimate = np.maximum(found[:, block].var(axis=1, keepdims=True) - coins, 0.0)
            off = (estimate < declared / 2) | (estimate > 2 * declared)
            variances[:, block] = np.where(off, estimate, declared)
        return variances

    def _log_ratio(self, exponent: NDArray[np.float64], present: NDArray[np.bool_] | None) -> NDArray[np.float64]:
        """Return ln(1 - q + q e^exponent), with q = 1 or 0 where it is known who is present."""
        if present is not None:
            return np.where(present, exponent, 0.0)
        if self._rate == 1.0:
            return exponent
        ratio: NDArray[np.float64] = np.logaddexp(math.log1p(-self._rate), math.log(self._rate) + exponent)
        return ratio


def _expectation_program(model: AbstractModel, clipping_norm: float | None) -> Any:
    """Return (w, x, y) -> sum of the examples' gradients, clipped as in the run."""

    def run(w: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        weight = jnp.ones(len(x))
        if clipping_norm is None:
            return model.gradient_sum(w, x, y, weight)
        return model.clipped_gradient_sum(w, x, y, weight, clipping_norm)

    return jax.jit(run)


def _input_program(model: AbstractModel, clipping_norm: float | None, rate: float) -> Any:
    """Return (w, release, x, y) -> (<r_i, g_i> [m], |g_i|^2 [m]) for input canaries with clipped gradients g_i.

    r_i is the release minus what all other canaries add on average, each being in with probability 1/2.
    """

    def run(w: jax.Array, release: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        norms = model.gradient_norms(w, x, y)
        weight = jnp.ones(len(x))
        if clipping_norm is None:
            scale, total = weight, model.gradient_sum(w, x, y, weight)
        else:
            scale = jnp.minimum(1.0, clipping_norm / norms)
            total = model.clipped_gradient_sum(w, x, y, weight, clipping_norm)
        rest = release.astype(jnp.float32) - 0.5 * rate * total
        # <grad of loss_i, rest> for all i is one derivative in the direction of `rest`.
        _, along = jax.jvp(lambda v: model.losses(v, x, y), (w,), (rest,))
        squared = (scale * norms) ** 2
        return scale * along + 0.5 * rate * squared, squared

    return jax.jit(run)


@functools.lru_cache(maxsize=8)
def positions_program(sampling: Sampling, batch_size: int, lanes: int) -> Any:
    """Return (key, client, draw, first, n) -> positions int32 [lanes] of a mini-batch, as the run draws them."""

    def run(key: jax.Array, client: jax.Array, draw: jax.Array, first: jax.Array, n: jax.Array) -> jax.Array:
        return batch_positions(sampling, key, client, draw, first, batch_size, lanes, n)

    return jax.jit(run)
