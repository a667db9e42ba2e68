"""Measure the numbers in pages that come from shipped scenarios: means over the seeds that the page names.

    python docs/make_numbers.py              # measure all, and write them into the pages
    python docs/make_numbers.py swift ditto  # only those whose sentence has one of these words

A sentence of a page is here as a pattern, with what each number in it is. A test finds every sentence in its page, and
a slow one measures the numbers again.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

import simfl
from simfl import Run

ROOT = Path(__file__).parents[1]
#: The seeds of every number; sentences say "seeds 1 to 5".
SEEDS = (1, 2, 3, 4, 5)
NUMBER = re.compile(r"\{(\d+):([^}]*)\}")


@dataclass(frozen=True)
class Measured:
    """A number in a sentence: the mean over seeds of a measure of runs.

    Attributes:
        measure: of the runs of one seed, one for each of the sentence's variants.
        within: how far the page's number may be from one that another processor measures, as a share of it.
    """

    measure: Callable[[Sequence[Run]], float]
    within: float


@dataclass(frozen=True)
class Sentence:
    """A sentence with numbers.

    Attributes:
        page: in docs/.
        text: its words; `{0:.2f}` is the first number, in this format.
        scenario: in scenarios/.
        variants: the overrides of each run that the numbers are about.
        numbers: in the order of `text`.
    """

    page: str
    text: str
    scenario: str
    variants: Sequence[Sequence[str]]
    numbers: Sequence[Measured]

    @property
    def pattern(self) -> re.Pattern[str]:
        """The sentence in a page, with a group for each number."""
        parts = re.split(r"(\{\d+:[^}]*\})", self.text)
        return re.compile(
            "".join(
                r"([\d.,]*\d)" if NUMBER.fullmatch(part) else r"\s+".join(map(re.escape, re.split(r"\s+", part)))
                for part in parts
            )
        )

    def found(self) -> re.Match[str]:
        """Return the sentence in its page."""
        match = self.pattern.search((ROOT / "docs" / self.page).read_text(encoding="utf-8"))
        if match is None:
            raise ValueError(f"docs/{self.page}: expected the sentence {self.text!r}")
        return match

    def written(self) -> list[float]:
        """Return the numbers in the page."""
        return [float(number.replace(",", "")) for number in self.found().groups()]

    def values(self) -> list[float]:
        """Return the numbers: means over the seeds."""
        each = []
        with tempfile.TemporaryDirectory() as folder:
            for seed in SEEDS:
                runs = [
                    simfl.run(simfl.load(ROOT / "scenarios" / self.scenario, [*changes, f"seed={seed}"]), out=folder)
                    for changes in self.variants
                ]
                each.append([number.measure(runs) for number in self.numbers])
        return [fmean(column) for column in zip(*each, strict=True)]

    def write(self) -> None:
        """Measure the numbers, and write them into the page."""
        values, match = self.values(), self.found()
        formats = [form for _, form in NUMBER.findall(self.text)]
        path = ROOT / "docs" / self.page
        text = path.read_text(encoding="utf-8")
        for group in reversed(range(len(values))):
            begin, end = match.span(group + 1)
            text = text[:begin] + format(values[group], formats[group]) + text[end:]
        path.write_text(text, encoding="utf-8")


def loss_at(time_s: float, variant: int) -> Callable[[Sequence[Run]], float]:
    """Return the test loss of a run at an evaluation."""

    def measure(runs: Sequence[Run]) -> float:
        rows = runs[variant].metrics
        return float(rows["test_loss"].iloc[int(np.argmin(np.abs(rows["time_s"].to_numpy() - time_s)))])

    return measure


def accuracy_of_clients(variant: int) -> Callable[[Sequence[Run]], float]:
    """Return the mean test accuracy of the clients' own models at the end, in percent."""

    def measure(runs: Sequence[Run]) -> float:
        rows = runs[variant].client_metrics
        return 100 * float(rows.loc[rows["time_s"] == rows["time_s"].max(), "test_accuracy"].mean())

    return measure


def last(column: str, variant: int, factor: float = 1.0) -> Callable[[Sequence[Run]], float]:
    """Return a column of the last evaluation."""
    return lambda runs: factor * float(runs[variant].metrics[column].iloc[-1])


def ratio(column: str, above: int, below: int, factor: float = 1.0) -> Callable[[Sequence[Run]], float]:
    """Return the ratio of a column at the end of two runs."""
    return lambda runs: factor * last(column, above)(runs) / last(column, below)(runs)


def reaches(goal: float, variant: int, column: str = "suboptimality") -> Callable[[Sequence[Run]], float]:
    """Return the virtual time of the first evaluation at which a column is at most a goal."""

    def measure(runs: Sequence[Run]) -> float:
        rows = runs[variant].metrics
        return float(rows.loc[rows[column] <= goal, "time_s"].iloc[0])

    return measure


def times_as_much(column: str, goal: float) -> Callable[[Sequence[Run]], float]:
    """Return the ratio of a column in runs 1 and 0, where each reaches an accuracy."""

    def measure(runs: Sequence[Run]) -> float:
        one, other = (run.metrics for run in runs)
        means = runs[1].client_metrics.groupby("time_s")["test_accuracy"].mean()
        there = other.loc[other["time_s"] == means.index[means >= goal][0], column].iloc[0]
        return float(there / one.loc[one["test_accuracy"] >= goal, column].iloc[0])

    return measure


#: The world of swift.yaml with messages that take ten times as long as a step.
SHORT_STEPS = ("clients.seconds_per_example=50 us", "stop.time=2 s")
#: The world of mindflayer.yaml, and the steps of cached.yaml and fedat.yaml, for other algorithms.
NOISE = "batch_size: 10, gradient_noise: 0.03"
TWO_STEPS = "local_steps: 2, batch_size: 10, step_size: 0.02"
ONE_STEP = "local_steps: 1, batch_size: 10, step_size: 0.1"

SENTENCES = (
    Sentence(
        "algorithms-gossip.md",
        "clients make {0:.1f} times the updates of `decentralized_sgd`, and the test loss after 2 s is {1:.2f} in "
        "place of {2:.2f} (`adpsgd`: {3:.2f}), means of seeds 1 to 5",
        "gossip/swift.yaml",
        [(), ("algorithm.kind=decentralized_sgd",), ("algorithm.kind=adpsgd",)],
        [
            Measured(ratio("updates", 0, 1), 0.02),
            Measured(loss_at(2.0, 0), 0.05),
            Measured(loss_at(2.0, 1), 0.05),
            Measured(loss_at(2.0, 2), 0.05),
        ],
    ),
    Sentence(
        "algorithms-gossip.md",
        "with steps of 0.4 ms and messages of 5 ms the test accuracy after 2 s is {0:.0f} %, and {1:.0f} % with "
        "`decentralized_sgd` (means of seeds 1 to 5)",
        "gossip/swift.yaml",
        [SHORT_STEPS, (*SHORT_STEPS, "algorithm.kind=decentralized_sgd")],
        [Measured(last("test_accuracy", 0, 100), 0.04), Measured(last("test_accuracy", 1, 100), 0.04)],
    ),
    Sentence(
        "algorithms-gossip.md",
        "the test accuracy after 8 s is {0:.0f} %, with `swift` {1:.0f} %, with `decentralized_sgd` {2:.0f} % and with "
        "`adpsgd` {3:.0f} % (means of seeds 1 to 5)",
        "gossip/adsgd.yaml",
        [(), *((f"algorithm.kind={kind}",) for kind in ("swift", "decentralized_sgd", "adpsgd"))],
        [Measured(last("test_accuracy", at, 100), 0.04) for at in range(4)],
    ),
    Sentence(
        "algorithms-gossip.md",
        "models of clients have a mean accuracy of {0:.0f} %, with `adpsgd` and the same steps {1:.0f} % (means of "
        "seeds 1 to 5)",
        "gossip/divshare.yaml",
        [(), ("algorithm={kind: adpsgd, batch_size: 8, step_size: 0.4}",)],
        [Measured(accuracy_of_clients(0), 0.04), Measured(accuracy_of_clients(1), 0.1)],
    ),
    Sentence(
        "algorithms-gossip.md",
        "models have a mean accuracy of {0:.0f} % after 30 epochs in {1:.2f} s, with D-PSGD on a ring and as many "
        "bytes {2:.0f} % after {3:.2f} s (means of seeds 1 to 5)",
        "gossip/epidemic.yaml",
        [(), ("algorithm={kind: decentralized_sgd, batch_size: 8, step_size: 0.4}", "topology=ring")],
        [
            Measured(accuracy_of_clients(0), 0.03),
            Measured(last("time_s", 0), 0.02),
            Measured(accuracy_of_clients(1), 0.05),
            Measured(last("time_s", 1), 0.02),
        ],
    ),
    Sentence(
        "algorithms-gossip.md",
        "`decentralized_sgd` on a regular graph of degree 4 needs {0:.1f} times the time, {1:.0f} times the "
        "computation and {2:.0f} times the bytes to an accuracy of 0.8 (means of seeds 1 to 5)",
        "gossip/plexus.yaml",
        [
            ("stop={epochs: 10}",),
            (
                "algorithm={kind: decentralized_sgd, batch_size: 8, step_size: 0.2}",
                "topology={kind: regular, degree: 4}",
                "stop={epochs: 60}",
                "evaluate.every={epochs: 2}",
            ),
        ],
        [
            Measured(times_as_much("time_s", 0.8), 0.1),
            Measured(times_as_much("epochs", 0.8), 0.1),
            Measured(times_as_much("bytes_sent", 0.8), 0.1),
        ],
    ),
    Sentence(
        "algorithms-gossip.md",
        "30 epochs take {0:.0f} % of the time and {1:.0f} % of the bytes of `decentralized_sgd`, with a test accuracy "
        "of {2:.1f} % and not {3:.1f} % (means of seeds 1 to 5)",
        "gossip/matcha.yaml",
        [(), ("algorithm={kind: decentralized_sgd, batch_size: 8, step_size: 0.4}",)],
        [
            Measured(ratio("time_s", 0, 1, 100), 0.02),
            Measured(ratio("bytes_sent", 0, 1, 100), 0.02),
            Measured(last("test_accuracy", 0, 100), 0.02),
            Measured(last("test_accuracy", 1, 100), 0.02),
        ],
    ),
    Sentence(
        "algorithms-gossip.md",
        "the suboptimality falls below 10⁻¹⁰ after {0:.1f} s. That of AD-PSGD is {1:.1f} after 3,000 epochs (means of "
        "seeds 1 to 5)",
        "corrected/asynchronous.yaml",
        [(), ("algorithm={kind: adpsgd, batch_size: 10, step_size: 0.1}",)],
        [Measured(reaches(1e-10, 0), 0.05), Measured(last("suboptimality", 1), 0.25)],
    ),
    Sentence(
        "algorithms-gossip.md",
        "1,500 rounds take {0:.1f} s with `sums` and {1:.1f} s with `resend`. But v fluctuates: training ends at a "
        "suboptimality of {2:.1f}·10⁻⁴ in place of {3:.1f}·10⁻⁵ (means of seeds 1 to 5)",
        "corrected/lossy-push.yaml",
        [(), ("algorithm.lost=resend",)],
        [
            Measured(last("time_s", 0), 0.02),
            Measured(last("time_s", 1), 0.02),
            Measured(last("suboptimality", 0, 1e4), 0.1),
            Measured(last("suboptimality", 1, 1e5), 0.1),
        ],
    ),
    Sentence(
        "algorithms-gossip.md",
        "After 30 epochs the test accuracy is {0:.0f} %, and {1:.0f} % with `decentralized_sgd` on a ring, at the same "
        "bytes (means of seeds 1 to 5)",
        "gossip/teleportation.yaml",
        [(), ("algorithm={kind: decentralized_sgd, batch_size: 8, step_size: 0.4}",)],
        [Measured(last("test_accuracy", 0, 100), 0.03), Measured(last("test_accuracy", 1, 100), 0.03)],
    ),
    Sentence(
        "algorithms-rounds.md",
        "After 20 epochs the server's model has an accuracy of {0:.1f} % on clients' test data, and personal models "
        "have {1:.1f} % on theirs; on the test set of all digits they have {2:.0f} % (means of seeds 1 to 5)",
        "corrected/personal.yaml",
        [()],
        [
            Measured(last("own_classes", 0, 100), 0.02),
            Measured(last("own_classes_models", 0, 100), 0.02),
            Measured(accuracy_of_clients(0), 0.05),
        ],
    ),
    Sentence(
        "algorithms-gossip.md",
        "D-PSGD stalls at a suboptimality of {0:.1f}·10⁻⁴ (mean of seeds 1 to 5)",
        "corrected/gossip.yaml",
        [("algorithm={kind: decentralized_sgd, batch_size: 10, step_size: 0.1}",)],
        [Measured(last("suboptimality", 0, 1e4), 0.05)],
    ),
    Sentence(
        "algorithms-rounds.md",
        "FedAvg stalls at a suboptimality of {0:.1f}·10⁻³ (mean of seeds 1 to 5)",
        "corrected/rounds.yaml",
        [("algorithm.kind=fedavg",)],
        [Measured(last("suboptimality", 0, 1e3), 0.05)],
    ),
    Sentence(
        "algorithms-servers.md",
        "`ringleader` falls below 10⁻⁶ after {0:.1f} s (mean of seeds 1 to 5)",
        "late/ringleader.yaml",
        [()],
        [Measured(reaches(1e-6, 0), 0.05)],
    ),
    Sentence(
        "algorithms-servers.md",
        "`mindflayer` reaches a suboptimality of 10⁻³ after {0:.1f} s, `rennala` with as many gradients per step, 44, "
        "after {1:.1f} s, `async_sgd` with a step size of 0.1 after {2:.2f} s, and `ringmaster` with 0.2 and "
        "`threshold: 20` after {3:.2f} s (means of seeds 1 to 5)",
        "late/mindflayer.yaml",
        [
            (),
            (f"algorithm={{kind: rennala, gradients_per_step: 44, step_size: 1.6, {NOISE}}}",),
            (f"algorithm={{kind: async_sgd, step_size: 0.1, {NOISE}}}",),
            (f"algorithm={{kind: ringmaster, threshold: 20, step_size: 0.2, {NOISE}}}",),
        ],
        [
            Measured(reaches(1e-3, 0), 0.15),
            Measured(reaches(1e-3, 1), 0.1),
            Measured(reaches(1e-3, 2), 0.1),
            Measured(reaches(1e-3, 3), 0.1),
        ],
    ),
    Sentence(
        "algorithms-servers.md",
        "`fedbuff` stalls at a suboptimality of {0:.3f} (`server_step: 0.5`). `ca2fl` falls below 10⁻⁵ after {1:.1f} "
        "s, and `ace` with `server_step: 0.5` after {2:.1f} s (means of seeds 1 to 5)",
        "late/cached.yaml",
        [
            ("algorithm.kind=fedbuff", "algorithm.server_step=0.5"),
            (),
            (f"algorithm={{kind: ace, server_step: 0.5, {TWO_STEPS}}}",),
        ],
        [
            Measured(last("suboptimality", 0), 0.1),
            Measured(reaches(1e-5, 1), 0.05),
            Measured(reaches(1e-5, 2), 0.05),
        ],
    ),
    Sentence(
        "algorithms-servers.md",
        "in that scenario, `max_age: 10` stalls at {0:.2f} (mean of seeds 1 to 5)",
        "late/cached.yaml",
        [(f"algorithm={{kind: ace, server_step: 0.5, max_age: 10, {TWO_STEPS}}}",)],
        [Measured(last("suboptimality", 0), 0.1)],
    ),
    Sentence(
        "algorithms-servers.md",
        "`fedat` stalls at a suboptimality of {0:.4f} with two tiers and of {1:.4f} with five. `fedbuff` ("
        "`buffer_size: 1`, `server_step: 0.1`) stalls at {2:.3f} and `fedasync` (`mixing: 0.1`) at {3:.3f}, and "
        "`fedavg` reaches 10⁻⁶ after {4:.1f} s (means of seeds 1 to 5)",
        "late/fedat.yaml",
        [
            ("stop.time=6 s",),
            ("algorithm.tiers=5", "stop.time=6 s"),
            (f"algorithm={{kind: fedbuff, buffer_size: 1, server_step: 0.1, {ONE_STEP}}}", "stop.time=6 s"),
            (f"algorithm={{kind: fedasync, mixing: 0.1, {ONE_STEP}}}", "stop.time=6 s"),
            (f"algorithm={{kind: fedavg, {ONE_STEP}}}",),
        ],
        [
            Measured(last("suboptimality", 0), 0.05),
            Measured(last("suboptimality", 1), 0.05),
            Measured(last("suboptimality", 2), 0.05),
            Measured(last("suboptimality", 3), 0.05),
            Measured(reaches(1e-6, 4), 0.05),
        ],
    ),
    Sentence(
        "algorithms-servers.md",
        "the suboptimality after 12 s is {0:.4f} (`actual`) or {1:.4f} (`expected`), means of seeds 1 to 5",
        "late/favas.yaml",
        [(), ("algorithm.divisor=expected",)],
        [Measured(last("suboptimality", 0), 0.05), Measured(last("suboptimality", 1), 0.05)],
    ),
    Sentence(
        "algorithms-servers.md",
        "it reaches a suboptimality of 10⁻⁶ after {0:.1f} s (mean of seeds 1 to 5)",
        "late/area.yaml",
        [()],
        [Measured(reaches(1e-6, 0), 0.05)],
    ),
)


if __name__ == "__main__":
    words = sys.argv[1:]
    for sentence in SENTENCES:
        if not words or any(word in sentence.text or word in sentence.scenario for word in words):
            sentence.write()
            print(f"docs/{sentence.page}: {' '.join(sentence.found().group().split())}")
