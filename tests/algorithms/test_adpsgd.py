import pytest

from simfl.errors import ScenarioError
from tests.helpers import make_world, run_without_numbers


def test_only_one_side_of_a_bipartite_graph_starts_exchanges():
    def starters(topology, **options):
        _, rows = run_without_numbers("adpsgd", make_world(6, topology=topology), updates=200, **options)
        return {row[1] for row in rows if row[2] >= 0}

    assert starters("ring") == {0, 2, 4}
    assert starters("star") == {0}
    assert starters("complete") == set(range(6))
    assert starters("ring", pairing="everyone") == set(range(6))
    assert starters("ring", pairing="senders") == {0, 2, 4}
    with pytest.raises(ScenarioError, match=r"^algorithm\.pairing: found 'senders' on a graph that is not bipartite"):
        starters("complete", pairing="senders")
