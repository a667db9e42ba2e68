import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from simfl.privacy import noise
from simfl.privacy.noise import ATTEMPTS, SAMPLERS, exponential, gaussian, normal, root_gamma, threefry, unit_std
from simfl.streams import Streams

NAMES = list(SAMPLERS)
KEY = Streams(0).key("noise")
WORDS_OF_KEY = tuple(KEY.tolist())


@functools.cache
def sampler(name, d):
    """All clients' noise of all draws, compiled: (clients [k], draws [m]) -> f32 [k, m, d]."""
    sample = SAMPLERS[name]
    return jax.jit(jax.vmap(jax.vmap(lambda k, i: sample(KEY, k, i, d), (None, 0)), (0, None)))


@functools.cache
def noises(name, clients, draws, d):
    return np.asarray(sampler(name, d)(np.arange(clients), np.arange(draws)), np.float64)


def vectors(name, count, d):
    """Many releases of one client, f64 [count, d]."""
    return noises(name, 1, count, d)[0]


# -- the words and the Gaussian ---------------------------------------------------------------------


ONES = (0xFFFFFFFF, 0xFFFFFFFF)
DIGITS_OF_PI = (0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3)


@pytest.mark.parametrize(("rounds", "key", "counter", "words"), [
    (13, (0, 0), (0, 0), (0x9D1C5EC6, 0x8BD50731)),
    (13, ONES, ONES, (0xFD36D048, 0x2D17272C)),
    (13, *DIGITS_OF_PI, (0xBA3E4725, 0xF27D669E)),
    (20, (0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    (20, ONES, ONES, (0x1CB996FC, 0xBB002BE7)),
    (20, *DIGITS_OF_PI, (0xC4923A9C, 0x483DF7A0)),
    (32, (0, 0), (0, 0), (0xCEE3D47E, 0xA23DFD5C)),
    (32, *DIGITS_OF_PI, (0xE2827716, 0xC3C05CDF)),
])  # fmt: skip
def test_threefry_gives_the_test_vectors_of_its_authors(rounds, key, counter, words):
    with jax.disable_jit():
        drawn = threefry(*(jnp.uint32(word) for word in key + counter), rounds=rounds)
    assert tuple(int(word) for word in drawn) == words
    assert (threefry_of_the_paper(rounds, key, counter)) == words


def threefry_of_the_paper(rounds, key, counter):
    """Section 3.2 and the constants of Random123, in Python's integers."""
    keys = (*key, key[0] ^ key[1] ^ 0x1BD11BDA)
    x = [(counter[i] + keys[i]) % 2**32 for i in (0, 1)]
    for r in range(rounds):
        turn = (13, 15, 26, 6, 17, 29, 16, 24)[r % 8]
        x[0] = (x[0] + x[1]) % 2**32
        x[1] = (x[1] << turn | x[1] >> (32 - turn)) % 2**32 ^ x[0]
        if r % 4 == 3:
            s = (r + 1) // 4
            x = [(x[0] + keys[s % 3]) % 2**32, (x[1] + keys[(s + 1) % 3] + s) % 2**32]
    return tuple(x)


@functools.cache
def release_words(client=3, draw=9, size=2**14, key=WORDS_OF_KEY):
    """Both words of each coordinate, uint32 [2, size]."""
    words = jax.jit(noise._words, static_argnums=3)
    return np.array(words(jnp.array(key, jnp.uint32), jnp.int32(client), jnp.int32(draw), size))


def test_the_words_of_a_coordinate_are_threefrys_under_the_key_of_the_release():
    """The rounds that pass BigCrush, and a margin; all 20 for the key of a release."""
    drawn, key = release_words(), threefry_of_the_paper(20, WORDS_OF_KEY, (3, 9))
    assert noise.ROUNDS >= 13 + 3
    for i in (0, 1, 12_345, 2**14 - 1):
        assert tuple(drawn[:, i].tolist()) == threefry_of_the_paper(noise.ROUNDS, key, (i, 0))


def check_fair(bits):
    """Words that should be random: each bit, each pair of bits, each byte, and how many are set, uint32 [n]."""
    n = len(bits)
    each = (bits[:, None] >> np.arange(32, dtype=np.uint32) & 1).astype(np.float32) - np.float32(0.5)
    assert np.abs(each.mean(axis=0)).max() < 5 * 0.5 / math.sqrt(n)
    together = each.T @ each / n
    assert np.abs(together[np.triu_indices(32, 1)]).max() < 5.5 * 0.25 / math.sqrt(n)
    assert stats.chisquare(np.bincount(bits.view(np.uint8), minlength=256)).pvalue > 1e-5
    ones = np.bincount(np.bitwise_count(bits), minlength=33)
    law = stats.binom.pmf(np.arange(33), 32, 0.5)
    inner = slice(6, 27)
    counts, expected = ([a[:6].sum(), *a[inner], a[27:].sum()] for a in (ones, n * law))
    assert stats.chisquare(counts, np.array(expected) * sum(counts) / sum(expected)).pvalue > 1e-5


@pytest.mark.parametrize("word", [0, 1])
def test_neighboring_counters_and_keys_give_independent_bits(word):
    """The exclusive or and the sum of two neighbors are as random as each of them."""
    here = release_words()[word]
    key = WORDS_OF_KEY
    neighbors = {
        "itself": np.zeros_like(here),
        "the other word": release_words()[1 - word],
        "the next coordinate": np.roll(here, 1),
        "a quarter of the counters away": np.roll(here, 2**12),
        "the next draw": release_words(draw=10)[word],
        "the next client": release_words(client=4)[word],
        "client and draw exchanged": release_words(client=9, draw=3)[word],
        "the next key": release_words(key=(key[0] ^ 1, key[1]))[word],
        "the other half of the key": release_words(key=(key[0], key[1] ^ 2**31))[word],
    }
    for there in neighbors.values():
        check_fair(here ^ there)
        check_fair(here + there)


def test_each_bit_of_counter_and_key_changes_half_of_all_bits():
    """Avalanche, at the rounds of a coordinate's words: every input bit to every output bit."""
    n = 4000
    inputs = np.random.default_rng(0).integers(0, 2**32, (4, n), dtype=np.uint32)
    run = jax.jit(jax.vmap(lambda given: jnp.stack(threefry(*given, rounds=noise.ROUNDS))))
    flips = np.zeros((129, 4, 1), np.uint32)
    flips[np.arange(128) + 1, np.arange(128) // 32, 0] = np.uint32(1) << np.arange(128, dtype=np.uint32) % 32
    outputs = np.array(run(inputs ^ flips))
    changed = outputs[1:] ^ outputs[0]
    for bit in range(32):
        share = (changed >> np.uint32(bit) & 1).mean(axis=2)
        assert np.abs(share - 0.5).max() < 5.5 * 0.5 / math.sqrt(n)


def test_noise_is_standard_normal_and_independent_between_clients_and_draws():
    clients, draws, d = 6, 20, 3000
    values = noises("gaussian", clients, draws, d)
    n = values.size
    assert abs(values.mean()) < 5 / math.sqrt(n)
    assert values.var() == pytest.approx(1.0, abs=5 * math.sqrt(2 / n))
    assert (values**4).mean() == pytest.approx(3.0, abs=5 * math.sqrt(96 / n))
    assert stats.kstest(values.ravel()[:20_000], "norm").pvalue > 1e-4
    rows = values.reshape(clients * draws, d)
    correlations = np.corrcoef(rows)[np.triu_indices(clients * draws, 1)]
    assert np.abs(correlations).max() < 6 / math.sqrt(d)
    np.testing.assert_allclose(rows.std(axis=1), 1.0, atol=6 / math.sqrt(2 * d))


def test_noise_is_standard_normal_and_its_halves_are_independent():
    sample = np.asarray(gaussian(jnp.array([5, 6], jnp.uint32), jnp.int32(3), jnp.int32(9), 200_001))
    assert stats.kstest(sample, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(sample[:100_000], sample[100_001:])[0, 1]) < 4.5 / np.sqrt(100_000)


def words(count, seed=0):
    return np.random.default_rng(seed).integers(0, 2**32, (2, count), dtype=np.uint32)


def fraction(further):
    """24 bits of a fraction, f64."""
    return (further >> 8 | 1) * 2.0**-24


def test_normals_invert_the_distribution_function_to_a_millionth():
    bits, further = words(200_000)
    shifted = bits >> (np.arange(len(bits)) % 32).astype(np.uint32)  # the same number of every order of magnitude
    bits = np.choose(np.arange(len(bits)) // 32 % 4, [shifted, ~shifted, shifted ^ (1 << 31), ~shifted ^ (1 << 31)])
    bits[:6] = [2**31 - 1, 2**31, 0, 2**32 - 1, 1, 2**32 - 2]
    further[:2] = 0  # the fraction is 2^-24: the smallest p of all, 2^-55
    m = bits.view(np.int32).astype(np.float64)
    v = (m + fraction(further)) * 2.0**-31
    p = (2.0**31 - 1 - np.where(m < 0, -m - 1, m) + fraction(further)) * 2.0**-31
    expected = math.sqrt(2) * np.where(p < 0.5, np.sign(v) * special.erfcinv(p), special.erfinv(v))
    normals = np.asarray(jax.jit(normal)(bits, further), np.float64)
    np.testing.assert_allclose(normals, expected, rtol=1e-6)
    assert normals[0] == -normals[1] == pytest.approx(stats.norm.isf(2.0**-56), rel=1e-6)


def test_exponentials_are_the_inverse_of_their_distribution_function():
    bits, further = words(200_000)
    bits >>= (np.arange(len(bits)) % 32).astype(np.uint32)
    bits[:2] = further[:2] = 0
    p = ((bits >> 1) + fraction(further)) * 2.0**-31
    exponentials = np.asarray(jax.jit(exponential)(bits, further), np.float64)
    np.testing.assert_allclose(exponentials, -np.log(p), rtol=1e-6, atol=1e-7)
    assert exponentials.max() == pytest.approx(55 * math.log(2), rel=1e-6)


def test_tails_have_the_counts_of_the_law():
    """Four million draws; the thousand largest are those of a law, not the last steps of a grid."""
    sizes = np.abs(np.asarray(jax.jit(normal)(*words(4_000_000)), np.float64))
    assert stats.kstest(sizes[:200_000], stats.halfnorm.cdf).pvalue > 1e-3
    for threshold in (1.0, 2.0, 3.0, 4.0, 4.5):
        expected = len(sizes) * 2 * stats.norm.sf(threshold)
        assert abs((sizes > threshold).sum() - expected) < 6 * math.sqrt(expected)
    tail = np.sort(sizes)[-1000:]
    assert len(np.unique(tail)) > 990


@pytest.mark.parametrize(("law", "last", "beyond"), [
    (normal, 2**31 - 1, lambda x: 2 * stats.norm.sf(x)),
    (normal, 2**31, lambda x: 2 * stats.norm.sf(-x)),
    (exponential, 0, lambda x: np.exp(-x)),
])  # fmt: skip
def test_the_law_continues_in_the_last_cell_of_the_grid(law, last, beyond):
    """The outermost bits: the law beyond 6.2 standard deviations is followed."""
    bits, further = words(20_000)
    values = np.asarray(jax.jit(law)(np.full_like(bits, last), further), np.float64)
    assert stats.kstest(beyond(values) * 2.0**31, "uniform").pvalue > 1e-3


# -- the laws of all samplers -----------------------------------------------------------------------

#: Second moment E||x||^2, and law of the norm where it has a name.
SECOND_MOMENT = {
    "gaussian": lambda d: d,
    "laplace_l2": lambda d: d * (d + 1),
    "laplace_l2_radius_only": lambda d: 2,
    "laplace": lambda d: 2 * d,
}
NORM = {"gaussian": stats.chi, "laplace_l2": stats.gamma, "laplace_l2_radius_only": lambda d: stats.expon()}
COUNT = {1: 40_000, 2: 40_000, 5: 40_000, 257: 4000}


@pytest.mark.slow(but=["laplace_l2_radius_only-1"])
@pytest.mark.parametrize(("name", "d"), [("gaussian", 5), *((name, d) for name in list(NORM)[1:] for d in COUNT)])
def test_the_norm_has_its_law(name, d):
    norms = np.linalg.norm(vectors(name, COUNT[d], d), axis=1)
    law = NORM[name](d)
    assert stats.kstest(norms, law.cdf).pvalue > 1e-3
    assert norms.mean() == pytest.approx(law.mean(), abs=4.5 * law.std() / math.sqrt(len(norms)))
    fourth = law.moment(4)
    second = law.moment(2)
    assert second == pytest.approx(SECOND_MOMENT[name](d), rel=1e-9)
    assert (norms**2).mean() == pytest.approx(second, abs=4.5 * math.sqrt((fourth - second**2) / len(norms)))


@pytest.mark.slow
@pytest.mark.parametrize("d", [2000, 100_000])
def test_isotropic_laplace_noise_of_a_large_model_has_the_right_norm(d):
    """d = 100,000: the norm is within 1 / sqrt(d) of d, also in 32-bit numbers."""
    count = 600 if d == 2000 else 40
    norms = np.linalg.norm(vectors("laplace_l2", count, d), axis=1)
    assert norms.mean() == pytest.approx(d, abs=4.5 * math.sqrt(d / count))
    assert norms.std() == pytest.approx(math.sqrt(d), rel=4.5 / math.sqrt(2 * count))
    assert stats.kstest(norms, stats.gamma(d).cdf).pvalue > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_noise_has_mean_zero_and_the_stated_covariance(name):
    d, count = 5, 40_000
    values = vectors(name, count, d)
    variance = SECOND_MOMENT[name](d) / d
    np.testing.assert_allclose(values.mean(axis=0), 0.0, atol=4.5 * math.sqrt(variance / count))
    covariance = values.T @ values / count / variance
    # Var(x_i^2) / variance^2 is at most 5 for these laws except for the exponential norm, which has E r^4 = 24.
    spread = math.sqrt({"laplace_l2_radius_only": 24 * 3 * d / (4 * (d + 2))}.get(name, 6.0) / count)
    np.testing.assert_allclose(covariance, np.eye(d), atol=4.5 * spread)


@pytest.mark.parametrize("name", NORM)
def test_direction_is_uniform_and_independent_of_the_norm(name):
    d, count = 5, 40_000
    drawn = vectors(name, count, d)
    norms = np.linalg.norm(drawn, axis=1)
    direction = drawn / norms[:, None]
    # One coordinate of a uniform direction: (u + 1) / 2 ~ Beta((d-1)/2, (d-1)/2).
    law = stats.beta((d - 1) / 2, (d - 1) / 2, loc=-1, scale=2)
    long = norms > np.median(norms)
    for axis in range(d):
        assert stats.kstest(direction[:, axis], law.cdf).pvalue > 1e-3
        assert stats.ks_2samp(direction[long, axis], direction[~long, axis]).pvalue > 1e-3
    ranks = stats.rankdata(norms) / count
    for values in (direction, direction**2, np.abs(direction)):
        correlations = [abs(np.corrcoef(ranks, values[:, axis])[0, 1]) for axis in range(d)]
        assert max(correlations) < 4.5 / math.sqrt(count)


def test_coordinates_of_laplace_noise_are_laplace_and_independent():
    values = vectors("laplace", 200, 1001)
    assert stats.kstest(values.ravel(), "laplace").pvalue > 1e-3
    assert (values > 0).mean() == pytest.approx(0.5, abs=4.5 * 0.5 / math.sqrt(values.size))
    assert abs(stats.spearmanr(np.abs(values.ravel()), values.ravel() > 0).statistic) < 4.5 / math.sqrt(values.size)
    for lag in (1, 500, 501):  # 501 is the partner that comes from the same threefry call
        assert abs(np.corrcoef(values[:, :-lag].ravel(), values[:, lag:].ravel())[0, 1]) < 4.5 / math.sqrt(
            values.size / 2
        )


def test_laplace_samplers_agree_in_one_dimension():
    a, b, c = (vectors(name, 40_000, 1).ravel() for name in ("laplace_l2", "laplace_l2_radius_only", "laplace"))
    np.testing.assert_array_equal(a, b)
    assert stats.kstest(a, "laplace").pvalue > 1e-3
    assert stats.ks_2samp(a, c).pvalue > 1e-3


@pytest.mark.parametrize("shape", [1.0, 5.5, 60.0, 500_000.5])
def test_gamma_variables_have_their_law_for_all_shapes(shape):
    count = 20_000
    key = jnp.array([1, 2], jnp.uint32)
    counter = jnp.arange(count * ATTEMPTS, dtype=jnp.uint32)
    words = [word.reshape(count, ATTEMPTS) for word in threefry(key[0], key[1], counter, counter)]
    roots = jax.jit(jax.vmap(lambda a, b: root_gamma(a, b, shape)))(*words)
    values = np.asarray(roots, np.float64) ** 2
    assert stats.kstest(values, stats.gamma(shape).cdf).pvalue > 1e-3
    assert values.mean() == pytest.approx(shape, abs=4.5 * math.sqrt(shape / count))
    assert values.var() == pytest.approx(shape, rel=4.5 * math.sqrt((2 + 6 / shape) / count))


@pytest.mark.slow
def test_the_first_accepted_attempt_is_used():
    """An attempt that would leave 1 + t below 0 and one whose uniform variable is 1, then one at the center."""
    low, center = 1, 2**32 - 2
    first = jnp.array([low, low, center, *[0] * (ATTEMPTS - 3)], jnp.uint32)
    second = jnp.full(ATTEMPTS, 1 << 20, jnp.uint32)
    assert float(root_gamma(first, second, 1.0)) == pytest.approx(math.sqrt(2 / 3), rel=1e-5)


# -- the same bits everywhere -----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("name", "d"), [*((name, 400) for name in NAMES), ("gaussian", 403), ("laplace_l2", 1)])
def test_noise_has_the_same_bits_in_every_lane_and_loop(name, d):
    sample, key, lanes = SAMPLERS[name], jnp.asarray(KEY), jnp.arange(4)
    expected = noises(name, 5, 8, d)[3]
    alone = jax.jit(lambda i: sample(key, jnp.int32(3), i, d))
    np.testing.assert_array_equal([alone(jnp.int32(i)) for i in range(8)], expected)
    several = jax.jit(jax.vmap(lambda i: sample(key, jnp.int32(3), i, d)))
    np.testing.assert_array_equal(several(np.arange(8)), expected)
    np.testing.assert_array_equal(several(np.arange(8)[::-1]), expected[::-1])

    def body(i, out):
        rows = jax.vmap(lambda draw: sample(key, jnp.int32(3), draw, d))(4 * i + lanes)
        return out.at[i].set(rows)

    loop = jax.jit(lambda: jax.lax.fori_loop(0, 2, body, jnp.zeros((2, 4, d))))
    np.testing.assert_array_equal(loop().reshape(8, d), expected)


@pytest.mark.parametrize("name", NAMES)
def test_each_release_has_its_own_noise(name):
    d, clients, draws = 400, 5, 8
    rows = noises(name, clients, draws, d).reshape(-1, d)
    assert np.isfinite(rows).all()
    correlations = np.corrcoef(rows)[np.triu_indices(len(rows), 1)]
    assert np.abs(correlations).max() < 5.5 / math.sqrt(d)
    other = jax.jit(lambda: SAMPLERS[name](jnp.asarray(Streams(1).key("noise")), jnp.int32(0), jnp.int32(0), d))()
    assert abs(np.corrcoef(rows[0], other)[0, 1]) < 5.5 / math.sqrt(d)


def test_isotropic_noise_is_gaussian_noise_times_one_number():
    """So it is as cheap, and runs that differ in the mechanism share their directions."""
    z, x, r = (noises(name, 5, 8, 400)[0] for name in ("gaussian", "laplace_l2", "laplace_l2_radius_only"))
    for other in (x, r):
        ratio = other / z
        np.testing.assert_allclose(ratio, ratio[:, :1] * np.ones(400), rtol=3e-7)


@pytest.mark.parametrize("d", [1, 2, 50, 7850])
@pytest.mark.parametrize("name", NAMES)
def test_unit_std_is_the_root_of_the_second_moment_per_coordinate(name, d):
    assert unit_std(name, d) == pytest.approx(math.sqrt(SECOND_MOMENT[name](d) / d), rel=1e-12)
