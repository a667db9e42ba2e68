"""The mechanisms: clipping, noise, and what a release protects.

A mechanism is a frozen object of plain numbers. `scale(d)` multiplies the noise of unit scale that its `sampler` (in
`simfl.privacy.noise`) draws. `level` names the field that accountants use, and `pure` says what that field is. The
kernels of the tape compute the release (`gaussian_update` clips the whole sum):

    out = sum_i g_i min(1, C / ||g_i||_2) + scale(d) * unit noise

Sensitivities are those of this sum, not of a mean: one example more or less (`add_or_remove`) moves it by at most C in
L2 norm, one example replaced (`replace_one`) by at most 2C. The noise multiplier z of Gaussian noise is its standard
deviation over C under both relations; the accountants take the relation into account. The epsilon of Laplace noise is
that of one release under the mechanism's neighbors, on data that is not sampled.

Abadi et al. 2016, "Deep learning with differential privacy", https://arxiv.org/abs/1607.00133 (gaussian); McMahan et
al. 2018, "Learning differentially private recurrent language models", https://arxiv.org/abs/1710.06963
(gaussian_update); Chaudhuri, Monteleoni and Sarwate 2011, "Differentially private empirical risk minimization",
https://arxiv.org/abs/0912.0071 (laplace_l2).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from simfl.catalogue import Catalogue, attached
from simfl.privacy.accounting import MOVED, Neighbors


class AbstractMechanism(ABC):
    """The base class of mechanisms.

    `kind` is its name in a scenario, and `summary` one line for a reader. `sampler` names its unit noise in
    `simfl.privacy.noise.SAMPLERS`. A release protects one example or all data of a client (`unit`). `refusal` says why
    no epsilon holds for it; it is None if one holds. `level` names the field that sets the amount of noise: a noise
    multiplier or, if `pure`, the epsilon of a release.
    """

    kind: ClassVar[str]
    summary: ClassVar[str]
    sampler: ClassVar[str]
    unit: ClassVar[Literal["example", "client", "user"]] = "example"
    refusal: ClassVar[str | None] = None
    level: ClassVar[str]
    pure: ClassVar[bool] = False

    @abstractmethod
    def scale(self, size: int) -> float:
        """Return the factor of unit noise on a sum of vectors of `size` coordinates."""

    def _check_finite(self, name: str, zero: bool = False) -> None:
        value = getattr(self, name)
        if not (math.isfinite(value) and (value > 0 or (zero and value == 0))):
            raise ValueError(f"{self.kind}: {name}: expected a finite number >{'=' * zero} 0, found {value}")


@dataclass(frozen=True)
class _Clipped(AbstractMechanism):
    """A mechanism that clips."""

    clipping_norm: float = 1.0
    neighbors: Neighbors = "add_or_remove"

    def __post_init__(self) -> None:
        self._check_finite("clipping_norm")
        self._check_finite(self.level, zero=not self.pure)
        if self.neighbors not in get_args(Neighbors):
            raise ValueError(f"{self.kind}: neighbors: expected add_or_remove or replace_one, found {self.neighbors!r}")

    @property
    def sensitivity(self) -> float:
        """Maximum change of the sum by neighbors in L2 norm: C, or 2C if one is replaced."""
        return self.clipping_norm * MOVED[self.neighbors]


@dataclass(frozen=True)
class Gaussian(_Clipped):
    """Gaussian noise on the sum of per-example clipped gradients (DP-SGD).

    The noise has standard deviation z C, with z = `noise_multiplier` >= 0 without unit; 0 clips and adds no noise. It
    does not depend on the neighboring relation; its epsilon does.
    """

    noise_multiplier: float = 1.0

    kind = "gaussian"
    summary = "Gaussian noise on the sum of per-example clipped gradients (DP-SGD)"
    sampler = "gaussian"
    level = "noise_multiplier"

    def scale(self, size: int) -> float:
        """Return z C, for any size."""
        return self.noise_multiplier * self.clipping_norm


@dataclass(frozen=True)
class GaussianUpdate(Gaussian):
    """Gaussian noise on a client's update of a round, which is clipped as a whole.

    It protects all data of a client together, so sampling of examples within the client does not amplify. Neighbors
    differ in a client that takes part or sends only noise, or in one whose data is replaced.
    """

    kind = "gaussian_update"
    summary = "Gaussian noise on the clipped update of a client: protects all of a client's data together"
    unit = "client"


@dataclass(frozen=True)
class CohortGaussian(Gaussian):
    """Gaussian noise of a server on the sum of users' clipped updates.

    The noise has standard deviation z C on the sum over a cohort, whatever the number of users in it. See
    `simfl.privacy.cohorts`.
    """

    kind = "gaussian_cohort"
    summary = "Gaussian noise of a trusted server on the sum of a cohort's clipped updates: protects users"
    unit = "user"


@dataclass(frozen=True)
class DiscreteGaussian(CohortGaussian):
    """Discrete Gaussian noise that users add in parts to a secure sum.

    See `simfl.privacy.distributed`.
    """

    kind = "discrete_gaussian"
    summary = "discrete Gaussian noise that users add in parts to a secure sum: protects users from the server, too"


@dataclass(frozen=True)
class PureLaplace(_Clipped):
    """Laplace noise: one release on data that is not sampled has a pure epsilon > 0.

    Under replace_one the noise is twice as large.
    """

    epsilon_per_release: float = 1.0

    level = "epsilon_per_release"
    pure = True

    def scale(self, size: int) -> float:
        """Return Delta / epsilon, with Delta the L2 sensitivity, for any size."""
        return self.sensitivity / self.epsilon_per_release


@dataclass(frozen=True)
class LaplaceL2(PureLaplace):
    """Noise of density ~ exp(-epsilon ||x|| / Delta), Delta the L2 sensitivity.

    Its norm is about d Delta / epsilon: sqrt(d) Delta / epsilon on each coordinate.
    """

    kind = "laplace_l2"
    summary = "isotropic Laplace noise on the sum of per-example clipped gradients: pure DP"
    sampler = "laplace_l2"


@dataclass(frozen=True)
class Laplace(PureLaplace):
    """Independent Laplace noise on every coordinate of the sum.

    It needs the L1 sensitivity. For vectors clipped in L2 norm that is sqrt(d) C (||x||_1 <= sqrt(d) ||x||_2), or 2
    sqrt(d) C with one example replaced. The standard deviation on each coordinate is sqrt(2 d) Delta / epsilon, sqrt(2)
    times that of `laplace_l2` for the same epsilon.
    """

    kind = "laplace"
    summary = "independent Laplace noise on each coordinate: pure DP, from the L1 sensitivity sqrt(d) C"
    sampler = "laplace"

    def scale(self, size: int) -> float:
        """Return sqrt(d) Delta / epsilon, with Delta the L2 sensitivity."""
        return math.sqrt(size) * self.sensitivity / self.epsilon_per_release


@dataclass(frozen=True)
class UnclippedGaussian(AbstractMechanism):
    """Gaussian noise on gradients that are not clipped, as printed in some papers.

    Its standard deviation on each coordinate of the sum is `noise_std` >= 0.
    """

    noise_std: float = 1.0

    level = "noise_std"
    kind = "gaussian_unclipped"
    summary = "Gaussian noise on gradients that are not clipped, as some papers print it: never certified"
    sampler = "gaussian"
    refusal = "gradients are not clipped, so the noise hides nothing: one example can move the sum by any amount"

    def __post_init__(self) -> None:
        self._check_finite("noise_std", zero=True)

    def scale(self, size: int) -> float:
        """Return the standard deviation, for any size."""
        return self.noise_std


_CORE: tuple[type[AbstractMechanism], ...] = (
    Gaussian,
    GaussianUpdate,
    CohortGaussian,
    DiscreteGaussian,
    LaplaceL2,
    Laplace,
    UnclippedGaussian,
)

#: The mechanisms by kind.
MECHANISMS: Mapping[str, type[AbstractMechanism]] = Catalogue(
    lambda: {one.kind: one for one in (*_CORE, *attached(AbstractMechanism, "mechanisms"))}  # type: ignore[type-abstract]
)
