"""The size of a model's loss as a program."""

import pytest

from simfl import ScenarioError
from simfl.runs.runner import prepare
from simfl.tape.equations import equations_of
from tests.runs.test_as_on_a_gpu import Net


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


class Few(Net):
    """A model for fewer than eight examples at a time."""

    def losses(self, params, x, y):
        return super().losses(params, x[:7], y)


def test_a_model_that_fails_on_a_mini_batch_is_one_line():
    model = {"kind": f"{__name__}:Few"}
    with pytest.raises(ScenarioError, match=r"^model: .*:Few: losses of 8 examples raised \w+Error: [^\n]*$"):
        size_of(model)
