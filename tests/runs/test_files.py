"""Files that a scenario names: an interrupted run is not resumed with another file, whichever field names it."""

import json
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat

from simfl.errors import DataError
from simfl.runs.checkpoint import Checkpoint, Position, fingerprint
from simfl.runs.runner import prepare
from simfl.scenario import Scenario, from_mapping
from simfl.scenario.fields import content_files, file_marks, members_of, world_files
from simfl.tape.executor import choose_device
from simfl.tape.journal import Record
from tests.data.conftest import idx_bytes, small_mnist

REGIONS = {"names": ["a", "b"], "counts": [2, 2]}
MATRIX = "region,a,b\na,{0} ms,5 ms\nb,5 ms,2 ms\n"


def graph(extra, generate=nx.generate_graphml):
    """A file of a ring of four nodes, of one edge more if `extra` is 2."""
    made = nx.relabel_nodes(nx.cycle_graph(4), str)
    made.add_edges_from([("0", "2")] * (extra - 1))
    return "\n".join(generate(made))


def npz(path, step):
    generator = np.random.default_rng(step)
    np.savez(path, x=generator.normal(size=(24, 3)).astype(np.float32), y=np.arange(24) % 2)


def forms(path, step):
    np.savez(path, A=np.stack([np.eye(3) * (k + step) for k in range(4)]), b=np.ones((4, 3)))


def rows(path, step):
    generator = np.random.default_rng(step)
    np.savez(path, x=generator.normal(size=(4, 6, 3)), y=np.tile([0.0, 1.0, 1.0], (4, 2)))


def mnist(path, step):
    path.mkdir(exist_ok=True)
    for name, array in small_mnist().items():
        (path / name).write_bytes(idx_bytes(np.roll(array, step - 1)))


def cifar(path, step):
    path.mkdir(exist_ok=True)
    for name, shift in (("data_batch_1.bin", step), ("test_batch.bin", 0)):
        records = np.random.default_rng(shift).integers(0, 256, (20, 3073), dtype=np.uint8)
        records[:, 0] = np.arange(20) % 10
        (path / name).write_bytes(records.tobytes())


def emnist(path, step):
    path.mkdir(exist_ok=True)
    for name, array in small_mnist().items():
        part, kind = name.split("-", 1)
        part = "test" if part == "t10k" else part
        (path / f"emnist-digits-{part}-{kind}").write_bytes(idx_bytes(np.roll(array, step - 1)))


def cifar100(path, step):
    path.mkdir(exist_ok=True)
    for name, shift in (("train.bin", step), ("test.bin", 0)):
        records = np.random.default_rng(shift).integers(0, 20, (20, 3074), dtype=np.uint8)
        (path / name).write_bytes(records.tobytes())


def svhn(path, step):
    path.mkdir(exist_ok=True)
    for name, shift in (("train", step), ("test", 0)):
        x = np.random.default_rng(shift).integers(0, 256, (32, 32, 3, 20), dtype=np.uint8)
        savemat(path / f"{name}_32x32.mat", {"X": x, "y": 1 + np.arange(20)[:, None] % 10})


def leaf(path, step):
    for part in ("train", "test"):
        (path / part).mkdir(parents=True, exist_ok=True)
        x = np.arange(24.0).reshape(12, 2) + (step if part == "train" else 0)
        users = {"u": {"x": x.tolist(), "y": [0, 1] * 6}}
        content = {"users": ["u"], "num_samples": [12], "user_data": users}
        (path / part / "all.json").write_text(json.dumps(content))


def parquet(path, step):
    path.mkdir(exist_ok=True)
    columns = {"a": [k * step for k in range(24)], "label": [k % 2 for k in range(24)]}
    pd.DataFrame(columns).to_parquet(path / "train.parquet")


def model(path, step):
    np.savez(path, weights=np.full((10, 64), step / 10, np.float32), bias=np.zeros(10, np.float32))


def libsvm(step):
    return "".join(f"{k % 2} 1:{k * step} 2:{k % 3}\n" for k in range(24))


def table(step):
    return "a,b,label\n" + "".join(f"{k * step},{k % 3},{k % 2}\n" for k in range(24))


def text(step):
    return "ANNA: " + "so it goes on and on " * 40 + "!" * step


def rule(kind, unit):
    return {"links": {"rules": [{"all": True, kind: {"kind": "trace", "path": "{}", "unit": unit}}]}}


#: By class and field: a scenario that has it, and what writes the file, or its content, as it is first and later.
CASES = {
    ("LatencyTable", "path"): ({"regions": {**REGIONS, "latency": {"kind": "csv", "path": "{}"}}}, MATRIX.format),
    ("BandwidthTable", "path"): (
        {"regions": {**REGIONS, "bandwidth": {"kind": "csv", "path": "{}", "unit": "Mbit/s"}}},
        "region,a,b\na,1{0},5\nb,5,2\n".format,
    ),
    ("Regions", "path"): (
        {"regions": {"names": ["a", "b"], "path": "{}"}},
        lambda step: "region\na\nb\na\n" + "ab"[step - 1] + "\n",
    ),
    ("TracedFactors", "path"): (
        {"clients": {"count": 4, "speed": {"kind": "trace", "path": "{}", "column": "f"}}},
        "f\n1\n{0}\n".format,
    ),
    ("Carbon", "path"): ({"costs": {"carbon": {"path": "{}"}}}, "time,grams_per_kwh\n0,{0}00\n".format),
    ("SpeedTrace", "path"): ({"clients": {"count": 4, "trace": {"path": "{}"}}}, "time,factor\n1,{0}\n".format),
    ("Population", "devices"): (
        {"clients": {"count": 4, "devices": "{}"}},
        "name,seconds_per_example\nphone,0.00{0}\n".format,
    ),
    ("Trace", "path"): (rule("latency", "s"), "time,value\n0,0.00{0}\n".format),
    ("PresenceTrace", "path"): (
        {"availability": [{"all": True, "trace": {"path": "{}"}}]},
        "client,from,to\n0,0,{0}\n1,0,\n2,0,\n3,0,\n".format,
    ),
    ("GraphMl", "path"): ({"topology": {"kind": "graphml", "path": "{}"}}, graph),
    ("FromGraphMl", "path"): ({"underlay": {"kind": "graphml", "path": "{}"}}, graph),
    ("EdgeList", "path"): (
        {"topology": {"kind": "edge_list", "path": "{}"}},
        lambda step: "0 1\n1 2\n2 3\n3 0\n" + "0 2\n" * (step - 1),
    ),
    ("AdjacencyList", "path"): (
        {"topology": {"kind": "adjacency_list", "path": "{}"}},
        lambda step: "0 1 3\n1 2\n2 3\n" + "0 2\n" * (step - 1),
    ),
    ("Gml", "path"): ({"topology": {"kind": "gml", "path": "{}"}}, lambda step: graph(step, nx.generate_gml)),
    ("Pajek", "path"): ({"topology": {"kind": "pajek", "path": "{}"}}, lambda step: graph(step, nx.generate_pajek)),
    ("Contacts", "path"): (
        {"topology": {"kind": "contacts", "path": "{}"}},
        "from,until,a,b\n0,{0},0,1\n0,9,1,2\n0,9,2,3\n".format,
    ),
    ("Mnist", "path"): ({"data": {"set": "mnist", "path": "{}"}}, mnist),
    ("FashionMnist", "path"): ({"data": {"set": "fashion_mnist", "path": "{}"}}, mnist),
    ("Emnist", "path"): ({"data": {"set": "emnist", "path": "{}", "split": "digits"}}, emnist),
    ("Cifar100", "path"): ({"data": {"set": "cifar100", "path": "{}"}}, cifar100),
    ("Svhn", "path"): ({"data": {"set": "svhn", "path": "{}"}}, svhn),
    ("Cifar10", "path"): ({"data": {"set": "cifar10", "path": "{}"}}, cifar),
    ("Libsvm", "path"): ({"data": {"set": "libsvm", "path": "{}"}}, libsvm),
    ("Libsvm", "test_path"): ({"data": {"set": "libsvm", "path": "{first}", "test_path": "{}"}}, libsvm),
    ("Npz", "path"): ({"data": {"set": "npz", "path": "{}"}}, npz),
    ("Npz", "test_path"): ({"data": {"set": "npz", "path": "{first}", "test_path": "{}"}}, npz),
    ("QuadraticData", "path"): (
        {
            "data": {"set": "quadratic", "path": "{}"},
            "model": {"kind": "quadratic"},
            "algorithm": {"kind": "adpsgd", "batch_size": 1},
        },
        forms,
    ),
    ("LinearData", "path"): ({"data": {"set": "linear", "path": "{}"}, "model": {"kind": "linear"}}, rows),
    ("LogisticData", "path"): ({"data": {"set": "logistic", "path": "{}"}}, rows),
    ("Table", "path"): ({"data": {"set": "table", "path": "{}", "target": "label"}}, table),
    ("Table", "test_path"): (
        {"data": {"set": "table", "path": "{first}", "test_path": "{}", "target": "label"}},
        table,
    ),
    ("HuggingFace", "path"): ({"data": {"set": "huggingface", "path": "{}"}}, parquet),
    ("Leaf", "path"): ({"data": {"set": "leaf", "path": "{}"}}, leaf),
    ("TextData", "path"): ({"data": {"set": "text", "path": "{}", "length": 8}, "model": {"kind": "lstm"}}, text),
    ("Init", "source"): ({"data": {"set": "digits"}, "init": {"from": "{}"}}, model),
}
SMALL = {
    "data": {"set": "logistic", "samples": 60, "dimension": 3},
    "clients": {"count": 4, "seconds_per_example": "1 ms"},
    "algorithm": {"kind": "adpsgd", "batch_size": 2},
    "stop": {"updates": 8},
}


def file_fields():
    """Return class, field and mark of every text in the schema that is marked as the path of a file."""
    return [
        (section.__name__, name, mark)
        for section in sections()
        for name, field in section.model_fields.items()
        for mark in file_marks(field)
    ]


def sections():
    """Return all classes of the schema."""
    classes, left = set(), [Scenario]
    while left:
        section = left.pop()
        if section not in classes:
            classes.add(section)
            left += [member for field in section.model_fields.values() for member in members_of(field.annotation)]
    return classes


def scenario_of(case, tmp_path):
    """Return the scenario of a case, and a function that writes the first or a later version of its file."""
    named, content = CASES[case]
    paths = {
        "{}": tmp_path / f"file{'.npz' if content in (npz, model, forms, rows) else ''}",
        "{first}": tmp_path / "first.npz",
    }

    def filled(value):
        if isinstance(value, dict):
            return {key: filled(one) for key, one in value.items()}
        if isinstance(value, list):
            return [filled(one) for one in value]
        return str(paths.get(value, value)) if isinstance(value, str) else value

    def write(step, path=paths["{}"]):
        written = (
            content(step)
            if content not in (mnist, emnist, cifar, cifar100, svhn, leaf, parquet, npz, model, forms, rows)
            else content(path, step)
        )
        if isinstance(written, str):
            path.write_text(written)

    write(1, paths["{first}"])
    write(1)
    return from_mapping({**SMALL, **filled(named)}, "run"), write


def checkpoint_of(scenario):
    """Return a new checkpoint of a scenario."""
    position = Position(0, 0.0, 0, [], 0, 0)
    return Checkpoint(Path("checkpoint.npz"), print_of(scenario), position, 0.0, 0, [], Record([], [], 0), [])


def print_of(scenario):
    return fingerprint(prepare(scenario), choose_device("cpu"), 4)


def test_every_field_of_the_schema_that_names_a_file_has_a_case():
    assert {(section, name) for section, name, _ in file_fields() if section != "_Table"} == set(CASES)


def test_every_schema_text_about_a_file_is_marked_or_a_known_exception():
    words, others = ("file", "path", "folder", "archive"), {"unit", "column", "name", "every"}
    speaking = {
        f"{section.__name__}.{name}"
        for section in sections()
        for name, field in section.model_fields.items()
        if "str" in str(field.annotation) and not file_marks(field) and name not in others
        if any(word in f"{name} {field.description}".lower() for word in words)
    }
    assert speaking == set(), "make it a WorldFile or a ContentFile"


@pytest.mark.slow(but=["Npz-path"])
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_a_checkpoint_is_not_resumed_with_another_file(case, tmp_path):
    scenario, write = scenario_of(case, tmp_path)
    since = checkpoint_of(scenario)
    since.check(print_of(scenario))
    write(2)
    with pytest.raises(DataError, match=r"expected the .* of the checkpoint, it has changed; restore it"):
        since.check(print_of(scenario))
    write(1)
    since.check(print_of(scenario))


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_the_walk_over_a_scenario_finds_the_file(case, tmp_path):
    scenario, _ = scenario_of(case, tmp_path)
    of_world = {(section, name): mark.of_world for section, name, mark in file_fields()}[case]
    assert str(tmp_path / "file") in "\n".join((world_files if of_world else content_files)(scenario))
