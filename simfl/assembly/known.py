"""The constants of a scenario whose optimum is known, as theory states them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from simfl.assembly.robust import attackers_of, held_by_attackers
from simfl.data.known import DoubleArray, Known

if TYPE_CHECKING:
    from simfl.assembly.setup import Setup


def constants_of(setup: Setup) -> dict[str, float] | None:
    """Return the constants of a problem of known optimum; None for another one.

    f is the mean loss of all training examples and f_k that of client k's, both with l2, and w* the minimizer of f.
    With attackers, f has no examples that only they hold, and clients are the honest ones.

    - `smoothness` L and `strong_convexity` mu: bounds of the eigenvalues of the Hessian of f, over all w;
      `client_smoothness` is the largest L of a client;
    - `optimal_loss`: f(w*);
    - `zeta`: the root of the mean over clients of |grad f_k(w*)|^2, and `zeta_max` the largest |grad f_k(w*)|;
    - `sigma`: the root of E |g - grad f_k(w*)|^2 of a mini-batch's gradient g at w*, of the client where it is largest,
      with `gradient_noise` and without the noise and the clipping of privacy.
    """
    known, best, loss = setup.dataset.known, setup.dataset.optimum, setup.dataset.optimal_loss
    if not is_known(setup) or known is None or best is None or loss is None:
        return None
    l2 = setup.model.l2
    parts, counted = _honest(setup)
    gradients = known.gradients(best)
    zetas = np.array([np.linalg.norm(gradients[held].mean(axis=0) + l2 * best) for held in parts])
    variances = [_variance(gradients[held], setup.kind.sampling, setup.scenario.algorithm.batch_size) for held in parts]
    least, largest = known.curvatures(counted)
    return {
        "smoothness": largest + l2,
        "client_smoothness": _largest(known, parts) + l2,
        "strong_convexity": least + l2,
        "optimal_loss": loss,
        "zeta": float(np.sqrt((zetas**2).mean())),
        "zeta_max": float(zetas.max()),
        "sigma": float(np.sqrt(max(variances) + setup.scenario.algorithm.gradient_noise**2)),
    }


def is_known(setup: Setup) -> bool:
    """Return whether the model trains the problem whose optimum the data set has."""
    return setup.scenario.data.set == setup.scenario.model.kind and setup.dataset.optimum is not None


def uneven_weights(setup: Setup) -> str | None:
    """Return a warning if examples do not count alike; None if they do.

    In f, all examples count alike. With `weighting: data` a client counts in proportion to its examples, and otherwise
    clients count alike. Attackers do not count.
    """
    parts, counted = _honest(setup)
    sizes, n = np.array([len(held) for held in parts]), len(setup.dataset.train_x[counted])
    by_data = getattr(setup.scenario.algorithm, "weighting", None) == "data"
    weights = np.ones(sizes.sum()) if by_data else np.repeat(1.0 / sizes, sizes)
    summed = np.bincount(np.concatenate(parts), weights, minlength=len(setup.dataset.train_x))[counted]
    counts = summed * n / weights.sum()
    if np.ptp(counts) < 1e-9:
        return None
    held, times = f"{sizes.min()} to {sizes.max()}", f"{counts.min():.3g} to {counts.max():.3g} times"
    return (
        f"data.partition: clients hold {held} examples each, so that an example counts {times} with algorithm "
        f"'{setup.scenario.algorithm.kind}'; the stated optimum, f* and zeta weigh all {n} examples alike: use shares "
        "of equal size"
    )


def _honest(setup: Setup) -> tuple[list[npt.NDArray[np.int32]], npt.NDArray[np.int64] | slice]:
    """Return the examples of each honest client, and all that count."""
    hostile = attackers_of(setup.scenario, setup.streams)
    parts = [setup.partition.of(k) for k in range(setup.partition.num_clients) if k not in hostile]
    if not hostile:
        return parts, slice(None)
    return parts, np.setdiff1d(np.arange(len(setup.dataset.train_x)), held_by_attackers(setup.partition, hostile))


def _largest(known: Known, parts: list[npt.NDArray[np.int32]]) -> float:
    return max(known.curvatures(held)[1] for held in parts)


def _variance(gradients: DoubleArray, sampling: str, batch_size: int) -> float:
    """Return E |g - mean|^2 for the mean g of a mini-batch of gradients [n, d]."""
    n, squares = len(gradients), (gradients**2).sum(axis=1).mean()
    batch_size = min(batch_size, n)
    if sampling == "poisson":  # each of the n with probability B / n, and their sum is divided by B
        return float(squares * (1.0 - batch_size / n) / batch_size)
    variance = float(max(squares - (gradients.mean(axis=0) ** 2).sum(), 0.0)) / batch_size
    return variance if sampling == "with_replacement" or n == 1 else variance * (n - batch_size) / (n - 1)
