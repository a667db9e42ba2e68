"""A user's algorithms, whose options and errors a `Kind` has to pass on unchanged."""

from typing import Literal

from simfl.algorithms.fedbuff import FedBuff
from simfl.scenario.fields import Count
from tests.algorithms.custom import Alone


class Named(Alone):
    """Has options with names that the kinds of other algorithms settle."""

    def set_up(self, rule, radius=1.0, period=None, step_clip=None, proximal=0.0, stages=(), options=None):
        """Store the options."""
        super().set_up()
        self.given = (rule, radius, period, step_clip, proximal, stages, options)


class Mistaken(Alone):
    """An algorithm whose constructor fails."""

    def set_up(self, depth=1):
        """Fail."""
        super().set_up()
        len(depth)


class Open(Alone):
    """Accepts any option."""

    def set_up(self, **options):
        """Store the options."""
        super().set_up(boost=options.pop("strength"))
        self.given = options


class Built(Alone):
    """Passes the required option to its base."""

    def __init__(self, *arguments, gamma=0.5, **options):
        super().__init__(*arguments, boost=gamma, **options)


class Further(FedBuff):
    """Passes options on to an algorithm of simfl, and fixes one."""

    def set_up(self, patience: Count = 3, way: Literal["up", "down"] = "up", **options) -> None:
        """Store two options."""
        super().set_up(after_update="wait", **options)
        self.given = patience, way


class Fixed(FedBuff):
    """Takes no options of its base."""

    def set_up(self) -> None:
        """Fix one of them."""
        super().set_up(buffer_size=5)
