"""Trial of a user's model on real examples: each problem becomes one line.

It checks what simulations rely on, and what a wrong model breaks silently: one loss per example, which depends on that
example alone (for per-example clipping, padded batches, and evaluation in chunks); and the same numbers in every call,
compiled or not.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfl.errors import ScenarioError
from simfl.models.base import AbstractModel, Array, Keyed
from simfl.models.lazy import jax, jnp
from simfl.models.own import OwnModel, described
from simfl.scenario.own_code import in_one_line

EXAMPLES = 4
"""Number of examples used."""

TOLERANCE = 1e-4
"""Relative difference of losses that rounding explains: compiled, or in another batch."""

DEPENDENCE = 1e-6
"""Largest dependence of a loss on another example, relative to that on its own, that rounding explains."""

STIRRED = 0.03
"""Size of a change of the parameters first, since a model at zero may depend on nothing."""


def try_out(model: OwnModel, x: NDArray[Any], y: NDArray[Any]) -> None:
    """Refuse a model with a ScenarioError if it violates what a run relies on.

    `x` and `y` are at least two real examples, as the model gets them; the first `EXAMPLES` are used.
    """
    x, y = jnp.asarray(x[:EXAMPLES]), jnp.asarray(y[:EXAMPLES])
    begin = model.init(model.key)
    if not np.isfinite(np.asarray(begin)).all():
        parts = model.parts(np.asarray(begin))
        wrong = next(name for name, part in parts.items() if not np.isfinite(part).all())
        raise _refused(model, f"init: {wrong}: expected finite numbers, found NaN or infinity")
    eager = _losses(model, begin, x, y)
    if not np.isfinite(eager).all():
        bad = int(np.argmin(np.isfinite(eager)))
        raise _refused(model, f"losses: expected finite numbers, found {eager[bad]} for example {bad} as init begins")
    if not np.array_equal(eager, _losses(model, begin, x, y)):
        raise _refused(model, "losses: two calls gave different numbers; draw none: the parameters and data decide")
    moved = begin + STIRRED * jnp.cos(jnp.arange(model.size))
    with in_one_line("model", f"{model.name}: losses under jax.jit"):
        look = jax.jit(functools.partial(_look, model))(begin, moved, x, y)
    parts = model.parts(np.asarray(look.gradient))
    infinite = next((name for name, part in parts.items() if not np.isfinite(part).all()), None)
    if infinite is not None:
        raise _refused(model, f"losses: their gradient in {infinite} is NaN or infinite as init begins")
    compiled = look.compiled
    if not _alike(eager, compiled):
        raise _refused(
            model,
            f"losses: {_shown(eager)} as they are, {_shown(compiled)} under jax.jit; use jax.numpy in place of numpy, "
            "and nothing that remembers earlier calls",
        )
    _check_independence(model, jax.tree.map(np.asarray, look))
    _check_predictions(model, begin, x)
    if model.clipped_by is not None:
        _check_closed_form(model, moved, x, y)
    if model.draws:
        _check_training(model, begin, x, y)


def _losses(model: OwnModel, params: Array, x: Array, y: Array) -> NDArray[np.float32]:
    with in_one_line("model", f"{model.name}: losses"):
        losses = model.given.losses(model.own.tree(params), x, y)
    if getattr(losses, "shape", None) != (len(x),):
        only = "; return a loss per example, and no mean over the batch" if np.ndim(losses) == 0 else ""
        raise _refused(model, f"losses: expected one for each example, f32[{len(x)}], found {described(losses)}{only}")
    if not jnp.issubdtype(losses.dtype, jnp.floating):
        raise _refused(model, f"losses: expected floats, found {losses.dtype}")
    return np.asarray(losses, dtype=np.float32)


class Look(NamedTuple):
    """Measurements of b examples in one program.

    Attributes:
        compiled: losses at the initial parameters, f32 [b]; gradient: that of their sum, f32 [d].
        together: losses at changed parameters, f32 [b]; alone: of each example by itself; otherwise: with another
            example and label in place of example j, f32 [b, b], one row for each j.
        influence: the largest |d loss_i / d x_j|, f32 [b, b]; zeros for integer x.
    """

    compiled: Array
    gradient: Array
    together: Array
    alone: Array
    otherwise: Array
    influence: Array


def _look(model: OwnModel, begin: Array, moved: Array, x: Array, y: Array) -> Look:
    count, continuous = len(x), jnp.issubdtype(x.dtype, jnp.floating)
    alone = jax.vmap(lambda one_x, one_y: model.losses(moved, one_x[None], one_y[None])[0])(x, y)
    each, next_one = jnp.arange(count), (jnp.arange(count) + 1) % count
    louder = (10 if continuous else 1) * x
    xs = jnp.broadcast_to(x, (count, *x.shape)).at[each, each].set(louder[next_one])
    ys = jnp.broadcast_to(y, (count, *y.shape)).at[each, each].set(y[next_one])
    influence = jnp.zeros((count, count))
    if continuous:
        jacobian = jax.jacrev(lambda some: model.losses(moved, some, y))(x)  # [b, b, ...]
        # An infinite derivative carries no information.
        influence = jnp.nan_to_num(jnp.abs(jacobian).reshape(count, count, -1).max(axis=2))
    return Look(
        model.losses(begin, x, y),
        model.gradient_sum(begin, x, y, jnp.ones(count)),
        model.losses(moved, x, y),
        alone,
        jax.lax.map(lambda some: model.losses(moved, *some), (xs, ys)),
        influence,
    )


def _check_independence(model: OwnModel, look: Look) -> None:
    """Check that each loss depends on its example alone."""
    advice = (
        "every example has to count by itself, for clipping and for batches that are filled up; use GroupNorm or "
        "LayerNorm in place of batch normalization"
    )
    together, alone = look.together, look.alone
    if not _alike(together, alone):
        i = int(np.argmax(np.abs(together - alone)))
        raise _refused(
            model,
            f"losses: example {i} has {together[i]:.6g} in a batch of {len(alone)} and {alone[i]:.6g} by itself; "
            f"{advice}",
        )
    same = np.eye(len(alone), dtype=bool)
    changed = np.where(same, 0.0, np.abs(look.otherwise - together))
    related = np.where(same, 0.0, look.influence)
    smallest = DEPENDENCE * max(float(look.influence.max()), float(np.finfo(np.float32).tiny))
    if not (related <= smallest).all() or not (changed <= DEPENDENCE * max(1.0, float(np.abs(together).max()))).all():
        raise _refused(model, f"losses: that of one example depends on another example of the batch; {advice}")


def _check_predictions(model: OwnModel, params: Array, x: Array) -> None:
    if not model.predicts:
        return
    with in_one_line("model", f"{model.name}: predict"):
        outputs = jax.eval_shape(lambda w, some: model.given.predict(model.own.tree(w), some), params, x)
    shape: tuple[int, ...] = getattr(outputs, "shape", ())
    if shape[:1] != (len(x),):
        raise _refused(model, f"predict: expected [{len(x)}, ...] for {len(x)} examples, found {described(outputs)}")
    if model.num_classes > 2 and len(shape) == 2 and shape[1] < model.num_classes:
        raise _refused(
            model, f"predict: expected {model.num_classes} outputs, one for each class, found {shape[1]}; widen it"
        )


def _check_closed_form(model: OwnModel, params: Array, x: Array, y: Array) -> None:
    """Compare the user's clipped sum with clipped gradients at several norms."""
    weight = jnp.ones(len(x)).at[-1].set(0.0)
    with in_one_line("model", f"{model.name}: clipped_gradient_sum"):
        given = model.own.tree(params), x, y, weight, jnp.float32(1.0)
        shapes = jax.eval_shape(model.given.clipped_gradient_sum, *given)
    expected = [leaf.shape for leaf in model.own.leaves]
    if jax.tree.structure(shapes) != model.own.structure or [one.shape for one in jax.tree.leaves(shapes)] != expected:
        raise _refused(model, "clipped_gradient_sum: expected a pytree like the parameters, found one of other shapes")
    norms = np.asarray(jax.jit(model.gradient_norms)(params, x, y))
    theirs: Any = jax.jit(model.clip_and_sum)
    ours: Any = jax.jit(lambda *given: AbstractModel.clip_and_sum(model, *given))
    for norm in (0.5 * float(norms.min()), float(np.median(norms)), 2.0 * float(norms.max())):
        with in_one_line("model", f"{model.name}: clipped_gradient_sum"):
            theirs_sum = np.asarray(theirs(params, x, y, weight, norm)[0])
        ours_sum = np.asarray(ours(params, x, y, weight, norm)[0])
        if not _alike(ours_sum, theirs_sum):
            raise _refused(
                model,
                f"clipped_gradient_sum: with norm {norm:.4g} it differs from the sum of single clipped gradients by "
                f"{np.abs(ours_sum - theirs_sum).max():.3g}; leave it out, and simfl clips them one by one",
            )


def _check_training(model: OwnModel, params: Array, x: Array, y: Array) -> None:
    """Check that losses of training are one for an example, and decided by their keys."""
    with in_one_line("model", f"{model.name}: training_losses"):
        key, tree = jax.random.key(0), model.own.tree(params)
        loss = jax.eval_shape(model.given.training_losses, tree, x[:1], y[:1], key)
    if getattr(loss, "shape", None) != (1,) or not jnp.issubdtype(loss.dtype, jnp.floating):
        raise _refused(model, f"training_losses: expected f32[1] for one example, found {described(loss)}")
    keyed = Keyed(y, jax.random.key_data(jax.random.split(key, len(x))))

    def gradient(params: Array, x: Array, keyed: Keyed) -> Array:
        return model.gradient_sum(params, x, keyed, jnp.ones(len(x)))

    # Each is traced anew, so that draws which do not come from the key differ.
    one, again = (np.asarray(jax.jit(lambda *given: gradient(*given))(params, x, keyed)) for _ in range(2))
    if not np.isfinite(one).all():
        raise _refused(model, "training_losses: their gradient is NaN or infinite as init begins")
    if not np.array_equal(one, again):
        raise _refused(model, "training_losses: one key gave different gradients; draw from the key alone")


def _alike(one: Any, other: Any) -> bool:
    one, other = np.asarray(one), np.asarray(other)
    return bool(np.abs(one - other).max() <= TOLERANCE * max(1e-3, float(np.abs(one).max())))


def _shown(losses: Any) -> str:
    return f"[{', '.join(f'{loss:.6g}' for loss in np.asarray(losses))}]"


def _refused(model: OwnModel, what: str) -> ScenarioError:
    return ScenarioError(f"model: {model.name}: {what}")
