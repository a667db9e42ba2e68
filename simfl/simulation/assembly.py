"""From a scenario to the objects of a run: the one place that knows both the schema and the classes.

Everything that can be wrong with a scenario is found here, before anything runs.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.algorithms import Algorithm, Training, find_algorithm
from simfl.algorithms.server import StalenessBound
from simfl.data import Dataset, Partition, load_dataset, partition
from simfl.errors import DataError, ScenarioError
from simfl.models import AbstractModel, OneVsAll, build_model
from simfl.models.layers import Convolution
from simfl.models.network import AbstractNetwork
from simfl.privacy.ledger import Ledger
from simfl.privacy.passes import OnePassLedger
from simfl.scenario import Scenario
from simfl.scenario.algorithms import (
    AsyncFl,
    FedAvg,
    GossipLearning,
    LocalRoundsConfig,
    Mapa,
    PassedModels,
    ServerAlgorithmConfig,
)
from simfl.scenario.privacy import OnePassGaussian
from simfl.scenario.schedules import Capped, Constant, Schedule
from simfl.simulation.kinds import async_fl as federated
from simfl.simulation.kinds.mapa import paper_steps, stage_remarks, stage_rules
from simfl.simulation.kinds.without_replacement import largest_norm, protect_one_pass
from simfl.simulation.privacy import Protection, protect
from simfl.streams import Streams
from simfl.tape import Problem, Tape
from simfl.world import Availability, Clock, Compute, Network, ServerModel, Topology, World
from simfl.world.availability import Outage, RandomOutages
from simfl.world.compute import Sampler, Slowdown
from simfl.world.links import LinkModel, MessageRow
from simfl.world.topology import build_topology

#: Options of algorithms that are settled here: the algorithm does not see them.
SETTLED = (
    "step_clip", "projection", "smoothness", "sampling_std", "radius", "largest_staleness",
    "second_moment", "without_logarithm", "reduction", "failure_probability", "initial_gap", "rule",
    "proximal", "local_steps", "local_epochs", "period",
)  # fmt: skip
#: Training examples on which the training loss is measured at most.
LOSS_EXAMPLES = 2000


@dataclass
class Setup:
    """A scenario made ready: data loaded, graph built, everything checked.

    Attributes:
        scenario: what was asked for.
        streams: the random streams of its seed.
        dataset: the data.
        shares: which client holds which examples.
        model: pure functions.
        topology: the graph.
        problem: what the executor computes.
        training: the plain values of local training.
        ledger: accounts for the releases, None without privacy.
        warnings: lines the user should read.
    """

    scenario: Scenario
    streams: Streams
    dataset: Dataset
    shares: Partition
    model: AbstractModel
    topology: Topology
    problem: Problem
    training: Training
    ledger: Ledger | None
    algorithm: type[Algorithm]
    warnings: list[str] = field(default_factory=list)


def data_root() -> Path | None:
    """The folder of data sets that SIMFL_DATA names."""
    named = os.environ.get("SIMFL_DATA")
    return Path(named) if named else None


#: Data, shares and model of a scenario, changed together before anything is derived from them.
Adaptation = Callable[[Dataset, Partition, AbstractModel], tuple[Dataset, Partition, AbstractModel]]


def assemble(scenario: Scenario, adapt: Adaptation | None = None) -> Setup:
    """Load, build and check everything a scenario asks for.

    Args:
        scenario: valid.
        adapt: changes data, shares and model first; a privacy audit plants its canaries so.

    Raises:
        ScenarioError, DataError: with one line that says what to change.
    """
    streams = Streams(scenario.seed)
    algorithm = find_algorithm(scenario.algorithm.kind)
    dataset = _load_data(scenario, streams)
    count = scenario.clients.count
    shares = _partition(scenario, dataset, streams)
    model = _model(scenario, dataset)
    if adapt is not None:
        dataset, shares, model = adapt(dataset, shares, model)
    topology = _topology(scenario, streams)
    speeds(scenario, streams)  # a trace that cannot be read is an error now

    config = scenario.algorithm
    smallest = int(np.argmin(shares.sizes))
    if config.batch_size > shares.sizes[smallest]:
        raise ScenarioError(
            f"algorithm.batch_size: expected at most {shares.sizes[smallest]}, the examples of client {smallest}, "
            f"found {config.batch_size}; lower it, or use fewer clients (clients.count is {count}) or larger parts"
        )
    sampling = config.sampling
    if sampling == "auto":
        # Local rounds, and updates that are clipped as a whole, have batches of one size.
        clipped_whole = scenario.privacy is not None and scenario.privacy.mechanism == "gaussian_update"
        plain = scenario.privacy is None or clipped_whole or config.trains_locally
        sampling = "poisson" if not plain else "with_replacement" if isinstance(config, AsyncFl) else "shuffle"
    sizes = np.asarray(shares.sizes, dtype=np.int64)
    warnings = list(scenario.notes())
    whole, tasks = model, 1
    if isinstance(model, OneVsAll) and algorithm.moves_tasks:
        model, tasks = model.task, model.num_classes
    noisy = _noisy(scenario, model)
    if isinstance(scenario.privacy, OnePassGaussian):
        holders = int(np.bincount(shares.indices).max())
        noise, remarks = protect_one_pass(scenario, sizes, tasks, holders, largest_norm(dataset.train_x))
        warnings += remarks
    else:
        noise = protect(scenario, sizes, sampling, noisy or model.size, local=config.trains_locally)
    warnings += stage_remarks(scenario, noisy or model.size)
    chosen = streams.generator("loss-examples").permutation(len(dataset.train_x))[:LOSS_EXAMPLES]
    problem = Problem(
        model=model,
        train_x=dataset.train_x,
        train_y=dataset.train_y,
        test_x=dataset.test_x,
        test_y=dataset.test_y,
        indices=np.asarray(shares.indices, dtype=np.int32),
        offsets=np.asarray(shares.offsets, dtype=np.int64),
        batch_size=config.batch_size,
        sampling=sampling,
        clipping_norm=noise.clipping_norm,
        noise=noise.sampler if max(noise.scales) > 0.0 else None,
        data_key=streams.key("data"),
        noise_key=streams.key("noise"),
        loss_examples=np.sort(chosen),
        clip=noise.clip,
        tasks=tasks,
        whole=whole if tasks > 1 else None,
        local=config.trains_locally,
        power=federated.power_of(scenario) if isinstance(config, AsyncFl) else config.decay_power,
        proximal=config.proximal_weight,
        own_clipping=algorithm.own_clipping,
        noisy=noisy,
        blocks=config.mask if isinstance(config, AsyncFl) else 1,
        radius=config.radius(model.l2) if isinstance(config, PassedModels) else None,
        gradient_examples=_gradient_examples(scenario, dataset),
    )
    allowances = noise.allowances
    if isinstance(config, AsyncFl) and allowances is not None and noise.ledger is not None:
        budget = getattr(scenario.privacy, "epsilon", None)
        budgets = [float(one) for one in np.broadcast_to(np.asarray(budget, dtype=float), len(sizes))]
        allowances = federated.allowances(scenario, noise.ledger, budgets)
    training = Training(
        initial=np.asarray(model.init(streams.key("init")), dtype=np.float32),
        sizes=sizes,
        batch_size=config.batch_size,
        sampling=sampling,
        step_size=_step_size(scenario, model.l2, noise, noisy or model.size),
        l2=model.l2,
        noise_std=noise.stds,
        noise_scale=noise.scales,
        allowances=allowances,
        tasks=tasks,
        update_examples=config.update_examples(sizes.tolist()),
        clipping_norm=math.inf if noise.clipping_norm is None else noise.clipping_norm,
    )
    ledger = noise.ledger
    counted = ledger is None or isinstance(ledger, OnePassLedger)
    if not counted and scenario.data.partition.kind == "resample":
        warnings.append(
            "data.partition: resample may give one example to several clients; epsilon counts the releases of one "
            "client, and what an example loses through all of them together is more"
        )
    return Setup(
        scenario, streams, dataset, shares, whole, topology, problem, training, ledger, algorithm, warnings
    )  # fmt: skip


def build_world(setup: Setup, on_delivery: Callable[[MessageRow], None] | None = None) -> World:
    """Return a fresh world of the scenario, at virtual time 0."""
    scenario, streams = setup.scenario, setup.streams
    clock = Clock()
    compute = Compute(
        scenario.clients.seconds_per_example,
        speeds(scenario, streams).tolist(),
        streams,
        sampler_of(scenario.clients.jitter, 1.0),
        slowdowns(scenario, streams),
    )
    there = availability(scenario, streams)
    links = scenario.links
    model = LinkModel(
        latency=sampler_of(links.latency, 0.0),
        bandwidth=links.bandwidth,
        loss=links.loss,
        resend_timeout_s=links.resend_timeout,
        fifo=links.fifo,
        uplink=links.uplink,
        downlink=links.downlink,
    )
    network = Network(clock, model, scenario.clients.count, streams, there, on_delivery)
    taking = scenario.server
    server = ServerModel(taking.uplink, taking.downlink, taking.seconds_per_update)
    return World(clock, compute, there, network, setup.topology, streams, server)


def build_algorithm(setup: Setup, world: World, tape: Tape, on_update: Callable[[Any], None]) -> Algorithm:
    """Return the scenario's algorithm, ready to start."""
    config = setup.scenario.algorithm
    own = set(type(config).model_fields) - {"kind", "step_size", "batch_size", "sampling", *SETTLED}
    options = {name: getattr(config, name) for name in own}
    options.update(options.pop("options", {}))
    if isinstance(config, ServerAlgorithmConfig):
        limit = options.pop("staleness_bound")
        options["staleness"] = None if limit is None else StalenessBound(limit.bound, limit.policy)
    if isinstance(config, LocalRoundsConfig):
        options["steps"] = config.round_steps(setup.training.sizes.tolist())
    if isinstance(config, FedAvg):
        del options["concurrency"]
    if isinstance(config, AsyncFl):
        options = federated.options_of(setup)
    if isinstance(config, Mapa):
        options["stages"] = stage_rules(setup.scenario, setup.problem.noisy or setup.model.size)
    if isinstance(config, GossipLearning):
        own_s = config.batch_size * setup.scenario.clients.seconds_per_example
        options["period_s"] = own_s if config.period is None else config.period
    if config.kind == "decentralized_sgd":
        options["mixing"] = setup.scenario.topology.mixing
    try:
        return setup.algorithm(world, tape, setup.training, on_update, **options)
    except TypeError as error:
        raise ScenarioError(f"algorithm.options: {error}") from error


def _noisy(scenario: Scenario, model: AbstractModel) -> int | None:
    """Return how many parameters, the first ones, carry noise; None for all."""
    if getattr(scenario.privacy, "noise_on", "all") == "all":
        return None
    first = model.layers[0] if isinstance(model, AbstractNetwork) else None
    if not isinstance(first, Convolution):
        raise ScenarioError(
            f"privacy.noise_on: found 'first_convolution' with model '{model.kind}', expected a convolutional model; "
            "use noise_on: all, or model kind: cnn"
        )
    return first.size


def _gradient_examples(scenario: Scenario, dataset: Dataset) -> int:
    """Return on how many training examples gradients are measured; 0 for not at all."""
    asked, there = scenario.evaluate.gradients, len(dataset.train_x)
    if asked > there:
        raise ScenarioError(
            f"evaluate.gradients: expected at most {there}, the examples of the training set, found {asked}; lower it"
        )
    return asked


def _step_size(scenario: Scenario, l2: float, noise: Protection, dimension: int) -> float | Schedule:
    """Return the step size: a number where it never changes."""
    config = scenario.algorithm
    if isinstance(config, PassedModels):
        schedule = config.steps(l2)
    elif isinstance(config, AsyncFl):
        schedule = federated.steps_of(scenario)
    elif config.step_size is None:
        schedule = paper_steps(scenario, noise, dimension)
    else:
        schedule = config.step_size.schedule()
    if isinstance(config, PassedModels) and not math.isinf(config.largest_step(l2)):
        schedule = Capped(config.largest_step(l2), schedule)
        if isinstance(schedule.then, Constant):
            schedule = Constant(schedule(0, 0, 0.0))
    return schedule.value if isinstance(schedule, Constant) else schedule


# -- parts -----------------------------------------------------------------------------------


def _load_data(scenario: Scenario, streams: Streams) -> Dataset:
    config = scenario.data
    options = config.model_dump(exclude={"set", "partition"})
    if config.set in ("quadratic", "linear", "logistic"):
        # The known optimum is that of the model that is trained.
        options["l2"] = scenario.model.l2
        if hasattr(scenario.model, "intercept"):
            options["intercept"] = scenario.model.intercept
    elif config.set in ("libsvm", "npz"):
        options["regression"] = scenario.model.kind == "linear"
    root = data_root()
    key = repr((config.set, sorted(options.items()), root, streams.seed))
    if _shared is not None and key in _shared:
        return _shared[key]
    try:
        dataset = load_dataset(config.set, root=root, streams=streams, **options)
    except ValueError as error:
        raise DataError(f"data: {error}") from error
    if _shared is not None:
        _shared.clear()  # one at a time: large ones need not fit side by side
        _shared[key] = dataset
    return dataset


_shared: dict[str, Dataset] | None = None


@contextlib.contextmanager
def shared_data() -> Iterator[None]:
    """Let runs with the same data load them once, for the time of a block in which no file changes.

    What is shared is the data set as loaded; no run writes into it.
    """
    global _shared
    before, _shared = _shared, {} if _shared is None else _shared
    try:
        yield
    finally:
        _shared = before


def _partition(scenario: Scenario, dataset: Dataset, streams: Streams) -> Partition:
    options = scenario.data.partition.model_dump()
    kind = options.pop("kind")
    sizes = options.pop("sizes", None)
    if sizes is not None:
        options["sizes"] = sizes.pop("kind")
        options.update(sizes)
    generator = streams.generator("partition")
    try:
        return partition(kind, dataset.train_y, scenario.clients.count, generator, **options)
    except ValueError as error:
        raise ScenarioError(f"data.partition: {error}") from error


def _model(scenario: Scenario, dataset: Dataset) -> AbstractModel:
    options = scenario.model.model_dump(exclude={"kind", "l2"})
    if scenario.model.kind == "quadratic" and dataset.curvature is not None:
        options["curvature"] = tuple(float(c) for c in dataset.curvature)
    try:
        return build_model(
            scenario.model.kind,
            input_shape=dataset.input_shape,
            num_classes=dataset.num_classes,
            l2=scenario.model.l2,
            **options,
        )
    except ValueError as error:
        raise ScenarioError(str(error)) from error


def _topology(scenario: Scenario, streams: Streams) -> Topology:
    options = scenario.topology.model_dump(exclude={"kind", "mixing"})
    kind, count = scenario.topology.kind, scenario.clients.count
    if count == 1:  # nobody to talk to: only algorithms that need no topology get this far
        import networkx as nx

        return Topology.from_graph(nx.empty_graph(1), kind="single")
    options = {name: value for name, value in options.items() if value is not None}
    try:
        return build_topology(kind, count, streams.generator("topology"), **options)
    except ValueError as error:
        raise ScenarioError(f"topology: {error}") from error


def sampler_of(config: Any, neutral: float) -> Sampler | None:
    """Return the sampler of a distribution, None for the constant that changes nothing.

    Args:
        config: a distribution of factors, with mean 1, or of seconds, with a mean of its own.
        neutral: 1 for factors, 0 for seconds.
    """
    kind, mean = config.kind, getattr(config, "mean", 1.0)
    if kind == "constant":
        value = config.value
        return None if value == neutral else lambda g, n: np.full(n, value)
    if kind == "uniform":
        return lambda g, n: g.uniform(config.low, config.high, n)
    if kind == "exponential":
        return lambda g, n: g.exponential(mean, n)
    if kind == "lognormal":
        sigma = config.sigma
        return lambda g, n: mean * np.exp(g.normal(-0.5 * sigma**2, sigma, n))
    raise ValueError(f"unknown distribution {kind!r}")


def speeds(scenario: Scenario, streams: Streams) -> NDArray[np.float64]:
    """Return each client's factor on the compute time, [K]."""
    config, count = scenario.clients.speed, scenario.clients.count
    generator = streams.generator("speed")
    if config.kind == "list":
        return np.array(config.values, dtype=np.float64)
    if config.kind == "trace":
        return generator.choice(_trace(Path(config.path), config.column), count)
    sampler = sampler_of(config, 1.0)
    return np.ones(count) if sampler is None else sampler(generator, count)


def _trace(path: Path, column: str) -> NDArray[np.float64]:
    """Read a column of positive factors from a CSV file."""
    import pandas as pd

    where = "clients.speed"
    try:
        table = pd.read_csv(path)
    except FileNotFoundError:
        raise DataError(f"{where}.path: found no file {path}, expected a CSV file with a header line") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{where}.path: cannot read {path} as CSV: {str(error).splitlines()[0]}") from error
    if column not in table.columns:
        listed = ", ".join(map(str, table.columns))
        raise DataError(f"{where}.column: found no column {column!r} in {path}, expected one of {listed}")
    values = pd.to_numeric(table[column], errors="coerce").to_numpy(dtype=np.float64)
    if not len(values) or not np.isfinite(values).all() or (values <= 0).any():
        raise DataError(f"{where}.column: {path}, column {column!r}: expected numbers > 0 in every row")
    return values


def _chosen(rule: Any, index: int, purpose: str, count: int, streams: Streams) -> Iterable[int]:
    """The clients that a rule names: a list, all, or a fraction drawn once."""
    if rule.clients is not None:
        return list(rule.clients)
    if rule.fraction is not None:
        some = max(1, round(rule.fraction * count))
        chosen = streams.generator(purpose, index).choice(count, some, replace=False)
        return [int(k) for k in np.sort(chosen)]
    return range(count)


def slowdowns(scenario: Scenario, streams: Streams) -> list[Slowdown]:
    """Return the scripted slowdowns."""
    rules = []
    for index, rule in enumerate(scenario.slowdowns):
        until = math.inf if rule.until is None else rule.until
        if rule.random is not None:
            rules.append(Slowdown(rule.factor, None, rule.random, rule.start, until))
        else:
            clients = frozenset(_chosen(rule, index, "slowdown-clients", scenario.clients.count, streams))
            rules.append(Slowdown(rule.factor, clients, 0, rule.start, until))
    return rules


def availability(scenario: Scenario, streams: Streams) -> Availability:
    """Return who is away when."""
    outages: dict[int, list[Outage]] = {}
    random: dict[int, RandomOutages] = {}
    for index, rule in enumerate(scenario.availability):
        scripted = [Outage(0.0, rule.join)] if rule.join > 0 else []
        scripted += [Outage(begin, end) for begin, end in rule.offline]
        scripted += [Outage(c.at, math.inf if c.back is None else c.back, crash=True) for c in rule.crash]
        churn = None
        if rule.random is not None:
            zero: Sampler = lambda g, n: np.zeros(n)  # noqa: E731
            churn = RandomOutages(sampler_of(rule.random.up, 0.0) or zero, sampler_of(rule.random.down, 0.0) or zero)
        for client in _chosen(rule, index, "availability-clients", scenario.clients.count, streams):
            outages.setdefault(client, []).extend(scripted)
            if churn is not None:
                random[client] = churn
    return Availability(streams, dict(outages), random)
