"""Steps on several cores: each begins when its rows exist, and all end in order."""

import jax
import numpy as np
import pytest

from simfl.tape.cores import Cores, further_core, in_order


def test_steps_are_begun_when_their_rows_exist_and_end_in_order():
    after, log = np.array([-1, -1, 0, -2, 2]), []

    def begin(step):
        log.append(f"begin {step}")
        return lambda: log.append(f"total {step}") or step

    for step, total in in_order(after, begin, 3):
        assert total == (None if step == 3 else step)
        log.append(f"end {step}")
    assert log == [
        "begin 0", "begin 1", "total 0", "end 0", "begin 2", "total 1", "end 1", "total 2", "end 2", "begin 4", "end 3",
        "total 4", "end 4",
    ]  # fmt: skip


def test_the_next_step_is_begun_even_if_later_ones_were_first():
    begun = []

    def begin(step):
        begun.append(step)
        return lambda: step

    assert [step for step, _ in in_order(np.array([-1, 0, -1, -1]), begin, 2)] == [0, 1, 2, 3]
    assert begun == [0, 2, 1, 3]


@pytest.mark.parametrize("count", [1, 2])
def test_totals_come_back_with_the_same_bits_and_errors_are_raised(count):
    cores, data = Cores(count), {"x": jax.device_put(np.arange(6.0, dtype=np.float32))}
    program = jax.jit(lambda steps, number, data, row: (row + number * data["x"], steps))
    row = jax.device_put(np.full(6, 0.1, dtype=np.float32))
    results = [cores.begin(program, data, [np.float32(k)], [row]) for k in range(8)]
    for k, result in enumerate(results):
        total, _ = result()
        assert total.devices() == row.devices()
        assert np.asarray(total).tolist() == (np.float32(0.1) + np.float32(k) * np.arange(6, dtype=np.float32)).tolist()
    with pytest.raises(TypeError):
        cores.begin(program, data, [], [row])()
    cores.close()


def test_a_version_of_jax_without_further_cpus_computes_on_one_core(monkeypatch):
    def changed(number):
        if number:
            raise AttributeError("make_cpu_client")
        return jax.devices("cpu")[0]

    monkeypatch.setattr("simfl.tape.cores._core", changed)
    cores = Cores(4)
    assert cores.count == 1
    assert cores.begin(lambda steps, data: data, 7, [], [])() == 7
    cores.close()
    assert further_core(1) is None
