"""The HTML page; the layout is in page.html.j2."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from simfl.comparison.claims import MOST_GROUPS, RELATIONS, VIEWS, Check
from simfl.comparison.comparing import FEW
from simfl.errors import to_path
from simfl.records import Run, RunFolder
from simfl.records.display import show_bytes, show_count, show_factor, show_number, show_range, show_share, show_time
from simfl.reports.content import TIMES, Content, Part, axis_labels, describe_run, gather
from simfl.reports.played import PLAYED
from simfl.reports.player import MOST_RUNS
from simfl.reports.player import page as page_of_player
from simfl.reports.template import asset, embedded, environment, write_page
from simfl.scenario.syntax import write

#: The page plays runs whose tables have at most this size on the disk; their content adds about as much to it.
MOST_PLAYED_BYTES = 2_000_000
_LEAST_SHARE = 0.0005  # of the clients' time; a smaller one is invisible


def write_report(
    paths: Sequence[str | Path],
    out: str | Path,
    *,
    target: float | str | None = None,
    baseline: str | None = None,
    check: Callable[[Run], Check] | None = None,
    tell: Callable[[str], None] = warnings.warn,
) -> Path:
    """Write a report about runs, or a sweep, and return its path.

    Arguments and errors are those of `simfl.report`. `check` compares the claim of a run with its account, such
    as `simfl.accounts.check.check_run`.
    """
    place = to_path(out, "out: the path of an HTML file")
    return write_page(place, page(gather(paths, target=target, baseline=baseline, check=check, tell=tell)), "report")


def page(content: Content) -> str:
    """Return the whole page."""
    templates = environment()
    templates.tests["nan"] = math.isnan
    templates.filters.update(
        name=describe_run, number=show_number, quote=quote, share=show_share, time=show_time, yaml=write
    )

    return templates.get_template("page.html.j2").render(
        content=content,
        about=_about(content),
        style=asset("page.css"),
        script=asset("page.js"),
        colors=_series_colors(content.parts),
        data=embedded(json.dumps(_data(content), separators=(",", ":"), allow_nan=False)),
        has_curves=any(part.curves for part in content.parts),
        several=any(len(part.group.good) > 1 for part in content.parts),
        many=max((len(part.group.good) for part in content.parts), default=0) >= FEW,
        activities=TIMES,
        times=_times(content),
        statements=list(dict.fromkeys(entry.statement for entry in content.privacy if entry.statement)),
        assumed=_distinct([entry.assumptions for entry in content.privacy if entry.assumptions]),
        most_groups=MOST_GROUPS,
        views=VIEWS,
        relations=RELATIONS,
        range_of=show_range,
        counts_of=lambda low, high: show_range(low, high, show_count),
        versions=_versions([run for _, run in content.runs]),
        **_numbers(content),
        **_played(content),
    )


def _distinct(words: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    return [one for number, one in enumerate(words) if one not in words[:number]]


def _about(content: Content) -> str:
    runs = len(content.runs)
    seeds = {run.seeds for _, run in content.runs}
    kinds = dict.fromkeys(part.name for part in content.parts)
    clients = sorted({len(run.clients) for _, run in content.runs})
    seed_words = f"seed {next(iter(seeds))}" if len(seeds) == 1 else f"{len(seeds)} seeds"
    count = show_range(clients[0], clients[-1], show_count)
    return " · ".join(["1 run" if runs == 1 else f"{runs} runs", seed_words, ", ".join(kinds), f"{count} clients"])


def _series_colors(parts: Sequence[Part]) -> str:
    light = "".join(f"--s{i}:{part.color};" for i, part in enumerate(parts))
    dark = "".join(f"--s{i}:{paler(part.color)};" for i, part in enumerate(parts))
    return f":root{{{light}}}\n@media (prefers-color-scheme: dark){{@media screen{{:root{{{dark}}}}}}}\n"


def paler(color: str) -> str:
    """Return the color for a dark page."""
    channels = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
    share = 0.8 if max(channels) < 40 else 0.35
    return "#" + "".join(f"{round(value + (255 - value) * share):02x}" for value in channels)


def _data(content: Content) -> dict[str, Any]:
    return {
        "labels": axis_labels(content.parts),
        "series": [{"label": part.label, "dash": part.dash, "curves": part.curves} for part in content.parts],
    }


def _numbers(content: Content) -> dict[str, Any]:
    """Return the headings and rows of measures: (text, whether the best) each."""
    columns: list[tuple[str, str, Callable[[float, float], str]]] = [
        ("accuracy", "test accuracy", show_share),
        ("loss", "test loss", show_number),
        ("to_target_s", f"virtual time to {content.target.short}", show_time),
        ("time_s", "virtual time", show_time),
        ("updates", "updates", show_count),
        ("bytes", "data sent", show_bytes),
        ("epsilon", "largest ε", show_number),
    ]
    means = {name: [part.measures[name].mean for part in content.parts] for name, _, _ in columns}
    best = {"accuracy": np.fmax.reduce(means["accuracy"]), "to_target_s": np.fmin.reduce(means["to_target_s"])}
    hidden = {name for name, values in means.items() if np.isnan(values).all()}
    hidden |= {"to_target_s"} if len(content.parts) < 2 else set()
    hidden |= set() if "accuracy" in hidden else {"loss"}
    shown = [column for column in columns if column[0] not in hidden]
    has_baseline = bool(content.baseline) and all("speedup" in part.measures for part in content.parts)
    rows = []
    for part in content.parts:
        cells = [
            (part.measures[name].show(show), len(content.parts) > 1 and best.get(name) == part.measures[name].mean)
            for name, _, show in shown
        ]
        if has_baseline:
            speedup = part.measures["speedup"]
            cells.append((show_factor(speedup.mean, speedup.low, speedup.high), False))
        rows.append((part, cells))
    headings = [label for _, label, _ in shown] + ["speed-up"] * has_baseline
    return {"headings": headings, "rows": rows}


def _played(content: Content) -> dict[str, Any]:
    """Return the player of the first parts with a timeline, None if it is long.

    Reports of runs without a timeline do not grow.
    """
    parts = [part for part in content.parts if RunFolder(part.run.folder).table_path("timeline").exists()][:MOST_RUNS]
    paths = [RunFolder(part.run.folder).table_path(name) for part in parts for name in PLAYED]
    size = sum(path.stat().st_size for path in paths if path.exists())
    short = parts and size <= MOST_PLAYED_BYTES
    return {
        "player": page_of_player([part.run for part in parts]) if short else None,
        "played": [part.label for part in parts],
    }


def _times(content: Content) -> list[tuple[Part, list[tuple[str, float]], list[str]]]:
    rows = []
    for part in content.parts:
        shares = [(name, share) for name, share in part.times.items() if share > _LEAST_SHARE]
        if part.times:
            rows.append((part, shares, [f"{name} {share:.1%}" for name, share in shares]))
    return rows


def _versions(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Return the versions and devices, all of them if the runs differ."""
    names = dict.fromkeys(name for run in runs for name in run.manifest.versions)
    versions = {name: [run.manifest.versions.get(name, "") for run in runs] for name in names}
    versions["device"] = [run.manifest.device for run in runs]
    return {name: list(dict.fromkeys(values)) for name, values in versions.items()}
