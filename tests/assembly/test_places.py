import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simfl.assembly.places import Places
from simfl.assembly.world import availability, slowdowns
from simfl.errors import DataError
from simfl.scenario import from_mapping
from simfl.streams import Streams

REGIONS = {"names": ["eu", "us"], "counts": [2, 3]}


def scenario_of(algorithm="fedavg", regions=REGIONS, **sections):
    return from_mapping({"algorithm": algorithm, "clients": {"count": 5}, "regions": regions, **sections})


def places_of(seed=0, **sections):
    return Places(scenario_of(**sections), Streams(seed))


def test_words_stand_for_nodes():
    places = places_of(server={"region": "us"})
    assert places.of([4, "eu"]) == {0, 1, 4}
    assert places.of(["us"]) == {2, 3, 4, 5}  # the server, too
    assert places.of(["server"]) == {5}
    assert places_of().of(["us"]) == {2, 3, 4}  # the server is in no region


def test_aggregators_are_in_their_regions_or_the_servers():
    hierarchy = {"kind": "async_fl", "aggregators": [3]}
    places = places_of(algorithm=hierarchy, server={"region": "us", "aggregator_regions": ["eu"]})
    assert places.servers == {5, 6, 7, 8}
    assert {node: places.regions[node] for node in places.servers} == {5: 1, 6: 0, 7: 1, 8: 1}


def test_clients_are_in_regions_by_list_and_by_shares():
    names = ["us", "eu", "us", "us", "eu"]
    assert places_of(regions={"names": ["eu", "us"], "clients": names}).of(["eu"]) == {1, 4}
    shares = {"names": ["eu", "us", "asia"], "shares": [0.4, 0.6, 0.0]}
    drawn = [places_of(seed, regions=shares) for seed in range(8)]
    assert {len(places.of(["eu"])) for places in drawn} == {2}
    assert {len(places.of(["asia"])) for places in drawn} == {0}
    assert len({places.of(["eu"]) for places in drawn}) > 1


def test_clients_are_in_the_regions_of_a_file(tmp_path):
    path = tmp_path / "clients.csv"
    path.write_text("client,place\n" + "".join(f"{k},{'us' if k % 2 else 'eu'}\n" for k in range(5)))
    from_file = {"names": ["eu", "us"], "path": str(path), "column": "place"}
    assert places_of(regions=from_file).of(["us"]) == {1, 3}
    path.write_text("place\neu\n")
    with pytest.raises(DataError, match=r"expected a row for each client, 5 rows, found 1; change clients.count"):
        places_of(regions=from_file)
    path.write_text("place\neu\neu\neu\neu\nue\n")
    with pytest.raises(DataError, match=r":6: place: expected one of regions.names, found 'ue'; name it there"):
        places_of(regions=from_file)


def test_a_column_client_says_of_which_client_a_row_is(tmp_path):
    path = tmp_path / "clients.csv"
    rows = [f"{'us' if k % 2 else 'eu'},{k}\n" for k in (3, 0, 4, 1, 2)]
    path.write_text("region,client\n" + "".join(rows))
    from_file = {"names": ["eu", "us"], "path": str(path)}
    assert places_of(regions=from_file).of(["us"]) == {1, 3}
    path.write_text("region,client\n" + "".join(rows[:4]) + "eu,3\n")
    with pytest.raises(DataError, match=r":6: client: expected each client once; line 2 has it, found '3'"):
        places_of(regions=from_file)
    path.write_text("region,client\n" + "".join(rows[:4]) + "eu,5\n")
    with pytest.raises(DataError, match=r":6: client: expected a client below clients.count, which is 5, found '5'"):
        places_of(regions=from_file)


@settings(max_examples=30, deadline=None)
@given(order=st.permutations(range(5)), names=st.lists(st.sampled_from(["eu", "us"]), min_size=5, max_size=5))
def test_regions_of_clients_do_not_depend_on_the_order_of_rows(tmp_path_factory, order, names):
    path = tmp_path_factory.mktemp("regions") / "clients.csv"
    path.write_text("client,region\n" + "".join(f"{k},{names[k]}\n" for k in order))
    places = places_of(regions={"names": ["eu", "us"], "path": str(path)})
    assert [places.regions[k] for k in range(5)] == [["eu", "us"].index(name) for name in names]


def test_rules_for_clients_exclude_the_server_of_a_region():
    scenario = scenario_of(
        server={"region": "us"},
        slowdowns=[{"regions": ["us"], "factor": 3}, {"clients": [0], "factor": 2}],
        availability=[{"regions": ["us"], "offline": [[1, 2]]}, {"regions": ["eu"], "join": 5}],
    )
    first, second = slowdowns(scenario, Streams(0))
    assert first.clients == {2, 3, 4}
    assert second.clients == {0}
    there = availability(scenario, Streams(0))
    assert [there.online(node, 1.5) for node in range(6)] == [False] * 5 + [True]
    assert [there.online(node, 3.0) for node in range(6)] == [False] * 2 + [True] * 4


def test_a_share_is_drawn_once_for_each_rule():
    places = places_of()
    assert len(places.share(0.4, "slowdown-clients", 0)) == 2
    assert len(places.share(0.01, "slowdown-clients", 0)) == 1
    assert places.share(0.4, "slowdown-clients", 0) == places_of().share(0.4, "slowdown-clients", 0)
    assert len({tuple(places.share(0.4, "slowdown-clients", index)) for index in range(8)}) > 1
