"""Compiled programs in files: another process runs them without tracing.

JAX's own cache is looked up by the lowered program, and tracing and lowering take longer than reading what they find.
Here a program is looked up by what determines it: the arguments of its factory, the shapes of its own arguments, the
sources of simfl, versions, settings and the processor. What cannot be described in this way, such as a user's model, is
traced as usual, and so is everything if no folder is set. A file that cannot be read, or does not fit, is written anew.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import io
import os
import pickle
import pkgutil
import platform
import stat
import threading
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

import jax
import numpy as np
from jax.experimental import serialize_executable
from jax.experimental.compilation_cache import compilation_cache

from simfl.version import __version__

ENDING = ".program"
#: A program's file is smaller; a larger one is not read.
MOST_BYTES = 2**28
#: Packages whose functions and classes are known by their names: simfl's sources are part of a key, others' versions.
KNOWN = ("simfl", "jax", "jaxlib", "numpy", "optax")

#: Held while a program is looked for: JAX's settings are changed meanwhile.
_finding = threading.Lock()

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_SOURCES = Path(__file__).parents[1]

#: The folder of files; None: programs are not stored.
_folder: Path | None = None
#: JAX's settings when the folder was set, as pairs: programs found under others are looked up again.
_settings: tuple[tuple[str, Any], ...] = ()


class _UnknownError(Exception):
    """A value has no description that is the same in another process."""


def store_in(folder: str | Path | None) -> Path | None:
    """Store programs in a folder from now on; return the folder before.

    JAX's settings of this moment hold for all programs that are called until the folder is set again.
    """
    global _folder, _settings
    before, _folder = _folder, None if folder is None else Path(folder)
    settings = tuple(sorted((name, value) for name, value in jax.config.values.items() if "cache" not in name))
    if settings != _settings:
        _settings = settings
    return before


class Program:
    """A jitted function, whose compiled programs may come from files.

    `factory` and `arguments` say what made the function. It is called with arrays.
    """

    def __init__(self, jitted: Any, factory: str, arguments: tuple[Any, ...]) -> None:
        self._jitted = jitted
        self._made_by = factory, arguments
        self._found: dict[Any, Callable[..., Any]] = {}
        self._settings = _settings

    def __call__(self, *arguments: Any) -> Any:
        """Call the function."""
        if _folder is None:
            return self._jitted(*arguments)
        if self._settings is not _settings:
            self._found, self._settings = {}, _settings
        leaves, tree = jax.tree.flatten(arguments)
        try:
            # Arrays of one call are on the same devices. To hash a sharding takes as long as a small program.
            where = next((leaf.sharding for leaf in leaves if isinstance(leaf, jax.Array)), None)
            signature = tree, where, tuple([(leaf.shape, leaf.dtype) for leaf in leaves])
        except AttributeError:  # a number of Python
            return self._jitted(*arguments)
        program = self._found.get(signature)
        if program is None:
            program = self._found[signature] = self._find(_folder, arguments, tree, leaves) or self._jitted
        return program(*arguments)

    @functools.cached_property
    def _description(self) -> str:
        return described(self._made_by)

    def _find(self, folder: Path, arguments: tuple[Any, ...], tree: Any, leaves: Sequence[Any]) -> Any:
        """Return the program for such arguments; None if it cannot be stored.

        It is read from a file, or compiled and written.
        """
        shardings = {leaf.sharding for leaf in leaves if isinstance(leaf, jax.Array)}
        devices = {jax.devices()[0]} if not shardings else {one for each in shardings for one in each.device_set}
        device = devices.pop()
        if devices or device.platform != "cpu" or jax.devices()[0].platform != "cpu":
            return None
        try:
            parts = _surroundings(), _settings, self._description, tree, [(leaf.shape, leaf.dtype) for leaf in leaves]
        except (_UnknownError, RecursionError):
            return None
        path = folder / f"{hashlib.sha256(repr(parts).encode()).hexdigest()}{ENDING}"
        with _finding:  # the cores of one run look for the same program
            found = _read(path, jax.tree.structure((arguments, {})), device)
            return found or _compiled(path, self._jitted, arguments)


def _read(path: Path, tree: Any, device: jax.Device) -> Any:
    """Return the program of a file on a device; None if no file is whole and fits."""
    try:
        content = _content(path)
        digest, rest = content[:32], content[32:]
        if hashlib.sha256(rest).digest() != digest:
            return None
        program, out = pickle.loads(rest)
        # What `deserialize_and_load` does, for any client: a core is a client of its own.
        reader = serialize_executable._JaxPjrtUnpickler(io.BytesIO(program), device.client, [device])
        unloaded, about, no_kwargs = reader.load()
        about = tree.unflatten(about)
        return jax.stages.Compiled(unloaded.load(), [], about, jax.tree.structure(out), no_kwargs=no_kwargs)
    except Exception:  # another version, a damaged file: it is compiled again
        return None


def _content(path: Path) -> bytes:
    """Return the content of a regular file of a program's size.

    OSError for anything else, such as a pipe.
    """
    # Opening a pipe would wait for a writer.
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode) or about.st_size > MOST_BYTES:
            raise OSError("it is not the file of a program")
        return file.read(MOST_BYTES)


def _compiled(path: Path, jitted: Any, arguments: tuple[Any, ...]) -> Any:
    """Compile a program and write it to a file, if that is possible."""
    lowered = jitted.lower(*arguments)
    # What JAX's cache has returned cannot be stored: it lacks functions that were compiled with it. A program may be in
    # memory from there, which an option, here at its default, does not find.
    folder = jax.config.jax_compilation_cache_dir
    _cache_in(None)
    try:
        compiled = lowered.compile({"xla_embed_ir_in_executable": False})
    finally:
        _cache_in(folder)
    try:
        program, _, out = serialize_executable.serialize(compiled)
        rest = pickle.dumps((program, jax.tree.unflatten(out, range(out.num_leaves))))
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_bytes(hashlib.sha256(rest).digest() + rest)
        partial.replace(path)
    except Exception:  # a full disk, or what cannot be serialized: the program is compiled again next time
        pass
    return compiled


def _cache_in(folder: str | None) -> None:
    jax.config.update("jax_compilation_cache_dir", folder)
    compilation_cache.reset_cache()


def described(value: Any) -> str:
    """Return a text that equal values have in every process, and others do not.

    Raises:
        _UnknownError: there is none.
    """
    kind = type(value)
    if kind in _PLAIN:
        return f"{kind.__name__} {value!r}"
    if isinstance(value, tuple | list | frozenset | set):
        items = [described(item) for item in value]
        return f"{_name(kind)}{sorted(items) if isinstance(value, frozenset | set) else items}"
    if isinstance(value, dict):
        return f"{_name(kind)}{[(described(key), described(item)) for key, item in value.items()]}"
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise _UnknownError
        return f"{array.dtype.str} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"
    if isinstance(value, np.dtype):
        return f"dtype {value.str}"
    if isinstance(value, enum.Enum):
        return f"{_name(kind)} {value.name}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [(field.name, described(getattr(value, field.name))) for field in dataclasses.fields(value)]
        return f"{_name(kind)}{fields}"
    if isinstance(value, functools.partial):
        return f"partial{described((value.func, value.args, value.keywords))}"
    if isinstance(value, MethodType):
        return f"method{described((value.__func__, value.__self__))}"
    if isinstance(value, FunctionType) and "<" in value.__qualname__:
        return _described_closure(value)
    return _name(value)


def _described_closure(function: FunctionType) -> str:
    """Describe a function inside another one: its code, and the values it holds."""
    if function.__module__.partition(".")[0] not in KNOWN:
        raise _UnknownError
    try:
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
    except ValueError:  # a cell is still empty
        raise _UnknownError from None
    held = described((cells, function.__defaults__, function.__kwdefaults__))
    return f"{function.__module__} {function.__qualname__} {_described_code(function.__code__)} {held}"


def _described_code(code: CodeType) -> str:
    constants = [_described_code(one) if isinstance(one, CodeType) else repr(one) for one in code.co_consts]
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    return hashlib.sha256(repr((code.co_code, constants, names)).encode()).hexdigest()


def _name(value: Any) -> str:
    """Return the module and the name under which a known package has a value."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module == "builtins" and value in (tuple, list, dict, set, frozenset):
        return str(name)
    if not isinstance(module, str) or not isinstance(name, str) or module.partition(".")[0] not in KNOWN:
        raise _UnknownError
    try:
        found = pkgutil.resolve_name(f"{module}:{name}")
    except (ImportError, AttributeError, ValueError):
        raise _UnknownError from None
    if found is not value:
        raise _UnknownError
    return f"{module}:{name}"


@functools.cache
def _surroundings() -> str:
    """Describe what else a compiled program depends on."""
    device = jax.devices()[0]
    versions = [f"{name} {version(name)}" for name in KNOWN if name != "simfl"]
    environment = [os.environ.get(name) for name in ("XLA_FLAGS", "PJRT_NPROC")]
    client = device.device_kind, device.client.platform_version
    simfl, python = (__version__, _digest_of_sources()), platform.python_version()
    return repr((simfl, python, versions, client, _processor(), environment))


def _digest_of_sources() -> str:
    digest = hashlib.sha256()
    for folder, inner, names in os.walk(_SOURCES):
        inner.sort()
        for name in sorted(name for name in names if name.endswith(".py")):
            with open(os.path.join(folder, name), "rb") as file:
                content = file.read()
            digest.update(f"{os.path.relpath(folder, _SOURCES)} {name} {len(content)} ".encode())
            digest.update(content)
    return digest.hexdigest()


def _processor() -> str:
    """Describe the processor, whose instructions a program uses."""
    described_by = ("model name", "flags", "Features", "CPU part")
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = file.read(2**14).split("\n\n")[0].splitlines()
        known = [line for line in lines if line.startswith(described_by)]
    except OSError:
        known = []
    return repr((platform.machine(), platform.processor() if not known else "", known))
