"""EF21 for updates to a server.

Richtarik, Sokolov, Fatkhullin 2021, https://arxiv.org/abs/2106.05203; Delta is the update:

    send q = Q(Delta - g),  g <- g + q at both ends;  the server applies g

For the models that a server sends, the same rule is EF21-P: Gruntkowska, Tyurin, Richtarik 2022,
https://arxiv.org/abs/2209.15218; x is the server's model:

    send q = Q(x - w),  w <- w + q at both ends;  the client uses w
"""

from __future__ import annotations

from typing import ClassVar

from simfl.compression.schemes.choco import Choco


class EF21(Choco):
    """Both ends keep an estimate, g of updates or w of models; messages update it."""

    kind: ClassVar[str] = "ef21"
    summary: ClassVar[str] = "EF21: messages change the server's estimates of updates"
