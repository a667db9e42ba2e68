"""The law of discrete Gaussian noise: its table and its draws."""

import decimal
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from simfl.privacy.discrete import LOOKUPS, TAIL, cumulative
from simfl.privacy.noise import discrete_gaussian

KEY = np.array([0x12345678, 0x9ABCDEF0], dtype=np.uint32)
SMALL, LARGE = Fraction(7, 3), Fraction(2**14 * 3, 2) + Fraction(1, 7)


def numbers(table):
    """Return the integers of a table's rows of four words."""
    return [int.from_bytes(row.astype(">u4").tobytes(), "big") for row in table]


def pmf(deviation, size):
    """Return P[N = k] for k = -size..size, from its definition."""
    mass = np.exp(-0.5 * (np.arange(-size, size + 1) / float(deviation)) ** 2)
    return mass / mass.sum()


def test_every_entry_of_the_table_is_exact():
    table = cumulative(SMALL)
    assert table.shape == (2**LOOKUPS, 4)
    count = math.ceil(TAIL * SMALL)
    with decimal.localcontext() as context:
        context.prec = 80
        square = 2 * SMALL * SMALL
        mass = [(-decimal.Decimal(j * j * square.denominator) / square.numerator).exp() for j in range(4 * count)]
        whole = mass[0] + 2 * sum(mass[1:])
        right = [int((mass[0] + 2 * sum(mass[1 : j + 1])) / whole * 2**127) * 2 for j in range(count)]
    entries = numbers(table[:count])
    assert max(abs(one - other) for one, other in zip(entries, right, strict=True)) <= 2
    assert entries[-1] < 2**128
    assert not any(number % 2 for number in entries)
    assert (table[count:] == 0xFFFFFFFF).all()


def test_a_table_of_full_size_is_exact_at_its_end():
    table, s = cumulative(LARGE), float(LARGE)
    for j in (0, 1, 1000, 24576, 100_000, 200_000):
        beyond = 1 - Fraction(numbers(table[j : j + 1])[0], 2**128)
        # The sum over the lattice is the integral to 1e-8 and better: Euler-Maclaurin, up to half a step.
        assert float(beyond) == pytest.approx(special.erfc((j + 0.5) / s / math.sqrt(2.0)), rel=1e-7)


SAMPLE = jax.jit(discrete_gaussian, static_argnums=3)


def draws(client, number, law, deviation, size=1000):
    named = jnp.int32(client), jnp.int32(number), size, jnp.asarray(cumulative(law)), jnp.float32(deviation)
    return np.asarray(SAMPLE(jnp.asarray(KEY), *named))


@pytest.mark.slow
def test_draws_follow_the_law():
    values = draws(0, 0, SMALL, SMALL, 10**6)
    expected = pmf(SMALL, 28) * len(values)
    cells = np.bincount(values + 28, minlength=57)
    kept = expected > 20
    assert stats.chisquare(cells[kept], expected[kept] / expected[kept].sum() * cells[kept].sum()).pvalue > 1e-4
    assert cells[~kept].sum() < 200

    values = draws(0, 0, LARGE, LARGE, 10**6)
    at = np.ceil(np.arange(-4, 4.01, 0.125) * float(LARGE)) - 0.5  # between integers
    shares = np.diff(np.concatenate(([0.0], special.ndtr(at / float(LARGE)), [1.0])))
    cells = np.diff(np.concatenate(([0], [np.count_nonzero(values < edge) for edge in at], [len(values)])))
    assert stats.chisquare(cells, shares * len(values)).pvalue > 1e-4


def test_draws_depend_on_client_and_draw_only():
    once = draws(1, 2, LARGE, LARGE)
    # A wrong starting place takes longer, and does not change the result.
    np.testing.assert_array_equal(once, draws(1, 2, LARGE, 1.01 * LARGE))
    for other in (draws(2, 1, LARGE, LARGE), draws(1, 3, LARGE, LARGE)):
        assert abs(np.corrcoef(once, other)[0, 1]) < 0.15
