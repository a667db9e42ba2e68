"""Sums are objects of their own: one that a user writes works in every algorithm that offers updates to it."""

import numpy as np
import pytest

from simfl.algorithms.sums import Sum
from tests.helpers import Lab, lognormal, make_problem, make_world, run_algorithm

CLIENTS = 4
#: By algorithm: the option that is the factor of a sum.
STEPS = {"fedavg": "server_step", "fedbuff": "server_step", "async_local_sgd": "server_step", "diloco": "server_step"}


class Halved(Sum):
    """Half of the mean."""

    def release(self, model, parts, planned):
        made = super().release(model, parts, planned)
        return made._replace(terms=[(0.5 * coef, value) for coef, value in made.terms])


def final(kind, own=None, **options):
    problem = make_problem(CLIENTS, local=True)
    with Lab(problem) as lab:

        def prepare(algorithm):
            if own is not None:
                algorithm.sum = own(algorithm)

        world = make_world(CLIENTS, jitter=lognormal(0.5))
        algorithm, _ = run_algorithm(
            kind, world, lab.tape, lab.training(step_size=0.1), updates=24, prepare=prepare, **options
        )
        return lab.tape.values(algorithm.models())[0]


@pytest.mark.parametrize("kind", STEPS)
def test_a_sum_of_a_users_own_replaces_the_mean(kind):
    """Half of the mean is half of the server's step, bit for bit."""
    known = final(kind, **{STEPS[kind]: 0.5})
    np.testing.assert_array_equal(final(kind, Halved, **{STEPS[kind]: 1.0}), known)
    assert np.abs(known - final(kind, **{STEPS[kind]: 1.0})).max() > 1e-3
