"""Models with flat parameter vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from simfl.scenario.data import TargetKind
from simfl.scenario.fields import Config, Count, Flag, NonNegative, OwnCode, OwnName, option, variant


class ModelConfig(Config):
    """Base of all models."""

    tasks: ClassVar[tuple[TargetKind, ...]] = ("classes", "binary", "unknown")
    convolutional: ClassVar[bool] = False
    tokens: ClassVar[bool] = False
    """Whether the model takes sequences of tokens."""

    if TYPE_CHECKING:  # each class names itself
        kind: str

    @property
    def regression(self) -> bool:
        """Whether the model fits real-valued targets instead of classes."""
        return "regression" in self.tasks

    l2: NonNegative = option(0.0, "lambda of the penalty lambda/2 ||w||² on all parameters")


class Linear(ModelConfig):
    """Linear regression with the squared error."""

    tasks: ClassVar[tuple[TargetKind, ...]] = ("regression", "unknown")
    kind: Literal["linear"] = variant("linear")
    intercept: Flag = option(True, "add a constant term")


class Quadratic(ModelConfig):
    """The loss 1/2 (w - a_i)^T H (w - a_i) of each example a_i.

    H has the curvatures of the data set quadratic. Problems given as matrices have 1/2 w^T A_i w - b_i^T w.
    """

    tasks: ClassVar[tuple[TargetKind, ...]] = ("points",)
    kind: Literal["quadratic"] = variant("quadratic")


class Logistic(ModelConfig):
    """Binary logistic regression."""

    tasks: ClassVar[tuple[TargetKind, ...]] = ("binary", "unknown")
    kind: Literal["logistic"] = variant("logistic")
    intercept: Flag = option(True, "add a constant term")


class OneVsAll(ModelConfig):
    """A binary logistic regression for each class; the largest score wins."""

    kind: Literal["one_vs_all"] = variant("one_vs_all")
    intercept: Flag = option(True, "add a constant term to each task")


class Softmax(ModelConfig):
    """Softmax regression over the classes."""

    kind: Literal["softmax"] = variant("softmax")
    intercept: Flag = option(True, "add a constant term to each class")


class Svm(ModelConfig):
    """A linear support vector machine over the classes."""

    kind: Literal["svm"] = variant("svm")
    intercept: Flag = option(True, "add a constant term to each class")
    loss_kind: Literal["crammer_singer", "one_vs_rest"] = option(
        "crammer_singer",
        "hinge of the margin to the worst other class (crammer_singer), or one hinge for each class (one_vs_rest)",
    )


class Mlp(ModelConfig):
    """A multi-layer perceptron."""

    kind: Literal["mlp"] = variant("mlp")
    hidden: Annotated[tuple[Count, ...], Field(min_length=1)] = option(
        (64,), "width of each hidden layer, from the input on"
    )
    activation: Literal["relu", "tanh"] = option("relu", "non-linearity of the hidden layers: relu or tanh")


class Cnn(ModelConfig):
    """The CNN of the MAPA paper, for images.

    It has two small convolutions with pooling and a dense layer.
    """

    convolutional: ClassVar[bool] = True
    kind: Literal["cnn"] = variant("cnn")
    filters: tuple[Count, Count] = option((10, 10), "number of filters of each of the two 5 x 5 convolutions")
    activation: Literal["relu", "tanh"] = option("relu", "non-linearity: relu or tanh")


class LeNet5(ModelConfig):
    """LeNet-5, a small convolutional network for images."""

    convolutional: ClassVar[bool] = True
    kind: Literal["lenet5"] = variant("lenet5")
    activation: Literal["relu", "tanh"] = option("relu", "non-linearity: relu or tanh (the paper's)")


class ResNet(ModelConfig):
    """A residual convolutional network for CIFAR-10, with group normalization.

    ResNet-18 is {blocks: 2, channels: [64, 128, 256, 512], normalized_projections: true}.
    """

    convolutional: ClassVar[bool] = True
    kind: Literal["resnet"] = variant("resnet")
    blocks: Count = option(1, "residual blocks in each stage: 2 stages * blocks + 2 layers")
    channels: Annotated[tuple[Count, ...], Field(min_length=1)] = option(
        (16, 32, 64), "channels of each stage, multiples of 8; each stage after the first halves the side"
    )
    normalized_projections: Flag = option(
        False, "normalize the 1 x 1 projections between stages, too, as ResNet-18 does"
    )


class Vgg(ModelConfig):
    """VGG-11, 13, 16 or 19 for CIFAR-10, with group normalization and one dense layer."""

    convolutional: ClassVar[bool] = True
    kind: Literal["vgg"] = variant("vgg")
    depth: Literal[11, 13, 16, 19] = option(19, "layers with weights in the paper, of which three were dense")
    channels: Annotated[tuple[Count, ...], Field(min_length=5, max_length=5)] = option(
        (64, 128, 256, 512, 512), "channels of each of the five stages, multiples of 8"
    )


class MobileNet(ModelConfig):
    """MobileNet (version 1) for CIFAR-10, with group normalization."""

    convolutional: ClassVar[bool] = True
    kind: Literal["mobilenet"] = variant("mobilenet")
    channels: Annotated[tuple[Count, ...], Field(min_length=2)] = option(
        (32, 64, 128, 256, 512, 1024), "channels of the first convolution and of each stage, multiples of 8"
    )
    blocks: Annotated[tuple[Count, ...], Field(min_length=1)] = option(
        (1, 2, 2, 6, 2), "blocks of each stage: one number fewer than channels; later stages halve the side"
    )


class SequenceModel(ModelConfig):
    """Base of the models of sequences of tokens."""

    tasks: ClassVar[tuple[TargetKind, ...]] = ("tokens", "unknown")
    tokens: ClassVar[bool] = True

    positions: Literal["all", "last"] = option(
        "all", "whether the loss of an example is the mean over all places of its window, or that of the last one"
    )


class Lstm(SequenceModel):
    """LSTM over the characters of a text, to predict the next one."""

    kind: Literal["lstm"] = variant("lstm")
    width: Count = option(64, "number of units of each layer")
    layers: Count = option(1, "number of layers")


class Transformer(SequenceModel):
    """A small transformer over the characters of a text, which predicts the next one."""

    kind: Literal["transformer"] = variant("transformer")
    width: Count = option(32, "width of the embeddings")
    layers: Count = option(1, "number of blocks; each has attention, and a perceptron with 4 width hidden units")
    heads: Count = option(2, "number of heads of attention, a divisor of width")


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


_OF_IMAGES = Cnn | LeNet5 | ResNet | Vgg | MobileNet
CORE = Linear | Quadratic | Logistic | OneVsAll | Softmax | Svm | Mlp | _OF_IMAGES | Lstm | Transformer
