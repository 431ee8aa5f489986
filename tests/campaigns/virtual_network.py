"""Makes the parts of simulated nodes: keys, roster, manifest, rules; some of it by seed."""

from __future__ import annotations

import io
import random
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from tests.campaigns.chaos_tally import Tally
from tests.campaigns.power_loss import SeededDraws
from tests.helpers.manifests import make_test_manifest
from veilwalk.core.arrays import FloatArray
from veilwalk.core.walk import SIMPLE
from veilwalk.design import DestinationLaw
from veilwalk.graphs import Graph
from veilwalk.learning import Partition
from veilwalk.node.cluster import node_ids
from veilwalk.node.link import Limits
from veilwalk.node.members import MAX_LANES, Manifest, NodeKeys, Roster, RunRules, new_node_keys
from veilwalk.node.peer import Law
from veilwalk.node.peer._assemble import NodeParts
from veilwalk.node.peer._membership import Membership
from veilwalk.node.peer._observe import Log
from veilwalk.node.peer._trainer import Task
from veilwalk.node.sealing import Suite
from veilwalk.node.spool import FolderDisk

_NAMES = ("n0", "n1", "n2", "n3", "n4")
# All but one.
_EDGES = [(one, other) for one in _NAMES for other in _NAMES if one < other and (one, other) != ("n0", "n2")]
#: As in life, but sooner: a schedule lasts some seconds.
LIMITS = Limits(pin_s=0.4, connect_s=0.5, answer_s=0.5, ping_s=1.0, retry_s=0.3)


def network_parts(seed: int, dice: random.Random, *, walks: int = 1, meet: int = 0) -> dict[str, NodeParts]:
    """Return the parts of every node but its disk; recipients, dwell, blank legs and signatures vary."""
    keys, roster = members()
    dwell_s = (0.0, 0.02)[seed // 4 % 2]
    train_probability = (1.0, 0.5)[seed // 8 % 2]
    rules = RunRules(
        walk=SIMPLE, updates=10**6, late_hops=1e9, dwell_s=dwell_s, walks=walks, train_probability=train_probability
    )
    if meet:
        # After a blank leg the same node may make two updates on end, and nobody else could sign.
        signatures = 1 + (train_probability == 1.0) * (seed // 16 % 2)
        updates = MAX_LANES // walks * walks * meet
        rules = replace(rules, updates=updates, meet=meet, hop_s=0.005, signatures=signatures)
    even = np.full((len(_NAMES), len(_NAMES)), 1 / (len(_NAMES) - 1))
    np.fill_diagonal(even, 0.0)
    return _parts(
        dice,
        keys,
        roster,
        rules,
        shares=even,
        recipients=(1, 3)[seed // 2 % 2],
        limits=LIMITS,
        dtype="float64" if meet else "int64",
    )


def rule_parts(
    dice: random.Random, graph: Graph, rules: RunRules, *, law: DestinationLaw, recipients: int, limits: Limits
) -> dict[str, NodeParts]:
    """Return the parts of every node but its disk, for a run of ``rules`` on any graph."""
    keys, roster = members_of(graph)
    return _parts(dice, keys, roster, rules, shares=law.matrix.toarray(), recipients=recipients, limits=limits)


def _parts(
    dice: random.Random,
    keys: Mapping[str, NodeKeys],
    roster: Roster,
    rules: RunRules,
    *,
    shares: FloatArray,
    recipients: int,
    limits: Limits,
    dtype: str = "int64",
) -> dict[str, NodeParts]:
    names = roster.ids
    learner = Tally(n_features=len(names), n_classes=2, dtype=dtype)
    manifest = _manifest(recipients, learner)
    return {
        name: NodeParts(
            keys=keys[name],
            membership=Membership(manifest=manifest, roster=roster),
            task=Task(
                learner=learner,
                data=Partition(np.eye(len(names))[index : index + 1], np.zeros(1, dtype=np.int64)),
                manifest=manifest,
                index=index,
                rules=rules,
            ),
            rules=rules,
            law=Law(shares={other: share for other, share in zip(names, shares[index].tolist(), strict=True) if share}),
            disk=_NO_DISK,
            limits=limits,
            draws=SeededDraws(dice),
            starts=index == 0,
            log=Log(io.StringIO()),
        )
        for index, name in enumerate(names)
    }


# Given when a node starts.
_NO_DISK: FolderDisk = None  # type: ignore[assignment]


def members_of(graph: Graph) -> tuple[dict[str, NodeKeys], Roster]:
    """Return the keys and the roster of a network's members, which are made once."""
    names = tuple(node_ids(graph.n_nodes))
    return members(
        names, tuple((names[one], names[other]) for one, other in sorted(map(tuple, graph.edges().tolist())))
    )


@lru_cache
def members(
    names: tuple[str, ...] = _NAMES, edges: tuple[tuple[str, str], ...] = tuple(_EDGES)
) -> tuple[dict[str, NodeKeys], Roster]:
    """Return keys that are made once; no seed has others, for nothing depends on them."""
    with tempfile.TemporaryDirectory() as folder:
        keys = {
            name: new_node_keys(
                Path(folder) / name, node_id=name, address=f"127.0.0.1:{7000 + index}", suite=Suite.X25519
            )
            for index, name in enumerate(names)
        }
    roster = Roster(
        network=bytes(range(16)),
        suite=Suite.X25519,
        version=1,
        epoch=0,
        created=0,
        expires=2**32,
        prev_digest=None,
        members=tuple(keys[name].member for name in names),
        edges=edges,
        seals_from=0,
        period_s=2**31,
    )
    return keys, roster


@lru_cache
def _manifest(recipients: int, learner: Tally) -> Manifest:
    return make_test_manifest(
        learner.init_params(np.random.default_rng(0)),
        run_id=bytes(range(16)),
        norm_bound=1e9,
        spec={"learner": "tally", "recipients": recipients},
    )
