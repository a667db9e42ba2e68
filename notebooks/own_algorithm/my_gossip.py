"""Your own algorithm in your own file: frugal gossip.

Every client trains alone, and sends its model to a random neighbor only once in `every` updates. The neighbor averages
the model with its own. No client ever waits.
"""

from simfl.algorithms import Algorithm
from simfl.world.availability import Outcome
from simfl.world.compute import Draws


class FrugalGossip(Algorithm):
    """Push gossip: a client sends its model once in `every` updates."""

    summary = "frugal gossip: a client sends its model to a random neighbor once in `every` updates"

    def set_up(self, every=1):
        """Take the options, and put the initial model on the tape."""
        self.every = every
        self.model = [self.tape.constant(self.training.initial)] * self.num_clients
        # These draws have their own stream, so that they change no other draw.
        self.choice = Draws(self.world.streams, "neighbor", lambda generator, n: generator.random(n))

    def start(self):
        """Start one process for each client, in the order of their numbers."""
        for client in range(self.num_clients):
            self.clock.start(self.client(client), client)

    def models(self):
        """Return the models whose mean is evaluated."""
        return self.model

    def client(self, me):
        """Train; a process of SimPy, in which time passes at each `yield`."""
        yield self.world.joined(me)
        count = 0
        while True:
            gradient = self.batches.gradient(self.model[me], me)  # a promise: it is computed later, with many others
            size, read_at = gradient.size, self.updates
            outcome = yield self.compute(me)
            if outcome is Outcome.GONE:
                return
            if outcome is Outcome.CRASHED:
                continue  # the gradient is lost
            step_size = self.step_size()
            self.model[me] = self.tape.combine((1.0, self.model[me]), *self.descent.terms(gradient, step_size))
            self.updated(me, self.updates - read_at, size, step_size)
            count += 1
            if count % self.every == 0:
                self.push(me)

    def push(self, me):
        """Send the model to a random neighbor, which averages it with its own on arrival."""
        neighbors = self.world.topology.neighbors(me)
        peer = neighbors[int(self.choice.next(me) * len(neighbors))]
        sent = self.model[me]

        def arrive():
            self.model[peer] = self.tape.combine((0.5, self.model[peer]), (0.5, sent))

        self.world.network.send(me, peer, self.training.model_bytes, arrive)
