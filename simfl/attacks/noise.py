"""Whether the noise that releases were to carry is in their numbers: is there enough of it, and is it drawn afresh?

What is heard is x = n + c in units of the noise: n of the mechanism's law, c all that examples add. If n was drawn
afresh, it knows nothing of c, whose model was read before. The laws are symmetric and unimodal, so that, by Anderson's
inequality (1955, https://doi.org/10.1090/S0002-9939-1955-0069229-1), no c makes a small x likelier than c = 0:

    P[T(n + c) <= t] <= P[T(n) <= t]    for any norm T, given all that happened before.

With T as in `NoiseLaw` the right side is a gamma distribution, and an x that is too small is evidence whatever the data
are. So is the difference of two releases that is too small: there c holds the other release, of which the later noise
knows nothing. Independent noise has twice its variance in a difference, noise that is used twice none.

Both tests are exact but for the union bounds over releases and pairs; each is wrong in `FALSE_ALARMS` of all runs of a
correct mechanism at most. What examples add makes them weaker, never wrong. How weak is known from what was heard.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from simfl.privacy.noise import unit_std

#: How often each of the two tests is wrong about a correct mechanism, at most.
FALSE_ALARMS = 1e-6
#: Releases of a client that are compared with one another: the first ones, and others spread over the run.
FIRST, SPREAD = 16, 16
#: Numbers that they may have together.
MOST_NUMBERS = 2**25


@dataclass(frozen=True)
class NoiseLaw:
    """The law of one release's noise of unit scale, as far as a norm T of it shows.

    T(n) = |n|_2^2 / 2 ~ Gamma(d/2) for Gaussian noise; |n|_2 ~ Gamma(d) for isotropic Laplace noise, and ~ Gamma(1)
    where the norm alone is Laplace; |n|_1 ~ Gamma(d) for independent Laplace variables.

    Attributes:
        sampler: as in `simfl.privacy.noise`.
        size: d, coordinates that carry noise.
    """

    sampler: str
    size: int

    @property
    def shape(self) -> float:
        """Of the gamma distribution of T."""
        return {"gaussian": 0.5 * self.size, "laplace_l2_radius_only": 1.0}.get(self.sampler, float(self.size))

    @property
    def energy(self) -> float:
        """Mean of |n|_2^2."""
        return self.size * unit_std(self.sampler, self.size) ** 2

    def size_of(self, x: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return T of vectors [..., d]."""
        if self.sampler == "laplace":
            return np.abs(x).sum(axis=-1, dtype=np.float64)  # type: ignore[no-any-return]
        energy: NDArray[np.float64] = np.square(x).sum(axis=-1, dtype=np.float64)
        return energy / 2 if self.sampler == "gaussian" else np.sqrt(energy)

    def size_at_most(self, energy: float) -> float:
        """Return the largest T of vectors of this |x|_2^2."""
        if self.sampler == "gaussian":
            return energy / 2
        return math.sqrt(energy * (self.size if self.sampler == "laplace" else 1))

    def chance(self, size: NDArray[np.float64] | float, releases: int = 1) -> NDArray[np.float64]:
        """Return P[T <= size] of the noise, of a sum of T over so many releases."""
        return np.asarray(special.gammainc(releases * self.shape, size))


@dataclass(frozen=True)
class NoiseVerdict:
    """What the numbers say of the noise.

    Attributes:
        releases, pairs: how many were looked at, how many compared.
        too_small: chance, at most, that declared noise is as small as what was heard.
        alike: chance, at most, that noise drawn afresh makes two releases as alike as two that were heard.
        sees_none, sees_half, sees_repeats: whether noise left out, halved, or used twice would have shown.
    """

    releases: int
    pairs: int
    too_small: float
    alike: float
    sees_none: bool
    sees_half: bool
    sees_repeats: bool


class NoiseCheck:
    """Takes heard releases and judges their noise.

    Args:
        law: of the noise.
    """

    def __init__(self, law: NoiseLaw) -> None:
        self.law = law
        self._sizes: list[float] = []
        self._energies: list[float] = []
        self._kept: dict[int, _Kept] = {}

    def hear(self, client: int, values: NDArray[np.floating]) -> None:
        """Take releases of a client in units of their noise, without what examples add on average, f32 [k, d]."""
        sizes = self.law.size_of(values)
        self._sizes += sizes.tolist()
        self._energies += np.square(values).sum(axis=1, dtype=np.float64).tolist()
        enough = self.law.chance(sizes) > FALSE_ALARMS  # what has no noise repeats none
        kept = self._kept.setdefault(client, _Kept(max(2, min(FIRST + SPREAD, MOST_NUMBERS // self.law.size))))
        for value in values[enough]:
            kept.take(value)

    def verdict(self) -> NoiseVerdict:
        """Judge what was heard."""
        law, count = self.law, len(self._sizes)
        if not count:
            return NoiseVerdict(0, 0, 1.0, 1.0, False, False, False)
        single = count * float(law.chance(np.array(self._sizes)).min())
        too_small = min(1.0, 2 * min(single, float(law.chance(sum(self._sizes), count))))
        # What examples add on average would be there with less noise, too; T is concave in |x|^2, or linear.
        added = max(float(np.mean(self._energies)) - law.energy, 0.0)
        half, none = (count * law.size_at_most(added + share * law.energy) for share in (0.25, 0.0))
        sees_half, sees_none = (2 * float(law.chance(total, count)) < FALSE_ALARMS for total in (half, none))
        differences = self._differences()
        pairs = len(differences)
        if not pairs:
            return NoiseVerdict(count, 0, too_small, 1.0, sees_none, sees_half, False)
        sizes, energies = np.array(differences).T
        alike = min(1.0, pairs * float(law.chance(sizes).min()))
        typical = law.size_at_most(max(float(np.median(energies)) - 2 * law.energy, 0.0))
        sees_repeats = pairs * float(law.chance(typical)) < FALSE_ALARMS
        return NoiseVerdict(count, pairs, too_small, alike, sees_none, sees_half, sees_repeats)

    def _differences(self) -> list[tuple[float, float]]:
        """Return T and |x|_2^2 of the differences between all that was kept."""
        kept = [value for client in sorted(self._kept) for value in self._kept[client].values]
        found = []
        for index, value in enumerate(kept):
            for other in kept[:index]:
                difference = value - other
                found.append((float(self.law.size_of(difference)), float(np.square(difference).sum(dtype=np.float64))))
        return found


class _Kept:
    """Some of a client's releases: the first ones in a row, and of the others every 1st, 2nd, 4th, ... as they grow."""

    def __init__(self, most: int) -> None:
        self._first: list[NDArray[np.floating]] = []
        self._later: list[NDArray[np.floating]] = []
        self._most = (most + 1) // 2, most // 2
        self._stride, self._seen = 1, 0

    @property
    def values(self) -> list[NDArray[np.floating]]:
        """Those that are kept."""
        return self._first + self._later

    def take(self, value: NDArray[np.floating]) -> None:
        """Keep a release, perhaps."""
        first, later = self._most
        if len(self._first) < first:
            self._first.append(np.array(value, dtype=np.float32))
            return
        if self._seen % self._stride == 0:
            if len(self._later) == later:
                self._later = self._later[::2]
                self._stride *= 2
            if self._seen % self._stride == 0:
                self._later.append(np.array(value, dtype=np.float32))
        self._seen += 1
