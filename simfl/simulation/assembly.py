"""From a scenario to the objects of a run: the one place that knows both the schema and the classes.

Everything that can be wrong with a scenario is found here, before anything runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from simfl.algorithms import Algorithm, Training, find_algorithm
from simfl.algorithms.server import StalenessBound
from simfl.data import Dataset, Partition
from simfl.errors import ScenarioError
from simfl.models import AbstractModel, OneVsAll
from simfl.models.layers import Convolution
from simfl.models.network import AbstractNetwork
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
from simfl.simulation.data import load_data, model_of, share_out
from simfl.simulation.kinds import async_fl as federated
from simfl.simulation.kinds.mapa import paper_steps, stage_remarks, stage_rules
from simfl.simulation.kinds.without_replacement import largest_norm, protect_one_pass
from simfl.simulation.privacy import Protection, protect
from simfl.simulation.setup import Setup
from simfl.simulation.world import speeds, topology_of
from simfl.streams import Streams
from simfl.tape import LearningProblem, Tape
from simfl.tape.problem import Batches, ClientData, Clipping, Keys, LocalRounds, Measured, Noise, Tasks
from simfl.world import World

#: Options of algorithms that are settled here: the algorithm does not see them.
SETTLED = (
    "step_clip", "projection", "smoothness", "sampling_std", "radius", "largest_staleness",
    "second_moment", "without_logarithm", "reduction", "failure_probability", "initial_gap", "rule",
    "proximal", "local_steps", "local_epochs", "period",
)  # fmt: skip


#: Training examples on which the training loss is measured at most.
LOSS_EXAMPLES = 2000


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
    dataset = load_data(scenario, streams)
    count = scenario.clients.count
    shares = share_out(scenario, dataset, streams)
    model = model_of(scenario, dataset)
    if adapt is not None:
        dataset, shares, model = adapt(dataset, shares, model)
    topology = topology_of(scenario, streams)
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
    warnings = list(scenario.warnings())
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
    power = federated.power_of(scenario) if isinstance(config, AsyncFl) else config.decay_power
    problem = LearningProblem(
        model=model,
        data=ClientData(
            dataset.train_x,
            dataset.train_y,
            dataset.test_x,
            dataset.test_y,
            np.asarray(shares.indices, dtype=np.int32),
            np.asarray(shares.offsets, dtype=np.int64),
        ),
        batches=Batches(sampling, config.batch_size),
        keys=Keys(streams.key("data"), streams.key("noise")),
        measured=Measured(np.sort(chosen), _gradient_examples(scenario, dataset)),
        clipping=Clipping(noise.clipping_norm, noise.clip, algorithm.own_clipping),
        noise=Noise(noise.sampler, noisy) if max(noise.scales) > 0.0 else None,
        tasks=Tasks(tasks, whole) if tasks > 1 else None,
        rounds=LocalRounds(power, config.proximal_weight) if config.trains_locally else None,
        blocks=config.mask if isinstance(config, AsyncFl) else 1,
        radius=config.radius(model.l2) if isinstance(config, PassedModels) else None,
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
        options["stages"] = stage_rules(setup.scenario, _noisy(setup.scenario, setup.problem.model) or setup.model.size)
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
