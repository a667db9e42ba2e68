"""`simfl privacy sizes`: sample sizes by round, and Theorem 3's noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from simfl.accounts.shared import Arguments, AsJson, ChosenAccountant, ChosenNeighbors, OptionsOf, Row, present, show

if TYPE_CHECKING:
    from simfl.papers.async_fl.sizes import AbstractSizes

_MOST_ROUNDS = 1_000_000
_NOISE = OptionsOf(
    "simfl.papers.async_fl.privacy:theorem_3_noise", rename={"num_examples": "examples"}, leave_out=("sizes",),
    defaults={"num_examples": None, "epsilon": None, "delta": None},
    helps={"num_examples": "N, examples of the client; adds the noise.", "delta": "Delta in (0, 1); 1/N by default.",
           "epsilon": "Epsilon > 0 that is wanted; with --examples."},
)  # fmt: skip


def command(
    sizes: Annotated[
        str,
        typer.Argument(
            metavar="SIZES", help="As algorithm.sizes of a scenario: a number, or '{kind: polynomial, a: 2, b: 3}'."
        ),
    ],
    noise: Annotated[Arguments, _NOISE],
    rounds: Annotated[int | None, typer.Option("--rounds", help="T; or the gradients.", show_default=False)] = None,
    gradients: Annotated[
        float | None, typer.Option("--gradients", help="K, the sum of all sizes, or a little more.", show_default=False)
    ] = None,
    neighbors: ChosenNeighbors = "add_or_remove",
    accountant: ChosenAccountant = "tightest",
    as_json: AsJson = False,
) -> None:
    """Asynchronous FL: sample sizes of all rounds, and Theorem 3's least noise.

    Van Dijk et al. 2020, Lemmas 1 and 2, Theorems 3 to 5 and Table 2.
    """
    from simfl.papers.async_fl.kind import sequence_of
    from simfl.scenario import from_mapping
    from simfl.scenario.syntax import read

    if (noise["epsilon"] is None) != (noise["num_examples"] is None):
        raise ValueError("expected --epsilon and --examples together, or neither")
    algorithm = {"kind": "async_fl", "batch_size": 1, "sizes": read(sizes, "SIZES").content}
    content = {"data": {"set": "digits"}, "clients": {"count": 1}, "algorithm": algorithm}
    sequence = sequence_of(from_mapping(content))  # the schema checks the sizes
    count = _rounds(sequence, rounds, gradients)
    drawn, total = sequence.first(count), sequence.total(count)
    shown = [f"{size:,}" for size in drawn[:6]] + (["…", f"{drawn[-1]:,}"] if count > 6 else [])
    rows: list[Row | str] = [
        ("rounds, T", count, ""),
        ("sizes", ", ".join(shown), "examples in a round"),
        ("gradients, K", total, "the sum of all sizes"),
        ("different sizes", len(set(drawn)), ""),
    ]
    result: dict[str, Any] = {"rounds": count, "sizes": drawn, "gradients": total, "noise": None}
    if noise["num_examples"] is not None:
        from simfl.papers.async_fl.privacy import theorem_3_noise
        from simfl.papers.async_fl.selection import epsilon_of_sizes

        examples, epsilon = noise["num_examples"], noise["epsilon"]
        delta = 1.0 / examples if noise["delta"] is None else noise["delta"]
        sigma = theorem_3_noise(drawn, **{**noise, "delta": delta})
        certified = epsilon_of_sizes(drawn, examples, sigma, delta, neighbors=neighbors, accountant=accountant)
        batches = "Poisson" if neighbors == "add_or_remove" else "fixed size"
        rows += [
            f"Noise for (epsilon = {show(epsilon)}, delta = {show(delta)}), {examples:,} examples",
            ("noise multiplier, sigma", sigma, "claim of Theorem 3, the smallest"),
            ("epsilon", certified, f"certified for this noise; {batches}"),
        ]
        result["noise"] = {"sigma": sigma, "epsilon": epsilon, "delta": delta, "certified_epsilon": certified}
    present(f"Sample sizes: {sizes}, {count:,} rounds", rows, result=result, as_json=as_json)


def _rounds(sequence: AbstractSizes, rounds: int | None, gradients: float | None) -> int:
    from simfl.privacy import checks

    if (rounds is None) == (gradients is None):
        raise ValueError("expected either --rounds or --gradients")
    if rounds is not None:
        checks.whole(1, _MOST_ROUNDS, rounds=rounds)
        return rounds
    assert gradients is not None
    checks.positive(gradients=gradients)
    if (most := sequence.total(_MOST_ROUNDS)) < gradients:
        raise ValueError(f"gradients: expected at most {most:,}, those of {_MOST_ROUNDS:,} rounds, found {gradients:g}")
    return sequence.rounds_for(gradients)
