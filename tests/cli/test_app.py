import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

import simfl
from simfl import signals
from simfl.cli import bars, console
from simfl.comparison.comparing import compare_groups
from simfl.comparison.sweeps import Group
from simfl.comparison.terminal import show_comparison
from simfl.errors import RunError, missing
from simfl.records import Progress, Run, read

TINY = """
seed: 3
data: {set: digits}
model: {kind: softmax}
clients: {count: 4}
algorithm: {kind: sync_sgd, step_size: 0.4, batch_size: 16}
stop: {updates: 40}
evaluate: {every: {updates: 20}}
"""


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return path


@pytest.fixture
def fake_runs(monkeypatch, make_run):
    """Replace `run`: yield a dictionary of outcomes by the scenario's name; other scenarios get made-up runs."""
    from simfl.runs import runner

    happenings = {}
    asked = []

    def run(prepared, *, out, device, progress, checkpoint_every):
        scenario = getattr(prepared, "scenario", prepared)
        asked.append((scenario.name, scenario.seed, Path(out), device, progress is not None))
        happening = happenings.get(scenario.name, {})
        if isinstance(happening, Exception):
            raise happening
        if progress is not None:
            for step in (0, 1, 2, 3):  # the first ones come while everything is compiled
                progress(Progress(0.25 * step, 600 * step, 1.5 * step, 0.875, 0.125 * step, 10.0 + step, 600.0))
        return Run(make_run(name=scenario.name, algorithm=scenario.algorithm.kind, **happening))

    monkeypatch.setattr(runner, "run", run)
    return happenings, asked


def test_help_names_the_commands_and_version_prints_the_version(simfl_):
    out = simfl_.printed("--help")
    assert all(command in out for command in ("run", "validate", "list", "new", "plot", "bench", "data", "privacy"))
    assert simfl_("--version") == (0, f"simfl {simfl.__version__}\n", "")


@pytest.mark.parametrize("order", [("--version", "--verbose"), ("--verbose", "--version")])
def test_verbose_version_names_libraries_devices_and_whether_modules_are_compiled(simfl_, order):
    code, out, err = simfl_(*order)
    first, *others = out.splitlines()
    assert (code, err) == (0, "")
    assert first.startswith((f"simfl {simfl.__version__}, compiled", f"simfl {simfl.__version__}, not compiled ("))
    for start in ("Python 3.", "jax ", "simpy 4.", "device: cpu", "attached: "):
        assert any(line.startswith(start) for line in others), start


def test_verbose_without_version_is_rejected(simfl_):
    line = "simfl: Invalid value: expected --version --verbose, or a command; see simfl --help\n"
    assert simfl_("--verbose", "list") == (2, "", line)


@pytest.mark.slow
def test_checked_setup_is_the_one_that_runs(simfl_, scenario, tmp_path, monkeypatch):
    from simfl.assembly import assemble, data

    done = []

    def counted(module, name):
        function = getattr(module, name)

        def call(*arguments, **options):
            done.append(name)
            return function(*arguments, **options)

        monkeypatch.setattr(module, name, call)

    counted(assemble, "assemble")
    counted(data, "load_dataset")
    assert simfl_("run", scenario, "--out", tmp_path / "one")[0] == 0
    assert sorted(done) == ["assemble", "load_dataset"], "a single scenario is assembled once"
    done.clear()
    other = scenario.with_name("other.yaml")
    other.write_text(scenario.read_text())
    assert simfl_("run", scenario, other, "--out", tmp_path / "two")[0] == 0
    assert sorted(done) == ["assemble"] * 4 + ["load_dataset"], "the data of several is loaded once, if it is the same"


def test_run_writes_tables_and_a_figure(simfl_, scenario, tmp_path):
    out = simfl_.printed("run", scenario, "--set", "clients.count=2", "--seed", 5, "--out", tmp_path / "o")
    folder = tmp_path / "o" / "tiny" / "001"
    run = read(folder)
    assert run.status == "done"
    assert run.manifest.updates == 40
    assert run.scenario["clients"]["count"] == 2
    assert run.manifest.seed == 5
    assert re.search(r"^updates +│ 40 *$", out, re.MULTILINE)
    assert out.rstrip().endswith(f"figure: {folder / 'test_accuracy.png'}")
    assert (folder / "test_accuracy.png").stat().st_size > 10_000


def test_several_runs_are_compared(simfl_, fake_runs, scenario, tmp_path):
    happenings, asked = fake_runs
    other = tmp_path / "other.yaml"
    other.write_text(TINY.replace("sync_sgd", "adpsgd"))
    happenings["tiny"] = {"rate": 0.1}
    out = simfl_.printed("run", scenario, other, "--quiet", "--device", "cpu")
    assert asked == [("tiny", 3, Path("results"), "cpu", False), ("other", 3, Path("results"), "cpu", False)]
    rows = dict(line.split("│", 1) for line in out.splitlines() if "│" in line)
    rows = {key.strip(): [cell.strip() for cell in cells.split("│")] for key, cells in rows.items()}
    assert rows["algorithm"] == ["SYNC", "AD-PSGD"]
    assert rows["status"] == ["done", "done"]
    assert rows["time to 63.73%"] == ["10 s", "1 s"]
    assert rows["sent"] == ["160 MB", "160 MB"]
    assert rows["updates/s of wall time"] == ["2,000", "2,000"]
    assert "epsilon" not in rows
    figure = Path(out.rstrip().rpartition("figure: ")[2])
    assert figure == Path("results/figures/tiny-001-other-001.png")
    assert figure.exists()


def test_many_runs_are_shown_in_rows(simfl_, fake_runs, scenario):
    out = simfl_.printed("run", *[scenario] * 5)
    header = next(line for line in out.splitlines() if "virtual time" in line)
    assert re.split(r" *┃ *", header.strip())[:4] == ["folder", "algorithm", "test accuracy", "time to 95.00%"]
    assert sum("tiny/" in line and "SYNC" in line for line in out.splitlines()) == 5
    assert "tiny-001-tiny-002-tiny-003-2-more.png" in out


@pytest.mark.parametrize("width", [50, 80, 100, 140, 240])
def test_tables_of_any_number_of_runs_fit_into_the_terminal(make_run, tmp_path, monkeypatch, width):
    privacy = {"mechanism": "gaussian", "clipping_norm": 1.0, "noise_multiplier": 2.0, "delta": 1e-5}
    monkeypatch.chdir(tmp_path)
    runs = [read(make_run(privacy=privacy).relative_to(tmp_path)) for _ in range(6)]
    for count in (1, 2, 3, 4, 6):
        screen = Console(width=width, file=io.StringIO(), highlight=False)
        console.show_runs(runs[:count], screen)
        shown = screen.file.getvalue()
        assert max(map(len, shown.splitlines())) <= width
        rows = [line for line in shown.splitlines() if "results/demo/00" in line]
        named = sum(line.count("results/demo/00") for line in rows)  # none is folded
        parts = 1 if len(rows) == 1 else named // count
        assert (named, len(rows) in (1, named)) == (parts * count, True)
        assert shown.count("A(DP)²SGD") == count
        assert shown.count("2.5 at") == count, "nothing is left out"
        assert shown.count("2,000") == count


def test_epsilon_is_shown_with_delta_and_its_guarantee(simfl_, fake_runs, scenario, tmp_path):
    happenings, _ = fake_runs
    statement = "(epsilon, delta = 1e-05) per example of a client, local view"
    privacy = {"mechanism": "gaussian", "clipping_norm": 1.0, "noise_multiplier": 2.0, "delta": 1e-5}
    happenings["tiny"] = {"privacy": privacy, "extra": {"privacy": statement, "assumptions": {"unit": "example"}}}
    plain = tmp_path / "plain.yaml"
    plain.write_text(TINY)
    out = simfl_.printed("run", scenario, plain)
    assert re.search(r"^noise +│ z = 2, C = 1 +│ –", out, re.MULTILINE)
    assert re.search(r"^epsilon +│ 2\.5 at delta 1e-05 +│ –", out, re.MULTILINE)
    assert out.count(f"privacy: {statement}\n") == 1
    assert out.count("what epsilon assumes: simfl privacy check ") == 1


def test_a_run_without_accuracies_shows_losses(simfl_, fake_runs, scenario):
    happenings, _ = fake_runs
    happenings["tiny"] = {"accuracy": False}
    out = simfl_.printed("run", scenario)
    assert "test accuracy" not in out
    assert re.search(r"^test loss +│ 1\.05", out, re.MULTILINE)
    assert "test_loss.png" in out


def test_all_scenarios_are_checked_before_the_first_run(simfl_, fake_runs, scenario, tmp_path):
    _, asked = fake_runs
    broken = tmp_path / "broken.yaml"
    broken.write_text(TINY.replace("batch_size: 16", "batch_size: 1600"))
    unknown = tmp_path / "unknown.yaml"
    unknown.write_text(TINY + "speling: 1\n")
    code, out, err = simfl_("run", scenario, broken, unknown, tmp_path / "missing.yaml")
    assert (code, out, asked) == (2, "", [])
    lines = err.splitlines()
    assert len(lines) == 3
    assert "algorithm.batch_size" in lines[0]
    assert str(unknown) in lines[1]
    assert "speling" in lines[1]
    assert "missing.yaml" in lines[2]
    assert not (tmp_path / "results").exists()


def test_the_same_problem_is_reported_once(simfl_, scenario):
    err = simfl_.refused("run", scenario, scenario, "--set", "nonsense")
    assert err.count("--set") == 1


def test_a_failed_run_does_not_stop_the_others(simfl_, fake_runs, scenario, tmp_path):
    happenings, _ = fake_runs
    happenings["tiny"] = RunError("tiny: client 3 at 0.5 s: the reason")
    other = tmp_path / "other.yaml"
    other.write_text(TINY)
    code, out, err = simfl_("run", scenario, other)
    assert (code, err) == (1, "tiny: client 3 at 0.5 s: the reason\n")
    assert "other" in out


def test_a_diverged_run_is_a_result(simfl_, fake_runs, scenario):
    happenings, _ = fake_runs
    happenings["tiny"] = {"status": "diverged", "reason": "the loss was not finite at 3 s of virtual time"}
    out = simfl_.printed("run", scenario)
    assert "tiny: diverged: the loss was not finite at 3 s of virtual time" in out


def test_an_interrupted_run_is_shown_and_later_ones_do_not_start(simfl_, fake_runs, scenario, monkeypatch):
    monkeypatch.setattr(signals, "_last", 0)  # what another test was sent is none of this one's
    happenings, asked = fake_runs
    happenings["tiny"] = {"status": "interrupted", "reason": "interrupted by the user"}
    code, out, _ = simfl_("run", scenario, scenario)
    assert code == 130
    assert len(asked) == 1
    assert "tiny: interrupted by the user" in out.splitlines()


def test_control_characters_are_escaped(simfl_, make_run):
    code, _, err = simfl_("plot", "no\x1b[2Jwhere\r")
    assert (code, err.partition(":")[0]) == (2, r"no\x1b[2Jwhere\r")
    run = make_run(status="failed", reason="\x1b]0;title\x07")
    _, out, _ = simfl_("compare", run, make_run(algorithm="sync_sgd"))
    assert "\x1b" not in out


@pytest.mark.slow
def test_sigterm_keeps_the_measurements(scenario, tmp_path):
    command = [sys.executable, "-c", "from simfl.cli.app import main; main()", "run", str(scenario)]
    command += ["--set", "stop.updates=100000000", "--set", "evaluate.every.updates=200"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    folder = tmp_path / "results" / "tiny" / "001"
    try:
        deadline = time.monotonic() + 300
        while not (folder / "manifest.json").exists():
            assert time.monotonic() < deadline
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert (process.returncode, err) == (143, "to continue: simfl resume results/tiny/001\n")
    assert "ended by SIGTERM" in out
    run = read(folder)
    assert run.status == "interrupted"
    assert len(run.updates) == run.manifest.updates == run.clients["updates"].sum() > 0
    assert run.metrics["time_s"].is_monotonic_increasing
    assert not list(folder.glob("*.partial"))


def test_progress_is_shown_on_terminals_only(simfl_, fake_runs, scenario, monkeypatch):
    _, asked = fake_runs
    simfl_("run", scenario)
    assert asked[-1][-1] is False
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    code, _, err = simfl_("run", scenario)
    assert code == 0
    assert asked[-1][-1] is True
    assert "t = 750 ms  1,800 updates  acc. 87.5%  600/s  ETA 0:05" in err
    simfl_("run", scenario, "--quiet")
    assert asked[-1][-1] is False


def test_speed_and_time_left_follow_recent_reports():
    first = Progress(0.0, 0, 0.0, None, 0.0, 3.0, 0.0)
    assert bars.describe(first) == bars.describe(first, first) == "t = 0 s  0 updates"
    later = Progress(90.0, 5, 0.1, None, 0.001, 12.0, 0.5)
    assert bars.describe(later, first) == "t = 90 s  5 updates  1/s  ETA 2:29:51"
    stuck = Progress(90.0, 5, 0.1, 0.5, 0.001, 13.0, 0.5)
    assert bars.describe(stuck, later) == "t = 90 s  5 updates  acc. 50.0%  0/s"


@pytest.mark.parametrize("width", [40, 50, 80])
def test_a_narrow_terminal_shows_bar_and_time_left(width):
    first, later = (Progress(t, int(40 * t), t, 0.875, t / 40, t, 40.0) for t in (10.0, 20.0))
    screen = Console(width=width, file=io.StringIO(), force_terminal=True, color_system=None)
    with bars.bar_on(screen) as bar:
        state = bars.describe(later, first, bars.room_of(screen, "demo-adpsgd"))
        bar.add_task("demo-adpsgd", total=1.0, completed=later.fraction, state=state)
    shown = screen.file.getvalue()
    assert re.search(r"demo-adpsgd ━{4}[━╸╺ ]{4,} +.*ETA 0:20", shown), shown
    assert ("updates" in shown) == (width == 80)


@pytest.mark.parametrize("width", [50, 80, 240])
def test_a_comparison_keeps_its_columns_at_any_width(make_run, monkeypatch, capsys, width):
    monkeypatch.setattr(console, "output", lambda: Console(width=width, highlight=False))
    runs = {kind: read(make_run(algorithm=kind, rate=rate)) for kind, rate in (("adpsgd", 1.0), ("sync_sgd", 0.3))}
    groups = [Group(f"{kind}, seen by nobody", {"algorithm": kind}, {1: run}) for kind, run in runs.items()]
    show_comparison(compare_groups(groups, baseline="sync_sgd"))
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= width
    for value in ("95.00%", "10 s", "3 s", "3.33 x", "160 MB", "+4.23 points"):
        assert value in shown, value
    assert " ".join(shown.split()).count("target: a test accuracy of 90.77%, that every run reached;") == 1
    assert (shown.count("seen by nobody") > 3) == (width < 240), "each part says whose numbers these are"
    show_comparison(compare_groups(groups, target=0.99))
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("not reached") == 2
    assert "target: a test accuracy of 99.00%, that 0 of 2 runs reached" in shown


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["list", "modls"], "simfl list: Invalid value for 'WHAT': 'modls' is not one of 'algorithms', 'models', "
         "'data', 'topologies', 'optimizers', 'compressors', 'selectors', 'rules', 'attacks', "
         "'plugins'; did you mean 'models'?"),
        (["new", "--forc"], "simfl new: No such option: --forc (Possible options: --force); see simfl new --help"),
        (["replay", "x"], "simfl replay: expected a command, found one that was removed; use simfl sweep, "
         "which plays runs that differ in arithmetic alone together"),
        (["rum"], "simfl: No such command 'rum'. Did you mean 'run', 'resume'?; see simfl --help"),
        (["privacy", "account", "--neighbors", "replace", "-z", "1", "--steps", "3"],
         "simfl privacy account: Invalid value for '--neighbors': 'replace' is not one of 'add_or_remove', "
         "'replace_one'; did you mean 'replace_one'?"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_gives_one_line(simfl_, words, line):
    assert simfl_(*words) == (2, "", line + "\n")


def test_a_missing_library_is_one_line_and_no_run_fails_by_it(simfl_, fake_runs, scenario, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # an import fails as if it were not installed
    line = "expected matplotlib to be installed, found nothing; pip install matplotlib\n"
    code, out, err = simfl_("run", scenario)
    assert (code, err) == (0, f"no figure: {line}")
    assert "test accuracy" in out
    assert simfl_("plot", re.search(r"folder +│ (\S+)", out)[1]) == (2, "", line)


def test_a_missing_module_that_simfl_does_not_require_is_no_line_of_its_own():
    assert missing(ModuleNotFoundError("x", name="my_net")) is None
    assert missing(ModuleNotFoundError("x", name="sklearn.datasets")).endswith("pip install scikit-learn")


def test_validate_checks_without_running(simfl_, scenario, tmp_path):
    weighs = "softmax of 650 parameters, 2.6 kB in a message; a message takes 1.021 ms, a mini-batch 1.6 ms; "
    weighs += "a run needs about 433.9 MB of memory, libraries 241.2 MB, programs 191.4 MB, data 934.4 kB"
    assert simfl_("validate", scenario) == (0, f"{scenario}: valid: sync_sgd, 4 clients; {weighs}\n", "")
    gossip = simfl_("validate", scenario, "--set", "algorithm.kind=adpsgd")
    assert gossip == (0, f"{scenario}: valid: adpsgd, 4 clients, ring, spectral gap 0.667; {weighs}\n", "")
    unequal = ["--set", "topology={kind: star, mixing: uniform}", "--set"]  # weights that only D-PSGD has
    assert simfl_("validate", scenario, *unequal, "algorithm.kind=adpsgd")[0] == 0
    assert "use metropolis" in simfl_("validate", scenario, *unequal, "algorithm.kind=decentralized_sgd")[2]
    err = simfl_.refused("validate", scenario, "--set", "data.set=mnist")
    assert "SIMFL_DATA" in err
    assert os.listdir(tmp_path) == ["tiny.yaml"]


def test_a_missing_device_is_named_in_the_message(simfl_, scenario, monkeypatch):
    import jax

    def no_devices(kind=None):
        if kind:
            raise RuntimeError(f"unknown backend {kind}")
        return []

    monkeypatch.setattr(jax, "devices", no_devices)
    err = simfl_.refused("run", scenario, "--device", "gpu")
    assert err.startswith("--device: found 'gpu', expected one of the devices of this machine")


def test_warnings_of_a_setup_are_printed(simfl_, scenario):
    code, _, err = simfl_("validate", scenario, "--set", "privacy={mechanism: gaussian_unclipped}")
    assert code == 0
    assert err.startswith(f"{scenario}: privacy.mechanism: gaussian_unclipped")


def test_a_users_algorithm_is_imported_from_beside_the_scenario(simfl_, scenario, monkeypatch):
    scenario.with_name("own_algorithm.py").write_text(
        "from simfl.algorithms.sync_sgd import SyncSGD\n\n\nclass Mine(SyncSGD):\n    pass\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    out = simfl_.printed("validate", scenario, "--set", "algorithm={kind: 'own_algorithm:Mine'}")
    assert "own_algorithm:Mine" in out


def test_a_run_that_fails_midway_keeps_its_measurements(simfl_, scenario, monkeypatch):
    scenario.with_name("failing_algorithm.py").write_text(
        "from simfl.algorithms.sync_sgd import SyncSGD\n\n\n"
        "class Failing(SyncSGD):\n"
        "    def updated(self, *words, **more):\n"
        "        super().updated(*words, **more)\n"
        "        if self.updates == 30:\n"
        "            raise ZeroDivisionError('the reason')\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    code, _, err = simfl_("run", scenario, "--set", "algorithm={kind: 'failing_algorithm:Failing'}")
    assert code == 1
    assert re.fullmatch(r".*virtual time 0\.\d+ s: ZeroDivisionError: the reason in \S*failing_algorithm\.py:8\n", err)
    run = read(Path("results/tiny/001"))
    assert run.status == "failed"
    assert "the reason" in run.manifest.reason
    assert len(run.updates) == 30


def test_new_writes_a_valid_scenario_and_does_not_overwrite(simfl_, tmp_path):
    assert simfl_("new")[0] == 0
    assert simfl_("validate", "scenario.yaml")[0] == 0
    (tmp_path / "scenario.yaml").write_text("mine")
    code, _, err = simfl_("new", "scenario.yaml")
    assert (code, err) == (
        2,
        "scenario.yaml: the file exists; choose another name, or --force to replace it\n",
    )
    assert (tmp_path / "scenario.yaml").read_text() == "mine"
    assert simfl_("new", "scenario.yaml", "--force")[0] == 0
    assert (tmp_path / "scenario.yaml").read_text() != "mine"
    code, _, err = simfl_("new", "nowhere/scenario.yaml")
    assert (code, err) == (2, "nowhere/scenario.yaml: cannot write the file: No such file or directory\n")


def test_json_is_alone_on_standard_output(simfl_, scenario, fake_runs, tmp_path):
    for words in (["list", "models"], ["validate", scenario], ["run", scenario]):
        out = simfl_.printed(*words, "--json", "-")
        printed = json.loads(out)
        code, shown, _ = simfl_(*words, "--json", "folder/found.json")
        assert code == 0
        assert shown
        assert words[0] == "run" or json.loads((tmp_path / "folder" / "found.json").read_text()) == printed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "results", "tiny.yaml"]
    (run,) = printed
    assert (run["algorithm"], run["status"], run["epsilon"]) == ("sync_sgd", "done", None)
    assert Path(run["folder"]).parent == tmp_path / "results" / "tiny"


def test_list_has_a_line_about_every_name(simfl_):
    from simfl.algorithms import ALGORITHMS
    from simfl.data import DATASETS
    from simfl.models import MODELS
    from simfl.world.changing import CHANGING
    from simfl.world.topology import TOPOLOGIES

    out = simfl_.printed("list")
    for catalogue in (ALGORITHMS, DATASETS, MODELS, TOPOLOGIES):
        for name in catalogue:
            assert re.search(rf"^  {name} +\S+ .*", out, re.MULTILINE), name
    out = simfl_.printed("list", "topologies")
    assert [line.split()[0] for line in out.splitlines()[1:]] == [*TOPOLOGIES, *CHANGING]
    code, out, _ = simfl_("list", "algorithms", "--json", "-")
    (entries,) = json.loads(out).values()
    assert (code, next(iter(entries)), list(entries)[-1]) == (0, "ace", "without_replacement_sgd")
    assert entries["fedbuff"] == {
        "summary": "FedBuff: a server takes a step for every K updates in its buffer; clients need not wait",
        "from": "simfl",
        "family": "servers",
        "waits": "no client waits; with after_update: wait, clients wait for the server's step",
        "sends": "the model to clients, their changes to the server",
        "privacy": "a client (gaussian_update); with noise: server, or gaussian_cohort, not from the server",
    }
    out = simfl_.printed("list", "algorithms")
    assert "algorithms: servers\n" in out
    assert "\n    waits    no client waits; with after_update: wait, clients wait for the server's step" in out
    assert simfl_("list", "toplogies")[0] == 2


def test_plot_draws_existing_runs(simfl_, make_run, tmp_path):
    folders = [make_run(), make_run(algorithm="sync_sgd")]
    assert simfl_("plot", *folders, "--x", "bytes") == (0, "test_accuracy-by-bytes.png\n", "")
    assert (tmp_path / "test_accuracy-by-bytes.png").exists()
    assert simfl_("plot", *folders, "--y", "test_loss", "--save", "fig/loss.pdf") == (0, "fig/loss.pdf\n", "")
    assert simfl_("plot", folders[0], "--y", "los")[0] == 2
    assert simfl_("plot", folders[0], "--x", "hours")[0] == 2
    assert simfl_("plot", folders[0], "--save", "figure.bmp")[0] == 2
    code, _, err = simfl_("plot", "nowhere")
    assert (code, err) == (2, "nowhere: expected the folder of a run, found nothing there\n")


def test_bench_prints_a_table_and_writes_json(simfl_, monkeypatch, tmp_path):
    from simfl.bench import measuring as bench
    from simfl.bench.cases import QUICK

    measured = []

    def run_bench(cases, device, echo, quick):
        (case,) = cases
        measured.append((case, quick))
        echo(case)
        if case == "digits-softmax-sync":
            raise RunError("bench: digits-softmax-sync failed: a reason")
        return [
            {
                "case": case,
                "workers": 256,
                "device": device,
                "updates_per_s": 12345.6,
                "start_s": 0.25,
                "kernel_limit_ratio": 0.5,
                "kernel_gemm_ratio": 0.4,
                "triad_bytes_per_s": 12e9,
                "gemm_flops_per_s": 1e11,
                "compiled": False,
                "per_call_ratio": None,
                "bare_simpy_ratio": 0.25,
                "world_events_per_s": 1e6,
                "peak_rss_bytes": 5 * 10**8,
            }
        ]

    def run_sweep(case, device, echo, quick):
        measured.append((case, quick))
        times = {"settings": 8, "alone_s": 1.0, "together_s": 2.8, "ratio": 0.35}
        return {"case": case, "workers": 64, "device": device or "cpu", **times}

    monkeypatch.setattr(bench, "run_bench", run_bench)
    monkeypatch.setattr(bench, "run_sweep", run_sweep)
    code, out, err = simfl_("bench", "digits-softmax-adpsgd", "--device", "cpu", "--json", "b.json")
    assert (code, err) == (0, "digits-softmax-adpsgd\n")
    cells = re.split(r" *│ *", out.splitlines()[-1].strip())
    speeds = ["12,346", "250 ms", "0.50", "0.40", "–", "0.25", "1,000,000"]
    assert cells == ["digits-softmax-adpsgd", "256", "cpu", *speeds, "500 MB"]
    assert out.startswith("the world is not compiled: make compiled\nthe machine: triad 12.0 GB/s, GEMM 100 GFLOP/s\n")
    assert json.loads((tmp_path / "b.json").read_text())[0]["updates_per_s"] == 12345.6
    code, out, err = simfl_("bench", "digits-softmax-sync", "digits-softmax-adpsgd")
    assert code == 1
    assert "failed: a reason" in err
    assert "12,346" in out
    err = simfl_.refused("bench", "digits-softmax-adpsdg")
    assert err.rstrip().endswith("found 'digits-softmax-adpsdg'; did you mean 'digits-softmax-adpsgd'?")
    assert simfl_("bench", "--json", "nowhere/b.json")[0] == 2
    measured.clear()
    out = simfl_("bench", "--quick")[1]
    assert measured == [(case, True) for case in QUICK]
    assert re.search(r"^sweep .* 8 .* 0\.35$", out, re.MULTILINE)


def test_public_names_of_the_package_can_be_imported():
    assert set(simfl.__all__) <= set(dir(simfl))
    for name in simfl.__all__:
        assert getattr(simfl, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = simfl.nothing


@pytest.mark.parametrize("words", [["plot"], ["privacy", "account"]])
def test_helps_are_whole_in_a_narrow_terminal(simfl_, monkeypatch, words):
    monkeypatch.setenv("COLUMNS", "50")
    out = simfl_.printed(*words, "--help")
    assert "…" not in out
    assert {"plot": "<y>-by-<x>.png", "account": "-z, --noise-multiplier <float>"}[words[-1]] in out


def test_helps_show_no_type_for_flags(simfl_, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    for words in ([], ["sweep"], ["data", "fetch"], ["privacy"], ["privacy", "plan"]):
        out = simfl_.printed(*words, "--help")
        assert "--help" in out
        assert "<bool>" not in out
