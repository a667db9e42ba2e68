"""Progress bars of runs and sweeps in notebooks and terminals."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from simfl.records.progress import Progress, Recent, describe

Watch = Callable[[Progress], None]

LEAST_S = 0.25
"""Host seconds between two changes of the bar."""


@contextlib.contextmanager
def bar(label: str, visible: bool | None) -> Iterator[Callable[[float, str], None] | None]:
    """Show a progress bar during the block, and remove it at the end.

    `visible` is True for a bar in notebooks and on terminals, None for notebooks only, False for none. The block gets a
    function of a share and a text; None without a bar.
    """
    if visible is False or not (_in_notebook() or (visible and sys.stderr.isatty())):
        yield None
        return
    from tqdm.auto import tqdm

    form = "{desc}: {percentage:.0f}%|{bar}| {postfix[0]}"
    with tqdm(total=1.0, desc=label, leave=False, mininterval=LEAST_S, bar_format=form, postfix=[""]) as shown:

        def tell(share: float, text: str) -> None:
            shown.postfix[0] = text
            shown.update(share - shown.n)

        yield tell
        shown.n = shown.total  # a notebook keeps a bar that is not full, as the mark of a failure


@contextlib.contextmanager
def watching(label: str, visible: bool | Watch | None) -> Iterator[Watch | None]:
    """Show the progress of a run during the block, and remove it at the end.

    `visible` is as in `bar`, or a function that takes the run's reports. The block gets this function; None without a
    bar.
    """
    if callable(visible):
        yield visible
        return
    with bar(label, visible) as tell:
        recent = Recent()

        def report(progress: Progress) -> None:
            assert tell is not None
            tell(progress.fraction, describe(progress, recent.since(progress)))

        yield report if tell else None


def _in_notebook() -> bool:
    """Return whether this is a notebook's kernel, without importing IPython."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
