"""Secure sums of servers: event times, dropouts and aborts, against closed forms and plain loops."""

import dataclasses
import math

import numpy as np
import pytest

import simfl
from simfl.accounts.network import network
from simfl.attacks.membership import infer_membership
from simfl.errors import RunError, ScenarioError
from simfl.runs.runner import prepare
from simfl.scenario import from_mapping
from simfl.world.availability import Outage
from simfl.world.cuts import Cut, Cuts
from simfl.world.links import LinkModel
from simfl.world.secure_sums import Bonawitz, LightSecAgg, SecAggPlus, Work
from tests.algorithms.test_fedbuff import ETA, change
from tests.helpers import Lab, constant, make_problem, make_training, make_world, run_algorithm
from tests.helpers import run_without_numbers as run

LATENCY, BATCH_S = 1e-3, 8e-3
WORK = Work(agreement_s=1e-4, mask_rate=1e5, operation_s=1e-6)
PROTOCOLS = {
    "bonawitz": Bonawitz(4, 4, work=WORK),
    "secagg_plus": SecAggPlus(4, 4, work=WORK, near=4, neighbors_threshold=3),
    "lightsecagg": LightSecAgg(4, 4, work=WORK, colluding=2),
}


def watched(kind, protocol, world, *, sizes=None, **options):
    """Run without arithmetic; return the algorithm, its updates, and the rows of its sums."""
    sums = []

    def listen(algorithm):
        algorithm.gathering.on_sum = sums.append

    training = make_training(sizes or [64] * world.num_clients)
    training = dataclasses.replace(training, secure_sum=protocol)
    algorithm, rows = run(kind, world, training=training, prepare=listen, **options)
    return algorithm, rows, sums


def world_of(count=6, links=None, **options):
    return make_world(count, links=links or LinkModel(latency=constant(LATENCY)), **options)


@pytest.mark.parametrize("kind", PROTOCOLS)
def test_a_round_of_fedavg_takes_four_rounds_of_messages(kind):
    protocol, count, rounds = PROTOCOLS[kind], 6, 3
    world = world_of(count)
    algorithm, rows, sums = watched("fedavg", protocol, world, updates=rounds * count)
    keys, sharing, masking, unmasking = protocol.steps(count)
    training_s = BATCH_S + keys.work_s + LATENCY
    server_s = protocol.server_s(range(count), range(count))
    summing_s = 6 * LATENCY + sharing.work_s + masking.work_s + server_s
    began = np.array([training_s + number * (training_s + LATENCY + summing_s) for number in range(rounds)])
    sent = count * (sum(step.up for step in (keys, sharing, masking, unmasking)) + sharing.down + masking.down)
    answers = {"bonawitz": 4, "secagg_plus": 6, "lightsecagg": 4}[kind]
    for number, row in enumerate(sums):
        assert row[1:3] == pytest.approx((began[number], began[number] + summing_s))
        assert row[3:6] == (count, count, count)
        assert row[7] == count
        assert row[8] == sent - (count - row[6]) * unmasking.up
        assert 4 <= row[6] <= answers or kind == "secagg_plus"
    assert [row[0] for row in rows] == pytest.approx(np.repeat(began + summing_s, count))
    models = rounds * count * algorithm.training.model_bytes
    assert world.network.bytes_sent == rounds * sent + models, "answers that come too late are sent, too"
    assert algorithm.times.begun_s(0) == pytest.approx(
        rounds * (BATCH_S + keys.work_s + sharing.work_s + masking.work_s)
    )


def test_slower_clients_work_longer():
    protocol, speeds = PROTOCOLS["bonawitz"], [1.0, 2.0, 3.0, 1.0, 1.0, 1.0]
    _, _, sums = watched("fedavg", protocol, world_of(speeds=speeds), updates=6)
    keys, sharing, masking, _ = protocol.steps(6)
    began = 3 * (BATCH_S + keys.work_s) + LATENCY
    ended = began + 6 * LATENCY + 3 * (sharing.work_s + masking.work_s) + protocol.server_s(range(6), range(6))
    assert sums[0][1:3] == pytest.approx((began, ended))


@pytest.mark.parametrize("dropout", [0.0, 0.12])
@pytest.mark.parametrize("kind", PROTOCOLS)
def test_the_model_is_that_of_the_survivors(kind, dropout):
    """A plain loop in float64 over the clients of each sum."""
    steps, count = [1, 2, 3, 1, 2, 3], 6
    problem, sums = make_problem(count, local=True), []
    with Lab(problem) as lab:
        protocol = dataclasses.replace(PROTOCOLS[kind], size=problem.model.size, dropout=dropout)
        training = dataclasses.replace(lab.training(step_size=ETA), secure_sum=protocol)
        algorithm, rows = run_algorithm(
            "fedavg", world_of(count), lab.tape, training, steps=steps, updates=30,
            prepare=lambda algorithm: setattr(algorithm.gathering, "on_sum", sums.append),
        )  # fmt: skip
        model = lab.tape.values(algorithm.models())[0]
    w, draws = training.initial.astype(float), [0] * count
    members = {number: [row[1] for row in rows if row[3] == number] for number in range(algorithm.rounds)}
    made = iter(members.values())
    for row in sums:
        changes = [change(problem, w, k, draws[k], steps[k]) for k in range(count)]
        draws = [draw + more for draw, more in zip(draws, steps, strict=True)]
        if row[7]:
            there = next(made)
            assert len(there) == row[7] == row[5] >= 4
            total = sum(training.sizes[k] for k in there)
            w = w + sum(training.sizes[k] * changes[k] for k in there) / total
    assert bool(dropout) == any(row[7] < count for row in sums)
    np.testing.assert_allclose(model, w, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "survive"), [("bonawitz", 4), ("lightsecagg", 4)])
def test_sums_are_aborted_as_often_as_the_binomial_law_says(kind, survive):
    protocol, count = dataclasses.replace(PROTOCOLS[kind], dropout=0.1), 6
    algorithm, rows, sums = watched("fedavg", protocol, world_of(count), until=120.0)
    stays, total = 0.9**3, len(sums)
    enough = sum(math.comb(count, n) * stays**n * (1 - stays) ** (count - n) for n in range(survive, count + 1))
    made = sum(row[7] > 0 for row in sums)
    assert total > 1000
    assert made / total == pytest.approx(enough, abs=5 * math.sqrt(enough * (1 - enough) / total))
    masked = np.array([row[5] for row in sums])
    assert masked.mean() < 0.9**2 * count, "with too few clients, no round is begun"
    assert len(rows) == sum(row[7] for row in sums) == algorithm.updates
    assert sum(algorithm.client_dropped) == sum(count - row[7] for row in sums)
    assert algorithm.rounds == made


def test_clients_that_crash_are_in_no_sum_and_a_sum_of_too_few_is_aborted():
    protocol = PROTOCOLS["bonawitz"]
    keys, sharing, _, _ = protocol.steps(6)
    began = BATCH_S + keys.work_s + LATENCY
    computing = began + LATENCY + 0.5 * sharing.work_s
    for number, dropped in enumerate(([1, 3], [1, 3, 4])):
        outages = {k: [Outage(computing, computing + 1.0, crash=True)] for k in dropped}
        algorithm, rows, sums = watched("fedavg", protocol, world_of(outages=outages), until=1.5)
        first = sums[0]
        assert first[3] == 6
        assert first[4] == 6 - len(dropped)
        if number:
            assert first[7] == 0
            assert all(row[0] > computing + 1.0 for row in rows), "three are not enough"
            assert sums[1][3:8] == (6, 6, 6, 4, 6), "they take part again"
            assert sum(algorithm.client_dropped) == 6
        else:
            assert {row[1] for row in rows if row[3] == 0} == {0, 2, 4, 5}
            server_s = protocol.server_s(range(4), range(4))
            ended = computing + 1.0 + 4 * LATENCY + protocol.steps(6)[2].work_s + server_s
            assert first[2] == pytest.approx(ended), "the server knows of a crash when the client is back"


def test_a_client_that_is_cut_off_drops_out_after_the_timeout_of_its_link():
    protocol = PROTOCOLS["bonawitz"]
    keys, sharing, masking, _ = protocol.steps(6)
    began = BATCH_S + keys.work_s + LATENCY
    cut = Cut((frozenset({0}),), began - 0.5 * LATENCY, began + 2.0)
    # The keys of client 0 have arrived; the message with those of others does not.
    links = LinkModel(latency=constant(LATENCY), resend_timeout_s=0.05, cuts=Cuts([cut]))
    links = dataclasses.replace(links, cuts=Cuts([dataclasses.replace(cut, start_s=began + 0.5 * LATENCY)]))
    _, rows, sums = watched("fedavg", protocol, world_of(links=links), updates=5)
    assert sums[0][4] == 5
    assert 0 not in {row[1] for row in rows}
    waited = sums[0][2] - sums[0][1] - 4 * LATENCY - masking.work_s - protocol.server_s(range(5), range(5))
    assert waited == pytest.approx(0.05 + 0.5 * LATENCY)
    assert sharing.work_s < 0.05


def test_after_the_timeout_a_round_goes_on_without_slow_clients():
    protocol = dataclasses.replace(PROTOCOLS["bonawitz"], timeout_s=0.02)
    speeds = [1.0, 1.0, 1.0, 1.0, 1.0, 400.0]
    _keys, sharing, masking, _ = protocol.steps(6)
    assert 2 * LATENCY + sharing.work_s < 0.02 < 400 * sharing.work_s
    world = world_of(speeds=speeds)
    _, rows, sums = watched("fedavg", protocol, world, until=40.0)
    assert sums[0][3:6] == (6, 5, 5)
    ended = sums[0][1] + 0.02 + 4 * LATENCY + masking.work_s + protocol.server_s(range(5), range(5))
    assert sums[0][2] == pytest.approx(ended)
    # The slow client is still busy with the shares of the first round, and is not chosen.
    assert 5 not in {row[1] for row in rows}
    assert sums[1][3] == 5


def test_a_run_ends_when_too_few_clients_are_left():
    outages = {k: [Outage(0.5 + 0.1 * k, math.inf, crash=True)] for k in range(3)}
    for kind, options in (("fedavg", {}), ("fedbuff", {"buffer_size": 5, "after_update": "wait"})):
        algorithm, rows, sums = watched(kind, PROTOCOLS["lightsecagg"], world_of(outages=outages), **options)
        assert algorithm.ending == "fewer than 4 clients are left for a secure sum"
        assert 0.5 < rows[-1][0] < algorithm.clock.now < 1.0
        assert all(row[7] in (0, *range(4, 7)) for row in sums)


def test_a_run_without_any_sum_ends_with_an_error():
    protocol = dataclasses.replace(PROTOCOLS["bonawitz"], threshold=6, dropout=0.9)
    with pytest.raises(RunError, match=r"algorithm\.secure_sum\.threshold: 1000 sums in a row had fewer than 6 surviv"):
        watched("fedavg", protocol, world_of(), updates=6)


# -- buffers -------------------------------------------------------------------------------------


def test_a_buffer_is_summed_when_enough_clients_have_sent_their_pieces():
    """Six equal clients fill a buffer of five; the sixth update is taken after the sum."""
    protocol = PROTOCOLS["lightsecagg"]
    world = world_of(6)
    algorithm, rows, sums = watched(
        "fedbuff", protocol, world, until=0.03, buffer_size=5, after_update="wait", staleness_exponent=0.0
    )
    encoding_s = protocol.encoding_s(6)
    came = BATCH_S + encoding_s + LATENCY
    ended = came + 2 * LATENCY + protocol.server_s(range(6), range(5))
    assert sums[0][1:3] == pytest.approx((came, ended))
    assert sums[0][3:8] == (5, 6, 5, 4, 5)
    assert sums[0][8] == 5 * 2 * 5 * protocol.piece_bytes + 5 * protocol.vector_bytes + 4 * protocol.piece_bytes
    assert [row[0] for row in rows[:5]] == pytest.approx([ended] * 5)
    assert len(algorithm.buffer) == 1


def test_pieces_that_come_late_delay_a_sum():
    """Clients with slow downlinks get pieces after the updates; the server waits for t of them."""
    protocol = PROTOCOLS["lightsecagg"]
    slow = LinkModel(latency=constant(LATENCY), downlink=protocol.piece_bytes / 0.01)
    _, _, sums = watched("fedbuff", protocol, world_of(6, links=slow), until=1.0, buffer_size=6, after_update="wait")
    assert sums[0][2] - sums[0][1] > 5 * 0.01 * 0.9
    assert sums[0][7] == 6


def test_an_aborted_buffer_is_dropped_and_its_clients_go_on():
    protocol = dataclasses.replace(PROTOCOLS["lightsecagg"], dropout=0.5)
    algorithm, rows, sums = watched("fedbuff", protocol, world_of(6), until=8.0, buffer_size=5, after_update="wait")
    made = [row for row in sums if row[7]]
    assert 0.2 < len(made) / len(sums) < 0.5, "at least 4 of 6 answer"
    assert len(rows) == sum(row[7] for row in made)
    assert sum(algorithm.client_dropped) == 5 * (len(sums) - len(made))
    assert len(algorithm.gathering._holders) <= 12


# -- scenarios -----------------------------------------------------------------------------------


def scenario(**changes):
    sections = {
        "data": {"set": "digits"},
        "clients": {"count": 10, "speed": {"kind": "lognormal", "sigma": 0.4}},
        "links": {"latency": "2 ms", "uplink": "1 MB/s"},
        "algorithm": {
            "kind": "fedavg", "fraction": 0.6, "weighting": "uniform", "local_steps": 2, "batch_size": 16,
            "step_size": 0.1, "secure_sum": {"kind": "secagg_plus", "threshold": 4, "neighbors": 4, "dropout": 0.05},
        },
        "stop": {"updates": 100},
        "evaluate": {"every": {"updates": 20}},
    }  # fmt: skip
    for section, values in changes.items():
        sections[section] = {**sections.get(section, {}), **values} if isinstance(values, dict) else values
    return from_mapping(sections)


@pytest.mark.usefixtures("without_numbers")
def test_tables_have_a_row_for_each_sum(tmp_path):
    run = simfl.run(scenario(), out=tmp_path)
    sums = run.secure_sums
    assert list(sums["sum"]) == list(range(len(sums)))
    assert (sums["time_s"] > sums["began_s"]).all()
    assert (sums[["keys", "shares", "masked"]].diff(axis=1).iloc[:, 1:] <= 0).all().all()
    assert set(sums["members"]) - {0} <= set(range(4, 7))
    with pytest.raises(simfl.errors.SimflError, match=r"secure_sum"):
        _ = simfl.run(scenario(algorithm={"secure_sum": None}), out=tmp_path).secure_sums


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ({"kind": "fedasync"}, "algorithm.secure_sum: expected null with 'fedasync', found 'bonawitz'"),
        ({"kind": "scaffold"}, "algorithm.secure_sum: expected null with 'scaffold', found 'bonawitz'"),
        ({"kind": "fedbuff", "after_update": "wait"}, "algorithm.secure_sum: expected lightsecagg with 'fedbuff'"),
        ({"kind": "fedbuff", "secure_sum": "lightsecagg"}, "algorithm.after_update: expected wait with secure_sum"),
        ({"secure_sum": {"threshold": 7}, "fraction": 0.6}, "algorithm.secure_sum.threshold: expected at most 6"),
        ({"secure_sum": {"kind": "lightsecagg", "threshold": 4, "colluding": 4}}, "expected below the threshold, 4"),
        ({"secure_sum": {"kind": "lightsecagg", "threshold": 1}}, "threshold: expected at least 2 with lightsecagg"),
        ({"secure_sum": {"kind": "secagg_plus", "neighbors": 5}}, "neighbors: expected an even number, found 5"),
        ({"secure_sum": {"kind": "secagg_plus", "neighbors": 4, "neighbors_threshold": 5}}, "expected at most neighb"),
    ],
)  # fmt: skip
def test_what_cannot_be_summed_securely_is_refused_in_one_line(algorithm, message):
    given = {"data": "digits", "clients": {"count": 10}, "stop": {"updates": 10}}
    with pytest.raises(ScenarioError) as caught:
        from_mapping({**given, "algorithm": {"kind": "fedavg", "secure_sum": "bonawitz", **algorithm}})
    assert message in str(caught.value)


def test_rules_compression_networks_and_attacks_are_refused():
    with pytest.raises(ScenarioError, match=r"aggregation: expected null with secure_sum, found 'median'"):
        scenario(aggregation={"kind": "median"})
    with pytest.raises(ScenarioError, match=r"compression: expected null with secure_sum, found 'sign'"):
        scenario(compression={"kind": "sign"})
    for look in (network, infer_membership):
        with pytest.raises(ScenarioError, match=r"algorithm\.secure_sum: expected null, found a protocol"):
            look(scenario())


def test_the_default_threshold_is_two_thirds_and_one_more():
    setup = prepare(scenario(algorithm={"secure_sum": "bonawitz"}))
    assert setup.training.secure_sum.threshold == 5, "of 6"
    assert setup.training.secure_sum.size == setup.dimension
