"""What private training adds to the arithmetic of an update: goals G12 and G13.

Run ``python -m benchmarks.learning_speed``. A softmax step of 784 x 10 and 32 rows, one thread. Contenders take turns
in one process; each line gives the median [min-max] of the per-round ratios. *Bare* is the step written out in NumPy:
draw a batch, gather its rows, two products, descend. *Private* is ``veilwalk.learning.train`` along a trace, the walk
included: streams, checks and bookkeeping. It does not seal; the sealed update adds HPKE, seal and open.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# Before NumPy is loaded: products this small are slower on two threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from veilwalk.audit import scheme_law
from veilwalk.core.support import DistanceSupport
from veilwalk.graphs import random_regular
from veilwalk.learning import Partition, SoftmaxLearner, TrainingTask, private_trace, train

N_NODES, ROWS, FEATURES, CLASSES, BATCH = 300, 200, 784, 10, 32
GRAPH = random_regular(N_NODES, 3, seed=1)
LAW = scheme_law("paper", GRAPH, DistanceSupport(2, 6)).matrix
RATE = np.float32(0.1)
# Walks are timed over so many times the updates, so that reading the network counts as little as in a long run.
_LONGER = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One ratio with its goal."""

    goal: str
    what: str
    found: float
    low: float
    high: float
    need: str
    met: bool


def parts() -> list[Partition]:
    """Return random data of the shape of MNIST; speed does not depend on what is in it."""
    rng = np.random.default_rng(0)
    return [
        Partition(rng.random((ROWS, FEATURES), dtype=np.float32), rng.integers(CLASSES, size=ROWS))
        for _ in range(N_NODES)
    ]


def bare(data: list[Partition], nodes: list[int]) -> None:
    """Make updates with the step written out."""
    rng, columns, scale = np.random.default_rng(1), np.arange(BATCH), np.float32(1 / BATCH)
    weight, bias = np.zeros((CLASSES, FEATURES), np.float32), np.zeros(CLASSES, np.float32)
    for node in nodes:
        mine = data[node]
        rows = rng.choice(ROWS, BATCH, replace=False, shuffle=False)
        features, labels = mine.features[rows], mine.labels[rows]
        slope = weight @ features.T
        slope += bias[:, np.newaxis]
        slope -= slope.max(axis=0)
        np.exp(slope, out=slope)
        slope /= slope.sum(axis=0)
        slope[labels, columns] -= 1
        slope *= scale
        weight, bias = weight - RATE * (slope @ features), bias - RATE * slope.sum(axis=1)


def autograd(data: list[Partition], nodes: list[int]) -> None:
    """Make updates with torch's autograd and SGD."""
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(1)
    rng, model = np.random.default_rng(1), torch.nn.Linear(FEATURES, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for node in nodes:
        rows = rng.choice(ROWS, BATCH, replace=False, shuffle=False)
        features = torch.from_numpy(data[node].features[rows])
        labels = torch.from_numpy(data[node].labels[rows])
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(features), labels).backward()
        optimizer.step()


def sealing(count: int) -> None:
    """Seal and open a softmax model, HPKE X25519 and AES-128-GCM, once an update."""
    suite = hpke.Suite(hpke.KEM.X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_128_GCM)
    secret = X25519PrivateKey.generate()
    public, model = secret.public_key(), bytes(4 * (FEATURES + 1) * CLASSES)
    for _ in range(count):
        suite.decrypt(suite.encrypt(model, public), secret)


def measure(updates: int, rounds: int) -> dict[str, list[float]]:
    """Return microseconds an update of every contender, for each round."""
    data = parts()
    trace = private_trace(GRAPH, LAW, updates=updates, seed=7)
    nodes = trace.node.tolist()
    small = Partition(data[0].features[:1], data[0].labels[:1])
    learner = SoftmaxLearner(n_features=FEATURES, n_classes=CLASSES, batch_size=BATCH)
    task = TrainingTask(learner=learner, partitions=data, held_out=small, seed=7)
    turns: Mapping[str, Callable[[], object]] = {
        "bare": lambda: bare(data, nodes),
        "train": lambda: train(task, trace, evaluations=1),
        "walk": lambda: private_trace(GRAPH, LAW, updates=_LONGER * updates, seed=7),
        "torch": lambda: autograd(data, nodes),
        "hpke": lambda: sealing(updates),
    }
    found: dict[str, list[float]] = {name: [] for name in turns}
    for run in turns.values():
        run()
    for _ in range(rounds):
        for name, run in turns.items():
            start = time.perf_counter()
            run()
            count = _LONGER * updates if name == "walk" else updates
            found[name].append(1e6 * (time.perf_counter() - start) / count)
    return found


def speed_lines(updates: int = 10_000, rounds: int = 7) -> tuple[list[Line], dict[str, float]]:
    """Return the goals with what was found, and the median microseconds behind them."""
    us = measure(updates, rounds)
    private = [walk + step for walk, step in zip(us["walk"], us["train"], strict=True)]
    shares = [walk / (own + crypto) for walk, own, crypto in zip(us["walk"], private, us["hpke"], strict=True)]
    lines = [
        _line("G12", "private update / bare step", _ratios(private, us["bare"]), 1.3),
        _line("G12", "private update / torch autograd", _ratios(private, us["torch"]), 0.35),
        _line("G13", "hops and destination draw, share of a sealed update", shares, 0.02),
    ]
    return lines, {name: statistics.median(values) for name, values in us.items()}


def _ratios(ours: list[float], theirs: list[float]) -> list[float]:
    return [a / b for a, b in zip(ours, theirs, strict=True)]


def _line(goal: str, what: str, values: list[float], most: float) -> Line:
    found = statistics.median(values)
    return Line(
        goal=goal, what=what, found=found, low=min(values), high=max(values), need=f"<= {most:g}", met=found <= most
    )


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--updates", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    lines, medians = speed_lines(options.updates, options.rounds)
    for line in lines:
        verdict = "met" if line.met else "missed"
        print(f"{line.goal} {line.what}: {line.found:.3f} [{line.low:.3f}-{line.high:.3f}], {line.need}: {verdict}")
    print("microseconds an update: " + ", ".join(f"{name} {value:.1f}" for name, value in medians.items()))


if __name__ == "__main__":
    main()
