"""The limits of the benchmark: its event loop without a tape computes the same models as the tape."""

import numpy as np
import pytest

from simfl.bench.cases import scenario_of
from simfl.bench.limits import PerCallTape, machine_limits, run_world, steps_per_update
from simfl.runs.runner import prepare
from simfl.scenario import from_mapping
from simfl.tape import Tape
from simfl.tape.executor import Executor, choose_device

ALGORITHMS = {
    "fedbuff": {"kind": "fedbuff", "buffer_size": 4, "local_steps": 3},
    "fedasync": {"kind": "fedasync", "local_steps": 2, "proximal": 0.1},
    "async_sgd": {"kind": "async_sgd"},
    "adpsgd": {"kind": "adpsgd", "exchange": "atomic"},
    "decentralized_sgd": {"kind": "decentralized_sgd"},
    "mapa": {"kind": "mapa", "step_size": None, "second_moment": "paper", "smoothness": 0.1, "sampling_std": 0.1},
}
COMPRESSION = {"decentralized_sgd": {"kind": "random_k", "share": 0.1, "gamma": 0.3}}
PRIVACY = {"mapa": {"mechanism": "laplace_l2", "neighbors": "replace_one", "epsilon_per_release": 1e4}}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ALGORITHMS)
def test_one_call_per_event_computes_the_models_of_the_tape(kind):
    setup = prepare(
        from_mapping(
            {
                "data": {"set": "digits"},
                "clients": {"count": 8, "jitter": {"kind": "lognormal", "sigma": 0.3}},
                "algorithm": {"batch_size": 8, "step_size": 0.2, **ALGORITHMS[kind]},
                "privacy": PRIVACY.get(kind),
                "compression": COMPRESSION.get(kind),
                "stop": {"updates": 40},
                "evaluate": {"every": {"updates": 40}},
            }
        )
    )
    device = choose_device("cpu")
    _, _, plain = run_world(setup, PerCallTape(setup, device), 40)
    executor = Executor(setup.problem, width=4, device=device)
    problem = setup.problem
    tape = Tape(executor, **problem.recorded)
    _, _, recorded = run_world(setup, tape, 40)
    models = tape.values(list(recorded.models()))
    executor.close()
    expected = np.array([np.asarray(model.value) for model in plain.models()])
    assert np.abs(expected - setup.training.initial).max() > 0.05
    np.testing.assert_allclose(models, expected, rtol=0, atol=1e-5)


def test_a_round_counts_all_its_steps():
    setup = prepare(scenario_of("mnist-softmax-fedbuff", updates=10, workers=100))
    assert steps_per_update(setup) == 10.0
    assert setup.problem.rounds is not None
    assert steps_per_update(prepare(scenario_of("digits-softmax-adpsgd-16", updates=10))) == 1.0


@pytest.mark.slow
def test_a_gradient_of_softmax_counts_the_floating_point_operations_of_two_products():
    setup = prepare(scenario_of("digits-softmax-adpsgd-16", updates=10))
    triad, gemm, flops = machine_limits(setup, choose_device("cpu"))
    products = 2 * 2 * 32 * 64 * 10
    assert products < flops < 1.2 * products
    assert triad > 0
    assert gemm > 0
