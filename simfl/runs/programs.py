"""Compiled programs, cached in a folder of the results."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Below the folder of all results.
FOLDER = ".compiled"


def results_of(folder: Path) -> Path:
    """Return the folder of all results that has a run's folder."""
    written = len(folder.parts) > 1 and ".." not in folder.parts
    return (folder if written else folder.absolute()).parent.parent


def folder_of(out: Path) -> str | None:
    """Return the folder for compiled programs; None if the user set JAX's own cache."""
    return None if os.environ.get("JAX_COMPILATION_CACHE_DIR") else str((out / FOLDER).absolute())


def _has_other_than_files(folder: str) -> bool:
    """Warn of a pipe or a device in the folder: to read it would never end."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if entry.name.endswith(("-cache", "-atime")) and not entry.is_file():
                warnings.warn(
                    f"{entry.path}: expected a file, found something else: no compiled programs are kept; remove it",
                    stacklevel=4,
                )
                return True
    return False


@contextlib.contextmanager
def compiled_in(folder: str | None, stays: bool = False) -> Iterator[None]:
    """Cache compiled programs in a folder within a block; None: no cache.

    Small programs are cached, too: a run compiles some twenty, and each costs more than reading a file. With `stays`
    the setting remains after the block, as in a process that runs one task after the other.
    """
    if folder is None or _has_other_than_files(folder):
        yield
        return
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    from simfl.models.lazy import start_jax
    from simfl.tape.stored import store_in

    start_jax()  # programs are looked up by JAX's settings

    settings: dict[str, Any] = {
        "jax_compilation_cache_dir": folder,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    # JAX compiles again if a kill truncated the file, or if the folder cannot be written; a warning would not help.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")
    before = {name: getattr(jax.config, name) for name in settings}
    stored_before = store_in(folder)
    if before != settings:
        compilation_cache.reset_cache()
    for name, value in settings.items():
        jax.config.update(name, value)
    try:
        yield
    finally:
        if not stays:
            store_in(stored_before)
        if not stays and before != settings:
            for name, value in before.items():
                jax.config.update(name, value)
            compilation_cache.reset_cache()
