"""Design and audit on a real social graph: the SNAP ego-Facebook network, hubs and leaves included.

    python examples/facebook.py facebook_combined.txt.gz
    python examples/facebook.py --graph ba:200:2:seed=1 --support 2:3 --updates 2000    # try it on a small one

Prints what the uniform-node law costs there and how evenly it spreads the updates (exact), what a destination learns
from return times (candidates looked up and judged by class, with intervals), and how well the neighbours of leaves know
them.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

import veilwalk as vw


def main() -> None:
    """Read the graph, design, audit, and say what it took."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("file", nargs="?", help="edge list, as SNAP publishes it")
    parser.add_argument("--graph", help="a graph specification instead")
    parser.add_argument("--support", default="2:4")
    parser.add_argument("--updates", type=int, default=20_000)
    options = parser.parse_args()
    if (options.file is None) == (options.graph is None):
        parser.error("give an edge list or --graph")
    began = time.monotonic()
    graph = vw.parse_graph_spec(options.graph or f"file:{options.file}")
    print(f"{graph.n_nodes} nodes, degrees {graph.degrees.min()} to {graph.degrees.max()}")
    show_laws(graph, options.support)
    show_audit(graph, options.support, options.updates)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"took {time.monotonic() - began:.0f} s and {peak:.1f} GiB")


def show_laws(graph: vw.Graph, support: str) -> None:
    """Print price and fairness of the uniform-node law, as it is and balanced, for two walks."""
    for walk in (vw.Walk("simple"), vw.Walk("metropolis")):
        law = vw.choose_scheme(graph, "uniform-node", support=support).law
        for kind, variant in (("uniform-node", law), ("balanced", law.balance())):
            scheme = vw.Scheme(graph, variant, walk)
            low, high = scheme.prior_range
            print(
                f"{walk} walk, {kind}: {scheme.price.hops:.0f} hops per update ({scheme.price.kind}); a node updates "
                f"{low:.2f} to {high:.2f} times the mean"
            )


def show_audit(graph: vw.Graph, support: str, updates: int) -> None:
    """Print what a destination learns, overall and at the shortest return times, and about leaves."""
    scheme = vw.choose_scheme(graph, "uniform-node", support=support)
    observers = ("prior", "return-time", "last-hop")
    audit = vw.audit(scheme, updates=updates, seed=1, posterior="by-class", observers=observers)
    hops = audit.hops_per_update
    print(f"simple walk, uniform-node: {hops.mean:.0f} hops per update, measured [{hops.low:.0f}, {hops.high:.0f}]")
    for observer, found in audit.findings.items():
        overall, shortest = found.overall, found.by_return_time[0]
        print(
            f"{observer}: node entropy {overall['node_entropy_nats']:.3f} nats, hit ratio {overall['hit_ratio']:.2%} "
            f"(blind {overall['blind_hit_ratio']:.2%}); shortest return times {shortest['node_entropy_nats']:.3f} nats"
        )
    leaves = np.flatnonzero(graph.degrees == 1)
    if len(leaves):
        print(
            f"{len(leaves)} nodes have one neighbour: it hands them a ciphertext and gets another back, so it knows "
            "for certain when they updated, though not what"
        )


if __name__ == "__main__":
    main()
