import itertools
import math

import numpy as np
import pandas as pd
import pytest

from simfl.accounts.figures import plot_by_distance, plot_knowledge, plot_over_time, plot_pairs
from simfl.plots import save_and_close

COUNT = 6
EDGES = pd.DataFrame(
    [(str(k), str((k + 1) % COUNT), 5) for k in range(COUNT)], columns=["source", "target", "messages"]
)


def table(times=(1.0,), observers=range(COUNT), server=False):
    """A ring where the certified epsilon is 4 / distance and the published one a tenth of it, growing over time."""
    rows = []
    for time, observer, client in itertools.product(times, observers, range(COUNT)):
        distance = 1.0 if server else float(min((observer - client) % COUNT, (client - observer) % COUNT))
        if distance or server:
            epsilon = 4.0 * time / distance
            name = "server" if server else str(observer)
            rows.append((time, name, client, distance, epsilon, epsilon / 10, 4.0 * time))
    return pd.DataFrame(rows, columns=["time_s", "observer", "client", "distance", "epsilon", "published", "local"])


def panels(figure):
    return [ax for ax in figure.axes if ax.get_title()]


def test_pairs_are_cells_of_two_heat_maps(tmp_path):
    figure = plot_pairs(table((0.5, 1.0)), 1e-5)
    certified, published = panels(figure)
    cells = certified.images[0].get_array()
    assert cells.shape == (COUNT, COUNT)
    assert np.all(np.diag(cells.mask)), "nobody observes itself"
    assert cells[0].tolist() == [None, 4.0, 2.0, 4.0 / 3.0, 2.0, 4.0]
    assert published.images[0].get_array()[0, 3] == pytest.approx(0.4 / 3.0)
    assert certified.images[0].norm is published.images[0].norm, "one scale for both"
    assert [text.get_text() for text in certified.texts][:2] == ["4", "2"]
    assert "ε at δ = 1e-5" in [ax.get_ylabel() for ax in figure.axes]
    assert save_and_close(figure, tmp_path / "pairs.png")[0].stat().st_size > 10_000


def test_infinite_epsilons_have_their_own_color():
    pairs = table(observers=[2])
    pairs.loc[0, ["epsilon", "published", "local"]] = math.inf
    figure = plot_pairs(pairs, 1e-5)
    certified, _ = panels(figure)
    assert np.nansum(certified.images[1].get_array()) == 1.0
    assert certified.images[0].norm.vmax == 4.0
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["seen without noise (ε = ∞)"]
    assert [label.get_text() for label in certified.get_xticklabels()] == ["0", "1", "3", "4", "5"]
    graph = plot_knowledge(pairs, EDGES, 1e-5)
    assert len(graph.legends) == 1
    save_and_close(graph)


def test_epsilon_falls_with_distance():
    pairs = table()
    pairs.loc[pairs["observer"] == "0", "epsilon"] *= 0.5
    ax = plot_by_distance(pairs, 1e-6)
    certified, published, local = ax.lines
    assert certified.get_xdata().tolist() == [1.0, 2.0, 3.0]
    assert certified.get_ydata().tolist() == [4.0, 2.0, 4.0 / 3.0]
    assert published.get_ydata()[0] == pytest.approx(0.4)
    assert local.get_ydata()[0] == 4.0
    band = ax.collections[0].get_paths()[0].vertices
    assert band[band[:, 0] == 1.0][:, 1].min() == pytest.approx(np.quantile([2.0, 2.0, *[4.0] * 10], 0.1))
    assert "δ = 1e-6" in ax.get_ylabel()


def test_pairs_without_a_path_have_their_own_tick():
    pairs = table()
    pairs.loc[pairs["client"] == 5, "distance"] = math.inf
    ax = plot_by_distance(pairs, 1e-5)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2", "3", "no path"]


def test_clients_on_the_graph_are_colored_by_one_observers_knowledge():
    figure = plot_knowledge(table(), EDGES, 1e-5, "2")
    certified, _ = panels(figure)
    shades = [collection.get_array() for collection in certified.collections if collection.get_array() is not None]
    assert shades[0].tolist() == [2.0, 4.0, 4.0, 2.0, pytest.approx(4.0 / 3.0)]
    assert any("for client 2" in ax.get_ylabel() for ax in figure.axes)
    save_and_close(figure)


def test_the_server_is_a_node_too():
    edges = pd.DataFrame([(str(k), "server", 1) for k in range(COUNT)], columns=["source", "target", "messages"])
    figure = plot_knowledge(table(observers=[0], server=True), edges, 1e-5)
    names = [text.get_text() for text in panels(figure)[0].texts]
    assert sorted(names) == [*map(str, range(COUNT)), "server"]
    save_and_close(figure)


def test_curves_over_time_begin_at_zero():
    figure = plot_over_time(table((0.5, 1.0)), 1e-5)
    certified, published = panels(figure)
    near, _, far = certified.lines
    assert near.get_xdata().tolist() == [0.0, 0.5, 1.0]
    assert near.get_ydata().tolist() == [0.0, 2.0, 4.0]
    assert far.get_label() == "3"
    assert published.lines[0].get_ydata().tolist() == pytest.approx([0.0, 0.2, 0.4])
    save_and_close(figure)
