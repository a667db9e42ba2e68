"""Noise correlated over a client's releases (matrix factorization).

Release t of a client, for its mini-batch number t = 0, 1, ..., carries z C sum_(i < b) w_i xi(t - i) with independent
standard normals xi. Let W be the lower triangular Toeplitz matrix of w, w_0 = 1, and S = W^-1, the strategy. Then

    g + z C W xi  =  W (S g + z C xi):

all releases are a function of S g under independent noise. An example in the mini-batches P changes each of them by at
most C, and S g by at most C sens(S) with sens(S)^2 = max over P of sum_(i, j in P) |(S^T S)_ij|. So everything that the
client ever sends is a Gaussian mechanism of mu = sens(S) / z (2 sens(S) / z for one example replaced). This holds
although gradients depend on earlier releases, because W is lower triangular and the noise is Gaussian. Denisov et al.
2022, "Improved differential privacy for SGD via optimal private linear operators on adaptive streams", Theorem 2.1,
https://arxiv.org/abs/2202.08312.

With `shuffle`, and the same order in every pass, P has one mini-batch a pass, at least floor(n / B) mini-batches apart.
Otherwise P has every mini-batch: that is exact for full batches, and bounds Poisson sampling, whose draws do not depend
on the data. Amplification by sampling is not counted: later releases contain the noise of earlier ones, so no release
can be considered alone (Choquette-Choo et al. 2023, "Privacy amplification for matrix mechanisms", arXiv:2310.15526).

A Toeplitz matrix of coefficients s_0 >= s_1 >= ... >= 0 has its largest sensitivity for participations at 0, m, 2m, ...
with m the smallest separation (Kalinin and Lampert 2024, "Banded square root matrix factorization for differentially
private model training", Theorem 2, https://arxiv.org/abs/2405.13763). Other coefficients are bounded by the smallest
such sequence above their absolute values.

Releases are numbered by mini-batches. A mini-batch that is lost in a crash is either assigned again under its number
(its noise was never seen), or it leaves a gap. With a gap, the releases are a part of those without it, and the account
of the latter is used.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from simfl.errors import ScenarioError
from simfl.privacy.accounting import Release
from simfl.privacy.closed_form import ClosedFormLedger
from simfl.privacy.gaussian import gaussian_epsilon
from simfl.privacy.ledger import Composition
from simfl.privacy.releases import Promise, Releases, Tally
from simfl.privacy.terms import Terms, View

#: Unit to which noise coefficients are rounded, so that the last bits of an optimizer's result have no effect.
GRID = 2.0**-20


@dataclass(frozen=True)
class Participation:
    """How often an example may be in a client's mini-batches: at most `times`.

    The numbers of two mini-batches that hold it differ by at least `separation`.
    """

    separation: int
    times: int


def participation(sampling: str, examples: int, batch_size: int, releases: int) -> Participation:
    """Return the participation of mini-batches 0 to releases - 1 of a client."""
    batch_size = min(batch_size, examples)
    if sampling != "shuffle":
        return Participation(1, releases)
    return Participation(max(1, examples // batch_size), -(-releases * batch_size // examples))


@functools.lru_cache(maxsize=64)
def strategy_coefficients(noising: tuple[float, ...], count: int) -> NDArray[np.float64]:
    """Return s_0, s_1, ...: sum_i w_i s_(t - i) is 1 for t = 0, else 0; w_0 = 1."""
    from scipy.signal import lfilter

    impulse = np.zeros(count)
    impulse[0] = 1.0
    return lfilter([1.0], noising, impulse)  # type: ignore[no-any-return]


def sensitivity(noising: tuple[float, ...], releases: int, takes: Participation) -> float:
    """Return sens(S) of the first releases, for examples that move each by at most 1."""
    if releases == 0:
        return 0.0
    return toeplitz_sensitivity(strategy_coefficients(noising, 1 << (releases - 1).bit_length())[:releases], takes)


def toeplitz_sensitivity(coefficients: NDArray[np.float64], takes: Participation) -> float:
    """Return sens(S) of a lower triangular Toeplitz matrix S with these coefficients."""
    releases, apart = len(coefficients), takes.separation
    times = min(takes.times, -(-releases // apart))
    if times == 0:
        return 0.0
    falling = np.maximum.accumulate(np.abs(coefficients)[::-1])[::-1]
    # Row by row, the sum of the last `times` participations.
    rows = np.zeros(-(-releases // apart) * apart)
    rows[:releases] = falling
    sums = rows.reshape(-1, apart).cumsum(axis=0)
    sums[times:] -= sums[:-times].copy()
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.square(sums.ravel()[:releases]).sum())) * (1.0 + 1e-9)


def noising_coefficients(
    strategy: Literal["square_root", "banded", "blt"],
    window: int,
    *,
    size: int = 1,
    releases: int = 1,
    takes: Participation = Participation(1, 1),
) -> tuple[float, ...]:
    """Return w_0 = 1, ..., w_(b-1) of a strategy, exact in float32.

    The account is that of S = W^-1 with the truncated w, so it is exact.

    - `square_root`: w are the coefficients of sqrt(1 - x), 1, -1/2, -1/8, ... (banded inverse square root; Kalinin et
      al. 2025, "Back to square roots", https://arxiv.org/abs/2505.12128).
    - `banded`: S has `size` bands, and the least mean squared error of prefix sums over `releases`. Choquette-Choo et
      al. 2023, https://arxiv.org/abs/2306.08153.
    - `blt`: s_t is a sum of `size` geometric sequences with the least maximal error under the participation
      (Dvijotham et al. 2024, https://arxiv.org/abs/2404.16706; McMahan et al. 2024, https://arxiv.org/abs/2408.08868).

    jax_privacy computes the last two. `window` is b; `size` is the number of bands or buffers. The strategy is
    optimized for `releases` and their participation `takes`.

    Raises:
        ScenarioError: jax_privacy is not installed, or finds no strategy.
    """
    if strategy == "square_root":
        raw = np.cumprod([1.0, *((2.0 * i - 3.0) / (2.0 * i) for i in range(1, window))])
    else:
        raw = _of_jax_privacy(strategy, window, size, releases, takes)
    rounded = np.round(raw / raw[0] / GRID) * GRID
    return tuple(np.trim_zeros(rounded, "b").tolist())


def _of_jax_privacy(strategy: str, window: int, size: int, releases: int, takes: Participation) -> NDArray[np.float64]:
    from scipy.signal import lfilter

    impulse, raw = np.zeros(window), optimized(strategy, size, releases, takes)
    impulse[0] = 1.0
    made = np.array(raw[0]) if strategy == "banded" else blt_coefficients(raw[0], raw[1], max(releases, window, 2))
    return lfilter([1.0], made, impulse)  # type: ignore[no-any-return]


def blt_coefficients(decays: Sequence[float], weights: Sequence[float], count: int) -> NDArray[np.float64]:
    """Return 1, and sum_j weight_j decay_j^(t - 1) for t = 1, 2, ...; `count` in all."""
    powers = np.array(decays)[None] ** np.arange(max(0, count - 1))[:, None]
    return np.concatenate([[1.0], powers @ np.array(weights)])[:count]


@functools.lru_cache(maxsize=16)
def optimized(strategy: str, size: int, releases: int, takes: Participation) -> tuple[tuple[float, ...], ...]:
    """Return the coefficients of a banded strategy, or decays and weights of a BLT.

    Raises:
        ScenarioError: jax_privacy is not installed, or finds no strategy.
    """
    try:
        import jax
        from jax_privacy.matrix_factorization import buffered_toeplitz, toeplitz
    except ImportError as error:
        raise ScenarioError(
            f"privacy.noise: {strategy} is computed by jax_privacy, found {error}; pip install "
            "'simfl[correlated]', or use square_root"
        ) from error
    try:
        with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
            if strategy == "banded":
                made: Any = (toeplitz.optimize_banded_toeplitz(releases, min(size, releases)),)
            else:
                build: Any = buffered_toeplitz.LossFn
                if takes.times == 1:
                    loss = build.build_closed_form_single_participation(n=releases)
                else:
                    loss = build.build_min_sep(
                        n=releases, error="max", min_sep=takes.separation, max_participations=takes.times
                    )
                blt = buffered_toeplitz.optimize_loss(loss, size)[0]
                made = blt.buf_decay, blt.output_scale
            arrays = [np.asarray(one, np.float64) for one in made]
            if not all(np.isfinite(one).all() for one in arrays):
                raise ArithmeticError("its coefficients are not finite")
            return tuple(tuple(one.tolist()) for one in arrays)
    except (ArithmeticError, RuntimeError, ValueError) as error:
        raise ScenarioError(
            f"privacy.noise: {strategy}: jax_privacy found none for {releases} releases, "
            f"{' '.join(str(error).split())[:200]}; use a smaller size, or square_root"
        ) from error


class InTimeTally(Tally):
    """Counts releases by their numbers, including those that were skipped."""

    numbered = True

    def count(self, promise: Promise) -> None:
        """Count all mini-batches of the client up to this one, if it is nominal."""
        client = promise.client
        before = self.counts[client]
        super().count(promise)
        if self.counts[client] > before:
            self.counts[client] = max(before, promise.draw + 1)
            if self.limits is not None:
                super()._check_limit(client, 0)

    def _check_limit(self, client: int, more: int = 1) -> None:
        """Do nothing: `count` checks, since releases may come out of order."""

    def _count_other(self, promise: Promise) -> None:
        self.refuse(
            f"client {promise.client} releases mini-batch {promise.draw}, whose batch size, noise or clipping norm is "
            "not the scenario's: noise that is correlated over time is made for these"
        )


class InTimeLedger(ClosedFormLedger):
    """Accounts for noise that is correlated over time, exactly.

    The arguments are those of `Ledger`, and `noising`, w. Sampling does not amplify; `shuffle` has the same order in
    every pass.
    """

    counted_by = InTimeTally

    def __init__(
        self,
        terms: Terms,
        sizes: NDArray[np.int64],
        batch_size: int,
        sampling: str,
        levels: Sequence[float],
        noising: tuple[float, ...],
    ) -> None:
        self.noising = noising
        super().__init__(terms, sizes, batch_size, sampling, levels)

    def _sampled(self, sizes: set[int]) -> str:
        if self.sampling == "shuffle":
            return f"batches of {self.batch_size} of a client's n examples, in the same order in every pass"
        return "an example in every batch as far as the adversary knows, n held fixed, no amplification by sampling"

    @property
    def _accountant(self) -> str:
        return f"noise correlated over {len(self.noising)} releases, exact as one Gaussian mechanism"

    def mu(self, examples: int, level: float, releases: int) -> float:
        """Return the change of a client's releases by neighbors, in standard deviations."""
        takes = participation(self.sampling, examples, self.batch_size, releases)
        moved = sensitivity(self.noising, releases, takes) * self.terms.moved
        return moved / level if level else math.inf if moved else 0.0

    def _spent(self, examples: int, level: float, releases: int) -> float:
        mu = self.mu(examples, level, releases)
        return math.inf if math.isnan(mu) else gaussian_epsilon(self.delta, mu)

    def compositions(self, releases: Releases, view: View | None = None) -> list[Composition]:
        """Return the one Gaussian release to which all of a client's are equivalent."""
        compositions: list[Composition] = []
        for client, (n, level) in enumerate(zip(self.sizes.tolist(), self.levels, strict=True)):
            made = releases.total(client)
            whole = sensitivity(self.noising, made, participation(self.sampling, n, self.batch_size, made))
            compositions.append(((Release(level / whole, 1.0, "none"), 1),) if made else ())
        return compositions
