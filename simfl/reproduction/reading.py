"""The results of a study: claims with verdicts, and numbers."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from simfl.comparison.sweeps import Sweep
from simfl.reproduction.evidence import Judged, NotMeasuredError, Reading, Verdict, gathered, seeds_needed, verdict_of
from simfl.reproduction.papers import Number, Paper, Runs


@dataclass(frozen=True)
class Reproduction:
    """A study with its results; figures have captions."""

    paper: Paper
    quick: bool
    swept: Sweep
    numbers: tuple[Number, ...]
    claims: tuple[Judged, ...]
    figures: tuple[tuple[Path, str], ...]
    page: Path


def argument_of(name: str) -> str:
    """Return a paper's name on the command line."""
    return name.replace("_", "-")


def judged(paper: Paper, runs: Runs, quick: bool = False, lost: bool = False) -> tuple[Judged, ...]:
    """Return the claims with their verdicts; untestable ones come last.

    `quick` says whether it is the quick form; this and a part of a study do not run all claims. `lost` says whether
    runs of it failed or are missing.
    """
    claims, form = [], paper.form(quick)
    for claim in paper.claims:
        readings: tuple[Reading, ...] = ()
        try:
            readings = gathered(claim.check(runs))
            verdict = verdict_of(readings, claim.short)
            why = (claim.short or seeds_needed(readings)) if verdict is Verdict.UNDECIDABLE else ""
        except NotMeasuredError as error:
            verdict, why = Verdict.UNDECIDABLE, str(error)
            if form and not lost:
                fetched = f" after `simfl data fetch {' '.join(paper.missing)}`" if paper.missing else ""
                verdict, why = Verdict.NOT_RUN, f"run by `simfl reproduce {argument_of(paper.name)}`{fetched}"
        of_claim = claim.headline, claim.figure, claim.instead
        claims.append(Judged(claim.text, verdict, readings, why, *of_claim, form=form))
    return (*claims, *(Judged(text, Verdict.UNDECIDABLE, why=why, form=form) for text, why in paper.untested))


def counted(paper: Paper, runs: Runs) -> tuple[Number, ...]:
    """Return the numbers of every table whose runs exist."""
    numbers: list[Number] = []
    for table in paper.numbers:
        with contextlib.suppress(NotMeasuredError):
            numbers += table(runs)
    return tuple(numbers)
