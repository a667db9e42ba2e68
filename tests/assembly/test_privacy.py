"""From the privacy section to the noise of clients and the end of their budgets."""

import math

import numpy as np
import pytest

from simfl import run
from simfl.algorithms.sync_sgd import SyncSGD
from simfl.assembly.assemble import assemble
from simfl.errors import ScenarioError
from simfl.plots import describe_noise
from simfl.privacy.accounting import Release, epsilon_of
from simfl.privacy.assumptions import assumptions
from simfl.privacy.ledger import greatest
from simfl.privacy.mechanisms import Gaussian
from simfl.privacy.releases import Releases
from simfl.records import read
from simfl.records.display import show_range
from simfl.scenario import loads
from simfl.tape.problem import Noise
from tests.helpers import Lab, make_problem, make_world, run_algorithm

pytestmark = pytest.mark.usefixtures("without_numbers")

D = 650


def scenario(privacy, *, algorithm="adpsgd", sampling="auto", stop="{epochs: 2}", clients=8, more=""):
    return loads(
        f"name: test\ndata: digits\nclients: {{count: {clients}}}\nstop: {stop}\nprivacy: {privacy}\n"
        f"topology: complete\nalgorithm: {{kind: {algorithm}, batch_size: 16, sampling: {sampling}}}\n{more}"
    )


@pytest.mark.parametrize(
    ("privacy", "sampler", "scale", "std"),
    [
        ("{clipping_norm: 0.5, noise_multiplier: 3}", "gaussian", 1.5, 1.5),
        ("{mechanism: gaussian_update, clipping_norm: 0.5, noise_multiplier: 3}", "gaussian", 24.0, 24.0),
        ("{mechanism: laplace_l2, epsilon_per_release: 0.5}", "laplace_l2", 2.0, 2.0 * math.sqrt(D + 1)),
        ("{mechanism: laplace_l2, neighbors: replace_one}", "laplace_l2", 2.0, 2.0 * math.sqrt(D + 1)),
        ("{mechanism: laplace, epsilon_per_release: 2}", "laplace", math.sqrt(D) / 2, math.sqrt(D / 2)),
        ("{mechanism: laplace_l2_radius_only}", "laplace_l2_radius_only", 2.0, 2.0 * math.sqrt(2 / D)),
    ],
)
def test_each_mechanism_adds_its_noise_to_the_sum(privacy, sampler, scale, std):
    setup = assemble(scenario(privacy))
    assert setup.problem.noise == Noise(sampler)
    np.testing.assert_allclose(setup.training.noise_scale, [scale] * 8)
    np.testing.assert_allclose(setup.training.noise_std, [std] * 8)
    assert setup.problem.clipping.what == ("update" if "update" in privacy else "example")


@pytest.mark.parametrize("kind", ["gossip_learning", "adpsgd"])
def test_empty_batches_and_idle_lanes_are_not_divided_by_their_norm(kind):
    """An empty Poisson batch and an idle lane have norm 0; 0/0 would spread to all parameters."""
    problem = make_problem(clipping_norm=0.05, clip="update", sampling="poisson", batch_size=1)
    with Lab(problem) as lab:
        algorithm, rows = run_algorithm(kind, make_world(8), lab.tape, lab.training(), updates=60)
        models = lab.tape.values(algorithm.models())
    assert min(row[5] for row in rows) == 0
    assert np.isfinite(models).all()
    assert np.abs(models - models[0]).max() > 0.0


def test_every_client_has_noise_of_its_own(tmp_path):
    levels = [0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4]
    result = run(scenario(f"{{noise_multiplier: {levels}, clipping_norm: 2}}"), out=tmp_path)
    for client, level in enumerate(levels):
        assert set(result.updates.loc[result.updates["client"] == client, "noise_std"]) == {2.0 * level}
    row = result.clients.iloc[3]
    assert row["epsilon"] == epsilon_of([(Release(2.0, 16 / row["samples"]), int(row["updates"]))], 1e-5)
    assert result.clients["epsilon"].is_monotonic_decreasing


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["adpsgd", "sync_sgd", "decentralized_sgd"])
def test_client_stops_when_its_budget_is_spent(algorithm, tmp_path):
    budgets = [2.0, 2.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0]
    asked = scenario(f"{{epsilon: {budgets}, noise_multiplier: 2}}", algorithm=algorithm, stop="{epochs: 200}")
    allowed = assemble(asked).training.allowances
    assert allowed[0] < allowed[2]
    result = run(asked, out=tmp_path)
    clients = result.clients
    assert clients["updates"].tolist() == allowed
    assert (clients["epsilon"] <= budgets).all()
    assert (clients["epsilon"] > 0.9 * np.array(budgets)).all()
    assert clients["exhausted_s"].notna().all()
    assert clients["exhausted_s"][:2].max() < clients["exhausted_s"][2:].min()
    last = result.updates.groupby("client")["time_s"].max()
    assert (last <= clients["exhausted_s"]).all()
    assert result.manifest.reason == "nothing left to happen: every client has spent its privacy budget"


def test_a_budget_of_whole_clients_counts_updates_and_not_their_shuffled_batches(tmp_path):
    """The order of a client's examples is no part of its account: all 4 mini-batches make one release."""
    asked = loads(
        "data: digits\nclients: 8\nstop: {updates: 4000}\nevaluate: {every: {updates: 2000}}\n"
        "algorithm: {kind: fedavg, local_steps: 4, batch_size: 8, sampling: shuffle}\n"
        "privacy: {mechanism: gaussian_update, noise_multiplier: 4, epsilon: 8}"
    )
    result, allowed = run(asked, out=tmp_path), assemble(asked).training.allowances
    assert result.clients["updates"].tolist() == allowed
    assert result.clients["epsilon"].between(0.97 * 8, 8).all()


@pytest.mark.slow
def test_noise_from_a_budget_spends_it_as_planned(tmp_path):
    asked = scenario("{epsilon: 3, delta: 1.0e-5}", algorithm="sync_sgd", stop="{epochs: 5}")
    setup = assemble(asked)
    planned = setup.kind.planned_updates(setup.sizes)
    assert planned == math.ceil(5 * sum(setup.training.sizes) / 16 / 8)
    result = run(asked, out=tmp_path)
    assert result.manifest.reason == "epochs"
    assert result.clients["epsilon"].max() == pytest.approx(3.0, rel=2e-3)
    assert result.clients["epsilon"].max() <= 3.0
    least, most = min(setup.ledger.levels), max(setup.ledger.levels)
    assert result.noise == {"noise_multiplier": (least, most)}
    row = result.summary().iloc[0]
    assert (row["noise_multiplier_least"], row["noise_multiplier_most"]) == (least, most)
    assert read(result.folder).manifest.extra["noise"] == {"noise_multiplier": [least, most]}
    assert result.updates["noise_std"].between(least, most).all(), "the clipping norm is 1"
    first, *rest = (result.folder / "scenario.yaml").read_text().splitlines(keepends=True)
    shown = show_range(least, most)
    assert first == f"# Noise of this run: privacy.noise_multiplier = {shown}, computed from privacy.epsilon.\n"
    assert "".join(rest) == asked.to_yaml()
    assert describe_noise(result) == f"z = {shown}, C = 1"


def test_given_noise_has_no_comment(tmp_path):
    asked = scenario("{noise_multiplier: 2}", stop="{updates: 16}")
    result = run(asked, out=tmp_path)
    assert (result.folder / "scenario.yaml").read_text() == asked.to_yaml()
    assert result.noise == {"noise_multiplier": (2.0, 2.0)}
    result.manifest.extra.pop("noise")  # as in an older version
    assert result.noise == {"noise_multiplier": (2.0, 2.0)}
    assert describe_noise(result) == "z = 2, C = 1"


def test_impossible_budget_is_rejected():
    with pytest.raises(
        ScenarioError, match=r"privacy\.epsilon: expected terms under which an epsilon holds; not certif"
    ):
        assemble(scenario("{epsilon: 3}", sampling="shuffle"))


def test_fixed_batches_are_certified_where_an_example_is_replaced(tmp_path):
    result = run(
        scenario("{neighbors: replace_one, noise_multiplier: 4}", sampling="without_replacement"), out=tmp_path
    )
    row = result.clients.iloc[0]
    expected = epsilon_of(
        [(Release(4.0, 16 / row["samples"], "without_replacement"), int(row["updates"]))], 1e-5, neighbors="replace_one"
    )
    assert row["epsilon"] == expected
    assert result.updates["sample_size"].unique().tolist() == [16]
    assert "replacing one example" in result.manifest.extra["privacy"]


def test_without_noise_and_clipping_privacy_changes_nothing(tmp_path):
    plain = run(scenario("null", sampling="poisson"), out=tmp_path)
    silent = run(scenario("{noise_multiplier: 0, clipping_norm: 1.0e+30}"), out=tmp_path)
    measures = ["train_loss", "test_loss", "test_accuracy", "consensus_distance", "time_s"]
    np.testing.assert_allclose(silent.metrics[measures], plain.metrics[measures], rtol=1e-5)
    assert np.isinf(silent.clients["epsilon"]).all()


@pytest.mark.parametrize(
    ("privacy", "partition", "warned"),
    [
        ("{clipping_norm: 1, noise_multiplier: 1}", "{kind: resample, size: 100}", True),
        ("{clipping_norm: 1, noise_multiplier: 1}", "iid", False),
        ("null", "{kind: resample, size: 100}", False),
    ],
)
def test_examples_at_several_clients_get_a_warning(privacy, partition, warned):
    text = scenario(privacy).to_yaml()
    setup = assemble(loads(text, overrides=[f"data.partition={partition}"]))
    lines = [line for line in setup.warnings if line.startswith("data.partition: resample")]
    assert len(lines) == warned
    assert all("what an example loses through all of them together is more" in line for line in lines)


@pytest.mark.numbers
def test_infinite_updates_are_released_as_zero_with_a_warning(tmp_path):
    """Local steps of linear regression overflow: clients send noise alone, and epsilon holds."""
    asked = loads(
        "name: test\ndata: {set: linear, samples: 160, dimension: 4}\nmodel: linear\nclients: {count: 4}\n"
        "stop: {updates: 24}\nprivacy: {mechanism: gaussian_update, noise_multiplier: 2}\n"
        "algorithm: {kind: fedavg, batch_size: 8, local_steps: 40, step_size: 1.0e+6}\n"
    )
    with pytest.warns(UserWarning, match=r"privacy: 24 updates were not finite and were released as zero"):
        result = run(asked, out=tmp_path)
    assert result.status == "done"
    assert result.manifest.extra["released_as_zero"] == 24
    assert result.manifest.extra["warnings"] == ["privacy: 24 updates were not finite and were released as zero"]
    assert np.isfinite(result.metrics["train_loss"]).all()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], None),
        (["privacy.delta=0.01"], "privacy.delta: 0.01 is more than 1/179, one over the number of examples of client"),
        (["privacy={mechanism: gaussian_update, delta: 0.1}"], None),
        (["privacy={mechanism: gaussian_update, delta: 0.2}"],
         "privacy.delta: 0.2 is more than 1/8, one over the number of clients: publishing one of them as it is "
         "would keep such a promise; use less than 0.12"),
        (["data.partition.sizes={kind: listed, values: [100, 8, 100, 9, 99, 99, 99, 99]}", "algorithm.batch_size=4"],
         "data.partition: found 2 clients with fewer than 10 examples, client 1 with 8: epsilon hides one example, "),
        (["privacy.noise_multiplier=[1, 0, 1, 1, 0, 1, 1, 1]"],
         "privacy.noise_multiplier: 0 for clients 1, 4: no noise"),
        (["privacy.noise_multiplier=[1, 1, 1, 1, 0, 1, 1, 1]"], "privacy.noise_multiplier: 0 for client 4: no noise"),
        (["data.pca=10"],
         "data.pca: statistics of all clients' examples are taken before training, outside of epsilon"),
        (["data.normalize=standard"], "data.normalize: statistics of all clients' examples are taken before training"),
        (["data.pca=10", "data.fit_on={public: 500}"], None),
        (["data.normalize=standard", "privacy="], None),
    ],
)  # fmt: skip
def test_limits_of_epsilon_are_warned_of_before_the_run(changes, expected):
    warnings = assemble(loads(scenario("{clipping_norm: 1}").to_yaml(), overrides=changes)).warnings
    assert len(warnings) == (expected is not None)
    assert all(line.startswith(expected) for line in warnings)


def test_no_client_holds_public_examples():
    text = scenario("{clipping_norm: 1}").to_yaml()
    whole, apart = (
        assemble(loads(text, overrides=["data.normalize=standard", *more]))
        for more in ([], ["data.fit_on={public: 400}"])
    )
    assert apart.sizes.sum() == whole.sizes.sum() - 400 == len(apart.dataset.train_x)
    assert len(apart.dataset.test_x) == len(whole.dataset.test_x)
    with pytest.raises(ScenarioError, match=r"data\.fit_on\.public: expected 1 to 1437, .* found 1438"):
        assemble(loads(text, overrides=["data.normalize=standard", "data.fit_on={public: 1438}"]))
    with pytest.raises(
        ScenarioError, match=r"data\.fit_on: expected pca, or normalize: standard, beside it, found neither"
    ):
        loads(text, overrides=["data.fit_on={public: 10}"])


@pytest.mark.parametrize(("rule", "most"), [("at_most: 6", 6), ("min_separation: 4", 10), ("{}", 20)])
def test_noise_from_a_budget_knows_how_often_a_user_can_be_in_a_sum(rule, most):
    """40 sums of two updates; `min_separation` of 4 lets a user into every fourth at most."""
    gate = f"participation: {{{rule}, early: send_away}}, " if rule != "{}" else ""
    asked = loads(
        "data: digits\nmodel: softmax\nclients: 8\nstop: {updates: 160}\n"
        "algorithm: {kind: fedbuff, buffer_size: 2, local_steps: 1, batch_size: 4, step_size: 0.1}\n"
        f"privacy: {{unit: user, where: server, mechanism: gaussian, {gate}releases: 40, epsilon: 3, delta: 1e-3}}"
    )
    setup = assemble(asked)
    planned = setup.kind.planned(setup)
    assert planned.counts == [most] * 8
    assert greatest(setup.ledger.final_epsilon(planned)) == pytest.approx(3.0, rel=2e-3)


class Louder(Gaussian):
    """A mechanism of another package."""


class Packaged(SyncSGD):
    """An algorithm of another package."""


def test_a_statement_names_the_mechanism_and_the_algorithm_of_another_package(monkeypatch):
    monkeypatch.setattr("simfl.assembly.privacy.MECHANISMS", {"gaussian": Louder})
    monkeypatch.setattr("simfl.assembly.assemble.find_algorithm", lambda kind: Packaged)
    text = "algorithm: {kind: sync_sgd, batch_size: 4}\nmodel: logistic\ndata: {set: logistic, samples: 99}\n"
    setup = assemble(loads(text + "privacy: {mechanism: gaussian, noise_multiplier: 1.0}\nstop: {updates: 9}\n", "own"))
    releases = Releases([1] * len(setup.sizes))
    statement, assumed = setup.ledger.statement_of(releases), assumptions(setup.ledger, releases)
    trusts = f"mechanism gaussian of {__name__} adds the noise of its noise_multiplier"
    assert statement.endswith(f"; assuming that {trusts}")
    assert "not counting what the code of sync_sgd makes of data" in statement
    assert assumed["own code"] == trusts
    assert "the code of sync_sgd" in assumed["holders"]
