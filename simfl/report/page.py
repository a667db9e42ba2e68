"""The page: HTML with its style, its script and its numbers inside, written by hand and escaped piece by piece."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from simfl.errors import ScenarioError
from simfl.plots.style import name_of
from simfl.records import Run
from simfl.records.claims import MOST_GROUPS, RELATIONS, VIEWS, Check, Finding
from simfl.records.comparison import Interval
from simfl.records.display import (
    NOTHING,
    show_bytes,
    show_count,
    show_factor,
    show_number,
    show_range,
    show_share,
    show_time,
)
from simfl.report.content import (
    TIMES,
    Content,
    Part,
    Privacy,
    axis_labels,
    describe_run,
    gather,
)
from simfl.scenario.syntax import write

_SECTIONS = {
    "findings": "In short",
    "curves": "Curves",
    "numbers": "Numbers",
    "settings": "What differs",
    "time": "Where the time went",
    "privacy": "Privacy",
    "again": "How to run it again",
}


def write_report(
    paths: Sequence[str | Path],
    out: str | Path,
    *,
    target: float | None = None,
    baseline: str | None = None,
    check: Callable[[Run], Check] | None = None,
) -> Path:
    """Write a report about runs, or a sweep, and return its path.

    Args:
        paths: folders of runs and sweeps.
        out: the HTML file.
        target: the test accuracy at which times are compared; by default that of the study, or the best that every run
            reached.
        baseline: label of what the others are held against; by default that of the study.
        check: holds the claim of a run against its account, such as `simfl.audit.check.check_run`.

    Raises:
        DataError: a folder that is no run and no sweep, or has no finished run.
        ScenarioError: no such baseline, or a place that cannot be written to.
    """
    place = Path(out)
    text = page(gather(paths, target=target, baseline=baseline, check=check))
    partial = place.with_name(place.name + ".partial")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, place)
    except OSError as error:
        raise ScenarioError(f"{place}: cannot write the report: {error.strerror}") from error
    return place


def page(content: Content) -> str:
    """Return the whole page."""
    bodies = {
        "findings": _list(content.findings),
        "curves": _curves(content),
        "numbers": _numbers(content),
        "settings": _settings(content),
        "time": _times(content),
        "privacy": _privacy(content),
        "again": _again(content),
    }
    shown = {key: body for key, body in bodies.items() if body}
    links = "".join(f'<li><a href="#{key}">{_SECTIONS[key]}</a></li>' for key in shown)
    sections = "".join(
        f'<section id="{key}" aria-labelledby="h-{key}"><h2 id="h-{key}">{_SECTIONS[key]}</h2>{body}</section>'
        for key, body in shown.items()
    )
    question = f'<p class="question">{escape(content.question)}</p>' if content.question else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(content.title)} – simfl report</title>\n"
        f"<style>\n{_asset('page.css')}{_series_colors(content.parts)}</style>\n</head>\n<body>\n"
        f'<header><p class="kind">simfl report</p><h1>{escape(content.title)}</h1>{question}'
        f'<p class="about">{escape(_about(content))}</p></header>\n'
        f'<nav aria-label="Contents"><ul>{links}</ul></nav>\n<main>\n{sections}\n</main>\n'
        f'<script type="application/json" id="data">{_embed(_data(content))}</script>\n'
        f"<script>\n{_asset('page.js')}</script>\n</body>\n</html>\n"
    )


def _asset(name: str) -> str:
    return files("simfl.report").joinpath(name).read_text(encoding="utf-8")


def _embed(values: Any) -> str:
    """Return JSON that cannot end the element it stands in."""
    return json.dumps(values, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _about(content: Content) -> str:
    runs = len(content.runs)
    seeds = {run.manifest.seed for _, run in content.runs}
    kinds = dict.fromkeys(name_of(part.group.algorithm, part.group.private) for part in content.parts)
    clients = sorted({len(run.clients) for _, run in content.runs})
    count = show_range(clients[0], clients[-1], show_count)
    words = [
        "1 run" if runs == 1 else f"{runs} runs",
        f"seed {next(iter(seeds))}" if len(seeds) == 1 else f"{len(seeds)} seeds",
        ", ".join(kinds),
        f"{count} clients",
    ]
    return " · ".join(words)


# -- curves ------------------------------------------------------------------------------------


def _series_colors(parts: Sequence[Part]) -> str:
    """Return the colour of every series, paler on a dark page: black, for one, would not be seen there."""
    light = "".join(f"--s{i}:{part.color};" for i, part in enumerate(parts))
    dark = "".join(f"--s{i}:{_paler(part.color)};" for i, part in enumerate(parts))
    return f":root{{{light}}}\n@media (prefers-color-scheme: dark){{@media screen{{:root{{{dark}}}}}}}\n"


def _paler(color: str) -> str:
    channels = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
    share = 0.8 if max(channels) < 40 else 0.35
    return "#" + "".join(f"{round(value + (255 - value) * share):02x}" for value in channels)


def _data(content: Content) -> dict[str, Any]:
    return {
        "labels": axis_labels(),
        "series": [{"label": part.label, "dash": part.dash, "curves": part.curves} for part in content.parts],
    }


def _curves(content: Content) -> str:
    if not any(part.curves for part in content.parts):
        return ""
    several = any(len(part.group.good) > 1 for part in content.parts)
    note = "Lines are means over seeds, bands 95 % intervals. " if several else ""
    legend = "".join(
        f'<button type="button" class="key" aria-pressed="true" data-series="{i}">{_swatch(i, part)}'
        f"{escape(part.label)}</button>"
        for i, part in enumerate(content.parts)
    )
    return (
        '<div class="controls"><label>Show <select id="y"></select></label> '
        '<label>against <select id="x"></select></label></div>'
        f'<div class="legend" role="group" aria-label="Curves that are shown">{legend}</div>'
        '<figure><div id="chart" tabindex="0" role="img" aria-label="Curves; arrow keys read off their values"></div>'
        '<p id="readout" class="visually-hidden" aria-live="polite"></p>'
        f"<figcaption>{note}Point at the figure, or press the arrow keys in it, to read off values; the names above "
        "switch curves off and on.</figcaption></figure>"
        '<noscript><p class="note">The figure needs JavaScript; all numbers are in the tables.</p></noscript>'
    )


def _swatch(i: int, part: Part) -> str:
    dash = f' stroke-dasharray="{part.dash}"' if part.dash else ""
    return (
        '<svg class="swatch" width="30" height="10" aria-hidden="true"><line x1="1" y1="5" x2="29" y2="5" '
        f'style="stroke:var(--s{i})"{dash}/></svg>'
    )


# -- numbers -----------------------------------------------------------------------------------


def _numbers(content: Content) -> str:
    to_target = f"virtual time to {show_share(content.target)}"
    columns: list[tuple[str, str, Callable[[float, float], str]]] = [
        ("accuracy", "test accuracy", show_share),
        ("loss", "test loss", show_number),
        ("to_target_s", to_target, show_time),
        ("time_s", "virtual time", show_time),
        ("updates", "updates", show_count),
        ("bytes", "data sent", show_bytes),
        ("epsilon", "largest ε", show_number),
    ]
    shown = [
        column
        for column in columns
        if any(not math.isnan(part.measures[column[0]].mean) for part in content.parts)
        and not (column[0] == "to_target_s" and len(content.parts) < 2)
        and not (column[0] == "loss" and any(not math.isnan(p.measures["accuracy"].mean) for p in content.parts))
    ]
    best = {
        "accuracy": max((_mean(part, "accuracy") for part in content.parts), default=math.nan),
        "to_target_s": min((_mean(part, "to_target_s", math.inf) for part in content.parts), default=math.nan),
    }
    held = bool(content.baseline) and all("speedup" in part.measures for part in content.parts)
    rows = []
    for i, part in enumerate(content.parts):
        cells = [
            _cell(part.measures[name], show, len(content.parts) > 1 and best.get(name) == part.measures[name].mean)
            for name, _, show in shown
        ]
        if held:
            speedup = part.measures["speedup"]
            cells.append(f'<td class="num">{show_factor(speedup.mean, speedup.low, speedup.high)}</td>')
        rows.append([f'<th scope="row">{_swatch(i, part)}{escape(part.label)}</th>', *cells])
    several = any(len(part.group.good) > 1 for part in content.parts)
    note = (
        '<p class="note">Means over seeds ± half the 95 % interval (Student\'s t). The best of a column is bold.</p>'
        if several
        else ""
    )
    if held:
        note += (
            f'<p class="note">Speed-up: how many times less virtual time to {show_share(content.target)} than '
            f"{escape(content.baseline)}; a geometric mean over pairs of runs of one seed, with its 95 % interval.</p>"
        )
    headings = ["", *(label for _, label, _ in shown), *(["speed-up"] if held else [])]
    return _table(headings, rows) + note


def _mean(part: Part, name: str, otherwise: float = -math.inf) -> float:
    mean = part.measures[name].mean
    return otherwise if math.isnan(mean) else mean


def _cell(summary: Interval, show: Callable[[float, float], str], best: bool) -> str:
    text = escape(summary.show(show))
    return f'<td class="num">{f"<strong>{text}</strong>" if best else text}</td>'


def _settings(content: Content) -> str:
    if not content.differing or len(content.parts) < 2:
        return ""
    keys = list(content.differing)
    rows = [
        [
            f'<th scope="row">{_swatch(i, part)}{escape(part.label)}</th>',
            *(f"<td>{escape(content.differing[key][i])}</td>" for key in keys),
        ]
        for i, part in enumerate(content.parts)
    ]
    return _table(["", *(f"<code>{escape(key)}</code>" for key in keys)], rows) + (
        '<p class="note">'
        "Options that only some of them have at all are left out; the whole scenarios are "
        "at the end.</p>"
    )


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """Return a table; headings are HTML already, cells come with their elements around them."""
    heads = "".join(f'<th scope="col">{text}</th>' if text else "<td></td>" for text in headings)
    body = "".join(f"<tr>{''.join(cells)}</tr>" for cells in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    head = f"<thead><tr>{heads}</tr></thead>"
    return f'<div class="scroll" tabindex="0"><table>{title}{head}<tbody>{body}</tbody></table></div>'


# -- time --------------------------------------------------------------------------------------


def _times(content: Content) -> str:
    rows = []
    for part in content.parts:
        if not part.times:
            continue
        pieces, told = [], []
        for name in TIMES:
            share = part.times[name]
            if share > 0.0005:
                pieces.append(f'<span class="t-{name}" style="width:{100 * share:.2f}%"></span>')
                told.append(f"{name} {share:.1%}")
        rows.append(
            f'<div class="bar-row"><span class="bar-label">{escape(part.label)}</span>'
            f'<span class="bar" role="img" aria-label="{escape(", ".join(told))}">{"".join(pieces)}</span>'
            f'<span class="bar-told">{escape(" · ".join(told))}</span></div>'
        )
    if not rows:
        return ""
    keys = "".join(f'<span><i class="t-{name}"></i>{name}</span>' for name in TIMES)
    return f'<p class="keys" aria-hidden="true">{keys}</p>{"".join(rows)}' + (
        '<p class="note">Shares of the virtual time of all clients together.</p>'
    )


# -- privacy -----------------------------------------------------------------------------------


def _privacy(content: Content) -> str:
    if not content.privacy:
        return "<p>These runs add no noise: nothing is claimed about privacy, and nothing is certified.</p>"
    note = (
        '<p class="note">A <em>claim</em> is what a paper or its author says that a run spends. <em>Certified</em> is '
        "what an accountant proves for the releases that the run recorded. “If senders were hidden” supposes more than "
        "a scenario can establish, and is never called certified.</p>"
    )
    statements = list(dict.fromkeys(entry.statement for entry in content.privacy if entry.statement))
    parts = [_statement(statements[0])] if len(statements) == 1 else []
    parts += [_privacy_of(entry, len(statements) > 1) for entry in content.privacy]
    return "".join(parts) + note


def _statement(text: str) -> str:
    return f'<p class="statement">{escape(text)}</p>'


def _privacy_of(entry: Privacy, with_statement: bool) -> str:
    parts = [f"<h3>{escape(entry.label)}</h3>"]
    if with_statement and entry.statement:
        parts.append(_statement(entry.statement))
    low, high = entry.spent
    if not math.isnan(high):
        spent = show_range(low, high)
        parts.append(f"<p>Spent by {'the clients' if ' to ' in spent else 'every client'}: ε = {spent}.</p>")
    if entry.check is None:
        parts.append(f'<p class="note">Claim and account could not be worked out here: {escape(entry.problem)}</p>')
        return "".join(parts)
    check = entry.check
    keys = list(check.findings[0].certified) if check.findings else []
    claimed = any(finding.claimed is not None for finding in check.findings)
    headings = ["clients", "releases each", *(["claimed ε"] if claimed else [])]
    headings += [f"{VIEWS[view]}<br><small>{RELATIONS[neighbors]}</small>" for view, neighbors in keys]
    headings += ["verdict"] if claimed else []
    rows = [_finding(finding, keys, claimed) for finding in check.findings[:MOST_GROUPS]]
    parts.append(_table(headings, rows, f"ε at δ = {check.delta:g}"))
    left = len(check.findings) - MOST_GROUPS
    if left > 0:
        parts.append(f'<p class="note">{left} more groups of clients, all with a smaller ε.</p>')
    if not claimed:
        parts.append('<p class="note">The scenario states no claim (<code>privacy.claim</code>).</p>')
    sources = {f.claimed.source for f in check.findings if f.claimed is not None}
    objections = {f.claimed.objection for f in check.findings if f.claimed is not None and f.claimed.objection}
    if sources:
        parts.append(f'<p class="note">Claim: {escape("; ".join(sorted(sources)))}.</p>')
    parts += [f'<p class="note">The theorem does not cover this: {escape(text)}</p>' for text in sorted(objections)]
    return "".join(parts)


def _finding(finding: Finding, keys: Sequence[Any], claimed: bool) -> list[str]:
    cells = [f'<th scope="row">{finding.who}</th>', f'<td class="num">{show_range(*finding.releases, show_count)}</td>']
    if claimed:
        value = math.nan if finding.claimed is None else finding.claimed.epsilon
        cells.append(f'<td class="num">{_epsilon(value, "no claim")}</td>')
    for key in keys:
        cells.append(f'<td class="num">{_epsilon(finding.certified[key], "not certified")}</td>')
    if claimed:
        if finding.claimed is None or math.isnan(finding.claimed.epsilon):
            cells.append(f"<td>{NOTHING}</td>")
        elif finding.understated:
            cells.append('<td><span class="verdict bad">✗ claims too little</span></td>')
        else:
            cells.append('<td><span class="verdict good">✓ holds</span></td>')
    return cells


def _epsilon(value: float, missing: str) -> str:
    if math.isnan(value):
        return f'<span class="note">{missing}</span>'
    return show_number(value)


# -- again -------------------------------------------------------------------------------------


def _again(content: Content) -> str:
    parts = [f"<pre><code>{escape(chr(10).join(content.commands))}</code></pre>"]
    if content.failed:
        rows = [[f'<th scope="row">{escape(run)}</th>', f"<td>{escape(why)}</td>"] for run, why in content.failed]
        parts.append("<h3>Runs that did not end as planned</h3>" + _table(["run", "why"], rows))
    rows = [_run_row(label, run) for label, run in content.runs]
    parts.append(
        f"<details><summary>All {len(rows)} runs, with their digests</summary>"
        + _table(["run", "group", "seed", "status", "wall time", "digest of the tables"], rows)
        + '<p class="note">Equal scenario, seed, device and versions give equal digests.</p></details>'
    )
    parts.append(_versions([run for _, run in content.runs]))
    if content.study:
        parts.append(_source(f"{content.title}.yaml", "The study", content.study))
    for part in content.parts:
        parts.append(_source(part.file, f"Scenario of {part.label}", _scenario_text(part.run)))
    return "".join(parts)


def _run_row(label: str, run: Run) -> list[str]:
    manifest = run.manifest
    return [
        f'<th scope="row">{escape(describe_run(run))}</th>',
        f"<td>{escape(label)}</td>",
        f'<td class="num">{manifest.seed}</td>',
        f"<td>{escape(manifest.status)}</td>",
        f'<td class="num">{escape(show_time(manifest.wall_s))}</td>',
        f"<td><code>{escape(manifest.digest[:16])}</code></td>",
    ]


def _versions(runs: Sequence[Run]) -> str:
    """Return the versions, all that were met where the runs differ."""
    names = dict.fromkeys(name for run in runs for name in run.manifest.versions)
    rows = []
    for name in names:
        met = dict.fromkeys(run.manifest.versions.get(name, "") for run in runs)
        rows.append([f'<th scope="row">{escape(name)}</th>', f"<td>{escape(', '.join(met))}</td>"])
    devices = dict.fromkeys(run.manifest.device for run in runs)
    rows.append(['<th scope="row">device</th>', f"<td>{escape(', '.join(devices))}</td>"])
    return "<details><summary>Versions</summary>" + _table(["", "version"], rows) + "</details>"


def _source(file: str, title: str, text: str) -> str:
    return (
        f'<details><summary>{escape(title)} <a download="{escape(file)}" '
        f'href="data:text/plain;charset=utf-8,{quote(text)}">save as {escape(file)}</a></summary>'
        f"<pre><code>{escape(text)}</code></pre></details>"
    )


def _scenario_text(run: Run) -> str:
    return write(run.scenario)


def _list(sentences: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(sentence)}</li>' for sentence in sentences)}</ul>" if sentences else ""
