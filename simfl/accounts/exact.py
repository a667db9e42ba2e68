"""Exact ranks of matrices of 64-bit numbers, by arithmetic modulo a prime.

A 64-bit number is a fraction whose denominator is a power of two, so it has a residue modulo any odd prime. The rank of
the residues is at most the rank of the fractions. It is smaller only if the prime p divides all of the largest nonzero
minors, which happens in about one of p cases.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: The largest prime below 2^23: sums of `BLOCK` products of two residues are exact in 64-bit numbers.
PRIME = 8388593
BLOCK = 64

Residues = NDArray[np.int64]


def residues(values: NDArray[np.float64]) -> Residues:
    """Return the residues of numbers, int64 of the same shape."""
    mantissas, exponents = np.frexp(values)
    whole = (mantissas * 2.0**53).astype(np.int64) % PRIME
    distinct, place = np.unique(exponents, return_inverse=True)
    powers = np.array([pow(2, int(exponent) - 53, PRIME) for exponent in distinct], dtype=np.int64)
    return whole * powers[place.reshape(values.shape)] % PRIME


def _residues(whole: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the residues of integers below 2^53, faster than the operator %."""
    rest: NDArray[np.float64] = whole - PRIME * np.floor(whole * (1.0 / PRIME))
    rest[rest < 0.0] += PRIME
    rest[rest >= PRIME] -= PRIME
    return rest


def rank_modulo(rows: Residues) -> int:
    """Return the rank of a matrix of residues, by elimination in blocks of rows."""
    reduced, pivots = np.zeros((0, rows.shape[1])), np.zeros(0, dtype=np.int64)
    for begin in range(0, len(rows), BLOCK):
        block = rows[begin : begin + BLOCK].astype(np.float64)
        for at in range(0, len(pivots), BLOCK):  # a reduced row is 0 at the pivots of all others
            some = slice(at, at + BLOCK)
            block = _residues(block - block[:, pivots[some]] @ reduced[some])
        pivoted = []
        for number in range(len(block)):
            held = np.flatnonzero(block[number])
            if not len(held):
                continue
            pivoted.append((number, int(held[0])))
            block[number] = _residues(block[number] * pow(int(block[number, held[0]]), -1, PRIME))
            factors = block[:, held[0]].copy()
            factors[number] = 0.0
            used = np.flatnonzero(factors)
            block[used] = _residues(block[used] - np.outer(factors[used], block[number]))
        if pivoted:
            new, places = block[[number for number, _ in pivoted]], np.array([pivot for _, pivot in pivoted])
            reduced = np.concatenate((_residues(reduced - reduced[:, places] @ new), new))
            pivots = np.concatenate((pivots, places))
    return len(pivots)
