"""Chooses the scheme of a run of nodes, and says what a network is too small or too one-sided for."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from veilwalk.core.errors import ConfigError
from veilwalk.core.walk import Walk
from veilwalk.node.members import LawRule, node_walk

if TYPE_CHECKING:
    from veilwalk.design import Scheme
    from veilwalk.graphs import Graph
    from veilwalk.node.members import Manifest, Roster
    from veilwalk.training import RunSpec, SchemeSpec

STRAIGHT = Walk("non-backtracking")
#: Where fewer can have made an update it is said: less than four bits hide nobody.
SMALL_CROWD = 16
# Of larger networks the candidates of every member are not counted: they are many.
_COUNTED = 1000


def choose_node_scheme(graph: Graph, spec: RunSpec) -> Scheme:
    """Return the scheme of a run of nodes: without any part given the recommended one, by a walk that never turns."""
    from veilwalk.design import choose_scheme, recommend

    parts = spec.scheme
    if parts.is_open:
        return replace(recommend(graph).scheme, walk=STRAIGHT, designed_for=STRAIGHT)
    in_file = parts.law is not None and parts.law.endswith((".npz", ".json"))
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
    rule = LawRule.of(law)
    name, support = ("uniform-node", (rule.nearest, rule.farthest)) if rule.farthest else (law, None)
    return choose_scheme(graph, name, support=support, walk=walk, recipients=parts.recipients), str(rule)


def check_members(manifest: Manifest, roster: Roster, law: Path | None = None) -> tuple[str, str]:
    """Return what is wrong with a run under a roster, and what is poor about it; empty where nothing is.

    ``law`` is its law, where the manifest names a file.
    """
    scheme, _ = choose_member_scheme(roster.graph(), replace(manifest.spec.scheme, law=manifest.law or str(law)))
    idle = ", ".join(scheme.graph.label(int(node)) for node in scheme.idle_nodes)
    wrong = f"{idle} never train, for the others seal only for each other: tell the keeper" if idle else ""
    return wrong, describe_crowd(count_candidates(scheme)) or ""


def describe_crowd(candidates: int) -> str | None:
    """Return a line where at most so many members can have made what one of them opens, and these are too few."""
    if candidates >= SMALL_CROWD:
        return None
    bits = math.log2(max(candidates, 1))
    return f"at most {candidates} members can have made what somebody opens, {bits:.1f} bits: too few to hide anybody"


def count_candidates(scheme: Scheme) -> int:
    """Return how many members may seal for the one that fewest seal for: an upper bound of who can be hidden."""
    if scheme.graph.n_nodes > _COUNTED:
        return scheme.graph.n_nodes - 1
    return int(np.bincount(scheme.law.matrix.indices, minlength=scheme.graph.n_nodes).min())
