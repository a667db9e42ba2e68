"""Local training with updates of many steps: FedAvg, FedProx, FedAsync, FedBuff."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

from simfl.scenario.algorithms.base import AlgorithmConfig, Sections, ServerAlgorithmConfig, states
from simfl.scenario.fields import (
    OF_CLIENTS,
    Arithmetic,
    Count,
    Flag,
    Index,
    NonNegative,
    Positive,
    PositiveSeconds,
    Settled,
    Share,
    option,
    variant,
)
from simfl.scenario.optimizers import USUAL_SERVER_STEPS, Decay
from simfl.scenario.problems import Problem, one_of
from simfl.scenario.seams import Uses
from simfl.scenario.secure_sums import SecureSum, SecureSumConfig


class LocalStepsConfig(AlgorithmConfig):
    """Base of algorithms whose clients train in rounds of many local steps."""

    uses: ClassVar[Uses] = Uses(step="rounds")
    sampling: Literal["auto", "without_replacement", "shuffle", "with_replacement"] = option(
        "auto",
        "how mini-batches are drawn: without_replacement (a new subset of fixed size), shuffle (once per pass), "
        "with_replacement, or auto: shuffle",
    )
    local_steps: Settled[Count | None] = option(
        None, "number of mini-batches of a client's round; null: those of local_epochs"
    )
    local_epochs: Settled[Positive | None] = option(
        None, "number of passes over a client's data in a round; 1 if local_steps is null too"
    )
    #: The mini-batches of a round if both are null; None: those of one pass.
    usual_steps: ClassVar[int | None] = None

    def problems(self) -> Iterator[Problem]:
        """Yield two lengths of a round."""
        if self.local_steps is not None and self.local_epochs is not None:
            yield Problem("local_steps or local_epochs", "both", "remove one of them", ("local_epochs",))

    def contradictions(self, scenario: Sections) -> Iterator[Problem]:
        """Yield a conflict of clipping."""
        privacy = scenario.privacy
        if privacy is not None and privacy.mechanism not in ("gaussian_update", "gaussian_cohort", "discrete_gaussian"):
            advice = "a client sends what many steps changed, which is clipped as a whole"
            yield Problem(
                f"'gaussian_update' with '{self.kind}'", f"'{privacy.mechanism}'", advice, ("privacy", "mechanism")
            )


class LocalRoundsConfig(LocalStepsConfig, ServerAlgorithmConfig):
    """Base of algorithms whose clients train in rounds and have a server."""

    uses: ClassVar[Uses] = replace(ServerAlgorithmConfig.uses, step="rounds")
    fixed: ClassVar[Mapping[str, str]] = states(
        "rounds",
        "crash",
        why="the state of an optimizer of local steps begins anew with each round, or stays at its client",
    )
    optimizer_steps = (*ServerAlgorithmConfig.optimizer_steps, ("server_step", "server_optimizer", USUAL_SERVER_STEPS))

    proximal: Settled[Arithmetic[NonNegative]] = option(
        0.0, "mu of the pull mu (w - w_0) towards the model w_0 that a round began with"
    )
    concurrency: Annotated[Count | None, OF_CLIENTS] = option(
        None, "number of clients that train at a time, chosen at random from those online; null: all"
    )
    secure_sum: Settled[SecureSum | None] = option(
        None,
        "the protocol by which the server learns sums of updates only, with fedavg, fedprox, diloco and fedbuff: "
        "its rounds, bytes and work are simulated, not its cryptography; null: the server sees the updates",
    )

    @property
    def protocol(self) -> SecureSumConfig | None:
        """The value of `secure_sum`."""
        return self.secure_sum

    def contradictions(self, scenario: Sections) -> Iterator[Problem]:
        """Yield also conflicts of secure sums."""
        yield from super().contradictions(scenario)
        yield from self._secure_problems(scenario)

    def _secure_problems(self, scenario: Sections) -> Iterator[Problem]:
        """Yield conflicts of secure sums."""
        secure, at, members = self.secure_sum, ("algorithm", "secure_sum"), self.members(scenario.clients.count)
        if secure is None:
            return
        protocols = self.uses.summing.secure
        if not protocols:
            advice = "its server does more with updates than to sum them; use fedavg, diloco or fedbuff"
            yield Problem(f"null with '{self.kind}'", repr(secure.kind), advice, at)
            return
        if secure.kind not in protocols:
            advice = "clients come at different times, so masks must be exchanged before it is known who is in a sum"
            yield Problem(f"{one_of(protocols)} with '{self.kind}'", repr(secure.kind), advice, (*at, "kind"))
        threshold = secure.threshold_of(members)
        if threshold > members:
            expected = f"at most {members}, the number of clients in a sum"
            yield Problem(expected, str(threshold), "lower it, or sum more", (*at, "threshold"))
        yield from (problem.below(at) for problem in secure.impossible(threshold))


class FedAvg(LocalRoundsConfig):
    """FedAvg: rounds in which some clients train locally and a server averages."""

    uses: ClassVar[Uses] = replace(LocalRoundsConfig.uses, sum="rounds")
    fixed: ClassVar[Mapping[str, str]] = {
        "concurrency": "rounds are synchronous: use fraction",
        "staleness_bound": "remove it: nothing is stale in synchronous rounds",
    }
    kind: Literal["fedavg"] = variant("fedavg")
    concurrency: Settled[Count | None] = option(None, "null: rounds are synchronous")
    fraction: Share = option(1.0, "fraction of the clients that take part in a round, drawn at random")
    weighting: Literal["data", "uniform"] = option(
        "data",
        "how the mean weighs clients: by their examples, or all alike; by default uniform with privacy.unit: user",
    )
    server_step: Arithmetic[Positive] = option(
        1.0,
        "step of the server on the mean change; by default 0.01 with server_optimizer adam, yogi and adagrad",
    )
    deadline: PositiveSeconds | None = option(
        None,
        "largest time of a round, if the update of some client has come by then: later ones are dropped; null: none",
    )

    def settled(self, scenario: Sections) -> Self:
        """Weigh all clients alike by default if users are protected."""
        users = scenario.privacy is not None and scenario.privacy.protects == "user"
        if users and self.uses.summing.noise and "weighting" not in self.model_fields_set:
            return self.with_default("weighting", "uniform")
        return self

    def members(self, clients: int) -> int:
        """Return the number of clients of a round."""
        return max(1, math.ceil(self.fraction * clients - 1e-9))


class FedProx(FedAvg):
    """FedProx: FedAvg with a proximal term, and partial work of stragglers.

    Clients that would miss the deadline make fewer steps.
    """

    kind: Literal["fedprox"] = variant("fedprox")  # type: ignore[assignment]
    proximal: Settled[Arithmetic[NonNegative]] = option(
        0.1, "mu of the pull mu (w - w_0) towards the server's model w_0"
    )


class Scaffold(FedAvg):
    """SCAFFOLD: FedAvg with control variates; two vectors in each message."""

    uses: ClassVar[Uses] = replace(LocalRoundsConfig.uses, channel="two_vectors", sum="corrected", gradient="corrected")
    fixed: ClassVar[Mapping[str, str]] = {
        "optimizer": "its control variates are means of plain steps",
        "proximal": "use fedprox or feddyn",
    }
    kind: Literal["scaffold"] = variant("scaffold")  # type: ignore[assignment]


class FedDyn(FedAvg):
    """FedDyn: FedAvg with a dynamic penalty for each client."""

    uses: ClassVar[Uses] = replace(LocalRoundsConfig.uses, channel="penalties", sum="corrected", gradient="corrected")
    fixed: ClassVar[Mapping[str, str]] = {
        "optimizer": "its penalties are those of plain steps",
        "server_optimizer": "the server's step is that of the penalty",
        "server_step": "its server makes the step of the penalty",
    }
    kind: Literal["feddyn"] = variant("feddyn")  # type: ignore[assignment]
    proximal: Settled[Arithmetic[Positive]] = option(
        0.1, "alpha, weight of the penalty and of the pull to the server's model"
    )
    weighting: Literal["uniform"] = option("uniform", "all clients count alike")


class FedNova(FedAvg):
    """FedNova: FedAvg whose changes count per local step.

    Clients that would miss the deadline make fewer steps.
    """

    uses: ClassVar[Uses] = replace(LocalRoundsConfig.uses, sum="by_steps")
    fixed: ClassVar[Mapping[str, str]] = {"optimizer": "its norms of changes are those of plain steps"}
    kind: Literal["fednova"] = variant("fednova")  # type: ignore[assignment]


class FedAsync(LocalRoundsConfig):
    """FedAsync: a server mixes each arriving model into its own.

    A staler model has less weight.
    """

    uses: ClassVar[Uses] = replace(LocalRoundsConfig.uses, sum="models")
    fixed: ClassVar[Mapping[str, str]] = {
        "server_optimizer": "its server mixes models and takes no step; use fedbuff with buffer_size: 1"
    }
    kind: Literal["fedasync"] = variant("fedasync")
    proximal: Settled[Arithmetic[NonNegative]] = option(
        0.005, "mu (the paper's rho) of the pull mu (w - w_0) towards the model w_0 of the server"
    )
    mixing: Arithmetic[Share] = option(0.6, "alpha, the fraction of a client's model that is not stale")
    weighting: Literal["constant", "polynomial", "hinge"] = option(
        "polynomial",
        "factor on alpha at staleness u: 1 (constant), (u + 1)^-exponent (polynomial), or 1 up to "
        "free_staleness and 1/(slope (u - free_staleness) + 1) beyond (hinge)",
    )
    exponent: Arithmetic[NonNegative] = option(0.5, "exponent of the polynomial")
    slope: Arithmetic[Positive] = option(10.0, "slope of the hinge")
    free_staleness: Index = option(4, "the staleness up to which the hinge takes updates in full")


class BufferedConfig(LocalRoundsConfig):
    """Base of algorithms whose server takes a step when its buffer is full."""

    buffer_size: Count = option(10, "K, updates that make a step of the server")
    after_update: Literal["continue", "wait"] = option(
        "continue",
        "a client whose update is in the buffer goes on from the present model, or waits for the server's step",
    )

    def members(self, clients: int) -> int:
        """Return the size of the buffer."""
        return self.buffer_size

    def contradictions(self, scenario: Sections) -> Iterator[Problem]:
        """Yield also a buffer that waiting clients cannot fill."""
        yield from super().contradictions(scenario)
        at_a_time = min(self.concurrency or scenario.clients.count, scenario.clients.count)
        if self.after_update == "wait" and self.buffer_size > at_a_time:
            expected = f"at most {at_a_time} where clients wait, as many as train at a time"
            advice = "lower it, or use after_update: continue"
            yield Problem(expected, str(self.buffer_size), advice, ("algorithm", "buffer_size"))


class SteppingConfig(BufferedConfig):
    """Base of relatives of FedBuff, whose server has a step size."""

    server_step: Arithmetic[Positive] = option(
        1.0,
        "step of the server on the mean of the buffer; by default 0.01 with server_optimizer adam, yogi and adagrad",
    )


class FedBuff(SteppingConfig):
    """FedBuff: a server takes a step when its buffer of updates is full.

    The clients or the server may add the noise.
    """

    uses: ClassVar[Uses] = replace(LocalRoundsConfig.uses, sum="buffer")
    kind: Literal["fedbuff"] = variant("fedbuff")
    staleness_exponent: Arithmetic[NonNegative] = option(
        0.5, "a of the weight 1/(1 + staleness)^a of an update; 0 weighs all alike"
    )
    noise: Literal["client", "server"] = option(
        "client",
        "who adds the noise of gaussian_update: each client to its update, or the server to the sum of a buffer, "
        "which hides updates from those who see its models, not from the server",
    )

    @property
    def noise_of_server(self) -> bool:
        """Whether the server adds the noise."""
        return self.noise == "server"


class UnweightedConfig(SteppingConfig):
    """Base of relatives of FedBuff whose updates have no weight by staleness."""

    fixed: ClassVar[Mapping[str, str]] = {"staleness_exponent": "remove it, or use fedbuff"}
    staleness_exponent: Arithmetic[NonNegative] = option(
        0.0, "must be 0: updates have no weight that falls with staleness"
    )
    noise: Literal["client"] = option("client", "each client adds the noise to its update")


class CA2FL(UnweightedConfig):
    """CA2FL: FedBuff whose server corrects updates by cached ones."""

    uses: ClassVar[Uses] = replace(LocalRoundsConfig.uses, sum="corrected")
    kind: Literal["ca2fl"] = variant("ca2fl")


class ACE(LocalRoundsConfig):
    """ACE: a server steps at each arrival along the mean of all clients' last updates."""

    uses: ClassVar[Uses] = replace(LocalRoundsConfig.uses, sum="corrected")
    kind: Literal["ace"] = variant("ace")
    usual_steps: ClassVar[int | None] = 1
    local_steps: Settled[Count | None] = option(
        None, "number of mini-batches of a client's round; 1, a gradient as in the paper, if local_epochs is null too"
    )
    local_epochs: Settled[Positive | None] = option(
        None, "number of passes over a client's data in a round; null: local_steps says it"
    )
    server_step: Arithmetic[Positive] = option(
        1.0,
        "step of the server on the mean of the cached updates; by default 0.01 with server_optimizer adam, yogi "
        "and adagrad",
    )
    max_age: Index | None = option(
        None,
        "ACED: the largest age of an update in the mean, in steps of the server since its model was read; null: any",
    )


class FADAS(UnweightedConfig):
    """FADAS: FedBuff whose server steps by AMSGrad, less far with stale updates."""

    uses: ClassVar[Uses] = replace(LocalRoundsConfig.uses, sum="adaptive")
    fixed: ClassVar[Mapping[str, str]] = {"server_optimizer": "its server steps by AMSGrad"}
    kind: Literal["fadas"] = variant("fadas")
    server_step: Arithmetic[Positive] = option(1e-3, "eta, step of the server by AMSGrad")
    beta1: Arithmetic[Decay] = option(0.9, "decay of the mean of updates")
    beta2: Arithmetic[Decay] = option(0.99, "decay of the mean of their squares")
    eps: Arithmetic[Positive] = option(1e-8, "number that is added to the root of the mean of squares")
    delay_threshold: Index | None = option(
        1,
        "tau_c: if an update in the buffer has a staleness tau above it, the step is eta / tau; null: it is always eta",
    )
    bias_correction: Flag = option(
        True, "correct the moments for their start at 0, as the authors' program does; their listing does not"
    )
