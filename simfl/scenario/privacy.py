"""The noise of clients or of a server, and the protection that it gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from simfl import plugins
from simfl.scenario.fields import (
    ByKind,
    Config,
    Count,
    Flag,
    Index,
    NonNegative,
    NonNegativeEach,
    OpenShare,
    Positive,
    PositiveEach,
    Within,
    option,
    variant,
)
from simfl.scenario.graph_noise import GraphNoise
from simfl.scenario.problems import invalid, show

Neighbors = Literal["add_or_remove", "replace_one"]
View = Literal["local_transcript", "global_hidden"]


def _fixed(value: object) -> float:
    if value == "adaptive" or isinstance(value, Mapping):
        advice = "only the norm of a server that adds noise to sums of users' updates (unit: user) is adaptive"
        raise invalid("a number > 0", show(value), advice)
    return Within(above=0).number(value)


FixedNorm = Annotated[float, BeforeValidator(_fixed), WithJsonSchema({"type": "number", "exclusiveMinimum": 0})]
"""A clipping norm that stays the same."""


class StatedClaim(Config):
    """An (epsilon, delta) that a paper or a report states for a whole run."""

    kind: Literal["stated"] = variant("stated")
    epsilon: Positive = Field(description="the stated epsilon, of the whole run")
    delta: OpenShare | None = option(None, "the stated delta; null: that of privacy.delta")
    neighbors: Neighbors | None = option(
        None, "the neighboring relation of the stated epsilon; null: that of privacy.neighbors"
    )
    source: str = option("", "where the claim is published; shown beside it")


class PerReleaseClaim(Config):
    """The epsilon of a single release, which some papers state (AUDP and MAPA).

    Only with Laplace noise.
    """

    kind: Literal["per_release"] = variant("per_release")


class TheoremClaim(Config):
    """The epsilon that a paper's theorem gives for the run's noise and releases."""

    of_theorem: ClassVar[bool] = True
    kind: str = Field(description="a claim that a plugin adds", examples=["adp2sgd", "proactive_dp"])


Claim = Annotated[
    StatedClaim | PerReleaseClaim | TheoremClaim,
    ByKind(default="stated", external=TheoremClaim, names=lambda: list(plugins.names("claims"))),
]


class MechanismConfig(Config):
    """Options of every mechanism: who is protected from whom."""

    #: Whether the accountants know it.
    accounted: ClassVar[bool] = False
    #: The fields that may list one value for each client.
    each: ClassVar[tuple[str, ...]] = ()
    #: The unit that a release protects: one example, all data of a client, or those of a user by a server's noise.
    protects: ClassVar[Literal["example", "client", "user"]] = "example"
    #: Whether the noise depends on the number of times that an example is used.
    counts_uses: ClassVar[bool] = False
    #: For noise of a random length in a random direction: whether the second moment of the length is that of noise in
    #: d dimensions (exact) or in one dimension, as in the MAPA paper (paper); None for other noise.
    second_moment: ClassVar[Literal["exact", "paper"] | None] = None

    if TYPE_CHECKING:  # each class has its own name and neighbors
        mechanism: str

        neighbors: Neighbors

    delta: OpenShare = option(1e-5, "delta of the (epsilon, delta) that is reported")
    claim: Claim | None = option(
        None, "the epsilon that a paper claims; `simfl privacy check` compares it with the certified epsilon"
    )

    @property
    def epsilon_budget(self) -> float | tuple[float, ...] | None:
        """The epsilon at which clients stop, one for all or one each; None: no limit."""
        return None

    @property
    def calibrated(self) -> bool:
        """Whether the noise follows from the budget and the planned number of releases."""
        return False

    @property
    def partial(self) -> bool:
        """Whether only some parameters carry noise."""
        return getattr(self, "noise_on", "all") != "all"

    @property
    def correlated(self) -> str | None:
        """The correlation of its noise; None for independent noise."""
        return None

    @property
    def by_server(self) -> bool:
        """Whether a server adds the noise to sums of updates."""
        return self.of_sums is not None

    @property
    def of_sums(self) -> CohortGaussian | None:
        """The section itself if a server adds the noise to sums of updates; else None."""
        return None

    @property
    def shared_noise(self) -> PairwiseNoise | GraphNoise | InTimeNoise | None:
        """How the noise of clients is correlated; None if it is not."""
        return None

    @property
    def adaptive(self) -> AdaptiveClipping | None:
        """How the clipping norm follows the updates; None if it is fixed."""
        return None

    def lists(self) -> Iterator[tuple[str, tuple[float, ...]]]:
        """Yield the fields that have one value for each client."""
        for name in self.each:
            value = getattr(self, name)
            if isinstance(value, tuple):
                yield name, value


class Accounted(MechanismConfig):
    """A mechanism that the accountants know."""

    accounted: ClassVar[bool] = True

    @property
    def epsilon_budget(self) -> float | tuple[float, ...] | None:
        """The value of `epsilon`."""
        return self.epsilon

    epsilon: PositiveEach | None = option(
        None,
        "budget, one for all clients or one for each; a client stops before a release that would exceed it; null: none",
    )
    neighbors: Neighbors = option(
        "add_or_remove",
        "how neighboring data sets differ: one example more or less, or one example replaced by another",
    )
    view: View = option(
        "local_transcript",
        "what the adversary sees: everything that one client ever sent, or all updates without their senders",
    )
    accountant: Literal["tightest", "renyi", "pld"] = option(
        "tightest",
        "tightest: renyi during the run; at the end the smaller one of renyi and pld (privacy loss distributions), if "
        "pld is affordable",
    )
    amplification: Flag = option(
        True, "assume that the adversary does not know which examples are in a mini-batch; this lowers epsilon"
    )


class _MultipliedGaussian(Accounted):
    """Gaussian noise with a given multiplier, or one that follows from a budget."""

    each: ClassVar[tuple[str, ...]] = ("epsilon", "noise_multiplier")

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
    """Noise that two neighbors share and that cancels in their sum (DECOR).

    The neighbors draw it from the seed of their edge.
    """

    correlated: Literal["pairwise"] = variant("pairwise")
    pair_multiplier: Positive = option(
        1.0,
        "the shared noise of two neighbors has standard deviation pair_multiplier * clipping_norm. It is "
        "added to the noise of noise_multiplier; epsilon counts only the latter",
    )


class SquareRootStrategy(Config):
    """The first coefficients of sqrt(1 - x): 1, -1/2, -1/8, ...

    This is the banded inverse square root.
    """

    kind: Literal["square_root"] = variant("square_root")

    @property
    def size(self) -> int | None:
        """None: the coefficients are known."""
        return None


class BandedStrategy(Config):
    """The banded matrix with the least mean squared error of prefix sums.

    jax_privacy computes it.
    """

    kind: Literal["banded"] = variant("banded")
    bands: Annotated[int, Within(at_least=1, at_most=1000)] = option(
        8, "number of diagonals; for shuffled data, at most the number of mini-batches in a pass works well"
    )

    @property
    def size(self) -> int | None:
        """The number of diagonals."""
        return self.bands


class BltStrategy(Config):
    """The buffered linear Toeplitz matrix with the least maximal error of prefix sums.

    jax_privacy computes it.
    """

    kind: Literal["blt"] = variant("blt")
    buffers: Annotated[int, Within(at_least=1, at_most=8)] = option(
        2, "number of geometric sequences that make up the strategy"
    )

    @property
    def size(self) -> int | None:
        """The number of sequences."""
        return self.buffers


TimeStrategy = Annotated[SquareRootStrategy | BandedStrategy | BltStrategy, ByKind(default="square_root")]


class InTimeNoise(Config):
    """Noise that is correlated over a client's releases: their sum has less noise."""

    correlated: Literal["in_time"] = variant("in_time")
    strategy: TimeStrategy = option(SquareRootStrategy(), "how the coefficients of earlier noise are computed")
    window: Annotated[int, Within(at_least=1, at_most=1000)] = option(
        16,
        "number of a client's releases that one noise vector enters; each vector is drawn that many times. "
        "Coefficients beyond the window are cut off, and the account is that of the strategy after the cut",
    )
    horizon: Annotated[int, Within(at_least=1, at_most=100_000)] | None = option(
        None,
        "number of releases of a client for which the strategy is computed; null: the number planned by "
        "stop. The account counts the actual releases",
    )


CorrelatedNoise = Annotated[PairwiseNoise | GraphNoise | InTimeNoise, ByKind("correlated")]


class Gaussian(_MultipliedGaussian):
    """Gaussian noise on the sum of per-example clipped gradients (DP-SGD)."""

    removed: ClassVar[Mapping[str, str]] = {"quantize": "delete it: the noise of examples is one of real numbers"}
    mechanism: Literal["gaussian"] = variant("gaussian")
    clipping_norm: FixedNorm = option(1.0, "C, the bound on the L2 norm of each example's gradient")
    noise_multiplier: NonNegativeEach | None = option(
        None,
        "z, one for all clients or one for each: the noise on the sum has standard deviation z * clipping_norm. "
        "0 clips without noise. null: 1 without a budget; with a budget (epsilon), the noise that spends it in "
        "the planned releases",
    )
    noise: CorrelatedNoise | None = option(
        None, "how noise is correlated between neighbors or over time; null: the noise of each release is independent"
    )

    @property
    def correlated(self) -> str | None:
        """The correlation of its noise; None for independent noise."""
        return None if self.noise is None else self.noise.correlated

    @property
    def shared_noise(self) -> PairwiseNoise | GraphNoise | InTimeNoise | None:
        """The value of `noise`."""
        return self.noise


class GaussianUpdate(_MultipliedGaussian):
    """Gaussian noise on a client's clipped update.

    It protects all data of a client together.
    """

    protects = "client"
    mechanism: Literal["gaussian_update"] = variant("gaussian_update")
    clipping_norm: FixedNorm = option(1.0, "C, the bound on the L2 norm of an update")
    noise_multiplier: NonNegativeEach | None = option(
        None,
        "z, one for all clients or one for each: the noise on the update has standard deviation z * "
        "clipping_norm. null: 1 without a budget; with a budget (epsilon), the noise that spends it in the "
        "planned releases",
    )
    neighbors: Neighbors = option(
        "add_or_remove",
        "how neighboring data sets differ: one client sends only noise instead of its updates, or its data is replaced",
    )


class ParticipationRule(Config):
    """How often a user may be in the server's sums, enforced at the server's gate."""

    min_separation: Count = option(
        1, "b: a user that was in sum number n may next be in number n + b; 1: once in each sum"
    )
    at_most: Count | None = option(None, "k: the largest number of sums that a user is in; null: any")
    early: Literal["wait", "send_away"] = option(
        "wait",
        "a user that comes too early: it waits at the server before it reads the model, or its update is thrown away "
        "(column early of clients)",
    )


class TreeNoise(Config):
    """Binary trees over the server's releases (DP-FTRL)."""

    correlated: Literal["tree"] = variant("tree")
    restart_every: Count | None = option(
        None,
        "releases after which a new tree begins, which users then spend anew; null: one tree. With restarts, the noise "
        "of a user's releases in one tree is larger, and the noise of all trees adds up in the model",
    )
    estimate: Literal["efficient", "nodes"] = option(
        "efficient",
        "efficient: the noise of a node is reduced by the nodes below it (Honaker 2015); nodes: each node alone",
    )


class SquareRootNoise(Config):
    """A banded matrix with the first coefficients of 1 / sqrt(1 - x)."""

    correlated: Literal["square_root"] = variant("square_root")
    bands: Annotated[int, Within(at_least=1, at_most=1000)] = option(
        8, "number of diagonals, at most participation.min_separation"
    )


class BandedNoise(Config):
    """The banded matrix with the least mean squared error (BandMF).

    jax_privacy computes it.
    """

    correlated: Literal["banded"] = variant("banded")
    bands: Annotated[int, Within(at_least=1, at_most=1000)] = option(
        8, "number of diagonals, at most participation.min_separation"
    )


class BltNoise(Config):
    """The buffered linear Toeplitz matrix with the least maximal error.

    jax_privacy computes it.
    """

    correlated: Literal["blt"] = variant("blt")
    buffers: Annotated[int, Within(at_least=1, at_most=8)] = option(
        2, "number of geometric sequences that make up the matrix; each is a vector that the server keeps"
    )


ServerNoise = Annotated[TreeNoise | SquareRootNoise | BandedNoise | BltNoise, ByKind("correlated")]


class AdaptiveClipping(Config):
    """A norm that follows a quantile of the norms of users' updates.

    The server learns it from noisy counts, which the same epsilon covers (Andrew et al. 2021).
    """

    kind: Literal["adaptive"] = variant("adaptive")
    start: Positive = option(0.1, "the norm of the first sum")
    quantile: OpenShare = option(0.5, "gamma, the fraction of updates that are not clipped in the long run")
    learning_rate: Positive = option(
        0.2, "eta: the norm changes by a factor exp(-eta (fraction that is not clipped - gamma))"
    )
    count_noise: NonNegative | None = option(
        None,
        "standard deviation of the noise on the number of updates that are not clipped, more than half of "
        "noise_multiplier; null: a twentieth of the users of a sum (0 without noise)",
    )


class CohortGaussian(_MultipliedGaussian):
    """Gaussian noise of a trusted server on sums of users' clipped updates.

    `mechanism: gaussian` with `unit: user` means the same. A user is a client with all of its examples.
    """

    each = ("epsilon",)
    protects = "user"
    #: Whether users round their updates and add discrete noise.
    discrete: ClassVar[bool] = False
    mechanism: Annotated[
        Literal["gaussian_cohort"], WithJsonSchema({"enum": ["gaussian_cohort", "gaussian"], "type": "string"})
    ] = variant("gaussian_cohort")
    unit: Literal["user"] = option("user", "what is protected: all data of a user")
    where: Literal["server", "secure_sum"] = option(
        "server",
        "who adds the noise: the server, once for each sum of updates, which it sees; or each user a part of it "
        "(secure_sum), where the server sees sums of at least algorithm.secure_sum.threshold updates only",
    )
    colluding: Index = option(
        0,
        "users of a secure sum that may tell the server their noise and others' secret shares that they hold: t "
        "- colluding parts make the whole noise",
    )
    clipping_norm: Annotated[float | AdaptiveClipping, ByKind(default="adaptive", number=Within(above=0))] = option(
        1.0,
        "C, the bound on the L2 norm of a user's update: a number, or adaptive, which follows a quantile of the norms",
    )
    noise_multiplier: NonNegative | None = option(
        None,
        "z: the noise on a sum of updates has standard deviation z * clipping_norm, however many they are; with "
        "an adaptive norm that on sum and count together. null: 1 without a budget; with a budget (epsilon), the "
        "noise that spends it in the planned releases",
    )
    neighbors: Neighbors = option(
        "add_or_remove",
        "how neighboring data sets differ: one user adds nothing to the sums, or its data is replaced; other users "
        "take part as they did",
    )
    view: Literal["central"] = option("central", "what the adversary sees: the models that the server releases")  # type: ignore[assignment]
    cohorts: Literal["algorithm", "poisson"] = option(
        "algorithm",
        "who is in a sum: the users that the algorithm chooses or that come, or each user with probability "
        "algorithm.fraction, drawn anew for every sum (poisson, with fedavg), which amplifies privacy where nothing "
        "else shows who was drawn",
    )
    groups: Count | None = option(
        None,
        "b: users are split into b groups at random, and the server draws from them in turn, with probability b "
        "algorithm.fraction, so that users are b sums apart; with `cohorts: poisson`. Noise in at most b bands "
        "is then amplified, too. null: from all users",
    )
    participation: ParticipationRule | None = option(
        None, "how often a user may be in a sum; null: as often as it comes, also several times in one"
    )
    releases: Count | None = option(
        None,
        "number of sums that the server makes; the last one ends the run; null: any; amplification by poisson and "
        "correlated noise need it",
    )
    noise: ServerNoise | None = option(
        None,
        "how noise is correlated over the server's releases, so that their sum has less of it; it needs releases and "
        "participation. null: the noise of each release is independent",
    )

    @property
    def of_sums(self) -> CohortGaussian:
        """The section itself."""
        return self

    @property
    def correlated(self) -> str | None:
        """The correlation of its noise; None for independent noise."""
        return None if self.noise is None else self.noise.correlated

    @property
    def adaptive(self) -> AdaptiveClipping | None:
        """How the clipping norm follows the updates; None if it is fixed."""
        return self.clipping_norm if isinstance(self.clipping_norm, AdaptiveClipping) else None

    @property
    def most_of_a_user(self) -> int | None:
        """The largest number of releases that a user can be in; None for any number."""
        rule, ends = self.participation, []
        if rule is not None and rule.at_most is not None:
            ends.append(rule.at_most)
        if self.separation is not None and self.releases is not None:
            ends.append(-(-self.releases // self.separation))
        return min(ends, default=None)

    @property
    def separation(self) -> int | None:
        """The least distance of two sums of a user; None without a rule."""
        return self.groups if self.participation is None else self.participation.min_separation


class DiscreteGaussian(CohortGaussian):
    """Discrete Gaussian noise that users add in parts to a secure sum.

    Updates are rounded to a grid. The bits of the sum decide how fine it is.
    """

    discrete: ClassVar[bool] = True
    mechanism: Literal["discrete_gaussian"] = variant("discrete_gaussian")  # type: ignore[assignment]
    where: Literal["secure_sum"] = option("secure_sum", "who adds the noise: each user a part of it")
    clipping_norm: FixedNorm = option(1.0, "C, the bound on the L2 norm of a user's update")
    noise_multiplier: NonNegative = option(
        1.0,
        "z: the noise of t - colluding users on a sum has standard deviation z * clipping_norm; rounding lowers what "
        "is accounted for",
    )


NoiseOn = Annotated[
    Literal["all", "first_convolution"],
    Field(
        description="which parameters get noise: all, or only those of the first convolution, as in the MAPA paper; "
        "first_convolution protects nothing and is never certified"
    ),
]


class LaplaceL2(Accounted):
    """L2 Laplace noise on the sum of per-example clipped gradients: pure DP.

    Its density is proportional to exp(-eps |x| / Delta).
    """

    each = ("epsilon", "epsilon_per_release")
    second_moment = "exact"
    mechanism: Literal["laplace_l2"] = variant("laplace_l2")
    clipping_norm: FixedNorm = option(1.0, "C, the bound on the L2 norm of each example's gradient")
    epsilon_per_release: PositiveEach = option(
        1.0, "epsilon of one release without sampling, one for all clients or one for each"
    )
    noise_on: NoiseOn = "all"


class Laplace(Accounted):
    """Laplace noise on every coordinate of the clipped sum: pure DP.

    The noise is large in high dimension.
    """

    each = ("epsilon", "epsilon_per_release")
    mechanism: Literal["laplace"] = variant("laplace")
    clipping_norm: FixedNorm = option(1.0, "C, the bound on the L2 norm of each example's gradient")
    epsilon_per_release: PositiveEach = option(
        1.0, "epsilon of one release without sampling, one for all clients or one for each"
    )


class UnclippedGaussian(MechanismConfig):
    """Gaussian noise on gradients without clipping: never certified.

    Some papers print it like this.
    """

    mechanism: Literal["gaussian_unclipped"] = variant("gaussian_unclipped")
    noise_std: NonNegative = option(1.0, "standard deviation of the noise on the sum, per coordinate")


CORE = Gaussian | GaussianUpdate | CohortGaussian | DiscreteGaussian | LaplaceL2 | Laplace | UnclippedGaussian


def renewed(privacy: Mapping[str, Any]) -> Mapping[str, Any]:
    """Rewrite mechanism gaussian with `unit: user` as `gaussian_cohort`.

    `quantize: false`, which earlier versions wrote beside results, changes nothing and is dropped.
    """
    privacy = {key: value for key, value in privacy.items() if key != "quantize" or value is not False}
    if privacy.get("unit") == "user" and privacy.get("mechanism", "gaussian") == "gaussian":
        return {**privacy, "mechanism": "gaussian_cohort"}
    return privacy
