"""The size of a model's loss as a program."""

import pytest

from simfl.runs.runner import prepare
from simfl.tape.equations import equations_of


def size_of(model, batch=8):
    kind = {"kind": "adpsgd", "batch_size": batch}
    return equations_of(prepare({"algorithm": kind, "model": model, "clients": 4, "stop": {"updates": 8}}).problem)


def test_more_layers_have_more_equations_and_results():
    softmax, mlp, cnn = map(size_of, ("softmax", "mlp", "cnn"))
    assert softmax[0] == 31
    assert softmax < mlp < cnn


@pytest.mark.parametrize("model", ["softmax", "mlp"])
def test_results_grow_with_the_batch_and_equations_do_not(model):
    (few, small), (many, large) = size_of(model, 8), size_of(model, 16)
    assert few == many
    assert large > small
