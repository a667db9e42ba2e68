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

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.chromium import Tab, a_tab
from tests.reports.made_up import made_up

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
