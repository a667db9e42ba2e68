"""FedAT: models and times equal an event loop in NumPy; tiers are those of the measured times; one tier is FedAvg."""

import heapq

import numpy as np

from tests.algorithms.test_fedavg import change, numbers
from tests.helpers import make_problem, make_world

SPEEDS = [7.0, 1.0, 2.53, 1.0, 3.0, 7.31]
TIER_OF = [2, 0, 1, 0, 1, 2]
SIZES = [40, 60, 80, 50, 70, 60]
UPDATES = 60


def rounds_by_hand(problem, w, steps, tier_of):
    """Yield (time, members, staleness, model) of each round of a tier, with constant times and free messages, f64."""
    count = max(tier_of) + 1
    members = [[k for k, tier in enumerate(tier_of) if tier == m] for m in range(count)]
    lasts = [max(steps[k] * 8e-3 * SPEEDS[k] for k in clients) for clients in members]
    models, rounds, draws = [w] * count, [0] * count, [0] * len(tier_of)
    ends = [(last, m) for m, last in enumerate(lasts)]
    began = dict.fromkeys(range(count), (w, 0))
    version = 0
    while True:
        time, m = heapq.heappop(ends)
        start, read = began[m]
        total = sum(SIZES[k] for k in members[m])
        models[m] = start.copy()
        for k in members[m]:
            models[m] += SIZES[k] / total * change(problem, start, k, draws[k], steps[k], 0.1)
            draws[k] += steps[k]
        rounds[m] += 1
        w = sum(rounds[count - 1 - one] / sum(rounds) * models[one] for one in range(count))
        yield time, members[m], version - read, w
        version += 1
        began[m] = w, version
        heapq.heappush(ends, (time + lasts[m], m))


def test_models_and_times_equal_an_event_loop_by_hand():
    problem = make_problem(6, sizes=SIZES, local=True, proximal=0.1)
    steps = [1, 2, 3, 3, 2, 1]
    options = {"steps": steps, "tier_of": TIER_OF}
    final, initial, algorithm, rows = numbers("fedat", problem, make_world(6, speeds=SPEEDS), UPDATES, **options)
    expected = rounds_by_hand(problem, initial, steps, TIER_OF)
    for number in range(algorithm.round_num):
        time, members, staleness, w = next(expected)
        made = [row for row in rows if row[3] == number]
        assert [row[1] for row in made] == members
        np.testing.assert_allclose([row[0] for row in made], time)
        assert {row[4] for row in made} == {staleness}
    assert len({tuple(row[4] for row in rows if row[1] == k) for k in range(6)}) == 3, "tiers have unlike staleness"
    assert np.abs(final - initial).max() > 0.1, "the run went somewhere"
    np.testing.assert_allclose(final, w, rtol=0, atol=1e-5)
