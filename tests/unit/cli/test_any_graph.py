"""Defaults that fit: every verb, given a graph and nothing else, answers or refuses in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.helpers.cli import Cli
from tests.helpers.graphs import path

from veilwalk.core.errors import GraphError
from veilwalk.design import choose_scheme, default_support
from veilwalk.graphs import Graph, complete, hypercube, ring

STAR = Graph.from_edges(6, np.array([[0, leaf] for leaf in range(1, 6)]))
FILES = {
    "two": "a b\n",
    "path": "a b\nb c\nc d\n",
    "star": "hub a\nhub b\nhub c\nhub d\nhub e\n",
    "square": "a b\nb c\nc d\nd a\n",
    "tree": "".join(f"p{child} p{(child - 1) // 3}\n" for child in range(1, 13)),
    "wheel": "".join(f"hub r{spoke}\nr{spoke} r{(spoke + 1) % 6}\n" for spoke in range(6)),
}
SPECS = ("ring:9", "ring:10", "complete:6", "hypercube:3", "torus:4:4")
# Neighbours must be recipients there: nobody else is left, or some node has only neighbours.
NEIGHBOURS_ONLY = {"star", "square", "wheel", "complete:6"}
VERBS = {
    "info": ["graph", "info"],
    "design": ["design", "--graph"],
    "optimal": ["design", "--law", "optimal", "--graph"],
    "frontier": ["frontier", "--graph"],
    "recipients": ["design", "--recipients", "1", "--graph"],
    "audit": ["audit", "--updates", "500", "--graph"],
    "train": ["train", "--updates", "3", "--attack", "5", "--graph"],
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(f"{name}.txt").write_text(text)
    return tmp_path


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("graph", [*FILES, *SPECS])
@pytest.mark.parametrize("verb", VERBS)
def test_every_graph_is_answered_or_refused_in_one_line(verb: str, graph: str, run: Cli) -> None:
    """Two members are refused: each knows that the other made it."""
    code, out, err = run([*VERBS[verb], f"file:{graph}.txt" if graph in FILES else graph])
    if graph == "path" and verb in {"optimal", "frontier"}:
        # Balanced, the inner nodes have one partner each: updates would stay with the two.
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "updates cannot travel between all nodes" in err
    elif verb != "info" and graph == "two":
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
        assert "take three or more" in err
    else:
        assert (code, err) == (0, "")
        assert "nan" not in out.lower().split()


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("graph", sorted(NEIGHBOURS_ONLY))
def test_neighbours_alone_may_be_recipients(graph: str, run: Cli) -> None:
    """Where that is asked for, and the law that it makes is audited."""
    spec = f"file:{graph}.txt" if graph in FILES else graph
    advice = ["--allow-neighbours", "--support", "1:1", "--law", "uniform-node", "--out", "law.npz"]
    assert run(["design", "--graph", spec, *advice])[0] == 0
    assert run(["audit", "--graph", spec, "--law", "law.npz", "--updates", "500"])[0] == 0


def test_the_default_support_leads_everywhere() -> None:
    """Where two hops stay on one side of a bipartite graph, three are added; where nobody is farther, neighbours."""
    assert str(default_support(path(4))) == "2:3"
    assert np.all(choose_scheme(path(4)).law.source_prior > 0)
    assert [str(default_support(graph)) for graph in (ring(9), ring(10), hypercube(4))] == ["2:4", "2:5", "2:4"]
    for graph, support in ((ring(4), "1:2"), (complete(6), "1:1"), (STAR, "1:2")):
        assert str(default_support(graph)) == support
        scheme = choose_scheme(graph)
        assert scheme.law.name == "far:1"
        assert set(scheme.law.n_choices) == {graph.n_nodes - 1}
        assert not scheme.idle_nodes.size
    with pytest.raises(GraphError, match="three or more"):
        default_support(complete(2))
