"""Kill processes of live runs, and check that the others end within seconds and that no temporary file is left.

    python docs/check_live_kills.py          # about two minutes; prints the table of docs/faults.md
    python docs/check_live_kills.py page     # also writes the table into docs/faults.md

Each case starts `simfl live` with four clients, waits until the run has begun, and sends one signal to one process: to
simfl itself, to mpirun, to a client's rank or to the coordinator's rank. Exits with 1 if a process lives for longer
than `MOST_S`, or if a temporary file is left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parent / "faults.md"
BEGIN, END = "<!-- killed -->", "<!-- end -->"
#: Processes have to end within this many seconds.
MOST_S = 10.0
CLIENTS = 4
#: The run lasts far longer than any case.
SCENARIO = f"""
data: {{set: digits}}
clients: {{count: {CLIENTS}, seconds_per_example: 1 ms}}
algorithm: {{kind: adpsgd, batch_size: 32}}
stop: {{time: 10 min}}
"""
#: Which process gets which signal.
CASES = (
    ("simfl", signal.SIGKILL),
    ("mpirun", signal.SIGKILL),
    ("rank 1", signal.SIGKILL),
    ("rank 1", signal.SIGSEGV),
    (f"rank {CLIENTS}", signal.SIGKILL),
)


@dataclass(frozen=True)
class Case:
    """What one signal did."""

    victim: str
    number: signal.Signals
    seconds: float
    code: int
    message: str
    left: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether all processes ended soon and left no temporary file."""
        return self.seconds <= MOST_S and not self.left


def processes(folder: Path) -> dict[int, str]:
    """Return the processes whose temporary folder this is, by their ids: simfl, mpirun, or a rank."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            command = (entry / "cmdline").read_bytes().decode().split("\0")
        except (OSError, ValueError):
            continue
        if not any(line.startswith(f"TMPDIR={folder}".encode()) for line in environment) or command == [""]:
            continue  # a process without a command line has ended
        ranks = [line.partition(b"=")[2].decode() for line in environment if line.startswith(b"OMPI_COMM_WORLD_RANK=")]
        found[int(entry.name)] = f"rank {ranks[0]}" if ranks else "simfl" if "live" in command else "mpirun"
    return found


def kill(victim: str, number: signal.Signals, folder: Path) -> Case:
    """Start a live run, send a signal to one of its processes, and wait for the end of all."""
    temporary = folder / "tmp"
    temporary.mkdir(parents=True)
    (folder / "scenario.yaml").write_text(SCENARIO, encoding="utf-8")
    command = [sys.executable, "-m", "simfl", "live", "scenario.yaml", "--out", "results"]
    child = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list(temporary.glob("simfl-live-*/*.begun")):
        if child.poll() is not None:
            raise SystemExit(f"the run did not begin: {child.stderr.read() if child.stderr else ''}")
        time.sleep(0.05)
    time.sleep(1.0)
    begin = time.monotonic()
    os.kill(next(pid for pid, name in processes(temporary).items() if name == victim), number)
    while processes(temporary) and time.monotonic() - begin < 6 * MOST_S:
        child.poll()
        time.sleep(0.05)
    seconds = time.monotonic() - begin
    for pid in processes(temporary):
        os.kill(pid, signal.SIGKILL)
    _, errors = child.communicate()
    message = (errors.strip().splitlines() or [""])[-1]
    left = tuple(str(path.relative_to(temporary)) for path in sorted(temporary.iterdir()))
    print(f"{victim}, {number.name}: {seconds:.1f} s, {message}, left: {left}", flush=True)
    return Case(victim, number, seconds, child.returncode, message, left)


def table(cases: Sequence[Case]) -> str:
    """Return the cases as a table in Markdown."""
    lines = [
        "| signal to | signal | all processes ended | exit code | last line of stderr | temporary files left |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for one in cases:
        code = f"killed by {signal.Signals(-one.code).name}" if one.code < 0 else str(one.code)
        message = f"`{one.message}`" if one.message else "-"
        ended = f"after {one.seconds:.1f} s" if one.seconds <= MOST_S else f"**not within {MOST_S:g} s**"
        left = len(one.left) or "none"
        lines.append(f"| {one.victim} | {one.number.name} | {ended} | {code} | {message} | {left} |")
    return "\n".join(lines)


def main() -> int:
    """Run all cases, print the table, and write it into the page if asked."""
    with tempfile.TemporaryDirectory(prefix="simfl-check-") as name:
        cases = [kill(*case, Path(name) / str(position)) for position, case in enumerate(CASES)]
    print(table(cases))
    if sys.argv[1:] == ["page"]:
        text = PAGE.read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n{table(cases)}\n{END}{after}", encoding="utf-8")
    return 0 if all(one.good for one in cases) else 1


if __name__ == "__main__":
    sys.exit(main())
