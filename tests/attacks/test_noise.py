"""Noise as declared, drawn afresh, raises no alarm; noise that is missing, of another law or dependent is detected."""

import numpy as np
import pytest
from scipy import stats

from simfl.attacks.noise import FALSE_ALARMS, FIRST, SPREAD, BlankCheck, NoiseCheck, NoiseLaw, _smallest_chance
from simfl.privacy.noise import unit_std

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


def judged(sampler, values, clients=1, blank=0):
    check = NoiseCheck(NoiseLaw(sampler, values.shape[1]), blank)
    for client, part in enumerate(np.array_split(values, clients)):
        for rows in np.array_split(part, 3):
            check.hear(client, rows)
    return check.verdict()


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("size", [1, 7, 200])
def test_norms_of_noise_follow_the_law(sampler, size):
    law, noise = NoiseLaw(sampler, size), draw(sampler, 4000, size)
    sizes = law.size_of(noise)
    assert stats.kstest(law.chance(sizes), "uniform").pvalue > 1e-3
    assert stats.kstest(law.chance(sizes.reshape(-1, 4).sum(axis=1), 4), "uniform").pvalue > 1e-3
    energy = size * unit_std(sampler, size) ** 2
    assert np.square(noise).sum(axis=1).mean() == pytest.approx(energy, rel=0.15)
    assert np.square(law.draw(np.random.default_rng(1), 4000, size)).sum(axis=1).mean() == pytest.approx(
        energy, rel=0.15
    )


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_correct_noise_raises_no_alarm_with_any_data(sampler):
    """The contribution of examples may depend on the noise of earlier releases, as in training."""
    smallest = 1.0
    for seed in range(40):
        noise = draw(sampler, 12, 30, seed)
        followed = np.vstack([np.zeros(30), -0.9 * noise[:-1]])
        for added in (0.0, 3.0, followed):
            verdict = judged(sampler, noise + added, clients=2)
            smallest = min(smallest, verdict.too_small, verdict.dependent)
    assert smallest > 1e-4, "of 120 runs, with two p-values each"


@pytest.mark.parametrize("sampler", SAMPLERS[:3])
@pytest.mark.parametrize("factor", [0.5, 0.0])
def test_too_little_noise_is_detected(sampler, factor):
    verdict = judged(sampler, factor * draw(sampler, 8, 60))
    assert verdict.too_small < FALSE_ALARMS
    assert verdict.dependent > FALSE_ALARMS, "releases without noise do not repeat it"
    assert judged(sampler, draw(sampler, 8, 400)).too_small > 1e-3


def test_slightly_too_little_noise_is_detected_over_many_releases():
    verdict = judged("gaussian", 0.9 * draw("gaussian", 1000, 5))
    assert verdict.too_small < FALSE_ALARMS


@pytest.mark.parametrize("sampler", SAMPLERS[:3])
@pytest.mark.parametrize("sign", [1, -1])
def test_noise_used_twice_is_detected_beside_data(sampler, sign):
    added = 0.2 * np.random.default_rng(1).standard_normal((12, 60))
    if sampler == "laplace_l2":
        added *= np.sqrt(60)  # its noise has a norm of 60
    afresh = draw(sampler, 12, 60)
    assert judged(sampler, afresh + added).dependent > 1e-3
    twice = afresh.copy()
    twice[9] = sign * twice[2]
    verdict = judged(sampler, twice + added)
    assert verdict.dependent < FALSE_ALARMS
    assert verdict.too_small > 1e-3
    assert verdict.pairs == 66
    two_clients = np.concatenate((afresh, sign * afresh)) + np.concatenate((added, -added))
    assert judged(sampler, two_clients, clients=2).dependent < FALSE_ALARMS
    # Contributions of examples larger than the noise hide this.
    assert judged(sampler, twice + 20 * added).dependent == 1.0


def test_the_number_of_kept_releases_is_bounded():
    noise = draw("gaussian", 5000, 4)
    verdict = judged("gaussian", noise)
    assert verdict.releases == 5000
    fewest, most = FIRST + SPREAD // 2, FIRST + SPREAD
    assert fewest * (fewest - 1) // 2 <= verdict.pairs <= most * (most - 1) // 2
    assert judged("gaussian", noise[:0]).too_small == 1.0


@pytest.mark.slow(but=["2-gaussian"])
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("blank", [2, 40, 90])
def test_some_coordinates_of_noise_become_independent_normal_numbers(sampler, blank):
    law, noise = NoiseLaw(sampler, 90), draw(sampler, 3000, 90)
    normal = law.as_normal(noise[:, -blank:])
    norms = stats.chi2.cdf(np.square(normal).sum(axis=1), blank)
    assert stats.kstest(norms, "uniform").pvalue > 1e-3
    assert stats.kstest(normal[:, 0], "norm").pvalue > 1e-3
    assert abs(np.corrcoef(np.abs(normal[:, 0]), np.abs(normal[:, 1]))[0, 1]) < 0.06
    drawn = law.as_normal(law.draw(np.random.default_rng(2), 3000, blank))
    assert stats.kstest(np.square(drawn).sum(axis=1), stats.chi2(blank).cdf).pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_200_correct_mechanisms_raise_no_alarm(sampler):
    """Each p-value is below 5 % in 5 % of all cases at most; a binomial variable of 200 is above 20 in 0.3 %."""
    alarms = np.zeros(3)
    for seed in range(200):
        noise = draw(sampler, 8, 96, seed)
        noise[:, :64] += 5 * unit_std(sampler, 96)
        verdict = judged(sampler, noise, clients=2, blank=32)
        chances = verdict.too_small, verdict.other_law, verdict.dependent
        alarms += np.array(chances) < 0.05
        assert min(chances) > FALSE_ALARMS
        assert verdict.numbers == 8 * 32
    assert alarms.max() <= 20
    assert alarms.sum() <= 20, "the three tests share their level"


@pytest.mark.parametrize("size", [5, 64])
def test_the_cosine_of_independent_vectors_has_its_law(size):
    """The smallest chance of one comparison is uniform for any other vector."""
    generator = np.random.default_rng(0)
    other = np.geomspace(1.0, 100.0, size)
    chances = []
    for _ in range(3000):
        noise = generator.standard_normal(size)
        chances.append(_smallest_chance(noise @ other, noise @ noise, other @ other, size))
    assert stats.kstest(chances, "uniform").pvalue > 1e-3
    assert _smallest_chance(0.0, 0.0, 1.0, size) == 1.0, "a zero vector has no direction"


@pytest.mark.parametrize("count", [1, 2])
def test_one_or_two_releases_raise_no_alarm(count):
    for seed in range(50):
        verdict = judged("gaussian", draw("gaussian", count, 40, seed), blank=40)
        assert min(verdict.too_small, verdict.other_law, verdict.dependent) > 1e-3


def test_data_that_depends_on_earlier_noise_raises_no_alarm():
    """Contributions depend on all noise of earlier releases, are much larger than the noise, and some are infinite."""
    noise = draw("gaussian", 16, 300)
    values = noise.copy()
    values[1:, :200] += 30 * noise[:-1, 100:]
    values[5, 0], values[6, 1] = np.inf, np.nan
    check = BlankCheck(NoiseLaw("gaussian", 300), 100)
    check.hear(0, values)
    assert check.other_law() > 1e-2
    assert check.dependent() > 1e-2


@pytest.mark.parametrize("roll", [1, 150, -70])
def test_rolled_noise_is_detected_for_any_shift(roll):
    noise = draw("gaussian", 3, 300)
    noise[2] = np.roll(noise[0], roll)
    check = BlankCheck(NoiseLaw("gaussian", 300), 100)
    check.hear(0, noise)
    assert check.dependent() < FALSE_ALARMS
    fine = BlankCheck(NoiseLaw("gaussian", 300), 100)
    fine.hear(0, noise[:2])
    assert fine.dependent() > 1e-2


def test_weak_dependence_between_draws_is_detected_over_all_draws():
    """No single pair shows it."""
    fresh = draw("gaussian", 16, 1024)
    noise = fresh.copy()
    noise[1:] = np.sqrt(1 - 0.15**2) * fresh[1:] + 0.15 * fresh[:-1]
    both, two = (BlankCheck(NoiseLaw("gaussian", 1024), 1024) for _ in range(2))
    both.hear(0, noise)
    two.hear(0, noise[:2])
    assert both.dependent() < FALSE_ALARMS
    assert two.dependent() > 1e-3


def test_one_repeated_draw_among_a_thousand_is_detected():
    noise = draw("gaussian", 1000, 80)
    noise[977] = -noise[333]
    check = BlankCheck(NoiseLaw("gaussian", 80), 80)
    check.hear(0, noise)
    assert check.dependent() < 1e-12
    assert check.other_law() > 1e-3
