"""What walks come to, case by case, on any device: digests made on the processor, and whether a device gives the same.

The cases that have a digest are made of whole numbers and of fractions that are exact, so that the digests are the same
on every machine; ``CASES`` has more, which are compared with the processor of the machine at hand.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veilwalk import walks
from veilwalk.core.walk import Walk
from veilwalk.graphs import Graph, barabasi_albert, random_regular
from veilwalk.walks import ExcludedRows

GOLDEN = Path(__file__).parents[2] / "tests" / "golden" / "walk_digests.json"
SEED = 2**40 + 7

Case = Callable[[str], list[npt.NDArray[Any]]]


def exact_law(graph: Graph) -> npt.NDArray[np.float64]:
    """Return an uneven law over all who are no neighbours, in fractions of a power of two: exact on every machine."""
    weights = (1.0 - graph.adjacency.toarray() - np.eye(graph.n_nodes)) * (1 + np.arange(graph.n_nodes) % 5)
    whole = 2.0 ** np.ceil(np.log2(weights.sum(axis=1).max()))
    last = graph.n_nodes - 1 - np.argmax(weights[:, ::-1] > 0, axis=1)
    weights[np.arange(graph.n_nodes), last] += whole - weights.sum(axis=1)
    return np.asarray(weights / whole)


def _protocol(graph: Graph, law: Any, walk: str, recipients: int, *, replicas: int = 70, updates: int = 7_000) -> Case:
    watching = np.zeros(graph.n_nodes, dtype=np.bool_)
    watching[:: max(graph.n_nodes // 30, 2)] = True

    def case(device: str) -> list[npt.NDArray[Any]]:
        options: dict[str, Any] = {"updates": updates, "replicas": replicas, "walk": Walk.parse(walk), "seed": SEED}
        options |= {"recipients": recipients, "colluders": watching, "device": device, "burn_in": 3}
        return [walks.run_protocol(graph, law, **options)]

    return case


def _openings(graph: Graph, law: Any, walk: str, recipients: int) -> Case:
    def case(device: str) -> list[npt.NDArray[Any]]:
        del device  # it runs on the processor alone
        found = walks.estimate_openings(
            graph, law, recipients, walk=Walk.parse(walk), legs=2_000, lanes=40, seed=9, longest=300
        )
        return [np.asarray(found.hops), found.source_share, found.arrived, found.joint, found.by_hop]

    return case


def golden_cases() -> dict[str, Case]:
    """Return the cases that have a digest."""
    three, hubs = random_regular(300, 3, seed=1), barabasi_albert(300, 3, seed=1)
    cases: dict[str, Case] = {}
    for name, graph in {"rrg:300:3": three, "ba:300:3": hubs}.items():
        law, far = exact_law(graph), ExcludedRows.nearer_than(graph, 2)
        for walk in ("simple", "lazy", "metropolis", "non-backtracking"):
            cases[f"protocol {name} {walk} K=1"] = _protocol(graph, law, walk, 1)
            cases[f"protocol {name} {walk} K=8"] = _protocol(graph, far, walk, 8)
        for walk in ("simple", "non-backtracking"):
            cases[f"openings {name} {walk} K=8"] = _openings(graph, far, walk, 8)
            cases[f"openings {name} {walk} K=1"] = _openings(graph, law, walk, 1)
    return cases


def large_cases() -> dict[str, Case]:
    """Return cases that keep a card busy; without digests, they are compared with the processor at hand."""
    three = random_regular(300, 3, seed=1)
    law = exact_law(three)
    return {
        "protocol rrg:300:3 K=1, 20,000 lanes": _protocol(three, law, "simple", 1, replicas=20_000, updates=400_000),
        "protocol rrg:300:3 K=8 non-backtracking, 20,000 lanes": _protocol(
            three, law, "non-backtracking", 8, replicas=20_000, updates=400_000
        ),
    }


def digest(arrays: list[npt.NDArray[Any]]) -> str:
    """Return the digest of what a case came to."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(str((array.dtype.descr, array.shape)).encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def known_digests() -> dict[str, str]:
    """Return the digests that the processor made."""
    return dict(json.loads(GOLDEN.read_text(encoding="utf-8")))


def write_digests() -> None:
    """Make the digests anew, on the processor."""
    found = {name: digest(case("cpu")) for name, case in golden_cases().items()}
    GOLDEN.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
