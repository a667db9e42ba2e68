"""Wrong values from Python are one line, whichever function gets them."""

from pathlib import Path

import pytest

import simfl
from simfl.errors import ScenarioError, to_path


@pytest.mark.parametrize("value", [1, None, [1], 1.5, b"x", True, object()])
@pytest.mark.parametrize(
    "call",
    [
        simfl.load, simfl.run, simfl.prepare, simfl.resume, simfl.read, simfl.compare, simfl.plot, simfl.report,
        simfl.play, simfl.sweep, simfl.audit, simfl.evaluate, simfl.thumbnail,
        lambda value: simfl.predict(value, [[0.0]]),
    ],
)  # fmt: skip
def test_a_value_that_is_not_a_path_gives_one_line(call, value):
    with pytest.raises(
        ScenarioError, match=r"^expected the .*, found (int|NoneType|list|float|bytes|bool|object)"
    ) as e:
        call(value)
    assert "\n" not in str(e.value)


def test_a_folder_of_results_that_is_not_a_path_gives_one_line(make_run):
    scenario = {"algorithm": {"kind": "sync_sgd"}, "stop": {"updates": 16}}
    for call in (
        lambda: simfl.run(scenario, out=3),
        lambda: simfl.sweep({"base": scenario}, out=3),
        lambda: simfl.report(make_run(), 3),
        lambda: simfl.play(make_run(), 3),
    ):
        with pytest.raises(ScenarioError, match=r"^expected out: .*, found int 3$"):
            call()


def test_paths_are_kept_and_long_values_are_not_printed():
    assert to_path("a/b", "a file") == to_path(Path("a/b"), "a file") == Path("a/b")
    with pytest.raises(ScenarioError, match=r"^expected a file, found list$"):
        to_path(list(range(1000)), "a file")
