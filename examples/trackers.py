"""Adapters for wandb, trackio and mlflow: each is a ``track=`` callable of ``vw.train``.

    python examples/trackers.py wandb PROJECT        # WANDB_MODE=offline keeps it here
    python examples/trackers.py trackio PROJECT
    python examples/trackers.py mlflow EXPERIMENT    # MLFLOW_TRACKING_URI says where to

trains 20 peers on digits and passes every evaluation on. Numbers are called ALGORITHM/NAME: private-walk/loss,
private-walk/hops. Install the tracker first: pip install wandb, trackio or mlflow-skinny. A tracker receives scores of
the model and costs of a simulated run, and never who trained, nor when.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Any

import veilwalk as vw
from veilwalk.learning import Point
from veilwalk.training import Track, point_values

SETTINGS: dict[str, Any] = {"updates": 200, "compare": "gossip", "attack": 0, "seed": 1}


@contextmanager
def track_by_log(library: str, project: str, settings: Mapping[str, Any]) -> Iterator[Track]:
    """Yield a tracker for a library with ``init``, ``log`` and ``finish``: wandb or trackio."""
    client = import_module(library)
    client.init(project=project, config=dict(settings))

    def track(algorithm: str, point: Point) -> None:
        # Their steps must not fall, and algorithms are trained one after the other: the step is a number of its own.
        values = point_values(point) | {"update": point.update}
        client.log({f"{algorithm}/{name}": value for name, value in values.items()})

    try:
        yield track
    finally:
        client.finish()


@contextmanager
def track_by_mlflow(experiment: str, settings: Mapping[str, Any]) -> Iterator[Track]:
    """Yield a tracker for mlflow; the step is the count of updates."""
    client = import_module("mlflow")
    client.set_experiment(experiment)

    def track(algorithm: str, point: Point) -> None:
        values = {f"{algorithm}/{name}": value for name, value in point_values(point).items()}
        client.log_metrics(values, step=point.update)

    with client.start_run():
        client.log_params(dict(settings))
        yield track


#: How to open each tracker: by the name of a project or an experiment, and the settings to store with the run.
TRACKERS: dict[str, Callable[[str, Mapping[str, Any]], AbstractContextManager[Track]]] = {
    "wandb": lambda project, settings: track_by_log("wandb", project, settings),
    "trackio": lambda project, settings: track_by_log("trackio", project, settings),
    "mlflow": track_by_mlflow,
}


def main(name: str, project: str) -> None:
    """Train on digits, and pass every evaluation to a tracker."""
    scheme = vw.recommend(vw.random_regular(20, 3, seed=1)).scheme
    with TRACKERS[name](project, SETTINGS) as track:
        vw.train(scheme, data="digits", learner="softmax", track=track, **SETTINGS)


if __name__ == "__main__":
    main(*sys.argv[1:])
