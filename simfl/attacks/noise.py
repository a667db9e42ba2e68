"""Test the noise of releases: its size, its law, and whether it is drawn afresh.

A release in units of the noise is x = n + c: n has the mechanism's law, c is the contribution of examples. If n was
drawn afresh, c does not depend on it, because the model of c was read before. There are three tests.

**Size**, on all coordinates. The laws are symmetric and unimodal. So a small x is most likely at c = 0, by Anderson's
inequality (1955, https://doi.org/10.1090/S0002-9939-1955-0069229-1):

    P[T(n + c) <= t] <= P[T(n) <= t]    for any norm T, given all that happened before.

With T as in `NoiseLaw` the right side is a gamma distribution, and an x that is too small is evidence for any data. So
is a sum or difference of two releases that is too small: c then includes the other release.

**Law**, on blank coordinates: the model of an audit has some at its end without gradients of any example, so a release
contains only noise there. `NoiseLaw.as_normal` maps them to independent standard normal numbers. Their distribution
function is compared with the normal one at `EDGES`: by the Kolmogorov-Smirnov distance (the bound of Massart 1990,
https://doi.org/10.1214/aop/1176990746) and by the binomial law of the number below each edge.

**Independence**, on the same coordinates. The direction of a normal vector is uniform, so its cosine with any vector
that does not depend on it has a beta law. The vectors are

- `numbers`: the first `SKETCH` numbers of every two releases;
- `shifts`: the blank coordinates of one release and those of another one, shifted by any number of coordinates; also
  summed over all pairs of releases that are one draw apart, two draws, ... up to `LAGS`;
- `coordinates`: coordinates of one release that are some distance apart, over all releases.

A cosine shows both equal and opposite numbers. All three tests together raise an alarm about a correct mechanism in at
most `FALSE_ALARMS` of all runs: p-values hold for the whole family (Bonferroni over all comparisons). The contribution
of examples weakens the test of the size; it does not affect the two others. `simfl.attacks.faults` measures their power
by simulated noise.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft, special, stats

from simfl.privacy.noise import unit_std

#: Maximum share of correct mechanisms with an alarm, for all tests together.
FALSE_ALARMS = 1e-6
#: Number of tests that share it: size, law, independence.
TESTS = 3
#: Maximum number of blank coordinates.
BLANK = 1024
#: Number of a client's releases that are compared with one another: the first ones, and others spread over the run.
FIRST, SPREAD = 16, 16
#: Maximum number of values in these releases.
MOST_NUMBERS = 2**25
#: Points at which distribution functions are compared.
EDGES = np.linspace(-8.0, 8.0, 257)
#: Numbers of a release that are compared with those of every other one, and maximum number of such releases.
SKETCH, SKETCHES = 64, 4096
#: Maximum distance in draws of summed pairs.
LAGS = 8
#: Maximum number of coordinates, the last ones, that are searched for shifted noise.
REACH = 2**17
#: Standard deviations at which releases are cut before noise is compared with them: examples may add any number.
CUT = 6.0
#: Quantiles over which a mixture over radii is averaged.
RADII = (np.arange(500) + 0.5) / 500


@dataclass(frozen=True)
class NoiseLaw:
    """The law of one release's noise of unit scale.

    It is tested by a norm T: T(n) = |n|_2^2 / 2 ~ Gamma(d/2) for Gaussian noise; |n|_2 ~ Gamma(d) for isotropic Laplace
    noise, and ~ Gamma(1) where the norm alone is Laplace; |n|_1 ~ Gamma(d) for independent Laplace variables.

    Attributes:
        sampler: as in `simfl.privacy.noise`.
        size: d, coordinates that carry noise.
    """

    sampler: str
    size: int

    @property
    def shape(self) -> float:
        """Shape parameter of the gamma distribution of T."""
        return {"gaussian": 0.5 * self.size, "laplace_l2_radius_only": 1.0}.get(self.sampler, float(self.size))

    def size_of(self, x: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return T of vectors [..., d]."""
        if self.sampler == "laplace":
            return np.abs(x).sum(axis=-1, dtype=np.float64)  # type: ignore[no-any-return]
        energy: NDArray[np.float64] = np.square(x).sum(axis=-1, dtype=np.float64)
        return energy / 2 if self.sampler == "gaussian" else np.sqrt(energy)

    def chance(self, size: NDArray[np.float64] | float, releases: int = 1) -> NDArray[np.float64]:
        """Return P[T <= size] of the noise, for a sum of T over `releases` releases."""
        return np.asarray(special.gammainc(releases * self.shape, size))

    def as_normal(self, x: NDArray[np.floating]) -> NDArray[np.float64]:
        """Map coordinates x [k, b] of noise to independent standard normal numbers.

        Independent coordinates are mapped by their distribution function. For isotropic noise the direction is kept,
        and the norm is mapped by the distribution function of the norm of b coordinates.
        """
        values: NDArray[np.float64] = np.asarray(x, dtype=np.float64)
        if self.sampler == "gaussian":
            return values
        if self.sampler == "laplace":
            return -np.sign(values) * special.ndtri_exp(-np.abs(values) - np.log(2.0))  # type: ignore[no-any-return]
        norm = np.linalg.norm(values, axis=1, keepdims=True)
        count = values.shape[1]
        below = np.array([self._norm_below(one, count) for one in norm[:, 0]])[:, None]
        normal = np.sqrt(stats.chi2.ppf(np.clip(below, 1e-300, 1 - 1e-16), count))
        return normal * np.divide(values, norm, out=np.zeros_like(values), where=norm > 0)  # type: ignore[no-any-return]

    def draw(self, generator: np.random.Generator, count: int, blank: int) -> NDArray[np.float64]:
        """Return noise on b of the coordinates, [count, b]."""
        if self.sampler == "laplace":
            return generator.laplace(size=(count, blank))
        normal = generator.standard_normal((count, blank))
        if self.sampler == "laplace_l2":
            normal *= np.sqrt(generator.chisquare(self.size + 1, (count, 1)))
        elif self.sampler == "laplace_l2_radius_only":
            rest = generator.chisquare(self.size - blank, (count, 1)) if self.size > blank else 0.0
            energy = np.square(normal).sum(axis=1, keepdims=True) + rest
            normal *= generator.exponential(size=(count, 1)) / np.sqrt(energy)
        return normal

    def _norm_below(self, norm: float, count: int) -> float:
        """Return P[|b coordinates of isotropic noise| <= norm]."""
        others = _others(self.sampler, self.size, count)
        if self.sampler == "laplace_l2":
            return float(special.gammainc(count / 2, norm**2 / others / 2).mean())
        return float(-np.expm1(-norm / np.sqrt(others)).mean())


@lru_cache(maxsize=8)
def _others(sampler: str, size: int, count: int) -> NDArray[np.float64]:
    """Return quantiles that determine the norm of coordinates of isotropic noise.

    Isotropic Laplace noise is a Gaussian vector of variance 2 Gamma((d + 1) / 2). If only the norm is Laplace, the
    coordinates have a share of its square that is Beta(b / 2, (d - b) / 2).
    """
    if sampler == "laplace_l2":
        return np.asarray(stats.chi2.ppf(RADII, size + 1))
    return np.asarray(stats.beta.ppf(RADII, count / 2, (size - count) / 2)) if size > count else np.ones(1)


@dataclass(frozen=True)
class NoiseVerdict:
    """The verdict on the noise.

    Three chances are upper bounds that hold for all tests together: that declared noise is as small as the heard one,
    or distributed as differently, and that noise drawn afresh is as dependent.
    """

    releases: int
    pairs: int
    numbers: int
    too_small: float
    other_law: float
    dependent: float


class NoiseCheck:
    """Takes heard releases and judges their noise."""

    def __init__(self, law: NoiseLaw, blank: int) -> None:
        self.law = law
        self.blank = BlankCheck(law, blank)
        #: Number of heard releases of each client.
        self.heard: Counter[int] = Counter()
        self._sizes: list[float] = []
        self._kept: dict[int, _Kept] = {}

    def hear(self, client: int, values: NDArray[np.floating]) -> None:
        """Add a client's releases in units of noise without examples' mean, f32 [k, d]."""
        sizes = self.law.size_of(values)
        self._sizes += sizes.tolist()
        self.heard[client] += len(values)
        enough = self.law.chance(sizes) > FALSE_ALARMS  # a release without noise cannot repeat noise
        self.blank.hear(client, values)
        kept = self._kept.setdefault(client, _Kept(max(2, min(FIRST + SPREAD, MOST_NUMBERS // self.law.size))))
        for value in values[enough]:
            kept.take(value)

    def verdict(self) -> NoiseVerdict:
        """Return the verdict."""
        law, count = self.law, len(self._sizes)
        if not count:
            return NoiseVerdict(0, 0, 0, 1.0, 1.0, 1.0)
        single = count * float(law.chance(np.array(self._sizes)).min())
        too_small = 2 * min(single, float(law.chance(sum(self._sizes), count)))
        kept = [value for client in sorted(self._kept) for value in self._kept[client].values]
        pairs = [(one, two) for at, one in enumerate(kept) for two in kept[:at]]
        sizes = [float(law.size_of(both)) for one, two in pairs for both in (one - two, one + two)]
        cancels = 2 * len(sizes) * float(law.chance(np.array(sizes)).min()) if sizes else 1.0
        dependent = 2 * min(cancels, self.blank.dependent())
        chances = (min(1.0, TESTS * chance) for chance in (too_small, self.blank.other_law(), dependent))
        return NoiseVerdict(count, len(pairs), self.blank.numbers, *chances)


class BlankCheck:
    """Tests law and independence of the last `blank` coordinates, pure noise."""

    def __init__(self, law: NoiseLaw, blank: int) -> None:
        self.law = law
        self.size = blank
        self.numbers = 0
        self._below = np.zeros(len(EDGES), dtype=np.int64)
        self._sketches: list[NDArray[np.float64]] = []
        self._noise: dict[int, _Kept] = {}
        self._releases: dict[int, _Kept] = {}

    def hear(self, client: int, values: NDArray[np.floating]) -> None:
        """Add a client's releases in units of noise; the last b contain only noise."""
        if not self.size:
            return
        reach = min(REACH, values.shape[1])
        noise = self.law.as_normal(values[:, values.shape[1] - self.size :])
        self.numbers += noise.size
        self._below += np.searchsorted(np.sort(noise, axis=None), EDGES, side="right")
        self._sketches += list(noise[: max(0, SKETCHES - len(self._sketches)), :SKETCH])
        most = max(2, min(FIRST + SPREAD, MOST_NUMBERS // reach))
        for kept, rows in ((self._noise, noise), (self._releases, values[:, values.shape[1] - reach :])):
            of_client = kept.setdefault(client, _Kept(most))
            for row in rows:
                of_client.take(row)

    def other_law(self) -> float:
        """Return an upper bound on the chance that correct noise differs as much."""
        if not self.numbers:
            return 1.0
        distance = float(np.abs(self._below / self.numbers - special.ndtr(EDGES)).max())
        smirnov = 2.0 * float(np.exp(-2.0 * self.numbers * distance**2))
        outside = np.where(EDGES < 0, self._below, self.numbers - self._below)
        chance = special.ndtr(-np.abs(EDGES))
        few = stats.binom.cdf(outside, self.numbers, chance)
        many = stats.binom.sf(outside - 1, self.numbers, chance)
        return min(1.0, 2 * smirnov, 2 * 2 * len(EDGES) * float(min(few.min(), many.min())))

    def alarms(self, level: float) -> bool:
        """Return whether a test of blank coordinates raises an alarm at this level."""
        share = level / TESTS
        return self.other_law() < share or 2 * self.dependent(share / 2) < share

    def dependent(self, enough: float = 0.0) -> float:
        """Return an upper bound on the chance of such dependence; stop below `enough`."""
        smallest = 1.0
        if self.size < 2 or not self.numbers:
            return smallest
        for kind in (self._sketched, self._across_coordinates, self._shifted):
            comparisons, chance = kind()
            smallest = min(smallest, 3 * max(1, comparisons) * chance)
            if smallest < enough:
                break
        return smallest

    def _sketched(self) -> tuple[int, float]:
        """Return the number of comparisons of first numbers, and the smallest chance."""
        rows = np.stack(self._sketches)
        squares, chance = np.square(rows).sum(axis=1), 1.0
        for at in range(1, len(rows)):
            chance = min(chance, _smallest_chance(rows[:at] @ rows[at], squares[:at], squares[at], rows.shape[1]))
        return len(rows) * (len(rows) - 1) // 2, chance

    def _across_coordinates(self) -> tuple[int, float]:
        """Compare coordinates that are 1, 2, ... b/2 apart, over all kept releases.

        Each number is on one side of a comparison only: for the distance s, blocks of s coordinates are compared with
        the next blocks, the first with the second and so on, then the second with the third and so on.
        """
        noise = np.stack([row for _, _, row in _rows(self._noise)])
        comparisons, chance = 0, 1.0
        for distance in range(1, self.size // 2 + 1):
            for begin in (0, distance):
                count = (self.size - begin) // (2 * distance)
                if not count:
                    continue
                blocks = noise[:, begin : begin + 2 * distance * count].reshape(len(noise), count, 2, distance)
                one, two = blocks[:, :, 0], blocks[:, :, 1]
                less = _smallest_chance((one * two).sum(), (one * one).sum(), (two * two).sum(), one.size)
                comparisons, chance = comparisons + 1, min(chance, less)
        return comparisons, chance

    def _shifted(self) -> tuple[int, float]:
        """Compare each kept release's noise with all earlier ones and with itself.

        Each release is rotated by any number of coordinates. In sums over pairs that are the same number of draws
        apart, each draw is on one side of the comparison only: blocks of that number of draws alternate.
        """
        kept = _rows(self._noise)
        unit = unit_std(self.law.sampler, self.law.size)
        others = [np.clip(np.nan_to_num(row / unit), -CUT, CUT) for _, _, row in _rows(self._releases)]
        size, half = len(others[0]), self.size // 2
        spectra = fft.rfft(np.stack(others), axis=1)
        energies = np.stack([_windows(np.square(row), self.size) for row in others])
        comparisons, chance = 0, 1.0
        sums: dict[tuple[int, int], list[Any]] = {}
        for at, (client, number, noise) in enumerate(kept):
            norm = float(noise @ noise)
            dots = _dots(noise, spectra[:at], size)
            for (one, earlier, _), dot, energy in zip(kept, dots, energies, strict=False):
                comparisons += size
                chance = min(chance, _smallest_chance(dot, norm, energy, self.size))
                lag = number - earlier
                if one == client and number < FIRST and lag <= LAGS:
                    total = sums.setdefault((lag, number // lag % 2), [0.0, 0.0, 0.0, 0])
                    for part, more in enumerate((dot, norm, energy, self.size)):
                        total[part] = total[part] + more
            # The last half, and the windows of the same release that end before it.
            last, windows = noise[self.size - half :], size - 2 * half + 1
            dot, energy = _dots(last, spectra[at], size)[:windows], _windows(np.square(others[at]), half)[:windows]
            comparisons += windows
            chance = min(chance, _smallest_chance(dot, float(last @ last), energy, half))
        for total in sums.values():
            comparisons += size
            chance = min(chance, _smallest_chance(*total))
        return comparisons, chance


def _dots(noise: NDArray[np.float64], spectra: NDArray[np.complex128], size: int) -> NDArray[np.float64]:
    """Return the products of noise with all windows of releases, [..., size]."""
    return fft.irfft(np.conj(fft.rfft(noise, size)) * spectra, size, axis=-1)  # type: ignore[no-any-return]


def _windows(values: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    """Return the cyclic sums of `size` values from each one on."""
    total = np.cumsum(np.concatenate(([0.0], values, values[: size - 1])))
    return total[size:] - total[:-size]  # type: ignore[no-any-return]


def _smallest_chance(dots: Any, one: Any, two: Any, size: int) -> float:
    """Return the chance of the largest of some cosines with uniform vectors.

    `dots` are their products, `one` and `two` their squared lengths; a length of 0 has no cosine.
    """
    product = np.asarray(one * two, dtype=np.float64)
    square = np.divide(np.square(dots), product, out=np.zeros_like(product), where=product > 0)
    largest = min(1.0, float(square.max(initial=0.0)))
    return float(special.betainc((size - 1) / 2, 0.5, 1.0 - largest)) if size > 1 else 1.0


def _rows(kept: dict[int, _Kept]) -> list[tuple[int, int, NDArray[np.float64]]]:
    """Return client, number, and values of each kept release."""
    return [
        (client, number, row.astype(np.float64))
        for client in sorted(kept)
        for number, row in enumerate(kept[client].values)
    ]


class _Kept:
    """Some of a client's releases: the first ones, and every 1st, 2nd, 4th, ... later."""

    def __init__(self, most: int) -> None:
        self._first: list[NDArray[np.floating]] = []
        self._later: list[NDArray[np.floating]] = []
        self._most = (most + 1) // 2, most // 2
        self._stride, self._seen = 1, 0

    @property
    def values(self) -> list[NDArray[np.floating]]:
        """The kept releases."""
        return self._first + self._later

    def take(self, value: NDArray[np.floating]) -> None:
        """Keep a release if it is due."""
        first, later = self._most
        if len(self._first) < first:
            self._first.append(np.array(value, dtype=np.float32))
            return
        if self._seen % self._stride == 0 and len(self._later) == later:
            self._later = self._later[::2]
            self._stride *= 2
        if self._seen % self._stride == 0:
            self._later.append(np.array(value, dtype=np.float32))
        self._seen += 1
