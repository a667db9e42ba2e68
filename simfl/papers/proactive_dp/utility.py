"""The utility graph: the accuracy with noise, before private training.

Van Dijk et al. 2021, "Proactive DP: A Multiple Target Optimization Framework for DP-SGD",
https://arxiv.org/abs/2102.09030, Sections 3.3 and 4.1.

A model w* is trained with per-example clipping to C and without noise, over K gradients with diminishing steps. Then,
for each noise multiplier sigma, the accuracy of w* + n is compared with that of w*:

    ratio(C, sigma) = E acc(w* + n) / acc(w*),   n ~ N(0, (a C sigma)^2 I).

The largest sigma whose ratio is at least 1 - loss is the frontier at C. The paper does not define the factor `a`, on
which the result depends. A round of one client's DP-SGD adds (eta_i / s) N(0, (C sigma)^2 I) to the model, where eta_i
is the step on the mean gradient of s examples; the mean of n clients' models gets 1/sqrt(n) of that. Three readings:

- `figure`, a = 1: as in the captions of the paper's figures. It adds the noise of a gradient to a model: features that
  are r times larger divide the frontier by about r^2, and the step size has no influence.
- `last`, a = (eta_T / s) / sqrt(n): the last round's noise only, the "best case" of Section 3.3. It bounds the accuracy
  from above, and the ratio is rarely below 0.99.
- `all`, a = sqrt(sum_i (eta_i / s)^2 / n): the noise of all rounds, added up as if no later step corrected any of it.
  It bounded the accuracy from below in all private trainings that we measured (docs/planning.md). This reading is
  simfl's, not the paper's.

The graph reads the data, and no epsilon accounts for that. Use public data, or data that the plan does not protect.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from simfl.models import AbstractModel
from simfl.papers.proactive_dp.theorems import SLACK
from simfl.privacy import checks

READINGS = ("all", "last", "figure")
"""Readings of the noise n on w*, see above."""

Bound = Literal["interpolated", "grid_ends", "below_grid"]
"""The frontier is between two points of the grid, at least the last point, or less than the first point."""

Floats: TypeAlias = NDArray[np.float32] | NDArray[np.float64]
Progress: TypeAlias = Callable[[float], None]
"""Receives the share of the work that is done, in [0, 1]."""

SHARE_WITHIN = 0.9
"""Share of the draws within the interval of a ratio."""
_MEMORY = 2**24
"""Limit of the numbers that models evaluated in parallel need, 64 MB."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Task:
    """A model with its training and test data."""

    model: AbstractModel = field(metadata={"static": True})  # with an accuracy
    train_x: Any  # f32 [m, *input_shape]
    train_y: Any  # int32 [m]
    test_x: Any  # f32 [t, *input_shape]
    test_y: Any  # int32 [t]
    initial: Any  # parameters at the start, f32 [d]

    def on_device(self) -> Task:
        """Return the task with its arrays on the device."""
        task: Task = jax.tree.map(jnp.asarray, self)
        return task


def draw_batches(examples: int, batch_size: int, rounds: int, generator: np.random.Generator) -> NDArray[np.int32]:
    """Draw the batches of T rounds, int32 [T, B], in a new order every pass."""
    checks.whole(1, examples=examples, batch_size=batch_size, rounds=rounds)
    passes = -(-batch_size * rounds // examples)
    order = np.concatenate([generator.permutation(examples) for _ in range(passes)])
    return order[: batch_size * rounds].astype(np.int32).reshape(rounds, batch_size)


def train_clipped(task: Task, batches: NDArray[np.int32], steps: Floats, clipping_norm: float) -> jax.Array:
    """Return w*, f32 [d]: SGD with per-example clipping and without noise.

    w <- w - eta_i ( (1/B) sum_{j in batch i} [grad f(w; x_j)]_C + lambda w )

    `batches` are rows of the training data, int32 [T, B], and `steps` eta_i, [T]; C = inf does not clip.
    """
    if not clipping_norm > 0.0:  # inf does not clip
        raise ValueError(f"clipping_norm: expected a number > 0, found {clipping_norm:g}")
    if len(batches) != len(steps):
        raise ValueError(f"steps: expected one per round, {len(batches)}, found {len(steps)}")
    eta = jnp.asarray(steps, dtype=jnp.float32)
    params: jax.Array = _descend(task, jnp.asarray(batches), eta, jnp.float32(clipping_norm))
    return params


@jax.jit  # type: ignore[untyped-decorator]
def _descend(task: Task, batches: jax.Array, steps: jax.Array, clipping_norm: jax.Array) -> jax.Array:
    model, size = task.model, batches.shape[1]
    weight = jnp.ones(size)

    def descend(params: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        rows, eta = step
        total = model.clipped_gradient_sum(params, task.train_x[rows], task.train_y[rows], weight, clipping_norm)
        return params - eta * (total / size + model.l2 * params), None

    return jax.lax.scan(descend, task.initial, (batches, steps))[0]


def accuracy_of(task: Task, params: jax.Array) -> float:
    """Return the test accuracy of a model.

    Raises:
        ValueError: the model, such as a regression, has no accuracy.
    """
    zero = jnp.zeros((1, task.model.size))
    accuracy = float(_accuracies(task, params, jnp.float32(0.0), zero)[0])
    if math.isnan(accuracy):
        raise ValueError(f"model {task.model.kind} has no accuracy, which a utility graph needs; take a classifier")
    return accuracy


def perturbed_accuracies(
    task: Task,
    params: jax.Array,
    stds: Floats,
    draws: int,
    key: NDArray[np.uint32],
    progress: Progress = lambda share: None,
) -> NDArray[np.float64]:
    """Return the accuracies of params + std * g_j, g_j Gaussian, [S, draws].

    The draws are the same for every std and for all calls with one key, so that differences between points are not
    random. As many models as fit into 64 MB are evaluated in parallel.

    `params` are f32 [d], `stds` standard deviations per coordinate, [S], where NaN gives NaN, and `key` is a raw
    threefry key, uint32 [2].
    """
    checks.whole(1, draws=draws)
    values = np.full((len(stds), draws), math.nan)
    at_once = min(draws, _models_at_once(task.model, len(task.test_y)))
    for first in range(0, draws, at_once):
        last = min(first + at_once, draws)
        noise = _noise(jnp.asarray(key), jnp.arange(first, last, dtype=jnp.uint32), task.model.size)
        for index, std in enumerate(stds):
            if not math.isnan(std):
                values[index, first:last] = np.asarray(_accuracies(task, params, jnp.float32(std), noise))
            progress((first * len(stds) + (index + 1) * (last - first)) / (draws * len(stds)))
    return values


def _models_at_once(model: AbstractModel, examples: int) -> int:
    """Return the number of draws in memory at once.

    All models but convolutions are evaluated in parallel.
    """
    if model.convolutional:
        return max(1, _MEMORY // (4 * model.size))  # the memory of the noise
    width = 2 + 2 * model.size // model.num_features  # at least the numbers that a dense network keeps per example
    return max(1, _MEMORY // (model.size + width * examples))


@functools.partial(jax.jit, static_argnums=2)
def _noise(key: jax.Array, numbers: jax.Array, size: int) -> jax.Array:
    """Draw f32 [numbers, size]; each row depends only on its number."""
    wrapped = jax.random.wrap_key_data(key, impl="threefry2x32")
    return jax.vmap(lambda number: jax.random.normal(jax.random.fold_in(wrapped, number), (size,)))(numbers)


@jax.jit  # type: ignore[untyped-decorator]
def _accuracies(task: Task, params: jax.Array, std: jax.Array, noise: jax.Array) -> jax.Array:
    def accuracy(draw: jax.Array) -> jax.Array:
        return jnp.mean(task.model.correct(params + std * draw, task.test_x, task.test_y))

    return jax.lax.map(accuracy, noise) if task.model.convolutional else jax.vmap(accuracy)(noise)


def noise_factors(
    reading: str, *, steps: Floats, batch_size: int, num_clients: int, rounds: Sequence[float]
) -> tuple[float, ...]:
    """Return the factor `a` of a reading for each number of rounds.

    `steps` are eta_i on the mean gradient of `batch_size` examples of a client, [T]. Another batch size rescales them
    so that eta / s is equal at equal numbers of gradients. So `all` grows with the square root of the number of rounds.
    `rounds` are those of a client for each sigma, NaN if sigma has no plan. The models (or gradients) of `num_clients`
    are averaged.
    """
    per_gradient = np.asarray(steps, dtype=np.float64) / batch_size
    if reading == "figure":
        return (1.0,) * len(rounds)
    if reading == "last":
        return (float(per_gradient[-1]) / math.sqrt(num_clients),) * len(rounds)
    if reading == "all":
        mean_square = float(np.mean(per_gradient**2))
        return tuple(math.sqrt(mean_square * number / num_clients) for number in rounds)
    raise ValueError(f"reading: expected one of {', '.join(READINGS)}, found {reading!r}")


class UtilityRow(NamedTuple):
    """One point of a utility graph."""

    clipping_norm: float  # C
    noise_multiplier: float  # sigma
    noise_factor: float  # a; the noise on w* has standard deviation a C sigma
    ratio: float  # mean over draws of acc(w* + n) / acc(w*); NaN if sigma has no plan
    ratio_low: float  # bounds of nine in ten draws
    ratio_high: float
    accuracy: float  # mean over draws of acc(w* + n)
    accuracy_without_noise: float  # acc(w*)


@dataclass(frozen=True)
class UtilityGraph:
    """The share of the accuracy that remains with noise, for each clipping norm."""

    clipping_norms: tuple[float, ...]  # C, increasing, [c]
    noise_multipliers: tuple[float, ...]  # sigma, increasing, [s]
    noise_factors: tuple[float, ...]  # a for each sigma
    accuracies: tuple[float, ...]  # acc(w*) for each C
    unclipped_accuracy: float  # of a model trained without clipping
    ratios: tuple[tuple[float, ...], ...]  # mean over draws of acc(w* + n) / acc(w*), [c][s]
    lows: tuple[tuple[float, ...], ...]  # bounds of nine in ten draws, [c][s]
    highs: tuple[tuple[float, ...], ...]
    draws: int  # of noise per point
    gradients: int  # K, computed for each w*

    @property
    def reference(self) -> float:
        """The best accuracy without noise; losses are relative to it."""
        return max(*self.accuracies, self.unclipped_accuracy)

    def rows(self) -> tuple[UtilityRow, ...]:
        """Return all points, C by C."""
        curves = zip(self.clipping_norms, self.accuracies, self.ratios, self.lows, self.highs, strict=True)
        return tuple(
            UtilityRow(norm, sigma, a, ratio, low, high, ratio * accuracy, accuracy)
            for norm, accuracy, *of_norm in curves
            for sigma, a, ratio, low, high in zip(self.noise_multipliers, self.noise_factors, *of_norm, strict=True)
        )


def check_grid(name: str, values: Sequence[float]) -> tuple[float, ...]:
    """Return the numbers of a grid, sorted.

    Raises:
        ValueError: there are none, or one is not finite and > 0, or two are equal.
    """
    grid = tuple(sorted(float(value) for value in values))
    if not grid or not all(0.0 < value < math.inf for value in grid) or len(set(grid)) < len(grid):
        text = ", ".join(f"{value:g}" for value in values) or "none"
        raise ValueError(f"{name}: expected one or more different numbers > 0, found {text}")
    return grid


def utility_graph(
    task: Task,
    batches: NDArray[np.int32],
    steps: Floats,
    *,
    clipping_norms: Sequence[float],
    noise_multipliers: Sequence[float],
    noise_factors: Sequence[float] | float = 1.0,
    draws: int = 20,
    key: NDArray[np.uint32],
    progress: Progress = lambda share: None,
) -> UtilityGraph:
    """Train w* for each clipping norm, and measure its accuracy with noise.

    Args:
        task: model and data.
        batches: mini-batches of all trainings, int32 [T, B].
        steps: eta_i on the mean gradient, [T].
        clipping_norms: C > 0, a grid.
        noise_multipliers: sigma > 0, an increasing grid.
        noise_factors: a, one number or one for each sigma; NaN leaves a sigma out.
        draws: of noise per point.
        key: of the noise, raw threefry key, uint32 [2].
        progress: receives the share of the work that is done.

    Raises:
        ValueError: a grid is invalid, or the model has no accuracy.
    """
    norms = check_grid("clipping norms", clipping_norms)
    sigmas = check_grid("noise multipliers", noise_multipliers)
    if sigmas != tuple(float(sigma) for sigma in noise_multipliers):
        raise ValueError("noise multipliers: expected an increasing order")
    factors = np.broadcast_to(np.asarray(noise_factors, dtype=np.float64), (len(sigmas),))
    task = task.on_device()
    training = 3.0 * batches.size  # in forward passes; a gradient takes about three
    evaluating = float(draws * len(sigmas) * len(task.test_y))
    total = training * (len(norms) + 1) + evaluating * len(norms)

    unclipped = accuracy_of(task, train_clipped(task, batches, steps, math.inf))
    accuracies, with_noise = [], []
    done = training
    progress(done / total)
    for norm in norms:
        params = train_clipped(task, batches, steps, norm)
        accuracies.append(accuracy_of(task, params))
        done += training

        def report(share: float, done: float = done) -> None:
            progress((done + share * evaluating) / total)

        stds = norm * factors * np.array(sigmas)
        with_noise.append(perturbed_accuracies(task, params, stds, draws, key, report))
        done += evaluating
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.array(with_noise) / np.array(accuracies)[:, None, None]
    bounds = np.quantile(ratios, [0.5 - SHARE_WITHIN / 2, 0.5 + SHARE_WITHIN / 2], axis=2)
    means, lows, highs = (tuple(map(tuple, curves.tolist())) for curves in (ratios.mean(axis=2), *bounds))
    return UtilityGraph(
        norms, sigmas, tuple(factors.tolist()), tuple(accuracies), unclipped, means, lows, highs, draws, batches.size
    )


@dataclass(frozen=True)
class FrontierPoint:
    """The most noise that a clipping norm allows."""

    clipping_norm: float  # C
    noise_multiplier: float  # sigma; `bound` says how it bounds the frontier
    bound: Bound
    ratio: float  # at that sigma: the target if interpolated, larger if grid_ends, smaller if below_grid
    accuracy: float  # expected at that sigma, ratio times acc(w*)

    def show(self, digits: int = 4) -> str:
        """Write sigma, marked as a bound unless it is interpolated."""
        sign = {"interpolated": "", "grid_ends": "≥ ", "below_grid": "< "}[self.bound]
        return f"{sign}{self.noise_multiplier:.{digits}g}"


def frontier(
    graph: UtilityGraph, target_loss: float, *, against: Literal["own", "reference"] = "own"
) -> tuple[FrontierPoint, ...]:
    """Return the largest sigma of each clipping norm with ratio >= 1 - target_loss.

    The first crossing counts, by linear interpolation in sigma between the points of the grid. A norm without any
    planned sigma is left out.

    target_loss in (0, 1) is relative to acc(w*) of the same C (`own`), as in the paper, or to the best accuracy of the
    graph without noise (`reference`), which includes the cost of clipping.
    """
    checks.open_unit(target_loss=target_loss)
    sigmas = np.array(graph.noise_multipliers)
    points: list[FrontierPoint] = []
    for norm, accuracy, values in zip(graph.clipping_norms, graph.accuracies, graph.ratios, strict=True):
        planned = np.isfinite(values)
        x, y = sigmas[planned], np.array(values)[planned]
        if not x.size:
            continue
        wanted = 1.0 - target_loss
        if against == "reference":
            wanted *= graph.reference / accuracy
        bound: Bound
        below = np.flatnonzero(y < wanted - SLACK)
        if not below.size:
            sigma, ratio, bound = x[-1], y[-1], "grid_ends"
        elif below[0] == 0:
            sigma, ratio, bound = x[0], y[0], "below_grid"
        else:
            at = below[0]
            sigma = x[at - 1] + (y[at - 1] - wanted) / (y[at - 1] - y[at]) * (x[at] - x[at - 1])
            ratio, bound = wanted, "interpolated"
        points.append(FrontierPoint(norm, float(sigma), bound, float(ratio), float(ratio) * accuracy))
    return tuple(points)
