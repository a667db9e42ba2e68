"""What one client learns about another from a model that walks at random, in f-DP.

A model makes T steps. Each is at the client where the model is, which adds a gradient of norm at most 1 and N(0, z^2 I)
and sends the model on; W is the symmetric matrix of the walk, which begins anywhere. Observer v sees the model when it
comes to v, and client u has one example more or less, in every gradient or in `uses` of them. The laws of G, N and of
paths do not depend on data, so that what is told with the path revealed is a mixture of Gaussians with a known index:
delta(eps) = E[delta of a Gaussian of mu, where mu^2 = (sum) / z^2], composed by adding the sums. The sums are, over u's
gradients before the last visit to v:

    any gradients: 1 each.  Clients between u and v may repeat what they got (an adaptive adversary): certified.
    nonexpansive:  1 / G, where the model comes to u or v next after G steps, of which G - 1 are of others. Each noise
        is used once. A bound only if no step moves two models apart: convex beta-smooth losses, step <= 2 / beta, and
        clipping that keeps this (Bok, Su, Altschuler 2024, https://arxiv.org/abs/2403.00278).
    published:     PN-f-DP as its authors' program has it (https://arxiv.org/abs/2510.19934, github.com/lx10077/PN-f-DP,
        `gdp.py`, c = 1): floor(T / n) gradients, the mean, with 1 / (t + 1) each if the walk from u comes to v after t
        steps, or with 0 after T. Gradients of u between two visits to v share noises: no bound.

`at_least` is exact for gradients that react to nothing: v sees the number of steps L since its last visit, and the sum
of k gradients of u in it, N(k, (L - 1) z^2), and knows only the law of k given L. A bound below it is refuted.
Sums and losses are rounded on a grid, upwards in bounds and downwards in `at_least`; Fourier sums have errors of 1e-8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from simfl.accounts.walk_laws import ERROR, Array, Complex, coefficient, first_hits, least_epsilon
from simfl.privacy import checks
from simfl.privacy.accounting import renyi_to_epsilon
from simfl.privacy.gaussian import mixture_delta, smallest_epsilon
from simfl.world.topology import Topology

#: Parts of a unit of the sum.
_PARTS = 256
_ORDERS = np.concatenate((np.linspace(1.05, 12.0, 220), np.geomspace(12.1, 1024.0, 120)))


def walk_of(topology: Topology) -> Array:
    """Return W of a walk to random neighbors, as that of `multi_walk`, f64 [K, K]."""
    w = np.zeros((topology.num_clients, topology.num_clients))
    for i, j in topology.edges:
        w[i, j] = w[j, i] = 1.0 / max(topology.degrees[i], topology.degrees[j])
    return w + np.diag(1.0 - w.sum(axis=1))


@dataclass(frozen=True)
class WalkEpsilons:
    """Epsilons of a client for an observer; `renyi` is of the walks of `published`."""

    certified: float
    nonexpansive: float
    at_least: float
    published: float
    renyi: float


def _of_mixture(delta: float, law: Array, unit: float, z: float, beyond: float = 0.0) -> float:
    """Return epsilon of Gaussians of mu^2 = index * unit / z^2 by the index's law."""
    at = np.flatnonzero(law[1:] > 1e-16) + 1
    mu, weight = np.sqrt(at * unit) / z, law[at]
    return smallest_epsilon(delta, lambda epsilon: beyond + mixture_delta(epsilon, mu, weight)) if len(at) else 0.0


def _counts(w: Array, places: int, u: int, v: int) -> Array:
    """Return the law of u's steps before the last visit to v, [places]."""
    law = np.zeros((2, len(w), places))  # backwards: whether v has been visited
    law[0, :, 0] = 1.0 / len(w)
    for step in range(places):
        reached = law[:, :, : step + 1]
        if step:
            reached[:] = w @ reached
        reached[1, v], reached[0, v] = reached[1, v] + reached[0, v], 0.0
        reached[1, u] = np.append(0.0, reached[1, u, :-1])
    return np.asarray(law.sum(axis=(0, 1)))


def _sums(w: Array, places: int, u: int, v: int, bins: int) -> Array:
    """Return the law of the sum of 1 / G in parts, [bins]; larger sums wrap."""
    back = np.ceil(_PARTS / np.maximum(1, np.arange(places + 1))).astype(np.int64)
    # Backwards in time: first to v, then from each visit to u or v to the one before. W is symmetric.
    firsts = first_hits(w, np.full(len(w), 1.0 / len(w)), [v], places)[:, 0]
    of_v, of_u = (first_hits(w, np.eye(len(w))[k], [u, v], places) for k in (v, u))
    stays_v, stays_u = (1.0 - np.cumsum(law.sum(axis=1)) for law in (of_v, of_u))

    def function(powers: Complex) -> Complex:
        vu, uu = np.zeros(bins, np.complex128), np.zeros(bins, np.complex128)
        np.add.at(vu, back, of_v[:, 0] * powers)
        np.add.at(uu, back, of_u[:, 0] * powers)
        vu, uu, vv, uv = np.fft.fft(vu), np.fft.fft(uu), powers @ of_v[:, 1], powers @ of_u[:, 1]
        ended = (1.0 - uu) * (powers @ stays_v) + vu * (powers @ stays_u)
        return np.asarray((powers @ firsts) * ended / ((1.0 - vv) * (1.0 - uu) - vu * uv))

    law = coefficient(places, bins, function)
    law[0] += 1.0 - firsts.sum()
    return law


def epsilons_of_walk(
    w: Array, steps: int, client: int, observer: int, z: float, delta: float, uses: int | None = None
) -> WalkEpsilons:
    """Return what an observer learns about an example of a client in a walk.

    Args:
        w: W, symmetric with rows that sum to 1, [K, K].
        steps: T, from 1 to 500.
        z: noise multiplier, for sums of gradients clipped to norm 1.
        delta: at least 1e-6.
        uses: gradients of the client that have the example; None: all. `at_least` is for all, else NaN.
    """
    checks.whole(1, 500, steps=steps)
    checks.positive(z=z)
    checks.open_unit(delta=delta)
    checks.at_least(100.0 * ERROR, delta=delta)
    n, places = len(w), steps + 1  # after the last step the model comes to one more client
    of_u, published = first_hits(w, np.eye(n)[client], [client, observer], steps).sum(axis=1), np.zeros(_PARTS + 1)
    hits = first_hits(w, np.eye(n)[client], [observer], steps)[1:, 0]
    np.add.at(published, np.ceil(_PARTS / np.arange(2, steps + 2)).astype(np.int64), hits)
    published[0] = 1.0 - hits.sum()
    times = max(1, steps // n) if uses is None else uses
    per = np.arange(_PARTS + 1) / (2.0 * _PARTS * z**2)
    renyi = times * np.array([logsumexp((a - 1.0) * a * per, b=published) / (a - 1.0) for a in _ORDERS])
    if uses is None:
        counts = _counts(w, places, client, observer)
        cap = int(np.flatnonzero(np.cumsum(counts[::-1])[::-1] > 1e-3 * delta)[-1])
        beyond = float(counts[cap + 1 :].sum()) + ERROR
        certified = _of_mixture(delta, counts[: cap + 1], 1.0, z, beyond)
        sums = _sums(w, places, client, observer, _PARTS * (cap + 2))
        least = least_epsilon(delta, w, places, client, observer, z)
    else:
        checks.whole(1, 200, uses=uses)
        one = np.zeros(_PARTS + 1)
        np.add.at(one, np.ceil(_PARTS / np.arange(1, steps + 1)).astype(np.int64), of_u[1:])
        one[0] += 1.0 - of_u.sum()
        beyond, least, sums = ERROR, math.nan, _power(one, uses)
        certified = _of_mixture(delta, np.eye(uses + 1)[uses], 1.0, z)
    smooth = min(certified, _of_mixture(delta, sums, 1.0 / _PARTS, z, beyond))
    by_authors = _of_mixture(delta, _power(published, times), 1.0 / _PARTS, z)
    return WalkEpsilons(certified, smooth, least, by_authors, float(renyi_to_epsilon(_ORDERS, renyi, delta)))


def _power(law: Array, times: int) -> Array:
    """Return the law of the sum of independent indices."""
    bins = 1 + (len(law) - 1) * times
    return np.maximum(0.0, np.fft.irfft(np.fft.rfft(law, 2 * bins) ** times, 2 * bins)[:bins])
