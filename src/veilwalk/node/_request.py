"""Making the manifest of a run from what its members agreed on."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from veilwalk.core.errors import ConfigError
from veilwalk.node._assemble import file_digest, learner_text
from veilwalk.node._keys import load_root_key
from veilwalk.node._lost_walks import late_after_hops, starved_after_hops
from veilwalk.node._manifest import Manifest, array_specs, sign_manifest
from veilwalk.node._roster import load_roster
from veilwalk.node._routing import node_walk
from veilwalk.node._rules import RunRules


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What a run is to be; the words are those of :class:`RunRules` and :class:`Manifest`."""

    learner: str
    n_features: int
    n_classes: int
    walk: str
    updates: int
    target_accuracy: float | None = None
    evaluations: int = 40
    test: Path | None = None
    mix: float = 0.0
    dwell: float = 0.0
    spare: float = 0.0
    hop: float = 0.05
    alarm_hops: float = 1e7
    norm_bound: float = 1e6
    seed: int = 1


def make_manifest(
    request: RunRequest, *, root_keys: Path, roster: Path, law: Path, out: Path, password: bytes | None = None
) -> Manifest:
    """Write the signed manifest of a run to ``out``; the law must be for the roster's own graph."""
    if (request.target_accuracy is None) != (request.test is None):
        raise ConfigError("target-accuracy and test go together: members agree on what to reach, and on what data")
    from veilwalk.chains import WalkChain, mean_hitting_times
    from veilwalk.design import DestinationLaw, load_law
    from veilwalk.learning import init_generator, make_learner

    root = load_root_key(root_keys, password=password)
    members = load_roster(roster, root.public_key(), time.time())
    graph = members.graph()
    found = load_law(law)
    if law.suffix != ".npz" or not isinstance(found, DestinationLaw):
        raise ConfigError(f"{law}: must be a destination law in a .npz file, made by design --graph")
    found.check_graph(graph)
    learner = make_learner(request.learner, n_features=request.n_features, n_classes=request.n_classes)
    # The simple walk takes the most hops of all kinds; for the others this waits longer than need be.
    mean_hops = found.mean_hops(mean_hitting_times(WalkChain.simple(graph)))
    rules = RunRules(
        walk=node_walk(request.walk),
        mix=request.mix,
        updates=request.updates,
        target=request.target_accuracy or 0.0,
        evaluations=request.evaluations,
        late=late_after_hops(graph, alarm_hops=request.alarm_hops, walk=node_walk(request.walk), mix=request.mix),
        starve=starved_after_hops(found, mean_hops=mean_hops, alarm_hops=request.alarm_hops),
        hop=request.hop,
        dwell=request.dwell,
        spare=request.spare,
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
    )
    sign_manifest(out, manifest, root)
    return manifest
