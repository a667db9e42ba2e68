import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.data.partitions import Partition, _deal_labels, apportion, partition
from simfl.errors import ScenarioError


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def labels_of(n: int, classes: int, seed: int = 0) -> np.ndarray:
    return rng(seed).integers(0, classes, n).astype(np.int32)


def holdings(result: Partition, y: np.ndarray) -> list[set[int]]:
    return [set(y[result.of(client)].tolist()) for client in range(result.num_clients)]


DISJOINT = [("iid", {}), ("dirichlet", {"alpha": 0.05}), ("dirichlet", {"alpha": 50.0}), ("shards", {})]
SIZES = [{"sizes": "equal"}, {"sizes": "power_law", "exponent": 1.3}, {"sizes": "power_law", "exponent": 0.0}]


@pytest.mark.parametrize(("kind", "options"), DISJOINT)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_every_example_has_one_client(kind: str, options: dict[str, float], data: st.DataObject) -> None:
    clients = data.draw(st.integers(1, 40))
    y = labels_of(data.draw(st.integers(3 * clients, 400)), data.draw(st.integers(1, 12)), seed=clients)
    chosen = data.draw(st.sampled_from(SIZES if kind != "shards" else SIZES[:1]))
    result = partition(kind, y, clients, rng(3), **options, **chosen)
    np.testing.assert_array_equal(np.sort(result.indices), np.arange(len(y)))
    assert result.indices.dtype == np.int32
    assert result.offsets.dtype == np.int64
    assert result.sizes.min() >= 1
    assert result.sizes.sum() == len(y)
    if chosen["sizes"] == "equal" or chosen["exponent"] == 0:
        assert np.ptp(result.sizes) <= 1
    again = partition(kind, y, clients, rng(3), **options, **chosen)
    np.testing.assert_array_equal(again.indices, result.indices)
    np.testing.assert_array_equal(again.offsets, result.offsets)


@settings(max_examples=50, deadline=None)
@given(
    weights=st.lists(st.floats(0, 1e6), min_size=1, max_size=50).filter(any),
    extra=st.integers(0, 10_000),
    minimum=st.integers(0, 3),
)
def test_apportion_is_exact_and_fair(weights: list[float], extra: int, minimum: int) -> None:
    array = np.array(weights)
    shares = apportion(extra + minimum * len(weights), array, minimum)
    assert shares.sum() == extra + minimum * len(weights)
    assert shares.min() >= minimum
    assert np.abs(shares - minimum - extra * array / array.sum()).max() < 1 + 1e-6


@settings(max_examples=50, deadline=None)
@given(clients=st.integers(1, 60), classes=st.integers(1, 12), data=st.data())
def test_labels_are_dealt_evenly(clients: int, classes: int, data: st.DataObject) -> None:
    per_client = data.draw(st.integers(1, classes))
    dealt = _deal_labels(clients, per_client, classes, rng(1))
    assert dealt.shape == (clients, per_client)
    assert all(len(set(hand)) == per_client for hand in dealt.tolist())
    assert np.ptp(np.bincount(dealt.ravel(), minlength=classes)) <= 1


@pytest.mark.parametrize("sizes", SIZES)
def test_by_label_gives_a_client_its_labels_only(sizes: dict[str, object]) -> None:
    y = labels_of(3000, 10)
    result = partition("by_label", y, 25, rng(), labels_per_client=3, **sizes)
    assert all(len(held) <= 3 for held in holdings(result, y))
    np.testing.assert_array_equal(np.sort(result.indices), np.arange(3000))
    if sizes["sizes"] == "equal":
        assert all(len(held) == 3 for held in holdings(result, y))
        assert result.sizes.max() < 1.5 * result.sizes.min()


def test_by_label_leaves_out_labels_without_a_holder() -> None:
    y = labels_of(1000, 10)
    result = partition("by_label", y, 2, rng(), labels_per_client=2)
    first, second = holdings(result, y)
    assert len(first | second) == 4
    assert len(result.indices) == np.isin(y, list(first | second)).sum()


def test_shards_give_a_client_few_labels() -> None:
    y = np.repeat(np.arange(10, dtype=np.int32), 600)
    result = partition("shards", y, 100, rng(), shards_per_client=2)
    assert set(result.sizes.tolist()) == {60}
    assert max(map(len, holdings(result, y))) <= 4  # a shard of 30 may straddle two labels
    assert np.mean([len(held) for held in holdings(result, y)]) < 2.1
    uneven = partition("shards", y, 100, rng(), shards_per_client=2, sizes="power_law", exponent=0.5)
    np.testing.assert_array_equal(np.sort(uneven.indices), np.arange(6000))
    assert uneven.sizes.max() > 4 * uneven.sizes.min()


def test_alpha_ranges_from_one_label_to_the_whole_mix() -> None:
    y = labels_of(20_000, 10)
    overall = np.bincount(y) / len(y)

    def distance(alpha: float) -> float:
        """Mean total variation between a client's mix and the whole one."""
        result = partition("dirichlet", y, 50, rng(), alpha=alpha)
        mixes = [np.bincount(y[result.of(client)], minlength=10) / result.sizes[client] for client in range(50)]
        return float(np.mean([0.5 * np.abs(mix - overall).sum() for mix in mixes]))

    distances = [distance(alpha) for alpha in (0.01, 0.5, 5.0, 1e4)]
    assert distances == sorted(distances, reverse=True)
    assert distances[0] > 0.7
    assert distances[-1] < 0.07


def test_dirichlet_has_the_stated_moments() -> None:
    """While labels are plenty, a share's mean is p and its variance p (1 - p) / (alpha c + 1)."""
    y = np.repeat(np.arange(4, dtype=np.int32), 50_000)
    result = partition("dirichlet", y, 400, rng(), alpha=1.0, sizes="listed", values=[200] * 400)
    shares = np.array([np.bincount(y[result.of(client)], minlength=4) / 200 for client in range(400)])
    np.testing.assert_allclose(shares.mean(axis=0), 0.25, atol=0.03)
    sampling = 0.25 * 0.75 / 200
    np.testing.assert_allclose(shares.var(axis=0), 0.25 * 0.75 / 5 + sampling, rtol=0.25)


def test_power_law_sizes_follow_their_exponent() -> None:
    result = partition("iid", labels_of(10_000, 2), 20, rng(), sizes="power_law", exponent=1.0)
    ordered = np.sort(result.sizes)[::-1]
    np.testing.assert_allclose(ordered[0] / ordered[[1, 4, 9]], [2, 5, 10], rtol=0.02)
    assert ordered.tolist() != result.sizes.tolist()  # the ranks are dealt at random


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "shards"])
def test_listed_sizes_may_leave_examples_out(kind: str) -> None:
    y = np.repeat(np.arange(5, dtype=np.int32), 20)
    result = partition(kind, y, 3, rng(), sizes="listed", values=[10, 2, 40])
    assert result.sizes.tolist() == [10, 2, 40]
    assert len(np.unique(result.indices)) == 52
    assert set(y[result.indices].tolist()) == set(range(5))  # what is left out is left out at random


def test_resample_shares_examples_between_clients() -> None:
    y = labels_of(100, 3)
    result = partition("resample", y, 300, rng(), size=50)
    assert set(result.sizes.tolist()) == {50}
    assert all(len(set(result.of(client).tolist())) == 50 for client in range(300))
    counts = np.bincount(result.indices, minlength=100)
    assert 100 < counts.min() <= counts.max() < 200  # mean 150
    assert partition("resample", y, 2, rng(), sizes="listed", values=[100, 1]).sizes.tolist() == [100, 1]
    mean = partition("resample", y, 10, rng(), sizes="power_law", exponent=0.5, size=20).sizes
    assert mean.sum() == 200
    assert mean.max() > mean.min()


def test_a_client_out_of_range_is_refused() -> None:
    result = partition("iid", labels_of(10, 2), 2, rng())
    with pytest.raises(IndexError, match="client 2: expected 0 to 1"):
        result.of(2)


FLOATS = np.linspace(0, 1, 20, dtype=np.float32)


@pytest.mark.parametrize(("kind", "clients", "options", "message"), [
    ("iid", 21, {}, r"^clients\.count: 21 clients but only 20 training examples, and each needs one"),
    ("iid", 2, {"sizes": "listed", "values": [20, 1]}, "they add up to 21, but there are 20 training examples"),
    ("shards", 9, {"shards_per_client": 3}, r"shards_per_client: client 2 has 2 examples for 3 shards"),
    ("by_label", 2, {"labels_per_client": 5}, r"labels_per_client: expected 1 to 4 \(the classes\), found 5"),
    ("resample", 2, {"size": 21}, r"^data\.partition\.size: expected 1 to 20 .*, found 21"),
    ("resample", 2, {"size": 15, "sizes": "power_law", "exponent": 3.0}, "would draw .* of 20 training examples"),
])  # fmt: skip
def test_partitions_must_fit_the_data(kind: str, clients: int, options: dict[str, object], message: str) -> None:
    with pytest.raises(ScenarioError, match=message) as caught:
        partition(kind, np.arange(20, dtype=np.int32) % 4, clients, rng(), **options)
    assert "\n" not in str(caught.value)


def test_labels_are_needed_and_enough_of_them() -> None:
    for kind in ("dirichlet", "shards", "by_label"):
        with pytest.raises(ScenarioError, match=f"{kind} needs class labels, and this set has none; use iid"):
            partition(kind, FLOATS, 2, rng())
    assert partition("iid", FLOATS, 2, rng()).sizes.tolist() == [10, 10]
    lopsided = np.array([0] * 97 + [1] * 3, np.int32)
    with pytest.raises(ScenarioError, match="17 of 40 clients would get no example"):
        partition("by_label", lopsided, 40, rng(), labels_per_client=1)
    assert partition("by_label", lopsided, 40, rng(), labels_per_client=2).sizes.min() >= 1


def test_each_group_is_a_client_in_sorted_order() -> None:
    groups = np.array(["south", "north", "west", "north", "south", "north"])
    shares = partition(
        "by_column", np.zeros(6, np.int32), 3, np.random.default_rng(0), groups=groups, column="hospital"
    )
    assert [shares.of(client).tolist() for client in range(3)] == [[1, 3, 5], [0, 4], [2]]
    with pytest.raises(
        ScenarioError, match=r"^clients\.count: expected 3, .* column 'hospital' .*set clients\.count: 3"
    ):
        partition("by_column", np.zeros(6, np.int32), 4, np.random.default_rng(0), groups=groups, column="hospital")


def test_each_owner_is_a_client_or_some_are_drawn() -> None:
    owners = np.array(["dan", "ann", "cem", "ann", "bob", "cem"])
    whole = partition("natural", np.zeros(6, np.int32), 4, rng(), groups=owners)
    assert [whole.of(client).tolist() for client in range(4)] == [[1, 3], [4], [2, 5], [0]]
    some = partition("natural", np.zeros(6, np.int32), 2, rng(), groups=owners, owners="drawn")
    held = [{owners[example] for example in some.of(client)} for client in range(2)]
    assert all(len(names) == 1 for names in held)
    assert max(held[0]) < max(held[1])  # in the order of their names
    assert {example for client in range(2) for example in some.of(client)} == set(
        np.flatnonzero(np.isin(owners, [max(names) for names in held])).tolist()
    )
    for count, options, advice in (
        (3, {}, "drawn for some"),
        (5, {}, "set clients.count: 4$"),
        (5, {"owners": "drawn"}, "4$"),
    ):
        with pytest.raises(ScenarioError, match=rf"^clients\.count: expected 4, the number of owners .*{advice}"):
            partition("natural", np.zeros(6, np.int32), count, rng(), groups=owners, **options)
