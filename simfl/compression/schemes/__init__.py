"""The schemes for rounds of gossip and for messages to a server, by name."""

from simfl.compression.base import AbstractScheme
from simfl.compression.schemes.choco import Choco
from simfl.compression.schemes.dcd import DCD
from simfl.compression.schemes.deep_squeeze import DeepSqueeze
from simfl.compression.schemes.direct import Direct
from simfl.compression.schemes.ecd import ECD
from simfl.compression.schemes.ef21 import EF21
from simfl.compression.schemes.error_feedback import ErrorFeedback
from simfl.compression.schemes.moniqua import Moniqua

SCHEMES: dict[str, type[AbstractScheme]] = {one.kind: one for one in (Choco, DeepSqueeze, DCD, ECD, Direct, Moniqua)}
#: The schemes of exchanges in pairs and of pushes.
PAIRWISE: dict[str, type[AbstractScheme]] = {one.kind: one for one in (Choco, DeepSqueeze, Direct)}
#: The schemes of messages to a server. Of these, only `show` is used, which begins with zeros.
UPLINKS: dict[str, type[AbstractScheme]] = {one.kind: one for one in (ErrorFeedback, EF21, Direct)}
