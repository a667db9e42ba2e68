"""The jitted programs: one window of steps, and the evaluation of models.

Shapes and static arguments are chosen so that a scenario compiles each program once, for any window. Runs that differ
only in seed, noise level, step size or speeds share the program.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec

from simfl.models import AbstractModel
from simfl.models.base import PRECISION, Keyed, clipping_factor, mean_loss
from simfl.privacy.noise import SAMPLERS, traced_once
from simfl.tape.augment import keys_of
from simfl.tape.draws import batch_positions, mix
from simfl.tape.inputs import Inputs, taken
from simfl.tape.layout import (
    BRANCH,
    CLIENT,
    COUNT,
    DRAW,
    FACTOR,
    FIRST,
    NOISE,
    SIZE,
    STEP,
    STEPS,
    Branch,
    Layouts,
    MapSize,
)
from simfl.tape.maps import called
from simfl.tape.problem import Noise, Operation
from simfl.tape.stored import Program

#: Rows that lanes begin with: models f32 [own, d], and corrections and states of rounds, None without any.
Rows: TypeAlias = tuple["jax.Array", "jax.Array | None", "jax.Array | None"]
#: (totals f32 [lanes, ...], counts) of lanes.
_OfLanes: TypeAlias = Callable[..., tuple[jax.Array, jax.Array]]

#: Programs of each kind that a process keeps: a window's takes up some 10 MB.
KEPT = 16


def kept(factory: Callable[..., Any]) -> Callable[..., Any]:
    """Cache a factory's jitted programs by the shapes, an additional first argument.

    A jitted function keeps the compiled code of every set of shapes for as long as it lives. One function for all
    shapes would grow with every number of clients or examples that a notebook tries.
    """

    def program(shapes: Any, *arguments: Any) -> Program:
        return Program(factory(*arguments), factory.__name__, arguments)

    return functools.lru_cache(maxsize=KEPT)(program)


def positions_of_batch(
    operation: Operation, lanes: int | None = None
) -> Callable[[dict[str, jax.Array], jax.Array], jax.Array]:
    """Return the function (data, ints) -> positions of a mini-batch, int32 [lanes].

    With several tasks, `client` is node * tasks + task: each task goes through the node's data in its own order.
    """
    batches, tasks = operation.batches, operation.tasks
    width = operation.lanes if lanes is None else lanes

    def positions(data: dict[str, jax.Array], ints: jax.Array) -> jax.Array:
        client, draw, first = ints[CLIENT], ints[DRAW], ints[FIRST]
        size = data["sizes"][client if tasks == 1 else client // tasks]
        return batch_positions(batches.sampling, data["data_key"], client, draw, first, batches.size, width, size)

    return positions


def examples_of(
    operation: Operation,
    data: dict[str, jax.Array],
    client: jax.Array,
    draw: jax.Array,
    first: jax.Array,
    position: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Return the examples of a mini-batch, x [lanes, ...] and y [lanes].

    They are those at `position`, entries `first` on, augmented. Of a task, y is 0 or 1.
    """
    tasks, augment = operation.tasks, operation.augment
    example = data["table"][data["offsets"][client if tasks == 1 else client // tasks] + position]
    x, y = data["x"][example], data["y"][example]
    if augment is not None:
        x = augment(x, keys_of(data["augment_key"], client, draw, first, len(x)))
    return x, y if tasks == 1 else (y == client % tasks).astype(jnp.int32)


def keyed(
    operation: Operation, data: dict[str, jax.Array], client: jax.Array, draw: jax.Array, first: jax.Array, y: Any
) -> Any:
    """Return the labels of a mini-batch, `Keyed` if the model draws in training."""
    if not operation.model.draws:
        return y
    return Keyed(y, keys_of(data["dropout_key"], client, draw, first, len(y)))


def bounded(vector: jax.Array, bound: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Clip f32[d] to a norm, and count (int32[]) a vector that is not finite as 0."""
    squared = jnp.sum(vector * vector)
    finite = squared < jnp.inf
    # A selection, not a product: 0 times a part that is not finite would be NaN.
    return jnp.where(finite, vector * clipping_factor(squared, bound), 0.0), (~finite).astype(jnp.int32)


def unit_noise(noise: Noise, data: dict[str, jax.Array], client: jax.Array, draw: jax.Array, count: int) -> jax.Array:
    """Return the noise of one release at unit scale, f32[count].

    See `simfl.privacy.correlated`.
    """
    sample = SAMPLERS[noise.sampler]
    own = sample(data["noise_key"], client, draw, count)
    if noise.form is None:
        return own
    if noise.form == "in_time":
        weights = data["noise_coefficients"]

        def earlier(back: jax.Array, total: jax.Array) -> jax.Array:
            return total + _at(weights, back) * sample(data["noise_key"], client, draw - back, count)

        return jax.lax.fori_loop(1, jnp.minimum(len(weights), draw + 1), earlier, own)
    edges, coefficients = data["pair_edges"][client], data["pair_coefficients"][client]

    def add(place: jax.Array, total: jax.Array) -> jax.Array:
        return total + _at(coefficients, place) * sample(data["pair_key"], _at(edges, place), draw, count)

    return jax.lax.fori_loop(0, data["pair_degrees"][client], add, own)


def noise_of_lanes(operation: Operation, noise: Noise, data: dict[str, jax.Array], names: jax.Array) -> jax.Array:
    """Return the noise of operations at unit scale, f32 [lanes, noised].

    names: their client to size, int32 [lanes, 4].
    """
    return jax.vmap(lambda one: unit_noise(noise, data, one[CLIENT], one[DRAW], operation.noised))(names)


def gradient_of_batch(operation: Operation) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """Return one lane's function: a clipped and noised sum of gradients, and a count.

    The count, int32[], is the number of gradients (or of sums, if these are clipped) that count as zero, because they
    are not finite. The function takes the parameters f32[d], the data, the operation's integers (client, draw, first,
    size), the positions of its examples in the client's data int32 [lanes], the noise's scale, the clipping norm if the
    operation has its own, and the noise of unit scale if it was drawn before.
    """
    model, clip, noise, lanes = operation.model, operation.clip, operation.noise, operation.lanes

    def gradient(
        params: jax.Array,
        data: dict[str, jax.Array],
        ints: jax.Array,
        position: jax.Array,
        noise_scale: jax.Array,
        own_norm: jax.Array | None = None,
        drawn: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        client, draw, size = ints[CLIENT], ints[DRAW], ints[SIZE]
        norm = data["clipping_norm"] if own_norm is None else own_norm
        x, y = examples_of(operation, data, client, draw, ints[FIRST], position)
        y = keyed(operation, data, client, draw, ints[FIRST], y)
        weight = (jnp.arange(lanes, dtype=jnp.int32) < size).astype(jnp.float32)
        zeroed = jnp.int32(0)
        if clip == "example":
            total, zeroed = model.clip_and_sum(params, x, y, weight, norm)
        else:
            total = model.gradient_sum(params, x, y, weight)
        if clip == "update":
            total, zeroed = bounded(total, norm * size.astype(jnp.float32))
        if noise is None:
            return total, zeroed
        drawn = unit_noise(noise, data, client, draw, operation.noised) if drawn is None else drawn
        added = noise_scale * drawn
        return total + added if noise.first is None else total.at[: operation.noised].add(added), zeroed

    return masked(gradient, model, operation.blocks) if operation.blocks > 1 else gradient


def block_of(key: jax.Array, client: jax.Array, draw: jax.Array, blocks: int) -> jax.Array:
    """Return the block of entries of a client's mini-batch, int32 in 0..blocks-1."""
    h = mix(mix(mix(client.astype(jnp.uint32) ^ key[0]) ^ key[1]) + draw.astype(jnp.uint32))
    return (h % jnp.uint32(blocks)).astype(jnp.int32)


def masked(
    gradient: Callable[..., tuple[jax.Array, jax.Array]], model: AbstractModel, blocks: int
) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """Return `gradient_of_batch` with one random block of entries kept.

    Entry j belongs to block j mod D, D = `blocks`. Kept entries are multiplied by D; their mean is the gradient:
    d_xi S_u of the general recursion of Nguyen et al. 2018, https://arxiv.org/abs/1802.03801.
    """

    def kept(
        params: jax.Array, data: dict[str, jax.Array], ints: jax.Array, *further: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        total, zeroed = gradient(params, data, ints, *further)
        if model.l2:
            total = total + model.l2 * ints[SIZE].astype(jnp.float32) * params
        block = block_of(data["noise_key"], ints[CLIENT], ints[DRAW], blocks)
        return jnp.where(jnp.arange(model.size) % blocks == block, blocks * total, 0.0), zeroed

    return kept


def change_of_round(operation: Operation) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """Return one lane's function: the clipped, noised change of a model, and a count.

    The change is f32[d], see `simfl.tape.recording.Round`. The count, int32[], is the number of gradients (or changes,
    if these are clipped) that are not finite and count as zero. The function takes the parameters f32[d], the data, the
    operation's integers (client, draw, steps, size), its floats (noise scale, eta, beta, t, dt; mu and l2 if rounds
    have their own), and the largest number of steps of all lanes, and the correction f32[d] if rounds are corrected
    (their floats end with its coefficient). Sampling must not be Poisson, because the sizes of its batches differ. An
    optimizer starts from its initial state; if rounds keep it, from the rows f32 [k, d] of the last argument, and the
    change f32 [1 + k, d] ends with the new ones.
    """
    model, clip, noise, lanes = operation.model, operation.clip, operation.noise, operation.lanes
    rule: Any = operation.optimizing.local
    kept = operation.optimizing.kept

    def change(
        params: jax.Array,
        data: dict[str, jax.Array],
        ints: jax.Array,
        floats: jax.Array,
        most: jax.Array,
        correction: jax.Array | None = None,
        before: jax.Array | None = None,
        drawn: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        client, draw, steps, size = ints[CLIENT], ints[DRAW], ints[STEPS], ints[SIZE]
        scale, eta, beta, t, dt = floats[:5]
        pull, l2 = (floats[5], floats[6]) if operation.own_pull else (data["proximal"], model.l2)
        examples = data["sizes"][client]
        weight = (jnp.arange(lanes, dtype=jnp.int32) < size).astype(jnp.float32)
        share = 1.0 / jnp.maximum(size, 1).astype(jnp.float32)

        def descent(h: jax.Array, w: jax.Array, zeroed: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
            """Return the gradient at w of step h, its step size, and the count."""
            at = batch_positions(
                operation.batches.sampling, data["data_key"], client, draw + h, jnp.int32(0), lanes, lanes, examples
            )
            # Fused into the gather that uses it, the permutation would not vectorize.
            x, y = examples_of(operation, data, client, draw + h, jnp.int32(0), jax.lax.optimization_barrier(at))
            y = keyed(operation, data, client, draw + h, jnp.int32(0), y)
            if clip == "example":
                total, more = model.clip_and_sum(w, x, y, weight, data["clipping_norm"])
                zeroed = zeroed + jnp.where(h < steps, more, 0)
            else:
                total = model.gradient_sum(w, x, y, weight)
            gradient = share * total + pull * (w - params)
            if model.l2:
                gradient = gradient + l2 * w
            if correction is not None:
                gradient = gradient + correction
            if operation.alternates:
                gradient = jnp.where(trained(h), gradient, 0.0)
            done = h.astype(jnp.float32)
            return gradient, eta / (1.0 + beta * (t + dt * done) ** data["power"]), zeroed

        def trained(h: jax.Array) -> jax.Array:
            """Return which parameters step h trains, bool [d]."""
            return (data["personal"] > 0.0) == (h < data["personal_steps"])

        def step(h: jax.Array, carried: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            w, zeroed = carried
            gradient, rate, zeroed = descent(h, w, zeroed)
            # A selection: a lane that has done its steps keeps its bits, even if its gradient is not finite.
            return jnp.where(h < steps, w - rate * gradient, w), zeroed

        def step_by_rule(h: jax.Array, carried: tuple[jax.Array, jax.Array, Any]) -> tuple[jax.Array, jax.Array, Any]:
            w, zeroed, state = carried
            gradient, rate, zeroed = descent(h, w, zeroed)
            added, after = rule.update(gradient, state, w, data["local_constants"])
            if operation.alternates:  # momentum would move the others on
                added = jnp.where(trained(h), added, 0.0)
            stays = jax.tree.map(lambda new, old: jnp.where(h < steps, new, old), after, state)
            return jnp.where(h < steps, w + rate * added, w), zeroed, stays

        state: Any = None
        if rule is None:
            last, zeroed = jax.lax.fori_loop(0, most, step, (params, jnp.int32(0)))
        else:
            first = (
                rule.init(params, data["local_constants"])
                if kept is None or before is None
                else kept.unpack(before, ints[COUNT])
            )
            last, zeroed, state = jax.lax.fori_loop(0, most, step_by_rule, (params, jnp.int32(0), first))
        moved = last - params
        if clip == "update":
            moved, zeroed = bounded(moved, data["clipping_norm"])
        if noise is not None:
            moved = moved + scale * (unit_noise(noise, data, client, draw, model.size) if drawn is None else drawn)
        return (moved if kept is None else jnp.stack([moved, *kept.pack(state)])), zeroed

    return change


def _at(array: jax.Array, place: jax.Array) -> jax.Array:
    """Return array[place] for a place that is never negative.

    Negative indices, as in NumPy, would take seven more operations, and most operations of a window's program are such
    reads.
    """
    return array.at[place].get(mode="promise_in_bounds", wrap_negative_indices=False)


@traced_once
def _linear(bank: jax.Array, coefs: jax.Array, places: jax.Array) -> jax.Array:
    """Return sum_j coefs[j] * _at(bank, places[j]), f32[d], read row by row.

    Slices, unlike a gather, fuse with the arithmetic: no copy of the rows is made. Term by term in
    order, not a dot product, whose order of summation the compiler would choose.
    """
    total = coefs[0] * _at(bank, places[0])
    for j in range(1, len(places)):
        total = total + coefs[j] * _at(bank, places[j])
    return total


def _take_narrow(bank: jax.Array, places: jax.Array) -> jax.Array:
    """Return rows f32 [lanes, d], slice by slice."""
    return jnp.stack([_at(bank, places[k]) for k in range(len(places))])


def _take_wide(bank: jax.Array, places: jax.Array) -> jax.Array:
    """Return rows f32 [lanes, d] by one gather."""
    return bank.at[places].get(mode="promise_in_bounds")


def _mix_narrow(bank: jax.Array, coefs: jax.Array, places: jax.Array) -> jax.Array:
    """Return the linear forms of the few lanes of a CPU, f32 [lanes, d]."""
    return jnp.stack([_linear(bank, coefs[k], places[k]) for k in range(len(places))])


def _step_narrow(bank: jax.Array, coefs: jax.Array, places: jax.Array, scale: jax.Array, total: jax.Array) -> jax.Array:
    """Return linear forms + scale * total, f32 [lanes, d], reading the forms again.

    Of a few long rows, those after the last one of a form are not read. At least two are: with one, the compiler would
    round differently.
    """
    lanes, reads = places.shape
    counts = range(2 if lanes <= BRANCHED and bank.shape[1] >= LONG else reads, reads + 1)
    last = jnp.max(jnp.where(places != len(bank) - 1, jnp.arange(reads), 0), axis=1)

    def stepped(lane: int, count: int) -> jax.Array:
        return _linear(bank, coefs[lane, :count], places[lane, :count]) + scale[lane] * total[lane]

    def branch(lane: int) -> jax.Array:
        choices = [functools.partial(stepped, lane, count) for count in counts]
        return jax.lax.switch(last[lane] - 1, choices) if len(choices) > 1 else stepped(lane, reads)

    return jnp.stack([branch(lane) for lane in range(lanes)])


def _mix_wide(bank: jax.Array, coefs: jax.Array, places: jax.Array) -> jax.Array:
    """Return linear forms, f32 [lanes, d], by one gather: for many lanes on a GPU."""
    rows = bank.at[places.reshape(-1)].get(mode="promise_in_bounds").reshape(*places.shape, -1)
    total = coefs[:, 0, None] * rows[:, 0]
    for j in range(1, places.shape[1]):
        total = total + coefs[:, j, None] * rows[:, j]
    return total


def _step_wide(bank: jax.Array, coefs: jax.Array, places: jax.Array, scale: jax.Array, total: jax.Array) -> jax.Array:
    """Return linear forms + scale * total, f32 [lanes, d], for many lanes."""
    return _mix_wide(bank, coefs, places) + scale[:, None] * total


def _write(bank: jax.Array, places: jax.Array, rows: jax.Array) -> jax.Array:
    """Return the bank with rows f32 [lanes, d] at these places.

    Few rows are written one by one: on a CPU, XLA turns a scatter into a loop, which takes longer. All rows are
    computed before the first is written: otherwise XLA would fuse each computation with its write, and copy the bank
    for it.
    """
    if len(places) > FEW:
        return bank.at[places].set(rows, mode="promise_in_bounds")
    made = jax.lax.optimization_barrier(rows)
    for k in range(len(places)):
        bank = jax.lax.dynamic_update_slice(bank, made[k][None], (places[k], 0), allow_negative_indices=False)
    return bank


def into_ball(rows: jax.Array, radius: jax.Array) -> jax.Array:
    """Return the rows f32 [lanes, d], projected onto the ball of radius `radius`."""
    # radius / 0 is inf, and min(1, inf) is 1
    return rows * jnp.minimum(1.0, radius / jnp.sqrt(jnp.sum(rows * rows, axis=1, keepdims=True)))


#: The axis of a mesh of devices that share the lanes of a step.
LANES = "lanes"
#: Lanes up to which a step is written out lane by lane.
NARROW = 32
#: Lanes up to which a step branches by the number of rows that each reads, and length from which a row is worth it.
BRANCHED, LONG = 4, 2**12
#: Rows up to which a step writes row by row; each takes some 20 milliseconds to compile.
FEW = 16


def draws_noise(operation: Operation) -> bool:
    """Return whether `draws_program` draws noise."""
    return operation.noise is not None and operation.noise.form is None and not operation.local


@kept
def draws_program(operation: Operation, first_name: int, takes: bool) -> Any:
    """Return the program of what steps draw, before they run.

    Settings of a group share it. It maps (steps, integers of gradients, data) to a dict, which replaces entries of
    `data`. `positions` are int32 [s, width, lanes]. If `takes`, they count the examples that are used, one after the
    other: these are `x` and `y`, and `table` and `offsets` add nothing. So the window's program is the same, and reads
    memory in order. `noise` of unit scale is f32 [s, width, noised], if `draws_noise`. Client to size are the integers
    from `first_name` on.
    """
    noise, names = operation.noise, slice(first_name, first_name + SIZE + 1)
    draw_positions = jax.vmap(jax.vmap(positions_of_batch(operation), (None, 0)), (None, 0))

    def run(steps: jax.Array, ints: jax.Array, data: dict[str, Any]) -> dict[str, Any]:
        positions = draw_positions(data, ints[:, :, names])
        drawn = {"positions": positions}
        if takes:
            places = jnp.arange(positions.size, dtype=jnp.int32)
            client = ints[:, :, first_name + CLIENT] // operation.tasks
            at = data["offsets"][client][:, :, None] + positions
            # Steps that are not run take one example again and again, which is in the cache.
            at = jnp.where(jnp.arange(len(ints))[:, None, None] < steps, at, 0)
            # Fused into the gather that uses it, the permutation would not vectorize.
            example = data["table"][jax.lax.optimization_barrier(at).reshape(-1)]
            drawn = {
                "positions": places.reshape(positions.shape),
                "x": taken(data["x"], example),
                "y": data["y"][example],
                "table": places,
                "offsets": jnp.zeros_like(data["offsets"]),
            }
        if noise is None or not draws_noise(operation):
            return drawn

        def step(s: jax.Array, drawn: jax.Array) -> jax.Array:
            return drawn.at[s].set(noise_of_lanes(operation, noise, data, _at(ints, s)[:, names]))

        empty = jnp.zeros((*ints.shape[:2], operation.noised))
        return drawn | {"noise": jax.lax.fori_loop(0, steps, step, empty)}

    return jax.jit(run)


class _Program:
    """The sizes, columns and functions of `window_program`, for any window."""

    def __init__(
        self,
        operation: Operation,
        reads: int,
        width: int,
        mesh: Mesh | None,
        branches: tuple[Branch, ...],
        drawn_before: bool,
    ) -> None:
        self.operation, self.reads, self.width, self.mesh = operation, reads, width, mesh
        self.branches, self.drawn_before = branches, drawn_before
        #: The lanes of one device.
        self.own = width if mesh is None else width // mesh.size
        self.narrow = self.own <= NARROW
        wide = _take_wide, _mix_wide, _step_wide
        self.take, self.mix, self.step = (_take_narrow, _mix_narrow, _step_narrow) if self.narrow else wide
        state = operation.optimizing.kept
        self.kept = 0 if state is None else state.rows
        columns = Layouts(reads, operation.extra, MapSize.of(branches), operation.optimizing.beside, self.kept)
        self.each, self.forms, self.serials, self.mapped = (
            columns.gradient, columns.combine, columns.serials, columns.mapped
        )  # fmt: skip
        self.writes = columns.maps.writes
        self.gradient, self.change = gradient_of_batch(operation), change_of_round(operation)
        norms, correction, states, noise = (
            0 if there else None
            for there in (operation.own_norms, operation.corrected, self.kept, operation.noise is not None)
        )
        self.each_gradient: _OfLanes = jax.vmap(self.gradient, (0, None, 0, 0, 0, norms, noise))
        self.each_change: _OfLanes = jax.vmap(self.change, (0, None, 0, 0, None, correction, states, noise))
        self.draw_positions = jax.vmap(jax.vmap(positions_of_batch(operation), (None, 0)), (None, 0))

    def run(self, bank: jax.Array, zeroed: jax.Array, *window: Any) -> tuple[jax.Array, jax.Array]:
        """Execute a window, the fields of a `_Window`, step by step."""
        made = _Window(self, *window)
        result: tuple[jax.Array, jax.Array] = jax.lax.fori_loop(0, made.steps, made.step, (bank, zeroed))
        return result

    def read(self, bank: jax.Array, gi: jax.Array, gf: jax.Array) -> Rows:
        """Return copies of the rows that the lanes of a step begin with; see `_Window`."""
        return self.take(bank, gi[:, 0]), *self.of_rounds(bank, gi, gf)

    def compute(
        self, steps: jax.Array, gi: jax.Array, gf: jax.Array, data: dict[str, jax.Array], *rows: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        """Return the totals of a step from the rows of `read`, and a count; `steps` is 1."""
        no = jnp.zeros((1, 0))  # other parts of a window are not used
        window = _Window(self, steps, gi[None], gf[None], no, no, no, no, no, data)
        # Fused into the gather that uses it, the permutation would not vectorize.
        window.positions = jax.lax.optimization_barrier(window.positions)
        return window.counted(gi, *window.totals(rows[0], gi, gf, jnp.int32(0), *rows[1:]))

    def finish(
        self, bank: jax.Array, zeroed: jax.Array, total: jax.Array, more: jax.Array, s: jax.Array, *window: Any
    ) -> tuple[jax.Array, jax.Array]:
        """Return the bank, and the count, after step s of a window whose totals are given."""
        return _Window(self, *window).step(s, (bank, zeroed), (total, more))

    def of_rounds(self, bank: jax.Array, gi: jax.Array, gf: jax.Array) -> tuple[jax.Array | None, jax.Array | None]:
        """Return corrections f32 [own, d] and states f32 [own, kept, d] of rounds.

        None stands for either, if there is none."""
        coef = gf[:, -1:]
        correction = jnp.where(coef != 0.0, coef * self.take(bank, gi[:, 1]), 0.0) if self.operation.corrected else None
        states = [self.take(bank, gi[:, 1 + self.reads + k]) for k in range(self.kept)]
        return correction, jnp.stack(states, 1) if states else None


@dataclass(eq=False)
class _Window:
    """The steps of a window, as functions of the bank.

    `gi` and `gf` are the integers and floats of the lanes of step s, [own, columns].
    """

    of: _Program
    steps: jax.Array
    g_ints: jax.Array
    g_floats: jax.Array
    c_ints: jax.Array
    c_floats: jax.Array
    s_ints: jax.Array
    s_floats: jax.Array
    s_bounds: jax.Array
    data: dict[str, jax.Array]
    m_ints: jax.Array | None = None
    m_floats: jax.Array | None = None

    def __post_init__(self) -> None:
        # All batches at once and outside of the loop: inside, XLA fuses the permutation into the
        # gather that uses it, where it does not vectorize and costs as much as a small gradient.
        self.positions: jax.Array | None = None
        if self.of.drawn_before:
            self.positions = self.data["positions"]
        elif not self.of.operation.local:
            self.positions = self.of.draw_positions(self.data, self.g_ints[:, :, self.of.each.rest])

    def step(
        self,
        s: jax.Array,
        carried: tuple[jax.Array, jax.Array],
        totals: tuple[jax.Array, jax.Array] | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """Return the bank, and the count of gradients set to zero, after step s.

        `totals` are the lanes' totals and their count, if they were computed before.
        """
        (bank, zeroed), of = carried, self.of
        gi, gf, ci, cf = (_at(one, s) for one in (self.g_ints, self.g_floats, self.c_ints, self.c_floats))
        if totals is not None:
            stepped, more = self.stepped(bank, gi, gf, totals[0]), totals[1]
        else:
            gradients = self.gradients_if_any if of.operation.optimizing.pauses else self.gradients
            stepped, more = gradients(bank, gi, gf, s)
        to = gi[:, of.each.written].reshape(-1) if of.kept else gi[:, of.each.reads]
        if of.mesh is not None:
            to, stepped = (jax.lax.all_gather(part, LANES, tiled=True) for part in (to, stepped))
            more = jax.lax.psum(more, LANES)
        zeroed = zeroed + more
        combined = of.mix(bank, cf, ci[:, of.forms.read])
        writing = jnp.concatenate([to, ci[:, of.forms.reads]])
        written = jnp.concatenate([stepped, combined])
        if self.m_ints is not None and self.m_floats is not None:
            mi, mf = _at(self.m_ints, s), _at(self.m_floats, s)
            writing = jnp.concatenate([writing, mi[:, of.mapped.written].reshape(-1)])
            written = jnp.concatenate([written, self.maps_if_any(bank, mi, mf)])
        bank = _write(bank, writing, written)
        return jax.lax.fori_loop(_at(self.s_bounds, s), _at(self.s_bounds, s + 1), self.serial, bank), zeroed

    def gradients(self, bank: jax.Array, gi: jax.Array, gf: jax.Array, s: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the rows that the lanes write, f32 [own (1 + kept), d], and a count.

        The count is the number of gradients that were set to zero."""
        read, *of_round = self.of.read(bank, gi, gf)
        total, more = self.counted(gi, *self.totals(read, gi, gf, s, *of_round))
        return self.stepped(bank, gi, gf, total), more

    def counted(self, gi: jax.Array, total: jax.Array, more: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the totals, and the sum of the lanes' counts."""
        # A lane without an operation reads the spare row, which may hold anything.
        return total, jnp.sum(jnp.where(gi[:, self.of.each.rest.start + SIZE] > 0, more, 0))

    def stepped(self, bank: jax.Array, gi: jax.Array, gf: jax.Array, total: jax.Array) -> jax.Array:
        """Return the rows that the lanes write, given their totals."""
        of, reads = self.of, self.of.reads
        change = total[:, 0] if of.kept else total
        stepped = of.step(bank, gf[:, :reads], gi[:, 1 : 1 + reads], gf[:, reads + FACTOR], change)
        if of.kept:
            return jnp.concatenate([stepped[:, None], total[:, 1:]], 1).reshape(-1, bank.shape[1])
        return into_ball(stepped, self.data["radius"]) if of.operation.projects else stepped

    def gradients_if_any(
        self, bank: jax.Array, gi: jax.Array, gf: jax.Array, s: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return `gradients`, or zeros if no lane has an operation."""
        of = self.of
        made: tuple[jax.Array, jax.Array] = jax.lax.cond(
            jnp.any(gi[:, of.each.reads] != len(bank) - 1),
            self.gradients,
            lambda bank, *_: (jnp.zeros((of.own * of.each.writes, bank.shape[1])), jnp.int32(0)),
            *(bank, gi, gf, s),
        )
        return made

    def noise_of(self, gi: jax.Array, s: jax.Array) -> jax.Array | None:
        """Return the lanes' noise of unit scale, f32 [own, noised], if there is any."""
        of, operation = self.of, self.of.operation
        if operation.noise is None:
            return None
        if of.drawn_before and draws_noise(operation):
            return _at(self.data["noise"], s)
        draw = functools.partial(noise_of_lanes, operation, operation.noise, self.data)
        if not of.narrow:
            return draw(gi[:, of.each.rest])
        # The condition always holds. A branch is computed on its own: otherwise XLA, with 1 to 6 lanes, computes
        # noise within the loops that write rows, without vectors, and a step takes 5 to 14 times as long.
        shape = of.own, operation.noised
        drawn: jax.Array = jax.lax.cond(self.steps > 0, draw, lambda _: jnp.zeros(shape), gi[:, of.each.rest])
        return drawn

    def totals(
        self, read: jax.Array, gi: jax.Array, gf: jax.Array, s: jax.Array, *of_round: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        """Return the lanes' totals at the rows they read, f32 [own, d], and counts.

        If rounds keep a state, the totals are f32 [own, 1 + kept, d]."""
        of, data, scales = self.of, self.data, self.of.reads + NOISE
        names, drawn = gi[:, of.each.rest], self.noise_of(gi, s)
        if of.operation.local:
            most, floats = jnp.max(gi[:, of.each.rest.start + STEPS]), gf[:, scales:]
            rows = *of_round, drawn
            if of.own == 1:
                return _alone(of.change(read[0], data, names[0], floats[0], most, *map(_first, rows)))
            return of.each_change(read, data, names, floats, most, *rows)
        assert self.positions is not None
        at, scale = _at(self.positions, s), gf[:, scales]
        norms = gf[:, of.reads + STEP] if of.operation.own_norms else None
        if of.own == 1:  # no batch axis at all: a convolution must not see one on a CPU
            return _alone(of.gradient(read[0], data, names[0], at[0], scale[0], _first(norms), _first(drawn)))
        return of.each_gradient(read, data, names, at, scale, norms, drawn)

    def serial(self, i: jax.Array, bank: jax.Array) -> jax.Array:
        """Return the bank after serial operation i."""
        of, ints = self.of, _at(self.s_ints, i)
        if not of.serials.further:
            row = _linear(bank, _at(self.s_floats, i), ints[: of.reads])[None]
            return jax.lax.dynamic_update_slice(bank, row, (ints[of.forms.reads], 0), allow_negative_indices=False)

        def sum_of_rows() -> list[jax.Array]:
            form = _linear(bank, floats[: of.reads], ints[: of.reads])
            return [form, *[jnp.zeros(bank.shape[1])] * (of.writes - 1)]

        # The rows of a branch are computed before any of them is written: if XLA fused the two, it would copy the bank
        # for each row.
        names, floats = ints[of.serials.rest], _at(self.s_floats, i)
        made = jax.lax.switch(names[BRANCH], [sum_of_rows, *self.choices(bank, ints, floats, names)])
        for k, row in enumerate(made):
            at = ints[of.serials.reads + k], 0
            bank = jax.lax.dynamic_update_slice(bank, row[None], at, allow_negative_indices=False)
        return bank

    def maps_if_any(self, bank: jax.Array, mi: jax.Array, mf: jax.Array) -> jax.Array:
        """Return the rows that functions of models write, f32 [width * mapped.writes, d]."""
        of, used = self.of, mi[:, 0] != len(bank) - 1
        each = jax.vmap(self.map, (None, 0, 0))
        # A lane without an operation writes 0 to the spare row, so that 0 times the spare row is 0.
        made: jax.Array = jax.lax.cond(
            jnp.any(used),
            lambda: jnp.where(used[:, None, None], jnp.stack(each(bank, mi, mf), 1), 0.0),
            lambda: jnp.zeros((of.width, of.mapped.writes, bank.shape[1])),
        )
        return made.reshape(-1, bank.shape[1])

    def map(self, bank: jax.Array, ints: jax.Array, floats: jax.Array) -> list[jax.Array]:
        """Return the rows f32[d] that a function beside gradients makes."""
        names = ints[self.of.mapped.rest]
        made: list[jax.Array] = jax.lax.switch(names[BRANCH] - 1, self.choices(bank, ints, floats, names))
        return made

    def choices(self, bank: jax.Array, *numbers: jax.Array) -> list[Callable[[], list[jax.Array]]]:
        """Return what computes each branch; `numbers` are integers, floats, names."""
        return [functools.partial(self.made_by, one, bank, *numbers) for one in self.of.branches]

    def made_by(
        self, branch: Branch, bank: jax.Array, ints: jax.Array, floats: jax.Array, names: jax.Array
    ) -> list[jax.Array]:
        """Return the rows f32[d] that a branch makes; further rows are 0."""
        places, data = ints[: branch.inputs], self.data
        rows: Any = _take_wide(bank, places) if branch.pads else [_at(bank, places[k]) for k in range(branch.inputs)]
        made = called(branch, rows, places != len(bank) - 1, names, floats, data["map_key"], data["applied_constants"])
        return [*made, *[jnp.zeros(bank.shape[1])] * (self.of.writes - branch.outputs)]


def _first(rows: jax.Array | None) -> jax.Array | None:
    """Return the first row, if there are rows."""
    return None if rows is None else rows[0]


def _alone(terms: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Return the terms of one lane as those of lanes."""
    return terms[0][None], terms[1][None]


@kept
def window_program(
    operation: Operation,
    reads: int,
    width: int,
    combines: int,
    mesh: Mesh | None = None,
    branches: tuple[Branch, ...] = (),
    drawn_before: bool = False,
) -> Any:
    """Return the program of a packed window.

    It maps (bank, zeroed, steps, arrays, serial operations, data) to (bank, zeroed).

    Args:
        operation: what operations with a gradient compute.
        reads: rows per operation.
        width, combines: gradients, and linear combinations, per step.
        mesh: devices that share the lanes of gradients, one axis; `width` is a multiple of them. None: one device.
        branches: the functions of models.
        drawn_before: whether mini-batches and noise are given, in `data`, as `draws_program` returns them.

    With several devices, each device has the whole bank, computes the gradients of its lanes, and gets the rows of the
    other devices before it writes. Rows are written in the order of a single device.

    bank is f32 [places + 1, d] and donated; zeroed int32[] counts clipped gradients or updates that were not finite,
    and so were released as zero. The body writes once, after all its reads: with two scatters on the carried bank, XLA
    would copy the whole bank in every step. Functions of models that run beside gradients have their integers and
    floats last.
    """
    program = _Program(operation, reads, width, mesh, branches, drawn_before)
    if mesh is None:
        return jax.jit(program.run, donate_argnums=0)
    lanes, whole = PartitionSpec(None, LANES), PartitionSpec()
    given = (whole, whole, whole, lanes, lanes, *[whole] * 6)
    maps = (whole, whole) if program.mapped.integers else ()
    shared = jax.shard_map(program.run, mesh=mesh, in_specs=(*given, *maps), out_specs=(whole, whole), check_vma=False)
    return jax.jit(shared, donate_argnums=0)


def _forms(coefs: jax.Array, rows: jax.Array) -> jax.Array:
    """Return models f32 [k, d] from coefficients [k, reads] and rows [k, reads, d]."""
    return jnp.einsum("kr,krd->kd", coefs, rows, precision=PRECISION)


@kept
def read_program(operation: Operation, reads: int, width: int) -> Any:
    """Return (bank, integers, floats) -> copies of the rows that a step begins with."""
    return jax.jit(_Program(operation, reads, width, None, (), False).read)


@kept
def compute_program(operation: Operation, reads: int, width: int) -> Any:
    """Return (1, integers, floats, data, *rows) -> (totals, count) of a step.

    The program needs no bank, and has no part that depends on other steps: any device may compute it.
    """
    return jax.jit(_Program(operation, reads, width, None, (), False).compute)


@kept
def finish_program(
    operation: Operation, reads: int, width: int, combines: int, branches: tuple[Branch, ...] = ()
) -> Any:
    """Return the program of the rest of a step.

    It maps (bank, zeroed, totals, count, step, *window) to (bank, zeroed), with the window of `window_program`. The
    bank is donated.
    """
    return jax.jit(_Program(operation, reads, width, None, branches, False).finish, donate_argnums=0)


@kept
def average_program(reads: int, chunk: int, columns: int) -> Any:
    """Return the program of the mean model f32[d] and the consensus distance.

    It maps (bank, places [k, reads], coefs, valid [k]) to (mean model f32[d], consensus distance f32).

    The consensus distance is the root mean square distance of the models to their mean,
    sqrt( (1/K) sum_k ||w_k - w_mean||^2 ). Clients are summed in their order, so that the result
    does not depend on the places of rows in the bank. k is padded to a multiple of `chunk`.

    A model of at least 2 `columns` numbers is computed in parts of `columns` numbers, the last one with what is left:
    so each number is at the same place of a vector register as in one part, and has the same bits.
    """

    def run(bank: jax.Array, places: jax.Array, coefs: jax.Array, valid: jax.Array) -> tuple[jax.Array, jax.Array]:
        places, coefs = places.reshape(-1, chunk, reads), coefs.reshape(-1, chunk, reads)
        valid = valid.reshape(-1, chunk)
        count, size = valid.sum(), bank.shape[1]
        parts = max(1, size // columns)

        def in_parts(part_of: Callable[[Any, int], jax.Array]) -> jax.Array:
            """Return f32[d] from the function (first number, how many) -> numbers."""
            if parts == 1:
                return part_of(0, size)

            def put(i: jax.Array, made: jax.Array) -> jax.Array:
                return jax.lax.dynamic_update_slice(made, part_of(i * columns, columns), (i * columns,))

            last = (parts - 1) * columns
            made = jax.lax.fori_loop(0, parts - 1, put, jnp.zeros(size))
            return made.at[last:].set(part_of(last, size - last))

        def models(places: jax.Array, coefs: jax.Array, first: Any, length: int) -> jax.Array:
            each = jax.vmap(lambda place: jax.lax.dynamic_slice(bank, (place, first), (1, length))[0])
            return _forms(coefs, each(places.reshape(-1)).reshape(*places.shape, length))

        def mean_of(first: Any, length: int) -> jax.Array:
            def add(i: jax.Array, total: jax.Array) -> jax.Array:
                return total + jnp.matmul(valid[i], models(places[i], coefs[i], first, length), precision=PRECISION)

            return jax.lax.fori_loop(0, len(places), add, jnp.zeros(length)) / count

        mean = in_parts(mean_of)

        def squared(models: jax.Array) -> jax.Array:
            return jnp.sum((models - mean) ** 2, axis=1)

        def alone(form: tuple[jax.Array, jax.Array]) -> jax.Array:
            place, coef = form[0][None], form[1][None]
            return squared(in_parts(lambda *part: models(place, coef, *part)[0])[None])[0]

        def spread(i: jax.Array, total: jax.Array) -> jax.Array:
            forms = places[i], coefs[i]
            return total + jnp.sum(
                valid[i] * (squared(models(*forms, 0, size)) if parts == 1 else jax.lax.map(alone, forms))
            )

        return mean, jnp.sqrt(jax.lax.fori_loop(0, len(places), spread, jnp.float32(0.0)) / count)

    return jax.jit(run)


@kept
def constants_program() -> Any:
    """Return (bank, places [k], values [k, d]) -> bank, which is donated."""
    return jax.jit(lambda bank, places, values: bank.at[places].set(values), donate_argnums=0)


@kept
def gather_program() -> Any:
    """Return (bank, places [k]) -> the rows there, f32 [k, d], bit for bit."""
    return jax.jit(lambda bank, places: bank[places])


@kept
def rows_program(reads: int) -> Any:
    """Return (bank, places [k, reads], coefs [k, reads]) -> models f32 [k, d]."""

    def run(bank: jax.Array, places: jax.Array, coefs: jax.Array) -> jax.Array:
        rows = bank[places.reshape(-1)].reshape(*places.shape, -1)
        return _forms(coefs, rows)

    return jax.jit(run)


@kept
def probe_program(operation: Operation, reads: int) -> Any:
    """Return the program of models and their losses on mini-batches.

    It maps (bank, places [k, reads], coefs [k, reads], clients [k], draws [k, m], data) to (models, losses).

    models is f32 [k, d], losses f32 [k, m]: of each model on the client's mini-batches of these numbers, the mean over
    the examples, with the regularizer. A number below 0 stands for no mini-batch and gives 0.
    """
    model, lanes = operation.model, operation.batches.size
    positions = positions_of_batch(operation, lanes)

    def loss(params: jax.Array, client: jax.Array, draw: jax.Array, data: dict[str, jax.Array]) -> jax.Array:
        ints = jnp.stack([client, jnp.maximum(draw, 0), jnp.int32(0)])
        x, y = examples_of(operation, data, client, ints[DRAW], ints[FIRST], positions(data, ints))
        weight = jnp.ones(lanes, jnp.float32)
        return jnp.where(draw >= 0, mean_loss(model, params, x, y, weight), 0.0)

    losses = jax.vmap(jax.vmap(loss, (None, None, 0, None)), (0, 0, 0, None))

    def run(
        bank: jax.Array,
        places: jax.Array,
        coefs: jax.Array,
        clients: jax.Array,
        numbers: jax.Array,
        data: dict[str, jax.Array],
    ) -> tuple[jax.Array, jax.Array]:
        rows = bank[places.reshape(-1)].reshape(*places.shape, -1)
        models = _forms(coefs, rows)
        return models, losses(models, clients, numbers, data)

    return jax.jit(run)


def in_chunks(x: Inputs, y: jax.Array, chunk: int) -> tuple[Inputs, jax.Array]:
    """Return examples [n, ...] and their labels [n, ...] as [n / chunk, chunk, ...]."""
    return x.reshape(-1, chunk, *x.shape[1:]), y.reshape(-1, chunk, *y.shape[1:])


@kept
def evaluation_program(model: AbstractModel, chunk: int) -> Any:
    """Return (params, x, y, weight) -> (loss, accuracy, metrics) over a padded set.

    Metrics are the means of those of the model, by name.
    """

    def run(
        params: jax.Array, x: Inputs, y: jax.Array, weight: jax.Array
    ) -> tuple[jax.Array, jax.Array, dict[str, jax.Array]]:
        xs, ys = in_chunks(x, y, chunk)
        ws = weight.reshape(-1, chunk)

        Totals = tuple[jax.Array, jax.Array, dict[str, jax.Array]]

        def add(i: jax.Array, totals: Totals) -> Totals:
            loss, correct, metrics = totals
            # where, not a product: a padded example may have a loss that is not finite
            losses = jnp.where(ws[i] > 0, model.losses(params, xs[i], ys[i]), 0.0)
            right = jnp.where(ws[i] > 0, model.correct(params, xs[i], ys[i]), 0.0)
            more = model.metrics(params, xs[i], ys[i])
            sums = {name: metrics[name] + jnp.where(ws[i] > 0, more[name], 0.0).sum() for name in metrics}
            return loss + losses.sum(), correct + right.sum(), sums

        nothing = jnp.float32(0.0), jnp.float32(0.0), dict.fromkeys(model.metric_names, jnp.float32(0.0))
        loss, correct, metrics = jax.lax.fori_loop(0, len(xs), add, nothing)
        count = weight.sum()
        means = {name: total / count for name, total in metrics.items()}
        return loss / count + 0.5 * model.l2 * jnp.sum(params**2), correct / count, means

    return jax.jit(run)


@kept
def answers_program(model: AbstractModel, chunk: int) -> Any:
    """Return (params, x, y) -> (predictions [m, ...], correct f32[m])."""

    def run(params: jax.Array, x: Inputs, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        xs, ys = in_chunks(x, y, chunk)

        def answer(i: jax.Array) -> tuple[jax.Array, jax.Array]:
            return model.predict(params, xs[i]), model.correct(params, xs[i], ys[i])

        scores, right = jax.lax.map(answer, jnp.arange(len(ys)))
        return scores.reshape(-1, *scores.shape[2:]), right.reshape(-1)

    return jax.jit(run)


@kept
def gradients_program(model: AbstractModel, chunk: int, clips: bool, tasks: int = 1) -> Any:
    """Return (params, x, y, weight, clipping_norm) -> (norm, share clipped).

    The norm is that of the mean gradient.

    The mean is over a set padded to a multiple of `chunk`, of each example's gradient clipped to clipping_norm, which
    may be inf; without `clips` nothing is clipped and the share is 0. With several tasks, params holds the models of
    all tasks, one after the other; each task clips its own gradients, and the share is that over all of them.
    """

    def of_task(
        params: jax.Array, task: jax.Array, x: jax.Array, y: jax.Array, weight: jax.Array, clipping_norm: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Return the sum of gradients, f32[d], and the number above the clipping norm."""
        own = y if tasks == 1 else (y == task).astype(jnp.int32)
        if not clips:
            return model.gradient_sum(params, x, own, weight), jnp.float32(0.0)
        total = model.clipped_gradient_sum(params, x, own, weight, clipping_norm)
        long = jnp.where(weight > 0, model.gradient_norms(params, x, own) > clipping_norm, False)
        return total, jnp.sum(long.astype(jnp.float32))

    every_task = jax.vmap(of_task, (0, 0, None, None, None, None))

    def run(
        params: jax.Array, x: Inputs, y: jax.Array, weight: jax.Array, clipping_norm: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        xs, ys = in_chunks(x, y, chunk)
        ws = weight.reshape(-1, chunk)

        def add(i: jax.Array, totals: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            total, long = totals
            if tasks == 1:  # no batch axis at all: a convolution must not see one on a CPU
                more, longer = of_task(params, jnp.int32(0), xs[i], ys[i], ws[i], clipping_norm)
            else:
                models = params.reshape(tasks, -1)
                parts, counts = every_task(models, jnp.arange(tasks), xs[i], ys[i], ws[i], clipping_norm)
                more, longer = parts.reshape(-1), counts.sum()
            return total + more, long + longer

        total, long = jax.lax.fori_loop(0, len(xs), add, (jnp.zeros_like(params), jnp.float32(0.0)))
        count = weight.sum()
        return jnp.sqrt(jnp.sum((total / count) ** 2)), long / (count * tasks)

    return jax.jit(run)
