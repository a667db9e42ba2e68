"""The clients' noise, and the protection that it gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, WithJsonSchema, model_validator

from simfl import plugins
from simfl.scenario.fields import (
    ByKind,
    Config,
    Flag,
    NonNegative,
    NonNegativeEach,
    OpenShare,
    Positive,
    PositiveEach,
    Within,
    auto_or,
    option,
    variant,
)

Neighbors = Literal["add_or_remove", "replace_one"]
View = Literal["local_transcript", "global_hidden"]


class StatedClaim(Config):
    """An (epsilon, delta) that a paper or a report states."""

    kind: Literal["stated"] = variant("stated")
    epsilon: Positive = Field(description="as stated, for the whole run")
    delta: OpenShare | None = option(None, "as stated; privacy.delta by default")
    neighbors: Neighbors | None = option(None, "those of the statement; privacy.neighbors by default")
    source: str = option("", "where it is stated")


class PerReleaseClaim(Config):
    """The epsilon of a single release, as some papers state it (AUDP and MAPA)."""

    kind: Literal["per_release"] = variant("per_release")


class TheoremClaim(Config):
    """The claim of a paper's theorem for the run's noise and releases.

    Papers: adp2sgd, proactive_dp.
    """

    kind: str = Field(description="a claim that a plugin adds: adp2sgd or proactive_dp, of the papers of simfl")


Claim = Annotated[
    StatedClaim | PerReleaseClaim | TheoremClaim,
    ByKind(default="stated", external=TheoremClaim, names=lambda: list(plugins.names("claims"))),
]


class MechanismConfig(Config):
    """Options of every mechanism: who is protected from whom."""

    #: The fields that may list one value for each client.
    each: ClassVar[tuple[str, ...]] = ()
    #: The unit that a release protects: one example, or all data of a client.
    unit: ClassVar[Literal["example", "client"]] = "example"
    #: Whether the noise depends on the number of times that an example is used.
    counts_uses: ClassVar[bool] = False
    #: For noise of a random length in a random direction: whether the second moment of the length is that of noise in
    #: d dimensions (exact) or in one dimension, as in the MAPA paper (paper); None for other noise.
    second_moment: ClassVar[Literal["exact", "paper"] | None] = None

    if TYPE_CHECKING:  # each class has its own name and neighbors
        mechanism: str

        neighbors: Neighbors

    delta: OpenShare = option(1e-5, "delta of the (epsilon, delta) that is reported")
    claim: Claim | None = option(None, "what a paper claims, for `simfl privacy check` to hold against the account")

    @property
    def epsilon_budget(self) -> float | tuple[float, ...] | None:
        """The epsilon at which clients stop, one for all or one each; None: no limit."""
        return None

    @property
    def calibrated(self) -> bool:
        """Whether the noise follows from the budget and the planned number of releases."""
        return False

    @property
    def made_by(self) -> str:
        """The name under which the mechanism is built."""
        return self.mechanism

    @property
    def partial(self) -> bool:
        """Whether only some parameters carry noise."""
        return getattr(self, "noise_on", "all") != "all"

    @property
    def correlated(self) -> str | None:
        """The correlation of its noise; None for independent noise."""
        return None

    def lists(self) -> Iterator[tuple[str, tuple[float, ...]]]:
        """Yield the fields that have one value for each client."""
        for name in self.each:
            value = getattr(self, name)
            if isinstance(value, tuple):
                yield name, value


class Accounted(MechanismConfig):
    """A mechanism that the accountants know."""

    @property
    def epsilon_budget(self) -> float | tuple[float, ...] | None:
        """The value of `epsilon`."""
        return self.epsilon

    epsilon: PositiveEach | None = option(
        None,
        "budget, of all clients or one for each: a client takes no further part when its next release would exceed it",
    )
    neighbors: Neighbors = option(
        "add_or_remove", "what neighboring data sets are: one example more or less, or one example replaced by another"
    )
    view: View = option(
        "local_transcript",
        "what the adversary sees: all that one client ever sent, or all updates without knowing whose they are",
    )
    accountant: Literal["tightest", "renyi", "pld"] = option(
        "tightest", "tightest: Renyi over time, and at the end privacy loss distributions where they are affordable"
    )
    amplification: Flag = option(True, "count on the adversary not knowing which examples are in a mini-batch")


class _MultipliedGaussian(Accounted):
    """Gaussian noise with a given multiplier, or one that follows from a budget."""

    each = ("epsilon", "noise_multiplier")

    if TYPE_CHECKING:  # each class has its own description
        noise_multiplier: NonNegativeEach | None

    @property
    def calibrated(self) -> bool:
        """Whether no noise multiplier is given."""
        return self.noise_multiplier is None

    @model_validator(mode="before")
    @classmethod
    def _usual_noise(cls, values: Any) -> Any:
        """Fill in the noise multiplier 1 if there is no budget."""
        if isinstance(values, dict) and values.get("epsilon") is None and values.get("noise_multiplier") is None:
            return {**values, "noise_multiplier": 1.0}
        return values


class PairwiseNoise(Config):
    """Noise that cancels in the sums of neighbors (DECOR).

    Neighbors share the seed of their edge.
    """

    correlated: Literal["pairwise"] = variant("pairwise")
    pair_multiplier: Positive = option(
        1.0,
        "the noise that two neighbors share has standard deviation pair_multiplier * clipping_norm; it "
        "comes on top of noise_multiplier, which alone is what epsilon counts",
    )


class SquareRootStrategy(Config):
    """The first coefficients of sqrt(1 - x): 1, -1/2, -1/8, ...

    This is the banded inverse square root.
    """

    kind: Literal["square_root"] = variant("square_root")


class BandedStrategy(Config):
    """A banded matrix with the least mean squared error of prefix sums.

    It is computed by jax_privacy.
    """

    kind: Literal["banded"] = variant("banded")
    bands: Annotated[int, Within(at_least=1, at_most=1000)] = option(
        8, "diagonals of the strategy; as many as mini-batches in a pass, or fewer, suit shuffled data"
    )


class BltStrategy(Config):
    """A buffered linear Toeplitz matrix, the least maximal error of prefix sums.

    It is computed by jax_privacy.
    """

    kind: Literal["blt"] = variant("blt")
    buffers: Annotated[int, Within(at_least=1, at_most=8)] = option(2, "geometric sequences that make up the strategy")


TimeStrategy = Annotated[SquareRootStrategy | BandedStrategy | BltStrategy, ByKind(default="square_root")]


class InTimeNoise(Config):
    """Noise correlated over a client's releases, so that their sum has less noise."""

    correlated: Literal["in_time"] = variant("in_time")
    strategy: TimeStrategy = option(SquareRootStrategy(), "where the coefficients of earlier noise come from")
    window: Annotated[int, Within(at_least=1, at_most=1000)] = option(
        16,
        "number of a client's releases that noise reaches; it is drawn that often. What is cut off of a "
        "strategy's coefficients is accounted for",
    )
    horizon: Annotated[int, Within(at_least=1, at_most=100_000)] | None = option(
        None,
        "how many releases of a client a strategy is made for; null: as many as stop plans. The account is "
        "of those that there are",
    )


CorrelatedNoise = Annotated[PairwiseNoise | InTimeNoise, ByKind("correlated")]


class Gaussian(_MultipliedGaussian):
    """Gaussian noise on the sum of per-example clipped gradients (DP-SGD)."""

    mechanism: Literal["gaussian"] = variant("gaussian")
    clipping_norm: Positive = option(1.0, "C, the bound on the L2 norm of each example's gradient")
    noise_multiplier: NonNegativeEach | None = option(
        None,
        "z, of all clients or one for each: the noise on the sum has standard deviation z * clipping_norm; "
        "0 clips and adds none; left out, it is 1, or what spends epsilon in the planned number of releases",
    )
    quantize: Flag = option(
        False,
        "round clipped gradients to a grid and add discrete Gaussian noise: floating point gives nothing "
        "away; slower, and accounted for by Renyi divergences of integer orders",
    )
    noise: CorrelatedNoise | None = option(
        None, "how noise is correlated between neighbors, or over time; null: every release has noise of its own"
    )

    @property
    def made_by(self) -> str:
        """The name under which the mechanism is built; another one for noise on a grid."""
        return "gaussian_on_grid" if self.quantize else self.mechanism

    @property
    def correlated(self) -> str | None:
        """The correlation of its noise; None for independent noise."""
        return None if self.noise is None else self.noise.correlated


class GaussianUpdate(_MultipliedGaussian):
    """Gaussian noise on a client's clipped update.

    It protects all data of a client together.
    """

    unit = "client"
    mechanism: Literal["gaussian_update"] = variant("gaussian_update")
    clipping_norm: Positive = option(1.0, "C, the bound on the L2 norm of an update")
    noise_multiplier: NonNegativeEach | None = option(
        None,
        "z, of all clients or one for each: the noise on the update has standard deviation "
        "z * clipping_norm; left out, it is 1, or what spends epsilon in the planned number of releases",
    )
    neighbors: Neighbors = option(
        "add_or_remove",
        "what neighbors are: a client that takes part or sends noise only, or one whose data is replaced",
    )


NoiseOn = Annotated[
    Literal["all", "first_convolution"],
    Field(
        description="which parameters carry noise: all, or those of the first convolution, as the MAPA paper has it, "
        "which protects nothing and is never certified"
    ),
]


class LaplaceL2(Accounted):
    """L2 Laplace noise on the sum of per-example clipped gradients: pure DP.

    Its density is proportional to exp(-eps |x| / Delta).
    """

    each = ("epsilon", "epsilon_per_release")
    second_moment = "exact"
    mechanism: Literal["laplace_l2"] = variant("laplace_l2")
    clipping_norm: Positive = option(1.0, "C, the bound on the L2 norm of each example's gradient")
    epsilon_per_release: PositiveEach = option(
        1.0, "epsilon of one release without sampling, of all clients or one for each"
    )
    noise_on: NoiseOn = "all"


class Laplace(Accounted):
    """Laplace noise on every coordinate of the clipped sum: pure DP.

    The noise is large in high dimension.
    """

    each = ("epsilon", "epsilon_per_release")
    mechanism: Literal["laplace"] = variant("laplace")
    clipping_norm: Positive = option(1.0, "C, the bound on the L2 norm of each example's gradient")
    epsilon_per_release: PositiveEach = option(
        1.0, "epsilon of one release without sampling, of all clients or one for each"
    )


class LaplaceL2RadiusOnly(MechanismConfig):
    """The noise of the MAPA paper's code: not private, never certified.

    Its norm is one-dimensional.
    """

    each = ("epsilon_per_release",)
    second_moment = "paper"
    mechanism: Literal["laplace_l2_radius_only"] = variant("laplace_l2_radius_only")
    clipping_norm: Positive = option(1.0, "C, the bound on the L2 norm of each example's gradient")
    epsilon_per_release: PositiveEach = option(
        1.0, "epsilon that the paper claims for one release, of all clients or one for each"
    )
    neighbors: Neighbors = option("replace_one", "the neighbors of the claim")
    noise_on: NoiseOn = "all"


class OnePassGaussian(MechanismConfig):
    """Gaussian noise for data that is used once.

    It is the noise of the without-replacement paper, on the mean gradient.
    """

    counts_uses = True
    mechanism: Literal["one_pass_gaussian"] = variant("one_pass_gaussian")
    epsilon: Positive = option(1.0, "what the noise is made for")
    delta: Annotated[
        float | Literal["auto"],
        auto_or(Within(above=0, below=1).number, "a number > 0 and < 1", "a number"),
        WithJsonSchema(
            {
                "anyOf": [{"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, {"const": "auto"}],
                "format": "auto or number > 0 and < 1",
            }
        ),
    ] = Field(  # type: ignore[assignment]
        default="auto", description="what the noise is made for, and reported; auto: 1/n², n examples in all"
    )
    lipschitz: Positive | None = option(
        None,
        "L, to which each example's gradient is clipped: the guarantee holds whatever the data; null: as "
        "the paper has it for logistic regression, 1 without l2 and 1 + l2 R with it (1 is enough: the gradient of the "
        "penalty is not secret)",
    )
    calibration: Literal["analytic", "classic"] = option(
        "analytic", "analytic: exact for every epsilon; classic: sqrt(2 ln(1.25/delta))/epsilon, the paper's"
    )
    budget: Literal["joint", "per_task"] = option(
        "joint",
        "joint: epsilon is that of an example in all tasks and at all clients that hold it; per_task: the "
        "paper's, of one model and one client, so that all together cost more",
    )


class UnclippedOnePass(OnePassGaussian):
    """The noise of one_pass_gaussian without clipping: no account.

    The paper's listings have it so.
    """

    mechanism: Literal["one_pass_gaussian_unclipped"] = variant("one_pass_gaussian_unclipped")  # type: ignore[assignment]
    lipschitz: Positive | None = option(
        None,
        "L, which the noise is made for, and which gradients should not exceed; null: 1 without l2 and "
        "1 + l2 R with it",
    )


class UnclippedGaussian(MechanismConfig):
    """Gaussian noise on gradients without clipping: never certified.

    Some papers print it so.
    """

    mechanism: Literal["gaussian_unclipped"] = variant("gaussian_unclipped")
    noise_std: NonNegative = option(1.0, "standard deviation of the noise on the sum, per coordinate")


CORE = (
    Gaussian
    | GaussianUpdate
    | LaplaceL2
    | Laplace
    | LaplaceL2RadiusOnly
    | OnePassGaussian
    | UnclippedOnePass
    | UnclippedGaussian
)
