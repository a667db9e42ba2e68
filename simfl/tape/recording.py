"""The recording half of the tape: the world records operations on models.

A model is an immutable value: a linear form sum_j c_j row_j over rows of the executor's bank.
Averaging models is therefore free until the numbers are needed: `Tape.combine` merges forms,
and only a gradient, or a form of too many terms, becomes an operation. One operation computes

    out = sum_j b_j row_j + g * ( sum_i [grad f(row_read; x_i)]_C  +  noise_scale * noise )

so a gossip average, a stale read and a gradient step read a few rows and write one. If clients train locally, a
`Round` replaces the gradient: many SGD steps that run as one operation.

A server that applies updates on arrival makes a long chain of cheap sums, and clients read each of them. `Tape.apply`
records such a sum as a serial operation. The serial operations of a depth run one after the other, after all other
operations of the depth, so that a thousand gradients side by side do not wait for a thousand depths of sums.

Operations that are not linear are functions of models (`simfl.tape.maps`): `Tape.map` reads k rows and some scalars,
and writes w rows. A step of an optimizer with a state is such a function. Functions are serial operations, or run
beside other operations of their depth.

A row lives as long as some model refers to it, by Python's reference counting. A row without references is released at
the next flush, and its place is used again.
"""

from __future__ import annotations

import math
import operator
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from mypy_extensions import mypyc_attr
from numpy.typing import NDArray

from simfl.compiled import Integer, Number
from simfl.each import EachArray, array_of
from simfl.errors import RunError
from simfl.privacy.releases import Tally
from simfl.tape.layout import LINEAR, NO_ROW, Branch, Layout, Layouts, MapSize, Operations, padded_size

Decide = Callable[[NDArray[np.float32], NDArray[np.float32]], NDArray[Any]]
"""A decision from models f32 [k, d] and their losses f32 [k, m]; the world sees only the decision."""

DrawSize = Callable[[int, int, int], int]
"""Draws how many examples a Poisson batch has, given its client, its number, and how many it has on average."""

_ONE: Final[tuple[Number, ...]] = (1.0,)
_USED: Final = -1  # size of a gradient that was consumed
_IN_PIECES: Final = -2  # size of a gradient that is consumed piece by piece
_ZERO: Final[list[tuple[Number, ...]]] = [(0.0,) * n for n in range(16)]
_NO_ROWS: Final[list[tuple[int, ...]]] = [(NO_ROW,) * n for n in range(16)]
_INFINITE: Final = math.inf

#: Draws of noise that is added by a separate operation have numbers from here on.
NOISE_DRAWS = 2**30
#: Chains over which a sum of many gradients is split: enough to fill the lanes of a step.
CHAINS: Final = 16
#: Largest number of functions of models in a run; a function counts once for each number of inputs, outputs and
#: scalars. All are compiled.
MOST_BRANCHES = 64


@mypyc_attr(acyclic=True)
class Row:
    """One row of the bank, with a number; tells the tape when it is no longer used."""

    __slots__ = ("_graveyard", "depth", "number")

    def __init__(self, number: int, depth: int, graveyard: list[int]) -> None:
        self.number = number
        self.depth = depth
        self._graveyard = graveyard

    def __del__(self) -> None:
        self._graveyard.append(self.number)


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Model:
    """An immutable model value: sum of coefs[j] * rows[j]."""

    __slots__ = ("coefs", "rows")

    def __init__(self, rows: tuple[Row, ...], coefs: tuple[Number, ...]) -> None:
        self.rows = rows
        self.coefs = coefs


@mypyc_attr(acyclic=True)
class Gradient:
    """The sum of a mini-batch's gradients at `model`, clipped and noised.

    It is not computed before `Tape.combine` uses it, and it can be used once: every use would
    draw the same batch and the same noise again.

    Attributes:
        model: the (possibly stale) model it is taken at.
        client: the client whose data is used.
        draw: counts the client's mini-batches; names the batch and the noise.
        size: number of examples in the batch.
        noise_scale: factor on the mechanism's noise of unit scale, which is added to the sum; the standard deviation
            for Gaussian noise.
        expected: average number of examples in the batch, if the tape drew `size`; otherwise 0.
        released: whether the tape's tally has counted it.
        heard: whether a listener of the tape has heard it.
    """

    __slots__ = ("client", "draw", "expected", "first_or_steps", "heard", "model", "noise_scale", "released", "size")

    #: Additional numbers of the operation of a round; none here.
    step: tuple[Number, ...] = ()
    #: Number of the client's mini-batches that it takes.
    steps: Integer = 1
    #: The clipping norm, if it has its own.
    own_norm: Number | None = None
    #: Promises that are consumed together instead of this one.
    pieces: Sequence[Gradient] = ()

    def __init__(
        self, model: Model, client: Integer, draw: Integer, size: Integer, noise_scale: Number, expected: Integer = 0
    ) -> None:
        self.model = model
        self.client = client
        self.draw = draw
        self.size = size
        self.noise_scale = noise_scale
        self.expected = expected
        self.released = self.heard = False
        #: The first example of the batch in the draw; a round has its number of steps here.
        self.first_or_steps: Integer = 0

    @property
    def examples(self) -> int:
        """Number of examples in a mini-batch, before it is consumed."""
        return self.size

    @property
    def all_examples(self) -> int:
        """Number of examples in all its mini-batches, before it is consumed."""
        return self.examples * self.steps

    @property
    def begin(self) -> tuple[int, int]:
        """Return the batch's start in the shuffled data: (draw, first example)."""
        return self.draw, 0

    def twin(self) -> Gradient:
        """Return a copy that is consumed separately and not counted."""
        twin = self._again()
        twin.first_or_steps, twin.released = self.first_or_steps, True
        return twin

    def _again(self) -> Gradient:
        """Return the same promise again."""
        return Gradient(self.model, self.client, self.draw, self.size, self.noise_scale, self.expected)


@mypyc_attr(acyclic=True)
class GradientInPieces(Gradient):
    """The gradient of a batch in parts; one part has the noise.

    Its `size` marks it, because no operation can take all of it.

    Attributes:
        pieces: gradients of parts of the batch.
    """

    __slots__ = ("_examples", "pieces")

    def __init__(
        self, pieces: Sequence[Gradient], draw: Integer, examples: Integer, noise_scale: Number, expected: Integer
    ) -> None:
        super().__init__(pieces[0].model, pieces[0].client, draw, _IN_PIECES, noise_scale, expected)
        self._examples = examples
        self.pieces = pieces

    @property
    def examples(self) -> int:
        """Number of examples in the batch."""
        return self._examples

    @property
    def begin(self) -> tuple[int, int]:
        """Where the first piece with examples begins."""
        first = next((piece for piece in self.pieces if piece.size), self.pieces[0])
        return first.draw, int(first.first_or_steps)

    def twin(self) -> Gradient:
        """See `Gradient.twin`; copies the pieces."""
        pieces = [piece.twin() for piece in self.pieces]
        twin = GradientInPieces(pieces, self.draw, self.examples, self.noise_scale, self.expected)
        twin.released = True
        return twin


@mypyc_attr(acyclic=True)
class ClippedGradient(Gradient):
    """A gradient with its own clipping norm.

    Attributes:
        step: C, to which each example's gradient is clipped (or the mean, as the problem says); inf for no clipping.
    """

    __slots__ = ("own_norm", "step")

    def __init__(
        self,
        model: Model,
        client: Integer,
        draw: Integer,
        size: Integer,
        noise_scale: Number,
        clipping_norm: Number,
        expected: Integer = 0,
    ) -> None:
        super().__init__(model, client, draw, size, noise_scale, expected)
        self.own_norm = clipping_norm
        self.step = (clipping_norm,)

    def _again(self) -> Gradient:
        """Return the same promise again, with its norm."""
        assert self.own_norm is not None
        return ClippedGradient(
            self.model, self.client, self.draw, self.size, self.noise_scale, self.own_norm, self.expected
        )


@mypyc_attr(acyclic=True)
class Round(Gradient):
    """The change of `model` by many local SGD steps, used like a gradient.

    With w_0 the model and B the size of each mini-batch,

        w_{h+1} = w_h - eta_h ( (1/B) sum_i [grad f(w_h; x_i)]_C + l2 w_h + mu (w_h - w_0) + a c ),
        eta_h = eta / (1 + beta (t + dt h)^p),

    and the change is [w_H - w_0]_C + noise_scale * noise. Either the gradients or the change is clipped, or neither.

    Attributes:
        steps: H; the round takes the client's mini-batches draw to draw + H - 1.
        step: eta, beta, t, dt; if rounds state them, mu and l2; with corrections also a.
        correction: c, the row that is added to each gradient; None for none.
        state: the rows of the state with which the optimizer of its steps begins; none if it begins a new one.
        count: the number of updates of that state.
        after: the state after its steps; none before it is computed.
        made: the change, if `Tape.complete` has computed it; None before, and once it is consumed.
    """

    __slots__ = ("after", "correction", "count", "made", "state", "step", "steps")

    def __init__(
        self,
        model: Model,
        client: Integer,
        draw: Integer,
        steps: Integer,
        size: Integer,
        step: tuple[Number, ...],
        noise_scale: Number,
        expected: Integer = 0,
        correction: Row | None = None,
        state: tuple[Row, ...] = (),
        count: Integer = 0,
    ) -> None:
        super().__init__(model, client, draw, size, noise_scale, expected)
        self.first_or_steps = self.steps = steps
        self.step = step
        self.correction = correction
        self.state = state
        self.count = count
        self.after: tuple[Model, ...] = ()
        self.made: Model | None = None

    def _again(self) -> Gradient:
        """Return the same promise again, with its steps."""
        return Round(
            self.model,
            self.client,
            self.draw,
            self.steps,
            self.size,
            self.step,
            self.noise_scale,
            self.expected,
            self.correction,
            self.state,
            self.count,
        )


class Buffer:
    """Operations of one kind as they are recorded; see `Layout` for their columns.

    With several `settings`, numbers may be `simfl.each.Each`.
    """

    __slots__ = ("depths", "floats", "ints", "layout", "settings")

    def __init__(self, layout: Layout, settings: int = 1) -> None:
        self.layout = layout
        self.settings = settings
        self.ints: list[int] = []
        self.floats: list[Number] = []
        self.depths: list[int] = []

    def take(self, floor: int) -> Operations:
        """Return the recorded operations, depths counted from `floor`, and reset."""
        count, layout = len(self.depths), self.layout
        varied: Any = None
        if self.settings == 1:
            floats = np.fromiter(self.floats, np.float32, len(self.floats))
        else:
            floats, varied = array_of(self.floats, np.float32)
        taken = Operations(
            layout,
            np.fromiter(self.ints, np.int32, len(self.ints)).reshape(count, layout.integers),
            floats.reshape(count, layout.numbers),
            np.fromiter(self.depths, np.int32, count) - np.int32(floor),
            varied,
        )
        self.ints, self.floats, self.depths = [], [], []
        return taken


@dataclass
class Window:
    """A window of the tape on its way to the executor.

    Attributes:
        gradients: operations with a gradient or a round.
        combines: linear forms.
        serials: operations that run one after the other, after all others of their depth.
        mapped: functions of models that run beside gradients.
        dead: rows that are not needed after this window.
        constants: rows with given values, and these values f32[d] (for each setting).
        rows: the number of row numbers.
        branches: the functions of models, in the order of their numbers from 1.
    """

    gradients: Operations
    combines: Operations
    serials: Operations
    mapped: Operations
    dead: list[int]
    constants: list[tuple[int, NDArray[np.float32] | EachArray]]
    rows: int
    branches: tuple[Branch, ...] = ()

    @property
    def operations(self) -> int:
        """Number of operations in the window."""
        return len(self.gradients) + len(self.combines) + len(self.serials) + len(self.mapped)


class AbstractExecutor(Protocol):
    """The interface between a tape and its executor."""

    def submit(self, window: Window) -> None:
        """Take a window; it runs before anything submitted later."""

    def fetch(self, rows: NDArray[np.int32], coefs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return models [k, d] of forms (rows [k, t] with -1 for none, coefs [k, t])."""

    def probe(
        self,
        rows: NDArray[np.int32],
        coefs: NDArray[np.float32],
        clients: NDArray[np.int32],
        draws: NDArray[np.int32],
        decide: Decide,
    ) -> NDArray[Any]:
        """Return the result of `decide` for models [k, d] and losses [k, m]."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Tape:
    """Records operations on models and hands them to the executor in windows.

    Args:
        executor: runs the windows, in the order in which they are submitted; may be set later. Until then, a full
            window is kept: an algorithm may record operations when it is made.
        window: operations per window; results do not depend on it.
        reads: rows that one operation can read (R).
        max_batch: examples that one operation can process; a larger batch takes several operations.
        on_flush: called after every submitted window.
        local: whether the promises are rounds; a run has either these or gradients.
        own_clipping: whether each gradient has its own clipping norm.
        releases: counts releases; None without privacy.
        optimizer: the step of an optimizer with a state, as `transform` records it; None if there is none.
        serial_steps: whether operations that make a model from a gradient are serial.
        maps_beside: whether functions of models run beside gradients; otherwise they are serial operations.
        corrected: whether a constant row is added to every gradient of a round.
        own_pull: whether each round states its own mu and l2.
        state_rows: rows of an optimizer's state that a round reads and writes; 0 if each round has a new state.
        settings: the number of runs that are recorded together; their numbers may be `simfl.each.Each`.
    """

    def __init__(
        self,
        executor: AbstractExecutor | None,
        *,
        window: int = 4096,
        reads: int = 4,
        max_batch: int = 32,
        on_flush: Callable[[], None] | None = None,
        local: bool = False,
        own_clipping: bool = False,
        releases: Tally | None = None,
        optimizer: Callable[..., Any] | None = None,
        serial_steps: bool = False,
        maps_beside: bool = False,
        corrected: bool = False,
        own_pull: bool = False,
        state_rows: int = 0,
        settings: int = 1,
    ) -> None:
        if not 3 <= reads < len(_ZERO):
            raise ValueError(f"reads: expected 3 to {len(_ZERO) - 1}, found {reads}")
        self.executor = executor
        self.window = window
        self.reads = reads
        self.max_batch = max_batch
        self.on_flush = on_flush
        self.local = local
        self.own_clipping = own_clipping
        self.releases = releases
        self._plain = not (local or own_clipping)
        self.settings = settings
        self.serial_steps = serial_steps
        #: Draws the sizes of mini-batches, with Poisson sampling; None if a batch always has the requested size.
        self.draw_size: DrawSize | None = None
        self._optimizer = optimizer
        self.corrected = corrected
        self.state_rows = state_rows
        self._extra = (4 + 2 * own_pull) * local + corrected + own_clipping
        self._beside = maps_beside
        #: The functions of models in the order of their first use.
        self._branches: list[Branch] = []
        self._branch_of: dict[tuple[Any, ...], int] = {}
        self._map_size = MapSize()
        self._noised = 0
        #: Random functions recorded so far, by client.
        self._map_draws: dict[int, int] = {}
        layouts = self._layouts()
        self._gradients = Buffer(layouts.gradient, settings)
        self._combines = Buffer(layouts.combine, settings)
        self._serials = Buffer(layouts.serials, settings)
        self._mapped = Buffer(layouts.mapped, settings)  # functions beside gradients; serial ones are in `_serials`
        self._recorded = 0
        self._graveyard: list[int] = []
        self._free: list[int] = []
        self._next_number = 0
        self._floor = 0  # depth of everything computed by earlier windows
        self._top = 0
        self._constants: list[tuple[int, NDArray[np.float32] | EachArray]] = []

    def _layouts(self) -> Layouts:
        """Return the columns that the functions of models in use need."""
        return Layouts(self.reads, self._extra, self._map_size, self._beside, self.state_rows)

    def _count(self) -> None:
        """Count a recorded operation, and submit the window when it is full."""
        self._recorded += 1
        if self._recorded >= self.window:
            self.flush()

    # -- values ------------------------------------------------------------------------------

    def constant(self, values: NDArray[np.float32] | EachArray) -> Model:
        """Put a given vector f32[d] on the tape, an initial model for example.

        It may be a `simfl.each.EachArray`.
        """
        row = self._new_row(self._floor)
        given = values if isinstance(values, EachArray) else np.array(values, dtype=np.float32)
        self._constants.append((row.number, given))
        return Model((row,), (1.0,))

    def gradient(
        self,
        model: Model,
        client: Integer,
        draw: Integer,
        size: Integer,
        noise_scale: Number = 0.0,
        clipping_norm: Number | None = None,
    ) -> Gradient:
        """Promise the sum of one mini-batch's gradients at `model`; see `Gradient`.

        Args:
            model: the model at which the gradients are taken.
            client: the client whose data is used.
            draw: number of the mini-batch, larger than that of the client's last one.
            size: examples of the batch; with Poisson sampling their average number, and the tape draws the number.
            noise_scale: factor on the noise of unit scale.
            clipping_norm: bound on each example's gradient, if each gradient has its own norm.

        Raises:
            ValueError: an argument is out of its range.
        """
        if (
            not isinstance(draw, int)
            or not isinstance(size, int)
            or not (client >= 0 and draw >= 0 and size >= 0 and 0.0 <= noise_scale < _INFINITE)
        ):
            client, draw, size = _checked(client, draw, size, noise_scale)
        expected = 0
        if self.draw_size is not None:
            expected, size = size, self.draw_size(client, draw, size)
        elif self._plain and clipping_norm is None and (self.releases is None or not noise_scale):  # the hot path
            if len(model.rows) != 1 or model.coefs[0] != 1.0:
                self.settle(model)
            return Gradient(model, client, draw, size, noise_scale)
        return self._promise(model, client, draw, size, noise_scale, expected, clipping_norm)

    def _promise(
        self,
        model: Model,
        client: Integer,
        draw: Integer,
        size: Integer,
        noise_scale: Number,
        expected: Integer = 0,
        clipping_norm: Number | None = None,
    ) -> Gradient:
        """Promise a gradient of a batch whose size is known."""
        if self.local:
            raise ValueError("a tape of rounds: expected train, found gradient")
        if self.own_clipping != (clipping_norm is not None) or not (clipping_norm is None or clipping_norm > 0.0):
            raise ValueError(
                f"client {client}: clipping_norm: expected {'a number > 0' if self.own_clipping else 'None'}, as the "
                f"algorithm's own_clipping says, found {clipping_norm}"
            )
        if len(model.rows) != 1 or model.coefs[0] != 1.0:
            self.settle(model)
        if clipping_norm is not None:
            gradient: Gradient = ClippedGradient(model, client, draw, size, noise_scale, clipping_norm, expected)
        else:
            gradient = Gradient(model, client, draw, size, noise_scale, expected)
        releases = self.releases
        if releases is not None and noise_scale:
            if draw > releases.newest[client] and releases.limits is None:  # as `name` does: this is the hot path
                releases.newest[client] = draw
                releases.promised[client] += 1
            else:
                releases.name(gradient)
        return gradient

    def gradient_in_pieces(
        self,
        model: Model,
        client: Integer,
        draw: Integer,
        size: Integer,
        noise_scale: Number = 0.0,
        start: tuple[int, int] | None = None,
    ) -> Gradient:
        """Promise the gradient of a batch of any size, in pieces.

        Args:
            model, client, draw, size, noise_scale: as in `gradient`.
            start: where a shuffled batch begins, (draw, first example of it), if batches have other sizes than the
                nominal one; the noise is then added by a separate operation.
        """
        client, draw, size = _checked(client, draw, size, noise_scale)
        expected = 0
        if self.draw_size is not None:
            if start is not None:
                raise ValueError(f"client {client}: start: expected None with sampling poisson, found {start}")
            expected, size = size, self.draw_size(client, draw, size)
        scale, pieces, first = noise_scale, [], 0
        name = draw
        if start is not None:
            if scale:
                pieces.append(self._promise(model, client, NOISE_DRAWS + draw, 0, scale))
                scale = 0.0
            name, first = start
        left = size
        while left or not pieces:
            piece = self._promise(model, client, name, min(left, self.max_batch), scale)
            piece.first_or_steps = first
            pieces.append(piece)
            first, left, scale = first + piece.size, left - piece.size, 0.0
        return GradientInPieces(pieces, draw, size, noise_scale, expected)

    def train(
        self,
        model: Model,
        client: Integer,
        draw: Integer,
        steps: Integer,
        size: Integer,
        step: tuple[Number, ...],
        noise_scale: Number = 0.0,
        expected: Integer = 0,
        correction: Model | None = None,
        state: Sequence[Model] = (),
        count: Integer = 0,
    ) -> Round:
        """Read `model` now and promise its change by a round of local steps; see `Round`.

        `expected` is the number of examples of a round that takes several operations, `correction` the model that is
        added to each gradient, `state` and `count` those with which the optimizer of its steps begins.
        """
        if not self.local:
            raise ValueError("a tape of gradients: expected gradient, found train")
        if len(model.rows) != 1 or model.coefs[0] != 1.0:
            self.settle(model)
        row: Row | None = None
        numbers = step
        if self.corrected:
            factor: Number = 0.0
            if correction is not None and correction.rows:
                if len(correction.rows) != 1:
                    self.settle(correction)
                row, factor = correction.rows[0], correction.coefs[0]
            numbers = (*step, factor)
        elif correction is not None:
            raise ValueError("a tape of rounds without corrections: expected None, found one")
        if len(state) != self.state_rows:
            raise ValueError(f"client {client}: state: expected {self.state_rows} rows, found {len(state)}")
        kept = tuple([self.settle(one).rows[0] for one in state])
        change = Round(model, client, draw, steps, size, numbers, noise_scale, expected, row, kept, count)
        if self.releases is not None and noise_scale:
            self.releases.name(change)
        return change

    def complete(self, change: Round) -> Round:
        """Compute a round now, and the state after it; its change stays a promise.

        It is counted as others are, when it is used, which it can be once.
        """
        counted, change.released = change.released, True
        change.made = self.combine((1.0, change))
        change.released = counted
        return change

    # -- releases ----------------------------------------------------------------------------

    def release(self, promise: Gradient) -> None:
        """Count a promise as released now; otherwise it is released when consumed."""
        if self.releases is not None:
            self.releases.send(promise)

    def lose(self, promise: Gradient) -> bool:
        """Drop a promise whose mini-batch and noise were never seen.

        Returns:
            Whether it was dropped; false if it had been used or released.
        """
        if promise.released or promise.size == _USED:
            return False
        for part in promise.pieces or (promise,):
            part.size = _USED
            if self.releases is not None and part.noise_scale:
                self.releases.forget(part)
        promise.size = _USED
        return True

    def hold(self, promise: Gradient) -> None:
        """Hold a promise's release back until `release`."""
        if self.releases is not None:
            self.releases.hold(promise)

    def with_noise(
        self, terms: Sequence[tuple[Number, Gradient]], noise_scale: Number
    ) -> list[tuple[Number, Gradient]]:
        """Return the terms of sum_j c_j U_j + noise_scale * noise, one release.

        The noise is added with the last of the updates. The updates must not have noise.
        """
        coef, last = terms[-1]
        if not coef or any(update.noise_scale for _, update in terms):
            raise ValueError("with_noise: expected updates without noise of their own, the last one not times 0")
        last.noise_scale = noise_scale / coef
        if self.releases is not None:
            self.releases.count_sum(terms, noise_scale)
        return list(terms)

    def noised(
        self,
        model: Model,
        terms: Sequence[tuple[Number, Gradient]],
        noise_scale: Number,
        counted: Number | None = None,
        correlated: Callable[[], Model] | None = None,
    ) -> list[tuple[float, Model | Gradient]]:
        """Return the terms of sum_j c_j U_j + noise_scale * noise, one release.

        It counts as one with noise of scale `counted`, by default all of it. The noise is that of `noise`, so it does
        not depend on who is in the sum; or what `correlated` returns, made of such noises. The updates must not have
        noise.
        """
        if any(update.noise_scale for _, update in terms):
            raise ValueError("noised: expected updates without noise of their own")
        if self.releases is not None:
            self.releases.count_sum(terms, noise_scale if counted is None else min(counted, noise_scale))
        return [*terms, (1.0, self.noise(model, noise_scale) if correlated is None else correlated())]

    def noise(self, model: Model, noise_scale: Number) -> Gradient:
        """Promise noise of a server alone: a round without steps, at any `model`."""
        if not self.local:
            raise ValueError("noise: expected updates by rounds of local steps")
        numbers, model = (0.0,) * (4 + self.corrected), self.settle(model)
        state = model.rows * self.state_rows  # any: without steps, it stays as it is
        noise = Round(model, 0, NOISE_DRAWS + self._noised, 0, 1, numbers, noise_scale, state=state)
        noise.released = True
        self._noised += 1
        return noise

    # -- sums ----------------------------------------------------------------------------------

    def apply(self, *terms: tuple[Number, Model | Gradient]) -> Model:
        """Return sum c * value, computed in the order of recording, as at a server.

        The result is that of `combine`. Only the order of execution differs: a chain of such sums needs no depths of
        its own.
        """
        if len(terms) == 2:  # the hot path: a model, and a gradient that one operation can process
            (c0, one), (c1, other) = terms
            fits = isinstance(other, Gradient) and 0 <= other.size <= self.max_batch
            if fits and isinstance(one, Model) and isinstance(other, Gradient) and len(one.rows) == 1:
                if self.releases is not None and not other.released:
                    self.releases.count(other)
                size, other.size = other.size, _USED
                gradient = self._record((), (), other, 1.0, other.first_or_steps, size, other.noise_scale)
                return Model((self._serial([(one.rows[0], c0 * one.coefs[0]), (gradient, c1)]),), _ONE)
        form: dict[Row, Number] = {}
        for coef, value in terms:
            model = self.combine((1.0, value)) if isinstance(value, Gradient) else value
            for row, c in zip(model.rows, model.coefs, strict=True):
                form[row] = form.get(row, 0.0) + coef * c
        items = list(form.items())
        row = self._serial(items[: self.reads])
        for at in range(self.reads, len(items), self.reads - 1):
            row = self._serial([(row, 1.0), *items[at : at + self.reads - 1]])
        return Model((row,), _ONE)

    def _serial(self, items: list[tuple[Row, Number]]) -> Row:
        """Record out = sum_j b_j row_j as a serial operation."""
        depth = self._floor
        for row, _ in items:
            if row.depth > depth:
                depth = row.depth
        if depth > self._top:
            self._top = depth
        out = self._new_row(depth)
        buffer, count = self._serials, len(items)
        layout = buffer.layout
        ints, floats = buffer.ints, buffer.floats
        for row, coef in items:
            ints.append(row.number)
            floats.append(coef)
        ints += [NO_ROW] * (layout.reads - count)
        ints.append(out.number)
        if layout.further:  # functions of models are serial operations too
            ints += [*[NO_ROW] * (layout.writes - 1), LINEAR, 0, 0]
        floats += [0.0] * (layout.numbers - count)
        buffer.depths.append(depth)
        self._count()
        return out

    def combine(self, *terms: tuple[Number, Model | Gradient]) -> Model:
        """Return the linear combination sum c * value of models and gradients.

        Without a gradient nothing is computed yet. Gradients are consumed.
        """
        if len(terms) == 2:  # the hot path: an average of two models, or a step from a model
            (c0, one), (c1, other) = terms
            if isinstance(one, Model):
                rows, coefs = one.rows, one.coefs
                if isinstance(other, Gradient):
                    if c0 == 1.0 and len(rows) <= self.reads and 0 <= other.size <= self.max_batch:
                        return Tape.step(self, one, c1, other)
                elif len(rows) == 1 and len(other.rows) == 1 and rows[0] is not other.rows[0]:
                    return Model(rows + other.rows, (c0 * coefs[0], c1 * other.coefs[0]))
        form: dict[Row, Number] = {}
        gradients: list[tuple[Number, Gradient]] | None = None
        for coef, value in terms:
            if isinstance(value, Round) and (made := value.made) is not None:
                if self.releases is not None and not value.released:
                    self.releases.count(value)
                value.made = None
                value = made
            if isinstance(value, Gradient):
                if gradients is None:
                    gradients = []
                if not value.pieces:
                    gradients.append((coef, value))
                    continue
                if self.releases is not None and not value.released:
                    self.releases.count(value)
                for piece in value.pieces:
                    piece.released = True  # with the whole
                    gradients.append((coef, piece))
                continue
            rows, coefs = value.rows, value.coefs
            if len(rows) == 1:
                row = rows[0]
                form[row] = form.get(row, 0.0) + coef * coefs[0]
            else:
                for row, c in zip(rows, coefs, strict=True):
                    form[row] = form.get(row, 0.0) + coef * c
        if gradients is None:
            if len(form) > self.reads:
                return Model((self._reduce(form),), (1.0,))
            return Model(tuple(form), tuple(form.values()))
        if len(gradients) == 1:
            coef, gradient = gradients[0]
            if len(form) > self.reads:
                form = self._settled(terms)
            return Model((self._step(tuple(form), tuple(form.values()), coef, gradient),), _ONE)
        return self._sum_of_gradients(form, gradients)

    def step(self, base: Model, coef: Number, gradient: Gradient) -> Model:
        """Return base + coef * gradient, as `combine` does: the most frequent sum."""
        if len(base.rows) <= self.reads and 0 <= gradient.size <= self.max_batch:
            if self.releases is not None and not gradient.released:
                self.releases.count(gradient)
            size, gradient.size = gradient.size, _USED
            first, scale = gradient.first_or_steps, gradient.noise_scale
            return Model((self._record(base.rows, base.coefs, gradient, coef, first, size, scale),), _ONE)
        return self.combine((1.0, base), (coef, gradient))

    def _settled(self, terms: Sequence[tuple[Number, Model | Gradient]]) -> dict[Row, Number]:
        """Return the form of the models in `terms`, each made a single row first.

        Settling the terms, not their sum, serves other holders of one of them: the partner of a
        gossip average, for example.
        """
        form: dict[Row, Number] = {}
        for coef, value in terms:
            if isinstance(value, Model):
                row = self.settle(value).rows[0]
                form[row] = form.get(row, 0.0) + coef
        return form

    def settle(self, model: Model) -> Model:
        """Return `model` as a single row."""
        if len(model.rows) != 1 or model.coefs[0] != 1.0:
            row = self._reduce(dict(zip(model.rows, model.coefs, strict=True)))
            model.rows, model.coefs = (row,), (1.0,)
        return model

    def map(
        self,
        function: Callable[..., Any],
        models: Sequence[Model],
        *,
        scalars: Sequence[Number] = (),
        outputs: Integer = 1,
        client: Integer | None = None,
        pads: bool = False,
    ) -> tuple[Model, ...]:
        """Return the results of a function of models, without waiting for values.

        Args:
            function: (rows, given) -> a row f32[d], or a sequence of `outputs` rows, in JAX and without side effects;
                see `simfl.tape.maps`. The same object (or an equal, hashable one) at every call: each is compiled.
            models: k >= 1.
            scalars: numbers that may change from call to call: `given.scalars`.
            outputs: w >= 1, the number of models that it makes.
            client: the client whose random numbers `given.key` names; its calls are counted. None: no random numbers.
            pads: k differs from call to call. The function gets an array f32 [n, d], n >= k a power of two, and
                `given.present` bool [n] says which rows are models.

        Raises:
            ValueError: there are no models, an argument is not a model, or too many functions are in use.
        """
        if not models or not all(isinstance(model, Model) for model in models):
            raise ValueError(f"map: expected models of the tape, at least one, found {reprlib.repr(models)}")
        if outputs < 1:
            raise ValueError(f"map: outputs: expected an integer >= 1, found {outputs}")
        draw = 0
        if client is not None:
            draw = self._map_draws.get(int(client), 0)
            self._map_draws[int(client)] = draw + 1
        rows: list[Row | None] = [self.settle(model).rows[0] for model in models]
        made = self._map(function, rows, scalars, int(outputs), int(client or 0), draw, pads)
        return tuple([Model((row,), _ONE) for row in made])

    def transform(
        self, gradient: Model, base: Model, state: Sequence[Model], count: Integer, step_size: Number
    ) -> tuple[Model, tuple[Model, ...]]:
        """Return base + step_size * (the optimizer's direction), and the next state.

        Args:
            gradient: the mean gradient.
            base: the model from which the step starts; the optimizer sees it as the parameters.
            state: as many models as the optimizer has rows of state.
            count: number of updates of this state so far.
            step_size: eta.
        """
        assert self._optimizer is not None, "the problem has no optimizer with a state"
        rows: list[Row | None] = [self.settle(gradient).rows[0]]
        states = [self.settle(one).rows[0] for one in state]
        if len(base.rows) > self.reads:
            self.settle(base)
        pad = self.reads - len(base.rows)
        made = self._map(
            self._optimizer,
            [*rows, *base.rows, *[None] * pad, *states],
            [*base.coefs, *_ZERO[pad], step_size],
            1 + len(states),
            0,
            int(count),
            False,
        )
        return Model((made[0],), _ONE), tuple([Model((row,), _ONE) for row in made[1:]])

    def values(self, models: Sequence[Model]) -> NDArray[np.float32]:
        """Return the parameters of models, f32 [k, d]: flushes the tape and waits."""
        if not models:
            raise ValueError("values: expected at least one model, found none")
        self.flush()
        assert self.executor is not None, "no executor"
        return self.executor.fetch(*self.forms(models))

    def probe(
        self, models: Sequence[Model], clients: Sequence[int], draws: Sequence[Sequence[int]], decide: Decide
    ) -> NDArray[Any]:
        """Decide by numbers and losses of models: flushes the tape and waits.

        A resumed run gets the recorded answers, and `decide` is not called. So values that `decide` keeps for later
        calls must be in the algorithm's `memory`.

        Args:
            models: k models.
            clients: the clients whose data is used, [k].
            draws: the numbers of mini-batches, [k, m]; below 0 for none. Batches have the nominal size.
            decide: given the models f32 [k, d], and their losses f32 [k, m]: the mean over each mini-batch with the
                regularizer, 0 where there is none.

        Returns:
            The result of `decide`.
        """
        self.flush()
        assert self.executor is not None, "no executor"
        if self.releases is not None:
            for client, numbered in zip(clients, draws, strict=True):
                if max(numbered, default=-1) >= 0:
                    self.releases.look(client)
        whose, numbers = np.array(clients, dtype=np.int32), np.array(draws, dtype=np.int32)
        return self.executor.probe(*self.forms(models), whose, numbers, decide)

    def forms(self, models: Sequence[Model]) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Return models as forms: rows int32 [k, reads] (-1: none), coefs f32 [k, reads].

        Coefficients that differ between the settings of a group make it f32 [settings, k, reads].

        Raises:
            RunError: there are no models, or one of them is not a model.
        """
        if not hasattr(models, "__len__") or not len(models) or not all(isinstance(model, Model) for model in models):
            raise RunError(
                "models: expected a list of models of the tape, as self.tape.constant(self.training.initial) is, "
                f"found {reprlib.repr(models)}"
            )
        rows = np.full((len(models), self.reads), NO_ROW, dtype=np.int32)
        flat: list[Any] = [0.0] * (len(models) * self.reads)
        for k, model in enumerate(models):
            for j, (row, coef) in enumerate(zip(model.rows, model.coefs, strict=True)):
                rows[k, j] = row.number
                flat[k * self.reads + j] = coef
        coefs, varied = array_of(flat, np.float32)
        coefs = coefs.reshape(rows.shape)
        if varied is not None:
            coefs = np.stack([varied.into(coefs, setting) for setting in range(self.settings)])
        return rows, coefs

    @property
    def rows(self) -> int:
        """The number of row numbers given out."""
        return self._next_number

    def living(self) -> NDArray[np.int32]:
        """Return the numbers of the rows in use."""
        alive = np.ones(self._next_number, dtype=bool)
        alive[self._free] = False
        alive[self._graveyard] = False
        return np.flatnonzero(alive).astype(np.int32)

    def bury(self) -> None:
        """Forget dead rows without telling the executor, which has never seen them."""
        dead = self._graveyard[:]
        del self._graveyard[: len(dead)]
        self._free += dead

    # -- recording ---------------------------------------------------------------------------

    def _new_row(self, depth: int) -> Row:
        if self._free:
            return Row(self._free.pop(), depth, self._graveyard)
        self._next_number += 1
        return Row(self._next_number - 1, depth, self._graveyard)

    def _combine_rows(self, form: dict[Row, Number]) -> Row:
        """Record out = sum_j b_j row_j for at most `reads` rows."""
        depth = self._floor
        for row in form:
            if row.depth > depth:
                depth = row.depth
        depth += 1
        if depth > self._top:
            self._top = depth
        out = self._new_row(depth)
        pad = self.reads - len(form)
        buffer = self._combines
        ints = buffer.ints
        for row in form:
            ints.append(row.number)
        ints += _NO_ROWS[pad]
        ints.append(out.number)
        buffer.floats += form.values()
        buffer.floats += _ZERO[pad]
        buffer.depths.append(depth)
        self._count()
        return out

    def _map(
        self,
        function: Callable[..., Any],
        rows: Sequence[Row | None],
        scalars: Sequence[Number],
        outputs: int,
        client: int,
        draw: int,
        pads: bool,
    ) -> list[Row]:
        """Record a function of rows; None stands for padding."""
        count = len(rows)
        key = function, padded_size(count) if pads else count, outputs, len(scalars), pads
        branch = self._branch_of.get(key, 0)
        if not branch:
            branch = self._branch_of[key] = self._add_branch(Branch(*key))
        depth = self._floor
        for row in rows:
            if row is not None and row.depth > depth:
                depth = row.depth
        depth += self._beside
        if depth > self._top:
            self._top = depth
        outs = [self._new_row(depth) for _ in range(outputs)]
        buffer = self._mapped if self._beside else self._serials
        layout = buffer.layout
        buffer.ints += [NO_ROW if row is None else row.number for row in rows]
        buffer.ints += [*[NO_ROW] * (layout.reads - count), *(row.number for row in outs)]
        buffer.ints += [*[NO_ROW] * (layout.writes - outputs), branch, client, draw]
        buffer.floats += [*scalars, *[0.0] * (layout.numbers - len(scalars))]
        buffer.depths.append(depth)
        self._count()
        return outs

    def _add_branch(self, branch: Branch) -> int:
        """Return the number of a function that is used for the first time."""
        if len(self._branches) == MOST_BRANCHES:
            raise ValueError(
                f"map: expected at most {MOST_BRANCHES} functions and numbers of models, found one more: "
                f"{branch.function!r}; give the same object at every call, and what changes as scalars"
            )
        size = MapSize.of([*self._branches, branch])
        if size != self._map_size:  # the columns change: submit the recorded operations first
            self.flush()
            self._map_size = size
            layouts = self._layouts()
            self._serials = Buffer(layouts.serials, self.settings)
            self._mapped = Buffer(layouts.mapped, self.settings)
        self._branches.append(branch)
        return len(self._branches)

    def _reduce(self, form: dict[Row, Number]) -> Row:
        """Sum any number of rows into one, as a tree with `reads` children per node."""
        items = list(form.items())
        while len(items) > self.reads:
            items = [
                (self._combine_rows(dict(items[i : i + self.reads])), 1.0) if i + 1 < len(items) else items[i]
                for i in range(0, len(items), self.reads)
            ]
        return self._combine_rows(dict(items))

    def _step(self, rows: tuple[Row, ...], coefs: tuple[Number, ...], coef: Number, gradient: Gradient) -> Row:
        """Record sum coefs * rows + coef * gradient, in as many operations as it takes."""
        if len(rows) > self.reads:
            rows, coefs = (self._reduce(dict(zip(rows, coefs, strict=True))),), _ONE
        total = gradient.size
        if total == _USED:
            raise ValueError(
                f"gradient {gradient.draw} of client {gradient.client} is used twice: it would be drawn twice"
            )
        if self.releases is not None and not gradient.released:
            self.releases.count(gradient)
        gradient.size = _USED
        size = min(total, self.max_batch)
        out = self._record(rows, coefs, gradient, coef, gradient.first_or_steps, size, gradient.noise_scale)
        first = size
        while first < total:
            # Examples beyond the fixed width of a batch are added by further operations, without
            # noise: the batch is never truncated, which would change the mechanism.
            size = min(total - first, self.max_batch)
            out = self._record((out,), _ONE, gradient, coef, first, size, 0.0)
            first += size
        return out

    def _record(
        self,
        rows: tuple[Row, ...],
        coefs: tuple[Number, ...],
        gradient: Gradient,
        coef: Number,
        first: Integer,
        size: Integer,
        noise_scale: Number,
    ) -> Row:
        """Record one operation with a gradient: out = sum coefs * rows + coef * gradient."""
        if self.corrected:
            rows, coefs = self._after_correction(rows, coefs, gradient)
        read = gradient.model.rows[0]
        depth = read.depth
        for row in rows:
            if row.depth > depth:
                depth = row.depth
        kept = gradient if self.state_rows and isinstance(gradient, Round) else None
        if kept is not None:
            for row in kept.state:
                if row.depth > depth:
                    depth = row.depth
        depth = (depth if depth > self._floor else self._floor) + 1
        if depth > self._top:
            self._top = depth
        free = self._free
        out = Row(free.pop(), depth, self._graveyard) if free else self._new_row(depth)
        pad = self.reads - len(rows)
        buffer = self._gradients
        ints, floats = buffer.ints, buffer.floats
        ints.append(read.number)
        for row in rows:
            ints.append(row.number)
        ints += _NO_ROWS[pad]
        if kept is not None:
            made = [self._new_row(depth) for _ in range(self.state_rows)]
            kept.after = tuple([Model((row,), _ONE) for row in made])
            ints += [row.number for row in (*kept.state, out, *made)]
            ints += (kept.client, kept.draw, first, size, kept.count)
        else:
            ints += (out.number, gradient.client, gradient.draw, first, size)
        floats += coefs
        floats += _ZERO[pad]
        floats += (coef, noise_scale)
        floats += gradient.step
        buffer.depths.append(depth)
        self._recorded += 1
        if self._recorded >= self.window:
            self.flush()
        return out

    def _after_correction(
        self, rows: tuple[Row, ...], coefs: tuple[Number, ...], gradient: Gradient
    ) -> tuple[tuple[Row, ...], tuple[Number, ...]]:
        """Return a linear form that begins with 0 times the correction's row, or any row."""
        if len(rows) >= self.reads:
            rows, coefs = (self._reduce(dict(zip(rows, coefs, strict=True))),), _ONE
        row = gradient.correction if isinstance(gradient, Round) else None
        return (gradient.model.rows[0] if row is None else row, *rows), (0.0, *coefs)

    def _sum_of_gradients(self, base: dict[Row, Number], gradients: list[tuple[Number, Gradient]]) -> Model:
        """Return base + sum of many gradients: some chains of steps, then a tree."""
        ends: list[Row] = []  # of the chains so far
        for i, (coef, gradient) in enumerate(gradients):
            if i >= CHAINS:
                ends[i % CHAINS] = self._step((ends[i % CHAINS],), _ONE, coef, gradient)
            elif i:
                ends.append(self._step((), (), coef, gradient))
            else:
                ends.append(self._step(tuple(base), tuple(base.values()), coef, gradient))
        return Model((self._reduce(dict.fromkeys(ends, 1.0)),), _ONE)

    def flush(self) -> None:
        """Submit all recorded operations, or keep them until there is an executor."""
        if self.executor is None or not (self._recorded or self._constants):
            return
        dead = self._graveyard[:]
        del self._graveyard[: len(dead)]
        floor = self._floor
        window = Window(
            self._gradients.take(floor),
            self._combines.take(floor),
            self._serials.take(floor),
            self._mapped.take(floor),
            dead,
            self._constants,
            self._next_number,
            tuple(self._branches),
        )
        self._free += dead  # their numbers may be used again from the next window on
        self._constants = []
        self._floor = self._top
        self._recorded = 0
        self.executor.submit(window)
        if self.on_flush is not None:
            self.on_flush()


def _checked(client: Integer, draw: Integer, size: Integer, noise_scale: Number) -> tuple[int, int, int]:
    """Return a mini-batch's names as Python integers.

    Raises:
        ValueError: one of them is not an integer >= 0, or the noise scale is not a finite number >= 0.
    """
    numbers = []
    for name, value in (("client", client), ("draw", draw), ("size", size)):
        whose = "" if name == "client" else f"client {client}: "
        try:
            number = operator.index(value)
        except TypeError:
            number = -1
        if number < 0:
            raise ValueError(f"{whose}{name}: expected an integer >= 0, found {value}")
        numbers.append(number)
    if not 0.0 <= noise_scale < math.inf:
        raise ValueError(f"client {client}: noise_scale: expected a finite number >= 0, found {noise_scale}")
    return numbers[0], numbers[1], numbers[2]
