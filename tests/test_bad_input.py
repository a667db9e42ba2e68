"""Bad input through the command line: one exact line on stderr, exit code 2, and no folder of results."""

import gzip
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest

from tests.data.conftest import idx_bytes, small_mnist
from tests.scenario.broken import BROKEN

GOOD = "algorithm: {kind: sync_sgd}\nstop: {updates: 16}\n"


@pytest.fixture
def refused(simfl_, tmp_path):
    """A function that runs a scenario that must be rejected, and returns stderr."""

    def call(text, *words):
        Path("s.yaml").write_text(text, encoding="utf-8")
        before = sorted(os.listdir(tmp_path))
        code, out, err = simfl_("run", "s.yaml", *words)
        assert (code, out) == (2, "")
        assert sorted(os.listdir(tmp_path)) == before
        return err

    return call


@pytest.mark.parametrize("case", BROKEN, ids=repr)
def test_each_broken_scenario_gives_its_message(refused, case):
    assert refused(case.text) == case.line("s.yaml") + "\n"


class Damaged(NamedTuple):
    """A scenario with missing or damaged files: its name, its text, the message, the files to write."""

    name: str
    scenario: str
    message: str
    files: Mapping[str, bytes] = MappingProxyType({})


MNIST = {f"sets/mnist/{name}": idx_bytes(array) for name, array in small_mnist().items()}
MNIST_SCENARIO = "data: {set: mnist}\n"


DAMAGED = [
    Damaged(
        "mnist_nowhere",
        MNIST_SCENARIO,
        "data.set: mnist needs the folder of data sets, and none is named; set SIMFL_DATA to it and run "
        "`simfl data fetch mnist`",
    ),
    Damaged(
        "mnist_gz_cut",
        MNIST_SCENARIO,
        "sets/mnist/train-images-idx3-ubyte.gz: the .gz file is cut off; fetch it again with `simfl data fetch mnist`",
        {f"{name}.gz": gzip.compress(file, mtime=0)[:50] for name, file in MNIST.items()},
    ),
    Damaged(
        "cifar10_cut",
        "data: {set: cifar10}\n",
        "sets/cifar10: data_batch_1.bin: expected records of 3073 bytes, found 5000 bytes, not a multiple of "
        "it; fetch it again with `simfl data fetch cifar10`",
        {"sets/cifar10/data_batch_1.bin": bytes(5000), "sets/cifar10/test_batch.bin": bytes(3073)},
    ),
    Damaged(
        "edge_list_too_small",
        "topology: {kind: edge_list, path: g.txt}\n",
        "topology.path: g.txt has 3 nodes (0, 1, 2) and clients.count is 16; if all of them are clients, set "
        "clients.count: 3",
        {"g.txt": b"0 1\n1 2\n"},
    ),
    Damaged(
        "trace_words",
        "clients: {speed: {kind: trace, path: t.csv, column: a}}\n",
        "clients.speed.path: t.csv:2: a: expected a number > 0, found 'fast'",
        {"t.csv": b"a,b\nfast,2\n"},
    ),
    Damaged(
        "batch_larger_than_data",
        "clients: {count: 100}\n",
        "algorithm.batch_size: expected at most 14, the examples of client 38, found 32; lower it, add "
        "small_clients: use_all, or use fewer clients (clients.count is 100) or larger parts",
    ),
    Damaged(
        "too_many_components",
        "data: {set: digits, pca: 65}\n",
        "data.pca: expected 1 to 64 components (1438 examples, 64 features), found 65",
    ),
    Damaged(
        "more_clients_than_examples",
        "clients: {count: 2000}\n",
        "clients.count: 2000 clients but only 1438 training examples, and each needs one; use fewer "
        "clients or partition kind: resample",
    ),
    Damaged(
        "sizes_beyond_data",
        "clients: {count: 2}\ndata: {partition: {kind: iid, sizes: {kind: listed, values: [1000, 1000]}}}\n",
        "data.partition.sizes.values: they add up to 2000, but there are 1438 training examples",
    ),
]


@pytest.mark.parametrize("case", DAMAGED, ids=[case.name for case in DAMAGED])
def test_each_damaged_file_gives_its_message(refused, case, monkeypatch):
    for name, content in case.files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(content)
    if any(name.startswith("sets/") for name in case.files):
        monkeypatch.setenv("SIMFL_DATA", "sets")
    assert refused(GOOD + case.scenario) == f"s.yaml: {case.message}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "nonsense"], "--set: expected key.path=value, found 'nonsense'; write for example seed=3"),
        (["--set", "=3"], "--set: expected key.path=value, found '=3'; write for example seed=3"),
        (["--set", "clients.count="],
         "--set: clients.count: expected an integer >= 1, found nothing; write a whole number"),
        (["--set", "links.bandwith=1 Gbit/s"],
         "--set: links.bandwith: expected a key of links, found 'bandwith'; did you mean 'bandwidth'?"),
        (["--set", "links.latency=1 lightyear"],
         "--set: links.latency: expected a time like '10 ms', found '1 lightyear'; "
         "use one of the units ns, us, ms, s, min, h, d"),
        (["--set", "topology={kind: ring"],
         "--set: topology:2:1: expected well-formed YAML, found an error (did not find expected ',' or '}'); "
         "check quotes, brackets, colons and indentation"),
        (["--set", "algorithm.batch_size=1000"],
         "s.yaml: algorithm.batch_size: expected at most 89, the examples of client 14, found 1000; lower it, "
         "add small_clients: use_all, or use fewer clients (clients.count is 16) or larger parts"),
        (["--set", "seed=1", "--seed", "-1"],
         "--set: seed: expected an integer >= 0 and < 18446744073709551616, found -1; choose a value in this range"),
        (["nothing.yaml"], "nothing.yaml: expected a scenario file, found nothing there; check the path, or write one "
         "with 'simfl new'"),
        (["."], ".: expected a scenario file, found a folder; name a file in it"),
        (["--out", "s.yaml"], "s.yaml/s: cannot make a folder for results: Not a directory; choose --out"),
    ],
)  # fmt: skip
def test_wrong_arguments_of_commands_give_their_messages(refused, words, message):
    assert refused(GOOD, *words) == message + "\n"


def test_a_missing_module_is_reported_with_the_searched_folders(refused):
    err = refused(GOOD, "--set", "algorithm={kind: 'nowhere:Mine'}")
    before, _, after = err.partition("; looked for it in ")
    assert before == (
        "s.yaml: algorithm.kind: cannot load 'nowhere:Mine' (No module named 'nowhere'), expected module:name of an "
        "importable module"
    )
    assert os.getcwd() in after.split(", ")
    assert after.endswith(" and what Python has installed\n")


def test_every_file_is_named_with_its_problem(simfl_):
    Path("one.yaml").write_text(GOOD + "data: {set: digits, pca: 65}\n")
    Path("two.yaml").write_text(GOOD + "clients: {count: 2000}\n")
    code, _, err = simfl_("run", "one.yaml", "two.yaml")
    assert code == 2
    assert [line.split(":")[:2] for line in err.splitlines()] == [
        ["one.yaml", " data.pca"],
        ["two.yaml", " clients.count"],
    ]


def test_a_missing_gpu_is_reported(refused):
    import jax

    if any(device.platform == "gpu" for device in jax.devices()):
        pytest.skip("this machine has a GPU")
    assert refused(GOOD, "--device", "gpu") == (
        "--device: found 'gpu', expected one of the devices of this machine (cpu); "
        "a GPU needs the extra for it: pip install 'simfl[cuda12]'\n"
    )
