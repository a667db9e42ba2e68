"""Programs in files are found by what determines them, and compute the same bits without being traced."""

import dataclasses
import functools
import hashlib
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import simfl
from simfl.models.softmax import Softmax
from simfl.runs.programs import compiled_in
from simfl.tape import kernels, stored
from simfl.tape.cores import _core, moved
from simfl.tape.problem import Batches, Noise, Operation
from simfl.tape.stored import Program, described
from tests.helpers import limited

MODEL = Softmax((8,), 3)
OPERATION = Operation(MODEL, Batches("poisson", 4), 8, "example", noise=Noise("gaussian"))
FIRST, SECOND = (lambda x: x + 1.0), (lambda x: x - 1.0)
BASE = {
    "data": {"set": "digits"},
    "clients": {"count": 4},
    "algorithm": {"kind": "adpsgd", "batch_size": 4},
    "stop": {"updates": 8},
}


@pytest.fixture
def folder(tmp_path):
    before = stored.store_in(tmp_path)
    yield tmp_path
    stored.store_in(before)


def counted(name="counted"):
    """Return a program that counts its traces."""
    traces = []

    def run(bank, data):
        traces.append(None)
        return bank.at[0].set(jnp.sin(data["x"]).sum()), data["x"] * 3.0

    return Program(jax.jit(run, donate_argnums=0), name, (OPERATION, 4)), traces


def arguments(rows=5):
    return jax.device_put(np.ones((rows, 8), np.float32)), {"x": jax.device_put(np.arange(8.0, dtype=np.float32))}


def test_another_program_reads_the_file_without_tracing(folder):
    first, traces = counted()
    expected = first(*arguments())
    assert len(traces) == 1
    (path,) = folder.glob("*.program")
    second, none = counted()
    for _ in range(2):
        made = second(*arguments())
        assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(made), jax.tree.leaves(expected), strict=True))
    assert not none
    assert list(folder.glob("*")) == [path]


def test_another_core_reads_the_file_without_tracing(folder):
    first, _ = counted()
    bank, _ = first(*arguments())
    second, none = counted()
    given = moved(arguments(), _core(1))
    made, _ = second(*given)
    assert made.devices() == {_core(1)} != bank.devices()
    assert np.array_equal(made, bank)
    assert not none
    assert len(list(folder.glob("*"))) == 1


def test_shapes_factories_and_sources_have_files_of_their_own(folder, monkeypatch):
    counted()[0](*arguments())
    counted()[0](*arguments(rows=6))
    counted("another")[0](*arguments())
    monkeypatch.setattr(stored, "_surroundings", lambda: "changed sources")
    program, traces = counted()
    program(*arguments())
    assert len(traces) == 1
    assert len(list(folder.glob("*"))) == 4


def test_settings_that_change_in_a_process_have_files_of_their_own(folder):
    program, traces = counted()
    for precision in (None, "highest", None):
        jax.config.update("jax_default_matmul_precision", precision)
        stored.store_in(folder)
        program(*arguments())
    assert len(list(folder.glob("*"))) == 2
    assert len(traces) == 2


@pytest.mark.parametrize("damage", [lambda content: content[:100], lambda content: content[:-1] + b"?", lambda _: b""])
def test_a_damaged_file_is_written_anew(folder, damage):
    counted()[0](*arguments())
    (path,) = folder.glob("*")
    content = path.read_bytes()
    path.write_bytes(damage(content))
    program, traces = counted()
    program(*arguments())
    assert len(traces) == 1
    assert len(path.read_bytes()) > 200
    again, none = counted()
    again(*arguments())
    assert not none


@pytest.mark.parametrize("kind", ["pipe", "device", "large"])
def test_only_regular_files_of_the_size_of_a_program_are_read(folder, kind, monkeypatch):
    counted()[0](*arguments())
    (path,) = folder.glob("*")
    if kind == "large":
        monkeypatch.setattr(stored, "MOST_BYTES", path.stat().st_size - 1)
    else:
        path.unlink()
        os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    program, traces = counted()
    with limited(20, "reading the program"):
        program(*arguments())
    assert len(traces) == 1
    assert path.is_file()
    content = path.read_bytes()  # of another length: XLA numbers its programs
    assert hashlib.sha256(content[32:]).digest() == content[:32], "it is written anew"


def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path):
    occupied = tmp_path / "a file"
    occupied.write_text("")
    before = stored.store_in(occupied)
    try:
        program, traces = counted()
        program(*arguments())
        program(*arguments())
    finally:
        stored.store_in(before)
    assert len(traces) == 1


def test_nothing_is_stored_of_numbers_of_python_or_without_a_folder(folder):
    program, _ = counted()
    program(arguments()[0], {"x": 1.0})
    stored.store_in(None)
    program(*arguments())
    assert not list(folder.glob("*"))


def test_equal_values_have_equal_descriptions_and_others_do_not():
    values = [
        OPERATION,
        dataclasses.replace(OPERATION, lanes=9),
        dataclasses.replace(OPERATION, noise=Noise("laplace")),
        dataclasses.replace(OPERATION, model=Softmax((8,), 3, l2=0.1)),
        1, 1.0, True, "1", None, (1, 2), [1, 2], (1, (2,)), {"a": 1}, np.float32(1), np.ones(1), np.ones(1, "f4"),
        np.zeros(1), jnp.tanh, jax.nn.relu, Softmax,
        functools.partial(jnp.sum, axis=0), functools.partial(jnp.sum, axis=1),
    ]  # fmt: skip
    texts = [described(value) for value in values]
    assert len(set(texts)) == len(values)
    assert texts[0] == described(dataclasses.replace(OPERATION))


def test_closures_of_simfl_are_their_code_and_what_they_hold(monkeypatch):
    monkeypatch.setattr(stored, "KNOWN", (*stored.KNOWN, __name__.partition(".")[0]))

    def closure(x):
        return lambda: x

    assert described(closure(1)) == described(closure(1)) != described(closure(2))
    assert described(FIRST) != described(SECOND)


def test_what_a_user_wrote_has_no_description():
    with pytest.raises(stored._UnknownError):
        described(FIRST)
    with pytest.raises(stored._UnknownError):
        described((1, object()))
    with pytest.raises(stored._UnknownError):
        described(dataclasses.make_dataclass("Own", ["a"])(1))


@pytest.mark.slow
def test_descriptions_are_the_same_in_another_process():
    code = """
from simfl.tape.stored import described, _surroundings
from tests.tape.test_stored import OPERATION
import hashlib
print(hashlib.sha256(described(OPERATION).encode()).hexdigest())
"""
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(2)]
    assert len({run.stdout for run in runs}) == 1


MLP = {"model": {"kind": "mlp", "hidden": [4]}}
PRIVATE = {"privacy": {"mechanism": "gaussian", "clipping_norm": 1.0, "noise_multiplier": 1.0}}
ROUNDS = {"algorithm": {"kind": "fedavg", "batch_size": 4, "local_steps": 2, "optimizer": "adam"}}
GRADIENTS = {"evaluate": {"every": {"updates": 4}, "gradients": 20, "metrics": ["macro_f1"], "clients": True}}


@pytest.mark.slow
@pytest.mark.parametrize(
    "change", [{}, MLP, PRIVATE, ROUNDS, GRADIENTS], ids=["plain", "mlp", "private", "rounds", "all"]
)
def test_runs_from_files_have_equal_digests(tmp_path, change):
    scenario = BASE | change
    plain = simfl.run(scenario, out=tmp_path / "plain").manifest.digest
    for _ in range(2):
        for factory in vars(kernels).values():
            if hasattr(factory, "cache_clear") and hasattr(factory, "cache_parameters"):
                factory.cache_clear()
        with compiled_in(str(tmp_path / "programs")):
            assert simfl.run(scenario, out=tmp_path / "stored").manifest.digest == plain
    assert len(list((tmp_path / "programs").glob("*.program"))) >= 3


def test_a_program_that_jax_took_from_its_own_cache_is_compiled_again_for_the_file(folder, tmp_path):
    @functools.partial(jax.jit, donate_argnums=0)
    def run(bank, data):
        return bank.at[0].set(jnp.sin(data["x"]).sum()), jnp.sort(data["x"] * 3.0)

    stored.store_in(None)
    with compiled_in(str(tmp_path / "cache"), stays=False):
        stored.store_in(None)
        for _ in range(2):
            expected = run(*arguments())
            jax.clear_caches()
        run(*arguments())
        stored.store_in(folder)
        Program(run, "cached", ())(*arguments())
        assert list(folder.glob("*.program"))
        made = Program(run, "cached", ())(*arguments())
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(made), jax.tree.leaves(expected), strict=True))
