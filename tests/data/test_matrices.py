"""Problems given as matrices, and owners that differ, against closed forms in NumPy."""

import numpy as np
import pytest

import simfl
from simfl.data import load_dataset
from simfl.errors import DataError, ScenarioError
from simfl.models.quadratic import Quadratic
from simfl.streams import Streams


@pytest.fixture
def forms():
    """A and b of five clients in three dimensions."""
    generator = np.random.default_rng(0)
    roots = generator.normal(size=(5, 3, 3))
    return {"A": roots @ roots.swapaxes(1, 2) + 0.1 * np.eye(3), "b": generator.normal(size=(5, 3))}


def load(kind, path, **options):
    return load_dataset(kind, root=None, streams=Streams(0), path=path, **options)


def stored(folder, **arrays):
    np.savez(folder / "problem.npz", **arrays)
    return folder / "problem.npz"


@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_the_optimum_of_given_quadratics_solves_their_mean(tmp_path, forms, l2):
    data = load("quadratic", stored(tmp_path, **forms), l2=l2)
    hessian, vector = forms["A"].mean(axis=0) + l2 * np.eye(3), forms["b"].mean(axis=0)
    best = np.linalg.solve(hessian, vector)
    np.testing.assert_allclose(data.optimum, best, rtol=1e-5)
    assert data.optimal_loss == pytest.approx(-vector @ best / 2, rel=1e-6)
    w = np.array([1.0, -2.0, 0.5])
    loss = np.mean([w @ a @ w / 2 - b @ w for a, b in zip(forms["A"], forms["b"], strict=True)]) + l2 / 2 * (w @ w)
    assert data.suboptimality(w) == pytest.approx(loss - data.optimal_loss, rel=1e-5)
    np.testing.assert_array_equal(data.groups, np.arange(5))


def test_the_model_has_the_losses_and_gradients_of_the_matrices(tmp_path, forms):
    data = load("quadratic", stored(tmp_path, **forms))
    model = Quadratic(data.input_shape, curvature=None)
    w = np.array([1.0, -2.0, 0.5], np.float32)
    assert model.size == 3
    losses = np.asarray(model.losses(w, data.train_x, data.train_y))
    np.testing.assert_allclose(losses, [w @ a @ w / 2 - b @ w for a, b in zip(*forms.values(), strict=True)], rtol=1e-5)
    weight = np.array([1.0, 0.0, 2.0, 1.0, 0.0], np.float32)
    gradient = np.einsum("i,ij->j", weight, forms["A"] @ w - forms["b"])
    np.testing.assert_allclose(
        np.asarray(model.gradient_sum(w, data.train_x, data.train_y, weight)), gradient, rtol=1e-5
    )
    with pytest.raises(ValueError, match="expected d² \\+ d features, of A and b, found 11"):
        Quadratic((11,), curvature=None)


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_rows_of_each_client_are_those_of_the_archive(tmp_path, kind):
    generator = np.random.default_rng(1)
    x, y = generator.normal(size=(4, 6, 2)), np.sign(generator.normal(size=(4, 6)))
    cubes = load(kind, stored(tmp_path, x=x, y=y))
    flat = load(kind, stored(tmp_path, x=x.reshape(24, 2), y=y.reshape(24), client=np.repeat(list("abcd"), 6)))
    np.testing.assert_array_equal(cubes.train_x, flat.train_x)
    np.testing.assert_array_equal(cubes.optimum, flat.optimum)
    assert (cubes.groups.tolist(), flat.groups.tolist()) == (
        [0, 1, 2, 3] * 6 and sorted([0, 1, 2, 3] * 6),
        [*"a" * 6, *"b" * 6, *"c" * 6, *"d" * 6],
    )
    if kind == "logistic":
        assert set(cubes.train_y.tolist()) == {0, 1}
        np.testing.assert_array_equal(cubes.train_y, (y.reshape(-1) > 0).astype(int))


@pytest.mark.parametrize(("kind", "change", "line"), [
    ("quadratic", {"A": None}, "missing key A; found b"),
    ("quadratic", {"b": np.zeros((4, 3))}, r"expected A of shape \[n, d, d\] and b of shape \[n, d\], found \(5, 3"),
    ("quadratic", {"A": np.tri(3)[None].repeat(5, 0)}, r"A: expected symmetric matrices, found A\[0\] that is not"),
    ("quadratic", {"A": np.zeros((5, 3, 3))},
     "A: expected a positive definite mean of all matrices, as a single optimum needs, found the least"),
    ("quadratic", {"client": np.zeros(3)}, r"client: expected a value for each of 5 examples, found shape \(3,\)"),
    ("quadratic", {"b": np.full((5, 3), np.nan)}, "b: example 0: features must be finite"),
    ("linear", {"x": np.zeros((5, 3)), "y": np.zeros(5)},
     "missing key client, the client of each of 5 examples; add"),
    ("linear", {"x": np.zeros((5, 3)), "y": np.zeros(4)}, r"expected x of shape \[clients, examples, features\]"),
    ("logistic", {"x": np.zeros((2, 2, 3)), "y": np.full((2, 2), 7)}, "expected labels 0 and 1, or -1 and 1, of a"),
    ("linear", {"A": None, "b": None}, "expected the keys x and y; found z"),
])  # fmt: skip
def test_wrong_archives_are_refused_in_a_line(tmp_path, forms, kind, change, line):
    arrays = {key: value for key, value in {**forms, **change}.items() if value is not None}
    with pytest.raises(DataError, match=line) as caught:
        load(kind, stored(tmp_path, **(arrays or {"z": np.zeros(1)})))
    assert str(caught.value).startswith(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_missing_archive_is_named():
    with pytest.raises(
        DataError, match=r"data\.path: .*none\.npz: no such file; put an \.npz archive with A and b there"
    ):
        load("quadratic", "folder/none.npz")


@pytest.mark.parametrize("kind", ["quadratic", "linear", "logistic"])
def test_owners_differ_by_the_heterogeneity_and_leave_other_draws_unchanged(kind):
    def made(**options):
        return load_dataset(kind, root=None, streams=Streams(3), samples=4000, dimension=4, noise=0.0, **options)

    plain, alike, unlike = made(), made(owners=4), made(owners=4, heterogeneity=2.0)
    np.testing.assert_allclose(plain.train_x, alike.train_x, atol=1e-6)
    assert plain.groups is None
    np.testing.assert_array_equal(unlike.groups, np.arange(4000) % 4)
    drawn = Streams(3).generator("synthetic", count=3).standard_normal((4, 4))
    if kind == "quadratic":
        shifts = [unlike.train_x[k] - plain.train_x[k] for k in range(4)]
        np.testing.assert_allclose(shifts, 2 * drawn, atol=1e-5)
    elif kind == "linear":
        shifts = [np.linalg.lstsq(unlike.train_x[k::4], (unlike.train_y - plain.train_y)[k::4])[0] for k in range(4)]
        np.testing.assert_allclose(shifts, 2 * drawn, atol=1e-3)
    else:
        share = np.mean(plain.train_y == alike.train_y)
        assert share == 1.0
        assert np.mean(plain.train_y == unlike.train_y) < 0.9


def scenario(**data):
    return {
        "data": {"set": "quadratic", **data},
        "model": {"kind": "quadratic"},
        "clients": {"count": 5},
        "algorithm": {"kind": "sync_sgd", "batch_size": 1},
        "stop": {"updates": 10},
    }


def test_a_problem_with_owners_gives_each_owner_to_a_client(tmp_path, forms):
    path = stored(tmp_path, **forms)
    setup = simfl.prepare(scenario(path=str(path)))
    assert (setup.partition.indices.tolist(), setup.sizes.tolist()) == ([0, 1, 2, 3, 4], [1] * 5)
    assert setup.scenario.data.partition.kind == "natural"
    assert simfl.load(setup.scenario.model_dump()).digest() == setup.scenario.digest()
    drawn = simfl.load({**scenario(samples=10, owners=5), "stop": {"updates": 4}})
    assert drawn.data.partition.kind == "natural"
    old = simfl.load(scenario(samples=10)).model_dump()["data"]
    assert {"path", "owners", "heterogeneity"}.isdisjoint(old)


@pytest.mark.parametrize(("data", "line"), [
    ({"path": "a.npz", "samples": 5}, "data.samples: expected nothing beside 'path', found 5; remove samples or "
     "path: the problem is that of the file"),
    ({"path": "a.npz", "dimension": 5}, "data.dimension: expected nothing beside 'path', found 5; remove dimension"),
    ({"heterogeneity": 2.0}, "data.heterogeneity: expected 0 without owners, found 2; add owners: their number"),
    ({"samples": 5, "owners": 6}, "data.owners: expected at most samples, which is 5, found 6; draw more samples"),
])  # fmt: skip
def test_contradictions_are_refused_in_a_line(data, line):
    with pytest.raises(ScenarioError) as caught:
        simfl.load(scenario(**data))
    assert line in str(caught.value)
