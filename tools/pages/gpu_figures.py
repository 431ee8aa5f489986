"""What only a graphics card has time for: an audit of a billion updates, and a frontier on a million nodes.

``python -m tools.pages.gpu_figures play --out DIR`` plays on the card (a few minutes) and leaves counts and
deliveries in DIR; ``... write --out DIR`` reads them, needs no card, and writes a section of
``docs/measured/speed.md``.
Integers being equal on both, ``--device cpu`` would find the same, in days.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from tools.pages.markdown import write_section
from veilwalk import walks
from veilwalk.core.walk import Walk
from veilwalk.design import choose_scheme
from veilwalk.design._openings import bound_node_entropy
from veilwalk.graphs import random_regular

PAGE = Path(__file__).parents[2] / "docs" / "measured" / "speed.md"
SEED = 7
# Return times told apart: each by itself at first, then by about 7 percent.
CLASSES = 160
WALKS = ("simple", "non-backtracking")
COUNTS = tuple(2**power for power in range(3, 13))
NODES = 1_000_000


@numba.njit
def _count(  # noqa: PLR0917 - a kernel
    destination: Any, last_hop: Any, source: Any, back: Any, half: Any, slots: Any, edges: Any, out: Any
) -> None:
    """Add every update to the cell of its half, arc, return time and source."""
    for row in range(len(source)):
        arc = 0
        while slots[destination[row], arc] != last_hop[row]:
            arc += 1
        kind = np.searchsorted(edges, back[row], side="right")
        out[half[row], destination[row] * slots.shape[1] + arc, kind, source[row]] += 1


def play_audit(folder: Path, updates: int, device: str) -> None:
    """Count the updates of the paper's scheme by all that a lone opener sees, and by truth."""
    graph = random_regular(300, 3, seed=1)
    scheme = choose_scheme(graph, "paper", support="2:6")
    edges = np.unique(np.geomspace(1, 50_000, CLASSES).astype(np.int64))
    counts = np.zeros((2, 3 * 300, len(edges) + 1, 300), dtype=np.uint32)
    began, hops = time.perf_counter(), 0
    for chunk in scheme.iter_updates(updates=updates, seed=SEED, replicas=min(1 << 16, updates // 100), device=device):
        halves = (chunk["replica"] % 2).astype(np.int64)
        fields = (np.ascontiguousarray(chunk[name]) for name in ("destination", "last_hop", "source", "return_time"))
        _count(*fields, halves, graph.indices.reshape(graph.n_nodes, -1), edges, counts)
        hops += int(chunk["leg_hops"].sum())
    found = {"updates": updates, "seconds": time.perf_counter() - began, "hops": hops, "device": device}
    found["rates"] = _rates(counts)
    (folder / "audit.json").write_text(json.dumps(found, indent=2))
    print(json.dumps(found, indent=2), flush=True)


def _rates(counts: npt.NDArray[Any]) -> dict[str, tuple[float, float]]:
    """Return the rates of openers that know more and more; return times in as many classes as serve them best."""
    classes = counts.shape[2]
    merged = [np.add.reduceat(counts, np.arange(0, classes, width), axis=2) for width in (1, 3, 8, 20, 50)]
    openers = [table.reshape(2, 300, 3, -1, 300).sum(axis=2) for table in merged]
    return {
        "prior: most frequent source": _hit_rate(counts.sum(axis=(1, 2), keepdims=True)),
        "who opened": _hit_rate(openers[0].sum(axis=2, keepdims=True)),
        "last hop": _hit_rate(counts.sum(axis=2, keepdims=True)),
        "return time": max(_hit_rate(table) for table in openers),
        "last hop and return time": max(_hit_rate(table) for table in merged),
    }


def _hit_rate(counts: npt.NDArray[Any]) -> tuple[float, float]:
    """Return how often the most frequent source of a cell, learnt on one half of the lanes, is right on the other."""
    halves = counts.reshape(2, -1, 300)
    rates, total = [], int(halves.sum())
    for learnt, scored in ((0, 1), (1, 0)):
        guesses = halves[learnt].argmax(axis=1)
        right = np.take_along_axis(halves[scored], guesses[:, np.newaxis], axis=1).sum(dtype=np.int64)
        rates.append(float(right / halves[scored].sum(dtype=np.int64)))
    mean = float(np.mean(rates))
    return mean, 1.96 * math.sqrt(mean * (1 - mean) / total)


def play_frontier(folder: Path, deliveries: int, device: str) -> None:
    """Keep who sealed, who opened and from whom, for each walk and number of recipients on a million nodes."""
    graph = random_regular(NODES, 4, seed=1)
    law = walks.ExcludedRows.nearer_than(graph, 2)
    for walk in WALKS:
        kept: dict[str, Any] = {}
        for recipients in COUNTS:
            began = time.perf_counter()
            played = walks.run_protocol(
                graph,
                law,
                updates=deliveries,
                seed=SEED,
                replicas=min(2048, deliveries),
                walk=Walk(walk),
                recipients=recipients,
                burn_in=2,
                device=device,
            )
            for name in ("source", "destination", "last_hop"):
                kept[f"{recipients}_{name}"] = played[name]
            legs = played["leg_hops"].reshape(min(2048, deliveries), -1).mean(axis=1)
            spread = 1.96 * float(legs.std(ddof=1)) / math.sqrt(len(legs))
            kept[f"{recipients}_price"] = np.array([legs.mean(), spread, time.perf_counter() - began])
            print(walk, recipients, kept[f"{recipients}_price"], flush=True)
        np.savez_compressed(folder / f"frontier-{walk}.npz", **kept)


def _frontier_rows(folder: Path, scored: int) -> list[str]:
    graph = random_regular(NODES, 4, seed=1)
    rows = []
    for walk in WALKS:
        kept = np.load(folder / f"frontier-{walk}.npz")
        for recipients in COUNTS[::2]:
            deliveries = (
                kept[f"{recipients}_{name}"][:scored].astype(np.int64) for name in ("source", "destination", "last_hop")
            )
            bound = bound_node_entropy(graph, *deliveries)
            mean, spread, seconds = kept[f"{recipients}_price"]
            share = bound.mean / math.log(NODES - 1)
            hidden = f"{bound.mean:.2f} [{bound.low:.2f}-{bound.high:.2f}]"
            rows.append(
                f"| {walk} | {recipients} | {mean:,.0f} ± {spread:,.0f} | {hidden} | {share:.1%} | {seconds:.1f} |"
            )
            print(rows[-1], flush=True)
    return rows


def write_page(folder: Path, scored: int) -> None:
    """Make the page from what was played."""
    audit = json.loads((folder / "audit.json").read_text())
    rates = [f"| {name} | {rate:.6f} ± {spread:.6f} |" for name, (rate, spread) in audit["rates"].items()]
    text = f"""
### An audit of {audit["updates"]:,} updates

The paper's law (distances 2 to 6) on rrg:300:3, seed {SEED}: {audit["hops"]:.3g} hops, played and counted in
{audit["seconds"]:.0f} s. No model of the walk is used: for everything that a lone opener can see, the source most often
behind it is learnt on half of the lanes and guessed on the other half, and the other way round. So what can be learnt
from return times is at least this much. ± is a 95% half-width.

| what the opener knows | best guess right |
|---|---|
{chr(10).join(rates)}

### A frontier on a million nodes

rrg:1000000:4, sealed for K nodes that are no neighbours; hops between two updates, and an upper bound on what is left
hidden to an opener that knows its last hop (nats, of {math.log(NODES - 1):.2f}; by classes of pairs of the first
{scored:,} deliveries, an upper bound by classes). Seconds are those of playing on the card.

| walk | K | hops | node entropy, at most | share | s |
|---|---|---|---|---|---|
{chr(10).join(_frontier_rows(folder, scored))}
"""
    write_section(PAGE, "tools.pages.gpu_figures write", text)


def main() -> None:
    """Play, or write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("audit", "frontier", "play", "write"))
    parser.add_argument("--out", type=Path, required=True, help="folder of what is played")
    parser.add_argument("--updates", type=int, default=1_000_000_000)
    parser.add_argument("--deliveries", type=int, default=1 << 16)
    parser.add_argument("--scored", type=int, default=1 << 13, help="deliveries whose pairs are weighed, a point")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.what in {"frontier", "play"}:
        play_frontier(options.out, options.deliveries, options.device)
    if options.what in {"audit", "play"}:
        play_audit(options.out, options.updates, options.device)
    if options.what == "write":
        write_page(options.out, options.scored)


if __name__ == "__main__":
    main()
