"""CHOCO-SGD as an algorithm of your own: gossip whose messages are compressed to a few coordinates.

Koloskova, Stich, Jaggi 2019, "Decentralized stochastic optimization and gossip algorithms with compressed
communication", https://arxiv.org/abs/1902.00340. Every client k has an estimate e_k, which its neighbors know too:

    send q_k = top_k(w_k - e_k) to the neighbors; compute the gradient at w_k meanwhile
    when the q of all neighbors have arrived:  e_j <- e_j + q_j
    w_k <- w_k + gamma * sum_j W_kj (e_j - e_k) - step * gradient
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from simfl.algorithms.neighbor_rounds import GraphRounds
from simfl.world.availability import Outcome


@dataclass(frozen=True)
class TopK:
    """A function of models: (w, e) -> (q, e + q), where q has the k largest entries of w - e."""

    k: int

    def __call__(self, rows, given):
        model, estimate = rows
        _, places = jax.lax.top_k(jnp.abs(model - estimate), self.k)
        message = jnp.zeros_like(model).at[places].set((model - estimate)[places])
        return message, estimate + message


class Choco(GraphRounds):
    """Rounds of compressed gossip on a ring, or any other graph."""

    summary = "CHOCO-SGD: gossip of the largest changes"

    def set_up(self, share=0.05, gamma=0.3):
        """Take the options, and put the initial models on the tape."""
        super().set_up()  # gives every client the initial model
        self.compress = TopK(max(1, round(share * len(self.training.initial))))
        self.gamma = gamma
        self.message_bytes = 8 * self.compress.k  # a value and a place, four bytes each
        self.estimate = list(self.model)

    def worker(self, me):
        """Send, compute, wait, mix and step."""
        while True:
            round_num = self._client_round[me]
            gradient = self.batches.gradient(self.model[me], me)
            message, self.estimate[me] = self.tape.map(self.compress, [self.model[me], self.estimate[me]], outputs=2)
            for neighbor in self.receivers(me, round_num):  # what arrives is the sender's estimate of this round
                self.send(me, neighbor, round_num, self.estimate[me], self.message_bytes, message)
            if (yield self.compute(me)) is not Outcome.DONE or not (yield from self.wait_for(me, round_num)):
                return
            step_size, size = self.step_size(), gradient.size
            self.model[me] = self.mix(me, round_num, gradient, step_size)
            self._client_round[me] = round_num + 1
            self.updated(me, 0, size, step_size, round_num=round_num)

    def mix(self, me, round_num, gradient, step_size):
        """Return w + gamma * sum_j W_kj (e_j - e_k) - step * gradient."""
        terms = [(1.0, self.model[me])]
        for weight, estimate in self.received(me, round_num)[1]:
            terms += [(self.gamma * weight, estimate), (-self.gamma * weight, self.estimate[me])]
        return self.tape.combine(*terms, *self.descent.terms(gradient, step_size))
