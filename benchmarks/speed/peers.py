"""veilwalk beside Flower, pfl-research, gossipy and a bare NumPy loop: the same rows, the same updates.

    python -m benchmarks.speed.peers --data mnist:../shared/data/mnist --rounds 3 --write

300 nodes, 3,000 updates of ten steps on 32 rows. Each peer has an environment of its own, made here under ``--work``
(minutes, and some gigabytes of torch, once). Contenders take turns, each in a process of its own with one thread;
Flower's workers take all cores. Memory is the largest sum over all processes of a contender, shared pages counted once.
Rounds are kept under ``--work``: run again, it goes on. Without MNIST ``--data digits`` will do.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tools.pages.markdown import markdown_table, paragraph, write_section

from benchmarks.speed.peer_runs import RUNS
from veilwalk.core.units import readable_bytes
from veilwalk.design import recommend
from veilwalk.graphs import parse_graph_spec
from veilwalk.learning import load_data
from veilwalk.training import Scenario, make_spec

GRAPH, PARTITION, UPDATES = "rrg:300:3:seed=1", "dirichlet:0.3", 3000
MODELS = ("softmax", "mlp")
#: What goes into the environment of a peer, in this order: torch first, so that nothing brings another.
PACKAGES = {
    "flower": ("flwr[simulation]==1.41.0",),
    "pfl": ("torch==2.13.0", "pfl==0.6.0"),
    "gossipy": ("torch==2.13.0", "gossipy-dfl==0.0.1"),
}
PAGE = Path(__file__).parents[2] / "docs" / "measured" / "speed.md"
_MARK = "PEERS_ROWS"
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
_SAMPLE_S = 0.3
Found = dict[str, Any]


def build_scenario(data: str, learner: str, **settings: Any) -> Scenario:
    """Return the run of the recommended scheme on these rows."""
    scheme = recommend(parse_graph_spec(GRAPH)).scheme
    spec = make_spec(seed=1, **settings)
    return Scenario.build(scheme, spec, data=load_data(data), partition=PARTITION, learner=learner)


def deal_rows(data: str, folder: Path) -> None:
    """Write the rows of every node, for contenders that do without this package."""
    folder.mkdir(parents=True, exist_ok=True)
    scenario = build_scenario(data, "softmax", updates=UPDATES)
    rows, test = scenario.partitions.rows, scenario.data.test
    arrays: dict[str, npt.NDArray[Any]] = {
        "features": rows.features.astype(np.float32),
        "labels": rows.labels.astype(np.int64),
        "starts": scenario.partitions.starts,
        "edges": scenario.graph.edges(),
        "test_features": test.features.astype(np.float32),
        "test_labels": test.labels.astype(np.int64),
    }
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)


def find_python(contender: str, work: Path) -> str:
    """Return the interpreter of a contender, whose environment is made where there is none."""
    packages, home = PACKAGES.get(contender, ()), work / contender
    if not packages:
        return sys.executable
    python, done = home / "bin" / "python", home / ".installed"
    if not done.exists():
        venv.create(home, with_pip=True)
        for package in packages:
            subprocess.run([python, "-m", "pip", "install", "--quiet", package], check=True)
        done.touch()
    return str(python)


def list_processes(mark: str) -> Iterator[Path]:
    """Yield the processes whose environment has a mark, wherever they were started from."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (place / "environ").read_bytes():
                yield place
        except OSError:
            continue


def sum_memory(mark: str) -> int:
    """Return the bytes that these processes hold together."""
    total = 0
    for place in list_processes(mark):
        try:
            lines = (place / "smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total


def run_contender(contender: str, model: str, work: Path, data: str, updates: int) -> Found:
    """Run a contender once and return what it says, with its memory."""
    rows = (work / "rows").resolve()
    mark = f"{_MARK}={rows}"
    command = [find_python(contender, work), str(Path(__file__).with_name("peer_runs.py"))]
    if contender == "veilwalk":
        command[1:] = ["-m", "benchmarks.speed.peer_runs"]
    told = os.environ | _ONE_THREAD | {_MARK: str(rows), "PEERS_DATA": data}
    words = [contender, model, str(updates), str(rows)]
    process = subprocess.Popen(
        [*command, *words], env=told, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    largest, is_over = [0], threading.Event()

    def watch() -> None:
        while not is_over.wait(_SAMPLE_S):
            largest[0] = max(largest[0], sum_memory(mark))

    watcher = threading.Thread(target=watch)
    watcher.start()
    shown, _ = process.communicate()
    is_over.set()
    watcher.join()
    lines = [line for line in shown.splitlines() if line.startswith("{")]
    if process.returncode or not lines:
        raise RuntimeError(f"{contender}, {model}: ended with {process.returncode}, without figures")
    found: Found = json.loads(lines[-1])
    # A part of the updates stands for all of them, where a peer takes long.
    for name in ("seconds", "processor_s"):
        if name in found:
            found[name] *= UPDATES / updates
    about = {"contender": contender, "model": model, "updates": updates, "memory": largest[0]}
    return found | about | {"load": os.getloadavg()[0]}


def write_table(rounds: Sequence[Found]) -> list[str]:
    """Return the lines of both models: seconds as multiples of the bare loop of the same round."""
    lines, kinds = [], list(dict.fromkeys(found["round"] for found in rounds))
    of = {(found["contender"], found["model"], found["round"]): found for found in rounds}
    for model in MODELS:
        table = []
        for contender in RUNS:
            runs = [of[contender, model, kind] for kind in kinds if (contender, model, kind) in of]
            if not runs:
                continue
            ratios = [
                _spread(
                    [
                        run[name] / bare[name]
                        for run in runs
                        if name in run and name in (bare := of["bare", model, run["round"]])
                    ]
                )
                for name in ("seconds", "processor_s")
            ]
            middle = {name: float(np.median([run[name] for run in runs])) for name in ("set_up_s", "seconds", "memory")}
            share = f", {runs[0]['updates']} of {UPDATES:,} run" if runs[0]["updates"] < UPDATES else ""
            share += f", {len(runs)} rounds" if len(runs) < len(kinds) else ""
            own = f"; own {np.median([run['own'] for run in runs]):.1%}" if "own" in runs[0] else ""
            table.append(
                (
                    contender + share,
                    f"{middle['set_up_s']:.1f} s",
                    f"{middle['seconds']:.1f} s",
                    *ratios,
                    readable_bytes(middle["memory"]),
                    f"{np.median([run['accuracy'] for run in runs]):.1%}{own}",
                )
            )
        head = (
            model,
            "set-up",
            f"{UPDATES:,} updates",
            "times the bare loop",
            "by processor time",
            "memory",
            "accuracy",
        )
        lines += ["", *markdown_table(head, table)]
    return lines


def _spread(ratios: Sequence[float]) -> str:
    return f"{np.median(ratios):.2f} [{min(ratios):.2f}-{max(ratios):.2f}]" if ratios else "–"


def describe(rounds: Sequence[Found], data: str) -> str:
    """Return what was run, in words, and the tables."""
    kinds, loads = {found["round"] for found in rounds}, [found["load"] for found in rounds]
    about = (
        f"{data.partition(':')[0]} dealt to 300 nodes ({PARTITION}), {UPDATES:,} updates of ten steps on 32 rows, "
        f"step size 0.3; mlp: 128 units. Medians [least-largest] of {len(kinds)} rounds in turn; load average "
        f"{min(loads):.1f} to {max(loads):.1f}, so ratios say more than seconds, and those of "
        "processor time most (not taken of Flower, whose work is spread). *Set-up*: imports, rows, and what "
        "comes before the first update. bare: a NumPy loop that hands a model from node to node. veilwalk: the private "
        "walk with its recommended scheme, sealing and hops modelled; nothing compared or attacked. Flower 1.41 (ray, "
        "NumPy clients) and pfl 0.6 (torch): FedAvg, 30 nodes a round; gossipy 0.0.1 (torch): push gossip, accuracy of "
        "the mean of all models, which no node holds, and of single ones. Where a part was run, seconds are scaled up "
        "and accuracy is after that part. The goal of veilwalk is at most 1.3 times the bare loop."
    )
    return "\n".join([paragraph(about), *write_table(rounds)])


def main() -> None:
    """Run the rounds that are asked, and print or write the tables of all that were run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", default="mnist:../shared/data/mnist")
    parser.add_argument("--rounds", type=int, default=7, help="how many, counted with those that are kept")
    parser.add_argument("--only", nargs="+", choices=list(RUNS), default=list(RUNS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--flower-share", type=float, default=1.0, help="share of the updates that Flower makes")
    parser.add_argument("--work", type=Path, default=Path("out/peers"))
    parser.add_argument("--write", action="store_true", help="into the page on speed")
    options = parser.parse_args()
    kept = options.work / "rounds.jsonl"
    if not (options.work / "rows" / "test_labels.npy").exists():
        deal_rows(options.data, options.work / "rows")
    rounds: list[Found] = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    done = {(found["contender"], found["model"], found["round"]) for found in rounds}
    for kind in range(options.rounds):
        for model in options.models:
            for contender in options.only:
                if (contender, model, kind) in done:
                    continue
                updates = round(UPDATES * options.flower_share) if contender == "flower" else UPDATES
                begun = time.perf_counter()
                found = run_contender(contender, model, options.work, options.data, updates) | {"round": kind}
                print(f"{contender}, {model}: {found} after {time.perf_counter() - begun:.0f} s", flush=True)
                rounds.append(found)
                with kept.open("a") as file:
                    file.write(json.dumps(found) + "\n")
    text = describe(rounds, options.data)
    if options.write:
        write_section(PAGE, "benchmarks.speed.peers --write", text)
    else:
        print(text)


if __name__ == "__main__":
    main()
