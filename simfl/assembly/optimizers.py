"""The optimizers of a scenario, for the tape and the algorithms."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simfl.algorithms.training import OptimizerPlan
from simfl.errors import ScenarioError
from simfl.models.own import Same
from simfl.scenario import optimizers as schema
from simfl.scenario.fields import hashable
from simfl.scenario.own_code import digests_of, in_one_line, is_known, make
from simfl.tape.optimizers import (
    Core,
    StateRows,
    Transformation,
    adam,
    adaptive,
    momentum,
    state_rows,
    transformation_of,
)
from simfl.tape.problem import Optimizing

if TYPE_CHECKING:
    from simfl.assembly.setup import Setup


class Optimizers(NamedTuple):
    """The optimizers of a run.

    Attributes:
        optimizing: the options for which the tape's programs are compiled.
        client, server: the plans of the algorithm's and the server's steps; None for plain SGD.
    """

    optimizing: Optimizing
    client: OptimizerPlan | None = None
    server: OptimizerPlan | None = None

    @property
    def rows(self) -> int:
        """Rows of state that a client keeps beside its model."""
        return 0 if self.client is None else self.client.rows


def optimizers_of(setup: Setup, initial: NDArray[np.float32]) -> Optimizers:
    """Return the optimizers of a scenario.

    Args:
        setup: with scenario, kind and algorithm.
        initial: f32 [d], the initial parameters, for the initial state.

    Raises:
        ScenarioError: a user's object is not a gradient transformation, or raised an error.
    """
    config, size, plan = setup.scenario.algorithm, len(initial), Optimizers(Optimizing())
    given = config.optimizer
    if given != schema.Sgd():
        where = "algorithm.optimizer"
        if setup.kind.local:
            rule = _rule(given, where)
            rows = _checked(rule, size, where)
            plan = plan._replace(optimizing=replace(plan.optimizing, local=rule))
            if config.keeps_states and rows.rows:
                loses = given.state.crash == "lose"
                _check_lost(given, rows if loses else None, initial)
                client = OptimizerPlan(initial=rows.begin(initial), averaged=rows.reals, loses=loses)
                plan = Optimizers(replace(plan.optimizing, kept=rows), client)
        elif config.uses.step == "own":
            raise ScenarioError(
                f"{where}: expected sgd with {config.kind!r}, found {given.kind!r}; make its steps with "
                'self.descent.step and say uses = Uses(step="clients") in the class'
            )
        else:
            serial = config.uses.step == "one_model"
            optimizing, client = _plan(given, initial, where, Optimizing(pauses=not serial), serial)
            state = given.state
            _check_lost(given, optimizing.applied if state.crash == "lose" else None, initial)
            travels = state.average if state.travels is None else state.travels
            averages = state.average and client.rows > 0
            client = replace(client, loses=state.crash == "lose", averages=averages, travels=travels, shared=serial)
            plan = plan._replace(optimizing=optimizing, client=client)
    of_server = getattr(config, "server_optimizer", schema.ServerSgd())
    if of_server != schema.ServerSgd():
        optimizing, server = _plan(of_server, initial, "algorithm.server_optimizer", plan.optimizing, serial=True)
        plan = plan._replace(optimizing=optimizing, server=server)
    return plan


def _plan(
    config: Any, initial: NDArray[np.float32], where: str, optimizing: Optimizing, serial: bool
) -> tuple[Optimizing, OptimizerPlan]:
    """Return a linear optimizer as sums of models, another as a transformation."""
    nesterov = config.kind == "nesterov"
    if config.kind in ("sgd", "momentum", "nesterov"):
        decay = getattr(config, "weight_decay", 0.0)
        if getattr(config, "clip_norm", None) is None:
            beta = getattr(config, "momentum", 0.0)
            return replace(optimizing, serial=serial), OptimizerPlan(beta, nesterov, decay)
    rows = _checked(_rule(config, where), len(initial), where)
    return replace(optimizing, applied=rows, serial=serial), OptimizerPlan(
        initial=rows.begin(initial), averaged=rows.reals
    )


def _rule(config: Any, where: str) -> Transformation:
    """Return the gradient transformation that a section names."""
    core: Core | None = None
    match config:
        case schema.OwnOptimizer() | schema.OwnServerOptimizer():
            return _own(config, where)
        case schema.Momentum() | schema.Nesterov() | schema.ServerMomentum():
            core = momentum(config.momentum, config.kind == "nesterov")
        case schema.Adam():
            core = adam(config.beta1, config.beta2, config.eps)
        case schema.ServerAdam() | schema.ServerYogi() | schema.ServerAdagrad():
            core = adaptive(config.kind, config.beta1, getattr(config, "beta2", 0.0), config.tau)
    clip_norm, decay = getattr(config, "clip_norm", None), getattr(config, "weight_decay", 0.0)
    name = type(config).__name__, config.kind
    return transformation_of(name, core=core, clip_norm=clip_norm, weight_decay=decay)


def _own(config: Any, where: str) -> Transformation:
    """Return a user's own transformation."""
    made = make(config.kind, config.options, f"{where}.kind")
    if not (callable(getattr(made, "init", None)) and callable(getattr(made, "update", None))):
        raise ScenarioError(
            f"{where}.kind: expected a gradient transformation of optax from {config.kind!r}, with init and update, "
            f"found {type(made).__name__}; return optax.chain(...), for example"
        )
    digests = digests_of([config.kind.partition(":")[0]])
    source = tuple(digests.items()) if is_known(digests) else Same(made)
    return Transformation((config.kind, hashable(config.options), source), lambda constants: made)


def _checked(rule: Transformation, size: int, where: str) -> StateRows:
    """Return a rule's state as rows; report errors of its functions in one line."""
    with in_one_line(f"{where}.kind", "the optimizer"):
        return state_rows(rule, size)


def _check_lost(given: Any, rows: StateRows | None, initial: NDArray[np.float32]) -> None:
    """Reject a state that may be lost (None: none) and begins with the parameters."""
    if rows is not None and not np.array_equal(rows.begin(initial), rows.begin(initial + np.float32(1.0))):
        raise ScenarioError(
            f"algorithm.optimizer.state.crash: expected keep with {given.kind!r}, whose state begins with the "
            "parameters, found 'lose'; use keep"
        )
