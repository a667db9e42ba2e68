"""Membership inference: scores and statistics separately, and one small run from end to end."""

import dataclasses
import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

import simfl
from simfl.accounts.network import LINKS
from simfl.attacks.listening import Heard, Kept, KeptValues, Wiretap
from simfl.attacks.membership import _Judge, infer_membership, score
from simfl.attacks.pairing import Coins, match
from simfl.attacks.results import FALSE_POSITIVE_RATES, Inference
from simfl.attacks.separation import area, right_pairs, true_positive_rates
from simfl.attacks.statistics import epsilon_lower_bound, p_value, pair_lower_bound
from simfl.errors import ScenarioError
from simfl.models import build_model
from simfl.records import RunFolder
from simfl.runs.runner import Simulation, prepare
from simfl.scenario import loads
from simfl.streams import Streams
from simfl.tape import Gradient, Model
from simfl.tape.executor import choose_device

TEXT = """
name: ring
seed: 1
data: {set: logistic, samples: 400, dimension: 60, noise: 0.3, test_fraction: 0.5}
model: {kind: logistic}
clients: {count: 4}
topology: {kind: ring}
algorithm: {kind: adpsgd, batch_size: 10, step_size: 0.5}
links: {latency: 0.2 ms}
stop: {updates: 400}
evaluate: {every: {updates: 200}}
execution: {width: 1}
"""

# -- statistics --------------------------------------------------------------------------------


def test_the_roc_curve_equals_that_of_scikit_learn():
    generator = np.random.default_rng(1)
    members, others = generator.normal(0.7, 1, 60).round(1), generator.normal(0, 1, 50).round(1)
    truth, scores = np.repeat([1, 0], [60, 50]), np.concatenate((members, others))
    assert area(members, others)[0] == pytest.approx(roc_auc_score(truth, scores))
    false, true, _ = roc_curve(truth, scores, drop_intermediate=False)
    expected = [true[false <= rate + 1e-12].max() for rate in FALSE_POSITIVE_RATES]
    np.testing.assert_allclose(true_positive_rates(members, others, FALSE_POSITIVE_RATES), expected)


def test_the_interval_has_its_coverage():
    generator = np.random.default_rng(2)
    truth = 0.7602  # P[N(1, 2) > 0]
    areas = [area(generator.normal(1, 1, 40), generator.normal(0, 1, 80)) for _ in range(400)]
    held = np.mean([low <= truth <= high for _, low, high in areas])
    assert 0.91 < held < 0.98


def test_pairs_are_guessed_by_their_differences():
    members, others = np.array([3.0, 0.0, 1.0, 1.0]), np.array([0.0, 2.0, 0.5, 1.0])
    assert [right_pairs(members, others, guesses) for guesses in range(5)] == [0, 1, 1, 2, 2]


def test_bounds_of_pairs_equal_those_of_replaced_examples():
    assert pair_lower_bound(45, 50, 400, 1e-5, "replace_one") == epsilon_lower_bound(45, 50, 400, 1e-5)
    bound = pair_lower_bound(45, 50, 400, 1e-5, "add_or_remove")
    group = (1 + math.exp(bound)) * 1e-5
    assert p_value(45, 50, 400, 2 * bound, group) == pytest.approx(0.05, rel=1e-4)
    assert pair_lower_bound(25, 50, 400, 1e-5, "add_or_remove") == 0.0


# -- who hears what ----------------------------------------------------------------------------


def test_kept_messages_are_evenly_spaced_and_from_the_nearest_sender():
    kept = Kept(5)
    heard = [Heard(Model((), ()), None, False) for _ in range(100)]
    for one in heard[:40]:
        kept.take(2.0, one)
    assert kept.rank == 2.0
    for one in heard[40:]:
        kept.take(1.0, one)
        kept.take(2.0, heard[0])
    places = [heard.index(one) for one in kept.messages]
    assert kept.rank == 1.0
    assert (places[0], places[-1], len(places)) == (40, 99, 5)
    assert max(np.diff(places)) < 2.1 * min(np.diff(places))
    few = Kept(5)
    for one in heard[:3]:
        few.take(0.0, one)
    assert list(few.messages) == heard[:3]


def test_messages_are_heard_on_arrival_and_promises_as_sent():
    listener = Wiretap([1, LINKS, 2], {0: {0: 0.0, 1: 1.0}}, most=4, clients=2)
    first, second = Model((), ()), Model((), ())
    promise, order = Gradient(first, client=0, draw=3, size=8, noise_scale=0.0), []
    listener.shown(1, 0, second)
    deliver = listener.sent(0, 1, first, lambda: order.append(len(listener.kept[1][0].messages)))
    assert not listener.kept[1][0].messages
    deliver()
    assert order == [1], "heard before it is used"
    assert listener.kept[1][0].messages[0] == Heard(first, second, change=False)
    deliver = listener.sent(0, 2, promise, lambda: None)
    promise.size = -1  # it was used
    deliver()
    (heard,) = listener.kept[2][0].messages
    assert (heard.content.size, heard.base, heard.change) == (8, first, True)
    listener.shown(0, 2, second)
    assert listener.kept[2][0].messages[1].change, "messages to a server are not models"
    assert len(listener.kept[LINKS][0].messages) == 3
    assert listener.beside(0, 1, second, deliver) is deliver, "a further vector is not a model"
    assert len(listener.kept[LINKS][0].messages) == 3
    silent = lambda: None  # noqa: E731
    assert Wiretap([1], {0: {}}, 4, 2).sent(1, 0, first, silent) is silent


# -- scores ------------------------------------------------------------------------------------


def test_scores_are_losses_and_their_decreases():
    model = build_model("logistic", input_shape=(3,), num_classes=2)
    generator = np.random.default_rng(3)
    x, y = generator.normal(size=(5, 3)).astype(np.float32), np.array([0, 1, 1, 0, 1], np.int32)
    contents, bases = generator.normal(size=(2, 2, 4)).astype(np.float32)

    def losses(w):
        return np.logaddexp(0.0, (1 - 2 * y) * (x @ w[:3] + w[3]))

    total, gain = score(model, contents, bases, x, y, along=False)
    np.testing.assert_allclose(total, losses(contents[0]) + losses(contents[1]), rtol=1e-5)
    np.testing.assert_allclose(gain, losses(bases[0]) + losses(bases[1]) - total, rtol=1e-4)
    total, gain = score(model, contents, bases, x, y, along=True)
    np.testing.assert_allclose(total, losses(bases[0]) + losses(bases[1]), rtol=1e-5)
    slope = sum(losses(b - 1e-4 * c) - losses(b + 1e-4 * c) for b, c in zip(bases.astype(float), contents, strict=True))
    np.testing.assert_allclose(gain, slope / 2e-4, rtol=1e-3)


def test_both_examples_of_a_pair_have_one_label():
    generator = np.random.default_rng(4)
    own, pool = generator.integers(0, 3, 30), generator.integers(0, 3, 12)
    first, second = match(own, pool, np.arange(3), generator)
    np.testing.assert_array_equal(own[first], pool[second])
    assert len(set(first)) == len(set(second)) == len(first) >= 10
    assert [len(part) for part in match(own, pool, None, generator)] == [12, 12]


def test_an_account_is_refuted_at_the_confidence_of_all_inferences_together():
    judge = _Judge(prepare(loads(TEXT)), 0.95)
    inference = Inference("1", 0, 1, 5, 0, "gain", 200, 0.9, 0.8, 1.0, 0.3, 95, 100, math.nan, 1.9, "local", math.nan)
    alone = pair_lower_bound(95, 100, 200, 1e-5, "replace_one")
    assert alone > 1.9
    one = dataclasses.replace(inference, lower_bound=alone)
    assert judge.against_account(one, 1).refuted
    assert not judge.against_account(one, 10_000).refuted
    assert not judge.against_account(dataclasses.replace(one, account=math.nan), 1).refuted


def test_coins_keep_one_of_each_pair():
    setup = prepare(loads(TEXT))
    coins, dataset, before = Coins([1], Streams(0)), setup.dataset, setup.partition
    _, after, _ = coins.split(dataset, before, setup.model)
    own, kept = set(before.of(1)), set(after.of(1))
    assert [set(after.of(k)) == set(before.of(k)) for k in range(4)] == [True, False, True, True]
    assert kept < own
    pairs = coins.pairs[1]
    assert len(own - kept) == len(pairs.members) > 40

    def rows(x):
        return {int(np.flatnonzero((dataset.train_x == one).all(axis=1))[0]) for one in x}

    assert rows(pairs.members) <= kept
    assert rows(pairs.others) == own - kept
    np.testing.assert_array_equal(pairs.labels, pairs.other_labels)


# -- runs --------------------------------------------------------------------------------------


def overheard(text, observer):
    """Run, with the last 50 messages kept; return the setup, the run, and messages, contents and bases heard."""
    setup = prepare(loads(text))
    simulation = Simulation(setup, choose_device(None))
    observer = simulation.algorithm.server if observer is None else observer
    listener = Wiretap([observer], {k: {k: 0.0} for k in range(4)}, most=50, clients=4)
    simulation.world.network.witness = listener
    try:
        with tempfile.TemporaryDirectory() as folder:
            run = simulation.run(RunFolder.create(Path(folder), "heard"))
            heard = [one for kept in listener.kept[observer].values() for one in kept.messages]
            contents, bases = KeptValues(simulation.tape, setup.training.initial).read(heard)
            return setup, run.manifest.updates, setup.model.joined(run.model), heard, contents, bases
    finally:
        simulation.release()


def test_promises_have_the_values_that_the_server_applied():
    """With every message kept, the steps add up to the model."""
    text = TEXT.replace("adpsgd", "async_sgd").replace("updates: 400", "updates: 40")
    setup, updates, model, heard, contents, _ = overheard(text, None)
    steps = [content for one, content in zip(heard, contents, strict=True) if one.change]
    assert len(steps) >= 40  # some that arrived last were not applied
    assert len(steps) == updates
    np.testing.assert_allclose(setup.training.initial + 0.5 / 10 * sum(steps), model, rtol=1e-3, atol=1e-4)


MODELS = [
    "corrected_gossip, method: tracking",
    "asy_sonata",
    "k_gt",
    *(
        pytest.param(kind, marks=pytest.mark.slow)
        for kind in ("corrected_gossip, method: extra", "corrected_gossip, method: nids", "decentralized_sgd",
                     "gossip_learning", "sgp, graph: topology", "a2cid2", "scaffold",
                     "favas, period: 200 ms, fraction: 1", "area")
    ),
]  # fmt: skip


@pytest.mark.parametrize("kind", MODELS)
def test_all_that_is_heard_as_a_model_is_one(kind):
    """With steps of size almost 0 all models are the initial one, and what corrects them is not."""
    text = TEXT.replace("adpsgd", kind).replace("step_size: 0.5", "step_size: 1.0e-6")
    setup, _, _, heard, contents, bases = overheard(text.replace("updates: 400", "updates: 20"), LINKS)
    assert len(heard) > 10
    initial = setup.training.initial
    for one, content, base in zip(heard, contents, bases, strict=True):
        np.testing.assert_allclose(content, 0.0 if one.change else initial, rtol=0, atol=1e-4)  # a server hears changes
        np.testing.assert_allclose(base, initial, rtol=0, atol=1e-4)


def test_running_sums_of_models_are_not_heard_as_models():
    text = TEXT.replace("adpsgd", "sgp, lost: sums").replace("updates: 400", "updates: 20")
    with pytest.raises(
        ScenarioError, match="--observer: expected one that models or gradients were sent to, found none"
    ):
        infer_membership(loads(text), observers=["links"])


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    scenario = loads(TEXT)
    run = simfl.run(scenario, out=tmp_path_factory.mktemp("runs"))
    return infer_membership(scenario, models=20, run=run)


@pytest.mark.slow
def test_neighbors_see_more_than_the_others(attacked):
    assert attacked.reproduced, "listening does not change the run"
    areas = attacked.frame.groupby(["score", "distance"])["auc"].mean()
    for name in ("loss", "gain"):
        assert areas[name, 1.0] > max(0.58, areas[name, 2.0] + 0.01)
    rows = attacked.frame
    assert len(rows) == len(attacked.rates) == 2 * 4 * 3
    assert set(rows["from_distance"][rows["distance"] == 1]) == {0.0}
    assert set(rows["from_distance"][rows["distance"] == 2]) == {1.0}
    assert rows["account"].isna().all()
    assert not attacked.refuting
    assert (rows["lower_bound"] <= attacked.ceiling).all()
    assert rows["lower_bound"].max() > 0.0
    curve = attacked.roc[(attacked.roc["score"] == "loss") & (attacked.roc["distance"] == 1)]
    assert curve["true_positive_rate"].is_monotonic_increasing
    assert curve["true_positive_rate"].iloc[-1] == 1.0


def test_half_of_the_examples_are_left_out_by_coins():
    scenario = loads(TEXT.replace("updates: 400", "updates: 200"))
    report = infer_membership(scenario, observers=[1], clients=[0], held_out="coins", models=3)
    one = report.inferences[0]
    assert 40 <= one.members <= 50
    assert (one.models, one.observer, report.held_out) == (3, "1", "coins")


def test_noise_of_the_server_does_not_cover_messages_to_it():
    text = TEXT.replace("adpsgd, batch_size: 10, step_size: 0.5", "fedbuff, batch_size: 10, noise: server")
    private = "privacy: {mechanism: gaussian_update, clipping_norm: 1, noise_multiplier: 1, delta: 1.0e-3}\nstop"
    scenario = loads(text.replace("stop", private, 1).replace("updates: 400", "updates: 20"))
    table = infer_membership(scenario, observers=[2, "server"], clients=[0]).frame.set_index("observer")
    assert table.loc["2", "account"].between(1, 50).all()
    assert table.loc["server", "account"].isna().all()
    assert (table.loc["2", "distance"] == 2).all()
    assert (table.loc["server", "from_distance"] == 0).all()


@pytest.mark.parametrize(("options", "message"), [
    ({"observers": ["server"]}, "--observer: expected 0 to 3, or links, found server"),
    ({"clients": [4]}, "--client: expected 0 to 3, found 4"),
    ({"models": 10**9}, "--models: expected what fits into 2 GiB"),
])  # fmt: skip
def test_unsupported_attacks_are_refused(options, message):
    with pytest.raises(ScenarioError, match=message):
        infer_membership(loads(TEXT), **options)
