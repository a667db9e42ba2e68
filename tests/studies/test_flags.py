"""A sweep runs again what was compiled with other flags."""

from simfl.records.folder import flags
from simfl.studies import sweep

STUDY = {
    "name": "flags",
    "base": {
        "data": {"set": "digits"},
        "clients": {"count": 4},
        "algorithm": {"kind": "adpsgd", "batch_size": 8},
        "stop": {"updates": 8},
    },
    "seeds": 2,
}


def test_a_run_compiled_with_other_flags_runs_again(tmp_path, monkeypatch, without_numbers):
    def attempt():
        reports = []
        swept = sweep(STUDY, out=tmp_path, jobs=1, keep_compiled=False, progress=reports.append)
        assert all(run.status == "done" for run in swept.runs)
        manifests = [swept.open(run).manifest for run in swept.runs]
        assert {manifest.extra.get("xla_flags", "") for manifest in manifests} == {flags()}
        return sum(report.run is not None for report in reports)

    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.delenv("JAX_DISABLE_MOST_OPTIMIZATIONS", raising=False)
    assert flags() == ""
    assert (attempt(), attempt()) == (2, 0)
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=somewhere")
    assert attempt() == 0, "it changes no number"
    monkeypatch.setenv("XLA_FLAGS", "--xla_b=1 --xla_a=2")
    assert flags() == "--xla_a=2 --xla_b=1"
    assert (attempt(), attempt()) == (2, 0)
