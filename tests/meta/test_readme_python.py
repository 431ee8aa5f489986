"""The lines of Python that the README shows, run as they stand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from veilwalk.audit import Audit
from veilwalk.design import Scheme
from veilwalk.learning import Params, Partition, StepContext, UpdateResult, load_data
from veilwalk.training import TrainingRun

README = Path(__file__).parents[2] / "README.md"
GRAPH = "vw.random_regular(300, 3, seed=1)"


class MyLearner:
    """What a reader would bring: no options, no knowledge of veilwalk but the three methods. A mean for each class."""

    def init_params(self, rng: np.random.Generator) -> Params:
        """Near the middle, no two alike."""
        return {"means": 0.5 + 0.01 * rng.standard_normal((10, 64))}

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:  # noqa: ARG002
        """Move the mean of each class towards the rows that are here."""
        means = params["means"].copy()
        for label in np.unique(data.labels):
            means[label] += 0.2 * (data.features[data.labels == label].mean(axis=0) - means[label])
        return UpdateResult(params={"means": means}, num_examples=len(data))

    def evaluate(self, params: Params, data: Partition) -> Mapping[str, float]:
        """Squared distance to the mean of the right class, and how often that is the nearest."""
        away = ((data.features[:, None] - params["means"][None]) ** 2).sum(axis=2)
        right = away[np.arange(len(data)), data.labels]
        return {"loss": float(right.mean()), "accuracy": float((away.argmin(axis=1) == data.labels).mean())}


def test_the_lines_of_python_in_the_readme_run() -> None:
    """Everything it shows happens, on 40 nodes and a twentieth of the updates: the README's own graph takes minutes.

    The reader brings ``X``, ``y`` and ``MyLearner``; all else is in the lines.
    """
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (block,) = (block for block in blocks if block.startswith("import veilwalk as vw\n"))
    assert block.count(GRAPH) == 1
    train = load_data("digits").train
    names: dict[str, Any] = {"X": train.features, "y": train.labels, "MyLearner": MyLearner}
    assert "50_000" in block
    exec(block.replace(GRAPH, GRAPH.replace("300", "40")).replace("50_000", "2_500"), names)  # noqa: S102
    scheme, audit, run = names["scheme"], names["audit"], names["run"]
    assert isinstance(scheme, Scheme)
    assert isinstance(audit, Audit)
    assert isinstance(run, TrainingRun)
    # What the comment names, and that it hangs together: the last hop tells more than nothing and less than all.
    seen = audit["last-hop"]
    low, high = seen.interval
    assert low < seen.hit_ratio < high
    assert audit["prior"].node_entropy_nats > seen.node_entropy_nats > 3.4
    # Four deviations of a mean of so few.
    assert abs(audit.hops_per_update.mean / scheme.price.hops - 1) < 0.08
    accuracy = run.trainings["private-walk"].points[-1].accuracy
    assert accuracy is not None
    assert accuracy > 0.6
