"""A small network whose nodes work in two runs: different models, one roster, one key set and one port each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.helpers.manifests import FIGURES, settled_spec
from veilwalk.core.support import DistanceSupport
from veilwalk.design import DistanceLaw
from veilwalk.graphs import parse_graph_spec
from veilwalk.learning import init_generator, load_data, make_learner, make_partitions, parse_partition_spec
from veilwalk.node import ClusterPlan, Limits, prepare_cluster
from veilwalk.node.members import Manifest, array_specs, load_root_key

#: Runs by the names that operators give them, with their learners.
LEARNERS = {"small": "softmax", "wide": "mlp:hidden=20"}
_COMMON = 'keys = "keys"\nroot = "../root/root.pub"\nroster = "../roster.json"\n'


def two_runs(folder: Path, *, updates: int, **limits: float) -> list[Path]:
    """Write all that three nodes need for two runs, and return their settings."""
    graph, data = parse_graph_spec("complete:3"), load_data("digits", seed=1)
    shape = {"n_features": data.n_features, "n_classes": data.n_classes}
    plan = ClusterPlan(
        graph=graph,
        law=DistanceLaw(DistanceSupport(1, 1, allow_neighbours=True), np.ones(1)).place_on(graph),
        partitions=make_partitions(parse_partition_spec("iid", graph=graph, seed=1), data),
        learner=make_learner(LEARNERS["small"], **shape),
        n_classes=data.n_classes,
        spec=settled_spec(updates=updates, learner=LEARNERS["small"], seed=1, suite="x25519"),
        figures=FIGURES,
    )
    configs = prepare_cluster(folder, plan)
    root = load_root_key(folder / "root")
    first = Manifest.read_signed(folder / "manifest.json", root.public_key())
    wide = make_learner(LEARNERS["wide"], **shape).init_params(init_generator(1))
    second = replace(
        first, run_id=os.urandom(16), spec=first.spec.change(learner=LEARNERS["wide"]), arrays=array_specs(wide)
    )
    second.sign(folder / "wide.json", root)
    for number, config in enumerate(configs):
        tables = "".join(
            f'[[run]]\nname = "{name}"\nmanifest = "../{manifest}"\nlaw = "../law.npz"\ndata = "data.npz"\n'
            f'state = "state-{name}"\nstarts = {str(number == start).lower()}\n\n'
            for name, manifest, start in (("small", "manifest.json", 0), ("wide", "wide.json", 1))
        )
        given = replace(Limits(), **limits)  # type: ignore[arg-type]
        values = "".join(f"{key} = {getattr(given, key)}\n" for key in Limits.__slots__)
        config.write_text(f"{_COMMON}\n{tables}[limits]\n{values}")
    return configs


def start(config: Path) -> subprocess.Popen[bytes]:
    """Start a node; its events go to a file beside its settings."""
    with (config.parent / "log.jsonl").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "veilwalk.node", str(config)],
            stderr=log,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        )


@contextmanager
def nodes(configs: list[Path]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Nodes as processes, stopped when this is left."""
    processes = [start(config) for config in configs]
    try:
        yield processes
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(30)


def wait_for(done: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Wait until something holds."""
    end = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.05)
