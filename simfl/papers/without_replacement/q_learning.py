"""Deep-Q learning for many agents at once.

Mnih et al. 2015, "Human-level control through deep reinforcement learning", https://doi.org/10.1038/nature14236, as
Jin, He, Dai use it (Algorithm 3):

    store (s_{t-1}, a_{t-1}, r_{t-1}, s_t) in the replay memory
    draw some transitions from it;  y_j = r_j + discount * max_a Qtarget(s_{j+1}, a)
    one step of Adam on the mean of (y_j - Q(s_j, a_j))^2;  periodically Qtarget <- Q
    with probability p a random action, else argmax_a Q(s_t, a)

    Q(s) = W2 (W1 s + b1) + b2

All activations are linear, as in the paper, so that a network is a linear map: what the hidden layer changes is how
it learns. Adam is Kingma and Ba 2015, https://arxiv.org/abs/1412.6980, with its usual constants. Xavier: each weight is
uniform within sqrt(6 / (inputs + outputs)), biases begin at 0.

What the papers leave open: as long as the memory holds fewer transitions than are drawn, all of them are used; draws
are without replacement. The paper's terminal case, y_j = r_j, does not occur: after an agent's last batch no agent
decides.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from simfl.privacy.noise import threefry

ACTIONS = 2
BETA1, BETA2, SMALL = 0.9, 0.999, 1e-8

#: The parameters, those of the target, and the moments of Adam.
KINDS = ("q", "target", "mean", "square")

Parts = dict[str, jax.Array]


@dataclass(frozen=True)
class Settings:
    """Settings of all agents.

    A state has size `inputs`. The memory holds `memory` transitions, a step draws `replay` of them, and the target is
    renewed after every `reset_every` steps.
    """

    inputs: int
    hidden: int = 128
    discount: float = 0.99
    learning_rate: float = 0.01
    memory: int = 20
    replay: int = 10
    reset_every: int = 10

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of a network's parameters."""
        inputs, hidden = self.inputs, self.hidden
        return {"w1": (inputs, hidden), "b1": (hidden,), "w2": (hidden, ACTIONS), "b2": (ACTIONS,)}


class QLearner:
    """Agents that learn whether to choose action 0 or 1.

    Args:
        network_of: the network of each agent, int [agents]; agents may share one, and then its memory.
        key: uint32 [2], names all draws.
    """

    def __init__(self, settings: Settings, network_of: Sequence[int], key: NDArray[np.uint32]) -> None:
        self.settings = settings
        networks = max(network_of) + 1
        agents = len(network_of)
        self._network_of = jnp.asarray(network_of, dtype=jnp.int32)
        self._decisions = np.zeros(agents, dtype=np.int32)
        self._key = jnp.asarray(key)
        self._program = _program(settings)
        first = initial_networks(settings, networks, key)
        rows = {name: np.zeros((networks, *shape), np.float32) for name, shape in _layout(settings).items()}
        rows |= {f"q_{name}": value for name, value in first.items()}
        rows |= {f"target_{name}": value for name, value in first.items()}
        self._networks = jnp.concatenate([jnp.asarray(value).reshape(networks, -1) for value in rows.values()], axis=1)
        # Of an agent: its last state, and its last action, -1 for none.
        self._agents = jnp.concatenate([jnp.zeros((agents, settings.inputs)), jnp.full((agents, 1), -1.0)], axis=1)

    def decide(
        self,
        agents: Sequence[int],
        states: NDArray[np.float32],
        rewards: NDArray[np.float32],
        explore: NDArray[np.float32],
    ) -> NDArray[np.int32]:
        """Let agents learn from their last action, and choose the next, in order.

        Args:
            agents: k different agents.
            states: s_t of each, f32 [k, inputs].
            rewards: r_{t-1} of each, f32 [k]; without meaning at an agent's first decision.
            explore: probability of a random action, f32 [k].

        Returns:
            The actions, int32 [k].
        """
        count = len(agents)
        fill = len(self._decisions) - count  # one size to compile: the loop is only as long as it has to be

        def filled(array: Any, kind: Any) -> NDArray[Any]:
            array = np.asarray(array, dtype=kind)
            return np.concatenate((array, np.zeros((fill, *array.shape[1:]), dtype=kind)))

        who = np.asarray(agents, dtype=np.int32)
        numbers = self._decisions[who]
        self._decisions[who] += 1
        self._networks, self._agents, actions = self._program(
            self._networks, self._agents, self._key, self._network_of, np.int32(count), filled(who, np.int32),
            filled(numbers, np.int32), filled(states, np.float32), filled(rewards, np.float32),
            filled(explore, np.float32),
        )  # fmt: skip
        return np.asarray(actions)[:count]

    def memory(self) -> dict[str, NDArray[Any]]:
        """Return all that agents and networks keep from one decision to the next."""
        state = {"networks": self._networks, "agents": self._agents, "decisions": self._decisions}
        return {name: np.array(value) for name, value in state.items()}

    def remember(self, memory: dict[str, NDArray[Any]]) -> None:
        """Restore the result of `memory`."""
        self._networks, self._agents = jnp.array(memory["networks"]), jnp.array(memory["agents"])
        self._decisions = memory["decisions"].copy()

    def numbers(self) -> dict[str, NDArray[np.float32]]:
        """Return the networks by name, f32 [networks, ...]; see `_layout`."""
        rows, at, named = np.array(self._networks), 0, {}
        for name, shape in _layout(self.settings).items():
            size = math.prod(shape)
            named[name] = rows[:, at : at + size].reshape(len(rows), *shape)
            at += size
        return named


def _layout(settings: Settings) -> dict[str, tuple[int, ...]]:
    """Return the parts of a network's row."""
    parts = {f"{kind}_{name}": shape for kind in KINDS for name, shape in settings.shapes.items()}
    size, memory = settings.inputs, settings.memory
    parts |= {"before": (memory, size), "after": (memory, size), "action": (memory,), "reward": (memory,)}
    return parts | {"stored": (), "steps": ()}


def initial_networks(settings: Settings, networks: int, key: NDArray[np.uint32]) -> dict[str, NDArray[np.float32]]:
    """Draw the initial parameters, each f32 [networks, ...]."""
    generator = np.random.Generator(np.random.Philox(key=int(key[0]) | int(key[1]) << 32))
    initial = {}
    for name, shape in settings.shapes.items():
        bound = np.sqrt(6.0 / sum(shape)) if len(shape) == 2 else 0.0
        initial[name] = generator.uniform(-bound, bound, (networks, *shape)).astype(np.float32)
    return initial


def uniforms(key: jax.Array, agent: jax.Array, number: jax.Array, count: int) -> jax.Array:
    """Return uniforms in [0, 1), f32 [count], named by agent and decision."""
    unsigned = jnp.uint32
    one, other = threefry(key[0], key[1], agent.astype(unsigned), number.astype(unsigned))
    counter = jnp.arange(count, dtype=unsigned)
    bits = threefry(one, other, counter, jnp.zeros_like(counter))[0]
    return (bits >> 8).astype(jnp.float32) * jnp.float32(2.0**-24)


@functools.lru_cache(maxsize=8)
def _program(settings: Settings) -> Any:
    """Return the jitted program: agents in order, updated in place."""
    names, layout = tuple(settings.shapes), _layout(settings)
    memory, replay = settings.memory, settings.replay

    def values(network: Parts, states: jax.Array) -> jax.Array:
        return (states @ network["w1"] + network["b1"]) @ network["w2"] + network["b2"]

    def gradients(network: Parts, states: jax.Array, actions: jax.Array, aims: jax.Array, weight: jax.Array) -> Parts:
        """Of the weighted mean of (aim - Q(state, action))^2."""
        hidden = states @ network["w1"] + network["b1"]
        values = hidden @ network["w2"] + network["b2"]
        chosen = (jnp.arange(ACTIONS) == actions[:, None]).astype(jnp.float32)
        error = chosen * (2.0 * weight / weight.sum() * (jnp.sum(values * chosen, axis=1) - aims))[:, None]
        back = error @ network["w2"].T
        return {"w1": states.T @ back, "b1": back.sum(0), "w2": hidden.T @ error, "b2": error.sum(0)}

    def split(row: jax.Array) -> Parts:
        parts, at = {}, 0
        for name, shape in layout.items():
            size = math.prod(shape)
            parts[name] = row[at : at + size].reshape(shape)
            at += size
        return parts

    def learn(parts: Parts, draws: jax.Array) -> Parts:
        """Take one step of Adam on random transitions."""
        held = jnp.minimum(parts["stored"], memory)
        order = jnp.argsort(jnp.where(jnp.arange(memory) < held, draws, 2.0))[:replay]
        learns = held > 0
        weight = jnp.where(learns, (jnp.arange(replay) < held).astype(jnp.float32), 1.0)
        network = {name: parts[f"q_{name}"] for name in names}
        target = {name: parts[f"target_{name}"] for name in names}
        aims = parts["reward"][order] + settings.discount * values(target, parts["after"][order]).max(axis=1)
        slopes = gradients(network, parts["before"][order], parts["action"][order], aims, weight)
        steps = parts["steps"] + learns
        power = jnp.maximum(steps, 1.0)
        unbiased = jnp.sqrt(1.0 - BETA2**power)
        rate = settings.learning_rate * unbiased / (1.0 - BETA1**power)
        renew = learns & (steps % settings.reset_every == 0)
        new = {"steps": steps}
        for name in names:
            mean = BETA1 * parts[f"mean_{name}"] + (1.0 - BETA1) * slopes[name]
            square = BETA2 * parts[f"square_{name}"] + (1.0 - BETA2) * slopes[name] ** 2
            better = network[name] - rate * mean / (jnp.sqrt(square) + SMALL * unbiased)
            new[f"q_{name}"] = jnp.where(learns, better, network[name])
            new[f"target_{name}"] = jnp.where(renew, new[f"q_{name}"], target[name])
            new[f"mean_{name}"] = jnp.where(learns, mean, 0.0)
            new[f"square_{name}"] = jnp.where(learns, square, 0.0)
        return parts | new

    def run(
        networks: jax.Array,
        own: jax.Array,
        key: jax.Array,
        network_of: jax.Array,
        count: jax.Array,
        agents: jax.Array,
        numbers: jax.Array,
        states: jax.Array,
        rewards: jax.Array,
        explore: jax.Array,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        def body(i: jax.Array, carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
            networks, own, actions = carry
            agent = agents[i]
            n = network_of[agent]
            now, last = states[i], own[agent]
            draws = uniforms(key, agent, numbers[i], memory + 2)
            parts = split(networks[n])
            # Remember the transition; an agent's first decision has no transition before it.
            seen = last[-1] >= 0
            here = (jnp.arange(memory) == parts["stored"] % memory) & seen
            parts["before"] = jnp.where(here[:, None], last[:-1], parts["before"])
            parts["after"] = jnp.where(here[:, None], now, parts["after"])
            parts["action"] = jnp.where(here, last[-1], parts["action"])
            parts["reward"] = jnp.where(here, rewards[i], parts["reward"])
            parts["stored"] = parts["stored"] + seen
            parts = learn(parts, draws[:memory])
            network = {name: parts[f"q_{name}"] for name in names}
            action = jnp.where(
                draws[memory] < explore[i],
                (draws[memory + 1] >= 0.5).astype(jnp.int32),
                jnp.argmax(values(network, now[None])[0]).astype(jnp.int32),
            )
            row = jnp.concatenate([parts[name].reshape(-1) for name in layout])
            after = jnp.concatenate([now, action.astype(jnp.float32)[None]])
            return networks.at[n].set(row), own.at[agent].set(after), actions.at[i].set(action)

        actions = jnp.zeros(len(agents), dtype=jnp.int32)
        done: tuple[jax.Array, jax.Array, jax.Array] = jax.lax.fori_loop(0, count, body, (networks, own, actions))
        return done

    return jax.jit(run, donate_argnums=(0, 1))
