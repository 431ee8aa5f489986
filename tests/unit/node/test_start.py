"""A node starts without what only simulations need: a relay of many must be small and up at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("numba", "scipy", "matplotlib", "sklearn", "torch", "veilwalk.walks", "veilwalk.chains")
UPDATE = """
import numpy as np
from veilwalk.learning import Partition, apply_update, init_generator, make_learner
learner = make_learner("mlp:hidden=4", n_features=3, n_classes=2)
data = Partition(np.ones((5, 3), dtype=np.float32), np.zeros(5, dtype=np.int64))
apply_update(learner, learner.init_params(init_generator(1)), data, seed=1, node=0, step=0, state={})
learner.evaluate(learner.init_params(init_generator(1)), data)
"""
SHOW = "import sys; print(*(name for name in {heavy!r} if name in sys.modules))"


@pytest.mark.parametrize("start", ["import veilwalk.node.peer", "import veilwalk.cli._node\nimport veilwalk.node"])
def test_a_node_and_its_updates_need_no_simulator(start: str) -> None:
    code = "\n".join((start, UPDATE, SHOW.format(heavy=HEAVY)))
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.split() == []


def test_the_look_itself_finds_what_is_there() -> None:
    """The control: what is asked for late is then imported, by its public name."""
    code = "\n".join(("from veilwalk.design import choose_scheme", SHOW.format(heavy=HEAVY)))
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert {"scipy"} <= set(ended.stdout.split())


def test_an_unknown_name_is_refused_as_ever() -> None:
    import veilwalk.learning

    with pytest.raises(AttributeError, match="no attribute 'trace_off'"):
        veilwalk.learning.trace_off  # type: ignore[attr-defined]  # noqa: B018  looking it up is the test
