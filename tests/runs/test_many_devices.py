"""Runs whose lanes several devices share: the CPU is divided, in a process that used it as one device before."""

import pytest

from simfl import ScenarioError, resume, run
from simfl.bench.verification import _run
from simfl.scenario import from_mapping

PRIVACY = {"mechanism": "gaussian", "clipping_norm": 1.0, "noise_multiplier": 1.0}


def scenario(model, **sections):
    return {
        "name": "shared",
        "clients": {"count": 8},
        "data": {"set": "digits"},
        "model": {"kind": model},
        "algorithm": {"kind": "adpsgd", "batch_size": 8},
        "stop": {"updates": 120},
        "evaluate": {"every": {"updates": 60}},
        **sections,
    }


def shared_by(devices, parts, folder, events=None):
    parts = {**parts, "execution": {**parts.get("execution", {}), "width": 4, "devices": devices}}
    return _run(from_mapping(parts), folder / str(devices), "cpu", *([] if events is None else [events]))


@pytest.mark.slow
def test_two_devices_give_the_tables_of_one_and_resume(tmp_path):
    private = scenario("softmax", privacy=PRIVACY)
    (one, _), (two, events) = (shared_by(devices, private, tmp_path) for devices in (1, 2))
    assert one.manifest.digest == two.manifest.digest
    cut, _ = shared_by(2, private, tmp_path / "cut", events // 2)
    assert cut.manifest.status == "interrupted"
    assert resume(cut.folder).manifest.digest == two.manifest.digest


@pytest.mark.slow
def test_two_devices_give_a_perceptron_equal_results_up_to_the_last_bits(tmp_path):
    """The products of matrices of a perceptron depend on the number of lanes of a device."""
    one, two = (shared_by(devices, scenario("mlp"), tmp_path)[0].metrics.train_loss for devices in (1, 2))
    assert one.to_numpy() == pytest.approx(two.to_numpy(), rel=1e-4)


def test_too_many_devices_and_indivisible_lanes_are_rejected_in_one_line(tmp_path):
    with pytest.raises(ScenarioError, match=r"^execution\.devices: expected at most 64 on the cpu of .*, found 999$"):
        run(scenario("softmax", execution={"devices": 999}), out=tmp_path, device="cpu")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ScenarioError, match=r"execution\.width: expected a multiple of the 2 devices, found 3"):
        from_mapping(scenario("softmax", execution={"devices": 2, "width": 3}))
