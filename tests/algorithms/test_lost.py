"""Crashes: lost mini-batches of shuffled data are handed out again, and budgets always hold."""

import numpy as np
import pytest

from simfl.errors import RunError
from simfl.privacy.ledger import Ledger
from simfl.privacy.terms import Terms
from simfl.tape import Tape
from simfl.world.availability import Outage
from tests.algorithms.custom import Alone
from tests.helpers import NullExecutor, make_algorithm, make_training, make_world

SCALE = 2.0


def set_up(kind, *, sampling="shuffle", allowances=None, outages=None, clients=2, **options):
    """Return an algorithm with noise on a tape that counts releases, without arithmetic."""
    training = make_training([40] * clients, sampling=sampling, noise_std=SCALE)
    training = type(training)(**{**vars(training), "allowances": allowances})
    terms = Terms("gaussian", 1e-5, 1.0, "replace_one" if sampling == "shuffle" else "add_or_remove")
    ledger = Ledger(terms, training.sizes, training.batch_size, sampling, [SCALE] * clients)
    tape = Tape(NullExecutor(), max_batch=8, releases=ledger.counted_by(ledger, [SCALE] * clients, 1.0))
    world = make_world(clients, topology="complete", outages=outages or {})
    if isinstance(kind, str):
        return make_algorithm(kind, world, tape, training, **options)
    return kind(world, tape, training)


def begin(algorithm, until):
    algorithm.start()
    algorithm.clock.run(until)
    return algorithm.tape.releases


CRASHES = {0: [Outage(at, at + 0.001, crash=True) for at in np.arange(0.012, 1.0, 0.020)]}


@pytest.mark.parametrize("kind", ["adpsgd", "async_sgd", "gossip_learning", "centralized_sgd", "async_fl"])
@pytest.mark.parametrize("sampling", ["shuffle", "poisson"])
def test_a_lost_batch_of_shuffled_data_is_handed_out_again(kind, sampling):
    """A batch takes 8 ms: with 20 ms between crashes, one or two of three batches are completed."""
    algorithm = set_up(kind, sampling=sampling, outages=CRASHES, clients=1 if kind == "centralized_sgd" else 2)
    seen = begin(algorithm, 1.0)
    made, handed_out = seen.total(0), algorithm.batches.draws[0]
    assert made >= 20
    assert seen.refusal is None
    if sampling == "shuffle":
        assert handed_out - made <= 1, "the one under way"
        assert seen.passes[0].cost == -(-8 * made // 40), "not a pass more than it takes"
    else:
        assert handed_out - made >= 20, "numbers are not used again where that gains nothing"
    assert 0 <= seen.promised[0] <= 1


def test_only_the_newest_batch_is_handed_out_again_and_a_lost_promise_cannot_be_used():
    algorithm = set_up("adpsgd")
    tape, model = algorithm.tape, algorithm.model[0]
    first, second = algorithm.batches.gradient(model, 0), algorithm.batches.gradient(model, 0)
    assert tape.releases.promised == [2, 0]
    assert not algorithm.batches.lost(first), "the second is under way"
    assert algorithm.batches.lost(second)
    assert not algorithm.batches.lost(second), "once"
    third = algorithm.batches.gradient(model, 0)
    assert (third.draw, tape.releases.promised, tape.releases.refusal) == (1, [1, 0], None)
    for gone in (first, second):
        with pytest.raises(ValueError, match="used twice"):
            tape.combine((1.0, model), (-0.1, gone))
    tape.combine((1.0, model), (-0.1, third))
    assert not algorithm.batches.lost(third), "it was released"
    assert tape.releases.promised == [0, 0]
    assert algorithm.batches.gradient(model, 0).draw == 2


class Several(Alone):
    """Two gradients for an update, promised before they are computed, or after."""

    late = False

    def worker(self, me):
        yield self.world.joined(me)
        while True:
            promised = [] if self.late else [self.batches.gradient(self.model[me], me) for _ in range(2)]
            if (yield self.compute(me)).name == "GONE":
                return
            promised = promised or [self.batches.gradient(self.model[me], me) for _ in range(2)]
            self.model[me] = self.tape.combine((1.0, self.model[me]), *((-0.1, one) for one in promised))
            self.updated(me, 0, 8, 0.1)


class Late(Several):
    late = True


@pytest.mark.parametrize("sampling", ["shuffle", "poisson"])
def test_clients_with_several_releases_at_a_time_stop_before_their_budget_is_exceeded(sampling):
    algorithm = set_up(Several, sampling=sampling, allowances=[1, 5])
    seen = begin(algorithm, 1.0)
    assert (seen.counts, sorted(algorithm.budgets.spent_s)) == ([0, 4], [0, 1])


def test_a_promise_beyond_the_budget_ends_the_run():
    algorithm = set_up(Late, sampling="poisson", allowances=[5, 5])
    assert begin(algorithm, 1.0).counts == [4, 4], "by then it is known"
    algorithm = set_up(Late, sampling="poisson", allowances=[5, 1])
    with pytest.raises(RunError, match="client 1: expected at most 1 releases, as its budget allows, found 2"):
        begin(algorithm, 1.0)
    assert algorithm.tape.releases.counts[1] == 1


class Dear(Alone):
    """Half the noise, from the third release on."""

    def worker(self, me):
        yield self.world.joined(me)
        while True:
            if self.batches.draws[me] == 2:
                self.batches.noise_scale = [0.5 * SCALE] * self.num_clients
            gradient = self.batches.gradient(self.model[me], me)
            if (yield self.compute(me)).name == "GONE":
                return
            self.model[me] = self.tape.combine((1.0, self.model[me]), (-0.1, gradient))
            self.updated(me, 0, 8, 0.1)


def test_a_release_above_the_planned_cost_is_not_made():
    seen = begin(set_up(Dear, allowances=[10], clients=1), 1.0)
    assert (seen.counts, seen.others, seen.dearer) == ([2], {}, {0})
    free = begin(set_up(Dear, clients=1), 1.0)
    assert free.others[0][8, 1.0] > 10


def test_late_clients_make_fewer_releases_than_their_budget():
    """Rounds grow: a client that joins at the fourth round may make fewer releases than one that joins at the first."""
    from simfl.papers.async_fl.round_sizes import RoundSizes
    from simfl.papers.async_fl.sizes import PolynomialSizes

    world_of_sizes = RoundSizes(PolynomialSizes(3.0), [1.0] * 2, make_world(2).streams, each_client=True)
    algorithm = set_up(
        "async_fl", sampling="poisson", allowances=[8, 8], outages={1: [Outage(0.0, 0.05)]}, sizes=world_of_sizes
    )
    seen = begin(algorithm, 5.0)
    assert seen.total(0) == 8
    assert 0 < seen.total(1) < 8
    assert max(size for size, _ in seen.others[1]) == 3 * 8, "the largest that the budget was planned for"
