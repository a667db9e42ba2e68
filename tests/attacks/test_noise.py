"""Noise that is there, drawn afresh, is never missed; noise that is missing or used twice shows."""

import numpy as np
import pytest
from scipy import stats

from simfl.attacks.noise import FALSE_ALARMS, FIRST, SPREAD, NoiseCheck, NoiseLaw

SAMPLERS = ("gaussian", "laplace_l2", "laplace", "laplace_l2_radius_only")


def draw(sampler, count, size, seed=0):
    """Noise of unit scale by NumPy, f64 [count, size]."""
    generator = np.random.default_rng(seed)
    if sampler == "laplace":
        return generator.laplace(size=(count, size))
    normal = generator.standard_normal((count, size))
    if sampler == "gaussian":
        return normal
    radius = generator.gamma(size if sampler == "laplace_l2" else 1.0, size=(count, 1))
    return radius * normal / np.linalg.norm(normal, axis=1, keepdims=True)


def judged(sampler, values, clients=1):
    check = NoiseCheck(NoiseLaw(sampler, values.shape[1]))
    for client, part in enumerate(np.array_split(values, clients)):
        for rows in np.array_split(part, 3):
            check.hear(client, rows)
    return check.verdict()


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("size", [1, 7, 200])
def test_the_law_of_noise(sampler, size):
    law, noise = NoiseLaw(sampler, size), draw(sampler, 4000, size)
    sizes = law.size_of(noise)
    assert stats.kstest(law.chance(sizes), "uniform").pvalue > 1e-3
    assert stats.kstest(law.chance(sizes.reshape(-1, 4).sum(axis=1), 4), "uniform").pvalue > 1e-3
    assert np.square(noise).sum(axis=1).mean() == pytest.approx(law.energy, rel=0.15)
    for row, found in zip(noise[:20], sizes[:20], strict=True):
        assert law.size_at_most(float(row @ row)) >= float(found) * (1 - 1e-12)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_whatever_examples_add_noise_that_is_there_raises_no_alarm(sampler):
    """What examples add may follow the noise of earlier releases, as a model that learns from them does."""
    smallest = 1.0
    for seed in range(40):
        noise = draw(sampler, 12, 30, seed)
        followed = np.vstack([np.zeros(30), -0.9 * noise[:-1]])
        for added in (0.0, 3.0, followed):
            verdict = judged(sampler, noise + added, clients=2)
            smallest = min(smallest, verdict.too_small, verdict.alike)
    assert smallest > 1e-4, "of 120 runs, with two p-values each"


@pytest.mark.parametrize("sampler", SAMPLERS[:3])
@pytest.mark.parametrize("factor", [0.5, 0.0])
def test_too_little_noise_shows(sampler, factor):
    verdict = judged(sampler, factor * draw(sampler, 8, 60))
    assert verdict.too_small < FALSE_ALARMS
    assert verdict.alike > FALSE_ALARMS, "what has no noise repeats none"
    right = judged(sampler, draw(sampler, 8, 400))
    assert (right.sees_none, right.sees_half, right.sees_repeats) == (True, True, True)
    assert right.too_small > 1e-3


def test_many_releases_show_what_none_shows_alone():
    verdict = judged("gaussian", 0.9 * draw("gaussian", 1000, 5))
    assert verdict.too_small < FALSE_ALARMS


@pytest.mark.parametrize("sampler", SAMPLERS[:3])
def test_noise_used_twice_shows(sampler):
    added = 0.2 * np.random.default_rng(1).standard_normal((12, 60))
    if sampler == "laplace_l2":
        added *= np.sqrt(60)  # its noise has a norm of 60
    afresh = draw(sampler, 12, 60)
    assert judged(sampler, afresh + added).alike > 1e-3
    twice = afresh.copy()
    twice[9] = twice[2]
    found = judged(sampler, twice + added)
    assert found.alike < FALSE_ALARMS
    assert found.too_small > 1e-3
    assert found.pairs == 66
    two_clients = np.concatenate((afresh, afresh)) + np.concatenate((added, -added))
    assert judged(sampler, two_clients, clients=2).alike < FALSE_ALARMS
    # Where examples add more than the noise, that would not show, and the verdict says so.
    loud = judged(sampler, afresh + 20 * added)
    assert loud.alike == 1.0
    assert not loud.sees_repeats


def test_memory_is_bounded():
    noise = draw("gaussian", 5000, 4)
    verdict = judged("gaussian", noise)
    assert verdict.releases == 5000
    fewest, most = FIRST + SPREAD // 2, FIRST + SPREAD
    assert fewest * (fewest - 1) // 2 <= verdict.pairs <= most * (most - 1) // 2
    assert judged("gaussian", noise[:0]).too_small == 1.0
