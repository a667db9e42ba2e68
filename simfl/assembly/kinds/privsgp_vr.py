"""The kind of PrivSGP-VR."""

from __future__ import annotations

from simfl.assembly.kinds.base import Kind
from simfl.privacy.tables import TableLedger
from simfl.scenario.algorithms.privsgp_vr import PrivSgpVr
from simfl.tape.problem import Sampling


class PrivSgpVrKind(Kind[PrivSgpVr]):
    """PrivSGP-VR: fixed mini-batches, a row of a table for each, and its account."""

    sections = (PrivSgpVr,)
    ledger = TableLedger
    keeps_table = True

    @property
    def sampling(self) -> Sampling:
        """Mini-batches are parts of shuffled data; the algorithm draws them."""
        return "shuffle"

    @property
    def released_whole(self) -> bool:
        """A release has the table, too."""
        return False
