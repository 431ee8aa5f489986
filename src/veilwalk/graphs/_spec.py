"""Graphs by a line of text, as the command line and configuration files name them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from veilwalk.core import validate
from veilwalk.core.errors import InvalidParameterError
from veilwalk.graphs._generators import (
    barabasi_albert,
    complete,
    erdos_renyi,
    hypercube,
    random_geometric,
    random_regular,
    ring,
    torus,
    watts_strogatz,
)
from veilwalk.graphs._graph import Graph
from veilwalk.graphs._readers import read_graph


@dataclass(frozen=True, slots=True)
class GraphKind:
    """One kind of graph a spec can name.

    Attributes:
        usage: How it is written.
        help: What it is, in one line.
        build: Makes the graph from the values and options.
        values: Type of each value in turn; None when there may be any number of whole numbers.
        options: The options it takes, among ``seed`` and ``component``.
    """

    usage: str
    help: str
    build: Callable[..., Graph]
    values: tuple[type[int | float | str], ...] | None
    options: tuple[str, ...] = ()


GRAPH_KINDS: Mapping[str, GraphKind] = MappingProxyType(
    {
        "rrg": GraphKind("rrg:NODES:DEGREE[:seed=S]", "random regular graph", random_regular, (int, int), ("seed",)),
        "er": GraphKind(
            "er:NODES:MEAN_DEGREE[:seed=S][:component=largest]",
            "Erdős–Rényi: every pair of nodes joined with the same probability",
            erdos_renyi,
            (int, float),
            ("seed", "component"),
        ),
        "ba": GraphKind(
            "ba:NODES:ATTACH[:seed=S]",
            "Barabási–Albert: each new node joins ATTACH others, likelier by degree",
            barabasi_albert,
            (int, int),
            ("seed",),
        ),
        "ws": GraphKind(
            "ws:NODES:DEGREE:REWIRE[:seed=S][:component=largest]",
            "Watts–Strogatz: ring of near neighbours, a share REWIRE of the edges moved",
            watts_strogatz,
            (int, int, float),
            ("seed", "component"),
        ),
        "geometric": GraphKind(
            "geometric:NODES:RADIUS[:seed=S][:component=largest]",
            "random geometric: points of the unit square joined up to RADIUS apart",
            random_geometric,
            (int, float),
            ("seed", "component"),
        ),
        "ring": GraphKind("ring:NODES", "cycle", ring, (int,)),
        "torus": GraphKind("torus:SIDE[:SIDE...]", "periodic lattice, each side at least 3", torus, None),
        "hypercube": GraphKind("hypercube:DIMENSION", "words of bits, one bit apart", hypercube, (int,)),
        "complete": GraphKind("complete:NODES", "every node neighbours every other", complete, (int,)),
        "file": GraphKind(
            "file:PATH[:component=largest]",
            "edge list, .csv, .tsv, .graphml, .gml, node-link .json, .adjlist, .mtx, .npz; each also .gz",
            read_graph,
            (str,),
            ("component",),
        ),
    }
)


def parse_graph_spec(text: str | Graph) -> Graph:
    """Make the graph that ``text`` names, for example ``rrg:300:3:seed=1`` or ``file:edges.txt``.

    :data:`GRAPH_KINDS` lists what there is. Random kinds are seeded 0 unless told otherwise;
    ``component=largest`` keeps the largest connected component instead of refusing a disconnected graph.
    The graph is named by ``text``. What is a graph already is returned as it is.
    """
    if isinstance(text, Graph):
        return text
    validate.instance(str, "a Graph, or text that names one, such as rrg:300:3:seed=1", graph=text)
    text = text.strip()
    name, colon, rest = text.partition(":")
    kind = GRAPH_KINDS.get(name)
    if kind is None:
        if text and Path(text).is_file():
            raise InvalidParameterError("graph", text, f"file:{text}, if this file is meant")
        known = ", ".join(GRAPH_KINDS)
        raise InvalidParameterError("graph", text, f"KIND:..., KIND one of {known}")
    fields = rest.split(":") if colon else []
    options: dict[str, Any] = {"seed": 0} if "seed" in kind.options else {}
    options |= _take_options(text, kind, fields)
    if kind.values == (str,):
        # A path may hold colons of its own; only the options behind it are split off.
        fields = [":".join(fields)]
    return kind.build(*_values(text, kind, fields), **options).named(text)


def _take_options(text: str, kind: GraphKind, fields: list[str]) -> dict[str, Any]:
    """Remove the options at the end of ``fields`` and return them as keyword arguments."""
    options: dict[str, Any] = {}
    while fields and "=" in fields[-1]:
        key, _, value = fields[-1].partition("=")
        if key not in kind.options:
            if kind.values == (str,):
                break
            known = " and ".join(kind.options) or "no options"
            raise InvalidParameterError("graph", text, f"{kind.usage} (it takes {known}, not {key!r})")
        if key == "component":
            if value != "largest":
                raise InvalidParameterError("graph", text, f"{kind.usage} (component can only be largest)")
            options["largest_component"] = True
        else:
            options[key] = _number(text, kind, int, value)
        fields.pop()
    return options


def _values(text: str, kind: GraphKind, fields: list[str]) -> list[int | float | str]:
    types = kind.values or (int,) * max(1, len(fields))
    if len(fields) != len(types) or not all(fields):
        raise InvalidParameterError("graph", text, kind.usage)
    return [_number(text, kind, to, field) for to, field in zip(types, fields, strict=True)]


def _number(text: str, kind: GraphKind, to: type[int | float | str], field: str) -> int | float | str:
    try:
        return to(field)
    except ValueError:
        what = "whole number" if to is int else "number"
        raise InvalidParameterError("graph", text, f"{kind.usage} ({field!r} is not a {what})") from None
