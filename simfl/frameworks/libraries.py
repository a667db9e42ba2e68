"""Adapters for networks of Flax (Linen and NNX), Equinox and Haiku.

    simfl.run("scenario.yaml", model=simfl.from_flax(Net(), loss="cross_entropy"))

A loss belongs to one example and is the same in every call, so networks have neither state nor random draws: dropout is
off (Linen and Haiku: by the network's own arguments; NNX and Equinox: in evaluation mode), and batch normalization,
which mixes examples and keeps means, is refused. Libraries are imported only when their adapter is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simfl.errors import ScenarioError
from simfl.models.lazy import jax
from simfl.models.losses import LOSSES, METRICS, USUAL, OfOutputs, named

NORMALIZE = "use GroupNorm or LayerNorm in place of batch normalization, and no other state"

Metrics = Sequence[str] | Mapping[str, str | OfOutputs]
"""Names of `simfl.models.losses.METRICS`, or names with functions (outputs, y) -> f32 [b]."""


class Network:
    """A network of some library with a loss, as a user's own model.

    `name` is for messages; `init` is (key, x) -> parameters, x [1, ...] an example; `apply` is (parameters, x) ->
    outputs [b, ...]; `in_training` takes a key in addition. See `from_flax` for the other arguments.
    """

    def __init__(
        self,
        name: str,
        init: Callable[[Any, Any], Any],
        apply: Callable[[Any, Any], Any],
        loss: str | OfOutputs,
        metrics: Metrics | None = None,
        trained: Any = None,
        tokens: bool = False,
        in_training: Callable[[Any, Any, Any], Any] | None = None,
    ) -> None:
        self.__name__ = name
        self._init, self._apply = init, apply
        self._loss = named("loss", loss, LOSSES)
        if metrics is None:
            metrics = USUAL.get(loss, ()) if isinstance(loss, str) else ()
        by_name = metrics if isinstance(metrics, Mapping) else {name: name for name in metrics}
        self._metrics = {name: named("metrics", metric, METRICS) for name, metric in by_name.items()}
        self.tokens = tokens
        if trained is not None:
            self.trained = trained
        if in_training is not None:
            self.training_losses = lambda params, x, y, key: self._loss(in_training(params, x, key), y)

    def init(self, key: Any, x: Any) -> Any:
        """Return the parameters."""
        return self._init(key, x)

    def predict(self, params: Any, x: Any) -> Any:
        """Return the outputs."""
        return self._apply(params, x)

    def losses(self, params: Any, x: Any, y: Any) -> Any:
        """Return the loss of each example."""
        return self._loss(self._apply(params, x), y)

    def metrics(self, params: Any, x: Any, y: Any) -> dict[str, Any]:
        """Return the metrics of each example."""
        outputs = self._apply(params, x)
        return {name: one(outputs, y) for name, one in self._metrics.items()}


def from_flax(
    module: Any,
    loss: str | OfOutputs,
    *,
    metrics: Metrics | None = None,
    trained: Any = None,
    tokens: bool = False,
    params: Any = None,
    **arguments: Any,
) -> Network:
    """Return a network of Flax as a model; ScenarioError if it has state.

    Args:
        module: a module of Linen; one of NNX, which keeps its parameters; or a function of `nnx.Rngs` that makes one,
            whose parameters then follow from the run's seed.
        loss: a name (cross_entropy, binary, multi_label, squared, huber, ranking), or a function of outputs and y that
            returns f32 [b].
        metrics: names (accuracy, mae, mse, exact_match, bits, ndcg), or names with functions; None: the accuracy, if
            the loss is for classes.
        trained: a pytree of bools like the parameters, or a function of them that returns one; None: all.
        tokens: whether examples are integers, such as tokens.
        params: of Linen, the initial parameters, such as pretrained ones; None: drawn from the run's seed.
        arguments: passed with every call, such as train=False or deterministic=True.
    """
    from flax import linen, nnx

    if isinstance(module, linen.Module):

        def draw(key: Any, x: Any) -> Any:
            if params is not None:
                return params
            variables = module.init({"params": key, "dropout": key}, x, **arguments)
            _refuse_state("from_flax", sorted(set(variables) - {"params"}))
            return variables["params"]

        def apply(params: Any, x: Any) -> Any:
            return module.apply({"params": params}, x, **arguments)

        return Network(type(module).__name__, draw, apply, loss, metrics, trained, tokens)

    def opened(key: Any) -> Any:
        net = module if isinstance(module, nnx.Module) else module(nnx.Rngs(key))
        net.eval()
        split: Any = nnx.split
        graph, values, rest = split(net, nnx.Param, ...)
        kinds = {type(leaf).__name__ for _, leaf in nnx.to_flat_state(rest)}
        _refuse_state("from_flax", sorted(kinds - {"RngKey", "RngCount"}))
        return graph, values, rest

    # Only parameters depend on the key.
    graph, shapes, rest = opened(jax.random.key(0))

    def call(params: Any, x: Any) -> Any:
        values = jax.tree.map(lambda leaf: leaf, shapes)  # a copy, whose values are replaced
        nnx.replace_by_pure_dict(values, params)
        return nnx.merge(graph, values, rest)(x, **arguments)

    def begin(key: Any, x: Any) -> Any:
        return nnx.to_pure_dict(opened(key)[1])

    return Network(_name(module), begin, call, loss, metrics, trained, tokens)


def _name(module: Any) -> str:
    return str(getattr(module, "__name__", type(module).__name__))


def from_equinox(
    module: Any, loss: str | OfOutputs, *, metrics: Metrics | None = None, trained: Any = None, tokens: bool = False
) -> Network:
    """Return a network of Equinox, mapped over batches, as a model.

    `module` is the network, which keeps its parameters, or a function of a key that makes one, whose parameters then
    follow from the run's seed. The pytree of `trained` is the network's own. For the rest, see `from_flax`.
    """
    import equinox as eqx

    def opened(key: Any) -> tuple[Any, Any]:
        made = module if isinstance(module, eqx.Module) else module(key)
        leaves = jax.tree.leaves(made, is_leaf=lambda leaf: isinstance(leaf, eqx.nn.StateIndex))
        _refuse_state("from_equinox", ["StateIndex"] * any(isinstance(leaf, eqx.nn.StateIndex) for leaf in leaves))
        parts: tuple[Any, Any] = eqx.partition(eqx.nn.inference_mode(made), eqx.is_inexact_array)
        return parts

    static = opened(jax.random.key(0))[1]

    def apply(params: Any, x: Any) -> Any:
        return jax.vmap(eqx.combine(params, static))(x)

    return Network(_name(module), lambda key, x: opened(key)[0], apply, loss, metrics, trained, tokens)


def from_haiku(
    function: Callable[..., Any],
    loss: str | OfOutputs,
    *,
    metrics: Metrics | None = None,
    trained: Any = None,
    tokens: bool = False,
    params: Any = None,
    **arguments: Any,
) -> Network:
    """Return a network of Haiku as a model.

    `function` of examples calls Haiku's modules, as for `hk.transform`. For the rest, see `from_flax`.
    """
    import haiku as hk

    net = hk.transform_with_state(function)

    def draw(key: Any, x: Any) -> Any:
        if params is not None:
            return params
        initial, state = net.init(jax.random.key_data(key), x, **arguments)
        _refuse_state("from_haiku", sorted(state))
        return initial

    def apply(params: Any, x: Any) -> Any:
        return net.apply(params, {}, None, x, **arguments)[0]

    return Network(_name(function), draw, apply, loss, metrics, trained, tokens)


def _refuse_state(adapter: str, kinds: Sequence[str]) -> None:
    if kinds:
        raise ScenarioError(f"{adapter}: expected a network without state, found {', '.join(kinds)}; {NORMALIZE}")
