"""One seed, one independent random stream per (purpose, client, count).

Every draw of a run comes from this module. The streams are counter-based (Philox on the host, threefry on the device),
so a draw depends only on its name and never on the number of other draws. Another algorithm, or noise, therefore leaves
the compute times of all clients unchanged (common random numbers), and runs can be compared in pairs.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@functools.cache
def _code(purpose: str) -> int:
    """Return a stable 64-bit number for the name of a stream."""
    return int.from_bytes(hashlib.blake2b(purpose.encode(), digest_size=8).digest(), "little")


@functools.lru_cache(maxsize=4096)
def _key(seed: int, purpose: str) -> np.ndarray:
    """Return the key of Philox, uint64 [2]."""
    return np.array([seed & (2**64 - 1), _code(purpose)], dtype=np.uint64)


#: The part of Philox's state about draws in its buffer, of which there are none.
_NOTHING_LEFT = {"buffer": np.zeros(4, np.uint64), "buffer_pos": 4, "has_uint32": 0, "uinteger": 0}


class Seat:
    """A generator that moves from stream to stream of one purpose.

    This is many times cheaper than a new generator, which matters when thousands of clients draw in turn.
    """

    def __init__(self, generator: np.random.Generator, key: np.ndarray) -> None:
        self._generator, self._bits = generator, generator.bit_generator
        self._counter = np.zeros(4, np.uint64)
        at: dict[str, Any] = {"counter": self._counter, "key": key}
        self._state: dict[str, Any] = {"bit_generator": "Philox", "state": at, **_NOTHING_LEFT}

    def at(self, client: int, count: int) -> np.random.Generator:
        """Return the generator, at the beginning of a stream; see `Streams.generator`."""
        counter = self._counter
        counter[2], counter[3] = client, count
        self._bits.state = self._state
        return self._generator


@dataclass(frozen=True)
class Streams:
    """The random streams of one seed >= 0; different seeds give unrelated streams."""

    seed: int

    def generator(self, purpose: str, client: int = 0, count: int = 0) -> np.random.Generator:
        """Return the host generator of one stream.

        `purpose` names the use of the draws, such as "compute" or "partition". `client` is the client (or link) that
        draws, and `count` distinguishes several streams of one client; both are >= 0.
        """
        counter = np.array([0, 0, client, count], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=_key(self.seed, purpose), counter=counter))

    def seat(self, purpose: str) -> Seat:
        """Return a generator that can be moved to each stream of a purpose."""
        return Seat(self.generator(purpose), _key(self.seed, purpose))

    def key(self, purpose: str, client: int = 0) -> np.ndarray:
        """Return a raw threefry key, uint32 [2]; see `jax.random.wrap_key_data`."""
        text = f"{self.seed}/{purpose}/{client}".encode()
        return np.frombuffer(hashlib.blake2b(text, digest_size=8).digest(), dtype=np.uint32).copy()


@dataclass(frozen=True)
class WatchedStreams(Streams):
    """Streams that know whether anything was drawn from them."""

    _drawn: list[str] = field(default_factory=list, repr=False, compare=False)

    @property
    def are_used(self) -> bool:
        """Whether something asked for a generator or a key."""
        return bool(self._drawn)

    def generator(self, purpose: str, client: int = 0, count: int = 0) -> np.random.Generator:
        """As in `Streams`."""
        self._drawn.append(purpose)
        return super().generator(purpose, client, count)

    def key(self, purpose: str, client: int = 0) -> np.ndarray:
        """As in `Streams`."""
        self._drawn.append(purpose)
        return super().key(purpose, client)
