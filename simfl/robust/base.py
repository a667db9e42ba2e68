"""The base classes of robust rules and attacks, and what they share.

Both are frozen dataclasses that `Tape.map` calls with `pads=True`. They get rows f32 [n, d]; `given.present` bool [n]
says which of these are models, the others are padding. A rule returns one model f32 [d]; its row 0 is the client's own
model. An attack returns the model that an attacker sends; its rows are the honest models that the attacker knows.
Coordinates that are not finite never reach the result of a rule that drops outliers if at most f models have one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from numpy.typing import NDArray

from simfl.models.base import PRECISION
from simfl.models.lazy import jax, jnp
from simfl.tape.layout import padded_size

if TYPE_CHECKING:
    from simfl.tape.maps import Given

#: What a rule or an attack needs: messages of many clients, or the receiver's own model and at least one message.
#: "before": it is a rule that replaces the messages of another one, its `rule`.
Among = Literal["many", "own", "before"]
#: What an option `f` means.
TOLERATED = "number of attackers that are tolerated; with too few models, the largest number below half of them"
#: The most rows that a network of comparisons sorts; its program grows faster than the number of rows.
NETWORK = 64


@dataclass(frozen=True)
class AbstractRule(ABC):
    """Combines several models into one."""

    kind: ClassVar[str]
    summary: ClassVar[str]
    #: Whether it needs messages of many clients, or compares each message with the receiver's own model.
    among: ClassVar[Among] = "many"

    def __call__(self, rows: Any, given: Given) -> jax.Array:
        """Return the aggregate, f32 [d]."""
        rows = jnp.asarray(rows)
        return self.aggregate(rows, given.present, weights_of(rows, given), 0.0)

    @abstractmethod
    def aggregate(
        self, models: jax.Array, present: jax.Array, weights: jax.Array, progress: float | jax.Array
    ) -> jax.Array:
        """Return the aggregate of the models that are present, f32 [d].

        Args:
            models: f32 [n, d]; row 0 is the client's own.
            present: bool [n].
            weights: f32 [n], which sum to 1.
            progress: share of the run that is over, 0 to 1.
        """

    def accepted(
        self, models: jax.Array, present: jax.Array, weights: jax.Array, progress: float | jax.Array
    ) -> jax.Array:
        """Return how much of each model counts, f32 [n]: from 0, nothing, to 1, all.

        Rows that are absent may have any value. The default, NaN, means unknown.
        """
        return jnp.full(len(models), jnp.nan, models.dtype)

    def without_own(self) -> Self:
        """Return the rule for a server, which receives updates of its model.

        The server's own update is 0.
        """
        return self


@dataclass(frozen=True)
class AbstractAttack(ABC):
    """Computes the model that an attacker sends.

    The rows are the models that the attacker knows. With `knows = "own"` this is the model that it would send if it
    were honest; with "everything" it is those that its receiver has from honest clients. If the receiver has a model of
    its own, that is row 0, unless the attack uses messages only (`messages_only`).
    """

    kind: ClassVar[str]
    summary: ClassVar[str]
    knows: ClassVar[Literal["own", "everything"]] = "everything"
    messages_only: ClassVar[bool] = False
    #: What the attack needs; None if it works on any receiver.
    among: ClassVar[Among | None] = None
    #: Whether it changes the attackers' labels, from the start, instead of their messages.
    on_data: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, rows: Any, given: Given) -> jax.Array:
        """Return the sent model, f32 [d], computed from the honest models in `rows`."""

    def labels(self, y: NDArray[Any], num_classes: int) -> NDArray[Any]:
        """Return the labels that attackers train on, int [n]; used if `on_data`."""
        return y


def padded(weights: Sequence[float]) -> list[float]:
    """Return weights as scalars of a padded call, with zeros up to a power of 2."""
    return [*weights, *[0.0] * (padded_size(len(weights)) - len(weights))]


def weights_of(rows: jax.Array, given: Given) -> jax.Array:
    """Return the weights of rows: the scalars of the call, or equal weights."""
    if given.scalars.shape[0]:
        weights = jnp.where(given.present, given.scalars, 0.0)
    else:
        weights = given.present / given.present.sum()
    return weights.astype(rows.dtype)


def tolerated(f: int, present: jax.Array) -> jax.Array:
    """Return f, or the largest number below half the models if that is less."""
    return jnp.minimum(f, (present.sum() - 1) // 2)


def weighted_sum(weights: jax.Array, rows: jax.Array) -> jax.Array:
    """Return the sum of rows times weights, f32 [d].

    As a product it takes a seventh of the time of a sum over the first axis, which XLA does not vectorize on a CPU.
    """
    return jnp.matmul(weights.astype(rows.dtype), rows, precision=PRECISION)


def mean_where(models: jax.Array, mask: jax.Array) -> jax.Array:
    """Return the mean of the rows where the mask, bool [n], is true, or 0."""
    return weighted_sum(mask, jnp.where(mask[:, None], models, 0.0)) / jnp.maximum(mask.sum(), 1)


def distances(models: jax.Array, present: jax.Array) -> jax.Array:
    """Return squared distances f32 [n, n].

    The distance to a row that is absent or not finite is infinite; that of a row to itself is 0.
    """
    squares = jax.lax.map(lambda one: jnp.square(models - one).sum(axis=1), models)
    known = jnp.where(present & jnp.isfinite(squares), squares, jnp.inf)
    return jnp.where(jnp.eye(len(models), dtype=bool), 0.0, known)


def ranks(values: jax.Array) -> jax.Array:
    """Return the place of each value along the last axis, from 0; ties keep order."""
    return jnp.argsort(jnp.argsort(values, axis=-1), axis=-1)


def ordered(models: jax.Array, present: jax.Array) -> list[jax.Array]:
    """Return each coordinate's values in order, n rows f32 [d].

    Absent rows and NaN count as infinity, so they are last. XLA sorts columns of a few values slowly on a CPU: a
    network of comparisons (Batcher 1968) takes a hundredth of the time, and becomes one loop with what reads it.
    """
    known = jnp.where(present[:, None] & ~jnp.isnan(models), models, jnp.inf)
    if len(models) > NETWORK:
        return list(jnp.sort(known, axis=0))
    rows = list(known)
    for low, high in comparisons(len(rows)):
        one, other = rows[low], rows[high]
        swap = one > other
        rows[low], rows[high] = jnp.where(swap, other, one), jnp.where(swap, one, other)
    return rows


def comparisons(count: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs of places that Batcher's odd-even merge sort puts in order."""
    size = 1
    while size < count:
        step = size
        while step:
            for start in range(step % size, count - step, 2 * step):
                for low in range(start, min(start + step, count - step)):
                    if low // (2 * size) == (low + step) // (2 * size):
                        yield low, low + step
            step //= 2
        size *= 2


def row_at(rows: Sequence[jax.Array], place: int | jax.Array) -> jax.Array:
    """Return the row at a place that is known only while the program runs."""
    found = rows[0]
    for number, row in enumerate(rows):
        found = jnp.where(place == number, row, found)
    return found


def within(models: jax.Array, least: jax.Array, most: jax.Array) -> jax.Array:
    """Return the share of each model's coordinates between two bounds, f32 [n]."""
    return ((models >= least) & (models <= most)).mean(axis=1)


def factors(differences: jax.Array, tau: float) -> jax.Array:
    """Return the factors that scale rows down to L2 norm at most tau, f32 [n].

    The factor of a row that is not finite is 0.
    """
    norms = jnp.linalg.norm(differences, axis=1)
    return jnp.where(jnp.isfinite(norms), jnp.minimum(1.0, tau / jnp.maximum(norms, 1e-30)), 0.0)


def clipped(differences: jax.Array, tau: float) -> jax.Array:
    """Return rows scaled down to L2 norm at most tau; rows that are not finite are 0."""
    scale = factors(differences, tau)[:, None]
    return jnp.where(scale > 0.0, differences * scale, 0.0)
