"""Execute the tape of a run anew: other arithmetic, without its world.

The tape's file (`simfl.runs.taped`) has windows and evaluations in order. Its symbols get the numbers of the changed
scenario, an executor computes the windows, and the recorder of a run writes the folder. What the recorder reads of the
world comes from the file and from the tables of the run: `_Played` stands in place of world, tape and algorithm.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import importlib
import io
import itertools
import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.build.assembly import assemble
from simfl.build.data import shared_data
from simfl.build.setup import Setup
from simfl.build.together import Joining, is_one_world, step_at, together
from simfl.errors import DataError, RunError, ScenarioError, SimflError, to_path
from simfl.privacy.releases import Releases
from simfl.records import Progress, Run, RunFolder, read
from simfl.records.tables import MOST_EDGES
from simfl.records.watching import watching
from simfl.runs.checkpoint import fingerprint
from simfl.runs.programs import results_of
from simfl.runs.runner import Simulation
from simfl.runs.taped import ENTRY, FILE, FORMAT
from simfl.scenario import Scenario, from_mapping
from simfl.scenario.together import world_key
from simfl.symbols import ChangedError, Name, evaluated
from simfl.tape.executor import Executor, choose_device
from simfl.tape.journal import Names
from simfl.tape.layout import Branch, Layout, Operations
from simfl.tape.recording import Window
from simfl.tape.tuning import tuned_interpreter
from simfl.threads import one_thread
from simfl.world.engine import Clock

#: Tables whose rows the world wrote; numbers in them may come from settings.
_OF_WORLD = ("updates", "messages", "timeline", "secure_sums", "cohorts")
_KINDS = ("gradients", "combines", "serials", "mapped")


def replay(
    folder: str | Path,
    overrides: Iterable[str] = (),
    *,
    out: str | Path | None = None,
    run_id: str | None = None,
    device: str | None = None,
    progress: bool | Callable[[Progress], None] | None = None,
) -> Run:
    """Execute the tape of a finished run under other arithmetic; return the new run.

    The new run is the one that `run` would make of the changed scenario, with the same tables bit for bit. It keeps no
    tape.

    Args:
        folder: of a run with `record.tape`.
        overrides: changes of the form `key.path=value` that reach models alone.
        out, run_id, progress: see `simfl.runs.runner.run`; by default the results of the run.
        device: must be the run's, and so it is by default.

    Raises:
        DataError, ScenarioError: there is no such tape, or a change may reach the world; one line says why.
        RunError: the run failed, or its end would depend on its numbers.
    """
    path, changes = to_path(folder, "the folder of a run"), list(overrides)
    earlier = read(path)
    tape = _Tape(path / FILE, earlier)
    root = results_of(path) if out is None else to_path(out, "out: a folder")
    source = str(RunFolder(path).scenario_path)
    before, after = from_mapping(earlier.scenario, source), from_mapping(earlier.scenario, source, changes)
    untaped = [each.replace({"record.tape": False}) for each in (before, after)]
    if world_key(untaped[0]) != world_key(untaped[1]):
        raise _reaches_world(earlier, source, untaped[0], changes)
    accelerator = choose_device(device or tape.about["print"]["device"].split()[0])
    with shared_data():
        recorded, setup = assemble(untaped[0]), assemble(untaped[1])
    taped = copy.copy(recorded)
    taped.scenario = before
    tape.check(fingerprint(taped, accelerator, tape.about["sizes"]["width"]))
    if not is_one_world(recorded, setup):
        expected = "expected changes that reach models alone"
        raise ScenarioError(f"{path}: {expected}, found other releases, batches or shapes; use simfl run")
    numbers = tape.numbers(setup)
    with watching(setup.scenario.name, progress) as watch:
        played = _Played(tape, setup, accelerator, numbers, earlier)
        member = _Member(setup, accelerator, watch, shared=(played.stage, 0, Names()))
        try:
            return member.play(played, RunFolder.create(root, setup.scenario.name, run_id))
        finally:
            member.release()


def _reaches_world(earlier: Run, source: str, before: Scenario, changes: Sequence[str]) -> ScenarioError:
    """Return the error that names the first change that may reach the world."""
    for change in changes:
        with contextlib.suppress(ScenarioError):
            changed = from_mapping(earlier.scenario, source, [change]).replace({"record.tape": False})
            if world_key(changed) != world_key(before):
                return ScenarioError(
                    f"--set {change}: expected a change that reaches models alone, such as algorithm.step_size, found "
                    "one that may change events; use simfl run"
                )
    return ScenarioError(f"{source}: expected changes that reach models alone, found others; use simfl run")


class _Numbers(Joining):
    """Collects the named numbers and arrays of one run."""

    def __init__(self) -> None:
        self.numbers: dict[Name, float] = {}
        self.arrays: dict[Name, NDArray[Any]] = {}

    def number(self, name: Name, values: Sequence[float]) -> Any:
        """Keep a number."""
        self.numbers[name] = float(values[0])
        return values[0]

    def array(self, name: Name, values: Sequence[NDArray[Any]]) -> Any:
        """Keep an array."""
        self.arrays[name] = values[0]
        return values[0]


class _Tape:
    """The file of a tape; a `DataError` if there is none, or it is damaged."""

    def __init__(self, path: Path, run: Run) -> None:
        self.path = path
        again = f"simfl run {run.folder / 'scenario.yaml'} --set record.tape=true"
        if run.status != "done":
            raise DataError(f"{run.folder}: expected a run that is done, found one that is {run.status}")
        if not path.is_file():
            raise DataError(f"{run.folder}: expected a run with its tape, found no {FILE}; record one: {again}")
        try:
            self._archive = zipfile.ZipFile(path)
            self.about = json.loads(self._archive.read("about.json"))
            form = self.about["format"]
        except (OSError, zipfile.BadZipFile, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: expected a whole tape, found a damaged one ({error}); {again}") from error
        if form != FORMAT:
            raise DataError(f"{path}: expected a tape of format {FORMAT}, found {form}; {again}")
        self._again = again

    def check(self, inputs: Mapping[str, str]) -> None:
        """Reject a tape of other versions, data or sources."""
        for name, now in inputs.items():
            was = self.about["print"].get(name)
            if was != now:
                shown = f", {was}, found {now}" if was and len(was) < 64 else ", found another one"
                raise DataError(f"{self.path}: expected the {name} of the tape{shown}; {self._again}")

    def numbers(self, setup: Setup) -> tuple[NDArray[np.float64], dict[Name, NDArray[Any]]]:
        """Return the values of all symbols and the named arrays in a scenario.

        Raises:
            ScenarioError: the world asked something that has another answer with them.
        """
        about, given = self.about, _Numbers()
        together([setup], given)

        def value_of(name: Name) -> float:
            if name in given.numbers:
                return given.numbers[name]
            if name[0] == "step":
                updates, examples, epochs = name[1:] or (0, 0, 0.0)
                if len(name) > 1 or not callable(setup.training.step_size):
                    return float(step_at(setup.training, int(updates), int(examples), float(epochs)))
            what = "a number, as in the run, found a schedule" if name[0] == "step" else f"{name}, found none"
            raise ChangedError(f"algorithm.step_size: expected {what}")

        try:
            names = [tuple(name) for name in about["names"]]
            values = evaluated(names, about["expressions"], about["conditions"], value_of)
            for name, fixed in about["fixed"]:
                if (now := value_of(tuple(name))) != fixed:
                    raise ChangedError(f"{'.'.join(map(str, name))}: expected {fixed:g}, as in the run, found {now:g}")
        except (ChangedError, ArithmeticError) as error:
            raise ScenarioError(f"{self.path}: the changes may reach the world ({error}); use simfl run") from None
        return values, given.arrays

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Return the arrays of one member."""
        with np.load(io.BytesIO(self._archive.read(name))) as archive:
            return dict(archive)

    def members(self, prefix: str) -> list[str]:
        """Return the names of members."""
        return [name for name in self._archive.namelist() if name.startswith(prefix)]


def _function_of(said: Any, optimizer: Any) -> Any:
    """Return a function of models from plain values, an object of simfl."""
    if not isinstance(said, dict):
        return said
    if "optimizer" in said:
        return optimizer
    if "fraction" in said:
        return Fraction(*said["fraction"])
    if "tuple" in said:
        return tuple(_function_of(one, optimizer) for one in said["tuple"])
    module, _, name = said["class"].partition(":")
    kind = getattr(importlib.import_module(module), name, None) if module.startswith("simfl.") else None
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise DataError(f"a tape: expected a class of simfl, found {said['class']!r}")
    return kind(**{key: _function_of(value, optimizer) for key, value in said["fields"].items()})


class _Played:
    """What a run reads of its world; `stage` stands in place of a `Stage`."""

    def __init__(
        self,
        tape: _Tape,
        setup: Setup,
        device: Any,
        numbers: tuple[NDArray[np.float64], dict[Name, NDArray[Any]]],
        earlier: Run,
    ) -> None:
        self.tape, self.earlier = tape, earlier
        self._values, self._arrays = numbers
        self._size = len(setup.training.initial)
        about = tape.about
        problem = dataclasses.replace(setup.problem, optimizing=setup.problem.optimizing.on(device.platform))
        self._branches = tuple(
            Branch(_function_of(said, problem.optimizing.applied), *sizes) for said, *sizes in about["branches"]
        )
        count, clients = setup.scenario.clients.count, earlier.clients
        devices, sizes = about["sizes"]["devices"], {**about["sizes"]}
        del sizes["devices"]
        self.executor = Executor(problem, device=device, devices=devices, reads=about["reads"], **sizes)
        end = about["end"]
        self._forms: list[tuple[NDArray[np.int32], NDArray[np.float32]]] = []
        self.world = SimpleNamespace(
            num_clients=count,
            clock=Clock(),
            network=SimpleNamespace(
                messages=0,
                bytes_sent=0,
                in_flight=end["in_flight"],
                backlog_s=lambda: end["backlog_s"],
                traffic=[SimpleNamespace(sent_bytes=sent) for sent in clients["bytes"].tolist()],
            ),
            availability=SimpleNamespace(offline_s=lambda k, now: float(clients["offline_s"].iloc[k])),
        )
        exhausted = clients["exhausted_s"].to_numpy()
        self.algorithm = SimpleNamespace(
            updates=0,
            epochs=0.0,
            rounds=0,
            clipping_norm=float("inf"),
            aggregation=None,
            adapted_norm=None,
            releases=Releases([0] * count),
            title=end["title"],
            pairs=self._pairs,
            evaluated=lambda: self._forms[0],
            client_models=lambda: self._forms[1],
            client_updates=clients["updates"].tolist(),
            client_dropped=clients["dropped"].tolist(),
            client_early=clients["early"].tolist() if "early" in clients else [],
            computed_s=lambda k: float(clients["compute_s"].iloc[k]),
            waited_s=lambda k: float(clients["wait_s"].iloc[k]),
            times=[SimpleNamespace(communicate_s=seconds) for seconds in clients["communicate_s"].tolist()],
            exhausted_s={k: float(exhausted[k]) for k in range(count) if np.isfinite(exhausted[k])},
            close=lambda: None,
        )
        has_each = any(entry.get("models") == 2 for entry in about["order"][:-1]) or setup.scenario.record.client_models
        self.stage: Any = SimpleNamespace(
            window=earlier.manifest.window,
            width=earlier.manifest.width,
            world=self.world,
            algorithm=self.algorithm,
            executor=self.executor,
            has_client_models=has_each and about["has_client_models"],
            tape=SimpleNamespace(
                flush=lambda: None,
                forms=lambda forms: forms,
                reads=about["reads"],
                releases=None if setup.ledger is None else SimpleNamespace(compare=lambda own: own),
            ),
        )

    def _pairs(self) -> Iterator[tuple[int, int]]:
        edges = self.earlier.folder / "edges.parquet"
        if not edges.exists():
            return itertools.repeat((0, 0), MOST_EDGES + 1)
        return iter(self.earlier.edges.itertuples(index=False, name=None))

    def items(self) -> Iterator[bool]:
        """Submit windows and set what evaluations read; yield whether it is the end."""
        order = self.tape.about["order"]
        for number, entry in enumerate(order):
            arrays = self.tape.arrays(f"{number}.npz")
            if "evaluation" not in entry:
                self.executor.submit(self._window(entry, arrays))
                continue
            self._show(entry["evaluation"], entry["models"], arrays)
            yield number == len(order) - 1

    def _filled(self, kind: str, floats: NDArray[Any], arrays: dict[str, NDArray[Any]]) -> NDArray[Any]:
        """Return numbers with those of symbols."""
        if f"{kind}/places" in arrays:
            floats.reshape(-1)[arrays[f"{kind}/places"]] = self._values[arrays[f"{kind}/symbols"]].astype(floats.dtype)
        return floats

    def _window(self, entry: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Window:
        operations = [
            Operations(
                Layout(*layout),
                arrays[f"{kind}/ints"],
                self._filled(kind, arrays[f"{kind}/floats"], arrays),
                arrays[f"{kind}/levels"],
            )
            for kind, layout in zip(_KINDS, entry["layouts"], strict=True)
        ]
        plain = iter(arrays.get("constants", ()))
        constants = [
            (number, next(plain) if name is None else self._constant(*name)) for number, name in entry["constants"]
        ]
        branches = self._branches[: entry["branches"]]
        gradients, combines, serials, mapped = operations
        dead, rows = arrays["dead"].tolist(), entry["rows"]
        return Window(gradients, combines, serials, mapped, dead, constants, rows, branches)

    def _constant(self, kind: str, *further: Any) -> NDArray[np.float32]:
        """Return a constant by its name."""
        if kind == ENTRY:
            return np.full(self._size, self._values[further[0]], dtype=np.float32)
        return np.array(self._arrays[kind, *further], dtype=np.float32)

    def _show(self, about: dict[str, Any], models: int, arrays: dict[str, NDArray[Any]]) -> None:
        algorithm, network, taken = self.algorithm, self.world.network, about["taken"]
        if taken:
            self.world.clock.now, algorithm.updates = taken["time_s"], int(taken["updates"])
            algorithm.epochs, algorithm.rounds = taken["epochs"], int(taken["rounds"])
            network.bytes_sent, network.messages = int(taken["bytes_sent"]), int(taken["messages"])
        norm, symbol, account = about["norm"], about["symbol"], about["account"]
        algorithm.clipping_norm = norm if symbol is None else float(self._values[symbol])
        if about["adapted"] is not None:
            algorithm.adapted_norm = SimpleNamespace(rows=[SimpleNamespace(number=about["adapted"])])
        self._forms = [
            (arrays[f"{number}/rows"], self._filled(str(number), arrays[f"{number}/coefs"], arrays))
            for number in range(models)
        ]
        if account is not None:
            algorithm.releases = _account_of(account)

    def finish(self) -> None:
        """Set what a run reads at its end."""
        end, network = self.tape.about["end"], self.world.network
        self.world.clock.now, self.algorithm.updates = end["time_s"], end["updates"]
        self.algorithm.rounds, network.bytes_sent, network.messages = end["rounds"], end["bytes_sent"], end["messages"]

    def table(self, name: str) -> dict[str, NDArray[Any]] | None:
        """Return a table of the world by column, with the numbers of the scenario."""
        if not (self.earlier.folder / f"{name}.parquet").exists():
            return None
        frame = getattr(self.earlier, name)
        columns = {column: frame[column].to_numpy(copy=True) for column in frame.columns}
        listed = list(columns)
        for member in self.tape.members(f"rows/{name}/"):
            arrays = self.tape.arrays(member)
            row, place = np.divmod(arrays["places"], len(listed))
            for column in np.unique(place).tolist():
                here = place == column
                columns[listed[column]][row[here]] = self._values[arrays["symbols"][here]]
        return columns


@dataclasses.dataclass(frozen=True)
class _Uses:
    """How often an example is in releases; see `simfl.privacy.shuffled.Uses`."""

    cost: int
    gaussian: Mapping[int, int]
    pure: Mapping[int, int]

    def copies(self, additive: bool = False) -> Mapping[int, int]:
        """Return the worst case: copies in a release -> number of such releases."""
        return self.pure if additive else self.gaussian


def _account_of(about: dict[str, Any]) -> Releases:
    """Return releases from plain values."""
    account = Releases(about["counts"], refusal=about["refusal"], dearer=set(about["dearer"]), cohorts=about["cohorts"])
    for client, batch, level, count in about["others"]:
        account.add(client, batch, level, count)
    if about["passes"] is not None:
        account.passes = [_Uses(cost, *map(dict, known)) for cost, *known in about["passes"]]
    return account


class _Member(Simulation):
    """The run that a replay makes."""

    @one_thread()
    def play(self, played: _Played, folder: RunFolder) -> Run:
        """Execute the tape; write everything into `folder`."""
        self.enter(folder)
        with folder.held() as make_room, self._interruption.handled():
            failure: SimflError | None = None
            try:
                self.begin()
                with tuned_interpreter():
                    self._execute(played)
                if self.world.clock.interrupted:
                    self.status, self.reason = "interrupted", self._interruption.reason
                else:
                    self.finish()
                if self.status == "diverged":
                    raise RunError("the run diverges with these numbers, and ends at another event; use simfl run")
            except BaseException as error:
                failure = self.fail(error)
            self.reporter.closing = self._interruption.closing = True
            if self.status == "done":
                failure = self.settle(failure)
            else:
                self.recorder.abort()
            failure = self.leave(make_room, failure)
        if failure is not None:
            raise failure
        return Run(folder.path)

    def _execute(self, played: _Played) -> None:
        for is_end in played.items():
            if not is_end:
                self.evaluations.take()
            if self.status != "running" or self.world.clock.interrupted:
                break
        if self.status == "running" and not self.world.clock.interrupted:
            self.status, self.reason = "done", played.earlier.manifest.reason
        played.finish()
        for name in _OF_WORLD:
            columns = played.table(name)
            if columns is not None:
                self.recorder.extend(name, columns)
