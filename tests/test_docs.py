"""The pages in docs/ say what is so."""

import re
import runpy
from pathlib import Path

import pytest

from simfl.algorithms import ALGORITHMS
from simfl.scenario import Scenario
from simfl.scenario.fields import DISCRIMINATORS
from simfl.studies.reproducing import PAPERS

ROOT = Path(__file__).parents[1]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")])


def test_the_reference_of_fields_is_up_to_date():
    written = runpy.run_path(str(ROOT / "docs" / "make_reference.py"))
    assert written["TARGET"].read_text(encoding="utf-8") == written["reference"](), "run docs/make_reference.py"


def test_the_reference_mentions_every_field_that_has_a_schema():
    page = (ROOT / "docs" / "scenario.md").read_text(encoding="utf-8")
    schema = Scenario.model_json_schema()
    fields = {key for part in [schema, *schema["$defs"].values()] for key in part["properties"]}
    assert len(fields) > 80
    told = set(re.findall(r"\*\*(\w+)\*\*", page)) | set(re.findall(r"^#+ .*?(\w+)$", page, re.MULTILINE))
    assert fields - told <= set(DISCRIMINATORS)


def test_the_verdicts_are_those_of_the_tables():
    written = runpy.run_path(str(ROOT / "docs" / "make_reproduction.py"))
    assert written["TARGET"].read_text(encoding="utf-8") == written["page"](), "run docs/make_reproduction.py"
    for name in PAPERS:
        claims = written["claims_of"](name)
        assert claims, f"no verdicts on {name} in results/reference/"
        page = (ROOT / "docs" / f"reproduction-{name}.md").read_text(encoding="utf-8")
        for claim in claims:
            assert f"| {claim['claim']} | **{claim['words']}** |" in page
            figure = ROOT / "docs" / "figures" / "reproduction" / name / f"{claim['figure']}.png"
            assert not claim["figure"] or figure.exists()


def test_every_algorithm_is_in_the_catalogue():
    page = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    catalogue = page.partition("## What an update")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", catalogue, re.MULTILINE)) == set(ALGORITHMS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)]+)\)", text):
        file, _, anchor = target.partition("#")
        if "://" in target:
            continue
        linked = page.parent / file if file else page
        assert linked.exists(), target
        headings = re.findall(r"^#+ (.+)$", linked.read_text(encoding="utf-8"), re.MULTILINE) if anchor else []
        anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert not anchor or anchor in anchors, target
