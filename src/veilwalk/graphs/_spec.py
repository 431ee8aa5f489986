"""Graphs by a line of text, as the command line and configuration files name them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from veilwalk.core import validate
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.spec import Spec
from veilwalk.graphs._generators import (
    barabasi_albert,
    complete,
    erdos_renyi,
    hypercube,
    overlay,
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
    """One kind of graph a spec can name: how it is written, what it is, and the function that builds it.

    ``values`` are the types of its values, None for any number of whole numbers; ``options`` are among ``seed`` and
    ``component``.
    """

    usage: str
    help: str
    build: Callable[..., Graph]
    values: tuple[type[int | float | str], ...] | None
    options: tuple[str, ...] = ()


GRAPH_KINDS: Mapping[str, GraphKind] = MappingProxyType(
    {
        "rrg": GraphKind("rrg:NODES:DEGREE[:seed=S]", "random regular graph", random_regular, (int, int), ("seed",)),
        "overlay": GraphKind(
            "overlay:NODES:DEGREE[:seed=S]",
            "secret overlay: members know their own links only",
            overlay,
            (int, int),
            ("seed",),
        ),
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
    if text.startswith("file:"):
        return _read_file(text)
    spec = Spec.parse(text, parameter="graph")
    kind = GRAPH_KINDS.get(spec.name)
    if kind is None:
        if text and Path(text).is_file():
            raise spec.refuse(f"file:{text}, if this file is meant")
        raise spec.refuse(f"KIND:..., KIND one of {', '.join(GRAPH_KINDS)}")
    spec.require_options(kind.options)
    options: dict[str, Any] = {"seed": 0} if "seed" in kind.options else {}
    if (seed := spec.option("seed")) is not None:
        options["seed"] = spec.convert(seed, int, kind.usage)
    if (component := spec.option("component")) is not None:
        if component != "largest":
            raise spec.refuse(f"{kind.usage} (component can only be largest)")
        options["largest_component"] = True
    types = kind.values or (int,) * max(1, len(spec.arguments))
    if len(spec.arguments) != len(types) or not all(spec.arguments):
        raise spec.refuse(kind.usage)
    values = [spec.convert(field, to, kind.usage) for to, field in zip(types, spec.arguments, strict=True)]
    return kind.build(*values, **options).named(text)


def _read_file(text: str) -> Graph:
    """Read ``file:PATH[:component=largest]``; a path may hold colons and equals signs."""
    usage = GRAPH_KINDS["file"].usage
    path, option, component = text.removeprefix("file:").rpartition(":component=")
    if option and component != "largest":
        raise InvalidParameterError("graph", text, f"{usage} (component can only be largest)")
    if not path and not component:
        raise InvalidParameterError("graph", text, usage)
    return read_graph(path if option else component, largest_component=bool(option)).named(text)
