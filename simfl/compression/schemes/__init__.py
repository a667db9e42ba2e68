"""The schemes of rounds of gossip, by name."""

from simfl.compression.base import AbstractScheme
from simfl.compression.schemes.choco import Choco
from simfl.compression.schemes.dcd import DCD
from simfl.compression.schemes.deep_squeeze import DeepSqueeze
from simfl.compression.schemes.direct import Direct
from simfl.compression.schemes.ecd import ECD

SCHEMES: dict[str, type[AbstractScheme]] = {one.kind: one for one in (Choco, DeepSqueeze, DCD, ECD, Direct)}
