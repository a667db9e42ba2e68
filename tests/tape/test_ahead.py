"""What is drawn before steps has the same bits on any core, in order."""

import jax
import numpy as np
import pytest

from simfl.runs.runner import prepare
from simfl.scenario import from_mapping
from simfl.tape import ahead
from simfl.tape.ahead import Ahead

SCENARIO = {
    "data": {"set": "digits"},
    "model": {"kind": "softmax"},
    "clients": {"count": 4},
    "algorithm": {"kind": "adpsgd", "batch_size": 8},
    "stop": {"updates": 4},
}


def draws(beside, device=None, **sections):
    problem = prepare(from_mapping(SCENARIO | sections)).problem
    return Ahead(problem, (), 4, 2, device or jax.devices("cpu")[0], 2, beside)


@pytest.mark.parametrize("beside", [False, True])
def test_draws_come_in_order_with_the_same_bits_and_errors_are_raised(beside):
    drawing, data = draws(beside), {"x": jax.device_put(np.arange(6.0, dtype=np.float32))}
    drawing._program_of = lambda first_name, takes: jax.jit(lambda steps, at, data: {"x": data["x"][at] / 3 + steps})
    calls = [(np.int32(k), np.array([k, k + 1], dtype=np.int32)) for k in range(5)]
    for k, drawn in enumerate(drawing.drawn(calls, 0, data)):
        assert drawn["x"].devices() == data["x"].devices()
        expected = np.array([k, k + 1], dtype=np.float32) / np.float32(3) + np.float32(k)
        assert np.asarray(drawn["x"]).tolist() == expected.tolist()
    assert not list(drawing.drawn([], 0, data))
    with pytest.raises(TypeError):
        list(drawing.drawn([(np.int32(1), "no array")], 0, data))
    drawing.close()


def test_a_version_of_jax_without_further_cpus_draws_on_its_own(monkeypatch):
    monkeypatch.setattr(ahead, "further_core", lambda number: None)
    drawing = draws(True)
    drawing._program_of = lambda first_name, takes: lambda steps, ints, data: {"x": data}
    assert list(drawing.drawn([(1, [])], 0, 7)) == [{"x": 7}]
    drawing.close()


def test_settings_share_draws_and_a_run_alone_draws_before_if_examples_exceed_the_cache(monkeypatch):
    assert [draws(False).draws_for(settings) for settings in (1, 2)] == [False, True]
    monkeypatch.setattr(ahead, "CACHE_BYTES", 0)
    assert draws(False).draws_for(1)
    assert not draws(False, algorithm={"kind": "fedavg", "batch_size": 8, "local_steps": 2}).draws_for(2)
    monkeypatch.setattr(ahead, "MOST_DRAWN_BYTES", 1000)
    assert [draws(False).draws_for(settings) for settings in (1, 2)] == [False, True]
    noisy = {"privacy": {"mechanism": "gaussian", "clipping_norm": 1.0, "noise_multiplier": 1.0}}
    assert not draws(False, **noisy).draws_for(2)
