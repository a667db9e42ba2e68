"""Models with flat parameter vectors."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from simfl.scenario.data import TargetKind
from simfl.scenario.fields import ByKind, NonNegative, OwnCode, OwnName, option
from simfl.scenario.sections import ClassSection, Sections


class ModelConfig(ClassSection):
    """Base of all models."""

    tasks: ClassVar[tuple[TargetKind, ...]] = ("classes", "binary", "unknown")
    convolutional: ClassVar[bool] = False
    tokens: ClassVar[bool] = False
    """Whether the model takes sequences of tokens."""

    @property
    def regression(self) -> bool:
        """Whether the model fits real-valued targets instead of classes."""
        return "regression" in self.tasks

    l2: NonNegative = option(0.0, "lambda of the penalty lambda/2 ||w||² on all parameters")


class ExternalModel(ModelConfig, OwnCode):
    """A model of your own, from a function or class of a module."""

    tasks: ClassVar[tuple[TargetKind, ...]] = ("classes", "binary", "regression", "points", "tokens", "unknown")

    kind: OwnName = Field(description="module and function (or class) that makes the model, as in my_net:make")
    targets: Literal["classes", "values"] = option(
        "classes", "what the labels of a data file are to it: classes, or values as they stand, as for a regression"
    )

    @property
    def regression(self) -> bool:
        """Whether targets are values."""
        return self.targets == "values"


ModelConfig.variants = Sections(
    "simfl.models:MODELS",
    lambda _: ModelConfig,
    "{}",
    "linear quadratic logistic one_vs_all softmax svm mlp cnn lenet5 resnet vgg mobilenet",
    ExternalModel,
)
Model = Annotated[ModelConfig, ByKind(default="softmax", external=ExternalModel)]
