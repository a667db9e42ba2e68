"""A user's algorithms, whose options and errors a `Kind` has to pass on unchanged."""

from simfl.algorithms.fedbuff import FedBuff
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
    """Passes unknown options on to an algorithm of simfl."""

    def set_up(self, patience=3, **options):
        """Store one option."""
        super().set_up(**options)
        self.patience = patience
