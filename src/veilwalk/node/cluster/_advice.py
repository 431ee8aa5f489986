"""Looks at the run of a node as a whole, before a start: its network, and the pace that this machine keeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from veilwalk.core.errors import VeilwalkError
from veilwalk.node.cluster._manifest import measured_dwell
from veilwalk.node.cluster._network import choose_member_scheme, count_candidates, describe_crowd
from veilwalk.node.members import Manifest, Roster, load_root_public_key
from veilwalk.node.peer import (
    Finding,
    NodeConfig,
    learner_of,
    load_config,
    load_configs,
    own_data,
    protection_of,
)

if TYPE_CHECKING:
    pass


def advise_node(path: Path, *, run: str | None = None) -> Iterator[Finding]:
    """Look at the runs of ``node.toml`` as wholes, and at whether this machine keeps their pace.

    Nothing is said of files that cannot be read: ``check_node`` says it.
    """
    try:
        configs = load_configs(path) if run is None else (load_config(path, run),)
    except VeilwalkError:
        return
    for config in configs:
        try:
            key = load_root_public_key(config.root)
            roster, manifest = Roster.load(config.roster, key, time.time()), Manifest.load(config.manifest, key)
        except VeilwalkError:
            continue
        of = f"{config.name}: " if config.name else ""
        yield _find(f"{of}network", partial(_look_at_network, config, manifest, roster))
        yield _find(f"{of}dwell", partial(_look_at_dwell, config, manifest))


def _find(name: str, look: Callable[[], tuple[bool, str]]) -> Finding:
    try:
        ok, what = look()
    except VeilwalkError as error:
        ok, what = False, str(error)
    return Finding(name, ok=ok, what=what)


def _look_at_network(config: NodeConfig, manifest: Manifest, roster: Roster) -> tuple[bool, str]:
    parts = replace(manifest.spec.scheme, law=manifest.law or str(config.law))
    scheme, _ = choose_member_scheme(roster.graph(), parts)
    idle = [scheme.graph.label(int(node)) for node in scheme.idle_nodes]
    if idle:
        return False, f"{', '.join(idle)} never train, for the others seal only for each other: tell the keeper"
    candidates = count_candidates(scheme)
    return True, describe_crowd(candidates) or f"everybody trains; {candidates} members or more can have made an update"


def _look_at_dwell(config: NodeConfig, manifest: Manifest) -> tuple[bool, str]:
    """Try an update on this node's own data; tell the keeper what this machine needs."""
    rules = manifest.rules
    data, learner = own_data(config, manifest), learner_of(manifest, consent=config.learner)
    needed = measured_dwell(learner, data, protection_of(rules), tested=rules.max_loss_ratio > 0)
    what = f"this machine needs {needed:g} s for its data, the run has {rules.dwell_s:g} s"
    if not rules.dwell_s:
        return True, f"{what}: who trained shows in the time it takes"
    # No fault: a trial on a busy machine takes longer, and what does not fit is counted.
    return True, what if needed <= rules.dwell_s else f"{what}: tell the keeper (--dwell {needed:g})"
