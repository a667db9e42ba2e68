"""Progress in notebooks and on terminals, without a command line."""

import io
import sys
import types

from simfl.records import Progress
from simfl.records.watching import watching


def reports(count=3):
    return [Progress(0.5 * k, 100 * k, 0.1 * k, 0.875, 0.25 * k, 1.0 * k, 100.0) for k in range(count)]


def terminal(monkeypatch, least_s=0.0):
    """Return the replacement of stderr during a test (not in a fixture: pytest replaces stderr after it)."""
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr("simfl.records.watching.LEAST_S", least_s)
    monkeypatch.setitem(sys.modules, "IPython", None)
    return screen


def lines(screen):
    """Return the lines that were written over each other, without the bars in them."""
    written = [line.rstrip() for line in screen.getvalue().replace("\x1b[A", "").split("\r")]
    return [line.partition("|")[0] + line.rpartition("|")[2] for line in written if line]


def test_a_terminal_shows_a_requested_bar_and_clears_it_at_the_end(monkeypatch):
    screen = terminal(monkeypatch)
    with watching("run", None) as report:
        assert report is None
    with watching("run", False) as report:
        assert report is None
    assert screen.getvalue() == ""
    with watching("a <run>", True) as report:
        for progress in reports():
            report(progress)
    assert lines(screen) == [
        "a <run>: 0%",
        "a <run>: 0% t = 0 s  0 updates  acc. 87.5%",
        "a <run>: 25% t = 500 ms  100 updates  acc. 87.5%  100/s  ETA 0:03",
        "a <run>: 50% t = 1 s  200 updates  acc. 87.5%  100/s  ETA 0:02",
    ]
    assert not screen.getvalue().rpartition("\r")[0].rpartition("\r")[2].strip(), "the last line is blank"


def test_a_notebook_shows_a_bar_by_default(monkeypatch):
    screen = terminal(monkeypatch)
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    screen.isatty = lambda: False
    for wanted in (None, True):
        with watching("run", wanted) as report:
            report(reports()[1])
    with watching("run", False) as report:
        assert report is None
    assert lines(screen) == ["run: 0%", "run: 25% t = 500 ms  100 updates  acc. 87.5%"] * 2
    shell.kernel = None  # IPython on a terminal
    with watching("run", None) as report:
        assert report is None


def test_a_bar_changes_no_more_often_than_every_quarter_of_a_second(monkeypatch):
    screen = terminal(monkeypatch, 60.0)
    with watching("run", True) as report:
        for progress in reports():
            report(progress)
    assert lines(screen) == ["run: 0%"]


def test_a_function_that_takes_the_reports_is_used_unchanged():
    with watching("run", print) as report:
        assert report is print


def test_the_time_left_does_not_count_compilation(monkeypatch):
    screen = terminal(monkeypatch)
    before = Progress(0.0, 0, 0.0, None, 0.0, 1.0, 0.0, compiled=False)
    after = [Progress(0.1 * k, 100 * k, 0.1 * k, None, 0.1 * k, 60.0 + k, 100.0) for k in (1, 2)]
    with watching("run", True) as report:
        for progress in (before, *after):
            report(progress)
    assert [line.partition("updates")[2] for line in lines(screen)[1:]] == ["", "", "  100/s  ETA 0:08"]
