"""Progress in notebooks and on terminals, without a command line."""

import io
import sys
import types

import pytest

from simfl.records import Progress
from simfl.records.watching import watching


def reports(count=3):
    return [Progress(0.5 * k, 100 * k, 0.1 * k, 0.875, 0.25 * k, 1.0 * k, 100.0) for k in range(count)]


@pytest.fixture
def notebook(monkeypatch):
    """A kernel that is running, and what it shows."""
    shown = []

    class Handle:
        def update(self, entry):
            shown.append(entry)

    def display(entry, display_id):
        shown.append(entry)
        return Handle()

    shell = types.SimpleNamespace(kernel=object())
    interactive = types.ModuleType("IPython")
    interactive.get_ipython = lambda: shell
    module = types.ModuleType("IPython.display")
    module.display = display
    monkeypatch.setitem(sys.modules, "IPython", interactive)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr("simfl.records.watching.LEAST_S", 0.0)
    return shell, shown


def test_a_notebook_shows_a_bar_that_is_gone_at_the_end(notebook):
    _, shown = notebook
    with watching("a <run>", None) as report:
        for progress in reports():
            report(progress)
    assert [repr(entry) for entry in shown] == [
        "a <run>: 0%  t = 0 s  0 updates  acc. 87.5%",
        "a <run>: 25%  t = 500 ms  100 updates  acc. 87.5%  100/s  ETA 0:03",
        "a <run>: 50%  t = 1 s  200 updates  acc. 87.5%  100/s  ETA 0:02",
        "",
    ]
    assert shown[1]._repr_html_() == (
        '<progress value="0.2500" max="1"></progress> '
        "<code>a &lt;run&gt;  t = 500 ms  100 updates  acc. 87.5%  100/s  ETA 0:03</code>"
    )
    assert shown[-1]._repr_html_() == ""


def test_not_too_often_and_not_where_nobody_asked(notebook, monkeypatch):
    shell, shown = notebook
    monkeypatch.setattr("simfl.records.watching.LEAST_S", 60.0)
    with watching("run", True) as report:
        for progress in reports():
            report(progress)
    assert len(shown) == 2
    with watching("run", False) as report:
        assert report is None
    with watching("run", print) as report:
        assert report is print
    shell.kernel = None  # IPython on a terminal
    for wanted in (None, True):
        with watching("run", wanted) as report:
            assert report is None


def test_a_terminal_shows_a_line_where_it_is_asked_for(monkeypatch):
    monkeypatch.setattr("simfl.records.watching.LEAST_S", 0.0)
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", screen)
    with watching("run", None) as report:
        assert report is None
    with watching("run", True) as report:
        report(reports()[1])
    line = "run: 25%  t = 500 ms  100 updates  acc. 87.5%"
    assert screen.getvalue() == f"\r{line}\r{' ' * len(line)}\r"


def test_the_time_left_does_not_count_compilation(notebook):
    _, shown = notebook
    before = Progress(0.0, 0, 0.0, None, 0.0, 1.0, 0.0, compiled=False)
    after = [Progress(0.1 * k, 100 * k, 0.1 * k, None, 0.1 * k, 60.0 + k, 100.0) for k in (1, 2)]
    with watching("run", None) as report:
        for progress in (before, *after):
            report(progress)
    assert [repr(entry).partition("updates")[2] for entry in shown[:3]] == ["", "", "  100/s  ETA 0:08"]
