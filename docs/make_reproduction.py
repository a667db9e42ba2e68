"""Write docs/reproduction.md, the verdicts on papers' claims, from the tables in results/reference/.

    python docs/make_reproduction.py            # from the tables that are there
    python docs/make_reproduction.py results    # take over what `simfl reproduce` wrote into results/ first, the full
                                                # form of a study where it was run

A test compares what it writes with the file, so that no verdict is typed in.
"""

from __future__ import annotations

import csv
import re
import shutil
import sys
from collections import Counter
from pathlib import Path

from simfl.studies.evidence import Verdict
from simfl.studies.pages import VERDICTS
from simfl.studies.reproducing import PAPERS, find_paper

ROOT = Path(__file__).parents[1]
TARGET = Path(__file__).with_name("reproduction.md")
TABLES = ROOT / "results" / "reference"
FIGURES = Path("figures") / "reproduction"

INTRODUCTION = f"""\
# What was reproduced

<!-- Written by docs/make_reproduction.py from results/reference/; run it again. -->

After this page you know which claims simfl reproduces: those of five papers, and of a study of whole networks.

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
The page of a paper, with every number beside the paper's own, is written to `results/reproduction/`.
"""


def take_over(results: Path) -> None:
    """Copy tables, pages and figures of studies to where they are kept: those of the full form, or else the quick."""
    source = results / "reproduction"
    for name in PAPERS:
        forms = [form for form in (name, f"{name}-quick") if (source / f"{form}.md").exists()]
        if not forms:
            continue
        for table in ("", "-claims", "-readings"):
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
    path = TABLES / f"{name}-claims.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def page() -> str:
    """Return the whole page."""
    judged = {name: claims_of(name) for name in PAPERS}
    lines = [INTRODUCTION, "## The headlines", ""]
    for name, claims in judged.items():
        for claim in claims:
            if claim["headline"] == "true":
                verdict, evidence = _sentence(claim["words"]), _sentence(claim["evidence"])
                lines += [f"**{claim['claim']}** *{verdict}* {evidence}", ""]
                if claim["figure"]:
                    figure = FIGURES / name / f"{claim['figure']}.png"
                    lines += [f"![{claim['claim']}]({figure.as_posix()})", ""]
    lines += ["## All claims", "", "| paper | " + " | ".join(Verdict) + " |", "| --- |" + " --- |" * len(Verdict)]
    for name, claims in judged.items():
        counts = Counter(claim["verdict"] for claim in claims)
        shown = " | ".join(str(counts[verdict] or "") for verdict in Verdict)
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
    if len(sys.argv) > 1:
        take_over(Path(sys.argv[1]))
    TARGET.write_text(page(), encoding="utf-8")
