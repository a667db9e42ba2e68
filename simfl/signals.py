"""Signals that end a program: Ctrl-C, SIGTERM, a closed terminal."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")
"""The signals; not every system has all of them."""

_last = 0
_passed_on = 0


@contextlib.contextmanager
def handled(handle: Callable[[int], None]) -> Iterator[None]:
    """Call `handle` with the number of such a signal within a block.

    Only the main thread can handle signals; in another thread the block runs without handlers. A signal that the
    program was started to ignore (`nohup`) stays ignored, except SIGINT: programs that forward it to processes without
    a terminal rely on that.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def take(number: int, frame: FrameType | None) -> None:
        global _last, _passed_on
        _last, _passed_on = _passed_on or number, 0
        handle(_last)

    before = {}
    for name in NAMES:
        number = getattr(signal, name, None)
        if number is not None and (name == "SIGINT" or signal.getsignal(number) is not signal.SIG_IGN):
            before[number] = signal.signal(number, take)
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier if earlier is not None else signal.SIG_DFL)


def pass_on(number: int) -> None:
    """Handle a signal that the parent process received."""
    global _passed_on
    _passed_on = number
    signal.raise_signal(signal.SIGINT)


def exit_code() -> int:
    """Return the shell's exit code for the last signal: 130 for Ctrl-C, 143 SIGTERM."""
    return 128 + (_last or signal.SIGINT)


def describe(number: int) -> str:
    """Describe in words the signal that ended a run."""
    return "interrupted by the user" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
