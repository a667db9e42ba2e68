"""The forecast of a run."""

import re

import numpy as np
import pytest

from simfl.assembly.forecast import forecast
from simfl.runs.runner import prepare
from simfl.scenario import loads

TEXT = """
data: digits
clients: {{count: 4, seconds_per_example: 1 ms}}
algorithm: {{kind: {kind}, batch_size: 8}}
stop: {stop}
links: {links}
privacy: {privacy}
"""
BUDGET = "{epsilon: 2"
PRIVATE = "{mechanism: gaussian, clipping_norm: 1, noise_multiplier: 2}"


def forecast_for(kind="sync_sgd", stop="{epochs: 2}", links="{latency: 1 ms}", privacy="null"):
    return forecast(prepare(loads(TEXT.format(kind=kind, stop=stop, links=links, privacy=privacy), "weighed")))


@pytest.mark.parametrize(
    ("links", "seconds"),
    [
        ("{latency: 0 s, bandwidth: null}", 0.0),
        ("{latency: 2 ms, bandwidth: 26 kB/s}", 0.102),
        ("{latency: 0 s, bandwidth: 26 kB/s, uplink: 52 kB/s, downlink: 13 kB/s}", 0.2),
        ("{latency: {kind: uniform, low: 1 ms, high: 5 ms}, bandwidth: null}", 0.003),
        ("{latency: {kind: lognormal, mean: 7 ms, sigma: 2}, bandwidth: null}", 0.007),
    ],
)
def test_message_time_is_that_of_the_slowest_part_of_an_idle_link(links, seconds):
    weighed = forecast_for(links=links)
    assert (weighed.parameters, weighed.model_bytes, weighed.batch_s) == (650, 2600, 0.008)
    assert weighed.message_s == pytest.approx(seconds)
    assert (weighed.epsilon, weighed.delta, weighed.privacy, weighed.spectral_gap) == (None, None, None, None)


def test_forecast_has_the_fastest_and_the_slowest_link():
    def travels(kind, rules):
        weighed = forecast_for(kind, links=f"{{latency: 2 ms, bandwidth: null, rules: [{rules}]}}")
        return weighed.message_s, weighed.longest_message_s

    assert travels("adpsgd", "{clients: [0], latency: 30 ms}") == pytest.approx((0.002, 0.03))
    assert travels("async_sgd", "{clients: [0], latency: 30 ms}, {clients: [server], latency: 70 ms}") == (0.07, 0.07)


def test_a_message_of_two_vectors_takes_twice_as_long():
    links = "{latency: 0 s, bandwidth: 26 kB/s}"
    one = forecast_for("decentralized_sgd", links=links)
    assert (one.model_bytes, one.message_s) == (2600, pytest.approx(0.1))
    for kind in ("scaffold", "k_gt", "asy_sonata", "corrected_gossip, method: tracking"):
        two = forecast_for(kind, links=links)
        assert (two.model_bytes, two.message_s) == (5200, pytest.approx(0.2)), kind
    assert forecast_for("corrected_gossip, method: extra").model_bytes == 2600


def test_a_topology_is_named_only_where_it_is_used(simfl_, tmp_path):
    path, links = tmp_path / "s.yaml", "{latency: 1 ms}"
    for kind, said in (
        ("sync_sgd", "4 clients;"),
        ("fedavg", "4 clients and a server;"),
        ("adpsgd", "4 clients, ring, spec"),
    ):
        path.write_text(TEXT.format(kind=kind, stop="{epochs: 1}", links=links, privacy="null"), encoding="utf-8")
        assert f"{kind}, {said}" in simfl_("validate", path)[1]
    assert (forecast_for().topology, forecast_for("adpsgd").topology) == (None, "ring")


@pytest.mark.parametrize("kind", ["bonawitz", "lightsecagg"])
def test_validate_states_the_cost_of_a_secure_sum(kind, simfl_, tmp_path):
    """Bonawitz et al. 2017, section 7: 2 n a_K + (5 n - 4) a_S + m bytes in all, here of n = 4."""
    algorithm = f"fedavg, weighting: uniform, secure_sum: {{kind: {kind}, threshold: 3}}"
    cost = forecast_for(algorithm).secure_sum
    assert cost.updates == 4
    if kind == "bonawitz":
        assert cost.sent_bytes + cost.received_bytes == 2 * 4 * 32 + (5 * 4 - 4) * 32 + 2600
    assert min(cost.client_s, cost.server_s) > 0.0
    path = tmp_path / "s.yaml"
    given = TEXT.format(kind=algorithm, stop="{epochs: 1}", links="{latency: 1 ms}", privacy="null")
    path.write_text(given, encoding="utf-8")
    assert "a secure sum of 4 updates takes" in " ".join(simfl_("validate", path)[1].split())
    assert forecast_for().secure_sum is None


def test_the_planned_epsilon_is_that_of_the_ledger():
    weighed = forecast_for("adpsgd", privacy=PRIVATE)
    setup = prepare(loads(TEXT.format(kind="adpsgd", stop="{epochs: 2}", links="{}", privacy=PRIVATE), "weighed"))
    assert weighed.epsilon == np.max(setup.ledger.final_epsilon(setup.kind.planned(setup)))
    assert weighed.delta == setup.ledger.delta
    assert weighed.privacy.startswith("(epsilon, delta = ")
    assert weighed.spectral_gap == pytest.approx(2 / 3)


def test_unknown_properties_are_none():
    weighed = forecast_for(privacy=PRIVATE, stop="{time: 5 s}")
    assert (weighed.epsilon, weighed.delta) == (None, None)
    shuffled = PRIVATE.replace("noise_multiplier", "neighbors: add_or_remove, noise_multiplier")
    text = TEXT.format(kind="sync_sgd, sampling: shuffle", stop="{epochs: 2}", links="{}", privacy=shuffled)
    weighed = forecast(prepare(loads(text, "weighed")))
    assert weighed.epsilon is None
    assert weighed.privacy.startswith("not certified: ")


@pytest.mark.slow(but=["0.1-", "None-None"])
@pytest.mark.parametrize(
    ("privacy", "stop", "epsilon", "limit"),
    [
        ("{epsilon: 2}", "{epochs: 2}", 2.0, "the stop rule; the noise is the least that keeps the budget of 2 .*"),
        (f"{BUDGET}, noise_multiplier: 1}}", "{epochs: 8}", 2.0, r"the budget of 2, after \d+ .* 360 releases of .*"),
        (f"{BUDGET}, noise_multiplier: 9}}", "{epochs: 2}", 0.1, "the stop rule, after 90 releases of a client; .*"),
        (f"{BUDGET}, noise_multiplier: 1}}", "{time: 5 s}", None, "the budget of 2, unless the run's time is .*"),
        ("{noise_multiplier: 1}", "{epochs: 2}", None, None),
    ],
)
def test_forecast_names_the_limit_of_releases(privacy, stop, epsilon, limit):
    weighed = forecast_for(privacy=privacy, stop=stop)
    if epsilon is not None:
        assert weighed.epsilon == pytest.approx(epsilon, rel=0.02 if epsilon == 2.0 else 1.0)
        assert weighed.epsilon <= 2.0
    assert (weighed.limit is None) if limit is None else re.fullmatch(limit, weighed.limit)
    least, most = weighed.noise["noise_multiplier"]
    assert least <= most


def test_validate_states_the_noise_and_one_epsilon(simfl_, tmp_path):
    privacy = f"{BUDGET}, noise_multiplier: 9}}"
    (tmp_path / "s.yaml").write_text(TEXT.format(kind="sync_sgd", stop="{epochs: 2}", links="{}", privacy=privacy))
    out = simfl_.printed("validate", "s.yaml")
    assert re.search(
        r"; noise multiplier 9; planned epsilon 0\.\d+ at delta 1e-05, .*; the binding limit is the stop ", out
    )
