"""Compiled programs are cached below the results for later runs."""

import os

import jax
import pytest
from jax._src import lru_cache  # what writes the folder, and has no public name
from jax.experimental.compilation_cache import compilation_cache

from simfl.records import read
from simfl.runs.programs import compiled_in, folder_of
from simfl.tape.stored import ENDING

DIR = "jax_compilation_cache_dir"
TINY = """
name: tiny
data: {set: digits, partition: {kind: iid}}
model: {kind: softmax}
clients: {count: 3}
algorithm: {kind: adpsgd, batch_size: 4, step_size: 0.1}
stop: {updates: 20}
evaluate: {every: {updates: 10}}
"""


@pytest.fixture
def nothing_kept(monkeypatch):
    """Remove the cache folder that JAX has in these tests, as on a user's machine."""
    names = DIR, "jax_persistent_cache_min_compile_time_secs", "jax_persistent_cache_min_entry_size_bytes"
    before = {name: getattr(jax.config, name) for name in names}
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    jax.config.update(DIR, None)
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.mark.slow
def test_a_run_reuses_compiled_programs_of_an_earlier_one(nothing_kept, simfl_, tmp_path):
    path, out = tmp_path / "tiny.yaml", tmp_path / "o"
    path.write_text(TINY)
    kept = []
    for _ in range(2):
        jax.clear_caches()
        assert simfl_("run", path, "--out", out, "--quiet")[0] == 0
        files = [
            file for file in (out / ".compiled").iterdir() if file.suffix == ENDING or file.name.endswith("-cache")
        ]
        kept.append({file.name: file.stat().st_mtime_ns for file in files})
        assert getattr(jax.config, DIR) is None
    assert any(name.endswith(ENDING) for name in kept[0])
    assert kept[0] == kept[1]
    assert len({read(folder).manifest.digest for folder in (out / "tiny").iterdir()}) == 1


@pytest.mark.slow
def test_truncated_programs_are_compiled_again_without_a_warning(nothing_kept, simfl_, tmp_path, recwarn):
    path, out = tmp_path / "tiny.yaml", tmp_path / "o"
    path.write_text(TINY)
    for _ in range(2):
        jax.clear_caches()
        assert simfl_("run", path, "--out", out, "--quiet")[0] == 0
        for program in [*(out / ".compiled").glob("*-cache"), *(out / ".compiled").glob(f"*{ENDING}")]:
            program.write_bytes(program.read_bytes()[:100])
    assert not [str(warning.message) for warning in recwarn]
    assert len({read(folder).manifest.digest for folder in (out / "tiny").iterdir()}) == 1


def test_a_run_continues_without_a_warning_if_the_cache_is_not_writable(
    nothing_kept, simfl_, tmp_path, recwarn, monkeypatch
):
    def refuse(*arguments):
        raise PermissionError("read-only")

    monkeypatch.setattr(lru_cache.LRUCache, "put", refuse)
    path, out = tmp_path / "tiny.yaml", tmp_path / "o"
    path.write_text(TINY)
    jax.clear_caches()
    assert simfl_("run", path, "--out", out, "--quiet")[0] == 0
    assert not list((out / ".compiled").glob("*-cache"))
    assert not [str(warning.message) for warning in recwarn]


def test_the_users_own_cache_of_jax_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "elsewhere")
    assert folder_of(tmp_path) is None
    before = getattr(jax.config, DIR)
    with compiled_in(None):
        assert getattr(jax.config, DIR) == before


@pytest.mark.parametrize("stays", [False, True])
def test_cache_is_set_within_the_block_or_stays(nothing_kept, tmp_path, stays):
    folder = folder_of(tmp_path)
    assert folder == str(tmp_path / ".compiled")
    with compiled_in(folder, stays):
        assert getattr(jax.config, DIR) == folder
    assert getattr(jax.config, DIR) == (folder if stays else None)


def test_a_pipe_among_the_files_of_jax_is_not_opened(nothing_kept, tmp_path):
    os.mkfifo(tmp_path / "jit_step-0123-cache")
    said = pytest.warns(UserWarning, match="step-0123-cache: expected a file, found something else: no compiled")
    with said, compiled_in(str(tmp_path)):
        assert getattr(jax.config, DIR) is None
    (tmp_path / "jit_step-0123-cache").unlink()
    with compiled_in(str(tmp_path)):
        assert getattr(jax.config, DIR) == str(tmp_path)
