"""Makes the manifest of a run: settles what its specification leaves open, and works out its figures."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from veilwalk.core import validate
from veilwalk.core.config import encode
from veilwalk.core.errors import ConfigError, InvalidParameterError
from veilwalk.core.walk import Walk
from veilwalk.node.link import Limits
from veilwalk.node.members import (
    LawRule,
    Manifest,
    Roster,
    RunFigures,
    RunRules,
    array_specs,
    load_root_key,
    load_root_public_key,
    node_walk,
)
from veilwalk.node.peer import SecretNormal, file_digest, signatures_needed
from veilwalk.node.sealing import RUN_ID_BYTES, check_recipients
from veilwalk.training import MANIFEST, USUAL_LEARNER, RunSpec

if TYPE_CHECKING:
    from veilwalk.design import Scheme
    from veilwalk.graphs import Graph
    from veilwalk.learning import Learner, Partition, Protection
    from veilwalk.training import SchemeSpec

#: No run dwells less unless told to: opening, storing, sealing and handing the work to another process take their time
#: too, and on a busy machine several times what a trial finds.
LEAST_DWELL_S = 0.05
_TRIALS, _MARGIN, _STEP_S = 5, 1.5, 0.005
#: A member that is away for less than this, with its disk and a walk on it, costs time and nothing else.
AWAY_S = 60.0
# So many neighbours may be stalled one after the other before a walk is believed lost.
_STALLED = 2
# What nobody can open is waited for longer than what nobody has seen: a new walk must be opened by all before that.
_STARVE_FACTOR = 1.5
_DAY_S = 24 * 3600
STRAIGHT = Walk("non-backtracking")
#: Where fewer can have made an update it is said: less than four bits hide nobody.
SMALL_CROWD = 16
# Of larger networks the candidates of every member are not counted: they are many.
_COUNTED = 1000
_NORM_BOUND = 1e6
# Walks meet no more often: the ends of a meeting cost about what so many updates do.
_LEAST_MEET = 20


def make_manifest(
    spec: RunSpec,
    *,
    n_features: int,
    n_classes: int,
    root_keys: Path,
    roster: Path,
    out: Path,
    previous: Path | None = None,
    test: Path | None = None,
    rows: int = 1000,
    norm_bound: float | None = None,
    days: float | None = None,
    password: bytes | None = None,
) -> tuple[Manifest, str | None]:
    """Write the signed manifest of a run to ``out``; return it, and a warning or None.

    It follows the manifest ``previous``, whose public ``test`` set and ``norm_bound`` it has unless they are given. The
    dwell is tried on ``rows`` rows, those of the largest member; sums over rows are divided by as many. ``n_classes``
    is 0 for real labels. Without ``days`` it never expires.
    """
    validate.at_least(1, rows=rows)
    if days is not None:
        validate.more_than(0, days=days)
    from veilwalk.learning import make_learner

    root = load_root_key(root_keys, password=password)
    members = Roster.load(roster, root.public_key(), time.time())
    before = None if previous is None else Manifest.read_signed(previous, root.public_key())
    test_digest = "" if before is None else before.test_digest
    test_digest = test_digest if test is None else file_digest(test, "test")
    if (spec.end.target_accuracy is None) != (not test_digest):
        raise ConfigError("--target-accuracy and --test go together: members agree on what to reach, and on what data")
    graph = members.graph()
    scheme, law = choose_member_scheme(graph, spec.scheme)
    check_new_run(scheme, spec.scheme)
    chosen = spec.settle_learner(spec.learning.learner or USUAL_LEARNER)
    law_file, spec = spec.scheme.law, spec.change(learner=chosen, local_steps=None)
    learner = make_learner(str(spec.learning.learner), n_features=n_features, n_classes=n_classes)
    size = spec.size(nodes=graph.n_nodes, rows=rows * graph.n_nodes)
    most_updates = spec.privacy.most_updates or scheme.most_updates
    protection = replace(spec.privacy, most_updates=most_updates).settle(learner, size)
    spec, figures = settle_run(
        scheme,
        spec,
        learner,
        protection=protection,
        trial=trial_data(rows=rows, n_features=n_features, n_classes=n_classes),
        law=law,
    )
    follows: dict[str, Any] = {}
    if before is not None:
        follows = {"run_id": before.run_id, "version": before.version + 1, "prev_digest": before.digest}
    manifest = draft_manifest(
        spec,
        figures,
        learner,
        members,
        **follows,
        n_features=n_features,
        n_classes=n_classes,
        norm_bound=norm_bound or (_NORM_BOUND if before is None else before.norm_bound),
        law_digest="" if law else file_digest(Path(str(law_file)), "law"),
        test_digest=test_digest,
        expires=None if days is None else int(time.time() + days * _DAY_S),
    )
    manifest.check_follows(before, str(out))
    manifest.sign(out, root)
    return manifest, describe_crowd(count_candidates(scheme))


def settle_run(
    scheme: Scheme, spec: RunSpec, learner: Learner, *, protection: Protection, trial: Partition, law: str
) -> tuple[RunSpec, RunFigures]:
    """Return a run with nothing left open, and its figures.

    ``protection`` is the noise that was settled for ``spec``; ``law`` the rule of the law, empty where it is a file.
    Where the run leaves the dwell open it is tried on the data ``trial``.
    """
    from veilwalk.design import visits_per_link
    from veilwalk.learning import init_generator, params_bytes

    timing, dwell_s = spec.timing, spec.timing.dwell_s
    if dwell_s is None:
        dwell_s = measured_dwell(learner, trial, protection, tested=spec.learning.accept != "none")
    first = learner.init_params(init_generator(spec.seed))
    late_hops, starve_hops = find_late_hops(
        scheme,
        alarm_hops=timing.alarm_hops,
        step_s=max(timing.hop_s, dwell_s),
        away_s=timing.away_s,
        model_bytes=params_bytes(first, payload=spec.learning.payload),
    )
    figures = RunFigures(
        late_hops=float(late_hops),
        starve_hops=float(starve_hops),
        hops_per_update=float(scheme.price.hops),
        visits_per_link=visits_per_link(scheme.graph, recipients=scheme.recipients, walk=scheme.walk),
        train_probability=scheme.train_probability,
        signatures=count_signatures(scheme.graph.n_nodes, spec),
        **{name: getattr(protection, name) for name in protection.list_figures()},
    )
    settled = {"law": law or None, "walk": scheme.walk.kind, "recipients": scheme.recipients, "dwell_s": dwell_s}
    spec = spec.change(**settled)
    # What no node could run is refused before anything is written.
    RunRules.from_spec(spec, figures)
    return spec, figures


def count_signatures(members: int, spec: RunSpec) -> int:
    """Return how many members must sign every end of a walk; refuse walks that meet before as many have trained."""
    end, share = spec.end, spec.end.updates // spec.end.walks
    enough = signatures_needed(members, share)
    least = next(count for count in itertools.count(_LEAST_MEET) if signatures_needed(members, count) >= enough)
    if 0 < end.meet < min(least, share):
        need = f"at least {least} among {members} real nodes: {enough} that trained the model sign the end of each walk"
        raise InvalidParameterError("meet", end.meet, need)
    return enough


def draft_manifest(
    spec: RunSpec, figures: RunFigures, learner: Learner, roster: Roster, *, run_id: bytes | None = None, **content: Any
) -> Manifest:
    """Return the first manifest of a run of that roster's members; ``content`` are further fields of it."""
    from veilwalk.learning import init_generator

    return Manifest(
        run_id=run_id or os.urandom(RUN_ID_BYTES),
        network=roster.network,
        suite=roster.suite,
        arrays=array_specs(learner.init_params(init_generator(spec.seed))),
        graph_digest=roster.graph_digest,
        spec=spec,
        figures=figures,
        **content,
    )


def describe_manifest(manifest: Manifest) -> list[tuple[str, str]]:
    """Return what members agree on as rows of what and its value: all that the root's keeper signs."""
    return [(name, str(value)) for name, value in _flatten(manifest).items() if value is not None]


def describe_manifest_changes(previous: Manifest, manifest: Manifest) -> list[tuple[str, str, str]]:
    """Return what a version changes as rows of what, before and now."""
    before, now = (_flatten(document) for document in (previous, manifest))
    return [(name, str(before[name]), str(value)) for name, value in now.items() if before[name] != value]


def _flatten(manifest: Manifest) -> dict[str, Any]:
    content = encode(manifest)
    figures = {f"settled {name}": value for name, value in content["figures"].items()}
    left_out = {"spec", "figures", "version", "prev_digest", "arrays"}
    rest = {name: value for name, value in content.items() if name not in left_out}
    rest["arrays"] = ", ".join(f"{spec.name} {spec.dtype} {spec.shape}" for spec in manifest.arrays)
    return manifest.spec.params(MANIFEST) | figures | rest


def read_previous(values: Mapping[str, Any], previous: Path, root_keys: Path) -> RunSpec:
    """Return the run of the manifest before with ``values`` changed: what nobody names stays as it is."""
    before = Manifest.read_signed(previous, load_root_public_key(root_keys / "root.pub"))
    if before.law_digest and "law" not in values:
        raise InvalidParameterError("law", None, "the law file again, or a rule: the manifest before names a file")
    return MANIFEST.read(values, start=before.spec)


# ---- scheme ---------------------------------------------------------------------------------------------------------


def choose_node_scheme(graph: Graph, spec: RunSpec) -> Scheme:
    """Return the scheme of a run of nodes: without any part given the recommended one, by a walk that never turns."""
    from veilwalk.design import choose_scheme, recommend

    parts = spec.scheme
    if parts.is_open:
        scheme = replace(recommend(graph).scheme, walk=STRAIGHT, designed_for=STRAIGHT)
        return scheme if parts.recipients is None else replace(scheme, recipients=parts.recipients)
    in_file = parts.law is not None and parts.law.endswith(".npz")
    walk = (None if in_file else STRAIGHT) if parts.walk is None else node_walk(Walk.parse(parts.walk))
    return choose_scheme(
        graph, parts.law or "paper-exact", support=parts.support, walk=walk, recipients=parts.recipients
    )


def choose_member_scheme(graph: Graph, parts: SchemeSpec) -> tuple[Scheme, str]:
    """Return the scheme of a run, and the rule of its law; an empty rule where the law is a file."""
    from veilwalk.design import choose_scheme, recommend

    law, walk = parts.law, None if parts.walk is None else Walk(parts.walk)
    if law is not None and law.endswith(".npz"):
        return choose_scheme(graph, law, walk=walk, recipients=parts.recipients), ""
    walk = walk or STRAIGHT
    if law is None:
        recommended = recommend(graph).scheme
        if recommended.law.far is None:
            raise ConfigError("no law is recommended for this network: give one, --law FILE.npz")
        several = recommended.recipients if parts.recipients is None else parts.recipients
        rule = LawRule(recommended.law.far)
        return replace(recommended, walk=walk, recipients=several, designed_for=walk), str(rule)
    rule = LawRule.parse(law)
    name, support = ("uniform-node", (rule.nearest, rule.farthest)) if rule.farthest else (law, None)
    return choose_scheme(graph, name, support=support, walk=walk, recipients=parts.recipients), str(rule)


def check_new_run(scheme: Scheme, parts: SchemeSpec) -> None:
    """Refuse what nodes cannot run, and a walk that goes straight back, unless that is allowed by name.

    Who hands a message to a neighbour and gets another one straight back knows for certain who made it.
    """
    check_recipients(scheme.recipients)
    if node_walk(scheme.walk).kind == "simple" and not parts.allow_sandwich:
        need = "non-backtracking: a relay next to the maker would know it for certain (--allow-sandwich)"
        raise InvalidParameterError("walk", str(scheme.walk), need)
    scheme.require_everybody()


def check_members(manifest: Manifest, roster: Roster, law: Path | None = None) -> tuple[str, str]:
    """Return what is wrong with a run under a roster, and what is poor about it; empty where nothing is.

    ``law`` is its law, where the manifest names a file.
    """
    scheme, _ = choose_member_scheme(roster.graph(), replace(manifest.spec.scheme, law=manifest.law or str(law)))
    idle = ", ".join(scheme.graph.label(int(node)) for node in scheme.idle_nodes)
    wrong = f"{idle} never train, for the others seal only for each other" if idle else ""
    return wrong, describe_crowd(count_candidates(scheme)) or ""


def describe_crowd(candidates: int) -> str | None:
    """Return a line where at most so many members can have made what one of them opens, and these are too few."""
    if candidates >= SMALL_CROWD:
        return None
    bits = math.log2(max(candidates, 1))
    return f"at most {candidates} members can have made what somebody opens, {bits:.1f} bits: too few to hide anybody"


def count_candidates(scheme: Scheme) -> int:
    """Return how many members may seal for the one that fewest seal for: an upper bound of who can be hidden."""
    size = scheme.graph.n_nodes
    return size - 1 if size > _COUNTED else int(np.bincount(scheme.law.matrix.indices, minlength=size).min())


# ---- lost walks -----------------------------------------------------------------------------------------------------


def find_late_hops(
    scheme: Scheme, *, alarm_hops: float, step_s: float, model_bytes: int, away_s: float = AWAY_S
) -> tuple[int, int]:
    """Return after how many hops of ``step_s`` without a visit, and without an opening, a node makes a walk.

    Not before chance is ruled out; nor before a member that was away for ``away_s`` with the walk in its keeping is
    back and stalled neighbours were given up: a walk that is made too early costs the updates of one of the two. With
    ``away_s`` = 0 chance alone counts: walks that somebody swallows are made again sooner, and outages cost updates.

    However many walks a run has, each goes its way as a single one does: waits between two openings of one of them are
    counted in hops of that one, and have the same law; and false alarms are as rare a hop, whosever hop it is. Visits
    of all come more often than those of one, but only until the others have ended.
    """
    from veilwalk.design import late_after_hops, starved_after_hops

    validate.at_least(0, away_s=away_s)
    patience = Limits()
    least_s = max(away_s, _STALLED * (patience.pin_s + patience.transfer_s(model_bytes))) if away_s else 0.0
    walk_hops = late_after_hops(scheme.graph, alarm_hops=alarm_hops, walk=scheme.walk)
    late_hops = max(walk_hops, math.ceil(least_s / step_s))
    return late_hops, max(starved_after_hops(scheme, alarm_hops=alarm_hops), math.ceil(_STARVE_FACTOR * late_hops))


# ---- dwell ---------------------------------------------------------------------------------------------------------


def measured_dwell(learner: Learner, data: Partition, protection: Protection, *, tested: bool = False) -> float:
    """Return the dwell that some trial updates on ``data`` fit into: half as much again as the slowest.

    ``tested``: each with a loss on the data, as where received models are tested.

    This machine's time, and that of these data: members with more data, or less of a machine, count over-runs.

    Raises:
        ConfigError: The learner fails.
    """
    from veilwalk.learning import apply_update, init_generator

    params, slowest = learner.init_params(init_generator(0)), 0.0
    learner, mod, secret = protection.learner(learner), protection.mod(), SecretNormal().standard_normal
    for step in range(1 + _TRIALS):
        started = time.perf_counter()
        try:
            if tested:
                learner.evaluate(params, data)
            params = apply_update(
                learner, params, data, seed=0, node=0, step=step, age=step, state={}, mod=mod, secret=secret
            ).params
        except Exception as error:  # noqa: BLE001  a learner may be anybody's code
            raise ConfigError(f"the learner failed in a trial update ({error}): say --dwell SECONDS") from None
        # The first also loads what the learner needs.
        slowest = max(slowest, time.perf_counter() - started) if step else 0.0
    return max(LEAST_DWELL_S, math.ceil(_MARGIN * slowest / _STEP_S) * _STEP_S)


def trial_data(*, rows: int, n_features: int, n_classes: int) -> Partition:
    """Return random data of the shape that members will have."""
    from veilwalk.learning import Partition

    rng = np.random.default_rng(0)
    features = rng.random((rows, n_features), dtype=np.float32)
    labels = rng.integers(n_classes, size=rows) if n_classes else rng.random(rows, dtype=np.float32)
    return Partition(features, labels)
