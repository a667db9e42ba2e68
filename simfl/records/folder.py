"""The folder of one run: `<root>/<name>/<run>/`.

It holds scenario.yaml, manifest.json and the tables, and is created only when the validated run is about to begin.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa

from simfl.errors import DataError, RunError, ScenarioError
from simfl.records.locks import HeldError, held, is_held
from simfl.records.models import digest_parts, read_models
from simfl.records.tables import SCHEMAS, UNDIGESTED, digest_table
from simfl.records.writer import ROWS_PER_CHUNK, STREAM, TableWriter, cannot_write, regular, replacing, stream_of
from simfl.version import __version__

Status = Literal["running", "done", "diverged", "interrupted", "failed", "killed"]

KILLED = "its process ended without a word; what it had written until then is here"
"""Reason of a killed run: its manifest says that it is running, but no process is."""

ROOM_BYTES = 2**19
"""Disk space reserved for the end of a run: its manifest and small tables."""

_PLAIN_NAME = re.compile(r"[^/\\\x00-\x1f]{1,120}")


@functools.cache
def versions() -> dict[str, str]:
    """Return the software versions that determine a run's numbers."""
    packages = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "numpy")}
    return {"simfl": __version__, **packages, "python": platform.python_version(), "platform": platform.platform()}


def flags() -> str:
    """Return the environment's settings of XLA's compilation and threads; "" for none.

    They change a run's numbers.
    """
    given = sorted(flag for flag in os.environ.get("XLA_FLAGS", "").split() if not flag.startswith("--xla_dump"))
    usual = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "", "PJRT_NPROC": "1"}
    others = (f"{name}={value}" for name in usual if (value := os.environ.get(name) or usual[name]) != usual[name])
    return " ".join([*given, *others])


@dataclass(frozen=True)
class Manifest:
    """Content of manifest.json.

    `status` is done; diverged (a loss became infinite or NaN); interrupted (Ctrl-C, SIGTERM); failed; running until it
    ends; or killed (only read, never written) if it says running but no process is. `reason` says why the run ended,
    `device` on which device models were computed, such as "cpu". `wall_s` are host seconds, `time_s` virtual seconds at
    the end, `updates` those of all clients. `window` updates were recorded before their execution, `width` operations
    executed side by side; `compiled` is about the modules that run for every event (`simfl.compiled`). `digest` is the
    SHA-256 over `tables`, by name, without wall-clock columns: equal for two runs of one scenario. `extra` is anything
    else, such as measured speeds.
    """

    status: Status
    seed: int
    device: str
    reason: str = ""
    wall_s: float = 0.0
    time_s: float = 0.0
    updates: int = 0
    window: int | None = None
    width: int | None = None
    compiled: bool = False
    digest: str = ""
    tables: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=versions)
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def updates_per_s(self) -> float:
        """Updates per host second; NaN at the start."""
        return self.updates / self.wall_s if self.wall_s > 0 else math.nan


def _checked(manifest: Manifest) -> Manifest:
    texts = [manifest.device, manifest.reason, manifest.digest]
    right = {
        "status": isinstance(manifest.status, str) and manifest.status in get_args(Status),
        "seed": _counts(manifest.seed, 2**64),
        "device, reason, digest": all(isinstance(text, str) for text in texts),
        "wall_s, time_s": all(_measures(value) for value in (manifest.wall_s, manifest.time_s)),
        "updates": _counts(manifest.updates, 2**63),
        "window, width": all(value is None or _counts(value, 2**63) for value in (manifest.window, manifest.width)),
        "tables, versions": all(
            isinstance(names, dict) and all(isinstance(text, str) for text in names.values())
            for names in (manifest.tables, manifest.versions)
        ),
        "compiled": isinstance(manifest.compiled, bool),
        "extra": isinstance(manifest.extra, dict) and _is_noise(manifest.extra.get("noise", {})),
    }
    wrong = next((name for name, is_right in right.items() if not is_right), None)
    if wrong:
        raise ValueError(f"{wrong}: found something else than a run writes")
    return manifest


def _is_noise(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(ends, list) and len(ends) == 2 and all(map(_measures, ends)) for ends in value.values()
    )


def _counts(value: object, below: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < below


def _measures(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e300


class RunFolder:
    """Paths, files and lock of one run's existing folder."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.lock_path = self.path / "run.lock"
        self.scenario_path = self.path / "scenario.yaml"
        self.manifest_path = self.path / "manifest.json"

    @classmethod
    def create(cls, root: Path, name: str, run_id: str | None = None) -> RunFolder:
        """Create `<root>/<name>/<run_id>/`.

        An existing folder `run_id` is reused; None takes the next free number from 001, safe for several processes.
        ScenarioError if a name is not a plain folder name, or if the place is not writable.
        """
        for key, value in (("name", name), ("run id", run_id)):
            if value is not None and (
                not _PLAIN_NAME.fullmatch(value) or value in {".", ".."} or value != value.strip()
            ):
                raise ScenarioError(f"{key}: expected a plain folder name without slashes, found {value!r}")
        parent = Path(root) / name
        try:
            parent.mkdir(parents=True, exist_ok=True)
            if run_id is not None:
                (parent / run_id).mkdir(exist_ok=True)
                return cls(parent / run_id)
            number = max((int(path.name) for path in parent.iterdir() if path.name.isdecimal()), default=0)
            while True:
                number += 1
                try:
                    (parent / f"{number:03d}").mkdir()
                except FileExistsError:
                    continue
                return cls(parent / f"{number:03d}")
        except OSError as error:
            raise ScenarioError(
                f"{parent}: cannot make a folder for results: {error.strerror}; choose --out"
            ) from error

    @contextlib.contextmanager
    def held(self) -> Iterator[Callable[[], None]]:
        """Lock the folder within a block, after removing an earlier run's files.

        The block gets the function that releases the reserved disk space. ScenarioError if another process writes here,
        or if the folder is not writable.
        """
        with contextlib.ExitStack() as stack:
            try:
                make_room = stack.enter_context(held(self.lock_path, ROOM_BYTES))
                for pattern in ("manifest.json", "*model*.npz", "*.parquet", f"*{STREAM}", "*.partial"):
                    for path in self.path.glob(pattern):
                        path.unlink(missing_ok=True)
            except HeldError as error:
                raise ScenarioError(f"{self.path}: {error} is writing this run; wait for it") from None
            except OSError as error:
                raise ScenarioError(f"{self.path}: cannot write into it: {error.strerror}; choose --out") from error
            yield make_room

    def table_path(self, name: str) -> Path:
        """Return the path of a table, whether or not it exists."""
        return self.path / f"{name}.parquet"

    def models_path(self, name: str) -> Path:
        """Return the path of "model" or "client_models", whether or not it exists."""
        return self.path / f"{name}.npz"

    def stream_path(self, name: str) -> Path:
        """Return the path of an incomplete table's rows."""
        return stream_of(self.table_path(name))

    def table(self, name: str, rows_per_chunk: int = ROWS_PER_CHUNK, further: pa.Schema | None = None) -> TableWriter:
        """Begin a table of `SCHEMAS` or `UNDIGESTED`, with additional last columns."""
        schema = pa.schema([*(SCHEMAS | UNDIGESTED)[name], *(further or ())])
        return TableWriter(self.table_path(name), schema, rows_per_chunk)

    def write_scenario(self, text: str) -> None:
        """Write the resolved scenario, as YAML."""
        self._write(self.scenario_path, text)

    def write_manifest(self, manifest: Manifest) -> None:
        """Write or replace the manifest."""
        self._write(self.manifest_path, json.dumps(dataclasses.asdict(manifest), indent=2, ensure_ascii=False) + "\n")

    def _write(self, path: Path, text: str) -> None:
        try:
            replace_text(path, text)
        except OSError as error:
            raise RunError(f"{path}: {cannot_write('the file', path, error)}") from error

    def read_manifest(self) -> Manifest:
        """Read the manifest back; DataError if it is missing or damaged.

        A run that says it is running, but is not, was killed.
        """
        manifest = self._written_manifest()
        if manifest.status == "running" and is_held(self.lock_path) is False:
            manifest = self._written_manifest()  # it may have ended just now
            if manifest.status == "running":
                return dataclasses.replace(manifest, status="killed", reason=KILLED)
        return manifest

    def _written_manifest(self) -> Manifest:
        try:
            values = json.loads(regular(self.manifest_path).read_text(encoding="utf-8"))
            names = {entry.name for entry in dataclasses.fields(Manifest)}
            return _checked(Manifest(**{name: value for name, value in values.items() if name in names}))
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            problem = "no such file" if isinstance(error, FileNotFoundError) else " ".join(str(error).split())[:200]
            raise DataError(f"{self.manifest_path}: expected the manifest of a run: {problem}") from error

    def is_whole(self, manifest: Manifest) -> bool:
        """Return whether scenario, tables and models match a manifest."""
        try:
            digest = manifest.extra.get("scenario_text")
            text = regular(self.scenario_path).read_text(encoding="utf-8") if digest is not None else ""
            if digest not in (None, digest_text(text)):
                return False
            models = manifest.extra.get("models") or {}
            return self.digests() == manifest.tables and all(
                digest_parts(read_models(self.models_path(name))) == model for name, model in models.items()
            )
        except (OSError, ValueError, TypeError, AttributeError, pa.ArrowException, DataError):
            return False

    def digests(self) -> dict[str, str]:
        """Return the digest of each complete table, by name."""
        return {name: digest_table(self.table_path(name)) for name in SCHEMAS if self.table_path(name).exists()}

    def digest(self) -> str:
        """Return one digest over all complete tables."""
        return combine_digests(self.digests())


def combine_digests(digests: dict[str, str]) -> str:
    """Return the digest of a run from those of its tables."""
    return hashlib.sha256("".join(f"{name}:{digests[name]};" for name in sorted(digests)).encode()).hexdigest()


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 of a file; "" if it is missing or cannot be read."""
    try:
        if not path.is_file():  # reading a pipe would never end
            return ""
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def digest_text(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def replace_text(path: Path, text: str) -> None:
    """Write a text atomically: the file is either the old or the new one."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")
