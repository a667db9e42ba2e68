"""Pairs of features that exclude each other: one row each, with a reason.

What one algorithm accepts is said by its section. Here are features of different sections, and options of algorithms,
that an algorithm may accept one by one and not together. docs/combinations.md lists these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from simfl.scenario.algorithms.base import Sections
from simfl.scenario.problems import Problem, show

#: The largest number of bits of a sum with discrete noise (`simfl.privacy.distributed`).
MOST_BITS = 24


class Given:
    """A section, or None, whose missing options are None."""

    def __init__(self, section: Any) -> None:
        self._section = section

    def __getattr__(self, name: str) -> Any:
        return getattr(self._section, name, None)

    def __bool__(self) -> bool:
        return self._section is not None


class Row(NamedTuple):
    """Two features that exclude each other.

    Attributes:
        at: the key path of the value to change.
        expected: a valid value beside the other feature; {a.kind} is the algorithm, {p.mechanism} the mechanism.
        why: the reason, and what to do.
        both: whether a scenario has both, from it, its algorithm and its privacy.
    """

    at: str
    expected: str
    why: str
    both: Callable[[Any, Any, Any], object]


def _replaces(s: Sections) -> bool:
    """Return whether a rule or an attacker acts on models."""
    return s.aggregation is not None or (s.attackers is not None and not s.attackers.on_data)


def _secret(p: Any) -> bool:
    """Return whether no sender of an update is seen."""
    return bool(p.view == "global_hidden")


_SEEN, _SUM = "local_transcript", "single updates, of which the server's noise protects only the sum"
_ESTIMATES = "neighbors average estimates that all of them keep, which a rule would end: leave one out, or use a server"
_PARTS = "the server would weigh a user's part of the noise, too: all parts must count in full"


def _selects(s: Sections) -> bool:
    """Return whether a server chooses clients by more than equal chances."""
    return s.selection is not None and s.selection.kind != "uniform"


#: Those of any scenario.
ANY = (
    Row("algorithm.optimizer.state.average", "false with aggregation or attackers",
        "a rule is about models, not about what an optimizer keeps beside them",
        lambda s, a, p: _replaces(s) and a.optimizer.state.average),
    Row("aggregation", "null beside compressed gossip", _ESTIMATES,
        lambda s, a, p: s.aggregation and s.compression and not a.has_server),
    Row("attackers", "null beside compressed gossip", _ESTIMATES,
        lambda s, a, p: not s.aggregation and _replaces(s) and s.compression and not a.has_server),
    Row("aggregation", "null with noise of the server", f"a rule sees {_SUM}; use noise: client",
        lambda s, a, p: p and s.noise_of_server and s.aggregation),
    Row("attackers", "null with noise of the server", f"an attacker reads {_SUM}",
        lambda s, a, p: p and s.noise_of_server and s.attackers and not s.attackers.on_data),
    Row("privacy.view", f"{_SEEN} with attackers",
        "hidden senders protect only among clients that follow the algorithm; use local_transcript",
        lambda s, a, p: _secret(p) and s.attackers),
    Row("privacy.view", f"{_SEEN} with noise of the server",
        "the server's noise protects its models, whatever the senders: leave the view out",
        lambda s, a, p: _secret(p) and s.noise_of_server),
    Row("privacy.view", f"{_SEEN} beside noise", "noise that is shared shows whose an update is",
        lambda s, a, p: _secret(p) and p.noise and not p.by_server),
    Row("aggregation", "null with secure_sum", "a robust rule compares single updates, which the server does not see",
        lambda s, a, p: a.secure_sum and s.aggregation),
    Row("selection", "null with algorithm '{a.kind}'",
        "no server chooses its clients: use fedavg, or an algorithm with concurrency",
        lambda s, a, p: s.selection and not a.selects),
    Row("selection", "one that reads no losses beside privacy",
        "clients report losses of their examples without noise, and who takes part shows them",
        lambda s, a, p: p and s.selection and s.selection.reads == "losses"),
    Row("personal", "null with algorithm '{a.kind}'",
        "its messages or sums are of whole models: use fedavg, fedprox, fednova, diloco, fedbuff, decentralized_sgd or "
        "adpsgd", lambda s, a, p: s.personal and not a.uses.summing.parts),
    Row("personal.steps", "null with algorithm '{a.kind}'", "it has no rounds of local steps that could alternate",
        lambda s, a, p: s.personal and s.personal.steps is not None and a.uses.step != "rounds"),
    Row("compression", "null beside personal", "its bits and what a scheme remembers are of a whole model",
        lambda s, a, p: s.personal and s.compression),
    Row("aggregation", "null beside personal without a server",
        "a rule would compare the personal parts of neighbors, too: use a server, whose updates are 0 there",
        lambda s, a, p: s.personal and s.aggregation and not a.has_server),
    Row("attackers", "null beside personal, or an attack on data",
        "an attacker would replace parts that are not sent, too",
        lambda s, a, p: s.personal and s.attackers and not s.attackers.on_data),
    Row("personal", "null with noise of the server",
        "personal parts would be trained without noise, and the run keeps them: use noise of clients",
        lambda s, a, p: p and s.personal and s.noise_of_server),
    Row("algorithm.optimizer.state.average", "false beside personal", "states are of whole models",
        lambda s, a, p: s.personal and a.optimizer.state.average),
    Row("algorithm.optimizer.state.travels", "false beside personal", "states are of whole models",
        lambda s, a, p: s.personal and a.optimizer.state.travels and not a.optimizer.state.average),
    Row("evaluate.local_parts", "all without personal", "add personal: {parts: [head]}, or leave it out",
        lambda s, a, p: s.evaluate.local_parts != "all" and not s.personal),
    Row("compression", "null with secure_sum", "compressed updates are not numbers of one group",
        lambda s, a, p: a.secure_sum and s.compression),
    Row("algorithm.after_update", "wait with secure_sum", "a client is in a secure sum once",
        lambda s, a, p: a.secure_sum and a.after_update == "continue"),
    Row("algorithm.small_clients", "refuse with claim '{p.claim.kind}'", "theorems are of batches of one size",
        lambda s, a, p: a.small_clients == "use_all" and p.claim and p.claim.of_theorem),
    Row("algorithm.staleness_bound", "no bound with delays 'cyclic'", "remove it, or use delays: world",
        lambda s, a, p: a.delays == "cyclic" and a.staleness_bound),
    Row("algorithm.optimizer.state.rounds", "new with noise: server",
        "use noise: client, whose updates are complete before they are sent",
        lambda s, a, p: a.noise == "server" and a.keeps_states),
    Row("algorithm.optimizer.state.travels", "true or null where states are averaged", "who averages them sends them",
        lambda s, a, p: a.optimizer.state.average and a.optimizer.state.travels is False),
    Row("algorithm.optimizer.state.crash", "keep with rounds: new",
        "remove it, or use rounds: keep: each round of local steps has a new state",
        lambda s, a, p: a.optimizer.state.crash == "lose" and a.uses.step == "rounds" and not a.keeps_states),
    Row("links.sharing", "fair over an underlay",
        "leave sharing out, or write fair: where flows meet on edges, no queue says who comes first",
        lambda s, a, p: s.underlay and s.links.sharing == "fifo"),
    Row("clients.users", "null without privacy.unit: user",
        "other units protect examples or clients, whoever owns them",
        lambda s, a, p: s.clients.users is not None and p and p.protects != "user"),
    Row("algorithm.gradient_noise", "0 beside privacy", "remove it: no account counts this noise",
        lambda s, a, p: p and a.gradient_noise),
    Row("privacy.mechanism", "another mechanism, because the algorithm may use an example more often than once",
        "use gaussian, or algorithm kind: without_replacement_sgd",
        lambda s, a, p: p.counts_uses and not a.uses.counts_examples),
    Row("algorithm.sampling", "shuffle, without_replacement or with_replacement with mechanism '{p.mechanism}'",
        "an update is clipped as a whole",
        lambda s, a, p: p and p.protects != "example" and a.sampling == "poisson"),
    Row("privacy.claim.kind", "stated beside noise in_time", "theorems are about noise that is drawn afresh",
        lambda s, a, p: p.correlated == "in_time" and p.claim and p.claim.kind != "stated"),
    Row("privacy.noise_multiplier", "a noise multiplier beside epsilon",
        "add it, or stop.epochs, from which the number of releases follows",
        lambda s, a, p: p.calibrated and s.stop.epochs is None and s.stop.updates is None),
)  # fmt: skip

#: Those of noise on sums of users' updates.
OF_SUMS = (
    Row("algorithm.noise", "client with unit: user", "privacy.where says who adds the noise",
        lambda s, a, p: a.noise_of_server),
    Row("algorithm.weighting", "'uniform' with unit: user",
        "users' numbers of examples are not public, and weights must be at most 1",
        lambda s, a, p: a.weighting == "data"),
    Row("privacy.noise_multiplier", "a noise multiplier beside clients.users",
        "how many updates of a user are in a sum is an outcome; or use privacy.participation",
        lambda s, a, p: s.clients.owners and p.calibrated and not p.participation and p.cohorts != "poisson"),
    Row("clients.users", "null with algorithm.secure_sum",
        "no account here says what the clients of one user may tell about their parts of a secure sum",
        lambda s, a, p: s.clients.owners and a.secure_sum),
    Row("privacy.noise", "null with privacy.where: secure_sum",
        "a server correlates noise that it knows; parts of users that leave cannot be added to later releases",
        lambda s, a, p: p.where == "secure_sum" and p.noise),
    Row("algorithm.secure_sum", "a protocol with privacy.where: secure_sum", "add one",
        lambda s, a, p: p.where == "secure_sum" and not a.secure_sum),
    Row("algorithm.secure_sum.bits", f"at most {MOST_BITS} with discrete_gaussian",
        "parts are integers that float32 holds",
        lambda s, a, p: p.discrete and a.secure_sum and a.secure_sum.bits > MOST_BITS),
    Row("privacy.noise_multiplier", "a number > 0 with discrete_gaussian", "the grid follows from the noise",
        lambda s, a, p: p.discrete and not p.noise_multiplier),
    Row("algorithm.staleness_exponent", "0 with privacy.where: secure_sum", _PARTS,
        lambda s, a, p: p.where == "secure_sum" and a.staleness_exponent),
    Row("algorithm.staleness_bound.policy", "wait or drop with privacy.where: secure_sum", _PARTS,
        lambda s, a, p: p.where == "secure_sum" and a.staleness_bound and a.staleness_bound.policy == "down_weight"),
    Row("privacy.colluding", "0 with where: {p.where}", "a server that adds the noise itself knows it",
        lambda s, a, p: p.colluding and p.where != "secure_sum"),
    Row("privacy.releases", "the number of releases beside noise {p.correlated}",
        "the noise is made for a number of releases: add it", lambda s, a, p: p.noise and p.releases is None),
    Row("privacy.participation", "a rule beside noise {p.correlated}",
        "the noise is for users that the server lets in at most once in b releases: add min_separation",
        lambda s, a, p: p.noise and p.separation is None),
    Row("privacy.noise_multiplier", "more than 0 beside noise", "correlated noise comes in units of it; raise it",
        lambda s, a, p: p.noise and p.noise_multiplier == 0.0),
    Row("privacy.clipping_norm", "a number beside noise {p.correlated}",
        "noise that is correlated over sums comes in units of one norm", lambda s, a, p: p.adaptive and p.noise),
    Row("privacy.clipping_norm", "a number with secure sums",
        "users would have to clip, and to send a count of updates that are not clipped",
        lambda s, a, p: p.adaptive and (p.where != "server" or a.secure_sum)),
    Row("privacy.cohorts", "algorithm beside selection",
        "independent draws with equal chances choose the users: use algorithm, or remove selection",
        lambda s, a, p: p.cohorts == "poisson" and _selects(s)),
    Row("selection", "one that reads no numbers of examples with unit: user",
        "users' numbers of examples are not public",
        lambda s, a, p: s.selection and s.selection.reads == "sizes"),
    Row("privacy.groups", "null with cohorts: algorithm", "users are drawn from groups: use poisson",
        lambda s, a, p: p.groups and p.cohorts != "poisson"),
    Row("privacy.groups", "null beside participation", "groups keep users apart: remove one of them",
        lambda s, a, p: p.groups and p.participation),
    Row("privacy.cohorts", "'algorithm' with '{a.kind}'",
        "users of this algorithm come when they are done; use fedavg, or cohorts: algorithm",
        lambda s, a, p: p.cohorts == "poisson" and a.fraction is None),
    Row("privacy.releases", "a number beside epsilon with cohorts: poisson",
        "the noise is made for a number of releases: add it, or noise_multiplier",
        lambda s, a, p: p.cohorts == "poisson" and p.calibrated and p.releases is None),
)  # fmt: skip

#: Those of compressed messages.
OF_MESSAGES = (
    Row("compression.downlink", "false with algorithm '{a.kind}'", "remove it: there is no server that sends models",
        lambda s, a, p: s.compression.downlink and not a.has_server),
    Row("compression", "null with noise of the server",
        "messages would be compressed before noise is added: use noise: client",
        lambda s, a, p: s.noise_of_server),
    Row("privacy.view", f"{_SEEN} with compressed messages",
        "what a message changes shows whose estimate it is: leave the view out", lambda s, a, p: _secret(p)),
    Row("algorithm.optimizer.state.average", "false with compressed messages",
        "messages have no room for states: remove average and travels",
        lambda s, a, p: a.optimizer.state.average),
    Row("algorithm.optimizer.state.travels", "false with compressed messages",
        "messages have no room for states: remove average and travels",
        lambda s, a, p: a.optimizer.state.travels and not a.optimizer.state.average),
    Row("algorithm.exchange", "messages with compressed messages", "atomic exchanges send no messages",
        lambda s, a, p: a.exchange == "atomic"),
    Row("algorithm.merge", "age or average with compressed messages",
        "a short message changes a model and cannot replace it: use age or average",
        lambda s, a, p: a.merge == "none"),
    Row("algorithm.lost", "resend with compressed messages", "what a compressor leaves out is not in the sums",
        lambda s, a, p: a.lost == "sums"),
    Row("algorithm.overlap", "0 with scheme 'choco'",
        "a change of an estimate can be used only after those before it: use scheme: deep_squeeze",
        lambda s, a, p: a.overlap and s.compression.scheme in (None, "choco")),
)  # fmt: skip


def excluded(scenario: Sections, rows: tuple[Row, ...]) -> Iterator[Problem]:
    """Yield a problem for each of the rows whose features a scenario has both."""
    algorithm, privacy = Given(scenario.algorithm), Given(scenario.privacy)
    for row in rows:
        if row.both(scenario, algorithm, privacy):
            path, value = tuple(row.at.split(".")), scenario
            for name in path:
                value = getattr(value, name)
            yield Problem(row.expected.format(a=algorithm, p=privacy), _found(value), row.why, path)


def _found(value: Any) -> str:
    return "null" if value is None else show(value)
