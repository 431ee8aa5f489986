"""What all members of a run do alike, as one line of text in the signed manifest.

least-recent mix=0.2 updates=400 target=0.9 evaluations=40 late=7070 starve=1.8e+06 hop=0.05 dwell=0 spare=0
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from veilwalk.core import validate
from veilwalk.core.errors import ConfigError, InvalidParameterError
from veilwalk.node._routing import NodeWalk, node_walk

MAX_UPDATES = 2**32 - 2
_WHOLE = ("updates", "evaluations")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRules:
    """The walk and its end.

    Attributes:
        walk: Kind of walk.
        mix: Share of plain non-backtracking hops of a least-recent walk.
        updates: The model is finished after so many updates.
        target: It is also finished when it reaches this accuracy on the run's public test set; 0 never.
        evaluations: About how often it is tried on that set (:func:`veilwalk.learning.evaluation_points`).
        late: A node that has seen no walk for so many hops makes one (:func:`veilwalk.node.late_after_hops`).
        starve: So does one that has opened nothing for so many (:func:`veilwalk.node.starved_after_hops`).
        hop: Seconds a hop takes, by which nodes count hops they do not see.
        dwell: Seconds a message stays at every node, trained or not; 0 sends it on at once, and then a neighbour
            that keeps time can tell who trained.
        spare: Seconds after handing a message on at which a node tells the one before to drop its spare copy; 0 keeps
            none, and then what a lost node was carrying is lost with it.
    """

    walk: NodeWalk
    mix: float = 0.0
    updates: int
    target: float = 0.0
    evaluations: int = 40
    late: float
    starve: float = 1e12
    hop: float = 0.05
    dwell: float = 0.0
    spare: float = 0.0

    def __post_init__(self) -> None:
        node_walk(self.walk)
        if not 0.0 <= self.mix <= 1.0 or (self.mix and self.walk != "least-recent"):
            raise InvalidParameterError("mix", self.mix, "from 0 to 1, and 0 unless the walk is least-recent")
        validate.integer(updates=self.updates, evaluations=self.evaluations)
        validate.at_least(1, updates=self.updates, evaluations=self.evaluations)
        if not 0.0 <= self.target <= 1.0:
            raise InvalidParameterError("target", self.target, "from 0 to 1")
        if self.updates > MAX_UPDATES:
            raise InvalidParameterError("updates", self.updates, f"at most {MAX_UPDATES}")
        validate.finite(late=self.late, starve=self.starve, hop=self.hop, dwell=self.dwell, spare=self.spare)
        validate.more_than(0, late=self.late, starve=self.starve, hop=self.hop)
        validate.at_least(0, dwell=self.dwell, spare=self.spare)

    @property
    def late_s(self) -> float:
        """Seconds without a visit after which a node makes a walk."""
        return self.late * max(self.hop, self.dwell)

    @property
    def starve_s(self) -> float:
        """Seconds without opening a message after which a node makes a walk."""
        return self.starve * max(self.hop, self.dwell)

    def to_text(self) -> str:
        """Return the rules as they stand in the manifest."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "walk"}
        return " ".join(
            [self.walk, *(f"{name}={value:{'d' if name in _WHOLE else 'g'}}" for name, value in values.items())]
        )

    @classmethod
    def from_text(cls, text: str) -> RunRules:
        """Read what :meth:`to_text` wrote; unknown and repeated names are refused."""
        walk, *parts = text.split(" ")
        values: dict[str, float] = {}
        known = {field.name for field in fields(cls)} - {"walk"}
        for part in parts:
            name, _, value = part.partition("=")
            if name not in known or name in values:
                raise ConfigError(
                    f"the manifest's walk has {part[:40]!r}: must be one of {', '.join(sorted(known))}, once"
                )
            try:
                values[name] = int(value) if name in _WHOLE else float(value)
            except ValueError:
                raise ConfigError(f"the manifest's walk has {part[:40]!r}: must be a number") from None
        missing = {"updates", "late"} - values.keys()
        if missing:
            raise ConfigError(f"the manifest's walk lacks {', '.join(sorted(missing))}")
        return cls(walk=node_walk(walk), **values)  # type: ignore[arg-type]
