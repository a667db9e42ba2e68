"""Measure the page that plays a run: its size, and how fast it draws.

    python docs/check_play.py        # about two minutes; needs Chromium

A made-up run has 1,000,000 events: 200 clients, 400,000 intervals, 400,000 updates, 200,000 messages, of which 1 in 20
was lost once. A run with 100,000 messages must be a page of at most 2 MB. In a headless Chromium without a GPU, the
scrubber is dragged from one end to the other in 300 frames, and the page plays for 300 frames. Printed are the script's
time per frame, the time from one frame to the next, and the load of the machine meanwhile. A script's time of more than
33 ms in the median exits with 1; the frames themselves depend on what else the machine does.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import simfl
from simfl.records import Manifest, RunFolder

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.chromium import Tab, a_tab

FRAMES = """
new Promise((done) => {
  const script = [], times = [], { duration } = simfl.stage;
  let last = 0, n = 0;
  const frame = (time) => {
    if (last) times.push(time - last);
    last = time;
    if (n >= 300) { done({ script, times }); return; }
    const begun = performance.now();
    simfl.seek(AT);
    script.push(performance.now() - begun);
    n++;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
})
"""
WAYS = {
    "dragged over the whole run": "(n / 300) * duration",
    "played, five frames per computation": "duration / 3 + n * duration / 1000 / 5",
}


def made_up(root: Path, clients: int, each: int, evaluations: int = 200) -> Path:
    """Write a run in which every client computes and sends `each` times; return its folder.

    Of every second computation, a message goes to a random client, and arrives when that one begins to compute.
    """
    draw = np.random.default_rng(1)
    folder = RunFolder.create(root, f"made-up-{clients}-{each}")
    text = f"name: made up\nseed: 1\nalgorithm: {{kind: adpsgd}}\nclients: {{count: {clients}}}\n"
    folder.write_scenario(text + "record: {play: true}\n")
    lengths = draw.lognormal(0.0, 0.2, (clients, each))
    ends = np.cumsum(lengths, axis=1)
    starts = np.concatenate([np.zeros((clients, 1)), ends[:, :-1]], axis=1)
    duration = float(ends.max())
    middle = starts + 0.9 * lengths  # computes until there, and then communicates
    client = np.repeat(np.arange(clients, dtype=np.int32), each)
    with folder.table("timeline") as table:
        for begin, end, activity in ((starts, middle, 0), (middle, ends, 3)):
            columns = {"client": client, "start_s": begin.ravel(), "end_s": end.ravel()}
            table.extend_columns({**columns, "activity": np.full(client.size, activity, dtype=np.int32)})
    order = np.argsort(ends.ravel(), kind="stable")
    twice = np.repeat(order, 2)[: 2 * client.size]  # two updates at an end
    with folder.table("updates") as table:
        count = len(twice)
        zeros = np.zeros(count)
        columns = {"time_s": ends.ravel()[twice], "client": client[twice], "peer": np.full(count, -1, dtype=np.int32)}
        columns |= {"round": np.full(count, -1), "staleness": draw.poisson(clients, count)}
        columns |= {"sample_size": np.full(count, 8, dtype=np.int32), "step_size": zeros, "noise_std": zeros}
        table.extend_columns(columns)
    delivered = ends.ravel()[order]
    resends = (draw.random(len(order)) < 0.05).astype(np.int32)
    with folder.table("messages") as table:
        source = draw.integers(0, clients, len(order)).astype(np.int32)
        columns = {"sent_s": middle.ravel()[order], "delivered_s": delivered, "source": source}
        columns |= {"target": client[order], "bytes": np.full(len(order), 3000), "resends": resends}
        table.extend_columns(columns)
    links = np.stack([np.arange(clients), (np.arange(clients) + 1) % clients], axis=1)
    with folder.table("edges") as table:
        table.extend(links.tolist())
    with folder.table("metrics") as table:
        for k in range(evaluations + 1):
            share = k / evaluations
            done = int(share * len(twice))
            row = (share * duration, done, share, 0, 1.0 - share, 1.0 - share, share, 0.1, done * 3000, done)
            table.append((*row, float("nan"), share))
    folder.write_manifest(Manifest("done", seed=1, device="cpu", time_s=duration, updates=len(twice)))
    with folder.table("clients"):
        pass
    return folder.path


def measured(tab: Tab) -> Iterator[tuple[str, dict[str, list[float]], float]]:
    """Yield frames of each way to move the clock, and the load of the machine."""
    for words, at in WAYS.items():
        frames = tab.run(FRAMES.replace("AT", at))
        yield words, frames, os.getloadavg()[0]


def main() -> int:
    """Measure, print and judge."""
    failed = False
    with tempfile.TemporaryDirectory() as root:
        for clients, each in ((100, 1000), (200, 1000)):
            page = simfl.play(made_up(Path(root), clients, each), Path(root) / "play.html")
            size, messages = page.stat().st_size, clients * each
            failed |= messages == 100_000 and size > 2_000_000
            print(f"{5 * messages:,} events, {messages:,} messages: {size / 1e6:.2f} MB")
            with a_tab() as tab:
                tab.open(page.as_uri())
                tab.wait("window.simfl")
                for words, frames, load in measured(tab):
                    script, times = np.array(frames["script"]), np.array(frames["times"])
                    failed |= bool(np.median(script) > 33)
                    print(
                        f"  {words}: script {np.median(script):.1f} ms a frame (median; 95 %: "
                        f"{np.quantile(script, 0.95):.1f}), frames every {np.median(times):.1f} ms (95 %: "
                        f"{np.quantile(times, 0.95):.1f}), load {load:.1f} on {os.cpu_count()} cores"
                    )
                assert tab.errors == [], tab.errors
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
