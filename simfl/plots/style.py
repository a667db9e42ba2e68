"""The style of figures: color-blind safe colors, names, axes with units."""

from __future__ import annotations

import contextlib
import hashlib
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
# Okabe and Ito 2008, "Color universal design", https://jfly.uni-koeln.de/color/. Yellow is left out: too pale on white.
_BLUE, _VERMILION, _GREEN = "#0072B2", "#D55E00", "#009E73"
_ORANGE, _SKY, _PURPLE, _BLACK = "#E69F00", "#56B4E9", "#CC79A7", "#000000"

#: For curves that are not of algorithms: clients, clipping norms.
PALETTE = (_BLUE, _VERMILION, _GREEN, _ORANGE, _SKY, _PURPLE, _BLACK)

#: Algorithm -> (name, color), and "rounds" or "server steps" if it has such.
_LOOKS: dict[str, tuple[str, ...]] = {
    "adpsgd": ("AD-PSGD", _BLUE),
    "sync_sgd": ("SYNC", _VERMILION, "rounds"),
    "a2cid2": ("A²CiD²", "#A8C060"),
    "decentralized_sgd": ("D-PSGD", _GREEN, "rounds"),
    "corrected_gossip": ("corrected gossip", "#0000FF", "rounds"),
    "k_gt": ("K-GT", "#442244", "rounds"),
    "asy_sonata": ("ASY-SONATA", "#0066EE"),
    "gossip_learning": ("gossip learning", "#B2182B"),
    "sgp": ("SGP", _SKY, "rounds"),
    "epidemic": ("Epidemic Learning", "#E07008", "rounds"),
    "matcha": ("MATCHA", "#883010", "rounds"),
    "teleportation": ("Teleportation", "#080090", "rounds"),
    "swift": ("SWIFT", "#001038"),
    "plexus": ("Plexus", "#60C0C0", "rounds"),
    "divshare": ("DivShare", "#A820F8"),
    "without_replacement_sgd": ("SGD without replacement", "#6A5ACD"),
    "deep_q_sgd": ("deep-Q SGD", "#999933"),
    "random_walk_sgd": ("random walk SGD", "#44AA99"),
    "fedavg": ("FedAvg", "#1F4E9E", "rounds"),
    "fedprox": ("FedProx", "#5AAE61", "rounds"),
    "scaffold": ("SCAFFOLD", "#000033", "rounds"),
    "feddyn": ("FedDyn", "#4400BB", "rounds"),
    "fednova": ("FedNova", "#771133", "rounds"),
    "diloco": ("DiLoCo", "#600000", "rounds"),
    "ditto": ("Ditto", "#662200", "rounds"),
    "async_local_sgd": ("async local SGD", "#6060F0"),
    "halos": ("HALoS", "#619B91"),
    "streaming_diloco": ("Streaming DiLoCo", "#1E0287"),
    "decoupled_diloco": ("Decoupled DiLoCo", "#4A1252"),
    "fedbuff": ("FedBuff", "#E78AC3", "server steps"),
    "fedasync": ("FedAsync", "#01665E"),
    "async_fl": ("async FL", _ORANGE, "server steps"),
    "async_sgd": ("ASGD", "#4B0082"),
    "ringmaster": ("Ringmaster ASGD", "#0048F0"),
    "rennala": ("Rennala SGD", "#30C090", "server steps"),
    "m_sync_sgd": ("m-synchronous SGD", "#9078F0", "server steps"),
    "mindflayer": ("MindFlayer SGD", "#5533BB", "server steps"),
    "ca2fl": ("CA2FL", "#129EA4", "server steps"),
    "ace": ("ACE", "#6D2061"),
    "fadas": ("FADAS", "#7DC05E", "server steps"),
    "fedat": ("FedAT", "#77BBCC", "server steps"),
    "favas": ("FAVAS", "#000044", "server steps"),
    "area": ("AREA", "#225566", "server steps"),
    "ringleader": ("Ringleader ASGD", "#B91900", "server steps"),
    "centralized_sgd": ("CSGD", _BLACK),
    "audp": ("AUDP", "#C51B7D"),
    "mapa": ("MAPA", "#117733"),
}
#: The algorithms' names in papers.
NAMES = {kind: name for kind, (name, *_) in _LOOKS.items()}
#: Fixed colors. Those of algorithms that are often drawn together are far apart for the color-blind, too; others may
#: be alike, and differ by their line styles. An algorithm that is not here has one of `_OTHERS`, by its name.
COLORS = {kind: color for kind, (_, color, *_) in _LOOKS.items()}

_OTHERS = (_ORANGE, _SKY, _PURPLE, _BLACK)

#: Algorithms whose staleness counts steps of the server; that of all others counts updates of all clients.
SERVER_STEPS = {kind for kind, (*_, steps) in _LOOKS.items() if steps == "server steps"}
#: Algorithms that have rounds; for all others the column `rounds` holds updates per client on average.
ROUNDS = {kind for kind, (*_, steps) in _LOOKS.items() if steps == "rounds"} | SERVER_STEPS

#: The curves of a figure have different line styles, for figures in gray; further curves have different markers.
LINE_STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (10, 3)))
MARKERS = (None, "o", "s", "^", "D", "v")
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
    "svg.fonttype": "none",  # text remains text, which can be searched and edited
    "svg.hashsalt": "simfl",
}


def color_of(algorithm: str) -> str:
    """Return the color of an algorithm, the same in every figure."""
    if algorithm in COLORS:
        return COLORS[algorithm]
    return _OTHERS[hashlib.blake2b(algorithm.encode(), digest_size=1).digest()[0] % len(_OTHERS)]


def line_of(position: int) -> Any:
    """Return the line style of the n-th curve of a figure."""
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
    """Return a color mixed with white: strength 1 is the color, 0 is white."""
    parts = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - strength * (255 - part)):02X}" for part in parts)


def name_of(algorithm: str, private: bool = False, title: str = "") -> str:
    """Return an algorithm's title, or its name as papers write it."""
    return title or ("A(DP)²SGD" if private and algorithm == "adpsgd" else NAMES.get(algorithm, algorithm))


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Apply simfl's style inside a `with` block."""
    import matplotlib

    with matplotlib.rc_context(_RC):  # type: ignore[arg-type]
        yield


def axes_of(ax: Axes | None, width: float = 6.4, height: float = 4.0) -> Axes:
    """Return the given axes, else new ones of a size in inches."""
    if ax is not None:
        return ax
    from matplotlib import pyplot as plt

    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def without_a_screen() -> None:
    """Draw into files only, since commands open no windows and read no docstrings.

    While matplotlib is imported, it writes a docstring for `set` of each of its classes: a fifth of the import.
    """
    import matplotlib

    if "matplotlib.lines" not in sys.modules:
        _without_docstrings()
    matplotlib.use("Agg")


def _without_docstrings() -> None:
    from matplotlib.artist import Artist

    def mark(cls: Any) -> None:
        cls.set._autogenerated_signature = True

    if hasattr(Artist, "_update_set_signature_and_docstring"):
        Artist._update_set_signature_and_docstring = classmethod(mark)
