"""What an adversary hears of a run: a listening tape, and facts of each release."""

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

from simfl.attacks.canary import CanaryModel
from simfl.build.setup import Setup
from simfl.errors import RunError, ScenarioError
from simfl.models import AbstractModel
from simfl.privacy.releases import Releases
from simfl.records import RunFolder
from simfl.runs.runner import Simulation
from simfl.tape import Gradient, Model, Tape
from simfl.tape.draws import batch_positions
from simfl.tape.problem import Drawing, LearningProblem

#: Releases that are scored together.
HEARD_AT_A_TIME = 16

Hear = Callable[[NDArray[np.float32], NDArray[np.float32], Sequence[Gradient]], None]
"""Takes some releases: models they were taken at f32 [k, d], releases f32 [k, d], and the promises [k]."""


class ListeningTape(Tape):
    """A tape that also reports what some clients release.

    It hears every promise of theirs once: when it is sent or consumed, whichever comes first, on whatever path. The
    tape's tally counts the same promises by its own means, so that the two can be compared.

    Args:
        words, options: of `Tape`.
        clients: maximum number of heard releases of each client.
        hear: called with some releases at a time.
        factor: a power of two by which releases are multiplied while they are rows of the executor.
    """

    def __init__(
        self, *words: Any, clients: Mapping[int, float], hear: Hear, factor: float = 1.0, **options: Any
    ) -> None:
        super().__init__(*words, **options)
        self._left = dict(clients)
        self._hear = hear
        self._factor = factor
        self._pending: list[tuple[Model, Model, Gradient]] = []

    def combine(self, *terms: tuple[float, Model | Gradient]) -> Model:
        """Combine terms as `Tape.combine`, and listen to the promises among them."""
        self._listen(terms)
        return super().combine(*terms)

    def apply(self, *terms: tuple[float, Model | Gradient]) -> Model:
        """Apply terms as `Tape.apply`, and listen to the promises among them."""
        self._listen(terms)
        return super().apply(*terms)

    def release(self, promise: Gradient) -> None:
        """Release a promise as `Tape.release`, and listen to it."""
        self._listen([(1.0, promise)])
        super().release(promise)

    def hold(self, promise: Gradient) -> None:
        """Raise: a gradient that a client keeps cannot be heard by itself."""
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
        """Fetch what is pending, in pieces of one shape, and pass it on."""
        while self._pending:
            heard, self._pending = self._pending[:HEARD_AT_A_TIME], self._pending[HEARD_AT_A_TIME:]
            count = len(heard)
            filled = heard + heard[-1:] * (HEARD_AT_A_TIME - count)
            values = self.values([model for model, _, _ in filled] + [release for _, release, _ in filled])
            models, releases = values[:count], values[HEARD_AT_A_TIME : HEARD_AT_A_TIME + count]
            self._hear(models, releases / np.float32(self._factor), [promise for _, _, promise in heard])


def listen(setup: Setup, device: jax.Device, clients: Mapping[int, float], hear: Hear, factor: float = 1.0) -> Releases:
    """Run a scenario, hear some clients, and return the account of all releases.

    Args:
        setup, device: of the run.
        clients, hear, factor: see `ListeningTape`.

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
    """The adversary's knowledge of one release beside its numbers.

    Attributes:
        rate: q, at which its batch is drawn.
        norm: C, to which gradients are clipped; inf for no clipping.
        std: standard deviation of the noise per coordinate that the client's promise declares.
        declared: the same in the account.
        copies: how often each canary is in the batch, int [m]; None if that is secret.
    """

    rate: float
    norm: float
    std: float
    declared: float
    copies: NDArray[np.int64] | None = None


class Ordinary:
    """The mean contribution of ordinary examples to a release.

    Args:
        model: the model with canaries.
        examples: (x, y, count) of some ordinary examples, and how many the client has.
    """

    def __init__(self, model: CanaryModel, examples: tuple[NDArray[np.float32], NDArray[Any], int]) -> None:
        self.model = model
        self.x, self.y, self.count = examples

    def without(
        self, models: NDArray[np.float32], releases: NDArray[np.float32], known: Sequence[Circumstances]
    ) -> NDArray[np.float64]:
        """Return releases [k, d] at models [k, d] without that average."""
        rest = releases.astype(np.float64)
        if self.count:
            size = self.model.inner.size
            program = _expectation_program(self.model.inner)
            for row, (w, one) in enumerate(zip(models, known, strict=True)):
                total = program(w[:size], self.x, self.y, np.float32(one.norm))
                rest[row, :size] -= one.rate * self.count / len(self.x) * np.asarray(total, dtype=np.float64)
        return rest

    def spread(self, known: Circumstances) -> float:
        """Return the variance per coordinate of their sampling, for isotropic gradients."""
        if np.isinf(known.norm):
            return 0.0
        return known.rate * (1 - known.rate) * self.count * known.norm**2 / self.model.touched


@functools.lru_cache(maxsize=8)
def _expectation_program(model: AbstractModel) -> Any:
    """Return (w, x, y, clipping norm) -> sum of the examples' clipped gradients."""

    def run(w: jax.Array, x: jax.Array, y: jax.Array, norm: jax.Array) -> jax.Array:
        return model.clipped_gradient_sum(w, x, y, jnp.ones(len(x)), norm)

    return jax.jit(run)


@functools.lru_cache(maxsize=8)
def input_program(model: AbstractModel) -> Any:
    """Return the program of (<r_i, g_i>, |g_i|^2, raw norm over clipped norm), [m].

    For input canaries with clipped gradients g_i; r_i is the release minus what all other canaries add on average, each
    being in with probability 1/2.
    """

    def run(
        w: jax.Array, release: jax.Array, x: jax.Array, y: jax.Array, rate: jax.Array, norm: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        norms = model.gradient_norms(w, x, y)
        scale = jnp.minimum(1.0, norm / norms)
        total = model.clipped_gradient_sum(w, x, y, jnp.ones(len(x)), norm)
        rest = release - 0.5 * rate * total
        # <grad of loss_i, rest> for all i is one derivative in the direction of `rest`.
        _, along = jax.jvp(lambda v: model.losses(v, x, y), (w,), (rest,))
        squared = (scale * norms) ** 2
        return scale * along + 0.5 * rate * squared, squared, 1.0 / scale

    return jax.jit(run)


@functools.lru_cache(maxsize=8)
def _positions_program(sampling: Drawing, batch_size: int, lanes: int) -> Any:
    """Return (key, client, draw, first, n) -> positions int32 [lanes] of a batch."""

    def run(key: jax.Array, client: jax.Array, draw: jax.Array, first: jax.Array, n: jax.Array) -> jax.Array:
        return batch_positions(sampling, key, client, draw, first, batch_size, lanes, n)

    return jax.jit(run)


def positions_in(problem: LearningProblem, promise: Gradient) -> NDArray[np.int64]:
    """Return the places of a mini-batch's examples among its client's, [b]."""
    examples = int(problem.data.sizes[promise.client])
    lanes = min(examples, problem.max_batch)
    program = _positions_program(problem.batches.sampling, problem.batches.size, lanes)
    parts = [np.zeros(0, dtype=np.int64)]
    for piece in promise.pieces or (promise,):
        for at in range(0, piece.size, lanes):
            numbers = (np.int32(number) for number in (promise.client, piece.draw, piece.first_or_steps + at, examples))
            parts.append(np.asarray(program(problem.keys.data, *numbers), dtype=np.int64)[: piece.size - at])
    return np.concatenate(parts)
