"""Models with flat parameter vectors."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from simfl.scenario.data import TargetKind
from simfl.scenario.fields import ByKind, Count, Flag, NonNegative, OwnCode, OwnName, Text, option, variant
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


class Torch(ExternalModel):
    """A network of PyTorch, from a class or function of a module (`simfl.from_torch`)."""

    kind: Literal["torch"] = variant("torch")
    module: OwnName = Field(description="module and class (or function) that makes the network, as in my_net:Net")
    loss: Literal["cross_entropy", "binary", "multi_label", "squared", "huber", "ranking"] = option(
        "cross_entropy", "the loss of the outputs"
    )
    metrics: tuple[Literal["accuracy", "mae", "mse", "exact_match", "bits", "ndcg"], ...] | None = option(
        None, "what evaluations average beside the loss; null: the accuracy, if the loss is for classes"
    )
    trained: tuple[Text, ...] | None = option(
        None, "names of parameters or of parts of the network, or patterns such as '*lora*'; null: all"
    )
    integers: Flag = option(False, "whether examples are integers, such as tokens")
    image: tuple[Count, Count, Count] | None = option(
        None, "channels, height and width, if the network takes images [b, c, h, w]"
    )
    output: Text | None = option(
        None,
        "the part of what a call of the network returns that is its output, such as last_hidden_state; null: logits, "
        "or the first of several",
    )
    dropout: Flag = option(
        False, "whether gradients are those of training mode, with dropout; losses and tests are without it"
    )

    def network(self) -> dict[str, Any]:
        """Return the arguments of `simfl.from_torch` by name."""
        given = {name: getattr(self, name) for name in ("loss", "metrics", "trained", "image", "output", "dropout")}
        return {**given, "tokens": self.integers}


ModelConfig.variants = Sections(
    "simfl.models:MODELS",
    lambda _: ModelConfig,
    "{}",
    "linear quadratic logistic one_vs_all softmax svm mlp cnn lenet5 resnet vgg mobilenet",
    ExternalModel,
    {"torch": Torch},
)
Model = Annotated[ModelConfig, ByKind(default="softmax", external=ExternalModel)]
