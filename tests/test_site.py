"""The site is built without a warning, and its tutorial is correct."""

import json
import re
import runpy
from pathlib import Path

import pytest
import yaml

import simfl
from simfl.cli.app import command
from simfl.scenario import load, loads

ROOT = Path(__file__).parents[1]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
COMMANDS = "\n".join(
    block for page in (ROOT / "docs").glob("*.md") for block in page.read_text(encoding="utf-8").split("```")[1::2]
)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning", "ignore::DeprecationWarning")
def test_the_site_is_built_without_a_warning(tmp_path):
    """It computes for nine seconds in this process: another one would import JAX again."""
    build = pytest.importorskip("sphinx.cmd.build").build_main
    site = tmp_path / "site"
    options = ["-W", "--keep-going", "-q", "-b", "html", "-d", str(tmp_path / "tree")]
    assert build([*options, str(ROOT / "docs"), str(site)]) == 0
    pages = {path.stem for path in site.glob("*.html")}
    assert pages >= {path.stem for path in (ROOT / "docs").glob("*.md")}
    api = "".join(path.read_text(encoding="utf-8") for path in site.glob("api*.html"))
    for name in set(simfl.__all__) - {"__version__", "Run"}:
        assert api.count(f'id="simfl.{name}"') == 1, name
    # It works without a network: only links refer to other sites.
    for path in site.glob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r'<(?:script|img|iframe)[^>]*src="(?:https?:)?//|<link[^>]*href="(?:https?:)?//', text)


def test_every_page_is_in_the_menu_and_links_out_of_the_site_become_text():
    conf = runpy.run_path(str(ROOT / "docs" / "conf.py"))
    placed = [page for pages in conf["below"]().values() for page in pages]
    notebooks = [f"notebooks/{path.stem}" for path in (ROOT / "notebooks").glob("*.ipynb")]
    pages = [path.stem for path in (ROOT / "docs").glob("*.md") if path.stem != "index"]
    assert sorted(placed) == sorted([*pages, *notebooks]), "each once"
    assert conf["TITLES"].keys() <= set(placed)
    text = "[a](../scenarios/demo/sync.yaml) [b](../CONTRIBUTING.md#an-algorithm) [c](../no/such.file) ![d](../x.png)"
    text += " [e](../results/reference/mapa.csv)"
    assert conf["for_the_site"]("privacy", text) == (
        "a [b](contributing.md#an-algorithm) [c](../no/such.file) ![d](../x.png) [e](../results/reference/mapa.csv)"
    )
    lines = ["Add |x| to `a * b`, as in", "", "    x = a * b", "", "Args:", "    options: **all**."]
    assert conf["docstring"](lines) == [
        r"Add \|x\| to `a * b`, as in", "", "::", "", "    x = a * b", "", "Args:", r"    options: \*\*all\*\*."
    ]  # fmt: skip


def test_a_published_site_has_a_card_a_sitemap_and_versions(monkeypatch):
    conf = runpy.run_path(str(ROOT / "docs" / "conf.py"))
    assert 'og:image" content="../_images/play.png"' in conf["card_of"]("notebooks/quickstart", "<b>Start</b>")
    assert "og:url" not in conf["card_of"]("index", "simfl")
    assert "switcher" not in conf["html_theme_options"], "a menu of versions needs their address"
    monkeypatch.setenv("SITE_URL", "https://example.org/simfl/")
    conf = runpy.run_path(str(ROOT / "docs" / "conf.py"))
    version = conf["VERSION"]
    assert simfl.__version__.startswith(f"{version}.")
    assert f'og:image" content="https://example.org/simfl/{version}/_images/play.png"' in conf["card_of"](
        "index", "simfl"
    )
    files = conf["for_the_web"](["index", "privacy"])
    assert f"<loc>https://example.org/simfl/{version}/privacy.html</loc>" in files["sitemap.xml"]
    assert json.loads(files["versions.json"])[0]["url"] == f"https://example.org/simfl/{version}/"
    assert conf["html_theme_options"]["switcher"]["version_match"] == version


def test_the_tutorial_has_the_files_that_it_names():
    scenario, study = re.findall(r"```yaml\n(.*?)```", TUTORIAL, re.DOTALL)
    folder = ROOT / "scenarios" / "tutorial"
    assert loads(scenario).digest() == load(folder / "hospitals.yaml").digest()
    assert yaml.safe_load(study) == yaml.safe_load((folder / "studies" / "waiting.yaml").read_text(encoding="utf-8"))
    for path in re.findall(r"scenarios/[\w/-]+\.yaml", TUTORIAL):
        assert (ROOT / path).exists(), path


def test_changes_in_the_tutorial_are_valid():
    changes = re.findall(r'--set ("[^"]+"|\S+)', TUTORIAL)
    assert len(changes) >= 5
    for change in changes:
        path, _, value = change.strip('"').partition("=")
        load(ROOT / "scenarios" / "tutorial" / "hospitals.yaml", [f"{path}={value.strip(chr(34))}"])


def test_commands_in_the_pages_exist():
    groups = command().commands
    for name, second in re.findall(r"^simfl ([\w-]+)(?: ([\w-]+))?", COMMANDS, re.MULTILINE):
        assert name in groups, name
        if hasattr(groups[name], "list_commands"):
            assert second in groups[name].list_commands(None) or not second or second.startswith("--"), (
                f"{name} {second}"
            )


def test_the_example_of_an_own_algorithm_is_valid(simfl_):
    code, out, err = simfl_("validate", ROOT / "notebooks" / "own_algorithm" / "frugal.yaml")
    assert (code, err) == (0, "")
    assert "my_gossip:FrugalGossip" in out
