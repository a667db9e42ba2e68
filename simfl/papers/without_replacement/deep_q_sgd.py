"""Deep-Q decentralized SGD without replacement: local or global updates.

Jin, He, Dai, "Decentralized Differentially Private Without-Replacement Stochastic Gradient Descent", Algorithms 2 and
3. Every (node, task) pair has a local model w_L that only it knows; the global model w_G of a task goes from node to
node.

    repeat, each pair on its own, as long as it has batches left:
        decide by deep-Q learning (`q_learning`), in the state [w_L, loss of w_L on the next batch]
        Local:   w_L <- w_L - 2 eta_t gradient(w_L)                                          no noise, nothing is sent
        Global:  fetch w_G                                                                   (takes time)
                 w_G <- (w_G + w_L)/2 - eta_t (gradient(w_G) + N_t),   w_L <- w_G             (9), (10)

The reward of an action is minus the loss, on the batch it used, of the local model after it (the listing prints:
before). eta_t counts the batches of the pair, as Assumption 2 has it: every node acts once per t.

Every node acts once per round of a task (`order: rounds`). That is the listing, which goes over the local nodes m at
each t; Assumption 2 says the same, and exploration ends after n/(2Mb) steps, half of a node's batches. With the other
orders of `passing` Local steps wait for no other node and Global ones do, so that nodes use up their batches unevenly:
at large batches the last steps of a task are those of few nodes, and accuracy falls.

What the paper leaves open: the tasks of a node take turns, and a pair decides at its turn. Global waits for the right
to update (token mode of `passing`), and the node goes on with other tasks meanwhile. Every pair has its own network,
because a state is the local model of one task and tasks share no models; `network: node` shares one.

Noise (Lemma 5): between two Global steps of a pair its Local steps go into w_L, and are published with the next Global
one, whose noise covers them: std(N_t) = c 2L max_k eta_k / (eta_t b epsilon), k over the steps since. What no noise
covers: that the network's choices depend on private losses and are visible; the ledger certifies `explore_to: 1` only.

Numbers: a decision needs the pair's local model, so the tape is emptied. It is emptied rarely, because a decision
depends on the pair's own state alone: as soon as one pair needs one, all that have begun their last batch decide. The
result of a batch is known when it begins, because no other node changes a local model or a fetched global model.

Faults: those of `passing`; a node that is cut off works on its own model until it chooses the global one.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, ClassVar

import numpy as np
import simpy
from numpy.typing import NDArray

from simfl.papers.without_replacement.passing import PassedModels
from simfl.papers.without_replacement.q_learning import QLearner, Settings
from simfl.tape import Model
from simfl.world.engine import Process

LOCAL, GLOBAL = 0, 1


class DeepQSGD(PassedModels):
    """Each pair of a node and a task decides, batch by batch, which model to update."""

    kind: ClassVar[str] = "deep_q_sgd"
    summary: ClassVar[str] = "deep-Q decentralized SGD without replacement: own or global model, batch by batch"
    family: ClassVar[str] = "papers"
    who_waits: ClassVar[str] = "a client that chooses the global model waits for the right to update it"
    what_travels: ClassVar[str] = "the global model, to the next client; two integers, to all clients"
    what_is_private: ClassVar[str] = "an example (`one_pass_gaussian`); certified with `explore_to: 1` only"
    steps_per_call = 1  # every decision ends a window

    def set_up(
        self,
        *,
        order: str,
        explore_from: float,
        explore_to: float,
        anneal: float,
        discount: float,
        learning_rate: float,
        hidden: int,
        memory: int,
        replay: int,
        reset_every: int,
        reward: str,
        network: str,
    ) -> None:
        """Take the options."""
        self.begin(order, "token", visits=1)
        self.reward, self.explore = reward, (explore_from, explore_to, anneal)
        pairs = range(self.num_clients * self.num_tasks)
        settings = Settings(
            len(self.training.initial) + 1, hidden, discount, learning_rate, memory, replay, reset_every
        )
        network_of = [pair // self.num_tasks if network == "node" else pair for pair in pairs]
        self.learner = QLearner(settings, network_of, self.world.streams.key("deep-q"))
        #: Local models, by pair.
        self.local: list[Model] = [self.globals[pair % self.num_tasks] for pair in pairs]
        #: Actions that are decided on and not begun.
        self.decided: dict[int, int] = {}
        #: Pairs that can decide, those that have begun their last batch, and what their local models will be.
        self._ready: list[int] = list(pairs)
        self._coming = list(self.local)
        self._losses = np.zeros(len(pairs), dtype=np.float32)
        #: The largest step size since the last Global step, by pair.
        self._largest = [0.0] * len(pairs)

    def start(self) -> None:
        """Start the nodes."""
        for node in range(self.num_clients):
            self._jobs[node].extend((node + i) % self.num_tasks for i in range(self.num_tasks))
            self.clock.start(self.node(node), node)

    def act(self, node: int, task: int) -> None:
        """Give the node its turn to decide."""
        self.give(node, task)

    @property
    def chains(self) -> int:
        """Local steps of different pairs do not depend on each other."""
        return self.num_clients * self.num_tasks

    def client_models(self) -> Sequence[Model]:
        """Return the local models, one for each task of each node."""
        return self.local

    def node(self, me: int) -> Process:
        """Process jobs: tasks at their turn, and fetched models."""
        yield self.world.joined(me)
        while True:
            job = yield from self.take(me)
            if isinstance(job, tuple):
                task = job[0]
                if not (yield from self.update_global(me, *job)):
                    return
            else:
                task = job
                if not self.has_data(me, task):
                    continue
                if self.decide(me * self.num_tasks + task) == GLOBAL:
                    self.want(me, task)
                    continue
                if not (yield from self.update_local(me, task)):
                    return
            del job
            if self.in_rounds:
                self.acted(me, task)
            elif self.has_data(me, task):
                self._jobs[me].append(task)

    def update_local(self, me: int, task: int) -> Generator[simpy.Event, Any, bool]:
        """Update w_L <- w_L - 2 eta_t gradient(w_L); false if the node has left."""
        pair = me * self.num_tasks + task
        step_size = self.step_at(self.used[pair])
        own = self.local[pair]
        gradient = self.batch(own, me, task, 0.0)
        self.tape.hold(gradient)
        self._begun(pair, self.tape.combine((1.0, own), *self.descent.terms(gradient, 2.0 * step_size)))
        if not (yield from self.working(me)):
            self.abandon(me, None)
            return False
        self.local[pair] = self._coming[pair]
        self._largest[pair] = max(self._largest[pair], step_size)
        self.tape.release(gradient)  # the batch is used; the noise of the pair's next Global step covers it
        self.finished(me, task, 0, 2.0 * step_size, -1, -1, 0.0)
        return True

    def update_global(
        self, me: int, task: int, model: Model, version: int, source: int
    ) -> Generator[simpy.Event, Any, bool]:
        """Apply rules (9) and (10); false if the node has left."""
        pair = me * self.num_tasks + task
        step_size = self.step_at(self.used[pair])
        largest = max(self._largest[pair], step_size)
        ratio = largest / step_size if step_size > 0.0 else 1.0
        gradient = self.batch(model, me, task, self.batches.noise_scale[me] * ratio)
        self.tape.hold(gradient)
        joint = self.tape.combine((0.5, model), (0.5, self.local[pair]), *self.descent.terms(gradient, step_size))
        self._begun(pair, joint)
        if not (yield from self.working(me)):
            self.abandon(me, task)
            return False
        self.local[pair] = joint
        self._largest[pair] = 0.0
        self.tape.release(gradient)
        self.publish(me, task, version, joint, step_size, source, self.batches.noise_std[me] * ratio)
        self._next(task, me)
        return True

    def _begun(self, pair: int, coming: Model) -> None:
        """Note that the pair works on a batch for this model, so it can decide again."""
        self._coming[pair] = coming
        if self.has_data(*divmod(pair, self.num_tasks)):
            self._ready.append(pair)

    # -- decisions ------------------------------------------------------------------------------

    def decide(self, pair: int) -> int:
        """Return the pair's next action; without one, all ready pairs decide now."""
        if pair not in self.decided:
            self._decide_all()
        return self.decided.pop(pair)

    def _decide_all(self) -> None:
        """One look at the numbers of all pairs that are ready, one call to their networks."""
        pairs, self._ready = sorted(self._ready), []
        next_batch = np.array([self.used[pair] for pair in pairs])
        first, last, part = self.explore
        length = np.array([max(1.0, part * self._batches[pair // self.num_tasks]) for pair in pairs])
        explore = first + (last - first) * np.minimum(1.0, next_batch / length)

        def decide(models: NDArray[np.float32], losses: NDArray[np.float32]) -> NDArray[np.int32]:
            states = np.concatenate((models, losses[:, 1:]), axis=1)
            rewards = -losses[:, 0] if self.reward == "after" else -self._losses[pairs]
            self._losses[pairs] = losses[:, 1]
            return self.learner.decide(pairs, states, rewards, explore.astype(np.float32))

        draws = np.stack((next_batch - 1, next_batch), axis=1).tolist()
        actions = self.tape.probe([self._coming[pair] for pair in pairs], pairs, draws, decide)
        self.decided.update(zip(pairs, actions.tolist(), strict=True))

    def memory(self) -> dict[str, NDArray[Any]]:
        """Return the networks' parameters, and the last losses."""
        return {"losses": self._losses, **self.learner.memory()}

    def remember(self, memory: dict[str, NDArray[Any]]) -> None:
        """Restore an earlier run's memory."""
        self._losses = memory["losses"].copy()
        self.learner.remember(memory)
