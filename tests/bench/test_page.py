"""`simfl bench --page` writes one page about a device, failures included."""

import pytest

from simfl.bench import page
from simfl.bench.cases import MODELS
from simfl.errors import RunError

ABOUT = {"device": "gpu (made up)", "driver": "a | b"}
ROW = {
    "case": "c", "precision": "bfloat16", "width": 256, "updates_per_s": 1234.5, "kernel_limit_ratio": 0.5,
    "digest": "0123456789abcdef0", "equal": False, "train_loss": 0.25, "cpu_train_loss": 0.26,
}  # fmt: skip
RATES = {"case": "c", "workers": 4, "device": "gpu", "automatic": 8, "updates_per_s": {"8": 10.0, "32": 2000.0}}


def written(monkeypatch, path, cases=("a", "b"), ends=(), killed=()):
    def in_process(module, name, echo, *arguments):
        assert (module, arguments) == ("page", ("gpu",))
        if name in killed:
            raise KeyboardInterrupt
        if name in ends:
            raise RunError(f"bench: {name} failed: no algorithm")
        return [ROW] if name else ABOUT

    monkeypatch.setattr(page, "_in_process", in_process)
    monkeypatch.setattr(page, "run_widths", lambda cases, device: [RATES])
    return page.write_page(path, cases, "gpu", lambda line: None), path.read_text()


def test_the_page_has_the_machine_both_precisions_widths_and_failures(tmp_path, monkeypatch):
    went_well, text = written(monkeypatch, tmp_path / "page.md")
    assert went_well
    assert "| driver | a / b |" in text
    assert text.count("| c | bfloat16 | 256 | 1,234 | 0.50 | 0123456789abcdef | no | 0.25 | 0.26 |") == 2
    assert "| case | workers | auto | 8 | 32 |" in text
    assert text.endswith("## What failed\n\nNothing.\n")
    went_well, text = written(monkeypatch, tmp_path / "page.md", ends=("a",))
    assert not went_well
    assert text.count("| c | bfloat16") == 1
    assert text.endswith("- precision: bench: a failed: no algorithm\n")
    went_well, text = written(monkeypatch, tmp_path / "page.md", ends=("",))
    assert not went_well
    assert "- the machine: bench:  failed" in text


def test_the_page_of_a_measurement_that_is_ended_has_the_cases_before(tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        written(monkeypatch, tmp_path / "page.md", killed=("b",))
    text = (tmp_path / "page.md").read_text()
    assert text.count("| c | bfloat16") == 1
    assert "| case | workers | auto | 8 | 32 |" in text


def test_the_command_writes_the_page_of_a_gpu_and_rejects_other_options(tmp_path, monkeypatch, simfl_):
    monkeypatch.chdir(tmp_path)
    calls = []
    monkeypatch.setattr(page, "write_page", lambda *given: calls.append(given[:3]) or True)
    simfl_("bench", "--device", "gpu")
    simfl_("bench", "digits-softmax-adpsgd", "--page", "x.md", "--device", "cpu")
    assert [(str(path), list(cases), device) for path, cases, device in calls] == [
        ("bench-gpu.md", list(MODELS), "gpu"), ("x.md", ["digits-softmax-adpsgd"], "cpu"),
    ]  # fmt: skip
    for options in (["--quick"], ["sweep"], ["--json", "-"]):
        assert "bench --page: expected cases" in simfl_.refused("bench", "--page", "x.md", *options)
    assert "--page: no/x.md: there is no such folder" in simfl_.refused("bench", "--page", "no/x.md")


@pytest.mark.slow
def test_a_case_is_measured_in_both_precisions_beside_the_cpu():
    rows = page.measure("digits-softmax-adpsgd-16", "cpu", 400)
    assert [row["precision"] for row in rows] == ["float32", "bfloat16"]
    assert all(row["equal"] for row in rows)
    assert rows[0]["digest"] != rows[1]["digest"]
    about = page.describe("cpu")
    assert about["device"].startswith("cpu")
    assert about["world"] in ("compiled", "not compiled")
