"""One scenario in several ways: the table, and the message about a way that differs."""

import pytest

from simfl.bench import verification
from simfl.bench.verification import Way, shortened
from simfl.scenario import loads

TEXT = """
name: small
data: {set: digits}
clients: {count: 8, seconds_per_example: 1 ms, jitter: {kind: lognormal, sigma: 0.3}}
algorithm: {kind: adpsgd, batch_size: 8, exchange: messages}
stop: {epochs: 3}
"""


def test_shortening_changes_only_the_number_of_updates():
    whole, short = loads(TEXT), shortened(loads(TEXT), 50)
    assert short.stop.updates == 50
    assert {**short.resolved(), "stop": None} == {**whole.resolved(), "stop": None}
    assert shortened(short, 80) == short


@pytest.mark.slow
def test_all_ways_give_the_same_tables_and_models(simfl_, tmp_path):
    (tmp_path / "small.yaml").write_text(TEXT)
    code, shown, said = simfl_("verify", "small.yaml", "--updates", 60)
    assert code == 0, said
    assert shown.count(" | done   |      60 | ".replace("|", "│")) == 4
    assert "window 6 for 4096" in shown
    assert shown.endswith("small.yaml: 4 ways, the same tables and models, bit for bit\n")
    assert len({line.split("│")[-1] for line in shown.splitlines() if "done" in line}) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"], "no results are left"


def test_a_way_with_other_results_is_named_and_exits_with_1(simfl_, tmp_path, monkeypatch):
    (tmp_path / "small.yaml").write_text(TEXT)
    digests = {"metrics": "1", "model": "2", "updates": "3"}
    ways = [Way("as it is", "done", 9, digests), Way("window 3 for 7", "done", 9, {**digests, "model": "4"})]
    monkeypatch.setattr(verification, "verify", lambda *_: iter(ways))
    code, shown, said = simfl_("verify", "small.yaml")
    assert code == 1
    assert said == "small.yaml: window 3 for 7: expected the results of the first run, found other model\n"
    assert shown.count(ways[0].digest[:16]) == shown.count(ways[1].digest[:16]) == 1
