"""Gossip with a robust rule and attackers, as an algorithm of your own.

Rounds of D-PSGD (Lian et al. 2017, https://arxiv.org/abs/1705.09056), whose average is a rule of `simfl.robust`:

    send w_k to the neighbors, or what the attack makes of all honest models if k is an attacker
    when the models of all neighbors have arrived: w_k <- rule(w_k, the received models) - step * gradient

An attacker trains like the others and replaces what it sends. Only honest clients' models are evaluated.
"""

from simfl.algorithms.neighbor_rounds import NeighborRounds
from simfl.robust.attacks import ATTACKS
from simfl.robust.base import padded
from simfl.robust.rules import RULES
from simfl.world.availability import Outcome


class RobustGossip(NeighborRounds):
    """Rounds of gossip with a robust rule."""

    summary = "gossip with a robust rule, among attackers"

    def set_up(self, rule="trimmed_mean", attack="ipm", attackers=(), rule_options=None, attack_options=None):
        """Take the options, and put the initial models on the tape."""
        super().set_up()  # gives every client the initial model
        self.rule, self.attack = RULES[rule](**(rule_options or {})), ATTACKS[attack](**(attack_options or {}))
        self.attackers = set(attackers)
        self.weights = self.world.topology.mixing_matrix("metropolis").toarray().tolist()
        self.came = [{} for _ in range(self.num_clients)]  # round and sender -> model

    def models(self):
        """Return the models of honest clients, which are evaluated."""
        return [model for client, model in enumerate(self.model) if client not in self.attackers]

    def partners(self, client):
        """Return the clients that are waited for."""
        return self.world.topology.neighbors(client)

    def missing(self, me, round_num):
        """Yield the neighbors whose messages of the round have not arrived."""
        return (j for j in self.partners(me) if (round_num, j) not in self.came[me])

    def worker(self, me):
        """Send, compute, wait, mix and step."""
        while True:
            round_num = self._client_round[me]
            gradient = self.gradient(self.model[me], me)
            message = self.model[me]
            if me in self.attackers:
                (message,) = self.tape.map(self.attack, self.models(), client=me, pads=True)
            for neighbor in self.partners(me):
                self.send(me, neighbor, round_num, message)
            if (yield self.compute(me)) is not Outcome.DONE or not (yield from self.wait_for(me, round_num)):
                return
            step_size, size = self.step_size(), gradient.size
            mixed = self.mix(me, round_num)
            self.model[me] = self.tape.combine((1.0, mixed), *self.descent(gradient, step_size))
            self._client_round[me] = round_num + 1
            self.updated(me, 0, size, step_size, round_num=round_num)

    def send(self, me, neighbor, round_num, message):
        """Send a model over the link."""

        def deliver():
            self.came[neighbor][round_num, me] = message
            self.wake(neighbor)

        self.world.network.send(me, neighbor, self.training.model_bytes, deliver, content=message)

    def mix(self, me, round_num):
        """Return what the rule makes of the client's own model and those received."""
        peers = list(self.partners(me))
        models = [self.model[me], *(self.came[me].pop((round_num, j)) for j in peers)]
        weights = padded([self.weights[me][j] for j in (me, *peers)])
        return self.tape.map(self.rule, models, scalars=weights, pads=True)[0]
