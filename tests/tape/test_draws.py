import functools
import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from simfl.streams import Streams
from simfl.tape.draws import batch_positions, mix, permute

keys = st.integers(0, 2**32 - 1)
permute_many = jax.jit(permute)


@pytest.mark.parametrize("word", [0, 1, 2, 0x9E3779B9, 0xFFFFFFFF])
def test_the_hash_is_lowbias32(word):
    """The batches of a seed must never change: the hash of https://nullprogram.com/blog/2018/07/31/, in integers."""
    h = word
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        h = (h ^ h >> shift) * factor % 2**32
    assert int(mix(np.uint32(word))) == h ^ h >> 16


def test_the_mini_batches_of_a_client_have_different_keys():
    """The hash has an inverse, so no two of the 2^32 numbers have the same image."""

    def unshift(h, shift):
        word = h
        for _ in range(32 // shift):
            word = h ^ word >> shift
        return word

    inverses = [pow(factor, -1, 2**32) for factor in (0x846CA68B, 0x7FEB352D)]
    words = np.random.default_rng(0).integers(0, 2**32, 1000, dtype=np.uint32)
    for word, h in zip(words.tolist(), np.asarray(mix(words)).tolist(), strict=True):
        h = unshift(h, 16) * inverses[0] % 2**32
        h = unshift(h, 15) * inverses[1] % 2**32
        assert unshift(h, 16) == word


def images(key, n, padded=1024):
    """Return a permutation of 0..n-1; all n use arrays of one length, and so one compilation."""
    x = np.minimum(np.arange(padded), n - 1).astype(np.int32)
    return np.asarray(permute_many(np.uint32(key), x, np.int32(n)))[:n]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(key=keys, n=st.integers(1, 1024))
def test_permute_is_a_permutation(key, n):
    assert sorted(images(key, n)) == list(range(n))


@pytest.mark.parametrize("n", [2**16 - 1, 100_003, 300_000])
def test_permute_is_a_permutation_of_large_sets(n):
    permuted = np.asarray(permute_many(np.uint32(7), np.arange(n, dtype=np.int32), np.int32(n)))
    assert len(np.unique(permuted)) == n
    assert permuted.min() == 0
    assert permuted.max() == n - 1


def test_permute_sends_each_item_to_each_place_equally_often():
    n, trials = 10, 20_000
    many = jax.jit(jax.vmap(permute, in_axes=(0, None, None)))
    permuted = np.asarray(many(np.arange(trials, dtype=np.uint32), np.arange(n, dtype=np.int32), np.int32(n)))
    counts = np.array([np.bincount(permuted[:, x], minlength=n) for x in range(n)])
    chi_square = ((counts - trials / n) ** 2 / (trials / n)).sum()
    assert stats.chi2.sf(chi_square, (n - 1) ** 2) > 1e-4
    # So do pairs of items, here 0 and 1.
    pairs = np.bincount(permuted[:, 0] * n + permuted[:, 1], minlength=n * n).reshape(n, n)
    assert not pairs.diagonal().any()
    expected = trials / (n * (n - 1))
    chi_square = ((pairs[~np.eye(n, dtype=bool)] - expected) ** 2 / expected).sum()
    assert stats.chi2.sf(chi_square, n * (n - 1) - 1) > 1e-4


@functools.cache
def drawer(sampling, batch_size, lanes):
    """Return a function of all clients' batches of all draws: (key, clients [k], draws [m], n) -> int [k, m, lanes]."""

    def one(key, client, draw, n):
        return batch_positions(sampling, key, client, draw, np.int32(0), batch_size, lanes, n)

    return jax.jit(jax.vmap(jax.vmap(one, in_axes=(None, None, 0, None)), in_axes=(None, 0, None, None)))


def batches(sampling, clients, draws, n, *, batch_size=8, lanes=8, seed=0):
    key = Streams(seed).key("data")
    positions = drawer(sampling, batch_size, lanes)(key, np.int32(clients), np.int32(draws), np.int32(n))
    return np.asarray(positions)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(n=st.integers(8, 200), client=st.integers(0, 10**6), epoch=st.integers(0, 50), seed=st.integers(0, 10))
def test_shuffle_shows_every_example_once_per_epoch(n, client, epoch, seed):
    # Batches of 8 may span two epochs of n examples: look at the entries from epoch * n on.
    first = epoch * n // 8
    draws = np.arange(first, first + 30)
    entries = batches("shuffle", [client], draws, n, seed=seed)[0].ravel()[epoch * n - 8 * first :]
    for start in range(0, len(entries) - n + 1, n):
        assert sorted(entries[start : start + n]) == list(range(n))
    assert len(entries) >= n


def test_shuffle_gives_each_epoch_and_client_another_order():
    positions = batches("shuffle", np.arange(4), np.arange(40), 80).reshape(4, 4, 80)  # 4 clients, 4 epochs of 80
    orders = positions.reshape(16, 80)
    assert len({tuple(order) for order in orders}) == 16
    same = np.mean([(a == b).mean() for i, a in enumerate(orders) for b in orders[:i]])
    assert same == pytest.approx(1 / 80, abs=0.01)
    assert not np.array_equal(positions, batches("shuffle", np.arange(4), np.arange(40), 80, seed=1).reshape(4, 4, 80))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(n=st.integers(1, 300), client=st.integers(0, 10**6), draw=st.integers(0, 10**6))
def test_a_poisson_batch_holds_distinct_examples(n, client, draw):
    positions = batches("poisson", [client], [draw], n, lanes=64)[0, 0, : min(n, 64)]
    assert len(set(positions.tolist())) == len(positions)
    assert positions.min() >= 0
    assert positions.max() < n


def test_a_poisson_batch_is_a_uniform_subset():
    n, size, trials = 12, 3, 11_000
    positions = np.sort(batches("poisson", [5], np.arange(trials), n)[0, :, :size], axis=1)
    subsets = math.comb(n, size)
    _, counts = np.unique(positions @ [n * n, n, 1], return_counts=True)
    chi_square = ((counts - trials / subsets) ** 2 / (trials / subsets)).sum()
    assert len(counts) == subsets
    assert stats.chi2.sf(chi_square, subsets - 1) > 1e-4


def test_a_larger_poisson_batch_continues_a_smaller_one():
    """Entries are drawn by their position, so a batch that takes several operations is one subset."""
    key = Streams(0).key("data")

    @functools.partial(jax.jit, static_argnums=1)
    def piece(first, lanes):
        return batch_positions("poisson", key, np.int32(3), np.int32(4), first, 8, lanes, np.int32(50))

    whole = np.asarray(piece(np.int32(0), 24))
    parts = [np.asarray(piece(np.int32(first), 8)) for first in (0, 8, 16)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_draws_with_replacement_are_uniform_and_independent():
    n, trials = 10, 4000
    positions = batches("with_replacement", [0, 1], np.arange(trials), n)
    counts = np.bincount(positions.ravel(), minlength=n)
    expected = positions.size / n
    assert stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), n - 1) > 1e-4
    repeated = (positions[:, :, 0] == positions[:, :, 1]).mean()
    assert repeated == pytest.approx(1 / n, abs=5 * math.sqrt(0.09 / (2 * trials)))
    same = (positions[0] == positions[1]).mean()
    assert same == pytest.approx(1 / n, abs=5 * math.sqrt(0.09 / (8 * trials)))


@pytest.mark.parametrize("sampling", ["shuffle", "poisson", "with_replacement"])
def test_successive_batches_are_independent_of_each_other(sampling):
    positions = batches(sampling, [3], np.arange(4000), 97)[0].astype(float)
    for lane, later in ((0, 1), (0, 7)):
        assert abs(np.corrcoef(positions[:-1, lane], positions[1:, later])[0, 1]) < 5 / math.sqrt(4000)
