"""Studies of papers, and of a network's privacy: what was claimed is measured, with a verdict for every claim."""

from simfl.reproduction.evidence import Judged, Part, Reading, Verdict
from simfl.reproduction.running import PAPERS, Reproduction, find_paper, reproduce
from simfl.reproduction.study import Experiment, Number, Paper, PaperClaim, Runs, Section

__all__ = [
    "PAPERS",
    "Experiment",
    "Judged",
    "Number",
    "Paper",
    "PaperClaim",
    "Part",
    "Reading",
    "Reproduction",
    "Runs",
    "Section",
    "Verdict",
    "find_paper",
    "reproduce",
]
