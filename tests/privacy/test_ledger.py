import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.privacy.accounting import Release, epsilon_of
from simfl.privacy.ledger import Ledger, Terms
from simfl.privacy.releases import Releases

QUICK = settings(max_examples=25, deadline=None, derandomize=True)


def ledger(sizes, *, batch_size=10, sampling="poisson", levels=2.0, pure=False, delta=1e-5, **terms):
    levels = [levels] * len(sizes) if isinstance(levels, float) else levels
    terms = Terms("gaussian", delta, **terms)
    return Ledger(terms, np.array(sizes), batch_size, sampling, levels, pure)


def renyi(noise, rate, count, **options):
    return epsilon_of([(Release(noise, rate), count)], 1e-5, accountant="renyi", **options)


def test_every_client_is_charged_for_its_own_releases_at_its_own_rate_and_noise():
    book = ledger([100, 50, 10, 200], levels=[2.0, 2.0, 3.0, 1.0])
    counts = Releases([30, 30, 2, 0])
    expected = [renyi(2.0, 0.1, 30), renyi(2.0, 0.2, 30), renyi(3.0, 1.0, 2), 0.0]
    np.testing.assert_allclose(book.epsilon(counts), expected)
    assert book.largest(counts) == book.epsilon(counts).max()
    assert book.certified
    assert "delta = 1e-05" in book.statement
    assert "adding or removing one example, local view" in book.statement


@QUICK
@given(
    sizes=st.lists(st.sampled_from([10, 40, 100]), min_size=1, max_size=8),
    data=st.data(),
    noise=st.sampled_from([0.0, 1.0, 2.0]),
)
def test_the_largest_epsilon_is_the_largest_of_all(sizes, data, noise):
    counts = Releases(data.draw(st.lists(st.integers(0, 60), min_size=len(sizes), max_size=len(sizes))))
    book = ledger(sizes, levels=noise)
    assert book.largest(counts) == book.epsilon(counts).max()


def test_releases_of_other_kinds_are_composed_with_the_usual_ones():
    book = ledger([100, 100])
    releases = Releases([5, 0])
    for batch_size in (10, 20, 20, 40):
        releases.add(0, batch_size, 2.0)
    composition = [(Release(2.0, 0.1), 6), (Release(2.0, 0.2), 2), (Release(2.0, 0.4), 1)]
    assert sorted(book.compositions(releases)[0], key=lambda kind: kind[0].sampling_rate) == composition
    assert book.largest(releases) == pytest.approx(epsilon_of(composition, 1e-5, accountant="renyi"))
    assert book.final_epsilon(releases)[0] == epsilon_of(composition, 1e-5)
    assert book.final_epsilon(releases)[1] == 0.0


def test_views():
    sizes, releases = [100, 50], Releases([30, 10])
    local, hidden = ledger(sizes), ledger(sizes, view="global_hidden")
    assert hidden.epsilon(releases).tolist() == [renyi(2.0, 0.1, 40)] * 2, "all updates, at rate B / (K smallest n)"
    np.testing.assert_array_equal(local.epsilon(releases, view="global_hidden"), hidden.epsilon(releases))
    assert "holds only if nobody learns whose update is whose" in hidden.statement


def test_neighbors_and_amplification():
    sizes, releases = [100], Releases([30])
    replaced = ledger(sizes, neighbors="replace_one").epsilon(releases)[0]
    assert replaced == renyi(2.0, 0.1, 30, neighbors="replace_one")
    fixed = ledger(sizes, neighbors="replace_one", sampling="without_replacement").epsilon(releases)[0]
    same = [(Release(2.0, 0.1, "without_replacement"), 30)]
    assert fixed == epsilon_of(same, 1e-5, neighbors="replace_one", accountant="renyi") > replaced
    book = ledger(sizes, amplification=False)
    assert book.final_epsilon(releases)[0] == epsilon_of([(Release(2.0, 1.0, "none"), 30)], 1e-5)
    assert "no amplification by sampling" in book.statement


@pytest.mark.parametrize(
    ("size", "releases", "expected"),
    [
        (100, 10, [(2.0, 1)]),  # one pass: parallel composition
        (100, 11, [(2.0, 2)]),
        (100, 30, [(2.0, 3)]),
        (95, 9, [(2.0, 1)]),
        (95, 10, [(1.0, 1)]),  # a batch that straddles two passes may hold an example twice
        (95, 20, [(2.0, 1), (1.0, 1)]),
    ],
)
def test_shuffled_data_is_accounted_by_passes(size, releases, expected):
    book = ledger([size], sampling="shuffle", neighbors="replace_one")
    composition = [(Release(level, 1.0, "none"), count) for level, count in expected]
    assert book.final_epsilon(Releases([releases]))[0] == epsilon_of(composition, 1e-5, neighbors="replace_one")


def test_pure_mechanisms_and_whole_clients():
    book = ledger([100], levels=0.5, pure=True)
    assert book.final_epsilon(Releases([4]))[0] == epsilon_of([(Release(0.0, 0.1, "poisson", 0.5), 4)], 1e-5)
    whole = ledger([100], sampling="shuffle", unit="client")
    assert whole.final_epsilon(Releases([4]))[0] == epsilon_of([(Release(2.0, 1.0, "none"), 4)], 1e-5)
    assert "per client with its data" in whole.statement


def test_at_the_end_epsilon_is_as_tight_as_affordable():
    few, counts = ledger([100] * 3), Releases([300, 200, 0])
    exact = [epsilon_of([(Release(2.0, 0.1), count)], 1e-5) for count in counts.counts]
    assert few.final_epsilon(counts).tolist() == exact
    many = Releases(list(range(200, 240)))
    book = ledger([100] * 40)
    found = book.final_epsilon(many)
    assert (np.diff(found) >= 0).all()
    assert (found <= book.epsilon(many)).all()
    assert found[-1] == epsilon_of([(Release(2.0, 0.1), 239)], 1e-5), "the largest is exact"
    for client in (0, 17, 30):
        assert found[client] >= epsilon_of([(Release(2.0, 0.1), 200 + client)], 1e-5)
    assert ledger([100] * 3, accountant="renyi").final_epsilon(counts).tolist() == few.epsilon(counts).tolist()
    by_pld = ledger([100] * 3, accountant="pld")
    assert by_pld.largest(counts) == by_pld.final_epsilon(counts).max() < few.largest(counts)


def test_a_thousand_clients_that_are_all_different_are_affordable():
    """Ten seconds were asked for; this takes one, so even a busy machine stays below."""
    rng = np.random.default_rng(0)
    sizes = rng.permutation(np.arange(1000, 11_000))[:1000]
    book = ledger(sizes, batch_size=50, levels=rng.uniform(0.8, 3.0, 1000).tolist())
    releases = Releases(rng.integers(100, 1000, 1000).tolist())
    begin = time.process_time()
    found = book.final_epsilon(releases)
    assert time.process_time() - begin < 10
    for client in (0, 500):
        rate = 50 / sizes[client]
        assert found[client] == pytest.approx(renyi(book.levels[client], rate, releases.counts[client]), rel=0.05)
        assert found[client] >= epsilon_of([(Release(book.levels[client], rate), releases.counts[client])], 1e-5)


@pytest.mark.parametrize("accountant", ["renyi", "tightest"])
def test_a_budget_allows_as_many_releases_as_it_pays_for(accountant):
    book = ledger([100, 100, 50], accountant=accountant)
    budgets = [3.0, 1.0, 1e6]
    allowed = book.allowances(budgets, most=5000)
    for client in (0, 1):
        spent = [book.epsilon_after(client, allowed[client] + more, accountant) for more in (0, 1)]
        assert spent[0] <= budgets[client] < spent[1]
    assert allowed[2] == 5000
    assert ledger([100], levels=0.1).allowances([0.5]) == [0]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"refusal": "gradients are not clipped"}, "gradients are not clipped"),
        ({"sampling": "shuffle"}, "sampling shuffle has no epsilon under neighbors: add_or_remove"),
        ({"sampling": "without_replacement"}, "sampling without_replacement has no epsilon under neighbors"),
        ({"sampling": "with_replacement", "neighbors": "replace_one"}, "several times into one batch"),
    ],
)
def test_what_the_accountant_does_not_cover_is_never_certified(options, reason):
    book = ledger([100, 50], **options)
    assert not book.certified
    for epsilons in (book.epsilon(Releases([3, 0])), book.final_epsilon(Releases([3, 0]))):
        assert np.isnan(epsilons).all()
    assert math.isnan(book.largest(Releases([3, 0])))
    assert book.statement.startswith("not certified: ")
    assert reason in book.statement
