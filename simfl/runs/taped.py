"""The tape of a run as a file, from which `simfl replay` executes it anew.

`tape.zip` has what the executor and the recorder were given, in this order: windows of operations, evaluations, and
the end. Numbers that come from arithmetic settings are symbols (`simfl.symbols`), as are those in rows of tables. The
tables themselves are not in it: a replay takes them from the run's folder.
"""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from collections.abc import Callable, Collection, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.build.together import Joining
from simfl.each import EachArray, Varied, array_of
from simfl.errors import RunError
from simfl.privacy.releases import Releases
from simfl.records.writer import cannot_write
from simfl.symbols import Name, Symbols
from simfl.tape import Model
from simfl.tape.journal import Together
from simfl.tape.layout import NO_ROW, Branch, Operations
from simfl.tape.recording import Decide, Window

FILE = "tape.zip"
FORMAT = 2
#: How much time is spent on compression: little.
LEVEL = 1
_KINDS = ("gradients", "combines", "serials", "mapped")
#: Begins the name of a constant with the value of one symbol in all places.
ENTRY = "entry"
REMOVE = "set record.tape: false"


class Named(Joining):
    """Makes symbols of numbers; `options` are those that reach models alone."""

    def __init__(self, symbols: Symbols, options: Collection[str]) -> None:
        self._symbols, self._options = symbols, options
        #: The names of arrays, by their identity, and the arrays.
        self.arrays: dict[int, tuple[Name, EachArray]] = {}

    def number(self, name: Name, values: Sequence[float]) -> Any:
        """Return the number and its symbol; a plain one if times may depend on it."""
        if name[0] == "option" and name[1] not in self._options:
            return self._symbols.stays(name, values[0])
        return self._symbols.named(name, values[0])

    def array(self, name: Name, values: Sequence[NDArray[Any]]) -> Any:
        """Return an array that is recognized on the tape."""
        array = EachArray((values[0], values[0]))
        self.arrays[id(array)] = name, array
        return array


class Taping(Together):
    """The executor of a tape that is kept."""

    def __init__(self, taped: Taped, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._taped = taped

    def submit(self, window: Window) -> None:
        """Keep a window, and pass it on."""
        self._taped.window(window)
        super().submit(window)

    def fetch(self, rows: NDArray[np.int32], coefs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Refuse to show numbers to the world."""
        raise RunError(f"record.tape: the algorithm asks for the parameters of models, so events may change; {REMOVE}")

    def probe(
        self,
        rows: NDArray[np.int32],
        coefs: NDArray[np.float32],
        clients: NDArray[np.int32],
        draws: NDArray[np.int32],
        decide: Decide,
    ) -> NDArray[Any]:
        """Refuse to decide by numbers."""
        raise RunError(f"record.tape: the algorithm decides by numbers of models, so events may change; {REMOVE}")


class Taped:
    """Writes the tape of a run; `options` as for `Named`."""

    def __init__(self, options: Collection[str] = ()) -> None:
        self.symbols = Symbols()
        self.naming = Named(self.symbols, options)
        #: What is known before the first event, by name.
        self.about: dict[str, Any] = {}
        self._path = Path(FILE)
        self._archive: zipfile.ZipFile | None = None
        self._order: list[Any] = []
        self._rows: dict[str, int] = {}
        self._branches: tuple[Branch, ...] = ()
        self._optimizer: Any = None

    def open(self, folder: Path, optimizer: Any) -> None:
        """Begin the file; `optimizer` is the scenario's, as a function of models."""
        self._path, self._optimizer = folder / FILE, optimizer
        self._path.unlink(missing_ok=True)
        self._archive = self._tried(lambda: zipfile.ZipFile(self._partial, "w", zipfile.ZIP_DEFLATED, True, LEVEL))

    @property
    def _partial(self) -> Path:
        return self._path.with_suffix(".partial")

    def window(self, window: Window) -> None:
        """Keep a window."""
        arrays: dict[str, Any] = {"dead": np.array(window.dead, dtype=np.int32)}
        for kind in _KINDS:
            operations: Operations = getattr(window, kind)
            arrays |= {f"{kind}/{name}": getattr(operations, name) for name in ("ints", "floats", "levels")}
            arrays |= _varied(kind, operations.varied)
        known = self.naming.arrays
        constants = [(number, *known.get(id(values), (_entry(values), values))) for number, values in window.constants]
        plain = [values for _, name, values in constants if name is None]
        if any(isinstance(values, EachArray) for values in plain):
            raise RunError(f"record.tape: the algorithm makes models of its own of initial ones; {REMOVE}")
        if plain:
            arrays["constants"] = np.stack(plain)
        layouts = [dataclasses.astuple(getattr(window, kind).layout) for kind in _KINDS]
        self._branches = window.branches
        entry = {"rows": window.rows, "branches": len(window.branches), "layouts": layouts}
        self._order.append({**entry, "constants": [(number, name) for number, name, _ in constants]})
        self._write(f"{len(self._order) - 1}.npz", arrays)

    def evaluation(
        self,
        taken: dict[str, float],
        norm: Any,
        adapted: Model | None,
        account: Releases | None,
        models: Sequence[Sequence[Model]],
        reads: int,
    ) -> None:
        """Keep what an evaluation reads of the world: models, and each client's models.

        `norm` is the clipping norm; `adapted` has it as a model, if it follows from data.
        """
        arrays: dict[str, Any] = {}
        for number, listed in enumerate(models):
            arrays |= forms_of(str(number), listed, reads)
        norms, varied = array_of([norm], np.float64)
        symbol = None if varied is None or varied.symbols is None else int(varied.symbols[0])
        numbers = {name: float(value) for name, value in taken.items()}
        about = {"taken": numbers, "norm": float(norms[0]), "symbol": symbol, "account": account_of(account)}
        about["adapted"] = None if adapted is None else adapted.rows[0].number
        self._order.append({"evaluation": about, "models": len(models)})
        self._write(f"{len(self._order) - 1}.npz", arrays)

    def rows(self, name: str) -> Callable[[int, Varied | None], None]:
        """Return what takes the numbers in rows of a table that come from settings."""
        self._rows[name] = 0

        def heard(count: int, varied: Varied | None) -> None:
            if varied is not None and varied.symbols is not None:
                places = varied.places + self._rows[name]
                self._write(f"rows/{name}/{self._rows[name]}.npz", {"places": places, "symbols": varied.symbols})
            self._rows[name] += count

        return heard

    def close(self, end: dict[str, Any]) -> int:
        """Complete the file and return its size in bytes."""
        assert self._archive is not None
        symbols = self.symbols
        about = {
            **self.about,
            "format": FORMAT,
            "order": self._order,
            "rows": self._rows,
            "branches": [
                (_said(branch.function, self._optimizer), branch.inputs, branch.outputs, branch.numbers, branch.pads)
                for branch in self._branches
            ],
            "names": symbols.names,
            "expressions": symbols.expressions,
            "conditions": [(*key, answer) for key, answer in symbols.conditions.items()],
            "fixed": list(symbols.fixed.items()),
            "end": end,
        }
        archive = self._archive
        self._tried(lambda: archive.writestr("about.json", json.dumps(about)))
        self._tried(archive.close)
        self._archive = None
        self._tried(lambda: self._partial.replace(self._path))
        return self._path.stat().st_size

    def drop(self) -> None:
        """Remove what was written of a tape that is not complete."""
        if self._archive is not None:
            self._archive.close()
            self._archive = None
            self._partial.unlink(missing_ok=True)

    def _write(self, name: str, arrays: dict[str, Any]) -> None:
        if self._archive is None:
            return
        content, archive = io.BytesIO(), self._archive
        np.savez(content, **{key: value for key, value in arrays.items() if value is not None})
        self._tried(lambda: archive.writestr(name, content.getvalue()))

    def _tried(self, write: Callable[[], Any]) -> Any:
        try:
            return write()
        except OSError as error:
            raise RunError(f"{self._path}: {cannot_write('the tape', self._path, error)}") from error


def _entry(values: NDArray[np.float32] | EachArray) -> Name | None:
    """Return the name of a constant with one number in all places; None for others."""
    if not isinstance(values, EachArray) or values.entry is None:
        return None
    return ENTRY, values.entry.values[-1].number


def _varied(kind: str, varied: Varied | None) -> dict[str, NDArray[Any]]:
    if varied is None or varied.symbols is None:
        return {}
    return {f"{kind}/places": varied.places.astype(np.int32), f"{kind}/symbols": varied.symbols.astype(np.int32)}


def forms_of(name: str, models: Sequence[Model], reads: int) -> dict[str, NDArray[Any]]:
    """Return models as forms with symbols."""
    rows = np.full((len(models), reads), NO_ROW, dtype=np.int32)
    flat: list[Any] = [0.0] * rows.size
    for k, model in enumerate(models):
        for j, (row, coef) in enumerate(zip(model.rows, model.coefs, strict=True)):
            rows[k, j] = row.number
            flat[k * reads + j] = coef
    coefs, varied = array_of(flat, np.float32)
    return {f"{name}/rows": rows, f"{name}/coefs": coefs.reshape(rows.shape), **_varied(name, varied)}


def account_of(account: Releases | None) -> dict[str, Any] | None:
    """Return releases in plain values."""
    if account is None:
        return None
    passes = account.passes
    return {
        "counts": [int(count) for count in account.counts],
        "others": [
            (client, batch, level, count)
            for client, kinds in account.others.items()
            for (batch, level), count in kinds.items()
        ],
        "refusal": account.refusal,
        "dearer": sorted(account.dearer),
        "cohorts": account.cohorts,
        "passes": None
        if passes is None
        else [(uses.cost, *(sorted(uses.copies(additive).items()) for additive in (False, True))) for uses in passes],
    }


def _said(function: Any, optimizer: Any) -> Any:
    """Return a function of models in plain values: an object of simfl by its fields.

    Raises:
        RunError: it is another function.
    """
    if function is optimizer:
        return {"optimizer": True}
    if isinstance(function, bool | int | float | str | type(None)):
        return function
    if isinstance(function, Fraction):
        return {"fraction": [function.numerator, function.denominator]}
    if isinstance(function, tuple):
        return {"tuple": [_said(one, optimizer) for one in function]}
    kind = type(function)
    if dataclasses.is_dataclass(function) and kind.__module__.startswith("simfl."):
        fields = {field.name: _said(getattr(function, field.name), optimizer) for field in dataclasses.fields(function)}
        return {"class": f"{kind.__module__}:{kind.__qualname__}", "fields": fields}
    raise RunError(f"record.tape: {kind.__name__}, a function of models, cannot be kept in a file; {REMOVE}")
