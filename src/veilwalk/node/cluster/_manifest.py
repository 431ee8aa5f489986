"""Makes the manifest of a run: settles what its specification leaves open, and works out its figures."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from veilwalk.core import validate
from veilwalk.core.config import encode
from veilwalk.core.errors import ConfigError, InvalidParameterError
from veilwalk.node.cluster._lost_walks import LostWalkRules, lost_walk_rules, visits_per_link
from veilwalk.node.cluster._network import choose_member_scheme, count_candidates, describe_crowd
from veilwalk.node.members import (
    Manifest,
    Roster,
    RunFigures,
    array_specs,
    load_root_key,
    load_root_public_key,
    new_run_walk,
)
from veilwalk.node.peer import SecretNormal, file_digest, signatures_needed
from veilwalk.node.sealing import RUN_ID_BYTES, check_recipients
from veilwalk.training import MANIFEST, USUAL_LEARNER, RunSpec

if TYPE_CHECKING:
    from veilwalk.design import Scheme
    from veilwalk.learning import Learner, Partition, Protection

#: No run dwells less unless told to: opening, storing, sealing and handing the work to another process take their time
#: too, and on a busy machine several times what a trial finds.
LEAST_DWELL_S = 0.05
_TRIALS, _MARGIN, _STEP_S = 5, 1.5, 0.005
_DAY_S = 24 * 3600
_NORM_BOUND = 1e6


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
) -> tuple[Manifest, LostWalkRules, str | None]:
    """Write the signed manifest of a run to ``out``; return it, its rules for lost walks, and a warning or None.

    Args:
        spec: The run.
        n_features: Numbers in a row of everybody's data.
        n_classes: Classes; 0 for real labels.
        root_keys: Directory of the root key.
        roster: The signed roster.
        out: Where to write.
        previous: The manifest that this one is to follow; None for a run's first.
        test: The public test set, where a target accuracy ends the run; that of the manifest before unless given.
        rows: Rows of the largest member, by which the dwell is tried and sums over rows are divided.
        norm_bound: Models of a larger norm are refused; that of the manifest before, or 1e6, unless given.
        days: Days until the manifest expires; None: never.
        password: Opens the root key.
    """
    validate.at_least(1, rows=rows)
    if days is not None:
        validate.more_than(0, days=days)
    from veilwalk.learning import RunSize, make_learner

    if spec.scheme.recipients is not None:
        check_recipients(spec.scheme.recipients)
    root = load_root_key(root_keys, password=password)
    members = Roster.load(roster, root.public_key(), time.time())
    before = None if previous is None else Manifest.read_signed(previous, root.public_key())
    test_digest = "" if before is None else before.test_digest
    test_digest = test_digest if test is None else file_digest(test, "test")
    if (spec.end.target_accuracy is None) != (not test_digest):
        raise ConfigError("--target-accuracy and --test go together: members agree on what to reach, and on what data")
    graph = members.graph()
    scheme, law = choose_member_scheme(graph, spec.scheme)
    new_run_walk(scheme.walk, allow_sandwich=spec.scheme.allow_sandwich)
    scheme.require_everybody()
    law_file, spec = spec.scheme.law, spec.change(learner=spec.learning.learner or USUAL_LEARNER)
    learner = make_learner(str(spec.learning.learner), n_features=n_features, n_classes=n_classes)
    size = RunSize(updates=spec.end.updates, nodes=graph.n_nodes, rows=rows * graph.n_nodes, models=spec.end.walks)
    request = spec.privacy
    protection = replace(request, most_updates=request.most_updates or scheme.most_updates).settle(learner, size)
    spec, figures, lost = settle_run(
        scheme,
        spec,
        learner,
        protection=protection,
        trial=trial_data(rows=rows, n_features=n_features, n_classes=n_classes),
        law=law,
    )
    manifest = draft_manifest(
        spec,
        figures,
        learner,
        members,
        n_features=n_features,
        n_classes=n_classes,
        run_id=None if before is None else before.run_id,
        norm_bound=norm_bound or (_NORM_BOUND if before is None else before.norm_bound),
        law_digest="" if law else file_digest(Path(str(law_file)), "law"),
        test_digest=test_digest,
        expires=None if days is None else int(time.time() + days * _DAY_S),
    )
    if before is not None:
        content = {one.name: getattr(manifest, one.name) for one in fields(manifest)}
        manifest = before.change(
            **{name: value for name, value in content.items() if name not in {"version", "prev_digest"}}
        )
    manifest.sign(out, root)
    return manifest, lost, describe_crowd(count_candidates(scheme))


def settle_run(
    scheme: Scheme, spec: RunSpec, learner: Learner, *, protection: Protection, trial: Partition, law: str
) -> tuple[RunSpec, RunFigures, LostWalkRules]:
    """Return a run with nothing left open, its figures, and how those for lost walks were found.

    ``protection`` is the noise that was settled for ``spec``; ``law`` the rule of the law, empty where it is a file.
    Where the run leaves the dwell open it is tried on the data ``trial``.
    """
    from veilwalk.learning import init_generator, params_bytes

    if scheme.train_probability < 1.0:
        raise InvalidParameterError("train_probability", scheme.train_probability, "1: nodes make no blank legs yet")
    timing, dwell_s = spec.timing, spec.timing.dwell_s
    if dwell_s is None:
        dwell_s = measured_dwell(learner, trial, protection, tested=spec.learning.accept != "none")
    first = learner.init_params(init_generator(spec.seed))
    lost = lost_walk_rules(
        scheme,
        alarm_hops=timing.alarm_hops,
        step_s=max(timing.hop_s, dwell_s),
        away_s=timing.away_s,
        model_bytes=params_bytes(first, payload=spec.learning.payload),
    )
    figures = RunFigures(
        late_hops=float(lost.late_hops),
        starve_hops=float(lost.starve_hops),
        hops_per_update=float(scheme.price.hops),
        visits_per_link=visits_per_link(scheme.graph, recipients=scheme.recipients, walk=scheme.walk),
        signatures=signatures_needed(scheme.graph.n_nodes, spec.end.updates // spec.end.walks),
        **{name: getattr(protection, name) for name in protection.list_figures()},
    )
    settled = {"law": law or None, "walk": scheme.walk.kind, "recipients": scheme.recipients, "dwell_s": dwell_s}
    return spec.change(**settled), figures, lost


def draft_manifest(
    spec: RunSpec,
    figures: RunFigures,
    learner: Learner,
    roster: Roster,
    *,
    run_id: bytes | None = None,
    **content: Any,
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
    before, now = (_flatten(one) for one in (previous, manifest))
    return [(name, str(before[name]), str(value)) for name, value in now.items() if before[name] != value]


def _flatten(manifest: Manifest) -> dict[str, Any]:
    content = encode(manifest)
    figures = {f"settled {name}": value for name, value in content["figures"].items()}
    left_out = {"spec", "figures", "version", "prev_digest", "arrays"}
    rest = {name: value for name, value in content.items() if name not in left_out}
    rest["arrays"] = ", ".join(f"{one.name} {one.dtype} {one.shape}" for one in manifest.arrays)
    return manifest.spec.params(MANIFEST) | figures | rest


def read_previous(values: Mapping[str, Any], previous: Path, root_keys: Path) -> RunSpec:
    """Return the run of the manifest before with ``values`` changed: what nobody names stays as it is."""
    before = Manifest.read_signed(previous, load_root_public_key(root_keys / "root.pub"))
    if before.law_digest and "law" not in values:
        raise InvalidParameterError("law", None, "the law file again, or a rule: the manifest before names a file")
    return MANIFEST.read(values, start=before.spec)


# ---- dwell ---------------------------------------------------------------------------------------------------------


def measured_dwell(
    learner: Learner, data: Partition, protection: Protection | None = None, *, tested: bool = False
) -> float:
    """Return the dwell that some trial updates on ``data`` fit into: half as much again as the slowest.

    ``tested``: each with a loss on the data, as where received models are tested.

    This machine's time, and that of these data: members with more data, or less of a machine, count over-runs.

    Raises:
        ConfigError: The learner fails.
    """
    from veilwalk.learning import Protection, apply_update, init_generator

    protection = protection or Protection()
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
