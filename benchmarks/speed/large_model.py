"""Ten million parameters over a private walk: what an update, a message, a checkpoint and the whole run take.

Run ``python -m benchmarks.speed.large_model``; prints one JSON object. A torch network of 10,047,466 numbers (three
linear layers) is trained on digits by twenty peers, interrupted after half the updates, and resumed; the model must be
the one of a run that was not. ``--payload`` says how it travels, ``--updates`` how long. ``--attack D`` measures the
content attack on D deliveries instead: each takes a look at every peer's data with three models, and at every peer's
updates of three. ``--bare S`` holds an update of S local steps against as many steps of torch alone.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import resource
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from veilwalk.core.payload import decoded, encoded, rounding
from veilwalk.design import Scheme, choose_scheme
from veilwalk.graphs import parse_graph_spec
from veilwalk.learning import Params, Protection, apply_update, load_data
from veilwalk.training import Scenario, TrainingRun, attacked_rows, gather_evidence, make_spec, train

if TYPE_CHECKING:
    from torch import nn

    from veilwalk.learning.torch_learner import TorchLearner

WIDTH = 3132


def network() -> nn.Module:
    """Three linear layers."""
    from torch import nn

    return nn.Sequential(nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))


def learner() -> TorchLearner:
    """Plain descent: a node keeps nothing of it."""
    from veilwalk.learning.torch_learner import TorchLearner

    return TorchLearner(module_fn=network)


def scheme() -> Scheme:
    """Twenty peers."""
    graph = parse_graph_spec("rrg:20:3:seed=1")
    return choose_scheme(graph, "far:2", walk="non-backtracking", recipients=4)


def walk(payload: str, updates: int, folder: Path | None, **options: Any) -> TrainingRun:
    """Train along one walk of twenty peers."""
    return train(
        scheme(), data="digits", learner=learner(), updates=updates, payload=payload, evaluations=2, compare="none",
        attack=0, out=folder, **options,
    )  # fmt: skip


def peak_bytes() -> int:
    """Return the most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def digest(model: Params) -> str:
    """Return what tells a model from any other."""
    return hashlib.sha256(b"".join(array.tobytes() for array in model.values())).hexdigest()


def coded_seconds(payload: str, model: Params) -> float:
    """Return the processor's seconds for a model's way into bytes and back."""
    began, draws = time.process_time(), rounding(payload, seed=1, updates=1)
    for array in model.values():
        decoded(payload, encoded(payload, array, draws).data, array.shape, array.dtype)
    return time.process_time() - began


class HalfWayError(Exception):
    """Half of the updates are made."""


def measured(payload: str, updates: int) -> dict[str, Any]:
    """Train, interrupt, resume; return what it took."""
    # What libraries take, before there is a model.
    learner()
    empty, news = peak_bytes(), []

    def watch(stage: str, done: int = 0, total: int = 0, news_of: str = "", *, stop: bool) -> None:
        del news_of
        if stage == "private-walk":
            news.append((time.monotonic(), done))
            if stop and 2 * done >= total:
                raise HalfWayError

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        try:
            walk(payload, updates, folder, progress=partial(watch, stop=True))
        except HalfWayError:
            reached = news[-1][1]
        news.clear()
        began = time.process_time()
        run = walk(payload, updates, folder, resume=True, progress=partial(watch, stop=False))
        spent = time.process_time() - began
        kept = max(path.stat().st_size for path in folder.rglob("*.npz") if "private" in path.name)
    peak = peak_bytes()
    training = run.trainings["private-walk"]
    whole = walk(payload, updates, None)
    return {
        "payload": payload,
        "parameters": sum(array.size for array in run.model.values()),
        "message_bytes": training.costs.message_bytes,
        "update_cpu_s": spent / (updates - reached),
        "coding_cpu_s": coded_seconds(payload, run.model),
        "empty_bytes": empty,
        "peak_bytes": peak,
        "checkpoint_bytes": kept,
        "interrupted_after": reached,
        "updates": updates,
        "longest_silence_s": max(two[0] - one[0] for one, two in itertools.pairwise(news)),
        "same_model": digest(run.model) == digest(whole.model),
    }


def attacked(payload: str, updates: int, deliveries: int) -> dict[str, Any]:
    """Gather what the content attack goes by, for which the model is trained once more; return what it took."""
    spec = make_spec(seed=1, updates=updates, payload=payload)
    scenario = Scenario.build(scheme(), spec, data="digits", partition="dirichlet:0.3", learner=learner())
    trace = scenario.trace("private-walk")
    rows = attacked_rows(trace, deliveries)
    said = [(time.monotonic(), time.process_time())]

    def watch(stage: str, done: int = 0, total: int = 0, news: str = "") -> None:
        del stage, done, total, news
        said.append((time.monotonic(), time.process_time()))

    gather_evidence(scenario, trace, rows, progress=watch)
    spent = time.process_time() - said[0][1]
    return {
        "payload": payload,
        "parameters": sum(array.size for array in learner().init_params(np.random.default_rng(1)).values()),
        "peers": scenario.graph.n_nodes,
        "updates_trained_again": int(rows[-1]) + 1,
        "deliveries": len(rows),
        "cpu_s": spent,
        "cpu_s_a_delivery": spent / len(rows),
        "longest_silence_s": max(two[0] - one[0] for one, two in itertools.pairwise(said)),
        "words_of_progress": len(said) - 1,
        "peak_bytes": peak_bytes(),
    }


def compared(steps: int, rounds: int = 7) -> dict[str, Any]:
    """Return how many times the processor's seconds of bare torch steps an update takes, in turns; and the memory."""
    import torch

    torch.set_num_threads(1)
    rows = load_data("digits").train.take(slice(0, 90))
    empty, net, loss = peak_bytes(), network(), torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    features, labels = torch.from_numpy(rows.features), torch.from_numpy(rows.labels)

    def step() -> None:
        for _ in range(steps):
            chosen = torch.randperm(len(labels))[:32]
            optimizer.zero_grad()
            loss(net(features[chosen]), labels[chosen]).backward()
            optimizer.step()

    ours, mod = replace(learner(), local_steps=steps), Protection(decay=1000).mod()
    seconds = np.zeros((rounds + 1, 2))
    bare_peak, params = 0, ours.init_params(np.random.default_rng(1))
    for number in range(rounds + 1):
        began = time.process_time()
        step()
        seconds[number, 0] = time.process_time() - began
        bare_peak = bare_peak or peak_bytes()
        began = time.process_time()
        result = apply_update(ours, params, rows, seed=1, node=0, step=number, state={}, age=number, mod=mod)
        seconds[number, 1], params = time.process_time() - began, result.params
    # The first of each also loads what is needed.
    ratios = seconds[1:, 1] / seconds[1:, 0]
    return {
        "local_steps": steps,
        "times_bare": [float(value) for value in (np.median(ratios), ratios.min(), ratios.max())],
        "bare_bytes": bare_peak - empty,
        "update_bytes": peak_bytes() - empty,
    }


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--payload", default="fp32")
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument(
        "--attack", type=int, default=0, metavar="DELIVERIES", help="measure the content attack instead"
    )
    parser.add_argument("--bare", type=int, default=0, metavar="STEPS", help="an update beside bare torch steps")
    options = parser.parse_args()
    if options.bare:
        print(json.dumps(compared(options.bare)))
    elif options.attack:
        print(json.dumps(attacked(options.payload, options.updates, options.attack)))
    else:
        print(json.dumps(measured(options.payload, options.updates)))


if __name__ == "__main__":
    main()
