"""Servers that are broken in known ways, as doubles for audits of users; also for docs/check_user_audit.py."""

import contextlib
import copy
import dataclasses
import math
from unittest import mock

import numpy as np

from simfl.algorithms import sum_noise
from simfl.algorithms.admission import Participation
from simfl.algorithms.cohorts import Cohorts
from simfl.algorithms.sum_noise import CorrelatedNoise
from simfl.attacks.users import UserAudit
from simfl.privacy.cohorts import CohortPlan, CohortTally
from simfl.privacy.distributed import GridSum, Part
from simfl.privacy.releases import Tally
from simfl.scenario import loads
from simfl.tape import Tape
from simfl.tape.problem import Clipping

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
SECURE = DRAWN.replace("}", ", secure_sum: {kind: bonawitz, threshold: 14, bits: 16, dropout: 0.03}}")
BUFFER = FEDBUFF.replace(
    "}", ", after_update: wait, secure_sum: {kind: lightsecagg, threshold: 14, colluding: 2, dropout: 0.15}}"
)
APART = ", participation: {min_separation: 5}"

#: Name -> algorithm, further options of privacy, and spread of speeds of servers without a fault.
CORRECT = {
    "fedbuff": (FEDBUFF, "", 0.0), "fedbuff, apart": (FEDBUFF, APART, 0.7),
    "fedbuff, fast users": (FEDBUFF.replace("20", "140"), "", 1.2),
    "fedasync": (FEDASYNC, "", 0.3),
    "fedavg, drawn": (DRAWN, ", cohorts: poisson, releases: 40", 0.7),
    "fedavg, late": (LATE, "", 0.7),
    "fedavg, others replaced": (DRAWN, ", neighbors: replace_one", 0.0),
    "fedbuff, adaptive": (FEDBUFF, "", 0.0),
    "fedavg, drawn, adaptive": (DRAWN, ", cohorts: poisson, releases: 40", 0.7),
    "fedavg, others replaced, adaptive": (DRAWN, ", neighbors: replace_one", 0.0),
    "tree":
        (FEDBUFF, ", participation: {min_separation: 5, at_most: 2}, releases: 20, noise: {correlated: tree}", 0.7),
    "nodes of trees, restarted":
        (DRAWN, f"{APART}, releases: 40, noise: {{correlated: tree, estimate: nodes, restart_every: 15}}", 0.3),
    "square root": (FEDBUFF, f"{APART}, releases: 40, noise: {{correlated: square_root, bands: 5}}", 0.7),
    "banded": (FEDBUFF, f"{APART}, releases: 40, noise: {{correlated: banded, bands: 5}}", 0.3),
    "blt, others replaced":
        (FEDASYNC, ", participation: {min_separation: 100, at_most: 2}, releases: 400, noise: {correlated: blt}, "
         "neighbors: replace_one", 0.3),
    "secure sum": (SECURE, ", where: secure_sum, colluding: 2", 0.5),
    "secure sum, neighbors": (SECURE.replace("bonawitz, threshold: 14", "secagg_plus, threshold: 14, neighbors: 12"),
     ", where: secure_sum, participation: {min_separation: 3}", 0.5),
    "secure sum of a buffer": (BUFFER, ", where: secure_sum, colluding: 2", 0.5),
    "secure sum, discrete": (SECURE, ", mechanism: discrete_gaussian, where: secure_sum, colluding: 2", 0.5),
    "secure sum, 10 bits":
        (SECURE.replace("bits: 16", "bits: 10"), ", mechanism: discrete_gaussian, where: secure_sum", 0.5),
    "secure sum, noise of the server": (SECURE, "", 0.5),
}  # fmt: skip
#: The norm of servers with an adaptive one: it begins far from the norms of updates.
ADAPTIVE = {"start": 0.05, "count_noise": 5.0}


def prepared(name, seed=0, updates=None, **options):
    """Return the audit of a correct server."""
    algorithm, more, spread = CORRECT[name]
    if updates is None:  # the server itself ends after its releases
        updates = 3000 if "poisson" in more else 500 if "discrete" in more else 1000  # discrete noise takes long
    scenario = loads(SCENARIO.format(seed=seed, algorithm=algorithm, more=more, spread=spread, updates=updates))
    if name.endswith("adaptive"):
        scenario = scenario.replace(privacy__clipping_norm=ADAPTIVE)
    return UserAudit(scenario, **options)


@contextlib.contextmanager
def halved(audit):
    """Add half of the noise that the account has."""
    noise = Tape.noise
    with mock.patch.object(Tape, "noise", lambda self, model, noise_scale: noise(self, model, 0.5 * noise_scale)):
        yield


def chosen_by(choose):
    """Let the server choose users without independent draws: (users, number of the release, size) -> users."""

    @contextlib.contextmanager
    def broken(audit):
        def instead(self, candidates, size, draw):
            return choose(sorted(candidates), self.number, size)

        with mock.patch.object(Participation, "choose", instead):
            yield

    return broken


def thrice(users, number, size):
    """Draw each user three times as often as the account says."""
    chances = np.random.default_rng(number).random(len(users))
    return [user for user, chance in zip(users, chances, strict=True) if chance < 0.3]


more = chosen_by(thrice)
in_turn = chosen_by(lambda users, number, size: users[number % 10 :: 10])
the_same = chosen_by(lambda users, number, size: users[:size])
all_or_none = chosen_by(lambda users, number, size: users if number % 10 == 3 else [])


@contextlib.contextmanager
def halved_on_the_grid(audit):
    """Let each user add half of its discrete noise."""
    with mock.patch.object(GridSum, "part", lambda self: Part(dataclasses.replace(self, deviation=self.deviation / 2))):
        yield


@contextlib.contextmanager
def without_the_noise_of_one(audit):
    """Leave out the noise of a user of each secure sum."""
    with mock.patch.object(
        CohortPlan, "scale_of", lambda self, members: self.noise_scale * math.sqrt((members - 1) / self.parts)
    ):
        yield


@contextlib.contextmanager
def uncorrelated(audit):
    """Draw the noise of each release afresh, with the deviation that correlated noise has."""

    def noises(self, strategy):
        for std in strategy.deviations(self._plan.releases):
            yield self._tape.combine((1.0, self._tape.noise(self._model, std * self._plan.noise_scale)))

    with mock.patch.object(CorrelatedNoise, "_correlated", noises):
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
        mock.patch.object(Participation, "admits", lambda self, user: not self.over),
        mock.patch.object(Participation, "holds", return_value=False),
        mock.patch.object(Participation, "opens", return_value=0),
    ):
        yield


@contextlib.contextmanager
def divided_by_those_who_came(audit):
    """Divide a sum by the number of users in it."""
    release = Cohorts.release

    def divided(self, model, parts, planned):
        return release(self, model, parts, planned)._replace(total=float(max(1, len(parts))))

    with mock.patch.object(Cohorts, "release", divided):
        yield


def unclipped_sums(audit):
    """Leave the clip to the adaptive norm out."""
    whole = sum_noise.adapted_sum

    def wrong(rows, given):
        with mock.patch("simfl.privacy.adaptive.clipping_factor", return_value=1.0):
            return whole(rows, given)

    return mock.patch.object(sum_noise, "adapted_sum", wrong)


def noise_of_the_first_norm(audit):
    """Add noise in units of the first norm, while the norm grows."""
    whole = sum_noise.adapted_sum

    def wrong(rows, given):
        total, norm = whole(rows, given)
        return total + (ADAPTIVE["start"] - rows[0, 0]) * rows[1], norm

    return mock.patch.object(sum_noise, "adapted_sum", wrong)


#: Servers that are also audited with half of their noise.
HALVED = (
    *("tree", "nodes of trees, restarted", "square root", "banded", "blt, others replaced"),
    *("secure sum", "secure sum, neighbors", "secure sum of a buffer", "secure sum, noise of the server"),
)

#: Name -> the server that is broken, and how.
BROKEN = {
    "noise halved": ("fedbuff", halved),
    "clip left out": ("fedbuff", unclipped),
    "a user twice in a sum": ("fedbuff, fast users", twice),
    "separation ignored": ("fedbuff, apart", ungated),
    "divisor by those who came, drawn": ("fedavg, drawn", divided_by_those_who_came),
    "three times as many drawn": ("fedavg, drawn", more),
    "drawn in turn": ("fedavg, drawn", in_turn),
    "the same drawn always": ("fedavg, drawn", the_same),
    "all drawn or none": ("fedavg, drawn", all_or_none),
    "divisor by those who came, late": ("fedavg, late", divided_by_those_who_came),
    "adaptive, clip left out": ("fedbuff, adaptive", unclipped_sums),
    "adaptive, noise of the first norm": ("fedbuff, adaptive", noise_of_the_first_norm),
    **{f"{name}, noise halved": (name, halved) for name in HALVED},
    "secure sum, discrete, noise halved": ("secure sum, discrete", halved_on_the_grid),
    "secure sum, 10 bits, noise halved": ("secure sum, 10 bits", halved_on_the_grid),
    "tree, noise independent": ("tree", uncorrelated),
    "square root, noise independent": ("square root", uncorrelated),
    "tree, separation ignored": ("tree", ungated),
    "tree, clip left out": ("tree", unclipped),
    "secure sum, clip left out": ("secure sum", unclipped),
    "secure sum, noise of one left out": ("secure sum", without_the_noise_of_one),
}


#: All servers; a broken one comes after the correct one that it is made of, whose compiled programs it shares.
SERVERS = [name for base in CORRECT for name in (base, *(broken for broken, (of, _) in BROKEN.items() if of == base))]


def report_of(name, seed=0, **options):
    """Audit a correct or a broken server."""
    if name in CORRECT:
        return prepared(name, seed, **options).run()
    base, broken = BROKEN[name]
    audit = prepared(base, seed, **options)
    with broken(audit):
        return audit.run()
