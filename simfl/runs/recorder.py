"""The recorder: writes a run's tables, models and manifest."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simfl.algorithms.secure_sums import SecureSums
from simfl.algorithms.server import ServerAlgorithm
from simfl.assembly.costs import meter_of
from simfl.assembly.privacy import annotated
from simfl.errors import RunError
from simfl.privacy.cohorts import CohortPlan, CohortTally, OnCohort
from simfl.privacy.ledger import greatest
from simfl.records import RunFolder, TableWriter
from simfl.records.folder import digest_text
from simfl.records.models import write_models as write_parts
from simfl.records.tables import DISTANCE, MOST_EDGES, SPENT, USER, further_metrics, further_of_clients
from simfl.records.writer import Amend, SharedRows
from simfl.runs.context import Context
from simfl.runs.manifests import manifest_of
from simfl.runs.timeline import Timeline
from simfl.tape.executor import Evaluation

#: Rows reach the system after this many host seconds, or this share of the run's host seconds if that is more. A
#: killed process loses at most these rows, and a long run is not cut into small pieces.
FLUSH_S = 1.0
FLUSH_SHARE = 0.001


class Recorder:
    """Writes the tables, the models and the manifest of a run.

    The manifest also has `sources` (see `sources_of_run`) and the number of times that the run was `resumed`.
    """

    def __init__(self, context: Context, folder: RunFolder, sources: dict[str, Any], resumed: int) -> None:
        self._context = context
        self._folder = folder
        #: What the manifest has of the folder's files and of the time before the run.
        self._facts: dict[str, Any] = {**sources, "resumed": resumed}
        self._tables: dict[str, TableWriter] = {}
        #: Changes to rows when a table is closed, by table.
        self._amendments: dict[str, Amend] = {}
        self._timeline: Timeline | None = None
        self._meter = meter_of(context.setup)
        self._flushed_s = time.perf_counter()

    def open(self) -> None:
        """Write the scenario and a first manifest, and open the tables."""
        context, setup, folder = self._context, self._context.setup, self._folder
        text = annotated(setup)
        self._facts["scenario_text"] = digest_text(text)
        folder.write_scenario(text)
        folder.write_manifest(manifest_of(context, self._facts, {}))
        record, ledger = setup.scenario.record, setup.ledger
        names = ["metrics", "clients"]
        names += ["updates"] * record.updates + ["messages"] * record.messages + ["timeline"] * record.timeline
        names += ["client_metrics"] * context.each_client
        names += ["aggregation"] * (setup.training.rule is not None)
        names += ["secure_sums"] * (setup.training.secure_sum is not None)
        if ledger is not None:
            names += ["releases"] + ["uses"] * ledger.by_passes + ["cohorts"] * ledger.counts_cohorts
            names += ["client_epsilon"] * (ledger.accounted and record.epsilon)
        measured = setup.problem.measured
        named = (*setup.columns, *measured.further, *(SPENT if self._meter else ()))
        adapted = self._plan is not None and self._plan.adaptive is not None
        columns = further_metrics(bool(measured.gradient_examples), named, adapted)
        of_clients = further_of_clients(self._further_of_clients())
        further = {"metrics": columns, "client_metrics": DISTANCE, "clients": of_clients}
        if USER.names[0] in of_clients.names:
            further["cohorts"] = USER
        self._tables = {name: folder.table(name, further=further.get(name)) for name in names}
        edges = list(itertools.islice(context.algorithm.pairs(), MOST_EDGES + 1))
        if len(edges) <= MOST_EDGES:
            with folder.table("edges") as table:
                table.extend(edges)

    def listen(self, others: Sequence[Recorder] = ()) -> None:
        """Take the rows of events, together with the recorders of a group."""
        context, record = self._context, self._context.setup.scenario.record
        if record.updates:
            context.algorithm.on_update = self._heard("updates", others)
        if record.messages:
            context.session.on_message = self._heard("messages", others)
        releases = context.session.tape.releases
        if isinstance(releases, CohortTally):
            releases.on_cohort = self._released(self._heard("cohorts", others))
        if isinstance(context.algorithm, ServerAlgorithm) and isinstance(context.algorithm.gathering, SecureSums):
            context.algorithm.gathering.on_sum = self._heard("secure_sums", others)
        if record.timeline:
            self._timeline = Timeline(context.algorithm, self._heard("timeline", others))
            for other in others:
                other._timeline = self._timeline

    def _heard(self, name: str, others: Sequence[Recorder]) -> Callable[[Sequence[Any]], None]:
        """Return what takes the rows of a table."""
        if not others:
            return self._tables[name].append
        return SharedRows([recorder._tables[name] for recorder in (self, *others)]).append

    def _released(self, append: Callable[[Sequence[Any]], None]) -> OnCohort:
        """Return what writes who is in a sum of updates that the server releases."""
        plan = self._plan
        user_of = None if plan is None or plan.users is None else plan.user_of

        def released(number: int, time_s: float, members: Mapping[int, int]) -> None:
            for client, count in sorted(members.items()):
                append((number, time_s, client, count, *(() if user_of is None else (user_of(client),))))

        return released

    def flush(self, wall_s: float) -> None:
        """Flush the tables from time to time; `wall_s` is the host time so far."""
        now = time.perf_counter()
        if now - self._flushed_s >= max(FLUSH_S, FLUSH_SHARE * wall_s):
            for table in self._tables.values():
                table.flush()
            self._flushed_s = time.perf_counter()

    def spent_epsilon(self) -> float:
        """Return the largest epsilon spent, and record each client's; NaN without privacy."""
        ledger = self._context.setup.ledger
        if ledger is None:
            return float("nan")
        account = self._context.account()
        if "client_epsilon" not in self._tables:
            return ledger.largest(account)
        spent = ledger.epsilon(account)
        count = len(spent)
        self._tables["client_epsilon"].extend_columns(
            {
                "time_s": np.full(count, self._context.world.clock.now),
                "client": np.arange(count, dtype=np.int32),
                "releases": self._release_counts(),
                "epsilon": spent,
            }
        )
        return greatest(spent)

    def spent(self) -> dict[str, float]:
        """Return energy, money and carbon so far, by column; empty without `costs`."""
        if self._meter is None:
            return {}
        world, times = self._context.world, self._context.algorithm.times
        clients, now = range(world.num_clients), world.clock.now
        return self._meter.read(
            now,
            np.array([times.computed_s(k) for k in clients]),
            np.array([times.present_s(k, 0.0, now) for k in clients]),
            np.array([traffic.sent_bytes for traffic in world.network.traffic], dtype=np.int64),
        )

    def evaluated(self, taken: dict[str, float], evaluation: Evaluation, wall_s: float) -> dict[str, float]:
        """Write an evaluation's rows; return the row of `metrics` by column.

        `taken` holds the columns that do not depend on the models.
        """
        table = self._tables["metrics"]
        row = {**vars(evaluation), **evaluation.further, **taken, "wall_s": wall_s}
        table.append([row[name] for name in table.schema.names])
        own = evaluation.client_loss, evaluation.client_accuracy, evaluation.client_distance
        if own[0] is not None and own[1] is not None and own[2] is not None:
            count = len(own[0])
            self._tables["client_metrics"].extend_columns(
                {
                    "time_s": np.full(count, taken["time_s"]),
                    "updates": np.full(count, taken["updates"], dtype=np.int64),
                    "client": np.arange(count, dtype=np.int32),
                    "test_loss": own[0],
                    "test_accuracy": own[1],
                    "consensus_distance": own[2],
                }
            )
        return {name: float(row[name]) for name in table.schema.names}

    def aggregated(self, time_s: float, pairs: list[tuple[int, int, int]], sums: NDArray[np.float32]) -> None:
        """Write how much of the messages (receiver, sender, number) counted."""
        receivers, senders, counts = np.array(pairs, dtype=np.int64).T
        self._tables["aggregation"].extend_columns(
            {
                "time_s": np.full(len(pairs), time_s),
                "receiver": receivers.astype(np.int32),
                "sender": senders.astype(np.int32),
                "messages": counts,
                "accepted": sums / counts,
            }
        )

    def write_models(self) -> None:
        """Write the trained models, and count the gradients set to zero."""
        clip = self._context.setup.problem.clipping.clip
        if clip is not None:
            self._facts["released_as_zero"] = zeroed = self._context.journal.zeroed()
            noun = {"example": "gradient", "update": "update"}[clip]
            noun, verb = (f"{noun}s", "were") if zeroed != 1 else (noun, "was")
            if zeroed:
                self._context.warn(f"privacy: {zeroed:,} {noun} {verb} not finite and {verb} released as zero")
        self._facts["models"] = write_models(self._context, self._folder)

    def write_clients(self) -> None:
        """Write `clients`, `releases` and `uses`, if the run opened them."""
        if not self._tables:
            return
        context, setup = self._context, self._context.setup
        algorithm, world = context.algorithm, context.world
        count, now = world.num_clients, world.clock.now
        for table in self._tables.values():
            table.leave()  # the others of a group may go on
        if self._timeline is not None:
            self._timeline.close(self._tables["timeline"].append)
        ledger, epsilon = setup.ledger, np.full(count, np.nan)
        if ledger is not None:
            account = context.account()
            self._tables["releases"].extend(ledger.kinds(account))
            if "uses" in self._tables:
                self._tables["uses"].extend(ledger.copies(account))
            epsilon = ledger.final_epsilon(account)
        self._amend_metrics(None if ledger is None else epsilon)
        self._tables["clients"].extend_columns(
            {
                "client": np.arange(count, dtype=np.int32),
                "samples": setup.training.sizes,
                "updates": np.array(algorithm.client_updates, dtype=np.int64),
                "dropped": np.array(algorithm.client_dropped, dtype=np.int64),
                "compute_s": np.array([algorithm.times.computed_s(k) for k in range(count)]),
                "wait_s": np.array([algorithm.times.waited_s(k) for k in range(count)]),
                "communicate_s": np.array([algorithm.times.communicated_s(k) for k in range(count)]),
                "offline_s": np.array([world.availability.offline_s(k, now) for k in range(count)], dtype=float),
                "bytes": np.array([traffic.sent_bytes for traffic in world.network.traffic[:count]], dtype=np.int64),
                "epsilon": epsilon,
                "delta": np.full(count, np.nan if ledger is None else ledger.delta),
                "exhausted_s": np.array([algorithm.budgets.spent_s.get(k, np.nan) for k in range(count)]),
                **self._further_of_clients(),
            }
        )

    @property
    def _plan(self) -> CohortPlan | None:
        """How a server releases sums of users' updates; None if it does not."""
        return self._context.setup.training.cohorts

    def _further_of_clients(self) -> dict[str, NDArray[Any]]:
        """Return the columns of `clients` that some scenarios add, by name."""
        context, setup, plan = self._context, self._context.setup, self._plan
        hostility = setup.training.hostility
        columns: dict[str, NDArray[Any]] = {}
        if setup.devices is not None:
            columns["device"] = np.array([device.name for device in setup.devices])
        if hostility is not None:
            columns["attacker"] = np.isin(np.arange(len(setup.training.sizes)), list(hostility.clients))
        if plan is not None and plan.gate is not None:
            columns["early"] = np.array(context.algorithm.client_early, dtype=np.int64)
        if plan is not None and plan.users is not None:
            columns["user"] = np.array(plan.users, dtype=np.int32)
        return columns

    def abort(self) -> None:
        """Discard the tables."""
        for table in self._tables.values():
            table.abort()

    def close(self) -> RunError | None:
        """Complete the tables and write the last manifest; return the disk's error."""
        context = self._context
        failure: RunError | None = None
        for name, table in sorted(self._tables.items(), key=lambda item: item[1].num_rows):
            try:
                table.close(self._amendments.get(name))
            except Exception as error:  # go on: the other tables can be completed
                if context.status != "failed":
                    context.status, context.reason = "failed", str(error)
                failure = failure or RunError(str(error))
        try:
            self._folder.write_manifest(manifest_of(context, self._facts, self._folder.digests()))
        except RunError as error:
            failure = failure or error
        return failure

    def _release_counts(self) -> NDArray[np.int64]:
        return np.array(self._context.algorithm.releases.totals(), dtype=np.int64)

    def _amend_metrics(self, final: NDArray[np.float64] | None) -> None:
        """Write the final counts and epsilons f64 [K] into the last rows.

        The event that ends a run may still send a message after the last evaluation. Rows of earlier times are capped:
        earlier releases are part of the final epsilon.
        """
        context = self._context
        now, updates, network = context.world.clock.now, context.algorithm.updates, context.world.network
        counts = {"rounds": context.algorithm.rounds, "bytes_sent": network.bytes_sent, "messages": network.messages}
        amounts = {**counts, **self.spent()}

        def metrics(rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            last = (rows["time_s"] == now) & (rows["updates"] == updates)
            amended = {name: np.where(last, count, rows[name]) for name, count in amounts.items()}
            if final is not None:
                largest = greatest(final)
                amended["epsilon"] = np.where(last | (rows["epsilon"] > largest), largest, rows["epsilon"])
            return amended

        self._amendments = {"metrics": metrics}
        if final is None:
            return
        releases = self._release_counts()

        def clients(rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            last = (rows["time_s"] == now) & (rows["releases"] == releases[rows["client"]])
            epsilon = final[rows["client"]]
            return {"epsilon": np.where(last | (rows["epsilon"] > epsilon), epsilon, rows["epsilon"])}

        self._amendments["client_epsilon"] = clients


def write_models(context: Context, folder: RunFolder) -> dict[str, str]:
    """Write the current model, and the clients' if wanted; return digests by name."""
    tape, algorithm, model = context.tape, context.algorithm, context.setup.model
    each_model = algorithm.client_models() if context.keeps_each else ()  # may record how they are made
    tape.flush()
    mean = context.executor.mean(*tape.forms(algorithm.evaluated()))
    digests = {"model": write_parts(folder.models_path("model"), model.parts(mean))}
    if context.keeps_each:
        # Not through the journal: the world does not see these numbers.
        each = context.executor.fetch(*tape.forms(each_model)).reshape(-1, model.size)
        digests["client_models"] = write_parts(folder.models_path("client_models"), model.parts(each))
    return digests
