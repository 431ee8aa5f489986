"""Graph generation and distances against igraph, networkit and networkx.

Run ``python -m benchmarks.speed.graphs`` with the ``bench`` extra installed. Contenders take turns in one process;
a peer that cannot be imported is reported as missing. Each line gives the median of the rounds, and the
median [min-max] of the per-round ratio to ours.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import numpy as np

from benchmarks.speed._harness import Contender, in_turns, peer, spread
from veilwalk import graphs

PEERS = ("igraph", "networkit", "networkx")
# networkx needs minutes where the others need seconds: it gets a tenth of the nodes and says so.
NETWORKX_SHARE = 10


def regular_contenders(n_nodes: int, degree: int) -> dict[str, Contender]:
    """Return the ways to get the neighbour table of a random regular graph."""
    found: dict[str, Contender] = {"veilwalk": lambda: graphs.random_regular(n_nodes, degree, seed=1).indices}
    if (igraph := peer("igraph")) is not None:
        found["igraph K_Regular"] = lambda: igraph.Graph.K_Regular(n_nodes, degree)
    if (networkit := peer("networkit")) is not None:
        generator = networkit.generators.ConfigurationModelGenerator
        found["networkit configuration model (not simple)"] = generator([degree] * n_nodes).generate
    if (networkx := peer("networkx")) is not None:
        share = n_nodes // NETWORKX_SHARE
        found[f"networkx at {share} nodes"] = lambda: networkx.random_regular_graph(degree, share, seed=1)
    return found


def distance_contenders(n_nodes: int, degree: int) -> dict[str, Contender]:
    """Return the ways to get all distances of one random regular graph."""
    graph = graphs.random_regular(n_nodes, degree, seed=1)
    edges = graph.edges().tolist()
    found: dict[str, Contender] = {"veilwalk": lambda: graphs.distances(graph)}
    if (igraph := peer("igraph")) is not None:
        found["igraph distances"] = igraph.Graph(n=n_nodes, edges=edges).distances
    if (networkit := peer("networkit")) is not None:
        network = networkit.Graph(n_nodes)
        for u, v in edges:
            network.addEdge(u, v)
        found["networkit APSP"] = lambda: networkit.distance.APSP(network).run().getDistances()
    if (networkx := peer("networkx")) is not None:
        other = networkx.Graph(edges)
        found["networkx all pairs"] = lambda: dict(networkx.all_pairs_shortest_path_length(other))
    return found


def compare(title: str, contenders: Mapping[str, Contender], rounds: int) -> None:
    """Time the contenders in turns and print the table."""
    print(f"\n{title}, {rounds} rounds")
    contenders["veilwalk"]()
    times = in_turns(contenders, rounds)
    for name, seconds in times.items():
        shown = spread(seconds / times["veilwalk"], ".1f")
        print(f"  {name:45s} {np.median(seconds):9.4f} s   {shown} x ours")
    for name in PEERS:
        if peer(name) is None:
            print(f"  {name:45s}   MISSING: not installed, not compared")


def main() -> None:
    """Run both comparisons."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000_000, help="nodes of the generated graph")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each comparison")
    arguments = parser.parse_args()
    title = f"random 4-regular graph, {arguments.nodes} nodes"
    compare(title, regular_contenders(arguments.nodes, 4), arguments.rounds)
    compare("all distances, 2000 nodes, 4-regular", distance_contenders(2000, 4), arguments.rounds)


if __name__ == "__main__":
    main()
