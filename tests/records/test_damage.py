"""Damaged folders of runs and sweeps: the undamaged rest is read, or the folder is refused in one line.

Every file is cut, emptied, removed, replaced by a folder or by noise, its bytes are flipped, and its values get wrong
types. Each damaged folder is then read in two of the ways that read results; `SIMFL_FUZZ=500` tries 500 in all ways.
"""

import contextlib
import json
import os
import random
import shutil
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from matplotlib import pyplot

from simfl.accounts.check import check_run
from simfl.comparison.comparing import compare_groups
from simfl.comparison.sweeps import Sweep, SweepRun, open_groups, read_sweep
from simfl.errors import SimflError
from simfl.models import build_model
from simfl.plots import plot, plot_client_epsilon
from simfl.records import Manifest, RunFolder, read, write_models
from simfl.records.folder import combine_digests, digest_text
from simfl.reports.page import write_report
from simfl.reports.trace import write_trace
from simfl.scenario import loads
from simfl.trained.predictions import Trained
from tests.conftest import write_run
from tests.helpers import limited

FEW = 30
TRIES = int(os.environ.get("SIMFL_FUZZ", FEW))
ODD = [
    *(None, True, -1, 0, 1e308, 10**400, "", "1", "x" * 10_000, "\x1b[2J"),
    *([], {}, [[]], {"a": {"b": [1]}}, float("nan")),
]

SOFTMAX = build_model("softmax", input_shape=(64,), num_classes=10)

PRIVATE = """
name: demo
seed: 1
clients: {count: 4, seconds_per_example: 1 ms}
algorithm: {kind: adpsgd, batch_size: 8, step_size: 0.5}
privacy: {mechanism: gaussian, clipping_norm: 1.0, noise_multiplier: 1.0, delta: 1.0e-5}
stop: {updates: 80}
"""


def whole_run(root):
    """A run with every table; no single scenario records all of them."""
    path = write_run(root, privacy={"mechanism": "gaussian"})
    folder = RunFolder(path)
    folder.write_scenario(loads(PRIVATE, "demo").to_yaml())
    rows = {
        "messages": [(0.1 * k, 0.1 * k + 0.05, k % 4, (k + 1) % 4, 100, 0) for k in range(30)],
        "timeline": [(k % 4, 0.1 * k, 0.1 * k + 0.1, k % 5) for k in range(30)],
        "releases": [(k, 8, 0.02, 1.0, 20) for k in range(4)],
        "client_epsilon": [(float(k // 4), k % 4, 5 * (k // 4), 0.1 * (k // 4)) for k in range(20)],
        "client_metrics": [(float(k // 4), 10, k % 4, 0.5, 1.0) for k in range(20)],
        "edges": [(0, 1), (1, 2), (2, 3)],
    }
    for name, values in rows.items():
        with folder.table(name) as table:
            table.extend(values)
    model = write_models(folder.models_path("model"), SOFTMAX.parts(np.ones(SOFTMAX.size, np.float32)))
    digests = folder.digests()
    extra = {"models": {"model": model}, "privacy": "epsilon = 2.5", "warnings": []}
    values = {"time_s": 10.0, "updates": 4000, "wall_s": 2.0}
    folder.write_manifest(
        Manifest("done", 1, "cpu", digest=combine_digests(digests), tables=digests, extra=extra, **values)
    )
    return path


def killed_run(root):
    """A run that was killed after some rows of each table were flushed."""
    path = whole_run(root)
    folder = RunFolder(path)
    manifest = json.loads(folder.manifest_path.read_text())
    manifest["extra"]["scenario_text"] = digest_text(folder.scenario_path.read_text())
    folder.manifest_path.write_text(json.dumps({**manifest, "status": "running", "tables": {}}))
    for parquet in path.glob("*.parquet"):
        rows = pq.read_table(parquet)
        parquet.unlink()
        table = folder.table(parquet.stem)
        for part in (rows.slice(0, 5), rows.slice(5)):
            table.extend_columns({name: part[name].to_numpy() for name in part.column_names})
            table.flush()
    return path


def whole_sweep(root):
    runs = []
    for seed in range(2):
        path = write_run(root / "x", name="study")
        values = ("step_size=0.5", {"step_size": "0.5"}, {"algorithm.step_size": 0.5}, seed, f"{seed:064x}", "done")
        runs.append(SweepRun(path.name, *values))
    study = {"name": "study", "seeds": 2, "compare": {"target": None, "x": ["time"], "y": "test_accuracy"}}
    axes = {"step_size": ["0.5"]}
    Sweep(root / "x" / "study", "study", "why?", "0.1.0", study, axes, tuple(runs), "step_size=0.5").write()
    return root / "x" / "study"


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    root = tmp_path_factory.mktemp("originals")
    other = write_run(root / "other")
    return {"run": whole_run(root / "a"), "killed": killed_run(root / "b"), "sweep": whole_sweep(root)}, other


# -- damage ------------------------------------------------------------------------------------


def damage(path, rng):
    """Damage one file; return a description of the damage."""
    kinds = [cut, empty, flip, remove, folder_instead, noise]
    if path.suffix in (".json", ".yaml"):
        kinds += [wrong_values] * 5
    if path.suffix == ".parquet":
        kinds += [other_types, no_rows, other_rows, other_rows] * 2
    kind = rng.choice(kinds)
    return f"{kind.__name__} {path.name}: {kind(path, rng) or ''}"


def cut(path, rng):
    os.truncate(path, rng.randrange(path.stat().st_size))


def empty(path, rng):
    path.write_bytes(b"")


def flip(path, rng):
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 3, 50])):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def remove(path, rng):
    path.unlink()


def folder_instead(path, rng):
    path.unlink()
    path.mkdir()


def noise(path, rng):
    path.write_bytes(rng.randbytes(rng.randrange(2000)))


def wrong_values(path, rng):
    """Replace, remove or add a value somewhere in JSON or YAML."""
    content = (json.loads if path.suffix == ".json" else yaml.safe_load)(path.read_text())
    place, value = content, rng.choice(ODD)
    while True:
        keys = list(place) if isinstance(place, dict) else range(len(place) if isinstance(place, list) else 0)
        if not keys:
            return "nothing to change"
        key = rng.choice(keys)
        if isinstance(place[key], (dict, list)) and place[key] and rng.random() < 0.7:
            place = place[key]
            continue
        break
    if rng.random() < 0.2:
        del place[key]
    else:
        place[key] = value
    if rng.random() < 0.05:
        content = value
    path.write_text(json.dumps(content) if path.suffix == ".json" else yaml.safe_dump(content))
    return f"{key} = {str(value)[:40]}"


def other_types(path, rng):
    rows = pq.read_table(path)
    position = rng.randrange(rows.num_columns)
    name = rows.column_names[position]
    column = rows[name].to_pylist()
    made = rng.choice(
        [
            pa.array(list(map(str, column))),
            pa.array([None] * len(column), rows.schema.field(name).type),
            pa.array([[value] for value in column]),
            pa.array([value > 0 for value in column]),
            pa.array(np.array(column, float)).cast(pa.float32()),
            pa.array([{"a": value} for value in column]),
        ]
    )
    rows = rows.set_column(position, name, made)
    if rng.random() < 0.3:
        rows = rows.drop_columns([rng.choice(rows.column_names)])
    pq.write_table(rows, path)
    return f"{name}: {made.type}"


def no_rows(path, rng):
    pq.write_table(pq.read_table(path).slice(0, 0), path)


def other_rows(path, rng):
    """Put odd numbers into a table, and update the manifest to match."""
    rows = pq.read_table(path)
    position = rng.randrange(rows.num_columns)
    field = rows.schema.field(position)
    odd = [-1, 0, 2**31 - 1, -(2**31)] if pa.types.is_integer(field.type) else [np.nan, np.inf, -np.inf, -1.0, 1e308]
    values = np.array(rows[field.name].to_numpy())
    values[rng.randrange(len(values)) :] = rng.choice(odd)
    pq.write_table(rows.set_column(position, field, pa.array(values, field.type)), path)
    folder = RunFolder(path.parent)
    with contextlib.suppress(Exception):
        manifest = json.loads(folder.manifest_path.read_text())
        folder.manifest_path.write_text(json.dumps({**manifest, "tables": folder.digests()}))
    return f"{field.name} ... {values[-1]}"


# -- what looks at results ---------------------------------------------------------------------


def ways(folder, other, out):
    """Every way to look at a folder."""
    both = [
        lambda: compare_groups(open_groups([folder, other])[0]),
        lambda: compare_groups(open_groups([folder])[0], 0.5),
        lambda: write_report([folder, other], out / "report.html", check=check_run),
        lambda: write_report([folder], out / "report.html", check=check_run),
    ]
    if (folder / "sweep.json").exists():
        return [lambda: read_sweep(folder).table(), *both]
    return [
        lambda: [getattr(read(folder), name) for name in ("manifest", "metrics", "clients", "updates", "model")],
        lambda: (repr(read(folder)), read(folder)._repr_html_()),
        lambda: write_trace(read(folder), out / "trace.json"),
        lambda: check_run(read(folder)),
        lambda: plot(folder),
        lambda: plot_client_epsilon(folder),
        lambda: Trained(read(folder), "cpu").params,
        *both,
    ]


def look(calls):
    """Return the message of simfl's error; any other error fails the test."""
    refusals = []
    for call in calls:
        try:
            call()
        except SimflError as error:
            refusals.append(str(error))
    return refusals


def damaged_folder(folders, place, rng):
    """Copy a folder and damage some of its files; return a description of the damage."""
    original = folders[rng.choice(["run", "run", "killed", "sweep"])]
    shutil.copytree(original, place)
    files = sorted(path for path in place.rglob("*") if path.is_file())
    done = [original.parent.parent.name]
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        path = rng.choice(files)
        if path.is_file() and path.stat().st_size:
            # What was damaged before may be beyond being damaged in this way.
            with contextlib.suppress(pa.ArrowException, ValueError, OSError, KeyError):
                done.append(damage(path, rng))
    return done


@pytest.mark.slow
def test_every_reader_of_a_damaged_folder_ends_with_one_line(originals, tmp_path):
    folders, other = originals
    rng = random.Random(1)
    refused = 0
    for number in range(TRIES):
        place = tmp_path / "damaged"
        done = damaged_folder(folders, place, rng)
        calls = ways(place, other, tmp_path)
        with warnings.catch_warnings(), limited(60, f"{number}: {done}"):
            warnings.simplefilter("ignore")
            try:
                said = look(calls if TRIES > FEW else rng.sample(calls, 2))
            except Exception as error:
                raise AssertionError(f"{number}: {done}: {type(error).__name__}: {error}") from error
        refused += bool(said)
        assert all(0 < len(line) < 900 for text in said for line in text.splitlines()), (number, done, said)
        pyplot.close("all")
        shutil.rmtree(place)
    assert refused > TRIES // 5
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {"report.html", "trace.json"}, "nothing is left behind"


def test_an_undamaged_folder_is_accepted(originals, tmp_path):
    folders, other = originals
    assert look(ways(folders["run"], other, tmp_path)) == []
    assert look(ways(folders["sweep"], other, tmp_path)) == []
    assert Path(tmp_path / "report.html").exists()
