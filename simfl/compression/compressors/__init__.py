"""The compressors, by kind."""

from simfl.compression.base import AbstractCompressor
from simfl.compression.compressors.moniqua import Moniqua
from simfl.compression.compressors.qsgd import Qsgd
from simfl.compression.compressors.random_k import RandomK
from simfl.compression.compressors.sign import Sign
from simfl.compression.compressors.top_k import TopK

COMPRESSORS: dict[str, type[AbstractCompressor]] = {one.kind: one for one in (TopK, RandomK, Qsgd, Sign, Moniqua)}
