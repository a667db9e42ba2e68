"""Fragments partition the coordinates, and a masked combination equals a loop over coordinates."""

import itertools

import numpy as np
import pytest

from simfl.accounts.knowledge import KnowledgeTape
from simfl.tape import Tape
from simfl.tape.fragments import Fragments
from tests.helpers import Lab, NumpyExecutor, make_problem

D = 11


def loop(cut, base, parts, kept):
    """Return the combination of vectors in float64, coordinate by coordinate."""
    out = np.array(base, np.float64)
    for i, fragment in enumerate(cut.of().tolist()):
        out[i] *= kept.get(fragment, 1.0)
        out[i] += sum(coef * vector[i] for coef, vector, own in parts if own == fragment)
    return out


@pytest.mark.parametrize("cut", [Fragments.equal(D, 4), Fragments.equal(D, 4, seed=5), Fragments((2, 3, 9, D))])
def test_fragments_partition_the_coordinates(cut):
    sizes = np.bincount(cut.of(), minlength=cut.count)
    assert [cut.bytes(fragment) for fragment in range(cut.count)] == (4 * sizes).tolist()
    assert sum(sizes) == D
    assert np.all(np.diff(cut.of()) >= 0) == (cut.seed is None), "blocks, or a permutation"
    assert Fragments.equal(3, 100).count == 3, "none is empty"


@pytest.mark.parametrize("lengths", [[5, 1, 3, 3, 8], [7], [2, 2, 2, 3, 3], [640, 10], [9, 8, 7, 6, 5, 4, 3, 2, 1]])
@pytest.mark.parametrize("count", [1, 2, 3, 24])
def test_packed_fragments_are_whole_tensors_of_about_equal_sizes(lengths, count):
    cut = Fragments.packed(lengths, count)
    assert cut.count == min(count, len(lengths))
    parts = np.split(cut.of(), np.cumsum(lengths)[:-1])
    assert all(len(set(part.tolist())) == 1 for part in parts)
    assert [cut.bytes(fragment) for fragment in range(cut.count)] == (4 * np.bincount(cut.of())).tolist()
    ways = itertools.product(range(cut.count), repeat=len(lengths)) if count < 4 else [range(len(lengths))]
    assert max(cut.lengths) <= 4 / 3 * min(max(np.bincount(way, lengths)) for way in ways)


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("seed", [None, 7])
def test_combinations_equal_a_loop_over_coordinates(beside, seed):
    generator, cut = np.random.default_rng(1), Fragments.equal(D, 4, seed)
    tape = Tape(NumpyExecutor(D), window=5, maps_beside=beside)
    values = list(generator.standard_normal((3, D)))
    models = [tape.constant(value) for value in values]
    for step in range(40):
        many = step % 6
        parts = [
            (float(generator.normal()), int(k), int(generator.integers(4))) for k in generator.integers(3, size=many)
        ]
        kept = {int(fragment): float(generator.normal()) for fragment in generator.integers(4, size=step % 3)}
        at = step % 3
        values[at] = loop(cut, values[at], [(c, values[k], f) for c, k, f in parts], kept) / 2
        models[at] = cut.combine(tape, models[at], [(c, models[k], f) for c, k, f in parts], kept)
        models[at] = tape.combine((0.5, models[at]))
    np.testing.assert_allclose(tape.values(models), values, rtol=1e-5, atol=1e-6)


def test_coordinates_outside_of_all_parts_keep_every_bit():
    """On the real executor; the other rows of a padded call hold anything, here infinity."""
    problem = make_problem(2)
    cut = Fragments.equal(problem.model.size, 5, seed=2)
    with Lab(problem) as lab:
        tape, generator = lab.tape, np.random.default_rng(0)
        base, other = generator.standard_normal((2, problem.model.size)).astype(np.float32)
        first, second, bad = tape.constant(base), tape.constant(other), tape.constant(np.full_like(base, np.inf))
        mixed = cut.combine(tape, first, [(0.75, second, 3), (1.0, second, 1), (0.0, bad, 2)], {3: 0.25, 1: 0.0})
        values = tape.values([mixed])[0]
        assert cut.combine(tape, first, []) is first
    of = cut.of()
    np.testing.assert_array_equal(values[np.isin(of, (0, 2, 4))], base[np.isin(of, (0, 2, 4))])
    np.testing.assert_array_equal(values[of == 1], other[of == 1])
    np.testing.assert_allclose(values[of == 3], (0.25 * base + 0.75 * other)[of == 3], rtol=1e-6)


def test_an_account_of_a_network_charges_whole_models():
    """A combination is the result of a function, so an observer of it is charged with all that it reads."""
    tape = KnowledgeTape()
    one, other = tape.constant(np.zeros(D)), tape.constant(np.zeros(D))
    mixed = Fragments.equal(D, 4).combine(tape, one, [(0.5, other, 2)], {2: 0.5})
    rows = tape.knowledge.charged(tape.knowledge.row_of(mixed))
    assert set(rows) == {mixed.rows[0].number, one.rows[0].number, other.rows[0].number}
