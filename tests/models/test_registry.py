"""The registry, and its error messages word for word."""

import re
from typing import Any

import pytest

from simfl.models import MODELS, build_model, model_options


def test_options_are_those_of_the_classes() -> None:
    assert {kind: model_options(kind) for kind in MODELS} == {
        "linear": ("intercept",),
        "quadratic": ("curvature",),
        "logistic": ("intercept",),
        "one_vs_all": ("intercept",),
        "softmax": ("intercept",),
        "mlp": ("hidden", "activation"),
        "lenet5": ("activation",),
        "resnet": ("blocks", "channels", "normalized_projections"),
        "vgg": ("depth", "channels"),
        "mobilenet": ("channels", "blocks"),
        "svm": ("intercept", "loss_kind"),
        "cnn": ("filters", "activation"),
        "lstm": ("positions", "width", "layers"),
        "transformer": ("positions", "width", "layers", "heads"),
    }


def test_lists_are_accepted_and_make_equal_models() -> None:
    listed = build_model("mlp", input_shape=[8, 8], num_classes=10, hidden=[16])
    assert listed == build_model("mlp", input_shape=(8, 8), num_classes=10, hidden=(16,))
    assert hash(listed) == hash(build_model("mlp", input_shape=(8, 8), num_classes=10, hidden=(16,)))


BROKEN: list[tuple[str, dict[str, Any], str]] = [
    ("sofmax", {}, "model: kind: expected one of cnn, lenet5, linear, logistic, lstm, mlp, mobilenet, one_vs_all, "
     "quadratic, resnet, softmax, svm, transformer, vgg, found 'sofmax'; did you mean 'softmax'?"),
    ("mlp", {"hiden": (3,)}, "model: mlp has no option 'hiden'; it takes hidden, activation; did you mean 'hidden'?"),
    ("lenet5", {"hidden": (3,)}, "model: lenet5 has no option 'hidden'; it takes activation"),
    ("softmax", {"l2": -1.0}, "softmax: l2: expected a finite number >= 0, found -1.0"),
    ("softmax", {"l2": float("nan")}, "softmax: l2: expected a finite number >= 0, found nan"),
    ("softmax", {"input_shape": ()}, "softmax: input_shape: expected one or more integers > 0, found ()"),
    ("softmax", {"num_classes": 0}, "softmax: expected data with 2 or more classes, found 0; use kind: linear for "
     "regression"),
    ("logistic", {}, "logistic: expected data with 2 classes, found 10; use kind: softmax"),
    ("logistic", {"num_classes": 0}, "logistic: expected data with 2 classes, found 0; use kind: linear"),
    ("linear", {}, "linear: expected regression data (0 classes), found 10 classes; use kind: softmax"),
    ("mlp", {"hidden": ()}, "mlp: hidden: expected one or more integers > 0, found ()"),
    ("mlp", {"hidden": (8, 0)}, "mlp: hidden: expected one or more integers > 0, found (8, 0)"),
    ("mlp", {"activation": "tan"}, "mlp: activation: expected one of relu, tanh, found 'tan'; did you mean 'tanh'?"),
    ("lenet5", {"activation": "x"}, "lenet5: activation: expected one of relu, tanh, found 'x'"),
    ("lenet5", {"input_shape": (123,)}, "lenet5: input_shape: expected square images as (side, side), (side, side, "
     "channels) or (side * side,), found (123,); use kind: mlp for data that are not images"),
    ("lenet5", {"input_shape": (28, 30)}, "lenet5: input_shape: expected square images as (side, side), (side, side, "
     "channels) or (side * side,), found (28, 30); use kind: mlp for data that are not images"),
    ("lenet5", {"input_shape": (64, 64, 3)}, "lenet5: input_shape: expected a side from 8 to 32, found 64 of (64, 64, "
     "3); use kind: mlp"),
    ("resnet", {"input_shape": (4, 4)}, "resnet: input_shape: expected a side >= 8, found 4 of (4, 4); use kind: mlp"),
    ("resnet", {"input_shape": (30, 30)}, "resnet: input_shape: expected a side divisible by 4, found 30; use kind: "
     "lenet5"),
    ("resnet", {"input_shape": (32, 32, 3), "blocks": 0}, "resnet: blocks: expected an integer >= 1, found 0"),
    ("resnet", {"input_shape": (32, 32, 3), "channels": (12,)}, "resnet: channels: expected one or more positive "
     "multiples of 8, found (12,)"),
    ("vgg", {"input_shape": (32, 32, 3), "depth": 12}, "vgg: depth: expected one of 11, 13, 16, 19, found 12"),
    ("vgg", {"input_shape": (32, 32, 3), "channels": (8,)}, "vgg: channels: expected one number for each of 5 stages, "
     "found (8,)"),
    ("mobilenet", {"input_shape": (32, 32, 3), "channels": (8, 8)}, "mobilenet: channels: expected 6 numbers, for the "
     "first convolution and each of 5 stages of blocks, found (8, 8)"),
    ("lstm", {"width": 0}, "lstm: width: expected an integer >= 1, found 0"),
    ("lstm", {"positions": "lst"}, "lstm: positions: expected one of all, last, found 'lst'; did you mean 'last'?"),
    ("lstm", {"input_shape": (8, 8)}, "lstm: expected sequences of tokens, [length], of 2 or more different ones, "
     "found shape (8, 8) and 10 tokens"),
    ("transformer", {"heads": 5}, "transformer: heads: expected a divisor of the width, 32, found 5; change one"),
    ("quadratic", {"curvature": (1.0, 0.0)}, "quadratic: curvature: expected 64 finite numbers > 0, one per dimension "
     "of the points, found 2 from 0 to 1"),
    ("quadratic", {"curvature": ()}, "quadratic: curvature: expected 64 finite numbers > 0, one per dimension of the "
     "points, found 0"),
    ("cnn", {"filters": (10,)}, "cnn: filters: expected two integers > 0, found (10,)"),
    ("cnn", {"input_shape": (28, 30)}, "cnn: input_shape: expected square images as (side, side), (side, side, "
     "channels) or (side * side,), found (28, 30); use kind: mlp for data that are not images"),
    ("cnn", {"activation": "rleu"}, "cnn: activation: expected one of relu, tanh, found 'rleu'; did you mean 'relu'?"),
    ("svm", {"loss_kind": "hing"}, "svm: loss_kind: expected one of crammer_singer, one_vs_rest, found 'hing'"),
    ("one_vs_all", {"num_classes": 0}, "one_vs_all: expected data with 2 or more classes, found 0; use kind: linear "
     "for regression"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "arguments", "message"), BROKEN)
def test_refusals_are_one_clear_line(kind: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        build_model(kind, **{"input_shape": (64,), "num_classes": 10, **arguments})
