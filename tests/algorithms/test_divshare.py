"""DivShare: an independent loop over its events, its queue over a slow uplink, and its lead over AD-PSGD."""

import numpy as np

from simfl.world.availability import Outage
from simfl.world.links import LinkModel
from tests.helpers import (
    constant,
    exponential,
    lognormal,
    make_training,
    make_world,
    pulled,
    run_without_numbers,
    targets,
)

D, STEP, BATCH_S = 11, 0.1, 8e-3


def test_models_equal_those_of_a_loop_over_the_events():
    """Links are slow and random, so that most fragments come late, overtaken, or twice in a round."""
    count, events = 5, []
    links = LinkModel(latency=exponential(6e-3), bandwidth=20e3, loss=0.1, resend_timeout_s=0.01)
    world = make_world(count, jitter=lognormal(0.4), links=links)

    def watch(algorithm):
        share, receive, average = algorithm._share, algorithm._receive, algorithm._average
        algorithm._share = lambda me: (events.append(("step", me, algorithm._queues[me] + 1)), share(me))[1]
        algorithm._receive = lambda me, source, fragment, number, model: (
            events.append(("came", me, source, fragment, number)),
            receive(me, source, fragment, number, model),
        )[1]
        algorithm._average = lambda me: (events.append(("mean", me)), average(me))[1]

    algorithm, models = pulled("divshare", world, 0.4, size=D, prepare=watch, fragments=4, peers=2)
    of, x, pulls, sent, inbox = (
        algorithm.cut.of(),
        np.zeros((count, D)),
        targets(count, D),
        {},
        [{} for _ in range(count)],
    )
    for event, me, *rest in events:
        if event == "step":
            x[me] = x[me] - STEP * (x[me] - pulls[me])
            sent[me, rest[0]] = x[me].copy()
        elif event == "came":
            source, fragment, number = rest
            if number >= inbox[me].get((source, fragment), -1):
                inbox[me][source, fragment] = number
        else:
            values = x[me].copy()
            for i in range(D):
                came = [sent[source, number][i] for (source, f), number in inbox[me].items() if f == of[i]]
                values[i] = np.mean([x[me, i], *came])
            x[me] = values
            inbox[me].clear()
    assert sum(event == "came" for event, *_ in events) > 300
    np.testing.assert_allclose(models, x, atol=1e-5)


def test_a_slow_uplink_sends_a_part_of_the_queue_in_order_and_forgets_the_rest():
    """Fragments leave one after the other at the uplink's pace, beginning with each step."""
    count, sent = 5, []
    # 11 parameters in 4 fragments of 8 and 12 bytes: 8 ms of a batch are enough for 43 bytes.
    world = make_world(count, links=LinkModel(uplink=5.37e3, latency=constant(1e-3)), on_delivery=sent.append)
    training = make_training([64] * count, d=D)
    algorithm, _ = run_without_numbers("divshare", world, until=0.15, training=training, fragments=4, peers=2)
    sizes = [algorithm.cut.bytes(fragment) for fragment in range(4)]
    assert (sum(sizes), sorted(sizes)) == (4 * D, [8, 12, 12, 12])
    queues = {}
    for me in range(count):
        for step in range(1, 20):
            generator = world.streams.generator("divshare", me, step)
            pairs = [
                (f, k + (k >= me)) for f in range(4) for k in generator.choice(count - 1, 2, replace=False).tolist()
            ]
            queues[me, step] = [pairs[at] for at in generator.permutation(8).tolist()][::-1]
    expected, left = [], [0.0] * count
    for (me, step), queue in queues.items():
        at = max(step * BATCH_S, left[me])  # the last byte of the queue before may still be leaving
        for fragment, target in queue:
            if at >= (step + 1) * BATCH_S - 1e-12:
                break  # the next step has replaced the queue
            at += sizes[fragment] / 5.37e3
            expected.append((round(at + 1e-3, 9), me, target, sizes[fragment]))
        left[me] = at
    found = sorted((round(row[1], 9), row[2], row[3], row[4]) for row in sent)
    assert found == sorted(row for row in expected if row[0] < 0.15)
    assert len(found) < 0.6 * len(queues) * 8, "most of a queue is forgotten"


def test_receivers_and_order_are_uniform():
    count, rounds, times, first = 6, 1500, np.zeros((6, 6)), np.zeros(3)
    world = make_world(count)
    algorithm, _ = run_without_numbers("divshare", world, updates=1, training=make_training([64] * 6, d=D), fragments=3)
    assert algorithm.peers == 3, "the logarithm of 6 to base 2, rounded up"
    queues = []
    algorithm._send_on = lambda me, number, model: queues.append((me, list(algorithm._queue[me])))
    for number in range(rounds):
        algorithm.client_updates = [number] * count
        for me in range(count):
            algorithm._share(me)
    for me, queue in queues:
        assert len(set(queue)) == 9
        times[me] += np.bincount([target for _, target in queue], minlength=count)
        first[queue[-1][0]] += 1
    others, each = times[~np.eye(count, dtype=bool)] / rounds, 9 / 5
    assert np.abs(others - each).max() < 5 * np.sqrt(3 * 0.6 * 0.4 / rounds)
    assert np.abs(first / first.sum() - 1 / 3).max() < 5 * np.sqrt(2 / 9 / first.sum())


def test_one_fragment_to_everyone_over_fast_links_is_the_mean_of_all_models():
    """Messages that take no time come behind the others' batches, which end at once: the next mean has them."""
    begin = targets(4, D)

    def watch(algorithm):
        algorithm.model = [algorithm.tape.constant(row) for row in begin]

    for batches, expected in ((1.5, begin), (2.5, np.tile(begin.mean(axis=0), (4, 1)))):
        options = {"step": 0.0, "prepare": watch, "fragments": 1, "peers": 3}
        _, models = pulled("divshare", make_world(4), batches * BATCH_S, size=D, **options)
        np.testing.assert_allclose(models, expected, atol=1e-6)


def test_an_offline_client_sends_nothing_and_loses_what_is_sent_to_it():
    sent = []
    links = LinkModel(uplink=5e3, resend_timeout_s=0.01)
    outages = {1: [Outage(0.1, 0.3, crash=True)], 2: [Outage(0.1, 0.3)]}
    world = make_world(4, links=links, outages=outages, on_delivery=sent.append)
    algorithm, _ = run_without_numbers("divshare", world, until=0.5, training=make_training([64] * 4, d=D), fragments=4)
    for client in (1, 2):
        assert not [row for row in sent if row[2] == client and 0.11 < row[0] < 0.3]
        assert not [row for row in sent if row[3] == client and 0.1 < row[1] < 0.3]
        assert [row for row in sent if row[2] == client and row[0] > 0.3]
    assert world.network.lost > 0
    assert all(len(inbox) <= 12 for inbox in algorithm._inbox)
