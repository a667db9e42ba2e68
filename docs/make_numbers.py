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


def ratio(column: str, above: int, below: int) -> Callable[[Sequence[Run]], float]:
    """Return the ratio of a column at the end of two runs."""
    return lambda runs: last(column, above)(runs) / last(column, below)(runs)


def reaches(goal: float, variant: int, column: str = "suboptimality") -> Callable[[Sequence[Run]], float]:
    """Return the virtual time of the first evaluation at which a column is at most a goal."""

    def measure(runs: Sequence[Run]) -> float:
        rows = runs[variant].metrics
        return float(rows.loc[rows[column] <= goal, "time_s"].iloc[0])

    return measure


#: The world of swift.yaml with messages that take ten times as long as a step.
SHORT_STEPS = ("clients.seconds_per_example=50 us", "stop.time=2 s")

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
        "models of clients have a mean accuracy of {0:.0f} %, with `adpsgd` and the same steps {1:.0f} % (means of "
        "seeds 1 to 5)",
        "gossip/divshare.yaml",
        [(), ("algorithm={kind: adpsgd, batch_size: 8, step_size: 0.4}",)],
        [Measured(accuracy_of_clients(0), 0.04), Measured(accuracy_of_clients(1), 0.1)],
    ),
    Sentence(
        "algorithms-gossip.md",
        "the models of clients have a mean accuracy of {0:.0f} % after 30 epochs. With D-PSGD on a ring, which sends "
        "as much, they have {1:.0f} % (means of seeds 1 to 5)",
        "gossip/epidemic.yaml",
        [(), ("algorithm={kind: decentralized_sgd, batch_size: 8, step_size: 0.4}", "topology=ring")],
        [Measured(accuracy_of_clients(0), 0.03), Measured(accuracy_of_clients(1), 0.05)],
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
        "algorithms-servers.md",
        "`ringleader` falls below 10⁻⁶ after {0:.1f} s (mean of seeds 1 to 5)",
        "late/ringleader.yaml",
        [()],
        [Measured(reaches(1e-6, 0), 0.05)],
    ),
    Sentence(
        "algorithms-servers.md",
        "`ca2fl` falls below 10⁻⁵ after {0:.1f} s (mean of seeds 1 to 5)",
        "late/cached.yaml",
        [()],
        [Measured(reaches(1e-5, 0), 0.05)],
    ),
)


if __name__ == "__main__":
    words = sys.argv[1:]
    for sentence in SENTENCES:
        if not words or any(word in sentence.text or word in sentence.scenario for word in words):
            sentence.write()
            print(f"docs/{sentence.page}: {' '.join(sentence.found().group().split())}")
