"""Knowledge of observers about clients: the world is simulated without arithmetic, and once with kernels."""

import math
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import simfl
from simfl.accounts.knowledge import Listener
from simfl.accounts.network import Network, network, reconstruct
from simfl.algorithms.adpsgd import ADPSGD
from simfl.errors import ScenarioError
from simfl.privacy.gaussian import gaussian_epsilon
from simfl.privacy.terms import OF_HOLDERS
from simfl.records import RunFolder
from simfl.runs.runner import Simulation, prepare
from simfl.tape.executor import choose_device
from tests.accounts.test_knowledge import Watcher


def scenario(kind="adpsgd", *, clients=6, updates=36, options=None, privacy=None, **changes):
    """A small private scenario of digits, as a mapping."""
    return {
        "name": "seen",
        "clients": {"count": clients},
        "topology": {"kind": "ring"},
        "data": {"set": "digits"},
        "model": {"kind": "softmax"},
        "algorithm": {"kind": kind, "batch_size": 16, **(options or {})},
        "privacy": {
            "mechanism": "gaussian", "clipping_norm": 1.0, "noise_multiplier": 2.0, "delta": 1e-4,
            "accountant": "renyi", **(privacy or {}),
        },
        "stop": {"updates": updates},
        **changes,
    }  # fmt: skip


ROUGH = {
    "links": {"latency": {"kind": "lognormal", "mean": "1 ms", "sigma": 0.5}, "loss": 0.1, "bandwidth": "1 GB/s"},
    "availability": [
        {"clients": [1], "crash": [{"at": "3 ms", "back": "9 ms"}]},
        {"clients": [2], "offline": [["2 ms", "6 ms"]]},
        {"clients": [4], "crash": [{"at": "11 ms"}]},
    ],
}
CLIENT = {"mechanism": "gaussian_update"}


KINDS = [
    ("adpsgd", {}, {}),
    ("adpsgd", {"exchange": "atomic", "sampling": "shuffle"}, {"neighbors": "replace_one"}),
    ("decentralized_sgd", {"sampling": "without_replacement"}, {"neighbors": "replace_one"}),
    ("sgp", {}, {}),
    ("gossip_learning", {"period": "1 ms"}, {}),
    ("sync_sgd", {}, {}),
    ("async_sgd", {}, {}),
    ("async_fl", {}, {}),
    ("fedavg", {}, CLIENT),
    ("fedbuff", {"buffer_size": 2}, CLIENT),
    ("fedasync", {}, CLIENT),
    ("without_replacement_sgd", {"projection": None}, {"neighbors": "replace_one"}),
]


@pytest.mark.slow(but=["without_replacement_sgd-options11-privacy11"])
@pytest.mark.parametrize(("kind", "options", "privacy"), KINDS)
def test_views_are_ordered_and_certified_by_the_smaller(kind, options, privacy):
    rough = {} if kind == "without_replacement_sgd" else ROUGH
    report = network(scenario(kind, options=options, privacy=privacy, **rough))
    pairs, slack = report.pairs, 1 + 1e-9
    assert len(pairs)
    assert not pairs.isna().any().any()
    assert (pairs["published_mu"] <= pairs["pairwise_mu"] * slack).all()
    assert (pairs["pairwise_mu"] <= pairs["local_mu"] * slack).all()
    assert (pairs["published"] <= pairs["epsilon"] * slack).all()
    np.testing.assert_array_equal(pairs["epsilon"], np.minimum(pairs["pairwise"], pairs["local"]))
    np.testing.assert_array_equal(pairs["account"] == "pairwise", pairs["pairwise"] < pairs["local"])
    assert (pairs["epsilon"] <= [gaussian_epsilon(1e-4, mu) * slack for mu in pairs["local_mu"]]).all()
    if kind in ("adpsgd", "gossip_learning"):
        far, near = (pairs.loc[pairs["distance"] == hops, "published_mu"].mean() for hops in (3.0, 1.0))
        assert 0.0 < far < 0.6 * near


def test_a_client_of_a_server_learns_as_much_as_in_central_privacy():
    """All models that clients see are the server's, at which their gradients are taken, so nothing is hidden."""
    summed = {"clients": 8, "updates": 40, "options": {"weighting": "uniform"}, "privacy": CLIENT}
    report = network(scenario("fedavg", **summed))
    of_clients = report.pairs[report.pairs["observer"] != "server"]
    # four rounds of five have come back to the clients, in each of which seven others' noise hides a client's
    assert of_clients["pairwise_mu"].to_numpy() == pytest.approx(math.sqrt(4 / 7) / 2.0)
    assert set(of_clients["account"]) == {"pairwise"}
    of_server = report.pairs[report.pairs["observer"] == "server"]
    assert of_server["pairwise_mu"].to_numpy() == pytest.approx(math.sqrt(5) / 2.0)
    account = network(scenario("fedavg", **summed), sees="neighbor_sums")
    of_server = account.pairs[account.pairs["observer"] == "server"]
    assert of_server["pairwise_mu"].to_numpy() == pytest.approx(math.sqrt(5 / 8) / 2.0)


def test_noise_of_the_server_does_not_protect_from_the_server():
    report = network(
        scenario("fedbuff", options={"buffer_size": 3, "noise": "server"}, privacy=CLIENT), observers=["server", 0]
    )
    server, client = (report.pairs[report.pairs["observer"] == name] for name in ("server", "0"))
    assert np.isinf(server["epsilon"]).all()
    assert np.isfinite(client["epsilon"]).all()


def test_coalitions_know_more_than_their_members():
    alone = network(scenario(), observers=[0, 3])
    together = network(scenario(), coalition=[0, 3])
    links = network(scenario(), observers=["links"])
    assert set(together.pairs["observer"]) == {"0+3"}
    for client in (1, 2, 4, 5):
        mus = [one.pairs.set_index("client")["pairwise_mu"].loc[client] for one in (alone, together, links)]
        assert mus[0].max() <= mus[1] * (1 + 1e-9) <= mus[2] * (1 + 2e-9)
    assert (links.pairs["distance"] == 0.0).all()


def test_replacing_an_example_doubles_mu():
    kinds = {"algorithm": {"kind": "decentralized_sgd", "batch_size": 16, "sampling": "without_replacement"}}
    report = network(scenario(privacy={"neighbors": "replace_one"}, **kinds), observers=["links"])
    # six gradients of each client, all of which are in messages that set out
    for account in ("local_mu", "pairwise_mu"):
        assert report.pairs[account].to_numpy() == pytest.approx(2 * math.sqrt(6) / 2.0)


def test_the_closure_contains_all_dependencies_of_a_gradient():
    account = Network(scenario(updates=60))
    reads, _ = account.knowledge.matrices([one.read for one in account.knowledge.batches])
    observer = account.observer([0])
    others = set(np.flatnonzero(account.owners != 0).tolist())
    last = max(others)
    alone = np.zeros((1, len(reads)))
    alone[0, last] = 1.0  # as if an observer saw this one by itself
    needed = set(account.needed(alone, observer).tolist())
    assert {last} < needed <= others
    for gradient in needed:
        assert set(np.flatnonzero(reads[gradient]).tolist()) & others <= needed
    a, _ = account.closure(alone, np.zeros((1, 0)), observer)
    assert len(a) == 1 + len(needed)
    assert not a[:, account.owners == 0].any()


@pytest.mark.parametrize("batch_size", [8, 16])
def test_a_clipped_mean_moves_its_sum_by_the_number_of_examples(batch_size):
    content = scenario("adpsgd", options={"batch_size": batch_size, "sampling": "shuffle"}, privacy=CLIENT)
    report = network(content, observers=["links"])
    counts = np.bincount(Network(content).owners, minlength=6)
    assert report.pairs["local_mu"].to_numpy() == pytest.approx(np.sqrt(counts) / 2.0)


@pytest.mark.parametrize(
    ("sampling", "neighbors", "step"),
    [("poisson", "add_or_remove", 1.02), ("without_replacement", "replace_one", 1.1)],
)
def test_levels_of_single_releases_are_rounded_down(sampling, neighbors, step):
    account = Network(scenario(options={"sampling": sampling}, privacy={"neighbors": neighbors}))
    observer = account.observer([0])
    view = account.view(*account.matrices(account.seen(observer), observer))
    for client in (1, 2):
        own = np.flatnonzero(account.owners == client)
        precisions = view.precisions(own)
        exact = np.sort(1.0 / np.sqrt(precisions[precisions > 0.0]))  # C = 1: levels as of one example more or less
        kinds = account._kinds(view, account._columns[client])[client]
        rounded = np.sort([level for (_, level), count in kinds.items() for _ in range(count)])
        assert {size for size, _ in kinds} == {16}
        assert (rounded <= exact * (1 + 1e-9)).all()
        assert (rounded >= exact / step / (1 + 1e-9)).all()


def test_passes_name_the_batches_that_may_hold_an_example():
    """239 and 240 examples in batches of 17: the rest of a pass and the first examples of the next are in one batch."""
    account = Network(
        scenario(
            clients=6,
            updates=200,
            options={"sampling": "shuffle", "batch_size": 17},
            privacy={"neighbors": "replace_one"},
        )
    )
    for client in range(2):
        own, n = np.flatnonzero(account.owners == client), int(account.setup.sizes[client])
        draws = [account.knowledge.batches[column].draw for column in own]
        assert n % 17
        holding = [
            {place for place, draw in enumerate(draws) if draw * 17 <= position < draw * 17 + 17}
            for position in range(n * 4)
        ]
        expected = [set().union(*holding[n * number : n * number + n]) for number in range(4)]
        passes = account.passes(own)
        assert [set(one.tolist()) for one in passes] == [one for one in expected if one]
        assert len(passes) > 2


def test_every_task_passes_over_the_examples_of_its_node():
    """Ten tasks of six clients are numbered as sixty; each takes one gradient of an example in each pass."""
    privacy = {"mechanism": "one_pass_gaussian", "epsilon": 4.0}
    content = scenario("random_walk_sgd", options={"visits": 2}, stop={"epochs": 2}, model={"kind": "one_vs_all"})
    account = Network({**content, "privacy": privacy})
    for client in (0, 5):
        own = np.flatnonzero(account.owners == client)
        tasks = [[account.knowledge.batches[own[place]].client for place in places] for places in account.passes(own)]
        assert all(len(set(one)) == 1 for one in tasks)
        held = [one[0] for one in tasks]
        assert sorted(set(held)) == list(range(10 * client, 10 * client + 10))
        assert max(held.count(task) for task in held) == 2
    assert account.setup.tasks == 10


def test_knowledge_grows_with_time():
    report = network(scenario(), observers=[0], times=4)
    table = report.pairs.pivot(index="client", columns="time_s", values="pairwise_mu").to_numpy()
    assert table.shape == (5, 4)
    assert (np.diff(table, axis=1) >= -1e-9).all()
    assert (table[:, -1] > table[:, 0]).sum() > 2


@pytest.mark.usefixtures("without_numbers")
def test_a_run_and_its_scenario_have_the_same_account(tmp_path):
    run = simfl.run(scenario(), out=tmp_path)
    of_run, expected = (network(one, observers=[1]).pairs for one in (run.folder, scenario()))
    pd.testing.assert_frame_equal(of_run, expected)


@pytest.mark.parametrize(("content", "options", "message"), [
    (scenario(stop={"updates": 9, "accuracy": 0.5}), {}, r"stop\.accuracy: expected a run that ends at a time"),
    ({**scenario(), "privacy": None}, {}, r"privacy: expected a mechanism to account for, found none"),
    ({**scenario(), "privacy": {"mechanism": "laplace_l2", "clipping_norm": 1.0, "epsilon_per_release": 0.1}}, {},
     r"privacy\.mechanism: expected gradients that are clipped, with Gaussian noise, found 'laplace_l2'"),
    (scenario(options={"sampling": "with_replacement"}), {}, r"privacy: not certified: sampling with_replacement"),
    (scenario("privsgp_vr", privacy={"neighbors": "replace_one"}), {},
     r"algorithm\.kind: expected clients that keep no gradients, found privsgp_vr"),
    (scenario(), {"observers": [6]}, r"observer: expected a client, 0 to 5, or \"links\", found 6"),
    (scenario(), {"sees": "neighbor_sums"}, r"expected an algorithm whose nodes add up several messages"),
    (scenario(), {"times": 0}, r"times: expected an integer >= 1, found 0"),
])  # fmt: skip
def test_unsupported_scenarios_are_refused_in_one_line(content, options, message):
    with pytest.raises(ScenarioError, match=message) as caught:
        network(content, **options)
    assert "\n" not in str(caught.value)


class Silent(ADPSGD):
    """An algorithm of a user, which may not report its messages."""

    kind = "silent"


@pytest.mark.parametrize(("algorithm", "message"), [
    ({"kind": "tests.accounts.test_network:Silent"},
     r"algorithm\.kind: expected an algorithm of simfl's, found tests\."),
    ({"kind": "adpsgd", "optimizer": {"kind": "momentum", "state": {"average": True}}},
     r"algorithm\.optimizer\.state: "),
    ({"kind": "adpsgd", "optimizer": {"kind": "momentum", "clip_norm": 1.0}}, r"algorithm\.optimizer: "),
])  # fmt: skip
def test_state_outside_of_messages_is_refused(algorithm, message):
    with pytest.raises(ScenarioError, match=message):
        Network({**scenario(), "algorithm": {"batch_size": 16, **algorithm}})


def test_momentum_that_is_not_sent_is_a_linear_form():
    report = network(scenario(options={"optimizer": {"kind": "momentum"}}), observers=[0])
    assert (report.pairs["published_mu"] > 0.0).any()


RACE = ("without_replacement_sgd", {"contention": "race", "projection": None}, {"neighbors": "replace_one"})
UNSAID = {"noise_multiplier": None, "accountant": None}
ONE_PASS = {"mechanism": "one_pass_gaussian", "epsilon": 1.0, "clipping_norm": None, **UNSAID}
LAPLACE = {"mechanism": "laplace_l2", "neighbors": "replace_one", "epsilon_per_release": 0.5, **UNSAID}
EVERY = [
    *KINDS,
    RACE,
    ("random_walk_sgd", {"visits": 2}, ONE_PASS),
    ("sgp", {"overlap": 1}, {}),
    ("sgp", {"graph": "exponential"}, {}),
    ("async_fl", {"aggregators": [2]}, {}),
    ("async_sgd", {"delays": "cyclic"}, {}),
    ("audp", {"smoothness": 10, "sampling_std": 3}, {}),
    ("mapa", {"smoothness": 10, "sampling_std": 3, "initial_gap": 1}, LAPLACE),
    ("fedprox", {"deadline": "20 ms"}, CLIENT),
    ("fedavg", {"fraction": 0.5}, CLIENT),
    ("fedbuff", {"buffer_size": 2, "noise": "server"}, CLIENT),
    ("fedbuff", {"buffer_size": 2, "after_update": "wait"}, CLIENT),
    ("fedasync", {"concurrency": 3}, CLIENT),
    ("sync_sgd", {"optimizer": {"kind": "momentum"}}, {}),
    ("adpsgd", {"staleness_bound": {"bound": 2, "policy": "wait"}}, {}),
]
SLOW = {"latency": {"kind": "lognormal", "mean": "10 ms", "sigma": 1.0}, "loss": 0.1, "bandwidth": "1 GB/s"}
FAULTS = {
    "delays and losses": {"links": SLOW},
    "crashes and absences": {"links": SLOW, "availability": ROUGH["availability"]},
    "late joins": {
        "links": SLOW,
        "availability": [
            {"clients": [1], "join": "20 ms"},
            {"clients": [2], "join": "30 ms", "offline": [["40 ms", "50 ms"]]},
            {"clients": [3], "offline": [["15 ms", "45 ms"]]},
            {"clients": [4], "join": "25 ms", "crash": [{"at": "60 ms", "back": "70 ms"}]},
        ],
    },
    "a partition": {
        "links": {**SLOW, "partitions": [{"from": "20 ms", "until": "60 ms", "groups": [[0, 1, 2], [3, 4, 5]]}]},
        "availability": [{"clients": [5], "join": "30 ms"}],
    },
}


@pytest.mark.slow(every=7)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("kind", "options", "privacy"), EVERY)
def test_models_of_a_node_follow_from_its_messages(kind, options, privacy, fault):
    """Otherwise it has seen more than is accounted for: in a race, newer versions than those sent to it."""
    privacy = {key: value for key, value in {**scenario()["privacy"], **privacy}.items() if value is not None}
    account = Network({**scenario(kind, options=options, updates=60, **FAULTS[fault]), "privacy": privacy})
    assert all(account.check(observer) for observer in account.observers)
    if account.knowledge.merged:
        assert all(account.check(observer, "neighbor_sums") for observer in account.observers)
    made = sum(len(account._arrivals_and_sends(observer, "messages")[1]) for observer in account.observers)
    assert made > 20


def test_a_walk_that_begins_again_tells_its_client_the_shared_model():
    """The clients that walked have left when the last one joins."""
    leave = [{"clients": [0, 1], "crash": [{"at": "50 ms"}]}, {"clients": [2], "join": "100 ms"}]
    content = scenario("multi_walk", clients=3, updates=60, options={"walks": 1}, availability=leave)
    account = Network({**content, "links": {"latency": "5 ms"}, "stop": {"time": "0.3 s"}})
    assert {batch.client for batch in account.knowledge.batches} == {0, 1, 2}
    assert all(account.check(observer) for observer in account.observers)
    pairs = network(account, observers=[2]).pairs
    assert (pairs.pairwise_mu > 0.0).all()


def test_an_unrecorded_message_is_refused(monkeypatch):
    """The model sent to a late learner, if it were missing in the account."""
    join = {"availability": [{"clients": [3], "join": "20 ms"}], "stop": {"time": "30 ms"}}
    content = scenario("sync_sgd", clients=4, **join)
    pairs = network(content).pairs
    assert (pairs.loc[pairs["observer"] == "3", "epsilon"] > 0.0).all()
    sent = Listener.sent
    monkeypatch.setattr(Listener, "sent", lambda self, *message: sent(self, *message) and message[-1])
    for account in (network, reconstruct):
        with pytest.raises(ScenarioError, match="not certified: node 3 has a state that does not follow from"):
            account(content)


@pytest.mark.parametrize("rest", [0.0, 1e-16, 1e-13])
def test_a_small_difference_of_two_messages_survives_rounding(rest):
    """An observer of x and x + rest * y knows y, for any small rest."""
    account = Network(scenario("async_sgd", updates=40))
    known = account.knowledge
    other = [one for one in known.messages if one.source == 1][-1]
    seen = [one for one in known.messages if one.target == 0 and one.came_s < math.inf][-1]
    before = network(account, observers=[0]).pairs.set_index("client").loc[1]
    account = Network(account.setup)
    known = account.knowledge
    nearly = known.add(((seen.row, 1.0), (other.row, rest)))
    known.messages.append(replace(seen, row=nearly))
    after = network(account, observers=[0]).pairs.set_index("client").loc[1]
    if rest == 0.0:
        assert after["pairwise_mu"] == pytest.approx(before["pairwise_mu"])
    elif rest == 1e-16:  # below the rounding error: no account of the view is certified
        assert np.isnan(after["pairwise_mu"])
        assert (after["account"], after["epsilon"]) == ("local", after["local"])
    else:
        a = account.matrices([*account.seen(account.observer([0])), other.row], account.observer([0]))
        exact = account.view(*account.closure(*a, account.observer([0])))  # as if it saw y itself
        assert after["pairwise_mu"] == pytest.approx(account.spent(exact, [1])[0][0], rel=1e-2)
        assert after["pairwise_mu"] > 1.01 * before["pairwise_mu"]


HELD = {"data": {"set": "digits", "partition": {"kind": "resample", "size": 160}}}
HELD_BY_SEVERAL = [
    ("without_replacement_sgd", {"projection": None}, {"neighbors": "replace_one"}),
    ("without_replacement_sgd", {"projection": None}, ONE_PASS),
    ("decentralized_sgd", {}, {}),
    ("adpsgd", {"sampling": "shuffle"}, {"neighbors": "replace_one"}),
]


@pytest.mark.parametrize(("kind", "options", "privacy"), HELD_BY_SEVERAL)
def test_an_example_counts_with_the_gradients_of_all_holders(kind, options, privacy):
    updates = 4 if kind == "without_replacement_sgd" else 18
    privacy = {key: value for key, value in {**scenario()["privacy"], **privacy}.items() if value is not None}
    account = Network({**scenario(kind, updates=updates, options=options, **HELD), "privacy": privacy})
    pairs = network(account).pairs
    holders = {frozenset(np.flatnonzero(row).tolist()) for row in account.setup.holders}
    assert max(map(len, holders)) > 2
    shares = [set(account.setup.partition.of(client).tolist()) for client in range(6)]
    assert holders == {frozenset(k for k in range(6) if e in shares[k]) for e in set().union(*shares)}
    for observer in (account.observer([2]), account.observer([4])):
        view = account.view(*account.closure(*account.matrices(account.seen(observer), observer), observer))
        of_set = {}
        for held in holders:
            columns = np.flatnonzero(np.isin(account.owners, sorted(held - observer.nodes)))
            of_set[held] = view.mu(columns, account.changes[columns], account.passes(columns))
        told = pairs[pairs["observer"] == observer.name].set_index("client")
        for client in told.index:
            expected = max(mu for held, mu in of_set.items() if client in held)
            assert told["pairwise_mu"][client] == pytest.approx(expected)
    assert (pairs["epsilon"] <= pairs["local"]).all()
    silent = sorted(set(range(6)) - set(account.owners.tolist()))
    assert silent or kind != "without_replacement_sgd"
    assert (pairs.loc[pairs["client"].isin(silent), "local"] > 0.0).all(), (
        "other clients released the examples that it holds"
    )


def test_the_statement_says_that_other_holders_are_not_counted():
    report = network(scenario("decentralized_sgd", updates=18, **HELD), observers=[0])
    assert f"not counting {OF_HOLDERS}" in report.statement
    assert report.statement.endswith(f"the accounts of observers count {OF_HOLDERS}, too")
    alone = network(scenario("decentralized_sgd", updates=18), observers=[0])
    assert "hold the same example" not in alone.statement
    # of three full-rate releases of several clients each
    assert (report.pairs["local"] > 1.3 * alone.pairs["local"]).all()


class Straight:
    """A model whose loss is <w, x>: the gradient of an example is the example, for any w."""

    def __init__(self, size):
        self.size = size

    def init(self, key):
        del key
        return jnp.zeros(self.size)

    def losses(self, params, x, y):
        del y
        return x @ params


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["adpsgd", "decentralized_sgd"])
def test_likelihood_ratios_have_the_mean_and_variance_of_mu(kind, tmp_path):
    """The noise is the real kernels': every coordinate of a model is a simulated view, ten thousand of them.

    Under N(s, Sigma) against N(0, Sigma) the logarithm of the likelihood ratio has mean mu^2 / 2 and variance mu^2.
    """
    views, clients, batch, each = 10_000, 4, 4, 40
    x = np.ones((clients * each, views), np.float32)
    content = scenario(
        kind,
        clients=clients,
        updates=60,
        options={"batch_size": batch, "sampling": "shuffle", "step_size": 0.5},
        privacy={"neighbors": "replace_one", "clipping_norm": 200.0, "noise_multiplier": 0.01},
        links=ROUGH["links"],
    )
    content["data"] = {"partition": "iid"}
    model, y = Straight(views), np.zeros(len(x), np.float32)
    setup = prepare(content, "cpu", model=model, data=(x, y, x[:4], y[:4]))
    simulation = Simulation(setup, choose_device("cpu"))
    watcher = simulation.world.network.witness = Watcher(simulation.tape, simulation.world.clock)
    try:
        simulation.run(RunFolder.create(tmp_path, "seen"))
    finally:
        simulation.release()
    account = Network(setup)
    assert len(watcher.messages) == len(account.knowledge.messages)
    rows = [(one.row, value) for one, (*_, value) in zip(account.knowledge.messages, watcher.messages, strict=True)
            if one.target == 2 and one.came_s < math.inf]  # fmt: skip
    assert len(rows) > 3
    a, b = account.knowledge.matrices([row for row, _ in rows])
    seen = np.array([value for _, value in rows], dtype=np.float64)
    expected = a.sum(axis=1) * batch  # every gradient is a sum of ones
    sigma = b @ b.T  # the observer's own noise too, as if it did not know it
    s = a[:, account.owners == 1].sum(axis=1) * 0.05
    weights = np.linalg.pinv(sigma, rcond=1e-10) @ s
    mu2 = float(s @ weights)
    ratios = weights @ (seen - expected[:, None]) + mu2 / 2  # of views under the neighbor, which s moves
    assert ratios.mean() == pytest.approx(mu2 / 2, abs=5 * math.sqrt(mu2 / views))
    assert ratios.var() == pytest.approx(mu2, rel=5 * math.sqrt(2 / views))
