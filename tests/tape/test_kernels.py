"""How XLA compiles the programs of windows."""

import re

import jax
import numpy as np
import pytest

from simfl.assembly.assemble import assemble
from simfl.runs.programs import compiled_in
from simfl.runs.runner import run
from simfl.tape import kernels, stored
from tests.runs.test_checkpoint import scenario

ADPSGD = "{kind: adpsgd, batch_size: 8, step_size: 0.5, exchange: messages}"
FEDAVG = "{kind: fedavg, batch_size: 8, step_size: 0.5, fraction: 0.5, local_steps: 2}"


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize(
    ("algorithm", "mechanism"), [(ADPSGD, "gaussian"), (FEDAVG, "gaussian_update")], ids=["gradients", "rounds"]
)
def test_noise_is_computed_apart_from_the_rows_that_are_written(algorithm, mechanism, width, tmp_path, monkeypatch):
    """Within the loops that write rows it is computed without vectors: a step takes 5 to 14 times as long."""
    texts = []
    compiled = stored._compiled

    def noted(*arguments):
        program = compiled(*arguments)
        texts.append(program.as_text())
        return program

    monkeypatch.setattr(stored, "_compiled", noted)
    privacy = f"{{mechanism: {mechanism}, noise_multiplier: 0.7}}"
    setup = assemble(scenario(algorithm=algorithm, privacy=privacy, execution=f"{{width: {width}}}"))
    with compiled_in(str(tmp_path / "programs")):
        run(setup, out=tmp_path, device="cpu", progress=False)
    bodies = [body for text in texts for body in re.split(r"\n}\n", text)]
    random = [body for body in bodies if " xor(" in body]
    assert random, "the noise's random bits"
    assert not [body for body in random if " concatenate(" in body or " dynamic-update-slice(" in body]


def test_a_step_of_long_rows_does_not_read_those_after_the_last_of_a_form_and_keeps_its_bits():
    generator = np.random.default_rng(0)
    bank = generator.standard_normal((9, kernels.LONG)).astype(np.float32)
    bank[8] = 0.0  # the spare row
    places = np.array([[0, 8, 8, 8], [1, 2, 8, 8], [3, 4, 5, 8], [0, 2, 4, 6]], np.int32)
    coefs = np.where(places < 8, generator.standard_normal((4, 4)), 0.0).astype(np.float32)
    scale, total = generator.standard_normal(4).astype(np.float32), bank[:4]
    stepped = jax.jit(kernels._step_narrow)
    # More lanes than `BRANCHED` read all of their rows.
    twice = [np.concatenate([array, array]) for array in (coefs, places, scale, total)]
    every = np.asarray(jax.jit(kernels._step_narrow)(bank, *twice))
    np.testing.assert_array_equal(np.asarray(stepped(bank, coefs, places, scale, total)), every[:4])
    bank[8] = np.nan  # the form of one row alone touches it
    read = np.asarray(stepped(bank, coefs, places, scale, total))
    assert np.isnan(read[0]).all()
    np.testing.assert_array_equal(read[1:], every[1:4])


@pytest.mark.parametrize(("size", "columns"), [(5003, 128), (20_480, 1024), (79_510, 2**15)])
def test_a_mean_in_parts_has_the_bits_of_one_part_and_needs_few_rows(size, columns):
    generator, models, rows, reads, chunk = np.random.default_rng(size), 20, 12, 4, 16
    bank = generator.standard_normal((rows, size)).astype(np.float32)
    bank[-1] = 0.0  # the spare row
    places, coefs = np.full((2 * chunk, reads), rows - 1, np.int32), np.zeros((2 * chunk, reads), np.float32)
    places[:models] = generator.integers(0, rows - 1, (models, reads))
    coefs[:models] = generator.random((models, reads))
    given = bank, places, coefs, (np.arange(2 * chunk) < models).astype(np.float32)
    whole, in_parts = [
        kernels.average_program(bank.shape, reads, chunk, most)._jitted.lower(*given).compile()
        for most in (size, columns)
    ]
    for one, other in zip(whole(*given), in_parts(*given), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    at_a_time = chunk * (1 + reads) * 2 * columns + 3 * size
    assert in_parts.memory_analysis().temp_size_in_bytes <= 4 * at_a_time + 2**16
    assert whole.memory_analysis().temp_size_in_bytes >= 4 * chunk * (1 + reads) * size
