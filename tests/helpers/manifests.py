"""Manifests for tests, with nothing left open."""

from __future__ import annotations

from typing import Any

import numpy as np

from veilwalk.node.members import Manifest, RunFigures, array_specs
from veilwalk.node.sealing import Suite
from veilwalk.training import MANIFEST, RunSpec

#: Walks are never late.
FIGURES = RunFigures(late_hops=1e9)


def settled_spec(**options: Any) -> RunSpec:
    """A run of which everything is said; the walk is the simple one, without a dwell."""
    said = {"walk": "simple", "learner": "softmax", "recipients": 1, "dwell_s": 0.0}
    return MANIFEST.defaults.change(**said).change(**options)


def make_test_manifest(params: Any = None, *, spec: dict[str, Any] | None = None, **fields: Any) -> Manifest:
    """A manifest of a law in a file; ``spec`` are options of its run, ``fields`` its own."""
    settled: dict[str, Any] = {
        "run_id": bytes(16),
        "arrays": array_specs({"w": np.zeros(3)} if params is None else params),
        "suite": Suite.X25519,
        "spec": settled_spec(**({"seed": 0} | (spec or {}))),
        "figures": FIGURES,
        "n_features": 1,
        "n_classes": 2,
        "law_digest": "0" * 64,
        "graph_digest": "0" * 64,
    }
    return Manifest(**(settled | fields))
