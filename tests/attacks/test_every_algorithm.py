"""Audits of every algorithm: all releases are heard, correct runs pass, broken ones do not."""

import dataclasses
import functools
import math
import tempfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from simfl.algorithms import ALGORITHMS
from simfl.attacks.adversary import ListeningTape
from simfl.attacks.audit import Audit
from simfl.attacks.canary import CanaryModel
from simfl.attacks.faults import SHARED
from simfl.errors import ScenarioError
from simfl.privacy.accounting import Release, epsilon_of
from simfl.privacy.noise import SAMPLERS, gaussian
from simfl.privacy.releases import Tally
from simfl.records import RunFolder
from simfl.runs.runner import Simulation
from simfl.scenario import loads
from simfl.tape.problem import Noise
from tests.attacks.test_audit import half_the_noise, no_clipping, no_noise, with_parts
from tests.helpers import LOCAL

TINY = """
name: tiny
seed: {seed}
data: {{set: logistic, samples: 800, dimension: 10, partition: {{kind: iid}}}}
model: {{kind: logistic}}
clients: {{count: {count}}}
topology: {{kind: complete}}
algorithm: {{kind: {kind}, batch_size: 40{options}}}
privacy: {{{privacy}, delta: 1.0e-3}}
stop: {{updates: {updates}}}
evaluate: {{every: {{updates: {updates}}}}}
execution: {{width: 1}}
{rest}
"""
GAUSSIAN = "mechanism: gaussian, clipping_norm: 0.5, noise_multiplier: 1.5"
REPLACED = "mechanism: gaussian, clipping_norm: 0.5, noise_multiplier: 2, neighbors: replace_one"
ONE_PASS = "mechanism: one_pass_gaussian, epsilon: 4"
MAPA = "mechanism: laplace_l2, clipping_norm: 0.5, epsilon_per_release: 0.5, neighbors: replace_one"
#: What scenarios say of an algorithm that differs from the others.
SAID = {
    "centralized_sgd": {"count": 1, "updates": 8},
    "audp": {"options": ", smoothness: 10, sampling_std: 3"},
    "mapa": {"options": ", smoothness: 10, sampling_std: 3, initial_gap: 1", "privacy": MAPA},
    "async_fl": {"options": ", step_size: 0.001, sizes: 100, sizes_of: each"},
    "without_replacement_sgd": {"options": "", "privacy": ONE_PASS},
    "random_walk_sgd": {"options": ", visits: 2", "privacy": ONE_PASS},
}
LOSSES = ", step_size: 0.1, staleness_bound: {bound: 0, policy: drop}"
CRASHES = "links: {latency: 1 ms, loss: 0.1}\navailability: [{all: true, crash: [{at: 50 ms, back: 60 ms}]}]"
UPDATE = "mechanism: gaussian_update, clipping_norm: 0.5, noise_multiplier: 1.5"
NOISY_SERVER = ", step_size: 0.1, noise: server"
#: An audit cannot take apart what the clients of privsgp_vr keep, and says so: tests/attacks/test_adversary.py.
AUDITED = [kind for kind in ALGORITHMS if kind not in (*LOCAL, "deep_q_sgd", "privsgp_vr")]
#: One after the other, so that audits of one algorithm share compiled programs.
every = pytest.mark.parametrize("kind", AUDITED, scope="module")


def plan(kind, seed=0, *, count=2, options=", step_size: 0.1", privacy=GAUSSIAN, updates=16, rest=""):
    """An audit of a tiny scenario: 300 canaries among the 400 examples of a client, 8 releases as a rule."""
    text = TINY.format(seed=seed, kind=kind, count=count, options=options, privacy=privacy, updates=updates, rest=rest)
    return Audit(loads(text), canaries=300, in_place=True)


def audited(kind, breaking=None, seed=0, **said):
    audit = plan(kind, seed, **{**SAID.get(kind, {}), **said})
    if breaking is not None:
        audit.setup = breaking(audit.setup)
    return audit.run()


def noise_used_twice(setup):
    return with_parts(setup, problem=dataclasses.replace(setup.problem, noise=Noise("stuck")))


@pytest.fixture
def _stuck(monkeypatch):
    """A sampler that ignores client and draw."""
    monkeypatch.setitem(SAMPLERS, "stuck", lambda keys, client, draw, size: gaussian(keys, 0 * client, 0 * draw, size))


@pytest.mark.slow(but=["adpsgd"])
@every
def test_a_correct_run_passes_and_all_releases_are_heard(kind):
    report = audited(kind, seed=AUDITED.index(kind) % 2)
    assert report.passed
    assert report.complete
    assert report.releases == report.accounted > 2
    assert report.certified > 0.1
    assert report.noise_releases > report.releases or kind == "centralized_sgd", "another client is heard, too"
    unseen = {name for name, seen in report.sees.items() if not seen}
    assert unseen <= {SHARED, "clipping off"}
    assert SHARED not in unseen or kind == "centralized_sgd"


@pytest.mark.slow(but=["mapa-change1"])
@pytest.mark.parametrize("breaking", [half_the_noise, no_noise])
@every
def test_missing_noise_is_detected(kind, breaking):
    report = audited(kind, breaking)
    assert not report.passed
    assert report.noise_missing
    assert not report.noise_dependent
    if breaking is no_noise:
        assert report.refuted


class Unclipped(CanaryModel):
    """Forgets to clip."""

    def clip_and_sum(self, params, x, y, weight, clipping_norm):
        return self.gradient_sum(params, x, y, weight), jnp.int32(0)


def forgetful(setup):
    """Like `no_clipping`, for gradients that each have their own norm."""
    values = {field.name: getattr(setup.model, field.name) for field in dataclasses.fields(CanaryModel)}
    return with_parts(setup, problem=dataclasses.replace(setup.problem, model=Unclipped(**values)))


@pytest.mark.slow(but=["centralized_sgd"])
@every
def test_missing_clipping_is_detected(kind):
    report = audited(kind, forgetful if kind == "mapa" else no_clipping)
    assert report.refuted
    assert not report.passed
    assert not report.noise_missing
    assert not report.noise_dependent


@pytest.mark.usefixtures("_stuck")
@pytest.mark.parametrize("kind", ["async_sgd", "async_fl"])
def test_noise_used_twice_is_detected(kind):
    report = audited(kind, noise_used_twice)
    assert report.noise_dependent
    assert report.dependence_p_value < 1e-12
    assert not report.noise_missing
    assert not report.passed


def heard(audit):
    """(releases f32 [k, d], promises [k]) of the audited client."""
    reports = []
    tape = functools.partial(ListeningTape, clients={0: math.inf}, hear=lambda *words: reports.append(words))
    simulation = Simulation(audit.setup, audit.device, tape=tape)
    try:
        with tempfile.TemporaryDirectory() as folder:
            simulation.run(RunFolder.create(Path(folder), "heard"))
        simulation.tape.deliver()
    finally:
        simulation.release()
    return np.concatenate([words[1] for words in reports]), [promise for words in reports for promise in words[2]]


def test_canaries_are_scored_in_the_batches_that_hold_them():
    """Rounds of three pieces on shuffled data: a round begins where the last one ended."""
    audit = plan(
        "async_fl", options=", step_size: 0.001, sizes: 100, sizes_of: each, sampling: shuffle", privacy=REPLACED
    )
    audit.setup = no_noise(audit.setup)
    releases, promises = heard(audit)
    assert len(promises) == 8
    own = audit.setup.model.inner.size
    places = audit.setup.model.coordinates
    copies = [audit.circumstances(promise).copies for promise in promises]
    assert np.sum(copies) == pytest.approx(300 / 400 * 800, abs=60)
    signs = np.where(audit.included, 0.5, -0.5)
    for release, here in zip(releases, copies, strict=True):
        np.testing.assert_allclose(release[places][places >= own], (signs * here)[places >= own], atol=1e-5)
    assert audit.run().refuted


@pytest.mark.slow
def test_shuffled_batches_are_known_to_the_auditor():
    """One pass over all examples costs one release without sampling, and the auditor knows the batches."""
    said = {"options": ", step_size: 0.1, sampling: shuffle", "privacy": REPLACED, "updates": 20}
    right = audited("async_sgd", **said)
    assert (right.releases, right.accounted) == (10, 10)
    assert right.certified == pytest.approx(epsilon_of([(Release(2.0), 1)], 1e-3, neighbors="replace_one"), rel=1e-6)
    assert 0.2 * right.certified < right.lower_bound < right.certified
    assert right.passed
    assert audited("async_sgd", half_the_noise, **said).lower_bound > 1.2 * right.lower_bound
    assert audited("async_sgd", no_noise, **said).refuted


@pytest.mark.slow
def test_one_pass_over_the_data_is_audited():
    """The ledger of disjoint batches, steps that are projected onto a ball, noise by its calibration."""
    right = audited("without_replacement_sgd")
    assert right.certified == pytest.approx(4.0, rel=1e-6)
    assert 0.2 * right.certified < right.lower_bound < right.certified
    assert right.passed
    assert audited("without_replacement_sgd", half_the_noise).lower_bound > 1.2 * right.lower_bound


@pytest.mark.slow
@pytest.mark.parametrize(("sampling", "privacy"), [("poisson", GAUSSIAN), ("shuffle", REPLACED)])
def test_lost_and_dropped_messages_were_released(sampling, privacy):
    """A crash destroys unsent work; lost messages and updates that a server drops were released."""
    options = f"{LOSSES}, sampling: {sampling}"
    report = audited("async_sgd", options=options, privacy=privacy, rest=CRASHES, updates=40)
    assert report.releases == report.accounted != 20, "the other client made another number"
    assert report.passed


def test_the_audit_is_compared_with_the_account(monkeypatch):
    monkeypatch.setattr(ListeningTape, "_listen", lambda tape, terms: None)
    deaf = audited("async_sgd")
    assert (deaf.releases, deaf.accounted, deaf.complete, deaf.passed, deaf.decisive) == (0, 8, False, False, False)
    assert not any(deaf.sees.values())


def test_an_account_of_fewer_releases_than_heard_does_not_pass(monkeypatch):
    count = Tally.count

    def half(tally, promise):
        promise.released = True
        if promise.draw % 2:
            count(tally, promise)

    monkeypatch.setattr(Tally, "count", half)
    report = audited("async_sgd")
    assert (report.releases, report.accounted, report.complete, report.passed) == (8, 4, False, False)


@pytest.mark.parametrize(("kind", "said", "message"), [
    ("fedavg", {"privacy": UPDATE}, "privacy.mechanism: expected a mechanism that protects examples"),
    ("fedbuff", {"privacy": UPDATE, "options": NOISY_SERVER}, "algorithm.noise: expected noise that clients add"),
    ("async_fl", {"options": ", step_size: 0.001, mask: 2"}, "algorithm.mask: expected 1, found 2"),
    ("async_fl", {"options": ", step_size: 0.001, local_steps: true", "privacy": REPLACED},
     "algorithm.kind: expected an algorithm whose clients send gradients"),
])  # fmt: skip
def test_unsupported_algorithms_are_refused_in_one_line(kind, said, message):
    """tests/attacks/test_adversary.py tests the refusal of gradients that clients keep."""
    with pytest.raises(ScenarioError, match=message) as refused:
        plan(kind, **said)
    assert "\n" not in str(refused.value)
