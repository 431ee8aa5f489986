"""Graph specs: each names the graph its function makes, and bad ones say what is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from veilwalk import graphs
from veilwalk.core.errors import GraphError, InputFileError, InvalidParameterError, VeilwalkError
from veilwalk.graphs import Graph, parse_graph_spec
from veilwalk.graphs._spec import describe_usage


@pytest.mark.parametrize(
    ("spec", "graph"),
    [
        ("rrg:300:3:seed=1", graphs.random_regular(300, 3, seed=1)),
        ("rrg:300:3", graphs.random_regular(300, 3, seed=0)),
        (" er:100:7.5:seed=2 ", graphs.erdos_renyi(100, 7.5, seed=2, largest_component=True)),
        (
            "er:100:2:seed=2:component=largest",
            graphs.erdos_renyi(100, 2, seed=2, largest_component=True),
        ),
        (
            "er:100:2:component=largest:seed=2",
            graphs.erdos_renyi(100, 2, seed=2, largest_component=True),
        ),
        ("ba:100:3:seed=1", graphs.barabasi_albert(100, 3, seed=1)),
        ("ws:100:6:0.1:seed=1", graphs.watts_strogatz(100, 6, 0.1, seed=1)),
        ("ring:100", graphs.ring(100)),
        ("torus:16:16", graphs.torus(16, 16)),
        ("torus:3:4:5", graphs.torus(3, 4, 5)),
        ("hypercube:8", graphs.hypercube(8)),
        ("complete:20", graphs.complete(20)),
    ],
)
def test_specs(spec: str, graph: Graph) -> None:
    """The spec and the call give one graph."""
    found = parse_graph_spec(spec)
    assert found.digest == graph.digest
    assert found.name == spec.strip()
    assert parse_graph_spec(graph.name).digest == graph.digest
    assert found.labels is graph.labels is None


def test_python_and_command_line_say_the_same_name() -> None:
    """A record reads the same wherever the graph was made."""
    assert graphs.random_regular(300, 3, seed=1).name == "rrg:300:3:seed=1"
    assert graphs.random_regular(8, 6, seed=1).name == "rrg:8:6:seed=1"
    assert graphs.erdos_renyi(50, 9, seed=2).name == "er:50:9:seed=2"
    assert graphs.watts_strogatz(50, 4, 0.1, seed=0, largest_component=True).name == (
        "ws:50:4:0.1:seed=0:component=largest"
    )
    assert graphs.ring(9).name == "ring:9"
    assert graphs.torus(3, 4).name == "torus:3:4"


def test_a_file_without_its_prefix_is_recognised(tmp_path: Path) -> None:
    """The commonest slip gets the commonest answer."""
    path = tmp_path / "edges.txt"
    path.write_text("0 1\n")
    with pytest.raises(InvalidParameterError, match=f"file:{path}"):
        parse_graph_spec(str(path))


def test_files_may_have_colons_and_equals_signs(tmp_path: Path) -> None:
    """Only the option at the very end is split off."""
    path = tmp_path / "a:b=c:d.txt"
    path.write_text("0 1\n1 2\n2 0\n8 9\n")
    with pytest.raises(GraphError, match="component=largest"):
        parse_graph_spec(f"file:{path}")
    assert parse_graph_spec(f"file:{path}:component=largest").digest == graphs.ring(3).digest
    with pytest.raises(InputFileError, match="no such file"):
        parse_graph_spec(f"file:{path}:seed=1")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("", "KIND one of rrg, overlay, er, ba, ws, geometric, ring, torus, hypercube, complete, file"),
        ("grid:3", "KIND one of rrg"),
        ("rrg", "rrg:NODES:DEGREE"),
        ("rrg:300", "rrg:NODES:DEGREE"),
        ("rrg:300:3:4", "rrg:NODES:DEGREE"),
        ("rrg:many:3", "'many' is not a whole number"),
        ("rrg:300:3.5", "'3.5' is not a whole number"),
        ("er:300:x", "'x' is not a number"),
        ("rrg:300:3:seed=x", "'x' is not a whole number"),
        ("rrg:300:3:component=largest", "options among seed (not component)"),
        ("ring:300:seed=1", "without options (not seed)"),
        ("er:300:3:component=all", "component can only be largest"),
        ("er:300:3:colour=red", "options among seed, component (not colour)"),
        ("rrg:seed=1:300:3", "name=value (not '300')"),
        ("torus", "torus:SIDE"),
        ("torus:", "torus:SIDE"),
        ("file:", "file:PATH"),
        ("file", "file:PATH"),
        ("ring:", "ring:NODES"),
    ],
)
def test_bad_specs(spec: str, message: str) -> None:
    """One line with the spec and how it should be written."""
    with pytest.raises(InvalidParameterError) as caught:
        parse_graph_spec(spec)
    assert caught.value.name == "graph"
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_values_are_named_by_their_own_name() -> None:
    """A well-formed spec with an impossible value fails like the function does."""
    with pytest.raises(InvalidParameterError, match="degree = 2"):
        parse_graph_spec("rrg:300:2")
    with pytest.raises(InvalidParameterError, match="seed = -1"):
        parse_graph_spec("rrg:300:3:seed=-1")


@pytest.mark.parametrize(
    "usage",
    [
        "rrg:NODES:DEGREE[:seed=S]",
        "overlay:NODES:DEGREE[:seed=S]",
        "er:NODES:MEAN_DEGREE[:seed=S][:component=largest]",
        "ba:NODES:ATTACH[:seed=S]",
        "ws:NODES:DEGREE:REWIRE[:seed=S][:component=largest]",
        "geometric:NODES:RADIUS[:seed=S][:component=largest]",
        "ring:NODES",
        "torus:SIDE[:SIDE...]",
        "hypercube:DIMENSION",
        "complete:NODES",
        "file:PATH[:component=largest]",
    ],
)
def test_every_kind_is_written_as_what_builds_it_is_called(usage: str) -> None:
    """Values in the order of the arguments, and the options that it takes."""
    assert describe_usage(usage.partition(":")[0]) == usage


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("hypercube:20000", "dimension = 20000: must be <= 63"),
        ("hypercube:40", "edges needs about"),
        ("er:1000000000000:0.0000001", "a graph of 1000000000000 nodes needs about"),
        ("geometric:1000000000000:0.0000001", "a graph of 1000000000000 nodes needs about"),
        ("er:9:5e-324:seed=1", "falls into 9 components"),
    ],
)
def test_sizes_beyond_any_machine_are_refused_in_a_line(spec: str, said: str) -> None:
    """Not by an overflow on the way to saying so."""
    with pytest.raises(VeilwalkError, match=said):
        parse_graph_spec(spec)


def test_a_radius_beyond_the_square_joins_everybody() -> None:
    """However large: it is squared on the way."""
    assert parse_graph_spec("geometric:9:1e200").digest == graphs.complete(9).digest
