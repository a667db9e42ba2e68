"""Optimizers of clients and of a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from simfl.scenario.fields import (
    Arithmetic,
    ByKind,
    Config,
    Flag,
    NonNegative,
    OwnCode,
    OwnName,
    Positive,
    Within,
    kind_of,
    members_of,
    option,
    variant,
)

#: Below 1, since a state with factor 1 would never decay.
Decay = Annotated[float, Within(at_least=0, below=1)]


class OptimizerState(Config):
    """How an optimizer's state is kept, averaged and sent with its model."""

    crash: Literal["keep", "lose"] = option(
        "keep", "whether a client that crashes gets its state back with its last model, or starts with an initial state"
    )
    average: Flag = option(False, "whether gossip averages states, with the weights of the models")
    rounds: Literal["new", "keep"] | None = option(
        None,
        "whether each round of local steps has a new state, or goes on with that of the client's last round; null: "
        "keep with diloco and its relatives, else new",
    )
    travels: Flag | None = option(None, "whether states count in the bytes of messages; null: if they are averaged")


class OptimizerConfig(Config):
    """Base of the optimizers of clients."""

    state: OptimizerState = option(OptimizerState(), "how its state is kept, averaged and sent")


class BuiltInOptimizer(OptimizerConfig):
    """Base of the built-in optimizers of clients."""

    weight_decay: Arithmetic[NonNegative] = option(
        0.0, "lambda of the decoupled decay: a step of size eta also takes eta lambda w away"
    )
    clip_norm: Arithmetic[Positive | None] = option(
        None, "bound on the L2 norm of the mean gradient, after noise and before the optimizer; null: none"
    )


class Sgd(BuiltInOptimizer):
    """Plain SGD."""

    kind: Literal["sgd"] = variant("sgd")


class Momentum(BuiltInOptimizer):
    """Heavy-ball momentum: v <- momentum v + g, w <- w - step v."""

    kind: Literal["momentum"] = variant("momentum")
    momentum: Arithmetic[Decay] = option(0.9, "beta, the part of the velocity that is kept")


class Nesterov(BuiltInOptimizer):
    """Nesterov's momentum: v <- momentum v + g, w <- w - step (g + momentum v)."""

    kind: Literal["nesterov"] = variant("nesterov")
    momentum: Arithmetic[Decay] = option(0.9, "beta, the part of the velocity that is kept")


class Adam(BuiltInOptimizer):
    """Adam; with weight_decay, AdamW."""

    kind: Literal["adam"] = variant("adam")
    beta1: Arithmetic[Decay] = option(0.9, "decay of the first moment")
    beta2: Arithmetic[Decay] = option(0.999, "decay of the second moment")
    eps: Arithmetic[Positive] = option(1e-8, "added to the root of the second moment")


class OwnOptimizer(OptimizerConfig, OwnCode):
    """A gradient transformation of your own, as in optax, from a module."""

    kind: OwnName = Field(description="module and function that returns the transformation, as in my_module:make")


Optimizer = Annotated[Sgd | Momentum | Nesterov | Adam | OwnOptimizer, ByKind(external=OwnOptimizer)]


class ServerSgd(Config):
    """Plain steps along the mean change, or gradient."""

    kind: Literal["sgd"] = variant("sgd")


class ServerMomentum(Config):
    """FedAvgM: momentum on the mean change, or gradient."""

    kind: Literal["momentum"] = variant("momentum")
    momentum: Arithmetic[Decay] = option(0.9, "beta, the part of the velocity that is kept")


class ServerNesterov(Config):
    """Nesterov's momentum on the mean change, or gradient, as in DiLoCo."""

    kind: Literal["nesterov"] = variant("nesterov")
    momentum: Arithmetic[Decay] = option(0.9, "beta, the part of the velocity that is kept")


class ServerAdaptive(Config):
    """Base of the adaptive optimizers of a server, without bias correction."""

    beta1: Arithmetic[Decay] = option(0.9, "decay of the first moment")
    tau: Arithmetic[Positive] = option(1e-3, "added to the root of the second moment, which begins at tau²")


class ServerAdam(ServerAdaptive):
    """FedAdam."""

    kind: Literal["adam"] = variant("adam")
    beta2: Arithmetic[Decay] = option(0.99, "decay of the second moment")


class ServerYogi(ServerAdaptive):
    """FedYogi."""

    kind: Literal["yogi"] = variant("yogi")
    beta2: Arithmetic[Decay] = option(0.99, "decay of the second moment")


class ServerAdagrad(ServerAdaptive):
    """FedAdagrad, whose second moment is a sum."""

    kind: Literal["adagrad"] = variant("adagrad")
    beta1: Arithmetic[Decay] = option(0.0, "decay of the first moment")


class OwnServerOptimizer(OwnCode):
    """A gradient transformation of your own, as in optax, from a module."""

    kind: OwnName = Field(description="module and function that returns the transformation, as in my_module:make")


ServerOptimizer = Annotated[
    ServerSgd | ServerMomentum | ServerNesterov | ServerAdam | ServerYogi | ServerAdagrad | OwnServerOptimizer,
    ByKind(external=OwnServerOptimizer),
]


def summaries() -> dict[str, str]:
    """Return a line about each optimizer by name, with its use at a server."""
    lines = {kind_of(section, "kind"): _line(section) for section in members_of(Optimizer)[:-1]}
    for section in members_of(ServerOptimizer)[:-1]:
        kind = kind_of(section, "kind")
        lines[kind] = f"{lines.get(kind, '')} At a server: {_line(section)}".strip()
    return {**lines, "my_module:make": _line(OwnOptimizer)}


def _line(section: type[Config]) -> str:
    return (section.__doc__ or "").splitlines()[0]


#: Default step sizes of optimizers that scale gradients.
USUAL_STEPS = {"adam": 0.001}
USUAL_SERVER_STEPS = dict.fromkeys(("adam", "yogi", "adagrad"), 0.01)


def usual_step(section: object, steps: Mapping[str, float]) -> float | None:
    """Return an optimizer's default step size; None: the general default.

    A user's own optimizer includes its learning rate, so its step size is 1.
    """
    kind: Any = section.get("kind") if isinstance(section, Mapping) else getattr(section, "kind", section)
    if not isinstance(kind, str):
        return None
    return 1.0 if ":" in kind else steps.get(kind)
