"""The engine has no say in a sampled design."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import numpy as np

from veilwalk.core.support import DistanceSupport
from veilwalk.design import Scheme, choose_scheme
from veilwalk.design._design import SampledLegs, sample_legs
from veilwalk.engine import JobStore, open_engine
from veilwalk.graphs import random_regular

GRAPH = random_regular(2_000, 3, seed=1)
LAW = choose_scheme(GRAPH, "uniform-node", support=DistanceSupport(2, 4)).law


def digest(legs: SampledLegs) -> str:
    """Name a sample by its bits."""
    means = [legs.hops, *legs.by_distance.values(), *legs.by_degree.values()]
    return sha256(np.array([[one.mean, one.low, one.high] for one in means]).tobytes()).hexdigest()


def test_sampled_legs_are_the_same_on_every_engine(tmp_path: Path) -> None:
    """In this process, in two others, and from what they kept."""
    here = digest(sample_legs(Scheme(GRAPH, LAW), legs=200))
    with open_engine("process:2") as pool:
        assert digest(sample_legs(Scheme(GRAPH, LAW), legs=200, executor=pool, store=JobStore(tmp_path))) == here
    made = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert digest(sample_legs(Scheme(GRAPH, LAW), legs=200, executor="serial", store=JobStore(tmp_path))) == here
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == made
