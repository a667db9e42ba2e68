import math

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
from matplotlib import pyplot as plt
from PIL import Image

from simfl.papers.proactive_dp.figures import plot_utility
from simfl.papers.proactive_dp.theorems import epsilon_of
from simfl.papers.proactive_dp.utility import UtilityGraph
from simfl.plots import save

SIGMAS = (1.0, 2.0, 4.0, 8.0)
NORMS = (0.05, 0.5, 1.0, 10.0)
RATIOS = ((1.0, 1.0, 0.99, 0.95), (1.0, 0.95, 0.85, 0.6), (0.89, 0.7, 0.5, 0.2), (math.nan,) * 4)


def graph(norms=NORMS, ratios=RATIOS):
    return UtilityGraph(
        clipping_norms=norms,
        noise_multipliers=SIGMAS,
        noise_factors=(1.0,) * 4,
        accuracies=(0.7, 0.85, 0.9, 0.912)[: len(norms)],
        unclipped_accuracy=0.92,
        ratios=ratios,
        lows=tuple(tuple(0.9 * ratio for ratio in curve) for curve in ratios),
        highs=tuple(tuple(1.1 * ratio for ratio in curve) for curve in ratios),
        draws=20,
        gradients=1000,
    )


@pytest.fixture(autouse=True)
def _no_figures_left():
    yield
    plt.close("all")


def curves_of(ax):
    return [line for line in ax.get_lines() if len(line.get_xdata()) == len(SIGMAS)]


def legend_of(ax):
    return [text.get_text().replace("\u2007", "").replace("\u2008", "").split() for text in ax.get_legend().get_texts()]


def test_each_clipping_norm_has_a_curve_with_a_band():
    ax = plot_utility(graph())
    curves = curves_of(ax)
    assert len(curves) == len(ax.collections) == 4
    for curve, ratios in zip(curves, RATIOS, strict=True):
        np.testing.assert_array_equal(curve.get_xdata(), SIGMAS)
        np.testing.assert_array_equal(curve.get_ydata(), ratios)
    assert len({curve.get_color() for curve in curves}) == len({curve.get_marker() for curve in curves}) == 4
    band = ax.collections[1].get_paths()[0].get_extents()
    assert band.y0 == pytest.approx(0.9 * 0.6)
    assert band.y1 == pytest.approx(1.1)
    assert ax.get_xscale() == "log"


def test_the_frontier_is_marked_on_the_line_of_the_loss():
    ax = plot_utility(graph(), target_loss=0.1)
    points = [line.get_xydata()[0].tolist() for line in ax.get_lines() if len(line.get_xdata()) == 1]
    assert points == [[pytest.approx(3.0), 0.9]]  # 0.95 at 2 and 0.85 at 4
    assert [line for line in ax.get_lines() if list(line.get_ydata()) == [0.9, 0.9]]
    assert "loss 10%" in [text.get_text() for text in ax.texts]
    assert legend_of(ax) == [
        ["0.05", "70.0%", "≥", "8"],
        ["0.5", "85.0%", "3"],
        ["1", "90.0%", "<", "1"],
        ["10", "91.2%", "no", "plan"],
    ]
    assert ax.get_legend().get_title().get_text().endswith("σ at 10% loss")


def test_a_second_axis_has_the_claimed_epsilons():
    ax = plot_utility(graph(), delta=1e-5)
    (above,) = ax.child_axes
    assert above.get_xticks().tolist() == [2.0, 4.0, 8.0]  # none is claimed for sigma = 1
    assert [label.get_text() for label in above.get_xticklabels()] == [
        f"{epsilon_of(sigma, 1e-5):.2g}" for sigma in (2.0, 4.0, 8.0)
    ]
    assert above.get_xlabel() == "claimed ε (δ = 1e-5)"
    assert not plot_utility(graph()).child_axes


def test_labels_of_a_dense_grid_do_not_overlap():
    sigmas = tuple(np.geomspace(1, 10, 60).tolist())
    wide = UtilityGraph((1.0,), sigmas, (1.0,) * 60, (0.9,), 0.9, ((1.0,) * 60,), ((1.0,) * 60,), ((1.0,) * 60,), 1, 1)
    assert 8 <= len(plot_utility(wide).get_xticks()) <= 17


def test_a_single_clipping_norm_is_drawn_into_given_axes(tmp_path):
    _, own = plt.subplots()
    ax = plot_utility(graph((1.0,), RATIOS[1:2]), ax=own, title="digits")
    assert ax is own
    assert ax.get_title() == "digits"
    for kind in ("png", "pdf", "svg"):
        assert save(ax, tmp_path / f"graph.{kind}").stat().st_size > 5000
    with Image.open(tmp_path / "graph.png") as image:
        assert image.width > 1000
