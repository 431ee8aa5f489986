"""What to train, over which network, by which rules: checked before anything is run."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, get_args

from veilwalk.core import validate
from veilwalk.core.errors import ConfigError, InvalidParameterError
from veilwalk.core.support import DistanceSupport
from veilwalk.learning import ALGORITHMS, CostModel, Stopping
from veilwalk.walks import WalkKind

PRIVATE, *_OTHERS = ALGORITHMS
#: What the private walk may be compared with.
COMPARISONS = tuple(_OTHERS)


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """A training run, in the words of the command line; ``None`` and 0 mean that there is no such limit.

    Attributes:
        graph: The network, a spec.
        law: Name or file of the destination law.
        support: Distances of a law given by name.
        walk: Kind of walk.
        mix: Share of plain non-backtracking steps of a least-recent walk.
        tokens: Models that walk side by side; what is evaluated is their average.
        data: What is learnt.
        partition: How it is dealt out.
        learner: The model.
        updates: Updates of every algorithm; gossip's are rounded up to whole rounds.
        compare: Other algorithms to run, separated by commas, or none.
        noise: Standard deviation of the noise on an update, in units of ``clip``; 0 adds none.
        clip: Largest Euclidean norm of an update; 0 does not clip.
        delta: Of the guarantee (epsilon, delta) that the noise gives.
        attack: Deliveries on which the content attack is tried; 0 leaves it out.
        evaluations: About how often to evaluate on held-out data.
        target_accuracy: Stop when reached.
        patience: Stop after so many evaluations without a better loss.
        max_hops: Stop before more hops.
        max_bytes: Stop before more bytes.
        bandwidth: What a node sends, in bytes a second (modelled).
        latency: Of a hop, in seconds (modelled).
        compute: Of an update, in seconds (modelled).
        seed: Of walks, data split, partition and training.
    """

    graph: str = "rrg:300:3:seed=1"
    law: str = "paper"
    support: str = "2:6"
    walk: WalkKind = "simple"
    mix: float = 0.0
    tokens: int = 1
    data: str = "digits"
    partition: str = "dirichlet:0.3"
    learner: str = "softmax:learning_rate=0.3"
    updates: int = 3000
    compare: str = ",".join(COMPARISONS)
    noise: float = 0.0
    clip: float = 0.0
    delta: float = 1e-5
    attack: int = 400
    evaluations: int = 40
    target_accuracy: float | None = None
    patience: int = 0
    max_hops: int | None = None
    max_bytes: int | None = None
    bandwidth: float = 1.25e6
    latency: float = 0.02
    compute: float = 0.01
    seed: int = 7

    def __post_init__(self) -> None:
        whole = {"tokens": self.tokens, "updates": self.updates, "evaluations": self.evaluations}
        validate.integer(**whole, seed=self.seed, attack=self.attack)
        validate.at_least(1, **whole)
        validate.at_least(0, seed=self.seed, attack=self.attack, noise=self.noise, clip=self.clip)
        validate.finite(noise=self.noise, clip=self.clip)
        validate.probability(delta=self.delta)
        if self.walk not in get_args(WalkKind):
            raise InvalidParameterError("walk", self.walk, f"one of {', '.join(get_args(WalkKind))}")
        if self.law == "plain":
            need = "a law with destinations; the plain walk is a comparison (--compare plain-walk)"
            raise InvalidParameterError("law", self.law, need)
        if self.noise and not self.clip:
            raise InvalidParameterError("noise", self.noise, "given with --clip: noise hides only what is bounded")
        # Refused here, by name, and not when they are first used.
        _ = self.comparisons, self.cost, self.stopping, self.distances

    @property
    def comparisons(self) -> tuple[str, ...]:
        """The other algorithms, in the order asked."""
        names = tuple(part.strip() for part in self.compare.split(",") if part.strip() not in {"", "none"})
        if any(name not in COMPARISONS for name in names) or len(set(names)) < len(names):
            raise InvalidParameterError("compare", self.compare, f"none, or some of {','.join(COMPARISONS)}, once each")
        return names

    @property
    def distances(self) -> DistanceSupport:
        """The support."""
        return DistanceSupport.parse(self.support)

    @property
    def cost(self) -> CostModel:
        """How long things take."""
        return CostModel(bandwidth_bytes_per_s=self.bandwidth, latency_s=self.latency, compute_s=self.compute)

    @property
    def stopping(self) -> Stopping:
        """When to stop."""
        return Stopping(
            max_hops=math.inf if self.max_hops is None else self.max_hops,
            max_bytes=math.inf if self.max_bytes is None else self.max_bytes,
            target_accuracy=self.target_accuracy,
            patience=self.patience,
        )

    @property
    def digest(self) -> str:
        """Name of these settings, by what is in them."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> TrainSettings:
        """Make settings from keys as a file has them (``target-accuracy``); unknown ones are refused by name."""
        types = {field.name: str(field.type) for field in fields(cls)}
        values = {}
        for key, value in given.items():
            name = key.replace("-", "_")
            if name not in types or "_" in key:
                known = ", ".join(sorted(field.replace("_", "-") for field in types))
                raise ConfigError(f"unknown key {key}: must be one of {known}")
            values[name] = _checked(key, value, types[name])
        return cls(**values)

    def to_toml(self) -> str:
        """Return the settings as a configuration file; what is not set stays out."""
        lines = ["# veilwalk train --config THIS_FILE does the same again."]
        for name, value in asdict(self).items():
            if value is not None:
                # JSON writes text and numbers as TOML reads them.
                lines.append(f"{name.replace('_', '-')} = {json.dumps(value, ensure_ascii=False)}")
        return "\n".join(lines) + "\n"


#: What a value of each type is called, and what it may be.
_KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "int": ("a whole number", (int,)),
    "float": ("a number", (int, float)),
}


def _checked(key: str, value: Any, kind: str) -> Any:
    """Refuse a value of another type than ``kind`` says; a whole number will do for any number."""
    if value is None and kind.endswith("| None"):
        return None
    wants, good = _KINDS.get(kind.removesuffix(" | None"), ("text", (str,)))
    if isinstance(value, bool) or not isinstance(value, good):
        raise InvalidParameterError(key, value, wants)
    return float(value) if isinstance(value, int) and float in good else value
