"""The contract that every algorithm must fulfill."""

import contextlib
import functools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.algorithms import ALGORITHMS
from simfl.algorithms.late import LateGradients
from simfl.algorithms.server import ServerAlgorithm
from simfl.assembly.kinds import find_algorithm
from simfl.errors import ScenarioError
from simfl.papers.without_replacement.passing import PassedModels
from simfl.plots.style import SERVER_STEPS
from simfl.tape import Tape
from simfl.world.availability import Outage
from simfl.world.compute import Slowdown
from simfl.world.links import LinkModel
from tests.helpers import (
    LOCAL,
    NullExecutor,
    constant,
    exponential,
    lognormal,
    make_algorithm,
    make_training,
    make_world,
    recorded,
    run_without_numbers,
)

#: Options that an algorithm needs in the worlds of this file.
NEEDED = {kind: {"buffer_size": 1} for kind in ("fedbuff", "ca2fl", "fadas")} | {
    "favas": {"period": 0.02, "fraction": 1.0},
    "area": {"buffer_size": 1, "weighting": "uniform"},
}
#: Variants of an algorithm other than its defaults.
OTHER_WAYS = [
    ("adpsgd", {"exchange": "atomic"}),
    ("async_sgd", {"delays": "cyclic"}),
    ("ringmaster", {"late": "stop"}),
    ("rennala", {"late": "stop"}),
    ("async_fl", {"aggregators": (2,)}),
    ("sgp", {"graph": "topology", "overlap": 2}),
    ("sgp", {"lost": "sums"}),
    ("epidemic", {"graph": "oracle"}),
]
#: Algorithms that use an example a given number of times end: tests/papers/without_replacement/test_passing.py.
ENDLESS = [kind for kind in ALGORITHMS if not issubclass(ALGORITHMS[kind], PassedModels)]


def build(kind, world, executor, sizes, *, window=100, on_update=lambda row: None, **options):
    """Return an algorithm that is not started, with a tape that suits it."""
    tape = Tape(executor, window=window, **recorded(kind))
    return make_algorithm(kind, world, tape, make_training(sizes), on_update, **options)


def serves(kind, clients):
    """Return whether the algorithm takes this number of clients."""
    with contextlib.suppress(ValueError):
        build(kind, make_world(clients), NullExecutor(), [64] * clients, **NEEDED.get(kind, {}))
        return True
    return False


ALONE = [kind for kind in ENDLESS if not serves(kind, 4)]
EVERY = [(kind, NEEDED.get(kind, {})) for kind in ENDLESS if kind not in ALONE] + OTHER_WAYS
#: FedAvg with other terms in the server's step: its contracts run with the slow tests.
RELATIVES = ("scaffold", "feddyn", "fednova", "ditto", "apfl", "pfedme", "diloco")
#: They send many messages, or draw much in each round.
LOUD = (
    ("divshare", {}), ("epidemic", {}), ("epidemic", {"graph": "oracle"}), ("matcha", {}), ("swift", {}), ("adsgd", {}),
    ("plexus", {}), ("teleportation", {}), ("asy_sonata", {}), ("sgp", {"lost": "sums"}),
)  # fmt: skip
#: Asynchronous servers with the clients of others: their contracts run with the slow tests, too.
SERVERS = (
    "ringleader", "mindflayer", "async_local_sgd", "halos", "decoupled_diloco", "streaming_diloco",
    "ca2fl", "ace", "fadas", "fedat", "favas", "area",
)  # fmt: skip
every = pytest.mark.parametrize(
    ("kind", "options"),
    [
        pytest.param(*one, marks=pytest.mark.slow) if one[0] in (*RELATIVES, *SERVERS) or one in LOUD else one
        for one in EVERY
    ],
    ids=["-".join([kind, *map(str, options.values())]) for kind, options in EVERY],
)
#: A server applies an update a message after it was computed: its client may be offline, or gone, by then.
SERVED = tuple(kind for kind, algorithm in ALGORITHMS.items() if issubclass(algorithm, ServerAlgorithm))
ROUGH_LINKS = LinkModel(latency=exponential(2e-3), bandwidth=1e5, loss=0.2, resend_timeout_s=0.02, uplink=1e5)


def absence(end):
    """Return outages and crashes that end before some seconds."""
    times = st.integers(0, 100 * end).map(lambda hundredths: hundredths / 100)
    lasts = st.integers(1, 200).map(lambda hundredths: hundredths / 100)
    return st.builds(lambda at, last, crash: Outage(at, min(at + last, end), crash), times, lasts, st.booleans())


def departure(end):
    """Return crashes before some seconds after which a client does not come back."""
    return st.integers(0, 100 * end).map(lambda hundredths: Outage(hundredths / 100, math.inf, crash=True))


outage, gone = absence(5), departure(5)


@st.composite
def absences(draw, num_clients):
    """Draw outages that end before 5 s, or never; client 0 always comes back."""
    rules = {k: draw(st.lists(outage, max_size=3)) for k in range(num_clients)}
    for k in range(1, num_clients):
        if draw(st.integers(0, 3)) == 0:
            rules[k].append(draw(gone))
    return {k: outages for k, outages in rules.items() if outages}


@pytest.mark.slow(every=6)
@every
@settings(max_examples=4, deadline=None, derandomize=True)
@given(data=st.data(), topology=st.sampled_from(["ring", "complete", "star"]), seed=st.integers(0, 99))
def test_online_clients_make_updates(kind, options, data, topology, seed):
    num_clients = 4
    outages = data.draw(absences(num_clients))
    world = make_world(
        num_clients,
        topology=topology,
        jitter=lognormal(0.3),
        links=data.draw(st.sampled_from([LinkModel(), ROUGH_LINKS])),
        outages=outages,
        seed=seed,
    )
    algorithm, rows = run_without_numbers(kind, world, until=8.0, **options)
    assert world.clock.now == 8.0
    times_s = np.array([row[0] for row in rows])
    clients = np.array([row[1] for row in rows])
    remaining = [k for k in range(num_clients) if not world.availability.gone(k, 8.0)]
    assert 0 in remaining
    for k in remaining:
        if kind == "gossip_learning" and not set(world.topology.neighbors(k)) & set(remaining):
            continue  # it hears from nobody
        # From 5 s on there are no faults: every client that is left makes an update of 8 ms every few dozen ms.
        late = ((times_s > 6.0) & (clients == k)).sum()
        # Alone, it makes one every 100 ms; the one at 8.0 s is after the end.
        assert late >= 19, f"client {k} made {late} updates in the last two seconds"
    for k in range(num_clients):
        assert algorithm.client_updates[k] == (clients == k).sum()
    assert algorithm.updates == len(rows)
    assert (np.diff(times_s) >= 0).all()
    if kind not in ("sync_sgd", *SERVED):  # there, an update of somebody is made by the all-reduce
        for time, k in zip(times_s, clients, strict=True):
            assert world.availability.online(k, time + 1e-9) or world.availability.online(k, time - 1e-9)
    for k in range(num_clients):
        spent = algorithm.times
        assert min(spent.computed_s(k), spent.waited_s(k), spent.communicated_s(k)) >= -1e-9
        total = spent.computed_s(k) + spent.waited_s(k) + spent.communicated_s(k) + world.availability.offline_s(k, 8.0)
        assert total == pytest.approx(8.0), "nothing counts twice, and nothing is left out"


@every
def test_a_run_ends_when_all_clients_have_left(kind, options):
    never = Outage(0.0, math.inf, crash=True)
    world = make_world(4, outages={k: [never] for k in range(4)})
    algorithm, rows = run_without_numbers(kind, world, **options)
    assert (rows, algorithm.updates) == ([], 0)
    assert world.clock.now == 0.0
    world = make_world(4, outages={k: [Outage(1.0 + k, math.inf, crash=True)] for k in range(4)}, links=ROUGH_LINKS)
    algorithm, rows = run_without_numbers(kind, world, **options)
    assert rows
    assert rows[-1][0] <= (5.0 if kind in SERVED else 4.0) + 1e-9
    assert world.clock.now < 10.0


@every
def test_a_late_client_starts_when_it_joins(kind, options):
    world = make_world(4, outages={2: [Outage(0.0, 3.0)]}, links=ROUGH_LINKS)
    _, rows = run_without_numbers(kind, world, until=6.0, **options)
    joined = [row[0] for row in rows if row[1] == 2]
    assert 3.0 < joined[0] < 3.5
    others = [row[0] for row in rows if row[1] != 2 and row[0] < 3.0]
    assert len(others) > 3 * 20, "the others did not wait for it"


GRAPHS = ("one_peer", "topology", "ring")
GOSSIP_IN_ROUNDS = [
    ("decentralized_sgd", {}),
    ("corrected_gossip", {"method": "extra"}),
    *(("sgp", {"graph": graph}) for graph in GRAPHS),
    ("epidemic", {}),
    ("matcha", {}),
]


@pytest.mark.slow(every=3)
@pytest.mark.parametrize(("kind", "options"), GOSSIP_IN_ROUNDS)
@pytest.mark.parametrize("topology", ["ring", "star"])
def test_clients_that_join_together_start_in_the_same_round(kind, options, topology):
    """A world in which all clients join at 4 s equals one that begins 4 s later."""
    outcomes = []
    for begin in (0.0, 4.0):
        world = make_world(6, topology=topology, outages={k: [Outage(0.0, begin)] for k in range(6)} if begin else None)
        algorithm, rows = run_without_numbers(kind, world, until=begin + 1.001, **options)
        outcomes.append((rows, getattr(algorithm, "weight", None), world.network.bytes_sent))
    (first, weights, sent), (late, late_weights, late_sent) = outcomes
    assert len(first) == 6 * 125
    assert [row[1:] for row in late] == [row[1:] for row in first]
    assert [row[0] - 4.0 for row in late] == pytest.approx([row[0] for row in first])
    assert (late_weights, late_sent) == (weights, sent)
    # Some join later, at the same time: all are in one round from then on, and every client keeps its weight.
    world = make_world(6, topology=topology, outages={k: [Outage(0.0, 0.5)] for k in (2, 3, 5)})
    algorithm, rows = run_without_numbers(kind, world, until=2.0, **options)
    assert len({row[3] for row in rows if row[1] in (2, 3, 5) and row[0] < 0.51}) == 1
    if kind == "sgp":
        assert sum(algorithm.weight) + algorithm.flying == pytest.approx(6.0)
        assert min(algorithm.weight) > 0.2


@every
def test_current_work_counts_up_to_now(kind, options):
    if kind in ("gossip_learning", "multi_walk"):
        pytest.skip("begins to compute when a model comes")
    world = make_world(2, speeds=[10.0, 10.0], outages={0: [Outage(0.02, 0.05)], 1: [Outage(0.01, 0.09, crash=True)]})
    algorithm, rows = run_without_numbers(kind, world, until=0.06, **options)
    assert not rows, "a batch takes 80 ms"
    assert algorithm.times.computed_s(0) == pytest.approx(0.03), "30 ms of it were spent away"
    assert algorithm.times.computed_s(1) == pytest.approx(0.01), "lost, but computed"


@every
def test_a_rows_staleness_is_the_number_of_updates_since_its_read(kind, options):
    if kind in ("async_fl", "fedavg", "fedprox", "fedat", *RELATIVES):
        pytest.skip("clients read no models on their own; tests of async_fl, fedavg and fedat count staleness")
    if kind in ("decoupled_diloco", "streaming_diloco"):
        pytest.skip("each fragment has a version; tests of both count staleness")
    read_at, in_steps = {}, kind in SERVER_STEPS

    def past(client, index=None):  # with halos, each half of the clients has a server
        before = rows[:index]
        return sum(row[1] // 4 == client // 4 for row in before) if kind == "halos" else len(before)

    world = make_world(
        8, topology="complete", jitter=lognormal(0.5), links=ROUGH_LINKS, slowdowns=[Slowdown(5.0, frozenset({3}))]
    )

    def prepare(algorithm):
        def noting(promised):
            return lambda model, client, *rest: (
                read_at.__setitem__(client, world.clock.now),
                promised(model, client, *rest),
            )[1]

        algorithm.batches.gradient = noting(algorithm.batches.gradient)
        algorithm.batches.train = noting(algorithm.batches.train)
        if kind == "area":  # the server sends the next model before it takes the step with the last update
            begin = algorithm.gradient_at
            algorithm.gradient_at = lambda me, content: (sent_at.__setitem__(me, content[1]), begin(me, content))[1]
        elif kind in SERVED:  # what counts is when the server sent the model
            read = algorithm.read
            algorithm.read = lambda client: (
                sent_at.__setitem__(client, algorithm.round_num if in_steps else past(client)),
                read(client),
            )[1]

    rows, sent_at = [], {}
    tape = Tape(NullExecutor(), window=100, **recorded(kind))
    training = make_training([64] * 8)
    algorithm = make_algorithm(kind, world, tape, training, rows.append, **options)
    prepare(algorithm)
    reads = []
    algorithm.on_update = lambda row: (reads.append((read_at | sent_at)[row[1]]), rows.append(row))
    algorithm.start()
    world.clock.run(1.0)
    at = np.array([row[0] for row in rows])
    for index, (read, row) in enumerate(zip(reads, rows, strict=True)):
        between = int(((at[:index] > read) & (at[:index] <= row[0])).sum())
        if kind in ("adpsgd", "a2cid2", "gossip_learning", "asy_sonata", "divshare", "swift", "adsgd"):
            assert row[4] == between
        elif kind in SERVED:
            assert row[4] == (row[3] if in_steps else past(row[1], index)) - read
        else:
            assert row[4] == 0, "synchronous rounds read what they update"
    if kind == "adpsgd":
        slow = np.mean([row[4] for row in rows if row[1] == 3])
        assert slow > 2 * np.mean([row[4] for row in rows if row[1] != 3])


@every
def test_rows_of_updates_equal_what_the_algorithm_did(kind, options):
    if kind == "async_fl":
        pytest.skip("its schedule counts rounds: tests/papers/async_fl/test_algorithm.py")
    schedule = []
    world = make_world(4)
    training = make_training([20, 30, 40, 50], batch_size=10, noise_std=2.5)
    object.__setattr__(training, "step_size", lambda *at: schedule.append(at) or 0.1 / (1 + at[0]))
    _, rows = run_without_numbers(kind, world, training=training, updates=12, **options)
    assert len(rows) == 12
    for row in rows:
        assert row[5] == 10
        assert row[7] == 2.5
    used, scheduled = {row[6] for row in rows}, {0.1 / (1 + at[0]) for at in schedule}
    assert used <= scheduled if kind in LOCAL else used == scheduled, "rounds under way have their steps too"
    for updates, examples, epochs in schedule:
        assert examples == 10 * updates
        assert epochs == pytest.approx(examples / 140)


def test_poisson_batches_have_binomial_sizes_drawn_per_client():
    """Of AD-PSGD; those of the others are the same, as the next test says."""
    sizes = [40, 80, 160, 80]
    training = make_training(sizes, batch_size=20, sampling="poisson")
    _, rows = run_without_numbers("adpsgd", make_world(4), training=training, updates=4000)
    drawn = {k: np.array([row[5] for row in rows if row[1] == k]) for k in range(4)}
    for k, n in enumerate(sizes):
        q, count = 20 / n, len(drawn[k])
        assert drawn[k].max() <= n
        assert drawn[k].mean() == pytest.approx(20, abs=5 * math.sqrt(n * q * (1 - q) / count))
        assert drawn[k].var() == pytest.approx(n * q * (1 - q), rel=5 * math.sqrt(2 / count))
    shortest = min(len(drawn[1]), len(drawn[3]))
    assert abs(np.corrcoef(drawn[1][:shortest], drawn[3][:shortest])[0, 1]) < 5 / math.sqrt(shortest)


def lives(kind, **options):
    """Return the durations of batches, the sizes that were drawn, and those in rows, of each of six clients."""
    durations = {k: [] for k in range(6)}
    world = make_world(6, jitter=lognormal(0.4), speeds=[1, 2, 3, 1, 2, 3], slowdowns=[Slowdown(4.0, random=2)], seed=4)
    original = world.compute.duration

    def duration(client, examples, now):
        durations[client].append(original(client, examples, now))
        return durations[client][-1]

    world.compute.duration = duration
    drawn = {k: [] for k in range(6)}

    def prepare(algorithm):
        draw_size = algorithm.tape.draw_size

        def recorded(client, *of):
            drawn[client].append(draw_size(client, *of))
            return drawn[client][-1]

        algorithm.tape.draw_size = recorded

    training = make_training([64] * 6, sampling="poisson")
    _, rows = run_without_numbers(kind, world, training=training, updates=300, prepare=prepare, **options)
    return durations, drawn, {k: [row[5] for row in rows if row[1] == k] for k in range(6)}


lives_of_adpsgd = functools.cache(functools.partial(lives, "adpsgd"))


@every
def test_batch_sizes_and_devices_do_not_depend_on_the_algorithm(kind, options):
    durations, drawn, sizes = lives(kind, **options)
    expected, expected_drawn, expected_sizes = lives_of_adpsgd()
    for k in range(6):
        shared = min(len(durations[k]), len(expected[k]))
        assert shared > 20
        assert durations[k][:shared] == expected[k][:shared]
        for found, of_adpsgd in ((drawn[k], expected_drawn[k]), (sizes[k], expected_sizes[k])):
            shared = 0 if kind in LOCAL or kind == "privsgp_vr" else min(len(found), len(of_adpsgd))
            assert found[:shared] == of_adpsgd[:shared]
            if issubclass(ALGORITHMS[kind], LateGradients):
                break  # it applies some of its gradients only


@every
def test_an_unknown_option_is_refused(kind, options):
    with pytest.raises(TypeError, match="keyword argument"):
        run_without_numbers(kind, make_world(4), updates=1, speling=1, **options)


@pytest.mark.slow(every=6)
@every
def test_rows_of_the_bank_stay_few_in_a_long_run(kind, options):
    """Memory follows the number of living models, not the length of the run."""
    executor, rows = NullExecutor(), []
    world = make_world(16, jitter=lognormal(0.3), links=LinkModel(latency=constant(1e-3)))
    algorithm = build(kind, world, executor, [64] * 16, window=500, **options)

    def marked():
        algorithm.tape.flush()
        rows.append(executor.rows)
        if len(rows) == 2:
            world.clock.stop()
        return 2_000

    algorithm.marks.call, algorithm.marks.next = marked, 800
    algorithm.start()
    world.clock.run()
    assert executor.gradients >= 2_000
    assert rows[1] <= rows[0] + 160


@pytest.mark.slow(but=["adpsgd-atomic"])
@every
def test_a_client_that_joins_late_takes_no_memory_before(kind, options):
    """No models are kept for a client before it joins."""

    def rows(until):
        executor = NullExecutor()
        world = make_world(4, outages={2: [Outage(0.0, until - 0.1)]}, links=LinkModel(latency=constant(1e-3)))
        algorithm = build(kind, world, executor, [64] * 4, **options)
        algorithm.start()
        world.clock.run(until)
        algorithm.tape.flush()
        return executor.rows

    assert rows(4.0) <= rows(1.0) + 20


@pytest.mark.parametrize("kind", ALONE)
def test_a_single_client_continues_after_every_outage(kind):
    outages = {0: [Outage(0.0, 0.5), Outage(1.0, 2.0), Outage(3.004, 3.5, crash=True)]}
    algorithm, rows = run_without_numbers(kind, make_world(1, outages=outages), until=4.0)
    times_s = np.array([row[0] for row in rows])
    assert [row[1] for row in rows] == [0] * algorithm.updates
    assert algorithm.client_updates == [len(rows)]
    for begin, end in ((0.5, 1.0), (2.0, 3.0), (3.5, 4.0)):
        assert ((times_s > begin) & (times_s <= end + 1e-9)).sum() == pytest.approx((end - begin) / 8e-3, abs=1)
    assert not ((times_s < 0.5) | ((times_s > 1.0 + 1e-9) & (times_s < 2.0))).any(), "nobody was there"
    assert not ((times_s > 3.004 + 1e-9) & (times_s < 3.508 - 1e-9)).any(), "what a crash loses is computed again"
    assert all(row[4] == 0 for row in rows)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'speling'"):
        run_without_numbers(kind, make_world(1), updates=1, speling=1)


def test_algorithms_are_named_by_kind_or_by_module_and_class():
    assert find_algorithm("adpsgd") is ALGORITHMS["adpsgd"]
    assert issubclass(find_algorithm("simfl.algorithms.sync_sgd:SyncSGD"), ALGORITHMS["sync_sgd"])
    with pytest.raises(ScenarioError, match=r"^algorithm\.kind: found 'adpsdg', expected one of .*adpsgd"):
        find_algorithm("adpsdg")
    with pytest.raises(ScenarioError, match=r"cannot load 'nowhere:Thing' \(No module named 'nowhere'\)"):
        find_algorithm("nowhere:Thing")
    with pytest.raises(ScenarioError, match=r"'math:sqrt' is not a subclass of simfl\.algorithms\.Algorithm"):
        find_algorithm("math:sqrt")
    assert all(algorithm.summary for algorithm in ALGORITHMS.values())
