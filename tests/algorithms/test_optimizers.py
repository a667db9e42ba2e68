"""Optimizers in algorithms equal plain loops of optax and NumPy, and have their known rates of convergence."""

import dataclasses
import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from simfl.algorithms import ALGORITHMS
from simfl.algorithms.optimizers import Optimizer, OptimizerPlan, State
from simfl.assembly.kinds import completed, find_kind
from simfl.assembly.optimizers import optimizers_of
from simfl.errors import ScenarioError
from simfl.scenario import from_mapping
from simfl.tape import Tape
from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.accounts.test_network import network, scenario
from tests.algorithms.test_replay import STEP, Script
from tests.helpers import (
    Lab,
    NumpyExecutor,
    batch_gradient,
    constant,
    make_problem,
    make_training,
    make_world,
    run_algorithm,
)

D = 650


def optimized(problem, kind, initial=None, **algorithm):
    """Return a problem with the optimizers of a scenario's algorithm section, and their plans for its training."""
    scenario = from_mapping({"algorithm": {"kind": kind, **algorithm}, "clients": {"count": 1 + (kind[0] != "c")}})
    setup = SimpleNamespace(scenario=scenario, kind=find_kind(scenario), algorithm=ALGORITHMS[kind])
    initial = np.zeros(problem.model.size, np.float32) if initial is None else initial
    chosen_optimizers = optimizers_of(setup, initial)
    plans = {"optimizer": chosen_optimizers.client, "server_optimizer": chosen_optimizers.server}
    return dataclasses.replace(problem, optimizing=chosen_optimizers.optimizing), plans


def run(
    problem, kind, section, *, updates, step_size, initial=None, world=None, prepare=None, one_by_one=True, **options
):
    """Run an algorithm with optimizers; return its models."""
    count = len(problem.data.sizes)
    world = world or make_world(count, topology="ring" if count > 1 else "complete")
    problem, plans = optimized(problem, kind, initial, **section)
    if one_by_one:
        problem = dataclasses.replace(problem, optimizing=problem.optimizing.on("cpu"))
    with Lab(problem, width=min(4, count), window=256) as lab:
        training = dataclasses.replace(lab.training(step_size=step_size), **plans)
        if initial is not None:
            training = dataclasses.replace(training, initial=initial)
        algorithm, _ = run_algorithm(kind, world, lab.tape, training, updates=updates, prepare=prepare, **options)
        return lab.tape.values(algorithm.models()).astype(np.float64)


# -- against plain loops ---------------------------------------------------------------------------


def own_chain():
    """Return an optimizer of unit steps. They are undefined at a gradient of 0, which idle lanes must not spread."""
    unit = optax.stateless(lambda g, _: g / jnp.sqrt(jnp.sum(g * g)))
    return optax.chain(unit, optax.scale_by_rms(0.9), optax.scale_by_schedule(lambda t: -0.01 / (1 + t)))


LOOPS = {
    "momentum": ({"kind": "momentum", "weight_decay": 0.01}, [optax.trace(0.9), optax.add_decayed_weights(0.01)], 0.1),
    "nesterov": ("nesterov", [optax.trace(0.9, nesterov=True)], 0.1),
    "clipped": ({"kind": "momentum", "clip_norm": 0.05}, [optax.clip_by_global_norm(0.05), optax.trace(0.9)], 0.1),
    "adam": ({"kind": "adam", "weight_decay": 0.01}, [optax.adamw(-1.0, weight_decay=0.01)], 0.003),
    "own": ("tests.algorithms.test_optimizers:own_chain", [own_chain(), optax.scale(-1.0)], 1.0),
}


def start(seed=1):
    return (0.1 * np.random.default_rng(seed).standard_normal(D)).astype(np.float32)


def plain_loop(problem, w, transformation, steps, step_size, client=0, draw=0):
    """Return the model after a loop of optax over a client's mini-batches, f32 [D]."""
    update = jax.jit(transformation.update)
    w, state = jnp.asarray(w), transformation.init(w)
    for h in range(steps):
        gradient = batch_gradient(problem, w, client, draw + h, problem.batches.size) / problem.batches.size
        added, state = update(jnp.float32(gradient) + problem.model.l2 * w, state, w)
        w = w + step_size * added
    return np.asarray(w)


def quiet(algorithm):
    """Let no client start an exchange."""
    algorithm._starts = [False] * algorithm.num_clients


@functools.cache
def expected(name):
    _, parts, step_size = LOOPS[name]
    return plain_loop(make_problem(1, l2=0.01), start(), optax.chain(*parts, optax.scale(-1.0)), 200, step_size)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name", "one_by_one"),
    [("centralized_sgd", name, True) for name in ("momentum", "adam")]
    + [("adpsgd", name, True) for name in ("nesterov", "clipped")]
    + [("adpsgd", name, False) for name in ("momentum", "adam", "own")],
)
def test_one_client_equals_a_plain_loop_of_optax(kind, name, one_by_one):
    """200 steps of one model, alone and beside another client's, one by one as on a CPU and in lanes."""
    section, _, step_size = LOOPS[name]
    alone = kind == "centralized_sgd"
    problem = make_problem(1 if alone else 2, sizes=[320] if alone else [320, 80], l2=0.01)
    more = {} if alone else {"exchange": "atomic", "prepare": quiet, "world": make_world(2, speeds=[1.0, 1.3])}
    updates = 200 if alone else 354  # of two clients, of which the first is faster
    models = run(
        problem, kind, {"optimizer": section}, updates=updates, step_size=step_size, initial=start(),
        one_by_one=one_by_one, **more,
    )  # fmt: skip
    np.testing.assert_allclose(models[0], expected(name), rtol=0, atol=1e-5)
    assert np.abs(models[0] - start()).max() > 0.05


@pytest.mark.parametrize("name", ["nesterov", "adam"])
def test_local_steps_equal_a_plain_loop_whose_state_restarts_in_each_round(name):
    section, parts, step_size = LOOPS[name]
    problem, _ = optimized(make_problem(4, local=True, l2=0.01), "fedavg", start(), optimizer=section)
    rounds = [(0, 0, 5), (1, 3, 2), (3, 7, 9)]
    with Lab(problem) as lab:
        model = lab.tape.constant(start())
        changes = [
            lab.tape.combine((1.0, lab.tape.train(model, k, draw, steps, 8, (step_size, 0.0, 0.0, 0.0))))
            for k, draw, steps in rounds
        ]
        values = lab.tape.values(changes)
    chain = optax.chain(*parts, optax.scale(-1.0))
    looped = [plain_loop(problem, start(), chain, steps, step_size, k, draw) - start() for k, draw, steps in rounds]
    np.testing.assert_allclose(values, looped, rtol=0, atol=1e-5)


@pytest.mark.slow(but=["adam"])
@pytest.mark.parametrize("name", ["nesterov", "adam", "own"])
def test_a_kept_state_continues_a_plain_loop_over_all_rounds(name):
    """Two clients with rounds of different lengths, in lanes; a promise that is lost leaves the state as it was."""
    section, parts, step_size = LOOPS[name]
    section = {"kind": section} if isinstance(section, str) else section
    kept = {**section, "state": {"rounds": "keep"}}
    problem, plans = optimized(make_problem(2, local=True, l2=0.01), "fedavg", start(), optimizer=kept)
    with Lab(problem, window=3) as lab:
        algorithm = completed(ALGORITHMS["fedavg"])(
            make_world(2), lab.tape, dataclasses.replace(lab.training(), initial=start(), **plans)
        )
        models = [algorithm.server_model] * 2
        for steps in (5, 1, 9, 4):
            algorithm.batches.lost(algorithm.batches.train(models[0], 0, 0, (step_size, 0.0, 0.0, 0.0)))
            changes = [algorithm.batches.train(models[k], k, steps + k, (step_size, 0.0, 0.0, 0.0)) for k in range(2)]
            changes = [algorithm.descent.trained(change) for change in changes]
            models = [lab.tape.combine((1.0, models[k]), (1.0, changes[k])) for k in range(2)]
        values = lab.tape.values(models)
        algorithm.descent.begin(0)
        again = lab.tape.combine((1.0, algorithm.batches.train(models[0], 0, 3, (step_size, 0.0, 0.0, 0.0))))
        (after_crash,) = lab.tape.values([again])
    chain = optax.chain(*parts, optax.scale(-1.0))
    looped = [plain_loop(problem, start(), chain, 19 + 4 * k, step_size, k) for k in range(2)]
    np.testing.assert_allclose(values, looped, rtol=0, atol=1e-5)
    begun = plain_loop(problem, values[0], chain, 3, step_size, 0, 19) - values[0]
    np.testing.assert_allclose(after_crash, begun, rtol=0, atol=1e-5)


def adaptive_loop(kind, rounds, x, mean_change, beta1=0.9, beta2=0.99, tau=1e-3, eta=0.01):
    """Reddi et al. 2021, Algorithm 2, and FedAvgM, in float64; `mean_change` is a function of the model and round."""
    m, v = np.zeros_like(x), np.full_like(x, tau**2)
    for t in range(rounds):
        change = mean_change(x, t)
        if kind == "momentum":
            m = 0.9 * m + change
            x = x + eta * m
            continue
        m = beta1 * m + (1 - beta1) * change
        v = {
            "adam": beta2 * v + (1 - beta2) * change**2,
            "yogi": v - (1 - beta2) * change**2 * np.sign(v - change**2),
        }[kind]
        x = x + eta * m / (np.sqrt(v) + tau)
    return x


@pytest.mark.parametrize(("kind", "server"), [("fedavg", "momentum"), ("fedavg", "yogi"), ("fedbuff", "adam")])
def test_servers_take_the_steps_of_the_listings(kind, server):
    """Four clients make ten rounds of three local steps; a buffer of all updates with waiting clients is a round."""
    problem = make_problem(4, local=True)
    server_step = 0.5 if server == "momentum" else 0.01
    options = {"buffer_size": 4, "after_update": "wait"} if kind == "fedbuff" else {}
    models = run(
        problem, kind, {"server_optimizer": server}, updates=40, step_size=STEP, initial=start(),
        server_step=server_step, steps=[3] * 4, **options,
    )  # fmt: skip

    def mean_change(x, t):
        total = np.zeros(D)
        for k in range(4):
            w = x.copy()
            for h in range(3):
                w -= STEP / 8 * batch_gradient(problem, w, k, 3 * t + h, 8)
            total += (w - x) / 4
        return total

    looped = adaptive_loop(server, 10, start().astype(np.float64), mean_change, eta=server_step)
    np.testing.assert_allclose(models[0], looped, rtol=0, atol=2e-4 if server != "momentum" else 1e-5)
    assert np.abs(looped - start()).max() > 0.05


def test_a_server_steps_on_gradients_as_they_arrive():
    """ASGD with Nesterov's momentum at the server, with one client, so that no gradient is stale."""
    problem = make_problem(1)
    models = run(problem, "async_sgd", {"server_optimizer": "momentum"}, updates=50, step_size=0.1, initial=start())
    looped = plain_loop(problem, start(), optax.chain(optax.trace(0.9), optax.scale(-1.0)), 50, 0.1)
    np.testing.assert_allclose(models[0], looped, rtol=0, atol=1e-5)


# -- states and neighbors, states and crashes ------------------------------------------------------


@pytest.mark.parametrize("state", [{}, {"average": True}, {"crash": "lose"}])
def test_states_are_kept_lost_or_averaged_as_planned(state):
    """In a replay of AD-PSGD with atomic exchanges and two crashes, states are averaged or lost as configured."""
    section = {"kind": "momentum", "momentum": 0.8, "state": state}
    problem, plans = optimized(make_problem(), "adpsgd", optimizer=section)
    outages = {2: [Outage(0.02, 0.05, crash=True)], 5: [Outage(0.03, 0.06, crash=True)]}
    script = Script("adpsgd", problem, updates=150, outages=outages, exchange="atomic", plans=plans)
    w, reads, crashes = script.start(), {}, 0
    v = [np.zeros(D) for _ in w]
    for event, client, *rest in script.events:
        if event == "lost":
            crashes += 1
            if state.get("crash") == "lose":
                v[client] = np.zeros(D)
        elif event == "read":
            reads[client] = (w[client].copy(), *rest)
        elif event == "update":
            peer = rest[0]
            if peer >= 0:
                w[client] = w[peer] = (w[client] + w[peer]) / 2
                if state.get("average"):
                    v[client] = v[peer] = (v[client] + v[peer]) / 2
            what, draw, size = reads.pop(client)
            v[client] = 0.8 * v[client] + script.gradient(what, client, draw, size)
            w[client] = w[client] - STEP * v[client]
    assert crashes == 2
    script.check(w)


def test_states_in_requests_that_cross_are_averaged_with_the_models():
    """Equal clients that start exchanges at once: both the models and the momenta of a pair become equal."""
    section = {"optimizer": {"kind": "momentum", "momentum": 0.8, "state": {"average": True}}}
    problem, w, v = make_problem(2), [start(), start()], [np.zeros(D), np.zeros(D)]
    world = make_world(2, links=LinkModel(latency=constant(1e-3)))
    models = run(
        problem, "adpsgd", section, updates=12, step_size=0.1, initial=start(), world=world, pairing="everyone"
    )
    for t in range(6):
        mean, momentum = (w[0] + w[1]) / 2, (v[0] + v[1]) / 2
        v = [0.8 * momentum + batch_gradient(problem, w[k], k, t, 8) / 8 for k in range(2)]
        w = [mean - 0.1 * v[k] for k in range(2)]
    np.testing.assert_allclose(models, w, rtol=0, atol=1e-5)
    assert np.abs(w[0] - w[1]).max() > 0.01


def test_states_are_blended_taken_and_lost_one_by_one():
    """A transformation with two real rows and one of whole numbers, which is never averaged."""

    def rule(rows, given):  # of a base that is one row: w + eta * updates
        return [rows[1] + given.scalars[-1] * given.draw, *rows[5:]]

    executor = NumpyExecutor(2)
    tape = Tape(executor, optimizer=rule, serial_steps=True)
    plan = OptimizerPlan(initial=np.float32([[1, 1], [2, 2], [9, 9]]), averaged=2, loses=True, averages=True)
    training = make_training([1, 1, 1])
    optimizer, base = Optimizer(tape, training, plan, chain=False), tape.constant(np.zeros(2))
    other = State(tuple(tape.constant(np.full(2, value)) for value in (5.0, 6.0, 7.0)), 4)
    optimizer.average(1, [(0.25, other), (0.75, optimizer.shown(1))])
    optimizer.take(2, other)
    moved = [optimizer.along(who, base, ((1.0, base),), 0.5) for who in range(3)]
    values = tape.values([*moved, *optimizer.shown(1).rows, *optimizer.shown(2).rows])[:, 0].tolist()
    assert values == [0.0, 0.0, 2.0, 2.0, 3.0, 9.0, 5.0, 6.0, 7.0]
    assert [optimizer.shown(who).updates for who in range(3)] == [1, 1, 5]
    crash = make_world(3).clock.event()
    optimizer.crashes(2, crash)
    assert optimizer.shown(2).updates == 5
    crash.callbacks[0](crash)
    assert optimizer.shown(2).updates == 0
    assert tape.values(optimizer.shown(2).rows)[:, 0].tolist() == [1.0, 2.0, 9.0]


# -- problems with known optimum -------------------------------------------------------------------


def test_an_observer_of_rounds_with_kept_states_is_refused():
    options = {"optimizer": {"kind": "adam", "state": {"rounds": "keep"}}, "local_steps": 2}
    private = scenario("fedavg", options=options, privacy={"mechanism": "gaussian_update"})
    with pytest.raises(ScenarioError, match=r"state\.rounds: expected new, found 'keep': .*; use rounds: new"):
        network(private, observers=[0])
