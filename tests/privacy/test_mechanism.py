"""The actual release: clipped per example, with the noise of the ledger."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from simfl.assembly.assemble import assemble
from simfl.privacy.releases import Releases
from simfl.scenario import loads
from simfl.tape.problem import Noise
from tests.helpers import Lab, batch_gradient, make_problem, make_world, run_algorithm

D = 650


def releases(lab, params, draws, *, clients=8, size=8, noise_scale=0.0):
    """The releases of Tape.gradient for the clients' batches, f64 [clients, draws, D]."""
    model = lab.tape.constant(params)
    sums = [
        lab.tape.combine((1.0, lab.tape.gradient(model, client, draw, size, noise_scale)))
        for client in range(clients)
        for draw in range(draws)
    ]
    return lab.tape.values(sums).astype(np.float64).reshape(clients, draws, D)


@pytest.mark.parametrize("noise_std", [0.3, 5.0])
def test_the_noise_on_the_sum_has_the_stated_deviation(noise_std):
    params = 0.1 * np.random.default_rng(0).standard_normal(D)
    clients, draws = 8, 12
    with Lab(make_problem(sampling="poisson", clipping_norm=1.0, noisy=True)) as lab:
        noisy = releases(lab, params, draws, noise_scale=noise_std)
        clean = releases(lab, params, draws)
    noise = (noisy - clean) / noise_std
    n = noise.size
    assert abs(noise.mean()) < 5 / math.sqrt(n)
    assert noise.std() == pytest.approx(1.0, abs=5 / math.sqrt(2 * n))
    assert stats.kstest(noise.ravel()[::3], "norm").pvalue > 1e-4
    vectors = noise.reshape(clients * draws, D)
    np.testing.assert_allclose(vectors.std(axis=1), 1.0, atol=5 / math.sqrt(2 * D))
    correlations = np.corrcoef(vectors)[np.triu_indices(len(vectors), 1)]
    assert np.abs(correlations).max() < 6 / math.sqrt(D), "clients and draws have independent noise"
    along = np.corrcoef(vectors[:, :-1].ravel(), vectors[:, 1:].ravel())[0, 1]
    assert abs(along) < 5 / math.sqrt(n), "and so do coordinates"


def test_an_update_moves_by_step_times_noise_over_batch_size():
    """A run of an algorithm with and without noise, under one seed and otherwise equal."""

    def after(noise_std):
        with Lab(make_problem(sampling="poisson", clipping_norm=1.0, noisy=True)) as lab:
            training = lab.training(step_size=1.0, noise_std=noise_std)
            world = make_world(8)
            algorithm, rows = run_algorithm("adpsgd", world, lab.tape, training, updates=8)
            return lab.tape.values(algorithm.models()).astype(np.float64), rows

    noise_std, batch_size = 4.0, 8
    (noisy, rows), (clean, _) = after(noise_std), after(0.0)
    assert {row[7] for row in rows} == {noise_std}
    assert [row[1] for row in rows] == list(range(8))
    # All read the initial model, so noise changes nothing else; and averaging keeps the sum of models.
    total = (noisy - clean).sum(axis=0) * batch_size / noise_std
    assert total.std() == pytest.approx(math.sqrt(8), rel=5 / math.sqrt(2 * D)), "eight independent noises in all"
    assert abs(total.mean()) < 5 * math.sqrt(8 / D)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    clipping_norm=st.floats(0.01, 20.0),
    scale=st.sampled_from([0.0, 0.1, 10.0, 1000.0]),
    size=st.integers(1, 15),
    client=st.integers(0, 7),
    draw=st.integers(0, 1000),
)
def test_an_example_moves_a_release_by_at_most_the_clipping_norm(clipping_norm, scale, size, client, draw):
    """Sensitivity: a Poisson batch with one example more is the same batch and that example's clipped gradient."""
    params = (scale * np.random.default_rng(draw).standard_normal(D)).astype(np.float32)
    problem = make_problem(sampling="poisson", clipping_norm=clipping_norm)
    with Lab(problem) as lab:
        model = lab.tape.constant(params)
        sums = [lab.tape.combine((1.0, lab.tape.gradient(model, client, draw, s))) for s in (size, size + 1)]
        less, more = lab.tape.values(sums).astype(np.float64)
    rounding = 1e-5 * clipping_norm * (size + 1)
    assert np.linalg.norm(more - less) <= clipping_norm + rounding
    assert np.linalg.norm(more) <= clipping_norm * (size + 1) + rounding
    expected = batch_gradient(problem, params, client, draw, size + 1)
    np.testing.assert_allclose(more, expected, atol=2e-5 * clipping_norm * (size + 1) + 1e-6)


def test_a_clipping_norm_beyond_all_gradients_changes_nothing():
    params = 0.1 * np.random.default_rng(0).standard_normal(D)
    with Lab(make_problem(sampling="poisson", clipping_norm=1e6)) as lab:
        clipped = releases(lab, params, 3)
    with Lab(make_problem(sampling="poisson")) as lab:
        np.testing.assert_allclose(clipped, releases(lab, params, 3), atol=1e-5)


SCENARIO = """
data: {{set: digits}}
clients: {{count: 8}}
algorithm: {{kind: adpsgd, batch_size: 16, sampling: {sampling}}}
privacy: {privacy}
stop: {{updates: 10}}
"""


def setup(privacy, sampling="auto"):
    return assemble(loads(SCENARIO.format(privacy=privacy, sampling=sampling), "privacy"))


def test_noise_of_a_scenario_is_the_multiplier_times_the_clipping_norm():
    assembled = setup("{mechanism: gaussian, clipping_norm: 0.5, noise_multiplier: 3.0, delta: 1.0e-6}")
    assert assembled.problem.clipping.norm == 0.5
    assert assembled.training.noise_std == [1.5] * 8
    assert assembled.problem.noise == Noise("gaussian")
    assert assembled.problem.batches.sampling == assembled.training.sampling == "poisson"
    assert assembled.ledger.certified
    assert (assembled.ledger.levels, assembled.ledger.delta) == ([3.0] * 8, 1e-6)
    ((release, count),) = assembled.ledger.compositions(Releases([1] * 8))[0]
    assert (release.noise_multiplier, release.sampling, count) == (3.0, "poisson", 1)
    assert release.sampling_rate == 16 / assembled.partition.sizes[0]


def test_the_papers_literal_setting_is_not_certified():
    assembled = setup("{mechanism: gaussian_unclipped, noise_std: 2.0}")
    assert assembled.problem.clipping.norm is None
    assert assembled.training.noise_std == [2.0] * 8
    assert not assembled.ledger.certified
    assert any("never certified" in line for line in assembled.warnings)
    assert not setup("{mechanism: gaussian}", sampling="shuffle").ledger.certified


def test_without_privacy_nothing_is_clipped_noised_or_accounted():
    assembled = setup("null")
    assert (assembled.problem.clipping.norm, assembled.problem.noise, assembled.ledger) == (None, None, None)
    assert assembled.training.noise_std == [0.0] * 8
    assert assembled.training.sampling == "shuffle"
    silent = setup("{mechanism: gaussian, noise_multiplier: 0.0}")
    assert (silent.problem.clipping.norm, silent.problem.noise) == (1.0, None)
    assert silent.ledger.largest(Releases([1] * 8)) == math.inf
