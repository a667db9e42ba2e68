import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.privacy.accounting import Release, epsilon_of
from simfl.privacy.gaussian import gaussian_epsilon
from simfl.privacy.ledger import Ledger
from simfl.privacy.releases import Releases
from simfl.privacy.shuffled import Passes
from simfl.privacy.terms import Terms

QUICK = settings(max_examples=25, deadline=None, derandomize=True)


def ledger(sizes, *, batch_size=10, sampling="poisson", levels=2.0, pure=False, delta=1e-5, **terms):
    levels = [levels] * len(sizes) if isinstance(levels, float) else levels
    terms = Terms("gaussian", delta, **terms)
    return Ledger(terms, np.array(sizes), batch_size, sampling, levels, pure)


def renyi(noise, rate, count, **options):
    return epsilon_of([(Release(noise, rate), count)], 1e-5, accountant="renyi", **options)


def test_each_client_pays_for_its_own_releases_rate_and_noise():
    book = ledger([100, 50, 10, 200], levels=[2.0, 2.0, 3.0, 1.0])
    counts = Releases([30, 30, 2, 0])
    expected = [renyi(2.0, 0.1, 30), renyi(2.0, 0.2, 30), renyi(3.0, 1.0, 2), 0.0]
    np.testing.assert_allclose(book.epsilon(counts), expected)
    assert book.largest(counts) == book.epsilon(counts).max()
    assert book.certified
    assert "delta = 1e-05" in book.statement
    assert book.statement == (
        "(epsilon, delta = 1e-05) per example of a client, neighboring data sets by adding or removing one example, "
        "local view (all that the client ever sent), each of a client's n examples in a batch with probability 10/n, n "
        "held fixed, Renyi accountant, tightened at the end by privacy loss distributions where affordable; outside of "
        "it: evaluations, statistics of the data taken before training, the sizes that batches really had"
    )


@QUICK
@given(
    sizes=st.lists(st.sampled_from([10, 40, 100]), min_size=1, max_size=8),
    data=st.data(),
    noise=st.sampled_from([0.0, 1.0, 2.0]),
)
def test_largest_is_the_maximum_over_clients(sizes, data, noise):
    counts = Releases(data.draw(st.lists(st.integers(0, 60), min_size=len(sizes), max_size=len(sizes))))
    book = ledger(sizes, levels=noise)
    assert book.largest(counts) == book.epsilon(counts).max()


def test_releases_of_other_kinds_are_composed_with_nominal_ones():
    book = ledger([100, 100])
    releases = Releases([5, 0])
    for batch_size in (10, 20, 20, 40):
        releases.add(0, batch_size, 2.0)
    composition = [(Release(2.0, 0.1), 6), (Release(2.0, 0.2), 2), (Release(2.0, 0.4), 1)]
    assert sorted(book.compositions(releases)[0], key=lambda kind: kind[0].sampling_rate) == composition
    assert book.largest(releases) == pytest.approx(epsilon_of(composition, 1e-5, accountant="renyi"))
    assert book.final_epsilon(releases)[0] == epsilon_of(composition, 1e-5)
    assert book.final_epsilon(releases)[1] == 0.0


def test_largest_is_the_maximum_by_privacy_loss_distributions_too():
    book = ledger([100, 50], levels=[4.0, 2.0], accountant="pld")
    made = Releases([3, 3])
    assert book.epsilon(made)[0] < book.epsilon(made)[1] == book.largest(made)


def test_several_kinds_of_releases_make_tight_epsilons_unaffordable():
    book = ledger([100] * 9)
    assert book.affords([1.0] * 9, [1] * 9)
    assert not book.affords([1.0] * 9, [1] * 8 + [2])


@pytest.mark.parametrize(("pure", "usual", "other"), [(False, 4.0, 2.0), (False, 2.0, 4.0), (True, 0.1, 0.2)])
def test_epsilons_of_many_clients_with_two_levels_are_at_least_exact(pure, usual, other):
    """With too many clients for tight epsilons, all releases of a client count as its most expensive one."""
    counts = list(range(10, 16))
    book = ledger([100] * 6, levels=usual, pure=pure, accountant="tightest")
    made = Releases(counts, {client: {(10, other): 2} for client in range(6)})
    epsilons = book.final_epsilon(made)
    for client, count in enumerate(counts):
        release = (lambda level: Release(0.0, 0.1, "poisson", level)) if pure else (lambda level: Release(level, 0.1))
        assert epsilons[client] >= epsilon_of([(release(usual), count), (release(other), 2)], 1e-5) * (1 - 1e-9)


def test_kinds_have_the_rate_at_which_their_batches_are_drawn():
    made = Releases([3, 2], {0: {(40, 1.0): 1}, 1: {(80, 1.0): 1}})
    rates = [(client, size, rate) for client, size, rate, _, _ in ledger([100, 50]).kinds(made)]
    assert rates == [(0, 10, 0.1), (0, 40, 0.4), (1, 10, 0.2), (1, 80, 1.0)]


def test_the_hidden_view_is_at_most_the_local_one():
    sizes, releases = [100, 50], Releases([30, 10])
    local, hidden = ledger(sizes), ledger(sizes, view="global_hidden")
    own = [renyi(2.0, 0.1, 30), renyi(2.0, 0.2, 10)]
    assert own[0] < renyi(2.0, 0.1, 40) < own[1], "all updates, at rate B / (K smallest n)"
    assert hidden.epsilon(releases).tolist() == [own[0], renyi(2.0, 0.1, 40)], "or the local one, if that is smaller"
    assert hidden.largest(releases) == renyi(2.0, 0.1, 40)
    budgets = [0.5, 2.0]
    made = Releases(local.allowances(budgets))
    assert (hidden.final_epsilon(made) <= budgets).all()
    np.testing.assert_array_equal(local.epsilon(releases, view="global_hidden"), hidden.epsilon(releases))
    assert "holds only if the senders of updates stay hidden" in hidden.statement
    assert hidden.accounted, "there is an epsilon under the assumptions of papers"
    assert hidden.accounts_for(releases)
    assert not hidden.certified, "the clients' data may differ"
    assert not hidden.certifies(releases)
    assert local.certified
    assert local.certifies(releases)
    assert "an example in an update with probability 10/(2 * 50), the smallest n held fixed" in hidden.statement
    assert "no sampling within a client" in ledger(sizes, unit="client").statement
    passes = ledger(sizes, sampling="shuffle", neighbors="replace_one").statement
    assert "batches of 10 of a client's n shuffled examples, accounted by passes" in passes


def test_neighbors_and_amplification_change_epsilon():
    sizes, releases = [100], Releases([30])
    replaced = ledger(sizes, neighbors="replace_one").epsilon(releases)[0]
    assert replaced == renyi(2.0, 0.1, 30, neighbors="replace_one")
    fixed = ledger(sizes, neighbors="replace_one", sampling="without_replacement").epsilon(releases)[0]
    same = [(Release(2.0, 0.1, "without_replacement"), 30)]
    assert fixed == epsilon_of(same, 1e-5, neighbors="replace_one", accountant="renyi") > replaced
    book = ledger(sizes, amplification=False)
    assert book.final_epsilon(releases)[0] == epsilon_of([(Release(2.0, 1.0, "none"), 30)], 1e-5)
    assert "no amplification by sampling" in book.statement


@pytest.mark.parametrize(("size", "releases", "expected"), [
    (100, 10, [(2.0, 1)]),  # one pass: parallel composition
    (100, 11, [(2.0, 2)]),
    (100, 30, [(2.0, 3)]),
    (95, 9, [(2.0, 1)]),
    (95, 10, [(1.0, 1)]),  # a batch that straddles two passes may hold an example twice
    (95, 20, [(2.0, 1), (1.0, 1)]),
])  # fmt: skip
def test_shuffled_data_is_accounted_by_passes(size, releases, expected):
    book = ledger([size], sampling="shuffle", neighbors="replace_one")
    composition = [(Release(level, 1.0, "none"), count) for level, count in expected]
    assert book.final_epsilon(Releases([releases]))[0] == epsilon_of(composition, 1e-5, neighbors="replace_one")


@pytest.mark.parametrize(("size", "level", "intervals", "copies", "epsilon"), [
    (357, 8.0, [(238 * number, 119) for number in range(11)], [(1, 7)], 2.729),  # every second batch was lost
    (359, 20.0, [(1800 * number, 1800) for number in range(3)], [(4, 1), (6, 2)], 4.066),  # five passes and a bit
])  # fmt: skip
def test_shuffled_releases_are_accounted_by_position(size, level, intervals, copies, epsilon):
    passes = Passes(size)
    for interval in intervals:
        passes.add(*interval)
    book = ledger([size], batch_size=119, levels=level, sampling="shuffle", neighbors="replace_one")
    made = Releases([0], {0: {(intervals[0][1], level): len(intervals)}}, passes=[passes])
    uses = sum(count * m**2 for m, count in copies)
    assert book.copies(made) == [(0, *one) for one in copies]
    assert book.compositions(made) == [((Release(level, 1.0, "none"), uses),)]
    assert book.final_epsilon(made)[0] == pytest.approx(gaussian_epsilon(1e-5, 2 * math.sqrt(uses) / level))
    assert book.final_epsilon(made)[0] == pytest.approx(epsilon, abs=1e-3)
    assert book.epsilon(made)[0] == book.largest(made) >= epsilon
    hidden = book.with_terms(view="global_hidden")
    assert hidden.final_epsilon(made)[0] == book.final_epsilon(made)[0], (
        "the account does not assume that the order is secret"
    )
    pure = ledger([size], batch_size=119, levels=0.01, sampling="shuffle", neighbors="replace_one", pure=True)
    made = Releases([0], {0: {(intervals[0][1], 0.01): len(intervals)}}, passes=[passes])
    most = sum(count * m for m, count in copies)
    assert most * 0.01 <= pure.with_terms(delta=1e-300).final_epsilon(made)[0] * (1 + 1e-9) <= 1.2 * most * 0.01


@pytest.mark.parametrize(
    ("pure", "usual", "other", "dearest"), [(False, 8.0, 2.0, 2.0), (False, 2.0, 8.0, 2.0), (True, 0.01, 0.03, 0.03)]
)
def test_shuffled_releases_of_two_levels_cost_as_if_all_had_the_least_noise(pure, usual, other, dearest):
    """An example may be in the noisy releases of every pass, or in the others; either is possible."""
    options = {"sampling": "shuffle", "neighbors": "replace_one", "pure": pure}
    mixed, plain = ledger([100], levels=usual, **options), ledger([100], levels=dearest, **options)
    passes = Passes(100)
    passes.add(0, 300)
    for where in (None, [passes]):
        made = Releases([20], {0: {(10, other): 10}}, passes=where)
        least = Releases([30], passes=where)
        assert mixed.compositions(made) == plain.compositions(least)
        assert mixed.epsilon(made)[0] == plain.epsilon(least)[0] > 0.0
        assert mixed.final_epsilon(made)[0] == plain.final_epsilon(least)[0]


def test_a_ledger_answers_under_other_terms():
    book, made = ledger([100], levels=4.0), Releases([30])
    other = book.with_terms(neighbors="replace_one", delta=1e-3)
    assert (other.delta, other.terms.neighbors, book.delta, book.terms.neighbors) == (
        1e-3, "replace_one", 1e-5, "add_or_remove",
    )  # fmt: skip
    assert other.final_epsilon(made) == ledger([100], levels=4.0, neighbors="replace_one", delta=1e-3).final_epsilon(
        made
    )
    shuffled = ledger([100], sampling="shuffle", neighbors="replace_one")
    assert not shuffled.with_terms(neighbors="add_or_remove").certified


def test_pure_mechanisms_and_whole_clients_have_closed_forms():
    book = ledger([100], levels=0.5, pure=True)
    assert book.final_epsilon(Releases([4]))[0] == epsilon_of([(Release(0.0, 0.1, "poisson", 0.5), 4)], 1e-5)
    whole = ledger([100], sampling="shuffle", unit="client")
    assert whole.final_epsilon(Releases([4]))[0] == epsilon_of([(Release(2.0, 1.0, "none"), 4)], 1e-5)
    assert "per client with its data" in whole.statement


@pytest.mark.slow
def test_final_epsilon_is_as_tight_as_affordable():
    few, counts = ledger([100] * 3), Releases([300, 200, 0])
    exact = [epsilon_of([(Release(2.0, 0.1), count)], 1e-5) for count in counts.counts]
    assert few.final_epsilon(counts).tolist() == exact
    many = Releases(list(range(200, 240)))
    book = ledger([100] * 40)
    epsilons = book.final_epsilon(many)
    assert (np.diff(epsilons) >= 0).all()
    assert (epsilons <= book.epsilon(many)).all()
    assert epsilons[-1] == epsilon_of([(Release(2.0, 0.1), 239)], 1e-5), "the largest is exact"
    for client in (0, 17, 30):
        assert epsilons[client] >= epsilon_of([(Release(2.0, 0.1), 200 + client)], 1e-5)
    assert ledger([100] * 3, accountant="renyi").final_epsilon(counts).tolist() == few.epsilon(counts).tolist()
    by_pld = ledger([100] * 3, accountant="pld")
    assert by_pld.largest(counts) == by_pld.final_epsilon(counts).max() < few.largest(counts)


def test_a_thousand_different_clients_are_affordable():
    """The limit is ten seconds; this takes one, so it also holds on a busy machine."""
    rng = np.random.default_rng(0)
    sizes = rng.permutation(np.arange(1000, 11_000))[:1000]
    book = ledger(sizes, batch_size=50, levels=rng.uniform(0.8, 3.0, 1000).tolist())
    releases = Releases(rng.integers(100, 1000, 1000).tolist())
    begin = time.process_time()
    epsilons = book.final_epsilon(releases)
    assert time.process_time() - begin < 10
    for client in (0, 500):
        rate = 50 / sizes[client]
        assert epsilons[client] == pytest.approx(renyi(book.levels[client], rate, releases.counts[client]), rel=0.05)
        assert epsilons[client] >= epsilon_of([(Release(book.levels[client], rate), releases.counts[client])], 1e-5)


@pytest.mark.parametrize("accountant", ["renyi", "tightest"])
def test_a_budget_allows_the_releases_within_it(accountant):
    book = ledger([100, 100, 50], accountant=accountant)
    budgets = [3.0, 1.0, 1e6]
    allowed = book.allowances(budgets, most=5000)
    for client in (0, 1):
        spent = [book.epsilon_after(client, allowed[client] + more, accountant) for more in (0, 1)]
        assert spent[0] <= budgets[client]
        assert budgets[client] < spent[1] or (accountant == "tightest" and spent[0] >= 0.998 * budgets[client])
    assert allowed[2] == 5000
    assert ledger([100], levels=0.1).allowances([0.5]) == [0]


@pytest.mark.slow(but=["add_or_remove"])
@pytest.mark.parametrize(
    ("level", "rate", "neighbors", "budget", "fit"),
    [(0.8, 0.001, "add_or_remove", 1.0, 16_529), (1.0, 0.01, "replace_one", 3.0, 1101)],
)
def test_budgets_use_the_accountant_of_the_final_epsilon(level, rate, neighbors, budget, fit):
    size = round(1 / rate)
    book = ledger([size] * 20, batch_size=1, levels=level, neighbors=neighbors)
    begin = time.process_time()
    allowed = book.allowances([budget] * 20)
    assert time.process_time() - begin < 5
    assert set(allowed) == {allowed[0]}
    assert 0.99 * fit <= allowed[0] <= fit
    # Clients that stopped earlier, for any reason, are within it too.
    counts = Releases([allowed[0] - 40 * client for client in range(20)])
    epsilons = book.final_epsilon(counts)
    assert 0.98 * budget <= epsilons.max() <= budget


def test_different_budgets_are_never_exceeded():
    sizes, budgets = [100, 100, 50, 100], [1.0, 3.0, 2.0, 0.0]
    book = ledger(sizes)
    epsilons = book.final_epsilon(Releases(book.allowances(budgets)))
    assert (epsilons <= budgets).all()
    assert (epsilons >= 0.95 * np.array(budgets)).all()
    many = ledger(sizes * 5)
    allowed = many.allowances(budgets * 5)
    counts = Releases([max(0, count - k) for k, count in enumerate(allowed)])
    assert (many.final_epsilon(counts) <= np.array(budgets * 5)).all()


def test_a_budget_of_a_pure_mechanism_is_fast():
    book = ledger([100], levels=1e-4, pure=True)
    begin = time.process_time()
    (allowed,) = book.allowances([1.0])
    assert time.process_time() - begin < 2
    assert allowed > 1e8
    assert book.final_epsilon(Releases([allowed]))[0] <= 1.0 < book.final_epsilon(Releases([allowed + 1]))[0]


def test_few_releases_of_another_kind_do_not_raise_the_cost_of_others():
    book, releases = ledger([100] * 12), Releases([100 + 5 * client for client in range(12)])
    plain = book.final_epsilon(releases)
    releases.add(3, 5, 2.0)
    epsilons = book.final_epsilon(releases)
    assert (epsilons[:3] == plain[:3]).all()
    assert plain[3] <= epsilons[3] < 0.97 * book.epsilon(releases)[3]


@pytest.mark.parametrize(("options", "reason"), [
    ({"refusal": "gradients are not clipped"}, "gradients are not clipped"),
    ({"sampling": "shuffle"}, "sampling shuffle has no epsilon under neighbors: add_or_remove"),
    ({"sampling": "without_replacement"}, "sampling without_replacement has no epsilon under neighbors"),
    ({"sampling": "with_replacement", "neighbors": "replace_one"}, "several times into one batch"),
])  # fmt: skip
def test_what_no_account_covers_is_never_certified(options, reason):
    book = ledger([100, 50], **options)
    assert not book.certified
    for epsilons in (book.epsilon(Releases([3, 0])), book.final_epsilon(Releases([3, 0]))):
        assert np.isnan(epsilons).all()
    assert math.isnan(book.largest(Releases([3, 0])))
    assert book.statement.startswith("not certified: ")
    assert reason in book.statement
