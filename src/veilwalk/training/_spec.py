"""Specifies a run: network, scheme, learning, privacy, end, timing, checks and seed, each as a frozen value.

``train``, ``cluster up``, ``node manifest`` and sweeps are views of one :class:`RunSpec`: each takes some of its
options and has its own defaults. Flags, help, keys of files and reference pages come from the options, which have
distinct names: nobody needs the names of the parts that they are in.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, TypedDict, TypeVar, get_type_hints

# As a whole: its names are loaded at their first use, and the command line starts without SciPy.
from veilwalk import learning
from veilwalk.core import validate
from veilwalk.core.config import check_type, key_of, to_toml
from veilwalk.core.errors import ConfigError, InvalidParameterError
from veilwalk.core.payload import PAYLOADS
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import WALKS, Walk

_Spec = TypeVar("_Spec")
PRIVATE = "private-walk"
#: The same by the paper's scheme, for comparison.
PAPER = "paper-walk"
#: What is chosen where law, walk and recipients are left open: the recommended scheme, or the paper's.
SCHEMES = ("auto", "paper")
#: How rows are dealt out where data have no sites.
USUAL_PARTITION = "dirichlet:0.3"
USUAL_LEARNER = "softmax:learning_rate=1:local_steps=10:fade=100"


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option of a specification, by its name there.

    Attributes:
        default: Its default.
        about: What it is, in a sentence or two, for help and reference pages.
        metavar: What stands for its value there; else its ``choices`` do.
        rare: Whether help leaves its flag out; reference pages and files of settings have it.
        usual: What the default comes to, where the default itself does not say it.
        choices: All that it may be.
        least: The least number that it may be.
        key: Its key in files and its flag, where that is not its name.
        part: Name of the specification that it is in, empty for the whole.
    """

    default: Any
    about: str
    metavar: str | None = None
    rare: bool = False
    usual: str = ""
    choices: Sequence[str] = ()
    least: int | None = None
    key: str = ""
    name: str = ""
    part: str = ""
    type: Any = None


def option(default: Any, about: str, metavar: str | None = None, **others: Any) -> Any:
    """Return a dataclass field that is one option of a specification; ``others`` are more attributes of it."""
    metavar = metavar or "|".join(others.get("choices", ())) or None
    item = Option(default=default, about=about, metavar=metavar, **others)
    return field(default=default, metadata={"option": item, "key": item.key})


def list_options(spec: Any) -> dict[str, Option]:
    """Return the options of a specification by name, in order, with the values of ``spec`` as defaults."""
    inner = {item.name: getattr(spec, item.name) for item in fields(spec)}
    parts = {"": spec} | {name: value for name, value in inner.items() if is_dataclass(value)}
    return {
        item.name: replace(
            item.metadata["option"],
            name=item.name,
            key=key_of(item),
            type=kinds[item.name],
            part=part,
            default=getattr(owner, item.name),
        )
        for part, owner in parts.items()
        for kinds in [get_type_hints(type(owner))]
        for item in fields(owner)
        if "option" in item.metadata
    }


def change_spec(spec: _Spec, values: Mapping[str, Any], *, where: str = "", left_out: Collection[str] = ()) -> _Spec:
    """Return ``spec`` with the options in ``values``, by name or key.

    Unknown names, wrong types, and the options ``left_out`` are refused; ``where``, the file, begins errors.
    """
    options = list_options(spec)
    known = {spelling: item for item in options.values() for spelling in (item.key, item.name)}
    before = f"{where}: " if where else ""
    parts: dict[str, dict[str, Any]] = {}
    for spelling, value in values.items():
        if spelling not in known:
            validate.refuse_removed("key", spelling)
            keys = ", ".join(sorted(item.key for item in options.values() if item.name not in left_out))
            raise ConfigError(f"{before}unknown key {spelling!r}: must be one of {keys}")
        item = known[spelling]
        if item.name in left_out:
            raise InvalidParameterError(spelling, value, "left out: this verb does not take it")
        changes = parts.setdefault(item.part, {})
        if item.name in changes:
            raise ConfigError(f"{before}{item.key!r} is given twice, as {item.key} and as {item.name}: leave one out")
        changes[item.name] = check_type(before + item.key, value, item.type)
    whole = parts.pop("", {})
    inner = {part: replace(getattr(spec, part), **changes) for part, changes in parts.items()}
    return replace(spec, **whole, **inner)  # type: ignore[type-var]


class _Specification:
    """A specification whose options keep to their choices and to their least numbers."""

    def __post_init__(self) -> None:
        for item in fields(self):  # type: ignore[arg-type]
            value, limits = getattr(self, item.name), item.metadata.get("option")
            if limits and limits.choices and value not in limits.choices:
                raise InvalidParameterError(key_of(item), value, f"one of {', '.join(limits.choices)}")
            if limits and limits.least is not None and value is not None:
                validate.integer(limits.least, **{item.name: value})


@dataclass(frozen=True, kw_only=True)
class SchemeSpec(_Specification):
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
    suite: str = option("hybrid", "Sealing of nodes; hybrid: ML-KEM-768 and X25519.", choices=("hybrid", "x25519"))
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
        """Whether law, support, walk and recipients are all left to be chosen."""
        return self.law is None and self.support is None and self.walk is None and self.recipients is None


@dataclass(frozen=True, kw_only=True)
class LearningSpec(_Specification):
    """What is learnt, from which data, and which models a node accepts."""

    data: str = option(
        "digits",
        "digits, mnist:DIR, or npz:, csv: or parquet: with a file, a folder or a pattern: one file a site. :label= "
        "names the column to learn, :target= one of numbers, :group= one that says whose row it is.",
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
    payload: str = option("fp32", f"How a model's numbers travel: {', '.join(PAYLOADS)}.", "FORM", choices=PAYLOADS)
    accept: str = option(
        "none", "Tests of received models: none, finite, loss:RATIO, norm:STEP, or two with a comma.", "TESTS"
    )

    @property
    def acceptance(self) -> learning.Acceptance | None:
        """The tests of received models; None where there are none."""
        return learning.Acceptance.parse(self.accept)


@dataclass(frozen=True, kw_only=True)
class PrivacySpec(_Specification):
    """Noise, and what it protects."""

    protect: str = option(
        "node", "What noise protects: one row of a node, or all its rows together.", choices=("record", "node")
    )
    epsilon: float = option(
        0.0, "Find the noise for this epsilon, against everybody, sender known; 0: none.", "EPSILON"
    )
    delta: float = option(1e-5, "The delta of the guarantee (epsilon, delta).", "DELTA", rare=True)
    noise: float = option(0.0, "Or Gaussian noise, in units of --clip.", "MULTIPLIER")
    clip: float = option(
        0.0, "Largest norm of an update, or of a row's gradient; 0: none, or one for --epsilon.", "NORM"
    )
    most_updates: int = option(
        0,
        "A node that has made so many hands models on as they are; 0: three even shares, or one with --epsilon.",
        "COUNT",
        rare=True,
    )

    @property
    def request(self) -> learning.ProtectionRequest:
        """The noise to reach."""
        return learning.ProtectionRequest(**vars(self))


@dataclass(frozen=True, kw_only=True)
class EndSpec(_Specification):
    """How long a run lasts, and how many models walk."""

    updates: int = option(3000, "Updates of every algorithm.", "COUNT", least=1)
    walks: int = option(
        1, "Models that walk at once and share the updates; the best, or their mean, is the result.", "W", least=1
    )
    target_accuracy: float | None = option(None, "Stop once it is reached.", "SHARE", usual="never")
    patience: int = option(
        0, "Stop after so many evaluations, evenly apart, without a better loss; 0: never.", "COUNT", rare=True
    )
    max_hops: int | None = option(None, "Stop before more hops.", "HOPS", usual="never", rare=True)
    max_bytes: int | None = option(None, "Stop before more bytes.", "BYTES", usual="never", rare=True)
    evaluations: int = option(40, "About how often to evaluate on held-out rows.", "COUNT", rare=True, least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.walks > self.updates:
            raise InvalidParameterError("walks", self.walks, f"at most {self.updates}, the updates that they share")

    @property
    def stopping(self) -> learning.Stopping:
        """Budgets and goals."""
        return learning.Stopping(
            max_hops=self.max_hops or math.inf,
            max_bytes=self.max_bytes or math.inf,
            target_accuracy=self.target_accuracy,
            patience=self.patience,
        )


@dataclass(frozen=True, kw_only=True)
class TimingSpec(_Specification):
    """How long things take: modelled in simulations, kept by real nodes."""

    bandwidth_bytes_per_s: float = option(
        1.25e6, "Bytes a second that a node sends, modelled.", "BYTES", key="bandwidth", rare=True
    )
    latency_s: float = option(0.02, "Seconds a hop takes besides, modelled.", "SECONDS", key="latency", rare=True)
    compute_s: float = option(0.01, "Seconds an update takes, modelled.", "SECONDS", key="compute", rare=True)
    dwell_s: float | None = option(
        None,
        "Seconds every message stays at every node; 0 for none.",
        "SECONDS",
        key="dwell",
        usual="by a trial update",
    )
    hop_s: float = option(0.05, "Seconds a hop takes where nothing dwells.", "SECONDS", key="hop", rare=True)
    away_s: float = option(
        60.0, "Seconds a member may be away before another walk is made; 0: by chance alone.", "SECONDS", key="away"
    )
    alarm_hops: float = option(1e7, "A walk is believed lost once in so many hops by mistake.", "HOPS", rare=True)

    @property
    def cost(self) -> learning.CostModel:
        """The modelled times."""
        return learning.CostModel(
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s, latency_s=self.latency_s, compute_s=self.compute_s
        )


@dataclass(frozen=True, kw_only=True)
class CheckSpec(_Specification):
    """What a simulated run is compared with, and how it is attacked."""

    compare: str = option("paper-walk,plain-walk,gossip,central", "Algorithms to compare with, or none.", "NAMES")
    audit: str = option(
        "auto", "auto: measure what the route tells a receiver; none: leave it out.", choices=("auto", "none")
    )
    attack: int = option(100, "Deliveries on which to try the content attack; 0 for none.", "COUNT", least=0)
    exact_nodes: int = option(
        500,
        "Largest network whose route posteriors are exact; on others they are estimated.",
        "NODES",
        rare=True,
        least=0,
    )
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
class RunSpec(_Specification):
    """One run, whole. Every view of it changes the same options by name (:meth:`change`)."""

    graph: str = option(
        "rrg:300:3:seed=1",
        "The network: file:PATH, rrg:NODES:DEGREE, er:NODES:MEAN_DEGREE, ring:NODES, torus:SIDE:SIDE and others; "
        "veilwalk graph info --help lists all.",
        "SPEC",
    )
    scheme: SchemeSpec = field(default_factory=SchemeSpec)
    learning: LearningSpec = field(default_factory=LearningSpec)
    privacy: PrivacySpec = field(default_factory=PrivacySpec)
    end: EndSpec = field(default_factory=EndSpec)
    timing: TimingSpec = field(default_factory=TimingSpec)
    checks: CheckSpec = field(default_factory=CheckSpec)
    seed: int = option(7, "Seed of walks, splits and training.", "SEED", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        # What the parts come to is refused now, and not when it is needed.
        _ = self.privacy.request, self.end.stopping, self.timing.cost, self.checks.comparisons, self.checks.poisoning
        acceptance = self.learning.acceptance
        if acceptance is not None and acceptance.max_loss_ratio and (self.privacy.noise or self.privacy.epsilon):
            need = "without loss where there is noise, which does not cover tests on a node's own rows; norm is allowed"
            raise InvalidParameterError("accept", self.learning.accept, need)

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
        return change_spec(start or self.defaults, values, where=where, left_out=self.left_out)


_OF_NODES = frozenset(["suite", "allow_sandwich", "dwell_s", "hop_s", "away_s", "alarm_hops"])
_OF_SIMULATIONS = frozenset(list_options(CheckSpec())) | {
    *("choice", "patience", "max_hops", "max_bytes", "bandwidth_bytes_per_s", "latency_s", "compute_s")
}
#: ``veilwalk train``, ``vw.train`` and sweeps of both.
TRAIN = View(defaults=RunSpec(), left_out=_OF_NODES)
_AMONG_NODES = RunSpec().change(graph="rrg:20:3:seed=1", learner="softmax", updates=400, seed=1)
#: ``veilwalk cluster up``.
CLUSTER = View(defaults=_AMONG_NODES, left_out=_OF_SIMULATIONS)
#: ``veilwalk node manifest``: members bring their own data, and the roster brings the network.
MANIFEST = View(defaults=_AMONG_NODES, left_out=_OF_SIMULATIONS | {"graph", "data", "partition", "support", "suite"})


class TrainOptions(TypedDict, total=False):
    """The options of :data:`TRAIN` that ``train`` takes as keywords, for type checkers and editors."""

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
    evaluations: int
    bandwidth_bytes_per_s: float
    latency_s: float
    compute_s: float
    compare: str | list[str] | tuple[str, ...]
    audit: str
    attack: int
    exact_nodes: int
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
