"""Compressors: plain NumPy formulas, the bytes of their messages, and the quality that they promise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simfl.compression.base import CompressionPlan
from simfl.compression.compressors import COMPRESSORS
from simfl.compression.compressors.moniqua import Moniqua
from simfl.compression.compressors.qsgd import Qsgd
from simfl.compression.compressors.random_k import RandomK
from simfl.compression.compressors.sign import Sign
from simfl.compression.compressors.top_k import TopK
from tests.compression.helpers import compressed

D = 40
ALL = [TopK(0.1), RandomK(0.1), RandomK(0.1, unbiased=True), Qsgd(4), Qsgd(4, unbiased=True), Sign(), Moniqua(0.7, 3)]


def vectors(count=50):
    generator = np.random.default_rng(0)
    return (generator.standard_normal((count, D)) * generator.exponential(1.0, (count, 1))).astype(np.float32)


def test_the_catalogue_names_every_compressor():
    assert {*COMPRESSORS} == {"top_k", "random_k", "qsgd", "sign", "moniqua"}
    assert {type(one) for one in ALL} == set(COMPRESSORS.values())
    assert all(one.summary and one == type(one)(**vars(one)) for one in ALL)


@pytest.mark.parametrize("compressor", ALL, ids=repr)
def test_compressors_are_those_of_a_plain_loop(compressor):
    for number, x in enumerate(vectors(10)):
        key = jax.random.fold_in(jax.random.key(3), number)
        made = compressor.compress(jnp.asarray(x), key)
        np.testing.assert_allclose(made, compressed(compressor, x, key), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("compressor", ALL, ids=repr)
def test_what_is_lost_on_average_is_at_most_what_the_quality_says(compressor):
    keys = jax.random.split(jax.random.key(1), 400 if compressor.draws else 1)
    compress = jax.jit(jax.vmap(compressor.compress, (None, 0)))
    for x in vectors(10):
        errors = np.square(np.asarray(compress(jnp.asarray(x), keys)) - x).sum(axis=1)
        most = (1 - compressor.quality(D)) * np.square(x).sum()
        assert errors.mean() <= most * (1 + 4 * errors.std() / max(errors.mean(), 1e-9) / len(keys) ** 0.5) + 1e-6


@pytest.mark.parametrize("compressor", [RandomK(0.1, unbiased=True), Qsgd(4, unbiased=True)], ids=repr)
def test_the_mean_of_unbiased_messages_is_the_vector(compressor):
    x = vectors(1)[0]
    keys = jax.random.split(jax.random.key(2), 20_000)
    made = np.asarray(jax.vmap(compressor.compress, (None, 0))(jnp.asarray(x), keys))
    np.testing.assert_allclose(made.mean(axis=0), x, atol=5 * made.std(axis=0).max() / len(keys) ** 0.5)


@pytest.mark.parametrize("compressor", ALL, ids=repr)
def test_zero_stays_zero(compressor):
    assert not np.asarray(compressor.compress(jnp.zeros(D), jax.random.key(0))).any()


@pytest.mark.parametrize(
    ("compressor", "size", "bits"),
    [
        (TopK(0.01), 2000, 20 * (32 + 11)),
        (TopK(0.01), 2048, 20 * (32 + 11)),
        (TopK(0.01), 2049, 20 * (32 + 12)),
        (TopK(1e-6), 10, 32 + 4),
        (RandomK(0.01), 2000, 20 * 32),
        (Qsgd(1), 100, 32 + 100 * 2),
        (Qsgd(15), 100, 32 + 100 * 5),
        (Qsgd(16), 100, 32 + 100 * 6),
        (Sign(), 7850, 32 + 7850),
        (Moniqua(1.0, 3), 100, 300),
    ],
)
def test_messages_have_the_bits_of_the_formula(compressor, size, bits):
    assert compressor.bits(size) == bits
    assert CompressionPlan(compressor, "choco", 1.0, size).bytes == -(-bits // 8)
