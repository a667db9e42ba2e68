"""The end of a run, its evaluations, its records and its execution."""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from simfl.scenario.clients import exactly_one
from simfl.scenario.fields import (
    Config,
    ContentFile,
    Count,
    Flag,
    Index,
    Number,
    Positive,
    PositiveSeconds,
    Share,
    Short,
    Text,
    Within,
)
from simfl.scenario.problems import InvalidValueError, Problem, one_of, show, suggestion


class Init(Config):
    """A model to go on from."""

    source: ContentFile = Field(
        alias="from", description="folder of a run, or an .npz file with arrays of the names and shapes of the model"
    )


class Stop(Config):
    """The end of the run: the first condition that is met.

    At least one of time, updates and epochs is needed.
    """

    time: PositiveSeconds | None = Field(default=None, description="virtual time")
    updates: Count | None = Field(default=None, description="mini-batches of all clients together")
    epochs: Positive | None = Field(default=None, description="passes over the whole training set")
    accuracy: Share | None = Field(
        default=None, description="test accuracy at which the run ends, looked at in each evaluation"
    )

    metric: Text | None = Field(
        default=None,
        description="a column of metrics, such as test_loss or one of a model of your own, that ends the run when it "
        "is `at_least`, or `at_most`, so much in an evaluation",
    )
    at_least: Number | None = Field(default=None, description="the value of `metric` from which on the run ends")
    at_most: Number | None = Field(default=None, description="the value of `metric` down to which the run goes on")

    @model_validator(mode="after")
    def _a_bound(self) -> Self:
        given = [name for name in ("at_least", "at_most") if getattr(self, name) is not None]
        if self.metric is None and given:
            raise InvalidValueError(Problem("a metric beside it", "none", "add metric, or remove it", (given[0],)))
        if self.metric is not None and len(given) != 1:
            found = "both" if given else "neither"
            raise InvalidValueError(Problem("at_least or at_most beside it", found, "give one of them", ("metric",)))
        return self

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if self.time is None and self.updates is None and self.epochs is None:
            goal = "accuracy" if self.accuracy is not None else self.metric
            found = "none of them" if goal is None else f"only {goal}, which may never be reached"
            raise InvalidValueError(
                Problem("at least one of time, updates and epochs", found, "add for example epochs: 20")
            )
        return self


class Every(Config):
    """How often: by exactly one of time, updates and epochs."""

    time: PositiveSeconds | None = Field(default=None, description="virtual time between evaluations")
    updates: Count | None = Field(default=None, description="updates of all clients together between evaluations")
    epochs: Positive | None = Field(default=None, description="epochs between evaluations")

    @model_validator(mode="after")
    def _one(self) -> Self:
        problems = exactly_one(self, "time", "updates", "epochs")
        if problems:
            raise InvalidValueError(*problems)
        return self


def _metrics(value: object) -> object:
    """Reject anything but a list of distinct metrics, and name the valid ones."""
    if not isinstance(value, list | tuple):
        raise InvalidValueError(Problem(f"a list of {one_of(METRICS)}", show(value), "write it in brackets"))
    for name in value:
        if name not in METRICS:
            raise InvalidValueError(
                Problem(one_of(METRICS), show(name), suggestion(name, METRICS, "choose one of them"))
            )
    if len(set(value)) < len(value):
        raise InvalidValueError(Problem("different metrics", show(list(value)), "list each once"))
    return value


Metric = Literal["macro_f1", "balanced_accuracy", "auc", "worst_decile", "worst_decile_models", "mae", "rmse", "r2"]
METRICS: tuple[str, ...] = get_args(Metric)
OF_REGRESSIONS = ("mae", "rmse", "r2")
"""Those that are of targets; all others are of classes."""
"""What evaluations may measure beside loss and accuracy; `simfl.tape.measures` says what each is."""


class Evaluate(Config):
    """When loss and accuracy are measured, and of which models."""

    every: Annotated[Every, Short("time", text=True)] = Field(
        default=Every(epochs=1.0), description="how often the average model is evaluated"
    )
    clients: Flag = Field(default=False, description="evaluate each client's own model as well")
    gradients: Index = Field(
        default=0,
        description="measure the gradients of the first training examples, this number, at the average model, clipped "
        "as the run clips them and without noise: metrics then have gradient_norm, clipped_share and clipping_norm",
    )
    metrics: Annotated[tuple[Metric, ...], BeforeValidator(_metrics)] = Field(
        default=(),
        description="further columns of metrics, of classifiers: macro_f1, balanced_accuracy, auc (one against the "
        "rest), worst_decile (accuracy on own training examples, mean of the lowest tenth of clients), "
        "worst_decile_models (the same of clients' own models on the test set, with `clients`); of regressions: mae, "
        "rmse, r2. The metrics of a model of your own are columns in any case",
    )

    @model_validator(mode="after")
    def _own_models(self) -> Self:
        if "worst_decile_models" in self.metrics and not self.clients:
            advice = "set it, or choose worst_decile"
            raise InvalidValueError(
                Problem("true with metric 'worst_decile_models'", show(self.clients), advice, ("clients",))
            )
        return self


def _auto_or_count(value: object) -> object:
    if value == "auto":
        return value
    if isinstance(value, str) or value is None:
        raise InvalidValueError(Problem("auto or an integer >= 1", show(value), "write auto or a whole number"))
    return Within(at_least=1).integer(value)


AutoOrCount = Annotated[
    int | Literal["auto"],
    BeforeValidator(_auto_or_count),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"const": "auto"}]}),
]


class Execution(Config):
    """How the recorded operations are executed; results do not depend on the window."""

    window: AutoOrCount = Field(
        default="auto", description="updates that are recorded before they are executed together"
    )
    width: AutoOrCount = Field(default="auto", description="operations executed side by side in one step")
    devices: Count = Field(
        default=1,
        description="devices (GPUs, or parts of a CPU with a thread each) that share the operations of a step; "
        "width is a multiple",
    )


class Record(Config):
    """Which tables are written besides metrics and clients."""

    updates: Flag = Field(default=True, description="one row per update")
    messages: Flag = Field(default=False, description="one row per message")
    timeline: Flag = Field(
        default=False, description="one row per interval of a client's time: computing, waiting, communicating, away"
    )
    epsilon: Flag = Field(default=True, description="one row per client and evaluation, where epsilon is certified")
    client_models: Flag = Field(
        default=False, description="each client's own model at the end, beside the one that the run keeps in any case"
    )
