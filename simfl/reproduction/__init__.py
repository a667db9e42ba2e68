"""Studies of papers, and of a network's privacy: what was claimed is measured, with a verdict for every claim."""

from simfl.reproduction.running import PAPERS, Reproduction, find_paper, reproduce
from simfl.reproduction.study import Experiment, Judged, Number, Paper, PaperClaim, Runs, Section, Verdict

__all__ = [
    "PAPERS",
    "Experiment",
    "Judged",
    "Number",
    "Paper",
    "PaperClaim",
    "Reproduction",
    "Runs",
    "Section",
    "Verdict",
    "find_paper",
    "reproduce",
]
