"""The audit of a whole run: a correct mechanism passes, a broken one is refuted."""

import copy
import dataclasses
import functools
import math

import jax.numpy as jnp
import numpy as np
import pytest

from simfl.algorithms.batches import BatchSizes
from simfl.assembly.assemble import assemble
from simfl.attacks.adversary import HEARD_AT_A_TIME, ListeningTape
from simfl.attacks.audit import Audit, audit, curve
from simfl.attacks.canary import UNIT
from simfl.attacks.noise import BLANK
from simfl.errors import ScenarioError
from simfl.privacy.accounting import Release, epsilon_of
from simfl.privacy.noise import SAMPLERS, gaussian
from simfl.records import RunFolder
from simfl.runs.runner import Simulation
from simfl.scenario import loads
from simfl.tape.executor import choose_device
from simfl.tape.problem import Clipping, Noise

SCENARIO = """
name: audited
seed: {seed}
data: {{set: digits, partition: {{kind: iid}}}}
model: {{kind: {model}}}
clients: {{count: {count}}}
topology: {{kind: complete}}
algorithm: {{kind: {algorithm}, step_size: 0.1, batch_size: {batch_size}, sampling: {sampling}}}
privacy: {privacy}
stop: {{updates: {updates}}}
evaluate: {{every: {{updates: {updates}}}}}
"""


def scenario(noise=2.0, **changed):
    """Digits; by default one client, all whose 1438 examples are in each of four releases: one Gaussian with z = 1."""
    values = {
        "seed": 0, "count": 1, "algorithm": "sync_sgd", "batch_size": 1438, "sampling": "auto", "updates": 4,
        "model": "softmax", "privacy": f"{{mechanism: gaussian, noise_multiplier: {noise}, clipping_norm: 0.5}}",
    }  # fmt: skip
    return loads(SCENARIO.format(**(values | changed)))


#: Poisson batches of 200 out of 719 examples, two clients that do not wait for each other.
SAMPLED = {"count": 2, "algorithm": "adpsgd", "batch_size": 200, "updates": 20, "noise": 1.0}


def with_parts(setup, **parts):
    """Return a copy of a setup with other parts."""
    changed = copy.copy(setup)
    vars(changed).update(parts)
    return changed


def noise_times(factor):
    """Return a function that changes the noise without the ledger."""

    def change(setup):
        training = setup.training
        scales = {
            "noise_scale": [factor * scale for scale in training.noise_scale],
            "noise_std": [factor * std for std in training.each_noise_std()],
        }
        return with_parts(setup, training=dataclasses.replace(training, **scales))

    return change


half_the_noise, no_noise = noise_times(0.5), noise_times(0.0)


def no_clipping(setup):
    """A bound that nothing exceeds, as if clipping were missing."""
    return with_parts(setup, problem=dataclasses.replace(setup.problem, clipping=Clipping(1e6)))


def audited(breaking=None, *, canaries=1438, in_place=True, scenario_options=None, **options):
    plan = Audit(scenario(**(scenario_options or {})), canaries=canaries, in_place=in_place, **options)
    if breaking is not None:
        plan.setup = breaking(plan.setup)
    return plan.run()


# -- what an audit must and must not refute -----------------------------------------------------


@pytest.mark.slow(but=["2"])
@pytest.mark.parametrize("seed", range(4))
def test_a_correct_mechanism_is_not_refuted(seed):
    report = audited(scenario_options={"seed": seed})
    exact = epsilon_of([(Release(1.0), 1)], 1e-5)  # four Gaussians with z = 2 are one with z = 1
    assert report.certified == pytest.approx(exact, rel=1e-6)
    assert not report.refuted
    assert report.p_value > 0.3
    assert 0.2 * exact < report.lower_bound < 0.8 * exact
    assert (report.releases, report.accounted) == (4, 4)
    assert (report.examples, report.sampling_rate) == (1438, 1.0)


@pytest.mark.slow(but=["0-change0"])
@pytest.mark.parametrize("breaking", [no_noise, half_the_noise, no_clipping])
@pytest.mark.parametrize("seed", range(2))
def test_a_broken_mechanism_is_refuted(breaking, seed):
    report = audited(breaking, scenario_options={"seed": seed})
    assert report.certified == pytest.approx(epsilon_of([(Release(1.0), 1)], 1e-5), rel=1e-6), "as promised"
    assert report.refuted
    assert report.p_value < 0.05
    if breaking is no_noise:
        assert report.correct == report.guesses


def test_noise_on_only_some_parameters_is_refuted(monkeypatch):
    """As if the noise of a first layer protected the others."""

    def first_half(keys, client, draw, size):
        return gaussian(keys, client, draw, size).at[size // 2 :].set(0.0)

    monkeypatch.setitem(SAMPLERS, "first_half", first_half)
    report = audited(
        lambda setup: with_parts(setup, problem=dataclasses.replace(setup.problem, noise=Noise("first_half")))
    )
    assert report.refuted


#: Noise that has the declared variance in every coordinate, and is not what is declared.
BROKEN_SAMPLERS = {
    "of +-1": lambda keys, client, draw, size: jnp.sign(gaussian(keys, client, draw, size)),
    "rolled": lambda keys, client, draw, size: jnp.roll(gaussian(keys, client, 0 * draw, size), draw),
    "antithetic": lambda keys, client, draw, size: (
        gaussian(keys, client, draw // 2, size) * jnp.where(draw % 2, -1.0, 1.0)
    ),
    "correlated in time": lambda keys, client, draw, size: (
        math.sqrt(0.5) * (gaussian(keys, client, draw, size) + gaussian(keys, client, draw + 1, size))
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN_SAMPLERS)
@pytest.mark.parametrize(("options", "canaries"), [({}, 1438), (SAMPLED, 719)])
def test_broken_noise_of_the_declared_variance_does_not_pass(monkeypatch, name, options, canaries):
    monkeypatch.setitem(SAMPLERS, name, BROKEN_SAMPLERS[name])
    report = audited(
        lambda setup: with_parts(setup, problem=dataclasses.replace(setup.problem, noise=Noise(name))),
        scenario_options=options,
        canaries=canaries,
    )
    assert report.decisive
    assert not report.passed
    assert report.noise_of_other_law == (name == "of +-1")
    assert report.noise_dependent == (name != "of +-1")
    assert not report.noise_missing


def test_partial_noise_leaves_no_coordinates_to_test_its_law():
    privacy = "{mechanism: laplace_l2, epsilon_per_release: 1, noise_on: first_convolution}"
    plan = Audit(scenario(privacy=privacy, model="cnn"), canaries=100)
    assert plan.setup.model.blank == 0


@pytest.mark.slow
def test_a_ledger_that_counts_too_few_examples_in_a_batch_is_refuted():
    def wrong(setup):
        setup.ledger.sizes = setup.ledger.sizes * 8
        return setup

    right = audited(canaries=719, scenario_options=SAMPLED)
    assert not right.refuted
    assert 0.1 < right.lower_bound < right.certified
    assert right.sampling_rate == pytest.approx(200 / 719)
    mistaken = audited(wrong, canaries=719, scenario_options=SAMPLED)
    assert mistaken.correct == right.correct, "the same run, another account"
    assert mistaken.certified < right.certified / 4
    assert mistaken.refuted


@pytest.mark.slow
def test_missing_noise_of_an_asynchronous_client_is_refuted():
    report = audited(no_noise, canaries=719, client=1, scenario_options=SAMPLED)
    assert report.client == 1
    assert report.releases == report.accounted > 5
    assert report.correct > 0.95 * report.guesses
    assert report.refuted


# -- what is heard is what was released -----------------------------------------------------------


def heard(plan):
    """Return an empty list, and the tape that adds (models, releases, gradients) to it as the adversary hears them."""
    reports = []
    tape = functools.partial(ListeningTape, clients={plan.client: math.inf}, hear=lambda *words: reports.append(words))
    return reports, tape


def test_heard_releases_are_those_that_moved_the_model(tmp_path):
    """One client, plain SGD: w_(t+1) = w_t - step / B * release."""
    plan = Audit(scenario(updates=HEARD_AT_A_TIME + 3), canaries=1438, in_place=True)
    reports, tape = heard(plan)
    simulation = Simulation(plan.setup, choose_device("cpu"), tape=tape)
    simulation.run(RunFolder.create(tmp_path, "heard"))
    simulation.tape.deliver()
    models, releases = (np.concatenate([words[part] for words in reports]) for part in range(2))
    gradients = [gradient for words in reports for gradient in words[2]]
    last = simulation.tape.values(simulation.algorithm.models())
    simulation.release()
    assert [len(words[0]) for words in reports] == [HEARD_AT_A_TIME, 3]
    assert [gradient.draw for gradient in gradients] == list(range(len(gradients)))
    assert {gradient.noise_scale for gradient in gradients} == {1.0}  # z * C = 2 * 0.5
    following = np.concatenate((models[1:], last))
    expected = models - 0.1 / 1438 * releases
    np.testing.assert_allclose(following, expected, atol=1e-5 * np.abs(expected).max())
    # The part without noise: a canary adds C to its coordinate if it is in, nothing if it is out.
    model, included = plan.setup.model, plan.included
    along = releases[:, model.coordinates].mean(axis=0)
    tolerance = 5 / math.sqrt(len(releases) * included.sum())
    assert along[included].mean() == pytest.approx(0.5, abs=tolerance)
    assert along[~included].mean() == pytest.approx(0.0, abs=tolerance)
    assert releases.std() == pytest.approx(math.hypot(1.0, 0.25), rel=0.02)


def test_listening_does_not_change_results(tmp_path):
    digests = []
    for name in ("heard", "unheard"):
        plan = Audit(scenario(**SAMPLED), canaries=719, in_place=True, client=1)
        reports, tape = heard(plan)
        simulation = Simulation(plan.setup, choose_device("cpu"), **({"tape": tape} if name == "heard" else {}))
        try:
            digests.append(simulation.run(RunFolder.create(tmp_path, name)).manifest.digest)
            if name == "heard":
                simulation.tape.deliver()
        finally:
            simulation.release()
        assert bool(reports) == (name == "heard")
    assert digests[0] == digests[1]


# -- canaries, coins, reports ---------------------------------------------------------------------


def test_added_canaries_change_the_rate_in_the_ledger_too():
    plan = Audit(scenario(**SAMPLED), canaries=321, client=1)
    assert plan.setup.training.sizes.tolist() == [719, 1040]
    assert plan.setup.ledger.sizes.tolist() == [719, 1040]
    assert plan.setup.model.size == 650 + BLANK
    plain = assemble(scenario(**SAMPLED))
    np.testing.assert_array_equal(plan.setup.partition.of(0), plain.partition.of(0))
    np.testing.assert_array_equal(plan.setup.partition.of(1)[:719], plain.partition.of(1))
    x = plan.setup.dataset.train_x
    np.testing.assert_array_equal(x[: len(plain.dataset.train_x), :-1], plain.dataset.train_x)
    assert not x[: len(plain.dataset.train_x), -1].any(), "the data's own examples are ordinary"
    number = np.arange(1, 322)
    np.testing.assert_array_equal(x[-321:, -1] / UNIT, np.where(plan.included, number, 0.5))
    opposite = Audit(scenario(**{**SAMPLED, "privacy": "{neighbors: replace_one}"}), canaries=321, client=1)
    codes = opposite.setup.dataset.train_x[-321:, -1] / UNIT
    np.testing.assert_array_equal(codes, np.where(plan.included, number, -number))


def test_coins_are_fair_and_follow_the_seed():
    def coins(**options):
        return Audit(scenario(seed=5), canaries=1400, in_place=True, **options).included

    np.testing.assert_array_equal(coins(), coins(seed=5))
    assert np.mean(coins() == coins(seed=6)) == pytest.approx(0.5, abs=0.07)
    assert coins().mean() == pytest.approx(0.5, abs=0.07)


def test_an_audit_can_be_repeated():
    once, again, other = audited(), audited(), audited(seed=10)
    without_nan = {"claimed": 0.0, "claimed_delta": 0.0}
    assert dataclasses.replace(once, **without_nan) == dataclasses.replace(again, **without_nan)
    assert other.correct != once.correct


def test_several_numbers_of_guesses_are_tested_together():
    report = audited(no_noise, guesses=[50, 200, 1438])
    assert report.guesses in (50, 200, 1438)
    assert report.refuted
    assert audited(guesses=300).guesses == 300


def test_a_curve_is_certified_point_by_point():
    composition = ((Release(1.5, 0.2), 10),)
    epsilon = epsilon_of(composition, 1e-5)
    points = curve(composition, epsilon, 1e-5, "add_or_remove")
    assert points[0] == (epsilon, 1e-5)
    assert len(points) > 5
    for one, delta in points[1::3]:
        assert epsilon_of(composition, delta) == pytest.approx(one, rel=2e-3)
    assert not curve(composition, math.nan, 1e-5, "add_or_remove")
    assert not curve(composition, math.inf, 1e-5, "add_or_remove")


@pytest.mark.parametrize(("options", "message"), [
    ({"canaries": 1439}, "canaries: expected at most 1438 in place, the examples of client 0, found 1439"),
    ({"client": 1}, "client: expected 0 to 0, found 1"),
    ({"scenario_options": {"privacy": "{mechanism: gaussian_update}"}},
     "privacy.mechanism: expected a mechanism that protects examples, found gaussian_update"),
])  # fmt: skip
def test_unsupported_scenarios_are_refused(options, message):
    with pytest.raises(ScenarioError, match=message):
        audited(**options)


def test_a_scenario_without_privacy_is_refused():
    with pytest.raises(ScenarioError, match="privacy: expected a mechanism to audit, found none"):
        audit(scenario(privacy="null"))


@pytest.mark.parametrize(("options", "message"), [
    ({"canaries": 0}, "canaries: expected an integer >= 1"),
    ({"guesses": 0}, "guesses: expected an integer from 1 to 1438, the canaries, found 0"),
    ({"guesses": []}, "guesses: expected one number of guesses or more"),
    ({"kind": "other"}, "kind: expected gradient or input"),
    ({"confidence": 1.0}, "confidence: expected a number between 0 and 1"),
])  # fmt: skip
def test_wrong_arguments_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        audited(**options)


@pytest.mark.slow(but=["binomial"])
@pytest.mark.parametrize("fault", ["binomial", "same examples"])
def test_batches_that_are_not_drawn_at_the_rate_of_the_account_are_blamed(fault, monkeypatch):
    """Guesses see neither: three times as many examples, or batches of the right size from the same examples."""
    if fault == "binomial":
        draw = BatchSizes.draw
        monkeypatch.setattr(
            BatchSizes, "draw", lambda self, client, number, size: min(719, 3 * draw(self, client, number, size))
        )
    else:
        monkeypatch.setattr("simfl.attacks.planting.positions_in", lambda problem, promise: np.arange(promise.size))
    report = audited(canaries=100, scenario_options=SAMPLED | {"batch_size": 40, "noise": 4.0})
    assert report.draws_wrong
    assert not report.passed
    assert not report.refuted
    assert not report.noise_wrong
