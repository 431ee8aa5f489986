"""A cluster from a few settings: prepared once, run until the model is finished, compared with what was predicted."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veilwalk.core import validate
from veilwalk.core.errors import ConfigError, GraphError, InputFileError, InvalidParameterError
from veilwalk.core.records import Record, write_atomically
from veilwalk.core.support import DistanceSupport
from veilwalk.node._cluster import Cluster, ClusterStatus
from veilwalk.node._config import load_config
from veilwalk.node._encoding import decode_params
from veilwalk.node._kem import Suite
from veilwalk.node._keys import load_root_public_key
from veilwalk.node._lost_walks import late_after_hops, starved_after_hops
from veilwalk.node._manifest import Manifest, load_manifest
from veilwalk.node._prepare import ClusterPlan, node_ids, prepare_cluster
from veilwalk.node._routing import node_walk
from veilwalk.node._rules import RunRules
from veilwalk.node._status import node_status

if TYPE_CHECKING:
    from veilwalk.design import DestinationLaw
    from veilwalk.graphs import Graph
    from veilwalk.learning import Data, Learner, Partitions

_SETTINGS = "cluster.json"
_SIMULATED_UPDATES = 200_000
_WIDEST = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """What is asked of a cluster, in the words of the command line."""

    graph: str
    data: str = "digits"
    partition: str = "iid"
    learner: str = "softmax"
    support: str | None = None
    walk: str = "simple"
    mix: float = 0.0
    updates: int = 400
    target_accuracy: float | None = None
    evaluations: int = 40
    dwell: float = 0.0
    hop: float = 0.05
    alarm_hops: float = 1e7
    suite: str = "hybrid"
    seed: int = 1

    def __post_init__(self) -> None:
        node_walk(self.walk)
        if self.suite.upper() not in Suite.__members__:
            raise InvalidParameterError("suite", self.suite, "hybrid or x25519")
        validate.integer(updates=self.updates, seed=self.seed)
        validate.at_least(1, updates=self.updates)
        validate.at_least(0, seed=self.seed)
        if self.target_accuracy is not None and not 0.0 < self.target_accuracy <= 1.0:
            raise InvalidParameterError("target_accuracy", self.target_accuracy, "above 0 and at most 1")


@dataclass(frozen=True, eq=False, kw_only=True)
class ClusterSetup:
    """Everything that settings name, made and checked."""

    settings: ClusterSettings
    graph: Graph
    law: DestinationLaw
    data: Data
    partitions: Partitions
    learner: Learner

    def plan(self) -> ClusterPlan:
        """Return what the nodes are to run."""
        settings = self.settings
        return ClusterPlan(
            graph=self.graph,
            law=self.law,
            partitions=self.partitions,
            learner=self.learner,
            learner_spec=settings.learner,
            n_classes=self.data.n_classes,
            rules=RunRules(
                walk=node_walk(settings.walk),
                mix=settings.mix,
                updates=settings.updates,
                target=settings.target_accuracy or 0.0,
                evaluations=settings.evaluations,
                late=late_after_hops(
                    self.graph, alarm_hops=settings.alarm_hops, walk=node_walk(settings.walk), mix=settings.mix
                ),
                starve=starved_after_hops(self.law, mean_hops=self.predicted_hops()[0], alarm_hops=settings.alarm_hops),
                hop=settings.hop,
                dwell=settings.dwell,
            ),
            seed=settings.seed,
            suite=Suite[settings.suite.upper()],
            test=None if settings.target_accuracy is None else self.data.test,
        )

    def predicted_hops(self) -> tuple[float, str]:
        """Return the hops an update takes by prediction, and how they were found."""
        settings = self.settings
        if settings.walk == "simple":
            from veilwalk.chains import WalkChain, mean_hitting_times

            return self.law.mean_hops(mean_hitting_times(WalkChain.simple(self.graph))), "exact"
        from veilwalk.walks import run_protocol

        played = run_protocol(
            self.graph,
            self.law.matrix,
            updates=_SIMULATED_UPDATES,
            seed=settings.seed,
            walk=node_walk(settings.walk),
            mix=settings.mix,
        )
        return float(played["leg_hops"].mean()), f"simulated, {_SIMULATED_UPDATES} updates"


def set_up_cluster(settings: ClusterSettings) -> ClusterSetup:
    """Make and check everything that ``settings`` name."""
    from veilwalk.design import DestinationLaw, design_on_graph
    from veilwalk.graphs import parse_graph_spec
    from veilwalk.learning import load_data, make_learner, parse_partition_spec, partitions_of

    graph = parse_graph_spec(settings.graph)
    support = _widest_support(graph) if settings.support is None else DistanceSupport.parse(settings.support)
    law = design_on_graph(graph, support=support).law
    assert isinstance(law, DestinationLaw)  # noqa: S101  a design on a graph gives one for each node
    data = load_data(settings.data, seed=settings.seed)
    partitions = partitions_of(parse_partition_spec(settings.partition, graph=graph, seed=settings.seed), data)
    if len(partitions) != graph.n_nodes:
        raise InvalidParameterError("partition", settings.partition, f"one that makes {graph.n_nodes} parts")
    learner = make_learner(settings.learner, n_features=data.n_features, n_classes=data.n_classes)
    return ClusterSetup(settings=settings, graph=graph, law=law, data=data, partitions=partitions, learner=learner)


def prepare_or_resume(setup: ClusterSetup, out: Path) -> list[Path]:
    """Return the configurations of the cluster in ``out``, made now or before with the same settings."""
    path = out / _SETTINGS
    wanted = asdict(setup.settings)
    configs = [out / name / "node.toml" for name in node_ids(setup.graph.n_nodes)]
    if path.exists():
        try:
            found = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise InputFileError(f"{path}: not the settings of a cluster ({error})") from None
        other = [name for name in wanted if found.get(name) != wanted[name]]
        if other:
            name = other[0]
            raise ConfigError(
                f"{out} holds a cluster with {name} = {found.get(name)}, not {wanted[name]}: choose another folder"
            )
        return configs
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"{out} is not empty and holds no cluster: choose another folder")
    prepare_cluster(out, setup.plan())
    # Last: a folder with this file is complete.
    write_atomically(path, json.dumps(wanted, indent=2).encode() + b"\n")
    return configs


def run_cluster(configs: list[Path], tell: Callable[[ClusterStatus], None], *, timeout_s: float) -> ClusterStatus:
    """Run the nodes until all have the finished model; leaving early in any way stops them all."""
    with Cluster(configs) as cluster:
        return cluster.watch(tell, timeout_s=timeout_s)


def cluster_record(setup: ClusterSetup, out: Path, status: ClusterStatus, *, seconds: float) -> Record:
    """Return what came out, beside what was predicted."""
    manifest = load_manifest(out / "manifest.json", load_root_public_key(out / "root" / "root.pub"))
    final = node_status(load_config(out / node_ids(setup.graph.n_nodes)[0] / "node.toml").state, with_model=True)
    if final.model is None:
        raise GraphError("no node has a finished model")
    scores = setup.learner.evaluate(decode_params(manifest, final.model), setup.data.test)
    hops, updates = status.total("hops"), status.total("updates")
    predicted, how = setup.predicted_hops()
    names = ("farewells", "duplicates", "rerouted", "created", "merged", "retired", "refused", "damaged")
    return Record(
        kind="cluster",
        seed=setup.settings.seed,
        params=asdict(setup.settings),
        result={
            "nodes": setup.graph.n_nodes,
            "updates": updates,
            "ended_by": "updates" if final.iteration >= setup.settings.updates else "target accuracy",
            "accuracy": scores.get("accuracy"),
            "loss_nats": scores["loss"],
            "hops": hops,
            "hops_per_update": hops / updates,
            "hops_per_update_predicted": predicted,
            "hops_per_update_prediction": how,
            # A leg is nearly geometric, so its spread is about its mean.
            "hops_per_update_expected_error": predicted / math.sqrt(updates),
            "message_bytes": message_bytes(manifest),
            "bytes_sent": (hops + status.total("farewells")) * message_bytes(manifest),
            "seconds": seconds,
            "counts": {name: status.total(name) for name in names},
        },
    )


def message_bytes(manifest: Manifest) -> int:
    """Return the length of every message of a run."""
    from veilwalk.node._sealing import SealContext

    return SealContext(
        run_id=manifest.run_id,
        roster_digest=bytes(32),
        suite=manifest.suite,
        epoch=0,
        bucket_bytes=manifest.bucket_bytes,
    ).message_bytes


def _widest_support(graph: Any) -> DistanceSupport:
    """Distances from 2 to the largest that every node has somebody at, at most 6."""
    from veilwalk.graphs import distances

    reach = int(distances(graph).max(axis=1).min())
    if reach < 2:
        raise GraphError("some node is next to all others: no destination is two hops away; take a sparser graph")
    return DistanceSupport(2, min(reach, _WIDEST))
