"""`simfl list`: the catalogues of scenarios, and the plugins."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from typer import Argument

from simfl.cli.shared import Json, aside, write_json

Catalogue = Literal[
    "algorithms",
    "models",
    "data",
    "topologies",
    "optimizers",
    "compressors",
    "selectors",
    "rules",
    "attacks",
    "plugins",
]


def list_(
    what: Annotated[Catalogue | None, Argument(metavar="WHAT", help="One of the ten; by default all.")] = None,
    json: Json = None,
) -> None:
    """List what scenarios can name, and the plugins.

    For algorithms alone: also who waits for whom, what messages contain, and what each mechanism protects.
    """
    from simfl.cli import listing

    titles = get_args(Catalogue) if what is None else (what,)
    listed = {title: getattr(listing, "attached" if title == "plugins" else title)() for title in titles}
    content = {
        title: {
            name: {"summary": entry.summary, "from": entry.origin, **entry.plain} for name, entry in entries.items()
        }
        for title, entries in listed.items()
    }
    write_json(json, content)
    if aside(json):
        return
    from simfl.cli import screen

    terminal = screen.output()
    for title, entries in listed.items():
        families: dict[str, dict[str, listing.Entry]] = {}
        for name, entry in entries.items():
            family = entry.details.get("family", "others" if title == "algorithms" else "")
            families.setdefault(f"{title}: {family}" if family else title, {})[name] = entry
        for heading, some in families.items():
            lines = {
                name: entry.summary + ("" if entry.origin in ("simfl", name) else f" [{entry.origin}]")
                for name, entry in some.items()
            }
            if what == "algorithms":
                about = {
                    name: {word: text for word, text in some[name].plain.items() if word != "family"} for name in lines
                }
                screen.show_details(heading, lines, about, terminal)
            else:
                screen.show_listing(heading, lines, terminal, 2 + max(map(len, entries)))
