"""Graphs by a line of text, as the command line and configuration files name them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
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

#: What builds each kind of graph that a spec can name: its arguments are the values behind the kind, its keywords the
#: options after them.
GRAPH_KINDS: Mapping[str, Callable[..., Graph]] = MappingProxyType(
    {
        "rrg": random_regular,
        "overlay": overlay,
        "er": erdos_renyi,
        "ba": barabasi_albert,
        "ws": watts_strogatz,
        "geometric": random_geometric,
        "ring": ring,
        "torus": torus,
        "hypercube": hypercube,
        "complete": complete,
        "file": read_graph,
    }
)
# Options by the keyword that each sets.
_OPTIONS = {"seed": "seed=S", "largest_component": "component=largest"}


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
    build = GRAPH_KINDS.get(spec.name)
    if build is None:
        if text and Path(text).is_file():
            raise spec.refuse(f"file:{text}, if this file is meant")
        raise spec.refuse(f"KIND:..., KIND one of {', '.join(GRAPH_KINDS)}")
    values, options = _list_parameters(spec.name)
    spec.require_options([_OPTIONS[option].partition("=")[0] for option in options])
    usage = describe_usage(spec.name)
    keywords: dict[str, Any] = {"seed": 0} if "seed" in options else {}
    if (seed := spec.option("seed")) is not None:
        keywords["seed"] = spec.convert(seed, int, usage)
    if (component := spec.option("component")) is not None:
        if component != "largest":
            raise spec.refuse(f"{usage} (component can only be largest)")
        keywords["largest_component"] = True
    if values[0].kind is Parameter.VAR_POSITIONAL:
        values *= max(1, len(spec.arguments))
    if len(spec.arguments) != len(values) or not all(spec.arguments):
        raise spec.refuse(usage)
    given = zip(values, spec.arguments, strict=True)
    return build(*(spec.convert(text, value.annotation, usage) for value, text in given), **keywords).named(text)


def describe_usage(name: str) -> str:
    """Return how a kind of graph is written: its values, and the options that it takes."""
    values, options = _list_parameters(name)
    words = [value.name.removeprefix("n_").upper() for value in values]
    if values[0].kind is Parameter.VAR_POSITIONAL:
        side = words[0].removesuffix("S")
        words = [f"{side}[:{side}...]"]
    return ":".join([name, *words]) + "".join(f"[:{_OPTIONS[option]}]" for option in options)


def _list_parameters(name: str) -> tuple[list[Parameter], list[str]]:
    """Return the values that a kind takes, and the keywords of its options."""
    parameters = signature(GRAPH_KINDS[name], eval_str=True).parameters.values()
    keywords = [each.name for each in parameters if each.kind is Parameter.KEYWORD_ONLY]
    return [each for each in parameters if each.kind is not Parameter.KEYWORD_ONLY], keywords


def _read_file(text: str) -> Graph:
    """Read ``file:PATH[:component=largest]``; a path may hold colons and equals signs."""
    path, option, component = text.removeprefix("file:").rpartition(":component=")
    if option and component != "largest":
        raise InvalidParameterError("graph", text, f"{describe_usage('file')} (component can only be largest)")
    if not path and not component:
        raise InvalidParameterError("graph", text, describe_usage("file"))
    return read_graph(path if option else component, largest_component=bool(option)).named(text)
