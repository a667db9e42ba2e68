"""Graphs in files: edge lists, adjacency lists, GraphML, GML and Pajek.

Nodes named 0..K-1 keep their numbers, others are numbered in the order in which the file first names them. Of links the
values in `OF_LINKS` are read, of nodes nothing. A file that is likely in another format, or that names one link twice
with other values, is refused.

Text files have one edge `a b` or one node with its neighbors `a b c ...` on a line. Their first line that is not a
comment says what separates values: a comma, a semicolon, a tab, or else spaces. A comment is what follows `#` at the
beginning of a line or after a space, as in files of SNAP and networkx, and a line that begins with `%`, as in KONECT's.
"""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx

from simfl import shipped
from simfl.data.files import is_endless
from simfl.errors import DataError, ScenarioError

#: Values of links in a file: names of edge attributes, or of columns.
OF_LINKS = ("latency", "bandwidth", "loss")
#: The graph attribute in which a reader lists the parts of a file that it did not read.
UNREAD = "unread"
#: The edge attribute with the line of a file.
LINE = "line"

#: Names of the columns of nodes in the header of an edge list, without case.
_ENDS = (
    ("source", "target"), ("from", "to"), ("src", "dst"), ("fromnodeid", "tonodeid"), ("node1", "node2"),
    ("node_1", "node_2"), ("id1", "id2"), ("id_1", "id_2"),
)  # fmt: skip
_COMMENT = re.compile(r"\s*%.*|(^|(?<=\s))#.*")
#: The attributes of an edge as networkx's `write_edgelist` writes them.
_ATTRIBUTES = re.compile(r"\s*(\{.*\})\s*$")
_SHOWN = 5


class Row(NamedTuple):
    """A row of a text file, with attributes as networkx's `write_edgelist` has them."""

    line: int
    words: list[str]
    attributes: dict[str, Any]


def read_edges(num_clients: int, path: str | Path) -> nx.Graph[int]:
    """Read lines `a b`, and more columns if a header names them."""
    separator, rows = _rows(path)
    ends, columns = _header(rows) or ((0, 1), [])
    edges = rows[1:] if columns else rows
    width = len(rows[0].words) if rows else 0
    names = [name.lower() for name in columns]
    unread = [name for i, name in enumerate(columns) if i not in ends and names[i] not in OF_LINKS]
    if separator is None and unread and {*names} & {*OF_LINKS}:  # 5 ms would be 5 s, and ms a value of that column
        expected = "latency, bandwidth and loss only, as spaces separate values"
        raise _wrong(path, rows[0].line, expected, ", ".join(unread), "separate values by commas")
    graph: nx.Graph[str] = nx.Graph()
    has_values = bool(columns) or any(row.attributes for row in rows)
    for line, words, attributes in edges:
        if len(words) < 2:
            advice = "write one link on a line, separated as in the first one"
            raise _wrong(path, line, "two nodes 'a b'", repr(" ".join(words)), advice)
        if len(words) > width or (len(words) < width and not columns):
            expected = f"{width} values, as in line {rows[0].line}"
            advice = "name the columns in a first line, or use kind: adjacency_list"
            if columns:
                advice = "name each column there, and write units without a space, as in 5ms"
            raise _wrong(path, line, expected, f"{len(words)}, {' '.join(words)!r}", advice)
        cells = dict(zip(names, words, strict=False)) | attributes
        values = {name: value for name, value in cells.items() if name in OF_LINKS and value != ""}
        one, other = (words[i] if i < len(words) else "" for i in ends)
        if not one or not other:
            raise _wrong(path, line, "two nodes 'a b'", repr(" ".join(words)), "name both")
        if has_values:
            _add(graph, path, line, one, other, values)
        else:
            graph.add_edge(one, other)
        unread += [name for name in attributes if name not in (*OF_LINKS, *unread)]
    if not columns:
        _refuse_counts(path, rows, graph, num_clients)
    graph.graph[UNREAD] = (*unread, *(["the columns after the first two"] if width > 2 and not columns else []))
    return _numbered(graph, path, num_clients)


def read_neighbors(num_clients: int, path: str | Path) -> nx.Graph[int]:
    """Read lines `a b c ...`: a node and its neighbors."""
    graph: nx.Graph[str] = nx.Graph()
    _, rows = _rows(path)
    for line, words, attributes in rows:
        if attributes or not all(words):
            advice = "name each, or use kind: edge_list"
            raise _wrong(path, line, "a node and its neighbors 'a b c'", repr(" ".join(words)), advice)
        graph.add_node(words[0])
        graph.add_edges_from((words[0], other) for other in words[1:])
    _refuse_counts(path, rows, graph, num_clients, nodes_have_lines=True)
    return _numbered(graph, path, num_clients)


def read_graphml(path: str | Path, where: str = "topology.path") -> nx.Graph[Any]:
    """Read a GraphML file, which the key `where` of the scenario names.

    Raises:
        DataError: the file is missing or malformed.
    """
    return _read(path, "a GraphML file", lambda: nx.read_graphml(path), where)


def read_gml(path: str | Path) -> nx.Graph[Any]:
    """Read a GML file; labels are the names of nodes if each has its own, else ids."""

    def read() -> nx.Graph[Any]:
        lines = _text(path).encode("ascii", "xmlcharrefreplace").decode("ascii").split("\n")
        graph: nx.Graph[Any] = nx.parse_gml(lines, label="id")
        labels = {node: values.pop("label") for node, values in graph.nodes(data=True) if "label" in values}
        is_name = len({str(label) for label in labels.values()}) == len(graph)
        return nx.relabel_nodes(graph, labels) if is_name else graph

    return _read(path, "a GML file", read)


def read_pajek(path: str | Path) -> nx.Graph[Any]:
    """Read a Pajek file with vertices and arcs, edges or a matrix."""

    def read() -> nx.Graph[Any]:
        lines = [line for line in _text(path).split("\n") if line.strip() and not line.lstrip().startswith("%")]
        sections = [line.split() for line in lines if line.startswith("*")]
        names = "".join(f"{words[0].lower()} " for words in sections)
        if not re.fullmatch(r"(\*network )?\*vertices ((\*(arcs|edges) )+|\*matrix )", names):
            raise DataError(
                f"{path}: topology.path: expected a Pajek file with *Vertices, and *Arcs, *Edges or *Matrix, found "
                f"{names.strip() or 'none of them'}"
            )
        graph: nx.Graph[Any] = nx.parse_pajek(lines)
        count = next(words[1] for words in sections if words[0].lower() == "*vertices")
        if len(graph) != int(count):  # two vertices with one label are one node, unknown numbers in edges are others
            raise DataError(
                f"{path}: topology.path: expected {count} vertices, as *Vertices says, found {len(graph)}; give each a "
                "label of its own, and name no others in edges"
            )
        for _, values in graph.nodes(data=True):
            values.pop("id", None)
        return graph

    return _read(path, "a Pajek file", read)


def of_format(read: Callable[[str | Path], nx.Graph[Any]]) -> Callable[..., nx.Graph[int]]:
    """Return the reader of a topology for a format with attributes."""

    def build(num_clients: int, path: str | Path) -> nx.Graph[int]:
        graph = read(path)
        _refuse_other_values(graph, path)
        graph.graph[UNREAD] = tuple(_unread(graph))
        return _numbered(graph, path, num_clients)

    return build


def of_links(graph: nx.Graph[Any]) -> dict[tuple[int, int], dict[str, Any]]:
    """Return the values of links, in both directions for undirected edges."""
    links: dict[tuple[int, int], dict[str, Any]] = {}
    for one, other, link in _values(graph):
        links[one, other] = link
        if not graph.is_directed():
            links[other, one] = link
    return links


def _values(graph: nx.Graph[Any]) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """Yield the links that have values, with their line if that is known."""
    defaults = {name: value for name, value in graph.graph.get("edge_default", {}).items() if name in OF_LINKS}
    for one, other, values in graph.edges(data=True):
        given = {name: value for name, value in values.items() if name in OF_LINKS and value not in (None, "")}
        if link := defaults | given:
            yield one, other, link | ({LINE: values[LINE]} if LINE in values else {})


def _refuse_other_values(graph: nx.Graph[Any], path: str | Path) -> None:
    """Refuse parallel edges with other values: one of them would win."""
    links: dict[Any, dict[str, Any]] = {}
    for one, other, link in _values(graph) if graph.is_multigraph() else ():
        before = links.setdefault((one, other) if graph.is_directed() else frozenset((one, other)), link)
        if before != link:
            raise DataError(
                f"{path}: topology.path: link {one} - {other}: expected one latency, bandwidth and loss, found "
                f"{_show(before)}, and {_show(link)}; keep one of the two"
            )


def _add(graph: nx.Graph[str], path: str | Path, line: int, one: str, other: str, values: dict[str, Any]) -> None:
    """Add an edge; the same edge again has the same values."""
    if not graph.has_edge(one, other):
        graph.add_edge(one, other, **values, **{LINE: line})
        return
    before = graph.edges[one, other]
    first = {name: value for name, value in before.items() if name != LINE}
    if first != values:
        expected = f"the values of link {one} - {other} in line {before[LINE]}, {_show(first)}"
        advice = "keep one of the two; a link has the same values both ways, unless links.rules have a direction"
        raise _wrong(path, line, expected, _show(values), advice)


def _show(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items()) or "none"


def _unread(graph: nx.Graph[Any]) -> Iterator[str]:
    """Yield the attributes of a file's graph other than those in `OF_LINKS`."""
    own = dict(graph.graph)
    defaults = {what: own.pop(f"{what}_default", {}) for what in ("node", "edge")}
    links = {name for _, _, values in graph.edges(data=True) for name in values} - {"id"}
    nodes = {name for _, values in graph.nodes(data=True) for name in values}
    links = (links | {*defaults["edge"]}) - {*OF_LINKS}
    for names, what in ((links, "links"), (nodes | {*defaults["node"]}, "nodes"), (own, "graph")):
        if names:
            yield f"{', '.join(sorted(map(str, names)))} (of {'the graph' if what == 'graph' else what})"
    if graph.is_directed() and any(not graph.has_edge(other, one) for one, other in graph.edges()):
        yield "directions"


# -- text files ----------------------------------------------------------------------------------


def _rows(path: str | Path) -> tuple[str | None, list[Row]]:
    """Return what separates the values of a text file, None for spaces, and its rows."""
    separator: str | None = ""
    rows = []
    for line, text in enumerate(_text(path).split("\n"), start=1):
        bare, attributes = _split(_COMMENT.sub("", text))
        if not bare.strip():
            continue
        if separator == "":
            separator = next((sign for sign in (",", ";", "\t") if sign in bare), None)
        try:
            words = (
                bare.split()
                if separator is None
                else [word.strip() for word in next(csv.reader([bare], delimiter=separator, skipinitialspace=True))]
            )
        except csv.Error as error:
            raise _wrong(path, line, "a line of nodes", str(error), "correct it") from None
        while len(words) > 2 and not words[-1]:
            words.pop()
        rows.append(Row(line, words, attributes))
    return separator, rows


def _split(text: str) -> tuple[str, dict[str, Any]]:
    """Return a line without the attributes at its end, and these."""
    match = _ATTRIBUTES.search(text)
    try:
        attributes = ast.literal_eval(match[1]) if match else {}
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text, {}
    if match is None or not isinstance(attributes, dict):
        return text, {}
    return text[: match.start()], {str(name): value for name, value in attributes.items()}


def _header(rows: list[Row]) -> tuple[tuple[int, int], list[str]] | None:
    """Return the places of a row's two nodes, and the names of columns, or None.

    A first row is a header if it names the columns of nodes or of values, or if its nodes are the only ones that are
    not numbers. The nodes of a header are not in other rows.
    """
    if not rows or len(rows[0].words) < 2:
        return None
    names = rows[0].words
    lower = [name.lower() for name in names]
    pair = next((pair for pair in _ENDS if {*pair} <= {*lower}), None)
    ends = (0, 1) if pair is None else (lower.index(pair[0]), lower.index(pair[1]))
    others = {row.words[i] for row in rows[1:] for i in ends if i < len(row.words)}
    if {names[i] for i in ends} & others:
        return None
    are_numbers = bool(others) and all(map(str.isdecimal, others)) and not any(names[i].isdecimal() for i in ends)
    return (ends, names) if pair or {*lower[2:]} & {*OF_LINKS} or are_numbers else None


def _refuse_counts(
    path: str | Path, rows: list[Row], graph: nx.Graph[str], num_clients: int, nodes_have_lines: bool = False
) -> None:
    """Refuse a first line of counts, as METIS and Matrix Market have it.

    It has the numbers of nodes and links of a graph that is connected without it, with nodes 1..n, 0..n-1 or words. As
    a link, it could only be that of the last node of a path, or one of a ring.
    """
    words = rows[0].words if rows else []
    of_matrix = len(words) == 3 and words[0] == words[1]
    if not (len(words) == 2 or of_matrix) or not all(map(str.isdecimal, words)):
        return
    rest: nx.Graph[str] = nx.Graph()
    for row in rows[1:]:
        rest.add_edges_from((row.words[0], other) for other in row.words[1 : 2 if of_matrix else None])
    nodes, links, lines = int(words[0]), int(words[-1]), len(rows) - 1
    are_counts = links in (rest.number_of_edges(), lines) or (nodes_have_lines and nodes == lines)
    if not rest or nodes != len(rest) or not are_counts or not nx.is_connected(rest):
        return
    numbers = {name for name in rest if name.isdecimal()}
    if numbers and numbers not in ({*map(str, range(nodes))}, {*map(str, range(1, nodes + 1))}):
        return
    if words[0] not in rest and words[-1] in rest and len(graph) == num_clients:
        return
    counts = f"{' '.join(words)!r}, the numbers of nodes and links below it"
    raise _wrong(path, rows[0].line, "a link", counts, "remove the line; if it is a link, move it to the end")


def _wrong(path: str | Path, line: int, expected: str, found: str, advice: str) -> DataError:
    return DataError(f"{path}:{line}: topology.path: expected {expected}, found {found}; {advice}")


# -- all files -----------------------------------------------------------------------------------


def _text(path: str | Path, where: str = "topology.path") -> str:
    """Return the text of a file without a byte order mark."""
    _refuse_endless(path, where)
    try:
        return shipped.path_of(Path(path)).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise _unreadable(path, error, where) from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: {where}: expected a text file of links, found bytes that are not text") from error


def _read(
    path: str | Path, expected: str, read: Callable[[], nx.Graph[Any]], where: str = "topology.path"
) -> nx.Graph[Any]:
    """Return what `read` reads from a file, whatever it raises."""
    _refuse_endless(path, where)
    try:
        return read()
    except DataError:
        raise
    except OSError as error:
        raise _unreadable(path, error, where) from error
    except Exception as error:  # malformed files raise many kinds of exceptions
        raise DataError(f"{path}: {where}: expected {expected}, found {_one_line(error)}") from error


def _refuse_endless(path: str | Path, where: str) -> None:
    if is_endless(Path(path)):
        raise DataError(f"{path}: {where}: expected a file, found a device or a pipe")


def _unreadable(path: str | Path, error: OSError, where: str) -> DataError:
    return DataError(f"{path}: {where}: cannot read the file: {error.strerror or _one_line(error)}")


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _numbered(graph: nx.Graph[Any], path: str | Path, num_clients: int) -> nx.Graph[int]:
    """Return a graph of `num_clients` connected nodes with numbers as names."""
    names = list(graph)
    if len(names) != num_clients:
        raise ScenarioError(
            f"topology.path: {path} has {len(names)} nodes ({_first(names)}) and clients.count is {num_clients}; if "
            f"all of them are clients, set clients.count: {len(names)}"
        )
    parts = list(nx.connected_components(graph.to_undirected(as_view=True)))
    if len(parts) > 1:
        smallest = min(parts, key=len)
        raise ScenarioError(
            f"topology.path: {path}: expected a connected graph, found {len(parts)} separate parts, one of them with "
            f"the nodes {_first([name for name in names if name in smallest])}; add edges until it is connected"
        )
    own_numbers = {str(name) for name in names} == {str(number) for number in range(len(names))}
    numbers = {name: int(name) if own_numbers else position for position, name in enumerate(names)}
    numbered: nx.Graph[int] = nx.relabel_nodes(graph, numbers)
    return numbered


def _first(names: list[Any]) -> str:
    shown = ", ".join(" ".join(str(name).split())[:20] for name in names[:_SHOWN])
    return (shown or "none") + (", ..." if len(names) > _SHOWN else "")
