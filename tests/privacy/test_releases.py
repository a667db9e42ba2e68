"""Reports of a tape become releases of the right kinds, or the reason why nothing is certified."""

import math
import re
from dataclasses import dataclass

import numpy as np
import pytest

from simfl.privacy.ledger import Ledger
from simfl.privacy.releases import Releases, Tally
from simfl.privacy.terms import Terms

BATCH, SCALE = 10, 2.0
SIZES = np.array([100, 60])


@dataclass
class Told:
    """A promise as a tally sees it."""

    client: int = 0
    draw: int = 0
    examples: int = BATCH
    expected: int = 0
    noise_scale: float = SCALE
    own_norm: float | None = None
    released: bool = False

    @property
    def size(self):
        return self.examples

    @property
    def begin(self):
        return self.draw, 0


def make_tally(*, sampling="shuffle", pure=False, unit="example", by_server=False, levels=(2.0, 2.0), rounds=False):
    terms = Terms("gaussian", 1e-5, 1.0, "replace_one", unit=unit, by_server=by_server)
    ledger = Ledger(terms, SIZES, BATCH, sampling, levels, pure)
    return Tally(ledger, [SCALE] * 2, 1.0, rounds, lambda: 1.5)


def test_a_promise_counts_once_when_sent_or_consumed():
    tally, promise = make_tally(), Told(client=1)
    tally.send(promise)
    tally.send(promise)
    assert promise.released
    assert (tally.counts, tally.others, tally.refusal) == ([0, 1], {}, None)


@pytest.mark.parametrize(("promise", "options", "kind", "dearer"), [
    (Told(noise_scale=1.0), {}, (BATCH, 1.0), True),
    (Told(noise_scale=4.0), {}, (BATCH, 4.0), False),
    (Told(noise_scale=1.0), {"pure": True}, (BATCH, 4.0), True),
    (Told(noise_scale=4.0), {"pure": True}, (BATCH, 1.0), False),
    (Told(own_norm=0.5), {}, (BATCH, 4.0), False),
    (Told(own_norm=2.0), {}, (BATCH, 1.0), True),
    (Told(examples=20), {}, (20, 2.0), True),
    (Told(examples=5), {}, (5, 2.0), False),
    (Told(examples=13, expected=5), {"sampling": "poisson"}, (5, 2.0), False),
    (Told(examples=5), {"unit": "client"}, (5, 4.0), False),
])  # fmt: skip
def test_other_releases_have_kinds_of_their_own(promise, options, kind, dearer):
    tally = make_tally(**options)
    tally.count(promise)
    assert tally.refusal is None
    assert tally.counts == [0, 0]
    assert tally.others == {0: {kind: 1}}
    assert tally.dearer == ({0} if dearer else set())


def test_a_poisson_batch_is_nominal_by_its_expected_size():
    tally = make_tally(sampling="poisson")
    for drawn in (0, 7, 13):
        tally.count(Told(examples=drawn, expected=BATCH))
    assert (tally.counts, tally.refusal) == ([3, 0], None)


def test_a_round_in_several_operations_counts_once():
    """Nothing is certified of rounds whose gradients are clipped one by one; they are counted nevertheless."""
    tally = make_tally(rounds=True)
    tally.count(Told(noise_scale=0.0))
    tally.count(Told(noise_scale=0.5, expected=30))
    assert (tally.counts, tally.others, tally.refusal) == ([0, 0], {0: {(30, 2.0): 1}}, None)
    whole = make_tally(rounds=True, unit="client")
    whole.count(Told(noise_scale=0.5))
    assert whole.others == {0: {(BATCH, 0.5): 1}}, "a clipped update keeps its noise"
    whole.count(Told(noise_scale=0.0))
    assert "without noise" in str(whole.refusal)


def test_rounding_of_a_scale_does_not_make_a_kind():
    tally = make_tally()
    tally.count(Told(noise_scale=SCALE * (1 + 1e-12)))
    assert (tally.counts, tally.others) == ([1, 0], {})


@pytest.mark.parametrize(("tell", "options", "reason"), [
    (lambda t: t.count(Told(noise_scale=0.0)), {}, r"client 0 releases mini-batch 0 without noise \(at 1\.5 s"),
    (lambda t: t.count(Told(noise_scale=0.0)), {"pure": True}, "client 0 releases mini-batch 0 without noise"),
    (lambda t: t.count(Told(own_norm=math.inf)), {"pure": True}, "client 0 releases mini-batch 0 without clipping"),
    (lambda t: t.count(Told(examples=7)), {"sampling": "poisson"}, "whose sampling rate is unknown"),
    (lambda t: t.count(Told(own_norm=1e10)), {}, "client 0 releases mini-batch 0 without clipping"),
    (lambda t: (t.name(Told(draw=3)), t.name(Told(draw=3))), {}, "draws the noise of mini-batch 3 after"),
    (lambda t: (t.name(Told(draw=3)), t.name(Told(draw=2))), {}, "draws the noise of mini-batch 2 after"),
    (lambda t: t.look(1), {}, "reads losses of client 1"),
    (lambda t: t.hold(Told(client=1)), {}, "client 1 keeps the result of a gradient until later"),
    (lambda t: t.count_sum([(1.0, Told(noise_scale=0.0))], 2.0), {}, "the server adds the noise"),
    (lambda t: t.count_sum([(1.0, Told(noise_scale=0.0))], 0.0), {"by_server": True, "unit": "client"},
     "the sum of updates that holds client 0's carries no noise"),
])  # fmt: skip
def test_the_first_reason_against_a_certificate_is_kept(tell, options, reason):
    tally = make_tally(**options)
    tell(tally)
    first = tally.refusal
    assert first is not None
    assert re.search(reason, first)
    tally.look(0)
    assert tally.refusal == first


def test_numbers_of_noise_grow_for_each_client_separately():
    tally = make_tally()
    for client, draw in ((0, 0), (1, 0), (0, 1), (1, 5), (0, 2)):
        tally.name(Told(client=client, draw=draw))
    assert tally.refusal is None


def test_a_servers_noise_on_m_updates_of_one_client_counts_m_squared():
    tally = make_tally(by_server=True, unit="client")
    updates = [Told(client=client, noise_scale=0.0) for client in (0, 1, 0, 0)]
    tally.count_sum([(1.0, update) for update in updates], SCALE)
    assert tally.counts == [9, 1]
    assert all(update.released for update in updates)
    heavy = make_tally(by_server=True, unit="client")
    heavy.count_sum([(4.0, Told(noise_scale=0.0))], SCALE)
    assert heavy.others == {0: {(BATCH, 0.5): 1}}, "a weight of 4 leaves a quarter of the noise"


def test_shuffled_batches_are_accounted_by_position_in_the_data():
    """Every second batch of client 0 is lost; client 1 goes twice through its data. Other samplings have no passes."""
    tally = make_tally()
    for draw in range(0, 20, 2):
        tally.count(Told(draw=draw))
    for draw in range(7):
        tally.count(Told(client=1, draw=draw))
    tally.count(Told(client=1, draw=7, examples=5))
    tally.count(Told(client=1, draw=9, noise_scale=8.0))
    assert [passes.cost for passes in tally.passes] == [2, 2]
    assert tally.refusal is None
    tally.count(Told(client=1, draw=6, examples=25))
    assert "client 1 takes mini-batch 6 of its shuffled data, part of which another release has taken" in tally.refusal
    for options in ({"sampling": "poisson"}, {"unit": "client"}):
        other = make_tally(**options)
        other.count(Told(expected=BATCH))
        other.count(Told(expected=BATCH))
        assert (other.passes, other.refusal, other.counts) == (None, None, [2, 0])


def test_an_own_account_may_be_larger_but_not_smaller():
    tally = make_tally()
    for draw in range(3):
        tally.count(Told(draw=draw))
    assert tally.compare(Releases([4, 0])).refusal is None
    assert tally.compare(tally) is tally
    less = tally.compare(Releases([2, 0]))
    assert less.refusal is not None
    assert "expected 3 releases of client 0 with batch size 10 and level 2" in less.refusal
    assert tally.compare(Releases([5, 5])).refusal == less.refusal, "the refusal is permanent"


def test_an_own_account_without_one_release_is_refused():
    tally = make_tally()
    tally.count(Told(draw=0))
    assert "expected 1 releases of client 0" in str(tally.compare(Releases([0, 0])).refusal)
