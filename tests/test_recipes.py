"""The files that CONTRIBUTING.md lists suffice to add an algorithm, a model, a compressor and so on.

A copy of the package gets one of each, in just the files that the page names, and runs scenarios with all of them.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from simfl.records import read

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Recipe:
    """New files by path, and changes of others: (path, a line that is there, what follows it from now on)."""

    files: dict[str, str] = field(default_factory=dict)
    changes: tuple[tuple[str, str, str], ...] = ()

    @property
    def touched(self) -> set[str]:
        """All files of the package."""
        return {*self.files, *(path for path, _, _ in self.changes)}

    def follow(self, root: Path) -> None:
        """Do what the recipe says to a copy of the package."""
        for path, text in self.files.items():
            assert not (root / path).exists()
            (root / path).write_text(text, encoding="utf-8")
        for path, before, after in self.changes:
            text = (root / path).read_text(encoding="utf-8")
            assert text.count(before) == 1, f"{path}: {before!r}"
            (root / path).write_text(text.replace(before, after), encoding="utf-8")


def copied(kind: str, new: str, *folders: str) -> Recipe:
    """Return the recipe of a class that does what one of simfl's own does, under another name."""
    name = "".join(map(str.capitalize, kind.split("_")))
    name = name if kind != "mlp" else "MLP"
    texts = {folder: (ROOT / folder / f"{kind}.py").read_text(encoding="utf-8") for folder in folders}
    return Recipe(
        {
            f"{folder}/{new}.py": re.sub(rf'"{kind}"', f'"{new}"', re.sub(rf"\b{name}\b", new.capitalize(), text))
            for folder, text in texts.items()
        }
    )


ALGORITHM = Recipe(
    files={
        "simfl/scenario/algorithms/alone_sgd.py": '''"""Clients that train alone."""

from typing import Literal

from pydantic import Field

from simfl.scenario.algorithms.base import AlgorithmConfig
from simfl.scenario.fields import Positive, Settled, variant
from simfl.scenario.seams import Uses


class AloneSgd(AlgorithmConfig):
    """Every client trains on its own, with smaller steps after every few passes over its data."""

    uses = Uses(graph="none")

    kind: Literal["alone_sgd"] = variant("alone_sgd")
    halve_every: Settled[Positive] = Field(default=1.0, description="passes over its data after which steps are halved")
''',
        "simfl/algorithms/alone_sgd.py": '''"""Local SGD without any communication."""

from collections.abc import Sequence
from typing import ClassVar

from simfl.algorithms.base import Algorithm
from simfl.tape import Model
from simfl.world.availability import Outcome
from simfl.world.engine import Process


class AloneSGD(Algorithm):
    """Nobody talks to anybody."""

    kind: ClassVar[str] = "alone_sgd"
    summary: ClassVar[str] = "every client trains alone, and steps are halved as it goes"
    family: ClassVar[str] = "gossip"
    who_waits: ClassVar[str] = "no client waits"
    what_travels: ClassVar[str] = "nothing: there are no messages"
    what_is_private: ClassVar[str] = "an example (`gaussian`)"

    def set_up(self, patience: Sequence[int]) -> None:
        """Take how many updates of each client, [K], are made before its steps are halved."""
        self.patience = patience
        self.own = [self.tape.constant(self.training.initial) for _ in range(self.num_clients)]

    def start(self) -> None:
        """Start the clients."""
        for client in range(self.num_clients):
            self.clock.start(self.client(client), client)

    def models(self) -> Sequence[Model]:
        """Each client's own."""
        return self.own

    def client(self, me: int) -> Process:
        """Train."""
        yield self.world.joined(me)
        while True:
            gradient = self.batches.gradient(self.own[me], me)
            size, step_size = gradient.size, self.step_size() / 2 ** (self.client_updates[me] // self.patience[me])
            if (yield self.compute(me)) is Outcome.GONE:
                return
            self.own[me] = self.tape.combine((1.0, self.own[me]), *self.descent.terms(gradient, step_size))
            self.updated(me, 0, size, step_size)
''',
        "simfl/assembly/kinds/alone_sgd.py": '''"""Clients that train alone: passes over the data become updates."""

from typing import Any

from simfl.scenario.algorithms.alone_sgd import AloneSgd
from simfl.assembly.kinds.base import Kind
from simfl.assembly.setup import Setup


class AloneSgdKind(Kind[AloneSgd]):
    """Steps are halved after so many passes over a client's data."""

    sections = (AloneSgd,)

    def options(self, setup: Setup) -> dict[str, Any]:
        """Add the updates of each client between two halvings."""
        share = self.config.halve_every / self.config.batch_size
        return {**super().options(setup), "patience": [max(1, round(share * n)) for n in setup.sizes.tolist()]}
''',
    },
)

LINK_MODEL = Recipe(
    changes=(
        (
            "simfl/world/link_values.py",
            "@dataclass(slots=True)\nclass LinkState:",
            '''class _Burst(Changing):
    """The losses of a link: every `loss` of the `period` messages on it in a row."""

    def __init__(self, loss: float, period: int) -> None:
        self._loss, self._period, self._sent = loss, period, -1

    def at(self, time: float, source: int = 0) -> float:
        self._sent += 1
        return float(self._sent % self._period < self._loss * self._period)

    def mean(self, time: float) -> float:
        return self._loss


@dataclass(frozen=True)
class Bursts(Value):
    """A link loses either all or nothing."""

    loss: float
    period: int = 10

    def resolve(self, values: Values, quantity: Quantity, rule: Rule, source: int, target: int) -> Resolved:
        """Count the messages of each link."""
        return _Burst(self.loss, self.period)


@dataclass(slots=True)
class LinkState:''',
        ),
        (
            "simfl/scenario/links.py",
            "    resend_timeout: PositiveSeconds = option(0.1,",
            '    bursts: Annotated[int, Within(at_least=1)] | None = option(None, "of one period")\n'
            "    resend_timeout: PositiveSeconds = option(0.1,",
        ),
        (
            "simfl/assembly/links.py",
            "    tcp = links.startup\n",
            "    if links.bursts is not None:\n"
            '        rules = (Rule({"loss": Bursts(links.loss, links.bursts)}), *rules)\n'
            "    tcp = links.startup\n",
        ),
        (
            "simfl/assembly/links.py",
            "from simfl.world.link_values import Chain",
            "from simfl.world.link_values import Bursts, Chain",
        ),
    ),
)

MECHANISM = Recipe(
    changes=(
        (
            "simfl/privacy/mechanisms.py",
            "_CORE: tuple[type[AbstractMechanism], ...] = (\n",
            '''@dataclass(frozen=True)
class SpareGaussian(Gaussian):
    """Gaussian noise, a tenth more than what is accounted for."""

    kind = "spare_gaussian"
    summary = "Gaussian noise with a tenth to spare"
    sampler = "gaussian"

    def scale(self, size: int) -> float:
        """Return 1.1 z C."""
        return 1.1 * super().scale(size)


_CORE: tuple[type[AbstractMechanism], ...] = (
''',
        ),
        ("simfl/privacy/mechanisms.py", "    GaussianUpdate,\n", "    SpareGaussian,\n    GaussianUpdate,\n"),
        (
            "simfl/scenario/privacy.py",
            "class GaussianUpdate(_MultipliedGaussian):",
            '''class SpareGaussian(_MultipliedGaussian):
    """Gaussian noise, a tenth more than what is accounted for."""

    mechanism: Literal["spare_gaussian"] = variant("spare_gaussian")
    clipping_norm: Positive = Field(default=1.0, description="C, the bound on the L2 norm of each example's gradient")
    noise_multiplier: NonNegativeEach | None = Field(default=None, description="z, accounted for")


class GaussianUpdate(_MultipliedGaussian):''',
        ),
        (
            "simfl/scenario/privacy.py",
            "CORE = Gaussian | GaussianUpdate",
            "CORE = Gaussian | SpareGaussian | GaussianUpdate",
        ),
    ),
)

MODEL = copied("mlp", "bottleneck", "simfl/models")

DATA_SET = Recipe(
    files={
        "simfl/data/clouds.py": '''"""Two clouds of points in the plane."""

from pathlib import Path

import numpy as np

from simfl.data.base import Dataset, Loader
from simfl.streams import Streams


def load_clouds(root: Path | None, streams: Streams, *, samples: int = 400, distance: float = 4.0) -> Dataset:
    """Draw the points, f32 [samples, 2], and as many for testing."""
    generator = streams.generator("synthetic")
    y = generator.integers(0, 2, 2 * samples).astype(np.int32)
    x = generator.normal(size=(2 * samples, 2)) + distance * (y[:, None] - 0.5)
    x = x.astype(np.float32)
    return Dataset("clouds", x[:samples], y[:samples], x[samples:], y[samples:], num_classes=2)


LOADER = Loader("clouds", "synthetic: two clouds of points in the plane", load_clouds)
''',
    },
    changes=(
        ("simfl/data/__init__.py", "from simfl.data import cifar,", "from simfl.data import clouds, cifar,"),
        ("simfl/data/__init__.py", "_CORE = (digits,", "_CORE = (clouds, digits,"),
        (
            "simfl/scenario/data.py",
            "class QuadraticData(SyntheticData):",
            '''class Clouds(DataConfig):
    """Two clouds of points in the plane."""

    task: ClassVar[TargetKind] = "binary"
    num_classes: ClassVar[int | None] = 2

    set: Literal["clouds"] = variant("clouds")
    samples: Count = Field(default=400, description="training examples, and as many for testing")
    distance: Positive = Field(default=4.0, description="between the centers, along each axis")


class QuadraticData(SyntheticData):''',
        ),
        ("simfl/scenario/data.py", "CORE = (\n    Digits\n", "CORE = (\n    Clouds\n    | Digits\n"),
    ),
)

COMPRESSOR = copied("sign", "rounded", "simfl/compression/compressors")
RULE = copied("median", "midrange", "simfl/robust/rules")
ATTACK = copied("sign_flip", "constant", "simfl/robust/attacks")
SELECTOR = copied("fastest", "slowest", "simfl/selection/selectors")

RECIPES = {
    "An algorithm": ALGORITHM,
    "A link model": LINK_MODEL,
    "A mechanism": MECHANISM,
    "A model": MODEL,
    "A data set": DATA_SET,
    "A compressor": COMPRESSOR,
    "A choice of clients": SELECTOR,
    "A robust rule or an attack": Recipe({**RULE.files, **ATTACK.files}),
}

SCENARIO = """
name: new
seed: 1
data: {set: clouds, samples: 320, distance: 6}
model: {kind: bottleneck, hidden: [3]}
clients: {count: 4}
links: {loss: 0.5, bursts: 4, resend_timeout: 10 ms, uplink: null}
algorithm: {kind: ALGORITHM, batch_size: 16}
privacy: {mechanism: spare_gaussian, noise_multiplier: 2.0}
stop: {updates: 80}
evaluate: {every: {updates: 40}}
record: {messages: true}
"""

SECTIONS = {
    "short": "compression: {kind: rounded, gamma: 1.0}",
    "hostile": "aggregation: {kind: midrange}\nattackers: {kind: constant, clients: [3]}",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The runs of the new algorithm, and of one that sends messages over the new links, by name."""
    root = tmp_path_factory.mktemp("recipes")
    shutil.copytree(ROOT / "simfl", root / "simfl", ignore=shutil.ignore_patterns("__pycache__"))
    for recipe in RECIPES.values():
        recipe.follow(root)
    chosen = {"alone": "alone_sgd, halve_every: 2.0", "gossip": "gossip_learning"}
    chosen |= {**dict.fromkeys(SECTIONS, "decentralized_sgd"), "served": "fedavg, fraction: 0.25, local_steps: 1"}
    for name, algorithm in chosen.items():
        text = SCENARIO.replace("name: new", f"name: {name}").replace("ALGORITHM", algorithm)
        if name == "served":
            text = re.sub("privacy: .*", "selection: slowest", text)
        (root / f"{name}.yaml").write_text(text + SECTIONS.get(name, ""), encoding="utf-8")
    command = [sys.executable, "-m", "simfl", "run", *(f"{name}.yaml" for name in chosen), "--quiet"]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {name: read(root / "results" / name / "001") for name in chosen}


@pytest.mark.parametrize("name", RECIPES)
def test_the_page_names_every_file(name):
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = page.partition(f"## {name}\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(simfl/[\w/<>]+\.py)`", section))
    stems = {
        path: re.sub(r"(alone_sgd|bottleneck|clouds|rounded|midrange|constant|slowest)", "<kind>", path)
        for path in RECIPES[name].touched
    }
    assert named == set(stems.values())


@pytest.mark.slow
def test_an_algorithm_with_a_derived_option_needs_only_the_listed_files(runs):
    steps = runs["alone"].updates.groupby("client")["step_size"]
    assert set(steps.nunique()) == {2}, "halved once, after two passes: 10 updates"
    assert (steps.max() == 0.4).all()
    assert (steps.min() == 0.2).all()


@pytest.mark.slow
def test_a_link_model_needs_only_the_listed_files(runs):
    messages = runs["gossip"].messages.sort_values("sent_s")
    assert set(messages["resends"]) >= {0, 2}, "two of every four messages on a link are lost"
    assert runs["gossip"].clients["bytes"].sum() > 0


@pytest.mark.slow
def test_a_mechanism_needs_only_the_listed_files(runs):
    run = runs["alone"]
    assert set(run.updates["noise_std"]) == {2.2}, "a tenth more than 2 times the clipping norm"
    assert run.clients["epsilon"].notna().all()
    assert set(run.releases["level"]) == {2.0}


@pytest.mark.slow
def test_a_model_and_a_data_set_need_only_the_listed_files(runs):
    assert runs["alone"].manifest.extra["model_size"] == (2 * 3 + 3) + (3 * 2 + 2)
    assert runs["alone"].metrics["test_accuracy"].iloc[-1] > 0.9
    assert runs["alone"].clients["samples"].sum() == 320


@pytest.mark.slow
def test_a_compressor_needs_only_the_listed_files(runs):
    assert set(runs["short"].messages["bytes"]) == {-(-(32 + 17) // 8)}, "|x|_1 and 17 signs"


@pytest.mark.slow
def test_a_robust_rule_and_an_attack_need_only_the_listed_files(runs):
    table = runs["hostile"].aggregation
    accepted = table.groupby(table["sender"] == 3)["accepted"].mean()
    assert accepted[True] < accepted[False], "the opposite of a model is seldom in the middle"


@pytest.mark.slow
def test_a_choice_of_clients_needs_only_the_listed_files(runs):
    assert runs["served"].clients["updates"].tolist() == [80, 0, 0, 0], "all are as fast, and the first is taken"
