"""`simfl bench --page`: one page about a device that its owner can send.

`python -m simfl.bench.page CASE DEVICE` measures one case in both precisions, and without a case describes the machine.
Each is a process of its own: JAX takes most of a GPU's memory when it starts.
"""

from __future__ import annotations

import datetime
import functools
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from simfl.bench.cases import CASES, scenario_of
from simfl.bench.measuring import _in_process, run_widths
from simfl.errors import RunError

PRECISIONS = "float32", "bfloat16"
#: Runs of each kind; the fastest counts.
REPEATS = 2


def describe(device: str | None = None) -> dict[str, str]:
    """Return what the measurements depend on: machine, device, driver, versions."""
    from simfl.compiled import is_compiled
    from simfl.records.display import show_bytes
    from simfl.records.folder import flags, versions
    from simfl.tape.executor import choose_device

    chosen = choose_device(device)
    memory = (chosen.memory_stats() or {}).get("bytes_limit")
    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        driver = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().replace("\n", "; ")
    except (OSError, subprocess.CalledProcessError):
        driver = "no nvidia-smi"
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": f"{chosen.platform} ({chosen.device_kind})",
        "memory that JAX may use": "not said" if memory is None else show_bytes(memory),
        "driver": driver,
        "runtime": " ".join(str(chosen.client.platform_version).split()),
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
        "XLA_FLAGS": flags() or "none",
        "world": "compiled" if is_compiled() else "not compiled",
    }


def _processor() -> str:
    """Return the processor's name, as far as the system says it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def measure(name: str, device: str | None = None, updates: int | None = None) -> list[dict[str, Any]]:
    """Measure a case in both precisions, in this process.

    Returns:
        For each precision an object with the keys case, precision, width, updates_per_s (after the first tenth),
        kernel_limit_ratio, digest (of the tables of a tenth), equal (whether it is that of the CPU), train_loss (at the
        end of a tenth) and cpu_train_loss.
    """
    from simfl.bench.limits import kernel_limit, steps_per_update
    from simfl.runs.runner import prepare, run
    from simfl.tape.executor import choose_device

    chosen, total = choose_device(device), updates or CASES[name].updates
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for precision in PRECISIONS:
            changes = {"execution.precision": precision}
            whole, tenth = (prepare(scenario_of(name, n).replace(changes), device) for n in (total, total // 10))
            run(whole, out=folder, device=device)  # compiles
            turns = [[run(one, out=folder, device=device) for one in (tenth, whole)] for _ in range(REPEATS)]
            least = [min(turn[at].manifest.wall_s for turn in turns) for at in (0, 1)]
            update_s = (least[1] - least[0]) / (steps_per_update(whole) * (total - total // 10))
            here, cpu = turns[0][0], run(tenth, out=folder, device="cpu")
            rows.append(
                {
                    "case": name,
                    "precision": precision,
                    "width": here.manifest.width,
                    "updates_per_s": round(1.0 / update_s, 1),
                    "kernel_limit_ratio": round(kernel_limit(whole, chosen, quick=True)() / update_s, 3),
                    "digest": here.manifest.digest,
                    "equal": here.manifest.digest == cpu.manifest.digest,
                    "train_loss": float(here.metrics.train_loss.iloc[-1]),
                    "cpu_train_loss": float(cpu.metrics.train_loss.iloc[-1]),
                }
            )
    return rows


def write_page(path: Path, cases: Sequence[str], device: str | None, echo: Callable[[str], None]) -> bool:
    """Measure cases and write the page after each part; return whether nothing failed.

    All cases take long: if the process is ended before the last one, the page has the others.
    """
    about: dict[str, str] = {}
    rows: list[dict[str, Any]] = []
    widths: list[dict[str, Any]] = []
    failures: list[str] = []

    def attempt(what: str, keep: Callable[[Any], None], measured: Callable[[], Any]) -> None:
        try:
            keep(measured())
        except RunError as error:  # the other cases still count
            failures.append(f"{what}: {error}")
            echo(failures[-1])
        path.write_text(page(about, rows, widths, failures), encoding="utf-8")

    attempt("the machine", about.update, lambda: _in_process("page", "", lambda name: None, device or ""))
    for case in cases if about else ():
        attempt("precision", rows.extend, functools.partial(_in_process, "page", case, echo, device or ""))
        attempt("widths", widths.extend, functools.partial(run_widths, [case], device))
    echo(f"written: {path}")
    return not failures


def page(
    about: Mapping[str, str], rows: Sequence[Mapping[str, Any]], widths: Sequence[Mapping[str, Any]],
    failures: Sequence[str],
) -> str:  # fmt: skip
    """Return the page, in Markdown."""
    shown = [
        (
            row["case"], row["precision"], row["width"], f"{row['updates_per_s']:,.0f}",
            f"{row['kernel_limit_ratio']:.2f}", row["digest"][:16], "yes" if row["equal"] else "no",
            f"{row['train_loss']:.7g}", f"{row['cpu_train_loss']:.7g}",
        )
        for row in rows
    ]  # fmt: skip
    heads = (
        "case", "precision", "width", "updates/s", "of the kernel limit", "digest of a tenth", "the CPU's",
        "loss of a tenth", "on the CPU",
    )  # fmt: skip
    rates = [
        (row["case"], row["workers"], row["automatic"], *(f"{rate:,.0f}" for rate in row["updates_per_s"].values()))
        for row in widths
    ]
    numbers = widths[0]["updates_per_s"] if widths else ()
    parts = [
        "# simfl bench", _table(("what", "value"), about.items()),
        "## Both precisions", _table(heads, shown),
        "## Updates per second by width", _table(("case", "workers", "auto", *numbers), rates),
        "## What failed", "\n".join(f"- {line}" for line in failures) or "Nothing.",
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _table(heads: Sequence[str], rows: Any) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |" for line in lines)


if __name__ == "__main__":
    case, kind = sys.argv[1:]
    print(json.dumps(measure(case, kind or None) if case else describe(kind or None)))
