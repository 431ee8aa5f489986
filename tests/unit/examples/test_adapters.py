"""The example of adapters, small: a transformer made here, of which only what is beside its matrices travels."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from examples.adapters import ADAPTERS, learner_of, pretrained, walked  # noqa: E402

from veilwalk.core.payload import encoded  # noqa: E402
from veilwalk.learning import check_learner, params_bytes, sealed_bytes  # noqa: E402


def test_adapters_learn_in_a_fraction_of_the_bytes() -> None:
    """The frozen model is the base; the loss falls; a message is as long as the adapters' bytes are, sealed."""
    base = pretrained(16, steps=5)
    learner = learner_of(base, 16, ADAPTERS)
    run = walked(learner, "int8", updates=6)
    training = run.trainings["private-walk"]
    assert all(".adapter." in name for name in run.model)
    # Two layers with four matrices: rank 4 times inputs and outputs of each.
    assert sum(array.size for array in run.model.values()) == 2 * 4 * (4 * 16 + 2 * 16 + 5 * 16 + 5 * 16)
    body = sum(encoded("int8", array).size for array in run.model.values())
    assert body == params_bytes(run.model, payload="int8") == 2048 + 2048 // 32
    assert training.costs.message_bytes == sealed_bytes(body, recipients=4)
    assert training.points[-1].loss < training.points[0].loss - 0.01
    whole = learner.loaded(run.model).state_dict()
    for name, tensor in base.items():
        assert np.array_equal(whole[name].numpy(), tensor.numpy())
    everything = learner_of(base, 16, "*").init_params(np.random.default_rng(0))
    assert params_bytes(everything) > 5 * params_bytes(run.model)
    rows = run.scenario.partitions[0]
    check_learner(learner, type(rows)(rows.features[:4], rows.labels[:4]))
