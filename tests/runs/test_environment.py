"""What the environment says about JAX, the terminal or the disk neither ends a run nor changes its tables."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from simfl.errors import ScenarioError
from simfl.models import lazy
from simfl.models.lazy import SETTINGS
from simfl.tape.executor import choose_device

ROOT = Path(__file__).parents[2]
OTHERS = {
    "jax_enable_x64": True,
    "jax_numpy_dtype_promotion": "strict",
    "jax_disable_jit": True,
    "jax_default_matmul_precision": "bfloat16",
    "jax_threefry_partitionable": False,
    "jax_random_seed_offset": 3,
    "jax_transfer_guard": "disallow",
}


@pytest.fixture
def other(request):
    before = getattr(jax.config, request.param)
    jax.config.update(request.param, OTHERS[request.param])
    yield request.param
    jax.config.update(request.param, getattr(before, "value", before))


@pytest.mark.parametrize("other", OTHERS, indirect=True)
def test_settings_of_jax_in_the_environment_are_for_other_programs(other, monkeypatch):
    monkeypatch.setenv(other.upper(), "1")
    monkeypatch.setattr(lazy, "_started", False)
    assert choose_device("cpu").platform == "cpu"
    found = jax.config.values[other]
    assert getattr(found, "value", found) == SETTINGS[other]


@pytest.mark.parametrize("other", OTHERS, indirect=True)
def test_settings_of_jax_that_a_program_has_made_are_one_line(other, monkeypatch):
    monkeypatch.delenv(other.upper(), raising=False)
    with pytest.raises(ScenarioError, match=rf"^jax\.config\.{other}: expected .*, found .*; set it back before simfl"):
        choose_device("cpu")


def simfl(*words, out=subprocess.PIPE, **variables):
    """Run the command line in a process of its own; return its exit code, stdout and stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "simfl", *map(str, words)],
        stdout=out,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        check=False,
    )
    return done.returncode, (done.stdout or b"").decode(), done.stderr.decode()


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(
        "name: tiny\ndata: {set: digits}\nclients: {count: 4}\nalgorithm: {kind: adpsgd, batch_size: 8}\n"
        "stop: {updates: 8}\n"
    )
    return path


@pytest.mark.slow
def test_a_run_has_the_same_tables_whatever_the_environment_says_about_jax(tiny, tmp_path):
    digests = set()
    settings = {}, {"JAX_ENABLE_X64": "1", "JAX_DISABLE_JIT": "1"}, {"JAX_PLATFORMS": "cuda"}
    for number, variables in enumerate(settings):
        code, _, err = simfl("run", tiny, "--out", tmp_path, "--device", "cpu", "--quiet", **variables)
        assert code == 0, err
        digests.add(json.loads((tmp_path / "tiny" / f"00{number + 1}" / "manifest.json").read_text())["digest"])
    assert len(digests) == 1


@pytest.mark.slow
def test_devices_that_are_not_there_are_one_line(tiny, tmp_path):
    other = tmp_path / "other.yaml"
    shutil.copy(tiny, other)
    for paths in (tiny,), (tiny, other):
        code, _, err = simfl("run", *paths, "--out", tmp_path, JAX_PLATFORMS="cuda")
        assert code == 2
        said = [line for line in err.splitlines() if "JAX_PLATFORMS" in line]
        assert len(said) == 1
        assert said[0].startswith("JAX_PLATFORMS: expected devices of this machine, found 'cuda'; unset it")


def test_a_terminal_without_unicode_gets_other_characters():
    code, out, err = simfl("list", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (code, err) == (0, "")
    assert out.isascii()
    assert "adpsgd" in out


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [("list",), ("--version",)])
def test_a_full_disk_below_standard_output_is_one_line(words, unbuffered):
    if not Path("/dev/full").exists():
        pytest.skip("only Linux has a full device")
    with open("/dev/full", "wb") as full:
        code, _, err = simfl(*words, out=full, PYTHONUNBUFFERED=unbuffered)
    assert (code, err) == (1, "standard output: cannot write: No space left on device\n")
