"""Deep-Q learning against a plain NumPy agent in float64 that is given the same random numbers."""

import jax
import numpy as np
import pytest

from simfl.papers.without_replacement.q_learning import QLearner, Settings, initial_networks, uniforms

KEY = np.array([5, 9], dtype=np.uint32)
SETTINGS = Settings(inputs=4, hidden=6, discount=0.9, memory=5, replay=3, reset_every=4)
_uniforms = jax.jit(uniforms, static_argnums=3)


class PlainAgent:
    """A textbook deep-Q agent: lists, loops, and gradients by the chain rule."""

    def __init__(self, network):
        self.network = {name: value.astype(np.float64) for name, value in network.items()}
        self.target = {name: value.copy() for name, value in self.network.items()}
        self.mean = {name: np.zeros_like(value) for name, value in self.network.items()}
        self.square = {name: np.zeros_like(value) for name, value in self.network.items()}
        self.slots = [None] * SETTINGS.memory
        self.stored = self.steps = 0
        self.last = None

    @staticmethod
    def values(network, state):
        return (state @ network["w1"] + network["b1"]) @ network["w2"] + network["b2"]

    def remember(self, transition):
        self.slots[self.stored % SETTINGS.memory] = transition
        self.stored += 1

    def learn(self, draws):
        held = [slot for slot in range(SETTINGS.memory) if self.slots[slot] is not None]
        if not held:
            return
        chosen = sorted(held, key=lambda slot: draws[slot])[: SETTINGS.replay]
        gradient = {name: np.zeros_like(value) for name, value in self.network.items()}
        for slot in chosen:
            before, action, reward, after = self.slots[slot]
            aim = reward + SETTINGS.discount * max(self.values(self.target, after))
            hidden = before @ self.network["w1"] + self.network["b1"]
            error = 2 * (self.values(self.network, before)[action] - aim) / len(chosen)
            gradient["w2"][:, action] += error * hidden
            gradient["b2"][action] += error
            gradient["w1"] += error * np.outer(before, self.network["w2"][:, action])
            gradient["b1"] += error * self.network["w2"][:, action]
        self.steps += 1
        for name, g in gradient.items():
            self.mean[name] = 0.9 * self.mean[name] + 0.1 * g
            self.square[name] = 0.999 * self.square[name] + 0.001 * g**2
            first = self.mean[name] / (1 - 0.9**self.steps)
            second = self.square[name] / (1 - 0.999**self.steps)
            self.network[name] -= SETTINGS.learning_rate * first / (np.sqrt(second) + 1e-8)
        if self.steps % SETTINGS.reset_every == 0:
            self.target = {name: value.copy() for name, value in self.network.items()}

    def act(self, state, explore, draws):
        if draws[-2] < explore:
            return int(draws[-1] >= 0.5)
        return int(np.argmax(self.values(self.network, state)))


def play(network_of, rounds=14, explore=0.4):
    """Let agents decide in varying groups; return the learner, the plain agents, and both sequences of actions."""
    generator = np.random.default_rng(0)
    learner = QLearner(SETTINGS, network_of, KEY)
    first = initial_networks(SETTINGS, max(network_of) + 1, KEY)
    plain = [PlainAgent({name: value[n] for name, value in first.items()}) for n in range(max(network_of) + 1)]
    last, numbers, actions, expected = {}, dict.fromkeys(range(len(network_of)), 0), [], []
    for _ in range(rounds):
        agents = np.flatnonzero(generator.random(len(network_of)) < 0.7).tolist() or [0]
        states = generator.standard_normal((len(agents), SETTINGS.inputs)).astype(np.float32)
        rewards = generator.standard_normal(len(agents)).astype(np.float32)
        actions += learner.decide(agents, states, rewards, np.full(len(agents), explore, np.float32)).tolist()
        for agent, state, reward in zip(agents, states.astype(np.float64), rewards.tolist(), strict=True):
            own = plain[network_of[agent]]
            draws = np.asarray(_uniforms(KEY, np.int32(agent), np.int32(numbers[agent]), SETTINGS.memory + 2))
            numbers[agent] += 1
            if agent in last:
                own.remember((*last[agent], reward, state))
            own.learn(draws[: SETTINGS.memory])
            action = own.act(state, explore, draws)
            last[agent] = state, action
            expected.append(action)
    return learner, plain, actions, expected


@pytest.mark.parametrize("network_of", [[0, 1, 2, 3], [0, 0, 1, 1]], ids=["own", "shared"])
def test_targets_updates_and_actions_are_those_of_a_plain_agent(network_of):
    learner, plain, actions, expected = play(network_of)
    assert actions == expected
    assert 0 < sum(actions) < len(actions)
    numbers = learner.numbers()
    for n, agent in enumerate(plain):
        assert numbers["steps"][n] == agent.steps > SETTINGS.reset_every
        assert numbers["stored"][n] == agent.stored
        for name in SETTINGS.shapes:
            assert numbers[f"q_{name}"][n] == pytest.approx(agent.network[name], abs=2e-5)
            assert numbers[f"target_{name}"][n] == pytest.approx(agent.target[name], abs=2e-5)
            assert numbers[f"mean_{name}"][n] == pytest.approx(agent.mean[name], abs=1e-4)
        for slot, transition in enumerate(agent.slots):
            if transition is not None:
                before, action, reward, after = transition
                assert numbers["before"][n, slot] == pytest.approx(before)
                assert numbers["after"][n, slot] == pytest.approx(after)
                assert (numbers["action"][n, slot], numbers["reward"][n, slot]) == pytest.approx((action, reward))


def test_a_decision_does_not_depend_on_who_decides_at_the_same_time():
    generator = np.random.default_rng(1)
    states = generator.standard_normal((6, 3, 4)).astype(np.float32)
    explore = np.full(3, 0.3, np.float32)
    together, apart = QLearner(SETTINGS, [0, 1, 2], KEY), QLearner(SETTINGS, [0, 1, 2], KEY)
    for now in states:
        rewards = now.sum(axis=1)
        actions = together.decide([0, 1, 2], now, rewards, explore).tolist()
        alone = [int(apart.decide([k], now[k : k + 1], rewards[k : k + 1], explore[:1])[0]) for k in (2, 0, 1)]
        assert [alone[1], alone[2], alone[0]] == actions
    for name, value in together.numbers().items():
        assert np.array_equal(value, apart.numbers()[name]), name


@pytest.mark.slow
def test_exploration_is_a_fair_coin_and_learning_ends_it():
    learner = QLearner(Settings(inputs=2, discount=0.0), list(range(200)), KEY)
    states = np.ones((200, 2), np.float32)
    counts = []
    reward = np.zeros(200, np.float32)
    for step in range(40):
        random = step < 20
        actions = learner.decide(range(200), states, reward, np.full(200, float(random), np.float32))
        reward = actions.astype(np.float32)  # action 1 is better
        counts.append(actions.mean())
    assert np.mean(counts[:20]) == pytest.approx(0.5, abs=5 * np.sqrt(0.25 / 4000))
    assert np.mean(counts[-5:]) > 0.95


def test_xavier_initial_values_lie_within_their_bound():
    parts = initial_networks(Settings(inputs=52), 20, KEY)
    bound = np.sqrt(6 / (52 + 128))
    assert np.abs(parts["w1"]).max() == pytest.approx(bound, rel=1e-3)
    assert parts["w1"].std() == pytest.approx(bound / np.sqrt(3), rel=0.01)
    assert not parts["b1"].any()
    assert not parts["b2"].any()
