"""Adapter for modules of PyTorch, which torchax turns into functions of JAX.

    simfl.run("scenario.yaml", model=simfl.from_torch(Net(), loss="cross_entropy"))

A loss belongs to one example and is the same in every call, so a module is called in evaluation mode: dropout is off.
A module that draws random numbers even so, or changes its own state, is refused, and so is one whose outputs in JAX and
in PyTorch differ. Weights go back by `Run.state_dict`. PyTorch and torchax are imported when it is called.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.errors import ScenarioError, SimflError, nearest, raised
from simfl.models.lazy import jax, jnp
from simfl.models.libraries import NORMALIZE, Metrics, Network
from simfl.models.losses import OfOutputs

CLOSE = 1e-3
"""The largest difference of outputs in JAX and in PyTorch, as a share of the largest output."""

IMAGES = "with image=(c, h, w), examples are passed as images"


def from_torch(
    module: Any,
    loss: str | OfOutputs,
    *,
    metrics: Metrics | None = None,
    trained: Sequence[str] | None = None,
    tokens: bool = False,
    image: Sequence[int] | None = None,
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
        arguments: passed with every call.
    """
    torch, torchax = _libraries()
    is_made = not isinstance(module, torch.nn.Module)
    name = str(getattr(module, "__name__", type(module).__name__))

    class Environment(torchax.tensor.Environment):  # type: ignore[misc, name-defined]
        def get_and_rotate_prng_key(self, generator: Any = None) -> Any:
            raise ScenarioError(f"from_torch: {name}: expected no random draws in evaluation mode; leave them out")

    def opened(seed: int) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            net = module() if is_made else copy.deepcopy(module)
        if not isinstance(net, torch.nn.Module):
            raise ScenarioError(f"from_torch: {name}: expected a torch.nn.Module, found a {type(net).__name__}")
        _check(torch, net, name)
        return net.eval()

    net = opened(0)
    environment = Environment()
    values, function = torchax.extract_jax(net, environment)

    def apply(params: Any, x: Any) -> Any:
        return _output(function(params, (_shaped(x, image, name),), arguments), name)

    def draw(key: Any, x: Any) -> Any:
        made, initial = net, dict(values)
        if is_made:
            made = opened(int.from_bytes(np.asarray(jax.random.key_data(key)).tobytes()) >> 1)
            initial = torchax.extract_jax(made, environment)[0]
        # An example of zeros would hide differences.
        x = jnp.asarray(x) if tokens else jnp.cos(jnp.arange(x.size, dtype=jnp.float32)).reshape(x.shape)
        example = torch.tensor(np.asarray(_shaped(x, image, name)))
        before = copy.deepcopy(made.state_dict())
        with _in_one_line(f"{name}: a call with {[*example.shape]}", "" if image else f"; {IMAGES}"), torch.no_grad():
            expected = _output(made(example, **arguments), name).numpy()
        if changed := [at for at, value in made.state_dict().items() if not torch.equal(value, before[at])]:
            raise ScenarioError(f"from_torch: {name}: expected no state, found that a call changes {_few(changed)}")
        with _in_one_line(f"{name}: torchax"):
            outputs = np.asarray(apply(initial, x))
        difference = np.abs(outputs - expected).max()
        if not difference <= CLOSE * np.abs(expected).max():
            raise ScenarioError(
                f"from_torch: {name}: expected the outputs of PyTorch, found others in JAX, by {difference:.2g}: "
                "torchax does not translate one of its operations; write this part in another way"
            )
        return initial

    return Network(name, draw, apply, loss, metrics, _which(net, values, trained, name), tokens)


def to_torch(parts: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Return the parts of a model as tensors: the `state_dict` of its module.

    See `Run.state_dict`.
    """
    torch, _ = _libraries()
    return {name: torch.tensor(np.asarray(value)) for name, value in parts.items()}


@contextlib.contextmanager
def _in_one_line(what: str, advice: str = "") -> Iterator[None]:
    try:
        yield
    except SimflError:
        raise
    except Exception as error:
        raise ScenarioError(f"from_torch: {what} raised {raised(error)}{advice}") from error


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
    keeping = [
        f"{at or 'itself'} ({type(layer).__name__})"
        for at, layer in net.named_modules()
        if isinstance(layer, norm) and (layer.training if layer.track_running_stats else isinstance(layer, batch))
    ]
    if keeping:
        raise ScenarioError(
            f"from_torch: {name}: expected layers that keep no state, found {_few(keeping)}; {NORMALIZE}; layers that "
            "keep the statistics they were trained with may stay: call their .eval() before"
        )
    if lazy := [at for at, value in net.named_parameters() if torch.nn.parameter.is_lazy(value)]:
        expected = "expected parameters with shapes, found none yet"
        raise ScenarioError(f"from_torch: {name}: {expected} for {_few(lazy)}; call the module once on an example")


def _few(names: Sequence[str]) -> str:
    """Return the first names, and how many there are beside."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _which(net: Any, names: Sequence[str], trained: Sequence[str] | None, name: str) -> dict[str, bool]:
    """Return which values are trained, by name; refuse names that fit none."""
    every = dict(net.named_parameters(remove_duplicate=False))
    if trained is None:
        return {at: at in every and every[at].requires_grad for at in names}

    def fits(at: str, wanted: str) -> bool:
        return at == wanted or at.startswith(f"{wanted}.") or fnmatchcase(at, wanted)

    if isinstance(trained, str):
        trained = [trained]
    for wanted in trained:
        if not any(fits(at, wanted) for at in names if at in every):
            parts = dict.fromkeys(part for at in names for part in (at, at.rpartition(".")[0]) if part)
            expected = "trained: expected names of parameters or of parts of the module"
            raise ScenarioError(f"from_torch: {name}: {expected}, found '{wanted}'{nearest(wanted, parts)}")
    return {at: at in every and any(fits(at, wanted) for wanted in trained) for at in names}


def _output(value: Any, name: str) -> Any:
    """Return the outputs [b, ...]: `logits` of transformers, the first of several."""
    value = getattr(value, "logits", value)
    value = value[0] if isinstance(value, tuple | list) else value
    if not hasattr(value, "shape"):
        raise ScenarioError(f"from_torch: {name}: expected a tensor [b, ...] from a call, found {type(value).__name__}")
    return value


def _shaped(x: Any, image: Sequence[int] | None, name: str) -> Any:
    """Return images as [b, c, h, w]; ScenarioError if they have another size."""
    if image is None:
        return x
    channels, height, width = image
    if x[0].size != channels * height * width:
        expected = f"image: expected (c, h, w) of the examples, which have {x[0].size} values, found {tuple(image)}"
        raise ScenarioError(f"from_torch: {name}: {expected}")
    return jnp.moveaxis(x.reshape(-1, height, width, channels), -1, 1)
