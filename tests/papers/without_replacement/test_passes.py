"""Accounting for disjoint batches against closed forms."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from simfl.accounts.plans import classic_std
from simfl.papers.without_replacement.passes import OnePassClaim, OnePassLedger, PassTally
from simfl.privacy.gaussian import analytic_std, gaussian_epsilon
from simfl.privacy.releases import Releases
from simfl.privacy.shuffled import KnownUses, planned_uses
from simfl.privacy.terms import Terms

DELTA = 60000.0**-2
LEVEL = analytic_std(1.0, DELTA, 2.0)


def make_ledger(*, sizes=(100, 100, 60), tasks=10, holders=1, visits=1, refusal=None, level=LEVEL, batch_size=10):
    terms = Terms("one_pass_gaussian", DELTA, 1.0, "replace_one", refusal=refusal)
    claim = OnePassClaim(1.0, DELTA, "analytic", "per_task", visits)
    return OnePassLedger(terms, np.array(sizes), batch_size, level, tasks, holders, claim)


def releases(*used, sizes=(100, 100, 60)):
    """Releases: `used` has, for each client, the number of batches of 10 of each task."""
    sizes = np.resize(sizes, len(used)).tolist()
    passes = [KnownUses(planned_uses(n, {10: count})) for n, own in zip(sizes, used, strict=True) for count in own]
    return Releases([sum(own) for own in used], passes=passes)


def test_one_pass_of_one_task_is_one_release():
    ledger = make_ledger(tasks=1)
    done = releases([10], [3], [0])
    assert ledger.passes(done).tolist() == [1, 1, 0]
    assert ledger.epsilon(done) == pytest.approx([1.0, 1.0, 0.0], rel=1e-6)
    assert ledger.largest(done) == pytest.approx(1.0, rel=1e-6)


def test_tasks_on_the_same_data_add_up_to_the_papers_untold_epsilon():
    """Ten tasks at epsilon 1 each cost exactly 2.852; twenty nodes that hold the same record cost 4.18."""
    done = releases([10] * 10, [10] * 10, [6] * 10)
    classic = classic_std(1.0, DELTA, 2.0, beyond=True)
    assert make_ledger(level=classic).epsilon(done) == pytest.approx(2.852, abs=1e-3)
    assert make_ledger(tasks=1, holders=20, sizes=[100] * 20, level=classic).epsilon(
        releases(*[[10]] * 20, sizes=[100])
    ) == pytest.approx(4.18, abs=0.1)
    partly = releases([1, 2, 0, 0, 0, 0, 0, 0, 0, 0], [0] * 10, [1] * 10)
    assert make_ledger().passes(partly).tolist() == [2, 0, 10]


def test_an_example_at_several_clients_counts_with_the_releases_of_those_that_made_most():
    ledger = make_ledger(holders=2)
    done = releases([10] * 10, [1] * 3 + [0] * 7, [6] * 5 + [0] * 5)
    assert ledger.passes(done).tolist() == [10, 3, 5]
    assert ledger.epsilon(done) == pytest.approx([gaussian_epsilon(DELTA, 2 * math.sqrt(15) / LEVEL)] * 3)


def test_visits_are_passes_and_batches_that_straddle_two_passes_count_four_times_as_much():
    ledger = make_ledger(tasks=1, visits=5, sizes=[100, 95])
    done = releases([50], [47], sizes=[100, 95])
    # 47 batches of 10 over 95: five passes, of which two pairs are joined by a batch that may hold an example twice.
    assert ledger.passes(done).tolist() == [5, 5 + 2 * 2]
    assert ledger.epsilon(done)[0] == pytest.approx(gaussian_epsilon(DELTA, 2 * math.sqrt(5) / LEVEL))


def test_a_refusal_has_no_epsilon_and_states_its_reason_and_the_claim():
    ledger = make_ledger(refusal="somebody looked")
    done = releases([10] * 10, [10] * 10, [6] * 10)
    assert np.isnan(ledger.final_epsilon(done)).all()
    assert math.isnan(ledger.largest(done))
    assert ledger.statement == (
        "not certified: somebody looked; the noise is made for (1, 2.77778e-10) for each task and client, by analytic "
        "calibration and parallel composition of disjoint batches"
    )


def test_the_statement_has_the_total_epsilon():
    assert make_ledger(visits=5).statement == (
        "(epsilon, delta = 2.77778e-10) per example, neighbors by replacing one example, all that was sent; exact for "
        "10 tasks on the same data and an example at 1 client at most, used 5 times: one pass of disjoint batches is "
        f"one release; {gaussian_epsilon(DELTA, 2 * math.sqrt(50) / LEVEL):.4g} in the end, "
        f"{gaussian_epsilon(DELTA, 2 * math.sqrt(5) / LEVEL):.4g} for one task and client; the noise is made for "
        "(1, 2.77778e-10) for each task and client, by analytic calibration and 5 visits added up; outside of it: "
        "evaluations, statistics of the data taken before training, the sizes that batches really had"
    )


def test_without_noise_epsilon_is_infinite():
    assert make_ledger(level=0.0, tasks=1).epsilon(releases([1], [0], [1])).tolist() == [
        math.inf,
        0.0,
        math.inf,
    ]


def test_it_needs_the_count_of_passes():
    with pytest.raises(TypeError, match="counts passes"):
        make_ledger().epsilon(Releases([1, 2, 3]))


@dataclass
class Told:
    """A promise as a tally sees it; its client is the pair of node and task."""

    client: int = 0
    draw: int = 0
    size: int = 10
    noise_scale: float = LEVEL
    own_norm: float | None = None
    expected: int = 0
    released: bool = False

    @property
    def examples(self):
        return self.size

    @property
    def begin(self):
        return self.draw, 0


def make_tally():
    return PassTally(make_ledger(tasks=2), [LEVEL] * 3, 1.0, now=lambda: 2.0)


def test_batches_are_counted_for_each_task_and_releases_for_each_client():
    tally = make_tally()
    for pair, draw in ((0, 0), (1, 0), (1, 1), (4, 0)):
        tally.count(Told(client=pair, draw=draw))
    kept = Told(client=5, noise_scale=0.0)
    tally.hold(kept)
    kept.size = -1  # as the tape leaves it when it is consumed
    assert used(tally) == [1, 1, 0, 0, 1, 0], "what is kept counts when it is done"
    tally.send(kept)
    assert used(tally) == [1, 1, 0, 0, 1, 1]
    assert tally.counts == [3, 0, 1], "a step without noise is no release of its own"
    tally.send(Told(client=5, noise_scale=0.0, released=True))
    tally.count(Told(client=5, draw=6))
    assert (used(tally)[5], tally.refusal) == (2, None), "the seventh batch of 10 of 60 begins another pass"


def used(tally):
    """The largest number of releases of each pair that contain an example."""
    return [passes.cost for passes in tally.passes]


@pytest.mark.parametrize(
    "promise", [Told(noise_scale=0.9 * LEVEL), Told(noise_scale=0.0), Told(size=9), Told(own_norm=1.0)]
)
def test_a_batch_with_less_noise_or_of_another_kind_is_not_certified(promise):
    tally = make_tally()
    tally.count(promise)
    assert tally.refusal == (
        "client 0 releases mini-batch 0 otherwise than passes over its data do (at 2 s of virtual time)"
    )


def test_a_release_of_a_kept_batch_counts_with_any_noise():
    tally = PassTally(make_ledger(tasks=2), [0.01] * 3, 1.0)
    published = Told(client=2, noise_scale=0.01)
    tally.hold(published)
    tally.send(published)
    assert (tally.counts, used(tally), tally.refusal) == ([0, 1, 0], [0, 0, 1, 0, 0, 0], None)


def test_all_data_used_up_is_every_task_at_every_holder():
    assert make_ledger(tasks=10, holders=3).most == 30
    assert make_ledger(tasks=10, holders=3).epsilon_of_passes(30) == pytest.approx(
        gaussian_epsilon(DELTA, 2.0 * math.sqrt(30) / LEVEL)
    )


def test_more_noise_than_planned_is_welcome():
    tally = make_tally()
    tally.count(Told(noise_scale=3.0 * LEVEL))
    assert tally.refusal is None


def test_a_batch_that_is_kept_and_never_counted_is_not_certified():
    tally = make_tally()
    tally.hold(Told(client=3, noise_scale=0.0))
    tally.hold(Told(client=3, draw=1, noise_scale=0.0))
    assert tally.refusal == "client 1 used a batch of task 1 that was not counted (at 2 s of virtual time)"


def test_an_own_account_has_the_passes_that_the_tape_saw():
    tally = make_tally()
    tally.count(Told(client=2))
    assert tally.compare(tally).refusal is None
    own = tally.compare(Releases([0, 2, 0]))
    assert (own.refusal, own.passes) == (None, tally.passes)
    refused = tally.compare(Releases([1, 0, 0])).refusal
    assert refused is not None
    assert "expected 1 releases of client 1" in refused
