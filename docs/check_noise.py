"""Test the noise that is drawn on the device on very many draws: Kolmogorov and Smirnov, tails, and signs.

    python docs/check_noise.py                # 10^9 draws of the samplers gaussian and laplace, a minute or two
    python docs/check_noise.py --draws 1e7

Every number is held against its law at six standard deviations (a chance of 2e-9 to fail where nothing is wrong). The
Kolmogorov-Smirnov distance is taken at the edges of 65,536 bins per unit. Leaves with 1 where something is off.
"""

from __future__ import annotations

import argparse
import math
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from simfl.privacy.noise import SAMPLERS
from simfl.streams import Streams

SIZE = 1_000_000
BINS = 65_536
#: Chance of six standard deviations, on both sides.
CHANCE = 2 * stats.norm.sf(6)


def check(name: str, draws: int, seed: int) -> bool:
    """Draw `draws` numbers of a sampler, print what was found, and return whether all of it agrees with the law."""
    law, reach, thresholds = {
        "gaussian": (stats.norm(), 9.0, (1, 2, 3, 4, 5, 5.5, 6, 6.5, 7)),
        "laplace": (stats.laplace(), 39.0, (1, 4, 8, 12, 16, 18, 20, 22, 24)),
    }[name]
    key = jnp.asarray(Streams(seed).key("noise"))
    sample = jax.jit(lambda draw: SAMPLERS[name](key, jnp.int32(0), draw, SIZE))
    counts = np.zeros(int(2 * reach * BINS), np.int64)
    beyond = np.zeros((2, len(thresholds)), np.int64)
    smallest, largest, began = math.inf, 0.0, time.perf_counter()
    for draw in range(draws // SIZE):
        x = np.asarray(sample(jnp.int32(draw)))
        size = np.abs(x)
        smallest, largest = min(smallest, float(size.min())), max(largest, float(size.max()))
        counts += np.bincount(((x.astype(np.float64) + reach) * BINS).astype(np.int64), minlength=len(counts))
        far = x[size > thresholds[0]]
        beyond += [[(side * far > threshold).sum() for threshold in thresholds] for side in (1, -1)]
    total = int(counts.sum())
    edges = np.arange(1, len(counts)) / BINS - reach
    distance = math.sqrt(total) * float(np.abs(np.cumsum(counts)[:-1] / total - law.cdf(edges)).max())
    chance = float(stats.kstwobign.sf(distance))
    print(f"{name}: {total:,} draws in {time.perf_counter() - began:.0f} s, |x| from {smallest:.3g} to {largest:.5g}")
    print(f"  Kolmogorov-Smirnov: sqrt(n) D = {distance:.3f}, chance {chance:.3g}")
    good = chance > CHANCE
    for column, threshold in enumerate(thresholds):
        expected = total * float(law.sf(threshold))
        for side, found in zip("+-", beyond[:, column], strict=True):
            counted = stats.binom(total, float(law.sf(threshold)))
            chance = min(1.0, 2 * float(min(counted.cdf(found), counted.sf(found - 1))))
            good &= chance > CHANCE
            print(f"  beyond {side}{threshold:g}: {found:,}, expected {expected:,.2f}, chance {chance:.3g}")
    return good


def main() -> int:
    """Check both laws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=float, default=1e9, help="of each sampler")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    agrees = [check(name, int(given.draws), given.seed) for name in ("gaussian", "laplace")]
    return 0 if all(agrees) else 1


if __name__ == "__main__":
    sys.exit(main())
