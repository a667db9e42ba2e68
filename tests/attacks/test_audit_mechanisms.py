"""Audits of other mechanisms and samplings than the defaults."""

import math

import pytest

from simfl.attacks.audit import audit
from tests.attacks.test_audit import scenario


@pytest.mark.slow
def test_noise_whose_norm_alone_is_laplace_breaks_its_claim():
    """The published sampler of the MAPA paper: no epsilon is certified, and its claim is refuted."""
    privacy = "{mechanism: laplace_l2_radius_only, epsilon_per_release: 0.1}"
    report = audit(scenario(privacy=privacy, updates=2), canaries=1000, in_place=True)
    assert math.isnan(report.certified)
    assert report.claimed == pytest.approx(0.2, rel=2e-3)
    assert report.claim_refuted
    assert not report.refuted
    assert report.lower_bound > 10 * report.claimed
    assert report.statement.startswith("not certified: noise with a one-dimensional norm")


def test_unclipped_noise_has_no_epsilon_to_refute():
    report = audit(
        scenario(privacy="{mechanism: gaussian_unclipped, noise_std: 2.0}", updates=2), canaries=1000, in_place=True
    )
    assert math.isnan(report.certified)
    assert math.isnan(report.claimed)
    assert not report.refuted
    assert not report.claim_refuted
    assert report.correct == report.guesses
    assert report.lower_bound > 3
