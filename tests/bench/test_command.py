"""`simfl bench --quick` ends in time."""

import pytest

from simfl.bench.command import _while_time


@pytest.mark.parametrize(("seconds", "measured"), [
    ([10, 10, 10], ["a", "b", "c"]),
    ([70, 10, 10], ["a"]),  # the first is always measured
    ([20, 25, 10], ["a", "b"]),  # 45 s, and a case may take 25
    ([20, 20, 10], ["a", "b", "c"]),  # ends at 60 s if the last takes 20
])  # fmt: skip
def test_no_case_begins_that_would_end_late(seconds, measured, capsys):
    """A case is expected to take as long as the longest before it."""
    done: list[str] = []
    for case in _while_time(["a", "b", "c"], 60.0, lambda: float(sum(seconds[: len(done)]))):
        done.append(case)
    assert done == measured
    left_out = [case for case in ("a", "b", "c") if case not in measured]
    told = capsys.readouterr()
    assert ("left out" in told.out + told.err) == bool(left_out)
    assert all(case in told.out + told.err for case in left_out)
