"""Hold predicted times against real ones: simulated runs beside live ones, in settings that nothing was fitted to.

    python docs/check_reality.py run --only real results/real.csv      # on a machine without other work: two minutes
    python docs/check_reality.py run --only slept results/slept.csv    # ten minutes
    python docs/check_reality.py page results/real.csv results/slept.csv    # table and figure of docs/validation.md

Fitted, once, to other runs than those that are judged: what a message takes between two processes, what one takes while
all of them talk at once (`shift`), how long a real gradient takes, and what a computation takes beside computing (a
thread, a sleep that ends late, an average), from AD-PSGD among three and six processes with models of other sizes.
Some settings emulate slow links: a process holds each message back for as long as such a link takes
(`simfl.live.transport.SlowWire`). For every setting the script also predicts the time without links: computing takes
time, and nothing else does. A setting tests links only if that second prediction is far from the measurement.
All jobs are done by one set of processes, whose start takes a minute. Where gradients are really computed that set has
to be small: processes that wait for their part look for messages, and sixteen of them cost the others a third.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
PAGE, FIGURE = ROOT / "docs" / "validation.md", ROOT / "docs" / "figures" / "validation.png"
BEGIN, END = "<!-- measured -->", "<!-- end -->"

ALGORITHMS = {
    "SYNC": "sync_sgd",
    "D-PSGD": "decentralized_sgd",
    "AD-PSGD": "adpsgd",
    "FedAsync": "fedasync",
}
SLOWDOWNS: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "one 10x": [{"clients": [1], "factor": 10}],
    "random 2x": [{"random": 1, "factor": 2}],
}
#: Hidden layers of networks on digits, and with them the bytes of a message.
SMALL, LARGE, HEAVY = (16,), (256, 128), (512, 512)
#: Emulated links: seconds of latency, and bytes per second.
FAR, SLOW, FAR_AND_SLOW = (150e-3, 100e6), (1e-3, 2e6), (40e-3, 2e6)
#: A slept mini-batch takes so long at speed 1; examples of one.
BATCH_S, BATCH, REAL_BATCH = 0.08, 8, 256
#: Processes, slowdowns, model, how computing takes its time, and emulated links if any; each for all algorithms.
GROUPS: tuple[tuple[Any, ...], ...] = (
    (2, "none", HEAVY, "real"),
    (2, "random 2x", HEAVY, "real"),
    (2, "one 10x", SMALL, "slept"),
    (4, "none", SMALL, "slept"),
    (4, "one 10x", LARGE, "slept"),
    (8, "random 2x", SMALL, "slept"),
    (8, "none", LARGE, "slept"),
    (16, "one 10x", SMALL, "slept"),
    (16, "random 2x", LARGE, "slept"),
    (4, "none", SMALL, "slept", FAR),
    (4, "none", LARGE, "slept", SLOW),
    (8, "random 2x", LARGE, "slept", FAR_AND_SLOW),
)
#: Fitted to: processes and models, none of which is judged.
FITTED = ((3, (32,)), (3, (192, 96)), (6, (32,)), (6, (192, 96)))
SIZES, ROUNDS = (256, 16_384, 131_072, 524_288, 2_097_152), 60
MACHINE = "this machine's"


@dataclass(frozen=True)
class Setting:
    """One run."""

    algorithm: str
    processes: int
    slowdown: str
    hidden: tuple[int, ...]
    compute: str
    link: tuple[float, float] | None = None

    @property
    def name(self) -> str:
        """What --only looks at."""
        size = "-".join(map(str, self.hidden))
        return f"{self.algorithm}/{self.processes}/{self.slowdown}/{size}/{self.compute}/{self.links}"

    @property
    def links(self) -> str:
        """The links in words."""
        return MACHINE if self.link is None else f"{1e3 * self.link[0]:g} ms, {1e-6 * self.link[1]:g} MB/s"

    def scenario(self, updates: int | None = None, stop_s: float = 1.0, **sections: Any) -> Any:
        """Return the scenario; sections are those of clients and links that were fitted."""
        from simfl.scenario import from_mapping

        kind = ALGORITHMS[self.algorithm]
        algorithm: dict[str, Any] = {"kind": kind, "step_size": 0.05, "batch_size": REAL_BATCH if self.real else BATCH}
        if kind == "fedasync":
            algorithm |= {"local_steps": 1}
        links: dict[str, Any] = {"latency": 1e-3, "bandwidth": None}
        if self.link is not None:
            links = {"latency": self.link[0], "bandwidth": f"{1e-6 * self.link[1]:g} MB/s"}
        clients = {"seconds_per_example": BATCH_S / BATCH, "jitter": {"kind": "lognormal", "sigma": 0.1}}
        return from_mapping(
            {
                "name": re.sub(r"\W+", "-", self.name),
                "seed": 1,
                "data": {"set": "digits"},
                "model": {"kind": "mlp", "hidden": list(self.hidden)},
                "clients": {**clients, **sections.get("clients", {}), "count": self.processes},
                "slowdowns": SLOWDOWNS[self.slowdown],
                "links": sections.get("links", links),
                "algorithm": algorithm,
                "stop": {"time": stop_s} if updates is None else {"updates": updates},
                "evaluate": {"every": {"epochs": 1000}},
            }
        )

    @property
    def real(self) -> bool:
        """Whether gradients take what they take."""
        return self.compute == "real"


@dataclass(frozen=True)
class Result:
    """A line of the table."""

    algorithm: str
    processes: int
    slowdown: str
    model_bytes: int
    compute: str
    links: str
    updates: int
    predicted_s: float
    without_links_s: float
    measured_s: float

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted_s / self.measured_s - 1.0

    @property
    def error_without_links(self) -> float:
        """Relative error of the prediction by a world without links."""
        return self.without_links_s / self.measured_s - 1.0

    @property
    def group(self) -> tuple[Any, ...]:
        """What the algorithms are compared in."""
        return self.processes, self.slowdown, self.model_bytes, self.compute, self.links


def simulate(setup: Any, updates: int) -> tuple[float, int]:
    """Return the virtual time of so many updates, and how many there were (whole rounds)."""
    from simfl.bench.limits import Nothing, run_world
    from simfl.tape import Tape

    _, _, algorithm = run_world(setup, Tape(Nothing(), **setup.problem.recorded), updates)
    return algorithm.clock.now, algorithm.updates


def assembled(setting: Setting, **sections: Any) -> Any:
    """Return what a run of a setting needs."""
    from simfl.assembly.assemble import assemble

    return assemble(setting.scenario(**sections))


def updates_in(setting: Setting, seconds: float, **sections: Any) -> int:
    """Return how many updates a setting makes in about so long, in whole rounds."""
    setup, count = assembled(setting, **sections), setting.processes
    enough = 2 * count
    while True:
        took, made = simulate(setup, enough)
        if took >= seconds:
            return max(2 * count, round(made * seconds / took / count) * count)
        enough = 2 * enough


def model_bytes(setting: Setting) -> int:
    """Return the bytes of a message."""
    return int(assembled(setting).training.model_bytes)


# -- what is fitted ------------------------------------------------------------------------------------


def shift_factor(count: int, width_s: float, rounds: int = 400) -> float:
    """Return what a round of `shift` takes on average beyond latency's lower end, where that is uniform in a width."""
    ready, draws = np.zeros(count), np.random.default_rng(0)
    for _ in range(rounds):
        ready = np.maximum(ready, np.roll(ready + draws.uniform(0.0, width_s, count), 1))
    return float(ready.max()) / rounds


NO_LINKS = {"latency": 0.0, "bandwidth": None}


def fit_links(trips: Sequence[Sequence[float]], beyond_s: float) -> tuple[float, float]:
    """Return the least latency in seconds, and seconds per byte."""
    from simfl.live.measuring import fit_link

    line = fit_link([(int(size), float(seconds)) for size, seconds in trips])
    return max(0.0, line.fixed - beyond_s), line.slope


def link_section(fitted: tuple[float, float], emulated: tuple[float, float] | None) -> dict[str, Any]:
    """Return links as fitted, after emulated ones if any: latency is uniform over the time between two polls."""
    from simfl.live.transport import POLL_S

    low, slope = fitted
    if emulated is not None:
        low, slope = low + emulated[0], slope + 1.0 / emulated[1]
    latency = {"kind": "uniform", "low": low, "high": low + POLL_S}
    return {"latency": latency, "bandwidth": f"{1e-6 / slope:.6g} MB/s" if slope else None}


@dataclass
class Fit:
    """What was fitted."""

    pair: tuple[float, float]
    shifts: dict[int, tuple[float, float]]
    gradient: dict[str, Any]
    overhead_s: float = 0.0
    overhead_s_per_byte: float = 0.0

    def computing(self, setting: Setting) -> dict[str, Any]:
        """Return the clients of a setting, and no links: only computing takes time."""
        clients: dict[str, Any] = {"seconds_per_batch": 0.0}
        if setting.real:
            clients |= {name: self.gradient[name] for name in ("seconds_per_batch", "seconds_per_example")}
            clients["jitter"] = {"kind": "lognormal", "sigma": self.gradient["sigma"]}
        return {"clients": clients, "links": NO_LINKS}

    def sections(self, setting: Setting, size: int) -> dict[str, Any]:
        """Return the clients and links of a setting."""
        clients = self.computing(setting)["clients"]
        clients["seconds_per_batch"] += self.overhead_s + self.overhead_s_per_byte * size
        together = setting.algorithm == "SYNC" and setting.processes in self.shifts
        fitted = self.shifts[setting.processes] if together else self.pair
        return {"clients": clients, "links": link_section(fitted, setting.link)}


def fit_overhead(fit: Fit, runs: Iterable[tuple[Setting, int, int, float]]) -> None:
    """Fit what an iteration takes beside computing and messages, by the size of the model."""
    from simfl.live.fitting import fit_line

    sizes, extras = [], []
    for setting, size, updates, measured_s in runs:
        predicted_s, _ = simulate(assembled(setting, **fit.sections(setting, size)), updates)
        sizes.append(size)
        extras.append(max(1e-6, (measured_s - predicted_s) * setting.processes / updates))
        print(f"fitted to {setting.name}: {1e3 * extras[-1]:.3f} ms in an iteration", flush=True)
    line = fit_line(sizes, extras)
    fit.overhead_s, fit.overhead_s_per_byte = line.fixed, line.slope


# -- the runs ------------------------------------------------------------------------------------------


def check(only: str, seconds: float, out: Path, scratch: Path, refit: bool = False) -> list[Result]:
    """Measure (or take what was measured so before), fit, predict; write the CSV file and return its lines."""
    from simfl.live import launching
    from simfl.live.transport import POLL_S
    from simfl.records import read

    settings = [Setting(name, *group) for group in GROUPS for name in ALGORITHMS]
    settings = [one for one in settings if re.search(only, one.name)]
    fitted = [Setting("AD-PSGD", count, "none", hidden, "slept") for count, hidden in FITTED]
    counts = sorted({one.processes for one in settings if one.algorithm == "SYNC"})
    bytes_of = {one.hidden: model_bytes(one) for one in [*settings, *fitted]}
    heavy = Setting("SYNC", 2, "none", HEAVY, "real")
    rough = {"clients": {"seconds_per_example": 30e-3 / REAL_BATCH}}

    def job(one: Setting, updates: int) -> dict[str, Any]:
        about = {"kind": "run", "compute": one.compute, "out": str(scratch), "processes": one.processes + 1}
        return {**about, "scenario": one.scenario(updates).to_yaml(), "link": one.link}

    goals = [updates_in(one, seconds, **(rough if one.real else {})) for one in settings]
    aims = [updates_in(one, seconds / 2) for one in fitted]
    jobs = [{"kind": "links", "processes": 2, "sizes": SIZES, "rounds": ROUNDS}]
    jobs += [{"kind": "shift", "processes": count, "sizes": SIZES, "rounds": ROUNDS} for count in counts]
    jobs += [{"kind": "gradients", "processes": 1, "scenario": heavy.scenario(2).to_yaml()}]
    before = len(jobs)
    jobs += [job(one, updates) for one, updates in zip([*fitted, *settings], [*aims, *goals], strict=True)]
    print(f"{len(settings)} settings, about {seconds:g} s each", flush=True)
    # A program is compiled in one process, and found by the others.
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(scratch.absolute() / "compiled"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    raw = out.with_suffix(".json")
    if refit:
        found, times = json.loads(raw.read_text(encoding="utf-8"))
    else:
        found = launching.launch(jobs, max(int(one["processes"]) for one in jobs))
        times = [read(folder).manifest.time_s for folder in found[before:]]
        raw.parent.mkdir(parents=True, exist_ok=True)
        raw.write_text(json.dumps((found[:before], times)), encoding="utf-8")
    pair = fit_links(found[0], POLL_S / 2)
    shifts = {
        count: fit_links(trips, shift_factor(count, POLL_S))
        for count, trips in zip(counts, found[1 : 1 + len(counts)], strict=True)
    }
    fit = Fit(pair, shifts, found[before - 1])
    fit_overhead(fit, zip(fitted, [bytes_of[one.hidden] for one in fitted], aims, times, strict=False))
    print(fit, flush=True)
    results = []
    for one, updates, measured_s in zip(settings, goals, times[len(fitted) :], strict=True):
        size = bytes_of[one.hidden]
        sections = fit.sections(one, size)
        predicted_s, _ = simulate(assembled(one, **sections), updates)
        without_links_s, _ = simulate(assembled(one, **fit.computing(one)), updates)
        about = (one.algorithm, one.processes, one.slowdown, size, one.compute, one.links, updates)
        result = Result(*about, predicted_s, without_links_s, measured_s)
        results.append(result)
        print(
            f"{one.name}: predicted {predicted_s:.3f} s, measured {measured_s:.3f} s, {100 * result.error:+.1f} %, "
            f"without links {100 * result.error_without_links:+.1f} %"
        )
    with open(out, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Result)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(result) for result in results)
    print(summary(results))
    return results


def read_results(path: Path) -> list[Result]:
    """Read the CSV file back."""
    kinds: dict[str, Any] = {"processes": int, "model_bytes": int, "updates": int}
    kinds |= dict.fromkeys(("predicted_s", "without_links_s", "measured_s"), float)
    with open(path, newline="", encoding="utf-8") as file:
        return [
            Result(**{name: kinds.get(name, str)(value) for name, value in row.items()}) for row in csv.DictReader(file)
        ]


# -- the page ------------------------------------------------------------------------------------------


def wrong_orders(results: Sequence[Result]) -> list[tuple[Result, Result]]:
    """Return pairs of algorithms whose order is predicted wrongly although they differ by more than the worst error."""
    worst = max(abs(one.error) for one in results)
    found = []
    for i, one in enumerate(results):
        for other in results[i + 1 :]:
            if one.group != other.group:
                continue
            # Time of an update: the settings of a group make different numbers of them.
            measured = one.measured_s / one.updates / (other.measured_s / other.updates)
            predicted = one.predicted_s / one.updates / (other.predicted_s / other.updates)
            if abs(np.log(measured)) > np.log1p(worst) and (measured > 1) != (predicted > 1):
                found.append((one, other))
    return found


def summary(results: Sequence[Result]) -> str:
    """Return the numbers that count: a line for each way of computing, whose errors are not alike."""
    lines = []
    for compute in sorted({one.compute for one in results}, reverse=True):
        some = [one for one in results if one.compute == compute]
        errors = np.array([abs(one.error) for one in some])
        pairs = sum(one.group == other.group for i, one in enumerate(some) for other in some[i + 1 :])
        lines.append(
            f"- Computing {compute}: {len(some)} settings; the median error of the predicted time is "
            f"{100 * np.median(errors):.1f} %, the worst {100 * errors.max():.1f} %; of {pairs} pairs of algorithms, "
            f"{len(wrong_orders(some))} that differ by more than that are in the wrong order."
        )
        telling = [one for one in some if abs(one.error_without_links) > 0.1]
        if telling:
            without, worst = (
                100 * max(map(abs, errors))
                for errors in zip(*((one.error_without_links, one.error) for one in telling), strict=True)
            )
            lines.append(
                f"- Of these, {len(telling)} settings test links: a world without links predicts them more than 10 % "
                f"wrong (worst {without:.1f} %). With links the worst error is {worst:.1f} %."
            )
    return "\n".join(lines)


def _percent(share: float) -> str:
    return f"{100 * share:+.1f} %"


def table(results: Sequence[Result]) -> str:
    """Return the errors as a table in Markdown: a row for each setting, a column for each algorithm."""
    rows: dict[str, dict[str, str]] = {}
    for one in results:
        setting = (
            f"| {one.processes} | {one.slowdown} | {one.model_bytes / 1e3:,.0f} kB | {one.compute} | {one.links} |"
        )
        alone = "" if np.isnan(one.error_without_links) else f" ({_percent(one.error_without_links)})"
        rows.setdefault(setting, {})[one.algorithm] = _percent(one.error) + alone
    head = f"| processes | slow | message | computing | links | {' | '.join(ALGORITHMS)} |"
    lines = [head, "| --- " * (5 + len(ALGORITHMS)) + "|"]
    for setting, errors in rows.items():
        lines.append(f"{setting} {' | '.join(errors.get(name, '-') for name in ALGORITHMS)} |")
    return "\n".join(lines)


def draw(results: Sequence[Result], path: Path) -> None:
    """Draw the time of an iteration, predicted against measured."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(5.2, 5.0))
    each = {name: [one for one in results if one.algorithm == name] for name in ALGORITHMS}
    for (name, some), marker in zip(each.items(), "osD^", strict=True):
        times = np.array([(one.measured_s, one.predicted_s, one.updates / one.processes) for one in some]).reshape(
            -1, 3
        )
        ax.plot(1e3 * times[:, 0] / times[:, 2], 1e3 * times[:, 1] / times[:, 2], marker, label=name, fillstyle="none")
    low, high = ax.get_xlim()
    line = np.array([max(low, 1.0), high])
    ax.plot(line, line, color="0.5", linewidth=1)
    ax.fill_between(line, 0.85 * line, 1.15 * line, color="0.9", zorder=0, label="within 15 %")
    ax.set(
        xscale="log", yscale="log", xlabel="measured, ms", ylabel="predicted, ms", title="Time of an update per client"
    )
    ax.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def write_page(results: Sequence[Result]) -> None:
    """Put summary and table into the page, and draw the figure."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    body = f"{summary(results)}\n\n![Predicted against measured](figures/{FIGURE.name})\n\n{table(results)}"
    PAGE.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}", encoding="utf-8")
    draw(results, FIGURE)


def main() -> None:
    """Run, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "page"))
    parser.add_argument("csv", nargs="+", type=Path, help="where to write results; for the page, where to read them")
    parser.add_argument("--only", default="", help="settings whose name this is found in, a regular expression")
    parser.add_argument("--seconds", type=float, default=7.0, help="of each run, about")
    parser.add_argument("--refit", action="store_true", help="fit and predict again, from what was measured")
    parser.add_argument("--scratch", type=Path, default=Path("results/validation"), help="folder of the runs")
    asked = parser.parse_args()
    if asked.what == "run":
        check(asked.only, asked.seconds, asked.csv[0], asked.scratch, asked.refit)
    else:
        write_page([result for path in asked.csv for result in read_results(path)])


if __name__ == "__main__":
    main()
