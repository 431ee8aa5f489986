"""Properties of every graph, however it was made."""

from __future__ import annotations

import csv
import json
from itertools import pairwise
from pathlib import Path

import networkx as nx
import numba
import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from veilwalk import graphs
from veilwalk.graphs import Graph
from veilwalk.graphs._distances import diameter

SEEDS = st.integers(0, 2**63)


@st.composite
def specs(draw: st.DrawFn) -> str:
    """Any spec of a small graph that is sure to be connected."""
    n_nodes = draw(st.integers(8, 60))
    degree = draw(st.integers(3, n_nodes - 1).filter(lambda c: n_nodes * c % 2 == 0))
    near = 2 * draw(st.integers(1, 3))
    seed = draw(SEEDS)
    return draw(
        st.sampled_from(
            [
                f"rrg:{n_nodes}:{degree}:seed={seed}",
                f"er:{n_nodes}:{draw(st.floats(0.5, 7))}:seed={seed}:component=largest",
                f"ba:{n_nodes}:{draw(st.integers(1, 7))}:seed={seed}",
                f"ws:{n_nodes}:{near}:{draw(st.floats(0, 1))}:seed={seed}:component=largest",
                f"ring:{n_nodes}",
                f"torus:{draw(st.integers(3, 6))}:{draw(st.integers(3, 6))}",
                f"hypercube:{draw(st.integers(1, 5))}",
                f"complete:{n_nodes}",
            ]
        )
    )


def _as_networkx(graph: Graph) -> nx.Graph:
    network = nx.Graph()
    network.add_nodes_from(range(graph.n_nodes))
    network.add_edges_from(graph.edges().tolist())
    return network


@given(specs())
def test_graphs_are_simple_symmetric_and_rebuildable(spec: str) -> None:
    """The promises of the value hold, and edges, matrix and networkx give it back."""
    graph = graphs.parse_graph_spec(spec)
    dense = graph.adjacency.toarray()
    assert np.array_equal(dense, dense.T)
    assert not dense.diagonal().any()
    assert set(np.unique(dense)) <= {0.0, 1.0}
    assert np.array_equal(dense.sum(axis=0), graph.degrees)
    assert dense.sum() == 2 * graph.n_edges == len(graph.indices)
    assert Graph.from_edges(graph.n_nodes, graph.edges()).digest == graph.digest
    assert Graph.from_csr(graph.adjacency).digest == graph.digest
    assert graphs.from_networkx(_as_networkx(graph)).digest == graph.digest
    assert graphs.parse_graph_spec(spec).digest == graph.digest


@given(st.integers(4, 40), st.integers(3, 39), SEEDS)
def test_random_regular_has_its_degree(n_nodes: int, degree: int, seed: int) -> None:
    """Every node has exactly the degree asked for, sparse or dense."""
    assume(degree < n_nodes and n_nodes * degree % 2 == 0)
    graph = graphs.random_regular(n_nodes, degree, seed=seed)
    assert set(graph.degrees) == {degree}
    assert np.array_equal(graph.degrees, np.full(n_nodes, degree))


@settings(max_examples=40)
@given(specs())
def test_distances_are_those_of_networkx(spec: str) -> None:
    """An independent search agrees; so do shells, diameter and bipartiteness."""
    graph = graphs.parse_graph_spec(spec)
    network = _as_networkx(graph)
    hops = graphs.distances(graph)
    for source, lengths in nx.all_pairs_shortest_path_length(network):
        assert [lengths[node] for node in range(graph.n_nodes)] == hops[source].tolist()
    edges = graph.edges()
    assert np.abs(hops[:, edges[:, 0]].astype(int) - hops[:, edges[:, 1]]).max() <= 1
    for source, row in enumerate(hops):
        assert np.array_equal(graphs.mean_shell_sizes(graph, [source]), np.bincount(row))
    assert diameter(graph).upper == hops.max()
    assert graph.is_bipartite == nx.is_bipartite(network)


@settings(max_examples=20)
@given(specs())
def test_results_do_not_depend_on_the_number_of_threads(spec: str) -> None:
    """One thread and all of them give the same arrays."""
    threads = numba.get_num_threads()
    graph = graphs.parse_graph_spec(spec)
    hops, shells = graphs.distances(graph), graphs.mean_shell_sizes(graph)
    try:
        numba.set_num_threads(1)
        assert graphs.parse_graph_spec(spec).digest == graph.digest
        assert np.array_equal(graphs.distances(graph), hops)
        assert np.array_equal(graphs.mean_shell_sizes(graph), shells)
    finally:
        numba.set_num_threads(threads)


def _csv(network: nx.Graph, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        # Quoted, since a line that begins with # is a comment.
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(network.edges)


def _tsv(network: nx.Graph, path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t", quoting=csv.QUOTE_ALL).writerows(network.edges)


def _json(network: nx.Graph, path: Path) -> None:
    path.write_text(json.dumps(nx.node_link_data(network, edges="edges")), encoding="utf-8")


WRITERS = {"csv": _csv, "tsv": _tsv, "json": _json, "gml": nx.write_gml, "graphml": nx.write_graphml_xml}
NO_CONTROLS = st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"], exclude_characters="\ufffe\uffff")
LABELS = st.text(NO_CONTROLS, min_size=1, max_size=12).map(str.strip).filter(bool)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.sampled_from(sorted(WRITERS)))
def test_labels_survive_every_text_format(tmp_path: Path, data: st.DataObject, kind: str) -> None:
    """Whatever nodes are called, the file that was written says who neighbours whom."""
    labels = data.draw(st.lists(LABELS, min_size=3, max_size=8, unique=True))
    # A path first, so that the graph is connected and no line stands alone as a header would.
    pairs = [*pairwise(labels), *data.draw(st.lists(st.permutations(labels).map(lambda order: tuple(order[:2]))))]
    network = nx.Graph(pairs)
    path = tmp_path / f"network.{kind}"
    WRITERS[kind](network, path)
    graph = graphs.read_graph(path)
    assert {frozenset((graph.label(a), graph.label(b))) for a, b in graph.edges()} == set(map(frozenset, pairs))
    assert [graph.node(graph.label(node)) for node in range(graph.n_nodes)] == list(range(graph.n_nodes))
    assert graphs.from_networkx(network).labels in {None, tuple(network.nodes)}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 30) | st.integers(0, 10**20), min_size=2, max_size=30, unique=True), st.data())
def test_edge_lists_survive_any_numbering(tmp_path: Path, numbers: list[int], data: st.DataObject) -> None:
    """Whatever numbers the nodes of a path have, their order is kept and the edges are the same."""
    separator = data.draw(st.sampled_from([" ", "\t", ",", " ; "]))
    path = tmp_path / "path.txt"
    path.write_text("".join(f"{one}{separator}{other}\n" for one, other in pairwise(numbers)))
    graph = graphs.read_graph(path)
    ordered = sorted(numbers)
    assert [graph.label(node) for node in range(graph.n_nodes)] == list(map(str, ordered))
    edges = {frozenset((ordered[a], ordered[b])) for a, b in graph.edges()}
    assert edges == set(map(frozenset, pairwise(numbers)))
