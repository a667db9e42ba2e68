"""The house: which room may import which, where each library is at home, and what stays out until it is needed.

All imports count, those inside functions and those for type hints too, but for the front door `simfl/__init__.py`,
which hands out what users import from `simfl` itself.
"""

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import pytest

import simfl

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "simfl"
FRONT = {"__init__", "__main__"}

#: Rooms that read tables and import no room that writes them.
OF_TABLES = ("records", "comparison", "plots", "reports")
BELOW_TABLES = ("errors", "version", "shipped", "streams", "each", "looks", "plugins", "catalogue", "scenario")

#: Rooms that come in through `simfl.plugins`.
ATTACHED = (
    "papers",
    "bench",
    "live",
    "accounts",
    "attacks",
    "reports",
    "reproduction",
    "downloads",
    "studies",
    "plots",
    "comparison",
    "frameworks",
    "trained",
)

#: Attached rooms that use others.
USERS = {
    "accounts": {"comparison", "plots"},
    "attacks": {"accounts", "comparison", "plots"},
    "bench": {"studies"},
    "plots": {"comparison"},
    "reports": {"comparison", "plots"},
    "reproduction": {"comparison", "plots", "studies"},
    "studies": {"comparison"},
}

#: The study of other papers, which reads their calculators.
ABOUT_PAPERS = {"theorems"}

#: Library -> the rooms where it is at home. Attached rooms may use any library, as a user's package may.
HOMES = {
    "anywidget": ("reports",),
    "dp_accounting": ("privacy",),
    "distributed": ("studies",),
    "jax": ("models", "tape", "compression", "robust", "privacy", "attacks"),
    "jax_privacy": ("privacy",),
    "jinja2": ("reports",),
    "matplotlib": ("plots",),
    "mpi4py": ("live",),
    "networkx": ("world", "plots"),
    "optax": ("tape", "attacks"),
    "pandas": ("records", "data", "comparison"),
    "pyarrow": ("records",),
    "pydantic": ("scenario",),
    "rich": ("cli",),
    "simfl": (),
    "simpy": ("world", "algorithms"),
    "sklearn": ("data",),
    "tqdm": ("records",),
    "typer": ("cli",),
    "yaml": ("scenario",),
}

#: (module, or room, and what it imports from elsewhere) -> why it may.
GUESTS = {
    ("records.results", "simfl"): "a run's methods call what the front door hands out to users",
    ("runs.programs", "jax"): "keeps what JAX compiled for the next process",
    ("tape.measures", "sklearn"): "F1 scores and areas under curves",
}

MOST_GUESTS = 3

#: The most lines of each room; "" has the modules beside the rooms. Lower a number when its room shrinks. A commit that
#: raises one lowers another, or says why not.
WEIGHTS = {
    "": 1428,
    "accounts": 3908,
    "algorithms": 11087,
    "assembly": 4799,
    "attacks": 4767,
    "bench": 1748,
    "cli": 1172,
    "comparison": 1378,
    "compression": 790,
    "data": 3750,
    "downloads": 513,
    "frameworks": 896,
    "live": 2552,
    "models": 3227,
    "papers": 16149,
    "plots": 1319,
    "privacy": 5014,
    "records": 2157,
    "reports": 2221,
    "reproduction": 1443,
    "robust": 946,
    "runs": 1984,
    "selection": 461,
    "scenario": 8842,
    "studies": 2819,
    "tape": 6103,
    "trained": 245,
    "world": 5387,
}
MOST_LINES = {"core": 57147, "all": 97105, "tests": 68388}


@dataclass(frozen=True)
class Import:
    """One import of a module, and whether it is for type checkers only."""

    module: str
    line: int
    target: str
    for_types: bool

    @property
    def room(self) -> str:
        return self.module.partition(".")[0]

    def __str__(self) -> str:
        return f"simfl/{self.module.replace('.', '/')}.py:{self.line} imports {self.target}"


def rooms() -> list[str]:
    """The rooms of docs/design.md from bottom to top."""
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    table = text.partition("## The rooms")[2].partition("\n## ")[0]
    names = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return [word.rstrip("/") for name in names for word in re.findall(r"`([^`]+)`", name)]


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


def imports() -> Iterator[Import]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = name_of(path)
        if name in FRONT:
            continue
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        tests = [node for node in nodes if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
        for_types = {inner for node in tests for inner in ast.walk(node)}
        for node in nodes:
            targets = []
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}:{node.lineno}: imports are written out"
                targets = [f"{node.module}.{alias.name}" for alias in node.names]
                if node.module == "simfl.models.lazy":
                    targets.append("jax")
            for target in targets:
                yield Import(name, node.lineno, target, node in for_types)


@functools.cache
def all_imports() -> list[Import]:
    """All imports; not while tests are collected, since each worker would read the package's trees for seconds."""
    return list(imports())


def inside() -> list[Import]:
    return [entry for entry in all_imports() if entry.target.startswith("simfl.")]


def outside() -> list[Import]:
    return [entry for entry in all_imports() if not entry.target.startswith("simfl.")]


def room_of(target: str) -> str:
    return target.split(".")[1]


def is_guest(entry: Import, host: str) -> bool:
    return any((".".join(entry.module.split(".")[:depth]), host) in GUESTS for depth in (1, 2, 3))


def test_the_table_of_rooms_is_the_folder_listing():
    listing = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert sorted(rooms()) == sorted(listing - FRONT)


def test_no_room_has_the_name_of_a_public_name():
    assert not {name for name in rooms() if name in simfl.__all__ and name != "version"}


def test_imports_go_down_only():
    order = rooms()
    wrong = [str(entry) for entry in inside() if room_of(entry.target) not in order[: order.index(entry.room) + 1]]
    assert not wrong, "\n".join(wrong)


def test_the_core_never_imports_what_is_attached():
    wrong = [str(entry) for entry in inside() if room_of(entry.target) in ATTACHED and entry.room not in ATTACHED]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("room", [room for room in ATTACHED if room != "papers"])
def test_attached_rooms_do_not_import_each_other(room):
    others = {*ATTACHED} - {room} - USERS.get(room, set())
    wrong = [str(entry) for entry in inside() if entry.room == room and room_of(entry.target) in others]
    assert not wrong, "\n".join(wrong)


def test_papers_do_not_import_each_other():
    shared = {"drawing", "moments"}
    between = [entry for entry in inside() if entry.room == "papers" and room_of(entry.target) == "papers"]
    papers = [entry for entry in between if entry.module.split(".")[1] not in ABOUT_PAPERS]
    wrong = [str(entry) for entry in papers if entry.target.split(".")[2] not in {entry.module.split(".")[1], *shared}]
    assert not wrong, "\n".join(wrong)


def test_rooms_of_tables_do_not_import_rooms_that_write_them():
    wrong = [
        str(entry)
        for entry in inside()
        if entry.room in OF_TABLES
        and not entry.module.endswith(("_command", ".terminal"))
        and room_of(entry.target) not in {*OF_TABLES, *BELOW_TABLES}
        and not is_guest(entry, room_of(entry.target))
    ]
    assert not wrong, "\n".join(wrong)


def test_no_module_imports_itself_indirectly():
    """Imports inside functions and those for type hints count.

    The front door `simfl/__init__.py` is not in `imports()`: it hands out what is above the module that asks it. The
    lazy door `simfl/scenario/__init__.py` counts: it imports for types what it hands out by name.
    """
    graph = nx.DiGraph()
    modules = {name_of(path) for path in PACKAGE.rglob("*.py")} - FRONT
    for entry in inside():
        target = entry.target.removeprefix("simfl.")
        graph.add_edge(entry.module, target if target in modules else target.rpartition(".")[0])
    assert not [sorted(part) for part in nx.strongly_connected_components(graph) if len(part) > 1]
    assert not list(nx.selfloop_edges(graph))


@pytest.mark.parametrize("library", HOMES)
def test_libraries_are_used_at_home_or_by_guests(library):
    used = [entry for entry in outside() if entry.target.split(".")[0] == library and not entry.for_types]
    used = [entry for entry in used if entry.room not in ATTACHED or entry.room in HOMES[library]]
    assert {entry.room for entry in used} >= set(HOMES[library])
    wrong = [str(entry) for entry in used if entry.room not in HOMES[library] and not is_guest(entry, library)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("guest", "host"), GUESTS)
def test_guests_are_used(guest, host):
    own = [entry for entry in all_imports() if f"{entry.module}.".startswith(f"{guest}.")]
    assert any(host in entry.target.removeprefix("simfl.").split(".")[:1] for entry in own), "no guest any more"


def test_guests_are_few():
    assert len(GUESTS) <= MOST_GUESTS


def lines_of(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def test_no_room_is_heavier_than_the_table_of_weights_says():
    weights = {room: lines_of((PACKAGE / room).rglob("*.py")) for room in WEIGHTS if room}
    weights[""] = lines_of(PACKAGE.glob("*.py"))
    sums = {
        "core": sum(lines for room, lines in weights.items() if room not in ATTACHED),
        "all": lines_of(PACKAGE.rglob("*.py")),
        "tests": lines_of((ROOT / "tests").rglob("*.py")),
    }
    assert sum(weights.values()) == sums["all"], "each room has a number"
    limits = WEIGHTS | MOST_LINES
    heavier = {room: (lines, limits[room]) for room, lines in (weights | sums).items() if lines > limits[room]}
    assert not heavier, f"(lines, at most): {heavier}"


#: What acts on sums, and on messages and steps, as attributes of training or of an algorithm.
ON_SUMS = {
    "adaptive", "aggregation", "allowances", "attack", "cohorts", "gate", "gated", "hostility", "norm", "protocol",
    "rule", "secure_sum", "strategy", "with_noise",
}  # fmt: skip
ON_MESSAGES = {"compression", "linear", "memories", "memory", "optimizer", "scheme", "server_optimizer", "witness"}
#: Where these stand beside the seams: in the plan of training, and where the seams are made of it.
SEAMS = {
    "admission", "aggregation", "channel", "cohorts", "disclosure", "mixing", "optimizers", "pairing", "pushing",
    "secure_sums", "steps", "sum_noise", "sums",
}  # fmt: skip
KNOW = {"base", "batches", "server", "training"}


def test_algorithms_do_not_know_what_happens_to_a_sum_or_a_message():
    for path in sorted((PACKAGE / "algorithms").glob("*.py")):
        tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        known = {node.attr for node in tree if isinstance(node, ast.Attribute)} & (ON_SUMS | ON_MESSAGES)
        assert not known or path.stem in SEAMS | KNOW, f"{path.name}: {known}"


def test_algorithms_do_not_say_what_they_take():
    """Their sections do, by `uses`; a second list of flags on the classes that run would have to agree with it."""
    flags = {"aggregates", "attacked", "corrects_rounds", "moves_tasks", "one_model", "own_clipping", "takes_optimizer"}
    for path in sorted((PACKAGE / "algorithms").glob("*.py")):
        tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        assert not {node.id for node in tree if isinstance(node, ast.Name)} & flags, path.name


#: The most lines and methods of a class of the core. Classes beyond: name -> (lines, methods). Tape writes one log of
#: operations, Executor owns one bank of rows, ledgers answer all questions about one account, and a section of an
#: algorithm those of forecasts and estimates. The others are to be split by their jobs: lower a number when its class
#: shrinks.
MOST_OF_A_CLASS = (300, 20)
LARGE = {
    "Tape": (837, 41),
    "Executor": (522, 35),
    "Ledger": (452, 43),
    "AlgorithmConfig": (174, 21),
}


def test_classes_of_the_core_are_small():
    beyond = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if name_of(path).split(".")[0] in ATTACHED:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                methods = sum(isinstance(part, ast.FunctionDef) for part in node.body)
                size = (node.end_lineno or 0) - node.lineno + 1, methods
                if any(number > most for number, most in zip(size, MOST_OF_A_CLASS, strict=True)):
                    beyond[node.name] = size
    larger = {name: size for name, size in beyond.items() if any(map(int.__gt__, size, LARGE.get(name, (0, 0))))}
    assert not larger, f"(lines, methods): {larger}"
    assert beyond.keys() == LARGE.keys(), "what is small now has no entry"


@pytest.mark.parametrize("code", ["import simfl", "import simfl.cli.app", "import simfl.accounts.group"])
def test_nothing_heavy_is_imported_before_it_is_needed(code):
    heavy = {"jax", "numpy", "pandas", "matplotlib", "pyarrow", "scipy", "networkx", "pydantic", "sklearn", "yaml"}
    heavy.add("dp_accounting")
    process = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; print(*{heavy} & set(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.split() == []


def test_a_run_imports_no_more_than_it_needs():
    """Bundled data and a simple graph do not need libraries that take two seconds to import."""
    code = """
import sys
from simfl.data import load_dataset
from simfl.runs import runner
from simfl.streams import Streams
from simfl.world.topology import build_topology
load_dataset("digits", root=None, streams=Streams(1))
build_topology("ring", 16, Streams(1).generator("topology"))
print(*{"sklearn", "pandas", "matplotlib", "scipy.sparse", "scipy.special", "scipy.stats"} & set(sys.modules))
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.split() == []


@pytest.mark.slow
def test_a_whole_run_with_its_figure_imports_no_pandas(tmp_path):
    code = f"""
import sys
from simfl.cli.app import main
sys.argv = ["simfl", "run", "scenarios/demo/adpsgd.yaml", "--set", "stop.updates=10", "--out", {str(tmp_path)!r}]
try:
    main()
except SystemExit as end:
    print(end.code or 0, *{{"pandas", "sklearn", "dp_accounting", "optax"}} & set(sys.modules))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout.splitlines()[-1].split() == ["0"], ran.stderr


@pytest.mark.parametrize(
    ("change", "status", "avoided"),
    [
        ("seed=2", 0, {
            "jax", "jaxlib", "optax", "pandas", "matplotlib", "sklearn", "dp_accounting",
            "scipy.sparse", "scipy.special", "scipy.stats", "rich.console", "dask", "simfl.runs.runner",
        }),
        ("algorithm.step_sice=1", 2, {"numpy", "networkx", "simpy", "pyarrow", "simfl.assembly", "simfl.records"}),
    ],
)  # fmt: skip
def test_validate_imports_no_more_than_it_needs(change, status, avoided):
    code = f"""
import sys
from simfl.cli.app import main
sys.argv = ["simfl", "validate", "scenarios/demo/adpsgd.yaml", "--set", "{change}"]
try:
    main()
except SystemExit as end:
    print(end.code or 0, *{avoided} & set(sys.modules))
"""
    validated = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert validated.stdout.splitlines()[-1].split() == [str(status)], validated.stderr
