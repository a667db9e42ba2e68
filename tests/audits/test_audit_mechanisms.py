"""Audits of other mechanisms and samplings than the usual ones."""

import math

import pytest

from simfl.audits.audit import Audit, audit
from simfl.scenario import loads
from tests.audits.test_audit import audited, half_the_noise, scenario

SHUFFLED = {
    "privacy": "{mechanism: gaussian, noise_multiplier: 2, clipping_norm: 1.0, neighbors: replace_one}",
    "sampling": "shuffle",
    "batch_size": 719,
    "updates": 2,
}


def test_shuffled_batches_are_no_secret():
    """One pass over all examples in two batches costs one release without sampling; an adversary can use that."""
    right = audited(scenario_options=SHUFFLED)
    assert (right.releases, right.accounted) == (2, 2)
    assert right.certified == pytest.approx(4.377, abs=1e-2)
    assert 0.2 * right.certified < right.lower_bound < right.certified
    assert not right.refuted
    broken = audited(half_the_noise, scenario_options=SHUFFLED)
    assert broken.refuted


ONE_PASS = """
name: one-pass
data: {set: logistic, samples: 3000, dimension: 40, partition: {kind: iid}}
model: {kind: logistic}
clients: {count: 2}
topology: {kind: complete}
algorithm: {kind: without_replacement_sgd, batch_size: 100}
privacy: {mechanism: one_pass_gaussian, epsilon: 4, delta: 1.0e-5}
stop: {updates: 60}
"""


def test_data_that_is_used_once():
    """The ledger of disjoint batches, steps that are projected onto a ball, noise by its calibration."""

    def report(breaking=None):
        plan = Audit(loads(ONE_PASS), canaries=1200, in_place=True)
        plan.setup = plan.setup if breaking is None else breaking(plan.setup)
        return plan.run()

    right = report()
    assert right.releases == right.accounted == 15
    assert right.certified == pytest.approx(4.0, rel=1e-6)
    assert 0.2 * right.certified < right.lower_bound < right.certified
    assert not right.refuted
    assert report(half_the_noise).refuted


def test_noise_whose_norm_alone_is_laplace_breaks_its_claim():
    """The published sampler of the MAPA paper: no epsilon is certified, and what is claimed for it is refuted."""
    privacy = "{mechanism: laplace_l2_radius_only, epsilon_per_release: 0.1}"
    report = audit(scenario(privacy=privacy, updates=2), canaries=1000, in_place=True)
    assert math.isnan(report.certified)
    assert report.claimed == pytest.approx(0.2, rel=2e-3)
    assert report.claim_refuted
    assert not report.refuted
    assert report.lower_bound > 10 * report.claimed
    assert report.statement.startswith("not certified: noise with a one-dimensional norm")


def test_noise_without_clipping_has_nothing_to_refute():
    report = audit(
        scenario(privacy="{mechanism: gaussian_unclipped, noise_std: 2.0}", updates=2), canaries=1000, in_place=True
    )
    assert math.isnan(report.certified)
    assert math.isnan(report.claimed)
    assert not report.refuted
    assert not report.claim_refuted
    assert report.correct == report.guesses
    assert report.lower_bound > 3
