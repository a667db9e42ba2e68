"""JAX is imported when a model first computes."""

import subprocess
import sys

import pytest

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


def test_a_program_that_computed_with_jax_before_gives_all_cores_its_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("PJRT_NPROC", "JAX_DISABLE_MOST_OPTIMIZATIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=3")
    code = """
import jax
jax.devices()
from simfl.records.folder import flags
from simfl.tape.cores import _core
from simfl.tape.executor import choose_device
from simfl.threads import usable_cores
choose_device("cpu")
print(os.environ["PJRT_NPROC"] == str(usable_cores()), [len(_core(k).client.devices()) for k in (0, 1)])
os.environ["PJRT_NPROC"] = "5"
print(flags())
"""
    assert run(code) == ["True [3, 3]", "--xla_force_host_platform_device_count=3 PJRT_NPROC=5"]
