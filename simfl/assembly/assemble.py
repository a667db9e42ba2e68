"""Builds the objects of a run from a scenario, and checks them.

Every error of a scenario is found here, before anything runs. The `Kind` of an algorithm answers what is special about
it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.algorithms import Algorithm, Training
from simfl.assembly.compression import compression_of
from simfl.assembly.costs import meter_of
from simfl.assembly.data import augmentation_of, divided, model_of, own_tests, start_of
from simfl.assembly.graphs import graphs_of
from simfl.assembly.kinds import check_options, find_algorithm, find_kind
from simfl.assembly.known import is_known, uneven_weights
from simfl.assembly.optimizers import optimizers_of
from simfl.assembly.own import opened
from simfl.assembly.personal import mask_of, personal_of
from simfl.assembly.privacy import privacy_warnings, protect, qualified
from simfl.assembly.robust import (
    attackers_of,
    held_by_attackers,
    hostility_of,
    of_honest_clients,
    rule_of,
    with_flipped_labels,
)
from simfl.assembly.secure_sums import secure_sum_of
from simfl.assembly.selection import selector_of
from simfl.assembly.setup import NOTHING_OWN, Own, Setup, Start
from simfl.assembly.underlay import underlay_of
from simfl.assembly.world import availability, build_world, longest_batch_s
from simfl.compiled import is_compiled
from simfl.data import Dataset, Partition
from simfl.errors import DataError, RunError, ScenarioError, SimflError, nearest, raised
from simfl.models import AbstractModel, lazy
from simfl.privacy.correlated import InTime
from simfl.records.display import show_bytes
from simfl.records.tables import SCHEMAS, SPENT, TAKEN, WALL_CLOCK_COLUMNS, further_metrics
from simfl.scenario import Scenario
from simfl.scenario.control import OF_KNOWN_OPTIMA, OF_REGRESSIONS
from simfl.scenario.fields import LONGEST_S
from simfl.streams import Streams
from simfl.tape import LearningProblem, Tape
from simfl.tape.problem import (
    Batches,
    ClientData,
    Clipping,
    Drawing,
    Keys,
    LocalSteps,
    Measured,
    Noise,
    OwnTests,
    Tasks,
)
from simfl.tape.tuning import tuned_interpreter
from simfl.threads import one_thread
from simfl.world import World
from simfl.world.availability import MOST_OUTAGES

#: The most classes that one warning names.
MOST_NAMED = 8
#: The most training examples on which the training loss is measured.
LOSS_EXAMPLES = 2000

#: Changes data, partition and model of a scenario before anything is derived from them.
Adaptation = Callable[[Dataset, Partition, AbstractModel], tuple[Dataset, Partition, AbstractModel]]


def prepare(
    scenario: Scenario | Mapping[str, Any] | str | Path,
    device: str | None = None,
    *,
    model: Any = None,
    data: Any = None,
) -> Setup:
    """Check a scenario with its data files, and return the setup of its run.

    Arguments are those of `run`. Raises `ScenarioError` or `DataError` with one line that says what to change.
    """
    is_compiled()  # raises if a compiled module differs from its source
    own = Own(model, data)
    checked = opened(scenario, own)
    if device is not None or checked.execution.devices != "auto":
        from simfl.tape.executor import check_devices, choose_device  # imports JAX

        check_devices(choose_device(device), checked.execution.devices)
    return assemble(checked, own=own)


@one_thread()
@tuned_interpreter()
def assemble(scenario: Scenario, adapt: Adaptation | None = None, own: Own = NOTHING_OWN) -> Setup:
    """Load, build and check everything that a scenario needs.

    Args:
        scenario: valid.
        adapt: changes data, partition and model, for example to plant the canaries of an audit.
        own: objects that replace sections of the scenario.

    Raises:
        ScenarioError, DataError: with one line that says what to change.
    """
    scenario = opened(scenario, own)
    streams = Streams(scenario.seed)
    kind, algorithm = find_kind(scenario), find_algorithm(scenario.algorithm.kind)
    dataset, partition = divided(scenario, streams, own.data)
    tests = own_tests(scenario, dataset, partition, streams)
    model = model_of(scenario, dataset, own.model)
    dataset = of_honest_clients(
        scenario, streams, with_flipped_labels(scenario, streams, dataset, partition), partition
    )
    if "jax" in sys.modules:  # imported by a user's model, perhaps, which computes next
        lazy.start_jax()
    start = start_of(scenario, model)
    if adapt is not None:
        dataset, partition, model = adapt(dataset, partition, model)
    (topology, changing), underlay = graphs_of(scenario, streams), underlay_of(scenario, streams)
    setup = Setup(
        scenario, kind, algorithm, streams, dataset, partition, model, topology, underlay, start, changing, own, tests
    )
    setup.personal = personal_of(setup)
    _check(setup)
    setup.protection = qualified(kind.protection(setup) or protect(setup), setup)
    if setup.ledger is not None:
        setup.ledger.attackers = attackers_of(scenario, streams)
    setup.problem = _problem(setup)
    setup.training = _training(setup)
    _optimize(setup)
    setup.training = dataclasses.replace(setup.training, compression=compression_of(setup))
    setup.options = kind.options(setup)
    check_options(algorithm, setup.options)
    setup.warnings = [*scenario.warnings(), *setup.protection.warnings, *kind.warnings(setup), *_warnings(setup)]
    return setup


def build_algorithm(setup: Setup, world: World, tape: Tape, on_update: Callable[[Any], None]) -> Algorithm:
    """Return the scenario's algorithm, ready to start.

    Raises:
        RunError: its class has an error; its options are valid.
    """
    with algorithm_in_one_line(setup):
        return setup.algorithm(world, tape, setup.training, on_update, **setup.options)


def begin_world(setup: Setup, tape: Tape, updates: int) -> tuple[World, Algorithm]:
    """Return a world whose algorithm has started; it stops after some updates."""
    world = build_world(setup)
    algorithm = build_algorithm(setup, world, tape, lambda row: None)

    def end() -> int:
        world.clock.stop()
        return 2**62

    algorithm.marks.call, algorithm.marks.next = end, updates
    algorithm.start()
    return world, algorithm


@contextlib.contextmanager
def algorithm_in_one_line(setup: Setup) -> Iterator[None]:
    """Turn an error of an algorithm's code into a `RunError` of one line."""
    try:
        yield
    except (SimflError, KeyboardInterrupt):
        raise
    except BaseException as error:
        kind = setup.scenario.algorithm.kind
        raise RunError(f"{setup.scenario.name}: {kind}: {raised(error)}") from error


def _check(setup: Setup) -> None:
    """Check the scenario against its data."""
    scenario, sizes = setup.scenario, setup.sizes
    batch_size, smallest = scenario.algorithm.batch_size, int(np.argmin(sizes))
    if batch_size > sizes[smallest] and scenario.algorithm.small_clients == "refuse":
        allow = "" if "small_clients" in scenario.algorithm.reasons() else "add small_clients: use_all, "
        raise ScenarioError(
            f"algorithm.batch_size: expected at most {sizes[smallest]}, the examples of client {smallest}, "
            f"found {batch_size}; lower it, {allow}or use fewer clients (clients.count is {len(sizes)}) or larger parts"
        )
    if scenario.stop.accuracy is not None and not setup.model.has_accuracy:
        raise ScenarioError(
            f"stop.accuracy: expected a model with an accuracy, found '{setup.model.kind}'; give it a predict, or a "
            "metric of this name"
        )
    _check_measures(setup)
    gradients, examples = scenario.evaluate.gradients, len(setup.dataset.train_x)
    if gradients > examples:
        expected = f"at most {examples}, the examples of the training set"
        raise ScenarioError(f"evaluate.gradients: expected {expected}, found {gradients}; lower it")
    setup.links  # noqa: B018 - raises errors of files
    _check_memory(setup)
    if any(rule.trace is not None for rule in scenario.availability):
        availability(scenario, setup.streams)
    longest_s, where = longest_batch_s(setup)
    if not longest_s <= LONGEST_S:
        raise ScenarioError(
            f"{where}: expected mini-batches of at most {LONGEST_S:g} s, found one of {longest_s:.3g} s; lower it"
        )
    for index, rule in enumerate(scenario.availability):
        every_s = rule.every or math.inf
        if longest_s > MOST_OUTAGES * every_s:
            raise ScenarioError(
                f"availability.{index}.every: expected at most {MOST_OUTAGES:,} absences of a client during one "
                f"mini-batch, which takes up to {longest_s:.3g} s, found one every {every_s:.3g} s; choose a longer "
                "time"
            )
    privacy = scenario.privacy
    if privacy is not None and privacy.partial and setup.noisy is None:
        raise ScenarioError(
            f"privacy.noise_on: found 'first_convolution' with model '{setup.model.kind}', expected a convolutional "
            "model; use noise_on: all, or model kind: cnn"
        )


def _check_memory(setup: Setup, rows: int = 0) -> None:
    """Reject devices too small for model, gradient, optimizer rows and a batch."""
    scenario = setup.scenario
    if setup.devices is None:
        return
    batch = scenario.algorithm.batch_size * int(np.prod(setup.dataset.input_shape))
    needed_bytes = 4 * ((2 + rows) * setup.moved.size + batch)
    smallest = min(setup.devices, key=lambda device: device.memory)
    if smallest.memory < needed_bytes:
        raise DataError(
            f"clients.devices: {scenario.clients.devices}:{smallest.line}: memory: expected at least "
            f"{show_bytes(needed_bytes)} for the model, its gradient and a mini-batch, found "
            f"{show_bytes(smallest.memory)} ({smallest.name}); lower algorithm.batch_size, or take a smaller model"
        )


def _optimize(setup: Setup) -> None:
    """Add the optimizers to the problem and the training."""
    optimizers = optimizers_of(setup, setup.training.initial)
    setup.problem = dataclasses.replace(setup.problem, optimizing=optimizers.optimizing)
    setup.training = dataclasses.replace(
        setup.training, optimizer=optimizers.client, server_optimizer=optimizers.server
    )
    if optimizers.rows:
        _check_memory(setup, optimizers.rows)


def _check_measures(setup: Setup) -> None:
    """Reject metrics that the model cannot have, and a goal without a metric."""
    model, stop, metrics = setup.model, setup.scenario.stop, _further_measures(setup.scenario)
    taken = next((name for name in model.metric_names if name in {*TAKEN, *metrics}), None)
    if taken is not None:
        raise ScenarioError(f"model: {model.kind}: metrics: {taken}: expected another name, this one is in use already")
    for name in (name for name in metrics if name not in OF_KNOWN_OPTIMA):
        fits = model.fits_targets if name in OF_REGRESSIONS else model.has_accuracy and setup.dataset.num_classes
        if not fits:
            what = "predictions of targets" if name in OF_REGRESSIONS else "classes and predictions"
            raise ScenarioError(f"evaluate.metrics: expected {what} with model '{model.kind}' for {name!r}, found none")
    privacy = setup.scenario.privacy
    adapted = privacy is not None and privacy.adaptive is not None
    named = (*setup.columns, *metrics, *(SPENT if meter_of(setup) else ()))
    further = further_metrics(bool(setup.scenario.evaluate.gradients), named, adapted)
    columns = [name for name in (*SCHEMAS["metrics"].names, *further.names) if name not in WALL_CLOCK_COLUMNS]
    if stop.metric is not None and stop.metric not in columns:
        raise ScenarioError(
            f"stop.metric: expected a column of metrics, one of {', '.join(columns)}, found {stop.metric!r}"
            f"{nearest(stop.metric, columns)}"
        )
    of_training = (*OF_KNOWN_OPTIMA, "worst_decile")
    tested = {"test_loss", "test_accuracy", *setup.of_clients, *model.metric_names}
    tested |= {name for name in metrics if name not in of_training}
    if setup.of_validation and stop.metric in tested:
        raise ScenarioError(
            f"stop.metric: expected a column that is not of the test set, since data.validation decides, found "
            f"{stop.metric!r}; choose one of {', '.join(setup.of_validation)}"
        )


def _further_measures(scenario: Scenario) -> tuple[str, ...]:
    """Return the metrics that are listed, and the one that ends the run."""
    listed = scenario.evaluate.metrics
    goal = scenario.stop.suboptimality is not None and "suboptimality" not in listed
    return (*listed, "suboptimality") if goal else listed


def _problem(setup: Setup) -> LearningProblem:
    """Return the problem that the executor computes."""
    dataset, partition, protection = setup.dataset, setup.partition, setup.protection
    streams, learning = setup.streams, setup.learning
    correlation, sampling = protection.correlation, setup.kind.sampling
    stays = setup.kind.keeps_table or isinstance(correlation, InTime)
    drawing: Drawing = "same_order" if sampling == "shuffle" and stays else sampling
    further = _further_measures(setup.scenario)
    known = not {*OF_KNOWN_OPTIMA}.isdisjoint(further)
    hostile = attackers_of(setup.scenario, streams)
    order = streams.generator("loss-examples").permutation(len(dataset.train_x))
    if hostile:
        order = order[~np.isin(order, held_by_attackers(partition, hostile))]
    honest = np.array([client for client in range(partition.num_clients) if client not in hostile]) if hostile else None
    arrays = dataset.train_x, dataset.train_y, dataset.test_x, dataset.test_y
    indices, offsets = np.asarray(partition.indices, dtype=np.int32), np.asarray(partition.offsets, dtype=np.int64)
    form = correlation.form if correlation else None
    own_norms = setup.scenario.algorithm.uses.gradient == "own_norm"
    of_kind, personal = setup.kind.problem(setup), setup.scenario.personal
    if setup.personal is not None and personal is not None and personal.steps is not None:
        mask = mask_of(setup.personal)
        rounds = dataclasses.replace(of_kind["rounds"], personal=mask, personal_steps=personal.steps)
        of_kind = {**of_kind, "rounds": rounds}
    return LearningProblem(
        model=setup.moved,
        data=ClientData(*arrays, indices, offsets, dataset.scaling),
        batches=Batches(drawing, setup.scenario.algorithm.batch_size),
        keys=Keys(*map(learning.key, ("data", "noise", "maps", "augment", "dropout"))),
        measured=Measured(
            np.sort(order[:LOSS_EXAMPLES]),
            setup.scenario.evaluate.gradients,
            further,
            honest,
            dataset.optimum if known else None,
            dataset.suboptimality if known else None,
            np.sort(order) if hostile else None,
            () if dataset.validation is None else (dataset.validation,),
            _own_tests(setup, honest),
        ),
        clipping=Clipping(protection.clipping_norm, protection.clip, own_norms),
        noise=Noise(protection.sampler, setup.noisy, form) if max(protection.scales) > 0.0 else None,
        correlation=correlation,
        tasks=Tasks(setup.tasks, setup.model) if setup.tasks > 1 else None,
        augment=augmentation_of(setup.scenario, dataset),
        **of_kind,
    )


def _own_tests(setup: Setup, honest: NDArray[np.int64] | None) -> OwnTests | None:
    """Return what evaluations measure on clients' own test examples."""
    evaluate, tests = setup.scenario.evaluate, setup.tests
    if tests is None:
        return None
    local = None
    if evaluate.local_steps:
        if setup.tasks > 1:
            raise ScenarioError(
                f"evaluate.local_steps: expected 0 with {setup.scenario.algorithm.kind!r}, whose model is several that "
                f"are trained apart, found {evaluate.local_steps}"
            )
        step_size = evaluate.local_step_size or setup.kind.step_size(setup).simplified()
        size = float(step_size(0, 0, 0.0) if callable(step_size) else step_size)
        trained = None if setup.personal is None or evaluate.local_parts == "all" else mask_of(setup.personal)
        local = LocalSteps(evaluate.local_steps, size, setup.learning.key("own-steps"), trained)
    return OwnTests(tests.indices, tests.offsets, honest, local)


def _training(setup: Setup) -> Training:
    """Return the plain values of local training."""
    kind, protection, model, start = setup.kind, setup.protection, setup.moved, setup.start
    stop, sizes = setup.scenario.stop, setup.sizes.tolist()
    begun = None if start is None else _continued(setup, start)
    return Training(
        initial=np.asarray(model.init(setup.learning.key("init")), dtype=np.float32) if begun is None else begun[0],
        sizes=setup.sizes,
        batch_size=setup.scenario.algorithm.batch_size,
        sampling=kind.sampling,
        step_size=kind.step_size(setup).simplified(),
        l2=model.l2,
        noise_std=protection.stds,
        noise_scale=protection.scales,
        allowances=kind.allowances(setup),
        tasks=setup.tasks,
        tasks_initial=begun if setup.tasks > 1 else None,
        update_examples=kind.update_examples(sizes),
        clipping_norm=math.inf if protection.clipping_norm is None else protection.clipping_norm,
        rule=rule_of(setup),
        hostility=hostility_of(setup),
        cohorts=protection.cohorts,
        streams=setup.learning,
        personal=setup.personal,
        secure_sum=secure_sum_of(setup),
        selector=selector_of(setup.scenario),
        planned_updates=kind.planned_updates(sizes) * len(sizes) if stop.updates or stop.epochs else math.inf,
    )


def _continued(setup: Setup, start: Start) -> NDArray[np.float32]:
    """Return the initial models of tasks, f32 [tasks, d], from the model in a file."""
    canaries = setup.model.size - len(start.params)  # coordinates that an audit adds
    models = np.pad(start.params, (0, canaries)).reshape(setup.tasks, -1)
    radius, norm = setup.problem.radius, float(np.linalg.norm(models, axis=1).max())
    if radius is not None and norm > radius * (1 + 1e-6):
        raise ScenarioError(
            f"init.from: {start.path}: expected a model in the ball of radius {radius:g} onto which this algorithm "
            f"projects, found one of norm {norm:g}; use one that it made"
        )
    return models


def _classes_left_out(setup: Setup) -> Iterator[str]:
    """Yield a warning if there are classes of which no client has an example."""
    data, indices = setup.dataset, setup.partition.indices
    if not data.num_classes or data.tokens or data.train_y.ndim != 1:
        return
    counts = np.bincount(data.train_y, minlength=data.num_classes)
    left_out = np.flatnonzero((counts > 0) & (np.bincount(data.train_y[indices], minlength=data.num_classes) == 0))
    if not len(left_out):
        return
    names = ", ".join(str(data.class_labels[number]) for number in left_out[:MOST_NAMED])
    more = ", ..." * (len(left_out) > MOST_NAMED)
    advice = ""
    if setup.scenario.data.partition.kind == "by_label":
        advice = f"; for all classes, let clients.count times labels_per_client be at least {data.num_classes}"
    yield (
        f"data.partition: no client has an example of {len(left_out)} of {data.num_classes} classes ({names}{more}): "
        f"{counts[left_out].sum():,} of {len(data.train_y):,} training examples are left out{advice}"
    )


def _warnings(setup: Setup) -> Iterator[str]:
    """Yield the warnings that depend on the data."""
    measured = {*OF_KNOWN_OPTIMA} & {*_further_measures(setup.scenario)}
    if measured and is_known(setup) and (warning := uneven_weights(setup)) is not None:
        yield warning
    yield from privacy_warnings(setup)
    yield from _classes_left_out(setup)
    if unread := setup.topology.unread:
        path = getattr(setup.scenario.topology, "path", "")
        yield (
            f"topology.path: {path}: of a graph only nodes and links are read, and their latency, bandwidth and "
            f"loss, not {' and '.join(unread)}; links and clients.speed say how fast they are"
        )
    if setup.tests is not None and (without := int((setup.tests.sizes == 0).sum())):
        clients = f"{without} of {len(setup.sizes)} clients"
        yield f"evaluate.clients: own: {clients} have no test example, and count in no mean"
    if setup.ledger is not None and setup.scenario.evaluate.local_steps:
        yield (
            "evaluate.local_steps: each client trains without noise for its own test; nothing of it is sent, and no "
            "epsilon covers the measured accuracy"
        )
    ledger = setup.ledger
    if ledger is not None and not ledger.counts_holders and setup.scenario.data.partition.kind == "resample":
        yield (
            "data.partition: resample may give one example to several clients; epsilon counts the releases of one "
            "client, and what an example loses through all of them together is more"
        )
