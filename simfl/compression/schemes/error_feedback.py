"""Error feedback on the way to a server.

Karimireddy, Rebjock, Stich, Jaggi 2019, "Error feedback fixes SignSGD", https://arxiv.org/abs/1901.09847, of an update
Delta:

    v = Delta + e,  send c = Q(v),  e <- v - c;  the server applies c
"""

from __future__ import annotations

from typing import ClassVar

from simfl.compression.schemes.deep_squeeze import DeepSqueeze


class ErrorFeedback(DeepSqueeze):
    """A client adds to its next update what the last ones left out."""

    kind: ClassVar[str] = "error_feedback"
    summary: ClassVar[str] = "error feedback: what an update leaves out is added to the next one"
