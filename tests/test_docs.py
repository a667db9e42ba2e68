"""The pages in docs/ are correct."""

import ast
import importlib
import inspect
import json
import re
import runpy
import shlex
import subprocess
import sys
import typing
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import yaml

import simfl
from simfl.algorithms import ALGORITHMS
from simfl.cli.app import command as command_line
from simfl.comparison.sweeps import Sweep
from simfl.plots import describe_noise, name_of
from simfl.records.display import show_count, show_number, show_time
from simfl.reproduction.about import ABOUT_FIELDS
from simfl.reproduction.pages import CLAIM_FIELDS, LOST_FIELDS, NUMBER_FIELDS, READING_FIELDS
from simfl.reproduction.reproducing import PAPERS, find_paper
from simfl.scenario import Scenario, meetings
from simfl.scenario.fields import DISCRIMINATORS
from simfl.studies.plan import load_study

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted(path for path in (ROOT / "docs").glob("*.py") if "argparse" in path.read_text(encoding="utf-8"))
COMBINATIONS = runpy.run_path(str(ROOT / "docs" / "make_combinations.py"))
NUMBERS = runpy.run_path(str(ROOT / "docs" / "make_numbers.py"))
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")])


def test_the_reference_of_fields_is_up_to_date():
    written = runpy.run_path(str(ROOT / "docs" / "make_reference.py"))["pages"]()
    assert len(written) > 4
    for name, text in written.items():
        assert (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") == text, "run docs/make_reference.py"
        assert len(text.splitlines()) <= 300, f"{name}.md: divide it by subject"


def test_the_reference_mentions_every_field_that_has_a_schema():
    page = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("scenario*.md"))
    schema = Scenario.model_json_schema()
    fields = {key for part in [schema, *schema["$defs"].values()] for key in part["properties"]}
    assert len(fields) > 80
    described = set(re.findall(r"\*\*(\w+)\*\*", page)) | set(re.findall(r"^#+ .*?(\w+)$", page, re.MULTILINE))
    assert fields - described <= set(DISCRIMINATORS)


REPRODUCTION = runpy.run_path(str(ROOT / "docs" / "make_reproduction.py"))


def test_verdicts_on_pages_are_those_of_the_tables():
    pages = REPRODUCTION["pages"]()
    assert {f"{name}.md" for name in pages} == {path.name for path in (ROOT / "docs").glob("reproduction*.md")}
    for name, text in pages.items():
        assert text == (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8"), "run docs/make_reproduction.py"
    for name in PAPERS:
        page, claims = pages[REPRODUCTION["page_of"](name)], REPRODUCTION["claims_of"](name)
        assert claims, f"no verdicts on {name} in results/reference/"
        for claim in claims:
            if name in REPRODUCTION["ELSEWHERE"] or claim["words"].startswith("not run in"):
                continue
            row = f"| {claim['claim']} | **{REPRODUCTION['parted'](claim['words'])[0]}**"
            assert row in page or f"**{claim['claim']}**\n\n**{claim['verdict'].capitalize()}**" in page
            figure = ROOT / "docs" / "figures" / "reproduction" / name / f"{claim['figure']}.png"
            assert not claim["figure"] or figure.exists()


def test_verdicts_and_words_follow_from_the_stored_readings():
    """What it would take to decide was computed from the seeds, which readings do not store."""
    judged = 0
    for name in PAPERS:
        for claim in REPRODUCTION["claims_of"](name):
            if int(claim["yes"]) + int(claim["no"]) + int(claim["undecided"]):
                rewritten = claim | REPRODUCTION["again"](name, claim)
                both = [{**one, "evidence": one["evidence"].partition(" It would take: ")[0].rstrip(".")}
                        for one in (claim, rewritten)]  # fmt: skip
                assert both[0] == both[1]
                judged += 1
    assert judged > 100


def test_minutes_of_studies_are_those_of_the_stored_runs_on_two_cores():
    for name in PAPERS:
        (about,) = REPRODUCTION["rows_of"](f"{name}-about")
        stated = find_paper(name).minutes["--quick" not in about["command"]]
        assert stated == pytest.approx(int(about["minutes"]) / 2, rel=0.25, abs=1), name


def test_pages_of_verdicts_are_short():
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("reproduction*.md")}
    assert sum(len(text.split()) for text in pages.values()) <= 10_000
    cells = re.findall(r"(?<=\| ).*?(?= \|)", "\n".join(pages.values()))
    assert max(map(len, cells)) <= 300, "the rest is in the tables"
    front = re.split("^## ", pages["reproduction"], flags=re.MULTILINE)[1:-1]
    for (name, paper), text in zip(REPRODUCTION["FRONT"].items(), front, strict=True):
        assert text.lower().startswith(f"{paper.short}\n".lower())
        found = re.findall(r"^\*\*([\w ]+)\*\*(?: \(.*?\))?\. (.*\d.*)$", text, re.MULTILINE)
        assert [word.lower() for word, _ in found] == [one["verdict"] for one in REPRODUCTION["headlines_of"](name)]
        assert all(len(sentence) <= 200 for _, sentence in found)
        claims = " ".join(one["claim"] for one in REPRODUCTION["headlines_of"](name))
        assert all(word in paper.about for word in re.findall(r"\b[A-Z]{2,}\b", claims)), "names are explained"
        assert paper.about in text
        assert paper.about in pages[f"reproduction-{name}"]
        assert text.count(" readings hold") == len(found)
        assert text.count("](figures/") == text.count("| paper | here |") == len(found)
        rows = re.findall(r"^\| (?!nearest|---)[^|]* \| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
        assert len(rows) == sum(map(len, paper.numbers))
        assert all(re.match(r"[-+]?\d", here) for _, here in rows), "each headline has its own number"
        assert f"\n- {text.splitlines()[0]}: [**{found[0][0].lower()}**](" in pages["reproduction"], (
            "a list comes first"
        )
    assert not re.findall(
        r"ahead by -|leads by -|differ by -|-\d\S*(?: ± \S+)? points ahead(?! at \S+ = \S+, \+)",
        "".join(pages.values()),
    )


def test_the_readme_has_a_row_for_each_of_the_five_papers():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text == REPRODUCTION["between"](text, [*REPRODUCTION["card"]()]), "run docs/make_reproduction.py"
    for name, paper in REPRODUCTION["FRONT"].items():
        (row,) = re.findall(rf"^\| .*/{paper.scenario}\).*$", text, re.MULTILINE)
        for claim in REPRODUCTION["headlines_of"](name):
            (figures,) = re.findall(r"\((Figures? .*?)\)", claim["claim"])
            assert f"[**{claim['verdict']}**](docs/reproduction.md{REPRODUCTION['anchor_of'](name)}) ({figures})" in row
        assert yaml.safe_load((ROOT / "scenarios" / paper.scenario).read_text())["algorithm"]["kind"] == paper.kind


def test_the_table_of_theorems_is_that_of_the_readings():
    text = REPRODUCTION["BOUNDS"].read_text(encoding="utf-8")
    assert text == REPRODUCTION["between"](text, [*REPRODUCTION["bounds"]()]), "run docs/make_reproduction.py"
    assert max(map(len, re.findall(r"(?<=\| ).*?(?= \|)", text))) <= 300


def test_the_readme_of_results_has_the_verdicts_and_explains_every_column():
    text = REPRODUCTION["RESULTS"].read_text(encoding="utf-8")
    assert text == REPRODUCTION["readme"](text, REPRODUCTION["written_line"](text)), "run docs/make_reproduction.py"
    papers = {name for name, _ in REPRODUCTION["headlines"]()}
    assert len(papers) == 5
    assert papers == set(REPRODUCTION["FRONT"]) < {*PAPERS}, "the five papers"
    columns = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in text.splitlines() if line[:1] == "|")))
    assert {*NUMBER_FIELDS, *CLAIM_FIELDS, *READING_FIELDS, *LOST_FIELDS, *ABOUT_FIELDS} <= columns


def test_what_made_the_tables_is_listed_where_it_was_recorded(tmp_path):
    written = runpy.run_path(str(ROOT / "docs" / "make_reproduction.py"))
    written["made_by"].__globals__["TABLES"] = tmp_path
    assert "| adp2sgd | `simfl reproduce adp2sgd` | - | - | - | - | - | - | - |" in list(written["made_by"]())
    values = "simfl reproduce adp2sgd,9.9.9,0123456789,c0de,A processor,2,3 of 3,7"
    (tmp_path / "adp2sgd-about.csv").write_text(",".join(ABOUT_FIELDS) + f"\n{values}\n", encoding="utf-8")
    line = "| adp2sgd | `simfl reproduce adp2sgd` | 9.9.9 | 0123456789 | c0de | A processor | 2 | 3 of 3 | 7 |"
    assert line in list(written["made_by"]())
    named = written["older"]()
    assert named.startswith(written["OLDER"] + " adp2sgd (0123456789). "), "its code is another one, and CI names it"
    assert written["written_line"](f"# A page\n\n{named}\n\ntext") == named
    (tmp_path / "adp2sgd-about.csv").write_text(
        ",".join(ABOUT_FIELDS) + f"\n{values.replace('c0de', written['code_of']('adp2sgd'))}\n", encoding="utf-8"
    )
    assert written["older"]() == ""


def test_taking_over_a_part_twice_changes_nothing_the_second_time_and_adds_what_was_absent(tmp_path):
    written = runpy.run_path(str(ROOT / "docs" / "make_reproduction.py"))
    tables, made = tmp_path / "reference", tmp_path / "reproduction"
    tables.mkdir()
    made.mkdir()
    claims = written["claims_of"]("byzantine_gossip")
    for ending in written["TABLE_NAMES"].values():
        text = (written["TABLES"] / f"byzantine_gossip{ending}.csv").read_text(encoding="utf-8")
        (tables / f"byzantine_gossip{ending}.csv").write_text(text, encoding="utf-8")
        if ending == "-lost":
            lines = text.splitlines()[:2]
            text = "\n".join([lines[0], lines[1].replace("4, 5", "4, 5, 6"), '"Other runs, seed 3",failed', ""])
        if ending == "-about":
            text = text.replace("6d5a2b5540, changed", "0123456789")
        (made / f"byzantine_gossip-part{ending}.csv").write_text(text, encoding="utf-8")
    written["take_over_part"].__globals__["TABLES"] = tables

    def stored():
        written["take_over_part"](tmp_path, "byzantine_gossip", [claims[0]["claim"]])
        return {path.name: path.read_text(encoding="utf-8") for path in tables.iterdir()}

    once, twice = stored(), stored()
    assert once == twice
    assert once["byzantine_gossip-lost.csv"].count("\n") == 1 + 6 + 1, "a row for each setting"
    assert "ALIE, geometric median, seeds 1, 2, 3, 4, 5, 6" in once["byzantine_gossip-lost.csv"]
    for ending, column in (("-claims", "claim"), ("-readings", "claim"), ("", "part")):
        rows = written["rows_of"](f"byzantine_gossip{ending}")
        kept = [row for row in rows if row[column] != (claims[0]["claim"] if ending else rows[0]["part"])]
        assert len(kept) < len(rows)
        written["_write"](f"byzantine_gossip{ending}", kept)
    again = stored()
    assert {name: sorted(text.splitlines()) for name, text in again.items()} == {
        name: sorted(text.splitlines()) for name, text in once.items()
    }, "a claim that the stored tables do not have is added, with its readings and numbers"


@pytest.mark.parametrize(
    "extra",
    ["{}", "{privacy: {noise_multiplier: 2.0}, availability: [{clients: [2], crash: [{at: 30 ms, back: 35 ms}]}]}"],
)
def test_the_synchronous_example_is_sgd_with_the_batches_of_all(extra, tmp_path, monkeypatch):
    page = (ROOT / "docs" / "own_algorithm.md").read_text(encoding="utf-8")
    code = next(one for one in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "class Rounds(" in one)
    (tmp_path / "rounds_of_the_page.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    common = {
        "clients": {"count": 4},
        "slowdowns": [{"clients": [1], "factor": 5}],
        "stop": {"updates": 80},
        **yaml.safe_load(extra),
    }

    def ran(kind):
        algorithm = {"kind": kind, "step_size": 0.3, "batch_size": 16}
        return simfl.run({**common, "algorithm": algorithm}, out=tmp_path / "results")

    mine = ran("rounds_of_the_page:Rounds")
    losses = mine.metrics["train_loss"]
    assert losses.iloc[-1] < 0.9 * losses.iloc[0]
    if extra == "{}":  # one step along the mean of all gradients, at the pace of the slowest
        np.testing.assert_allclose(losses.iloc[-1], ran("sync_sgd").metrics["train_loss"].iloc[-1], rtol=1e-5)
        assert mine.manifest.time_s == pytest.approx(20 * 5 * 16 * 100e-6)
    else:
        assert 0 < mine.clients["epsilon"].max() < 10


def test_the_example_of_optuna_returns_an_accuracy_of_validation(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "looking.md").read_text(encoding="utf-8")
    code = next(one for one in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "import optuna" in one)
    asked, scores = Mock(**{"suggest_float.return_value": 0.3}), []
    optuna = Mock()
    optuna.create_study.return_value.optimize = lambda objective, n_trials: scores.append(objective(asked))
    monkeypatch.setitem(sys.modules, "optuna", optuna)
    monkeypatch.chdir(tmp_path)
    Path("my.yaml").write_text("data: {set: digits}\nalgorithm: {kind: fedbuff}\nstop: {updates: 40}\n")
    exec(code, {"simfl": simfl})
    run = simfl.read("results/tuning/my/001")
    assert run.scenario["algorithm"]["step_size"]["value"] == 0.3
    assert scores == [run.metrics["validation_accuracy"].iloc[-1]]


def test_every_key_path_of_a_row_of_combinations_is_in_the_schema():
    """A row may name the option of one kind of algorithm, mechanism or policy: the paths are those of any of them."""

    def below(models):
        fields = {}
        for model in models:
            for name, field in model.model_fields.items():
                fields.setdefault(name, set()).update(models_in(field.annotation))
        return fields

    def models_in(annotation):
        if inspect.isclass(annotation) and hasattr(annotation, "model_fields"):
            return {annotation}
        return {model for part in typing.get_args(annotation) for model in models_in(part)}

    rows = [*meetings.ANY, *meetings.OF_SUMS, *meetings.OF_MESSAGES]
    assert len(rows) > 50
    for row in rows:
        models = {Scenario}
        for name in row.at.split("."):
            fields = below(models)
            assert name in fields, f"{row.at}: {name} is not an option of the schema"
            models = fields[name]


def test_every_algorithm_is_in_the_catalogue():
    page = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    catalogue = page.partition("## What an update")[0]
    assert set(re.findall(r"^\| \[`(\w+)`\]", catalogue, re.MULTILINE)) == set(ALGORITHMS)


@pytest.mark.slow(every=8)
@pytest.mark.parametrize("kind", ALGORITHMS)
def test_what_goes_with_an_algorithm_is_what_is_accepted(kind):
    page = COMBINATIONS["TARGET"].read_text(encoding="utf-8").splitlines()
    assert [line for _, line in COMBINATIONS["rows"]([kind])] == [
        line for line in page if line.startswith(f"| `{kind}` |")
    ], "run docs/make_combinations.py"


def test_the_tables_of_what_goes_together_have_every_algorithm():
    page = COMBINATIONS["TARGET"].read_text(encoding="utf-8")
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    assert set(rows) == set(ALGORITHMS)
    assert COMBINATIONS["page"](rows) == page, "run docs/make_combinations.py"


def test_every_algorithm_has_a_section_with_its_equation():
    pages = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("algorithms-*.md"))]
    parts = [part for page in pages for part in re.split(r"^## ", page, flags=re.MULTILINE)]
    sections = {kind: part for part in parts for kind in re.findall(r"^`(\w+)`\n", part)}
    assert set(sections) == set(ALGORITHMS), "add a section ## `kind` to the page of its family, docs/algorithms-*.md"
    assert [kind for kind, part in sections.items() if "←" not in part] == [], "the equation, with ← for a new value"


def command_of(words):
    """Return the command that words of a command line name, and the words after it."""
    command, rest = command_line(), list(words)
    while rest and hasattr(command, "list_commands") and rest[0] in command.list_commands(None):
        command = command.resolve_command(None, [rest.pop(0)])[1]
    return command, rest


def tables_after(text, scenario):
    """Yield the overrides of each command on a page that runs a scenario, and the table that follows it."""
    text = text.replace("\\\n", " ")
    shown = rf"```\nsimfl run {re.escape(scenario)}([^\n]*)\n```\n+```\n(.*?)```"
    for options, table in re.findall(shown, text, re.DOTALL):
        words = shlex.split(options)
        rows = (line.split("│") for line in table.splitlines())
        yield [word for word in words if word != "--set"], {name.strip(): value.strip() for name, value in rows}


@pytest.mark.slow
def test_the_numbers_of_the_tutorial_are_those_of_its_runs(tmp_path):
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    file = "scenarios/tutorial/hospitals.yaml"
    accuracies = []
    for overrides, table in tables_after(page, file):
        run = simfl.run(simfl.load(ROOT / file, overrides), out=tmp_path)
        row = run.summary().iloc[0]
        written = {
            "algorithm": name_of(run.algorithm, run.privacy is not None),
            "virtual time": show_time(row["time_s"]),
            "updates": show_count(row["updates"]),
            "epochs": show_number(row["epochs"]),
            "noise": describe_noise(run),
            "epsilon": f"{show_number(row['epsilon'])} at delta {row['delta']:g}",
        }
        told = float(table.pop("test accuracy").rstrip("%"))
        assert table == {name: written[name] for name in table}, overrides
        # Rounding is a matter of the machine, and a run with noise amplifies it.
        assert told == pytest.approx(100 * row["test_accuracy"], abs=2.5)
        accuracies.append(told)
    waiting, alone, private = accuracies
    assert alone > waiting
    words = ("five", "six", "seven", "eight", "nine")
    assert f"about {words[round(alone - private) - 5]} points of accuracy" in page
    releases = r"([\d,]+) to ([\d,]+) releases each.*client 3: (\d+) releases"
    least, most, slow = re.search(releases, page, re.DOTALL).groups()
    counts = run.releases.groupby("client")["count"].sum()
    others = counts.drop(3)
    assert (show_count(others.min()), show_count(others.max()), str(counts[3])) == (least, most, slow)
    for epsilon in re.findall(r"certified epsilon +([\d.]+)", page):
        assert np.isclose(run.clients["epsilon"], float(epsilon), rtol=1e-5).any()


def python_on(page):
    """Yield the Python of a page: its code blocks and calls inside lines; or the cells of a notebook."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = (cell["source"] for cell in json.loads(text)["cells"] if cell["cell_type"] == "code")
        of_yaml = re.compile(r"%%writefile .*\.yaml")
        cells = (source for source in cells if not (source and of_yaml.match(source[0])))
        yield from ("".join(line for line in source if not line.startswith("%")) for source in cells)
        return
    yield from re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    yield from re.findall(r"`([\w.]*simfl\.[\w.]+\([^`]*\)[^`]*)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


class Calls(ast.NodeVisitor):
    """Checks calls of simfl's functions, and of methods of what they return, against their signatures."""

    def __init__(self):
        self.names, self.checked = {"simfl": simfl}, []

    def visit_ImportFrom(self, node):
        if (node.module or "").partition(".")[0] == "simfl":
            for alias in node.names:
                home = importlib.import_module(node.module)
                if not hasattr(home, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")
                self.names[alias.asname or alias.name] = getattr(home, alias.name)

    def visit_Import(self, node):
        for alias in node.names:
            if alias.name.partition(".")[0] == "simfl":
                importlib.import_module(alias.name)

    def visit_Assign(self, node):
        self.generic_visit(node)
        value = self.value(node.value)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.names[target.id] = value

    def value(self, node):
        """Return the object of simfl's that an expression names, or the class of what it calls; None if unknown."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            home = self.value(node.value)
            if home is None or inspect.isfunction(home):
                return None
            if inspect.isclass(home):
                fields = {name for one in home.__mro__ for name in getattr(one, "__annotations__", ())}
                member = None if node.attr in fields else getattr(home, node.attr)
                return member if inspect.isfunction(member) or inspect.ismethod(member) else None
            return getattr(home, node.attr)  # an AttributeError names what is missing
        if isinstance(node, ast.Call):
            called = self.value(node.func)
            if inspect.isclass(called):
                return called
            returned = getattr(called, "__annotations__", {}).get("return") if inspect.isfunction(called) else None
            return {"Run": simfl.Run, "Scenario": simfl.Scenario, "Sweep": Sweep}.get(returned)
        return None

    def visit_Call(self, node):
        self.generic_visit(node)
        called = self.value(node.func)
        if not callable(called) or inspect.isbuiltin(called):
            return
        keywords = [keyword.arg for keyword in node.keywords if keyword.arg is not None]
        arguments = [part for part in node.args if not (isinstance(part, ast.Constant) and part.value is ...)]
        if not any(isinstance(part, ast.Starred) for part in arguments):
            method = inspect.isfunction(called) and isinstance(node.func, ast.Attribute)
            itself = [None] if method and inspect.isclass(self.value(node.func.value)) else []
            inspect.signature(called).bind_partial(*itself, *arguments, **dict.fromkeys(keywords))
            self.checked.append(ast.unparse(node))


NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize(
    "page", [page for page in (*PAGES, *NOTEBOOKS) if page.name != "CHANGELOG.md"], ids=lambda page: page.name
)
def test_calls_of_simfl_fit_their_signatures(page):
    calls = Calls()
    for code in python_on(page):
        calls.visit(ast.parse(code))
    if page.name in ("README.md", "own_data.md", "resuming.md", "quickstart.ipynb"):
        assert calls.checked


def test_a_run_and_a_sweep_take_progress_as_the_page_says():
    page = (ROOT / "docs" / "looking.md").read_text(encoding="utf-8")
    assert "progress of a run or a sweep (`progress=False` hides it)" in page
    for function in (simfl.run, simfl.sweep, simfl.resume):
        assert inspect.signature(function).parameters["progress"].default is None


@pytest.mark.parametrize("sentence", NUMBERS["SENTENCES"], ids=lambda sentence: sentence.scenario)
def test_sentences_with_measured_numbers_name_their_seeds(sentence):
    assert len(sentence.written()) == len(sentence.numbers) == len(NUMBERS["NUMBER"].findall(sentence.text))
    assert f"seeds {NUMBERS['SEEDS'][0]} to {NUMBERS['SEEDS'][-1]}" in sentence.text


@pytest.mark.slow
@pytest.mark.parametrize("sentence", NUMBERS["SENTENCES"][10::5], ids=lambda sentence: sentence.scenario)
def test_numbers_in_pages_are_means_over_the_seeds_that_they_name(sentence):
    for written, value, number in zip(sentence.written(), sentence.values(), sentence.numbers, strict=True):
        assert written == pytest.approx(value, rel=number.within), f"{sentence.text}: run docs/make_numbers.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_their_options_exist(page):
    text = re.sub(r"\\\\\n", " ", page.read_text(encoding="utf-8"))
    fenced = re.findall(r"^```(\S*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    blocks = "\n".join(block for language, block in fenced if language in ("", "sh", "bash"))
    for line in [*re.findall(r"^(?:\$ )?simfl (.*)$", blocks, re.MULTILINE), *re.findall(r"`simfl ([^`]*)`", text)]:
        command, rest = command_of(line.split(" #")[0].split())
        assert not (command.name == "simfl" and rest and re.fullmatch(r"[a-z]\w*", rest[0])), f"no such command: {line}"
        options = {name for parameter in command.params for name in parameter.opts} | {"--help", "-h"}
        told = {word.split("=")[0].rstrip(",.") for word in rest if re.match(r"--?[a-z]", word)}
        assert told <= options, f"simfl {line}"


@pytest.mark.slow(every=9)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_scripts_start_from_any_folder(script, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    done = subprocess.run([sys.executable, script, "--help"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage:")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_have_targets(page):
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


def test_studies_on_pages_are_valid():
    blocks = [code for page in PAGES for code in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.M | re.S)]
    studies = [study for study in map(yaml.safe_load, blocks) if isinstance(study, dict) and "base" in study]
    assert len(studies) >= 2
    for study in studies:
        load_study({**study, "base": {"algorithm": {"kind": "adpsgd"}, "data": {"set": "digits", "validation": 0.1}}})
