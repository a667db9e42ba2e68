"""Audits of one observer of a network: bounds below the accounts, and broken noise refuted."""

import re

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from simfl.accounts.views import View
from simfl.attacks.audit import Audit
from simfl.attacks.scorers import ViewScorer, scores_of
from simfl.errors import ScenarioError
from simfl.scenario import loads
from tests.attacks.test_audit import no_noise

TEXT = """
name: ring
seed: 1
data: {set: digits}
model: {kind: softmax}
clients: {count: 4}
topology: {kind: ring}
algorithm: {kind: decentralized_sgd, batch_size: 300, step_size: 0.1, sampling: poisson}
privacy: {clipping_norm: 0.5, noise_multiplier: 3}
stop: {updates: 16}
evaluate: {every: {updates: 16}}
"""


def plan(observer, text=TEXT, **options):
    return Audit(loads(text), observer=observer, **{"client": 0, "canaries": 300, "in_place": True, **options})


def listened(audit):
    """Return the scorer of an audit that has listened to its run."""
    scorer = ViewScorer(audit, audit.network, audit.observer)
    audit.listen(scorer)
    return scorer


def audited(observer, breaking=None, text=TEXT):
    audit = plan(observer, text)
    if breaking is not None:
        audit.setup = breaking(audit.setup)
    return audit.run()


@pytest.mark.parametrize("replaces", [True, False])
def test_scores_are_log_likelihood_ratios_of_the_view(replaces):
    """Three messages of five gradients, two of them the client's; four canaries in two, one or none of these."""
    generator = np.random.default_rng(1)
    a, std = generator.normal(size=(3, 5)), generator.uniform(0.5, 2, 5)
    releases, own = generator.normal(size=(5, 4)), np.array([1, 3])
    signals = np.array([[1.0, 1.0, 0.0, 2.0], [1.0, 0.0, 0.0, 1.0]])
    weights = View(a, a * std).m()[own]
    squared = (signals * (weights[:, own] @ signals)).sum(axis=0)
    scores = scores_of(signals, weights @ releases, squared, replaces)
    for canary, score in enumerate(scores):
        added = np.zeros(5)
        added[own] = signals[:, canary]
        law = multivariate_normal(np.zeros(3), (a * std) @ (a * std).T)
        seen = a @ releases[:, canary]
        ratio = law.logpdf(seen - a @ added) - law.logpdf(seen + (a @ added if replaces else 0.0))
        assert score == pytest.approx(ratio / (1 + replaces), abs=1e-9)


VIEWS = """
name: views
seed: {seed}
data: {{set: logistic, samples: 40000, dimension: 5}}
model: {{kind: logistic}}
clients: {{count: 4, speed: {{kind: list, values: [1, 1.5, 1, 2]}}}}
topology: {{kind: ring}}
links: {{latency: 0.3 s}}
algorithm: {{kind: {kind}, batch_size: 10000, step_size: 0.1, sampling: shuffle}}
privacy: {{clipping_norm: 0.5, noise_multiplier: 4, neighbors: replace_one}}
stop: {{updates: 12}}
evaluate: {{every: {{updates: 12}}}}
execution: {{width: 1}}
"""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "observer"), [("decentralized_sgd", 2), ("adpsgd", 1)])
def test_ten_thousand_views_have_the_separation_of_mu(kind, observer):
    """Every canary, in every batch, is a view of its own, executed by the real kernels: noise in its own coordinate.

    Its log-likelihood ratio, twice the score, is N(mu^2 / 2, mu^2) if it is in, and N(-mu^2 / 2, mu^2) if it is out.
    """
    audit = plan(observer, VIEWS.format(seed=2, kind=kind), canaries=10_000)
    network = audit.network
    a, b = network.matrices(network.seen(audit.observer), audit.observer)
    view, own = network.view(a, b), np.flatnonzero(network.owners == 0)
    mu = network.spent(view, [0])[0][0]
    m = view.m()
    assert (m[np.ix_(own, own)] >= -1e-12).all(), "contributions in one direction are the worst"
    scorer = listened(audit)
    signals = scorer.signals
    assert (scorer.present == 1).all()
    squared = (signals * (m[np.ix_(own, own)] @ signals)).sum(axis=0)
    ratios = 2 * scores_of(signals, m[own] @ scorer.releases, squared, replaces=True)
    assert 0.2 < mu < 2.0
    alone = audit.setup.model.coordinates >= audit.setup.model.inner.size  # nothing else is there
    for included, sign in ((audit.included, 1), (~audit.included, -1)):
        some = ratios[included & alone]
        assert some.mean() == pytest.approx(sign * mu**2 / 2, abs=4 * mu / np.sqrt(len(some)))
        assert some.var() == pytest.approx(mu**2, rel=4 * np.sqrt(2 / len(some)))


@pytest.mark.slow
def test_all_releases_in_the_messages_are_heard():
    text = TEXT.replace("poisson", "shuffle").replace("clipping_norm", "neighbors: replace_one, clipping_norm")
    audit = plan(1, text)
    scorer = listened(audit)
    releases, present, heard = scorer.releases, scorer.present, scorer.heard
    owners = audit.network.owners
    assert heard[owners != 1].all()
    assert not heard[owners == 1].any()
    assert (np.abs(releases[owners != 1]).max(axis=1) > 0.5).all()
    # Batches of 300 out of 359 continue from one pass into the next: the auditor knows which canaries are in twice.
    assert set(np.unique(present)) == {0.0, 1.0, 2.0}
    np.testing.assert_allclose(scorer.signals, 0.5 * present)


@pytest.mark.slow
def test_nearer_observers_measure_more_and_at_most_the_certified():
    text = TEXT.replace("noise_multiplier: 3", "noise_multiplier: 1")
    far, near, everything = (audited(observer, text=text) for observer in (2, 1, "links"))
    assert (far.distance, near.distance, everything.distance) == (2.0, 1.0, 0.0)
    assert (far.heard, near.heard, everything.heard, near.gradients) == (2, 3, 4, 4)
    assert 0.0 < far.lower_bound < near.lower_bound < everything.lower_bound
    for report in (far, near, everything):
        assert report.complete
        assert report.passed
        assert report.lower_bound < report.published <= report.certified
    assert (near.certified_by, everything.certified_by) == ("pairwise", "local")
    assert far.certified < near.certified < everything.certified


@pytest.mark.slow
def test_missing_noise_is_refuted_at_a_distance():
    right, broken = audited(2), audited(2, no_noise)
    assert right.passed
    assert right.sees == {"noise off": True, "noise halved": False}
    assert broken.refuted
    assert broken.lower_bound > broken.certified == right.certified


@pytest.mark.slow
def test_shuffled_batches_are_known_to_the_observer():
    """The score knows their canaries; data is used once, so a canary is in one release."""
    text = TEXT.replace("poisson", "shuffle").replace("noise_multiplier: 3", "noise_multiplier: 1")
    report = audited(1, text=text.replace("clipping_norm", "neighbors: replace_one, clipping_norm"))
    assert report.complete
    assert 0.5 < report.lower_bound < report.certified


@pytest.mark.parametrize(("observer", "options", "message"), [
    (0, {}, "--observer: expected another node than client 0"),
    (1, {"kind": "input"}, "--kind: expected gradient with --observer, found input"),
    ("server", {}, "observer: expected a client, 0 to 3"),
])  # fmt: skip
def test_unsupported_observers_are_refused(observer, options, message):
    with pytest.raises(ScenarioError, match=message):
        plan(observer, **options)


@pytest.mark.slow
def test_the_command_line_shows_the_report_of_an_observer(simfl_, tmp_path):
    path = tmp_path / "ring.yaml"
    path.write_text(TEXT)
    words = ("privacy", "audit", path, "--observer", 2, "--canaries", 300, "--in-place")
    out = simfl_.printed(*words)
    assert out.startswith("ring: audit of what 2 learns of client 0 at delta = ")
    assert re.search(r"gradients of the client +2 +of 4 are in them", out)
    assert re.search(r"certified +1\.\d+ +one example more or less; pairwise", out)
    assert "This audit detects noise off (in all of 3 audits with each fault). It may miss noise halved." in " ".join(
        out.split()
    )
    assert simfl_.result(*words, "--confidence", 0.9)["confidence"] == 0.9
