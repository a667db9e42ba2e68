"""A(DP)²SGD against SYNC on CIFAR-10, with a small residual network.

The paper's cases at a scale for two cores: SYNC, AD-PSGD and A(DP)²SGD without a slow learner at four levels of noise,
and in cases I, II and III. `scale` says how long the paper's own networks, images and epochs would take here.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from simfl.models import build_model
from simfl.models.layered import AbstractNetwork
from simfl.papers.adp2sgd import study
from simfl.papers.adp2sgd.study import CIFAR, EQUALLY_FAST, LARGE, METHODS, SIGMA, SLOW
from simfl.reproduction.evidence import Reading
from simfl.reproduction.papers import Experiment, Number, Paper, PaperClaim, Runs

EPOCHS, SEEDS, BATCH = 1, 5, 8
#: As in cases I to III of `scenarios/adp2sgd`.
_SLOWDOWNS = dict(zip(SLOW, ("[{random: 1, factor: 2}]", "[{clients: [3], factor: 10}]"), strict=True))
#: The paper's networks that simfl has, with their options.
FULL: dict[str, tuple[str, dict[str, Any]]] = {
    "ResNet-18": ("resnet", {"blocks": 2, "channels": (64, 128, 256, 512), "normalized_projections": True}),
    "VGG-19": ("vgg", {}),
    "MobileNet": ("mobilenet", {}),
}
IMAGES, FULL_EPOCHS = 50_000, 300


def experiments(quick: bool) -> Sequence[Experiment]:
    """Return pairs of SYNC and AD-PSGD; the quick form has one slow learner."""
    cases = (EQUALLY_FAST, [*SLOW][1]) if quick else (*SIGMA, *SLOW, LARGE)
    return [_experiment(case, kind, 1 if quick else SEEDS) for case, kind in itertools.product(cases, METHODS)]


def _experiment(case: str, kind: str, seeds: int) -> Experiment:
    """Return the runs of a case.

    The paper's batch is 32 times as large, and its noise on the mean is the same.
    """
    factor = 2 if case == LARGE else 1
    sigma = SIGMA["small noise"] if case == LARGE else SIGMA.get(case, SIGMA[EQUALLY_FAST])
    ends = ", ".join(f"{EPOCHS * end / FULL_EPOCHS:.3g}" for end in (160, 240))
    steps = ", ".join(f"{factor * step:g}" for step in (0.4, 0.04, 0.004))
    changes = (
        "record.updates=false", "model.channels=[8, 16, 32]", f"algorithm.batch_size={factor * BATCH}",
        "clients.seconds_per_example=42.7 ms", "links.bandwidth=186 Mbit/s",
        f"algorithm.step_size={{kind: by_epochs, values: [{steps}], boundaries: [{ends}]}}",
        f"stop={{epochs: {EPOCHS}}}", f"evaluate.every={{epochs: {EPOCHS / 4:g}}}", study.noise(sigma * BATCH / 256),
        *([f"slowdowns={_SLOWDOWNS[case]}"] if case in SLOW else []),
    )  # fmt: skip
    return Experiment(CIFAR, (case, kind), f"adp2sgd/cifar10-baseline-{kind}.yaml", changes, seeds)


def times(runs: Runs) -> Iterator[Number]:
    """Yield ratios of times, beside the paper's arithmetic."""
    for case in study.cases_of(runs, CIFAR):
        yield from study.times_of(runs, CIFAR, case, f"Times ({CIFAR})")


def large_batches(runs: Runs) -> Iterator[Reading]:
    """Judge whether SYNC alone collapses at twice the batch and step size."""
    sync, adpsgd = (runs.accuracy(CIFAR, (LARGE, kind)) for kind in METHODS)
    yield Reading({}, [study.collapses(sync, adpsgd, study.COLLAPSE[CIFAR])], own=True)


def rate_of(kind: str, options: dict[str, Any]) -> float:
    """Return the examples a second whose gradients the device clips and sums."""
    import jax
    import numpy as np

    model = build_model(kind, input_shape=(32, 32, 3), num_classes=10, **options)
    assert isinstance(model, AbstractNetwork)
    count = model.cpu_batch if jax.default_backend() == "cpu" else 256
    generator = np.random.default_rng(0)
    batch = generator.normal(size=(count, 32, 32, 3)).astype(np.float32), generator.integers(0, 10, count)
    params, ones, clipped = (
        model.init(np.array([0, 1], np.uint32)),
        np.ones(count, np.float32),
        jax.jit(lambda params, x, y, weight: model.clipped_gradient_sum(params, x, y, weight, 1.0)),
    )
    clipped(params, *batch, ones).block_until_ready()
    start = time.perf_counter()
    for _ in range(UPDATES):
        clipped(params, *batch, ones).block_until_ready()
    return UPDATES * count / (time.perf_counter() - start)


UPDATES = 3


def scale(networks: Sequence[str] = tuple(FULL)) -> Iterator[str]:
    """Yield a line for each network: how long a run at the paper's scale takes."""
    import jax

    for name in networks:
        rate = rate_of(*FULL[name])
        hours = IMAGES * FULL_EPOCHS / rate / 3600
        yield (
            f"{name}: {rate:,.1f} images/s on {jax.devices()[0].device_kind}, measured in {UPDATES} updates: a run of "
            f"{FULL_EPOCHS} epochs of {IMAGES:,} images takes {hours:,.1f} hours"
        )


_on_less = partial(
    PaperClaim,
    instead="on a small residual network and the images that are there",
    short=f"{FULL_EPOCHS} epochs, not one",
)

PAPER = Paper(
    name="adp2sgd_cifar",
    title="A(DP)²SGD on CIFAR-10, with a small residual network",
    page="adp2sgd.md",
    data=("cifar10",),
    minutes=(12, 210),
    experiments=experiments,
    numbers=(study.accuracies, times),
    claims=(
        _on_less("With slow learners A(DP)²SGD is much faster than SYNC to the same accuracy, at the same noise "
                 "(Figures 2 and 3).", partial(study.slow_learners, sections=(CIFAR,)), headline=True, figure="slow"),
        _on_less("At every noise level A(DP)²SGD is as accurate as SYNC after the same epochs (Table 1).",
                 study.equal_accuracy, figure="noise"),
        _on_less("More noise costs both of them accuracy (Figure 1).", study.noise_costs, figure="noise"),
        _on_less("At twice the batch and step size SYNC collapses, A(DP)²SGD converges (Figure 4).", large_batches),
    ),
    figures={
        "slow": ("accuracy over virtual time with slow learners", partial(study.draw_slow, sections=(CIFAR,))),
        "noise": ("accuracy over epochs at four levels of noise", partial(study.draw_noise, sections=(CIFAR,))),
    },
    deviations=(
        "A residual network of eight layers with 8, 16 and 32 channels (19,858 parameters) takes the place of nine "
        "networks, and the images in the data folder that of 50,000: 10,000 in the stored run.",
        f"Runs have {EPOCHS} epoch, not {FULL_EPOCHS}; the step size falls at the same shares. Batches have {BATCH} "
        "examples instead of 256. Noise on the sum is a 32nd of the paper's, so that the noise on the mean is the "
        "paper's.",
        "Times are those of ResNet-18 in Table 2, and those of computing vary by 10 %.",
    ),
    scale=scale,
)  # fmt: skip
