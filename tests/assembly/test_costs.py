"""Energy, money and carbon of runs, by hand from times and bytes."""

import numpy as np
import pytest

import simfl
from simfl.assembly.assemble import prepare
from simfl.assembly.costs import Meter, meter_of
from simfl.errors import DataError, ScenarioError
from simfl.world.steps import Steps

TWO = {
    "data": "digits",
    "clients": {
        "count": 2, "seconds_per_example": "1 ms", "speed": {"kind": "list", "values": [1, 3]},
        "jitter": {"kind": "constant"},
    },
    "links": {"latency": "10 ms", "bandwidth": "1 Mbit/s"},
    "algorithm": {"kind": "fedavg", "batch_size": 10, "local_steps": 2},
    "stop": {"time": "3 s"},
    "evaluate": {"every": {"time": "500 ms"}},
}  # fmt: skip
COSTS = {"busy_watts": 5, "idle_watts": 1, "joules_per_byte": 1e-3, "per_hour": 2, "per_gigabyte": 0.1, "carbon": 300}


@pytest.mark.usefixtures("without_numbers")
def test_costs_of_two_clients_follow_from_their_times_and_bytes(tmp_path):
    plain, run, again = (simfl.run({**TWO, **more}, out=tmp_path) for more in ({}, {"costs": COSTS}, {"costs": COSTS}))
    assert run.manifest.digest == again.manifest.digest
    assert run.metrics[plain.metrics.columns].drop(columns="wall_s").equals(plain.metrics.drop(columns="wall_s"))
    # A round of 20 examples computes for 20 and 60 ms, and each client is online for 3 s.
    computed_s, sent = run.clients["compute_s"].to_numpy(), run.metrics["bytes_sent"].iloc[-1]
    assert computed_s == pytest.approx([25 * 0.02, 25 * 0.06])
    energy_j = 5 * computed_s.sum() + 1 * (6 - computed_s.sum()) + 1e-3 * sent
    last = run.metrics.iloc[-1]
    assert last["energy_j"] == pytest.approx(energy_j, rel=1e-12)
    assert last["money"] == pytest.approx(2 * 6 / 3600 + 0.1 * sent / 1e9, rel=1e-12)
    assert last["carbon_g"] == pytest.approx(300 * energy_j / 3.6e6, rel=1e-12)
    assert simfl.plot(run, x="energy").get_xlabel() == "energy (J)"
    table = simfl.compare([run], target="test_loss=1e9")
    assert "to_target_energy_j" in table
    assert "to_target_energy_j" not in simfl.compare([plain], target="test_loss=1e9")
    with pytest.raises(DataError, match=r"this run measured no CO2 equivalent; add a section costs, or choose"):
        simfl.plot(plain, x="carbon")


def test_carbon_is_energy_times_the_mean_intensity_of_each_interval():
    day, constant = Steps((0.0, 10.0), (100.0, 400.0), 20.0), Steps((0.0,), (50.0,))
    meter = Meter(np.array([3.6e6, 0.0]), np.zeros(2), np.array([0.0, 0.0, 3.6e6]), intensity=[day, day, constant])
    half, zero, sent = np.array([5.0, 0.0]), np.zeros(3, dtype=np.int64), np.array([0, 0, 2])
    assert meter.read(5.0, half, half, zero)["carbon_g"] == 5 * 100
    # 10 s more, of which 5 s have 100 and 5 s have 400 grams; the server sends two bytes of one kWh each.
    assert meter.read(15.0, 3 * half, 3 * half, sent)["carbon_g"] == 500 + 10 * 250 + 2 * 50
    assert meter.read(15.0, 3 * half, 3 * half, sent)["carbon_g"] == 3100
    assert meter.read(45.0, 9 * half, 9 * half, sent)["carbon_g"] == 3100 + 30 * 250


def test_devices_have_power_of_their_own(tmp_path):
    path = tmp_path / "devices.csv"
    path.write_text("name,seconds_per_example,busy_watts\nphone,1 ms,3\n")
    setup = prepare({**TWO, "clients": {"count": 2, "devices": str(path)}, "costs": COSTS})
    meter = meter_of(setup)
    assert meter is not None
    assert [meter.busy_watts.tolist(), meter.idle_watts.tolist()] == [[3.0, 3.0], [1.0, 1.0]]
    assert meter.joules_per_byte.tolist() == [1e-3] * 3, "the server sends, too"


@pytest.mark.parametrize(
    ("costs", "message"),
    [
        ({"busy_watts": -1}, "costs.busy_watts: expected a number >= 0, found -1"),
        ({"carbon": {"every": "1 h"}}, "costs.carbon: expected exactly one of grams_per_kwh and path, found none"),
        ({"carbon": {"grams_per_kwh": 3, "every": "1 h"}}, "costs.carbon.every: expected a path beside it, found none"),
    ],
)
def test_wrong_costs_are_one_line(costs, message):
    with pytest.raises(ScenarioError, match=message):
        simfl.Scenario(**TWO, costs=costs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,grams_per_kwh,region\n0,3,mars\n", ":2: region: expected one of all, found 'mars'"),
        ("time,grams_per_kwh\n5,3\n", ":2: time: expected 0 in the first line of all, found '5'"),
        ("time,grams_per_kwh\n0,3\n0,4\n", ":3: time: expected a time after 0 s, the line of all above, found '0'"),
        ("time,grams_per_kwh\n0,-3\n", ":2: grams_per_kwh: expected a number >= 0, found '-3'"),
        ("time,grams_per_kwh\n0,3\n2 h,3\n", ":3: time: expected a time before costs.carbon.every, which is 1 h"),
    ],
)
def test_a_wrong_file_of_intensities_is_one_line(text, message, tmp_path):
    path = tmp_path / "grid.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=f"costs.carbon.path: .*grid.csv{message}"):
        prepare({**TWO, "costs": {"carbon": {"path": str(path), "every": "1 h"}}})
