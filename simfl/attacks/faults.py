"""Noise that is broken in known ways, and which faults an audit would show.

The tests use coordinates without gradients, so their results do not depend on the data. Simulated releases with the
same numbers of draws and coordinates go through the same tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from simfl.attacks.noise import FALSE_ALARMS, REACH, BlankCheck, NoiseLaw
from simfl.privacy.noise import unit_std
from simfl.streams import Streams

Noise = NDArray[np.float64]
Fault = Callable[[Noise, np.random.Generator], Noise]
"""(noise of unit variance [draws, coordinates], generator) -> the broken noise, of the same shape."""

#: Number of simulated audits of each fault, all of which must show it.
TRIALS = 3
#: Maximum number of simulated draws of a client; more draws show at least as much.
MOST_DRAWS = 64
#: Draws between uses of "noise reused every 4th draw".
PERIOD = 4
#: Numbers that "noise in equal blocks" repeats.
BLOCK = 32
#: Correlation of a draw with the previous one in "noise correlated in time".
CORRELATION = 0.5


def _time_series(noise: Noise, generator: np.random.Generator) -> Noise:
    series = noise.copy()
    for draw in range(1, len(noise)):
        series[draw] = CORRELATION * series[draw - 1] + np.sqrt(1 - CORRELATION**2) * noise[draw]
    return series


def _every_nth(noise: Noise, generator: np.random.Generator) -> Noise:
    return np.where(np.arange(len(noise))[:, None] % PERIOD == 0, noise[:1], noise)


def _antithetic(noise: Noise, generator: np.random.Generator) -> Noise:
    pairs = noise.copy()
    pairs[1::2] = -noise[: len(noise) // 2 * 2 : 2]
    return pairs


def _flipped(noise: Noise, generator: np.random.Generator) -> Noise:
    return np.where(np.arange(len(noise))[:, None] % 2, -noise[:1], noise[:1])


#: Faults of the noise of one client. All but the first three keep its variance.
FAULTS: dict[str, Fault] = {
    "noise off": lambda noise, _: 0.0 * noise,
    "noise halved": lambda noise, _: 0.5 * noise,
    "noise times 0.7": lambda noise, _: 0.7 * noise,
    "noise of +-1": lambda noise, _: np.sign(noise),
    "uniform noise": lambda noise, generator: generator.uniform(-np.sqrt(3.0), np.sqrt(3.0), noise.shape),
    "heavy-tailed noise": lambda noise, generator: generator.standard_t(3, noise.shape) / np.sqrt(3.0),
    "one noise for all draws": lambda noise, _: np.repeat(noise[:1], len(noise), axis=0),
    f"noise reused every {PERIOD}th draw": _every_nth,
    "one noise with flipped signs": _flipped,
    "antithetic pairs": _antithetic,
    "one noise rolled by the draw": lambda noise, _: np.stack([np.roll(noise[0], k) for k in range(len(noise))]),
    "noise correlated in time": _time_series,
    "one number for all coordinates": lambda noise, _: np.repeat(noise[:, :1], noise.shape[1], axis=1),
    "equal neighbors": lambda noise, _: np.repeat(noise, 2, axis=1)[:, : noise.shape[1]],
    "equal blocks": lambda noise, _: np.tile(noise[:, :BLOCK], -(-noise.shape[1] // BLOCK))[:, : noise.shape[1]],
}
#: A fault between two clients.
SHARED = "noise shared by clients"


@lru_cache(maxsize=64)
def shown(law: NoiseLaw, blank: int, draws: int, others: int) -> Mapping[str, bool]:
    """Return which faults the tests of blank coordinates show in simulated audits.

    `draws` releases of the client and `others` of another client were heard; `blank` coordinates contain only noise.
    """
    generator = Streams(0).generator("noise-faults")
    draws, others = min(draws, MOST_DRAWS), min(others, MOST_DRAWS)
    unit = unit_std(law.sampler, law.size)
    # Real releases are rotated over more coordinates, and every comparison has its share of the false alarms.
    level = FALSE_ALARMS * min(1.0, blank / min(law.size, REACH))

    def shows(name: str) -> bool:
        clients = [law.draw(generator, count, blank) / unit for count in (draws, others)]
        if name == SHARED:
            shared = min(draws, others)
            clients[1][:shared] = clients[0][:shared]
        else:
            clients = [FAULTS[name](noise, generator) if len(noise) else noise for noise in clients]
        check = BlankCheck(law, blank)
        for client, noise in enumerate(clients):
            check.hear(client, unit * noise)
        return check.alarms(level)

    return {name: blank > 0 and all(shows(name) for _ in range(TRIALS)) for name in (*FAULTS, SHARED)}
