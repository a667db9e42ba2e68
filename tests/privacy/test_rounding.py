"""Noise on a grid: its law, the rounded sums, its cost, and unsupported uses."""

import dataclasses
import decimal
import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from simfl.build.assembly import assemble
from simfl.errors import ConditionError, RunError, ScenarioError
from simfl.privacy.accounting import Release, delta_of, epsilon_of, integer_renyi, renyi_to_epsilon
from simfl.privacy.ledger import Ledger
from simfl.privacy.noise import discrete_gaussian
from simfl.privacy.releases import Releases
from simfl.privacy.rounding import DRIFT, FINENESS, LOOKUPS, TAIL, Grid, Rounding, cumulative, step_of
from simfl.privacy.terms import Terms
from simfl.scenario import loads
from simfl.tape.problem import widest_batch
from tests.helpers import Lab, make_problem

QUICK = settings(max_examples=50, deadline=None, derandomize=True)
KEY = np.array([0x12345678, 0x9ABCDEF0], dtype=np.uint32)
SMALL, LARGE = Fraction(7, 3), Fraction(2**FINENESS * 3, 2) + Fraction(1, 7)


def numbers(table):
    """Return the integers of a table's rows of four words."""
    return [int.from_bytes(row.astype(">u4").tobytes(), "big") for row in table]


def pmf(deviation, size):
    """Return P[N = k] for k = -size..size, from its definition."""
    mass = np.exp(-0.5 * (np.arange(-size, size + 1) / float(deviation)) ** 2)
    return mass / mass.sum()


def test_every_entry_of_the_table_is_exact():
    table = cumulative(SMALL)
    assert table.shape == (2**LOOKUPS, 4)
    count = math.ceil(TAIL * SMALL)
    with decimal.localcontext() as context:
        context.prec = 80
        square = 2 * SMALL * SMALL
        mass = [(-decimal.Decimal(j * j * square.denominator) / square.numerator).exp() for j in range(4 * count)]
        whole = mass[0] + 2 * sum(mass[1:])
        right = [int((mass[0] + 2 * sum(mass[1 : j + 1])) / whole * 2**127) * 2 for j in range(count)]
    entries = numbers(table[:count])
    assert max(abs(one - other) for one, other in zip(entries, right, strict=True)) <= 2
    assert entries[-1] < 2**128
    assert not any(number % 2 for number in entries)
    assert (table[count:] == 0xFFFFFFFF).all()


def test_a_table_of_full_size_is_exact_at_its_end():
    table, s = cumulative(LARGE), float(LARGE)
    for j in (0, 1, 1000, 24576, 100_000, 200_000):
        beyond = 1 - Fraction(numbers(table[j : j + 1])[0], 2**128)
        # The sum over the lattice is the integral to 1e-8 and better: Euler-Maclaurin, up to half a step.
        assert float(beyond) == pytest.approx(special.erfc((j + 0.5) / s / math.sqrt(2.0)), rel=1e-7)


SAMPLE = jax.jit(discrete_gaussian, static_argnums=3)


@pytest.fixture(scope="module")
def draws():
    """Variables of both laws."""
    tables = jnp.asarray(np.concatenate([cumulative(SMALL), cumulative(LARGE)]))

    def draw(client, number, law, deviation, size=1000):
        named = jnp.int32(client), jnp.int32(number), size, tables, jnp.int32(law), jnp.float32(deviation)
        return np.asarray(SAMPLE(jnp.asarray(KEY), *named))

    return draw


@pytest.mark.slow
def test_draws_follow_the_law(draws):
    values = draws(0, 0, 0, SMALL, 10**6)
    expected = pmf(SMALL, 28) * len(values)
    cells = np.bincount(values + 28, minlength=57)
    kept = expected > 20
    assert stats.chisquare(cells[kept], expected[kept] / expected[kept].sum() * cells[kept].sum()).pvalue > 1e-4
    assert cells[~kept].sum() < 200

    values = draws(0, 0, 1, LARGE, 10**6)
    at = np.ceil(np.arange(-4, 4.01, 0.125) * float(LARGE)) - 0.5  # between integers
    shares = np.diff(np.concatenate(([0.0], special.ndtr(at / float(LARGE)), [1.0])))
    cells = np.diff(np.concatenate(([0], [np.count_nonzero(values < edge) for edge in at], [len(values)])))
    assert stats.chisquare(cells, shares * len(values)).pvalue > 1e-4


def test_draws_depend_on_client_and_draw_only(draws):
    once = draws(1, 2, 1, LARGE)
    # A wrong starting place takes longer, and does not change the result.
    np.testing.assert_array_equal(once, draws(1, 2, 1, 1.01 * LARGE))
    for other in (draws(2, 1, 1, LARGE), draws(1, 3, 1, LARGE)):
        assert abs(np.corrcoef(once, other)[0, 1]) < 0.15


def test_steps_are_powers_of_two_below_the_noise():
    for scale in (1e-9, 0.3, 1.0, 1.5, 2.0, 1e6):
        step = step_of(scale)
        assert math.frexp(step)[0] == 0.5
        assert 2**FINENESS <= scale / step < 2 ** (FINENESS + 1)


@QUICK
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 400),
    st.sampled_from([1e-3, 0.7, 1.0, 30.0]),
    st.sampled_from([0.01, 1.0, 17.0]),
    st.sampled_from([1e-4, 1.0, 1e4]),
)
def test_an_example_changes_the_sum_by_at_most_the_bound(seed, size, norm, z, length):
    generator = np.random.default_rng(seed)
    vector = (generator.standard_normal(size) * length * generator.random(size) ** 8).astype(np.float32)
    step = step_of(z * norm)
    measured = np.sqrt(np.sum(vector * vector, dtype=np.float32))
    clipped = vector * (np.float32(norm) / measured if measured > np.float32(norm) else np.float32(1.0))
    rounded = np.round(clipped * np.float32(1 / step)).astype(np.int64)
    shift = math.sqrt(sum(int(n) ** 2 for n in rounded)) * step
    assert shift <= norm * z / Rounding(size).multiplier(z)


@pytest.mark.parametrize("rate", [0.05, 0.6, 1.0])
@pytest.mark.parametrize("order", [2, 5, 16])
def test_moments_on_a_lattice_equal_the_closed_form(rate, order):
    """The sum over a lattice in two dimensions, of small noise, which differs between directions."""
    deviation, shift = 0.8, np.array([2, 1])
    at = np.arange(-80, 81)
    points = np.stack(np.meshgrid(at, at, indexing="ij"), axis=-1)
    log_p = -np.sum(points**2, axis=-1) / (2 * deviation**2)
    log_p -= special.logsumexp(log_p)
    log_r = (2 * points @ shift - shift @ shift) / (2 * deviation**2)
    with np.errstate(divide="ignore"):
        log_mixed = np.logaddexp(np.log1p(-rate), math.log(rate) + log_r)
    z = deviation / np.linalg.norm(shift)
    orders = np.array([*range(2, 65)])
    closed = integer_renyi(np.array([z]), np.array([rate]))[0][np.flatnonzero(orders == order)[0]]
    one = special.logsumexp(log_p + order * log_mixed) / (order - 1)
    other = special.logsumexp(log_p + (1 - order) * log_mixed) / (order - 1)
    assert one == pytest.approx(closed, rel=1e-9)
    assert other <= closed * (1 + 1e-9)


@pytest.mark.parametrize(
    ("z", "rate", "count", "size"),
    [(1.0, 0.05, 2000, 7850), (0.6, 0.001, 30, 10), (20.0, 1.0, 30, 10**6), (2.0, 1.0, 1, 10), (4.0, 0.2, 300, 10**5)],
)
def test_the_account_is_at_least_that_of_noise_on_real_numbers(z, rate, count, size):
    rounding = Rounding(size)
    assert rounding.multiplier(z) < z
    on_grid = [(Release(rounding.multiplier(z), rate, drift=rounding.drift), count)]
    epsilon = epsilon_of(on_grid, 1e-5)
    assert epsilon == epsilon_of(on_grid, 1e-5, accountant="pld") == epsilon_of(on_grid, 1e-5, accountant="renyi")
    assert epsilon > epsilon_of([(Release(z, rate), count)], 1e-5)
    assert 0.9e-5 < delta_of(on_grid, epsilon) <= 1e-5


def test_the_drift_of_draws_is_taken_from_delta():
    orders, divergences = np.array([2.0, 8.0]), np.array([0.1, 0.4])
    plain = renyi_to_epsilon(orders, divergences, 1e-5 * 0.999)
    assert renyi_to_epsilon(orders, divergences, 1e-5, 1e-12) == plain > renyi_to_epsilon(orders, divergences, 1e-5)
    assert renyi_to_epsilon(orders, divergences, 1e-5, 1e-8) == math.inf
    assert Rounding(7850).drift == 7851 * DRIFT < 1e-28


@pytest.mark.parametrize("size", [1, 16, 128, 1000])
def test_a_poisson_batch_fits_an_operation(size):
    widest = widest_batch(size)
    assert all(stats.binom.sf(widest, n, size / n) < DRIFT for n in (2 * size, 10 * size, 10**6))
    problem = dataclasses.replace(make_problem(sampling="poisson"), grid=Grid.of([1.0] * 8))
    assert problem.max_batch == 40  # of 40 examples, all
    with Lab(problem) as lab, pytest.raises(RunError, match="at most 40 examples, found 41"):
        lab.tape.gradient(lab.tape.constant(np.zeros(650)), 0, 0, 41, 1.0)


@pytest.mark.slow
def test_releases_lie_on_the_grid_and_equal_a_plain_sum():
    scales = [0.5, 0.75, 0.5, 3.0, 0.5, 0.5, 0.5, 0.5]
    grid = Grid.of(scales)
    problem = dataclasses.replace(make_problem(sampling="poisson", clipping_norm=0.5), grid=grid)
    with Lab(problem) as lab:
        model = lab.tape.constant(np.zeros(650))
        release = lambda client, scale: lab.tape.combine((1.0, lab.tape.gradient(model, client, 5, 9, scale)))  # noqa: E731
        again = [release(client, scales[client]) for client in (3, 1, 0)]
        noisy, clean = ([release(k, scale if on else 0.0) for k, scale in enumerate(scales)] for on in (True, False))
        again, noisy, clean = (lab.tape.values(rows).astype(float) for rows in (again, noisy, clean))
        with pytest.raises(RunError, match="a batch in pieces"):
            lab.tape.gradient_in_pieces(model, 0, 6, 9, 0.5)
    np.testing.assert_array_equal(again, noisy[[3, 1, 0]])  # in any lane, and with any other clients
    steps = grid.steps[:, :1].astype(float)
    for values in (noisy, clean):
        np.testing.assert_array_equal(values / steps, np.round(values / steps))
    key, tables = jnp.asarray(problem.keys.noise), jnp.asarray(grid.tables)
    for client, law in enumerate(grid.laws):
        named = jnp.int32(client), jnp.int32(5), 650, tables, jnp.int32(law), jnp.float32(grid.steps[client, 2])
        drawn = SAMPLE(key, *named)
        np.testing.assert_array_equal((noisy - clean)[client] / steps[client], drawn)
        assert np.std(np.asarray(drawn) * steps[client]) == pytest.approx(scales[client], rel=0.12)
    plain = dataclasses.replace(problem, grid=None)
    with Lab(plain) as lab:
        model = lab.tape.constant(np.zeros(650))
        sums = [lab.tape.combine((1.0, lab.tape.gradient(model, client, 5, 9))) for client in range(8)]
        assert (np.abs(lab.tape.values(sums) - clean) <= 9 * steps / 2 + 1e-5).all()


def scenario(privacy, algorithm="{kind: adpsgd, batch_size: 16}"):
    return loads(
        f"name: test\ndata: digits\nclients: {{count: 8}}\nstop: {{updates: 800}}\n"
        f"privacy: {{quantize: true, {privacy}}}\ntopology: complete\nalgorithm: {algorithm}\n"
    )


def test_quantize_selects_the_mechanism():
    setup = assemble(scenario("noise_multiplier: 2"))
    problem, ledger = setup.problem, setup.ledger
    assert problem.noise is None
    assert problem.operation.on_grid
    assert ledger.terms.rounding == Rounding(650)
    assert "noise on a grid, Renyi accountant at integer orders" in ledger.statement
    other = assemble(loads(scenario("noise_multiplier: 2").to_yaml().replace("quantize: true", "quantize: false")))
    assert other.problem.grid is None
    made = Releases([100] * 8)
    for account in ("epsilon", "final_epsilon"):
        assert (getattr(ledger, account)(made) > other.ledger.final_epsilon(made)).all()
    np.testing.assert_array_equal(ledger.epsilon(made), ledger.final_epsilon(made))
    assert ledger.largest(made) == ledger.epsilon(made).max()


@pytest.mark.slow
def test_budgets_and_calibration_use_the_same_account():
    setup = assemble(scenario("epsilon: 2"))
    planned = setup.ledger.final_epsilon(Releases([100] * 8))
    assert planned.max() <= 2.0 < planned.max() * 1.001
    setup = assemble(scenario("epsilon: 2, noise_multiplier: 2"))
    allowed = setup.training.allowances[1]
    assert setup.ledger.epsilon_after(1, allowed, "tightest") <= 2.0
    assert setup.ledger.epsilon_after(1, allowed + 1, "tightest") > 2.0


@pytest.mark.parametrize(
    ("privacy", "algorithm", "message"),
    [
        ("neighbors: replace_one", "{kind: async_fl}", "releases that are the sum of one mini-batch"),
        ("noise_multiplier: 0", "{kind: sync_sgd}", "noise_multiplier: expected 0.01 to 1e"),
        ("noise_multiplier: 0.01", "{kind: sync_sgd, batch_size: 170}", "whose sums must fit 32 bits"),
    ],
)
def test_unsupported_uses_of_the_grid_are_refused(privacy, algorithm, message):
    with pytest.raises(ScenarioError, match=message):
        assemble(scenario(privacy, algorithm))


@pytest.mark.parametrize(
    ("sampling", "amplification", "certified"),
    [("poisson", True, False), ("without_replacement", True, False), ("poisson", False, True), ("shuffle", True, True)],
)
def test_a_replaced_example_is_accounted_for_without_amplification(sampling, amplification, certified):
    terms = Terms("gaussian", 1e-5, neighbors="replace_one", amplification=amplification, rounding=Rounding(650))
    ledger = Ledger(terms, np.array([200]), 10, sampling, [8.0])
    assert ledger.certified is certified
    if certified:
        plain = Ledger(dataclasses.replace(terms, rounding=None), np.array([200]), 10, sampling, [8.0])
        made = Releases([20])
        assert 1.0 < ledger.final_epsilon(made)[0] / plain.final_epsilon(made)[0] < 1.2
    else:
        assert "noise on a grid has no account of sampling" in ledger.statement
        with pytest.raises(ConditionError, match="noise on a grid"):
            epsilon_of([(Release(8.0, 0.1, sampling, drift=0.0), 1)], 1e-5, neighbors="replace_one")
