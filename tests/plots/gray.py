"""What a reader of a gray print confuses."""

import itertools

from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.lines import Line2D


def alike_in_gray(figure):
    """Return pairs of labels in the same axes whose curves or bars differ in color alone."""
    pairs = []
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        looks = [(label, look) for handle, label in zip(handles, labels, strict=True) if (look := _look(handle))]
        for (one, look), (other, same) in itertools.combinations(looks, 2):
            if look == same and one != other:
                pairs.append((axes.get_title(), one, other))
    return pairs


def _look(handle):
    if isinstance(handle, BarContainer):
        return ("bar", handle.patches[0].get_hatch())
    line = handle.lines[0] if isinstance(handle, ErrorbarContainer) else handle
    if not isinstance(line, Line2D):
        return None
    drawn = line.get_linestyle() not in ("None", "")
    dashes = str(line._unscaled_dash_pattern) if drawn else ""
    return dashes, str(line.get_marker()), drawn and line.get_linewidth() > 1.0
