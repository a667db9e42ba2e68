"""The constants of a run's problem, as the theorems ask for them, in float64.

They hold for all models w, or for those in a ball around the optimum that a run stayed in. They are of the problem that
the run drew, not assumed.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from simfl.assembly.assemble import prepare
from simfl.data.known import Points, Rows
from simfl.errors import ConditionError
from simfl.records import Run
from simfl.scenario import from_mapping

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Problem:
    """Constants of f_i, the loss of an example with its penalty; f is their mean.

    Attributes:
        examples: n, of all clients.
        dimension: d.
        smoothness: L, the largest of an example's loss.
        strong_convexity: mu of f.
        noise: E|grad f_i(w*)|², at the minimizer w* of f.
        largest_gradient: the largest |grad f_i(w*)|.
        optimum_norm: |w*|.
        gap: f(0) - f(w*); runs start at 0.
        first_gradient: |grad f(0)|².
        whole_smoothness: L of f, by which |grad f|² <= 2 L (f - f(w*)).
        variance: a bound of E|grad f_i(w) - grad f(w)|² over all examples, for all w.
        spread: a bound of E|grad f_i(w) - grad f_k(w)|² over the examples of a client k, for all w and k.
        drift: a bound of the mean over k of |grad f_k(w) - grad f(w)|², for all w.
        trace: the trace of the Hessian of a quadratic, NaN for a logistic problem.
        lipschitz: a bound of |grad f_i(w)| without the penalty, for all w; infinite for a quadratic.
    """

    examples: int
    dimension: int
    smoothness: float
    strong_convexity: float
    noise: float
    largest_gradient: float
    optimum_norm: float
    gap: float
    first_gradient: float
    whole_smoothness: float
    variance: float
    spread: float
    drift: float
    trace: float
    lipschitz: float

    def gradient_bound(self, radius: float) -> float:
        """Return a bound G of |grad f_i(w)| for all |w - w*| <= R.

        G = max_i |grad f_i(w*)| + L R.
        """
        return self.largest_gradient + self.smoothness * radius


def problem_of(scenario: Mapping[str, Any]) -> Problem:
    """Return the constants of a scenario's drawn quadratic or logistic problem.

    The scenario is resolved.

    Raises:
        ConditionError: it is another problem.
    """
    return _problem_of(json.dumps(dict(scenario), sort_keys=True))


def squares_of(run: Run, known: Problem) -> tuple[Floats, Floats]:
    """Return updates t, and |grad f(w_t)|² or more, at evaluations.

    It is 2 L (f(w_t) - f(w*)) with L of f, which is |grad f|² where the Hessian is L times the identity, and exact at
    the start.
    """
    squares = 2.0 * known.whole_smoothness * run.metrics["suboptimality"].to_numpy(np.float64)
    squares[0] = known.first_gradient
    return run.metrics["updates"].to_numpy(np.float64), squares


@functools.lru_cache(maxsize=256)
def _problem_of(text: str) -> Problem:
    setup = prepare(from_mapping(json.loads(text)))
    known, best, l2 = setup.dataset.known, setup.dataset.optimum, setup.model.l2
    if not isinstance(known, Points | Rows) or best is None or setup.dataset.suboptimality is None:
        raise ConditionError("data.set: expected a drawn quadratic or logistic problem, whose constants are known")
    gradients = known.gradients(best)
    whole, at_optimum = gradients.mean(axis=0), gradients + l2 * best
    parts = [setup.partition.of(k) for k in range(setup.partition.num_clients)]
    if isinstance(known, Points):  # differences of gradients are the same at all w
        own = [gradients[held] for held in parts]
        spread = max(float(((of - of.mean(axis=0)) ** 2).sum(axis=1).mean()) for of in own)
        drift = float(np.mean([((of.mean(axis=0) - whole) ** 2).sum() for of in own]))
        variance = float(((gradients - whole) ** 2).sum(axis=1).mean())
        smooth, lipschitz = float(known.h.max()), np.inf
    else:  # |grad f_i| <= |x_i|, and a variance is at most a mean square
        norms = np.linalg.norm(known.x.astype(np.float64), axis=1)
        spread = max(float((norms[held] ** 2).mean()) for held in parts)
        drift = float(np.mean([(norms[held] ** 2).mean() for held in parts]))
        variance, lipschitz = float((norms**2).mean()), float(norms.max())
        smooth = lipschitz**2 / 4
    convex, whole_smooth = known.curvatures(slice(None))
    return Problem(
        examples=len(gradients), dimension=len(best), smoothness=smooth + l2, strong_convexity=convex + l2,
        noise=float((at_optimum**2).sum(axis=1).mean()), optimum_norm=float(np.linalg.norm(best)),
        gap=setup.dataset.suboptimality(np.zeros_like(best)), whole_smoothness=whole_smooth + l2,
        largest_gradient=float(np.linalg.norm(at_optimum, axis=1).max()),
        first_gradient=float((known.gradients(np.zeros_like(best)).mean(axis=0) ** 2).sum()),
        variance=variance, spread=spread, drift=drift, lipschitz=lipschitz,
        trace=float(known.h.sum()) + l2 * len(best) if isinstance(known, Points) else np.nan,
    )  # fmt: skip
