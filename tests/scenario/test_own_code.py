import sys

import pytest

MODULE = """
from simfl.algorithms.sync_sgd import SyncSGD


class Mine(SyncSGD):
    summary = "mine"
"""

SCENARIO = """
data: digits
clients: {count: 4}
topology: complete
algorithm: {kind: "my_own_module:Mine", batch_size: 16}
privacy: {noise_multiplier: 2}
stop: {updates: 20}
"""


@pytest.mark.parametrize("words", [("privacy", "check"), ("validate",)])
def test_an_algorithm_beside_the_scenario_is_found(simfl_, tmp_path, monkeypatch, words):
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "my_own_module.py").write_text(MODULE)
    (folder / "s.yaml").write_text(SCENARIO)
    code, _, err = simfl_(*words, folder / "s.yaml")
    assert (code, err) == (0, "")
    sys.modules.pop("my_own_module", None)
