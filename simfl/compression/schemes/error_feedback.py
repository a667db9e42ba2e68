"""Error feedback for updates to a server.

Karimireddy, Rebjock, Stich, Jaggi 2019, "Error feedback fixes SignSGD", https://arxiv.org/abs/1901.09847; Delta is the
update:

    v = Delta + e,  send c = Q(v),  e <- v - c;  the server applies c
"""

from __future__ import annotations

from typing import ClassVar

from simfl.compression.schemes.deep_squeeze import DeepSqueeze


class ErrorFeedback(DeepSqueeze):
    """A client adds the compression error of its last updates to the next one."""

    kind: ClassVar[str] = "error_feedback"
    summary: ClassVar[str] = "error feedback: what an update leaves out is added to the next one"
