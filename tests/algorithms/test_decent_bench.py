"""Iterates equal those of decent-bench on quadratics with the same matrices, the same W and float64.

decent-bench 0.3.0 (PyPI, Python 3.13, NumPy 2.5.5) made the tables below. It ran in an environment of its own on the
problem of test_corrected_gossip.py, from models of zeros: `QuadraticCost` for each client, `P2PNetwork` on a ring with
Metropolis weights or `FedNetwork`, 20 iterations. Its FedNova got equal sizes of data for all clients.
"""

import numpy as np
import pytest

from simfl.tape import Tape
from tests.algorithms.test_corrected_gossip import METHODS, D, K
from tests.algorithms.test_corrected_gossip import simulate as gossip
from tests.algorithms.test_k_gt import change
from tests.algorithms.test_k_gt import simulate as k_gt
from tests.helpers import NumpyExecutor, make_training, make_world, run_algorithm

#: Models of clients 0 and 5 after 20 rounds with step 0.1; K-GT with 3 local steps of 0.03 and outer step 0.7.
OF_CLIENTS = {
    "extra": [
        [0.5221578409, 0.1059261535, -0.3748752657, -0.3587118939],
        [0.5328468028, 0.1076933105, -0.3667606884, -0.3688930081],
    ],
    "exact_diffusion": [
        [0.5206633099, 0.1056543306, -0.3747653351, -0.3599790083],
        [0.5300436164, 0.1079022515, -0.3662223307, -0.3666965789],
    ],
    "nids": [
        [0.5204150797, 0.1054633089, -0.3749207047, -0.3596060205],
        [0.5321532157, 0.1082077023, -0.3660083019, -0.3686298778],
    ],
    "tracking": [
        [0.5390851623, 0.0786136883, -0.3753782018, -0.3500488765],
        [0.4223643453, 0.0988884937, -0.4058038682, -0.3122696728],
    ],
    "k_gt": [
        [0.4645055803, 0.0853117162, -0.3343434607, -0.3066733689],
        [0.3947172723, 0.0982666758, -0.3532812891, -0.2844836971],
    ],
}
#: Models of the server after 20 rounds with step 0.03. SCAFFOLD and FedDyn: 3 local steps, server step 0.7 and penalty
#: 0.5; FedNova: 1, 2, 3, 4, 1, 2, 3 and 4 local steps with a pull of 0.2.
OF_SERVERS = {
    "scaffold": [0.4525859037, 0.1032277428, -0.3313210116, -0.3130324531],
    "feddyn": [0.5037394880, 0.1335586646, -0.3748805105, -0.3460425615],
    "fednova": [0.4746749244, 0.0968563385, -0.3626819033, -0.3395823031],
}


@pytest.mark.slow(but=["exact_diffusion", "k_gt"])
@pytest.mark.parametrize("method", OF_CLIENTS)
def test_models_of_peers_equal_those_of_decent_bench(method):
    models = gossip(method, 20) if method in METHODS else k_gt(20, steps=[3] * K, outer_step=0.7)[1]
    np.testing.assert_allclose(models[[0, 5]], OF_CLIENTS[method], rtol=0, atol=1e-6)


@pytest.mark.slow(but=["scaffold"])
@pytest.mark.parametrize("kind", OF_SERVERS)
def test_models_of_servers_equal_those_of_decent_bench(kind):
    steps = [1 + k % 4 for k in range(K)] if kind == "fednova" else [3] * K
    options = {"scaffold": {"server_step": 0.7}, "feddyn": {"alpha": 0.5}, "fednova": {"mu": 0.2}}[kind]
    pull = {"scaffold": 0.0, "feddyn": 0.5, "fednova": 0.2}[kind]

    def rounds_of(params, client, draw, steps, size, step, correction):
        w = np.array(params)
        for _ in range(steps):
            w = w + change(w, client, draw, 0, 1, size, step, correction + pull * (w - params))
        return w - params

    tape = Tape(NumpyExecutor(D, change=rounds_of), window=60, local=True, corrected=kind != "fednova")
    training = make_training([64] * K, d=D, batch_size=4, step_size=0.03)
    algorithm, _ = run_algorithm(kind, make_world(K), tape, training, updates=20 * K, steps=steps, **options)
    np.testing.assert_allclose(tape.values(algorithm.models())[0], OF_SERVERS[kind], rtol=0, atol=1e-6)
