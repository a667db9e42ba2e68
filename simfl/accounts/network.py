"""Account for what every observer of a network learned about every client.

The world of a scenario is played without arithmetic (`simfl.accounts.replay`); every message is recorded as a linear
form of noisy gradients. `simfl.accounts.views` computes what an observer learns from the messages to it. The ledger's
account of each client is that of an observer that sees everything that the client ever sent. The smaller epsilon of the
two is certified.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simfl.accounts.exact import Residues, rank_modulo
from simfl.accounts.knowledge import MOST_ENTRIES, Sight
from simfl.accounts.replay import Replay
from simfl.accounts.tables import write_knowledge
from simfl.accounts.views import View, error_of, recovered, rounding_of, unexplained
from simfl.assembly.assemble import assemble
from simfl.assembly.own import opened
from simfl.assembly.setup import NOTHING_OWN, Own, Setup
from simfl.errors import ScenarioError
from simfl.privacy.assumptions import assumptions_of_view
from simfl.privacy.gaussian import gaussian_epsilon
from simfl.privacy.releases import Releases
from simfl.privacy.terms import OF_HOLDERS
from simfl.scenario import Scenario, from_mapping, load
from simfl.threads import one_thread

Sees = Literal["messages", "neighbor_sums"]

Target = Scenario | Setup | Mapping[str, Any] | str | Path
Matrix = NDArray[np.float64]
Matrices = tuple[NDArray[Any], NDArray[Any]]

#: The observer of every message.
LINKS = "links"
#: Maximum number of multiplications for the closures of all observers: half a minute.
MOST_WORK = 2.0**37
#: Maximum number of multiplications of `Network.check` for a node: some ten seconds.
MOST_CHECKED = 2.0**33
#: Levels of noise are rounded down to powers of this step, and levels above the largest count as the largest. Accounts
#: of batches of fixed size take more time, so their step is larger.
LEVEL_STEP, FIXED_LEVEL_STEP = 1.02, 1.1
MOST_LEVEL = 500.0


@dataclass(frozen=True)
class NetworkReport:
    """What every observer knows about every client; `edges` is as in `Network.edges`.

    `pairs` has a row for every time, observer and client that is not a part of it: `time_s`; `observer`, its nodes
    joined by "+", "server" or "links"; `client`; `distance` between them over used links, in hops; number of `messages`
    that arrived; mu of Gaussian views, without amplification by sampling: as published (`published_mu`), of the closure
    (`pairwise_mu`, NaN if that is too large to compute or rounding may hide a part) and of an observer of each gradient
    (`local_mu`); epsilons, with amplification: `published` (not certified), `pairwise`, `local` (see `local_epsilons`);
    `epsilon`, the smaller one of the certified two, and the `account` that it comes from.
    """

    scenario: str
    delta: float
    sees: str
    statement: str
    gradients: int
    messages: int
    pairs: pd.DataFrame = field(repr=False)
    edges: pd.DataFrame = field(repr=False)
    assumptions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ReconstructionReport:
    """The gradients that every observer can solve for.

    `pairs` has a row for every observer and client that is not a part of it: `observer`, `client` and `distance` as in
    `NetworkReport`; numbers of `gradients` of the client and of `recovered` ones; the standard deviation `std` of the
    best estimate, per coordinate of a sum of clipped gradients; the same if all gradients of a client are equal
    (`slow_recovered`, `slow_std`), and the relative error of the latter in 32-bit messages without noise
    (`slow_rounding`).
    """

    scenario: str
    gradients: int
    messages: int
    pairs: pd.DataFrame = field(repr=False)


@dataclass(frozen=True)
class Observer:
    """Nodes that combine their messages; without nodes, an observer of all links."""

    name: str
    nodes: frozenset[int]

    def saw(self, sight: Sight) -> bool:
        """Whether a message reached it before the end."""
        return not self.nodes or (sight.target in self.nodes and sight.came_s < math.inf)


def opened_target(target: Scenario | Mapping[str, Any] | str | Path, own: Own = NOTHING_OWN) -> Scenario:
    """Return a scenario, or that of a file or of the folder of a run.

    Raises:
        ScenarioError: a run did not end as its scenario says.
    """
    if isinstance(target, str | Path) and Path(target).is_dir():
        from simfl.records import read  # only here: a scenario needs no tables

        run = read(target)
        if run.status != "done":
            raise ScenarioError(
                f"{target}: expected a run that is done, found one that is {run.status}: a replay ends where the "
                "scenario does; resume it, or name the scenario"
            )
        return from_mapping(run.scenario, str(target))
    return opened(load(target) if isinstance(target, str | Path) else target, own)


class Network:
    """The network of a scenario, replayed.

    Args:
        target: a scenario, the path of one, the folder of a run, or the result of `prepare`.
        own: objects that were given from Python.

    Raises:
        ScenarioError: events depend on data, or no account of this kind is known.
    """

    def __init__(self, target: Target, own: Own = NOTHING_OWN) -> None:
        self.setup: Setup = target if isinstance(target, Setup) else assemble(opened_target(target, own), own=own)
        self.replay = Replay(self.setup)
        self.knowledge = self.replay.knowledge
        self.count = self.setup.scenario.clients.count
        self._prepared: tuple[dict[int, int], Matrix, Matrix] | None = None
        self._checked: dict[tuple[Observer, Sees], bool] = {}
        self._residues: tuple[dict[int, int], Residues, Residues] | None = None

    # -- observers -----------------------------------------------------------------------------

    @property
    def servers(self) -> list[int]:
        """Nodes other than clients: the server first, then aggregators."""
        return list(range(self.count, len(self.replay.algorithm.world.network.traffic)))

    def require_linear(self, what: str) -> None:
        """Reject functions of models, whose results are not linear forms of gradients.

        Raises:
            ScenarioError: the algorithm uses `Tape.map`.
        """
        if self.knowledge.has_functions:
            raise ScenarioError(
                f"{what}: expected messages that are linear forms of gradients, found functions of models "
                f"({self.setup.scenario.algorithm.kind} uses tape.map); an account of the network is possible: "
                "simfl privacy network"
            )

    def observer(self, nodes: Iterable[int | str]) -> Observer:
        """Return the observer of nodes: clients by number, "server", or "links".

        Raises:
            ScenarioError: a node does not exist.
        """
        numbers, names = set(), []
        for node in nodes:
            if node == LINKS:
                return Observer(LINKS, frozenset())
            if node == "server" and self.servers:
                number = self.servers[0]
            elif str(node).isdecimal() and int(node) < self.count + len(self.servers):
                number = int(node)
            else:
                expected = f"a client, 0 to {self.count - 1}" + (', "server"' if self.servers else "")
                raise ScenarioError(f'observer: expected {expected}, or "{LINKS}", found {node!r}')
            numbers.add(number)
            if numbers >= set(range(self.count)):
                raise ScenarioError("observer: expected at least one client that is not an observer, found all clients")
            names.append("server" if [number] == self.servers[:1] else str(number))
        return Observer("+".join(names), frozenset(numbers))

    @functools.cached_property
    def observers(self) -> list[Observer]:
        """Every node that received something."""
        receivers = {sight.target for sight in (*self.knowledge.messages, *self.knowledge.merged)}
        return [self.observer([node]) for node in sorted(receivers)]

    def select(self, nodes: Sequence[int | str] | None, coalition: Sequence[int | str]) -> list[Observer]:
        """Return observers by their nodes, and a coalition; all nodes by default."""
        observers = list(self.observers) if nodes is None and not coalition else []
        observers += [self.observer([node]) for node in nodes or ()]
        return observers + ([self.observer(coalition)] if coalition else [])

    def distances(self, observer: Observer) -> Matrix:
        """Return hops from clients to an observer over used links, [K]; infinite if none."""
        links = {(sight.source, sight.target) for sight in self.knowledge.messages}
        if not observer.nodes or not links:
            return np.full(self.count, 0.0 if not observer.nodes else math.inf)
        hops = hops_from(sorted(observer.nodes), links).values()
        return np.array([min(row.get(client, math.inf) for row in hops) for client in range(self.count)])

    @property
    def edges(self) -> pd.DataFrame:
        """The used links: `source`, `target`, named as observers are, and `messages`."""
        carried = Counter((sight.source, sight.target) for sight in self.knowledge.messages if sight.is_message)
        names = {node: self.observer([node]).name for ends in carried for node in ends}
        rows = [(names[source], names[target], count) for (source, target), count in sorted(carried.items())]
        return pd.DataFrame(rows, columns=["source", "target", "messages"])

    # -- messages of observers -------------------------------------------------------------------

    def seen(self, observer: Observer, sees: Sees = "messages", until: float = math.inf) -> list[int]:
        """Return the rows that an observer saw until a time, each once, by arrival.

        With "neighbor_sums", nodes that add up their messages of a round see only the sum.
        """
        sights = self._sights(observer, sees)
        when = [(one.came_s if observer.nodes else one.sent_s, one.row) for one in sights if observer.saw(one)]
        return list(dict.fromkeys(row for time, row in sorted(when) if time <= until))

    def _sights(self, observer: Observer, sees: Sees) -> list[Sight]:
        """Return the visible messages; those in a secure sum are not."""
        sights = self.knowledge.messages
        if sees == "neighbor_sums":
            if not self.knowledge.merged:
                raise ScenarioError(
                    "privacy network: expected an algorithm whose nodes add up several messages in a round, such as "
                    f"decentralized_sgd or fedavg, with neighbor_sums, found {self.setup.scenario.algorithm.kind}"
                )
            adding = {sight.target for sight in self.knowledge.merged}
            if not observer.nodes:
                raise ScenarioError("privacy network: expected nodes that observe neighbor_sums, found links")
            sights = [*(one for one in sights if one.target not in adding), *self.knowledge.merged]
        return sights

    def check(self, observer: Observer, sees: Sees = "messages") -> bool:
        """Check that nodes sent only combinations of their messages and gradients.

        Another state did not reach the node in a message, so an account of the messages would be too small. Returns
        whether all nodes were checked; a node is not if that takes more than `MOST_CHECKED` multiplications.

        Raises:
            ScenarioError: a node has such a state.
        """
        return all(self._check(self.observer([node]), sees) for node in sorted(observer.nodes))

    def _check(self, observer: Observer, sees: Sees) -> bool:
        if (observer, sees) in self._checked:
            return self._checked[observer, sees]
        arrivals, sends = self._arrivals_and_sends(observer, sees)
        rows = [*arrivals, *dict.fromkeys(row for row, _ in sends if row not in arrivals)]
        places, columns = {row: place for place, row in enumerate(rows)}, len(self.knowledge.batches)
        feasible = len(arrivals) * min(len(arrivals), columns) * columns <= MOST_CHECKED and self._fits(rows)
        if feasible:
            both = np.concatenate(self.matrices(rows, observer), axis=1)
            before = np.searchsorted(list(arrivals.values()), [when for _, when in sends])
            if unexplained(both[: len(arrivals)], both[[places[row] for row, _ in sends]], before).any():
                raise ScenarioError(
                    f"privacy network: not certified: node {observer.name} has a state that does not follow from the "
                    "messages that reached it and from its own gradients, so an account of the messages would be too "
                    "small; this is a defect of simfl: please report it with the scenario"
                )
        self._checked[observer, sees] = feasible
        return feasible

    def _arrivals_and_sends(self, observer: Observer, sees: Sees) -> tuple[dict[int, int], list[tuple[int, int]]]:
        """Return row -> first arrival, and (row, time) of a node's sends and reads."""
        arrivals = dict[int, int]()
        for one in sorted(self._sights(observer, sees), key=lambda one: one.came):
            if observer.saw(one):
                arrivals.setdefault(one.row, one.came)
        reads, messages, tasks = self.knowledge.reads, self.knowledge.messages, self.setup.tasks
        sends = [(one.row, one.read) for one in reads if one.client // tasks in observer.nodes]
        sends += [(one.row, one.sent) for one in messages if one.source in observer.nodes]
        return arrivals, list(dict.fromkeys(sends))

    @functools.cached_property
    def owners(self) -> NDArray[np.int64]:
        """The client of each gradient, int [n]."""
        return np.array([batch.client for batch in self.knowledge.batches], dtype=np.int64) // self.setup.tasks

    @functools.cached_property
    def _own_noise(self) -> Matrix | None:
        return self.knowledge.own_noise()

    def matrices(self, rows: Sequence[int], observer: Observer) -> Matrices:
        """Return A and B of rows, without the contributions of the observer's nodes."""
        return self._without(self._matrices(rows), observer)

    def _matrices(self, rows: Sequence[int]) -> Matrices:
        """Return A of rows, and B unless A implies it; prepared ones if possible."""
        if self._prepared is None or not all(row in self._prepared[0] for row in rows):
            return self.knowledge.matrices(rows, noises=self._own_noise is None)
        places, a, b = self._prepared
        selected = [places[row] for row in rows]
        return a[selected], b[selected]

    def prepare(self, observers: Iterable[Observer], sees: Sees) -> None:
        """Compute the matrices of all rows that observers need together."""
        views, checks = set[int](), set[int]()
        for observer in observers:
            views.update(self.seen(observer, sees))
            for node in observer.nodes:
                arrivals, sends = self._arrivals_and_sends(self.observer([node]), sees)
                checks.update(arrivals, (row for row, _ in sends))
        wanted = sorted(views | checks if self._fits(views | checks) else views)
        self._prepared = ({row: place for place, row in enumerate(wanted)}, *self._matrices(wanted))

    def _fits(self, rows: Collection[int]) -> bool:
        return len(rows) * self.knowledge.width(self._own_noise is None) <= MOST_ENTRIES

    def _without(self, matrices: Matrices, observer: Observer) -> Matrices:
        (a, b), nodes = matrices, sorted(observer.nodes)
        a[:, np.isin(self.owners, nodes)] = 0.0
        if b.shape[1]:
            by_server = self.setup.scenario.noise_of_server and bool(observer.nodes & set(self.servers))
            known = slice(None) if by_server else self.knowledge.known_noise(observer.nodes, self.setup.tasks)
            b[:, known] = 0.0
        return a, b

    def view(self, a: Matrix, b: Matrix) -> View:
        """Return the knowledge of gradients from A and B."""
        std = self._own_noise
        heard = np.any(a != 0.0, axis=0)
        if std is not None and np.all(std[heard] > 0.0):
            return View.of_own_noise(a, np.where(heard, std, 1.0))
        return View(a, b if std is None else a * std)

    @functools.cached_property
    def _read_rows(self) -> list[list[int]]:
        """The rows of the model at which each gradient was taken.

        An entry has the model's row, and the rows that functions in it read.
        """
        return [self.knowledge.charged(one.read) for one in self.knowledge.batches]

    def _rows_at(self, gradients: Iterable[int]) -> list[int]:
        return [row for gradient in gradients for row in self._read_rows[gradient]]

    @functools.cached_property
    def _reads(self) -> tuple[dict[int, int], Matrix, Matrix]:
        """The places of all rows in `_read_rows`, and A and B of these rows."""
        rows = list(dict.fromkeys(self._rows_at(range(len(self._read_rows)))))
        return {row: place for place, row in enumerate(rows)}, *self._matrices(rows)

    @functools.cached_property
    def _holds(self) -> NDArray[np.bool_]:
        """Which gradients are in the model that each gradient was taken at, bool [n, n]."""
        places, a, _ = self._reads
        held = np.zeros((len(self._read_rows), a.shape[1]), dtype=bool)
        for gradient, rows in enumerate(self._read_rows):
            held[gradient] = (a[[places[row] for row in rows]] != 0.0).any(axis=0)
        return held

    def needed(self, a: Matrix, observer: Observer) -> NDArray[np.int64]:
        """Return the gradients in A and, recursively, in the models they were taken at."""
        others = ~np.isin(self.owners, sorted(observer.nodes))
        reached = np.zeros(len(others), dtype=bool)
        new = np.any(a != 0.0, axis=0) & others
        while new.any():
            reached |= new
            new = np.any(self._holds[new], axis=0) & others & ~reached
        return np.flatnonzero(reached)

    def resolved(self, rows: Sequence[int], observer: Observer, view: View) -> bool:
        """Whether a view of some rows has all their directions, by exact arithmetic.

        Because of rounding, a combination of other rows cannot be distinguished from a row with a small remainder,
        which may reveal a gradient by itself.
        """
        std, distinct = self._own_noise, sorted(set(rows))
        independent = std is not None and bool(np.all(std > 0.0))
        if independent and view.rank == min(len(distinct), int(view.whitened.any(axis=0).sum())):
            return True
        if self._residues is None or not all(row in self._residues[0] for row in distinct):
            many = {*distinct, *(self._prepared[0] if self._prepared else ())}
            many.update(self._reads[0])
            kept, a, b = self.knowledge.residues(many if self._fits(many) else distinct, std is None)
            self._residues = {row: place for place, row in enumerate(kept)}, a, b
        places, a, b = self._residues
        selected = [places[row] for row in distinct]
        a, b = self._without((a[selected], b[selected]), observer)
        noise = b if std is None else a[:, std > 0.0]
        rank = rank_modulo(noise)
        return rank <= view.rank and (independent or rank_modulo(np.hstack((noise, a[:, ~view.exposed]))) == rank)

    def closed_view(
        self, rows: Sequence[int], a: Matrix, b: Matrix, observer: Observer, needed: NDArray[np.int64] | None = None
    ) -> View | None:
        """Return the view of the closure of rows; None if rounding may hide a part.

        See `closure` and `resolved` for the arguments.
        """
        needed = self.needed(a, observer) if needed is None else needed
        view = self.view(*self.closure(a, b, observer, needed))
        reads = self._rows_at(needed.tolist())
        return view if self.resolved([*rows, *reads], observer, view) else None

    def closure(self, a: Matrix, b: Matrix, observer: Observer, needed: NDArray[np.int64] | None = None) -> Matrices:
        """Return A and B with the models at which all `needed` gradients were taken."""
        places, reads, noises = self._reads
        needed = self.needed(a, observer) if needed is None else needed
        chosen = [places[row] for row in self._rows_at(needed.tolist())]
        more = self._without((reads[chosen], noises[chosen]), observer)
        return np.concatenate((a, more[0])), np.concatenate((b, more[1]))

    def write(self, folder: Path) -> list[Path]:
        """Write every message with its coefficients over the noisy gradients.

        Rows are in the order in which their contents were made. Coefficients do not include noise that does not belong
        to one gradient, such as a server's.
        """
        self.require_linear("--messages")
        knowledge, std = self.knowledge, self._own_noise
        of_row: dict[int, list[Sight]] = {}
        for sight in knowledge.messages:
            of_row.setdefault(sight.row, []).append(sight)

        def messages() -> Iterator[tuple[Any, ...]]:
            for row, values in knowledge.walk(of_row):
                held = np.flatnonzero(values)
                for one in of_row[row]:
                    yield one.sent_s, one.came_s, one.source, one.target, held, values[held]

        gradients = {
            "client": self.owners,
            "draw": np.array([one.draw for one in knowledge.batches], dtype=np.int64),
            "examples": np.array([one.examples for one in knowledge.batches], dtype=np.int64),
            "noise_std": np.full(len(knowledge.batches), math.nan) if std is None else std,
        }
        return write_knowledge(folder, messages(), gradients)

    # -- gradients that observers can solve for --------------------------------------------------

    def reconstruction(
        self, observer: Observer, slow: bool = False, sees: Sees = "messages", until: float = math.inf
    ) -> pd.DataFrame:
        """Return which gradients of others an observer can solve for.

        With `slow`, all gradients of a client are taken to be equal, as with small step sizes. `sees` and `until` are
        as in `seen`. The table has a row for each released gradient (`slow`: for each client): `client`; `gradient`,
        its number among those of the client; whether it is `recovered`; `std`, the standard deviation of the best
        estimate, per coordinate of a sum of clipped gradients, and `rounding`, the relative error in 32-bit messages
        without noise. Both are infinite if there is no estimate.
        """
        self.require_linear("--reconstruct")
        self.check(observer, sees)
        a, b = self.matrices(self.seen(observer, sees, until), observer)
        others = [client for client in range(self.count) if client not in observer.nodes]
        groups = (self.owners[:, None] == np.array(others)).astype(np.float64) if slow else None
        seen = a if groups is None else a @ groups
        possible = recovered(seen)
        table = pd.DataFrame(
            {
                "client": self.owners if groups is None else others,
                "gradient": 0,
                "recovered": possible,
                "std": error_of(self.view(a, b), possible, groups),
                "rounding": rounding_of(seen, possible),
            }
        )
        table["gradient"] = table.groupby("client").cumcount()
        return table[table["client"].isin(others)].reset_index(drop=True)

    def reconstructions(self, observers: Sequence[Observer], sees: Sees = "messages") -> Iterator[pd.DataFrame]:
        """Yield the table of pairs of `ReconstructionReport`, of one observer at a time."""
        for observer in observers:
            each = self.reconstruction(observer, sees=sees).groupby("client")
            slow = self.reconstruction(observer, slow=True, sees=sees).set_index("client")
            clients = slow.index.to_numpy()
            yield pd.DataFrame(
                {
                    "observer": observer.name,
                    "client": clients,
                    "distance": self.distances(observer)[clients],
                    "gradients": each.size().reindex(clients, fill_value=0).to_numpy(),
                    "recovered": each["recovered"].sum().reindex(clients, fill_value=0).to_numpy(),
                    "std": each["std"].min().reindex(clients, fill_value=math.inf).to_numpy(),
                    "slow_recovered": slow["recovered"].to_numpy(),
                    "slow_std": slow["std"].to_numpy(),
                    "slow_rounding": slow["rounding"].to_numpy(),
                }
            )

    # -- epsilons of observers ---------------------------------------------------------------------

    @functools.cached_property
    def changes(self) -> Matrix:
        """Delta, the maximum change of each gradient by an example or client, f64 [n].

        Raises:
            ScenarioError: there is no bound, or the noise is not Gaussian.
        """
        setup, privacy = self.setup, self.setup.scenario.privacy
        ledger, clipping = setup.ledger, setup.problem.clipping
        if privacy is None or ledger is None:
            raise ScenarioError("privacy: expected a mechanism to account for, found none; add a section privacy")
        if setup.problem.noise is None or setup.problem.noise.sampler != "gaussian" or clipping.norm is None:
            raise ScenarioError(
                f"privacy.mechanism: expected gradients that are clipped, with Gaussian noise, found "
                f"{privacy.mechanism!r}: accounts of whole networks are known for these only; use gaussian"
            )
        if not ledger.accounts_for(self.replay.releases):
            raise ScenarioError(f"privacy: {ledger.statement_of(self.replay.releases)}")
        factor = 2.0 if ledger.terms.neighbors == "replace_one" else 1.0
        whole = ledger.terms.unit == "client" and setup.problem.rounds is None  # the mean is clipped, the sum is sent
        norms = (clipping.norm if one.norm is None else one.norm for one in self.knowledge.batches)
        examples = (one.examples if whole else 1 for one in self.knowledge.batches)
        return np.array([factor * norm * count for norm, count in zip(norms, examples, strict=True)])

    def passes(self, columns: NDArray[np.int64]) -> list[NDArray[np.int64]] | None:
        """Return places of a client's gradients that may hold an example, for each pass."""
        ledger = self.setup.ledger
        if ledger is None or ledger.sampling != "shuffle" or ledger.terms.unit != "example":
            return None
        places: dict[tuple[int, int], list[int]] = {}
        for place, column in enumerate(columns):
            one = self.knowledge.batches[column]
            n = int(ledger.sizes[self.owners[column]])
            first = one.begin[0] * ledger.nominal(n) + one.begin[1]
            for number in range(first // n, (first + max(one.examples, 1) - 1) // n + 1):
                places.setdefault((one.client, number), []).append(place)
        return [np.array(some) for _, some in sorted(places.items())]

    @functools.cached_property
    def holders(self) -> NDArray[np.bool_] | None:
        """The sets of clients that hold one example; see `Setup.holders`."""
        ledger = self.setup.ledger
        return self.setup.holders if ledger is not None and ledger.terms.unit == "example" else None

    @functools.cached_property
    def _local(self) -> tuple[Matrix, Matrix]:
        """mu and epsilon of each client for an observer of all its gradients, [K] each.

        If several clients hold an example, they are those of all these clients together.
        """
        changes, ledger, std = self.changes, self.setup.ledger, self._own_noise
        assert ledger is not None, "checked by `changes`"
        mus, epsilons = np.full(self.count, math.nan), local_epsilons(self.setup, self.replay.releases)
        if std is None:
            return mus, epsilons
        if self.holders is None:
            for client, own in enumerate(self._columns):
                mus[client] = View.of_everything(std[own]).mu(np.arange(len(own)), changes[own], self._passes[client])
            return mus, epsilons
        mus = self._mus(View.of_everything(std), range(self.count))
        exact = [math.inf if ledger.counts_holders else gaussian_epsilon(ledger.delta, mu) for mu in mus.tolist()]
        return mus, np.minimum(epsilons, exact)

    def _mus(self, view: View, clients: Sequence[int]) -> Matrix:
        """Return mu of some clients' examples in a view, for all holders together, [k]."""
        changes = self.changes
        if self.holders is not None:
            return view.mus_of_holders(self._columns, changes, self._passes, self.holders)[clients]
        return np.array([view.mu(own := self._columns[k], changes[own], self._passes[k]) for k in clients])

    def _bare(self, observer: Observer) -> bool:
        """Whether an observer sees updates before the server adds noise."""
        by_server = self.setup.scenario.noise_of_server
        return by_server and (not observer.nodes or bool(observer.nodes & set(self.servers)))

    @functools.cached_property
    def _columns(self) -> list[NDArray[np.int64]]:
        return [np.flatnonzero(self.owners == client) for client in range(self.count)]

    @functools.cached_property
    def _passes(self) -> list[list[NDArray[np.int64]] | None]:
        return [self.passes(own) for own in self._columns]

    def spent(self, view: View, clients: Sequence[int]) -> tuple[Matrix, Matrix]:
        """Return mu, and epsilon with amplification, of some clients in a view, [k] each."""
        ledger, mus = self.setup.ledger, self._mus(view, clients)
        assert ledger is not None, "checked by `changes`"
        epsilons = np.array([gaussian_epsilon(ledger.delta, mu) for mu in mus.tolist()])
        amplified = ledger.terms.amplification and ledger.sampling != "shuffle"
        if amplified and ledger.terms.unit == "example":
            if self.holders is None:
                views = [{client: self._kinds(view, self._columns[client])[client]} for client in clients]
            else:  # as if all clients held each example, which is the same view for all of them
                views = [self._kinds(view, np.arange(len(self.owners)))]
            epsilons = np.minimum(epsilons, ledger.epsilon_of_views(views))
        return mus, epsilons

    def _kinds(self, view: View, columns: NDArray[np.int64]) -> dict[int, dict[tuple[int, float], int]]:
        """Return client -> (batch size, noise) -> count of releases that reveal as much."""
        assert self.setup.ledger is not None
        replaced = 2.0 if self.setup.ledger.terms.neighbors == "replace_one" else 1.0
        step = LEVEL_STEP if self.setup.ledger.sampling == "poisson" else FIXED_LEVEL_STEP
        kinds: dict[int, Counter[tuple[int, float]]] = {client: Counter() for client in range(self.count)}
        for column, d in zip(columns.tolist(), view.precisions(columns).tolist(), strict=True):
            if d > 0.0:
                level = replaced / (self.changes[column] * math.sqrt(d))
                if 0.0 < level < math.inf:  # rounded down: less noise reveals more
                    level = min(step ** math.floor(math.log(level, step)), MOST_LEVEL)
                kinds[int(self.owners[column])][self.knowledge.batches[column].expected, level] += 1
        return {client: dict(of_client) for client, of_client in kinds.items()}

    def pairs(
        self, observers: Sequence[Observer], sees: Sees = "messages", times: Sequence[float] = (math.inf,)
    ) -> Iterator[pd.DataFrame]:
        """Yield the table of pairs, of one time and observer at a time."""
        local_mu, local = self._local
        ended_s = self.replay.algorithm.clock.now
        moments = [(until, observer, self.seen(observer, sees, until)) for until in times for observer in observers]
        self.prepare(observers, sees)
        for until, observer, rows in moments:
            a, b = self.matrices(rows, observer)
            needed = self.needed(a, observer)
            work = len(moments) * (len(a) + len(needed)) ** 2 * len(needed)
            clients = [client for client in range(self.count) if client not in observer.nodes]
            published_mu, published = self.spent(self.view(a, b), clients)
            nothing = np.full(len(clients), math.nan)
            pairwise_mu, pairwise = nothing, nothing
            if self.check(observer, sees) and work <= MOST_WORK:
                view = self.closed_view(rows, a, b, observer, needed)
                if view is not None:
                    pairwise_mu, pairwise = self.spent(view, clients)
            ledger_epsilons = np.full(len(clients), math.inf) if self._bare(observer) else local[clients]
            yield pd.DataFrame(
                {
                    "time_s": min(until, ended_s),
                    "observer": observer.name,
                    "client": clients,
                    "distance": self.distances(observer)[clients],
                    "messages": len(rows),
                    # All are bounds, and an observer that sees less knows at most as much.
                    "published_mu": np.fmin(published_mu, pairwise_mu),
                    "pairwise_mu": pairwise_mu,
                    "local_mu": local_mu[clients],
                    "published": np.fmin(np.fmin(published, pairwise), ledger_epsilons),
                    "pairwise": pairwise,
                    "local": ledger_epsilons,
                    "epsilon": np.fmin(pairwise, ledger_epsilons),
                    "account": np.where(pairwise < ledger_epsilons, "pairwise", "local"),
                }
            )


def hops_from(nodes: Sequence[int], links: Iterable[tuple[int, int]]) -> dict[int, dict[int, float]]:
    """Return node -> other node -> hops over links in either direction, or infinity."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import dijkstra

    ends = np.array(sorted(links), dtype=np.int64).reshape(-1, 2)
    count = 1 + max(int(ends.max(initial=0)), *nodes)
    graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(count, count)).tocsr()
    hops = dijkstra(graph, directed=False, unweighted=True, indices=list(nodes))
    return {node: dict(enumerate(row.tolist())) for node, row in zip(nodes, hops, strict=True)}


def local_epsilons(setup: Setup, releases: Releases) -> Matrix:
    """Return each client's epsilon for an observer of all that clients send, [K].

    It is the epsilon of the ledger. If several clients hold an example, and the ledger counts only the releases of one
    client, it is the epsilon of all clients' releases together, which is at least as large.
    """
    ledger = setup.ledger
    assert ledger is not None, "there is an account"
    epsilons = ledger.final_epsilon(releases, "local_transcript")
    if setup.holders is None or ledger.counts_holders or ledger.terms.unit == "client":
        return epsilons
    several = setup.holders[setup.holders.sum(axis=1) > 1].any(axis=0)
    return np.where(several, ledger.epsilon_of_all(releases), epsilons)


def statement_of(setup: Setup, releases: Releases) -> str:
    """Return the meaning of `local_epsilons`."""
    ledger = setup.ledger
    assert ledger is not None, "there is an account"
    counted = setup.holders is not None and ledger.terms.unit == "example" and not ledger.counts_holders
    also = f"; the accounts of observers count {OF_HOLDERS}, too" if counted and ledger.certifies(releases) else ""
    return f"{ledger.statement_of(releases)}{also}"


def assumptions_of(setup: Setup, releases: Releases, sums: bool = False) -> dict[str, str]:
    """Return the assumptions of observers' accounts, by name."""
    assert setup.ledger is not None, "there is an account"
    return assumptions_of_view(setup.ledger, releases, setup.holders is not None, sums)


@one_thread()
def network(
    target: Target | Network,
    *,
    observers: Sequence[int | str] | None = None,
    coalition: Sequence[int | str] = (),
    sees: Sees = "messages",
    times: int = 1,
    own: Own = NOTHING_OWN,
) -> NetworkReport:
    """Account for every observer's knowledge of every client.

    Args:
        target: a scenario, the path of one, the folder of a run, or a network.
        observers: clients by number, "server", or "links" for an observer of all links; every node by default.
        coalition: nodes that combine their messages, as one additional observer.
        sees: "messages", or "neighbor_sums": nodes that add up their messages of a round see only the sum.
        times: number of equally spaced times; the last one is the end.
        own: objects that were given from Python.

    Raises:
        ScenarioError: no account of this kind is known.
    """
    played = target if isinstance(target, Network) else Network(target, own)
    if times < 1:
        raise ScenarioError(f"times: expected an integer >= 1, found {times}")
    ended_s = played.replay.algorithm.clock.now
    moments = [ended_s * (number + 1) / times for number in range(times - 1)] + [math.inf]
    pairs = pd.concat(played.pairs(played.select(observers, coalition), sees, moments), ignore_index=True)
    setup, counts = played.setup, (len(played.knowledge.batches), played.knowledge.num_messages)
    assert setup.ledger is not None
    statement, delta = statement_of(setup, played.replay.releases), setup.ledger.delta
    assumed = assumptions_of(setup, played.replay.releases, sees == "neighbor_sums")
    return NetworkReport(setup.scenario.name, delta, sees, statement, *counts, pairs, played.edges, assumed)


@one_thread()
def reconstruct(
    target: Target | Network,
    *,
    observers: Sequence[int | str] | None = None,
    coalition: Sequence[int | str] = (),
    sees: Sees = "messages",
    own: Own = NOTHING_OWN,
) -> ReconstructionReport:
    """Find the gradients that each observer can solve for (El Mrini et al.).

    It does not need a section privacy. Without noise, recovered gradients are exact except for rounding. See `network`
    for the arguments. https://arxiv.org/abs/2402.10001

    Raises:
        ScenarioError: events depend on data.
    """
    played = target if isinstance(target, Network) else Network(target, own)
    pairs = pd.concat(played.reconstructions(played.select(observers, coalition), sees), ignore_index=True)
    knowledge = played.knowledge
    return ReconstructionReport(played.setup.scenario.name, len(knowledge.batches), knowledge.num_messages, pairs)
