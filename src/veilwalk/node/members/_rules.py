"""What all members of a run do alike, as one line of text in the signed manifest.

simple updates=400 target=0.9 evaluations=40 late=7070 starve=1.8e+06 hop=0.05 dwell=0.02 spare=0 clip=1 noise=1

Where there are several walks, ``walks=4`` follows; ``rows=200`` where single rows are protected, ``most=20`` where a
node stops learning after so many updates, ``decay=400`` where updates of older models count less; ``loss=1.5`` and
``step=2`` where received models are tested; ``hops=21.6 since=1795000000`` where nodes know what is too soon.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace

from veilwalk.core import validate
from veilwalk.core.errors import ConfigError, InvalidParameterError
from veilwalk.core.walk import Walk
from veilwalk.node.sealing import Header

#: The walks that a node can play: it forwards everything it gets, at once, whomever it came from.
NODE_WALKS = ("simple", "non-backtracking")

MAX_UPDATES = 2**32 - 2
#: A walk is one of so many at most.
MAX_WALKS = 64
# The names in the signed text are as short as they were in the first manifests; here they carry their units.
_FIELDS = {
    "updates": "updates",
    "target": "target",
    "evaluations": "evaluations",
    "late": "late_hops",
    "starve": "starve_hops",
    "hop": "hop_s",
    "dwell": "dwell_s",
    "spare": "spare_s",
    "clip": "clip",
    "noise": "noise",
    "walks": "walks",
    "rows": "rows",
    "most": "most_updates",
    "decay": "decay",
    "loss": "max_loss_ratio",
    "step": "max_step",
    "hops": "hops_per_update",
    "since": "since",
}
_WHOLE = ("updates", "evaluations", "walks", "rows", "most_updates", "decay", "since")
# Not said where they are as before there was such a thing.
_SELDOM = {"walks": 1} | dict.fromkeys(("rows", "most_updates", "decay", "since"), 0)
_SELDOM |= dict.fromkeys(("max_loss_ratio", "max_step", "hops_per_update"), 0)
_TAG_BYTES = 8
# A walk makes no more updates than so many at once, and in time so many times as many as it was designed to: members
# may leave, and the fewer there are the sooner one of them opens it.
_HEAD_START = 30
_FASTEST = 4.0
# Clocks may differ by this share of the time that a run takes, and by so many seconds at least and at most.
_CLOCKS, _LEAST_CLOCKS_S, _MOST_CLOCKS_S = 0.05, 1.0, 300.0
# Where nothing dwells: less no hop takes.
_LEAST_HOP_S = 0.001
# A message is opened within so many times the hops that one takes on average, save once in three million; and what has
# not been, with all the time that is allowed for members that are away, so many times over, nobody waits for any more.
_TAIL = 15
_PATIENCE = 4


def node_walk(walk: Walk) -> Walk:
    """Return ``walk``, or refuse one that nodes cannot play."""
    if walk.kind not in NODE_WALKS:
        raise InvalidParameterError("walk", str(walk), "one of " + ", ".join(NODE_WALKS))
    return walk


def new_run_walk(walk: Walk, *, allow_sandwich: bool) -> Walk:
    """Return ``walk``, or refuse for a new run one that goes straight back, unless that is allowed by name.

    Who hands a message to a neighbour and gets another one straight back knows for certain who made it.
    """
    if node_walk(walk).kind == "simple" and not allow_sandwich:
        need = "non-backtracking: a relay next to the maker would know it for certain (--allow-sandwich)"
        raise InvalidParameterError("walk", str(walk), need)
    return walk


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRules:
    """The walk and its end.

    Attributes:
        walk: How messages walk.
        updates: The model is finished after so many updates.
        target: It is also finished when it reaches this accuracy on the run's public test set; 0 never.
        evaluations: About how often it is tried on that set (:func:`veilwalk.learning.evaluation_points`).
        late_hops: A node that has seen no walk for so many hops makes one (:func:`.late_after_hops`).
        starve_hops: So does one that has opened nothing for so many (:func:`.starved_after_hops`).
        hop_s: Seconds a hop takes, by which nodes count hops they do not see.
        dwell_s: Seconds a message stays at every node, trained or not; 0 sends it on at once, and then a neighbour
            that keeps time can tell who trained.
        spare_s: Seconds after handing a message on at which a node tells the one before to drop its spare copy; 0 keeps
            none, and then what a lost node was carrying is lost with it.
        clip: Largest Euclidean norm of an update, or of a row's gradient where there are ``rows``; 0 does not clip.
        noise: Standard deviation of the noise, in units of ``clip``; 0 adds none.
        walks: So many models walk at once, each with its share of the updates; the run's is their mean. Which one a
            walk carries is its lane, from 0.
        rows: What sums over rows are divided by, where single rows are protected; 0 where a whole node is.
        most_updates: A node that has made so many hands models on as they are; 0: no such limit.
        decay: An update counts less the older the model is, and nothing after so many; 0: always the same.
        max_loss_ratio: A model whose loss on a node's own rows is more than so many times the least of those accepted
            there is refused; 0 for no such test (:class:`veilwalk.learning.Acceptance`).
        max_step: So is one farther from the node's own last model than so much for each update between; 0: none.
        hops_per_update: By design, from one update of a walk to the next; 0 where it is not said.
        since: When the run was made, in seconds since 1970, or earlier (:meth:`following`); with ``hops_per_update`` it
            says how many updates there can have been (:meth:`possible`).
    """

    walk: Walk
    updates: int
    target: float = 0.0
    evaluations: int = 40
    late_hops: float
    starve_hops: float = 1e12
    hop_s: float = 0.05
    dwell_s: float = 0.0
    spare_s: float = 0.0
    clip: float = 0.0
    noise: float = 0.0
    walks: int = 1
    rows: int = 0
    most_updates: int = 0
    decay: int = 0
    max_loss_ratio: float = 0.0
    max_step: float = 0.0
    hops_per_update: float = 0.0
    since: int = 0

    def __post_init__(self) -> None:
        node_walk(self.walk)
        validate.integer(updates=self.updates, evaluations=self.evaluations, walks=self.walks)
        validate.at_least(1, updates=self.updates, evaluations=self.evaluations, walks=self.walks)
        if not 0.0 <= self.target <= 1.0:
            raise InvalidParameterError("target", self.target, "from 0 to 1")
        if self.updates > MAX_UPDATES:
            raise InvalidParameterError("updates", self.updates, f"at most {MAX_UPDATES}")
        if self.walks > min(MAX_WALKS, self.updates):
            raise InvalidParameterError("walks", self.walks, f"at most {MAX_WALKS}, and no more than updates")
        validate.finite(
            late_hops=self.late_hops,
            starve_hops=self.starve_hops,
            hop_s=self.hop_s,
            dwell_s=self.dwell_s,
            spare_s=self.spare_s,
            clip=self.clip,
            noise=self.noise,
            max_loss_ratio=self.max_loss_ratio,
            max_step=self.max_step,
            hops_per_update=self.hops_per_update,
        )
        validate.more_than(0, late_hops=self.late_hops, starve_hops=self.starve_hops, hop_s=self.hop_s)
        validate.at_least(0, dwell_s=self.dwell_s, spare_s=self.spare_s, clip=self.clip, noise=self.noise)
        validate.at_least(0, max_loss_ratio=self.max_loss_ratio, max_step=self.max_step)
        validate.at_least(0, hops_per_update=self.hops_per_update)
        if self.noise and self.max_loss_ratio:
            need = "without loss where there is noise, which does not cover tests on a node's own rows; norm is allowed"
            raise InvalidParameterError("accept", f"loss:{self.max_loss_ratio:g}", need)
        whole = {"rows": self.rows, "most_updates": self.most_updates, "decay": self.decay, "since": self.since}
        validate.integer(**whole)
        validate.at_least(0, **whole)
        if self.rows and not self.clip:
            raise InvalidParameterError("rows", self.rows, "given with clip: rows are protected by clipping them")
        if self.noise and not self.clip:
            raise InvalidParameterError("noise", self.noise, "given with clip: noise hides only what is bounded")

    @property
    def late_s(self) -> float:
        """Seconds without a visit after which a node makes a walk."""
        return self.late_hops * max(self.hop_s, self.dwell_s)

    @property
    def starve_s(self) -> float:
        """Seconds without opening a message after which a node makes a walk."""
        return self.starve_hops * max(self.hop_s, self.dwell_s)

    @property
    def lanes(self) -> range:
        """The numbers of the run's walks."""
        return range(self.walks)

    def share(self, lane: int) -> int:
        """Return how many of the updates are that lane's; what does not divide goes to the first ones."""
        return self.updates // self.walks + (lane < self.updates % self.walks)

    @property
    def seconds(self) -> float:
        """How long the run takes by design: the hops of its longest walk, each of which dwells."""
        return self.share(0) * self.hops_per_update * self.dwell_s

    @property
    def clocks_s(self) -> float:
        """By how much members' clocks may differ."""
        return min(max(_CLOCKS * self.seconds, _LEAST_CLOCKS_S), _MOST_CLOCKS_S)

    @property
    def life_s(self) -> float:
        """Seconds after which what is still on its way is waited for by nobody."""
        if not self.hops_per_update:
            return _PATIENCE * self.starve_s
        return _PATIENCE * (self.late_s + _TAIL * self.hops_per_update * max(self.hop_s, self.dwell_s))

    def possible(self, now: float) -> float:
        """Return how many updates a walk can have had by then; whoever says more is lying, or a clock is wrong.

        So nobody ends a run with one message before it can have been walked.
        """
        if not self.hops_per_update:
            return math.inf
        return _HEAD_START + _FASTEST * max(0.0, now - self.since + self.clocks_s) / self.update_s

    @property
    def update_s(self) -> float:
        """Seconds from one update of a walk to the next, by design and at least; 0 where it is not said."""
        return self.hops_per_update * (self.dwell_s or _LEAST_HOP_S)

    def following(self, before: RunRules, now: float) -> RunRules:
        """Return the rules of a manifest made now, by which as much is possible already as was by those ``before``.

        Where an update takes longer than it did, for there are more members, say, the run counts as made earlier: else
        what was walked until now would be too much, and every honest model refused.
        """
        if not before.update_s:
            # Nobody knows what there was time for.
            return replace(self, since=0)
        slower = max(1.0, self.update_s / before.update_s)
        earlier = now + self.clocks_s - (now + before.clocks_s - before.since) * slower
        return replace(self, since=min(before.since, max(0, int(earlier))))

    def lane_of(self, walk_tag: bytes) -> int:
        """Return in which lane the walk of that tag is; where there are several, the first byte says it."""
        return walk_tag[0] if self.walks > 1 else 0

    def new_tag(self, lane: int) -> bytes:
        """Return a name for a walk that is made in that lane."""
        tag = os.urandom(_TAG_BYTES)
        return bytes([lane]) + tag[1:] if self.walks > 1 else tag

    def allow(self, header: Header, *, body_bytes: int) -> bool:
        """Return whether a header says nothing but what one of this run can say.

        Whoever can seal can write any number there: what is out of bounds must harm nobody.
        """
        if header.dummy:
            return not header.final
        if header.body_length != body_bytes or header.made_at > header.iteration:
            return False
        lane, tag = self.lane_of(header.walk_tag), header.walk_tag
        if lane not in self.lanes:
            return False
        if header.final:
            # Before the last update only a target ends a run.
            least = 1 if self.target else self.share(lane)
            return tag == final_tag(lane) and least <= header.iteration <= self.share(lane)
        return tag != final_tag(lane) and not header.vouch and header.iteration < self.share(lane)

    def to_text(self) -> str:
        """Return the rules as they stand in the manifest."""
        said = [name for name in _FIELDS.items() if getattr(self, name[1]) != _SELDOM.get(name[1])]
        values = (f"{text}={getattr(self, name):{'d' if name in _WHOLE else 'g'}}" for text, name in said)
        return " ".join([self.walk.kind, *values])

    @classmethod
    def from_text(cls, text: str) -> RunRules:
        """Read what :meth:`to_text` wrote; unknown and repeated names are refused."""
        kind, *parts = text.split(" ")
        values: dict[str, float] = {}
        for part in parts:
            text_name, _, value = part.partition("=")
            name = _FIELDS.get(text_name)
            if name is None or name in values:
                known = ", ".join(sorted(_FIELDS))
                raise ConfigError(f"the manifest's walk has {part[:40]!r}: must be one of {known}, once")
            try:
                values[name] = int(value) if name in _WHOLE else float(value)
            except ValueError:
                raise ConfigError(f"the manifest's walk has {part[:40]!r}: must be a number") from None
        missing = [name for name in ("late", "updates") if _FIELDS[name] not in values]
        if missing:
            raise ConfigError(f"the manifest's walk lacks {', '.join(missing)}")
        return cls(walk=Walk(kind), **values)  # type: ignore[arg-type]


def final_tag(lane: int) -> bytes:
    """Return what stands in the place of a walk's tag where the model of that lane is finished."""
    return bytes([lane]) + bytes(_TAG_BYTES - 1)


def walks_in(text: str) -> int:
    """Return how many walks a manifest's rules ask for, whatever else they say."""
    said = [part.removeprefix("walks=") for part in text.split(" ") if part.startswith("walks=")]
    return int(said[0]) if said and said[0].isdecimal() else 1
