"""`simfl calibrate`: a scenario's times, measured here or fitted to a log."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from simfl.cli.shared import RUN_FAILED, Device, OneScenario, Overrides, aside, say, write_text
from simfl.errors import ScenarioError


def calibrate(
    scenario: OneScenario,
    links: Annotated[
        bool, typer.Option("--links", help="Measure latency and bandwidth between MPI processes.")
    ] = False,
    log: Annotated[
        Path | None,
        typer.Option("--from", "--log", metavar="FILE", help="Fit the log of a federation that ran; see docs/logs.md."),
    ] = None,
    device: Device = None,
    overrides: Overrides = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE|-", help="Where to write the copy; by default beside SCENARIO."),
    ] = None,
) -> None:
    """Measure the model's compute times here, and write them into a scenario.

    The copy is the text of the scenario with only the measured fields changed.

    --links measures latency and bandwidth of messages between two processes, as simfl live sends them; on a cluster
    under mpirun or srun, between the first two. --from fits speeds, links and times online to a log: a CSV file, or
    what NVFlare, Flower or FedScale write.

    A line is fitted to the medians of the measured times. If it misses one of them by more than 30 %, the copy is
    written, a warning is printed, and the exit code is 1: if the machine was busy, measure again without other work.
    """
    from simfl.live.editing import edited
    from simfl.live.fitting import JITTER, MISFIT
    from simfl.scenario import load
    from simfl.scenario.loading import file_text

    if links and log is not None:
        raise ScenarioError("calibrate: expected --links or --from, found both")
    original = load(scenario, overrides or [])
    path = out or scenario.with_name(f"{scenario.stem}-calibrated.yaml")
    if log is not None:
        calibration: Calibration | None = _log(log, original, scenario if aside(path) else path)
    else:
        calibration = _links() if links else _gradients(original, device)
    if calibration is None:
        return  # another process writes
    settings, about, misfit, sigma = calibration
    changes = [*(overrides or []), *settings]
    text = edited(file_text(scenario), changes, scenario.stem)
    if text is None:
        text = load(scenario, changes).to_yaml()
        about.append(f"{scenario} could not be changed in place: this is all of it, resolved, without its comments")
    lines = [f"# {line}" for line in (f"simfl calibrate, {time.strftime('%Y-%m-%d')}: {about[0]}", *about[1:])]
    write_text(path, "\n".join([*lines, text]))
    if not aside(path):
        for line in about:
            say(line)
        print(f"{path}: {', '.join(settings)}")
    if sigma > JITTER and log is None:
        say(f"warning: the jitter is {sigma:.3g}; a machine without other work has less than {JITTER:g}")
    if misfit > MISFIT:
        cause = "the times of the log are not on one line" if log else "measure again on a machine without other work"
        say(f"warning: the line misses a median by {misfit:.0%}, more than {MISFIT:.0%}: {cause}")
        raise typer.Exit(RUN_FAILED)


#: Overrides, lines about the measurement, the largest relative distance of a median from the line, sigma of jitter.
Calibration = tuple[list[str], list[str], float, float]


def _pace(pace: Any) -> list[str]:
    return [
        f"clients.seconds_per_batch={pace.seconds_per_batch:.4g}",
        f"clients.seconds_per_example={pace.seconds_per_example:.4g}",
        f"clients.jitter={{kind: lognormal, sigma: {pace.sigma:.3g}}}",
    ]


def _gradients(scenario: Any, device: str | None) -> Calibration:
    from simfl.live.measuring import machine, measure_gradients
    from simfl.records.display import show_time
    from simfl.runs.runner import prepare
    from simfl.tape.executor import choose_device

    measured = measure_gradients(prepare(scenario, device), choose_device(device))
    about = [
        f"mini-batches of model {scenario.model.kind} measured on {machine()}",
        f"the line is within {100 * measured.pace.error:.1f} % of all medians; 10, 50 and 90 % of calls took",
    ]
    about += [
        f"  {size} examples: {', '.join(show_time(seconds) for seconds in quantiles)}"
        for size, *quantiles in measured.spread()
    ]
    return _pace(measured.pace), about, measured.pace.error, measured.pace.sigma


def _links() -> Calibration | None:
    from simfl.live import launching
    from simfl.live.fitting import misfit
    from simfl.live.measuring import LINK_ROUNDS, LINK_SIZES, fit_link, machine
    from simfl.live.transport import POLL_S
    from simfl.records.display import show_time

    launching.check_mpi()
    job = {"kind": "links", "sizes": list(LINK_SIZES), "rounds": LINK_ROUNDS, "processes": 2}
    results = launching.take_part(job) if launching.started_already() else launching.launch([job], 2)
    if results is None:
        return None
    link, sizes, seconds = fit_link(results[0]), *zip(*results[0], strict=True)
    error = misfit(link, sizes, seconds)
    about = [
        f"messages between two MPI processes measured on {machine()}",
        f"the line is within {100 * error:.1f} % of all medians; a process that waits polls every {show_time(POLL_S)}",
    ]
    pace = f"{8 * 1e-6 / link.slope:.4g} Mbit/s" if link.slope else "null"
    return [f"links.latency={link.fixed:.4g}", f"links.bandwidth={pace}"], about, error, 0.0


def _log(path: Path, scenario: Any, out: Path) -> Calibration:
    """Fit a log; tables that the scenario needs are written beside `out`."""
    from simfl.live.federation import beside, devices_of, fit_computing, fit_messages, hours_of
    from simfl.live.logs import Device, Entry, read_log
    from simfl.runs.runner import prepare

    setup = prepare(scenario)
    read = read_log(path, setup.training.message_bytes * scenario.algorithm.vectors)
    devices, entries = [one for one in read if isinstance(one, Device)], [one for one in read if isinstance(one, Entry)]
    if devices:
        table = beside(out, "devices")
        write_text(table, devices_of(devices))
        return [f"clients.devices={table}"], [f"{len(devices)} devices of {path}; each client draws one"], 0.0, 0.0
    pace, names = fit_computing(entries, setup.kind.update_examples(setup.sizes.tolist()))
    values = ", ".join(f"{speed:.4g}" for speed in pace.speeds)
    settings = [f"clients.count={len(names)}", *_pace(pace), f"clients.speed={{kind: list, values: [{values}]}}"]
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    about = [f"fitted to {path}: clients {shown}; the line is within {100 * pace.error:.1f} % of all medians"]
    messages = fit_messages(entries)
    for fitted in messages:
        settings += fitted.settings
        about.append(fitted.about)
    if hours := hours_of(entries, names):
        table = beside(out, "online")
        write_text(table, hours)
        settings.append(f"availability=[{{all: true, trace: {{path: {table}}}}}]")
        about.append(f"availability: {table}; time 0 is the first of the log")
    return settings, about, max([pace.error, *(fitted.error for fitted in messages)]), pace.sigma
