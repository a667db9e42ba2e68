"""The ledger against a count of which example was in which noisy release: algorithms x samplings x neighbors x faults.

Worlds and tapes without arithmetic. The tape of these runs takes down every promise as it is made and every one that is
used or sent; what follows from that is worked out here once more, from positions in the data, with no help of the
ledger's. Whatever the combination, nothing that is certified is below what the worst example has lost.
"""

import dataclasses
import functools
import itertools
import math
from collections import Counter

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from scipy.special import log_ndtr, ndtr

from simfl.algorithms import ALGORITHMS
from simfl.algorithms.batches import Batches
from simfl.algorithms.staleness import StalenessBound
from simfl.errors import SimflError
from simfl.papers.async_fl.kind import releases_after
from simfl.papers.async_fl.round_sizes import RoundSizes
from simfl.papers.async_fl.sizes import PolynomialSizes
from simfl.papers.mapa.mapa import StageRule
from simfl.papers.without_replacement.passes import OnePassClaim, OnePassLedger
from simfl.privacy.ledger import Ledger
from simfl.privacy.tables import TableLedger, epsilon_of_table
from simfl.privacy.terms import Terms
from simfl.streams import Streams
from simfl.tape import Tape
from simfl.world.availability import Outage, RandomOutages
from simfl.world.links import LinkModel
from tests.helpers import (
    LOCAL,
    NullExecutor,
    exponential,
    lognormal,
    make_training,
    make_world,
    recorded,
    run_algorithm,
)

BATCH, DELTA, UPDATES = 8, 1e-5, 60

#: Ways of algorithms whose gradients are clipped example by example.
EXAMPLE = {
    "adpsgd": ("adpsgd", {}),
    "adpsgd at once": ("adpsgd", {"exchange": "atomic"}),
    "adpsgd that drops": ("adpsgd", {"staleness": StalenessBound(1, "drop")}),
    "adpsgd that weighs": ("adpsgd", {"exchange": "atomic", "staleness": StalenessBound(1, "down_weight")}),
    "asy_sonata": ("asy_sonata", {}),
    "a2cid2": ("a2cid2", {"gradient_s": (0.005, 0.006, 0.007, 0.004)}),
    "async_fl": ("async_fl", {"sizes": (5, 0.25)}),
    "async_fl, rounds larger than the data": ("async_fl", {"sizes": (50, 9.0)}),
    "async_sgd": ("async_sgd", {}),
    "async_sgd that drops": ("async_sgd", {"staleness": StalenessBound(1, "drop")}),
    "async_sgd in turn": ("async_sgd", {"delays": "cyclic"}),
    "audp": ("audp", {}),
    "centralized_sgd": ("centralized_sgd", {}),
    "corrected_gossip": ("corrected_gossip", {}),
    "corrected_gossip by tracking": ("corrected_gossip", {"method": "tracking"}),
    "decentralized_sgd": ("decentralized_sgd", {}),
    "divshare": ("divshare", {"fragments": 2}),
    "epidemic": ("epidemic", {}),
    "epidemic by an oracle": ("epidemic", {"graph": "oracle", "peers": 1}),
    "gossip_learning": ("gossip_learning", {}),
    "gossip_learning that drops": ("gossip_learning", {"staleness": StalenessBound(1, "drop")}),
    "mapa": (
        "mapa", {"stages": (StageRule(0, 1.0, 1.0, 0.1), StageRule(15, 0.5, 0.5, 0.1), StageRule(30, 0.5, 0.4, 0.1))},
    ),
    "matcha": ("matcha", {"budget": 0.4}),
    "multi_walk": ("multi_walk", {"walks": 3}),
    "rennala": ("rennala", {"gradients_per_step": 3}),
    "rennala that stops": ("rennala", {"gradients_per_step": 1, "late": "stop"}),
    "m_sync_sgd": ("m_sync_sgd", {"wait_for": 3}),
    "mindflayer": ("mindflayer", {"trials": 2, "trial_factor": 0.9}),
    "ringleader": ("ringleader", {}),
    "ringmaster": ("ringmaster", {"threshold": 2}),
    "ringmaster that stops": ("ringmaster", {"threshold": 1, "late": "stop"}),
    "sgp": ("sgp", {}),
    "swift": ("swift", {"skip": 1, "gradient_s": (0.005, 0.006, 0.007, 0.004)}),
    "adsgd": ("adsgd", {}),
    "sync_sgd": ("sync_sgd", {}),
    "teleportation": ("teleportation", {"active": 3}),
}  # fmt: skip
#: Ways of algorithms whose clients' updates are clipped; those above may clip the mean over a batch.
CLIENT = {
    "fedavg": ("fedavg", {"steps": (1, 2, 3, 2)}),
    "fedprox": ("fedprox", {"steps": (1, 2, 3, 2)}),
    "k_gt": ("k_gt", {"steps": (1, 2, 3, 2)}),
    "plexus": ("plexus", {"steps": (1, 2, 3, 2), "sample": 3, "success": 0.7}),
    "scaffold": ("scaffold", {"steps": (1, 2, 3, 2)}),
    "feddyn": ("feddyn", {"steps": (1, 2, 3, 2)}),
    "fednova": ("fednova", {"steps": (1, 2, 3, 2)}),
    "diloco": ("diloco", {"steps": (1, 2, 3, 2)}),
    "ditto": ("ditto", {"steps": (1, 2, 3, 2)}),  # scenarios refuse it, because its personal models are for no noise
    "apfl": ("apfl", {"steps": (1, 2, 3, 2)}),  # like it
    "pfedme": ("pfedme", {"steps": (1, 2, 3, 2)}),
    "async_local_sgd": ("async_local_sgd", {"grace": 0.004}),
    "streaming_diloco": ("streaming_diloco", {"fragments": 3, "steps": (1, 2, 3, 2)}),
    "decoupled_diloco": ("decoupled_diloco", {"quorum": 2, "fragments": 3, "steps": (1, 2, 3, 2)}),
    "noloco": (
        "noloco",
        {"group": 2, "outer_step": 0.7, "momentum": 0.5, "consensus": 0.7, "steps": (1, 2, 3, 2)},
    ),
    "gasloc": (
        "gasloc",
        {"group": 2, "outer_step": 1.0, "momentum": 0.5, "consensus": 1.0, "steps": (1, 2, 3, 2)},
    ),
    "halos": ("halos", {"accumulate": 3, "steps": (1, 2, 3, 2)}),
    "fedasync": ("fedasync", {}),
    "fedbuff": ("fedbuff", {"buffer_size": 3}),
    "ca2fl": ("ca2fl", {"buffer_size": 3}),
    "ace": ("ace", {"max_age": 3}),
    "fadas": ("fadas", {"buffer_size": 3}),
    "fedat": ("fedat", {"steps": (1, 2, 3, 2), "tier_of": (0, 1, 1, 0)}),
    "favas": ("favas", {"steps": (1, 2, 3, 2), "period": 0.01, "fraction": 0.5}),
    "area": ("area", {"buffer_size": 2}),
    "fedbuff, noise of the server": ("fedbuff", {"buffer_size": 3, "noise": "server"}),
    **{name: EXAMPLE[name] for name in ("adpsgd", "async_sgd", "sync_sgd", "gossip_learning", "centralized_sgd")},
}
#: Ways of algorithms that use data a given number of times.
PASSED = {
    "without_replacement_sgd": ("without_replacement_sgd", {}),
    "without_replacement_sgd, a race": ("without_replacement_sgd", {"contention": "race"}),
    "random_walk_sgd": ("random_walk_sgd", {"visits": 3}),
    "deep_q_sgd": ("deep_q_sgd", {"explore_to": 1.0}),
}
#: Ways of algorithms that keep gradients without noise for later releases, which have an account of their own.
KEPT = {"privsgp_vr": ("privsgp_vr", {})}
FAULTS = ("none", "crashes", "churn", "loss")
KINDS = {  # examples of each client, and its noise multiplier
    "one": ((20, 20, 20, 20), (4.0, 4.0, 4.0, 4.0)),
    "several": ((20, 24, 27, 17), (4.0, 2.0, 4.0, 8.0)),
}


def world_of(fault, clients, speeds=None):
    """A client crashes every few mini-batches; or joins, pauses, and leaves; or messages are lost."""
    outages, links = {}, LinkModel(latency=exponential(2e-3), bandwidth=1e5)
    random = None
    if fault == "crashes":
        begins = np.arange(0.013, 2.0, 0.021)
        outages = {k: [Outage(at + 0.001 * k, at + 0.002 + 0.001 * k, crash=True) for at in begins] for k in (0, 2)}
    elif fault == "churn":
        random = dict.fromkeys(range(clients), RandomOutages(exponential(0.1), exponential(0.03)))
        outages = {1: [Outage(0.0, 0.05)], 3: [Outage(0.1, math.inf, crash=True)]}
    elif fault == "loss":
        links = LinkModel(latency=exponential(2e-3), bandwidth=1e5, loss=0.3, resend_timeout_s=0.02)
    outages = {k: outages[k] for k in outages if k < clients}
    return make_world(
        clients, topology="complete", speeds=speeds, jitter=lognormal(0.3), links=links, outages=outages,
        random_outages=random,
    )  # fmt: skip


class Made:
    """A promise: its part of the client's data, and its noise."""

    def __init__(self, promise, parts, scale, expected, norm):
        self.promise, self.parts, self.scale, self.expected, self.norm = promise, parts, scale, expected, norm
        self.client, self.noise, self.seen = promise.client, (promise.client, promise.draw), False


class Watching(Tape):
    """Records promises, and those that others see."""

    def __init__(self, **options):
        super().__init__(Looks(), **options)
        self.made, self._of, self._held, self._alive, self.sums = [], {}, set(), [], []

    def _take(self, made, *promises):
        self.made.append(made)
        for promise in promises:
            self._of[id(promise)] = made

    def gradient(self, model, client, draw, size, noise_scale=0.0, clipping_norm=None):
        promise = super().gradient(model, client, draw, size, noise_scale, clipping_norm)
        self._take(Made(promise, [(draw, 0, promise.size)], noise_scale, size, clipping_norm), promise)
        return promise

    def gradient_in_pieces(self, model, client, draw, size, noise_scale=0.0, start=None):
        promise = super().gradient_in_pieces(model, client, draw, size, noise_scale, start)
        parts = [(piece.draw, piece.first_or_steps, piece.size) for piece in promise.pieces if piece.size]
        self._take(Made(promise, parts, noise_scale, size, None), promise, *promise.pieces)
        return promise

    def train(self, model, client, draw, steps, size, step, noise_scale=0.0, expected=0, **options):
        promise = super().train(model, client, draw, steps, size, step, noise_scale, expected, **options)
        self._take(Made(promise, [(draw, 0, steps * size)], noise_scale, expected, None), promise)
        return promise

    def release(self, promise):
        super().release(promise)
        self._of[id(promise)].seen = True

    def hold(self, promise):
        super().hold(promise)
        self._held.add(id(promise))
        self._alive.append(promise)  # so that no other promise has its id

    def with_noise(self, terms, noise_scale):
        self.sums.append((Counter(promise.client for _, promise in terms), noise_scale))
        return super().with_noise(terms, noise_scale)

    def noise(self, model, noise_scale):
        promise = super().noise(model, noise_scale)
        self._of[id(promise)] = Made(promise, [], noise_scale, 0, None)
        return promise

    def _record(self, rows, coefs, gradient, *rest):
        if id(gradient) not in self._held:
            self._of[id(gradient)].seen = True
        return super()._record(rows, coefs, gradient, *rest)


class Looks(NullExecutor):
    """Computes nothing; losses are made up."""

    def probe(self, rows, coefs, clients, draws, decide):
        return decide(np.zeros((len(rows), 4), np.float32), np.zeros(draws.shape, np.float32))


def run(way, ledger, training, fault, updates=UPDATES):
    """Return the tape of a run, and its account."""
    kind, options = way
    world = world_of(fault, len(training.sizes))
    if "sizes" in options:
        first, slope = options["sizes"]
        weights, sequence = [1.0] * len(training.sizes), PolynomialSizes(slope, 1.0, first)
        options = {"sizes": RoundSizes(sequence, weights, world.streams, each_client=True)}
    if "steps" in options:
        options = {**options, "steps": options["steps"][: len(training.sizes)]}
    kinds = recorded(kind)
    tape = Watching(window=100, max_batch=BATCH, **kinds)
    tape.releases = ledger.counted_by(ledger, training.noise_scale or training.noise_std, 1.0, tape.local)
    algorithm, _ = run_algorithm(kind, world, tape, training, updates=updates, until=3.0, **options)
    assert algorithm.releases is tape.releases
    return tape, tape.releases


def training_of(sizes, levels, sampling, *, unit="example", local=False, allowances=None, tasks=1):
    """Return the plain values of a run; a mean that is clipped is multiplied by the batch size."""
    made = make_training(sizes, sampling=sampling, batch_size=BATCH)
    scales = [level * (BATCH if unit == "client" and not local else 1) for level in levels]
    return type(made)(**{**vars(made), "noise_std": scales, "allowances": allowances, "tasks": tasks})


# -- what happened, counted once more ------------------------------------------------------------


def noisy_releases(tape, client):
    """The promises of a client that others saw, in the order in which they were made."""
    return [made for made in tape.made if made.client == client and made.seen]


def worst_of_passes(n, releases, level=None):
    """The largest sum over releases of (copies / noise)^2, for an example anywhere in every pass.

    By the release that it is in, pass by pass, and how often it has been in that by then. `level` is the noise of all,
    where what some of them add is covered by others.
    """
    epochs = {}
    for number, made in enumerate(releases):
        for draw, first, size in made.parts:
            places = np.arange(draw * BATCH + first, draw * BATCH + first + size)
            for epoch in np.unique(places // n).tolist():
                epochs.setdefault(epoch, set()).add(number)
    best = {(None, 0): 0.0}
    for epoch in sorted(epochs):
        following = {}
        for (before, copies), cost in best.items():
            for number in epochs[epoch]:
                again = copies + 1 if number == before else 1
                noise = level or releases[number].scale / (releases[number].norm or 1.0)
                gain = (again**2 - (again - 1) ** 2) / noise**2
                key = number, again
                following[key] = max(following.get(key, 0.0), cost + gain)
        best = following
    return max(best.values())


@functools.cache
def gaussian(mu):
    """The epsilon of one Gaussian release of sensitivity mu, by Balle and Wang (2018), Theorem 5."""
    if mu == 0.0:
        return 0.0
    low, high = 0.0, 50.0 + mu**2 + 10 * mu
    for _ in range(50):
        epsilon = 0.5 * (low + high)
        delta = ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))
        low, high = (low, epsilon) if delta <= DELTA else (epsilon, high)
    return high


def sampled_kinds(n, releases, sampling):
    """(sampling rate, noise multiplier) -> number of releases."""
    counts = Counter()
    for made in releases:
        examples = made.expected if sampling == "poisson" else sum(size for _, _, size in made.parts)
        counts[round(examples / n, 9), round(made.scale / (made.norm or 1.0), 9)] += 1
    return counts


def held_against(ledger, tape, account, scale=1.0):
    """Assert for every client that the account has all that others saw, and that it is not too small.

    Args:
        scale: of the noise of a noise multiplier of 1.
    """
    neighbors, unit = ledger.terms.neighbors, ledger.terms.unit
    noises = Counter(made.noise for made in tape.made if made.seen)
    assert max(noises.values(), default=1) == 1, "each noise is seen once"
    exact = unit != "example" or ledger.sampling == "shuffle"
    spent, counted = ledger.final_epsilon(account) if exact else [], ledger.compositions(account)
    for client, n in enumerate(ledger.sizes.tolist()):
        releases = noisy_releases(tape, client)
        if unit != "example":
            squares = sum((scale / made.scale) ** 2 for made in releases if made.scale)
            squares += sum((scale * share[client] / std) ** 2 for share, std in tape.sums)
        elif exact:
            squares = worst_of_passes(n, releases)
        else:
            counts = Counter()
            for release, count in counted[client]:
                counts[round(release.sampling_rate, 9), round(release.noise_multiplier, 9)] += count
            assert counts == sampled_kinds(n, releases, ledger.sampling)
            continue
        assert spent[client] >= gaussian((1 + (neighbors == "replace_one")) * math.sqrt(squares)) * (1 - 1e-6)


RELATIONS = ("add_or_remove", "replace_one")
OF_EXAMPLES = [
    *itertools.product(("poisson", "without_replacement", "shuffle", "with_replacement"), RELATIONS, FAULTS, KINDS)
]
OF_CLIENTS = [*itertools.product(("shuffle", "without_replacement"), RELATIONS, FAULTS, KINDS)]
OF_PASSES = [*itertools.product(FAULTS, KINDS)]
REFUSED = {
    ("without_replacement", "add_or_remove"): "sampling without_replacement has no epsilon under neighbors",
    ("shuffle", "add_or_remove"): "sampling shuffle has no epsilon under neighbors: add_or_remove",
    ("with_replacement", "add_or_remove"): "several times into one batch",
    ("with_replacement", "replace_one"): "several times into one batch",
}


def clients_of(name, kind):
    """Sizes and noise multipliers; an algorithm of one machine has one client."""
    sizes, levels = KINDS[kind]
    return (sizes[:1], levels[:1]) if name == "centralized_sgd" else (sizes, levels)


def test_the_product_has_enough_combinations():
    assert set(ALGORITHMS) == {kind for ways in (EXAMPLE, CLIENT, PASSED, KEPT) for kind, _ in ways.values()}
    pairs = ((EXAMPLE, OF_EXAMPLES), (CLIENT, OF_CLIENTS), (PASSED, OF_PASSES))
    assert sum(len(ways) * len(combinations) for ways, combinations in pairs) >= 600


@pytest.mark.slow(every=5)
@pytest.mark.parametrize("name", EXAMPLE)
def test_every_combination_for_examples_is_certified_or_refused(name):
    """Refusals give a reason; other cases have the right count, and an epsilon that is not too small."""
    for sampling, neighbors, fault, kind in OF_EXAMPLES:
        sizes, levels = clients_of(name, kind)
        terms = Terms("gaussian", DELTA, 1.0, neighbors, accountant="renyi")
        ledger = Ledger(terms, np.array(sizes), BATCH, sampling, levels)
        if (sampling, neighbors) in REFUSED:
            assert not ledger.certified
            assert REFUSED[sampling, neighbors] in ledger.statement
            continue
        training = training_of(sizes, levels, sampling)
        if "larger" in name and sampling != "shuffle":
            with pytest.raises(SimflError, match="condition s_i <= N: in round 0 client 0 is to draw 59 of its 20"):
                run(EXAMPLE[name], ledger, training, fault)
            continue
        tape, account = run(EXAMPLE[name], ledger, training, fault)
        assert account.refusal is None
        assert sum(account.total(client) for client in range(len(sizes))) >= 10
        held_against(ledger, tape, account)


@pytest.mark.slow(every=5)
@pytest.mark.parametrize("name", CLIENT)
def test_every_combination_for_clients_is_certified_or_refused(name):
    for sampling, neighbors, fault, kind in OF_CLIENTS:
        sizes, levels = clients_of(name, kind)
        by_server = "server" in name
        levels = (4.0,) * len(levels) if by_server else levels
        local = CLIENT[name][0] in LOCAL
        terms = Terms("gaussian_update", DELTA, 1.0, neighbors, accountant="renyi", unit="client", by_server=by_server)
        ledger = Ledger(terms, np.array(sizes), BATCH, sampling, levels)
        training = training_of(sizes, levels, sampling, unit="client", local=local)
        tape, account = run(CLIENT[name], ledger, training, fault)
        assert account.refusal is None
        held_against(ledger, tape, account, 1 if local else BATCH)


@pytest.mark.parametrize("name", PASSED)
def test_every_combination_for_one_pass_is_certified_or_refused(name):
    """Three tasks on the same data, which two clients may share."""
    for fault, kind in OF_PASSES:
        sizes, level, tasks = KINDS[kind][0], 4.0, 3
        terms = Terms("one_pass_gaussian", DELTA, 1.0, "replace_one")
        visits = PASSED[name][1].get("visits", 1)
        claim = OnePassClaim(1.0, DELTA, "analytic", "joint", visits)
        alone, shared = (
            OnePassLedger(terms, np.array(sizes), BATCH, level, tasks, holders, claim) for holders in (1, 2)
        )
        training = training_of(sizes, [level] * len(sizes), "shuffle", tasks=tasks)
        tape, account = run(PASSED[name], alone, training, fault, None)
        assert account.refusal is None
        used = [
            sum(worst_of_passes(n, noisy_releases(tape, client * tasks + task), level) for task in range(tasks))
            for client, n in enumerate(sizes)
        ]
        for ledger in (alone, shared):
            spent = ledger.final_epsilon(account)
            for client in range(len(sizes)):
                others = max(used[:client] + used[client + 1 :]) if ledger is shared else 0.0
                assert spent[client] >= gaussian(2.0 * math.sqrt(used[client] + others)) * (1 - 1e-6)
            assert max(spent) <= ledger.epsilon_of_passes(ledger.most) * (1 + 1e-9)


@pytest.mark.parametrize(("fault", "kind"), OF_PASSES)
@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept_without_noise_is_certified_by_an_account_of_it_alone(name, fault, kind):
    sizes, levels = KINDS[kind]
    for made in (TableLedger, Ledger):
        terms = Terms("gaussian", DELTA, 1.0, "replace_one")
        ledger = made(terms, np.array(sizes), BATCH, "shuffle", levels)
        tape, account = run(KEPT[name], ledger, training_of(sizes, levels, "shuffle"), fault)
        if made is Ledger:
            assert "keeps the result of a gradient until later" in account.refusal
            continue
        noises = Counter(one.noise for one in tape.made if one.seen)
        assert max(noises.values()) == 1, "each noise is seen once"
        for client, (n, level, spent) in enumerate(zip(sizes, levels, ledger.final_epsilon(account), strict=True)):
            count = len(noisy_releases(tape, client))
            assert spent == epsilon_of_table(DELTA, -(-n // BATCH), count, 2.0 / level)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["adpsgd", "async_fl, rounds larger than the data", "async_sgd"])
def test_every_combination_for_pure_mechanisms_is_certified_or_refused(name, fault):
    """An example that is m times in all releases together has an epsilon of at least m times that of one."""
    sizes, levels = KINDS["several"][0], (0.5, 0.25, 0.5, 1.0)
    ledger = Ledger(Terms("laplace", DELTA, 1.0, "replace_one"), np.array(sizes), BATCH, "shuffle", levels, True)
    tape, account = run(EXAMPLE[name], ledger, training_of(sizes, levels, "shuffle"), fault)
    for client, composition in enumerate(ledger.compositions(account)):
        passes = {
            place // sizes[client]
            for made in noisy_releases(tape, client)
            for draw, first, size in made.parts
            for place in range(draw * BATCH + first, draw * BATCH + first + size)
        }
        assert sum(release.pure_epsilon * count for release, count in composition) >= levels[client] * len(passes)


@pytest.mark.parametrize("name", EXAMPLE)
def test_lost_batches_that_are_not_reassigned_raise_epsilon(name, monkeypatch):
    """As in algorithms of a user: fewer releases over as many passes; budgets hold too."""
    monkeypatch.setattr(Batches, "lost", lambda self, promise: False)
    sizes, levels = clients_of(name, "several")
    ledger = Ledger(Terms("gaussian", DELTA, 1.0, "replace_one"), np.array(sizes), BATCH, "shuffle", levels)
    tape, account = run(EXAMPLE[name], ledger, training_of(sizes, levels, "shuffle"), "crashes")
    held_against(ledger, tape, account)
    if EXAMPLE[name][0] != "async_fl":  # its budget counts rounds, which are repeated
        budgets = [10.0, 20.0, 5.0, 2.0][: len(sizes)]
        training = training_of(sizes, levels, "shuffle", allowances=ledger.allowances(budgets))
        tape, account = run(EXAMPLE[name], ledger, training, "crashes", None)
        assert (ledger.final_epsilon(account) <= np.array(budgets)).all()
        held_against(ledger, tape, account)


@pytest.mark.parametrize("fault", ["crashes", "churn"])
def test_sampled_releases_cost_as_much_as_in_dp_accounting(fault):
    """For the client that spent most, a lower bound: the losses are rounded down."""
    sizes, levels = (20, 27), (4.0, 4.0)
    ledger = Ledger(Terms("gaussian", DELTA), np.array(sizes), BATCH, "poisson", levels)
    tape, account = run(EXAMPLE["mapa"], ledger, training_of(sizes, levels, "poisson"), fault)
    spent = ledger.final_epsilon(account)
    client = int(np.argmax(spent))
    kinds = sampled_kinds(sizes[client], noisy_releases(tape, client), "poisson")
    whole = None
    for (rate, level), count in kinds.items():
        one = from_gaussian_mechanism(
            level, sampling_prob=rate, pessimistic_estimate=False, value_discretization_interval=1e-3
        ).self_compose(count)
        whole = one if whole is None else whole.compose(one)
    assert whole.get_epsilon_for_delta(DELTA) <= spent[client] <= 1.2 * whole.get_epsilon_for_delta(DELTA)


@pytest.mark.slow(every=5)
@pytest.mark.parametrize("name", EXAMPLE)
def test_budgets_are_never_exceeded(name):
    """With any losses, no client exceeds its budget, and at least one uses it up."""
    sizes, levels = clients_of(name, "several")
    for sampling, neighbors in (("shuffle", "replace_one"), ("poisson", "add_or_remove")):
        budgets = np.array([2.0, 6.0, 1.0, 0.3])[: len(sizes)]
        budgets *= 1 if sampling == "poisson" else 30 if "larger" in name else 5
        if "larger" in name and sampling == "poisson":
            continue
        terms = Terms("gaussian", DELTA, 1.0, neighbors, accountant="renyi")
        ledger = Ledger(terms, np.array(sizes), BATCH, sampling, levels)
        allowed = ledger.allowances(budgets.tolist(), 200)
        if name.startswith("async_fl"):
            allowed = [rounds_within(ledger, EXAMPLE[name], client, budget) for client, budget in enumerate(budgets)]
        for fault in FAULTS:
            training = training_of(sizes, levels, sampling, allowances=allowed)
            tape, account = run(EXAMPLE[name], ledger, training, fault, None)
            assert (ledger.final_epsilon(account) <= budgets).all()
            assert any(account.total(client) == most > 0 for client, most in enumerate(allowed))
            held_against(ledger, tape, account)


def rounds_within(ledger, way, client, budget):
    """The number of rounds of growing sizes that cost no more, in any order."""
    first, slope = way[1]["sizes"]
    sequence, rounds, streams = PolynomialSizes(slope, 1.0, first), 0, Streams(0)
    sizes = RoundSizes(sequence, [1.0] * len(ledger.sizes), streams, each_client=True)
    while rounds < 20:
        made = [rounds + 1 if other == client else 0 for other in range(len(ledger.sizes))]
        if ledger.final_epsilon(dataclasses.replace(releases_after(ledger, sizes, made), passes=None))[client] > budget:
            break
        rounds += 1
    return rounds
