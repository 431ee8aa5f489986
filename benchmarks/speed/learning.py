"""What private training adds to the arithmetic of an update: goals G12 and G13.

Run ``python -m benchmarks.speed.learning``. A softmax step of 784 x 10 and 32 rows, one thread. Contenders take turns
in one process; each line gives the median [min-max] of the per-round ratios.

*bare*
    The step written out in NumPy at the nodes of the same trace: draw a batch, gather its rows, two products, descend.
    One stream for all, nothing checked.
*train*
    ``veilwalk.learning.train`` along the trace: a stream for each update, checks of shapes and numbers, bookkeeping.
*walk*
    ``walk_trace``: every hop and every draw of a destination, return times, the trace put in order. With *train* it
    makes the private update; nothing is sealed.
*hpke*
    One seal and one open of the bare parameters, X25519 and AES-128-GCM.
*trial*
    What a node does with one message that is not for it: open the header (X25519, AES-256-GCM), and fail.

The first G13 line counts train, walk, one seal and one open, and no trial, as if relays knew what is not for them: the
strictest count. The second adds a failed trial at every hop but the last, as nodes make them.
"""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Callable
from typing import Any

# Before NumPy is loaded: products this small are slower on two threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from benchmarks.speed._harness import Contender, Line, goal_line, in_turns
from benchmarks.speed.sealing import Party
from veilwalk.core.arrays import FloatArray
from veilwalk.core.support import DistanceSupport
from veilwalk.design import choose_scheme
from veilwalk.graphs import random_regular
from veilwalk.learning import Partition, SoftmaxLearner, TrainingTask, TrainingTrace, trace_of, train
from veilwalk.node.sealing import Opener, Suite, seal
from veilwalk.walks import run_protocol

N_NODES, ROWS, FEATURES, CLASSES, BATCH = 300, 200, 784, 10, 32
GRAPH = random_regular(N_NODES, 3, seed=1)
LAW = choose_scheme(GRAPH, "paper", support=DistanceSupport(2, 6)).law.matrix
MODEL_BYTES = 4 * (FEATURES + 1) * CLASSES
RATE = np.float32(0.1)
# Walks are timed over so many times the updates, so that reading the network counts as little as in a long run.
_LONGER = 10


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
    public, model = secret.public_key(), bytes(MODEL_BYTES)
    for _ in range(count):
        suite.decrypt(suite.encrypt(model, public), secret)


def trial() -> Callable[[int], None]:
    """Return what tries so many times to open a message that is for another node."""
    mine, other = (Party.of(Suite.X25519, MODEL_BYTES) for _ in range(2))
    message = seal(mine.context, [other.public], walk_tag=bytes(8), iteration=0, body=bytes(MODEL_BYTES))
    opener = Opener([(mine.context, mine.private)], accepted=[])

    def fail(count: int) -> None:
        for _ in range(count):
            if opener.open(message) is not None:
                raise AssertionError("it opened")

    return fail


def walk_trace(updates: int) -> TrainingTrace:
    """Walk the private protocol, and put its updates in order."""
    return trace_of(GRAPH, run_protocol(GRAPH, LAW, updates=updates, seed=7, tokens=1, replicas=1))


def measure(updates: int, rounds: int) -> dict[str, FloatArray]:
    """Return microseconds of every contender (of one update; of one message for *trial*), for each round."""
    data, fail = parts(), trial()
    trace = walk_trace(updates=updates)
    nodes = trace.node.tolist()
    small = Partition(data[0].features[:1], data[0].labels[:1])
    learner = SoftmaxLearner(n_features=FEATURES, n_classes=CLASSES, batch_size=BATCH)
    task = TrainingTask(learner=learner, partitions=data, held_out=small, seed=7)
    turns: dict[str, Contender] = {
        "bare": lambda: bare(data, nodes),
        "train": lambda: train(task, trace, evaluations=1),
        "walk": lambda: walk_trace(updates=_LONGER * updates),
        "torch": lambda: autograd(data, nodes),
        "hpke": lambda: sealing(updates),
        "trial": lambda: fail(updates),
    }
    for run in turns.values():
        run()
    counts = {name: _LONGER * updates if name == "walk" else updates for name in turns}
    return {name: 1e6 * seconds / counts[name] for name, seconds in in_turns(turns, rounds).items()}


def speed_lines(updates: int = 4000, rounds: int = 15) -> tuple[list[Line], dict[str, float]]:
    """Return the goals with what was found, and the median microseconds behind them."""
    us = measure(updates, rounds)
    private = us["walk"] + us["train"]
    sealed = private + us["hpke"]
    hops = float(walk_trace(updates=updates).hops.mean())
    tried = sealed + (hops - 1) * us["trial"]
    lines = [
        goal_line("G12", "private update / bare step", private / us["bare"], "<=", 1.3),
        goal_line("G12", "private update / torch autograd", private / us["torch"], "<=", 0.35),
        goal_line("G13", "walk / update with one seal and one open", us["walk"] / sealed, "<=", 0.02),
        goal_line("G13", f"the same with trials at the {hops:.0f} hops of an update", us["walk"] / tried, "<=", 0.02),
    ]
    return lines, {name: float(np.median(values)) for name, values in us.items()}


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--updates", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    lines, medians = speed_lines(options.updates, options.rounds)
    for line in lines:
        verdict = "met" if line.met else "missed"
        print(f"{line.goal} {line.what}: {line.found:.3g} [{line.low:.3g}-{line.high:.3g}], {line.need}: {verdict}")
    print(
        "median microseconds, of an update (trial: of one message): "
        + ", ".join(f"{name} {value:.1f}" for name, value in medians.items())
    )


if __name__ == "__main__":
    main()
