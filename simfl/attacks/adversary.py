"""The adversary's knowledge of a run: a listening tape, and facts of each release."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from simfl.assembly.setup import Setup
from simfl.attacks.canary import CanaryModel
from simfl.errors import RunError, ScenarioError
from simfl.models import AbstractModel
from simfl.models.base import Array
from simfl.privacy.releases import Releases
from simfl.records import RunFolder
from simfl.runs.runner import Simulation
from simfl.tape import Gradient, Model, Tape
from simfl.tape.draws import batch_positions
from simfl.tape.problem import LearningProblem

#: Number of releases that are passed on together.
HEARD_AT_A_TIME = 16

Hear = Callable[[NDArray[np.float32], NDArray[np.float32], Sequence[Gradient]], None]
"""Takes k releases: the models f32 [k, d] at which they were taken, the releases f32 [k, d] and the promises [k]."""


class ListeningTape(Tape):
    """A tape that also reports the releases of some clients.

    It hears each of their promises once: when it is sent or consumed, whichever comes first, on any path. The tape's
    tally counts the same promises independently, so the two can be compared.

    `clients` maps clients to the maximum number of their heard releases; `hear` is called with some releases at a time.
    `factor` is a power of two by which releases are multiplied while they are rows of the executor. The other arguments
    are those of `Tape`.
    """

    def __init__(
        self, *arguments: Any, clients: Mapping[int, float], hear: Hear, factor: float = 1.0, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._left = dict(clients)
        self._hear = hear
        self._factor = factor
        self._pending: list[tuple[Model, Model, Gradient]] = []

    def combine(self, *terms: tuple[float, Model | Gradient]) -> Model:
        """Combine terms as `Tape.combine`, and listen to the promises among them."""
        self._listen(terms)
        return super().combine(*terms)

    def step(self, base: Model, coef: float, gradient: Gradient) -> Model:
        """Take a step as `Tape.step`, and listen to its promise."""
        self._listen([(coef, gradient)])
        return super().step(base, coef, gradient)

    def apply(self, *terms: tuple[float, Model | Gradient]) -> Model:
        """Apply terms as `Tape.apply`, and listen to the promises among them."""
        self._listen(terms)
        return super().apply(*terms)

    def release(self, promise: Gradient) -> None:
        """Release a promise as `Tape.release`, and listen to it."""
        self._listen([(1.0, promise)])
        super().release(promise)

    def hold(self, promise: Gradient) -> None:
        """Raise: a gradient that a client keeps cannot be heard separately."""
        raise ScenarioError(
            "algorithm.kind: expected an algorithm whose clients send what they compute, found one whose client "
            f"{promise.client} keeps it until a later release covers it, which an audit cannot take apart; audit "
            "another algorithm"
        )

    def _listen(self, terms: Sequence[tuple[float, Model | Gradient]]) -> None:
        for _, value in terms:
            if isinstance(value, Gradient) and self._left.get(value.client) and not value.heard:
                value.heard = True
                self._left[value.client] -= 1
                release = super().combine((self._factor, value.twin()))
                self._pending.append((value.model, release, value.twin()))
                if len(self._pending) >= HEARD_AT_A_TIME:
                    self.deliver()

    def deliver(self) -> None:
        """Fetch pending releases in batches of one shape, and pass them on."""
        while self._pending:
            heard, self._pending = self._pending[:HEARD_AT_A_TIME], self._pending[HEARD_AT_A_TIME:]
            count = len(heard)
            filled = heard + heard[-1:] * (HEARD_AT_A_TIME - count)
            values = self.values([model for model, _, _ in filled] + [release for _, release, _ in filled])
            models, releases = values[:count], values[HEARD_AT_A_TIME : HEARD_AT_A_TIME + count]
            self._hear(models, releases / np.float32(self._factor), [promise for _, _, promise in heard])


def listen(setup: Setup, device: jax.Device, clients: Mapping[int, float], hear: Hear, factor: float = 1.0) -> Releases:
    """Run a scenario, hear some clients, and return the account of all releases.

    See `ListeningTape` for `clients`, `hear` and `factor`.

    Raises:
        RunError: the run failed or was interrupted.
    """
    tape = functools.partial(ListeningTape, clients=clients, hear=hear, factor=factor)
    simulation = Simulation(setup, device, tape=tape)
    try:
        with tempfile.TemporaryDirectory() as temporary:
            simulation.run(RunFolder.create(Path(temporary), "audit"))
        if simulation.status == "interrupted":
            raise RunError(f"{setup.scenario.name}: the run was interrupted: its releases are not complete")
        assert isinstance(simulation.tape, ListeningTape), "the simulation records on the tape it was given"
        simulation.tape.deliver()
        return simulation.account()
    finally:
        simulation.release()


@dataclass(frozen=True)
class Circumstances:
    """The adversary's knowledge of one release besides its numbers.

    Attributes:
        rate: q, the sampling rate of its batch.
        norm: C, to which gradients are clipped; inf without clipping.
        std: standard deviation of the noise per coordinate that the client's promise declares.
        declared: the same in the account.
        copies: number of copies of each canary in the batch, int [m]; None if secret.
    """

    rate: float
    norm: float
    std: float
    declared: float
    copies: NDArray[np.int64] | None = None


class Ordinary:
    """The mean contribution of ordinary examples to a release.

    `examples` are (x, y) of some ordinary examples, and the number of all that the client has.
    """

    def __init__(self, model: CanaryModel, examples: tuple[NDArray[np.float32], NDArray[Any], int]) -> None:
        self.model = model
        self.x, self.y, self.count = examples

    def without(
        self, models: NDArray[np.float32], releases: NDArray[np.float32], facts: Sequence[Circumstances]
    ) -> NDArray[np.float64]:
        """Return releases [k, d] at models [k, d] without the mean contribution."""
        rest = releases.astype(np.float64)
        if self.count:
            size = self.model.inner.size
            for row, (w, one) in enumerate(zip(models, facts, strict=True)):
                total = _clipped_gradients(self.model.inner, w[:size], self.x, self.y, np.float32(one.norm))
                rest[row, :size] -= one.rate * self.count / len(self.x) * np.asarray(total, dtype=np.float64)
        return rest

    def spread(self, facts: Circumstances) -> float:
        """Return the variance per coordinate of their sampling, for isotropic gradients."""
        if np.isinf(facts.norm):
            return 0.0
        return facts.rate * (1 - facts.rate) * self.count * facts.norm**2 / self.model.touched


@functools.partial(jax.jit, static_argnums=0)
def _clipped_gradients(model: AbstractModel, w: Array, x: Array, y: Array, norm: Array) -> Array:
    return model.clipped_gradient_sum(w, x, y, jnp.ones(len(x)), norm)


@functools.partial(jax.jit, static_argnums=0)
def along_inputs(
    model: AbstractModel, w: Array, release: Array, x: Array, y: Array, rate: Array, norm: Array
) -> tuple[Array, Array, Array]:
    """Return (<r_i, g_i>, |g_i|^2, raw norm over clipped norm) of input canaries, [m].

    g_i are their clipped gradients; r_i is the release minus the mean contribution of all other canaries, each of which
    is included with probability 1/2.
    """
    norms = model.gradient_norms(w, x, y)
    scale = jnp.minimum(1.0, norm / norms)
    total = model.clipped_gradient_sum(w, x, y, jnp.ones(len(x)), norm)
    rest = release - 0.5 * rate * total
    # <grad of loss_i, rest> for all i is one derivative in the direction of `rest`.
    _, along = jax.jvp(lambda v: model.losses(v, x, y), (w,), (rest,))
    squared = (scale * norms) ** 2
    return scale * along + 0.5 * rate * squared, squared, 1.0 / scale


_positions = jax.jit(batch_positions, static_argnames=("sampling", "batch_size", "lanes"))


def positions_in(problem: LearningProblem, promise: Gradient) -> NDArray[np.int64]:
    """Return the places of a mini-batch's examples among its client's, [b]."""
    keys, examples = problem.keys.data, int(problem.data.sizes[promise.client])
    sampling, batch_size, lanes = problem.batches.sampling, problem.batches.size, min(examples, problem.max_batch)
    client, count = np.int32(promise.client), np.int32(examples)
    parts = [np.zeros(0, dtype=np.int64)]
    for piece in promise.pieces or (promise,):
        for at in range(0, piece.size, lanes):
            draw, first = np.int32(piece.draw), np.int32(piece.first_or_steps + at)
            places = _positions(sampling, keys, client, draw, first, batch_size, lanes, count)
            parts.append(np.asarray(places, dtype=np.int64)[: piece.size - at])
    return np.concatenate(parts)
