"""The world against queueing theory: closed networks whose throughput and staleness are known in closed form.

A client computes for an exponential time, sends, waits for the server, and receives: a closed queueing network with one
customer per client. Stations at which nobody waits (computing, latency) count by their means alone. Bounds are four
standard errors of a mean over batches of one long run.
"""

import math

import numpy as np
import pytest

from simfl.world.flows import Flows
from simfl.world.links import LinkModel, ServerModel
from tests.helpers import constant, exponential, lognormal, make_training, make_world, run_without_numbers

K, BATCH, SECONDS = 6, 8, 1e-3
MEAN_S = BATCH * SECONDS
SPEEDS = [1.0, 1.0, 2.0, 3.0, 0.5, 1.5]
UPDATES = 12_000


def estimate(values, batches=20):
    """Return the mean of a stationary sequence and its standard error, from the means of batches."""
    means = np.array([np.mean(part) for part in np.array_split(np.asarray(values, np.float64), batches)])
    return means.mean(), means.std(ddof=1) / math.sqrt(batches)


def assert_mean(values, expected):
    mean, error = estimate(values)
    assert abs(mean - expected) < 4 * error, f"expected {expected:.6g}, found {mean:.6g} +- {error:.2g}"
    assert error < 0.05 * expected, "too few to say anything"


def between(times):
    """Return the times from update to update, the first tenth (the way to equilibrium) left out."""
    return np.diff(times)[len(times) // 10 :]


def takacs(clients, mean_s, service_s):
    """Return updates per second of a server that works `service_s` on each, and clients that compute exponential times.

    Takacs 1962, "Introduction to the theory of queues", chapter 5: M/D/1 with finitely many sources. With phi(s) =
    exp(-s service) the server is busy the share N l D S / (1 + N l D S), S = sum_r binom(N - 1, r) prod_{i <= r}
    (1 - phi(i l)) / phi(i l).
    """
    rate, product, total = 1.0 / mean_s, 1.0, 1.0
    for r in range(1, clients):
        product *= math.expm1(r * rate * service_s)
        total += math.comb(clients - 1, r) * product
    load = clients * rate * service_s * total
    return load / (1.0 + load) / service_s


@pytest.mark.slow(but=["None-0.0"])
@pytest.mark.parametrize(
    ("latency", "loss"), [(None, 0.0), (exponential(5e-3), 0.0), (lognormal(1.0), 0.0), (constant(2e-3), 0.25)]
)
def test_clients_cycle_at_their_own_pace_if_none_waits(latency, loss):
    """Also its staleness: the others' updates during one round of its own, (L - l_k) / l_k with rates l and sum L."""
    if latency is not None and not loss:
        scaled = latency
        latency = lambda g, n: 1e-2 * scaled(g, n)  # noqa: E731
    links = LinkModel(latency=latency, loss=loss, resend_timeout_s=4e-3, bandwidth=1e6)
    world = make_world(K, topology="complete", speeds=SPEEDS, jitter=exponential(1.0), links=links, seed=11)
    training = make_training([64] * K, batch_size=BATCH, d=500)
    _, rows = run_without_numbers("async_sgd", world, training=training, updates=UPDATES)
    mean_latency = 0.0 if latency is None else float(np.mean(latency(np.random.default_rng(0), 10**6)))
    paced = training.model_bytes / 1e6
    travel = 2 * (mean_latency + paced + loss / (1 - loss) * (4e-3 + paced))
    rates = [1.0 / (MEAN_S * speed + travel) for speed in SPEEDS]
    clients, times, stale = (np.array([row[i] for row in rows]) for i in (1, 0, 4))
    for k, rate in enumerate(rates):
        own = clients == k
        assert_mean(between(times[own]), 1.0 / rate)
        assert_mean(stale[own][20:], (sum(rates) - rate) / rate)
    assert_mean(stale[100:], K - 1)


@pytest.mark.parametrize("load", [0.5, 2.0])
def test_a_server_that_works_on_each_update_is_a_queue_with_finitely_many_sources(load):
    service_s = load * MEAN_S / K
    world = make_world(K, topology="complete", jitter=exponential(1.0), seed=7)
    world.server = ServerModel(seconds_per_update=service_s)
    _, rows = run_without_numbers("async_sgd", world, updates=UPDATES)
    rate = takacs(K, MEAN_S, service_s)
    assert rate < min(K / MEAN_S, 1.0 / service_s), "less than either alone"
    assert_mean(between([row[0] for row in rows]), 1.0 / rate)
    assert_mean([row[4] for row in rows][100:], K - 1)


def test_a_servers_downlink_is_such_a_queue_too():
    load, training = 1.0, make_training([64] * K, batch_size=BATCH, d=500)
    service_s = load * MEAN_S / K
    world = make_world(K, topology="complete", jitter=exponential(1.0), seed=5, links=LinkModel(latency=constant(1e-9)))
    world.server = ServerModel(downlink=training.model_bytes / service_s)
    _, rows = run_without_numbers("async_sgd", world, training=training, updates=UPDATES)
    assert_mean(between([row[0] for row in rows]), 1.0 / takacs(K, MEAN_S, service_s))


@pytest.mark.slow
@pytest.mark.parametrize("jitter", [exponential(1.0), lognormal(1.0)])
def test_a_downlink_that_is_shared_fairly_is_a_station_of_processor_sharing(jitter):
    """Such a network has a product form, whatever the laws of computing and sizes: that of N machines and a repairman.

    P(n at the station) ~ N! / (N - n)! rho^n with rho = service / computing.
    """
    load, training = 1.5, make_training([64] * K, batch_size=BATCH, d=500)
    service_s = load * MEAN_S / K
    links = LinkModel(latency=constant(1e-9))
    world = make_world(K, topology="complete", jitter=jitter, seed=5, links=links, carrier=Flows)
    world.server = ServerModel(downlink=training.model_bytes / service_s)
    _, rows = run_without_numbers("async_sgd", world, training=training, updates=UPDATES)
    idle = 1.0 / sum(math.perm(K, n) * (service_s / MEAN_S) ** n for n in range(K + 1))
    assert_mean(between([row[0] for row in rows]), service_s / (1.0 - idle))


@pytest.mark.parametrize("clients", [2, 8])
def test_sync_takes_the_mean_of_the_maximum(clients):
    """The maximum of K exponential times has the mean 1 + 1/2 + ... + 1/K of theirs."""
    world = make_world(clients, jitter=exponential(1.0), seed=3)
    _, rows = run_without_numbers("sync_sgd", world, updates=1_000 * clients)
    harmonic = sum(1.0 / i for i in range(1, clients + 1))
    assert_mean(np.diff([row[0] for row in rows][::clients]), MEAN_S * harmonic)


def test_adpsgd_makes_as_many_updates_as_its_clients_have_time_for():
    """No client waits for an exchange that ends before its gradient: the rate is the sum of all, staleness K - 1."""
    world = make_world(K, topology="complete", speeds=SPEEDS, jitter=exponential(1.0), seed=2)
    _, rows = run_without_numbers("adpsgd", world, updates=UPDATES)
    clients, times, stale = (np.array([row[i] for row in rows]) for i in (1, 0, 4))
    rates = [1.0 / (MEAN_S * speed) for speed in SPEEDS]
    for k, rate in enumerate(rates):
        assert_mean(between(times[clients == k]), 1.0 / rate)
        assert_mean(stale[clients == k][20:], (sum(rates) - rate) / rate)
