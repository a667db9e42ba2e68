"""Conflicts between sections, checked before anything runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator

from simfl.scenario.algorithms.base import Sections
from simfl.scenario.algorithms.local_rounds import LocalRoundsConfig
from simfl.scenario.catalogues import Algorithm, Data, Model
from simfl.scenario.compression import WITH_GAMMA
from simfl.scenario.control import OF_KNOWN_OPTIMA, OF_REGRESSIONS
from simfl.scenario.data import RealData, SyntheticData, Table, TargetKind
from simfl.scenario.distributions import ListedFactors
from simfl.scenario.fields import Config, kind_of, members_of
from simfl.scenario.models import ExternalModel, ModelConfig
from simfl.scenario.partitions import ByColumn, ByLabel, ListedSizes, Natural, Resample
from simfl.scenario.privacy import Accounted, CohortGaussian, DiscreteGaussian, Gaussian, TheoremClaim
from simfl.scenario.problems import Path, Problem, one_each, one_of, show, suggestion
from simfl.scenario.secure_sums import most_colluding, threshold_of
from simfl.scenario.units import format_time

#: The largest number of bits of a sum with discrete noise (`simfl.privacy.distributed`).
MOST_BITS = 24

#: The data sets whose optimum is known, which is that of the model of the same name.
KNOWN_OPTIMA = tuple(kind_of(member, "set") for member in members_of(Data) if issubclass(member, SyntheticData))

_NUMBERED = "clients are numbered from 0"

#: The most evaluations of a run.
MOST_EVALUATIONS = 1_000_000
#: The most evaluations between two updates, during which models do not change.
MOST_EVALUATIONS_PER_UPDATE = 1_000


def contradictions(scenario: Sections) -> Iterator[Problem]:
    """Yield contradictions between sections, each with its full key path."""
    yield from _clients(scenario)
    yield from _partition(scenario)
    yield from _model(scenario)
    yield from _topology(scenario)
    yield from _underlay(scenario)
    yield from scenario.algorithm.contradictions(scenario)
    yield from scenario.algorithm.unsupported(scenario)
    yield from _states(scenario)
    yield from _small_clients(scenario)
    yield from _attackers(scenario)
    yield from _privacy(scenario)
    yield from itertools.islice(_compression(scenario), 1)
    yield from _evaluations(scenario)
    yield from _faults(scenario)
    yield from _links(scenario)
    yield from _execution(scenario)
    if scenario.stop.accuracy is not None and _has_accuracy(scenario) is False:
        advice = "stop by time, updates or epochs"
        found = f"{scenario.stop.accuracy:g}"
        yield Problem(f"no accuracy with model '{scenario.model.kind}'", found, advice, ("stop", "accuracy"))
    yield from _known_optimum(scenario)
    if isinstance(scenario.model, ExternalModel):
        return  # its properties are known once it is made
    lacking = "classes" if not _has_accuracy(scenario) else "targets" if not scenario.model.regression else ""
    for name in (name for name in scenario.evaluate.metrics if name not in OF_KNOWN_OPTIMA):
        if (name in OF_REGRESSIONS) == (lacking == "targets"):
            expected = f"none with model '{scenario.model.kind}', which has no {lacking}"
            yield Problem(expected, repr(name), "remove it", ("evaluate", "metrics"))
            break


def _known_optimum(scenario: Sections) -> Iterator[Problem]:
    """Yield a measure of the optimum of a problem whose optimum is not known."""
    listed = [name for name in scenario.evaluate.metrics if name in OF_KNOWN_OPTIMA]
    goal = scenario.stop.suboptimality
    if (goal is None and not listed) or scenario.data.set == scenario.model.kind in KNOWN_OPTIMA:
        return
    at, value = (("stop", "suboptimality"), f"{goal:g}") if goal is not None else (("evaluate", "metrics"), listed[0])
    expected = f"data of known optimum ({', '.join(KNOWN_OPTIMA)}) with the model of that kind"
    found = f"{value} with data '{scenario.data.set}' and model '{scenario.model.kind}'"
    yield Problem(expected, found, "remove it, or choose such data and model", at)


def warnings(scenario: Sections) -> Iterator[str]:
    """Yield warnings about a scenario, one line each."""
    yield from scenario.algorithm.warnings(scenario)
    privacy = scenario.privacy
    if privacy is None:
        return
    if privacy.mechanism == "gaussian_unclipped":
        yield "privacy.mechanism: gaussian_unclipped bounds no example's influence; its epsilon is never certified"
    if privacy.second_moment == "paper":
        yield (
            f"privacy.mechanism: {privacy.mechanism} is not private for more than one parameter; its epsilon is "
            "never certified; use laplace_l2"
        )
    if privacy.partial:
        yield (
            "privacy.noise_on: first_convolution sends the gradients of all other layers as they are: nothing is "
            "protected, and epsilon is never certified; use all"
        )
    if not isinstance(privacy, Accounted):
        return
    if getattr(privacy, "noise_multiplier", None) == 0:
        yield "privacy.noise_multiplier: 0 clips and adds no noise; epsilon is infinite"
    if privacy.view == "global_hidden":
        yield (
            "privacy.view: global_hidden holds only if the senders of updates stay hidden and all clients' data are "
            "alike; use local_transcript where neighbors or a server see who sends"
        )
    sampling = scenario.algorithm.sampling
    if privacy.correlated == "in_time" and sampling != "shuffle":
        yield (
            "privacy.noise: in_time is accounted as if every example were in every batch, unless passes have an order; "
            "use algorithm.sampling: shuffle with neighbors: replace_one, but for full batches"
        )
    if sampling == "with_replacement":
        yield "algorithm.sampling: with_replacement has no certified epsilon; use auto or poisson"
    fixed_size = sampling in ("shuffle", "without_replacement")
    if fixed_size and privacy.neighbors == "add_or_remove" and privacy.protects == "example":
        yield (
            f"algorithm.sampling: {sampling} has batches of a fixed size, which has no certified epsilon under "
            "neighbors: add_or_remove; use neighbors: replace_one, or sampling: auto or poisson"
        )


def _evaluations(scenario: Sections) -> Iterator[Problem]:
    """Yield a problem if there are too many evaluations."""
    every_s, end_s = scenario.evaluate.every.time, scenario.stop.time
    if every_s is None:
        return
    at, found, advice = ("evaluate", "every", "time"), format_time(every_s), "evaluate less often"
    clients = scenario.clients
    usual_s = clients.batch_s(scenario.algorithm.batch_size) / clients.count
    if end_s is not None and end_s / every_s > MOST_EVALUATIONS:
        expected = f"at most {MOST_EVALUATIONS:,} evaluations until stop.time, which is {format_time(end_s)}"
        yield Problem(expected, found, advice, at)
    elif end_s is None and usual_s / every_s > MOST_EVALUATIONS_PER_UPDATE:
        expected = f"at most {MOST_EVALUATIONS_PER_UPDATE:,} evaluations from one update to the next, or a stop.time"
        yield Problem(expected, found, advice, at)


def _faults(scenario: Sections) -> Iterator[Problem]:
    """Check the groups of network partitions, and outages of a server."""
    count, served = scenario.clients.count, scenario.algorithm.has_server
    if served is False and scenario.server.offline:
        advice = f"remove it: algorithm '{scenario.algorithm.kind}' has no server"
        yield Problem("no outage of a server that is not there", "one", advice, ("server", "offline"))
    for i, rule in enumerate(scenario.links.partitions):
        at: Path = ("links", "partitions", i, "groups")
        nodes = [((*at, g, n), node) for g, group in enumerate(rule.groups or ()) for n, node in enumerate(group)]
        wrong = list(_first_wrong(scenario, nodes))
        yield from wrong
        distinct = {node for _, node in nodes}
        whole = len(distinct) == count + bool(served) and not distinct & {*_region_names(scenario)}
        if not wrong and rule.groups is not None and len(rule.groups) == 1 and whole:
            yield Problem("a node that is cut off", "all nodes in one group", "leave some out, or add a group", at)


def _execution(scenario: Sections) -> Iterator[Problem]:
    """Check that all devices get the same number of operations in a step."""
    width, devices = scenario.execution.width, scenario.execution.devices
    if width != "auto" and width % devices:
        at = ("execution", "width")
        yield Problem(f"a multiple of the {devices} devices", str(width), "or leave it to auto", at)


def _links(scenario: Sections) -> Iterator[Problem]:
    """Check the clients and regions of link rules, and the regions of servers."""
    for i, rule in enumerate(scenario.links.rules):
        yield from _first_wrong(scenario, [(("links", "rules", i, *at), place) for at, place in rule.places()])
    if scenario.regions is not None:
        yield from (problem.below(("regions",)) for problem in scenario.regions.uneven(scenario.clients.count))
    if scenario.server.region is not None:
        yield from _place(scenario, scenario.server.region, ("server", "region"), only_regions=True)
    for i, name in enumerate(scenario.server.aggregator_regions):
        yield from _place(scenario, name, ("server", "aggregator_regions", i), only_regions=True)
    aggregators = getattr(scenario.algorithm, "aggregators", ())
    if len(scenario.server.aggregator_regions) > sum(aggregators):
        expected, found = f"at most {sum(aggregators)}, the aggregators", str(len(scenario.server.aggregator_regions))
        yield Problem(expected, found, "see algorithm.aggregators", ("server", "aggregator_regions"))


def _region_names(scenario: Sections) -> tuple[str, ...]:
    return () if scenario.regions is None else scenario.regions.names


def _place(scenario: Sections, place: int | str, at: Path, only_regions: bool = False) -> Iterator[Problem]:
    """Check that a client, the server or a region exists."""
    regions, count = _region_names(scenario), scenario.clients.count
    if isinstance(place, int):
        if place >= count:
            yield Problem(f"a client below clients.count, which is {count}", str(place), _NUMBERED, at)
    elif place == "server" and not only_regions:
        if scenario.algorithm.has_server is False:
            advice = f"remove it: algorithm '{scenario.algorithm.kind}' has no server"
            yield Problem("clients alone", "'server'", advice, at)
    elif place not in regions:
        what = "a name of regions.names" if only_regions else "a client by number, server, or a name of regions.names"
        yield Problem(what, show(place), suggestion(place, regions, "name it there" if regions else "add regions"), at)


def _first_wrong(
    scenario: Sections, places: Iterable[tuple[Path, int | str]], only_regions: bool = False
) -> Iterator[Problem]:
    """Yield the problem of the first place that does not exist."""
    problems = (problem for at, place in places for problem in _place(scenario, place, at, only_regions))
    return itertools.islice(problems, 1)


def _clients(scenario: Sections) -> Iterator[Problem]:
    """Check that rules name existing clients, and lists have one value per client."""
    count = scenario.clients.count
    for section in ("slowdowns", "availability"):
        for i, rule in enumerate(getattr(scenario, section)):
            for key in ("clients", "regions"):
                places = [((section, i, key, n), place) for n, place in enumerate(getattr(rule, key) or ())]
                yield from _first_wrong(scenario, places, only_regions=key == "regions")
    for i, rule in enumerate(scenario.slowdowns):
        if rule.random is not None and rule.random > count:
            expected = f"at most clients.count, which is {count}"
            yield Problem(expected, str(rule.random), "lower it or add clients", ("slowdowns", i, "random"))
    speed = scenario.clients.speed
    if isinstance(speed, ListedFactors):
        yield from one_each(len(speed.values), count, ("clients", "speed", "values"))
    sizes = scenario.data.partition.sizes
    if isinstance(sizes, ListedSizes):
        yield from one_each(len(sizes.values), count, ("data", "partition", "sizes", "values"))


def _attackers(scenario: Sections) -> Iterator[Problem]:
    """Check that attackers exist, that others are honest, and what noise allows."""
    attackers, count, server = scenario.attackers, scenario.clients.count, scenario.noise_of_server
    if attackers is not None and attackers.clients is not None:
        yield from _first_wrong(
            scenario, [(("attackers", "clients", n), client) for n, client in enumerate(attackers.clients)]
        )
    if attackers is not None and count - len(attackers.clients or (0,)) < 1:
        expected = f"fewer attackers than clients.count, which is {count}"
        yield Problem(expected, str(len(attackers.clients or (0,))), "leave an honest client", ("attackers",))
    replaces = scenario.aggregation is not None or (attackers is not None and not attackers.on_data)
    if replaces and scenario.algorithm.optimizer.state.average:
        advice = "a rule is about models, not about what an optimizer keeps beside them"
        at = ("algorithm", "optimizer", "state", "average")
        yield Problem("false with aggregation or attackers", "true", advice, at)
    if replaces and scenario.compression is not None:
        name = "attackers" if scenario.aggregation is None else "aggregation"
        found = repr(getattr(scenario, name).kind)
        yield Problem("null beside compression", found, "a rule needs whole models: leave one out", (name,))
    if scenario.privacy is not None and server and scenario.aggregation is not None:
        advice = "a rule sees single updates, of which the server's noise protects only the sum; use noise: client"
        yield Problem("null with noise of the server", repr(scenario.aggregation.kind), advice, ("aggregation",))
    if scenario.privacy is not None and attackers is not None:
        if server and not attackers.on_data:
            advice = "an attacker reads single updates, of which the server's noise protects only the sum"
            yield Problem("null with noise of the server", repr(attackers.kind), advice, ("attackers",))
        if getattr(scenario.privacy, "view", None) == "global_hidden":
            advice = "hidden senders protect only among clients that follow the algorithm; use local_transcript"
            yield Problem("local_transcript with attackers", "'global_hidden'", advice, ("privacy", "view"))


def _states(scenario: Sections) -> Iterator[Problem]:
    """Check that states of optimizers which are averaged travel, and that states which are lost are kept before."""
    algorithm, at = scenario.algorithm, ("algorithm", "optimizer", "state")
    state = algorithm.optimizer.state
    if state.average and state.travels is False:
        advice = "who averages them sends them"
        yield Problem("true or null where states are averaged", "false", advice, (*at, "travels"))
    if algorithm.in_local_steps and state.crash == "lose" and not algorithm.keeps_states:
        advice = "remove it, or use rounds: keep: each round of local steps has a new state"
        yield Problem("keep with rounds: new", "'lose'", advice, (*at, "crash"))


def _small_clients(scenario: Sections) -> Iterator[Problem]:
    """Check that nothing needs batches of one size with `small_clients: use_all`."""
    algorithm, at = scenario.algorithm, ("algorithm", "small_clients")
    if algorithm.small_clients == "refuse":
        return
    claim = getattr(scenario.privacy, "claim", None)
    if isinstance(claim, TheoremClaim):
        yield Problem(f"refuse with claim '{claim.kind}'", "'use_all'", "theorems are of batches of one size", at)


def _users(scenario: Sections) -> Iterator[Problem]:
    """Check the users that own the clients."""
    users, count, at = scenario.clients.users, scenario.clients.count, ("clients", "users")
    if users is None:
        return
    if scenario.privacy is not None and scenario.privacy.protects != "user":
        advice = "other units protect examples or clients, whoever owns them"
        yield Problem("null without privacy.unit: user", "users", advice, at)
    if isinstance(users, int):
        if users > count:
            yield Problem(f"at most {count}, the number of clients", str(users), "a user owns a client or more", at)
        return
    yield from one_each(len(users), count, at)
    if missing := sorted({*range(max(users, default=0) + 1)} - {*users}):
        yield Problem("users 0, 1, 2, ... of a client each or more", f"none of user {missing[0]}", "number them so", at)


def _privacy(scenario: Sections) -> Iterator[Problem]:
    """Check lists per client, the mechanism's sampling, and a budget's plan."""
    privacy = scenario.privacy
    yield from _users(scenario)
    if privacy is None:
        return
    if noise := scenario.algorithm.gradient_noise:
        advice = "remove it: no account counts this noise"
        yield Problem("0 beside privacy", f"{noise:g}", advice, ("algorithm", "gradient_noise"))
    if isinstance(privacy, CohortGaussian):
        yield from _cohorts(scenario, privacy)
    for name, values in privacy.lists():
        yield from one_each(len(values), scenario.clients.count, ("privacy", name))
    if privacy.counts_uses and not scenario.algorithm.uses_data_up:
        expected = "another mechanism, because the algorithm may use an example more often than once"
        advice = "use gaussian, or algorithm kind: without_replacement_sgd"
        yield Problem(expected, repr(privacy.mechanism), advice, ("privacy", "mechanism"))
    if privacy.protects != "example" and scenario.algorithm.sampling == "poisson":
        expected = f"shuffle, without_replacement or with_replacement with mechanism '{privacy.mechanism}'"
        yield Problem(expected, "'poisson'", "an update is clipped as a whole", ("algorithm", "sampling"))
    if scenario.noise_of_server:
        for name, _ in privacy.lists():
            advice = "the noise of the server is the same for all"
            yield Problem("one number", "a list", advice, ("privacy", name))
        if getattr(privacy, "view", None) == "global_hidden":
            advice = "the server's noise protects its models, whatever the senders: leave the view out"
            yield Problem("local_transcript with noise of the server", "'global_hidden'", advice, ("privacy", "view"))
    if isinstance(privacy, Gaussian) and privacy.noise is not None:
        if privacy.view == "global_hidden":
            advice = "noise that is shared shows whose an update is"
            yield Problem("local_transcript beside noise", "'global_hidden'", advice, ("privacy", "view"))
        if privacy.correlated == "in_time" and privacy.claim is not None and privacy.claim.kind != "stated":
            advice = "theorems are about noise that is drawn afresh"
            yield Problem("stated beside noise in_time", repr(privacy.claim.kind), advice, ("privacy", "claim", "kind"))
    planned = scenario.stop.epochs is not None or scenario.stop.updates is not None
    if privacy.calibrated and not planned:
        advice = "add it, or stop.epochs, from which the number of releases follows"
        yield Problem("a noise multiplier beside epsilon", "nothing", advice, ("privacy", "noise_multiplier"))


def _cohorts(scenario: Sections, privacy: CohortGaussian) -> Iterator[Problem]:
    """Check that the server only sums updates, its draws, and its gate."""
    algorithm = scenario.algorithm
    if not algorithm.sums_updates:
        advice = "its server does more with updates than to sum them; use fedavg, diloco, fedbuff or fedasync"
        yield Problem(f"another mechanism with '{algorithm.kind}'", repr(privacy.mechanism), advice, ("privacy",))
        return
    if algorithm.noise_of_server:
        advice = "privacy.where says who adds the noise"
        yield Problem("client with unit: user", "'server'", advice, ("algorithm", "noise"))
    if getattr(algorithm, "weighting", None) == "data":
        advice = "users' numbers of examples are not public, and weights must be at most 1"
        yield Problem("'uniform' with unit: user", "'data'", advice, ("algorithm", "weighting"))
    rule, owners = privacy.participation, scenario.clients.owners
    count = scenario.clients.count if owners is None else len({*owners})
    if owners is not None and privacy.calibrated and rule is None and privacy.cohorts != "poisson":
        advice = "how many updates of a user are in a sum is an outcome; or use privacy.participation"
        yield Problem("a noise multiplier beside clients.users", "null", advice, ("privacy", "noise_multiplier"))
    secure = getattr(algorithm, "secure_sum", None)
    if owners is not None and secure is not None:
        advice = "no account here says what the clients of one user may tell about their parts of a secure sum"
        yield Problem("null with algorithm.secure_sum", "users", advice, ("clients", "users"))
    if privacy.where == "secure_sum" and privacy.noise is not None:
        advice = "a server correlates noise that it knows; users' parts are independent"
        yield Problem(
            "null with privacy.where: secure_sum", repr(privacy.noise.correlated), advice, ("privacy", "noise")
        )
    if privacy.where == "secure_sum" and secure is None:
        yield Problem("a protocol with privacy.where: secure_sum", "null", "add one", ("algorithm", "secure_sum"))
    if isinstance(privacy, DiscreteGaussian):
        if secure is not None and secure.bits > MOST_BITS:
            advice = "parts are integers that float32 holds"
            bits = ("algorithm", "secure_sum", "bits")
            yield Problem(f"at most {MOST_BITS} with discrete_gaussian", str(secure.bits), advice, bits)
        if not privacy.noise_multiplier:
            advice = "the grid follows from the noise"
            yield Problem("a number > 0 with discrete_gaussian", "0", advice, ("privacy", "noise_multiplier"))
    if privacy.where == "secure_sum":
        advice = "the server would weigh a user's part of the noise, too: all parts must count in full"
        if exponent := getattr(algorithm, "staleness_exponent", 0.0):
            expected = "0 with privacy.where: secure_sum"
            yield Problem(expected, f"{exponent:g}", advice, ("algorithm", "staleness_exponent"))
        bound = getattr(algorithm, "staleness_bound", None)
        if bound is not None and bound.policy == "down_weight":
            policy = ("algorithm", "staleness_bound", "policy")
            yield Problem("wait or drop with privacy.where: secure_sum", "'down_weight'", advice, policy)
    if privacy.colluding and privacy.where != "secure_sum":
        advice = "a server that adds the noise itself knows it"
        yield Problem(f"0 with where: {privacy.where}", str(privacy.colluding), advice, ("privacy", "colluding"))
    elif secure is not None and isinstance(algorithm, LocalRoundsConfig):
        threshold = threshold_of(secure, algorithm.members(count))
        if privacy.colluding >= threshold:
            expected = f"below the threshold of secure sums, {threshold}"
            yield Problem(expected, str(privacy.colluding), "lower it", ("privacy", "colluding"))
        if privacy.colluding > (most := most_colluding(secure, threshold)):
            expected = f"at most {most}, who learn nothing together with the server"
            advice = "lower it, or let algorithm.secure_sum stand more"
            yield Problem(expected, str(privacy.colluding), advice, ("privacy", "colluding"))
    if rule is not None:
        size = getattr(algorithm, "buffer_size", 1)
        if (share := getattr(algorithm, "fraction", None)) is not None:
            size = max(1, math.ceil(share * scenario.clients.count - 1e-9))
        if size * rule.min_separation > count:
            expected = f"at most {count // size} with sums of {size} of {count} users, each in one of b sums in a row"
            at: Path = ("privacy", "participation", "min_separation")
            if size <= count:
                yield Problem(expected, str(rule.min_separation), "lower it, or add clients", at)
            else:
                advice = "a user is once in a sum: lower algorithm.buffer_size, or add clients"
                yield Problem(f"sums of at most {count} users", str(size), advice, at[:2])
    if privacy.noise is not None:
        yield from _correlated_sums(privacy, privacy.noise)
    if privacy.adaptive is not None:
        where = ("privacy", "clipping_norm")
        if privacy.noise is not None:
            advice = "noise that is correlated over sums comes in units of one norm"
            yield Problem(f"a number beside noise {privacy.correlated}", "'adaptive'", advice, where)
        if privacy.where != "server" or secure is not None:
            advice = "users would have to clip, and to send a count of updates that are not clipped"
            yield Problem("a number with secure sums", "'adaptive'", advice, where)
    if privacy.groups is not None:
        yield from _groups(privacy, count, getattr(algorithm, "fraction", 0.0))
    if privacy.cohorts == "poisson":
        fraction = getattr(algorithm, "fraction", None)
        if fraction is None:
            advice = f"users of {algorithm.kind} come when they are done; use fedavg, or cohorts: algorithm"
            yield Problem(f"'algorithm' with '{algorithm.kind}'", "'poisson'", advice, ("privacy", "cohorts"))
        if privacy.calibrated and privacy.releases is None:
            advice = "the noise is made for a number of releases: add it, or noise_multiplier"
            yield Problem("a number beside epsilon with cohorts: poisson", "null", advice, ("privacy", "releases"))


def _groups(privacy: CohortGaussian, users: int, fraction: float) -> Iterator[Problem]:
    """Check that users can be drawn from groups in turn."""
    groups, at = privacy.groups or 1, ("privacy", "groups")
    if privacy.cohorts != "poisson":
        yield Problem("null with cohorts: algorithm", str(groups), "users are drawn from groups: use poisson", at)
    if privacy.participation is not None:
        yield Problem("null beside participation", str(groups), "groups keep users apart: remove one of them", at)
    if groups > users:
        yield Problem(f"at most {users}, the number of users", str(groups), "lower it", at)
    elif groups * fraction > 1.0 + 1e-9:
        advice = "a group is drawn with probability groups times algorithm.fraction: lower it, or fraction"
        yield Problem(f"at most {math.floor(1.0 / fraction + 1e-9)}", str(groups), advice, at)


def _correlated_sums(privacy: CohortGaussian, noise: Config) -> Iterator[Problem]:
    """Check what noise that is correlated over a server's releases needs."""
    apart, bands = privacy.separation, getattr(noise, "bands", 1)
    found = f"null beside noise {privacy.correlated}"
    if privacy.releases is None:
        advice = "the noise is made for a number of releases: add it"
        yield Problem("the number of releases", found, advice, ("privacy", "releases"))
    if apart is None:
        advice = "the noise is for users that the server lets in at most once in b releases: add min_separation"
        yield Problem("a rule", found, advice, ("privacy", "participation"))
    elif apart < bands:
        advice = "what a user adds to releases nearer than the bands overlaps: raise it, or lower noise.bands"
        at = ("groups",) if privacy.participation is None else ("participation", "min_separation")
        yield Problem(f"at least noise.bands, {bands}", str(apart), advice, ("privacy", *at))
    if privacy.where != "server":
        advice = "parts of users that leave cannot be added to later releases; use where: server"
        yield Problem(f"null with where: {privacy.where}", repr(privacy.correlated), advice, ("privacy", "noise"))
    if privacy.noise_multiplier == 0.0:
        advice = "correlated noise comes in units of it; raise it"
        yield Problem("more than 0 beside noise", "0", advice, ("privacy", "noise_multiplier"))


def _compression(scenario: Sections) -> Iterator[Problem]:
    """Check that algorithm, scheme, noise and optimizer suit compressed messages."""
    compression, algorithm, privacy = scenario.compression, scenario.algorithm, scenario.privacy
    if compression is None:
        return
    at: Path = ("compression",)
    schemes, found = algorithm.compresses, repr(compression.kind)
    if not schemes:
        able = [kind_of(section, "kind") for section in members_of(Algorithm) if section.compresses]  # type: ignore[attr-defined]
        yield Problem(f"null with algorithm '{algorithm.kind}'", found, f"remove it, or use {one_of(able)}", at)
        return
    usable = compression.usable(schemes)
    if not usable:
        needed = f"'{compression.kind}' needs scheme {one_of(compression.schemes)}"
        advice = f"{needed}, which the algorithm does not have: use another kind"
        yield Problem(f"messages for {one_of(schemes)} with algorithm '{algorithm.kind}'", found, advice, (*at, "kind"))
        return
    scheme = compression.scheme or usable[0]
    if scheme not in usable:
        if scheme in schemes:
            expected = f"{one_of(usable)} with kind '{compression.kind}'"
            yield Problem(expected, repr(scheme), "choose it, or another kind", (*at, "scheme"))
            return
        schemes = usable
        expected = f"{one_of(schemes)} with algorithm '{algorithm.kind}'"
        yield Problem(expected, repr(scheme), "choose one of them", (*at, "scheme"))
    if (scheme not in WITH_GAMMA or algorithm.has_server) and compression.gamma is not None:
        what = f"algorithm '{algorithm.kind}'" if algorithm.has_server else f"scheme '{scheme}'"
        advice = "remove it: only choco, deep_squeeze, direct and moniqua in gossip have a step size of mixing"
        yield Problem(f"null with {what}", f"{compression.gamma:g}", advice, (*at, "gamma"))
    if compression.downlink and not algorithm.has_server:
        expected = f"false with algorithm '{algorithm.kind}'"
        yield Problem(expected, "true", "remove it: there is no server that sends models", (*at, "downlink"))
    theory = scheme != "deep_squeeze" and (scheme != "choco" or algorithm.mixes)
    if scheme in WITH_GAMMA and not (theory or algorithm.has_server) and compression.gamma is None:
        advice = "no theory gives one; begin with the share of what a message keeps"
        yield Problem(f"a number with scheme '{scheme}' and '{algorithm.kind}'", "nothing", advice, (*at, "gamma"))
    if scenario.noise_of_server:
        advice = "messages would be compressed before noise is added: use noise: client"
        yield Problem("null with noise of the server", found, advice, at)
    if privacy is not None and getattr(privacy, "view", None) == "global_hidden":
        advice = "what a message changes shows whose estimate it is: leave the view out"
        yield Problem("local_transcript with compressed messages", "'global_hidden'", advice, ("privacy", "view"))
    state = algorithm.optimizer.state
    if state.average or state.travels:
        advice = "messages have no room for states: remove average and travels"
        where = ("algorithm", "optimizer", "state", "average" if state.average else "travels")
        yield Problem("false with compressed messages", "true", advice, where)


def _partition(scenario: Sections) -> Iterator[Problem]:
    """Check that the labels and examples exist, as far as known without loading."""
    data, at = scenario.data, ("data", "partition")
    partition, sizes = data.partition, data.partition.sizes
    _, num_classes = _labels(scenario)
    regression = data.task in ("regression", "points") or scenario.model.regression
    if partition.needs_labels and regression:
        what = f"data set '{data.set}' with model '{scenario.model.kind}', which has no classes"
        yield Problem(f"iid or resample for {what}", repr(partition.kind), "choose one of them", (*at, "kind"))
    elif isinstance(partition, ByLabel) and num_classes and partition.labels_per_client > num_classes:
        expected = f"at most {num_classes}, the classes of data set '{data.set}'"
        yield Problem(expected, str(partition.labels_per_client), "lower it", (*at, "labels_per_client"))
    if isinstance(partition, ByColumn) and not data.columns:
        expected = f"another kind for data set '{data.set}', which has no columns"
        yield Problem(expected, "'by_column'", "use iid, or a set that is a file: table or npz", (*at, "kind"))
    if isinstance(partition, Natural) and not data.has_owners:
        expected = f"another kind for data set '{data.set}', which does not say whose its examples are"
        advice = "name their column: data.owner" if isinstance(data, Table) else "use by_column for npz, or iid"
        yield Problem(expected, "'natural'", advice, (*at, "kind"))
    if not isinstance(data, SyntheticData) or data.path is not None:
        return
    if isinstance(partition, Resample):
        if partition.size is not None and partition.size > data.samples:
            expected = f"at most data.samples, which is {data.samples}"
            yield Problem(expected, str(partition.size), "lower it or draw more samples", (*at, "size"))
    elif data.samples < scenario.clients.count:
        expected = f"at least one example for each of the {scenario.clients.count} clients"
        yield Problem(expected, str(data.samples), "draw more samples or use fewer clients", ("data", "samples"))
    elif isinstance(sizes, ListedSizes) and sum(sizes.values) > data.samples:
        expected = f"at most data.samples in all, which is {data.samples}"
        yield Problem(expected, str(sum(sizes.values)), "lower them or draw more samples", (*at, "sizes", "values"))


def _labels(scenario: Sections) -> tuple[TargetKind, int | None]:
    """Return the target and its number of classes, as far as known without loading."""
    data = scenario.data
    if isinstance(data, RealData) and data.num_kept is not None:
        return "binary" if data.num_kept == 2 else "classes", data.num_kept
    return data.task, data.num_classes


def _fits(model: type[ModelConfig], scenario: Sections) -> bool:
    task, _ = _labels(scenario)
    return (task == "unknown" or task in model.tasks) and not (model.convolutional and scenario.data.images is False)


def _model(scenario: Sections) -> Iterator[Problem]:
    """Check that the model suits the data set."""
    model, data = scenario.model, scenario.data
    task, num_classes = _labels(scenario)
    if task == "unknown" and "unknown" not in model.tasks:
        advice = "set data.set: quadratic, or choose another model"
        yield Problem("data set 'quadratic' for model 'quadratic'", repr(data.set), advice, ("data", "set"))
    elif not _fits(type(model), scenario):
        what = {
            "classes": f"the {num_classes} classes",
            "binary": "the two classes",
            "regression": "the real-valued targets",
            "points": "the points",
            "tokens": "the characters",
            "unknown": "the features",
        }[task]
        models = [member for member in members_of(Model) if issubclass(member, ModelConfig)]
        named = [member for member in models if not member.model_fields["kind"].is_required()]
        kinds = [kind_of(member, "kind") for member in named if _fits(member, scenario)]
        advice = f"set model.kind: {kinds[0]}" if len(kinds) == 1 else "choose one of them"
        expected = f"{one_of(kinds)} for {what} of data set '{data.set}'"
        yield Problem(expected, repr(model.kind), advice, ("model", "kind"))
    elif model.convolutional and isinstance(data, RealData) and data.pca is not None:
        advice = "remove pca, or choose model kind: softmax or mlp"
        yield Problem(f"no pca with model '{model.kind}', which needs images", str(data.pca), advice, ("data", "pca"))
    elif model.convolutional and isinstance(data, RealData) and data.normalize == "unit_sphere_with_constant":
        expected = f"no constant feature with model '{model.kind}', which needs images"
        yield Problem(expected, repr(data.normalize), "use unit_sphere", ("data", "normalize"))


def _underlay(scenario: Sections) -> Iterator[Problem]:
    """Check the underlay's graph, attachments and sharing."""
    if scenario.underlay is None:
        return
    yield from (problem.below(("underlay",)) for problem in scenario.underlay.impossible(scenario.clients.count))
    if scenario.links.sharing == "fifo":
        advice = "leave sharing out, or write fair: where flows meet on edges, no queue says who comes first"
        yield Problem("fair over an underlay", "'fifo'", advice, ("links", "sharing"))


def _has_accuracy(scenario: Sections) -> bool:
    return "classes" in scenario.model.tasks or "binary" in scenario.model.tasks


def _topology(scenario: Sections) -> Iterator[Problem]:
    """Check that the graph exists for this number of clients and suits its use."""
    topology, count = scenario.topology, scenario.clients.count
    if count < 2:
        if scenario.algorithm.uses_topology:
            advice = "add clients, or use algorithm kind: sync_sgd"
            expected = f"at least 2 clients for topology '{topology.kind}'"
            yield Problem(expected, str(count), advice, ("clients", "count"))
        return
    if impossible := [problem.below(("topology",)) for problem in topology.impossible(count)]:
        yield from impossible
        return
    unequal = topology.equal_degrees is False and count > 2
    if topology.mixing == "uniform" and unequal and scenario.algorithm.mixes:
        expected = f"metropolis or max_degree for topology '{topology.kind}', whose degrees differ"
        yield Problem(expected, "'uniform'", "use metropolis", ("topology", "mixing"))
