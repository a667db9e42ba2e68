"""Write the verdicts on papers' claims from the tables in results/reference/.

They are docs/reproduction.md, its figure of the headlines, and the tables on top of results/README.md.

    python docs/make_reproduction.py            # from the tables that are there
    python docs/make_reproduction.py results    # take over what `simfl reproduce` wrote into results/ first, the full
                                                # form of a study where it was run
    python docs/make_reproduction.py --older    # print which tables are older than the code that they run through

A test compares what it writes with the file, so that no verdict is typed in.
"""

from __future__ import annotations

import csv
import re
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from simfl.studies.about import ABOUT_FIELDS, code_of
from simfl.studies.evidence import Verdict
from simfl.studies.pages import VERDICTS
from simfl.studies.reading import argument_of
from simfl.studies.reproducing import PAPERS, find_paper

ROOT = Path(__file__).parents[1]
TARGET = Path(__file__).with_name("reproduction.md")
TABLES = ROOT / "results" / "reference"
FIGURES = Path("figures") / "reproduction"
README = ROOT / "results" / "README.md"
BEGIN, END = "<!-- Written by docs/make_reproduction.py: begin -->", "<!-- end -->"
#: The five papers; the other studies are not of one paper.
SHORT = {"adp2sgd": "A(DP)²SGD", "async_fl": "asynchronous FL", "mapa": "MAPA", "proactive_dp": "Proactive DP",
         "without_replacement": "without replacement"}  # fmt: skip

HEADLINES = Path("figures") / "reproduction" / "headlines.png"
OLDER = "**Tables older than the code that they run through:**"
CAPTION = "how many readings of each headline say yes, say no, and do not decide"

INTRODUCTION = f"""\
# What was reproduced

<!-- Written by docs/make_reproduction.py from results/reference/; run it again. -->

After this page you know which claims simfl reproduces: those of six papers, and of studies that compare many methods.

`simfl reproduce` runs the studies and judges the claims. A paper leaves settings open. A claim is therefore judged
under every defensible *reading* of them, by the intervals of at least five seeds. The verdict is one of five words, and
the numbers of readings that say yes, that say no, and that do not decide. Every verdict below was computed from the
tables of runs. The page of a paper has a table of the readings of every claim.

{VERDICTS}

```sh
simfl reproduce --list
simfl reproduce adp2sgd --quick   # minutes: fewer settings and seeds
simfl reproduce adp2sgd           # what this page shows; the same command continues after an interruption
```

The studies read MNIST and sets of LIBSVM from the folder that `SIMFL_DATA` names (`simfl data fetch` downloads them).
The page of a paper, with every number beside the paper's, is written to `results/reproduction/`.
"""


def take_over(results: Path) -> None:
    """Copy tables, pages and figures of studies to where they are kept: those of the full form, or else the quick."""
    source = results / "reproduction"
    for name in PAPERS:
        forms = [form for form in (name, f"{name}-quick") if (source / f"{form}.md").exists()]
        if not forms:
            continue
        for table in ("", "-claims", "-readings", "-about"):
            shutil.copy(source / f"{forms[0]}{table}.csv", TABLES / f"{name}{table}.csv")
        figures = TARGET.parent / FIGURES / name
        shutil.rmtree(figures, ignore_errors=True)
        figures.mkdir(parents=True)
        for figure in sorted((source / "figures" / forms[0]).glob("*.png")):
            shutil.copy(figure, figures / figure.name)
        page = (source / f"{forms[0]}.md").read_text(encoding="utf-8")
        page = page.replace(f"](figures/{forms[0]}/", f"]({FIGURES.as_posix()}/{name}/")
        page = re.sub(r"`((?:scenarios|notebooks)/[\w./-]+)`", r"[`\1`](../\1)", page)
        (TARGET.parent / f"reproduction-{name}.md").write_text(folded(page, name), encoding="utf-8")


def folded(page: str, name: str) -> str:
    """Return a study's page with its readings and numbers as folded tables that read the CSV files."""
    for heading, table in (("Readings", f"{name}-readings"), ("Numbers", name)):
        section = re.compile(rf"(## {heading}\n\n(?:[^#|\n].*\n\n)*)(?:###|\|)[\s\S]*?(?=\n## |\Z)")
        with (TABLES / f"{table}.csv").open(encoding="utf-8", newline="") as file:
            count = sum(1 for _ in csv.reader(file)) - 1
        path = f"../results/reference/{table}.csv"
        fold = f"""All {count:,} rows are in [{table}.csv]({path}).

<details><summary>Show all {count:,} rows</summary>

```{{csv-table}}
:file: {path}
:header-rows: 1
```

</details>
"""
        page = section.sub(lambda found, fold=fold: found[1] + fold, page)  # type: ignore[misc]
    return page


def claims_of(name: str) -> list[dict[str, str]]:
    """Return the claims of a paper as they were judged."""
    return rows_of(f"{name}-claims")


def rows_of(table: str) -> list[dict[str, str]]:
    """Return the rows of a table in results/reference/, none without the file."""
    path = TABLES / f"{table}.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def headlines() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the headline claims of the papers, with the paper's name."""
    for name in SHORT:
        yield from ((name, claim) for claim in claims_of(name) if claim["headline"] == "true")


def glance(folder: str) -> Iterator[str]:
    """Yield a table of the papers' headlines, with a word and the counts; `folder` leads to docs/."""
    yield from (
        "| paper | headline | verdict | readings: yes | no | undecided |",
        "| --- | --- | --- | --- | --- | --- |",
    )
    for name, claim in headlines():
        link = f"[{SHORT[name]}]({folder}{find_paper(name).page})"
        counts = " | ".join(claim[key] for key in ("yes", "no", "undecided"))
        yield f"| {link} | {claim['claim']} | **{claim['verdict']}** | {counts} |"


def made_by() -> Iterator[str]:
    """Yield a table of what made each study's tables; a dash where it was not recorded."""
    yield from ("| study | " + " | ".join(ABOUT_FIELDS) + " |", "| --- |" + " --- |" * len(ABOUT_FIELDS))
    for name in PAPERS:
        about = next(iter(rows_of(f"{name}-about")), {"command": f"simfl reproduce {argument_of(name)}"})
        about = {**about, "command": f"`{about['command']}`"}
        yield f"| {name} | " + " | ".join(about.get(field) or "-" for field in ABOUT_FIELDS) + " |"


def readme(text: str, old: str) -> str:
    """Return results/README.md with its tables written anew; `old` is what `older` says."""
    before, _, rest = text.partition(BEGIN)
    lines = [BEGIN, "", *former(), *said(old), *glance("../docs/"), "", *made_by(), "", END]
    return before + "\n".join(lines) + rest.partition(END)[2]


def draw_headlines(path: Path) -> None:
    """Draw how many readings of each headline say yes, say no, and do not decide."""
    from matplotlib import pyplot as plt

    from simfl.plots import save_and_close, style, without_a_screen
    from simfl.plots.style import PALETTE

    without_a_screen()
    claims = list(headlines())[::-1]
    with style():
        figure, axis = plt.subplots(figsize=(9.6, 1.2 + 0.6 * len(claims)), layout="constrained")
        start = [0] * len(claims)
        for key, color in (("yes", PALETTE[2]), ("no", PALETTE[1]), ("undecided", "#BBBBBB")):
            counts = [int(claim[key]) for _, claim in claims]
            axis.barh(range(len(claims)), counts, left=start, color=color, label=key)
            start = [one + count for one, count in zip(start, counts, strict=True)]
        for place, (_, claim) in enumerate(claims):
            axis.text(start[place] + 0.2, place, claim["verdict"], va="center", fontsize=9)
        names = [textwrap.fill(f"{SHORT[name]}: {claim['claim']}", 64) for name, claim in claims]
        axis.set_yticks(range(len(claims)), names, fontsize=7)
        axis.set_xlim(0, 1.2 * max(start, default=1))
        axis.set_xlabel("readings")
        axis.legend(loc="lower right")
        save_and_close(figure, path)


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


def page(old: str) -> str:
    """Return the whole page; `old` is what `older` says."""
    judged = {name: claims_of(name) for name in PAPERS}
    lines = [INTRODUCTION, "## At a glance", "", *former(), *said(old), *glance(""), "",
             f"![{CAPTION}]({HEADLINES.as_posix()})", "", "## The headlines", ""]  # fmt: skip
    for name, claims in judged.items():
        for claim in claims:
            if claim["headline"] == "true":
                verdict, evidence = _sentence(claim["words"]), _sentence(claim["evidence"])
                lines += [f"**{claim['claim']}** *{verdict}* {evidence}", ""]
                if claim["figure"]:
                    figure = FIGURES / name / f"{claim['figure']}.png"
                    lines += [f"![{claim['claim']}]({figure.as_posix()})", ""]
    stored = {claim["verdict"] for claims in judged.values() for claim in claims}
    words = [verdict for verdict in Verdict if verdict is not Verdict.NOT_RUN or verdict in stored]
    lines += ["## All claims", "", "| paper | " + " | ".join(words) + " |", "| --- |" + " --- |" * len(words)]
    for name, claims in judged.items():
        counts = Counter(claim["verdict"] for claim in claims)
        shown = " | ".join(str(counts[verdict] or "") for verdict in words)
        lines.append(f"| [{PAPERS[name]}](#{name}) | {shown} |")
    for name, claims in judged.items():
        paper = find_paper(name)
        lines += ["", f"### {name}", "", f"{paper.title}. [One page](reproduction-{name}.md) lists every number, "
                  f"[another]({paper.page}) explains them, and what the paper leaves open.", "",
                  "| claim | verdict | what was measured |", "| --- | --- | --- |"]  # fmt: skip
        lines += [f"| {claim['claim']} | **{claim['words']}** | {_cell(claim['evidence'])} |" for claim in claims]
    return "\n".join(lines) + "\n"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _cell(text: str) -> str:
    return re.sub(r"`((?:scenarios|notebooks)/[\w./-]+)`", r"[`\1`](../\1)", text.replace("|", "\\|"))


if __name__ == "__main__":
    if sys.argv[1:] == ["--older"]:
        print(older() or "No table is older than the code that it runs through.")
        sys.exit()
    if len(sys.argv) > 1:
        take_over(Path(sys.argv[1]))
    TARGET.write_text(page(older()), encoding="utf-8")
    README.write_text(readme(README.read_text(encoding="utf-8"), older()), encoding="utf-8")
    draw_headlines(TARGET.parent / HEADLINES)
