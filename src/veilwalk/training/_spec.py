"""Specifies a run: network, scheme, learning, privacy, end, timing, checks and seed, each as a frozen value.

``train``, ``cluster up``, ``node manifest`` and sweeps are views of one :class:`RunSpec`: each takes some of its
options and has its own defaults. Flags, help, keys of files and reference pages come from the options.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

# As a whole: its names are loaded at their first use, and the command line starts without SciPy.
from veilwalk import learning
from veilwalk.core.config import to_toml
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.options import Option, Specification, change_spec, list_options, option
from veilwalk.core.payload import PAYLOADS
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import WALKS, Walk
from veilwalk.learning import CostModel, Learner, ProtectionRequest, RunSize, Stopping

PRIVATE = "private-walk"
#: The same by the paper's scheme, for comparison.
PAPER = "paper-walk"
#: What is chosen where law, walk and recipients are left open: the recommended scheme, or the paper's.
SCHEMES = ("auto", "paper")
# Networks of runs that name none; the theorem of overlays is about the recommended scheme.
_OVERLAY, _PUBLISHED = "overlay:300:3:seed=1", "rrg:300:3:seed=1"
#: How rows are dealt out where data have no sites.
USUAL_PARTITION = "dirichlet:0.3"
USUAL_LEARNER = "softmax:learning_rate=1"
#: How updates count in an older model where the end of a run is not known.
_OPEN_ENDED = "fade:100"


@dataclass(frozen=True, kw_only=True)
class SchemeSpec(Specification):
    """How an update travels: its recipients, and the walk of its ciphertext."""

    choice: str = option(
        "auto",
        "auto: sealed for several, as recommended; paper: for one, as in the paper. --law, --walk and --recipients "
        "set its parts.",
        key="scheme",
        choices=SCHEMES,
    )
    law: str | None = option(
        None,
        "How recipients are drawn: uniform-distance, uniform-node, far:R, paper, paper-printed, paper-exact, optimal, "
        "or a file written by design --out.",
        "NAME|FILE",
        usual="the scheme's",
    )
    support: str | None = option(
        None, "Distances of a law given by name.", "LO:HI", usual="2 to 6, or to as far as all nodes reach", rare=True
    )
    walk: str | None = option(None, f"How a message walks: {', '.join(WALKS)}.", "KIND", usual="the scheme's")
    recipients: int | None = option(
        None,
        "For how many an update is sealed; the first met opens it.",
        "K",
        usual="the scheme's, or a law file's",
        least=1,
    )
    suite: str = option(
        "auto",
        "Sealing of nodes; hybrid: ML-KEM-768 and X25519; auto: x25519 on overlays.",
        choices=("auto", "hybrid", "x25519"),
    )
    allow_sandwich: bool = option(
        False,  # noqa: FBT003
        "Admit the simple walk among nodes, under which a relay can be certain of the maker.",
    )

    def __post_init__(self) -> None:
        if self.walk is not None:
            object.__setattr__(self, "walk", Walk.parse(self.walk).kind)
        if self.support is not None:
            DistanceSupport.parse(self.support)
        super().__post_init__()

    @property
    def is_open(self) -> bool:
        """Whether law, support and walk are all left to be chosen."""
        return self.law is None and self.support is None and self.walk is None


@dataclass(frozen=True, kw_only=True)
class LearningSpec(Specification):
    """What is learnt, from which data, and which models a node accepts."""

    data: str = option(
        "digits",
        "digits, mnist:DIR, or npz:, csv: or parquet: with a file, a folder or a pattern: one file a site. :label= "
        "names the column to learn, :target= one of numbers, :group= one that says whose row it is. "
        ":features=scatter takes the scattering of images, which noise spares.",
        "SPEC",
    )
    partition: str | None = option(
        None,
        "How rows are dealt out to nodes: iid, dirichlet:ALPHA, shards:PER_NODE, graph:CORRELATION or natural:COLUMN.",
        "SPEC",
        usual=f"by site where data are one file a site; else {USUAL_PARTITION}, or iid among real nodes",
    )
    learner: str | None = option(
        None,
        "softmax, linear, mlp, or module:Class of your own, each with :name=value options.",
        "SPEC",
        usual=f"{USUAL_LEARNER}; with --epsilon one that fits it",
    )
    local_steps: int | None = option(
        None,
        "Steps of descent in every update, for all algorithms.",
        "COUNT",
        usual="the learner's own; built-in: 10, mlp 50, without noise",
        least=1,
    )
    decay: str = option(
        "auto",
        "How what a node changes counts in an older model: linear, less and less, nothing at the end; fade:UPDATES, "
        f"half after so many, a third after twice as many; none; auto: linear, or {_OPEN_ENDED} where a target or a "
        "budget may end the run.",
        "RULE",
        rare=True,
    )
    app: str | None = option(
        None,
        "A Flower app, run unchanged instead of a learner and data: module:client_app.",
        "MODULE:APP",
        usual="none",
    )
    payload: str = option(
        "fp32", f"How a model's numbers travel: {', '.join(PAYLOADS)}.", "FORM", choices=PAYLOADS, rare=True
    )
    accept: str = option(
        "none",
        "Tests of received models: none, finite, loss:RATIO, norm:STEP, or two with a comma.",
        "TESTS",
        rare=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.app is None:
            return
        # An app is a learner that loads its own rows.
        object.__setattr__(self, "learner", learning.app_learner(self.app))
        object.__setattr__(self, "data", learning.PARTITIONS)

    @property
    def acceptance(self) -> learning.Acceptance | None:
        """The tests of received models; None where there are none."""
        return learning.Acceptance.parse(self.accept)


@dataclass(frozen=True, kw_only=True)
class EndSpec(Stopping):
    """How long a run lasts, and how many models walk."""

    updates: int = option(3000, "Updates of every algorithm.", "COUNT", least=1)
    walks: int = option(
        1, "Models that walk at once and share the updates; the best, or their mean, is the result.", "W", least=1
    )
    meet: int = option(
        0,
        "Average all walks after so many updates of each; 0: never.",
        "R",
        rare=True,
        least=0,
    )
    evaluations: int = option(40, "About how often to evaluate on held-out rows.", "COUNT", rare=True, least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.walks > self.updates:
            raise InvalidParameterError("walks", self.walks, f"at most {self.updates}, the updates that they share")
        if self.meet and self.walks == 1:
            raise InvalidParameterError("meet", self.meet, "given with several walks (--walks), which meet")


@dataclass(frozen=True, kw_only=True)
class TimingSpec(CostModel):
    """How long things take: modelled in simulations, kept by real nodes."""

    hop_s: float = option(0.05, "Seconds a hop takes where nothing dwells.", "SECONDS", key="hop", rare=True)
    away_s: float = option(
        60.0, "Seconds a member may be away before another walk is made; 0: by chance alone.", "SECONDS", key="away"
    )
    alarm_hops: float = option(1e7, "A walk is believed lost once in so many hops by mistake.", "HOPS", rare=True)


@dataclass(frozen=True, kw_only=True)
class CheckSpec(Specification):
    """What a simulated run is compared with, and how it is attacked."""

    compare: str = option(
        "paper-walk,plain-walk,gossip,gossip-push,fedavg,central",
        f"Algorithms to compare with, some of {', '.join(learning.ALGORITHMS[1:])}, or none.",
        "NAMES",
    )
    audit: str = option(
        "auto", "auto: measure what the route tells a receiver; none: leave it out.", choices=("auto", "none")
    )
    attack: int = option(100, "Deliveries on which to try the content attack; 0 for none.", "COUNT", least=0, rare=True)
    poison: str = option(
        "none", "What some nodes do to the model: sign-flip:10, nan, random, drift or none.", "KIND[:NUMBER]", rare=True
    )
    poisoners: float = option(0.1, "Share of the nodes that do it.", "SHARE", rare=True)

    @property
    def comparisons(self) -> tuple[str, ...]:
        """The other algorithms, in the order given."""
        known = [name for name in learning.ALGORITHMS if name != PRIVATE]
        names = tuple(name.strip() for name in self.compare.split(",") if name.strip() not in {"", "none"})
        if any(name not in known for name in names) or len(set(names)) < len(names):
            raise InvalidParameterError("compare", self.compare, f"none, or some of {','.join(known)}, once each")
        return names

    @property
    def poisoning(self) -> learning.Poison | None:
        """What some nodes do to the model; None where none does."""
        return learning.Poison.parse(self.poison, self.poisoners)


@dataclass(frozen=True, kw_only=True)
class RunSpec(Specification):
    """One run, whole. Every view of it changes the same options by name (:meth:`change`)."""

    graph: str = option(
        "auto",
        "The network: file:PATH, overlay:NODES:DEGREE, rrg:NODES:DEGREE, ring:NODES, torus:SIDE:SIDE and others; "
        "veilwalk graph info --help lists all. auto: 300 peers on a secret overlay; on published links with "
        "--scheme, --law or --walk.",
        "SPEC",
    )
    scheme: SchemeSpec = field(default_factory=SchemeSpec)
    learning: LearningSpec = field(default_factory=LearningSpec)
    privacy: ProtectionRequest = field(default_factory=ProtectionRequest)
    end: EndSpec = field(default_factory=EndSpec)
    timing: TimingSpec = field(default_factory=TimingSpec)
    checks: CheckSpec = field(default_factory=CheckSpec)
    seed: int = option(7, "Seed of walks, splits and training.", "SEED", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        # What the parts come to is refused now, and not when it is needed.
        _ = self.checks.comparisons, self.checks.poisoning
        acceptance, _ = self.learning.acceptance, self.size(nodes=1, rows=1).decay_figures()
        if acceptance is not None and acceptance.max_loss_ratio and (self.privacy.noise or self.privacy.epsilon):
            need = "without loss where there is noise, which does not cover tests on a node's own rows; norm is allowed"
            raise InvalidParameterError("accept", self.learning.accept, need)
        if self.end.meet and (acceptance is not None or self.checks.poisoning is not None):
            raise InvalidParameterError("meet", self.end.meet, "left out where models are tested or poisoned")

    @property
    def network(self) -> str:
        """The spec of the network; where it is left open, of one that the scheme fits."""
        if self.graph != "auto":
            return self.graph
        return _OVERLAY if self.scheme.is_open and self.scheme.choice == "auto" else _PUBLISHED

    def change(self, **values: Any) -> RunSpec:
        """Return the run with other values, by name; unknown names are refused."""
        return change_spec(self, values)

    @property
    def options(self) -> dict[str, Option]:
        """All options by name, with the values of this run as defaults."""
        return list_options(self)

    @property
    def learner(self) -> str | None:
        """The learner; None where it has to fit the noise."""
        return self.learning.learner or (None if self.privacy.epsilon else USUAL_LEARNER)

    def settle_learner(self, learner: str | Learner) -> str | Learner:
        """Return a learner, or its spec, with the local steps of the run."""
        is_noisy = bool(self.privacy.epsilon or self.privacy.noise)
        return learning.set_local_steps(learner, self.learning.local_steps, is_usual=not is_noisy)

    def size(self, *, nodes: int, rows: int, is_scattered: bool = False) -> RunSize:
        """Return how large the run is among so many nodes with so many rows together."""
        end, decay = self.end, self.learning.decay
        if decay == "auto":
            is_open = any((end.target_accuracy, end.patience, end.max_hops, end.max_bytes))
            decay = _OPEN_ENDED if is_open else "linear"
        sizes = {"updates": end.updates, "nodes": nodes, "rows": rows, "models": end.walks}
        return RunSize(**sizes, decay=decay, is_scattered=is_scattered)

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The private walk, and what it is compared with."""
        return (PRIVATE, *self.checks.comparisons)

    def params(self, view: View | None = None) -> dict[str, Any]:
        """Return the values by key, with underscores, as records have them: those of a view, or all."""
        left_out = frozenset() if view is None else view.left_out
        options = [item for item in self.options.values() if item.name not in left_out]
        return {item.key.replace("-", "_"): item.default for item in options}

    @property
    def digest(self) -> str:
        """Name of this run by its values."""
        return hashlib.sha256(json.dumps(self.params(), sort_keys=True).encode()).hexdigest()

    def to_toml(self, view: View) -> str:
        """Return the options of a view as a configuration file; what is not set stays out."""
        return to_toml({item.key: item.default for item in self.options.values() if item.name not in view.left_out})


@dataclass(frozen=True, kw_only=True)
class View:
    """The options that a verb takes, with its own ``defaults``; it does not take those called in ``left_out``."""

    defaults: RunSpec
    left_out: frozenset[str]

    @property
    def options(self) -> tuple[Option, ...]:
        """The options, in order."""
        return tuple(item for item in self.defaults.options.values() if item.name not in self.left_out)

    def name_options(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values by the names of their options, not their keys; unknown ones stay. The last value wins."""
        names = {item.key: item.name for item in self.options}
        return {names.get(key, key): value for key, value in values.items()}

    def read(self, values: Mapping[str, Any], *, where: str = "", start: RunSpec | None = None) -> RunSpec:
        """Return the defaults, or ``start``, with these values; an option that the verb does not take is refused."""
        spec = change_spec(start or self.defaults, values, where=where, left_out=self.left_out)
        for name in ("learner", "data") if spec.learning.app else ():
            if values.get(name) not in {None, getattr(spec.learning, name)}:
                raise InvalidParameterError(name, values[name], "left out: the app brings its own")
        return spec


_OF_NODES = frozenset(["suite", "allow_sandwich", "hop_s", "away_s", "alarm_hops"])
_OF_SIMULATIONS = frozenset(list_options(CheckSpec())) | {
    *("choice", "patience", "max_hops", "max_bytes", "bandwidth_bytes_per_s", "latency_s", "compute_s")
}
#: ``veilwalk train``, ``vw.train`` and sweeps of both.
TRAIN: View = View(defaults=RunSpec(), left_out=_OF_NODES)
_AMONG_NODES = RunSpec().change(graph="overlay:20:3:seed=1", learner="softmax", updates=400, seed=1)
_OF_SCHEMES = frozenset(["graph", "choice", "law", "support", "walk", "recipients"])
#: ``veilwalk audit``: the scheme of a run on this network.
AUDIT = View(defaults=RunSpec(), left_out=frozenset(RunSpec().options) - _OF_SCHEMES)
#: ``veilwalk cluster up``.
CLUSTER: View = View(defaults=_AMONG_NODES, left_out=_OF_SIMULATIONS)
#: ``veilwalk node manifest``: members bring their own data, and the roster brings the network.
MANIFEST: View = View(
    defaults=_AMONG_NODES, left_out=_OF_SIMULATIONS | {"graph", "data", "partition", "app", "support", "suite"}
)


class TrainOptions(TypedDict, total=False):
    """The options of :data:`TRAIN` that ``train`` takes as keywords, for type checkers and editors."""

    local_steps: int | None
    decay: str
    payload: str
    accept: str
    protect: str
    epsilon: float
    delta: float
    noise: float
    clip: float
    most_updates: int
    updates: int
    walks: int
    target_accuracy: float | None
    patience: int
    max_hops: int | None
    max_bytes: int | None
    meet: int
    evaluations: int
    bandwidth_bytes_per_s: float
    latency_s: float
    compute_s: float
    dwell_s: float | None
    compare: str | list[str] | tuple[str, ...]
    audit: str
    attack: int
    poison: str
    poisoners: float
    seed: int


def make_spec(**options: Any) -> RunSpec:
    """Return a run of ``train`` with these options.

    Example:
        >>> make_spec(updates=10, graph="ring:8").end.updates
        10
    """
    return TRAIN.read(options)
