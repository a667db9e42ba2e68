"""Sections of the without-replacement paper: its noise and its algorithms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from simfl.papers.without_replacement.steps import RootOfCount
from simfl.scenario.algorithms.base import AlgorithmConfig, Sections
from simfl.scenario.fields import Count, Positive, Settled, Share, Within, auto_or, option, variant
from simfl.scenario.privacy import MechanismConfig
from simfl.scenario.problems import InvalidValueError, Problem, show
from simfl.scenario.schedules import ConstantStep, InverseStep, Schedule, StepSize
from simfl.scenario.seams import Uses


def _auto_or_positive(value: object) -> object:
    if value is None or value == "auto":
        return value
    if isinstance(value, str):
        raise InvalidValueError(Problem("auto, null or a number > 0", show(value), "write one of them"))
    return Within(above=0).number(value)


AutoOrPositive = Annotated[
    float | Literal["auto"] | None,
    BeforeValidator(_auto_or_positive),
    WithJsonSchema(
        {
            "anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"const": "auto"}, {"type": "null"}],
            "format": "auto or number > 0",
        }
    ),
]


class OnePassGaussian(MechanismConfig):
    """Gaussian noise on the mean gradient, for examples that are used once.

    It is the noise of the without-replacement paper.
    """

    counts_uses = True
    mechanism: Literal["one_pass_gaussian"] = variant("one_pass_gaussian")
    epsilon: Positive = option(1.0, "epsilon for which the noise is computed")
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
        default="auto",
        description="delta for which the noise is computed, also the reported one; auto: 1/n², n the "
        "number of examples of all clients",
    )
    lipschitz: Positive | None = option(
        None,
        "L, the norm to which each example's gradient is clipped, so that the guarantee holds for any data; "
        "null: the paper's value for logistic regression, 1 without l2 and 1 + l2 R with it (1 is enough, because the "
        "gradient of the penalty is not secret)",
    )
    calibration: Literal["analytic", "classic"] = option(
        "analytic",
        "how the noise is computed; analytic: exact for every epsilon; classic: sqrt(2 ln(1.25/delta))/epsilon, as in "
        "the paper",
    )
    budget: Literal["joint", "per_task"] = option(
        "joint",
        "joint: epsilon covers an example in all tasks and at all clients that hold it; per_task: epsilon "
        "covers one task (model) and one client, as in the paper, and all of them together cost more",
    )


class UnclippedOnePass(OnePassGaussian):
    """The noise of one_pass_gaussian without clipping: never certified.

    The paper's listings do not clip.
    """

    mechanism: Literal["one_pass_gaussian_unclipped"] = variant("one_pass_gaussian_unclipped")  # type: ignore[assignment]
    lipschitz: Positive | None = option(
        None,
        "L, the bound on gradients for which the noise is computed; gradients should not exceed it. null: 1 "
        "without l2 and 1 + l2 R with it",
    )


Order = Literal["random", "round_robin", "fewest", "rounds"]


class PassedModels(AlgorithmConfig):
    """Base of algorithms that pass on a global model and use each example up."""

    uses: ClassVar[Uses] = Uses(graph="none", channel="passes", sum="passes", gradient="of_task", counts_examples=True)
    fixed: ClassVar[Mapping[str, str]] = {
        "small_clients": "it uses each example up, in batches of one size",
        "optimizer": "its bounds, and Lemma 5's account, are those of plain projected steps",
    }
    #: Whether nodes have models of their own in addition to the global one.
    own_models: ClassVar[bool] = False

    step_size: StepSize | None = Field(  # type: ignore[assignment]
        default=None,
        description="step size of a mini-batch; null: the paper's, 0.1 without l2 and 2/(l2 t) with it, t counting "
        "the updates of a task from 1",
    )
    batch_size: Count = Field(default=50, description="examples per mini-batch")
    sampling: Literal["shuffle"] = Field(
        default="shuffle", description="each example is used once per pass, in an order drawn for each task"
    )
    step_clip: Settled[AutoOrPositive] = Field(
        default="auto",
        description="largest step size; auto: 1/(2 (1 + l2)), as Lemma 5 needs it; null: none, as in the paper's "
        "experiments",
    )
    projection: Settled[AutoOrPositive] = Field(
        default="auto",
        description="radius of the ball onto which models are projected after each gradient step; auto: 1/l2 with l2, "
        "none without; null: no projection, as in the paper's listings",
    )
    order: Order = Field(
        default="random",
        description="which waiting node gets a task's model next; random; round_robin: by number; fewest: that with "
        "the fewest batches of the task; rounds: every node acts once per round",
    )

    def contradictions(self, scenario: Sections) -> Iterator[Problem]:
        """Yield a conflict if shared examples have noise that ignores their uses."""
        privacy = scenario.privacy
        what = "tasks on the same data" if scenario.model.kind == "one_vs_all" else ""
        if self.own_models:
            what = f"algorithm '{self.kind}'"
        if what and privacy is not None and not privacy.counts_uses:
            yield Problem(f"one_pass_gaussian for {what}", repr(privacy.mechanism), "use it", ("privacy", "mechanism"))

    def steps(self, l2: float) -> Schedule:
        """Return the step size of a task's t-th update."""
        return self.step_size if self.step_size is not None else self.usual_steps(l2)

    def usual_steps(self, l2: float) -> Schedule:
        """Return the step sizes of the paper's experiments."""
        return InverseStep(initial=2.0 / l2, beta=1.0) if l2 else ConstantStep(value=0.1)

    def largest_step(self, l2: float) -> float:
        """Return the bound on the step sizes."""
        if self.step_clip == "auto":
            return 1.0 / (2.0 * (1.0 + l2))
        return math.inf if self.step_clip is None else self.step_clip

    def radius(self, l2: float) -> float | None:
        """Return the radius of the projection, None for none."""
        if self.projection == "auto":
            return 1.0 / l2 if l2 else None
        return self.projection


class WithoutReplacementSgd(PassedModels):
    """A passed global model that uses each example once.

    With one_pass_gaussian, this is the paper's Algorithm 1.
    """

    kind: Literal["without_replacement_sgd"] = variant("without_replacement_sgd")
    contention: Literal["token", "race"] = Field(
        default="token",
        description="token: one node at a time may update a task's model; race: nodes compute on what they have, and "
        "steps may be stale",
    )

    @model_validator(mode="after")
    def _order_of_a_race(self) -> Self:
        if self.contention == "race" and self.order in ("fewest", "rounds"):
            expected = "random or round_robin with contention: race, in which no node waits"
            raise InvalidValueError(Problem(expected, show(self.order), "choose one, or contention: token", ("order",)))
        return self


class DeepQSgd(PassedModels):
    """A deep-Q network chooses, for each batch, the node's own or the global model.

    This is the paper's Algorithm 2.
    """

    own_models: ClassVar[bool] = True

    kind: Literal["deep_q_sgd"] = variant("deep_q_sgd")
    order: Order = Field(
        default="rounds",
        description="rounds: every node acts once per round of a task, as in the listing. With other values, Local "
        "steps wait for no other node, and the model goes to a waiting node: random, round_robin (by number), or "
        "fewest (batches of the task)",
    )
    step_size: StepSize | None = Field(
        default=None,
        description="step size of a mini-batch; null: the paper's, 0.1 without l2 and 1/(a l2 t) with it, t counting "
        "a node's batches of a task from 1, a half of explore_to",
    )
    explore_from: Share = Field(default=1.0, description="probability of a random action at the beginning")
    explore_to: Share = Field(
        default=0.1,
        description="probability of a random action at the end; 1, with explore_from: 1, decides by coin, the only "
        "case that the proof covers",
    )
    anneal: Share = Field(
        default=0.5, description="fraction of a node's batches during which that probability falls linearly"
    )
    discount: Share = Field(default=0.99, description="weight of the value of the next state")
    learning_rate: Positive = Field(default=0.01, description="learning rate of Adam, which trains the network")
    hidden: Count = Field(default=128, description="neurons of the hidden layer; all layers are linear")
    memory: Count = Field(default=20, description="number of transitions that are remembered")
    replay: Count = Field(default=10, description="transitions drawn from the memory for each training step")
    reset_every: Count = Field(default=10, description="training steps between two updates of the target network")
    reward: Literal["after", "before"] = Field(
        default="after",
        description="minus the loss on the used batch: of the model after the action, or of the model before it, as "
        "printed in the listing",
    )
    network: Literal["pair", "node"] = Field(
        default="pair", description="pair: one network for each task of a node; node: one for all tasks of a node"
    )

    @model_validator(mode="after")
    def _enough_memory(self) -> Self:
        if self.replay > self.memory:
            expected = f"at most memory, which is {self.memory}"
            raise InvalidValueError(Problem(expected, str(self.replay), "lower it or raise memory", ("replay",)))
        return self

    def usual_steps(self, l2: float) -> Schedule:
        """Return the paper's step sizes: a >= explore_to / 2 (Remark 9)."""
        least = max(self.explore_to / 2, 1e-6)
        return InverseStep(initial=1.0 / (least * l2), beta=1.0) if l2 else ConstantStep(value=0.1)


class RandomWalkSgd(PassedModels):
    """A global model on a random walk; each example is used `visits` times.

    This is the paper's DP-SGD-5.
    """

    kind: Literal["random_walk_sgd"] = variant("random_walk_sgd")
    visits: Count = Field(
        default=5, description="how often an example is used; one_pass_gaussian divides epsilon by it"
    )
    step_size: StepSize | None = Field(
        default=None,
        description="step size of a mini-batch; null: 1/sqrt(t), t counting the updates of a task from 1",
    )

    def usual_steps(self, l2: float) -> Schedule:
        """Return 1/sqrt(t)."""
        return RootOfCount(1.0)
