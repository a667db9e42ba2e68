"""Colors that the color-blind can distinguish, and a name for every algorithm."""

import inspect
import io
import itertools
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console

import simfl
from simfl.algorithms import ALGORITHMS
from simfl.cli import console
from simfl.comparison.sweeps import open_groups
from simfl.plots import label_runs
from simfl.plots.groups import label_of
from simfl.plots.style import COLORS, NAMES, ROUNDS, SERVER_STEPS, color_of, name_of, percent
from tests.algorithms.custom import Alone

# Machado, Oliveira, Fernandes 2009, "A physiologically-based model for simulation of color vision deficiency",
# https://doi.org/10.1109/TVCG.2009.113, severity 1, on linear RGB.
VISION = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
}
#: Algorithms that are often drawn into one figure.
FAMILIES = (
    (
        "adpsgd",
        "sync_sgd",
        "decentralized_sgd",
        "corrected_gossip",
        "k_gt",
        "asy_sonata",
        "gossip_learning",
        "sgp",
        "privsgp_vr",
    ),
    ("a2cid2", "epidemic", "divshare", "matcha", "teleportation", "swift", "adsgd", "plexus"),
    ("without_replacement_sgd", "deep_q_sgd", "random_walk_sgd", "multi_walk"),
    ("fedavg", "fedprox", "fedbuff", "fedasync", "async_fl"),
    ("scaffold", "feddyn", "fednova", "ditto", "apfl", "pfedme"),
    ("ringleader", "mindflayer", "ca2fl", "ace", "fadas"),
    ("diloco", "async_local_sgd", "halos", "decoupled_diloco", "streaming_diloco", "noloco", "gasloc"),
    ("fedat", "favas", "area"),
    ("centralized_sgd", "async_sgd", "audp", "mapa", "ringmaster", "rennala", "m_sync_sgd"),
)
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(color):
    c = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    """CIELAB of linear RGB."""
    relative = TO_XYZ @ np.clip(rgb, 0, 1) / np.array([0.9505, 1.0, 1.089])
    f = np.where(relative > 0.008856, np.cbrt(relative), 7.787 * relative + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def apart(one, other):
    """The smallest distance between two colors over all kinds of vision (CIE 1976)."""
    return min(
        np.linalg.norm(lab(np.array(eye) @ linear(one)) - lab(np.array(eye) @ linear(other))) for eye in VISION.values()
    )


def test_every_algorithm_has_a_color_and_a_name_of_its_own():
    assert set(COLORS) == set(NAMES) == set(ALGORITHMS)
    assert len(set(NAMES.values())) == len(ALGORITHMS)
    assert sorted(itertools.chain(*FAMILIES)) == sorted(ALGORITHMS)
    assert name_of("adpsgd", private=True) == "A(DP)²SGD"
    assert name_of("my_module:Mine") == "my_module:Mine"


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family[0])
def test_colors_within_a_family_are_far_apart_also_for_the_color_blind(family):
    distances = {pair: apart(color_of(pair[0]), color_of(pair[1])) for pair in itertools.combinations(family, 2)}
    assert min(distances.values()) > 22, min(distances, key=distances.get)


def test_all_colors_show_on_white():
    for kind, color in COLORS.items():
        contrast = 1.05 / (linear(color) @ TO_XYZ[1] + 0.05)
        assert contrast > 2, kind


def source_of(kind):
    """The source of an algorithm's classes, without the common base."""
    classes = [one for one in ALGORITHMS[kind].__mro__ if one.__module__.startswith("simfl.")]
    return "".join(inspect.getsource(one) for one in classes if one.__module__ != "simfl.algorithms.base")


def test_algorithms_with_rounds_are_those_that_number_them():
    numbering = {kind for kind in ALGORITHMS if "round_num" in source_of(kind)} - {"multi_walk"}  # its walks have none
    assert set(ROUNDS) == numbering
    assert set(SERVER_STEPS) <= set(ROUNDS)
    assert "def version_after" in source_of("fedbuff"), "its version counts buffers"


def test_a_zero_percentage_has_no_sign():
    written = percent(0)
    written.create_dummy_axis()
    assert [written(value) for value in (-0.0, -1e-9, 0.5)] == ["0%", "0%", "50%"]


class Titled(Alone):
    """An algorithm of a user, with a name for readers."""

    title = "CHOCO-SGD"


MINE = f"{__name__}:Titled"
BASE = {
    "name": "titled",
    "data": "digits",
    "clients": {"count": 2},
    "stop": {"updates": 8},
    "algorithm": {"kind": MINE, "batch_size": 4},
}
SYNC = {"kind": "sync_sgd", "batch_size": 4}


@pytest.mark.usefixtures("without_numbers")
def test_title_of_a_class_names_its_runs_in_legends_and_tables(tmp_path):
    mine = simfl.run(BASE, out=tmp_path)
    other = simfl.run(BASE | {"algorithm": SYNC}, out=tmp_path)
    assert (mine.algorithm, mine.title, other.title) == (MINE, "CHOCO-SGD", "")
    assert label_runs([mine, other]) == ["CHOCO-SGD", "SYNC"]
    assert list(simfl.compare([mine, other])["label"]) == ["CHOCO-SGD", "sync_sgd"]
    screen = Console(width=120, file=io.StringIO())
    console.show_runs([mine, other], screen)
    assert "CHOCO-SGD" in screen.file.getvalue()
    assert MINE not in screen.file.getvalue()
    page = simfl.report([mine, other], tmp_path / "page.html", baseline="CHOCO-SGD").read_text()
    assert "CHOCO-SGD, SYNC · 2 clients" in page


@pytest.mark.slow
@pytest.mark.usefixtures("without_numbers")
def test_title_stands_for_the_kind_in_labels_of_a_sweep(tmp_path):
    grid = {"algorithm": [BASE["algorithm"], SYNC], "clients.count": [2, 3]}
    study = {"name": "sweep", "base": BASE, "grid": grid, "baseline": f"{MINE}, count=2"}
    swept = simfl.sweep(study, out=tmp_path, jobs=1)
    groups, baseline = open_groups([swept.folder])
    assert [label_of(group) for group in groups][:2] == ["CHOCO-SGD, count=2", "CHOCO-SGD, count=3"]
    assert baseline == "CHOCO-SGD, count=2"
    assert list(simfl.compare(swept)["label"])[2:] == ["sync_sgd, count=2", "sync_sgd, count=3"]
    named = simfl.sweep(
        {**study, "name": "named", "baseline": None, "grid": {"algorithm": {"mine": BASE["algorithm"]}}},
        out=tmp_path,
        jobs=1,
    )
    assert [group.label for group in open_groups([named.folder])[0]] == ["mine"]


@pytest.mark.slow
def test_figures_of_commands_are_the_same_without_docstrings_of_matplotlib(tmp_path):
    """A property of the hook: `Artist.set` works, and a line is drawn as in a process with docstrings."""
    code = """
import sys
from simfl.plots.style import without_a_screen
if sys.argv[1] == "without":
    without_a_screen()
import matplotlib
matplotlib.use("Agg")
from matplotlib import pyplot as plt
figure, ax = plt.subplots()
(line,) = ax.plot([1, 2], [3, 4])
line.set(linewidth=3, color="red")
ax.set(xlabel="x", title="t")
figure.savefig(sys.argv[2])
print(len(type(line).set.__doc__ or ""))
"""
    pictures, lengths = [], []
    for how in ("with", "without"):
        path = tmp_path / f"{how}.png"
        drawn = subprocess.run([sys.executable, "-c", code, how, str(path)], capture_output=True, text=True, check=True)
        pictures.append(path.read_bytes())
        lengths.append(int(drawn.stdout))
    assert pictures[0] == pictures[1]
    assert lengths[0] > 1000 > lengths[1]
