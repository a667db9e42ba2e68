"""Audits with other canaries and relations than the defaults, and of claims."""

import math

import pytest

from simfl.attacks.audit import audit
from tests.attacks.test_audit import audited, half_the_noise, no_noise, scenario

REPLACE = "{{mechanism: gaussian, noise_multiplier: {}, clipping_norm: 1.0, neighbors: replace_one}}"


@pytest.mark.slow
def test_input_canaries_go_through_the_model():
    right = audited(canaries=300, kind="input")
    assert not right.refuted
    assert 0.3 < right.lower_bound < right.certified
    assert audited(no_noise, canaries=300, kind="input").refuted


@pytest.mark.slow
def test_replaced_examples_are_distinguished_twice_as_well():
    """Opposite canaries, noise of z = 2 over the sensitivity 2C: the same as z = 1 when one is added."""
    options = {"privacy": REPLACE.format(4.0), "sampling": "without_replacement"}
    right = audited(scenario_options=options)
    assert right.neighbors == "replace_one"
    assert right.certified == pytest.approx(4.377, abs=1e-2)
    assert not right.refuted
    assert 0.2 * right.certified < right.lower_bound < right.certified
    assert audited(half_the_noise, scenario_options=options).refuted


def test_a_claim_is_refuted_while_the_account_holds():
    """A claim without composition: the epsilon of one release for four."""
    privacy = "{mechanism: gaussian, noise_multiplier: 2, claim: {kind: stated, epsilon: 0.5, source: a leaflet}}"
    report = audit(scenario(privacy=privacy), canaries=1438, in_place=True)
    assert (report.claimed, report.claimed_delta, report.source) == (0.5, 1e-5, "a leaflet")
    assert report.claim_refuted
    assert not report.refuted
    assert report.lower_bound > 0.5
    # Opposite canaries are two steps of adding or removing apart: they cannot test such a claim.
    claim = "{kind: stated, epsilon: 0.5, neighbors: add_or_remove}"
    privacy = f"{{mechanism: gaussian, noise_multiplier: 4, neighbors: replace_one, claim: {claim}}}"
    report = audit(scenario(privacy=privacy), canaries=1438, in_place=True)
    assert math.isnan(report.claimed)
    assert not report.claim_refuted
