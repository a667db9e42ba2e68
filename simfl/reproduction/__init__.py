"""The studies of the five papers: what they measured, measured again, with a verdict for every claim."""

from simfl.reproduction.running import PAPERS, Outcome, find_paper, reproduce
from simfl.reproduction.study import Claim, Judged, Number, Paper, Runs, Setting, Verdict

__all__ = [
    "PAPERS",
    "Claim",
    "Judged",
    "Number",
    "Outcome",
    "Paper",
    "Runs",
    "Setting",
    "Verdict",
    "find_paper",
    "reproduce",
]
