"""FedBuff: its limits, an independent server in NumPy, what its noise costs, and rough worlds."""

import dataclasses

import numpy as np
import pytest

from simfl.accounts import check as claims
from simfl.algorithms.staleness import StalenessBound
from simfl.privacy.accounting import Release, epsilon_of
from simfl.scenario import from_mapping
from tests.helpers import Lab, batch_gradient, lognormal, make_problem, make_training, make_world, run_algorithm
from tests.helpers import run_without_numbers as run

ETA = 0.3
STEPS = [1, 2, 3, 4, 5, 6]


def change(problem, start, client, draw, steps, proximal=0.0):
    """Return w_H - w_0 of one round, f64."""
    w = start.copy()
    for h in range(steps):
        gradient = batch_gradient(problem, w, client, draw + h, problem.batches.size) / problem.batches.size
        w = w - ETA * (gradient + proximal * (w - start))
    return w - start


class Watched:
    """A run in a rough world, with an ordered record of the models handed out and the updates received."""

    def __init__(self, problem, kind="fedbuff", *, updates, world=None, rule=None, **options):
        self.events = []
        world = world or make_world(
            6, topology="complete", speeds=[1.0, 1.0, 2.0, 0.5, 3.0, 6.0], jitter=lognormal(0.5), seed=5
        )
        with Lab(problem) as lab:
            self.training = dataclasses.replace(lab.training(step_size=ETA), rule=rule)
            self.algorithm, self.rows = run_algorithm(
                kind, world, lab.tape, self.training, updates=updates, prepare=self._watch, steps=STEPS, **options
            )
            self.model = lab.tape.values(self.algorithm.models())[0]

    def _watch(self, algorithm):
        read, train, take = algorithm.read, algorithm.batches.train, algorithm.take

        def handed_out(client):
            self.events.append(("read", client))
            return read(client)

        def trained(model, client, steps, step):
            promised = train(model, client, steps, step)
            self.events.append(("train", client, promised.draw, steps))
            return promised

        def taken(update):
            self.events.append(("take", update.client, update.weight, update.staleness))
            take(update)

        algorithm.read, algorithm.batches.train, algorithm.take = handed_out, trained, taken


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"buffer_size": 3, "server_step": 0.7, "staleness_exponent": 0.0},
        {"concurrency": 4, "buffer_size": 2},
        {"staleness": StalenessBound(1, "down_weight"), "buffer_size": 1},
        {"staleness": StalenessBound(1, "drop"), "buffer_size": 2},
        {"staleness": StalenessBound(2, "wait"), "buffer_size": 2},
        {"after_update": "wait", "buffer_size": 4},
    ],
    ids=["paper", "plain", "concurrency", "down_weight", "drop", "wait", "waiting"],
)
def test_the_model_equals_that_of_a_numpy_server(options):
    problem = make_problem(6, local=True, proximal=0.1)
    watched = Watched(problem, updates=60, **{"buffer_size": 4, **options})
    size, step = options.get("buffer_size", 4), options.get("server_step", 1.0)
    exponent = options.get("staleness_exponent", 0.5)
    w, buffer, under_way, dropped = watched.training.initial.astype(np.float64), [], {}, 0
    version = 0
    for event, client, *rest in watched.events:
        if event == "read":
            under_way[client] = version, w
            continue
        if event == "train":
            read, start = under_way[client]
            under_way[client] = read, change(problem, start, client, *rest, 0.1)
            continue
        weight, staleness = rest
        read, delta = under_way.pop(client)
        assert staleness == version - read
        if weight == 0.0:
            dropped += 1
            continue
        buffer.append(weight / (1 + staleness) ** exponent * delta)
        if len(buffer) == size:
            w, buffer, version = w + step * np.mean(buffer, axis=0), [], version + 1
    assert version == watched.algorithm.round_num == -(-60 // size)
    assert sum(watched.algorithm.client_dropped) == dropped
    assert np.abs(w - watched.training.initial).max() > 0.1, "the run went somewhere"
    np.testing.assert_allclose(watched.model, w, rtol=0, atol=1e-5)
    assert [row[5] for row in watched.rows] == [8 * STEPS[row[1]] for row in watched.rows]


# -- privacy -----------------------------------------------------------------------------------


def scenario(**changes):
    sections = {
        "data": {"set": "digits"},
        "clients": {"count": 8, "speed": {"kind": "list", "values": [1, 1, 1, 1, 1, 1, 1, 0.1]}},
        "algorithm": {"kind": "fedbuff", "buffer_size": 4, "local_steps": 2, "batch_size": 16, "step_size": 0.1},
        "privacy": {"mechanism": "gaussian_update", "clipping_norm": 0.5, "noise_multiplier": 2.0},
        "stop": {"updates": 200},
        "evaluate": {"every": {"updates": 200}},
    }
    for section, values in changes.items():
        sections[section] = {**sections[section], **values}
    return from_mapping(sections)


def test_noise_of_the_server_is_added_once_per_buffer():
    """The noise is inside the server's step: w + eta_g/K (sum + z C noise)."""
    problem = make_problem(6, local=True, clip="update", clipping_norm=0.4, noise="gaussian")
    models = []
    for std in (0.0, 0.8):
        with Lab(problem) as lab:
            training = lab.training(step_size=ETA, noise_std=std)
            algorithm, rows = run_algorithm(
                "fedbuff", make_world(6, jitter=lognormal(0.5)), lab.tape, training, updates=3, buffer_size=3,
                noise="server", server_step=0.5, steps=[3] * 6,
            )  # fmt: skip
            models.append(lab.tape.values(algorithm.models())[0].astype(float))
        assert [row[7] for row in rows] == [0.0, 0.0, std]
    difference = models[1] - models[0]
    assert difference.std() == pytest.approx(0.5 / 3 * 0.8, rel=0.1)
    moved = models[0] - training.initial
    assert np.linalg.norm(moved) <= 0.5 * 0.4 * (1 + 1e-5), "each update is clipped"


def test_a_clients_updates_in_one_buffer_are_accounted_together():
    """A fast client with m of the K updates moves the sum by m C, which costs exactly as much as m^2 releases."""
    speeds = [1.0] * 7 + [0.1]
    training = make_training([64] * 8, noise_std=2.0)
    buffers = []

    def watch(algorithm):
        step = algorithm.step
        algorithm.step = lambda: buffers.append([u.client for u in algorithm.buffer]) or step()

    algorithm, _ = run(
        "fedbuff", make_world(8, speeds=speeds), updates=400, buffer_size=4, noise="server", training=training,
        prepare=watch,
    )  # fmt: skip
    expected = [sum(buffer.count(k) ** 2 for buffer in buffers) for k in range(8)]
    assert algorithm.releases.counts == expected
    assert expected[7] > 3 * algorithm.client_updates[7]
    m, z = 3, 2.0
    together = epsilon_of([(Release(z / m, sampling="none"), 1)], 1e-5, accountant="pld")
    apart = epsilon_of([(Release(z, sampling="none"), m * m)], 1e-5, accountant="pld")
    assert together == pytest.approx(apart, rel=1e-3)


def test_a_budget_holds_if_the_server_adds_noise():
    training = make_training([64] * 8, noise_std=1.0)
    object.__setattr__(training, "allowances", [9] * 8)
    world = make_world(8, speeds=[1.0] * 7 + [0.1])
    algorithm, rows = run("fedbuff", world, buffer_size=4, noise="server", training=training)
    assert rows
    assert max(algorithm.releases.counts) <= 9
    assert len(algorithm.budgets.spent_s) == 8
    assert len(algorithm.buffer) < 4


def test_scenarios_choose_who_adds_noise(tmp_path):
    import simfl

    local = simfl.run(scenario(), out=tmp_path, run_id="local")
    central = simfl.run(scenario(algorithm={"noise": "server"}), out=tmp_path, run_id="central")
    assert "local view" in local.manifest.extra["privacy"]
    assert (
        "central view (the server's models; the server itself sees what clients send)"
        in (central.manifest.extra["privacy"])
    )
    assert "a client that takes part or adds nothing" in central.manifest.extra["privacy"]
    finding = claims.check(simfl.prepare(scenario(algorithm={"noise": "server"})), central).findings[0]
    assert finding.by_server
    assert {view for view, _ in finding.certified} == {"local_transcript"}
    assert finding.certified["local_transcript", "add_or_remove"] == pytest.approx(central.clients["epsilon"].max())
    sent = local.clients["updates"].sum()
    assert sent == 200
    assert (local.updates["noise_std"] == 1.0).all()
    assert sorted(central.updates["noise_std"].unique()) == [0.0, 1.0]
    assert (central.updates["noise_std"] > 0).sum() == 50
    assert central.metrics["epsilon"].iloc[-1] > 0
