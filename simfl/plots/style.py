"""The style of figures: color-blind safe colors, names, axes with units."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator
from typing import Any

# Okabe and Ito 2008, "Color universal design", https://jfly.uni-koeln.de/color/. Yellow is left out: too pale on white.
_BLUE, _VERMILION, _GREEN = "#0072B2", "#D55E00", "#009E73"
_ORANGE, _SKY, _PURPLE, _BLACK = "#E69F00", "#56B4E9", "#CC79A7", "#000000"

PALETTE = (_BLUE, _VERMILION, _GREEN, _ORANGE, _SKY, _PURPLE, _BLACK)
"""For curves other than algorithms: clients, clipping norms."""

COLORS = {
    "adpsgd": _BLUE,
    "sync_sgd": _VERMILION,
    "decentralized_sgd": _GREEN,
    "gossip_learning": "#B2182B",
    "sgp": _SKY,
    "without_replacement_sgd": "#6A5ACD",
    "deep_q_sgd": "#999933",
    "random_walk_sgd": "#44AA99",
    "fedavg": "#1F4E9E",
    "fedprox": "#5AAE61",
    "fedbuff": "#E78AC3",
    "fedasync": "#01665E",
    "async_fl": _ORANGE,
    "async_sgd": "#4B0082",
    "centralized_sgd": _BLACK,
    "audp": "#C51B7D",
    "mapa": "#117733",
}
"""Fixed colours. Those of algorithms that papers compare are far apart for the colour-blind too (`FAMILIES`); all
others can be told apart side by side. An algorithm that is not here takes one of the others by its name, always the
same."""

FAMILIES = (
    ("adpsgd", "sync_sgd", "decentralized_sgd", "gossip_learning", "sgp"),
    ("without_replacement_sgd", "deep_q_sgd", "random_walk_sgd"),
    ("fedavg", "fedprox", "fedbuff", "fedasync", "async_fl"),
    ("centralized_sgd", "async_sgd", "audp", "mapa"),
)
"""Algorithms that are drawn into one figure most often."""

_OTHERS = (_ORANGE, _SKY, _PURPLE, _BLACK)

NAMES = {
    "adpsgd": "AD-PSGD",
    "sync_sgd": "SYNC",
    "decentralized_sgd": "D-PSGD",
    "gossip_learning": "gossip learning",
    "sgp": "SGP",
    "without_replacement_sgd": "SGD without replacement",
    "deep_q_sgd": "deep-Q SGD",
    "random_walk_sgd": "random walk SGD",
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "fedbuff": "FedBuff",
    "fedasync": "FedAsync",
    "async_fl": "async FL",
    "async_sgd": "ASGD",
    "centralized_sgd": "CSGD",
    "audp": "AUDP",
    "mapa": "MAPA",
}
"""What papers call the algorithms."""

ROUNDS = ("sync_sgd", "decentralized_sgd", "sgp", "fedavg", "fedprox", "fedbuff", "async_fl")
"""Algorithms that have rounds; for all others the column `rounds` holds updates per client on average."""

SERVER_STEPS = ("fedbuff", "async_fl")
"""Algorithms whose staleness counts steps of the server; that of all others counts updates of all clients."""

LINE_STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (10, 3)))
"""The curves of one figure differ in these, so that it can be read in grey."""

MARKERS = (None, "o", "s", "^", "D", "v")
"""More curves than there are line styles differ in these."""

_RC = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "xtick.labelcolor": "#222222",
    "ytick.labelcolor": "#222222",
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "legend.frameon": True,
    "legend.edgecolor": "none",
    "legend.framealpha": 0.9,
    "legend.fontsize": 9,
    "figure.dpi": 110,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",  # text stays text: it can be searched, and edited
    "svg.hashsalt": "simfl",
}


def color_of(algorithm: str) -> str:
    """Return the colour of an algorithm, the same in every figure."""
    if algorithm in COLORS:
        return COLORS[algorithm]
    return _OTHERS[hashlib.blake2b(algorithm.encode(), digest_size=1).digest()[0] % len(_OTHERS)]


def line_of(position: int) -> Any:
    """Return the style of line of the n-th curve of a figure."""
    return LINE_STYLES[position % len(LINE_STYLES)]


def marker_of(position: int) -> str | None:
    """Return the marker of the n-th curve of a figure; None for the first ones."""
    return MARKERS[position // len(LINE_STYLES) % len(MARKERS)]


def percent(decimals: int | None = None) -> Any:
    """Return a formatter of shares as percentages."""
    from matplotlib.ticker import PercentFormatter

    class Percent(PercentFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return re.sub(r"^[-\u2212](?=0(\.0*)?%$)", "", super().__call__(x, pos))

    return Percent(xmax=1, decimals=decimals)


def shade(color: str, strength: float) -> str:
    """Return a colour mixed with white: strength 1 leaves it as it is, 0 is white."""
    parts = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - strength * (255 - part)):02X}" for part in parts)


def name_of(algorithm: str, private: bool = False) -> str:
    """Return the name of an algorithm as papers write it."""
    if private and algorithm == "adpsgd":
        return "A(DP)²SGD"
    return NAMES.get(algorithm, algorithm)


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Apply simfl's style inside a `with` block."""
    import matplotlib

    with matplotlib.rc_context(_RC):  # type: ignore[arg-type]
        yield


def without_a_screen() -> None:
    """Draw into files only: for commands, which open no windows."""
    import matplotlib

    matplotlib.use("Agg")
