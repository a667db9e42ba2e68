"""A page that plays runs: the graph, messages in flight, lanes and curves.

The page is one HTML file with the content of `simfl.reports.played`. Its scripts are in `scripts/`: `replay.js`
computes the state at a moment, and the others draw it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, overload

from simfl.errors import ScenarioError, to_path
from simfl.records import ACTIVITIES, Run, read
from simfl.reports.played import Content, gather
from simfl.reports.template import asset, embedded, environment, hash_of, write_page

Runs = Run | str | Path | Sequence[Run | str | Path]

MOST_RUNS = 2

SCRIPTS = ("replay", "words", "colors", "canvas", "graph", "lanes", "curves", "details", "player")
"""The scripts of each page with a player, in their order; one more shows the runs."""


class Player:
    """A page that plays runs.

    `html` is its text. Notebooks show it in a frame of `height` pixels.
    """

    def __init__(self, html: str, height: int) -> None:
        self.html, self.height = html, height

    def save(self, out: str | Path) -> Path:
        """Write the page; ScenarioError if that fails."""
        return write_page(to_path(out, "out: the path of an HTML file"), self.html, "page")

    def _repr_html_(self) -> str:
        style = f"width: 100%; height: {int(self.height)}px; border: 0"
        return (
            f'<iframe title="simfl play" sandbox="allow-scripts" style="{style}" srcdoc="{escape(self.html)}"></iframe>'
        )


@overload
def play(runs: Runs, out: str | Path = "play.html") -> Path: ...


@overload
def play(runs: Runs, out: None, *, height: int = 900) -> Player: ...


def play(runs: Runs, out: str | Path | None = "play.html", *, height: int = 900) -> Path | Player:
    """Write a self-contained page that plays one run, or two side by side.

    Args:
        runs: a run or its folder, or two of them, which play under one clock.
        out: the HTML file, whose path is returned. None: return a `Player`, which a notebook displays.
        height: pixels of a `Player` in a notebook.

    Raises:
        DataError: a folder is not a run's, or the run has no evaluation.
        ScenarioError: more than two runs, or a file that cannot be written.
    """
    place = out if out is None else to_path(out, "out: the path of an HTML file")
    player = Player(page(runs), height)
    return player if place is None else player.save(place)


def page(runs: Runs) -> str:
    """Return the page as text; see `play`."""
    given = list(runs) if isinstance(runs, Iterable) and not isinstance(runs, str | bytes) else [runs]
    several = [run if isinstance(run, Run) else read(run) for run in given]
    if not 0 < len(several) <= MOST_RUNS:
        raise ScenarioError(f"play: expected one run, or two to play side by side, found {len(several)}")
    contents = [gather(run) for run in several]
    notes = [(content.values["name"], note) for content in contents for note in content.notes]
    heads = [content.values for content in contents]
    return render(heads, data_of(contents), script="play", notes=notes)


def data_of(contents: Sequence[Content]) -> dict[str, Any]:
    """Return what `showRuns` of `player.js` takes."""
    return {"runs": [content.values for content in contents], "activities": ACTIVITIES}


def render(
    heads: Sequence[Mapping[str, Any]],
    data: Mapping[str, Any],
    script: str,
    notes: Sequence[tuple[str, str]] = (),
    live: bool = False,
) -> str:
    """Return the page for runs whose `head_of` is given.

    `script` is the name of the one that shows `data`. A `live` page may ask its own server for more.
    """
    scripts = asset(*(f"scripts/{name}.js" for name in (*SCRIPTS, script)))
    return (
        environment()
        .get_template("player.html.j2")
        .render(
            heads=heads,
            notes=notes,
            live=live,
            title=" | ".join(dict.fromkeys(head["name"] for head in heads)),
            script=scripts,
            script_hash=hash_of(scripts),
            style=asset("player.css"),
            data=embedded(json.dumps(data, separators=(",", ":"))),
        )
    )
