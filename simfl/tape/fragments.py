"""Fragments: sets of coordinates that clients send and combine one by one.

The coordinates 0..d-1 of a model are cut into P fragments, the same ones for all clients and during the whole run. With
f(i) the fragment of coordinate i, a masked combination of a base w and of parts (c_j, w_j, f_j) is

    out[i] = kept[f(i)] w[i] + sum over j with f_j = f(i) of c_j w_j[i]

It is one function of models on the tape (`Tape.map`), so it waits for no numbers, and checkpoints know it. Its numbers
are scalars of the call. A part is recorded as the whole model that it is cut from, so an account of a network charges
an observer as if it saw all of that model: an upper bound.

    cut = Fragments.equal(size=650, count=10, seed=3)
    network.send(me, peer, cut.bytes(7), deliver, content=model)                        # fragment 7 of the model
    mean = cut.combine(tape, own, [(0.5, model, 7)], {7: 0.5})                          # (own + received) / 2 in it
    mixed = cut.combine(tape, own, [(0.6, one, 7), (0.4, two, 7)], {7: 0.0})            # replaces it
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.models.lazy import jax, jnp
from simfl.tape.layout import padded_size
from simfl.tape.maps import Given
from simfl.tape.recording import Model, Tape

#: A coefficient, a model, and the fragment of it that counts.
Part = tuple[float, Model, int]


@dataclass(frozen=True)
class Fragments:
    """A cut of d coordinates into P fragments; a function of models by itself.

    Attributes:
        ends: one past the last place of each fragment, rising; the last is d.
        seed: which permutation of the coordinates gives their places; None: each coordinate is its place, so that
            fragments are blocks, of layers for example.
        tensors: length and fragment of each tensor, in the order of coordinates; empty: places decide.
    """

    ends: tuple[int, ...]
    seed: int | None = None
    tensors: tuple[tuple[int, int], ...] = ()

    @classmethod
    def equal(cls, size: int, count: int, seed: int | None = None) -> Fragments:
        """Cut coordinates into at most `count` fragments of about equal sizes."""
        count = min(count, size)
        return cls(tuple(size * (number + 1) // count for number in range(count)), seed)

    @classmethod
    def packed(cls, lengths: Sequence[int], count: int) -> Fragments:
        """Cut a vector of tensors into at most `count` fragments of whole tensors.

        The longest tensor comes first, and each goes into the shortest fragment: so the longest fragment has at most
        4/3 of the coordinates of the best possible one (Graham 1969, "Bounds on multiprocessing timing anomalies").
        """
        totals, fragment_of = [0] * min(count, len(lengths)), [0] * len(lengths)
        for tensor in sorted(range(len(lengths)), key=lambda tensor: -lengths[tensor]):
            fragment = fragment_of[tensor] = totals.index(min(totals))
            totals[fragment] += lengths[tensor]
        return cls(tuple(itertools.accumulate(totals)), None, tuple(zip(lengths, fragment_of, strict=True)))

    @property
    def count(self) -> int:
        """P, the number of fragments."""
        return len(self.ends)

    @property
    def lengths(self) -> list[int]:
        """The number of coordinates of each fragment."""
        return [end - begin for begin, end in itertools.pairwise((0, *self.ends))]

    def bytes(self, fragment: int) -> int:
        """Return the bytes of a fragment in a message; they add up to those of a model."""
        return 4 * (self.ends[fragment] - (self.ends[fragment - 1] if fragment else 0))

    def of(self) -> NDArray[np.int32]:
        """Return f, the fragment of each coordinate, int32 [d]."""
        if self.tensors:
            lengths, fragment_of = zip(*self.tensors, strict=True)
            return np.repeat(np.asarray(fragment_of, np.int32), lengths)
        places = np.repeat(np.arange(self.count, dtype=np.int32), self.lengths)
        return places if self.seed is None else places[np.random.default_rng(self.seed).permutation(len(places))]

    def combine(self, tape: Tape, base: Model, parts: Sequence[Part], kept: Mapping[int, float] | None = None) -> Model:
        """Return kept * base + the sum of the parts, each in its fragment only.

        Args:
            tape: records the function.
            base: w.
            parts: (c_j, w_j, f_j).
            kept: the coefficient of the base in some fragments; in others it is 1.
        """
        if not parts and not kept:
            return base
        blanks = [0.0] * (padded_size(1 + len(parts)) - 1 - len(parts))
        scalars = [1.0 if kept is None else kept.get(fragment, 1.0) for fragment in range(self.count)]
        scalars += [0.0, *(part[0] for part in parts), *blanks]
        scalars += [0.0, *(float(part[2]) for part in parts), *blanks]
        (made,) = tape.map(self, [base, *(part[1] for part in parts)], scalars=scalars, pads=True)
        return made

    def __call__(self, rows: Any, given: Given) -> jax.Array:
        """Return the masked combination of rows f32 [n, d], f32 [d].

        The scalars are kept [P], c [n] and f [n]; the first row is the base, whose c is 0.
        """
        fragment_of = jnp.asarray(self.of())
        n = rows.shape[0]
        kept, coefs, fragments = jnp.split(given.scalars, [self.count, self.count + n])
        counts = (fragments[:, None] == fragment_of) & (coefs[:, None] != 0.0)  # a blank row may hold any number
        return kept[fragment_of] * rows[0] + jnp.sum(jnp.where(counts, coefs[:, None] * rows, 0.0), axis=0)
