"""Pages about a run or a sweep under way, served to this machine alone.

A server listens on the loopback address. Its pages lie below a random token, which only the caller of `serve` has. The
header Host must name the address itself, so that a page of another site that resolves to it (DNS rebinding) gets
nothing. No answer allows other origins to read it, and a Content-Security-Policy keeps the pages from asking others.
A page asks for what changed; its server reads the streams that the run writes (`simfl.records.writer`).
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler
from json import dumps
from pathlib import Path
from socketserver import ThreadingTCPServer
from typing import Any
from urllib.parse import parse_qs

from simfl.comparison.sweeps import Group, Sweep, SweepRun, is_sweep, read_sweep, run_key
from simfl.errors import DataError, ScenarioError, to_path
from simfl.plots.style import color_of
from simfl.records import Run, RunFolder, read
from simfl.records.display import show_count, show_share, show_time
from simfl.records.results import FINISHED, UNFINISHED, clock_of
from simfl.records.seeds import Seed, pair_of
from simfl.reports.content import DASHES, Part, axis_labels, curves_of
from simfl.reports.page import paler
from simfl.reports.played import gather, head_of
from simfl.reports.player import data_of, render
from simfl.reports.template import asset, environment, hash_of

ADDRESS = "127.0.0.1"
#: Seconds between two questions of a page. They are further apart if an answer takes long: watching takes about this
#: share of a core.
LEAST_S, MOST_S, SHARE = 1.0, 30.0, 0.1
#: Seconds after which a connection that asks nothing is closed.
PATIENCE_S = 10.0


class Watched(ABC):
    """What a page is about; its content is gathered again when its files change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._version, self._content, self._next_s = "", dict[str, Any](), LEAST_S

    @abstractmethod
    def page(self) -> str:
        """Return the page, which asks for its content."""

    @abstractmethod
    def version(self) -> str:
        """Return a text that changes with the content."""

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """Return what watch.js shows; DataError if there is nothing yet."""

    def answer(self, since: str) -> dict[str, Any]:
        """Return the content, or only its version and state if that is `since`."""
        with self._lock:
            version = self.version()
            if version != self._version:
                begun, first = time.perf_counter(), not self._version
                try:
                    self._content = self.content()
                    self._version = version
                except (DataError, OSError) as error:  # before the first rows, or while a table is completed
                    self._content |= {"state": str(error)}
                # The first time, libraries are imported.
                took_s = 0.0 if first else time.perf_counter() - begun
                self._next_s = min(MOST_S, max(LEAST_S, took_s / SHARE))
            given = {"version": self._version, "next_s": round(self._next_s, 2)}
            return given | (self._content if self._version != since else {"state": self._content["state"]})


class WatchedRun(Watched):
    """A run, shown by the player."""

    def page(self) -> str:
        """Return the player without content."""
        return render([head_of(read(self.folder))], data={}, script="watch", live=True)

    def version(self) -> str:
        """Return the status, and the sizes and times of the files."""
        return f"{_status(self.folder)}{_signature(self.folder.iterdir())}"

    def content(self) -> dict[str, Any]:
        """Return the tables as far as they are written."""
        run = read(self.folder)
        content = gather(run, level=1)
        words = [run.status, f"{show_time(content.values['duration_s'])} of {clock_of([run])}", _progress(run)]
        return {"state": " · ".join(words), "notes": content.notes, **data_of([content])}


class WatchedSweep(Watched):
    """A sweep: its runs by label and seed, and curves so far."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._curves: dict[tuple[str, ...], dict[str, dict[str, list[list[float]]]]] = {}
        #: Finished runs by folder and key; a study may have hundreds.
        self._finished: dict[tuple[str, str], Run] = {}
        self._running: set[str] = set()

    def run(self, name: str) -> WatchedRun | None:
        """Return the run in a folder of the sweep, None if it has none."""
        planned = {run.folder for run in read_sweep(self.folder).runs}
        return WatchedRun(self.folder / name) if name in planned and _status(self.folder / name) else None

    def page(self) -> str:
        """Return the page without content."""
        sweep, script = read_sweep(self.folder), asset("page.js", "scripts/watch.js")
        return (
            environment()
            .get_template("sweep.html.j2")
            .render(
                title=sweep.name,
                question=sweep.description,
                style=asset("page.css"),
                script=script,
                script_hash=hash_of(script),
            )
        )

    def version(self) -> str:
        """Return the sizes and times of the files that the page depends on."""
        folders = [self.folder / run.folder for run in read_sweep(self.folder).runs]
        files = [folder / name for folder in folders for name in ("manifest.json", "run.lock", "metrics.arrows")]
        killed = sorted(name for name in self._running if _status(self.folder / name) != "running")
        return _signature([self.folder / "sweep.json", *files]) + "".join(killed)

    def content(self) -> dict[str, Any]:
        """Return the grid of runs, and the curves of finished and running ones."""
        sweep = read_sweep(self.folder)
        begun = {run.folder: opened for run in sweep.runs if (opened := self._begun(sweep, run)) is not None}
        self._running = {name for name, run in begun.items() if run.status == "running"}
        status = {run.folder: begun[run.folder].status if run.folder in begun else run.status for run in sweep.runs}
        counts = {kind: list(status.values()).count(kind) for kind in dict.fromkeys(status.values())}
        rows: dict[str, dict[str, dict[str, str]]] = {}
        for run in sweep.runs:
            opened = begun.get(run.folder)
            words = run.reason if opened is None else _progress(opened)
            cell = {"status": status[run.folder], "words": words}
            page = {} if opened is None else {"page": f"run/{run.folder}/"}
            rows.setdefault(run.label, {})[str(run.seeds)] = cell | page
        parts = self._parts(sweep, begun)
        series = [
            {"label": part.label, "dash": part.dash, "curves": part.curves, "colors": [part.color, paler(part.color)]}
            for part in parts
        ]
        return {
            "state": f"{len(sweep.runs)} runs: " + ", ".join(f"{count} {kind}" for kind, count in counts.items()),
            "grid": {
                "rows": [{"label": label, "runs": runs} for label, runs in rows.items()],
                "seeds": list(map(str, sorted({run.seeds for run in sweep.runs}, key=pair_of))),
            },
            "curves": {"labels": axis_labels(parts), "series": series},
        }

    def _parts(self, sweep: Sweep, begun: dict[str, Run]) -> list[Part]:
        """Return a curve for each label with finished runs, and for each run under way."""
        groups: dict[str, dict[Seed, Run]] = {}
        for run in sweep.runs:
            if (opened := begun.get(run.folder)) is not None and opened.status == "done":
                groups.setdefault(run.label, {})[run.seeds] = opened
            elif opened is not None and opened.status in UNFINISHED:
                groups[f"{run.label}, seed {run.seeds} ({opened.status})"] = {run.seeds: opened}
        parts = []
        for position, (label, runs) in enumerate(groups.items()):
            group, dash = Group(label, {}, runs), DASHES[position % len(DASHES)]
            parts.append(Part(group, label, color_of(group.algorithm), dash, self._curves_of(group), {}, {}))
        return [part for part in parts if part.curves]

    def _begun(self, sweep: Sweep, run: SweepRun) -> Run | None:
        """Return a planned run if it has begun, None otherwise or if it is damaged."""
        if (finished := self._finished.get((run.folder, run.key))) is not None:
            return finished
        if not _status(sweep.folder / run.folder):
            return None
        try:
            opened = sweep.open(run)
            manifest = opened.manifest
            key = run_key(str(manifest.extra.get("scenario_digest")), str(manifest.versions.get("simfl")))
            _ = opened.evaluations
        except DataError:
            return None
        if key != run.key:  # an earlier plan's run lies in its folder
            return None
        if manifest.status in FINISHED:
            self._finished[run.folder, run.key] = opened
        return opened

    def _curves_of(self, group: Group) -> dict[str, dict[str, list[list[float]]]]:
        key = tuple(f"{run.folder.name}{len(run.evaluations)}" for run in group.runs.values())
        if key not in self._curves:
            self._curves[key] = curves_of([run for run in group.runs.values() if len(run.evaluations)])
        return self._curves[key]


def _status(folder: Path) -> str:
    """Return the status in the manifest of a run; "" without a readable one."""
    try:
        return RunFolder(folder).read_manifest().status
    except DataError:
        return ""


def _progress(run: Run) -> str:
    """Return what a run has reached, in words."""
    if not len(run.evaluations):
        return "no evaluation yet"
    last = run.evaluations.row(-1)
    accuracy, loss = last["test_accuracy"], last["test_loss"]
    reached = f"test loss {loss:.4g}" if accuracy != accuracy else f"test accuracy {show_share(accuracy)}"
    return f"{show_count(int(last['updates']))} updates, {reached}"


def _signature(paths: Iterable[Path]) -> str:
    """Return names, sizes and times of files as one text."""
    parts = []
    for path in sorted(paths):
        try:
            stat = path.stat()
        except OSError:
            continue
        parts.append(f"{path.name}-{stat.st_size:x}-{stat.st_mtime_ns:x}")
    return hash_of("/".join(parts)).translate(str.maketrans("+/=", "-_."))


class Server(ThreadingTCPServer):
    """Serves pages of one run, or of one sweep, on the loopback address."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, folder: Path, port: int = 0) -> None:
        self._watched = WatchedSweep(folder) if is_sweep(folder) else WatchedRun(folder)
        self._runs: dict[str, WatchedRun] = {}
        self.token = secrets.token_urlsafe(24)
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            reason = f"cannot listen on port {port} of this machine: {error.strerror}"
            raise ScenarioError(f"--port: {reason}; leave it out for a free one") from error
        self.port: int = self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error, unless it is a browser that went away."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{ADDRESS}:{self.port}/{self.token}/"

    def is_ours(self, host: str) -> bool:
        """Return whether a header Host names this server's address."""
        return host in {f"{ADDRESS}:{self.port}", f"localhost:{self.port}"}

    def watched(self, path: str) -> Watched | None:
        """Return what a path below the token is about: "" or "run/FOLDER/"."""
        if not path:
            return self._watched
        words = path.split("/")
        if not isinstance(self._watched, WatchedSweep) or len(words) != 3 or words[0] != "run" or words[2]:
            return None
        if words[1] not in self._runs and (run := self._watched.run(words[1])) is not None:
            self._runs[words[1]] = run
        return self._runs.get(words[1])


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version = "simfl", ""
    timeout = PATIENCE_S

    def handle(self) -> None:
        """Answer a request that arrives within `PATIENCE_S`.

        A client that sends it byte by byte is cut off.
        """
        self._patience = threading.Timer(PATIENCE_S, self._hang_up)
        self._patience.daemon = True
        self._patience.start()
        try:
            super().handle()
        finally:
            self._patience.cancel()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        """Answer with a page, or with its content."""
        self._patience.cancel()
        path, _, query = self.path.partition("?")
        _, token, rest = (*path.split("/", 2), "", "")[:3]
        if not self.server.is_ours(self.headers.get("Host", "")):
            return self._send(403, "text/plain", "This address is for this machine alone.\n")
        if not path.startswith("/") or not hmac.compare_digest(token.encode(), self.server.token.encode()):
            return self._send(404, "text/plain", "There is nothing here.\n")
        try:
            watched = self.server.watched(rest.removesuffix("data"))
            if watched is None:
                return self._send(404, "text/plain", "There is nothing here.\n")
            if rest.endswith("data"):
                answer = watched.answer(parse_qs(query).get("since", [""])[0])
                kind, text = "application/json", dumps(answer, separators=(",", ":"))
            else:
                kind, text = "text/html", watched.page()
        except (DataError, OSError) as error:
            return self._send(500, "text/plain", f"{error}\n")
        return self._send(200, kind, text)

    def _send(self, code: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(code)
        for name, value in {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "Content-Security-Policy": "frame-ancestors 'none'",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Write nothing: the token is part of each path."""


def serve(folder: str | Path, port: int = 0) -> Server:
    """Return a server for a run or a sweep; its `serve_forever` answers.

    Args:
        folder: that of a run or of a sweep, under way or not.
        port: 0 for a free one.

    Raises:
        DataError: the folder is not that of a run or a sweep.
        ScenarioError: the port is taken.
    """
    place = to_path(folder, "the folder of a run or a sweep")
    if is_sweep(place):
        read_sweep(place)
    else:
        try:
            read(place)
        except DataError as error:
            text = str(error).replace("expected the folder of a run,", "expected the folder of a run or a sweep,")
            raise DataError(text) from error
    return Server(place, port)
