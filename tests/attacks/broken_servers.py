"""Servers that are broken in known ways, as doubles for audits of users; also for docs/check_user_audit.py."""

import contextlib
import copy
import dataclasses
from collections import Counter
from unittest import mock

from simfl.algorithms.cohorts import Cohorts
from simfl.algorithms.fedavg import FedAvg
from simfl.attacks.users import UserAudit
from simfl.privacy.cohorts import CohortTally
from simfl.privacy.noise import SAMPLERS, gaussian
from simfl.privacy.releases import Tally
from simfl.scenario import loads
from simfl.tape.problem import Clipping, Noise

#: Four sums of each user, or about as many, with z = 4: epsilon is about 1.3 at delta = 1e-3.
SCENARIO = """
name: audited
seed: {seed}
data: {{set: digits, partition: {{kind: iid}}}}
model: {{kind: softmax}}
clients: {{count: 200, seconds_per_example: 1 ms, speed: {{kind: lognormal, sigma: {spread}}}}}
algorithm: {algorithm}
privacy: {{unit: user, clipping_norm: 0.5, noise_multiplier: 4, delta: 1e-3{more}}}
stop: {{updates: {updates}}}
evaluate: {{every: {{updates: {updates}}}}}
"""
LOCAL = "local_steps: 2, batch_size: 3, step_size: 0.2"
FEDBUFF = f"{{kind: fedbuff, buffer_size: 20, staleness_exponent: 0, {LOCAL}}}"
FEDASYNC = f"{{kind: fedasync, {LOCAL}}}"
DRAWN = f"{{kind: fedavg, fraction: 0.1, weighting: uniform, {LOCAL}}}"
LATE = f"{{kind: fedavg, fraction: 0.1, weighting: uniform, deadline: 12 ms, {LOCAL}}}"
APART = ", participation: {min_separation: 5}"

#: Name -> algorithm, further options of privacy, and spread of speeds of servers without a fault.
CORRECT = {
    "fedbuff": (FEDBUFF, "", 0.0),
    "fedbuff, apart": (FEDBUFF, APART, 0.7),
    "fedbuff, fast users": (FEDBUFF.replace("20", "140"), "", 1.2),
    "fedasync": (FEDASYNC, "", 0.3),
    "fedavg, drawn": (DRAWN, ", cohorts: poisson, releases: 40", 0.7),
    "fedavg, late": (LATE, "", 0.7),
    "fedavg, others replaced": (DRAWN, ", neighbors: replace_one", 0.0),
}


def prepared(name, seed=0, updates=1000, **options):
    """Return the audit of a correct server."""
    algorithm, more, spread = CORRECT[name]
    return UserAudit(
        loads(SCENARIO.format(seed=seed, algorithm=algorithm, more=more, spread=spread, updates=updates)), **options
    )


def _half(*words):
    return 0.5 * gaussian(*words)


@contextlib.contextmanager
def halved(audit):
    """Add half of the noise that the account has."""
    SAMPLERS["half"] = _half
    audit.setup = copy.copy(audit.setup)
    audit.setup.problem = dataclasses.replace(audit.setup.problem, noise=Noise("half"))
    yield


@contextlib.contextmanager
def unclipped(audit):
    """Leave the clip out."""
    audit.setup = copy.copy(audit.setup)
    audit.setup.problem = dataclasses.replace(audit.setup.problem, clipping=Clipping(1e30, "update"))
    yield


@contextlib.contextmanager
def twice(audit):
    """Let users into a sum several times, and count once."""

    def count_sum(self, terms, noise_scale):
        once = {promise.client: (weight, promise) for weight, promise in terms}
        self.cohorts += 1
        Tally.count_sum(self, list(once.values()), noise_scale)
        for _, promise in terms:
            promise.released = True

    with mock.patch.object(CohortTally, "count_sum", count_sum):
        yield


@contextlib.contextmanager
def ungated(audit):
    """Ignore the rule of participation."""
    with (
        mock.patch.object(Cohorts, "admits", lambda self, user: not self.over),
        mock.patch.object(Cohorts, "holds", return_value=False),
        mock.patch.object(Cohorts, "opens", return_value=0),
    ):
        yield


@contextlib.contextmanager
def divided_by_those_who_came(audit):
    """Divide a sum by the number of users in it."""
    noised, came = Cohorts.noised, Counter()

    def counted(self, model, terms):
        came["now"] = max(1, len(terms))
        return noised(self, model, terms)

    divisor = property(lambda self: float(came["now"]))
    with mock.patch.object(Cohorts, "noised", counted), mock.patch.object(FedAvg, "divisor", divisor):
        yield


#: Name -> the server that is broken, and how.
BROKEN = {
    "noise halved": ("fedbuff", halved),
    "clip left out": ("fedbuff", unclipped),
    "a user twice in a sum": ("fedbuff, fast users", twice),
    "separation ignored": ("fedbuff, apart", ungated),
    "divisor by those who came, drawn": ("fedavg, drawn", divided_by_those_who_came),
    "divisor by those who came, late": ("fedavg, late", divided_by_those_who_came),
}


def report_of(name, seed=0, **options):
    """Audit a correct or a broken server."""
    if name in CORRECT:
        return prepared(name, seed, **options).run()
    base, broken = BROKEN[name]
    audit = prepared(base, seed, **options)
    with broken(audit):
        return audit.run()
