"""Measure what the A(DP)²SGD paper claims, with the scenarios beside this file, over several seeds.

    python scenarios/adp2sgd/study.py --seeds 3 [--prefix lenet5-] [--out results]

Prints two Markdown tables: accuracy at equal epochs, and the time to the same accuracy. The target
of a pair of runs is a quarter of a point below the best accuracy that both reached, so that the
time does not hang on the last digit of a plateau.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import simfl
from simfl.records import common_accuracy, time_to_accuracy

HERE = Path(__file__).parent


def pair(case: str, seed: int, out: Path) -> tuple[simfl.Run, simfl.Run]:
    """Run SYNC and AD-PSGD on one case."""
    loaded = (simfl.load(HERE / f"{case}-{kind}.yaml", [f"seed={seed}"]) for kind in ("sync", "adpsgd"))
    sync, adpsgd = (simfl.run(scenario, out=out) for scenario in loaded)
    return sync, adpsgd


def spread(values: list[float], digits: int = 2) -> str:
    """Mean and standard deviation over seeds."""
    return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=min(1, len(values) - 1)):.{digits}f}"


def main() -> None:
    """Run the study and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--prefix", default="", help="lenet5- or cifar10- for those models")
    arguments = parser.parse_args()
    names = ["baseline", "noise-small", "noise-medium", "noise-large", "case1", "case2", "case3"]
    if arguments.prefix:
        names = ["baseline", "small", "medium", "large"]
    cases = [arguments.prefix + name for name in names if (HERE / f"{arguments.prefix}{name}-sync.yaml").exists()]
    accuracy_rows, time_rows = [], []
    for case in cases:
        accuracy: dict[str, list[float]] = {"sync": [], "adpsgd": []}
        ratios, rates, times, epsilons = [], [], [], []
        for seed in range(1, arguments.seeds + 1):
            runs = pair(case, seed, arguments.out)
            target = common_accuracy(runs) - 0.0025
            reached = [time_to_accuracy(run, target) for run in runs]
            times.append(reached)
            ratios.append(reached[0] / reached[1])
            # Virtual time for the same number of epochs.
            rates.append(
                (runs[0].manifest.time_s / runs[0].manifest.updates)
                / (runs[1].manifest.time_s / runs[1].manifest.updates)
            )
            for run, values in zip(runs, accuracy.values(), strict=True):
                values.append(100 * run.metrics["test_accuracy"].iloc[-1])
            epsilons.append([run.epsilon_and_delta()[0] for run in runs])
        difference = np.subtract(accuracy["adpsgd"], accuracy["sync"]).tolist()
        certified = np.mean(epsilons, axis=0)
        private = "none" if np.isnan(certified).any() else f"{certified[0]:.2f} / {certified[1]:.2f}"
        accuracy_rows.append(
            f"| {case} | {spread(accuracy['sync'])} | {spread(accuracy['adpsgd'])} | {spread(difference)} | {private} |"
        )
        mean = np.mean(times, axis=0)
        time_rows.append(f"| {case} | {mean[0]:.2f} | {mean[1]:.2f} | {spread(ratios)} | {spread(rates)} |")
    print(f"\n{arguments.seeds} seeds, mean ± standard deviation\n")
    print("| case | SYNC accuracy % | AD-PSGD accuracy % | difference | largest epsilon, SYNC / AD-PSGD |")
    print("| --- | --- | --- | --- | --- |", *accuracy_rows, sep="\n")
    print("\n| case | SYNC: s to the same accuracy | AD-PSGD | ratio | ratio of times for equal epochs |")
    print("| --- | --- | --- | --- | --- |", *time_rows, sep="\n")


if __name__ == "__main__":
    main()
