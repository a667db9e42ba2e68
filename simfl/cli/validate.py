"""`simfl validate`: the checks of `simfl run`, without the run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from simfl.cli.shared import Json, Overrides, Scenarios, Seed, aside, changes_of, say, write_json
from simfl.errors import DataError, ScenarioError

if TYPE_CHECKING:
    from simfl.assembly.forecast import Forecast
    from simfl.assembly.setup import Setup

T = TypeVar("T")


def validate(scenarios: Scenarios, overrides: Overrides = None, seed: Seed = None, json: Json = None) -> None:
    """Check scenarios and their data files without running them, and forecast.

    If a scenario names its author's class (kind: module:Class), the module is imported: trust the author.
    """

    def forecast_of(setup: Setup) -> Forecast:
        from simfl.assembly.forecast import forecast  # heavy: only for a scenario that is valid

        return forecast(setup)

    forecasts = load_all(scenarios, overrides, seed, None, forecast_of)
    write_json(json, [{"scenario": str(path), **asdict(one)} for path, one in zip(scenarios, forecasts, strict=True)])
    if not aside(json):
        for path, one in zip(scenarios, forecasts, strict=True):
            print(f"{path}: valid: {_summary(one)}")


def _summary(forecast: Forecast) -> str:
    from simfl.records.display import show_bytes, show_count, show_number, show_range, show_time

    clients = f"{forecast.clients} client{'s' * (forecast.clients != 1)}{' and a server' * forecast.has_server}"
    parts = [", ".join([forecast.algorithm, clients, *([forecast.topology] if forecast.topology else [])])]
    if forecast.spectral_gap is not None:
        parts[0] += f", spectral gap {forecast.spectral_gap:.3g}"
    size = f"{show_count(forecast.parameters)} parameters, {show_bytes(forecast.model_bytes)} in a message"
    parts.append(f"{forecast.model} of {size}")
    slowest = show_time(forecast.longest_message_s)
    takes = slowest if slowest == show_time(forecast.message_s) else f"{show_time(forecast.message_s)} to {slowest}"
    if (problem := forecast.problem) is not None:
        of = {name: show_number(value) for name, value in problem.items()}
        parts.append(
            f"a problem of L {of['smoothness']} (a client's at most {of['client_smoothness']}), mu "
            f"{of['strong_convexity']}, f* {of['optimal_loss']}, zeta {of['zeta']} (a client's at most "
            f"{of['zeta_max']}), sigma {of['sigma']}"
        )
    parts.append(f"a message takes {takes}, a mini-batch {show_time(forecast.batch_s)}")
    if (secure := forecast.secure_sum) is not None:
        parts.append(
            f"a secure sum of {secure.updates} updates takes {show_bytes(secure.sent_bytes)} from each client and "
            f"{show_bytes(secure.received_bytes)} to it, {show_time(secure.client_s)} of its work and "
            f"{show_time(secure.server_s)} of the server's, if none drops out"
        )
    if ":" in forecast.algorithm:
        module = sys.modules.get(forecast.algorithm.partition(":")[0])
        parts.append(f"imported the code in {getattr(module, '__file__', None) or module}")
    for field, ends in forecast.noise.items():
        parts.append(f"{field.replace('_', ' ')} {show_range(*ends)}")
    if forecast.epsilon is not None:
        planned = f"planned epsilon {show_number(forecast.epsilon)} at delta {forecast.delta:g}"
        aborted = " and no secure sum is aborted" if forecast.secure_sum is not None else ""
        parts.append(f"{planned}, if all take part equally often{aborted}")
    parts.append(f"a run needs about {forecast.memory}")
    if forecast.limit is not None:
        parts.append(f"the binding limit is {forecast.limit}")
    return "; ".join(parts)


def load_all(
    paths: Sequence[Path],
    overrides: Sequence[str] | None,
    seed: int | None,
    device: str | None,
    keep: Callable[[Setup], T],
) -> list[T]:
    """Load and check all scenarios; report all problems together.

    `overrides`, `seed` and `device` are the options of `simfl run`. `keep` returns what to keep of each valid setup.
    """
    from simfl.scenario import load
    from simfl.scenario.own_code import look_beside

    changes = changes_of(overrides, seed)
    look_beside(paths)
    kept: list[T] = []
    problems: list[str] = []
    for path in paths:
        where = ""
        try:
            scenario = load(path, changes)
            where = f"{path}: "  # later messages do not name the file
            from simfl.assembly.assemble import prepare  # heavy: not for a scenario that its schema rejects

            setup = prepare(scenario, device)
            for warning in setup.warnings:
                say(where + warning)
            kept.append(keep(setup))
            del setup
        except (ScenarioError, DataError) as error:
            of_machine = "--", "JAX_PLATFORMS:"  # no scenario's
            lines = [line if line.startswith(of_machine) else where + line for line in str(error).splitlines()]
            problems += [line for line in lines if line not in problems]
    if problems:
        raise ScenarioError("\n".join(problems))
    return kept
