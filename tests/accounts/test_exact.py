"""Exact ranks, against fractions."""

from fractions import Fraction

import numpy as np
import pytest

from simfl.accounts.exact import PRIME, rank_modulo, residues


def rank_of_fractions(rows):
    rows = [[Fraction(float(value)) for value in row] for row in rows]
    rank = 0
    for column in range(len(rows[0])):
        pivot = next((number for number in range(rank, len(rows)) if rows[number][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for number in range(rank + 1, len(rows)):
            factor = rows[number][column] / rows[rank][column]
            rows[number] = [x - factor * y for x, y in zip(rows[number], rows[rank], strict=True)]
        rank += 1
    return rank


def test_residues_equal_those_of_fractions():
    values = np.array([[0.0, 1.0, -1.0, 1 / 3], [5e-324, 1e-13, -(2.0**70), 1e300]])
    computed = residues(values)
    for value, residue in zip(values.ravel(), computed.ravel(), strict=True):
        exact = Fraction(float(value))
        assert residue == exact.numerator * pow(exact.denominator, -1, PRIME) % PRIME


@pytest.mark.parametrize("seed", range(6))
def test_ranks_equal_those_of_fractions(seed):
    generator = np.random.default_rng(seed)
    rows = generator.integers(-3, 4, (12, 5)) / 8.0 @ (generator.integers(-3, 4, (5, 14)) / 4.0)
    rows[3] = rows[2]
    rows[3, 1] += 2.0**-80 if seed % 2 else 0.0  # lost to rounding
    rows[5] = 0.0
    rows[6] = rows[0]
    rows[6, 2] += 1e-14
    expected = rank_of_fractions(rows)
    assert expected > np.linalg.matrix_rank(rows)
    assert rank_modulo(residues(rows)) == expected


def test_ranks_of_many_rows_are_exact_over_several_blocks():
    generator = np.random.default_rng(7)
    left, right = generator.integers(0, 9, (300, 150)), generator.integers(0, 9, (150, 260))
    assert rank_modulo(left @ right % PRIME) == 150
    assert rank_modulo(np.zeros((4, 3), dtype=np.int64)) == 0
