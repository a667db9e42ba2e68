"""Each selector chooses as its source says."""

import math
import random
from collections import Counter

import numpy as np
import pytest

from simfl.selection.base import Clients
from simfl.selection.selectors import SELECTORS
from simfl.selection.selectors.data_size import DataSize
from simfl.selection.selectors.deadline import Deadline
from simfl.selection.selectors.fair import Fair
from simfl.selection.selectors.fastest import Fastest
from simfl.selection.selectors.oort import Oort
from simfl.selection.selectors.power_of_choice import PowerOfChoice
from simfl.selection.selectors.round_robin import RoundRobin
from simfl.selection.selectors.tiers import Tiers


def clients(selector, count=8, seed=0, **known):
    """Clients of which client k needs 8 - k seconds and has 1 + k examples."""
    given = {"examples": range(1, count + 1), "trained": range(1, count + 1), "memory": selector.begin(), **known}
    return Clients(random.Random(seed).random, lambda k: float(count - k), [0] * count, **given)


def choices(selector, known, size, times, candidates=range(8)):
    made = []
    for _ in range(times):
        known.number += 1
        made.append(selector.choose(list(candidates), size, known))
        for k in made[-1]:
            known.last[k] = known.number
    return made


@pytest.mark.parametrize("kind", SELECTORS)
def test_a_selector_returns_different_candidates_and_repeats_itself(kind):
    selector = SELECTORS[kind](within=3.0) if kind == "deadline" else SELECTORS[kind]()
    losses = {k: [float(k), 1.0] for k in range(0, 8, 2)}
    runs = []
    for _ in range(2):
        known, generator = clients(selector, losses=losses), random.Random(1)
        known.last[::2] = [1] * 4
        run = []
        for number in range(1, 41):
            known.number, candidates = number, sorted(generator.sample(range(8), generator.randint(1, 8)))
            size = generator.randint(1, len(candidates))
            run.append(selector.choose(candidates, size, known))
            assert 1 <= len(run[-1]) <= size
            assert len({*run[-1]} & {*candidates}) == len(run[-1])
            for k in run[-1]:
                known.last[k] = number
        runs.append(run)
    assert runs[0] == runs[1]


def test_chances_by_examples_are_those_of_draws_one_by_one():
    known = clients(DataSize(), 3)
    pairs = Counter(tuple(sorted(DataSize().choose(range(3), 2, known))) for _ in range(4000))
    n = (1, 2, 3)  # P(i, j) = n_i/6 n_j/(6 - n_i) + n_j/6 n_i/(6 - n_j)
    for (i, j), count in pairs.items():
        chance = n[i] * n[j] / 6 * (1 / (6 - n[i]) + 1 / (6 - n[j]))
        assert count / 4000 == pytest.approx(chance, abs=4 * math.sqrt(chance * (1 - chance) / 4000))


def test_selectors_of_times_and_turns():
    assert Fastest().choose(range(8), 3, clients(Fastest())) == [7, 6, 5]
    assert choices(RoundRobin(), clients(RoundRobin()), 3, 3) == [[0, 1, 2], [3, 4, 5], [6, 7, 0]]
    within = Deadline(within=3.0)
    assert {*range(5, 8)} == {k for one in choices(within, clients(within), 2, 20) for k in one}
    assert within.choose(range(4), 2, clients(within)) == [3], "the fastest, where no client is in time"
    fair = choices(Fair(), clients(Fair()), 2, 8)
    assert all(sorted(k for one in fair[at : at + 4] for k in one) == [*range(8)] for at in (0, 4))
    tiers = choices(Tiers(tiers=4), clients(Tiers()), 2, 200)
    assert {tuple(sorted(one)) for one in tiers} == {(0, 1), (2, 3), (4, 5), (6, 7)}
    assert Tiers(tiers=4).choose(range(8), 5, clients(Tiers()))[2:] == [], "no more than a tier has"


def test_power_of_choice_takes_the_largest_losses_of_its_candidates():
    losses = {k: [float(k), k + 1.0] for k in range(1, 8)}
    assert PowerOfChoice(candidates=8).choose(range(8), 3, clients(PowerOfChoice(), losses=losses)) == [0, 7, 6]
    few, many = PowerOfChoice(candidates=2), clients(PowerOfChoice(), losses=losses | {0: [0.5]})
    drawn = Counter(k for one in choices(few, many, 2, 600) for k in one)
    assert len(drawn) == 8
    assert drawn[7] > 3 * drawn[0], "d = m: draws by the numbers of examples"


def oort_scores(known, candidates, prefer, penalty=2.0, clip=0.9):
    """The scores of the paper's Algorithm 1 in NumPy, with the normalization of the authors' program."""
    used, losses = np.array(known.trained, dtype=float), known.losses
    utility = np.array([used[k] * math.sqrt(np.mean(np.square(losses.get(k, [1.0])))) for k in candidates])
    ordered = np.sort(utility)
    clipped = np.minimum(utility, ordered[min(int(len(ordered) * clip), len(ordered) - 1)])
    scores = (clipped - 0.999 * ordered[0]) / (ordered[-1] - 0.999 * ordered[0])
    for place, k in enumerate(candidates):
        if k in losses:
            late = prefer / known.seconds(k)
            scores[place] += math.sqrt(0.1 * math.log(known.number) / known.last[k])
            scores[place] *= late**penalty if late < 1.0 else 1.0
    return {k: score for k, score in zip(candidates, scores, strict=True) if k in losses}


def test_oort_scores_are_those_of_its_paper():
    losses = {k: [0.3 + k, 1.0 + k / 2] for k in (1, 2, 4, 6)}
    known = clients(Oort(), losses=losses, number=7)
    known.last[:] = [0, 2, 6, 0, 5, 0, 1, 0]
    candidates = [0, 1, 2, 4, 5, 6]
    penalty = Oort()._penalties(candidates, known, known.memory)
    prefer = sorted(map(known.seconds, range(8)))[2]  # 0.3 of 8
    assert Oort().scores(candidates, known, penalty) == pytest.approx(oort_scores(known, candidates, prefer))


def test_oort_explores_less_and_less_and_then_all_are_known():
    selector, losses = Oort(exploration_min=0.2), {}
    known, new = clients(selector, 200, losses=losses), []
    for number in range(1, 61):
        known.number = number
        cohort = selector.choose(range(200), 10, known)
        assert len(cohort) == 10
        new.append(len([k for k in cohort if k not in losses]))
        for k in cohort:
            losses[k], known.last[k] = [1.0 + k % 7], number
    share = [int(10 * max(0.9 * 0.98**n, 0.2)) for n in range(1, 60)]
    unknown = 200 - np.cumsum(new)[:-1]
    assert new[0] == 10
    assert new[1:] == [min(*pair) for pair in zip(share, unknown, strict=True)]


def test_oort_relaxes_the_time_when_utilities_stay():
    selector, losses = Oort(pacer_step=3, exploration=0.0, exploration_min=0.0), {k: [1.0] for k in range(8)}
    known = clients(selector, losses=losses)
    known.last[:] = [1] * 8
    thresholds = []
    for number in range(2, 13):
        known.number = number
        selector.choose(range(8), 8, known)
        thresholds.append(round(known.memory.threshold, 9))
    assert thresholds == [0.3] * 7 + [0.35] * 3 + [0.4], "in choices 9 and 12: before 6 there are not 2 * 3 sums"
