"""A cluster from a few settings: prepared once, run until the model is finished, compared with what was predicted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from veilwalk.core import validate
from veilwalk.core.errors import ConfigError, InputFileError, InvalidParameterError
from veilwalk.core.payload import check_payload
from veilwalk.core.records import plain, write_atomically
from veilwalk.core.walk import Walk
from veilwalk.node.cluster._dwell import measured_dwell
from veilwalk.node.cluster._files import ClusterPlan, node_ids, prepare_cluster
from veilwalk.node.cluster._lost_walks import AWAY_S
from veilwalk.node.cluster._run_rules import run_rules
from veilwalk.node.members import RunRules, load_manifest, load_root_public_key, new_run_walk, node_walk
from veilwalk.node.sealing import Suite, check_recipients

if TYPE_CHECKING:
    from veilwalk.design import Scheme
    from veilwalk.graphs import Graph
    from veilwalk.learning import Params
    from veilwalk.training import Scenario

#: A folder that has this file is a whole cluster.
SETTINGS = "cluster.json"
#: What the models of a cluster must be given: features, classes and how rows were scaled.
DATA_FACTS = "data.json"
_STRAIGHT = Walk("non-backtracking")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """What is asked of a cluster, in the words of the command line."""

    graph: str
    data: str = "digits"
    partition: str = "iid"
    learner: str = "softmax"
    law: str | None = None
    support: str | None = None
    walk: str | None = None
    recipients: int | None = None
    allow_sandwich: bool = False
    updates: int = 400
    walks: int = 1
    target_accuracy: float | None = None
    evaluations: int = 40
    dwell: float | None = None
    protect: str = "node"
    epsilon: float = 0.0
    delta: float = 1e-5
    clip: float = 0.0
    noise: float = 0.0
    most_updates: int = 0
    payload: str = "fp32"
    accept: str = "none"
    hop: float = 0.05
    away: float = AWAY_S
    alarm_hops: float = 1e7
    suite: str = "hybrid"
    seed: int = 1

    def __post_init__(self) -> None:
        _ = self.chosen_walk
        if self.recipients is not None:
            check_recipients(self.recipients)
        if self.suite.upper() not in Suite.__members__:
            raise InvalidParameterError("suite", self.suite, "hybrid or x25519")
        check_payload(self.payload)
        validate.integer(updates=self.updates, seed=self.seed)
        validate.at_least(1, updates=self.updates)
        validate.at_least(0, seed=self.seed)
        if self.target_accuracy is not None and not 0.0 < self.target_accuracy <= 1.0:
            raise InvalidParameterError("target_accuracy", self.target_accuracy, "above 0 and at most 1")

    @property
    def chosen_walk(self) -> Walk | None:
        """The walk asked for; None for the one that a file's law was designed for."""
        if self.walk is None:
            return None if self._law_in_file else _STRAIGHT
        return node_walk(Walk.parse(self.walk))

    @property
    def _law_in_file(self) -> bool:
        return self.law is not None and self.law.endswith((".npz", ".json"))

    @property
    def leaves_open(self) -> bool:
        """Whether the scheme is left to be chosen."""
        return self.law is None and self.support is None and self.walk is None and self.recipients is None


@dataclass(frozen=True, eq=False, kw_only=True)
class ClusterSetup:
    """What is asked, and the scenario that it names."""

    settings: ClusterSettings
    scenario: Scenario

    def plan(self) -> ClusterPlan:
        """Return what the nodes are to run."""
        from veilwalk.learning import init_generator, params_bytes

        settings, scenario, scheme = self.settings, self.scenario, self.scenario.scheme
        first = scenario.learner.init_params(init_generator(settings.seed))
        rules, _ = run_rules(
            scheme,
            params_bytes(first, payload=settings.payload),
            alarm_hops=settings.alarm_hops,
            away_s=settings.away,
            updates=settings.updates,
            walks=settings.walks,
            target=settings.target_accuracy,
            evaluations=settings.evaluations,
            hop_s=settings.hop,
            dwell_s=self._dwell() if settings.dwell is None else settings.dwell,
            protection=scenario.protection,
            accept=settings.accept,
        )
        return ClusterPlan(
            graph=scheme.graph,
            law=scheme.law,
            partitions=scenario.partitions,
            learner=scenario.learner,
            learner_spec=scenario.learner_spec,
            n_classes=scenario.n_classes,
            rules=rules,
            seed=settings.seed,
            recipients=scheme.recipients,
            payload=settings.payload,
            suite=Suite[settings.suite.upper()],
            test=None if settings.target_accuracy is None else scenario.data.test,
        )

    def _dwell(self) -> float:
        """Return what the node with most data needs on this machine."""
        largest = max(self.scenario.partitions, key=len)
        tested = self.settings.accept != "none"
        return measured_dwell(self.scenario.learner, largest, self.scenario.protection, tested=tested)

    def evaluate(self, params: Params) -> Mapping[str, float]:
        """Return how good a model is on held-out data."""
        return self.scenario.learner.evaluate(params, self.scenario.data.test)


def set_up_cluster(settings: ClusterSettings) -> ClusterSetup:
    """Make and check everything that ``settings`` name."""
    from veilwalk.graphs import parse_graph_spec
    from veilwalk.learning import ProtectionRequest
    from veilwalk.training import Scenario

    scheme = _scheme(parse_graph_spec(settings.graph), settings)
    new_run_walk(scheme.walk, allow_sandwich=settings.allow_sandwich)
    scenario = Scenario.make(
        scheme,
        data=settings.data,
        partition=settings.partition,
        learner=settings.learner,
        seed=settings.seed,
        protection=ProtectionRequest.of(settings),
        updates=settings.updates,
        tokens=settings.walks,
        graph_name=settings.graph,
    )
    return ClusterSetup(settings=settings, scenario=scenario)


def _scheme(graph: Graph, settings: ClusterSettings) -> Scheme:
    """Return the scheme asked for; where nothing is said, the recommended one, by a walk that does not turn round."""
    from veilwalk.design import choose_scheme, recommended_scheme

    if settings.leaves_open:
        found = recommended_scheme(graph)
        return replace(found, walk=_STRAIGHT, designed_for=_STRAIGHT)
    law, walk = settings.law or "paper-exact", settings.chosen_walk
    return choose_scheme(graph, law, support=settings.support, walk=walk, recipients=settings.recipients)


def settings_in(out: Path, asked: Mapping[str, Any]) -> ClusterSettings | None:
    """Return the settings of the cluster in ``out``, None where there is none; what is asked must agree with them."""
    path = out / SETTINGS
    if not path.exists():
        return None
    # A run that this version does not speak is refused here, in one line, and not by every node.
    load_manifest(out / "manifest.json", load_root_public_key(out / "root" / "root.pub"))
    try:
        settings = ClusterSettings(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputFileError(f"{path}: not the settings of a cluster ({error})") from None
    for name, value in asked.items():
        if getattr(settings, name) != value:
            raise ConfigError(
                f"{out} holds a cluster with {name} = {getattr(settings, name)}, not {value}: choose another folder"
            )
    return settings


def rules_in(out: Path) -> RunRules:
    """Return the rules of the cluster in ``out``."""
    return RunRules.from_text(
        load_manifest(out / "manifest.json", load_root_public_key(out / "root" / "root.pub")).walk
    )


def prepare_or_resume(setup: ClusterSetup, out: Path) -> list[Path]:
    """Return the configurations of the cluster in ``out``, made now or before with the same settings."""
    from veilwalk.training import data_facts

    wanted = asdict(setup.settings)
    configs = [out / name / "node.toml" for name in node_ids(setup.scenario.graph.n_nodes)]
    if settings_in(out, wanted) is not None:
        return configs
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"{out} is not empty and holds no cluster: choose another folder")
    prepare_cluster(out, setup.plan())
    # Read by predict, which scales rows as the nodes' rows were.
    write_atomically(out / DATA_FACTS, json.dumps({"data": plain(data_facts(setup.scenario))}).encode() + b"\n")
    # Last: a folder with this file is complete.
    write_atomically(out / SETTINGS, json.dumps(wanted, indent=2).encode() + b"\n")
    return configs
