"""The page of a reproduced study: claims, verdicts, figures and numbers."""

from __future__ import annotations

import contextlib
import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from simfl.comparison.sweeps import Sweep, SweepRun
from simfl.errors import ScenarioError
from simfl.plots import save_and_close, style, without_a_screen
from simfl.records.folder import replace_text
from simfl.records.seeds import Crossed, Seed
from simfl.reproduction.about import ABOUT_FIELDS, about_of
from simfl.reproduction.evidence import POWER, SEEDS, Judged, NotMeasuredError, show
from simfl.reproduction.papers import Number, Paper, Runs
from simfl.reproduction.reading import Reproduction, argument_of, counted, judged
from simfl.version import __version__

NUMBER_FIELDS = ("part", "row", "column", "unit", "paper", "ours", "low", "high", "difference", "seeds")
CLAIM_FIELDS = ("claim", "verdict", "yes", "no", "undecided", "words", "evidence", "headline", "figure")
READING_FIELDS = ("claim", "reading", "held", "own", "afterwards", "evidence")
LOST_FIELDS = ("runs", "ended")
#: What the five words mean, for pages.
VERDICTS = """\
| verdict | rule |
| --- | --- |
| reproduced | every reading holds |
| mostly | at least two thirds of the readings that decide hold, those nearest to the paper among them |
| mixed | neither mostly nor not reproduced |
| not reproduced | at most one in ten of the readings that decide holds, and none that is nearest to the paper |
| not decidable here | most readings are undecided, or those nearest to the paper are while the others agree; no run \
is possible; or the claim fails at a smaller budget than the paper's. The measurement names what it would take |"""
POWERED = f"""\
A number of seeds "for a power of {100 * POWER:.0f} %" decides with that probability, if mean and spread are as \
measured."""
HELD = {True: "yes", False: "no", None: "undecided"}


def write(paper: Paper, quick: bool, swept: Sweep, runs: Runs, root: Path) -> Reproduction:
    """Write page, figures and tables of a study, its sweep's too; return it."""
    without_a_screen()
    form = paper.form(quick)
    name = f"{paper.name}-{form.split()[0]}" if form else paper.name
    lost = len(swept.finished) < len(swept.runs)
    numbers, claims = counted(paper, runs), judged(paper, runs, quick, lost)
    try:
        swept.write_table()
        figures = tuple(draw(paper, runs, root / "figures" / name))
        page = root / f"{name}.md"
        outcome = Reproduction(paper, quick, swept, numbers, claims, figures, page)
        replace_text(root / f"{name}.csv", number_table(numbers))
        replace_text(root / f"{name}-claims.csv", claim_table(claims, [path.stem for path, _ in figures]))
        replace_text(root / f"{name}-readings.csv", reading_table(claims))
        replace_text(root / f"{name}-lost.csv", _csv(LOST_FIELDS, unfinished(swept.runs)))
        about = about_of(command_of(outcome), paper.name, swept)
        replace_text(root / f"{name}-about.csv", _csv(ABOUT_FIELDS, [[about[key] for key in ABOUT_FIELDS]]))
        replace_text(page, page_of(outcome))
    except OSError as error:
        raise ScenarioError(f"{root}: cannot write the results: {error.strerror}; choose --out") from error
    return outcome


def draw(paper: Paper, runs: Runs, folder: Path) -> Iterator[tuple[Path, str]]:
    """Write the figures of existing runs; yield their paths and captions."""
    for name, (caption, drawn) in paper.figures.items():
        with contextlib.suppress(NotMeasuredError), style():
            (path,) = save_and_close(drawn(runs), folder / f"{name}.png")
            yield path, caption


def page_of(outcome: Reproduction) -> str:
    """Return the page as Markdown."""
    paper, swept = outcome.paper, outcome.swept
    seconds = math.fsum(run.wall_s for run in swept.finished)
    lost = [f"- {runs}: {ended}" for runs, ended in unfinished(swept.runs)]
    blocks = [
        f"# {paper.title}",
        f"Written by `{command_of(outcome)}` (simfl {__version__}): {len(swept.finished)} of {len(swept.runs)} runs, "
        f"{seconds / 60:.0f} minutes of computing in total. Intervals are 95 % intervals of Student's t over seeds. "
        "A number without an interval was measured with one seed, or does not depend on random draws. If runs "
        "diverged, medians are given.",
        *(["This is the quick form, with fewer settings and seeds; its verdicts are preliminary."]
          if outcome.quick else []),
        *([f"Experiments that read {', '.join(paper.missing)} were left out, because the data were missing."]
          if paper.missing else []),
        *(["This is a part of the study: a claim of which it runs less than all may have another verdict there."]
          if paper.part else []),
        "## Claims",
        "The paper leaves some settings open; a choice of them is a reading. A claim is judged under every reading, "
        f"with at least {SEEDS} seeds each. It holds or fails by its interval, and is undecided if the interval "
        "contains the bar. An interval misses on one side in one case of forty, so a claim that holds under one of "
        "dozens of readings may do so by chance.",
        VERDICTS,
        POWERED,
        claims_of(outcome.claims),
        *(f"![{caption}]({path.relative_to(outcome.page.parent).as_posix()})" for path, caption in outcome.figures),
        *(["## What differs from the paper", "\n".join(f"- {deviation}" for deviation in paper.deviations)]
          if paper.deviations else []),
        *tables_of(number for number in outcome.numbers if number.part in paper.shown),
        *readings_of(outcome.claims),
        "## Numbers",
        "Our numbers. If the paper has the number too, it is in brackets, with the difference.",
        *numbers_of([number for number in outcome.numbers if number.part not in paper.shown]),
    ]  # fmt: skip
    if lost:
        blocks += ["## Runs that did not end", "\n".join(lost)]
    return "\n\n".join(blocks) + "\n"


def unfinished(runs: Iterable[SweepRun]) -> Iterator[tuple[str, str]]:
    """Yield a setting with all its seeds that ended for one reason, and the reason."""
    seeds: dict[tuple[str, str], set[Seed]] = {}
    for run in (run for run in runs if run.status != "done"):
        why = run.reason.partition(" at ")[0] if run.status == "diverged" else run.reason
        seeds.setdefault((run.label, f"{run.status}{': ' * bool(why)}{why}"), set()).add(run.seeds)
    for (label, why), of in sorted(seeds.items()):
        ordered = sorted(of, key=lambda one: one if isinstance(one, Crossed) else (one, one))
        yield f"{label}, seed{'s' * (len(of) > 1)} {', '.join(map(str, ordered))}", why


def command_of(outcome: Reproduction) -> str:
    """Return the command that writes a page."""
    paper = outcome.paper
    return f"simfl reproduce {argument_of(paper.name)}" + " --quick" * outcome.quick + paper.part


def claims_of(claims: Iterable[Judged]) -> str:
    """Return the table of claims, with their verdicts and measurements."""
    rows = [[claim.text, f"**{claim.words}**", claim.evidence] for claim in claims]
    return table([["claim", "verdict", "what was measured"], *rows])


def readings_of(claims: Sequence[Judged]) -> Iterable[str]:
    """Yield a heading and a table of readings for every claim with several readings."""
    several = [claim for claim in claims if len(claim.readings) > 1]
    if several:
        yield "## Readings"
    for claim in several:
        rows = [["reading", "does it hold?", "what was measured"]]
        rows += [[reading.label, HELD[reading.held], reading.evidence] for reading in claim.readings]
        yield f"### {claim.text}"
        yield f"{claim.words[:1].upper()}{claim.words[1:]}."
        yield table(rows)


def numbers_of(numbers: Sequence[Number]) -> Iterable[str]:
    """Yield a heading and a table of numbers for every part."""
    for part in dict.fromkeys(number.part for number in numbers):
        of_part = [number for number in numbers if number.part == part]
        columns = list(dict.fromkeys(number.column for number in of_part))
        places = {(number.row, number.column): number for number in of_part}
        if len(places) < len(of_part):
            raise ValueError(f"{part}: expected one number for each row and column, found several for one of them")
        rows = [["", *columns]]
        for row in dict.fromkeys(number.row for number in of_part):
            cells = (places.get((row, column)) for column in columns)
            rows.append([row, *("-" if number is None else cell(number) for number in cells)])
        seeds = {len(number.values) for number in of_part}
        counted = [f"{count} seed{'s' * (count > 1)}" for count in (min(seeds), max(seeds)) if seeds != {1}]
        units = sorted({number.unit for number in of_part if number.unit})
        about = [*units, " to ".join(dict.fromkeys(counted))]
        yield f"### {part}"
        if any(about):
            yield "; ".join(word for word in about if word) + "."
        yield table(rows)


def tables_of(numbers: Iterable[Number]) -> Iterable[str]:
    """Yield the tables of numbers that come first, under headings of their own."""
    for block in numbers_of(list(numbers)):
        yield block.removeprefix("#") if block.startswith("### ") else block


def cell(number: Number) -> str:
    """Write a number, with the paper's number and the difference in brackets."""
    ours = show(number.values, number.digits).replace("never", number.never)
    if number.paper is None:
        return ours
    paper = f"{number.paper:.{number.digits}f}"
    if math.isnan(number.difference):
        return f"{ours} ({paper})"
    return f"{ours} ({paper}, {number.difference:+.{number.digits}f})"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first row is its header."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)


def number_table(numbers: Iterable[Number]) -> str:
    """Return the numbers as CSV."""
    rows = []
    for number in numbers:
        interval = number.interval
        values = (number.paper, interval.mean, interval.low, interval.high, number.difference)
        shown = ["" if value is None or math.isnan(value) else f"{value:.6g}" for value in values]
        rows.append([number.part, number.row, number.column, number.unit, *shown, str(len(number.values))])
    return _csv(NUMBER_FIELDS, rows)


def claim_table(claims: Iterable[Judged], drawn: Sequence[str]) -> str:
    """Return the claims as CSV, with the names of the figures in `drawn`."""
    rows = []
    for claim in claims:
        counts = (claim.counts.yes, claim.counts.no, claim.counts.undecided)
        figure = claim.figure * (claim.figure in drawn)
        rows.append([claim.text, str(claim.verdict), *map(str, counts), claim.words, claim.evidence,
                     str(claim.headline).lower(), figure])  # fmt: skip
    return _csv(CLAIM_FIELDS, rows)


def reading_table(claims: Iterable[Judged]) -> str:
    """Return every reading of the claims as CSV."""
    rows = [[claim.text, reading.label, HELD[reading.held], str(reading.own).lower(), str(reading.afterwards).lower(),
             reading.evidence] for claim in claims for reading in claim.readings]  # fmt: skip
    return _csv(READING_FIELDS, rows)


def _csv(fields: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(fields)
    writer.writerows(rows)
    return text.getvalue()
