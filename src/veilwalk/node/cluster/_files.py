"""A whole network on one machine: keys, roster, manifest, law, data and a configuration for every node, in one folder.

A folder with the file ``cluster.json`` is a whole cluster; that file holds its run (:class:`RunSpec`).
"""

from __future__ import annotations

import json
import math
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from veilwalk.core.config import to_toml
from veilwalk.core.errors import ConfigError, InputFileError, RecordError, SpoolError
from veilwalk.core.geometry import SuiteChoice, choose_suite
from veilwalk.core.records import Record, plain, write_atomically
from veilwalk.node.cluster._manifest import check_new_run, choose_node_scheme, draft_manifest, settle_run
from veilwalk.node.cluster._processes import SETTINGS, ClusterStatus
from veilwalk.node.link import Limits
from veilwalk.node.members import (
    MOST_EPOCHS,
    Manifest,
    RunFigures,
    deal_path,
    deal_roster,
    decode_params,
    edges_of_graph,
    first_roster,
    load_root_public_key,
    new_node_keys,
    new_root_key,
)
from veilwalk.node.peer import file_digest, load_config, node_status
from veilwalk.node.sealing import Suite
from veilwalk.training import CLUSTER, RunSpec

if TYPE_CHECKING:
    from veilwalk.design import DestinationLaw
    from veilwalk.graphs import Graph
    from veilwalk.learning import Learner, Params, Partition
    from veilwalk.training import Scenario

#: What the models of a cluster must be given: features, classes and how rows were scaled.
DATA_FACTS = "data.json"
_DAYS = 30.0
_TEST = "test.npz"


@dataclass(frozen=True, kw_only=True, eq=False)
class ClusterPlan:
    """What a cluster runs.

    Attributes:
        partitions: The data of each node.
        spec: The run, with nothing left open.
        period_s: Seconds of a period of keys, on a secret overlay.
        periods: For how many periods nodes get keys; the last one stays.
        test: The public test set, for runs with a target.
    """

    graph: Graph
    law: DestinationLaw
    partitions: Sequence[Partition]
    learner: Learner
    n_classes: int
    spec: RunSpec
    figures: RunFigures
    period_s: int = 0
    periods: int = 2
    limits: Limits = field(default_factory=Limits)
    test: Partition | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class ClusterSetup:
    """A cluster before it starts: the run, and the scenario built from it."""

    spec: RunSpec
    scenario: Scenario

    def plan(self) -> ClusterPlan:
        """Return what the nodes are to run; where the dwell is open, the node with most data tries it."""
        scenario, scheme = self.scenario, self.scenario.scheme
        spec, figures = settle_run(
            scheme,
            self.spec.change(learner=str(scenario.spec.learning.learner)),
            scenario.learner,
            protection=scenario.protection,
            trial=max(scenario.partitions, key=len),
            law=f"far:{scheme.law.far}" if scheme.law.far else "",
        )
        step_s = max(spec.timing.hop_s, spec.timing.dwell_s or 0.0)
        secret = scheme.graph.is_overlay
        return ClusterPlan(
            graph=scheme.graph,
            law=scheme.law,
            partitions=scenario.partitions,
            learner=scenario.learner,
            n_classes=scenario.data.n_classes,
            spec=spec,
            figures=figures,
            period_s=math.ceil(scheme.key_period * figures.hops_per_update * step_s),
            # By design half of them are enough.
            periods=min(2 + 2 * spec.end.updates // max(scheme.key_period, 1), MOST_EPOCHS - 1) if secret else 2,
            test=None if spec.end.target_accuracy is None else scenario.data.test,
        )

    def evaluate(self, params: Params) -> Mapping[str, float]:
        """Return how good a model is on held-out data."""
        return self.scenario.learner.evaluate(params, self.scenario.data.test)


def set_up_cluster(spec: RunSpec) -> ClusterSetup:
    """Build and check everything that ``spec`` names."""
    from veilwalk.graphs import parse_graph_spec
    from veilwalk.training import Scenario

    scheme = choose_node_scheme(parse_graph_spec(spec.graph), spec)
    check_new_run(scheme, spec.scheme)
    learning = spec.learning
    scenario = Scenario.build(
        scheme, spec, data=learning.data, partition=learning.partition, learner=learning.learner, usual_partition="iid"
    )
    return ClusterSetup(spec=spec, scenario=scenario)


def read_cluster_spec(out: Path, values: Mapping[str, Any]) -> RunSpec | None:
    """Return the run of the cluster in ``out``, None where there is none; ``values`` must agree with it."""
    path = out / SETTINGS
    if not path.exists():
        return None
    # A run that this version does not speak is refused here, in one line, and not by every node.
    manifest_in(out)
    try:
        spec = CLUSTER.read(json.loads(path.read_text()), where=str(path))
    except (OSError, ValueError, TypeError, AttributeError, ConfigError) as error:
        raise InputFileError(f"{path}: not the settings of a cluster ({error})") from None
    there = spec.options
    for name, option in CLUSTER.read(values).options.items():
        old, new = there[name].default, option.default
        if values.keys() & {name, option.key} and old != new:
            raise ConfigError(f"{out} holds a cluster with {option.key} = {old}, not {new}: choose another folder")
    return spec


def manifest_in(out: Path) -> Manifest:
    """Return the signed manifest of the cluster in ``out``."""
    return Manifest.load(out / "manifest.json", load_root_public_key(out / "root" / "root.pub"))


def prepare_or_resume(setup: ClusterSetup, out: Path) -> list[Path]:
    """Return the configurations of the cluster in ``out``, made now or before with the same settings."""
    from veilwalk.training import data_facts

    settings = setup.spec.params(CLUSTER)
    configs = [out / name / "node.toml" for name in node_ids(setup.scenario.graph.n_nodes)]
    if read_cluster_spec(out, settings) is not None:
        return configs
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"{out} is not empty and holds no cluster: choose another folder")
    prepare_cluster(out, setup.plan())
    # Read by predict, which scales rows as the nodes' rows were.
    write_atomically(out / DATA_FACTS, json.dumps({"data": plain(data_facts(setup.scenario))}).encode() + b"\n")
    # Last: a folder with this file is complete.
    write_atomically(out / SETTINGS, json.dumps(settings, indent=2).encode() + b"\n")
    return configs


def node_ids(n_nodes: int) -> list[str]:
    """Return names that sort as the numbers do."""
    width = len(str(n_nodes - 1))
    return [f"n{index:0{width}d}" for index in range(n_nodes)]


def prepare_cluster(folder: Path, plan: ClusterPlan, *, addresses: Sequence[str] | None = None) -> list[Path]:
    """Write everything the nodes need into ``folder`` and return their configurations, in the order of the graph.

    ``addresses`` are theirs, ``host:port``; free ports of loopback unless given.
    """
    from veilwalk.design import save_law

    ids = node_ids(plan.graph.n_nodes)
    where = addresses or [f"127.0.0.1:{port}" for port in free_ports(len(ids))]
    suite = Suite[choose_suite(cast("SuiteChoice", plan.spec.scheme.suite), is_overlay=plan.graph.is_overlay).upper()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        root = new_root_key(folder / "root")
        options: dict[str, Any] = {"suite": suite, "periods": plan.periods}
        members = {
            name: new_node_keys(folder / name / "keys", node_id=name, address=address, **options).member
            for name, address in zip(ids, where, strict=True)
        }
        # Members are numbered as the nodes are, whatever these are called elsewhere.
        edges = edges_of_graph(replace(plan.graph, labels=None), ids)
        about: dict[str, Any] = {"suite": suite, "now": int(time.time()), "days": _DAYS}
        if plan.graph.is_overlay:
            degree = int(plan.graph.degrees.max())
            roster, deal = deal_roster(members, degree=degree, period_s=plan.period_s, edges=edges, **about)
            deal.write(deal_path(folder / "roster.json"))
        else:
            roster = first_roster(members, edges, **about)
        roster.sign(folder / "roster.json", root)
        # A rule follows whatever becomes of the members; any other law is written for these, by their names.
        rule = f"far:{plan.law.far}" if plan.law.far else None
        if not rule:
            save_law(folder / "law.npz", plan.law, labels=ids)
        if plan.test is not None:
            np.savez(folder / _TEST, features=plan.test.features, labels=plan.test.labels)
        manifest = draft_manifest(
            plan.spec.change(law=rule),
            plan.figures,
            plan.learner,
            roster,
            n_features=plan.partitions[0].features.shape[1],
            n_classes=plan.n_classes,
            law_digest="" if rule else file_digest(folder / "law.npz", "law"),
            test_digest="" if plan.test is None else file_digest(folder / _TEST, "test"),
        )
        manifest.sign(folder / "manifest.json", root)
        law = None if rule else "../law.npz"
        return [_prepare_node(folder, name, plan, index, law) for index, name in enumerate(ids)]
    except (OSError, RecordError) as error:
        raise SpoolError(f"{folder}: {error}") from error


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that nobody listens on now."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]


def _prepare_node(folder: Path, name: str, plan: ClusterPlan, index: int, law: str | None) -> Path:
    home = folder / name
    data = plan.partitions[index]
    np.savez(home / "data.npz", features=data.features, labels=data.labels)
    (home / "data.npz").chmod(0o600)
    learner = str(plan.spec.learning.learner)
    settings = {"keys": "keys", "data": "data.npz", "state": "state", "law": law, "starts": index == 0}
    settings |= {"root": "../root/root.pub", "roster": "../roster.json", "manifest": "../manifest.json"}
    settings["test"] = None if plan.test is None else f"../{_TEST}"
    settings["learner"] = learner if ":" in learner.partition("=")[0] else None
    limits = {key: getattr(plan.limits, key) for key in Limits.__slots__}
    text = f"{to_toml(settings)}\n[limits]\n{to_toml(limits)}"
    path = home / "node.toml"
    write_atomically(path, text.encode())
    return path


def cluster_record(setup: ClusterSetup, out: Path, status: ClusterStatus, *, seconds: float) -> Record:
    """Return what came out, beside what was predicted."""
    from veilwalk.learning import choose_model

    scenario = setup.scenario
    manifest = manifest_in(out)
    final = node_status(load_config(out / node_ids(scenario.graph.n_nodes)[0] / "node.toml").state, with_models=True)
    if not final.models:
        raise SpoolError(f"{out}: no node has a finished model on its disk")
    models = [decode_params(manifest, model) for model in final.models]
    # As a node chooses, who may have no test set.
    chosen, params = choose_model(models, setup.evaluate if manifest.test_digest else None)
    scores = setup.evaluate(params)
    hops, updates = status.total("hops"), status.total("updates")
    price = scenario.scheme.price
    names = (
        *("farewells", "duplicates", "rerouted", "created", "forks", "merged", "retired", "discarded", "refused"),
        *("damaged", "set_aside", "unbelieved", "learner_failures", "out_of_time", "dwell_overruns"),
    )
    return Record(
        kind="cluster",
        seed=setup.spec.seed,
        params=setup.spec.params(CLUSTER),
        result={
            "nodes": scenario.graph.n_nodes,
            "updates": updates,
            "walks": setup.spec.end.walks,
            "chosen": chosen,
            "ended_by": "updates" if final.iteration >= setup.spec.end.updates else "target accuracy",
            "accuracy": scores.get("accuracy"),
            "loss_nats": scores["loss"],
            "hops": hops,
            "hops_per_update": hops / updates,
            "hops_per_update_predicted": price.hops,
            "hops_per_update_prediction": price.kind,
            # A leg is nearly geometric, so its spread is about its mean.
            "hops_per_update_expected_error": price.hops / math.sqrt(updates),
            "message_bytes": manifest.message_bytes,
            "bytes_sent": (hops + status.total("farewells")) * manifest.message_bytes,
            "seconds": seconds,
            "counts": {name: status.total(name) for name in names},
        },
    )
