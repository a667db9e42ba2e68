"""Options of algorithms that contradict each other, the paper or another section: one line says what to change."""

import pytest

from simfl.errors import ScenarioError
from simfl.scenario import loads

REFUSED = [
    ("{algorithm: {kind: a2cid2}, topology: {kind: one_peer, redraw_every: 1 s}}",
     "topology.kind: expected a graph that stays with 'a2cid2', found 'one_peer'; its constants are those of one "
     "graph: use adpsgd"),
    ("{algorithm: {kind: area, server_optimizer: adam}}",
     "algorithm.server_optimizer: expected sgd with 'area', found 'adam'; its server averages models and takes no "
     "step; use fedbuff"),
    ("{algorithm: {kind: area, server_step: 0.5}}", "algorithm.server_step: expected a key of kind area"),
    ("{clients: 4, algorithm: {kind: area, buffer_size: 5, after_update: wait}}",
     "algorithm.buffer_size: expected at most 4 where clients wait"),
    ("{algorithm: {kind: async_local_sgd, momentum_every: 4, momentum_share: 0.3}}",
     "algorithm.momentum_share: expected at most 1 / momentum_every, which is 0.25, found 0.3; lower it"),
    ("{algorithm: {kind: ca2fl, staleness_exponent: 0.5}}",
     "algorithm.staleness_exponent: expected 0 with 'ca2fl', found 0.5; remove it, or use fedbuff"),
    ("{algorithm: {kind: ca2fl, noise: server}}", "algorithm.noise: expected client, found 'server'"),
    ("{algorithm: {kind: fadas, server_optimizer: adam}}",
     "algorithm.server_optimizer: expected sgd with 'fadas', found 'adam'; its server steps by AMSGrad"),
    ("{algorithm: {kind: fedavg}, privacy: {unit: user, where: client}}",
     "privacy.where: expected server or secure_sum, found 'client'"),
    ("{algorithm: {kind: fedavg}, privacy: {unit: user, noise_multiplier: [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, "
     "1.0, 1.0]}}",
     "privacy.noise_multiplier: expected a number"),
    ("{clients: {count: 10}, algorithm: {kind: fedavg, fraction: 0.4}, privacy: {unit: user, participation: "
     "{min_separation: 3}}}",
     "participation.min_separation: expected at most 2 with sums of 4 of 10 users"),
    ("{algorithm: {kind: fedavg}, privacy: {unit: user, view: global_hidden}}",
     "privacy.view: expected central, found"),
    ("{algorithm: {kind: fedavg, weighting: data}, privacy: {unit: user}}",
     "algorithm.weighting: expected 'uniform' with unit: user"),
    ("{algorithm: {kind: scaffold}, privacy: {unit: user}}", "privacy: expected another mechanism with 'scaffold'"),
    ("{algorithm: {kind: ditto}, privacy: {unit: user}}", "privacy: expected "),
    ("{algorithm: {kind: fedavg}, privacy: {unit: user}, compression: {kind: top_k}}",
     "compression: expected null with noise of the server"),
    ("{algorithm: {kind: fedavg}, privacy: {unit: user}, aggregation: {kind: median}}",
     "aggregation: expected null with noise of the server"),
    ("{algorithm: {kind: fedavg}, privacy: {unit: user}, attackers: {kind: sign_flip, clients: [1]}}",
     "attackers: expected null with noise of the server"),
    ("{algorithm: {kind: fedbuff, buffer_size: 3}, privacy: {unit: user, participation: {}, noise: {correlated: "
     "tree}}}",
     "privacy.releases: expected the number of releases beside noise tree, found null"),
    ("{algorithm: {kind: fedbuff}, privacy: {unit: user, releases: 20, noise: {correlated: tree}}}",
     "privacy.participation: expected a rule beside noise tree, found null"),
    ("{algorithm: {kind: fedbuff, buffer_size: 3}, privacy: {unit: user, noise_multiplier: 0.0, releases: 20, "
     "participation: {}, noise: {correlated: tree}}}",
     "privacy.noise_multiplier: expected more than 0 beside noise"),
    ("{algorithm: {kind: fedbuff, buffer_size: 3}, privacy: {unit: user, releases: 20, participation: "
     "{min_separation: 2}, noise: {correlated: square_root, bands: 3}}}",
     "participation.min_separation: expected at least noise.bands, 3, found 2"),
    ("{algorithm: {kind: fedbuff}, privacy: {unit: user, noise: {correlated: pairwise}}}", "privacy.noise"),
    ("{algorithm: {kind: fedbuff, buffer_size: 3}, privacy: {unit: user, releases: 20, participation: {}, noise: "
     "{correlated: tree}, where: secure_sum}}",
     "privacy.noise: expected null with privacy.where: secure_sum, found 'tree'"),
    ("{clients: {count: 8}, algorithm: {kind: decoupled_diloco, quorum: 9}}",
     "algorithm.quorum: expected at most clients.count, which is 8, found 9; lower it or add"),
    ("{algorithm: {kind: decoupled_diloco, staleness_bound: {bound: 3}}}",
     "staleness_bound: expected null with 'decoupled_diloco', found a staleness bound"),
    ("{algorithm: {kind: decoupled_diloco, concurrency: 3}}",
     "concurrency: expected null with 'decoupled_diloco', found 3"),
    ("{algorithm: {kind: divshare, peers: 4}, clients: {count: 4}}",
     "algorithm.peers: expected fewer than the 4 clients, found 4; lower it, or add clients"),
    ("{algorithm: {kind: epidemic, peers: 8}, clients: {count: 8}}",
     "algorithm.peers: expected fewer than the 8 clients, found 8"),
    ("{algorithm: {kind: epidemic, peers: 3, graph: oracle}, clients: {count: 9}}",
     "algorithm.peers: expected an even number with graph: oracle, because the number of clients, 9, is odd"),
    ("{algorithm: {kind: favas, period: 0}}", "algorithm.period: expected a time > 0"),
    ("{algorithm: {kind: favas, fraction: 0}}", "algorithm.fraction: expected"),
    ("{algorithm: {kind: favas, concurrency: 2}}",
     "algorithm.concurrency: expected null with 'favas', found 2; use fraction"),
    ("{clients: 4, algorithm: {kind: fedat, tiers: 5}}",
     "algorithm.tiers: expected at most clients.count, which is 4, found 5; lower it or add clients"),
    ("{clients: 4, algorithm: {kind: fedat, tier_of: [0, 1]}}",
     "algorithm.tier_of: expected 4 tiers, one for each of clients.count, found 2; add or remove some"),
    ("{clients: 4, algorithm: {kind: fedat, tier_of: [0, 0, 2, 2]}}",
     "algorithm.tier_of: expected each tier from 0 to 2, the largest, found none in tier 1; leave out no number"),
    ("{algorithm: {kind: fedat, concurrency: 2}}",
     "algorithm.concurrency: expected null with 'fedat', found 2; use fraction"),
    ("{algorithm: {kind: fedat, staleness_bound: {bound: 2}}}",
     "algorithm.staleness_bound: expected null with 'fedat', found a staleness bound; remove it: no update waits or "
     "is dropped"),
    ("{algorithm: {kind: fedbuff}, privacy: {}}", "expected 'gaussian_update' with 'fedbuff', found 'gaussian'"),
    ("{algorithm: {kind: fedbuff, local_steps: 2, local_epochs: 1.0}}",
     "expected local_steps or local_epochs, found both"),
    ("{clients: {count: 8}, algorithm: {kind: fedbuff, concurrency: 9}}",
     "expected at most clients.count, which is 8, found 9"),
    ("{algorithm: {kind: fedbuff, buffer_size: 6, after_update: wait, concurrency: 5}}",
     "expected at most 5 where clients wait, as many as train at a time, found 6"),
    ("{clients: {count: 8}, algorithm: {kind: fedbuff, noise: server}, privacy: {mechanism: gaussian_update, "
     "noise_multiplier: [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]}}",
     "expected one number, found a list"),
    ("{algorithm: {kind: fedbuff, sampling: poisson}}", "algorithm.sampling: expected"),
    ("{algorithm: {kind: fedbuff, noise: server}, privacy: {mechanism: gaussian_update, view: global_hidden}}",
     "privacy.view: expected local_transcript with noise of the server, found 'global_hidden'"),
    ("{algorithm: {kind: matcha}, topology: {kind: one_peer, redraw_every: 1 s}}",
     "topology.kind: expected a graph that stays with 'matcha', found 'one_peer'; its matchings are those of one "
     "graph: use decentralized_sgd"),
    ("{algorithm: {kind: streaming_diloco, fragments: 2, delay: 2}}",
     "algorithm.delay: expected below fragments, which is 2, found 2; lower it, or use more fragments"),
    ("{clients: 2, algorithm: {kind: m_sync_sgd, wait_for: 3}}",
     "algorithm.wait_for: expected at most clients.count, which is 2, found 3; lower it or add clients"),
    ("{algorithm: {kind: mindflayer, trial_factor: 0.5}}",
     "algorithm.trial_factor: expected at least 1, the smallest factor of clients.jitter, found 0.5; raise it: else no "
     "client completes a computation"),
    ("{algorithm: {kind: ringleader, staleness_bound: {bound: 3, policy: drop}}}",
     "remove it: gradients in its table are at most 2 clients.count"),
    ("{algorithm: {kind: ringmaster, staleness_bound: {bound: 3, policy: drop}}}",
     "algorithm.staleness_bound: expected null with 'ringmaster', found a staleness bound; remove it: the algorithm "
     "discards late gradients itself"),
    ("{algorithm: {kind: swift}, topology: {kind: one_peer, redraw_every: 1 s}}",
     "topology.kind: expected a graph that stays with 'swift', found 'one_peer'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line"), REFUSED, ids=[text[1:60] for text, _ in REFUSED])
def test_contradictions_are_refused_in_one_line(text, line):
    with pytest.raises(ScenarioError) as refused:
        loads(text)
    assert any(line in said for said in str(refused.value).splitlines())
