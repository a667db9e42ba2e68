"""Adapter for modules of PyTorch, which torchax turns into functions of JAX.

    simfl.run("scenario.yaml", model=simfl.from_torch(Net(), loss="cross_entropy"))

Losses and predictions are those of evaluation mode. Gradients are, too: dropout is off, and a warning names it. With
`dropout=True`, gradients are those of training mode, in which torchax draws for each example by its own key of the run.
A module is refused, with the name of the layer, if it draws random numbers even so, changes its
own state, mixes the examples of a batch, or cannot be traced by JAX; and so is one whose outputs in JAX and in PyTorch
differ. Weights go back by `Run.state_dict`. PyTorch and torchax are imported when it is called.
"""

from __future__ import annotations

import contextlib
import copy
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.errors import ScenarioError, SimflError, nearest, raised
from simfl.frameworks.libraries import NORMALIZE, Metrics, Network
from simfl.models.lazy import jax, jnp
from simfl.models.losses import OfOutputs

CLOSE = 1e-3
"""The largest difference of outputs in JAX and in PyTorch, as a share of the largest output."""

IMAGES = "image=(c, h, w) passes examples as images, tokens=True (integers: true in a scenario) as integers"

TRACED = (
    "torchax cannot make a function of JAX of it: replace this layer or operation; no branch and no size may depend on "
    "values"
)


ALSO = " = "
"""Joins the names of a weight that has several."""


class RandomDrawError(Exception):
    """A module draws random numbers in evaluation mode."""


def from_torch(
    module: Any,
    loss: str | OfOutputs,
    *,
    metrics: Metrics | None = None,
    trained: Sequence[str] | None = None,
    tokens: bool = False,
    image: Sequence[int] | None = None,
    output: str | int | None = None,
    dropout: bool = False,
    **arguments: Any,
) -> Network:
    """Return a module of PyTorch as a model; ScenarioError if it cannot be one.

    Args:
        module: a `torch.nn.Module`, which is copied with its parameters; or a function or class that makes one, whose
            parameters then follow from the run's seed.
        loss: see `from_flax`.
        metrics: see `from_flax`.
        trained: names of parameters or of parts of the module, such as "head", or patterns, such as "*lora*"; None:
            all that require gradients. The others keep their values, and are neither sent nor kept for each client.
        tokens: whether examples are integers, such as tokens.
        image: (c, h, w), if examples are images, which the module takes as [b, c, h, w]; simfl has their values in
            the order h, w, c, or as one row [h * w * c].
        output: the part of what a call returns that is the output: a key or attribute, such as "last_hidden_state", or
            a place; None: `logits`, or the first of several.
        dropout: whether gradients are those of training mode, with random draws.
        arguments: passed with every call.
    """
    torch, torchax = _libraries()
    is_made = not isinstance(module, torch.nn.Module)
    name = str(getattr(module, "__name__", type(module).__name__))

    class Environment(torchax.tensor.Environment):  # type: ignore[misc, name-defined]
        def get_and_rotate_prng_key(self, generator: Any = None) -> Any:
            if self.param.prng is None:
                raise RandomDrawError("expected no random draws in evaluation mode; leave them out")
            return self.param.get_and_rotate_prng_key()

    def opened(seed: int) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            net = module() if is_made else copy.deepcopy(module)
        if not isinstance(net, torch.nn.Module):
            raise ScenarioError(f"from_torch: {name}: expected a torch.nn.Module, found a {type(net).__name__}")
        _check(torch, net, name)
        return net.eval()

    net = opened(0)
    if not dropout and (dropping := _named(net, _drops)):
        advice = "dropout=True (dropout: true in a scenario) draws in training"
        warnings.warn(f"from_torch: {name}: dropout is off: {_few(dropping)}; {advice}", stacklevel=2)
    environment = Environment()
    values, function = torchax.extract_jax(net, environment)
    keys, constants = _keys(net, values), {at: values[at] for at in set(values) - set(net.state_dict())}
    training = copy.deepcopy(net).train()
    for layer in training.modules():
        if isinstance(layer, torch.nn.modules.batchnorm._NormBase):
            layer.eval()
    _, in_training = torchax.extract_jax(training, environment)

    def apply(params: Any, x: Any, key: Any = None) -> Any:
        called = function if key is None else in_training
        state = constants | {at: params[joined] for at, joined in keys.items()}
        with environment.override_property(prng=key):
            outputs = _output(called(state, (_shaped(x, image, name),), arguments), output, name)
            if key is not None and environment.param.prng is key:
                raise ScenarioError(f"from_torch: {name}: dropout: expected random draws in training, found none")
        return outputs

    def draw(key: Any, x: Any) -> Any:
        made, drawn = net, values
        if is_made:
            made = opened(int.from_bytes(np.asarray(jax.random.key_data(key)).tobytes()) >> 1)
            drawn = torchax.extract_jax(made, environment)[0]
            if others := [at for at, value in constants.items() if not np.array_equal(value, drawn[at])]:
                expected = f"expected fixed values of what state_dict does not have, found random ones: {_few(others)}"
                raise ScenarioError(f"from_torch: {name}: {expected}; save them (persistent=True)")
        initial = {joined: drawn[at] for at, joined in keys.items()}
        # Two examples: unlike each other, and not of zeros, which would hide differences.
        two = (2, *x.shape[1:])
        x = jnp.arange(2 * x.size, dtype=jnp.float32).reshape(two)
        x = (x >= x.size // 2).astype(jnp.int32) if tokens else jnp.cos(x)
        examples = torch.tensor(np.asarray(_shaped(x, image, name)))

        def call(some: Any) -> Any:
            with torch.no_grad():
                outputs = _output(made(some, **arguments), output, name)
            if outputs.dtype in (torch.bfloat16, torch.float16):
                expected = f"expected outputs of float32, found {outputs.dtype}; call .float() of the module before"
                raise ScenarioError(f"from_torch: {name}: {expected}")
            return outputs.numpy()

        before = copy.deepcopy(made.state_dict())
        with _in_one_line(name, made, f"a call with {[*examples.shape]}", "" if image or tokens else IMAGES):
            expected, alone = call(examples), call(examples[1:])
        if changed := [at for at, value in made.state_dict().items() if not torch.equal(value, before[at])]:
            raise ScenarioError(f"from_torch: {name}: expected no state, found that a call changes {_few(changed)}")
        with _in_one_line(name, net, "torchax", TRACED):
            traced = jax.jit(apply).lower(initial, x)
        if dropout:
            with _in_one_line(name, training, "torchax in training mode", TRACED):
                jax.eval_shape(apply, initial, x[:1], key)
        if expected.shape[:1] == (2,) and not _close(alone, expected[1:]):
            where = f"found other values of it in a batch {_mixing(made, call, examples)}"
            advice = f"the first axis has the examples (batch_first=True); {NORMALIZE}"
            raise ScenarioError(f"from_torch: {name}: expected each example to count by itself, {where}; {advice}")
        outputs = np.asarray(traced.compile()(initial, x))
        if not _close(outputs, expected):
            difference = np.abs(outputs - expected).max()
            raise ScenarioError(
                f"from_torch: {name}: expected the outputs of PyTorch, found others in JAX, by {difference:.2g}: "
                "torchax does not translate one of its operations; write this part in another way"
            )
        return initial

    which = _which(net, [*keys.values()], trained, name)
    return Network(name, draw, apply, loss, metrics, which, tokens, apply if dropout else None)


def to_torch(parts: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Return the parts of a model as tensors: the `state_dict` of its module.

    See `Run.state_dict`.
    """
    torch, _ = _libraries()
    return {name: torch.tensor(np.asarray(value)) for joined, value in parts.items() for name in joined.split(ALSO)}


def _keys(net: Any, values: Mapping[str, Any]) -> dict[str, str]:
    """Return for each value that `state_dict` has all its names there, joined."""
    state = net.state_dict(keep_vars=True)

    def joined(at: str) -> str:
        return ALSO.join([at, *(also for also in state if also not in values and state[also] is state[at])])

    return {at: joined(at) for at in values if at in state}


@contextlib.contextmanager
def _in_one_line(name: str, net: Any, what: str, advice: str) -> Iterator[None]:
    """Report errors of a call in one line that names the layer."""
    try:
        yield
    except SimflError:
        raise
    except Exception as error:
        layer = _layer(net, (frame for frame, _ in traceback.walk_tb(error.__traceback__)))
        if isinstance(error, RandomDrawError):
            raise ScenarioError(f"from_torch: {name}: {layer}{error}") from error
        raise ScenarioError(
            f"from_torch: {name}: {layer}{what} raised {raised(error)}; {advice}".rstrip("; ")
        ) from error


def _layer(net: Any, frames: Iterable[FrameType]) -> str:
    """Return the innermost layer that was called."""
    names = {id(layer): f"{at} ({type(layer).__name__}): " for at, layer in net.named_modules() if at}
    inside = [names[id(one)] for frame in frames if id(one := frame.f_locals.get("self")) in names]
    return inside[-1] if inside else ""


def _mixing(net: Any, call: Callable[[Any], Any], examples: Any) -> str:
    """Return where the values of the last example first differ in a batch."""
    runs: list[dict[str, Any]] = []
    for some in (examples, examples[1:]):
        seen: dict[str, Any] = {}
        runs.append(seen)
        hooks = []
        for at, layer in net.named_modules():
            here = f"{at or 'itself'} ({type(layer).__name__})"

            def before(_: Any, given: Any, here: str = here, seen: dict[str, Any] = seen) -> None:
                seen.setdefault(f"before {here}", _first(given) if given else None)

            def after(_: Any, __: Any, value: Any, here: str = here, seen: dict[str, Any] = seen) -> None:
                seen.setdefault(f"after {here}", _first(value))

            hooks += [layer.register_forward_pre_hook(before), layer.register_forward_hook(after)]
        call(some)
        for hook in hooks:
            hook.remove()
    together, alone = runs
    for here, value in together.items():
        if getattr(value, "shape", ())[:1] == (2,) and not _close(alone[here].numpy(), value[1:].numpy()):
            return here
    return "at its end"


def _close(value: NDArray[Any], expected: NDArray[Any]) -> bool:
    return value.shape == expected.shape and bool(np.abs(value - expected).max() <= CLOSE * np.abs(expected).max())


def _libraries() -> tuple[Any, Any]:
    try:
        import torch
        import torchax
    except ImportError as error:
        raise ScenarioError(f"from_torch: expected PyTorch and torchax ({error}); pip install 'simfl[torch]'") from None
    return torch, torchax


def _check(torch: Any, net: Any, name: str) -> None:
    """Refuse layers that mix examples, keep state or have no parameters yet."""
    norm, batch = torch.nn.modules.batchnorm._NormBase, torch.nn.modules.batchnorm._BatchNorm

    def keeps(layer: Any) -> bool:
        return isinstance(layer, norm) and (layer.training if layer.track_running_stats else isinstance(layer, batch))

    if keeping := _named(net, keeps):
        raise ScenarioError(
            f"from_torch: {name}: expected layers that keep no state, found {_few(keeping)}; {NORMALIZE}; layers that "
            "keep the statistics they were trained with may stay: call their .eval() before"
        )
    if lazy := [at for at, value in net.named_parameters() if torch.nn.parameter.is_lazy(value)]:
        expected = "expected parameters with shapes, found none yet"
        raise ScenarioError(f"from_torch: {name}: {expected} for {_few(lazy)}; call the module once on an example")


def _named(net: Any, fits: Callable[[Any], Any]) -> list[str]:
    """Return the layers that fit, with their types."""
    return [f"{at or 'itself'} ({type(layer).__name__})" for at, layer in net.named_modules() if fits(layer)]


def _drops(layer: Any) -> bool:
    is_random = any(word in type(layer).__name__ for word in ("Drop", "StochasticDepth"))
    return is_random and bool(getattr(layer, "p", 0) or getattr(layer, "drop_prob", 0))


def _few(names: Sequence[str]) -> str:
    """Return the first names, and how many there are beside."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _which(net: Any, names: Sequence[str], trained: Sequence[str] | None, name: str) -> dict[str, bool]:
    """Return which values are trained, by name; refuse names that fit none."""
    every = dict(net.named_parameters(remove_duplicate=False))
    all_names = {joined: [at for at in joined.split(ALSO) if at in every] for joined in names}
    if trained is None:
        return {joined: any(every[at].requires_grad for at in all_names[joined]) for joined in names}

    def fits(joined: str, wanted: str) -> bool:
        return any(at == wanted or at.startswith(f"{wanted}.") or fnmatchcase(at, wanted) for at in all_names[joined])

    if isinstance(trained, str):
        trained = [trained]
    for wanted in trained:
        if not any(fits(joined, wanted) for joined in names):
            each = [at for several in all_names.values() for at in several]
            parts = dict.fromkeys(part for at in each for part in (at, at.rpartition(".")[0]) if part)
            expected = "trained: expected names of parameters or of parts of the module"
            raise ScenarioError(f"from_torch: {name}: {expected}, found '{wanted}'{nearest(wanted, parts)}")
    return {joined: any(fits(joined, wanted) for wanted in trained) for joined in names}


def _output(value: Any, output: str | int | None, name: str) -> Any:
    """Return the part `output` of a call, or `logits`, or the first of several."""
    parts = value
    if output is not None:
        try:
            value = value[output]
        except (KeyError, IndexError, TypeError):
            value = getattr(value, str(output), None)
    else:
        value = _first(getattr(value, "logits", value))
    if not hasattr(value, "shape"):
        found = "" if output is None else f" without {output!r}"
        names = f" with {', '.join(map(str, parts))}; name one with output=" if isinstance(parts, Mapping) else ""
        expected = f"expected a tensor [b, ...] from a call, found a {type(parts).__name__}{found}{names}"
        raise ScenarioError(f"from_torch: {name}: {expected}")
    return value


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, tuple | list) else value


def _shaped(x: Any, image: Sequence[int] | None, name: str) -> Any:
    """Return images as [b, c, h, w]; ScenarioError if they have another size."""
    if image is None:
        return x
    channels, height, width = image
    if x[0].size != channels * height * width:
        expected = f"image: expected (c, h, w) of the examples, which have {x[0].size} values, found {tuple(image)}"
        raise ScenarioError(f"from_torch: {name}: {expected}")
    return jnp.moveaxis(x.reshape(-1, height, width, channels), -1, 1)
