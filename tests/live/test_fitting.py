"""Lines, speeds and jitter fitted to made-up measurements and logs, and written into a scenario."""

import numpy as np
import pytest

from simfl.assembly.assemble import assemble
from simfl.live.fitting import fit_line, fit_pace
from simfl.live.measuring import Measured, fit_link, measure_gradients
from simfl.scenario import from_mapping, load
from simfl.tape.executor import choose_device

SIZES = np.repeat([8, 16, 32, 64, 128], 400)


def jittered(sigma, count, seed=0):
    return np.exp(np.random.default_rng(seed).normal(-(sigma**2) / 2, sigma, count))


def test_the_fit_is_robust_to_jitter_and_outliers():
    seconds = (2e-3 + SIZES * 1e-4) * jittered(0.1, len(SIZES))
    seconds[::50] *= 20
    pace = fit_pace(SIZES, seconds)
    assert pace.seconds_per_batch == pytest.approx(2e-3, rel=0.05)
    assert pace.seconds_per_example == pytest.approx(1e-4, rel=0.03)
    assert pace.sigma == pytest.approx(0.1, rel=0.1)
    assert pace.error < 0.03


def test_the_fit_keeps_the_mean_of_wide_jitter():
    pace = fit_pace(SIZES, SIZES * 1e-3 * jittered(0.8, len(SIZES)))
    assert pace.sigma == pytest.approx(0.8, rel=0.1)
    assert pace.seconds_per_batch + 64 * pace.seconds_per_example == pytest.approx(64e-3, rel=0.1)


@pytest.mark.parametrize(("x", "y", "fixed", "slope"), [
    ([4, 4, 4], [1.0, 2.0, 3.0], 0.0, 0.5), ([1, 2, 3], [1.0, 3.0, 5.0], 0.0, 1.3),
    ([1, 2, 3], [3.0, 2.0, 1.5], 2.0, 0.0), ([0, 10, 20], [1.0, 2.0, 3.0], 1.0, 0.1),
])  # fmt: skip
def test_no_part_of_a_line_is_negative(x, y, fixed, slope):
    line = fit_line(x, y)
    assert (line.fixed, line.slope) == pytest.approx((fixed, slope), rel=0.2)


def test_latency_and_bandwidth_are_recovered_from_round_trips():
    trips = [(size, 2.5e-4 + size / 1e9) for size in (256, 65536, 4194304) for _ in range(5)]
    line = fit_link(trips)
    assert (line.fixed, 1 / line.slope) == pytest.approx((2.5e-4, 1e9))


SCENARIO = "algorithm: {kind: sync_sgd, batch_size: 16}\nclients: {count: 2}\nstop: {updates: 4}\n"


def test_gradients_are_measured_at_several_sizes():
    sections = {"algorithm": {"kind": "sync_sgd"}, "data": {"set": "digits"}, "clients": {"count": 2}}
    setup = assemble(from_mapping({**sections, "stop": {"updates": 4}}))
    measured = measure_gradients(setup, choose_device("cpu"), each_s=0.0)
    assert [size for size, *_ in measured.spread()] == [8, 16, 32, 64, 128]
    assert all(0 < low <= middle <= high < 1 for _, low, middle, high in measured.spread())
    assert measured.pace.seconds_per_batch + 32 * measured.pace.seconds_per_example > 1e-6


def test_measured_times_are_written_into_a_copy(simfl_, tmp_path, monkeypatch):
    pace = fit_pace(SIZES, (2e-3 + SIZES * 1e-4) * jittered(0.1, len(SIZES)))
    measured = Measured(pace, [(8, 1e-3), (16, 2e-3)])
    monkeypatch.setattr("simfl.live.measuring.measure_gradients", lambda *_: measured)
    (tmp_path / "a.yaml").write_text("# mine\n" + SCENARIO + "data: {set: digits}  # few\n")
    code, output, about = simfl_("calibrate", "a.yaml")
    assert (code, output.split(":")[0]) == (0, "a-calibrated.yaml")
    text = (tmp_path / "a-calibrated.yaml").read_text()
    assert text.startswith("# simfl calibrate, ")
    assert "#   8 examples: 1 ms" in text
    assert "\n# mine\n" in text
    assert "data: {set: digits}  # few\n" in text
    assert "seed" not in text, "the copy has no fields but those of the file and the measured ones"
    assert "jax" in about
    copy = load(tmp_path / "a-calibrated.yaml")
    assert copy.clients.jitter.sigma == pytest.approx(0.1, rel=0.1)
    assert copy.clients.count == 2


def test_links_and_log_exclude_each_other(simfl_, tmp_path):
    (tmp_path / "a.yaml").write_text(SCENARIO)
    assert simfl_("calibrate", "a.yaml", "--links", "--from", "x.csv") == (
        2,
        "",
        "calibrate: expected --links or --from, found both\n",
    )


@pytest.mark.parametrize(("slower", "sigma", "code", "warnings"), [
    (1.0, 0.1, 0, []),
    (6.0, 0.1, 1, ["the jitter is", "the line misses a median by"]),
    (1.0, 1.24, 0, ["the jitter is"]),
])  # fmt: skip
def test_calibrate_warns_of_a_busy_machine_and_fails_if_the_line_does_not_fit(
    slower, sigma, code, warnings, simfl_, tmp_path, monkeypatch
):
    seconds = SIZES * 1e-3 * np.where(SIZES == 16, slower, 1.0) * jittered(sigma, len(SIZES))
    measured = Measured(fit_pace(SIZES, seconds), [(8, 1e-3)])
    monkeypatch.setattr("simfl.live.measuring.measure_gradients", lambda *_: measured)
    (tmp_path / "a.yaml").write_text(SCENARIO + "data: {set: digits}\n")
    exit_code, output, errors = simfl_("calibrate", "a.yaml")
    assert (exit_code, output.split(":")[0]) == (code, "a-calibrated.yaml")
    shown = [line.removeprefix("warning: ") for line in errors.splitlines() if line.startswith("warning: ")]
    assert [line[: len(begin)] for line, begin in zip(shown, warnings, strict=True)] == warnings


def test_calibrate_fails_if_messages_do_not_fit_a_line(simfl_, tmp_path, monkeypatch):
    from simfl.live import launching

    trips = [(256, 1e-3), (4096, 5e-3), (65536, 1e-3), (1048576, 2e-3)]
    monkeypatch.setattr(launching, "check_mpi", lambda: "mpirun")
    monkeypatch.setattr(launching, "launch", lambda jobs, processes: [trips])
    (tmp_path / "a.yaml").write_text(SCENARIO)
    code, _, errors = simfl_("calibrate", "a.yaml", "--links")
    assert code == 1
    assert "warning: the line misses a median by" in errors
