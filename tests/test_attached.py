"""Attached rooms can be removed, and a user's package can be added, by entry points alone."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from simfl.plugins import GROUP

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
ENTRY_POINTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][GROUP]

#: Tests of the core that take seconds and need no attached room.
QUICK = (
    "tests/world/test_engine.py",
    "tests/world/test_compute.py",
    "tests/tape/test_packing.py",
    "tests/privacy/test_gaussian.py",
    "tests/algorithms/test_sync_sgd.py",
    "tests/records/test_display.py",
    "tests/scenario/test_units.py",
    "tests/scenario/test_overrides.py",
)


def describe(folder, name, entry_points):
    """Write the metadata by which Python finds a package and its entry points in a folder."""
    info = folder / f"{name}-0.0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.0.1\n")
    lines = [f"{key} = {value}" for key, value in entry_points.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines]) + "\n")


def python(folder, *words, code=0):
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


#: The finder of an editable install would find a removed room in the sources.
WITHOUT_SOURCES = """
import sys
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in getattr(finder, "__module__", "")]
"""

#: Room -> rooms that need it.
NEEDED = {
    "papers": (),
    "live": (),
    "bench": (),
    "reports": (),
    "attacks": ("papers",),
    "accounts": ("attacks", "papers"),
    "studies": ("bench", "papers", "reproduction"),
    "plots": ("accounts", "attacks", "papers", "reports", "reproduction"),
    "comparison": ("accounts", "attacks", "bench", "papers", "plots", "reports", "reproduction", "studies"),
    "reproduction": ("papers",),
    "downloads": (),
    "frameworks": (),
    "trained": (),
}


#: The commands of one process.
COMMANDS = """
import sys
from simfl.cli.app import main
for words in filter(None, sys.argv[1].split(";")):
    sys.argv = ["simfl", *words.split("&")]
    try:
        main()
    except SystemExit as left:
        assert not left.code, (words, left.code)
"""
LIST, RUN = "list", "run&scenarios/demo/sync.yaml&--quiet&--set&stop={updates: 16}&--set&data={set: digits}"
REPORT = "report&results/demo-sync/001"


def remove(folder, *rooms):
    """Link the package into a folder without some of its rooms and their entry points."""
    (folder / "simfl").mkdir()
    for path in (ROOT / "simfl").iterdir():
        if path.name not in (*rooms, "__pycache__"):
            os.symlink(path, folder / "simfl" / path.name)
    rest = {name: place for name, place in ENTRY_POINTS.items() if not any(f"simfl.{room}" in place for room in rooms)}
    assert len(rest) < len(ENTRY_POINTS)
    describe(folder, "simfl", rest)
    (folder / "sitecustomize.py").write_text(WITHOUT_SOURCES)


#: Rooms that neither need nor are needed by another, as test_house.py checks: they go at once.
LONELY = ("live", "downloads", "frameworks", "trained")
CASES = [(room, *needing) for room, needing in NEEDED.items() if room not in LONELY]


@pytest.mark.parametrize("removed", [*CASES, LONELY], ids=lambda rooms: rooms[0])
def test_the_core_works_without_attached_rooms(removed, tmp_path):
    remove(tmp_path, *removed)
    shutil.copytree(ROOT / "scenarios" / "demo", tmp_path / "scenarios" / "demo")
    commands = [LIST, RUN] if "reports" in removed else [LIST, RUN, REPORT]
    out = python(tmp_path, "-c", COMMANDS, ";".join(commands))
    words = {"papers": "deep_q_sgd", "live": "simfl live", "bench": "simfl bench", "reports": "simfl report"}
    words |= {"attacks": "simfl privacy audit", "accounts": "simfl privacy check"}
    words |= {
        "reproduction": "(simfl reproduce)",
        "downloads": "(simfl data)",
        "studies": "(simfl sweep)",
        "plots": "simfl plot",
        "comparison": "comparisons of runs by group",
        "frameworks": "networks of PyTorch",
        "trained": "simfl evaluate",
    }
    assert {name for name, word in words.items() if word not in out} == {*removed}
    assert ("report.html" in out) == ("reports" not in removed)
    assert ("figure: " in out) == ("plots" not in removed)


def test_tests_of_the_core_pass_without_all_attached_rooms(tmp_path):
    remove(tmp_path, *NEEDED)
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    python(tmp_path, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), *QUICK)


PLUGIN = """
from simfl.plugins import Plugin

PLUGIN = Plugin(
    summary="what my paper adds",
    configs=("simfl_mypaper.config",),
    algorithms=("simfl_mypaper.algorithm",),
    commands={"mypaper": "simfl_mypaper.command:mypaper", "privacy mypaper": "simfl_mypaper.command:command"},
    studies={"mypaper": "simfl_mypaper.study:PAPER"},
)
"""

CONFIG = '''
"""Section of a scenario."""

from typing import Literal

from simfl.scenario.algorithms.base import AlgorithmConfig
from simfl.scenario.fields import Positive, variant
from simfl.scenario.seams import Uses


class Alone(AlgorithmConfig):
    """Every client trains alone."""

    uses = Uses(graph="none")

    kind: Literal["alone"] = variant("alone")
    patience: Positive = 1.0
'''

ALGORITHM = """
from simfl.algorithms.base import Algorithm
from simfl.world.availability import Outcome


class AloneSGD(Algorithm):
    kind = "alone"
    summary = "every client trains alone"

    def set_up(self, patience):
        self.models_ = [self.tape.constant(self.training.initial) for _ in range(self.num_clients)]

    def start(self):
        for client in range(self.num_clients):
            self.clock.start(self.client(client), client)

    def models(self):
        return self.models_

    def client(self, me):
        yield self.world.joined(me)
        while True:
            gradient = self.batches.gradient(self.models_[me], me)
            size, step_size = gradient.size, self.step_size()
            if (yield self.compute(me)) is Outcome.GONE:
                return
            self.models_[me] = self.descent.step(me, self.models_[me], gradient, step_size)
            self.updated(me, 0, size, step_size)
"""

COMMAND = '''
def mypaper(number: int = 1) -> None:
    """Say a number."""
    print("mypaper says", number)


def command(epsilon: float = 1.0) -> None:
    """Say an epsilon."""
    print("epsilon is", epsilon)
'''

STUDY = """
from pathlib import Path

from simfl.reproduction.evidence import Reading, exactly
from simfl.reproduction.papers import Experiment, Paper, PaperClaim, Section

SECTION = Section("alone")
EXPERIMENT = Experiment(SECTION, ("alone",), "mine.yaml")


def count(runs):
    updates = runs.first(SECTION, ("alone",)).manifest.updates
    yield Reading({}, [exactly(updates == 16, f"{updates} updates")])


PAPER = Paper(
    name="mypaper",
    title="My paper",
    experiments=lambda quick: (EXPERIMENT,),
    claims=(PaperClaim("Sixteen updates are made.", count),),
    scenarios=Path(__file__).parents[1],
)
"""

SCENARIO = """
name: mine
data: {set: digits}
clients: {count: 4, seconds_per_example: 1 ms}
algorithm: {kind: alone, step_size: 0.1, patience: 2.0}
stop: {updates: 16}
"""


def test_a_package_of_a_user_adds_an_algorithm_a_command_and_a_study(tmp_path):
    package = tmp_path / "simfl_mypaper"
    package.mkdir()
    texts = {"__init__": PLUGIN, "config": CONFIG, "algorithm": ALGORITHM, "command": COMMAND, "study": STUDY}
    for name, text in texts.items():
        (package / f"{name}.py").write_text(text)
    describe(tmp_path, "simfl_mypaper", {"mypaper": "simfl_mypaper:PLUGIN"})
    os.symlink(ROOT / "simfl", tmp_path / "simfl")
    describe(tmp_path, "simfl", ENTRY_POINTS)
    (tmp_path / "mine.yaml").write_text(SCENARIO)
    python(tmp_path, "-c", "import simfl_mypaper.config, simfl_mypaper.algorithm")  # whichever is imported first
    words = "list;reproduce&--list;mypaper&--number&3;run&mine.yaml&--quiet;privacy&mypaper&--epsilon&2;"
    out = python(tmp_path, "-c", COMMANDS, words + "reproduce&mypaper&--quick&--quiet&--jobs&1")
    listed, rest = out.split("mypaper says 3\n")
    ran, reproduced = rest.split("epsilon is 2.0\n")
    assert "every client trains alone [mypaper]" in listed
    assert "what my paper adds (simfl mypaper, simfl privacy mypaper, simfl reproduce mypaper)" in listed
    assert re.search(r"^papers +$.*^  mypaper ", listed, re.DOTALL | re.MULTILINE)
    assert "alone" in ran
    assert "16 updates" in reproduced
    assert "reproduced" in reproduced
    typo = python(tmp_path, "-m", "simfl", "run", "mine.yaml", "--set", "algorithm.patiens=1", code=2)
    assert "did you mean 'patience'?" in typo


def test_a_plugin_that_cannot_be_imported_gives_one_line(tmp_path):
    os.symlink(ROOT / "simfl", tmp_path / "simfl")
    describe(tmp_path, "simfl", ENTRY_POINTS)
    describe(tmp_path, "broken_paper", {"broken": "nowhere_at_all:PLUGIN"})
    out = python(tmp_path, "-m", "simfl", "list", code=2)
    assert out.startswith("plugin broken: expected nowhere_at_all:PLUGIN of the package broken_paper, found ")
    assert len(out.splitlines()) == 1
