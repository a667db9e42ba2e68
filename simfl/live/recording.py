"""Writes the tables of a live run."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.assembly.setup import Setup
from simfl.assembly.world import availability
from simfl.live.coordinator import Mark, Row
from simfl.live.transport import Vector
from simfl.records import Manifest, RunFolder
from simfl.records.folder import combine_digests, digest_text
from simfl.records.models import write_models
from simfl.records.tables import VALIDATION, further_metrics
from simfl.tape.evaluation import Evaluator
from simfl.tape.executor import choose_device


@dataclass(frozen=True)
class Snapshot:
    """The models at a mark."""

    mark: Mark
    mean: Vector  # of the clients' models, or the server's model, f32 [d]
    consensus_distance: float  # root mean square distance of the clients' models to their mean


@dataclass(frozen=True)
class Outcome:
    """A live run."""

    rows: list[Row]  # updates in order of time
    snapshots: list[Snapshot]  # at the marks and at the end, in order
    clients: NDArray[np.float64]  # compute_s, communicate_s, bytes, messages, late_s of each client, [K, 5]
    server: tuple[int, int]  # bytes and messages that a server sent
    status: str  # status and reason as in a manifest
    reason: str
    time_s: float  # when the run ended
    wall_s: float  # its duration, including setting up
    about: dict[str, Any]  # further entries of the manifest


def write(setup: Setup, outcome: Outcome, root: Path, warnings: list[str]) -> Path:
    """Write the folder of a live run and return its path.

    Bytes and messages at a mark are the run's totals times the share of its time: processes have no common counter.
    """
    scenario, model, training = setup.scenario, setup.model, setup.training
    folder = RunFolder.create(root, scenario.name)
    text = scenario.to_yaml()
    folder.write_scenario(text)
    data = setup.problem.data
    evaluator = Evaluator(model, choose_device("cpu"), data.scaling)
    loss_examples = setup.problem.measured.loss_examples
    train = evaluator.examples(data.train_x[loss_examples], data.train_y[loss_examples])
    sets = [evaluator.examples(data.test_x, data.test_y)]
    sets += [] if setup.dataset.validation is None else [evaluator.examples(*setup.dataset.validation)]
    count, rows, nan = scenario.clients.count, outcome.rows, float("nan")
    sent = outcome.clients[:, 2:4].sum(axis=0) + np.array(outcome.server)
    per_update = training.update_examples or training.batch_size
    with folder.table("metrics", further=further_metrics(False, VALIDATION[: 2 * len(sets) - 2])) as table:
        for snapshot in outcome.snapshots:
            mark = snapshot.mark
            train_loss = evaluator.measure(snapshot.mean, train)[0]
            of_test, *of_validation = (evaluator.measure(snapshot.mean, examples)[:2] for examples in sets)
            share = mark.time_s / outcome.time_s if outcome.time_s else 0.0
            epochs = mark.updates * per_update / float(training.sizes.sum())
            progress = (mark.time_s, mark.updates, epochs, mark.updates // count)
            numbers = (train_loss, *of_test, snapshot.consensus_distance, *np.floor(share * sent).tolist())
            table.append((*progress, *numbers, nan, mark.time_s, *itertools.chain(*of_validation)))
    if scenario.record.updates:
        with folder.table("updates") as table:
            for row in rows:
                table.append(
                    (row.time_s, row.client, row.peer, row.round_num, row.staleness, row.size, row.step_size, 0.0)
                )
    updates = np.bincount([row.client for row in rows], minlength=count)
    presence = availability(scenario, setup.streams)
    with folder.table("clients") as table:
        for k, (compute_s, communicate_s, sent_bytes, _, _) in enumerate(outcome.clients.tolist()):
            offline_s = presence.offline_s(k, outcome.time_s)
            wait_s = max(0.0, outcome.time_s - compute_s - communicate_s - offline_s)
            times = (compute_s, wait_s, communicate_s, offline_s)
            table.append((k, int(training.sizes[k]), int(updates[k]), 0, *times, int(sent_bytes), nan, nan, nan))
    digests = folder.digests()
    extra = {
        "scenario_digest": scenario.digest(),
        "scenario_text": digest_text(text),
        "model_size": model.size,
        "sampling": training.sampling,
        "warnings": warnings,
        "models": {"model": write_models(folder.models_path("model"), model.parts(outcome.snapshots[-1].mean))},
        "live": {**outcome.about, "late_s": float(outcome.clients[:, 4].sum())},
    }
    folder.write_manifest(
        Manifest(
            status=outcome.status,  # type: ignore[arg-type]
            seed=scenario.seed,
            device="cpu",
            reason=outcome.reason,
            wall_s=outcome.wall_s,
            time_s=outcome.time_s,
            updates=len(rows),
            digest=combine_digests(digests),
            tables=digests,
            extra=extra,
        )
    )
    return folder.path
