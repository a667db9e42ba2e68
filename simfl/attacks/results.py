"""Results of attacks on a run: plain values, for tables, the terminal and figures."""

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
"""Scores of membership -> description."""

FALSE_POSITIVE_RATES = tuple(np.unique(np.concatenate((np.logspace(-3, 0, 61), np.linspace(0, 1, 51)))).tolist())
"""Grid of ROC curves."""


@dataclass(frozen=True)
class Inference:
    """Membership inference by one observer on the examples of one client.

    `observer` is "3" for client 3, "server", or "links" for an eavesdropper on all links; it examined `models`
    messages. `distance` on the graph is from the observer to the client (0 if it hears the client's own links),
    `from_distance` from the messages' senders. There are `members` of the client's examples and as many that no client
    trained on. The AUC has an interval, `tpr` is the true positive rate at a false positive rate of 1 %. `correct` of
    `guesses` about pairs of a member and a non-member are right, which implies the epsilon `lower_bound` at the
    attack's confidence. `account` is the certified epsilon, NaN without one; by "local" of everything that the client
    releases, or "pairwise" of what the observer received. `published` is the latter with gradients taken as fixed: not
    certified; NaN if not requested. `refuted`: the guesses refute the account, at the confidence for all inferences
    together.
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
    """Results of membership inference in one run.

    `rates` are true positive rates, [len(inferences), r], at `FALSE_POSITIVE_RATES`; `deaf` the (observer, client)
    pairs without received messages. `held_out` is "test" for examples of the test set, or "coins" for the untrained
    half of each client's own. `delta` and `neighbors` are those of the lower bounds and of the account, `confidence`
    that of each lower bound and interval by itself, `ceiling` the largest lower bound if all guesses were right.
    `reproduced` says whether the run's numbers were reproduced (None without a run), `statement` what the account
    means, and `assumptions` what it takes for granted, by name.
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
    assumptions: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def frame(self) -> pd.DataFrame:
        """The inferences as a table."""
        return pd.DataFrame([dataclasses.asdict(one) for one in self.inferences])

    @property
    def roc(self) -> pd.DataFrame:
        """Mean ROC curves, false and true positive rates, by score and distance."""
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
        """The score with the largest mean area, for figures; no statement depends on it."""
        means: Mapping[str, float] = self.frame.groupby("score")["auc"].mean().to_dict()  # type: ignore[assignment]
        return max(means, key=lambda score: means[score])

    @property
    def refuting(self) -> Sequence[Inference]:
        """Inferences that refute the account."""
        return [one for one in self.inferences if one.refuted]


@dataclass(frozen=True)
class Reconstructed:
    """Examples of one mini-batch, number `draw`, reconstructed from its gradient.

    `method` is "read off" the first layer, or "searched". `originals` and `found` are inputs [b, ...] in the same
    order. `distance` is 1 - cos of the given gradient and that of the reconstructions; `correlations`, and peak
    signal-to-noise `ratios` in dB, compare each original with its reconstruction.
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
    """An observer's reconstructions of a client's examples.

    Of the client's `gradients` in sent messages, the observer can solve for `solved`; `small` of these are of batches
    small enough to search for inputs. `batches` are the inverted ones.
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
