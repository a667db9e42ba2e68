"""Logs of federations: read as their programs write them, fitted, and written into a scenario."""

import json

import numpy as np
import pytest

from simfl import run
from simfl.errors import DataError
from simfl.live.federation import fit_computing
from simfl.live.logs import Device, read_log
from simfl.records.tables import ACTIVITIES
from simfl.scenario import load, loads

MODEL_BYTES = 2600  # softmax on digits


def log_of(speeds, tmp_path):
    noise = iter(np.exp(np.random.default_rng(0).normal(-(0.05**2) / 2, 0.05, 10_000)).tolist())
    lines = ["client,start,end,examples"]
    for name, speed in speeds.items():
        for i in range(60):
            size = (16, 32, 64)[i % 3]
            lines.append(f"{name},{i},{i + (1e-3 + size * 1e-4) * speed * next(noise)!r},{size}")
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_log_gives_speeds_relative_to_the_median(tmp_path):
    path = log_of({"10": 1.0, "9": 3.0, "²": 1.0, "x": 0.5, "11": 1.0}, tmp_path)
    pace, names = fit_computing(read_log(path, MODEL_BYTES), 1.0)
    assert names == ["9", "10", "11", "x", "²"], "numbers come first; a digit that is not decimal is a name"
    assert pace.speeds == pytest.approx((3.0, 1.0, 1.0, 0.5, 1.0), rel=0.03)
    assert pace.seconds_per_example == pytest.approx(1e-4, rel=0.05)
    assert pace.seconds_per_batch == pytest.approx(1e-3, rel=0.3)


HEADER = "client,event,start,end,bytes,examples\n"


@pytest.mark.parametrize(("text", "problem"), [
    ("a,b\n", "log.csv: expected the columns client, start, end and examples, or .*, found a, b$"),
    ("", "log.csv: expected the columns .*, found an empty file$"),
    ("client,start,end,examples\n", "expected at least one line about a client, found none$"),
    ("client,start,end,examples\n0,1,x,3\n", "log.csv:2: expected numbers for start, end, examples$"),
    ("client,start,end,examples\n0,1,1,3\n", "log.csv:2: expected start < end and .*, found 1, 1, 3$"),
    ("client,start,end,examples\n0,1\n", "log.csv:2: expected numbers"),
    (HEADER + "0,sleep,1,2,,\n", "log.csv:2: event: expected train, download, upload, online, found 'sleep'$"),
    (HEADER + "0,upload,1,2,,3\n", "log.csv:2: expected numbers for start, end, bytes$"),
    (HEADER + "0,upload,1,2,0,\n", "log.csv:2: expected start < end and bytes > 0, found 1, 2, 0$"),
    ('{"runs": [{"run-id": "1"}]}', "log.csv: expected what `flwr list --format json` prints, or .*network-traffic"),
    ('{"1": {"computation": 3}}', "log.csv: expected .*FedScale's capacities by client: KeyError 'communication'$"),
    (None, "log.csv: expected a CSV file, or a log of a federation: No such file or directory$"),
])  # fmt: skip
def test_an_invalid_log_is_an_error_of_one_line(tmp_path, text, problem):
    if text is not None:
        (tmp_path / "log.csv").write_text(text)
    with pytest.raises(DataError, match=problem):
        read_log(tmp_path / "log.csv", MODEL_BYTES)


def test_a_folder_without_logs_and_a_log_without_computations_are_errors(tmp_path, simfl_):
    with pytest.raises(DataError, match=r"expected log\.txt of NVFlare's clients in this folder, found none$"):
        read_log(tmp_path, MODEL_BYTES)
    (tmp_path / "log.txt").write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"log\.txt: expected a CSV file, or a log of a federation: 'utf-8' codec"):
        read_log(tmp_path, MODEL_BYTES)
    (tmp_path / "a.yaml").write_text("algorithm: {kind: fedavg}\n")
    (tmp_path / "log.csv").write_text(HEADER + "0,upload,1,2,10,\n")
    code, _, error = simfl_("calibrate", "a.yaml", "--from", "log.csv")
    assert (code, error) == (2, "--from: expected at least one computation of a client (event train), found none\n")


# As `nvflare.private.fed.client` of NVFlare 2.9 writes them.
_CONTEXT = "[identity=site-{k}, run=ab12, peer=server, peer_run=ab12, task_name={task}, task_id=7f]"
NVFLARE = """\
2026-11-03 10:00:00,500 - Communicator - INFO -  - Received from server. getTask: train size: 2.5KB (2600 Bytes) time: 0.250000 seconds
2026-11-03 10:00:00,510 - ClientRunner - INFO - {train} - got task assignment: name=train, id=7f
2026-11-03 10:00:00,600 - ClientRunner - INFO - {train} - invoking task executor PTClientAPILauncherExecutor
2026-11-03 10:00:0{end},600 - ClientRunner - INFO - {train} - finished processing task
2026-11-03 10:00:09,000 - Communicator - INFO -  - SubmitUpdate to: server. size: 2.5KB (2600 Bytes). time: 0.500000 seconds
2026-11-03 10:00:09,000 - ClientRunner - INFO - {validate} - invoking task executor PTClientAPILauncherExecutor
2026-11-03 10:00:09,900 - ClientRunner - INFO - {validate} - finished processing task
2026-11-03 10:00:09,950 - Communicator - INFO -  - SubmitUpdate to: server. size: 40.0B (40 Bytes). time: 0.010000 seconds
"""  # noqa: E501


def test_nvflares_logs_give_tasks_and_messages_of_each_site(tmp_path):
    for site, end in ((1, 2), (2, 6)):
        train, validate = (_CONTEXT.format(k=site, task=task) for task in ("train", "validate"))
        (tmp_path / f"site-{site}").mkdir()
        text = NVFLARE.format(train=train, validate=validate, end=end)
        (tmp_path / f"site-{site}" / "log.txt").write_text(text)
    entries = read_log(tmp_path, MODEL_BYTES)
    assert [(e.client, e.event, round(e.seconds, 3), e.bytes) for e in entries if e.event != "train"] == [
        ("site-1", "download", 0.25, 2600), ("site-1", "upload", 0.5, 2600),
        ("site-2", "download", 0.25, 2600), ("site-2", "upload", 0.5, 2600),
    ]  # fmt: skip
    assert [round(e.seconds, 3) for e in entries if e.event == "train"] == [2.0, 6.0]
    pace, names = fit_computing(entries, 32.0)
    assert names == ["site-1", "site-2"]
    assert pace.speeds[1] / pace.speeds[0] == pytest.approx(3.0)


def test_flowers_sums_give_the_mean_time_of_an_update(tmp_path):
    # As `_to_json` in `flwr.cli.ls` of Flower 1.42.
    run_ = {"run-id": "7", "network-traffic": {"outbound-bytes": 26_000}, "compute-time": {"clientapp-seconds": 30.0}}
    (tmp_path / "runs.json").write_text(json.dumps({"success": True, "runs": [run_]}))
    (entry,) = read_log(tmp_path / "runs.json", MODEL_BYTES)
    assert (entry.client, entry.event, entry.seconds) == ("7", "train", 3.0)


def test_fedscales_devices_become_a_table(tmp_path, simfl_):
    capacities = {"1": {"computation": 20.0, "communication": 8000.0}, "2": {"computation": 60, "communication": 400}}
    (tmp_path / "capacity.json").write_text(json.dumps(capacities))
    assert read_log(tmp_path / "capacity.json", 1) == [Device("1", 0.06, 1e6), Device("2", 0.18, 5e4)]
    (tmp_path / "a.yaml").write_text("algorithm: {kind: fedavg}\n")
    assert simfl_("calibrate", "a.yaml", "--from", "capacity.json", "--out", "b.yaml")[0] == 0
    table = (tmp_path / "b-devices.csv").read_text()
    assert table.splitlines()[1:] == ["1,0.06,8 Mbit/s,8 Mbit/s", "2,0.18,0.4 Mbit/s,0.4 Mbit/s"]
    assert simfl_("validate", "b.yaml")[0] == 0


TRUTH = """
algorithm: {kind: fedavg, local_steps: 4, batch_size: 8}
clients: {count: 4, seconds_per_batch: 10 ms, seconds_per_example: 2 ms, speed: {kind: list, values: [1, 1, 2, 5]}}
links: {latency: 30 ms, uplink: 1 Mbit/s, downlink: 4 Mbit/s}
record: {messages: true, timeline: true}
"""
STOP = "stop: {updates: 40}\n"


@pytest.mark.usefixtures("without_numbers")
def test_a_world_is_recovered_from_the_log_of_its_run(tmp_path, simfl_):
    finished = run(loads(TRUTH + STOP), out=tmp_path / "runs")
    lines = [HEADER.strip()]
    for one in finished.messages.itertuples():
        event, client = ("upload", one.source) if one.source < 4 else ("download", one.target)
        lines.append(f"{client},{event},{one.sent_s!r},{one.delivered_s!r},{one.bytes},")
    for one in finished.timeline.query(f"activity == {ACTIVITIES.index('compute')}").itertuples():
        lines.append(f"{one.client},train,{one.start_s!r},{one.end_s!r},,")
    lines += [f"{client},online,0,{50 + client},," for client in range(4)]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "a.yaml").write_text(TRUTH.split("clients")[0] + STOP)
    code, _, about = simfl_("calibrate", "a.yaml", "--from", "log.csv", "--out", "b.yaml")
    assert code == 0, about
    assert about.count("within 0.0 % of all medians") == 3
    fitted = load(tmp_path / "b.yaml")
    assert fitted.clients.speed.values == pytest.approx(np.array([1, 1, 2, 5]) / 1.5, rel=1e-3)
    assert (tmp_path / "b-online.csv").read_text().splitlines()[1:] == [f"{k},0,{50 + k}" for k in range(4)]
    assert run(fitted, out=tmp_path / "runs").manifest.time_s == pytest.approx(finished.manifest.time_s, rel=1e-3)
