"""The graphics card against the processor, torch on the card, and the card's own memory: goals G14 and G15.

``python -m benchmarks.speed.gpu --check`` holds every digest that the processor made (``tests/golden``), and larger
cases against the processor at hand: integers must be equal. Without ``--check`` it measures besides and, with
``--write``, makes the table of ``docs/reference/gpu.md``. It needs the extra ``cuda``; torch where its line is wanted.
``--golden`` makes the digests anew, on the processor.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np

from benchmarks.speed._golden import digest, exact_law, golden_cases, known_digests, large_cases, write_digests
from benchmarks.speed._harness import Line, goal_line, peer
from veilwalk import walks
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.graphs import Graph, random_regular
from veilwalk.walks import _cuda
from veilwalk.walks._device_jobs import DeviceMoves
from veilwalk.walks._moves import moves_of

SEED = np.uint64(1)
_NO_LIMIT = np.iinfo(np.int64).max
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "gpu.md"

# Independent loads of 4 bytes, eight under way a thread, in an order no cache can guess.
_GATHER = """
extern "C" __global__ void gather(const int *table, unsigned long long size, long long n_reads, int *out) {
    long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x, threads = (long long)gridDim.x * blockDim.x;
    int sum = 0;
    for (long long turn = thread; turn < n_reads / 8; turn += threads) {
#pragma unroll
        for (int part = 0; part < 8; part++) {
            // Murmur's finaliser: multiples of one number alone would come back to the same lines in good order.
            unsigned mixed = (unsigned)(turn * 8 + part);
            mixed = (mixed ^ mixed >> 16) * 0x85EBCA6Bu;
            mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35u;
            sum += table[(unsigned long long)(mixed ^ mixed >> 16) * size >> 32];
        }
    }
    out[thread] = sum;
}
"""


class Clock:
    """Seconds of work on the card, contenders in turn."""

    def __init__(self, rounds: int) -> None:
        self._cupy, self._rounds = peer("cupy"), rounds

    def in_turns(self, contenders: dict[str, Callable[[], Any]]) -> dict[str, Any]:
        """Return the seconds of every contender in every round; each is run once before."""
        for run in contenders.values():
            run()
        turns = [[self._seconds(run) for run in contenders.values()] for _ in range(self._rounds)]
        return dict(zip(contenders, np.array(turns).T, strict=True))

    def _seconds(self, run: Callable[[], Any]) -> float:
        self._cupy.cuda.Device().synchronize()
        began = time.perf_counter()
        run()
        self._cupy.cuda.Device().synchronize()
        return time.perf_counter() - began


def union_graph(n_nodes: int) -> Graph:
    """Return two random permutations and their inverses: a 4-regular multigraph, unchecked, made quickly."""
    rng = np.random.default_rng(1)
    table = np.empty((n_nodes, 4), dtype=np.int32)
    for column in (0, 2):
        order = rng.permutation(n_nodes).astype(np.int32)
        table[:, column] = order
        table[order, column + 1] = np.arange(n_nodes, dtype=np.int32)
    return Graph(indptr=np.arange(0, 4 * n_nodes + 1, 4, dtype=np.int32), indices=table.reshape(-1))


def gather_lines(clock: Clock, card: Any) -> list[Line]:
    """Compare the walk with bare loads from the same table, at a million nodes and more."""
    cupy, lines = peer("cupy"), []
    kernel = cupy.RawKernel(_GATHER, "gather")
    threads = 132 * 2048  # no grid is larger
    for n_nodes, walkers, steps in ((10**6, 1 << 22, 512), (10**7, 1 << 22, 256), (10**8, 1 << 22, 256)):
        graph = union_graph(n_nodes)
        kept, table = DeviceMoves(card, moves_of(graph, SIMPLE)), cupy.asarray(graph.indices)
        starts = cupy.asarray(np.random.default_rng(2).integers(0, n_nodes, walkers).astype(np.int32))
        out, reads = cupy.empty(threads, dtype=cupy.int32), walkers * steps

        def read(blocks: int, table: Any = table, out: Any = out, reads: int = reads) -> None:
            kernel((132 * blocks,), (256,), (table, np.uint64(len(table)), np.int64(reads), out))

        def walk(kept: DeviceMoves = kept, starts: Any = starts, steps: int = steps) -> None:
            kept.final_positions(starts, steps, SEED, np.uint64(0))

        # Fewer threads in flight can be faster: the limit is the best of several grids.
        grids = {f"{blocks} blocks": partial(read, blocks) for blocks in (1, 2, 4, 8)}
        spent = clock.in_turns({"walk": walk, **grids})
        best = min(grids, key=lambda grid: float(np.median(spent[grid])))
        rates = {name: reads / float(np.median(spent[name])) / 1e9 for name in ("walk", best)}
        what = f"N={n_nodes:.0e}: walk / gather limit ({rates['walk']:.0f} Gstep/s, {rates[best]:.0f} Gload/s, {best})"
        lines.append(goal_line("G14", what, spent[best] / spent["walk"], ">=", 0.9))
        show(lines[-1])
    return lines


def torch_lines(clock: Clock, card: Any, graph: Graph) -> list[Line]:
    """Compare with torch's index operations on the card, at 300 nodes and at ten million."""
    torch, cupy = peer("torch"), peer("cupy")
    if torch is None:
        print("MISSING  torch: cannot be imported")
        return []
    lines = []
    for network, walkers, steps, need in ((graph, 1 << 23, 4096, 15.0), (union_graph(10**7), 1 << 23, 256, 2.0)):
        table = torch.from_numpy(network.indices.astype(np.int64)).cuda().reshape(network.n_nodes, 4)
        nodes = torch.randint(0, network.n_nodes, (10**7 if need < 15 else 10**8,), device="cuda")
        kept = DeviceMoves(card, moves_of(network, SIMPLE))
        starts = cupy.asarray(np.random.default_rng(2).integers(0, network.n_nodes, walkers).astype(np.int32))

        def theirs(table: Any = table, nodes: Any = nodes) -> None:
            for _ in range(10):
                nodes = table[nodes, torch.randint(0, 4, nodes.shape, device="cuda")]
            torch.cuda.synchronize()

        def ours(kept: DeviceMoves = kept, starts: Any = starts, steps: int = steps) -> None:
            kept.final_positions(starts, steps, SEED, np.uint64(0))

        spent = clock.in_turns({"ours": ours, "theirs": theirs})
        rates = walkers * steps / spent["ours"], 10 * len(nodes) / spent["theirs"]
        each = ", ".join(f"{np.median(rate) / 1e9:.0f}" for rate in rates)
        what = f"N={network.n_nodes}: walk / torch index ops ({each} Gstep/s)"
        lines.append(goal_line("G14", what, rates[0] / rates[1], ">=", need))
        show(lines[-1])
        del table, nodes, kept, starts
        torch.cuda.empty_cache()
    return lines


def hit_lines(clock: Clock, card: Any, graph: Graph) -> list[Line]:
    """Compare first hits with the processor's two threads: on the card, and with arrays brought there and back."""
    cupy = peer("cupy")
    few, many = 4_000_000, 100_000_000
    sources, targets = np.random.default_rng(3).integers(0, graph.n_nodes, (2, many)).astype(np.int32)
    kept, there = DeviceMoves(card, moves_of(graph, SIMPLE)), (cupy.asarray(sources), cupy.asarray(targets))
    numba.set_num_threads(min(2, numba.get_num_threads()))
    contenders: dict[str, Callable[[], Any]] = {
        "card": lambda: kept.first_hits(*there, _NO_LIMIT, SEED, np.uint64(0)),
        "whole call": lambda: walks.hitting_times(graph, sources, targets, seed=1, device="cuda"),
        "processor": lambda: walks.hitting_times(graph, sources[:few], targets[:few], seed=1),
    }
    spent = clock.in_turns(contenders)
    rates = {name: (few if name == "processor" else many) / seconds for name, seconds in spent.items()}
    shown = ", ".join(f"{name} {np.median(rate):.2e}" for name, rate in rates.items())
    print(f"      hits a second: {shown}")
    lines = [
        goal_line(
            "G15",
            f"N=300, first hits: card / two threads of the processor ({np.median(rates['card']):.1e} hits/s)",
            rates["card"] / rates["processor"],
            ">=",
            200.0,
        ),
        free_line(
            "N=300, first hits: the whole call, arrays from here and back", rates["whole call"] / rates["processor"]
        ),
    ]
    for line in lines:
        show(line)
    return lines


def protocol_lines(clock: Clock) -> list[Line]:
    """Compare the protocol and the estimator that sums the set out, whole calls, with the processor on two threads."""
    graph = random_regular(300, 3, seed=1)
    law, lines = exact_law(graph), []
    for recipients, walk in ((1, "simple"), (1, "non-backtracking"), (8, "simple")):
        played: dict[str, int] = {}
        options: dict[str, Any] = {"recipients": recipients, "walk": Walk.of(walk), "seed": 1, "burn_in": 2}

        def play(device: str, played: Any = played, options: Any = options) -> None:
            size: dict[str, Any] = {"updates": 100_000}
            if device == "cuda":
                size = {"updates": 1 << 22, "replicas": 1 << 16}
            chunks = walks.iter_protocol(graph, law, device=device, **size, **options)
            played[device] = sum(int(chunk["leg_hops"].sum()) for chunk in chunks)

        spent = clock.in_turns({device: partial(play, device) for device in walks.DEVICES})
        rates = {device: played[device] / seconds for device, seconds in spent.items()}
        rate = f"{np.median(rates['cuda']) / 1e9:.1f} Ghop/s"
        what = f"protocol, rrg:300:3, {walk}, K={recipients}, records fetched ({rate}) / two threads"
        lines.append(free_line(what, rates["cuda"] / rates["cpu"]))
        show(lines[-1])
    return lines


def free_line(what: str, values: Any) -> Line:
    """Return a line without a goal."""
    low, high = float(np.min(values)), float(np.max(values))
    found = float(np.median(values))
    return Line(goal="", what=what, found=found, low=low, high=high, need="", met=None, rounds=len(values))


def show(line: Line) -> None:
    """Print a line."""
    verdict = {True: "PASS", False: "MISS", None: "    "}[line.met]
    print(
        f"{verdict}  {line.goal:4} {line.what}: {line.found:.3g} [{line.low:.3g}-{line.high:.3g}] {line.need}",
        flush=True,
    )


def check() -> dict[str, bool]:
    """Return for each case whether the card gives the integers of the processor."""
    known, found = known_digests(), {}
    for name, case in golden_cases().items():
        found[name] = digest(case("cuda")) == known[name]
    for name, case in large_cases().items():
        found[name] = digest(case("cuda")) == digest(case("cpu"))
        print(f"{'equal' if found[name] else 'DIFFERENT'}  {name}", flush=True)
    different = [name for name, equal in found.items() if not equal]
    print(f"{len(found) - len(different)} of {len(found)} cases equal to the processor, bit for bit", flush=True)
    for name in different:
        print(f"DIFFERENT  {name}")
    return found


def page(lines: list[Line], checked: dict[str, bool], about: str) -> str:
    """Return the page of figures."""
    rows = []
    for line in lines:
        verdict = {True: "met", False: "**missed**", None: ""}[line.met]
        found = f"{line.found:.3g} [{line.low:.3g}-{line.high:.3g}]"
        rows.append(f"| {line.goal} | {line.what} | {found} | {line.need} | {verdict} |")
    return "\n".join(
        [
            "<!-- Made by `python -m benchmarks.speed.gpu --write`. -->",
            "# On a graphics card",
            "",
            f"{about} Contenders in turn in one process; medians [least-largest] of per-round ratios.",
            "",
            f"Equality: {sum(checked.values())} of {len(checked)} cases (walks, first hits, returns, the protocol",
            "sealed for one and for several, the estimator with the set summed out) gave the processor's bits.",
            "",
            "| goal | what | ratio | needed | |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _processor() -> str:
    """Return what the processor calls itself, where the system tells."""
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    fields = dict(line.split(":", 1) for line in told.split("\n\n", 1)[0].splitlines() if ":" in line)
    named = {name.strip(): value.strip() for name, value in fields.items()}
    return (
        f"{named.get('model name', platform.machine())} (family {named.get('cpu family')}, model {named.get('model')})"
    )


def main() -> int:
    """Check, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare integers with the processor's")
    parser.add_argument("--golden", action="store_true", help="make the digests anew, on the processor, and stop")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, help="write the page there, and its figures beside it as JSON")
    parser.add_argument("--write", action="store_true", help="write docs/reference/gpu.md")
    options = parser.parse_args()
    if options.golden:
        write_digests()
        return 0
    card = _cuda.opened()
    checked = check()
    if options.check:
        return 0 if all(checked.values()) else 1
    clock, small = Clock(options.rounds), random_regular(300, 4, seed=1)
    lines = gather_lines(clock, card) + torch_lines(clock, card, small) + hit_lines(clock, card, small)
    lines += protocol_lines(clock)
    about = (
        f"One {card.name}, CuPy {peer('cupy').__version__}; processor {_processor()}, "
        f"{os.cpu_count()} cores of which two threads were used; numba {numba.__version__}."
    )
    text = page(lines, checked, about)
    for target in [options.out] if options.out else [PAGE] if options.write else []:
        target.write_text(text, encoding="utf-8")
    if options.out:
        figures = {line.what: [line.found, line.low, line.high] for line in lines}
        options.out.with_suffix(".json").write_text(json.dumps({"lines": figures, "checked": checked}, indent=2))
    return 0 if all(checked.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
