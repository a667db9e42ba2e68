"""The options of async_fl: from a scenario to sequences, gates and step sizes, and the privacy of its rounds."""

import numpy as np
import pytest

import simfl
from simfl.accounts import check as claims
from simfl.errors import ConditionError, ScenarioError
from simfl.papers.async_fl import kind as federated
from simfl.papers.async_fl.round_sizes import DelayGate, RoundsGate
from simfl.privacy.accounting import Release, epsilon_of
from simfl.scenario import from_mapping

pytestmark = pytest.mark.usefixtures("without_numbers")

DIGITS = {"set": "digits", "test_fraction": 0.2}


def scenario(algorithm=None, **sections):
    return from_mapping(
        {
            "data": DIGITS,
            "clients": {"count": 4},
            "algorithm": {"kind": "async_fl", "batch_size": 16, **(algorithm or {})},
            "stop": {"epochs": 2},
            **sections,
        }
    )


@pytest.mark.parametrize(("sizes", "expected"), [
    (7, [7, 7, 7, 7]),
    ({"kind": "polynomial", "a": 2, "b": 3}, [5, 7, 9, 11]),
    ({"kind": "polynomial", "a": 1.322, "b": 16, "start": 0}, [16, 18, 19, 20]),
    ({"kind": "over_log", "a": 50}, [145, 137, 145, 156]),
    ({"kind": "shifted_power", "slope": 2, "shift": 3, "power": 2}, [18, 32, 50, 72]),
    ({"kind": "lemma1", "shift": 39, "ahead": 1}, [5, 6, 6, 6]),
    ({"kind": "theorem5", "smoothness": 1, "strong_convexity": 1, "shift": 5800}, [13, 13, 13, 13]),
])  # fmt: skip
def test_sizes_of_a_scenario_are_the_sequences_of_the_paper(sizes, expected):
    sequence = federated.sequence_of(scenario({"sizes": sizes}))
    assert sequence.first(4) == expected


def test_without_sizes_every_client_computes_a_batch():
    sizes = federated.round_sizes(scenario(), np.array([10, 20, 30, 40]))
    assert [sizes.of(5, c) for c in range(4)] == [16] * 4


def test_weights_are_uniform_by_data_or_listed():
    examples = np.array([100, 200, 300, 400])
    of = lambda weights: [  # noqa: E731
        federated.round_sizes(scenario({"sizes": 40, "weights": weights}), examples).of(0, c) for c in range(4)
    ]
    assert of("uniform") == [10] * 4
    assert of("data") == [4, 8, 12, 16]
    assert of([1, 1, 1, 5]) == [5, 5, 5, 25]


def test_gates_are_built_from_the_scenario():
    assert federated.gate_of(scenario()) == RoundsGate(1)
    assert federated.gate_of(scenario({"gate": {"kind": "rounds", "ahead": 3}})) == RoundsGate(3)
    gate = federated.gate_of(scenario({"gate": {"kind": "delay", "scale": 2, "power": 0.5, "offset": 30}}))
    assert isinstance(gate, DelayGate)
    assert gate.delay(16.0) == 38.0
    own = scenario({"sizes": {"kind": "lemma1"}, "gate": "own_delay"})
    assert federated.gate_of(own).delay(0.0) == federated.sequence_of(own).delay(0.0) == 2.0


def test_step_sizes_default_to_the_papers():
    assert federated.steps_of(scenario())(3, 400, 1.0) == pytest.approx(0.1 / (1 + 0.01 * 20))
    convex = scenario(model={"kind": "softmax", "l2": 0.01})
    assert federated.steps_of(convex)(3, 400, 1.0) == pytest.approx(0.1 / 1.4)
    assert federated.power_of(scenario()) == 0.5
    assert federated.power_of(convex) == 1.0
    five = scenario({"sizes": {"kind": "theorem5", "smoothness": 1, "strong_convexity": 1, "shift": 5800}})
    assert federated.steps_of(five)(0, 0, 0.0) == pytest.approx(0.01378727, rel=1e-6)
    assert federated.steps_of(five)(10, 0, 0.0) == pytest.approx(0.01199552, rel=1e-6)


def test_theorem_5_needs_strong_convexity():
    config = {"sizes": {"kind": "theorem5", "smoothness": 1, "shift": 20}}
    with pytest.raises(ScenarioError, match=r"algorithm\.sizes\.strong_convexity: expected a number > 0"):
        federated.sequence_of(scenario(config))
    assert federated.sequence_of(scenario(config, model={"kind": "softmax", "l2": 0.1})).size(0) >= 1
    config["sizes"]["shift"] = 3
    with pytest.raises(ConditionError, match=r"condition m \+ 1 >= 2 e \(d \+ 1\)"):
        federated.sequence_of(scenario(config, model={"kind": "softmax", "l2": 0.1}))


GROWING = {"sizes": {"kind": "polynomial", "a": 1.5, "b": 8}, "sizes_of": "each", "rounds": 12}
PRIVATE = {"mechanism": "gaussian", "noise_multiplier": 2.0, "delta": 1e-4, "accountant": "renyi"}


def test_growing_rounds_are_composed_with_their_sizes(tmp_path):
    run = simfl.run(scenario(GROWING, privacy=PRIVATE), out=tmp_path)
    assert run.manifest.reason == "nothing left to happen: all 12 rounds are complete"
    table = run.releases[run.releases["client"] == 2]
    sizes = [int(np.ceil(1.5 * (i + 1) + 8)) for i in range(12)]
    assert sorted(np.repeat(table["batch_size"], table["count"])) == sizes
    n = int(run.clients["samples"][2])
    composed = [(Release(2.0, size / n, "poisson"), 1) for size in sizes]
    expected = epsilon_of(composed, 1e-4, accountant="renyi")
    assert run.clients["epsilon"][2] == pytest.approx(expected, rel=1e-6)
    setup = simfl.prepare(scenario(GROWING, privacy=PRIVATE))
    planned = setup.kind.planned(setup)
    assert [planned.total(k) for k in range(4)] == [12] * 4
    assert setup.ledger.epsilon(planned)[2] == pytest.approx(expected, rel=1e-6)
    meaning = "each of a client's n examples in a batch with probability 10/n to 26/n, n held fixed, "
    assert meaning in run.manifest.extra["privacy"] == setup.ledger.statement_of(planned)
    assert "with probability its size/n" in setup.ledger.statement, "how many rounds there will be is not known"


@pytest.mark.slow
def test_stages_of_other_noise_and_sizes_are_composed_in_one_account(tmp_path):
    """As the privacy loss distributions of the two stages, composed by dp-accounting alone."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    stages = {"sizes": 12, "sizes_of": "each", "rounds": 10}
    stages["stages"] = [{"begin": 4, "noise_factor": 0.5, "size": 30}, {"begin": 8, "noise_factor": 0.25}]
    config = scenario(stages, privacy={**PRIVATE, "accountant": "tightest"})
    run, setup = simfl.run(config, out=tmp_path), simfl.prepare(config)
    table = run.releases[run.releases["client"] == 2]
    kinds = list(table[["batch_size", "level", "count"]].itertuples(index=False, name=None))
    assert sorted(kinds) == [(12, 0.5, 2), (12, 2.0, 4), (30, 1.0, 4)]
    assert set(run.updates["noise_std"] / setup.training.noise_std[0]) == {1.0, 0.5, 0.25}
    n, whole = int(run.clients["samples"][2]), None
    for size, multiplier, count in kinds:
        one = pld.from_gaussian_mechanism(multiplier, sampling_prob=size / n, value_discretization_interval=1e-4)
        stage = one.self_compose(count)
        whole = stage if whole is None else whole.compose(stage)
    expected = whole.get_epsilon_for_delta(1e-4)
    assert expected * (1 - 1e-3) <= run.clients["epsilon"][2] <= expected * 1.02
    planned = setup.ledger.final_epsilon(setup.kind.planned(setup))[2]
    assert planned == pytest.approx(run.clients["epsilon"][2], rel=1e-9)


def test_budget_ends_the_run_at_the_last_affordable_round(tmp_path):
    free = simfl.run(scenario(GROWING, privacy=PRIVATE), out=tmp_path)
    whole = float(free.clients["epsilon"].max())
    budget = scenario(GROWING, privacy={**PRIVATE, "epsilon": 0.7 * whole})
    run = simfl.run(budget, out=tmp_path)
    made = run.releases.groupby("client")["count"].sum()
    assert 4 < made.min() <= made.max() < 12
    assert run.clients["epsilon"].max() <= 0.7 * whole
    setup = simfl.prepare(budget)
    one_more = federated.releases_after(
        setup.ledger, federated.round_sizes(budget, setup.training.sizes), [int(made[k]) + 1 for k in range(4)]
    )
    assert (setup.ledger.epsilon(one_more) > 0.7 * whole).all()


@pytest.mark.parametrize("sampling", ["poisson", "shuffle"])
def test_budget_lasts_as_long_as_the_final_account_allows(sampling):
    privacy = {**PRIVATE, "accountant": "tightest", "epsilon": 2.0, "neighbors": "replace_one"}
    setup = simfl.prepare(scenario({"sizes": 12, "sizes_of": "each", "sampling": sampling}, privacy=privacy))
    ledger, sizes = setup.ledger, federated.round_sizes(setup.scenario, setup.sizes)
    allowed = setup.training.allowances
    for more in (0, 1):
        epsilons = ledger.final_epsilon(federated.releases_after(ledger, sizes, [count + more for count in allowed]))
        assert (epsilons <= 2.0).all() if more == 0 else (epsilons > 0.98 * 2.0).all()


def test_local_steps_are_never_certified(tmp_path):
    run = simfl.run(scenario({**GROWING, "local_steps": True, "batch_size": 2}, privacy=PRIVATE), out=tmp_path)
    assert run.clients["epsilon"].isna().all()
    assert "local_steps has no proof" in run.manifest.extra["privacy"]


def test_claims_are_about_the_planned_rounds():
    config = {"sizes": 12, "sizes_of": "each", "rounds": 30}
    privacy = {**PRIVATE, "claim": {"kind": "stated", "epsilon": 9.0}}
    check = claims.check(simfl.prepare(scenario(config, privacy=privacy)))
    assert {finding.releases for finding in check.findings} == {(30, 30)}, "from 30 to 30"
    expected = epsilon_of([(Release(2.0, 12 / 359, "poisson"), 30)], 1e-4, accountant="renyi")
    assert max(finding.account for finding in check.findings) == pytest.approx(expected, rel=1e-3)


def test_evaluations_follow_passes_over_the_data(tmp_path):
    config = {"sizes": {"kind": "polynomial", "a": 12}, "batch_size": 8}
    run = simfl.run(scenario(config, evaluate={"every": {"epochs": 0.5}}, stop={"epochs": 2}), out=tmp_path)
    epochs = run.metrics["epochs"].to_numpy()
    assert len(epochs) == 5
    assert (np.abs(epochs - np.arange(5) / 2) < 0.2).all()
    sizes = federated.sequence_of(scenario(config))
    assert run.manifest.updates == 4 * sizes.rounds_for(2 * run.clients["samples"].sum())


@pytest.mark.parametrize(("algorithm", "sections", "message"), [
    ({"rounds": 3, "gradients": 5}, {}, r"algorithm\.gradients: expected rounds or gradients, found both"),
    ({"step_per": "gradient"}, {}, r"algorithm\.step_per: expected round without local_steps"),
    ({"local_steps": True, "mask": 2}, {}, r"algorithm\.mask: expected 1 with local_steps, found 2"),
    ({"sampling": "shuffle", "mask": 2}, {}, r"algorithm\.mask: expected 1 with sampling 'shuffle', found 2"),
    ({"local_steps": True, "sampling": "poisson"}, {}, r"algorithm\.sampling: expected batches of one size"),
    ({"stages": [{"begin": 5, "noise_factor": 1}, {"begin": 5, "noise_factor": 2}]}, {}, r"in increasing order"),
    ({"stages": [{"begin": 5, "noise_factor": 1}], "local_steps": True}, {},
     r"algorithm\.stages: expected none with"),
    ({"gate": "own_delay"}, {}, r"algorithm\.gate: expected own_delay with sizes lemma1 or theorem5"),
    ({"weights": "some"}, {}, r"algorithm\.weights: expected uniform, data or a list of numbers > 0"),
    ({"weights": [1, 2]}, {}, r"algorithm\.weights: expected 4 values, one for each client, found 2"),
    ({"aggregators": [9]}, {}, r"algorithm\.aggregators: expected at most clients\.count aggregators on a level"),
    ({}, {"privacy": {"mechanism": "gaussian_update"}}, r"privacy\.mechanism: expected a mechanism for sums"),
    ({}, {"privacy": {"epsilon": 1.0}}, r"privacy\.noise_multiplier: expected a noise multiplier with algorithm"),
    ({"mask": 3}, {"privacy": {"noise_multiplier": 1.0}, "model": {"kind": "softmax", "l2": 0.1}},
     r"algorithm\.mask: expected 1 with privacy and l2, found 3"),
])  # fmt: skip
def test_contradictions_are_one_line(algorithm, sections, message):
    with pytest.raises(ScenarioError, match=message) as caught:
        scenario(algorithm, **sections)
    assert "\n" not in str(caught.value)


def test_diminishing_1_needs_a_schedule_that_counts_gradients():
    config = {"local_steps": True, "step_per": "gradient", "step_size": 0.1}
    with pytest.raises(ScenarioError, match=r"algorithm\.step_per: expected a step_size of kind inverse"):
        simfl.prepare(scenario(config))
    config["step_size"] = {"kind": "inverse", "initial": 0.2, "beta": 0.01, "count": "examples"}
    assert simfl.prepare(scenario(config)).options["decay"] == (0.2, 0.01)


LARGE = {"sizes": {"kind": "polynomial", "a": 100}, "sampling": "without_replacement"}


def test_rounds_larger_than_the_data_are_rejected_before_the_run():
    """Of 1437 digits each of 4 clients has 359; round i has 100 (i + 1) gradients, 25 (i + 1) at each client."""
    long = {"stop": {"updates": 1000}}
    with pytest.raises(ConditionError, match=r"s_i <= N: in round 14 client \d is to draw 375 of its 3(59|60)"):
        simfl.prepare(scenario({**LARGE, "rounds": 20}, **long))
    assert simfl.prepare(scenario({**LARGE, "rounds": 14}, **long)).warnings == []
    # A fast client is ahead by one round: 14 rounds are complete, and a client is in the next.
    assert simfl.prepare(scenario(LARGE, stop={"updates": 13 * 4})).warnings == []
    with pytest.raises(ConditionError, match="in round 14"):
        simfl.prepare(scenario(LARGE, stop={"updates": 14 * 4}))
    # A time says nothing about rounds.
    (warning,) = simfl.prepare(scenario(LARGE, stop={"time": 1.0})).warnings
    assert warning.startswith("condition s_i <= N: in round 14 client")
    assert warning.endswith("; a run that is not over by then fails there")
    assert simfl.prepare(scenario({**LARGE, "sampling": "shuffle", "rounds": 20}, **long)).warnings == []


def test_gate_that_blocks_all_clients_is_rejected_before_the_run():
    gate = {"kind": "delay", "offset": 60, "scale": 1e-6, "power": 0.5}
    with pytest.raises(ConditionError, match=r"^gate: tau allows client 0 \d+ gradients of round 2"):
        simfl.prepare(scenario({"sizes": {"kind": "polynomial", "a": 25}, "gate": gate, "rounds": 5}))


def test_number_of_checked_rounds_is_bounded_for_a_run_that_ends_at_a_time(monkeypatch):
    checked = []
    monkeypatch.setattr(federated, "check_gate", lambda *arguments: checked.append(arguments))
    gate = {"kind": "delay", "offset": 200}
    simfl.prepare(scenario({"sizes": {"kind": "polynomial", "a": 25}, "gate": gate}, stop={"time": 1e6}))
    assert len(checked) <= 4 + federated.MOST_POSSIBLE, "the first round of 4 clients, and those after it"
