"""Results of attacks in plain values, for tables, terminal and figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simfl.errors import ScenarioError
from simfl.records.folder import replace_text
from simfl.records.writer import cannot_write

SCORES = {"loss": "loss of what was received", "gain": "gain over what the receiver had"}
"""Scores of membership, in words."""

FALSE_POSITIVE_RATES = tuple(np.unique(np.concatenate((np.logspace(-3, 0, 61), np.linspace(0, 1, 51)))).tolist())
"""Where ROC curves are looked at."""


@dataclass(frozen=True)
class Inference:
    """Membership inference by one observer on the examples of one client.

    Attributes:
        observer: "3" for client 3, "server", or "links" for an eavesdropper on all of them.
        client: whose examples.
        distance: of the observer from the client on the graph; 0 for who hears the client's own links.
        models: messages that were looked at.
        from_distance: of their senders from the client, 0 if the client sent them itself.
        score: a name in `SCORES`.
        members: m, examples of the client, and as many that were not trained on.
        auc, auc_low, auc_high: area under the ROC curve, and its interval.
        tpr: true positive rate at a false positive rate of 1 %.
        correct, guesses: guesses about pairs of a member and another, how many there were and how many right.
        lower_bound: the epsilon that these guesses imply, at most, at the attack's confidence.
        account: epsilon that is certified; NaN if none is.
        account_by: "local", the ledger's of all that the client releases, or "pairwise", of what came to the observer.
        published: epsilon of what came to the observer, gradients taken as fixed: not certified; NaN: not asked for.
        refuted: whether the guesses refute the account, at the attack's confidence for all inferences together.
    """

    observer: str
    client: int
    distance: float
    models: int
    from_distance: float
    score: str
    members: int
    auc: float
    auc_low: float
    auc_high: float
    tpr: float
    correct: int
    guesses: int
    lower_bound: float
    account: float
    account_by: str
    published: float
    refuted: bool = False


@dataclass(frozen=True)
class Membership:
    """The result of membership inference on one run.

    Attributes:
        subject: name of the scenario.
        inferences: one for each observer, client and score, where the observer received something.
        rates: true positive rates of each, [len(inferences), r], at `FALSE_POSITIVE_RATES`.
        deaf: (observer, client) of which nothing was received.
        held_out: "test": examples of the test set; "coins": half of each client's own, which it did not train on.
        delta, neighbors: of the lower bounds and of the account.
        confidence: of the lower bounds and intervals, each by itself.
        ceiling: the lower bound, had all guesses been right: the largest of them.
        reproduced: whether the run's numbers came out again as they were; None where there was no run.
        statement: what the account means, or why there is none.
    """

    subject: str
    inferences: Sequence[Inference]
    rates: NDArray[np.float64]
    deaf: Sequence[tuple[str, int]]
    held_out: str
    delta: float
    neighbors: str
    confidence: float
    ceiling: float
    reproduced: bool | None
    statement: str

    @property
    def frame(self) -> pd.DataFrame:
        """The inferences as a table."""
        return pd.DataFrame([dataclasses.asdict(one) for one in self.inferences])

    @property
    def roc(self) -> pd.DataFrame:
        """Mean ROC curves: score, distance, false_positive_rate, true_positive_rate."""
        groups: dict[tuple[str, float], list[int]] = {}
        for row, one in enumerate(self.inferences):
            groups.setdefault((one.score, one.distance), []).append(row)
        parts = []
        for (score, distance), rows in sorted(groups.items()):
            curve = {"false_positive_rate": FALSE_POSITIVE_RATES, "true_positive_rate": self.rates[rows].mean(axis=0)}
            parts.append(pd.DataFrame({"score": score, "distance": distance, **curve}))
        return pd.concat(parts, ignore_index=True)

    @property
    def best(self) -> str:
        """The score with the largest mean area, for figures only."""
        means: Mapping[str, float] = self.frame.groupby("score")["auc"].mean().to_dict()  # type: ignore[assignment]
        return max(means, key=lambda score: means[score])

    @property
    def refuting(self) -> Sequence[Inference]:
        """Inferences that refute the account."""
        return [one for one in self.inferences if one.refuted]


@dataclass(frozen=True)
class Reconstructed:
    """Examples of one mini-batch, reconstructed from its gradient.

    Attributes:
        draw: number of the client's mini-batch.
        method: "read off" the first layer, or "searched".
        originals, found: inputs [b, ...], in the same order.
        distance: 1 - cos of the gradient of what was found and the one that was given.
        correlations, ratios: of each example with what was found: correlation, and peak signal-to-noise ratio in dB.
    """

    draw: int
    method: str
    originals: NDArray[np.float32]
    found: NDArray[Any]
    distance: float
    correlations: Sequence[float]
    ratios: Sequence[float]


@dataclass(frozen=True)
class Inversion:
    """The examples of a client that an observer reconstructed.

    Attributes:
        subject: name of the scenario.
        observer, client: who, of whom.
        gradients: of the client that are in some message.
        solved: of these, how many the observer can solve for.
        small: of these, how many are of so few examples that inputs are looked for.
        image_shape: of examples that are images.
        batches: those that were inverted.
    """

    subject: str
    observer: str
    client: int
    gradients: int
    solved: int
    small: int
    image_shape: Sequence[int] | None
    batches: Sequence[Reconstructed]

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each example: draw, examples, method, distance, correlation, psnr_db."""
        rows = [
            (batch.draw, len(batch.found), batch.method, batch.distance, correlation, ratio)
            for batch in self.batches
            for correlation, ratio in zip(batch.correlations, batch.ratios, strict=True)
        ]
        return pd.DataFrame(rows, columns=["draw", "examples", "method", "distance", "correlation", "psnr_db"])


def write_tables(folder: Path, tables: Mapping[str, pd.DataFrame]) -> list[Path]:
    """Write tables as CSV files into a folder, and return their paths."""
    paths = []
    for name, table in tables.items():
        path = folder / f"{name}.csv"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            replace_text(path, table.to_csv(index=False))
        except OSError as error:
            raise ScenarioError(f"{path}: {cannot_write('the table', path, error)}") from error
        paths.append(path)
    return paths
