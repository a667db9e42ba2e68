"""Runs with products in bfloat16: equal in all ways of running, other than float32, and measured in float32."""

import pytest

from simfl import DataError, resume, run
from simfl.assembly.data import shared_data
from simfl.bench.verification import _run, verify
from simfl.records import RunFolder
from simfl.runs.checkpoint import fingerprint
from simfl.runs.runner import prepare
from simfl.scenario import from_mapping
from simfl.studies.together import Group, groups_of
from simfl.studies.worlds import world_key
from simfl.tape.executor import choose_device
from tests.runs.test_many_devices import PRIVACY, shared_by
from tests.runs.test_many_devices import scenario as made


def scenario(precision="bfloat16", **sections):
    return from_mapping(made(privacy=PRIVACY, execution={"precision": precision}, **sections))


def test_precision_keeps_groups_and_checkpoints_apart():
    low, exact = scenario(), scenario("float32")
    assert world_key(low) != world_key(exact)
    prints = [fingerprint(prepare(one), choose_device("cpu"), "4") for one in (low, exact)]
    assert {name for name in prints[0] if prints[0][name] != prints[1][name]} == {"precision"}


@pytest.mark.slow
def test_precision_decides_tables_and_evaluations_are_float32(tmp_path):
    low, exact = scenario(), scenario("float32")
    cut, _ = _run(low, tmp_path / "cut", "cpu", 200)
    with pytest.raises(DataError, match="expected the precision of the checkpoint, bfloat16, found float32;"):
        resume(cut.folder, scenario=exact)
    done = resume(cut.folder)
    whole, other = (_run(one, tmp_path / name, "cpu")[0] for name, one in (("low", low), ("exact", exact)))
    assert done.manifest.digest == whole.manifest.digest != other.manifest.digest
    first, last = ([run.metrics.train_loss.iloc[at] for run in (whole, other)] for at in (0, -1))
    assert first[0] == first[1]  # the initial model, measured in float32
    assert last[0] == pytest.approx(last[1], rel=1e-2)
    assert whole.metrics.epsilon.equals(other.metrics.epsilon)


@pytest.mark.slow
def test_equal_in_every_way_on_two_devices_and_in_a_group(tmp_path):
    assert len({way.digest for way in verify(scenario(), tmp_path / "ways", "cpu")}) == 1
    one, two = (shared_by(count, scenario().resolved(), tmp_path)[0] for count in (1, 2))
    assert one.manifest.digest == two.manifest.digest
    with shared_data():
        setups = [prepare(scenario().replace({"algorithm.step_size": eta})) for eta in (0.05, 0.1)]
    assert [*groups_of(setups, [None, None])] == [[0, 1]]
    group = Group(setups, choose_device("cpu"))
    try:
        together = group.run([RunFolder.create(tmp_path, "group", str(at)) for at in range(2)])
    finally:
        group.session.executor.close()
    alone = [run(prepare(one.scenario), out=tmp_path, device="cpu") for one in setups]
    assert [run.manifest.digest for run in together] == [run.manifest.digest for run in alone]
