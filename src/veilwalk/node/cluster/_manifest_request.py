"""Making the manifest of a run from what its members agreed on."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from veilwalk.core.errors import ConfigError
from veilwalk.core.walk import Walk
from veilwalk.node.cluster._lost_walks import Lateness, lateness, starved_after_hops
from veilwalk.node.members import (
    Manifest,
    RunRules,
    array_specs,
    load_root_key,
    load_roster,
    new_run_walk,
    sign_manifest,
)
from veilwalk.node.peer import file_digest, learner_text
from veilwalk.node.sealing import check_recipients


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What a run is to be; the words are those of :class:`RunRules` and :class:`Manifest`."""

    learner: str
    n_features: int
    n_classes: int
    walk: Walk | None = None
    recipients: int | None = None
    allow_sandwich: bool = False
    updates: int
    target_accuracy: float | None = None
    evaluations: int = 40
    test: Path | None = None
    dwell_s: float = 0.0
    spare_s: float = 0.0
    hop_s: float = 0.05
    alarm_hops: float = 1e7
    norm_bound: float = 1e6
    seed: int = 1


def make_manifest(
    request: RunRequest, *, root_keys: Path, roster: Path, law: Path, out: Path, password: bytes | None = None
) -> tuple[Manifest, Lateness]:
    """Write the signed manifest of a run to ``out``; the law must be for the roster's own graph.

    Returns:
        The manifest, and how its rule for lost walks was found.
    """
    if (request.target_accuracy is None) != (request.test is None):
        raise ConfigError("target-accuracy and test go together: members agree on what to reach, and on what data")
    from veilwalk.design import choose_scheme
    from veilwalk.learning import init_generator, make_learner

    if request.recipients is not None:
        check_recipients(request.recipients)
    root = load_root_key(root_keys, password=password)
    members = load_roster(roster, root.public_key(), time.time())
    graph = members.graph()
    if law.suffix != ".npz":
        raise ConfigError(f"{law}: must be a destination law in a .npz file, made by design --graph")
    scheme = choose_scheme(graph, str(law), walk=request.walk, recipients=request.recipients)
    new_run_walk(scheme.walk, allow_sandwich=request.allow_sandwich)
    learner = make_learner(request.learner, n_features=request.n_features, n_classes=request.n_classes)
    late = lateness(graph, alarm_hops=request.alarm_hops, walk=scheme.walk)
    rules = RunRules(
        walk=scheme.walk,
        updates=request.updates,
        target=request.target_accuracy or 0.0,
        evaluations=request.evaluations,
        late_hops=late.hops,
        starve_hops=starved_after_hops(scheme, alarm_hops=request.alarm_hops),
        hop_s=request.hop_s,
        dwell_s=request.dwell_s,
        spare_s=request.spare_s,
    )
    manifest = Manifest(
        run_id=members.run_id,
        arrays=array_specs(learner.init_params(init_generator(request.seed))),
        suite=members.suite,
        norm_bound=request.norm_bound,
        learner=learner_text(request.learner, n_features=request.n_features, n_classes=request.n_classes),
        walk=rules.to_text(),
        law_digest=file_digest(law, "law"),
        test_digest="" if request.test is None else file_digest(request.test, "test"),
        graph_digest=graph.digest,
        seed=request.seed,
        recipients=scheme.recipients,
    )
    sign_manifest(out, manifest, root)
    return manifest, late
