"""The page that plays a run has the content of the tables, and a browser computes the same states from it."""

import base64
import hashlib
import json
import math
import re
import subprocess
import sys
import zlib

import numpy as np
import pytest

import simfl
from simfl.errors import DataError, ScenarioError
from simfl.records import ACTIVITIES, Manifest, RunFolder, read
from simfl.reports import page, played, player
from simfl.reports.page import write_report
from simfl.reports.played import NEVER
from simfl.reports.player import play
from simfl.reports.template import asset, embedded
from simfl.scenario import loads
from tests.chromium import a_tab, browser, needs_browser
from tests.reports.made_up import made_up
from tests.reports.test_page import Page, data_of

pytestmark = pytest.mark.usefixtures("without_numbers")

FAULTS = """
name: faults
seed: 5
data: {{set: digits}}
clients: {{count: 6, seconds_per_example: 1 ms, speed: {{kind: list, values: [1, 1.5, 2, 1, 1, 5]}},
  jitter: {{kind: lognormal, sigma: 0.3}}}}
topology: complete
links:
  latency: 5 ms
  bandwidth: 1 Mbit/s
  loss: 0.1
  resend_timeout: 20 ms
  partitions: [{{groups: [[0, 1, 2], [3, 4, 5]], from: 0.5 s, until: 0.6 s}}]
algorithm: {algorithm}
availability:
  - {{clients: [1], offline: [[0.1 s, 0.3 s], [0.7 s, 0.75 s]]}}
  - {{clients: [2], crash: [{{at: 0.42 s, back: 0.6 s}}]}}
  - {{clients: [4], random: {{up: {{kind: exponential, mean: 100 ms}}, down: 20 ms}}}}
stop: {{time: 1.21 s}}
evaluate: {{every: {{time: 0.1 s}}}}
record: {{messages: true, timeline: true}}
"""
ALGORITHMS = {
    "gossip": "{kind: adpsgd, batch_size: 16}",
    "server": "{kind: async_sgd, batch_size: 16}",
    "rounds": "{kind: decentralized_sgd, batch_size: 16}",
}
TYPES = {"u8": np.uint8, "u32": np.uint32, "f32": np.float32, "f64": np.float64}


def run_with_faults(tmp_path, algorithm="gossip"):
    return simfl.run(loads(FAULTS.format(algorithm=ALGORITHMS[algorithm]), "t"), out=tmp_path)


def unpack(column):
    """Decode a column as `replay.js` does."""
    planes = np.frombuffer(zlib.decompress(base64.b64decode(column["data"])), np.uint8)
    dtype = np.dtype(TYPES[column["type"]])
    values = np.ascontiguousarray(planes.reshape(dtype.itemsize, column["n"]).T).view(dtype).reshape(-1)
    return np.cumsum(values, dtype=dtype) if column["delta"] else values


def values_of(path):
    return data_of(path.read_text(encoding="utf-8"))["runs"]


def test_columns_are_unpacked_as_they_were():
    for kind, dtype in TYPES.items():
        values = np.array([5, 3, 3, 255, 0, 17]).astype(dtype)
        assert unpack(played.pack(values, kind)).tolist() == values.tolist()
        assert unpack(played.pack([], kind)).tolist() == []
    assert unpack(played.pack([5, 3, NEVER, 0], "u32", delta=True)).tolist() == [5, 3, NEVER, 0]


def test_the_page_has_the_content_of_the_tables(tmp_path):
    run = run_with_faults(tmp_path)
    (values,) = values_of(play(run, tmp_path / "p.html"))
    tick, times = values["tick_s"], unpack(values["times"])
    assert (np.diff(times.astype(float)) > 0).all()
    assert values["duration_s"] == run.manifest.time_s == pytest.approx(1.21)
    messages, packed = run.messages.sort_values("sent_s", kind="stable"), values["messages"]
    sent = unpack(packed["sent"])
    delivered = sent + unpack(packed["length"])
    assert packed["total"] == len(messages) > 100
    assert messages["resends"].sum() > 10
    assert times[sent] * tick == pytest.approx(messages["sent_s"].to_numpy(), abs=1e-8)
    assert times[delivered] * tick == pytest.approx(messages["delivered_s"].to_numpy(), abs=1e-8)
    for name in ("source", "target", "bytes", "resends"):
        assert unpack(packed[name]).tolist() == messages[name].tolist(), name
    timeline = run.timeline.sort_values(["client", "start_s"])
    start = unpack(values["timeline"]["start"])
    end = np.append(start[1:], np.zeros(1, np.uint32)) - unpack(values["timeline"]["gap"])
    assert times[start] * tick == pytest.approx(timeline["start_s"].to_numpy(), abs=1e-8)
    assert times[end] * tick == pytest.approx(timeline["end_s"].to_numpy(), abs=1e-8)
    assert unpack(values["timeline"]["activity"]).tolist() == timeline["activity"].tolist()
    assert np.diff(unpack(values["timeline"]["first"])).tolist() == timeline.groupby("client").size().tolist()
    assert unpack(values["updates"]["client"]).tolist() == run.updates["client"].tolist()
    assert unpack(values["updates"]["staleness"]).tolist() == run.updates["staleness"].tolist()
    assert unpack(values["clients"]["updates"]).tolist() == run.clients["updates"].tolist()
    assert values["metrics"]["columns"]["updates"]["values"] == run.metrics["updates"].tolist()
    (partition,) = values["partitions"]
    assert [partition[end] * tick for end in ("start", "end")] == pytest.approx([0.5, 0.6], abs=1e-8)
    assert unpack(partition["sides"]).tolist() == [1, 1, 1, 2, 2, 2]
    assert unpack(values["links"]).reshape(-1, 2).tolist() == sorted(run.edges.to_numpy().tolist())


def test_of_too_many_updates_a_message_has_the_staleness_of_the_next_one(tmp_path, monkeypatch):
    run = run_with_faults(tmp_path)
    monkeypatch.setattr(played, "MOST_UPDATES", 100)
    (values,) = values_of(play(run, tmp_path / "p.html"))
    messages, updates = run.messages.sort_values("sent_s", kind="stable"), run.updates
    expected = []
    for target, delivered_s in zip(messages["target"], messages["delivered_s"], strict=True):
        later = updates[(updates["client"] == target) & (updates["time_s"] >= delivered_s)]
        expected.append(later["staleness"].iloc[0] if len(later) else NEVER)
    assert unpack(values["messages"]["staleness"]).tolist() == expected
    assert NEVER in expected


def test_the_page_says_what_the_run_did_not_record(make_run, tmp_path):
    path = play(make_run(), tmp_path / "p.html")
    text = Page(path.read_text(encoding="utf-8")).text
    (values,) = values_of(path)
    assert values["messages"] is values["timeline"] is values["accuracy"] is None
    assert unpack(values["updates"]["client"]).tolist() == [count % 4 for count in range(50)]
    assert "did not record messages in flight: run it again with record: {play: true}" in text
    assert "did not record what each client does: run it again with record: {play: true}" in text
    own = "own models, if they have any: their accuracy and distance from consensus; for these, evaluate: "
    assert own + "{clients: true}." in text
    assert "updates and their staleness: run" not in text


def test_names_are_text_and_only_the_pages_script_may_run(make_run, tmp_path):
    run = make_run(name='x<script>alert("1")<')
    text = play([run, run], tmp_path / "p.html").read_text(encoding="utf-8")
    page = Page(text)
    assert "<script>alert" not in text
    assert len(page.ids) == len(set(page.ids))
    assert not [link for link in page.links if not link.startswith("data:")]
    assert not re.search(r"@import|url\(|https?://|fetch\(|import\(|innerHTML", text)
    script = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    (policy,) = (given["content"] for tag, given in page.tags if given.get("http-equiv"))
    digest = base64.b64encode(hashlib.sha256(script[-1].encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; script-src 'sha256-{digest}'; ")


def test_a_killed_run_lasts_as_long_as_its_tables(tmp_path, simfl_):
    folder = RunFolder.create(tmp_path, "killed")
    folder.write_scenario("name: killed\nseed: 1\nalgorithm: {kind: adpsgd}\nclients: {count: 2}\n")
    with folder.table("metrics") as table:
        table.append((0.0, 0, 0.0, 0, 1.0, 1.0, 0.5, 0.0, 0, 0, math.nan, 0.1))
    with folder.table("updates") as table:
        table.extend((0.5 * count, count % 2, -1, 0, 0, 32, 0.4, 0.0) for count in range(7))
    folder.write_manifest(Manifest("killed", seed=1, device="cpu"))
    code, out, said = simfl_("play", folder.path)
    assert (code, out) == (0, "play.html\n")
    assert said == f"{folder.path}: killed: the page ends with the last rows that were written\n"
    (values,) = values_of(tmp_path / "play.html")
    assert (values["duration_s"], values["count"]) == (3.0, 2)
    assert unpack(values["times"])[unpack(values["updates"]["time"])[-1]] == played.TICKS
    assert "This run is killed." in Page((tmp_path / "play.html").read_text(encoding="utf-8")).text


def test_a_notebook_shows_the_same_page_in_a_frame(make_run, tmp_path):
    run = read(make_run())
    shown = run.play(run.folder, height=700)
    (frame,) = (given for tag, given in Page(shown._repr_html_()).tags if tag == "iframe")
    assert frame["srcdoc"] == shown.html == play([run, run], tmp_path / "p.html").read_text(encoding="utf-8")
    assert (frame["sandbox"], "height: 700px" in frame["style"]) == ("allow-scripts", True)
    assert shown.save(tmp_path / "q.html").read_text(encoding="utf-8") == shown.html


def test_a_report_plays_runs_that_recorded_a_timeline(tmp_path, make_run, monkeypatch):
    run = run_with_faults(tmp_path)
    without = write_report([make_run()], tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<iframe" not in without
    text = write_report([run.folder], tmp_path / "r.html").read_text(encoding="utf-8")
    (frame,) = (given for tag, given in Page(text).tags if tag == "iframe")
    assert frame["srcdoc"] == play(run, tmp_path / "p.html").read_text(encoding="utf-8")
    assert frame["sandbox"] == "allow-scripts"
    assert len(text) < len(frame["srcdoc"]) + 60_000
    monkeypatch.setattr(page, "MOST_PLAYED_BYTES", 100)
    text = write_report([run.folder], tmp_path / "r.html").read_text(encoding="utf-8")
    assert "These runs are too long for this page. To watch them: simfl play RUN RUN." in Page(text).text
    assert "<iframe" not in text


def test_long_tables_are_thinned_out_and_the_page_says_so(tmp_path, monkeypatch):
    run = run_with_faults(tmp_path)
    for name, value in {
        "MOST_MESSAGES": 50,
        "MOST_UPDATES": 20,
        "MOST_INTERVALS": 10,
        "MOST_DISCS": 5,
        "BINS": 20,
    }.items():
        monkeypatch.setattr(played, name, value)
    path = play(run, tmp_path / "p.html")
    (values,) = values_of(path)
    text = Page(path.read_text(encoding="utf-8")).text
    kept, total = values["messages"]["sent"]["n"], len(run.messages)
    assert kept == pytest.approx(50, abs=2)
    assert f"Shown are {kept:,} of {total:,} messages ({kept / total:.1%})." in text
    assert values["updates"]["time"]["n"] < values["updates"]["total"] == len(run.updates)
    assert values["timeline"] is None
    assert "6 clients are drawn as 6 groups." in text
    shares = unpack(values["heat"]["shares"]).reshape(6, 20, len(ACTIVITIES)) / 255
    timeline, group = run.timeline, unpack(values["node_of"])
    lengths = (timeline["end_s"] - timeline["start_s"]).groupby([timeline["client"], timeline["activity"]]).sum()
    for (client, activity), seconds in lengths.items():
        assert shares[group[client], :, activity].mean() * run.manifest.time_s == pytest.approx(seconds, abs=0.005)


def test_invalid_arguments_are_rejected(make_run, tmp_path, simfl_):
    run = make_run()
    three = "play: expected one run, or two to play side by side, found 3"
    assert simfl_("play", run, run, run) == (2, "", f"{three}\n")
    missing = f"{tmp_path / 'no'}: expected the folder of a run, found nothing there\n"
    assert simfl_("play", tmp_path / "no") == (2, "", missing)
    with pytest.raises(ScenarioError, match="cannot write the page: No such file"):
        play(run, tmp_path / "no" / "p.html")
    with pytest.raises(ScenarioError, match="found 0"):
        play([])
    (run / "timeline.parquet").write_text("x")
    with pytest.raises(DataError, match=r"timeline\.parquet: cannot read the table"):
        play(run, tmp_path / "p.html")
    (run / "timeline.parquet").unlink()
    assert simfl_("play", run, "-o", "page.html") == (0, "page.html\n", "")


STATES = """
window.addEventListener("error", (event) => { window.failure = event.message; });
window.addEventListener("unhandledrejection", (event) => { window.failure = String(event.reason); });
document.addEventListener("securitypolicyviolation", (event) => { window.failure = event.blockedURI; });
(async () => {
  while (!window.simfl && !window.failure) await new Promise((go) => setTimeout(go, 20));
  const { runs, Replay, seek, choose } = window.simfl, times = JSON.parse(document.getElementById("times").textContent);
  const states = runs.map((run) => times.map((time) => Replay.state(run, time / run.tick_s)));
  seek(0.4);
  choose({ run: runs[0], client: 2 });
  const client = document.getElementById("details").textContent;
  if (runs[0].messages) choose({ run: runs[0], message: 3 });
  const message = document.getElementById("details").textContent;
  const press = (key) => {
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    return window.simfl.now;
  };
  const keys = [press("ArrowRight"), press("ArrowLeft"), press("e"), press("End"), press("Home")];
  press(" ");
  const playing = [window.simfl.playing];
  press(" ");
  playing.push(window.simfl.playing);
  for (const menu of document.querySelectorAll("#color, #measure")) {
    for (const { value } of menu.options) { menu.value = value; menu.dispatchEvent(new Event("change")); seek(0.3); }
  }
  window.dispatchEvent(new Event("beforeprint"));
  seek(0.4);
  const out = document.createElement("pre");
  out.id = "states";
  out.textContent = JSON.stringify({ states, client, message, failure: window.failure || "",
    keys, playing, now: document.querySelector(".now").textContent });
  document.body.append(out);
})();
"""


def in_browser(path, times, tmp_path):
    """Open a page with one more script that writes states into it; return them."""
    digest = base64.b64encode(hashlib.sha256(STATES.encode()).digest()).decode()
    text = path.read_text(encoding="utf-8").replace("script-src ", f"script-src 'sha256-{digest}' ", 1)
    data = f'<script type="application/json" id="times">{json.dumps(times)}</script>'
    path.write_text(text.replace('<script type="app', f'{data}<script>{STATES}</script><script type="app', 1))
    command = [browser(), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    done = subprocess.run(
        [*command, "--virtual-time-budget=20000", "--dump-dom", path.as_uri()],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    written = re.search(r'<pre id="states">(.*?)</pre>', done.stdout, re.DOTALL)
    assert written, done.stdout[-2000:]
    return json.loads(written[1].replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&"))


@needs_browser
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_browser_computes_the_states_of_the_tables(tmp_path, algorithm):
    run = run_with_faults(tmp_path, algorithm)
    times = np.random.default_rng(7).uniform(0, run.manifest.time_s, 1000).tolist()
    result = in_browser(play(run, tmp_path / "p.html"), times, tmp_path)
    assert result["failure"] == ""
    messages, timeline, updates, metrics = run.messages, run.timeline, run.updates, run.metrics
    for time_s, state in zip(times, result["states"][0], strict=True):
        assert state["flying"] == ((messages["sent_s"] <= time_s) & (messages["delivered_s"] > time_s)).sum()
        assert state["updates"] == (updates["time_s"] <= time_s).sum()
        assert state["evaluation"] == (metrics["time_s"] <= time_s).sum() - 1
        current = timeline[(timeline["start_s"] <= time_s) & (timeline["end_s"] > time_s)]
        activity = dict(zip(current["client"], current["activity"], strict=True))
        assert state["activity"] == [activity.get(client, -1) for client in range(6)]
        last = updates[updates["time_s"] <= time_s].groupby("client")["staleness"].last()
        assert state["staleness"] == [last.get(client, -1) for client in range(6)]
    assert {ACTIVITIES[k] for state in result["states"][0] for k in state["activity"]} >= {"compute", "offline"}
    flying = ((messages["sent_s"] <= 0.4) & (messages["delivered_s"] > 0.4)).sum()
    assert f"{(updates['time_s'] <= 0.4).sum():,} updates · {flying} in flight" in result["now"]
    ends = [timeline["start_s"], messages["sent_s"], messages["delivered_s"], updates["time_s"], metrics["time_s"]]
    events = np.unique(np.concatenate(ends))
    later = events[events > 0.4 + 1e-8][0]
    expected = [later, events[events < later - 1e-8][-1], 0.4, run.manifest.time_s, 0.0]
    expected[2] = metrics["time_s"][metrics["time_s"] > expected[1] + 1e-8].iloc[0]
    assert result["keys"] == pytest.approx(expected, abs=1e-8)
    assert result["playing"] == [True, False]
    assert "Client 2" in result["client"]
    third = messages.sort_values("sent_s", kind="stable").iloc[3]
    name = {6: "server"}
    ends = [name.get(int(third[end]), f"client {int(third[end])}") for end in ("source", "target")]
    assert f"Message from {ends[0]} to {ends[1]}" in result["message"]
    assert f"Sent at {third['sent_s']:.4f}"[:-1] in result["message"]


VERSIONS = """
(() => {
  const [run] = simfl.runs, { Replay } = simfl, n = run.messages.sent.length;
  return Array.from({ length: n }, (_, i) => {
    const { sent, delivered, used, staleness, resends } = run.messages;
    const { all, own, after, read } = Replay.versions(run, i);
    const at = (share) => Replay.attemptAt(run, i, sent[i] + share * (delivered[i] - sent[i]));
    const shares = Array.from({ length: 101 }, (_, k) => at(k / 100));
    return {
      all, own, after, read, used: used[i] === Replay.NEVER ? null : used[i] * run.tick_s, staleness: staleness[i],
      attempts: shares.map(({ attempt }) => attempt), phases: shares.map(({ phase }) => phase),
      valid: shares.every(({ share, fall }) => share >= 0 && share <= 1 && fall >= 0 && fall <= 1),
      ends: [at(0).share, at(1).share, at(1).phase], resends: resends[i],
    };
  });
})()
"""


@needs_browser
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_browser_knows_the_versions_of_messages(tmp_path, algorithm):
    run = run_with_faults(tmp_path, algorithm)
    with a_tab() as tab:
        tab.open(play(run, tmp_path / "p.html").as_uri())
        tab.wait("window.simfl")
        found = tab.run(VERSIONS)
    updates, messages = run.updates, run.messages.sort_values("sent_s", kind="stable").to_dict("records")
    lost = 0
    for row, said in zip(messages, found, strict=True):
        end = row["target"] if row["target"] < 6 else row["source"]
        later = updates[(updates["client"] == end) & (updates["time_s"] >= row["delivered_s"])]
        before = updates["time_s"] <= row["sent_s"] + 2 * run.manifest.time_s / played.TICKS  # ticks are equal
        assert said["all"] == before.sum()
        assert said["own"] == ((updates["client"] == row["source"]) & before).sum() if row["source"] < 6 else -1
        if not len(later):
            assert (said["used"], said["after"], said["read"], said["staleness"]) == (None, -1, -1, NEVER)
            continue
        used = later.index[0]
        assert said["used"] == pytest.approx(later["time_s"].iloc[0], abs=1e-8)
        assert said["staleness"] == later["staleness"].iloc[0]
        assert (said["after"], said["read"]) == (max(0, used - said["all"]), used - said["staleness"])
        if algorithm == "server" and row["source"] == 6 and end in (0, 3):  # these are always online
            assert said["read"] == said["all"], "a gradient is taken at the model that the server sent"
        assert said["valid"]
        assert said["attempts"] == sorted(said["attempts"])
        assert (said["attempts"][0], said["attempts"][-1]) == (0, row["resends"])
        assert said["ends"] == [0, pytest.approx(1), "flies"]
        assert ("falls" in said["phases"]) == (row["resends"] > 0)
        lost += row["resends"]
    assert lost >= 10


RESTRICTED = """
(() => {
  const [run] = simfl.runs, { Replay } = simfl, ticks = [0.31, 0.9].map((time) => time / run.tick_s);
  return [null, Uint8Array.from([0, 1, 0, 0, 1, 0])].map((picked) => Replay.totals(run, ...ticks, picked));
})()
"""


@needs_browser
def test_a_browser_restricts_all_views(tmp_path):
    run = run_with_faults(tmp_path)
    with a_tab() as tab:
        tab.open(play(run, tmp_path / "p.html").as_uri())
        tab.wait("window.simfl")
        updates = run.updates[run.updates["time_s"].between(0.31, 0.9)]
        messages = run.messages[run.messages["sent_s"].between(0.31, 0.9)]
        for sums, clients in zip(tab.run(RESTRICTED), (range(6), (1, 4)), strict=True):
            own = updates[updates["client"].isin(clients)]
            some = messages[messages["source"].isin(clients) | messages["target"].isin(clients)]
            expected = {"updates": len(own), "staleness": own["staleness"].sum(), "messages": len(some)}
            assert sums == {**expected, "bytes": some["bytes"].sum(), "lost": some["resends"].sum()}

        def box(query):
            script = f"(({{ x, y, width, height }}) => [x, y, width, height])({query}.getBoundingClientRect())"
            return tab.run(f"{query}.scrollIntoView({{ block: 'center' }}), {script}")

        # A drag over the curve restricts the time.
        x, y, width, height = box("document.getElementById('curve')")
        tab.drag(x + 58 + (width - 66) / 4, y + 20, x + 58 + (width - 66) / 2, y + 40)
        brush = tab.run("simfl.stage.brush")
        assert [brush["from"], brush["to"]] == pytest.approx([1.21 / 4, 1.21 / 2], abs=0.01)
        assert tab.run("[simfl.stage.view, simfl.now]") == [brush, brush["from"]]
        tab.press("End")
        tab.wait(f"simfl.now === {brush['to']}")
        inside = run.updates["time_s"].between(brush["from"], brush["to"]).sum()
        assert f"{inside} updates, mean staleness" in tab.run("document.getElementById('restriction').textContent")
        assert tab.run("document.getElementById('filter').checkVisibility()")
        # A rectangle in the graph restricts the clients; then lanes, messages and the table have only these.
        x, y, width, height = box("document.querySelector('.graph')")
        tab.drag(x + 1, y + 1, x + width / 2, y + height - 1)
        picked = tab.run("[...simfl.stage.picked]")
        assert 0 < sum(picked) < 6
        tab.run("document.getElementById('moment').open = true")
        tab.wait("document.querySelectorAll('#moment tr').length")
        rows = tab.run(
            "[...document.querySelectorAll('#moment tr')].slice(1).map((row) => Number(row.cells[0].textContent))"
        )
        assert rows == [k for k in range(6) if picked[k]]
        assert tab.run(
            "(() => { const { stage, runs: [run] } = simfl, { flying, lines } = stage.scenes.get(run);"
            " return [...flying, ...lines].every((i) => simfl.Replay.touches(run, i, stage.picked)); })()"
        )
        tab.press("Escape")
        tab.wait("!simfl.stage.brush && !simfl.stage.picked")
        assert not tab.run("document.getElementById('filter').checkVisibility()")
        # A rectangle over lanes restricts both.
        x, y, width, height = box("document.querySelector('.lanes')")
        tab.drag(x + 60, y + 6, x + width / 2, y + height / 2)
        assert tab.run("[...simfl.stage.picked].slice(0, 2)") == [1, 1]
        assert tab.run("simfl.stage.brush.to - simfl.stage.brush.from") > 0
        tab.run("simfl.choose({ run: simfl.runs[0], client: 1 })")
        assert "updates from " in tab.run("document.getElementById('details').textContent")
        assert tab.errors == []


@needs_browser
@pytest.mark.parametrize("look", [{}, {"dark": True}, {"width": 390, "height": 844}, {"calm": True}])
def test_a_page_in_a_file_is_played_by_hand(tmp_path, look):
    run = run_with_faults(tmp_path)
    with a_tab(**look) as tab:
        tab.open(play([run, run], tmp_path / "p.html").as_uri())
        tab.wait("window.simfl")
        tab.press(" ", text=" ")
        tab.wait("simfl.now > 0.02")
        tab.press(" ", text=" ")
        tab.wait("!simfl.playing")
        tab.run(
            "(() => { const scrub = document.getElementById('scrub'); scrub.value = 50000;"
            " scrub.dispatchEvent(new Event('input')); })()"
        )
        tab.wait("Math.abs(simfl.now - 1.21 / 2) < 1e-6")
        point = """(() => {
          const [run] = simfl.runs, scene = simfl.stage.scenes.get(run), canvas = scene.graph;
          canvas.scrollIntoView({ block: "start" });
          const box = canvas.getBoundingClientRect(), { x, y } = scene.placed;
          return [box.x + x[4], box.y + y[4]];
        })()"""
        tab.click(*tab.run(point))
        tab.wait("document.getElementById('details').textContent.startsWith('×Client 4')")
        # The first message after this moment that lies on no client, once it is half way.
        half_way = """(() => {
          const [run] = simfl.runs, { sent, delivered, resends, source, target } = run.messages;
          const fits = (i) => !resends[i] && source[i] === 0 && target[i] === 3;
          const i = sent.findIndex((time, i) => time * run.tick_s > 0.7 && fits(i));
          simfl.choose(null);
          simfl.seek((sent[i] + delivered[i]) / 2 * run.tick_s);
          const canvas = simfl.stage.scenes.get(run).graph, { x, y } = simfl.stage.scenes.get(run).placed;
          canvas.scrollIntoView({ block: "start" });
          const box = canvas.getBoundingClientRect();
          return [box.x + (x[0] + x[3]) / 2, box.y + (y[0] + y[3]) / 2];
        })()"""
        tab.click(*tab.run(half_way))
        tab.wait("document.getElementById('details').textContent.includes('Message from client')")
        said = tab.run("document.getElementById('details').textContent")
        assert all(
            word in said for word in ("Sent at", "delivered at", "Versions: when it was sent", "updates came between")
        )
        colorings = tab.run("[...document.getElementById('color').options].map(({ value }) => value)")
        assert colorings == ["activity", "staleness", "updates"]
        pictures = set()
        for name in colorings:
            tab.run(
                f"(() => {{ const menu = document.getElementById('color'); menu.value = '{name}';"
                " menu.dispatchEvent(new Event('change')); })()"
            )
            tab.wait(f"simfl.stage.mode === '{name}'")
            tab.run("new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))")
            pictures.add(tab.run("document.querySelector('.graph').toDataURL()"))
        assert len(pictures) == 3
        printed = base64.b64decode(tab.call("Page.printToPDF", printBackground=True)["data"])
        assert printed.startswith(b"%PDF")
        assert tab.errors == []


@needs_browser
def test_clients_are_colored_by_their_distance_from_consensus(tmp_path):
    text = FAULTS.format(algorithm=ALGORITHMS["gossip"]).replace("0.1 s}}", "0.1 s}, clients: true}")
    run = simfl.run(loads(text, "t"), out=tmp_path)
    with a_tab() as tab:
        tab.open(play(run, tmp_path / "p.html").as_uri())
        tab.wait("window.simfl")
        last = run.client_metrics[run.client_metrics["time_s"] <= 0.65].groupby("client").last()
        for column, name in (("consensus_distance", "distance"), ("test_accuracy", "accuracy")):
            values = tab.run(
                f"(() => {{ const [run] = simfl.runs; return Array.from({{ length: 6 }}, (_, k) =>"
                f" simfl.stage.colorings.{name}.of(run, k, 0.65 / run.tick_s)); }})()"
            )
            assert values == pytest.approx(last[column].tolist(), rel=1e-6)
        tab.run("simfl.restrict({ picked: Uint8Array.from([1, 0, 0, 0, 0, 0]) })")
        assert tab.errors == []


WIDGET = """
const values = JSON.parse(document.getElementById("values").textContent), actions = {};
const model = {
  get: (name) => values[name] ?? null, set: (name, value) => { values[name] = value; },
  save_changes: () => { values.saved = (values.saved || 0) + 1; },
  on: (event, action) => { actions[event] = action; }, off: (event) => { delete actions[event]; },
};
playerWidget.render({ model, el: document.getElementById("el") }).then((leave) => {
  const host = document.querySelector("#el > div");
  window.made = { values, actions, leave, host, root: host.shadowRoot };
});
"""


@needs_browser
def test_a_widget_shares_its_moment_with_the_kernel(tmp_path):
    run = run_with_faults(tmp_path)
    contents = player.contents_of([run, run])
    values = {"_style": asset("player.css"), "_body": player.body_of(contents), "height": 600}
    values |= {"_data": json.dumps(player.data_of(contents)), "now": 0.0, "client": None}
    script = asset(*(f"scripts/{name}.js" for name in (*player.SCRIPTS, "widget")))
    page = (
        f'<!DOCTYPE html><div id="el"></div><script type="application/json" id="values">{embedded(json.dumps(values))}'
    )
    (tmp_path / "w.html").write_text(
        f'{page}</script><script type="module">{script}{WIDGET}</script>', encoding="utf-8"
    )
    with a_tab() as tab:
        tab.open((tmp_path / "w.html").as_uri())
        tab.wait("window.made")
        assert tab.run("made.root.querySelectorAll('.run').length") == 2
        assert tab.run("made.root.querySelector('.page').clientHeight") == 598
        press = "made.host.dispatchEvent(new KeyboardEvent('keydown', { key: 'End' }))"
        tab.run(press)
        tab.wait(f"Math.abs(made.values.now - {run.manifest.time_s}) < 1e-9")
        tab.run("made.values.now = 0.4, made.actions['change:now']()")
        tab.wait("made.root.getElementById('clock').textContent === '0.4000 s'")
        assert "in flight" in tab.run("made.root.querySelector('.now').textContent")
        tab.run("made.host.dispatchEvent(new KeyboardEvent('keydown', { key: 'c' }))")
        tab.wait("made.values.client === 0")
        tab.run("made.leave()")
        assert tab.run("Object.keys(made.actions).length") == 0
        assert tab.errors == []


def test_a_notebook_gets_the_widget_where_anywidget_is(make_run, monkeypatch):
    shown = read(make_run()).play(height=500)
    monkeypatch.setitem(sys.modules, "anywidget", None)
    assert shown._repr_mimebundle_().keys() == {"text/html", "text/plain"}
    monkeypatch.undo()
    pytest.importorskip("anywidget", reason="anywidget is missing: pip install 'simfl[notebook]'")
    player._widget_class.cache_clear()
    bundle = shown._repr_mimebundle_()
    assert bundle["text/html"] == shown._repr_html_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert (shown.widget.now, shown.widget.client, shown.widget.height) == (0.0, None, 500)


@needs_browser
def test_many_clients_are_groups_and_messages_a_part(tmp_path, monkeypatch):
    monkeypatch.setattr(played, "MOST_MESSAGES", 5_000)
    run = made_up(tmp_path, clients=2_500, each=8)
    with a_tab() as tab:
        path = play(run, tmp_path / "p.html")
        assert "2,500 clients are drawn as 50 groups." in Page(path.read_text(encoding="utf-8")).text
        tab.open(path.as_uri())
        tab.wait("window.simfl")
        tab.run("simfl.seek(simfl.runs[0].duration_s / 3)")
        now = tab.run("document.querySelector('.now').textContent")
        assert re.search(r"\d+ in flight of the 25 % of messages that the page has", now)
        sums = [int(text.replace(",", "")) for text in re.findall(r"([\d,]+) (?:compute|communicate)", now)]
        assert sums == [pytest.approx(2_250, abs=60), 2_500 - sums[0]]
        tab.run("simfl.choose({ run: simfl.runs[0], client: 7 })")
        assert "50 clients, speed class 8 of 50" in tab.run("document.getElementById('details').textContent")
        tab.run("simfl.restrict({ picked: Uint8Array.from({ length: 2500 }, (_, k) => k < 40 ? 1 : 0) })")
        assert tab.errors == []


@needs_browser
def test_a_browser_shows_a_run_without_optional_tables(make_run, tmp_path):
    result = in_browser(play([make_run(), make_run(algorithm="sync_sgd")], tmp_path / "p.html"), [0.0, 5.0], tmp_path)
    assert result["failure"] == ""
    assert result["states"][1][1] == {
        "activity": [-1] * 4, "flying": 0, "updates": 50, "staleness": [3] * 4,
        "evaluation": (read(make_run()).metrics["time_s"] <= 5.0).sum() - 1,
    }  # fmt: skip


@needs_browser
def test_a_browser_shows_collectives(tmp_path):
    text = FAULTS.format(algorithm="{kind: sync_sgd, batch_size: 16}").split("availability:")
    text = text[0].replace("loss: 0.1", "loss: 0") + "stop:" + text[1].split("stop:")[1]
    run = simfl.run(loads(text, "t"), out=tmp_path)
    talk = run.timeline[run.timeline["activity"] == ACTIVITIES.index("communicate")]
    ends = sorted(zip(talk["start_s"], talk["end_s"], strict=True))
    times = [*np.random.default_rng(7).uniform(0, run.manifest.time_s, 300).tolist(), sum(ends[0]) / 2]
    with a_tab() as tab:
        tab.open(play(run, tmp_path / "p.html").as_uri())
        tab.wait("window.simfl")
        states = tab.run(
            f"{json.dumps(times)}.map((time) => {{ const [run] = simfl.runs;"
            f" return simfl.Replay.collectives(run, time / run.tick_s, {ACTIVITIES.index('communicate')}); }})"
        )
        for time_s, state in zip(times, states, strict=True):
            clients = talk["client"][(talk["start_s"] <= time_s) & (talk["end_s"] > time_s)].tolist()
            assert [each["clients"] for each in state] == ([sorted(clients)] if len(clients) > 1 else [])
        tab.run(f"simfl.seek({times[-1]}); simfl.choose({{ run: simfl.runs[0], client: 2 }})")
        assert "a collective of 6 clients" in tab.run("document.querySelector('.now').textContent")
        assert "together with 5 other clients" in tab.run("document.getElementById('details').textContent")
        assert tab.errors == []
