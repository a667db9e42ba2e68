"""Write the verdicts on papers' claims from the tables in results/reference/.

They are docs/reproduction.md with the five papers, docs/reproduction-*.md with all claims, and the tables of README.md,
results/README.md and docs/theorems.md.

    python docs/make_reproduction.py            # from the tables that are there
    python docs/make_reproduction.py results    # take over what `simfl reproduce` wrote into results/ first, the full
                                                # form of a study where it was run
    python docs/make_reproduction.py results async_fl "With growing sizes a constant"   # take over these claims from a
                                                # part of the study, which `simfl reproduce async-fl --only` wrote
    python docs/make_reproduction.py --older    # print which tables are older than the code that they run through

A test compares what it writes with the files, so that no verdict is typed in.
"""

from __future__ import annotations

import csv
import operator
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from simfl.reproduction.about import ABOUT_FIELDS, code_of
from simfl.reproduction.evidence import NEAREST, Judged, Part, Reading, Verdict, seeds_needed, verdict_of
from simfl.reproduction.pages import HELD, POWERED, VERDICTS
from simfl.reproduction.reading import argument_of
from simfl.reproduction.reproducing import PAPERS, find_paper

Row = dict[str, str]
ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TABLES = ROOT / "results" / "reference"
FIGURES = Path("figures") / "reproduction"
README, RESULTS, BOUNDS = ROOT / "README.md", ROOT / "results" / "README.md", DOCS / "theorems.md"
BEGIN, END = "<!-- Written by docs/make_reproduction.py: begin -->", "<!-- end -->"


class Beside(NamedTuple):
    """A number of a headline: what it is, what the paper says of it, and where the evidence of readings has it.

    The groups of `measured` are the number and, where it is written apart, its interval.
    """

    label: str
    paper: str
    measured: str


class Front(NamedTuple):
    """What the front page and README.md show of a paper: `numbers` has a list for each of its headlines.

    `about` explains the names in its headlines.
    """

    short: str
    about: str
    kind: str
    scenario: str
    numbers: tuple[tuple[Beside, ...], ...]


VALUE = r"([-+]?[\d.]+ ± [\d.]+)"
MEDIAN = r"([-+][\d.]+) \(median, ([^)]*)\)"


def leads(*cases: str) -> tuple[Beside, ...]:
    """Return Algorithm 2's leads over Algorithm 1, of which the paper prints the largest."""
    return tuple(Beside(f"lead, {case}, points", "up to 15", rf"(?:^|; ){case}: ahead by {VALUE}") for case in cases)


def slower(case: str, paper: str) -> Beside:
    """Return how much longer SYNC takes in a case, which the paper says of its iterations."""
    ratio = rf"case {case}: [^;]*: ([\d.]+) times as much \(([\d. to]+)"
    return Beside(f"case {case}: SYNC's time over A(DP)²SGD's, against that without a slow learner", paper, ratio)


#: The five papers; the other studies share a page.
FRONT = {
    "adp2sgd": Front(
        "A(DP)²SGD",
        "In A(DP)²SGD each of 16 workers averages its model with a neighbor's at its own pace. In SYNC all wait for "
        "each other. A random worker is twice as slow (case I), or one worker ten times (case II).",
        "adpsgd",
        "adp2sgd/case2-adpsgd.yaml",
        ((slower("I", "2 (SYNC alone)"), slower("II", "10X (the slow learner)")),),
    ),
    "without_replacement": Front(
        "without replacement",
        "A node uses each example once. In Algorithm 1 every step is noisy. In Algorithm 2 a network learns which "
        "steps are local, without noise. Tasks are convex, or strongly convex by an L2 penalty.",
        "deep_q_sgd",
        "without_replacement/deep-q-convex.yaml",
        (leads("convex, ε = 0.1", "convex, ε = 1", "strongly convex, ε = 0.1", "strongly convex, ε = 1"),),
    ),
    "proactive_dp": Front(
        "Proactive DP",
        "A calculator chooses batch size and noise before training, for a budget ε. The task is logistic regression "
        "on phishing websites, plain or strongly convex; η₀ is the first step size.",
        "async_fl",
        "proactive_dp/phishing-strongly.yaml",
        (
            (
                Beside("strongly convex, ε = 0.05, accuracy, %", "86", rf"^strongly[^;]*: {VALUE} % at ε = 0.05"),
                Beside("strongly convex, no privacy, accuracy, %", "93", rf"^strongly[^;]*, {VALUE} % no privacy"),
                Beside("strongly convex, points lost", "7", rf"^strongly[^;]*: {VALUE} points lost"),
            ),
        ),
    ),
    "mapa": Front(
        "MAPA",
        "Servers send noisy gradients. AUDP, the baseline, has one clipping norm C, or none; MAPA lowers C, and so "
        "the noise, in stages. ASGD has no noise, CSGD one machine. K is the number of servers, ε that of one "
        "iteration. LR is logistic regression, USPS a set of digits.",
        "mapa",
        "mapa/usps-lr-mapa.yaml",
        (
            (Beside("LR on USPS, ε = 0.1, lead over AUDP, points", "ahead, no number", rf": {VALUE} points ahead"),),
            tuple(
                Beside(
                    f"begun with C = {one} minus begun with C = {other}, points",
                    '"nearly the same"',
                    f"C = {one} minus C = {other}: {VALUE}",
                )
                for one, other in ((200, 100), (200, 10), (100, 10))
            ),
        ),
    ),
    "async_fl": Front(
        "asynchronous FL",
        "Clients send the sum of a round's gradients: 50 i in round i, or a constant number. The tasks are logistic "
        "regression on a9a and w8a, plain or strongly convex.",
        "async_fl",
        "async_fl/increasing-a9a-strongly.yaml",
        (
            (
                Beside("a9a, rounds of 50 i, and of 50", '"fewer"', r"(\d+ rounds instead of \d+)"),
                Beside("strongly convex, lead over 50, points", '"good accuracy"', f"a9a, strongly .*? {MEDIAN}"),
                Beside("plain convex, lead over 50, points", '"good accuracy"', f"a9a, plain .*? {MEDIAN}"),
            ),
            tuple(
                Beside(
                    f"w8a, {kind} convex, lead over 16 with steps of 0.01, points",
                    "ahead, no number",
                    f"w8a, {kind} convex: {VALUE} points against 16, step 0.01",
                )
                for kind in ("strongly", "plain")
            ),
        ),
    ),
}
OTHERS = [name for name in PAPERS if name not in FRONT]
#: Studies whose own page has their claims, deviations and figures.
ELSEWHERE = {"theorems"}
#: The most characters of a sentence on the front page, of a cell, and of a cell that needs more for one measurement.
SENTENCE, CELL, LONGEST = 200, 110, 280
#: The tables of a study, as its page calls them, and how their names end.
TABLE_NAMES = {"Claims": "-claims", "readings": "-readings", "numbers": "",
               "lost runs": "-lost", "what made them": "-about"}  # fmt: skip
#: What the name of an open setting may be in a label.
KEY = "(?:steps, )?[^,:=]+?"
OLDER = "**Tables older than the code that they run through:**"
#: What a result is called, what marks the parts of a measurement that have it, and the verdicts that it leads to.
RESULTS_OF = {
    "yes": ("holds", "", (Verdict.REPRODUCED, Verdict.MOSTLY)),
    "no": ("fails", " (does not hold)", (Verdict.NOT_REPRODUCED,)),
    "undecided": ("undecided", " (not decided)", (Verdict.UNDECIDABLE,)),
}
NEGATIVE = r"-(\d[\d.]*(?: ± [\d.]+)?)"
#: What a negative lead is called.
BEHIND = {
    rf"ahead(?: of( [\w ]+))? by {NEGATIVE}": r"behind\1 by \2",
    f"leads by {NEGATIVE}": r"trails by \1",
    rf"{NEGATIVE} points ahead( at \S+ = [\d.]+), {NEGATIVE}": r"\1 points behind\2, \3",
    rf"{NEGATIVE} points ahead(?: of)?(?! at \S+ = [\d.]+, \+)": r"\1 points behind",
}
NOTE = "<!-- Written by docs/make_reproduction.py -->"

INTRODUCTION = f"""\
# What was reproduced

{NOTE}

After this page you know what holds of the headlines of five papers, and by how much. "Nearest to the paper" is the
choice of open settings nearest to its text, and "elsewhere" are other choices. "Or" stands between two equally near.
See [rules](#how-a-claim-is-judged) and [other studies](reproduction-others.md).
"""
RULES = f"""\
## How a claim is judged

A paper leaves settings open. A choice of them is a *reading*. A claim is judged under every defensible reading, with at
least five seeds each. A reading holds or fails by the 95 % interval over seeds, and is undecided if the interval
contains the bar. One interval of forty misses on one side: one of dozens of readings may hold by chance. The verdicts:

{VERDICTS}

{POWERED}
Seeds were added up to 200 s of one core a claim. This cap is reached by MAPA's Figure 9 (640 s for L, 1,220 for b,
1,440 for δ), Proactive DP's headline (240 s), Deep-Q's (280 s a reading), its Figures 5 and 6 (66 s for each of 18
seeds), Table II (222 s a seed) and asynchronous FL's Figure 11 (84 s a seed). In its Figure 6 the difference, measured
with 156 seeds, is too near to the bar for seeds to decide.

```sh
simfl reproduce adp2sgd --quick   # minutes: fewer settings and seeds
simfl reproduce adp2sgd           # what these pages show
simfl reproduce mapa --only 'Figure 9, (default|L)' --seeds 10   # a part
```

All full forms together took HOURS hours on two cores. A page states the minutes of its study on one core.

A paper's page has the verdict on every claim, the number of readings, and one reading of each result. "…" stands for
more measurements, which the CSV files at its end have.
[`results/README.md`](../results/README.md) explains them, and names tables older than the code.

Data lie in the folder `SIMFL_DATA` (`simfl data fetch`).
"""


def take_over(results: Path) -> None:
    """Copy tables and figures of studies to where they are kept: those of the full form, or else the quick."""
    source = results / "reproduction"
    for name in PAPERS:
        forms = [form for form in (name, f"{name}-quick") if (source / f"{form}.md").exists()]
        if not forms:
            continue
        for table in TABLE_NAMES.values():
            shutil.copy(source / f"{forms[0]}{table}.csv", TABLES / f"{name}{table}.csv")
        figures = DOCS / FIGURES / name
        shutil.rmtree(figures, ignore_errors=True)
        figures.mkdir(parents=True)
        for figure in sorted((source / "figures" / forms[0]).glob("*.png")):
            shutil.copy(figure, figures / figure.name)


def take_over_part(results: Path, name: str, titles: Sequence[str]) -> None:
    """Put a part of a study into its tables: readings of claims that begin so, and numbers of as many seeds or more."""
    made = {ending: _read(results / "reproduction" / f"{name}-part{ending}.csv") for ending in TABLE_NAMES.values()}
    new = {(row["claim"], row["reading"]): row for row in made["-readings"] if row["claim"].startswith(tuple(titles))}
    if len({claim for claim, _ in new}) != len(titles):
        sys.exit(f"expected {len(titles)} claims of the part of {name}, found {sorted({claim for claim, _ in new})}")
    _write(f"{name}-readings", joined(rows_of(f"{name}-readings"), [*new.values()], "claim", "reading"))
    changed, stored = {claim for claim, _ in new}, {row["claim"] for row in claims_of(name)}
    claims = [*claims_of(name), *(row for row in made["-claims"] if row["claim"] in changed - stored)]
    _write(f"{name}-claims", [row | again(name, row) if row["claim"] in changed else row for row in claims])
    _write(name, joined(rows_of(name), made[""], "part", "row", "column", size=lambda row: int(row["seeds"])))
    lost = {lost_of(row): row for row in rows_of(f"{name}-lost")}
    for row in made["-lost"]:
        lost[lost_of(row)] = max(lost.get(lost_of(row), row), row, key=lambda one: len(one["runs"]))
    _write(f"{name}-lost", [*lost.values()])
    (was,), (now,) = rows_of(f"{name}-about"), made["-about"]
    if now["commit"] in was["commit"] and now["code"] in was["code"].split("; "):
        return
    first, again_ = (about["runs"].split(" of ")[0] for about in (was, now))
    commit = was["commit"] + f" ({first} runs)" * (not was["commit"].endswith(")"))
    whole = {"commit": f"{commit}; {now['commit']} ({again_} runs with more seeds)",
              "code": f"{was['code'] or 'unknown'}; {now['code']}"}  # fmt: skip
    _write(f"{name}-about", [was | whole])


def joined(stored: Sequence[Row], new: Sequence[Row], *key: str, size: Callable[[Row], int] = len) -> list[Row]:
    """Return stored rows, each replaced by a new one of the same key unless that has a smaller size.

    New rows whose key is not stored come after the last one with the same first field, or at the end.
    """
    place = operator.itemgetter(*key)
    rows = {place(row): row for row in stored}
    rows |= {place(row): row for row in new if size(row) >= size(rows.get(place(row), row))}
    last = {row[key[0]]: number for number, row in enumerate(stored)}
    numbers = {place(row): number for number, row in enumerate(stored)}
    return sorted(rows.values(), key=lambda row: numbers.get(place(row), last.get(row[key[0]], len(stored))))


def lost_of(row: Row) -> tuple[str, str]:
    """Return the setting of runs that did not end, without their seeds, and how they ended."""
    return re.sub(", seeds? [^a-zA-Z]*$", "", row["runs"]), row["ended"]


def again(name: str, claim: Row) -> Row:
    """Return the verdict, counts, words and evidence of a claim as they follow from its stored readings."""
    readings = [reading_of(row) for row in rows_of(f"{name}-readings") if row["claim"] == claim["claim"]]
    (of_paper,) = (one for one in find_paper(name).claims if one.text == claim["claim"])
    verdict = verdict_of(readings, of_paper.short)
    why = (of_paper.short or seeds_needed(readings)) if verdict is Verdict.UNDECIDABLE else ""
    form = "quick form" * claim["words"].endswith(", quick form")
    one = Judged(of_paper.text, verdict, readings, why, form=form, instead=of_paper.instead)
    counts = {key: str(getattr(one.counts, key)) for key in ("yes", "no", "undecided")}
    return {"verdict": str(verdict), **counts, "words": one.words, "evidence": one.evidence}


def reading_of(row: Row) -> Reading:
    """Return a stored reading; its choices follow from its label."""
    marks = rf" \((?:{NEAREST}|chosen after the result was seen|; )+\)$"
    words = re.sub(marks, "", row["reading"])
    pairs = re.findall(rf"(?:^|, )({KEY})(?:: | = )(.*?)(?=, {KEY}(?:: | = )|$)", words)
    held = {word: held for held, word in HELD.items()}[row["held"]]
    return Reading(dict(pairs), [Part(held, row["evidence"])], row["afterwards"] == "true", own=row["own"] == "true")


def claims_of(name: str) -> list[Row]:
    """Return the claims of a paper as they were judged."""
    return rows_of(f"{name}-claims")


def rows_of(table: str) -> list[Row]:
    """Return the rows of a table in results/reference/, none without the file."""
    path = TABLES / f"{table}.csv"
    return _read(path) if path.exists() else []


def _write(table: str, rows: Sequence[Row]) -> None:
    with (TABLES / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        fields = next(csv.reader(file))
    with (TABLES / f"{table}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _read(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def headlines() -> Iterator[tuple[str, Row]]:
    """Yield the headline claims of the papers, with the paper's name; its main one comes first."""
    for name in FRONT:
        yield from ((name, claim) for claim in claims_of(name) if claim["headline"] == "true")


def headlines_of(name: str) -> list[Row]:
    """Return the headline claims of a paper, its main one first."""
    return [claim for paper, claim in headlines() if paper == name]


def glance() -> Iterator[str]:
    """Yield a table of the papers' headlines, with a word and the counts."""
    yield from (
        "| paper | headline | verdict | readings: yes | no | undecided |",
        "| --- | --- | --- | --- | --- | --- |",
    )
    for name, claim in headlines():
        link = f"[{FRONT[name].short}](../docs/{find_paper(name).page})"
        counts = " | ".join(claim[key] for key in ("yes", "no", "undecided"))
        yield f"| {link} | {claim['claim']} | **{claim['verdict']}** | {counts} |"


def made_by() -> Iterator[str]:
    """Yield a table of what made each study's tables; a dash where it was not recorded."""
    yield from ("| study | " + " | ".join(ABOUT_FIELDS) + " |", "| --- |" + " --- |" * len(ABOUT_FIELDS))
    for name in PAPERS:
        about = next(iter(rows_of(f"{name}-about")), {"command": f"simfl reproduce {argument_of(name)}"})
        about = {**about, "command": f"`{about['command']}`"}
        yield f"| {name} | " + " | ".join(about.get(field) or "-" for field in ABOUT_FIELDS) + " |"


def card() -> Iterator[str]:
    """Yield README.md's table of the five papers."""
    yield from ("| paper | algorithm | scenario | command | verdicts on its headlines | figure |", "|" + " --- |" * 6)
    for name, front in FRONT.items():
        paper, claims = find_paper(name), headlines_of(name)
        link = f"[{front.short}](docs/{paper.page}): {paper.title}"
        scenario = f"[{Path(front.scenario).stem}](scenarios/{front.scenario})"
        figure = f"[figure](docs/{figure_of(name, claims[0])})"
        command = f"`simfl reproduce {argument_of(name)}`"
        verdicts = verdicts_of(claims, f"docs/reproduction.md{anchor_of(name)}")
        yield f"| {link} | `{front.kind}` | {scenario} | {command} | {verdicts} | {figure} |"


def verdicts_of(claims: Sequence[Row], link: str) -> str:
    """Return words for headlines, each with its figures of the paper and a link."""
    return ", ".join(
        f"[**{claim['verdict']}**]({link}) ({re.findall(r'Figures? [^)]*', claim['claim'])[0]})" for claim in claims
    )


def anchor_of(name: str) -> str:
    """Return the anchor of a paper on the front page, "" for the first one, which comes after the list."""
    return "" if name == next(iter(FRONT)) else f"#{FRONT[name].short.lower().replace(' ', '-')}"


#: The words around the two numbers of a reading of a bound; the page says once what they are.
BOUND_OF = r"at most (\S+) of the bound; at the end, the bound is (\S+) \(.*?\) times it(?:; vacuous)?"
RATE_OF = r"slope (.*), of the bound (\S+)(?: ± \S+)?"


def bounds() -> Iterator[str]:
    """Yield docs/theorems.md's table of theorems: a word, and what was measured."""
    yield from ("| theorem | under | word | two numbers |", "| --- | --- | --- | --- |")
    last = ""
    for row in rows_of("theorems-readings"):
        title, _, about = row["claim"].partition(": ")
        if about in ("the bound holds.", "what is bounded falls as fast as stated.") or "private" in about:
            title = f"{title}, rate" if about.startswith("what") else title
            reading = re.sub(r"problem: |bound: |theorem: | \(nearest to the paper\)", "", row["reading"])
            reading = reading.replace("with d (d + 1) (ΔS/ε)²", "corrected")
            measured = re.sub(RATE_OF, r"\1; \2", re.sub(BOUND_OF, r"\1; \2", row["evidence"]))
            paper, _, part = title.partition(", ")
            yield f"| {part if paper == last else title} | {reading} | **{word_of(row)}** | {measured} |"
            last = paper


def word_of(row: Row) -> str:
    """Return the word for a reading of a theorem."""
    if row["evidence"].startswith("not applicable"):
        return "not applicable"
    if row["held"] == "yes" and row["evidence"].endswith("vacuous"):
        return "vacuous"
    return {"yes": "holds", "no": "does not hold", "undecided": "not decided"}[row["held"]]


def figure_of(name: str, claim: Row) -> str:
    """Return the path of a claim's figure from docs/."""
    return (FIGURES / name / f"{claim['figure']}.png").as_posix()


def between(text: str, lines: Sequence[str]) -> str:
    """Return a page with what lies between the marks written anew."""
    before, _, rest = text.partition(BEGIN)
    return before + "\n".join([BEGIN, "", *lines, "", END]) + rest.partition(END)[2]


def readme(text: str, old: str) -> str:
    """Return results/README.md with its tables written anew; `old` is what `older` says."""
    return between(text, [*former(), *said(old), *glance(), "", *made_by()])


def former() -> Iterator[str]:
    """Yield a warning that names the studies whose tables an earlier form of them made."""
    names = [name for name in PAPERS if not rows_of(f"{name}-about")]
    if names:
        yield (
            f"**Made by an earlier form of the study: {', '.join(names)}.** The studies have changed since, in claims, "
            "readings and runs. Stored verdicts and numbers are of the earlier form until they are run again."
        )
        yield ""


def older() -> str:
    """Return a line that names the studies whose tables are older than the code that they run through."""
    names, changed = [], []
    for name in PAPERS:
        for about in rows_of(f"{name}-about"):
            made = about["commit"]
            if set(about.get("code", "").split("; ")) != {code_of(name)}:
                names.append(f"{name} ({made or 'no commit'})")
            changed += [name] * ("changed" in made)
    if not names:
        return ""
    line = f"{OLDER} {', '.join(names)}. In brackets is the commit; the numbers are those of its code."
    return line + f" Files differed from the commit for {', '.join(changed)}." * bool(changed)


def said(line: str) -> Iterator[str]:
    """Yield a line and an empty one, nothing for an empty line."""
    if line:
        yield from (line, "")


def written_line(text: str) -> str:
    """Return what a written page says of older tables: it stays as it is until the page is written again."""
    return next((line for line in text.splitlines() if line.startswith(OLDER)), "")


def pages() -> dict[str, str]:
    """Return the pages of docs/ by name."""
    lines = [INTRODUCTION]
    for name, front in FRONT.items():
        link = anchor_of(name) or f"{page_of(name)}.md"
        lines.append(f"- {capital(front.short)}: {verdicts_of(headlines_of(name), link)}.")
    lines.append("")
    for name, front in FRONT.items():
        links = f"[What decides]({find_paper(name).page}), [all claims]({page_of(name)}.md)."
        lines += [f"## {capital(front.short)}", "", f"{front.about} {links}", ""]
        for claim, numbers in zip(headlines_of(name), front.numbers, strict=True):
            lines += [*entry(name, claim), *beside(name, claim, numbers), ""]
    others = ["# Other studies", "", NOTE, "", "After this page you know what holds of studies beside those of the "
              "[five papers](reproduction.md)."]  # fmt: skip
    for name in OTHERS:
        others += ["", *("#" * line.startswith("#") + line for line in judged(name))]
    papers = {page_of(name): "\n".join([*judged(name), ""]) for name in FRONT}
    lines.append(RULES.replace("HOURS", f"{hours_of_all():.1f}"))
    return {"reproduction": "\n".join(lines), **papers, page_of(): "\n".join([*others, ""])}


def hours_of_all() -> float:
    """Return the stored hours of all full forms, with two runs at a time."""
    abouts = [about for name in PAPERS for about in rows_of(f"{name}-about") if "--quick" not in about["command"]]
    return sum(int(about["minutes"]) for about in abouts) / 2 / 60


def capital(text: str) -> str:
    """Return a text that begins with a capital letter."""
    return text[:1].upper() + text[1:]


def entry(name: str, claim: Row) -> Iterator[str]:
    """Yield a headline, its verdict, what was measured in a sentence, and its figure."""
    yield from (f"**{claim['claim']}**", "")
    count = sum(int(claim[key]) for key in ("yes", "no", "undecided"))
    held = f"{claim['yes']} of {count} readings hold" * (count > 1)
    notes = "; ".join(note for note in (held, parted(claim["words"])[1]) if note)
    word = claim["verdict"].capitalize()
    yield from (f"**{word}**{f' ({notes})' * bool(notes)}. {brief(name, claim, SENTENCE, SENTENCE)}", "")
    yield from (f"![{claim['figure']}]({figure_of(name, claim)})", "")


def page_of(name: str = "") -> str:
    """Return the name of the page that has all claims of a study."""
    return f"reproduction-{name if name in FRONT else 'others'}"


def beside(name: str, claim: Row, numbers: Sequence[Beside]) -> Iterator[str]:
    """Yield a table of what the paper says of a headline and what its readings nearest to the paper measure."""
    readings = [row for row in rows_of(f"{name}-readings") if row["claim"] == claim["claim"] and row["own"] == "true"]
    yield from ("| nearest to the paper | paper | here |", "| --- | --- | --- |")
    for number in numbers:
        found = [re.search(number.measured, row["evidence"]) for row in readings]
        values = [match[1] + "".join(f" ({group})" for group in match.groups()[1:]) for match in found if match]
        yield f"| {number.label} | {number.paper} | {' or '.join(dict.fromkeys(values))} |"


def judged(name: str) -> Iterator[str]:
    """Yield the lines of a page about a study: all claims, figures, deviations and where the tables are.

    A paper's page says of every claim what was measured, that of the other studies of their headlines alone.
    """
    paper, claims, about = find_paper(name), claims_of(name), next(iter(rows_of(f"{name}-about")), {})
    runs = re.sub(r"(.+) of \1$", r"\1", about["runs"]) if about else ""
    runs = f": {runs} runs, {about['minutes']} minutes" if about else ""
    links = f"[What decides]({paper.page}), " * bool(paper.page) + "[rules](reproduction.md#how-a-claim-is-judged)"
    yield from (f"# {paper.title}", "", *([NOTE, ""] if name in FRONT else []))
    yield from (f"By `simfl reproduce {argument_of(name)}`{runs}. {links}.", "")
    figures, measured = dict(paper.figures), ["what was measured, nearest to the paper"]
    if name in FRONT:
        yield from (FRONT[name].about, "")
    if name not in FRONT:
        for claim in (claim for claim in claims if claim["headline"] == "true"):
            yield from entry(name, claim)
            figures.pop(claim["figure"], None)
        claims, measured = [claim for claim in claims if claim["headline"] != "true"], []
        claims = [claim for claim in claims if not claim["words"].startswith("not run in")]
    if name in ELSEWHERE:
        return
    yield from (f"| {' | '.join(['claim', 'verdict', *measured])} |", "| --- | --- |" + " --- |" * len(measured))
    notes: dict[str, str] = {}
    for claim in claims:
        words, note = parted(claim["words"])
        mark = f" {notes.setdefault(note, '¹²³⁴⁵⁶⁷⁸⁹'[len(notes)])}" if note else ""
        cells = [_cell(brief(name, claim, CELL, LONGEST, "")) for _ in measured]
        yield f"| {' | '.join([claim['claim'], f'**{words}**{mark}', *cells])} |"
    if notes:
        yield from ("", "; ".join(f"{mark} {note}" for note, mark in notes.items()) + ".")
    for figure, (caption, _) in figures.items():
        if (DOCS / FIGURES / name / f"{figure}.png").exists():
            yield from ("", f"![{caption}]({(FIGURES / name / figure).as_posix()}.png)")
    if paper.deviations:
        yield from ("", "## What differs from the paper", "", *(f"- {_cell(line)}" for line in paper.deviations))
    tables = [f"[{word}](../results/reference/{name}{table}.csv)" for word, table in TABLE_NAMES.items()]
    yield from ("", "## Tables", "", f"{', '.join(tables)}.")


def parted(words: str) -> tuple[str, str]:
    """Return a verdict in words without counts of zero at its end, and what stands in for the paper's model or data."""
    note = re.search(r" \((.*)\)", words)
    return re.sub(r" \(.*\)|, 0 undecided", "", words), note[1] if note else ""


def brief(name: str, claim: Row, most: int, longest: int, nearest: str = f" {NEAREST}") -> str:
    """Return a claim's measurements, one reading of each result, in at most `most` characters.

    It takes up to `longest` where the first measurement needs it. `nearest` marks a reading nearest to the paper.
    """
    if len(claim["evidence"]) < most:
        return _sentence(claim["evidence"])
    readings = [row for row in rows_of(f"{name}-readings") if row["claim"] == claim["claim"]]
    if not readings:
        return _sentence(textwrap.shorten(claim["evidence"], longest, placeholder=" …"))
    some = [max((row for row in readings if row["held"] == held), key=lambda row: row["own"] == "true")
            for held in dict.fromkeys(row["held"] for row in readings)]  # fmt: skip
    some.sort(key=lambda row: (row["own"] != "true", claim["verdict"] not in RESULTS_OF[row["held"]][2]))
    first, *others = some
    label = nearest if first["own"] == "true" else f" under {first['reading']}" * (len(readings) > 1)
    start, rest = RESULTS_OF[first["held"]][0], [RESULTS_OF[row["held"]][0] for row in others]
    room = most - len(start) - len(_elsewhere(rest)) - 1
    text = start + (measured(first, room, label) or measured(first, room + longest - most, label, 1))
    for row in others:
        start = f"{text}; {rest[0]} elsewhere"
        if not (parts := measured(row, most - len(start) - len(_elsewhere(rest[1:])) - 1, "")):
            break
        text, rest = start + parts, rest[1:]
    text += _elsewhere(rest)
    for needed in re.findall("It would take: .*", claim["evidence"]):
        text += f"; i{needed[1:]}" * (len(text) + len(needed) + 3 <= most)
    return _sentence(text)


def measured(row: Row, room: int, start: str, most: int = 9) -> str:
    """Return what was measured under a reading, by the parts that give its result; "" without the room for one."""
    mark = RESULTS_OF[row["held"]][1]
    parts = re.split(r"; (?![^()]*\))", row["evidence"])
    parts = [part.removesuffix(mark) for part in parts if mark and part.endswith(mark)] or parts
    for count in range(min(most, len(parts)), 0, -1):
        text = f"{start}: {'; '.join(parts[:count])}" + " …" * (count < len(parts))
        if len(text) <= room:
            return text
    return ""


def _elsewhere(results: Sequence[str]) -> str:
    return f"; {' or '.join(results)} elsewhere" if results else ""


def _sentence(text: str) -> str:
    for pattern, words in BEHIND.items():
        text = re.sub(pattern, words, text)
    return capital(text).rstrip(".") + "." * (text[-1:] != "…")


def _cell(text: str) -> str:
    return re.sub(r"`((?:scenarios|notebooks)/[\w./-]+)`", r"[`\1`](../\1)", text.replace("|", "\\|"))


if __name__ == "__main__":
    if sys.argv[1:] == ["--older"]:
        print(older() or "No table is older than the code that it runs through.")
        sys.exit()
    if len(sys.argv) > 2:
        take_over_part(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
    elif len(sys.argv) > 1:
        take_over(Path(sys.argv[1]))
    for name, text in pages().items():
        (DOCS / f"{name}.md").write_text(text, encoding="utf-8")
    README.write_text(between(README.read_text(encoding="utf-8"), [*card()]), encoding="utf-8")
    BOUNDS.write_text(between(BOUNDS.read_text(encoding="utf-8"), [*bounds()]), encoding="utf-8")
    RESULTS.write_text(readme(RESULTS.read_text(encoding="utf-8"), older()), encoding="utf-8")
