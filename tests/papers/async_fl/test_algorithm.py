"""Asynchronous FL: the promises of its papers on delays and broadcasts, in difficult worlds."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.errors import ConditionError
from simfl.papers.async_fl.round_sizes import DelayGate, RoundsGate, RoundSizes
from simfl.papers.async_fl.sizes import ConstantSizes, DelaySizes, OverLogSizes, PolynomialSizes
from simfl.streams import Streams
from simfl.tape import Tape
from simfl.world.availability import Outage
from simfl.world.compute import Slowdown
from simfl.world.links import LinkModel
from tests.algorithms.test_contract import absences
from tests.helpers import (
    Lab,
    NullExecutor,
    batch_gradient,
    constant,
    exponential,
    lognormal,
    make_algorithm,
    make_problem,
    make_training,
    make_world,
    run_algorithm,
    run_without_numbers,
    softmax_gradient,
)

K = 4
ROUGH_LINKS = LinkModel(latency=exponential(0.02), bandwidth=1e5, loss=0.2, resend_timeout_s=0.03, uplink=1e5)
D = 650


def sizes_of(sequence, count=K, *, weights=None, seed=0, **options):
    return RoundSizes(sequence, weights or [1.0] * count, Streams(seed), **options)


def root_delay(scale, offset):
    return lambda t: offset + scale * math.sqrt(t)


# -- sizes and gates ---------------------------------------------------------------------------


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    weights=st.lists(st.floats(0.05, 1.0), min_size=1, max_size=7),
    assignment=st.sampled_from(["proportional", "random"]),
    a=st.integers(1, 30),
)
def test_sizes_of_clients_add_up_in_every_round(weights, assignment, a):
    sequence = PolynomialSizes(a, 0.7)
    sizes = sizes_of(sequence, weights=weights, assignment=assignment)
    share = np.array(weights) / sum(weights)
    for i in range(40):
        given_now = [sizes.of(i, c) for c in range(len(weights))]
        assert min(given_now) >= 0
        assert sum(given_now) == sequence.size(i)
    total = np.array([sum(sizes.of(i, c) for i in range(40)) for c in range(len(weights))])
    if assignment == "proportional":
        assert np.abs(total - share * sequence.total(40)).max() < 2.0
    else:
        spread = np.sqrt(sequence.total(40) * share * (1 - share))
        assert (np.abs(total - share * sequence.total(40)) <= 5 * spread + 1e-9).all()


def test_sizes_of_each_client_are_multiplied_by_the_number_of_clients():
    sizes = sizes_of(PolynomialSizes(2.0, 1.0), 5, each_client=True)
    assert [sizes.of(i, 3) for i in range(3)] == [2, 4, 6]
    assert [sizes.total(i) for i in range(4)] == [0, 10, 30, 60]
    assert [sizes.rounds_for(k) for k in (1, 10, 11, 60)] == [1, 1, 2, 3]


@pytest.mark.parametrize("sequence", [ConstantSizes(7), PolynomialSizes(3, 1.0), OverLogSizes(9)])
def test_delay_gate_agrees_with_its_definition(sequence):
    sizes, delay = sizes_of(sequence), root_delay(2.0, 10.0)
    gate = DelayGate(delay)
    for i in range(12):
        for known in range(i + 1):
            for client in range(K):
                size = sizes.of(i, client)
                s = [sequence.size(j) for j in range(i + 1)]
                fine = []
                for h in range(size):
                    t_glob = sum(s) - (size - h) - 1
                    t_delay = sum(s[known:]) - (size - h)
                    fine.append(t_delay <= delay(max(0, t_glob)))
                expected = fine.index(False) if False in fine else size
                if size:
                    assert gate.gradients(sizes, i, client, known) == expected
                allowed = gate.gradients(sizes, i, client, known)
                for least in range(min(size, 1), size + 1):
                    assert gate.allows(sizes, i, client, known, least) == (allowed >= least)


# -- invariants --------------------------------------------------------------------------------


class Watched:
    """A run that checks every read, broadcast and application when it happens."""

    def __init__(self, world, *, until, tau=None, ahead=None, **options):
        self.world, self.tau, self.ahead = world, tau, ahead
        self.algorithm = algorithm = make_algorithm(
            "async_fl",
            world,
            Tape(NullExecutor(), window=500, max_batch=8, local=options.get("local_steps", False)),
            make_training([64] * K),
            self.applied,
            **options,
        )
        self.rows, self.up = [], []
        self.broadcasts, self.version_at, self.versions = [], {0: 0}, {}
        compute, up, down = algorithm.compute, algorithm.tree.up, algorithm.tree.down

        def computing(client, examples=None):
            self.reads(client)
            return compute(client, examples)

        def sending(client, bundle):
            self.up.append((client, bundle.round_num))
            self.versions[client, bundle.round_num] = bundle.parts[0].version
            up(client, bundle)

        def broadcasting(clients, receive, size, model):
            self.broadcast()
            down(clients, receive, size, model)

        algorithm.compute, algorithm.tree.up, algorithm.tree.down = computing, sending, broadcasting
        algorithm.start()
        world.clock.run(until)

    def applied(self, row):
        self.rows.append(row)

    def reads(self, client):
        a = self.algorithm
        i, k = a.at_round[client], a.known[client]
        assert k <= a.complete
        if self.ahead is not None:
            assert k <= i <= k + self.ahead
        if self.tau is not None and not a.local:
            size = a.sizes.of(i, client)
            s = [sum(a.sizes.of(j, c) for c in range(K)) for j in range(i + 1)]
            for h in range(size):
                t_glob, t_delay = sum(s) - (size - h) - 1, sum(s[k:]) - (size - h)
                assert t_delay <= self.tau(max(0, t_glob))

    def broadcast(self):
        a = self.algorithm
        assert a.complete == (self.broadcasts[-1] if self.broadcasts else 0) + 1 or a.complete > 0
        have = {(row[1], row[3]) for row in self.rows}
        for client, first in a.members.items():
            assert {(client, i) for i in range(first, a.complete)} <= have
        self.broadcasts.append(a.complete)
        self.version_at[a.complete] = a.version

    def check_counts(self):
        a = self.algorithm
        applied = [(row[1], row[3]) for row in self.rows]
        assert len(set(applied)) == len(applied), "no update is applied twice"
        assert set(applied) <= set(self.up)
        for client in range(K):
            sent = [i for c, i in self.up if c == client]
            assert sent == list(range(sent[0], sent[0] + len(sent))) if sent else True
            assert a.sent[client] == len(sent)
            assert a.client_updates[client] == sum(c == client for c, _ in applied)
            assert a.client_dropped[client] == 0
        assert self.broadcasts == sorted(set(self.broadcasts))
        for index, row in enumerate(self.rows):
            # those that an aggregator added up are applied together
            assert 0 <= index - self.versions[row[1], row[3]] - row[4] < K


GATES = {
    "rounds": lambda: {"gate": RoundsGate(1)},
    "synchronous": lambda: {"gate": RoundsGate(0)},
    "far": lambda: {"gate": RoundsGate(4)},
    "delay": lambda: {"gate": DelayGate(root_delay(3.0, 30.0))},
}


@pytest.mark.slow(but=["rounds-local"])
@pytest.mark.parametrize("variant", ["batch", "local", "tree", "random"])
@pytest.mark.parametrize("gate", GATES)
@settings(max_examples=3, deadline=None, derandomize=True)
@given(data=st.data(), seed=st.integers(0, 99))
def test_invariants_hold_in_any_world(variant, gate, data, seed):
    world = make_world(
        K,
        jitter=lognormal(0.3),
        links=data.draw(st.sampled_from([LinkModel(), ROUGH_LINKS])),
        outages=data.draw(absences(K)),
        slowdowns=[Slowdown(data.draw(st.sampled_from([1.0, 6.0])), frozenset({1}))],
        seed=seed,
    )
    options = GATES[gate]()
    options["sizes"] = sizes_of(
        data.draw(st.sampled_from([ConstantSizes(24), PolynomialSizes(3.0, 0.5, 8.0), OverLogSizes(3.0, 6.0)])),
        weights=[0.4, 0.3, 0.2, 0.1],
        assignment="random" if variant == "random" else "proportional",
    )
    options["local_steps"] = variant == "local"
    options["aggregators"] = (1, 2) if variant == "tree" else ()
    gate = options["gate"]
    watched = Watched(
        world,
        until=8.0,
        ahead=gate.ahead if isinstance(gate, RoundsGate) else None,
        tau=gate.delay if isinstance(gate, DelayGate) else None,
        **options,
    )
    watched.check_counts()
    late = [row for row in watched.rows if row[0] > 6.0]
    remaining = [k for k in range(K) if not world.availability.gone(k, 8.0)]
    for k in remaining:  # there is no fault from 5 s on: no deadlock
        assert sum(row[1] == k for row in late) >= 3, f"client {k} of {remaining} stands still"


def test_staleness_counts_from_the_broadcast_that_was_read():
    watched = Watched(make_world(K, jitter=lognormal(0.4), links=ROUGH_LINKS), until=4.0, gate=RoundsGate(2))
    version_at = watched.version_at
    assert len(version_at) > 20
    for index, row in enumerate(watched.rows):
        version = watched.versions[row[1], row[3]]
        assert row[4] == index - version
        assert version in version_at.values()
    assert max(row[4] for row in watched.rows) >= 2 * K


@pytest.mark.parametrize("of", ["all", "each"])
def test_rows_have_step_size_and_noise_of_their_round(of):
    called = []
    training = make_training([100] * K, noise_std=2.5)
    object.__setattr__(training, "step_size", lambda *at: called.append(at) or 1.0 / (1 + at[0]))
    sizes = sizes_of(PolynomialSizes(12.0))
    options = {"rounds": 6, "sizes": sizes, "step_size_of": of}
    _, rows = run_without_numbers("async_fl", make_world(K), training=training, **options)
    assert {(row[6], row[7]) for row in rows} == {(1.0 / (1 + i), 2.5) for i in range(6)}
    assert all(row[6] == 1.0 / (1 + row[3]) for row in rows)
    computed = [12 * i * (i + 1) // 2 for i in range(6)]
    assert set(called) == {(i, s // (K if of == "each" else 1), s / 400) for i, s in enumerate(computed)}


def test_overtaken_broadcast_is_ignored():
    links = LinkModel(latency=exponential(0.05))
    algorithm, rows = run_without_numbers(
        "async_fl", make_world(K, links=links, seed=1), until=20.0, gate=RoundsGate(5)
    )
    assert algorithm.ignored > 20
    orders = [[row[3] for row in rows if row[1] == k] for k in range(K)]
    assert any(order != sorted(order) for order in orders), "updates overtake each other as well"


def test_gate_limits_how_far_a_fast_client_is_ahead():
    world = make_world(K, speeds=[1.0, 1.0, 1.0, 20.0])
    ahead = []
    algorithm = make_algorithm(
        "async_fl",
        world,
        Tape(NullExecutor(), max_batch=8),
        make_training([64] * K),
        lambda row: ahead.append(algorithm.at_round[0] - algorithm.at_round[3]),
        gate=RoundsGate(3),
    )
    algorithm.start()
    world.clock.run(5.0)
    # 4 rounds begun beyond the one that the slow client is in; the fast one has sent the last of them.
    assert max(ahead) == 4
    assert algorithm.times.waited_s(0) > 3.0


def test_server_applies_updates_of_a_client_that_left_and_does_not_wait_for_it():
    links = LinkModel(latency=constant(0.05))
    world = make_world(K, links=links, outages={2: [Outage(1.0, math.inf, crash=True)]})
    algorithm, rows = run_without_numbers("async_fl", world, until=3.0)
    assert algorithm.client_updates[2] == algorithm.sent[2]
    assert max(row[0] for row in rows if row[1] == 2) > 1.0, "it was in flight when its sender left"
    assert algorithm.complete > 1.5 * max(row[3] for row in rows if row[1] == 2)


def test_run_ends_after_its_last_round():
    algorithm, rows = run_without_numbers(
        "async_fl",
        make_world(5),
        sizes=sizes_of(PolynomialSizes(50.0), 5),
        rounds=28,
        training=make_training([5000] * 5),
    )
    assert algorithm.ending == "all 28 rounds are complete"
    assert algorithm.complete == algorithm.rounds == 28
    assert len(rows) == 28 * 5
    assert algorithm.gradients == sum(row[5] for row in rows) == 50 * 28 * 29 // 2
    assert algorithm.marks.epochs(algorithm.updates) == pytest.approx(algorithm.gradients / 25000)
    assert algorithm.marks.updates_in(20000 / 25000) == 28 * 5


def test_gate_that_blocks_all_clients_is_an_error():
    with pytest.raises(ConditionError, match=r"gate: tau allows client 0 0 gradients of round 0 .* take a larger tau"):
        run_without_numbers("async_fl", make_world(K), gate=DelayGate(lambda t: 2.0), until=1.0)


def test_round_larger_than_the_data_of_a_client_is_an_error():
    training = make_training([20] * K, sampling="poisson")
    with pytest.raises(ConditionError, match=r"condition s_i <= N: in round 10 client 0 is to draw 22 of its 20"):
        run_without_numbers(
            "async_fl", make_world(K), training=training, until=9.0, sizes=sizes_of(PolynomialSizes(8.0))
        )


def test_gate_of_rounds_keeps_the_delays_of_lemma_1():
    """Under condition (3), i <= k + d implies t_delay <= tau(t_glob) from round d + 1 on (appendix B.2)."""
    d = 2
    sequence = DelaySizes(2.0, lambda z: 1.0, m=200, d=d)
    sizes = sizes_of(sequence)
    by_rounds, by_delay = RoundsGate(d), DelayGate(sequence.delay)
    for i in range(d + 1, 400):
        for client in range(K):
            assert by_rounds.gradients(sizes, i, client, i - d) == sizes.of(i, client)
            assert by_delay.gradients(sizes, i, client, i - d) == sizes.of(i, client)


def test_messages_have_the_bytes_of_models_and_headers():
    algorithm, _ = run_without_numbers("async_fl", make_world(K), rounds=10)
    size = algorithm.training.model_bytes + 8
    traffic = algorithm.world.network.traffic
    assert [t.sent_bytes for t in traffic[:K]] == [10 * size] * K
    assert traffic[K].sent_bytes == 9 * K * size, "the last broadcast is not sent"


def test_aggregators_send_one_sum_per_round():
    algorithm, rows = run_without_numbers("async_fl", make_world(K), rounds=10, aggregators=(1, 2), gate=RoundsGate(0))
    traffic = algorithm.world.network.traffic
    server, top, *low = range(K, K + 4)
    assert [traffic[k].messages for k in range(K)] == [10] * K
    assert [traffic[k].messages for k in low] == [10 + 9 * 2] * 2
    assert traffic[top].messages == 10 + 9 * 2
    assert traffic[server].messages == 9
    assert len(rows) == 40


# -- numbers -----------------------------------------------------------------------------------

STEP = 0.05
PROBLEMS = {
    "shuffle": {},
    "poisson": {"sampling": "poisson"},
    "without_replacement": {"sampling": "without_replacement"},
    "with_replacement": {"sampling": "with_replacement"},
    "clipped": {"sampling": "poisson", "clipping_norm": 0.5},
    "l2": {"l2": 0.05},
}


class Script:
    """The events of a run in order: models read, broadcasts received, local steps, updates sent and applied."""

    def __init__(self, problem, *, updates, **options):
        self.events, self.problem = [], problem
        world = make_world(
            K, jitter=lognormal(0.5), links=ROUGH_LINKS, outages={2: [Outage(0.3, 0.5, crash=True)]}, seed=5
        )
        with Lab(problem) as lab:
            self.training = lab.training(step_size=STEP / 8)
            algorithm, rows = run_algorithm(
                "async_fl", world, lab.tape, self.training, updates=updates, prepare=self._prepare, **options
            )
            self.server = lab.tape.values([algorithm.server_model])[0]
            self.clients = lab.tape.values(algorithm.client_models())
        self.algorithm, self.rows = algorithm, rows
        assert algorithm.ignored > 0

    def _prepare(self, algorithm):
        gradient, train = algorithm.tape.gradient_in_pieces, algorithm.tape.train
        receive, up, apply = algorithm.receive, algorithm.tree.up, algorithm.apply

        def read(model, client, draw, size, scale, start):
            promise = gradient(model, client, draw, size, scale, start)
            self.events.append(("read", client, algorithm.at_round[client], draw, promise.examples))
            return promise

        def steps(model, client, draw, count, size, step, scale, expected):
            self.events.append(("steps", client, draw, count, step))
            return train(model, client, draw, count, size, step, scale, expected)

        def received(client, model, k, version):
            receive(client, model, k, version)
            self.events.append(("receive", client, k, client in algorithm._rounds))

        def computing(client, examples=None):
            if algorithm.local:
                self.events.append(("begin", client, algorithm._rounds[client].done))
            return compute(client, examples)

        def sent(client, bundle):
            self.events.append(("send", client, bundle.round_num))
            up(client, bundle)

        def applied(bundle):
            self.events.append(("apply", bundle.round_num, [part.client for part in bundle.parts]))
            apply(bundle)

        algorithm.tape.gradient_in_pieces, algorithm.tape.train = read, steps
        algorithm.receive, algorithm.tree.up, algorithm.apply = received, sent, applied
        compute, algorithm.compute = algorithm.compute, computing


def apply(v, k, models, done, updates, i, clients):
    """The server: apply round i's updates, and remember the model of each broadcast. Returns the new v and k."""
    for client in clients:
        v = v + updates[client, i]
        done.setdefault(i, set()).add(client)
    while len(done.get(k, ())) == K:
        k += 1
    models.setdefault(k, v.copy())
    return v, k


@pytest.mark.slow(but=["l2-aggregators7"])
@pytest.mark.parametrize(
    ("problem", "aggregators"), [*((problem, ()) for problem in PROBLEMS), ("clipped", (2,)), ("l2", (1, 2))]
)
def test_batches_agree_with_a_replay_in_numpy(problem, aggregators):
    problem = make_problem(K, **PROBLEMS[problem])
    script = Script(problem, updates=60, aggregators=aggregators, gate=RoundsGate(2))
    start = script.training.initial.astype(np.float64)
    v, done, k = start.copy(), {}, 0
    models, updates, reads = {0: start.copy()}, {}, {}
    w, known = [start.copy() for _ in range(K)], [0] * K
    for event, *what in script.events:
        if event == "read":
            client, i, draw, size = what
            reads[client] = w[client].copy(), draw, size  # the last one counts: a crash loses those before
        elif event == "send":
            client, i = what
            model, draw, size = reads.pop(client)
            total = batch_gradient(problem, model, client, draw, size) + 8 * problem.model.l2 * model
            updates[client, i] = -STEP / 8 * total
            w[client] = w[client] + updates[client, i]
        elif event == "apply":
            v, k = apply(v, k, models, done, updates, *what)
        elif event == "receive":
            client, number, _ = what
            if number > known[client]:
                known[client] = number
                w[client] = models[number].copy()
    assert np.abs(script.server - start).max() > 0.02
    np.testing.assert_allclose(script.server, v, rtol=0, atol=1e-5)
    np.testing.assert_allclose(script.clients, w, rtol=0, atol=1e-5)


def local_steps(problem, w, client, draw, count, step):
    eta, beta, t, dt = step
    for h in range(count):
        gradient = batch_gradient(problem, w, client, draw + h, 8) / 8 + problem.model.l2 * w
        w = w - eta / (1 + beta * (t + dt * h) ** problem.rounds.power) * gradient
    return w


@pytest.mark.parametrize(("decay", "of"), [(None, "all"), ((0.006, 0.01), "all"), ((0.006, 0.01), "each")])
def test_local_steps_agree_with_a_replay_in_numpy(decay, of):
    problem = make_problem(K, local=True, l2=0.02, power=0.5)
    sizes = sizes_of(PolynomialSizes(20.0, 1.0, 60.0))
    own = K if of == "each" else 1  # a client's share of the gradients of all
    options = {"gate": RoundsGate(2), "local_steps": True, "decay": decay, "step_size_of": of, "sizes": sizes}
    script = Script(problem, updates=50, **options)
    start = script.training.initial.astype(np.float64)
    v, done, k = start.copy(), {}, 0
    models, updates = {0: start.copy()}, {}
    w, base, change = ([start.copy() for _ in range(K)] for _ in range(3))
    at, made, known = [0] * K, [0] * K, [0] * K
    operations = 0
    for event, *what in script.events:
        if event == "begin":
            client, made[client] = what
            if not made[client]:  # a new round, or one that a crash has undone
                w[client], change[client] = base[client].copy(), 0.0 * start
        elif event == "steps":
            client, draw, count, step = what
            if decay is None:
                assert step == (STEP, 0.0, 0.0, 0.0)
            else:
                before = (sizes.total(at[client]) + 8 * K * made[client]) / own
                assert step == (0.006 * 8, 0.01, pytest.approx(before), 8 * K / own)
            moved = local_steps(problem, w[client], client, draw, count, step)
            change[client] = change[client] + (moved - w[client])
            w[client], made[client] = moved, made[client] + count
            operations += 1
        elif event == "send":
            client, i = what
            assert i == at[client]
            assert made[client] == -(-sizes.of(i, client) // 8)
            updates[client, i] = change[client]
            base[client], at[client] = w[client].copy(), i + 1
        elif event == "apply":
            v, k = apply(v, k, models, done, updates, *what)
        elif event == "receive":
            client, number, under_way = what
            if number > known[client]:
                known[client] = number
                base[client] = models[number].copy()
                w[client] = base[client] + (change[client] if under_way else 0.0)
    assert operations > 1.2 * len(updates), "some rounds were interrupted"
    assert np.abs(script.server - start).max() > 0.02
    np.testing.assert_allclose(script.server, v, rtol=0, atol=1e-5)


def final(kind, problem, updates, *, noise_std=0.0, step_size=STEP / 8, **options):
    with Lab(problem) as lab:
        training = lab.training(step_size=step_size, noise_std=noise_std)
        algorithm, rows = run_algorithm(kind, make_world(K), lab.tape, training, updates=updates, **options)
        return lab.tape.values(algorithm.models())[0], rows


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["shuffle", "without_replacement", "poisson"])
def test_large_rounds_are_pieces_of_one_batch_with_one_noise(sampling):
    """A batch that takes many operations is the sum over it, and its noise is that of one release."""
    sizes = sizes_of(PolynomialSizes(13.0, 1.0, 20.0), each_client=True)
    quiet, _ = final("async_fl", make_problem(K, sampling=sampling, noisy=True), 4, sizes=sizes)
    noisy, rows = final("async_fl", make_problem(K, sampling=sampling, noisy=True), 4, sizes=sizes, noise_std=3.0)
    assert (noisy - quiet).std() == pytest.approx(STEP / 8 * 3.0 * math.sqrt(K), rel=0.15)
    problem = make_problem(K, sampling=sampling)
    start = Lab.training(_Holder(problem)).initial.astype(np.float64)
    if sampling != "shuffle":
        total = sum(batch_gradient(problem, start, row[1], 0, row[5]) for row in rows)
        np.testing.assert_allclose(quiet, start - STEP / 8 * total, rtol=0, atol=1e-5)
    else:  # 33 of a client's 80 examples, each once: the mean over several rounds is that over the data
        assert [row[5] for row in rows] == [33] * K


class _Holder:
    def __init__(self, problem):
        self.problem = problem


def test_shuffled_rounds_of_any_size_use_every_example_once_per_pass():
    problem = make_problem(K)
    sizes = sizes_of(ConstantSizes(20), each_client=True)  # 4 rounds are a pass over 80 examples
    start = Lab.training(_Holder(problem), step_size=1e-4).initial.astype(np.float64)
    ours, _ = final("async_fl", problem, 4 * K, sizes=sizes, step_size=1e-6, gate=RoundsGate(0))
    rows = problem.data.indices
    whole = softmax_gradient(start, problem.data.train_x[rows], problem.data.train_y[rows])
    np.testing.assert_allclose((start - ours) / 1e-6, whole, rtol=0, atol=0.2)


@pytest.mark.parametrize("l2", [0.0, 0.1])
def test_mask_sends_a_random_enlarged_part_of_the_entries(l2):
    """Every update has every D-th entry, D times as large, whatever pieces its batch is computed in."""
    blocks, step = 3, 1e-3
    sizes = sizes_of(ConstantSizes(20), each_client=True)
    problem = make_problem(K, sampling="without_replacement", blocks=blocks, l2=l2)
    changes = []

    def watch(algorithm):
        up = algorithm.tree.up

        def sent(client, bundle):
            changes.append((client, algorithm.batches.draws[client] - 1, bundle.change))
            up(client, bundle)

        algorithm.tree.up = sent

    with Lab(problem) as lab:
        training = lab.training(step_size=step)
        algorithm, _ = run_algorithm(
            "async_fl", make_world(K), lab.tape, training, updates=4 * K, sizes=sizes, mask=blocks, prepare=watch,
            gate=RoundsGate(0),
        )  # fmt: skip
        sent = lab.tape.values([change for *_, change in changes[:K]])
    start = training.initial.astype(np.float64)
    chosen = []
    for (client, draw, _), values in zip(changes[:K], sent, strict=True):
        whole = batch_gradient(problem, start, client, draw, 20) + 20 * l2 * start
        block = next(b for b in range(blocks) if np.abs(values[b::blocks]).max() > 0)
        expected = np.zeros(D)
        expected[block::blocks] = -step * blocks * whole[block::blocks]
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-6)
        chosen.append(block)
    size = 4 * -(-D // blocks) + 16
    assert [t.sent_bytes for t in algorithm.world.network.traffic[:K]] == [4 * size] * K
    with pytest.raises(ValueError, match="mask: expected 1 with local steps or sampling shuffle, found 2"):
        run_without_numbers("async_fl", make_world(K), updates=1, mask=2)


def test_blocks_of_a_mask_are_equally_frequent():
    from simfl.tape.kernels import block_of

    key = Streams(3).key("noise")
    drawn = np.array([[int(block_of(key, np.int32(c), np.int32(d), 4)) for d in range(150)] for c in range(4)])
    counts = np.bincount(drawn.ravel(), minlength=4)
    assert np.abs(counts - 150).max() < 5 * math.sqrt(600 * 0.25 * 0.75)
    assert len({tuple(row) for row in drawn}) == 4


def test_releases_have_the_sizes_of_their_rounds():
    sizes = sizes_of(PolynomialSizes(2.0, 1.0, 8.0), each_client=True)
    training = make_training([640] * K, sampling="poisson", noise_std=[3.0, 3.0, 3.0, 4.0])
    algorithm, rows = run_without_numbers("async_fl", make_world(K), training=training, sizes=sizes, rounds=6)
    expected = {(2 * i + 10, 3.0): 1 for i in range(6)}
    assert algorithm.releases.others[0] == expected
    assert algorithm.releases.others[3] == {(size, 4.0): 1 for size, _ in expected}
    assert [algorithm.releases.total(k) for k in range(K)] == [6] * K
    drawn = [row[5] for row in rows]
    assert len(set(drawn)) > 8, "batches are Poisson sampled, at the rate of their round"
    assert np.mean(drawn) == pytest.approx(15.0, abs=4.0)


def test_empty_round_releases_nothing():
    sizes = sizes_of(ConstantSizes(2), assignment="random")
    training = make_training([640] * K, sampling="with_replacement", noise_std=3.0)
    algorithm, _ = run_without_numbers("async_fl", make_world(K), training=training, sizes=sizes, rounds=30)
    assert algorithm.sent == [30] * K, "empty updates are sent, too"
    drawn = [[sizes.of(i, k) for i in range(30)] for k in range(K)]
    assert all(0 in one for one in drawn)
    assert [algorithm.releases.total(k) for k in range(K)] == [sum(size > 0 for size in one) for one in drawn]


def test_budget_counts_rounds():
    training = make_training([640] * K, sampling="poisson")
    object.__setattr__(training, "allowances", [5, 3, 5, 5])
    algorithm, rows = run_without_numbers("async_fl", make_world(K), training=training)
    assert [algorithm.releases.total(k) for k in range(K)] == [5, 3, 5, 5]
    assert sorted(algorithm.budgets.spent_s) == list(range(K))
    assert algorithm.complete == 4, (
        "the server does not wait for clients without budget, and none is left for a broadcast"
    )
    assert len(rows) == 18
