"""The server of `simfl watch` follows the streams of a run, shows a sweep, and answers nobody else."""

import contextlib
import http.client
import json
import math
import socket
import threading

import numpy as np
import pytest

from simfl.comparison.sweeps import run_key
from simfl.errors import DataError, ScenarioError
from simfl.records import Manifest, RunFolder
from simfl.reports import watch
from simfl.reports.watch import serve
from tests.chromium import a_tab, needs_browser
from tests.reports.test_page import Page
from tests.reports.test_player import unpack

SCENARIO = """name: half
seed: 1
algorithm: {kind: adpsgd}
clients: {count: 2}
record: {updates: true, messages: true, timeline: true}
"""


def evaluation(time_s, updates, accuracy):
    return (time_s, updates, 0.0, 0, 1.0, 1.0, accuracy, 0.0, 0, 0, math.nan, 0.1)


@contextlib.contextmanager
def serving(folder):
    with serve(folder) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(server, path, host=None, method="GET"):
    """Ask for a path below the token; return the status, the headers and the text."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        whole = path if path.startswith("/") else f"/{server.token}/{path}"
        connection.request(method, whole, headers={} if host is None else {"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


def data(server, path="data", since=""):
    status, _, text = ask(server, f"{path}?since={since}")
    assert status == 200, text
    return json.loads(text)


@pytest.fixture
def half(tmp_path):
    """A run under way: its folder, and its tables of metrics and updates."""
    folder = RunFolder.create(tmp_path, "half")
    with folder.held():
        folder.write_scenario(SCENARIO)
        folder.write_manifest(Manifest("running", seed=1, device="cpu"))
        metrics, updates = folder.table("metrics"), folder.table("updates")
        yield folder, metrics, updates
        metrics.abort()
        updates.abort()


def test_the_content_grows_with_the_streams_of_a_run(half):
    folder, metrics, updates = half
    with serving(folder.path) as server:
        page = Page(ask(server, "")[2])
        assert "half/001" in page.text.replace(" ", "")
        first = data(server)
        assert (first["version"], "runs" in first) == ("", False)
        assert "has no evaluation yet" in first["state"]
        metrics.append(evaluation(0.0, 0, 0.1))
        updates.extend((0.5 * count, count % 2, -1, 0, 0, 32, 0.4, 0.0) for count in range(4))
        metrics.flush()
        updates.flush()
        some = data(server)
        assert some["state"] == "running · 1.5 s of virtual time · 0 updates, test accuracy 10.00%"
        assert some["runs"][0]["updates"]["total"] == 4
        assert not [note for note in some["notes"] if "messages" in note], "they are recorded, and none has come yet"
        assert data(server, since=some["version"]).keys() == {"version", "next_s", "state"}
        updates.extend((0.5 * count, count % 2, -1, 0, 7, 32, 0.4, 0.0) for count in range(4, 9))
        metrics.append(evaluation(4.0, 9, 0.8))
        metrics.flush()
        updates.flush()
        more = data(server, since=some["version"])
        assert more["state"] == "running · 4 s of virtual time · 9 updates, test accuracy 80.00%"
        assert unpack(more["runs"][0]["updates"]["staleness"]).tolist() == [0] * 4 + [7] * 5
        assert unpack(more["runs"][0]["updates"]["client"]).tolist() == [0, 1, 0, 1, 0, 1, 0, 1, 0]
        metrics.close()
        folder.write_manifest(Manifest("done", seed=1, device="cpu", time_s=4.5, updates=9))
        assert "this run recorded no table of clients" in data(server, since=more["version"])["state"], "in one second"
        updates.close()
        with folder.table("clients"):
            pass
        folder.write_manifest(Manifest("done", seed=1, device="cpu", time_s=4.5, updates=9))
        assert data(server)["state"] == "done · 4.5 s of virtual time · 9 updates, test accuracy 80.00%"


def test_only_the_address_itself_with_its_token_is_answered(half):
    folder, _, _ = half
    (folder.path.parent / "secret").write_text("x")
    with serving(folder.path) as server, serving(folder.path) as other:
        assert server.server_address[0] == "127.0.0.1"
        assert server.url == f"http://127.0.0.1:{server.port}/{server.token}/"
        assert len(server.token) >= 32
        assert server.token != other.token
        for path in ("/", "/data", f"/{other.token}/", f"/{server.token[:-1]}/", "/%e9/", f"/x{server.token}/"):
            status, _, text = ask(server, path)
            assert (status, text) == (404, "There is nothing here.\n"), path
        for path in ("../secret", "manifest.json", "run/001/", "run/001/data", "%2e%2e/secret", "datadata", "x/data"):
            assert ask(server, path)[0] == 404, path
        for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1", f"127.0.0.1:{server.port}.evil", ""):
            status, _, text = ask(server, "data", host=host)
            assert (status, text) == (403, "This address is for this machine alone.\n"), host
        assert ask(server, "data", host=f"localhost:{server.port}")[0] == 200
        assert {ask(server, "data", method=method)[0] for method in ("POST", "PUT", "OPTIONS", "HEAD")} == {501}
        status, headers, text = ask(server, "")
        assert not [name for name in headers if name.lower().startswith("access-control")]
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store"
        assert headers["Content-Security-Policy"] == "frame-ancestors 'none'"
        (policy,) = (given["content"] for tag, given in Page(text).tags if given.get("http-equiv"))
        assert policy.startswith("default-src 'none'; script-src 'sha256-")
        assert policy.endswith("; connect-src 'self'")


def test_a_client_that_sends_its_request_byte_by_byte_is_cut_off(half, monkeypatch):
    monkeypatch.setattr(watch, "PATIENCE_S", 0.2)
    with serving(half[0].path) as server, socket.create_connection(("127.0.0.1", server.port), timeout=0.02) as slow:
        slow.sendall(b"GET /")
        closed = False
        for _ in range(3000):  # each byte comes long before the patience with a silent client ends
            try:
                slow.sendall(b"x")
                closed = slow.recv(1000) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                closed = True
            if closed:
                break
        assert closed
        assert ask(server, "")[0] == 200, "others are answered"


@pytest.fixture
def sweep(tmp_path):
    """A sweep of two labels and two seeds: one run is done, one runs, one failed, and one is missing."""
    root = tmp_path / "study"
    keys = [run_key(f"digest {k}", "1") for k in range(4)]
    rows = []
    for k, (label, seed) in enumerate([("a <b>", 1), ("a <b>", 2), ("c", 1), ("c", 2)]):
        status = ["missing", "missing", "failed", "missing"][k]
        rows.append({"folder": f"r{k}", "label": label, "settings": {"x": label}, "changes": {}, "seed": seed})
        rows[-1] |= {"key": keys[k], "status": status, "reason": "no memory" * (status == "failed"), "wall_s": 0.0}
    with contextlib.ExitStack() as stack:
        for k, status in ((0, "done"), (1, "running")):
            folder = RunFolder.create(tmp_path, "study", f"r{k}")
            if status == "running":
                stack.enter_context(folder.held())
            folder.write_scenario(SCENARIO)
            extra = {"scenario_digest": f"digest {k}"}
            table = stack.enter_context(folder.table("metrics"))
            table.extend(evaluation(time_s, 2 * time_s, 0.1 * time_s + 0.2) for time_s in range(4 + k))
            table.flush()
            if status == "done":
                table.close()
                with folder.table("clients"):
                    pass
            folder.write_manifest(Manifest(status, seed=k, device="cpu", extra=extra, versions={"simfl": "1"}))
        study = {"compare": {"x": ["time"], "y": "test_accuracy", "target": None}}
        values = {
            "name": "study",
            "description": "Which?",
            "version": "1",
            "study": study,
            "axes": {"x": ["a <b>", "c"]},
        }
        (root / "sweep.json").write_text(json.dumps({**values, "runs": rows, "baseline": None}))
        yield root


def test_a_sweep_shows_its_grid_and_curves(sweep):
    with serving(sweep) as server:
        status, _, text = ask(server, "")
        assert (status, "study" in Page(text).text, "Which?" in text) == (200, True, True)
        answer = data(server)
        assert answer["state"] == "4 runs: 1 done, 1 running, 1 failed, 1 missing"
        rows = {row["label"]: row["runs"] for row in answer["grid"]["rows"]}
        assert rows["a <b>"]["1"] == {"status": "done", "words": "6 updates, test accuracy 50.00%", "page": "run/r0/"}
        assert rows["a <b>"]["2"]["words"] == "8 updates, test accuracy 60.00%"
        assert rows["c"] == {"1": {"status": "failed", "words": "no memory"}, "2": {"status": "missing", "words": ""}}
        labels = [one["label"] for one in answer["curves"]["series"]]
        assert labels == ["a <b>", "a <b>, seed 2 (running)"]
        curve = answer["curves"]["series"][1]["curves"]["time"]["test_accuracy"]
        assert np.array(curve) == pytest.approx(np.array([[t, 0.1 * t + 0.2] for t in range(5)]))
        assert data(server, since=answer["version"]).keys() == {"version", "next_s", "state"}
        run = data(server, "run/r1/data")
        assert run["state"] == "running · 4 s of virtual time · 8 updates, test accuracy 60.00%"
        assert ask(server, "run/r1/")[0] == 200
        for path in ("run/r2/", "run/r3/", "run/../", "run/..%2f/", "run/r1", "run/r1/manifest.json"):
            assert ask(server, path)[0] == 404, path
        rows = json.loads((sweep / "sweep.json").read_text())
        rows["runs"][2] |= {"status": "missing", "reason": ""}
        (sweep / "sweep.json").write_text(json.dumps(rows))
        assert data(server, since=answer["version"])["state"] == "4 runs: 1 done, 1 running, 2 missing"


def test_a_run_of_an_earlier_plan_is_not_a_sweeps(sweep):
    rows = json.loads((sweep / "sweep.json").read_text())
    rows["runs"][0]["key"] = "another"
    (sweep / "sweep.json").write_text(json.dumps(rows))
    with serving(sweep) as server:
        assert data(server)["state"] == "4 runs: 2 missing, 1 running, 1 failed"


def test_invalid_arguments_are_rejected(half, tmp_path, simfl_):
    folder, _, _ = half
    nothing = f"{tmp_path / 'no'}: expected the folder of a run or a sweep, found nothing there\n"
    assert simfl_("watch", tmp_path / "no") == (2, "", nothing)
    code, _, said = simfl_("watch", folder.path.parent)
    assert (code, said.count("\n")) == (2, 1)
    assert "name a run in it: 001" in said
    code, _, said = simfl_("watch", folder.path, "--port", "70000")
    assert (code, said.count("\n"), "--port" in said) == (2, 1, True)
    with serve(folder.path) as server:
        taken = f"--port: cannot listen on port {server.port} of this machine: Address already in use"
        with pytest.raises(ScenarioError, match=taken):
            serve(folder.path, server.port)
    (tmp_path / "half" / "sweep.json").write_text("{}")
    with pytest.raises(DataError, match="expected the plan of a sweep"):
        serve(tmp_path / "half")


@needs_browser
def test_a_browser_follows_a_run(half):
    folder, metrics, updates = half
    timeline = folder.table("timeline")

    def more(start, stop):
        for count in range(start, stop):
            updates.append((0.5 * count, count % 2, -1, 0, 0, 32, 0.4, 0.0))
            timeline.append((count % 2, 0.5 * count, 0.5 * count + 0.25, 0))
        metrics.append(evaluation(0.5 * (stop - 1), stop, 0.5))
        for table in (metrics, updates, timeline):
            table.flush()

    with serving(folder.path) as server, a_tab() as tab:
        tab.open(server.url)
        tab.wait("document.getElementById('state').textContent.includes('has no evaluation yet')")
        more(0, 9)
        tab.wait("window.simfl && Math.abs(simfl.now - 3.75) < 1e-4")  # to there both clients are known
        more(9, 21)
        tab.wait("Math.abs(simfl.now - 9.75) < 1e-4")
        tab.run("simfl.choose({ run: simfl.runs[0], client: 1 }); simfl.seek(3.0)")
        tab.run("document.getElementById('color').value = 'updates'")
        more(21, 31)
        tab.wait("simfl.runs[0].timeline.start.length === 31")
        assert tab.run("simfl.now") == 3.0, "who goes somewhere else stays there"
        assert "Client 1" in tab.run("document.getElementById('details').textContent")
        assert tab.run("document.getElementById('color').value") == "updates"
        assert "15.25 s of virtual time" in tab.run("document.getElementById('state').textContent")
        assert tab.errors == []
        timeline.abort()


@needs_browser
def test_a_browser_shows_a_sweep(sweep):
    with serving(sweep) as server, a_tab() as tab:
        tab.open(server.url)
        tab.wait("document.querySelectorAll('#grid td.run').length === 4")
        tab.wait("document.querySelectorAll('#chart path.curve').length === 2")
        assert tab.run("document.querySelector('#grid tbody th').textContent") == "a <b>"
        assert tab.run("document.querySelector('#grid a').href") == f"{server.url}run/r0/"
        tab.run("document.querySelectorAll('.key')[0].click()")
        assert tab.run("document.querySelectorAll('#chart path.curve').length") == 1
        rows = json.loads((sweep / "sweep.json").read_text())
        rows["runs"][2] |= {"status": "missing", "reason": ""}
        (sweep / "sweep.json").write_text(json.dumps(rows))
        tab.wait("document.getElementById('state').textContent.includes('2 missing')")
        assert tab.run("document.querySelectorAll('#chart path.curve').length") == 1, "a switch stays as it is"
        assert tab.errors == []
