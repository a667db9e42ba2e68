"""Gossip with a robust rule and attackers, as an algorithm of your own.

Rounds of D-PSGD (Lian et al. 2017, https://arxiv.org/abs/1705.09056), whose average is a rule of `simfl.robust`:

    send w_k to the neighbors, or what the attack makes of all honest models if k is an attacker
    when the models of all neighbors have arrived: w_k <- rule(w_k, the received models) - step * gradient

An attacker trains like the others and replaces what it sends. Only honest clients' models are evaluated.
"""

from simfl.algorithms.neighbor_rounds import GraphRounds
from simfl.robust.attacks import ATTACKS
from simfl.robust.base import padded
from simfl.robust.rules import RULES
from simfl.world.availability import Outcome


class RobustGossip(GraphRounds):
    """Rounds of gossip with a robust rule."""

    summary = "gossip with a robust rule, among attackers"

    def set_up(self, rule="trimmed_mean", attack="ipm", attackers=(), rule_options=None, attack_options=None):
        """Take the options, and put the initial models on the tape."""
        super().set_up()  # gives every client the initial model
        self.rule, self.attack = RULES[rule](**(rule_options or {})), ATTACKS[attack](**(attack_options or {}))
        self.attackers = set(attackers)

    def models(self):
        """Return the models of honest clients, which are evaluated."""
        return [model for client, model in enumerate(self.model) if client not in self.attackers]

    def worker(self, me):
        """Send, compute, wait, mix and step."""
        while True:
            round_num = self._client_round[me]
            gradient = self.batches.gradient(self.model[me], me)
            message = self.model[me]
            if me in self.attackers:
                (message,) = self.tape.map(self.attack, self.models(), client=me, pads=True)
            for neighbor in self.receivers(me, round_num):
                self.send(me, neighbor, round_num, message, self.training.model_bytes, message)
            if (yield self.compute(me)) is not Outcome.DONE or not (yield from self.wait_for(me, round_num)):
                return
            step_size, size = self.step_size(), gradient.size
            mixed = self.mix(me, round_num)
            self.model[me] = self.tape.combine((1.0, mixed), *self.descent.terms(gradient, step_size))
            self._client_round[me] = round_num + 1
            self.updated(me, 0, size, step_size, round_num=round_num)

    def mix(self, me, round_num):
        """Return what the rule makes of the client's own model and those received."""
        own_weight, messages = self.received(me, round_num)
        models = [self.model[me], *(model for _, model in messages)]
        weights = padded([own_weight, *(weight for weight, _ in messages)])
        return self.tape.map(self.rule, models, scalars=weights, pads=True)[0]
