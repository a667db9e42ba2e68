import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
from matplotlib import pyplot as plt
from PIL import Image

import simfl
from simfl.errors import DataError, ScenarioError
from simfl.plots import color_of, label_runs, save
from simfl.records import METRICS, read


def noisy(multiplier):
    return {
        "mechanism": "gaussian",
        "clipping_norm": 1.0,
        "noise_multiplier": multiplier,
        "delta": 1e-5,
        "neighbors": "add_or_remove",
    }


@pytest.fixture(autouse=True)
def _no_figures_left():
    yield
    plt.close("all")


def legend_of(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_a_legend_of_many_curves_lies_beside_them_in_a_wider_figure(make_run):
    runs = [make_run(rate=1 + 0.1 * number) for number in range(7)]
    (few, many) = (simfl.plot(some) for some in (runs[:6], runs))
    right = [ax.get_legend().get_window_extent().x0 >= ax.get_window_extent().x1 for ax in (few, many)]
    assert right == [False, True]
    assert many.figure.get_figwidth() > few.figure.get_figwidth()


def test_a_figure_has_one_curve_per_run_with_units_and_names(make_run):
    fast, slow = make_run(rate=2.0), make_run(algorithm="sync_sgd", rate=0.3)
    ax = simfl.plot([read(fast), slow])
    assert ax.get_xlabel() == "virtual time (s)"
    assert ax.get_ylabel() == "test accuracy"
    assert legend_of(ax) == ["AD-PSGD", "SYNC"]
    first, second = ax.get_lines()
    np.testing.assert_array_equal(first.get_xdata(), read(fast).metrics["time_s"])
    np.testing.assert_array_equal(second.get_ydata(), read(slow).metrics["test_accuracy"])


def test_colors_belong_to_algorithms_and_every_curve_has_a_style_of_its_own(make_run):
    folders = [make_run(), make_run(algorithm="sync_sgd"), make_run(privacy=noisy(1.0)), make_run(algorithm="new")]
    lines = simfl.plot(folders).get_lines()
    assert [line.get_color() for line in lines] == [color_of(name) for name in ("adpsgd", "sync_sgd", "adpsgd", "new")]
    assert len({str(line.get_linestyle()) for line in lines}) == 4, "told apart in gray"
    assert len({color_of(name) for name in ("adpsgd", "sync_sgd", "decentralized_sgd", "new")}) == 4


def test_labels_have_only_the_words_that_distinguish_runs(make_run):
    runs = [read(make_run()), read(make_run(algorithm="sync_sgd"))]
    assert label_runs(runs) == ["AD-PSGD", "SYNC"]
    runs = [read(make_run(privacy=noisy(z))) for z in (0.5, 2.0)]
    assert label_runs(runs) == ["A(DP)²SGD, z = 0.5, C = 1", "A(DP)²SGD, z = 2, C = 1"]
    unclipped = read(make_run(privacy={"mechanism": "gaussian_unclipped", "noise_std": 4.0}, algorithm="sync_sgd"))
    assert label_runs([unclipped]) == ["SYNC, noise 4, unclipped"]
    runs = [read(make_run()), read(make_run(name="other")), read(make_run(algorithm="sync_sgd"))]
    assert label_runs(runs) == ["AD-PSGD, demo", "AD-PSGD, other", "SYNC"]
    runs = [read(make_run(name="twice")), read(make_run(name="twice"))]
    assert label_runs(runs) == ["AD-PSGD, run 001", "AD-PSGD, run 002"]


@pytest.mark.parametrize(("x", "y", "x_label", "y_label"), [
    ("updates", "test_loss", "updates", "test loss"),
    ("epochs", "bytes_sent", "epochs", "data sent by all clients (MB)"),
    ("bytes", "wall_s", "data sent by all clients (MB)", "wall time (ms)"),
    ("time", "epsilon", "virtual time (s)",
     "largest ε over clients,\nbefore the end an upper bound\n(δ = 1e-05, one more or less)"),
])  # fmt: skip
def test_axes_carry_units(make_run, x, y, x_label, y_label):
    ax = simfl.plot(make_run(privacy=noisy(1.0)), x=x, y=y)
    assert (ax.get_xlabel(), ax.get_ylabel()) == (x_label, y_label)
    if y == "bytes_sent":
        assert ax.get_lines()[0].get_ydata()[-1] == 160


def test_every_column_of_metrics_can_be_drawn(make_run):
    folder = make_run()
    for column in METRICS.names:
        assert len(simfl.plot(folder, y=column).get_lines()) == 1


def test_given_axes_and_labels_are_used(make_run):
    _, ax = plt.subplots()
    assert simfl.plot([make_run()], ax=ax, labels=["mine"]) is ax
    assert legend_of(ax) == ["mine"]


def test_the_axis_of_accuracies_begins_at_zero_unless_all_are_high(make_run):
    assert simfl.plot(make_run(rate=0.1)).get_ylim() == (0, 1.005)
    assert simfl.plot([make_run(rate=50.0), make_run(rate=0.1)]).get_ylim() == (0, 1.005)
    assert simfl.plot(make_run(rate=50.0)).get_ylim() == (0.8, 1.005)


def test_a_figure_without_values_says_so(make_run):
    ax = simfl.plot(make_run(accuracy=False))
    assert [text.get_text() for text in ax.texts] == ["no test accuracy in these runs"]


def test_plotting_restores_settings_of_matplotlib(make_run, tmp_path):
    before = dict(matplotlib.rcParams)
    save(simfl.plot(make_run()), tmp_path / "figure.png")
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("ending", [".png", ".pdf", ".svg"])
def test_equal_figures_give_equal_files(make_run, tmp_path, ending):
    folder = make_run()
    one = save(simfl.plot(folder), tmp_path / "deep" / f"one{ending}")
    two = save(simfl.plot(folder).figure, tmp_path / f"two{ending}")
    assert one.read_bytes() == two.read_bytes()
    if ending == ".png":
        with Image.open(one) as image:
            assert image.size == (1280, 800)
            assert image.info["dpi"] == pytest.approx((200, 200), abs=0.1)


@pytest.mark.parametrize(("options", "message"), [
    ({"x": "tmie"}, r"plot: x: expected one of time, updates, .*epsilon, .*found 'tmie'; did you mean 'time'\?"),
    ({"y": "accuracy"}, r"plot: y: expected one of .*test_accuracy.*; did you mean 'test_accuracy'\?"),
    ({"labels": ["a", "b"]}, r"plot: labels: expected 1, one per run, found 2"),
])  # fmt: skip
def test_unknown_axes_are_rejected(make_run, options, message):
    with pytest.raises(ScenarioError, match=message):
        simfl.plot(make_run(), **options)


def test_missing_runs_and_unwritable_figures_are_rejected(make_run, tmp_path):
    with pytest.raises(ScenarioError, match="expected at least one run"):
        simfl.plot([])
    with pytest.raises(DataError, match="found nothing there"):
        simfl.plot(tmp_path / "nowhere")
    ax = simfl.plot(make_run())
    with pytest.raises(ScenarioError, match=r"expected a name that ends in one of \.png, \.pdf, \.svg, found \.jpg"):
        save(ax, tmp_path / "figure.jpg")
    (tmp_path / "file").write_text("")
    with pytest.raises(ScenarioError, match="cannot write the figure"):
        save(ax, tmp_path / "file" / "figure.png")


def test_a_message_offers_only_columns_of_the_runs(make_run):
    folder = make_run()
    with pytest.raises(ScenarioError) as wrong:
        simfl.plot(folder, y="accuracy")
    offered = str(wrong.value).partition("expected one of ")[2].partition(", found")[0].split(", ")
    assert offered == list(read(folder).metrics.columns)
    with pytest.raises(
        DataError, match=r"measured no macro F1; set evaluate.metrics: \[macro_f1\], or choose one of time_s"
    ):
        simfl.plot(folder, y="macro_f1")


def test_more_curves_than_styles_differ_in_markers(make_run):
    lines = simfl.plot([make_run(rate=0.1 * k) for k in range(1, 9)]).get_lines()
    looks = {(str(line._unscaled_dash_pattern), line.get_marker()) for line in lines}
    assert len(looks) == 8
    assert [line.get_marker() for line in lines[5:]] == ["None", "o", "o"]


def test_an_axis_of_rounds_notes_algorithms_without_rounds(make_run):
    assert simfl.plot(make_run(algorithm="fedavg"), x="rounds").get_xlabel() == "rounds"
    both = [make_run(algorithm="fedavg"), make_run()]
    assert simfl.plot(both, x="rounds").get_xlabel() == "rounds (without rounds: updates per client)"


def test_the_text_of_a_figure_in_svg_stays_text(make_run, tmp_path):
    assert ">test accuracy</text>" in save(simfl.plot(make_run()), tmp_path / "figure.svg").read_text()
