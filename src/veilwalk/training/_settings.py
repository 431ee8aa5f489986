"""What to train, over which network, by which rules: checked before anything is run."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from veilwalk.core import validate
from veilwalk.core.config import decode, key_of, to_toml
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.payload import check_payload
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import Walk

if TYPE_CHECKING:
    # Types only: the command line reads the defaults here, and starts without SciPy.
    from veilwalk.learning import Acceptance, CostModel, Poison, ProtectionRequest, Stopping

PRIVATE = "private-walk"
#: The same by the paper's scheme, for comparison.
PAPER = "paper-walk"
#: What is chosen where law, walk and recipients are left open: the recommended scheme, or the paper's.
SCHEMES = ("auto", "paper")
USUAL_LEARNER = "softmax:learning_rate=1:local_steps=10:fade=100"
# Not written where they are as always: what is written names a run, and runs from before there was a choice keep
# theirs.
_SELDOM = {"seldom": True}


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """A training run, in the words of the command line; ``None`` and 0 mean that there is no such limit.

    Attributes:
        graph: The network, a spec.
        scheme: What law, support, walk and recipients are where none of them is said: ``auto`` is what is recommended
            for the graph, sealed for several; ``paper`` the paper's, or what is like it on other graphs.
        law: Name or file of the destination law; None for the scheme's, or one that fits the graph.
        support: Distances of a law given by name; None for those that fit the graph.
        walk: The walk; None for the one that a law file was designed for, or simple.
        recipients: For how many a source seals; None for the scheme's, or as the file says, or one.
        tokens: Models that walk side by side; the best of them, or their mean, is handed out.
        data: What is learnt.
        partition: How it is dealt out.
        learner: The model; None for one that fits: with ``epsilon`` all rows at every step, of a size for the noise.
        updates: Updates of every algorithm; gossip's are rounded up to whole rounds.
        compare: Other algorithms to run, separated by commas, or none.
        protect: What noise protects: ``record``, one row of one node, or ``node``, all rows of one node.
        epsilon: Of the guarantee (epsilon, delta) against everybody, sender known, for which noise is found; 0: none.
        noise: Standard deviation of the noise, in units of ``clip``, where ``epsilon`` does not find it; 0 adds none.
        clip: Largest Euclidean norm of an update, or of a row's gradient where records are protected; 0 does not clip,
            or, with ``epsilon``, to what is usual.
        payload: How the numbers of a model travel: fp32 as they are, fp16, int8 or int8-nearest.
        delta: Of the guarantee (epsilon, delta) that the noise gives.
        most_updates: After so many updates a node hands models on as they are; 0: no such limit, or, with
            ``epsilon``, an even share of all updates.
        attack: Deliveries on which the content attack is tried; 0 leaves it out.
        evaluations: About how often to evaluate on held-out data.
        target_accuracy: Stop when reached.
        patience: Stop after so many evaluations without a better loss.
        max_hops: Stop before more hops.
        max_bytes: Stop before more bytes.
        bandwidth_bytes_per_s: What a node sends (modelled).
        latency_s: Of a hop (modelled).
        compute_s: Of an update (modelled).
        seed: Of walks, data split, partition and training.
        membership: Updates, the last ones, on whose models membership inference is tried; 0 leaves it out.
        exact_nodes: Largest network whose route posteriors are computed exactly; beyond, they are measured.
        accept: What nodes of a walk ask of a model that they receive: ``loss:1.5,norm:2`` and the like.
        poison: What some nodes of every walk do to the model, ``sign-flip:10`` and the like: a test of ``accept``.
        poisoners: Share of the nodes that do.
    """

    graph: str = "rrg:300:3:seed=1"
    scheme: str = "auto"
    law: str | None = None
    support: str | None = None
    walk: str | None = None
    recipients: int | None = None
    tokens: int = 1
    data: str = "digits"
    partition: str = "dirichlet:0.3"
    learner: str | None = None
    updates: int = 3000
    compare: str = "paper-walk,plain-walk,gossip,central"
    protect: str = field(default="node", metadata=_SELDOM)
    epsilon: float = field(default=0.0, metadata=_SELDOM)
    noise: float = 0.0
    clip: float = 0.0
    payload: str = field(default="fp32", metadata=_SELDOM)
    delta: float = 1e-5
    most_updates: int = field(default=0, metadata=_SELDOM)
    attack: int = 100
    evaluations: int = 40
    target_accuracy: float | None = None
    patience: int = 0
    max_hops: int | None = None
    max_bytes: int | None = None
    bandwidth_bytes_per_s: float = field(default=1.25e6, metadata={"key": "bandwidth"})
    latency_s: float = field(default=0.02, metadata={"key": "latency"})
    compute_s: float = field(default=0.01, metadata={"key": "compute"})
    seed: int = 7
    membership: int = field(default=0, metadata=_SELDOM)
    exact_nodes: int = field(default=500, metadata=_SELDOM)
    accept: str = field(default="none", metadata=_SELDOM)
    poison: str = field(default="none", metadata=_SELDOM)
    poisoners: float = field(default=0.1, metadata=_SELDOM)

    def __post_init__(self) -> None:
        validate.instance(str, "text: names, or none", compare=self.compare, accept=self.accept, poison=self.poison)
        whole = {"tokens": self.tokens, "updates": self.updates, "evaluations": self.evaluations}
        natural = {"seed": self.seed, "attack": self.attack, "exact_nodes": self.exact_nodes}
        natural |= {"membership": self.membership}
        validate.integer(**whole, **natural)
        validate.at_least(1, **whole)
        validate.at_least(0, **natural)
        if self.tokens > self.updates:
            raise InvalidParameterError("tokens", self.tokens, f"at most {self.updates}, the updates that they share")
        check_payload(self.payload)
        if self.walk is not None:
            object.__setattr__(self, "walk", Walk.parse(self.walk).kind)
        if self.scheme not in SCHEMES:
            raise InvalidParameterError("scheme", self.scheme, f"one of {', '.join(SCHEMES)}")
        if self.recipients is not None:
            validate.integer(recipients=self.recipients)
            validate.at_least(1, recipients=self.recipients)
        # Refused here, by name, and not when they are first used.
        _ = self.comparisons, self.cost, self.stopping, self.protection, self.poisoning
        if self.acceptance is not None and self.acceptance.max_loss_ratio and (self.noise or self.epsilon):
            need = "without loss where there is noise, which does not cover tests on a node's own rows; norm is allowed"
            raise InvalidParameterError("accept", self.accept, need)
        if self.support is not None:
            DistanceSupport.parse(self.support)

    @property
    def leaves_open(self) -> bool:
        """Whether the scheme is left to be chosen."""
        return self.law is None and self.support is None and self.walk is None and self.recipients is None

    @property
    def chosen_walk(self) -> Walk | None:
        """The walk, where one was chosen."""
        return None if self.walk is None else Walk(self.walk)

    @property
    def comparisons(self) -> tuple[str, ...]:
        """The other algorithms, in the order asked."""
        from veilwalk.learning import ALGORITHMS

        known = [name for name in ALGORITHMS if name != PRIVATE]
        names = tuple(part.strip() for part in self.compare.split(",") if part.strip() not in {"", "none"})
        if any(name not in known for name in names) or len(set(names)) < len(names):
            raise InvalidParameterError("compare", self.compare, f"none, or some of {','.join(known)}, once each")
        return names

    @property
    def cost(self) -> CostModel:
        """How long things take."""
        from veilwalk.learning import CostModel

        return CostModel(
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s, latency_s=self.latency_s, compute_s=self.compute_s
        )

    @property
    def protection(self) -> ProtectionRequest:
        """What noise is to reach."""
        from veilwalk.learning import ProtectionRequest

        return ProtectionRequest.of(self)

    @property
    def chosen_learner(self) -> str | None:
        """The learner; None where it is to fit the noise."""
        return self.learner or (None if self.epsilon else USUAL_LEARNER)

    @property
    def stopping(self) -> Stopping:
        """When to stop."""
        from veilwalk.learning import Stopping

        return Stopping(
            max_hops=self.max_hops or math.inf,
            max_bytes=self.max_bytes or math.inf,
            target_accuracy=self.target_accuracy,
            patience=self.patience,
        )

    @property
    def acceptance(self) -> Acceptance | None:
        """What nodes ask of a model; None: nothing."""
        from veilwalk.learning import Acceptance

        return Acceptance.of(self.accept)

    @property
    def poisoning(self) -> Poison | None:
        """What some nodes do to the model; None: none does."""
        from veilwalk.learning import Poison

        return Poison.of(self.poison, self.poisoners)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> TrainSettings:
        """Make settings from keys as a file has them (``target-accuracy``); unknown ones are refused by name."""
        return decode(cls, given)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings by key, as files have them."""
        return {key_of(one): getattr(self, one.name) for one in fields(self) if self._counts(one)}

    def _counts(self, one: Field[Any]) -> bool:
        return not one.metadata.get("seldom") or getattr(self, one.name) != one.default

    def params(self) -> dict[str, Any]:
        """Return the settings by key, as records have them."""
        return {key.replace("-", "_"): value for key, value in self.to_dict().items()}

    @property
    def digest(self) -> str:
        """Name of these settings, by what is in them."""
        return hashlib.sha256(json.dumps(self.params(), sort_keys=True).encode()).hexdigest()

    def to_toml(self) -> str:
        """Return the settings as a configuration file; what is not set stays out."""
        return "# veilwalk train --config THIS_FILE does the same again.\n" + to_toml(self.to_dict())
