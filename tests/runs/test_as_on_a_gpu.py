"""What only a GPU chooses runs on the CPU: wide steps, maps beside gradients, parts of a batch of its own.

Every choice of a platform is made as on a GPU; the device stays a CPU.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simfl.bench.verification import _run
from simfl.runs import context
from simfl.runs.runner import resume, run
from simfl.scenario import from_mapping
from simfl.tape import stored
from simfl.tape.executor import automatic_width
from simfl.tape.problem import Optimizing
from tests.runs.test_many_devices import PRIVACY
from tests.runs.test_many_devices import scenario as made

on, automatic_window = Optimizing.on, context.automatic_window


class Net:
    """Softmax regression on digits, of a user's own."""

    def init(self, key):
        return {"w": jnp.zeros((10, 64)), "b": jnp.zeros(10)}

    def losses(self, params, x, y):
        z = x @ params["w"].T + params["b"]
        return jax.nn.logsumexp(z, axis=1) - jnp.take_along_axis(z, y[:, None], axis=1)[:, 0]


#: Paths of a GPU: lanes of a convolution, maps and optimizers beside gradients, a user's clipping in larger parts.
CASES = {
    "softmax": made(privacy=PRIVACY, execution={"precision": "bfloat16"}),
    "maps": made(
        algorithm={"kind": "decentralized_sgd", "batch_size": 8},
        compression={"kind": "top_k", "share": 0.1, "gamma": 0.1},
    ),
    "optimizer": made(
        algorithm={"kind": "adpsgd", "batch_size": 8, "step_size": 0.01, "optimizer": {"kind": "adam"}},
    ),
    "own": made(model={"kind": f"{__name__}:Net"}, privacy=PRIVACY),
    "convolution": made(
        model={"kind": "cnn"}, privacy=PRIVACY, stop={"updates": 24}, evaluate={"every": {"updates": 24}},
        algorithm={"kind": "adpsgd", "batch_size": 24},
    ),
}  # fmt: skip


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Make every choice of a platform as on a GPU; return the choices that were made."""
    choices = []

    def width(model, clients, platform):
        choices.append("width")
        return automatic_width(model, clients, "gpu")

    def window(setup, platform):
        choices.append("window")
        return automatic_window(setup, "gpu")

    def optimizing(self, platform):
        changed = on(self, "gpu")
        choices.extend(["beside"] * changed.beside)
        return changed

    def default(*given, default, **of_platforms):
        choices.append("default")
        return default(*given)

    monkeypatch.setattr(context, "automatic_width", width)
    monkeypatch.setattr(context, "automatic_window", window)
    monkeypatch.setattr(Optimizing, "on", optimizing)
    monkeypatch.setattr(jax.lax, "platform_dependent", default)
    monkeypatch.setattr(stored.Program, "_find", lambda *given: None)  # programs are not stored
    return choices


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_choices_of_a_gpu_give_the_cpus_results_up_to_the_last_bits(name, tmp_path, request):
    scenario = from_mapping(CASES[name])
    cpu = run(scenario, out=tmp_path, device="cpu")
    choices = request.getfixturevalue("as_on_a_gpu")
    gpu, events = _run(scenario, tmp_path / "gpu", "cpu")
    assert gpu.manifest.width == 8 >= cpu.manifest.width
    np.testing.assert_allclose(gpu.metrics.train_loss, cpu.metrics.train_loss, rtol=5e-3)
    assert {"width", "window", "beside"} <= set(choices)
    assert ("default" in choices) == (name in ("own", "convolution"))
    cut, _ = _run(scenario, tmp_path / "cut", "cpu", events // 2)
    assert resume(cut.folder).manifest.digest == gpu.manifest.digest
