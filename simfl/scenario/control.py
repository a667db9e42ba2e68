"""The end of a run, its evaluations, its records and its execution."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, get_args

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
    auto_or,
    option,
)
from simfl.scenario.problems import Problem, invalid, one_of, show, suggestion


class Init(Config):
    """The initial model: that of another run, or from a file."""

    source: ContentFile = Field(
        alias="from", description="folder of a run, or an .npz file with arrays of the names and shapes of the model"
    )


class Stop(Config):
    """The end of the run: the first condition that is met.

    At least one of time, updates and epochs is needed.
    """

    time: PositiveSeconds | None = option(None, "virtual time; the run has what happens before it, not at it")
    updates: Count | None = option(None, "number of mini-batches of all clients together")
    epochs: Positive | None = option(None, "number of passes over the whole training set")
    accuracy: Share | None = option(None, "test accuracy at which the run ends, checked in each evaluation")

    suboptimality: Positive | None = option(
        None,
        "training loss above its minimum at which the run ends, checked in each evaluation; for data whose optimum "
        "is known (quadratic, linear, logistic)",
    )
    metric: Text | None = option(
        None,
        "a column of metrics, such as test_loss or one of your own model, that ends the run when an "
        "evaluation reaches `at_least` or `at_most`",
    )
    at_least: Number | None = option(None, "the run ends when `metric` is at least this value")
    at_most: Number | None = option(None, "the run ends when `metric` is at most this value")

    def problems(self) -> Iterator[Problem]:
        """Yield a goal without a bound or a metric, and a run that may never end."""
        given = [name for name in ("at_least", "at_most") if getattr(self, name) is not None]
        if self.metric is None and given:
            yield Problem("a metric beside it", "none", "add metric, or remove it", (given[0],))
        if self.metric is not None and len(given) != 1:
            found = "both" if given else "neither"
            yield Problem("at_least or at_most beside it", found, "give one of them", ("metric",))
        if self.time is None and self.updates is None and self.epochs is None:
            goals = [name for name in ("accuracy", "suboptimality") if getattr(self, name) is not None]
            goal = goals[0] if goals else self.metric
            found = "none of them" if goal is None else f"only {goal}, which may never be reached"
            yield Problem("at least one of time, updates and epochs", found, "add for example epochs: 20")


class Every(Config):
    """How often: by exactly one of time, updates and epochs."""

    time: PositiveSeconds | None = option(
        None, "virtual time between evaluations; each has what happened before it, not at it"
    )
    updates: Count | None = option(None, "updates of all clients together between evaluations")
    epochs: Positive | None = option(None, "epochs between evaluations")

    def problems(self) -> Iterator[Problem]:
        """Yield a problem unless one interval is given."""
        return exactly_one(self, "time", "updates", "epochs")


def _metrics(value: object) -> object:
    """Reject anything but a list of distinct metrics, and name the valid ones."""
    if not isinstance(value, list | tuple):
        raise invalid(f"a list of {one_of(METRICS)}", show(value), "write it in brackets")
    for name in value:
        if name not in METRICS:
            raise invalid(one_of(METRICS), show(name), suggestion(name, METRICS, "choose one of them"))
    if len(set(value)) < len(value):
        raise invalid("different metrics", show(list(value)), "list each once")
    return value


Metric = Literal[
    "macro_f1", "balanced_accuracy", "auc", "worst_decile", "worst_decile_models",
    "own_classes", "own_classes_models",
    "mae", "rmse", "r2",
    "suboptimality", "distance",
]  # fmt: skip
METRICS: tuple[str, ...] = get_args(Metric)
"""Metrics beside loss and accuracy; `simfl.tape.measures` defines them."""
OF_REGRESSIONS = ("mae", "rmse", "r2")
"""The metrics of real-valued targets."""
OF_KNOWN_OPTIMA = ("suboptimality", "distance")
"""The metrics of problems whose optimum is known; all others are of classes."""


def _own_or_flag(value: object) -> object:
    if value == "own" or isinstance(value, bool):
        return value
    raise invalid("true, false or own", show(value), "own: the test examples of the client itself")


OwnOrFlag = Annotated[Flag | Literal["own"], BeforeValidator(_own_or_flag)]


class Evaluate(Config):
    """When loss and accuracy are measured, and of which models."""

    every: Annotated[Every, Short("time", text=True)] = option(
        Every(epochs=1.0), "how often the average model is evaluated"
    )
    clients: OwnOrFlag = option(
        False,
        "evaluate each client's own model as well: true on the common test set, own on the client's own test examples. "
        "Those are its owner's, or have its mix of labels; metrics then have own_accuracy and its kin",
    )
    local_steps: Index = option(
        0,
        "mini-batches of its own training examples on which each client trains the model before its own test, with "
        "clients: own; what comes of it is measured and dropped",
        exclude_if=lambda value: not value,
    )
    local_step_size: Positive | None = option(
        None,
        "step size of `local_steps`; null: the algorithm's for its first update",
        exclude_if=lambda value: value is None,
    )
    local_parts: Literal["all", "personal"] = option(
        "all",
        "what `local_steps` train: all of the model, or the parts that `personal` names",
        exclude_if=lambda value: value == "all",
    )
    gradients: Index = option(
        0,
        "measure the gradients of this number of training examples, the first ones without those that only attackers "
        "hold, at the average model, clipped as in the run and without noise: metrics then have gradient_norm, "
        "clipped_share and clipping_norm",
    )
    metrics: Annotated[tuple[Metric, ...], BeforeValidator(_metrics)] = option(
        (),
        "further columns of metrics. For classifiers: macro_f1, balanced_accuracy, auc (one against the "
        "rest), worst_decile (accuracy on own training examples, mean of the lowest tenth of clients), "
        "worst_decile_models (the same for clients' own models on the test set, with `clients`), own_classes (accuracy "
        "on the test set in each client's mix of classes, mean of clients), own_classes_models (the same for clients' "
        "own models, each on its own mix, with `clients`). For regressions: mae, "
        "rmse, r2. For data whose optimum is known (quadratic, linear, logistic): suboptimality (training loss above "
        "its minimum) and distance (from the model to the minimizer). The metrics of your own model are always columns",
    )

    def problems(self) -> Iterator[Problem]:
        """Yield a metric of client models that are not evaluated."""
        of_models = [name for name in self.metrics if name.endswith("_models")]
        if of_models and not self.clients:
            name = of_models[0]
            expected, advice = f"true with metric '{name}'", f"set it, or choose {name.removesuffix('_models')}"
            yield Problem(expected, show(self.clients), advice, ("clients",))
        if "worst_decile_models" in of_models and self.clients == "own":
            yield Problem("true with metric 'worst_decile_models'", "'own'", "own_accuracy_worst has it", ("clients",))
        if self.local_steps and self.clients != "own":
            yield Problem("own with local_steps", show(self.clients), "each client tests what it trained", ("clients",))
        for option_name in ("local_step_size", "local_parts"):
            if not self.local_steps and getattr(self, option_name) not in (None, "all"):
                yield Problem("local_steps beside it", "none", "add local_steps: 5, or remove it", (option_name,))


AutoOrCount = Annotated[
    int | Literal["auto"],
    auto_or(Within(at_least=1).integer, "an integer >= 1", "a whole number"),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"const": "auto"}]}),
]


class Execution(Config):
    """How the recorded operations are executed; results do not depend on the window."""

    window: AutoOrCount = option("auto", "number of updates that are recorded before they are executed together")
    width: AutoOrCount = option("auto", "number of operations executed in parallel in one step")
    precision: Literal["float32", "bfloat16"] = option(
        "float32",
        "factors of the matrix products in gradients; sums, models, clipping, noise and evaluations are float32",
    )
    devices: AutoOrCount = option(
        "auto",
        "devices that compute side by side: cores of a CPU, or GPUs, with `width` operations each. auto: all cores of "
        "this process, if a gradient of the model takes a millisecond or so (tables do not depend on their number), "
        "else one device",
    )


_PLAYED = ("updates", "messages", "timeline")


class Record(Config):
    """Which tables are written besides metrics and clients."""

    removed: ClassVar[Mapping[str, str]] = {
        "tape": "delete it: simfl sweep plays runs that differ in arithmetic alone together"
    }
    updates: Flag = option(True, "one row per update")
    messages: Flag = option(False, "one row per message")
    timeline: Flag = option(False, "one row per interval of a client: computing, waiting, communicating, offline")
    epsilon: Flag = option(True, "one row per client and evaluation, where epsilon is certified")
    client_models: Flag = option(
        False, "each client's own model at the end, beside the one that the run keeps in any case"
    )
    play: Flag = option(False, "what `simfl play` shows: updates, messages and timeline")

    @model_validator(mode="before")
    @classmethod
    def _played(cls, data: Any) -> Any:
        """Add the tables that `play` stands for, unless the section names them.

        `tape: false`, which earlier versions wrote beside results, changes nothing and is dropped.
        """
        if not isinstance(data, Mapping):
            return data
        data = {key: value for key, value in data.items() if key != "tape" or value is not False}
        return {**dict.fromkeys(_PLAYED, True), **data} if data.get("play") is True else data

    def problems(self) -> Iterator[Problem]:
        """Yield tables that `play` needs and the section turns off."""
        for name in _PLAYED if self.play else ():
            if not getattr(self, name):
                yield Problem("true beside play: true", "false", "remove it, or play", (name,))
