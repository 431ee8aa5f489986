"""A whole network on one machine: keys, roster, manifest, law, data and a configuration for every node."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from veilwalk.core.errors import RecordError, SpoolError
from veilwalk.core.records import write_atomically
from veilwalk.node.link import Limits
from veilwalk.node.members import (
    Manifest,
    RunRules,
    array_specs,
    edges_of_graph,
    first_roster,
    new_node_keys,
    new_root_key,
    sign_manifest,
    sign_roster,
)
from veilwalk.node.peer import file_digest, learner_text
from veilwalk.node.sealing import RUN_ID_BYTES, Suite

if TYPE_CHECKING:
    from veilwalk.design import DestinationLaw
    from veilwalk.graphs import Graph
    from veilwalk.learning import Learner, Partition

_DAYS = 30.0
_TEST = "test.npz"


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterPlan:
    """What a cluster runs.

    Attributes:
        graph: The network.
        law: Who seals for whom.
        partitions: The data of each node.
        learner: The model.
        learner_spec: Its name, by which nodes make it.
        rules: The walk and its end.
        seed: Seed of training; never of the walk.
        suite: How messages are sealed.
        limits: Patience of every node.
        norm_bound: Largest norm of a model that is accepted.
        recipients: For how many a message is sealed.
        payload: How the numbers of a model travel.
        test: The public test set, for rules with a target.
    """

    graph: Graph
    law: DestinationLaw
    partitions: Sequence[Partition]
    learner: Learner
    learner_spec: str
    n_classes: int
    rules: RunRules
    seed: int
    suite: Suite = Suite.HYBRID
    limits: Limits = field(default_factory=Limits)
    norm_bound: float = 1e6
    recipients: int = 1
    payload: str = "fp32"
    test: Partition | None = None


def node_ids(n_nodes: int) -> list[str]:
    """Return names that sort as the numbers do."""
    width = len(str(n_nodes - 1))
    return [f"n{index:0{width}d}" for index in range(n_nodes)]


def prepare_cluster(folder: Path, plan: ClusterPlan, *, addresses: Sequence[str] | None = None) -> list[Path]:
    """Write everything the nodes need into ``folder`` and return their configurations, in the order of the graph.

    ``addresses`` are theirs, ``host:port``; free ports of loopback unless given.
    """
    from veilwalk.design import save_law
    from veilwalk.learning import init_generator

    ids = node_ids(plan.graph.n_nodes)
    where = addresses or [f"127.0.0.1:{port}" for port in free_ports(len(ids))]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        root = new_root_key(folder / "root")
        members = {
            name: new_node_keys(folder / name / "keys", node_id=name, address=address, suite=plan.suite).member
            for name, address in zip(ids, where, strict=True)
        }
        # Members are numbered as the nodes are, whatever these are called elsewhere.
        edges = edges_of_graph(replace(plan.graph, labels=None), ids)
        roster = first_roster(members, edges, suite=plan.suite, now=int(time.time()), days=_DAYS)
        sign_roster(folder / "roster.json", roster, root)
        # A rule follows whatever becomes of the members; any other law is written for these, by their names.
        rule = f"far:{plan.law.far}" if plan.law.far else ""
        if not rule:
            save_law(folder / "law.npz", plan.law, labels=ids)
        if plan.test is not None:
            np.savez(folder / _TEST, features=plan.test.features, labels=plan.test.labels)
        first = plan.learner.init_params(init_generator(plan.seed))
        manifest = Manifest(
            run_id=os.urandom(RUN_ID_BYTES),
            network=roster.network,
            arrays=array_specs(first),
            suite=plan.suite,
            norm_bound=plan.norm_bound,
            learner=learner_text(
                plan.learner_spec, n_features=plan.partitions[0].features.shape[1], n_classes=plan.n_classes
            ),
            walk=plan.rules.to_text(),
            law=rule,
            law_digest="" if rule else file_digest(folder / "law.npz", "law"),
            test_digest="" if plan.test is None else file_digest(folder / _TEST, "test"),
            graph_digest=plan.graph.digest,
            seed=plan.seed,
            recipients=plan.recipients,
            payload=plan.payload,
        )
        sign_manifest(folder / "manifest.json", manifest, root)
        law = "" if rule else 'law = "../law.npz"\n'
        return [_prepare_node(folder, name, plan, index, law) for index, name in enumerate(ids)]
    except (OSError, RecordError) as error:
        raise SpoolError(f"{folder}: {error}") from error


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _prepare_node(folder: Path, name: str, plan: ClusterPlan, index: int, law: str) -> Path:
    mine = folder / name
    data = plan.partitions[index]
    np.savez(mine / "data.npz", features=data.features, labels=data.labels)
    (mine / "data.npz").chmod(0o600)
    consent = f"learner = {json.dumps(plan.learner_spec)}\n" if ":" in plan.learner_spec.partition("=")[0] else ""
    test = "" if plan.test is None else f'test = "../{_TEST}"\n'
    limits = "".join(f"{key} = {getattr(plan.limits, key)}\n" for key in Limits.__slots__)
    text = (
        'keys = "keys"\nroot = "../root/root.pub"\nroster = "../roster.json"\nmanifest = "../manifest.json"\n'
        f'{law}data = "data.npz"\nstate = "state"\nstarts = {str(index == 0).lower()}\n'
        f"{test}{consent}\n[limits]\n{limits}"
    )
    path = mine / "node.toml"
    write_atomically(path, text.encode())
    return path
