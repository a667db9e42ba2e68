"""The tape: operations recorded by the world, and the executor that runs them.

- `recording`: `Tape`, `Model`, `Gradient`: operations on model values, written down and not run.
- `packing`: a window of operations becomes levels, steps, lanes and rows of the bank.
- `draws`: batches and noise, drawn on the device from counters.
- `problem`: `LearningProblem` and its parts: what the arithmetic is about.
- `kernels`: the jitted programs: one window, an evaluation.
- `executor`: the thread that runs them beside the world.
"""

from simfl.tape.problem import LearningProblem
from simfl.tape.recording import Gradient, Model, Tape

__all__ = ["Gradient", "LearningProblem", "Model", "Tape"]
