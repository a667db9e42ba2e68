"""A page that plays runs: the graph, messages in flight, lanes and curves.

The page is one HTML file with the content of `simfl.reports.played`. Its scripts are in `scripts/`: `replay.js`
computes the state at a moment, and the others draw it.
"""

from __future__ import annotations

import functools
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

    `html` is its text. Notebooks show it with a height of `height` pixels: as a widget if anywidget is installed, else
    in a frame.
    """

    def __init__(self, contents: Sequence[Content], height: int) -> None:
        self._contents = contents
        self.html, self.height = page_of(contents), height

    def save(self, out: str | Path) -> Path:
        """Write the page; ScenarioError if that fails."""
        return write_page(to_path(out, "out: the path of an HTML file"), self.html, "page")

    @functools.cached_property
    def widget(self) -> Any:
        """The player as a widget of a notebook; ImportError without anywidget.

        Its `now` is the moment in seconds of virtual time, which a notebook can read and set; its `client` is the
        number of the client that was clicked, or None.
        """
        values = {"_body": body_of(self._contents), "_data": json.dumps(data_of(self._contents), separators=(",", ":"))}
        return _widget_class()(**values, height=int(self.height))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        """Return the frame, and the widget if anywidget is installed."""
        frame = {"text/html": self._repr_html_(), "text/plain": "a player of simfl runs"}
        try:
            return frame | self.widget._repr_mimebundle_()[0]
        except ImportError:
            return frame

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
    player = Player(contents_of(runs), height)
    return player if place is None else player.save(place)


@functools.cache
def _widget_class() -> Any:
    import anywidget
    from traitlets import Float, Int, Unicode

    class PlayerWidget(anywidget.AnyWidget):  # type: ignore[misc]
        """The player with its moment."""

        _esm = asset(*(f"scripts/{name}.js" for name in (*SCRIPTS, "widget"))) + "export default playerWidget;\n"
        _style = Unicode(str(asset("player.css"))).tag(sync=True)
        _body = Unicode("").tag(sync=True)
        _data = Unicode("").tag(sync=True)
        height = Int(900).tag(sync=True)
        now = Float(0.0).tag(sync=True)
        client = Int(None, allow_none=True).tag(sync=True)

    return PlayerWidget


def page(runs: Runs) -> str:
    """Return the page as text; see `play`."""
    return page_of(contents_of(runs))


def contents_of(runs: Runs) -> list[Content]:
    """Return the content of one run or two; see `play`."""
    given = list(runs) if isinstance(runs, Iterable) and not isinstance(runs, str | bytes) else [runs]
    several = [run if isinstance(run, Run) else read(run) for run in given]
    if not 0 < len(several) <= MOST_RUNS:
        raise ScenarioError(f"play: expected one run, or two to play side by side, found {len(several)}")
    return [gather(run) for run in several]


def page_of(contents: Sequence[Content]) -> str:
    """Return the page of some content."""
    return render([content.values for content in contents], data_of(contents), script="play", notes=notes_of(contents))


def body_of(contents: Sequence[Content]) -> str:
    """Return the elements of the page without its scripts."""
    heads = [content.values for content in contents]
    template = environment().get_template("player_body.html.j2")
    return template.render(heads=heads, notes=notes_of(contents), live=False, title=title_of(heads))


def notes_of(contents: Sequence[Content]) -> list[tuple[str, str]]:
    """Return what is missing or thinned out, as (name of the run, text)."""
    return [(content.values["name"], note) for content in contents for note in content.notes]


def title_of(heads: Sequence[Mapping[str, Any]]) -> str:
    """Return the names of the runs."""
    return " | ".join(dict.fromkeys(head["name"] for head in heads))


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
            title=title_of(heads),
            script=scripts,
            script_hash=hash_of(scripts),
            style=asset("player.css"),
            data=embedded(json.dumps(data, separators=(",", ":"))),
        )
    )
