"""The mini-batches of clients: their numbers, their sizes, and promises of them."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from simfl.algorithms.steps import Descent
from simfl.algorithms.training import Training
from simfl.compiled import Integer, Number
from simfl.streams import Streams
from simfl.tape.recording import Gradient, Model, Round, Tape
from simfl.world.compute import Draws


class BatchSizes:
    """Sizes of mini-batches: b = min(B, n), or with Poisson sampling Binomial(n, b/n).

    `streams` are those of the world, which a training without streams of its own draws from.
    """

    def __init__(self, training: Training, streams: Streams) -> None:
        self._nominal = training.batch_sizes
        self._constant = training.sampling != "poisson"
        streams = self._streams = training.streams or streams
        self._sizes = training.sizes.tolist()
        self._draws: dict[int, Draws] = {}
        if not self._constant:
            for n in sorted(set(self._sizes)):
                rate = min(training.batch_size, n) / n
                self._draws[n] = Draws(streams, "batch", lambda g, k, n=n, q=rate: g.binomial(n, q, k))  # type: ignore[misc]

    def next(self, client: Integer) -> int:
        """Return the size of the client's next mini-batch."""
        if self._constant:
            return self._nominal[client]
        return int(self._draws[self._sizes[client]].next(client))

    def draw(self, client: Integer, draw: Integer, size: Integer) -> int:
        """Draw the size of the client's Poisson batch number `draw`, of mean `size`.

        Raises:
            ValueError: `size` is below 1 or above the client's number of examples.
        """
        if size == self._nominal[client]:
            return int(self._draws[self._sizes[client]].next(client))
        n = self._sizes[client]
        if not 1 <= size <= n:
            raise ValueError(
                f"client {client}: size: expected 1 to {n}, its number of examples, as the mean of Poisson sampling, "
                f"found {size}"
            )
        return int(self._streams.generator("round-batch", client, draw).binomial(n, size / n))


@mypyc_attr(allow_interpreted_subclasses=True)
class Batches:
    """Promises gradients and rounds of each client's mini-batches, in order.

    Args:
        tape: has the promises.
        training: has the sampling, and the noise of each client; none if a server adds it.
        streams: those of the world.
        descent: has the states of optimizers with which rounds begin.
    """

    def __init__(self, tape: Tape, training: Training, streams: Streams, descent: Descent) -> None:
        self._tape, self._descent = tape, descent
        self._in_passes = training.sampling == "shuffle"
        tape.draw_size = BatchSizes(training, streams).draw if training.sampling == "poisson" else None
        #: Number of each client's next mini-batch.
        self.draws = [0] * len(training.sizes)
        #: Nominal examples of a mini-batch, by the client of promises.
        self.sizes = descent.sizes
        self.noise_std, self.noise_scale = training.each_noise_std(), training.each_noise_scale()
        if training.cohorts is not None:
            self.silence()

    def silence(self) -> None:
        """Let clients add no noise: the server does."""
        self.noise_std = self.noise_scale = [0.0] * len(self.draws)

    def gradient(self, model: Model, client: Integer) -> Gradient:
        """Promise the client's next mini-batch gradient at `model`: a sum with noise."""
        draw = self.draws[client]
        self.draws[client] = draw + 1
        return self._tape.gradient(model, client, draw, self.sizes[client], self.noise_scale[client])

    def train(
        self,
        model: Model,
        client: Integer,
        steps: Integer,
        step: tuple[Number, ...],
        correction: Model | None = None,
    ) -> Round:
        """Promise the change of `model` by the client's next `steps` mini-batches.

        See `Round` for `step`; `correction` is added to each gradient. If clients keep the states of their optimizers
        between rounds, `Descent.trained` must follow before the client's next round.
        """
        draw = self.draws[client]
        self.draws[client] = draw + steps
        scale, size, (rows, count) = self.noise_scale[client], self.sizes[client], self._descent.kept(client)
        return self._tape.train(
            model, client, draw, steps, size, step, scale, correction=correction, state=rows, count=count
        )

    def lost(self, promise: Gradient) -> bool:
        """Drop a promise that a crash destroyed; return whether its batch is used again.

        With shuffled data, the client's next mini-batch is the lost one, so that every pass over the data is complete.
        Its noise can be drawn again because it was never revealed. This requires that the lost promise is the client's
        newest.
        """
        client, last = promise.client, promise.draw + promise.steps
        again = self._tape.lose(promise) and self._in_passes and last == self.draws[client]
        if again:
            self.draws[client] = promise.draw
        return again
