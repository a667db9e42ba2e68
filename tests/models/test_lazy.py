"""JAX is imported when a model first computes."""

import subprocess
import sys

MODELS = """
import os, sys
import numpy as np
from simfl.models import MODELS, build_model
model = build_model("mlp", input_shape=(4,), num_classes=3, hidden=[2])
assert (model.size, model.layout[0]) == (19, ("layer1.weights", (2, 4)))
assert MODELS["softmax"].summary
assert not {"jax", "simfl.models.lstm"} & set(sys.modules), "one model is imported alone"
"""


def run(code: str) -> list[str]:
    """Run code in a process of its own; return its lines."""
    done = subprocess.run([sys.executable, "-c", MODELS + code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_description_of_a_model_imports_no_jax_and_its_first_computation_does() -> None:
    code = """
print(model.init(np.array([1, 2], np.uint32)).shape, "jax" in sys.modules)
import jax
print(os.environ["PJRT_NPROC"], jax.config.values["jax_cpu_enable_async_dispatch"])
"""
    assert run(code) == ["(19,) True", "1 False"]


def test_linear_models_begin_at_zero_without_jax() -> None:
    code = """
print(*(build_model(kind, input_shape=(4,), num_classes=3).init([1, 2]).sum() for kind in ("softmax", "svm")))
print("jax" in sys.modules)
"""
    assert run(code) == ["0.0 0.0", "False"]
