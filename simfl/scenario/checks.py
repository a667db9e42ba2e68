"""Conflicts between sections, checked before anything runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator

from simfl.scenario.algorithms.base import Sections
from simfl.scenario.catalogues import Data
from simfl.scenario.compression import WITH_GAMMA
from simfl.scenario.control import OF_KNOWN_OPTIMA, OF_REGRESSIONS
from simfl.scenario.data import SyntheticData, TargetKind
from simfl.scenario.fields import kind_of, members_of
from simfl.scenario.meetings import ANY, OF_MESSAGES, OF_SUMS, excluded
from simfl.scenario.models import Model, ModelConfig
from simfl.scenario.privacy import CohortGaussian
from simfl.scenario.problems import Path, Problem, one_each, one_of, show, suggestion
from simfl.scenario.units import format_time

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
    yield from _attackers(scenario)
    yield from excluded(scenario, ANY)
    yield from _privacy(scenario)
    yield from itertools.islice(_compression(scenario), 1)
    yield from _evaluations(scenario)
    yield from _faults(scenario)
    yield from _links(scenario)
    if scenario.stop.accuracy is not None and _has_accuracy(scenario) is False:
        advice = "stop by time, updates or epochs"
        found = f"{scenario.stop.accuracy:g}"
        yield Problem(f"no accuracy with model '{scenario.model.kind}'", found, advice, ("stop", "accuracy"))
    yield from _known_optimum(scenario)
    if scenario.model.is_own:
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
    if not privacy.accounted:
        return
    if getattr(privacy, "noise_multiplier", None) == 0:
        yield "privacy.noise_multiplier: 0 clips and adds no noise; epsilon is infinite"
    if getattr(privacy, "view", None) == "global_hidden":
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
    if speed.kind == "list":
        yield from one_each(len(speed.values), count, ("clients", "speed", "values"))
    sizes = scenario.data.partition.sizes
    if sizes.kind == "listed":
        yield from one_each(len(sizes.values), count, ("data", "partition", "sizes", "values"))


def _attackers(scenario: Sections) -> Iterator[Problem]:
    """Check that attackers exist, and that others are honest."""
    attackers, count = scenario.attackers, scenario.clients.count
    if attackers is not None and attackers.clients is not None:
        yield from _first_wrong(
            scenario, [(("attackers", "clients", n), client) for n, client in enumerate(attackers.clients)]
        )
    if attackers is not None and count - len(attackers.clients or (0,)) < 1:
        expected = f"fewer attackers than clients.count, which is {count}"
        yield Problem(expected, str(len(attackers.clients or (0,))), "leave an honest client", ("attackers",))


def _users(scenario: Sections) -> Iterator[Problem]:
    """Check the users that own the clients."""
    users, count, at = scenario.clients.users, scenario.clients.count, ("clients", "users")
    if users is None:
        return
    if isinstance(users, int):
        if users > count:
            yield Problem(f"at most {count}, the number of clients", str(users), "a user owns a client or more", at)
        return
    yield from one_each(len(users), count, at)
    if missing := sorted({*range(max(users, default=0) + 1)} - {*users}):
        yield Problem("users 0, 1, 2, ... of a client each or more", f"none of user {missing[0]}", "number them so", at)


def _privacy(scenario: Sections) -> Iterator[Problem]:
    """Check lists per client, and the cohorts of a server's sums."""
    privacy = scenario.privacy
    yield from _users(scenario)
    if privacy is None:
        return
    for name, values in privacy.lists():
        yield from one_each(len(values), scenario.clients.count, ("privacy", name))
        if scenario.noise_of_server:
            yield Problem("one number", "a list", "the noise of the server is the same for all", ("privacy", name))
    uses = scenario.algorithm.uses if privacy.by_server else None
    if uses is not None and not uses.summing.noise:
        expected = f"another mechanism with '{scenario.algorithm.kind}'"
        yield Problem(expected, show(privacy), uses.why_no_noise, ("privacy",))
    elif privacy.of_sums is not None:
        yield from excluded(scenario, OF_SUMS)
        yield from _cohorts(scenario, privacy.of_sums)


def _cohorts(scenario: Sections, privacy: CohortGaussian) -> Iterator[Problem]:
    """Check the sizes of sums: their thresholds, gates, bands and groups."""
    algorithm, rule, owners = scenario.algorithm, privacy.participation, scenario.clients.owners
    count = scenario.clients.count if owners is None else len({*owners})
    if privacy.where == "secure_sum" and (secure := algorithm.protocol) is not None:
        threshold = secure.threshold_of(algorithm.members(count))
        if privacy.colluding >= threshold:
            expected = f"below the threshold of secure sums, {threshold}"
            yield Problem(expected, str(privacy.colluding), "lower it", ("privacy", "colluding"))
        if privacy.colluding > (most := secure.most_colluding(threshold)):
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
    apart, bands = privacy.separation, getattr(privacy.noise, "bands", 1)
    if apart is not None and apart < bands:
        advice = "what a user adds to releases nearer than the bands overlaps: raise it, or lower noise.bands"
        at = ("privacy", "groups") if rule is None else ("privacy", "participation", "min_separation")
        yield Problem(f"at least noise.bands, {bands}", str(apart), advice, at)
    groups, fraction = privacy.groups or 1, getattr(algorithm, "fraction", 0.0)
    if groups > count:
        yield Problem(f"at most {count}, the number of users", str(groups), "lower it", ("privacy", "groups"))
    elif privacy.groups is not None and groups * fraction > 1.0 + 1e-9:
        advice = "a group is drawn with probability groups times algorithm.fraction: lower it, or fraction"
        most = math.floor(1.0 / fraction + 1e-9)
        yield Problem(f"at most {most}", str(groups), advice, ("privacy", "groups"))


def _compression(scenario: Sections) -> Iterator[Problem]:
    """Check that algorithm, scheme and other sections suit compressed messages."""
    compression, algorithm = scenario.compression, scenario.algorithm
    if compression is None:
        return
    at: Path = ("compression",)
    (schemes, why), found = algorithm.uses.messages, repr(compression.kind)
    if not schemes:
        yield Problem(f"null with algorithm '{algorithm.kind}'", found, f"{why}: remove it", at)
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
    theory = scheme != "deep_squeeze" and (scheme != "choco" or algorithm.uses.graph == "mixed")
    if scheme in WITH_GAMMA and not (theory or algorithm.has_server) and compression.gamma is None:
        advice = "no theory gives one; begin with the fraction of what a message keeps"
        yield Problem(f"a number with scheme '{scheme}' and '{algorithm.kind}'", "nothing", advice, (*at, "gamma"))
    yield from excluded(scenario, OF_MESSAGES)


def _partition(scenario: Sections) -> Iterator[Problem]:
    """Check that the labels and examples exist, as far as known without loading."""
    data, at = scenario.data, ("data", "partition")
    partition, sizes = data.partition, data.partition.sizes
    _, num_classes = _labels(scenario)
    regression = data.task in ("regression", "points") or scenario.model.regression
    if partition.needs_labels and regression:
        what = f"data set '{data.set}' with model '{scenario.model.kind}', which has no classes"
        yield Problem(f"iid or resample for {what}", repr(partition.kind), "choose one of them", (*at, "kind"))
    elif partition.kind == "by_label" and num_classes and partition.labels_per_client > num_classes:
        expected = f"at most {num_classes}, the classes of data set '{data.set}'"
        yield Problem(expected, str(partition.labels_per_client), "lower it", (*at, "labels_per_client"))
    if partition.kind == "by_column" and not data.columns:
        expected = f"another kind for data set '{data.set}', which has no columns"
        yield Problem(expected, "'by_column'", "use iid, or a set that is a file: table or npz", (*at, "kind"))
    if partition.kind == "natural" and not data.has_owners:
        expected = f"another kind for data set '{data.set}', which does not say whose its examples are"
        advice = "name their column: data.owner" if hasattr(data, "owner") else "use by_column for npz, or iid"
        yield Problem(expected, "'natural'", advice, (*at, "kind"))
    if not isinstance(data, SyntheticData) or data.path is not None:
        return
    if partition.kind == "resample":
        if partition.size is not None and partition.size > data.samples:
            expected = f"at most data.samples, which is {data.samples}"
            yield Problem(expected, str(partition.size), "lower it or draw more samples", (*at, "size"))
    elif data.samples < scenario.clients.count:
        expected = f"at least one example for each of the {scenario.clients.count} clients"
        yield Problem(expected, str(data.samples), "draw more samples or use fewer clients", ("data", "samples"))
    elif sizes.kind == "listed" and sum(sizes.values) > data.samples:
        expected = f"at most data.samples in all, which is {data.samples}"
        yield Problem(expected, str(sum(sizes.values)), "lower them or draw more samples", (*at, "sizes", "values"))


def _labels(scenario: Sections) -> tuple[TargetKind, int | None]:
    """Return the target and its number of classes, as far as known without loading."""
    data = scenario.data
    if (kept := getattr(data, "num_kept", None)) is not None:
        return "binary" if kept == 2 else "classes", kept
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
        models = [member for member in members_of(Model) if issubclass(member, ModelConfig) and not member.is_own]
        kinds = [kind_of(member, "kind") for member in models if _fits(member, scenario)]
        advice = f"set model.kind: {kinds[0]}" if len(kinds) == 1 else "choose one of them"
        expected = f"{one_of(kinds)} for {what} of data set '{data.set}'"
        yield Problem(expected, repr(model.kind), advice, ("model", "kind"))
    elif model.convolutional and (pca := getattr(data, "pca", None)) is not None:
        advice = "remove pca, or choose model kind: softmax or mlp"
        yield Problem(f"no pca with model '{model.kind}', which needs images", str(pca), advice, ("data", "pca"))
    elif model.convolutional and getattr(data, "normalize", None) == "unit_sphere_with_constant":
        expected = f"no constant feature with model '{model.kind}', which needs images"
        yield Problem(expected, "'unit_sphere_with_constant'", "use unit_sphere", ("data", "normalize"))


def _underlay(scenario: Sections) -> Iterator[Problem]:
    """Check the underlay's graph, attachments and sharing."""
    if scenario.underlay is None:
        return
    yield from (problem.below(("underlay",)) for problem in scenario.underlay.impossible(scenario.clients.count))


def _has_accuracy(scenario: Sections) -> bool:
    return "classes" in scenario.model.tasks or "binary" in scenario.model.tasks


def _topology(scenario: Sections) -> Iterator[Problem]:
    """Check that the graph exists for this number of clients and suits its use."""
    topology, count = scenario.topology, scenario.clients.count
    if count < 2:
        if scenario.algorithm.uses.graph != "none":
            advice = "add clients, or use algorithm kind: sync_sgd"
            expected = f"at least 2 clients for topology '{topology.kind}'"
            yield Problem(expected, str(count), advice, ("clients", "count"))
        return
    if impossible := [problem.below(("topology",)) for problem in topology.impossible(count)]:
        yield from impossible
        return
    unequal = topology.equal_degrees is False and count > 2
    if topology.mixing == "uniform" and unequal and scenario.algorithm.uses.graph == "mixed":
        expected = f"metropolis or max_degree for topology '{topology.kind}', whose degrees differ"
        yield Problem(expected, "'uniform'", "use metropolis", ("topology", "mixing"))
