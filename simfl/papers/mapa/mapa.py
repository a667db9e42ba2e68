"""MAPA: asynchronous SGD in stages of falling clipping, noise and steps.

Li, Yang, Ren and Zhao 2019, "Asynchronous federated learning with differential privacy for edge intelligence",
https://arxiv.org/abs/1912.07902, Algorithm 1.

    server:  dS <- that of Theorem 3
             for each stage: P from (16), gamma = 1/(2 P L (tau + 1)), T_s from (15)
                 T_s times: take the next gradient g, x <- x - gamma g, send (x, dS) to who sent g
                 dS <- theta dS
    client:  pull (x, dS), clip each example's gradient to b dS/2, average, add noise of scale dS/epsilon_k, push

The listing clips the average, which does not give it the sensitivity dS: here each example's gradient is clipped. The
stages are planned before the run (`simfl.papers.mapa.theory.stages`): when they begin depends on counts alone, not on
data. A gradient made in one stage may arrive in the next; its noise is that of the dS which the client was sent, so
that each release costs epsilon_k whatever the stage.

Faults: as `AsyncSGD`; a gradient that comes late, in whichever stage, costs what it did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from simfl.algorithms.async_sgd import AsyncSGD
from simfl.tape import Gradient


@dataclass(frozen=True)
class StageRule:
    """The rule of a stage."""

    first: int  # the version of the server's model at which it begins
    clipping_norm: float  # C = b dS/2, of each example's gradient; inf for no clipping
    noise: float  # the noise relative to that of the scenario's nominal clipping norm
    step_size: float  # gamma


class MAPA(AsyncSGD):
    """Asynchronous SGD with a server that sends how to clip together with the model."""

    summary: ClassVar[str] = "MAPA: asynchronous private SGD in stages of falling clipping norm, noise and step size"
    family: ClassVar[str] = "papers"
    who_waits: ClassVar[str] = "no client waits; with `delays: cyclic`, updates wait for their turn"
    what_travels: ClassVar[str] = "gradients to the server, the model and the clipping norm to clients"
    what_is_private: ClassVar[str] = "an example (`laplace_l2`)"
    kind: ClassVar[str] = "mapa"

    def set_up(self, *, delays: str, stages: Sequence[StageRule] = ()) -> None:  # type: ignore[override]
        """Take the options.

        Args:
            stages: in their order, the first from version 0; the last one does not end.
        """
        super().set_up(delays=delays, delay_limit=None)
        self.stages = list(stages) or [StageRule(0, float("inf"), 1.0, super().step_size())]
        #: Number of the present stage, from 0.
        self.stage = 0

    def content(self, client: int) -> Any:
        """The model, its version, and how to clip."""
        del client
        return self.server_model, self.version, self.stages[self.stage]

    def gradient_at(self, me: int, content: Any) -> Gradient:
        """Promise a gradient, clipped and noised as the server said."""
        model, _, rule = content
        draw = self.batches.draws[me]
        self.batches.draws[me] = draw + 1
        scale = self.batches.noise_scale[me] * rule.noise
        return self.tape.gradient(model, me, draw, self.training.batch_size, scale, rule.clipping_norm)

    def step_size(self) -> float:
        """The current stage's step size."""
        return self.stages[self.stage].step_size

    @property
    def clipping_norm(self) -> float:
        """The current stage's norm; gradients in progress may have an earlier one."""
        return self.stages[self.stage].clipping_norm

    def noise_std_of(self, client: int, gradient: Gradient) -> float:
        """The noise of the rule under which the gradient was computed."""
        scale = self.batches.noise_scale[client]
        return self.batches.noise_std[client] * gradient.noise_scale / scale if scale else 0.0

    def applied(self) -> None:
        """Count an update; the next stage may begin."""
        super().applied()
        while self.stage + 1 < len(self.stages) and self.version >= self.stages[self.stage + 1].first:
            self.stage += 1
