"""The tape: operations recorded by the world, and the executor that runs them.

- `recording`: `Tape`, `Model`, `Gradient`: operations on models, which are recorded and not run.
- `maps`, `optimizers`: operations that are not linear: functions of models, and steps of optimizers with a state.
- `fragments`: combinations of some coordinates of models, as functions of them.
- `layout`, `packing`: a window of operations becomes depths, steps, lanes and rows of the bank.
- `draws`: mini-batches, drawn on the device from counters.
- `problem`: `LearningProblem` and its parts, the arithmetic in plain values.
- `kernels`: the jitted programs: one window, an evaluation; `inputs`, `evaluation`, `measures`: their data and results.
- `executor`: the thread that runs the programs at the same time as the world.
- `journal`: the values that the world has read, for checkpoints.
"""

from simfl.tape.problem import LearningProblem
from simfl.tape.recording import Gradient, Model, Tape

__all__ = ["Gradient", "LearningProblem", "Model", "Tape"]
