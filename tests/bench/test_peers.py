import dataclasses
import itertools
import json

import pytest

from simfl.bench import peers
from simfl.errors import RunError
from simfl.runs.runner import prepare


@pytest.fixture
def measured(monkeypatch):
    """Replace the measurements: peers have 100, 200 and 50 updates per second, simfl 3,000."""
    rates = itertools.cycle([100.0, 200.0, 50.0])
    monkeypatch.setattr(peers, "environment", lambda peer, echo: None)
    monkeypatch.setattr(peers, "measure_peer", lambda work, python: next(rates))
    monkeypatch.setattr(peers, "measure_simfl", lambda work, device=None: 3000.0)


@pytest.mark.usefixtures("measured")
def test_the_best_rate_of_each_counts(simfl_):
    code, out, err = simfl_("bench", "peers")
    assert code == 0
    assert "gossipy-dfl 0.0.1" in out
    assert "15.0" in out
    assert "15.0-60.0" in out
    assert "federated averaging" in err
    code, out, _ = simfl_("bench", "peers", "--json", "-")
    assert [one["ratio"] for one in json.loads(out)] == [15.0] * 3


def test_every_peer_has_a_script_and_pins():
    for work in peers.WORKS:
        assert peers.Path(peers.__file__).with_name(f"{work.peer}_script.py").exists()
        assert all("==" in pin for pin in peers.PINS[work.peer])


@pytest.mark.slow
@pytest.mark.parametrize("work", peers.WORKS[::2], ids=lambda work: work.peer)
@pytest.mark.usefixtures("without_numbers")
def test_simfl_does_the_same_work(work, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "simfl.runs.runner.prepare", lambda *words, **options: seen.append(prepare(*words, **options)) or seen[-1]
    )
    assert peers.measure_simfl(dataclasses.replace(work, updates=500), "cpu") > 0
    (setup,) = seen
    assert setup.model.size == (work.features + 1) * work.classes
    assert setup.training.batch_size == 32
    assert set(setup.sizes) == {32 * work.steps}


@pytest.mark.slow
def test_a_failed_installation_is_an_error_of_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(peers.PINS, "gossipy", ("gossipy-dfl==0.0.1", "--no-such-option"))
    with pytest.raises(RunError, match=r"^bench peers: gossipy cannot be installed: .*no-such-option") as caught:
        peers.environment("gossipy", lambda line: None)
    assert "\n" not in str(caught.value)
