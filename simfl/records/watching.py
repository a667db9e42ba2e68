"""Progress of a run where there is no command line: a bar in a notebook, a line on a terminal.

A notebook is one whose kernel is running already: IPython is neither imported nor needed otherwise.
"""

from __future__ import annotations

import contextlib
import html
import importlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from simfl.records.progress import Progress, Recent, describe

Watch = Callable[[Progress], None]

#: Host seconds between two changes of what is shown.
LEAST_S = 0.25


class _Shown:
    """What a notebook shows: a bar of HTML, and a text where HTML is not shown."""

    def __init__(self, text: str = "", markup: str = "") -> None:
        self.text, self.markup = text, markup

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.markup


Show = Callable[[str, float, str], None]
"""Shows a label, a share and a text; an empty label takes all of it away."""


@contextlib.contextmanager
def bar(label: str, wanted: bool | None) -> Iterator[Callable[[float, Callable[[], str]], None] | None]:
    """Show how far something is while the block runs, and nothing of it afterwards.

    Args:
        label: what is under way.
        wanted: True for a bar in a notebook and a line on a terminal; None for the bar only; False for nothing.

    Yields:
        What takes a share and what says a text, which is asked now and then; None where nobody would see it.
    """
    show = None if wanted is False else (_in_notebook() or (_on_terminal() if wanted else None))
    if show is None:
        yield None
        return
    told_s = 0.0

    def tell(share: float, text: Callable[[], str]) -> None:
        nonlocal told_s
        now = time.monotonic()
        if now - told_s >= LEAST_S:
            told_s = now
            show(label, share, text())

    try:
        yield tell
    finally:
        show("", 1.0, "")


@contextlib.contextmanager
def watching(label: str, wanted: bool | Watch | None) -> Iterator[Watch | None]:
    """Show the progress of a run while the block runs, and nothing of it afterwards.

    Args:
        label: what is run.
        wanted: True for a bar in a notebook and a line on a terminal; None for the bar only; False for nothing. What is
            called with reports is handed on as it is.

    Yields:
        What the run reports to, if anything.
    """
    if callable(wanted):
        yield wanted
        return
    with bar(label, wanted) as tell:
        if tell is None:
            yield None
            return
        recent = Recent()

        def report(progress: Progress) -> None:
            since = recent.since(progress)
            tell(progress.fraction, lambda: describe(progress, since))

        yield report


def _in_notebook() -> Show | None:
    """Return what shows a label, a share and a text in the notebook whose kernel this is; None if there is none."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is None:
        return None
    display: Any = importlib.import_module("IPython.display").display
    handle: Any = None

    def show(label: str, share: float, text: str) -> None:
        nonlocal handle
        if not label:
            shown = _Shown()
        else:
            words = html.escape(f"{label}  {text}")
            shown = _Shown(
                f"{label}: {share:.0%}  {text}",
                f'<progress value="{share:.4f}" max="1"></progress> <code>{words}</code>',
            )
        if handle is None:
            handle = display(shown, display_id=True) if label else None
        else:
            handle.update(shown)

    return show


def _on_terminal() -> Show | None:
    """Return what writes them over one line of stderr; None where that is no terminal."""
    if not sys.stderr.isatty():
        return None
    widest = 0

    def show(label: str, share: float, text: str) -> None:
        nonlocal widest
        line = f"{label}: {share:.0%}  {text}" if label else ""
        widest = max(widest, len(line))
        sys.stderr.write("\r" + line.ljust(widest) + ("" if label else "\r"))
        sys.stderr.flush()

    return show
