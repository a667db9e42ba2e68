"""Compressed messages."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from simfl.scenario.fields import Arithmetic, ByKind, Flag, OwnCode, OwnName, Share, option
from simfl.scenario.seams import Scheme
from simfl.scenario.sections import ClassSection, Sections

#: The schemes whose mixing has a step size.
WITH_GAMMA: tuple[Scheme, ...] = ("choco", "deep_squeeze", "direct", "moniqua")


class CompressionConfig(ClassSection):
    """Base of compressors, with the scheme that uses their messages."""

    #: The schemes that can use its messages.
    schemes: ClassVar[tuple[Scheme, ...]] = ("choco", "deep_squeeze", "dcd", "ecd", "direct", "error_feedback", "ef21")

    scheme: Scheme | None = option(
        None,
        "what clients compress and remember. In gossip: choco (estimates of neighbors' models), deep_squeeze (adds "
        "what the last messages left out); in rounds of gossip also dcd and ecd (for comparison; they diverge if "
        "messages are short). To a server: error_feedback (adds what the last updates left out), ef21 (estimates of "
        "updates). Everywhere: direct (remembers nothing). moniqua belongs to the kind moniqua. null: the first that "
        "algorithm and kind can use",
    )
    gamma: Arithmetic[Share | None] = option(
        None,
        "consensus step size of choco, deep_squeeze, direct and moniqua; null: for choco the theory's, which is small; "
        "for direct and moniqua 1",
    )
    downlink: Flag = option(
        False,
        "whether the models that a server sends are compressed, too: server and client keep an estimate of what the "
        "client has, and messages change it (EF21-P)",
    )

    def usable(self, schemes: tuple[Scheme, ...]) -> tuple[Scheme, ...]:
        """Return which of an algorithm's schemes fit; the first is the default."""
        return tuple(scheme for scheme in schemes if scheme in self.schemes)


class OwnCompressor(CompressionConfig, OwnCode):
    """A compressor of your own, from a module."""

    kind: OwnName = Field(description="module and class of the compressor, as in my_module:MyCompressor")


CompressionConfig.variants = Sections(
    "simfl.compression.compressors:COMPRESSORS",
    lambda _: CompressionConfig,
    "{}",
    "top_k random_k qsgd sign",
    OwnCompressor,
)
Compression = Annotated[CompressionConfig, ByKind(external=OwnCompressor)]
