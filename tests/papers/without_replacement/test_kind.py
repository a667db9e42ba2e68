"""From the scenario to the noise of Lemmas 4 and 5, and to the epsilon that is certified."""

import math
import re

import numpy as np
import pytest

from simfl.papers.without_replacement.kind import largest_norm, protect_one_pass
from simfl.privacy.gaussian import analytic_std
from simfl.scenario import loads

TEXT = """
data: {{set: digits, normalize: unit_sphere_with_constant}}
model: {{kind: {model}, intercept: false, l2: {l2}}}
clients: {{count: 10}}
algorithm: {{kind: {kind}, batch_size: 50{algorithm}}}
privacy: {{mechanism: one_pass_gaussian{privacy}}}
"""
CLASSIC = ", calibration: classic, budget: per_task"
SIZES = np.full(10, 6000)
DELTA = 1 / 60000**2


def protected(privacy=CLASSIC, *, kind="without_replacement_sgd", algorithm="", l2=0.0, model="one_vs_all", **options):
    scenario = loads(TEXT.format(privacy=privacy, kind=kind, algorithm=algorithm, l2=l2, model=model), "s")
    values = {"sizes": SIZES, "tasks": 10, "holders": 1, "norm": 1.0, **options}
    protection = protect_one_pass(scenario, values["sizes"], values["tasks"], values["holders"], values["norm"])
    return protection, list(protection.warnings)


@pytest.mark.parametrize(("options", "std"), [
    # theory.md, section 3.2: std(N_t) on the mean gradient for n = 60000, delta = 1/n², b = 50, L = 1, epsilon = 1
    ({}, 0.266697),
    ({"privacy": ", calibration: analytic, budget: per_task"}, 0.228202),
    ({"kind": "random_walk_sgd"}, 1.380921),
    ({"l2": 1e-4}, 2 * 0.266697),  # L = 1 + l2 R with R = 1/l2
    ({"l2": 1e-4, "privacy": CLASSIC + ", lipschitz: 1"}, 0.266697),
    ({"l2": 1e-4, "algorithm": ", projection: 5000"}, 1.5 * 0.266697),
    ({"kind": "deep_q_sgd"}, 0.266697),  # at a constant step size
    ({"privacy": CLASSIC + ", epsilon: 0.5"}, 2 * 0.266697),
])  # fmt: skip
def test_the_noise_on_the_mean_gradient_is_that_of_the_papers_formula(options, std):
    protection, _ = protected(**options)
    assert np.array(protection.scales) / 50 == pytest.approx(np.full(10, std), rel=3e-6)
    assert protection.scales == protection.stds
    assert protection.clip == "example"
    assert protection.ledger.delta == pytest.approx(DELTA)


def test_without_clipping_there_is_the_same_noise_and_no_account():
    protection, warnings = protected("_unclipped" + CLASSIC + ", lipschitz: 1", norm=math.sqrt(2))
    assert np.array(protection.scales) / 50 == pytest.approx(np.full(10, 0.266697), rel=3e-6)
    assert protection.clipping_norm is None
    assert not protection.ledger.certified
    assert [warning for warning in warnings if "gradients are not clipped" in warning]
    assert not [warning for warning in warnings if "privacy.lipschitz" in warning]
    clipped, _ = protected(CLASSIC + ", lipschitz: 1")
    assert clipped.clipping_norm == 1.0


def test_a_joint_budget_has_all_tasks_nodes_and_visits_within_epsilon():
    for options, uses in (({}, 10), ({"holders": 4}, 40), ({"kind": "random_walk_sgd"}, 50), ({"tasks": 1}, 1)):
        protection, warnings = protected("", **options)
        assert protection.scales[0] == pytest.approx(analytic_std(1.0, DELTA, 2 * math.sqrt(uses)))
        assert protection.ledger.epsilon_of_passes(uses) == pytest.approx(1.0, rel=1e-6)
        assert not warnings


def test_a_budget_per_task_warns_of_the_total_epsilon():
    protection, warnings = protected(holders=3)
    assert warnings == [
        "privacy.budget: per_task: epsilon 1 is that of one task and client; what an example spends in 10 tasks at 3 "
        f"clients is {protection.ledger.epsilon_of_passes(30):.4g}; budget: joint keeps it within epsilon"
    ]
    assert protection.ledger.epsilon_of_passes(1) == pytest.approx(0.84992, abs=1e-5), "the classical noise gives more"


def test_classic_noise_beyond_its_reach_is_reported():
    _, warnings = protected(CLASSIC + ", epsilon: 12", tasks=1)
    assert warnings == [
        "privacy.calibration: classic noise is too little for an epsilon above 9.752 at this delta; use analytic"
    ]
    protection, _ = protected(CLASSIC + ", epsilon: 12", tasks=1)
    assert protection.ledger.epsilon_of_passes(1) > 12


def test_gradients_that_are_really_clipped_are_reported():
    _, warnings = protected("", norm=2.0)
    assert warnings == [
        "privacy.lipschitz: gradients may have norms up to 2 and are clipped to 1; normalize: "
        "unit_sphere_with_constant has norms of 1, with the intercept"
    ]


@pytest.mark.parametrize(("options", "reason"), [
    ({"algorithm": ""}, "the network decides by private losses and models"),
    ({"algorithm": ", explore_to: 1, step_clip: null, step_size: 0.6"},
     r"Lemma 5 needs step sizes of at most .* 0\.5"),
    ({"algorithm": ", explore_to: 1", "l2": 1e-4, "norm": 1.2}, r"and they begin at 0\.5"),
    ({"algorithm": ", explore_to: 1", "model": "softmax", "tasks": 1}, "Lemma 5 needs a convex loss"),
])  # fmt: skip
def test_settings_outside_the_proof_are_not_certified(options, reason):
    protection, warnings = protected(kind="deep_q_sgd", **options)
    assert not protection.ledger.certified
    assert warnings[0].startswith("privacy: epsilon is not certified: ")
    assert re.search(reason, warnings[0])


@pytest.mark.parametrize("l2", [0.0, 1e-4])
def test_a_coin_with_small_steps_is_covered(l2):
    protection, _ = protected(kind="deep_q_sgd", algorithm=", explore_to: 1", l2=l2)
    assert protection.ledger.certified


def test_delta_may_be_given():
    protection, _ = protected(CLASSIC + ", delta: 1.0e-5")
    assert protection.ledger.delta == 1e-5


def test_the_largest_norm_is_over_whole_examples():
    assert largest_norm(np.array([[3.0, 4.0], [1.0, 0.0]], np.float32)) == 5.0
    assert largest_norm(np.ones((2, 2, 2), np.float32)) == 2.0
