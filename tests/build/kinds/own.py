"""Algorithms of a user's own whose options and mistakes a `Kind` has to hand on as they are."""

from simfl.algorithms.fedbuff import FedBuff
from tests.algorithms.custom import Alone


class Named(Alone):
    """Its options are called as those that other algorithms' kinds settle."""

    def set_up(self, rule, radius=1.0, period=None, step_clip=None, proximal=0.0, stages=(), options=None):
        """Keep them."""
        super().set_up()
        self.given = (rule, radius, period, step_clip, proximal, stages, options)


class Mistaken(Alone):
    """Its author made a mistake."""

    def set_up(self, depth=1):
        """Fail."""
        super().set_up()
        len(depth)


class Open(Alone):
    """Takes whatever comes."""

    def set_up(self, **options):
        """Keep it."""
        super().set_up(boost=options.pop("strength"))
        self.given = options


class Built(Alone):
    """Gives its base what the base needs."""

    def __init__(self, *arguments, gamma=0.5, **options):
        super().__init__(*arguments, boost=gamma, **options)


class Further(FedBuff):
    """Hands on what it does not know to an algorithm of simfl."""

    def set_up(self, patience=3, **options):
        """Keep one option."""
        super().set_up(**options)
        self.patience = patience
