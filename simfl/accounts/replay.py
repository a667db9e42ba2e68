"""Play a scenario's world without arithmetic, and keep the messages to every node."""

from __future__ import annotations

from simfl.accounts.knowledge import Knowledge, KnowledgeTape, Listener
from simfl.accounts.refusals import refuse_attackers, refuse_cohorts
from simfl.algorithms import Algorithm
from simfl.assembly.assemble import build_algorithm
from simfl.assembly.setup import Setup
from simfl.assembly.world import build_world
from simfl.errors import ScenarioError
from simfl.privacy.releases import Releases
from simfl.runs.context import tally
from simfl.runs.endings import NEVER, ended_by, last_update
from simfl.runs.evaluations import goals_of


class Replay:
    """A world that was played to its end; its messages are those of a run.

    `knowledge` has the messages to every node, `releases` are counted as in a run, `algorithm` is in its final state.

    Raises:
        ScenarioError: events depend on data.
    """

    def __init__(self, setup: Setup) -> None:
        stop = setup.scenario.stop
        if goals := goals_of(stop):
            key = "accuracy" if stop.accuracy is not None else "metric"
            raise ScenarioError(
                f"stop.{key}: expected a run that ends at a time, or at a number of updates or epochs, found one that "
                f"ends at {' or '.join(goals)}: that time, and with it the messages, depend on data"
            )
        refuse_cohorts(setup.scenario)
        refuse_attackers(setup.scenario, "an attacker may know more than the messages that it receives")
        # A message that an algorithm does not report would not be counted.
        if not setup.algorithm.__module__.startswith("simfl."):
            raise ScenarioError(
                f"algorithm.kind: expected an algorithm of simfl's, found {setup.scenario.algorithm.kind}: only those "
                "report the content of each message"
            )
        if setup.kind.keeps_table:
            raise ScenarioError(
                f"algorithm.kind: expected clients that keep no gradients, found {setup.scenario.algorithm.kind}: a "
                "batch of its table is in many messages; epsilon of a run is for an observer of all that a client sends"
            )
        optimizer = setup.training.optimizer
        if optimizer is not None and (optimizer.averages or optimizer.travels):
            raise ScenarioError(
                "algorithm.optimizer.state: expected average: false and travels: false, found a state that is sent "
                "besides models: an account of the models alone would be too small"
            )
        if setup.problem.blocks > 1:
            raise ScenarioError(
                f"algorithm.mask: expected 1, found {setup.problem.blocks}: masked updates are different linear forms "
                "at each coordinate"
            )
        if setup.problem.radius is not None:
            raise ScenarioError(
                "algorithm.projection: expected null, found a radius: projections are not linear forms of noisy "
                "gradients; use --set algorithm.projection=null"
            )
        self.setup = setup
        world = build_world(setup)
        clock = world.clock
        tape = KnowledgeTape(releases=tally(setup, lambda: clock.now), **setup.problem.recorded)
        self.knowledge: Knowledge = tape.knowledge
        self.knowledge.correlation = setup.problem.correlation
        world.network.witness = Listener(self.knowledge, lambda: clock.now)
        self.algorithm: Algorithm = build_algorithm(setup, world, tape, lambda row: None)
        algorithm = self.algorithm

        def on_mark() -> int:
            if ended_by(stop, algorithm) is None:
                return algorithm.updates + 1
            clock.stop()
            return NEVER

        algorithm.marks.call, algorithm.marks.next = on_mark, last_update(stop, algorithm)
        algorithm.start()
        clock.run(stop.time)
        seen = tape.releases
        self.releases: Releases = algorithm.releases if seen is None else seen.compare(algorithm.releases)
