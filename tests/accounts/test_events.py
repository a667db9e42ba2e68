"""A run's releases as events of dp-accounting compose to the run's own epsilon."""

import dp_accounting
import pytest
from dp_accounting import pld, rdp

import simfl
from simfl.errors import DataError
from simfl.scenario import loads

pytestmark = pytest.mark.usefixtures("without_numbers")

ADD = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = dp_accounting.NeighboringRelation.REPLACE_ONE
ADPSGD = "{kind: adpsgd, exchange: atomic, batch_size: 4}"
SHUFFLED = ADPSGD.replace("batch", "sampling: shuffle, batch")
WINDOW = "noise: {correlated: in_time, window: 4}"
SERVER = "unit: user, where: server"
TREE = f"{SERVER}, noise: {{correlated: tree}}, participation: {{min_separation: 1, early: wait}}"
ROUNDS = "{kind: fedavg, fraction: 0.5, weighting: uniform, local_steps: 2, batch_size: 4}"


def ran(tmp_path, privacy, algorithm=ADPSGD):
    scenario = f"data: digits\nclients: {{count: 4}}\ntopology: complete\nalgorithm: {algorithm}\n"
    return simfl.run(loads(f"{scenario}privacy: {privacy}\nstop: {{updates: 40}}"), out=tmp_path)


def composed(accountant, event, run):
    return accountant.compose(event).get_epsilon(run.clients["delta"][0])


CASES = {
    "poisson": ("{noise_multiplier: 1}", ADPSGD, ADD),
    "without amplification": ("{noise_multiplier: 1, amplification: false}", ADPSGD, ADD),
    "replaced": ("{noise_multiplier: 2, neighbors: replace_one}", ADPSGD, REPLACE),
    "shuffled": ("{noise_multiplier: 2, neighbors: replace_one}", SHUFFLED, REPLACE),
    "in time": (f"{{{WINDOW}, noise_multiplier: 2, neighbors: replace_one}}", SHUFFLED, REPLACE),
    "updates": ("{mechanism: gaussian_update, noise_multiplier: 2}", "{kind: fedbuff, buffer_size: 2}", ADD),
    "users": (f"{{{SERVER}, noise_multiplier: 2}}", ROUNDS, ADD),
    "drawn users": (f"{{{SERVER}, noise_multiplier: 2, cohorts: poisson, releases: 10}}", ROUNDS, ADD),
    "tree": (f"{{{TREE}, noise_multiplier: 2, releases: 20}}", "{kind: fedbuff, buffer_size: 2}", ADD),
    "adaptive norm": (f"{{{SERVER}, noise_multiplier: 2, clipping_norm: {{start: 1, count_noise: 2}}}}", ROUNDS, ADD),
    "pure": ("{mechanism: laplace_l2, epsilon_per_release: 2, neighbors: replace_one}", ADPSGD, REPLACE),
    "one pass": ("{mechanism: one_pass_gaussian, epsilon: 1}", "without_replacement_sgd", REPLACE),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_events_compose_to_the_epsilon_of_a_client(tmp_path, case):
    privacy, algorithm, relation = CASES[case]
    run = ran(tmp_path, privacy, algorithm)
    accountant = pld.PLDAccountant(relation, 1e-5 if case == "pure" else 1e-4)
    assert composed(accountant, run.dp_event(1), run) == pytest.approx(run.clients["epsilon"][1], rel=1e-3)


def test_batches_of_a_fixed_size_cost_no_more_than_dp_accounting_says(tmp_path):
    algorithm = ADPSGD.replace("batch", "sampling: without_replacement, batch")
    run = ran(tmp_path, "{noise_multiplier: 3, neighbors: replace_one}", algorithm)
    event = simfl.dp_event(run, 1)
    assert run.clients["epsilon"][1] < composed(rdp.RdpAccountant(neighboring_relation=REPLACE), event, run)


def test_no_accountant_takes_a_replaced_example_for_a_removed_one(tmp_path):
    run = ran(tmp_path, "{noise_multiplier: 2, neighbors: replace_one, amplification: false}")
    with pytest.raises(dp_accounting.UnsupportedEventError):
        composed(rdp.RdpAccountant(neighboring_relation=REPLACE), simfl.dp_event(run, 0), run)


@pytest.mark.parametrize(
    ("privacy", "client", "message"),
    [
        ("{noise_multiplier: 1}", 4, "client: expected 0 to 3, found 4"),
        ("{mechanism: gaussian_unclipped, noise_std: 1}", 0, "client 0 has no epsilon: not certified: "),
        ("null", 0, "expected a run with a privacy section"),
    ],
)
def test_a_run_without_an_account_has_no_event(tmp_path, privacy, client, message):
    with pytest.raises(DataError, match=message):
        simfl.dp_event(ran(tmp_path, privacy), client)
