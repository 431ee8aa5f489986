"""Data of learners that load their own rows, apps named on the command line, and threads of torch inside a learner."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning import (
    PARTITIONS,
    Data,
    Params,
    Partition,
    StepContext,
    UpdateResult,
    app_learner,
    guarded,
    partition_numbers,
)
from veilwalk.training import CLUSTER, MANIFEST, TRAIN, RunSpec

APP = "package.module:client_app:initial=package.task.Net:local_epochs=2"
LEARNER = (
    "veilwalk.learning.flower_learner:flower_app:app=package.module.client_app:initial=package.task.Net:local_epochs=2"
)


class Reading:
    """Loads its own rows: the mean of what each partition says; notes what it was handed."""

    def init_params(self, rng: np.random.Generator) -> Params:
        """Return one number."""
        del rng
        return {"value": np.zeros(1)}

    def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
        """Return the number of the partition and of all, as one number."""
        del params, ctx
        (number, total), *others = data.features.tolist()
        assert all(row == [number, total] for row in others)
        return UpdateResult(params={"value": np.array([100 * total + number])}, num_examples=5)

    def evaluate(self, params: Params, data: Partition) -> dict[str, float]:
        """Return scores of as many rows of its own as it likes."""
        del params
        return {"loss": float(data.features[:, 0].mean()), "num_examples": 7.0}


def test_every_node_has_the_number_of_its_partition() -> None:
    """In the order of the nodes, whatever these are called; held-out rows are numbers of at most twenty nodes."""
    import veilwalk as vw

    scheme = vw.choose_scheme(vw.random_regular(12, 3, seed=1), "uniform-node", support=(2, 3))
    quick: dict[str, Any] = {"compare": "none", "attack": 0, "audit": "none", "decay": "none"}
    run = vw.train(scheme, data="partitions", learner=Reading(), updates=60, **quick)
    assert [part.features.tolist() for part in run.scenario.partitions] == [[[k, 12.0]] * 2 for k in range(12)]
    assert run.model["value"][0] in {1200 + node for node in range(12)}
    sites = run.record().result["sites"]
    assert [(site["name"], site["rows"], site["score"]) for site in sites] == [(f"{k:02}", 7, k) for k in range(12)]
    many: Data = partition_numbers(300)
    assert (len(many.test), many.test.features[0, 0], many.test.features[-1, 0]) == (20, 0, 299)


@pytest.mark.parametrize("view", [TRAIN, CLUSTER])
def test_an_app_is_a_learner_that_loads_its_own_rows(view: Any) -> None:
    """One option sets both; read again from its own values it is the same; another learner or data are refused."""
    spec = view.read({"app": APP})
    assert (spec.learning.learner, spec.learning.data) == (LEARNER, PARTITIONS) == (app_learner(APP), "partitions")
    assert view.read(spec.params(view)) == spec
    for name, other in {"learner": "mlp", "data": "csv:rows.csv"}.items():
        with pytest.raises(InvalidParameterError) as refused:
            view.read({"app": APP, name: other})
        assert refused.value.name == name


def test_a_manifest_names_the_learner_and_no_app() -> None:
    """Members read no other option than the keeper of the root signed."""
    params = RunSpec().change(app=APP).params(MANIFEST)
    assert (params["learner"], "app" in params, "data" in params) == (LEARNER, False, False)


@pytest.mark.parametrize("wrong", ["module", "package.module:app:3", "package.module:app:x=1:y"])
def test_what_names_no_app_is_refused(wrong: str) -> None:
    """It takes a module and a name in it."""
    with pytest.raises(InvalidParameterError) as refused:
        TRAIN.read({"app": wrong})
    assert refused.value.name == "app"


def test_torch_in_a_learner_of_ones_own_has_one_thread_unless_asked() -> None:
    """By its attribute ``threads``; and what it had before afterwards."""
    torch = pytest.importorskip("torch")

    class Counting(Reading):
        def update(self, params: Params, data: Partition, ctx: StepContext) -> UpdateResult:
            del params, data, ctx
            return UpdateResult(params={"value": np.array([float(torch.get_num_threads())])}, num_examples=1)

    class Asking(Counting):
        threads = 0

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    rows, ctx = partition_numbers(4).train, StepContext(rng=np.random.default_rng(0), step=0)
    counts = [guarded(learner).update({}, rows, ctx).params["value"][0] for learner in (Counting(), Asking())]
    assert (counts, torch.get_num_threads()) == ([1.0, 2.0], 2)
    torch.set_num_threads(before)
