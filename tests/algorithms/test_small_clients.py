"""Clients with fewer examples than a mini-batch use all that they have (`small_clients: use_all`)."""

import numpy as np
import pytest

import simfl
from simfl.algorithms import ALGORITHMS
from simfl.assembly.assemble import assemble
from simfl.assembly.forecast import forecast
from simfl.errors import ScenarioError
from simfl.papers.proactive_dp.rehearsal import open_base
from simfl.privacy.accounting import Release, epsilon_of
from simfl.privacy.ledger import Ledger
from simfl.privacy.releases import Releases
from simfl.privacy.terms import Terms
from tests.algorithms.test_accounts import GAUSSIAN, LAPLACE, UPDATE, cases, simulate
from tests.algorithms.test_accounts import scenario as base
from tests.studies.test_together import played

pytestmark = pytest.mark.usefixtures("without_numbers")

#: Algorithms whose account or theory is of batches of one size.
REFUSED = ("async_fl", "audp", "mapa", "without_replacement_sgd", "random_walk_sgd", "deep_q_sgd")
REPLACED = GAUSSIAN.replace("}", ", neighbors: replace_one}")


def scenario(algorithm, privacy="null", sizes=(4, 4, 4, 4), **sections):
    listed = f"{{kind: listed, values: [{', '.join(map(str, sizes))}]}}"
    data = f"{{set: digits, normalize: unit_sphere, partition: {{kind: iid, sizes: {listed}}}}}"
    return base(algorithm, privacy, count=len(sizes), **{"data": data, **sections})


def allowed(algorithm):
    return algorithm.replace("batch_size: 16", "batch_size: 16, small_clients: use_all")


def own(kind, more=""):
    return f"{{kind: {kind}, batch_size: 16, step_size: 0.2{more}}}"


KINDS = [kind for kind in ALGORITHMS if kind not in REFUSED and kind != "centralized_sgd"]
EQUAL = [(own(kind), "null", {}) for kind in KINDS]
EQUAL += [case for case in cases() if not any(f"kind: {kind}," in case[0] for kind in (*REFUSED, "centralized_sgd"))]
EQUAL += [
    (own("adpsgd", ", sampling: shuffle"), f"{REPLACED[:-1]}, noise: {{correlated: in_time, window: 4}}}}", {}),
    (own("decentralized_sgd"), f"{GAUSSIAN[:-1]}, noise: {{correlated: pairwise, pair_multiplier: 3.0}}}}", {}),
    (own("fedavg", ", fraction: 0.5, weighting: uniform"), "{unit: user, clipping_norm: 1.0, noise_multiplier: 2}", {}),
    (own("sync_sgd", ", gradient_noise: 0.3"), "null", {}),
    (own("adpsgd"), "{mechanism: gaussian, noise_multiplier: null, epsilon: 3.0}", {}),
    (own("async_sgd", ", sampling: without_replacement"), REPLACED.replace("2.0", "4.0, epsilon: 5.0"), {}),
]


@pytest.mark.slow(every=8)
@pytest.mark.parametrize(("algorithm", "privacy", "sections"), EQUAL, ids=lambda case: str(case)[:60])
def test_clients_with_four_examples_do_the_same_as_with_batches_of_four(algorithm, privacy, sections, tmp_path):
    """Times, messages, sizes, releases and epsilons are equal, bit for bit."""
    clients = "{count: 4, seconds_per_example: 1 ms, seconds_per_batch: 2 ms, jitter: {kind: lognormal, sigma: 0.4}}"
    sections = {"clients": clients, "stop": "{updates: 40}", **sections}
    sections.pop("count", None)
    runs = [
        simfl.run(scenario(given, privacy, **sections), out=tmp_path / str(at))
        for at, given in enumerate((allowed(algorithm), algorithm.replace("batch_size: 16", "batch_size: 4")))
    ]
    assert runs[0].manifest.digest == runs[1].manifest.digest
    assert len(runs[0].updates) >= (20 if "epsilon: 5.0" in privacy else 40), "a budget may end a run"


@pytest.mark.slow(every=6)
@pytest.mark.parametrize("kind", KINDS)
def test_clients_of_any_size_take_part_with_what_they_have(kind, tmp_path):
    """Each batch of a client has min(B, n) examples, and the steps are of their mean."""
    made = simfl.run(scenario(allowed(own(kind)), sizes=(1, 3, 40, 16)), out=tmp_path)
    sizes = made.updates.groupby("client")["sample_size"].agg(["min", "max"])
    assert {0, 1} <= {*sizes.index}
    for client in sizes.index:
        batch = (1, 3, 8 if kind == "privsgp_vr" else 16, 16)[client]  # its last mini-batch has 8 of 40
        assert (sizes.loc[client] % batch == 0).all()
        assert (sizes.loc[client] >= batch).all()


@pytest.mark.slow(but=["sync_sgd"])
@pytest.mark.numbers
@pytest.mark.parametrize("kind", ["sync_sgd", "adpsgd", "fedavg", "scaffold"])
@pytest.mark.parametrize("sampling", ["shuffle", "without_replacement"])
def test_numbers_are_those_of_batches_of_all_data(kind, sampling, tmp_path):
    runs = [
        simfl.run(scenario(given, stop="{updates: 16}", evaluate="{every: {updates: 8}}"), out=tmp_path / str(at))
        for at, given in enumerate(
            (
                allowed(own(kind, f", sampling: {sampling}")),
                own(kind, f", sampling: {sampling}").replace("batch_size: 16", "batch_size: 4"),
            )
        )
    ]
    assert runs[0].manifest.digest == runs[1].manifest.digest
    assert runs[0].metrics["train_loss"].nunique() > 2


CERTIFIED = [
    ("poisson", GAUSSIAN, "add_or_remove"),
    ("without_replacement", REPLACED, "replace_one"),
    ("shuffle", REPLACED, "replace_one"),
]


@pytest.mark.parametrize(("sampling", "privacy", "neighbors"), CERTIFIED)
@pytest.mark.parametrize("kind", ["async_sgd", "decentralized_sgd"])
def test_the_account_of_a_small_client_has_all_its_data_in_every_release(kind, sampling, privacy, neighbors, tmp_path):
    sizes = 3, 40, 16
    simulation, made = simulate(scenario(allowed(own(kind, f", sampling: {sampling}")), privacy, sizes), tmp_path)
    ledger, releases = simulation.setup.ledger, simulation.account()
    assert releases.refusal is None
    assert not releases.others, "min(B, n) is the nominal batch"
    rows = made.releases.set_index("client")
    assert rows["batch_size"].tolist() == [3, 16, 16]
    np.testing.assert_allclose(rows["sampling_rate"], [1.0, 0.4, 1.0])
    for client in (0, 2):
        whole = [(Release(2.0, 1.0, "none"), releases.counts[client])]
        assert made.clients["epsilon"][client] == pytest.approx(epsilon_of(whole, ledger.delta, neighbors=neighbors))
    if sampling != "shuffle":
        drawn = [(Release(2.0, 0.4, sampling), releases.counts[1])]
        assert made.clients["epsilon"][1] == pytest.approx(epsilon_of(drawn, ledger.delta, neighbors=neighbors))
    assert ("at most 1" if sampling == "poisson" else "or all where n is less") in made.manifest.extra["privacy"]


def test_a_clients_noise_is_that_of_its_own_mean(tmp_path):
    """A mean that is clipped to C, times b examples: noise of b z C on the sum is z C on the mean."""
    setup = assemble(scenario(allowed(own("sync_sgd")), UPDATE, sizes=(3, 40)))
    assert setup.training.noise_scale == [3 * 2.0, 16 * 2.0]
    noisy = allowed(own("sync_sgd", ", gradient_noise: 0.5"))
    setup = assemble(scenario(noisy, sizes=(3, 40)))
    np.testing.assert_allclose(setup.training.noise_std, np.array([3, 16]) * 0.5 / np.sqrt(setup.dimension))


@pytest.mark.parametrize("view", ["local_transcript", "global_hidden"])
@pytest.mark.parametrize("sampling", ["poisson", "without_replacement", "shuffle"])
def test_planned_releases_have_the_epsilon_of_recorded_ones(sampling, view):
    neighbors = "add_or_remove" if sampling == "poisson" else "replace_one"
    terms = Terms("gaussian", 1e-5, neighbors=neighbors, view=view)
    small = Ledger(terms, np.array([5, 9]), 16, sampling, [1.0, 1.0])
    whole = Ledger(terms, np.array([5, 9]), 5, sampling, [1.0, 1.0])
    assert small.epsilon_after(0, 20, "renyi") == whole.epsilon_after(0, 20, "renyi")
    assert small.allowances([3.0, 3.0])[0] == whole.allowances([3.0, 3.0])[0]
    releases = Releases([20, 20])
    assert small.epsilon(releases)[0] <= small.epsilon_after(0, 20, "renyi")
    if sampling != "shuffle":  # batches of 5 of 9 reach into the next pass
        assert small.epsilon_after(1, 20, "renyi") > whole.epsilon_after(1, 20, "renyi")
    assert small.kinds(releases) == [(0, 5, 1.0, 1.0, 20), (1, 9, 1.0, 1.0, 20)]


def test_a_budget_of_a_small_client_is_that_of_whole_batches(tmp_path):
    budget = "{mechanism: gaussian, noise_multiplier: 4.0, epsilon: 2.0}"
    made = simfl.run(scenario(allowed(own("async_sgd")), budget, sizes=(3, 300), stop="{updates: 400}"), out=tmp_path)
    assert made.clients["epsilon"].max() <= 2.0
    assert made.clients["updates"][0] < made.clients["updates"][1]


def test_a_round_of_local_steps_counts_a_small_clients_own_batches(tmp_path):
    """Three passes of n = 4: three batches of all data, each with the overhead of a batch."""
    clients = "{count: 2, seconds_per_example: 1 ms, seconds_per_batch: 10 ms}"
    algorithm = allowed(own("fedavg", ", local_epochs: 3"))
    setup = assemble(scenario(algorithm, sizes=(4, 32), clients=clients))
    assert setup.options["steps"] == [3, 6]
    made = simfl.run(scenario(algorithm, sizes=(4, 32), clients=clients, stop="{updates: 4}"), out=tmp_path)
    assert made.clients["compute_s"].tolist() == pytest.approx([2 * 0.042, 2 * (0.096 + 0.06)])
    assert set(made.updates["sample_size"]) == {12, 96}
    assert setup.training.update_examples == (12 + 96) / 2


def test_a_plan_and_the_warnings_know_small_clients():
    planned = forecast(assemble(scenario(allowed(own("adpsgd")), GAUSSIAN, sizes=(3, 40))))
    assert planned.epsilon == pytest.approx(epsilon_of([(Release(2.0, 1.0), 30)], 1e-5, accountant="renyi"), rel=0.2)


def test_small_clients_are_refused_by_default_with_the_option_named():
    with pytest.raises(ScenarioError, match="found 16; lower it, add small_clients: use_all, or use fewer clients"):
        assemble(scenario(own("sync_sgd")))


@pytest.mark.parametrize("kind", REFUSED)
def test_batches_of_one_size_are_said_to_be_needed(kind):
    with pytest.raises(ScenarioError) as caught:
        scenario(f"{{kind: {kind}, batch_size: 16, small_clients: use_all}}", LAPLACE if kind == "mapa" else "null")
    (line,) = [line for line in str(caught.value).split("\n") if "small_clients" in line]
    assert f"expected refuse with '{kind}'" in line
    with pytest.raises(ScenarioError) as caught:
        assemble(scenario(f"{{kind: {kind}, batch_size: 16}}", LAPLACE if kind == "mapa" else "null"))
    assert "use_all" not in str(caught.value)


def test_a_theorem_is_about_batches_of_one_size():
    claimed = GAUSSIAN.replace("}", ", claim: adp2sgd}")
    with pytest.raises(ScenarioError, match="small_clients: expected refuse with claim 'adp2sgd', found 'use_all'"):
        scenario(allowed(own("adpsgd")), claimed)


def test_a_plan_of_proactive_dp_needs_batches_of_one_size(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(scenario(allowed(own("sync_sgd")), GAUSSIAN, sizes=(3, 40), stop="{epochs: 3}").to_yaml())
    with pytest.raises(ScenarioError, match="at most 3, the examples of the smallest client, found 16: Theorem"):
        open_base(path, None)


def test_large_clients_are_as_without_the_option(tmp_path):
    plain, open_ = (
        simfl.run(scenario(given, GAUSSIAN, sizes=(20, 40)), out=tmp_path / str(at))
        for at, given in enumerate((own("adpsgd"), allowed(own("adpsgd"))))
    )
    assert plain.manifest.digest == open_.manifest.digest
    assert plain.manifest.extra["privacy"] == open_.manifest.extra["privacy"]


@pytest.mark.numbers
def test_steps_are_of_each_clients_own_mean(tmp_path):
    """Synchronous steps with all data of clients with 1, 3 and 5 examples, against a plain loop."""
    small = scenario(allowed(own("sync_sgd")), sizes=(1, 3, 5), stop="{updates: 9}", evaluate="{every: {updates: 9}}")
    setup, made = assemble(small), simfl.run(small, out=tmp_path)
    model, data, w = setup.model, setup.dataset, np.array(setup.training.initial, np.float64)
    for _ in range(3):
        step = np.zeros_like(w)
        for held in map(setup.partition.of, range(3)):
            x, y = data.train_x[held], data.train_y[held]
            total = model.gradient_sum(w.astype(np.float32), x, y, np.ones(len(held), np.float32))
            step += np.asarray(total, np.float64) / len(held) + model.l2 * w
        w -= 0.2 * step / 3
    np.testing.assert_allclose(model.joined(made.model), w, atol=2e-6)
    assert not np.allclose(w, setup.training.initial, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["adpsgd", "fedavg"])
def test_a_group_of_runs_has_the_tables_of_single_ones(kind, tmp_path):
    privacy = GAUSSIAN if kind == "adpsgd" else UPDATE
    given = scenario(allowed(own(kind)), privacy, sizes=(3, 40))
    each = [given, given.replace(algorithm__step_size=0.3), given.replace(privacy__noise_multiplier=1.5)]
    results, groups, refusals = played(each, tmp_path)
    assert (groups, refusals) == ([[0, 1, 2]], [])
    for number, one in enumerate(each):
        assert results[number].manifest.digest == simfl.run(one, out=tmp_path / "alone").manifest.digest
