"""Making the manifest of a run from what its members agreed on."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

from veilwalk.core import validate
from veilwalk.core.errors import ConfigError
from veilwalk.core.walk import Walk
from veilwalk.node.cluster._dwell import measured_dwell, trial_data
from veilwalk.node.cluster._lost_walks import AWAY_S, LostWalkRules
from veilwalk.node.cluster._run_rules import run_rules
from veilwalk.node.members import (
    LawRule,
    Manifest,
    RunRules,
    array_specs,
    changed_manifest,
    load_root_key,
    load_roster,
    new_run_walk,
    read_signed_manifest,
    sign_manifest,
)
from veilwalk.node.peer import file_digest, learner_text
from veilwalk.node.sealing import RUN_ID_BYTES, check_recipients

if TYPE_CHECKING:
    from veilwalk.design import Scheme
    from veilwalk.graphs import Graph
    from veilwalk.learning import Learner, Protection

_STRAIGHT = Walk("non-backtracking")
_DAY_S = 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What a run is to be; the words are those of :class:`RunRules` and :class:`Manifest`.

    Without ``dwell_s`` it is found by a trial of the learner on ``rows`` random rows, by which sums over rows are also
    divided where records are protected; without ``walks`` there is one, and without ``payload`` numbers travel as they
    are, or either is as in the manifest that is followed.
    """

    learner: str
    n_features: int
    n_classes: int
    walk: Walk | None = None
    recipients: int | None = None
    allow_sandwich: bool = False
    updates: int
    walks: int | None = None
    target_accuracy: float | None = None
    evaluations: int = 40
    test: Path | None = None
    dwell_s: float | None = None
    rows: int = 1000
    protect: str = "node"
    epsilon: float = 0.0
    delta: float = 1e-5
    clip: float = 0.0
    noise: float = 0.0
    most_updates: int = 0
    payload: str | None = None
    accept: str = "none"
    spare_s: float = 0.0
    hop_s: float = 0.05
    away_s: float = AWAY_S
    alarm_hops: float = 1e7
    norm_bound: float = 1e6
    seed: int = 1
    days: float | None = None


def make_manifest(
    request: RunRequest,
    *,
    root_keys: Path,
    roster: Path,
    out: Path,
    law: str | None = None,
    previous: Path | None = None,
    password: bytes | None = None,
) -> tuple[Manifest, LostWalkRules, float]:
    """Write the signed manifest of a run to ``out``.

    Args:
        request: What the run is to be.
        root_keys: Directory of the root key.
        roster: The signed roster.
        out: Where to write.
        law: A rule (``far:4``), or the file of a law for the roster's own graph; the recommended rule unless given.
        previous: The manifest that this one is to follow; None for a run's first.
        password: Opens the root key.

    Returns:
        The manifest, its rules for lost walks, and the seconds that the run takes at least.
    """
    if (request.target_accuracy is None) != (request.test is None):
        raise ConfigError("--target-accuracy and --test go together: members agree on what to reach, and on what data")
    validate.at_least(1, rows=request.rows)
    if request.days is not None:
        validate.more_than(0, days=request.days)
    from veilwalk.learning import init_generator, make_learner, params_bytes

    if request.recipients is not None:
        check_recipients(request.recipients)
    root = load_root_key(root_keys, password=password)
    members = load_roster(roster, root.public_key(), time.time())
    graph = members.graph()
    before = None if previous is None else read_signed_manifest(previous, root.public_key())
    request = request if before is None else _as_before(request, before)
    scheme, rule = _scheme(graph, request, law)
    new_run_walk(scheme.walk, allow_sandwich=request.allow_sandwich)
    learner = make_learner(request.learner, n_features=request.n_features, n_classes=request.n_classes)
    first = learner.init_params(init_generator(request.seed))
    payload = request.payload or "fp32"
    rules, lost = _rules(request, scheme, learner, params_bytes(first, payload=payload))
    if before is not None:
        rules = rules.following(RunRules.from_text(before.walk), time.time())
    manifest = Manifest(
        run_id=os.urandom(RUN_ID_BYTES) if before is None else before.run_id,
        network=members.network,
        arrays=array_specs(first),
        suite=members.suite,
        norm_bound=request.norm_bound,
        learner=learner_text(request.learner, n_features=request.n_features, n_classes=request.n_classes),
        walk=rules.to_text(),
        law=rule,
        law_digest="" if rule else file_digest(Path(str(law)), "law"),
        test_digest="" if request.test is None else file_digest(request.test, "test"),
        graph_digest=graph.digest,
        seed=request.seed,
        recipients=scheme.recipients,
        payload=payload,
        expires=None if request.days is None else int(time.time() + request.days * _DAY_S),
    )
    if before is not None:
        manifest = changed_manifest(before, **_content(manifest))
    sign_manifest(out, manifest, root)
    return manifest, lost, rules.seconds


def _rules(request: RunRequest, scheme: Scheme, learner: Learner, model_bytes: int) -> tuple[RunRules, LostWalkRules]:
    from veilwalk.learning import ProtectionRequest, RunSize

    walks = 1 if request.walks is None else request.walks
    nodes = scheme.graph.n_nodes
    size = RunSize(updates=request.updates, nodes=nodes, rows=request.rows * nodes, models=walks)
    protection = ProtectionRequest.of(request).settle(learner, size)
    return run_rules(
        scheme,
        model_bytes,
        alarm_hops=request.alarm_hops,
        away_s=request.away_s,
        updates=request.updates,
        walks=walks,
        target=request.target_accuracy,
        evaluations=request.evaluations,
        hop_s=request.hop_s,
        dwell_s=_dwell(request, learner, protection),
        protection=protection,
        spare_s=request.spare_s,
        accept=request.accept,
    )


def _as_before(request: RunRequest, before: Manifest) -> RunRequest:
    """Return the request where what no version may change, and it does not say, is as it was."""
    if request.recipients is None:
        request = replace(request, recipients=before.recipients)
    if request.payload is None:
        request = replace(request, payload=before.payload)
    return replace(request, walks=RunRules.from_text(before.walk).walks) if request.walks is None else request


def _dwell(request: RunRequest, learner: Learner, protection: Protection) -> float:
    """Return the dwell asked for, or what a trial of the learner gives."""
    if request.dwell_s is not None:
        return request.dwell_s
    data = trial_data(rows=request.rows, n_features=request.n_features, n_classes=request.n_classes)
    return measured_dwell(learner, data, protection, tested=request.accept != "none")


def _scheme(graph: Graph, request: RunRequest, law: str | None) -> tuple[Scheme, str]:
    """Return the scheme asked for, and the rule of its law; an empty one where the law is a file."""
    from veilwalk.design import choose_scheme, recommended_scheme

    if law is not None and law.endswith(".npz"):
        return choose_scheme(graph, law, walk=request.walk, recipients=request.recipients), ""
    walk = request.walk or _STRAIGHT
    if law is None:
        found = recommended_scheme(graph)
        if found.law.far is None:
            raise ConfigError("no law is recommended for this network: give one, --law FILE.npz")
        several = found.recipients if request.recipients is None else request.recipients
        rule = LawRule(found.law.far)
        return replace(found, walk=walk, recipients=several, designed_for=walk), str(rule)
    rule = LawRule.of(law)
    name, support = ("uniform-node", (rule.nearest, rule.farthest)) if rule.farthest else (law, None)
    return choose_scheme(graph, name, support=support, walk=walk, recipients=request.recipients), str(rule)


def _content(manifest: Manifest) -> dict[str, object]:
    """Return all that a manifest says of the run, without its place in the history."""
    return {
        field.name: getattr(manifest, field.name)
        for field in fields(manifest)
        if field.name not in {"version", "prev_digest"}
    }
