"""The run manifest: what a model looks like on the wire, and what all members agree to run. The root signs it.

It holds the specification of the run as the keeper gave it (:class:`veilwalk.training.RunSpec`, the options of ``node
manifest``), and the figures that the keeper's machine worked out from it. :class:`RunRules` is what nodes make of both.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from veilwalk.core import validate
from veilwalk.core.errors import ConfigError, InvalidParameterError, ProtocolError
from veilwalk.core.geometry import MessageGeometry
from veilwalk.core.payload import array_bytes
from veilwalk.core.walk import Walk
from veilwalk.node.members._signed import SignedDocument, decode_hex, write_record
from veilwalk.node.sealing import DIGEST_BYTES, RUN_ID_BYTES, Header, Suite, bucket_for, check_recipients, need_length
from veilwalk.training import MANIFEST, RunSpec

if TYPE_CHECKING:
    # Types only: learning takes long to import, and a node must start quickly.
    from veilwalk.learning import Params
    from veilwalk.node.members._roster import Roster

DTYPES = ("<f2", "<f4", "<f8", "<i4", "<i8")
"""What arrays may hold, always little-endian."""

#: The walks that a node can play: it forwards everything it gets, at once, whomever it came from.
NODE_WALKS = ("simple", "non-backtracking")

MAX_UPDATES = 2**32 - 2
#: A walk is one of so many at most, and from meeting to meeting they have so many lanes: one byte says which.
MAX_WALKS, MAX_LANES = 64, 256
#: Of a member under the end of a walk: the SHA-256 of its TLS key, and an Ed25519 signature.
SIGNATURE_BYTES = 32 + 64
_TAG_BYTES = 8
# A message is opened within so many times the hops that one takes on average, save once in three million; and what has
# not been, with all the time that is allowed for members that are away, so many times over, nobody waits for any more.
_TAIL = 15
_PATIENCE = 4
_LAW = re.compile(r"far:([1-9][0-9]{0,3})()|uniform-node:([1-9][0-9]{0,3}):([1-9][0-9]{0,3})", re.ASCII)

#: What no later version of a manifest may change: messages under way, and models on disk, would fit no more.
FIXED = ("run_id", "network", "suite", "arrays", "payload", "recipients", "seed", "walks", "meet", "bucket_bytes")
_MAX_ARRAYS = 10_000
_MAX_DIMENSIONS = 8
_MAX_SIZE = 2**31
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,199}", re.ASCII)
_TEXT = re.compile(r"[ -~]{1,400}", re.ASCII)


def node_walk(walk: Walk) -> Walk:
    """Return ``walk``, or refuse one that nodes cannot play."""
    if walk.kind not in NODE_WALKS:
        raise InvalidParameterError("walk", str(walk), "one of " + ", ".join(NODE_WALKS))
    return walk


# ---- rules ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """What the keeper's machine works out from the specification of a run and its network.

    Attributes:
        late_hops: A node that has seen no walk for so many hops makes one (:func:`.late_after_hops`).
        starve_hops: So does one that has opened nothing for so many (:func:`.starved_after_hops`).
        hops_per_update: By design, from one update of a walk to the next; 0 where it is not said.
        visits_per_link: How often the same bytes come to a member on their way, on average, for each link of it; 0
            where it is not said.
        clip, noise, rows, most_updates, decay, fade: What updates go through (:class:`veilwalk.learning.Protection`).
        train_probability: Chance that whoever opens a model trains it, and does not only seal it again.
        signatures: So many members must sign the end of a walk.
    """

    late_hops: float
    starve_hops: float = 1e12
    hops_per_update: float = 0.0
    visits_per_link: float = 0.0
    clip: float = 0.0
    noise: float = 0.0
    rows: int = 0
    most_updates: int = 0
    train_probability: float = 1.0
    decay: int = 0
    fade: float = 0.0
    signatures: int = 1

    def __post_init__(self) -> None:
        measured = {"late_hops": self.late_hops, "starve_hops": self.starve_hops}
        names = ("hops_per_update", "visits_per_link", "clip", "noise", "fade")
        sizes = {name: getattr(self, name) for name in names}
        validate.finite(**measured, **sizes)
        validate.more_than(0, **measured)
        validate.at_least(0, **sizes)
        validate.integer(1, signatures=self.signatures)
        if not 0.0 < self.train_probability <= 1.0:
            raise InvalidParameterError("train_probability", self.train_probability, "above 0 and at most 1")
        validate.integer(0, rows=self.rows, most_updates=self.most_updates, decay=self.decay)
        if self.rows and not self.clip:
            raise InvalidParameterError("rows", self.rows, "given with clip: rows are protected by clipping them")
        if self.noise and not self.clip:
            raise InvalidParameterError("noise", self.noise, "given with clip: noise hides only what is bounded")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRules(RunFigures):
    """The rules of a run as its nodes follow them: the figures, and what the specification says.

    Attributes:
        walk: How messages walk.
        updates: The model is finished after so many updates.
        target: It is also finished when it reaches this accuracy on the run's public test set; 0 never.
        evaluations: About how often it is tried on that set (:func:`veilwalk.learning.evaluation_points`).
        hop_s: Seconds a hop takes, by which nodes count hops they do not see.
        dwell_s: Seconds a message stays at every node, trained or not; 0 sends it on at once, and then a neighbour
            that keeps time can tell who trained.
        walks: So many models walk at once, each with its share of the updates; the run's is their mean.
        meet: All walks are averaged after so many updates of each; 0: never. What one of them does between two meetings
            is its lane: those of the first round are numbered from 0, then those of the second, and so on.
        max_loss_ratio, max_step: Tests of received models (:class:`veilwalk.learning.Acceptance`).
    """

    walk: Walk
    updates: int
    target: float = 0.0
    evaluations: int = 40
    hop_s: float = 0.05
    dwell_s: float = 0.0
    walks: int = 1
    meet: int = 0
    max_loss_ratio: float = 0.0
    max_step: float = 0.0

    def __post_init__(self) -> None:
        RunFigures.__post_init__(self)
        node_walk(self.walk)
        if self.updates > MAX_UPDATES:
            raise InvalidParameterError("updates", self.updates, f"at most {MAX_UPDATES}")
        if self.walks > min(MAX_WALKS, self.updates):
            raise InvalidParameterError("walks", self.walks, f"at most {MAX_WALKS}, and no more than updates")
        if self.meet and self.target:
            raise InvalidParameterError("meet", self.meet, "left out where a target ends the walks: each ends alone")
        if len(self.lanes) > MAX_LANES:
            least = -(-self.updates // (MAX_LANES // self.walks * self.walks))
            raise InvalidParameterError("meet", self.meet, f"at least {least}: {MAX_LANES} times a walk ends, no more")
        if self.updates // self.walks <= self.begin(self.lanes[-1]):
            need = f"a multiple of walks ({self.walks}), for some walks would have nothing left to do after they met"
            raise InvalidParameterError("updates", self.updates, need)
        validate.finite(hop_s=self.hop_s, dwell_s=self.dwell_s)
        validate.more_than(0, hop_s=self.hop_s)
        validate.at_least(0, dwell_s=self.dwell_s)
        if self.noise and self.max_loss_ratio:
            need = "without loss where there is noise, which does not cover tests on a node's own rows; norm is allowed"
            raise InvalidParameterError("accept", f"loss:{self.max_loss_ratio:g}", need)

    @classmethod
    def from_spec(cls, spec: RunSpec, figures: RunFigures) -> RunRules:
        """Return the rules of a specification that leaves nothing open, and its figures."""
        end, timing, acceptance = spec.end, spec.timing, spec.learning.acceptance
        return cls(
            walk=Walk(str(spec.scheme.walk)),
            updates=end.updates,
            walks=end.walks,
            meet=end.meet,
            target=end.target_accuracy or 0.0,
            evaluations=end.evaluations,
            hop_s=timing.hop_s,
            dwell_s=timing.dwell_s or 0.0,
            max_loss_ratio=0.0 if acceptance is None else acceptance.max_loss_ratio,
            max_step=0.0 if acceptance is None else acceptance.max_step,
            **{item.name: getattr(figures, item.name) for item in fields(RunFigures)},
        )

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
        """The numbers of the run's lanes."""
        return range(self.walks * self.rounds)

    @property
    def rounds(self) -> int:
        """How often all walks end: at each meeting, and with the run."""
        return -(-self.updates // (self.walks * self.meet)) if self.meet else 1

    def walk_of(self, lane: int) -> int:
        """Return which walk a lane is of."""
        return lane % self.walks

    def begin(self, lane: int) -> int:
        """Return how many updates a model has had when that lane begins."""
        return lane // self.walks * self.meet

    def share(self, lane: int) -> int:
        """Return with how many updates that lane ends; what does not divide among walks goes to the first ones."""
        share = self.updates // self.walks + (self.walk_of(lane) < self.updates % self.walks)
        return min(share, self.begin(lane) + self.meet) if self.meet else share

    @property
    def seconds(self) -> float:
        """How long the run takes by design: the hops of its longest walk, each of which dwells."""
        return -(-self.updates // self.walks) * self.hops_per_update * self.dwell_s

    @property
    def life_s(self) -> float:
        """Seconds after which what is still on its way is waited for by nobody."""
        if not self.hops_per_update:
            return _PATIENCE * self.starve_s
        return _PATIENCE * (self.late_s + _TAIL * self.hops_per_update * max(self.hop_s, self.dwell_s))

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
        signed = header.body_length - body_bytes
        most = header.final * self.signatures * SIGNATURE_BYTES
        if signed % SIGNATURE_BYTES or not 0 <= signed <= most or header.made_at > header.iteration:
            return False
        lane, tag = self.lane_of(header.walk_tag), header.walk_tag
        if lane not in self.lanes or header.final != (tag == final_tag(lane)):
            return False
        if header.final:
            # Before the last update only a target ends a run.
            least = 1 if self.target else self.share(lane)
            return least <= header.iteration <= self.share(lane)
        return self.begin(lane) <= header.iteration < self.share(lane)


def final_tag(lane: int) -> bytes:
    """Return what stands in the place of a walk's tag where the model of that lane is finished."""
    return bytes([lane]) + bytes(_TAG_BYTES - 1)


# ---- law -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LawRule:
    """A destination law as a rule: evenly over everybody at distances ``nearest`` to ``farthest``, None for any.

    ``far:4`` is everybody at distance 4 or more, ``uniform-node:2:6`` everybody at distances 2 to 6, and ``far:1``
    everybody: in a complete network there is no other rule. Every member works
    out for whom it may seal from the roster alone: when members join or leave no new law is needed.
    """

    nearest: int
    farthest: int | None = None

    def __post_init__(self) -> None:
        if self.nearest < 1:
            raise InvalidParameterError("law", str(self), "of distance 1 or more")
        if self.farthest is not None and self.farthest < self.nearest:
            raise InvalidParameterError("law", str(self), "of a farthest distance not below the nearest")

    @classmethod
    def parse(cls, text: str) -> LawRule:
        """Read a rule from its text, or refuse what is none."""
        if match := _LAW.fullmatch(text):
            return cls(*(int(number) for number in match.groups() if number))
        raise InvalidParameterError("law", text[:80], "a rule, far:R or uniform-node:LO:HI, such as far:4")

    def __str__(self) -> str:
        return f"far:{self.nearest}" if self.farthest is None else f"uniform-node:{self.nearest}:{self.farthest}"

    def shares(self, roster: Roster, node: str) -> Mapping[str, float]:
        """Return how likely ``node`` seals for each other member.

        Where nobody is so far, or so near, it is whoever is farthest: a change of the network must not stop a run.

        Raises:
            ConfigError: The node is next to all others, who would know whom an update came from.
        """
        distances = roster.distances(node)
        most = self.farthest or max(distances.values())
        chosen = [member for member, hops in distances.items() if self.nearest <= hops <= most]
        reach = max(distances.values())
        if not chosen and reach < 2:
            raise ConfigError(f"{node} is next to all other members: the law {self} needs one two hops away")
        chosen = chosen or [member for member, hops in distances.items() if hops == reach]
        return {member: 1 / len(chosen) for member in sorted(chosen)}


# ---- manifest ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ArraySpec:
    """Name, shape and type of one array of the model."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidParameterError("name", self.name[:80], "1 to 200 letters, digits, _ . / -")
        if self.dtype not in DTYPES:
            raise InvalidParameterError("dtype", self.dtype, f"one of {', '.join(DTYPES)}")
        for size in self.shape:
            validate.integer(shape=size)
        if len(self.shape) > _MAX_DIMENSIONS or not all(0 < size < _MAX_SIZE for size in self.shape):
            raise InvalidParameterError("shape", self.shape, f"at most {_MAX_DIMENSIONS} positive sizes")


@dataclass(frozen=True, kw_only=True)
class Manifest(SignedDocument):
    """One run: its id, the arrays of its model in the order they travel, and what everybody runs.

    Args:
        run_id: 16 bytes, fresh for each run.
        network: Whose members run it, by the id in their roster; the run's own id unless given.
        arrays: The model; fixes the order, shape and type of every array.
        suite: How messages are sealed.
        spec: The run, with nothing left open: walk, number of recipients, learner and dwell are said. Its law is a rule
            (:class:`LawRule`), which follows every change of the roster, or None where it is a file.
        figures: What was worked out from it.
        n_features: Numbers in a row of everybody's data.
        n_classes: Classes; 0 for real labels.
        norm_bound: The largest Euclidean norm of a model that is accepted.
        law_digest: SHA-256 of the file of the destination law (hexadecimal); empty where it is a rule.
        graph_digest: The digest of the graph that law and figures were made for.
        test_digest: SHA-256 of the public test set (hexadecimal); empty where the run has none.
    """

    kind = "manifest"
    form = "veilwalk-manifest-3"
    limit = 4 * 1024 * 1024
    readers = {"spec": MANIFEST.read}  # noqa: RUF012

    run_id: bytes
    arrays: tuple[ArraySpec, ...]
    suite: Suite
    spec: RunSpec
    figures: RunFigures
    n_features: int
    n_classes: int
    graph_digest: str
    norm_bound: float = 1e6
    law_digest: str = ""
    network: bytes = b""
    test_digest: str = ""
    version: int = 1
    prev_digest: bytes | None = None
    expires: int | None = None

    def __post_init__(self) -> None:
        SignedDocument.__post_init__(self)
        object.__setattr__(self, "network", self.network or self.run_id)
        object.__setattr__(self, "norm_bound", float(self.norm_bound))
        # Without what is no business of nodes: the network and the data that a simulation would have.
        object.__setattr__(self, "spec", MANIFEST.read(self.spec.params(MANIFEST)))
        need_length(RUN_ID_BYTES, run_id=self.run_id, network=self.network)
        if not 1 <= len(self.arrays) <= _MAX_ARRAYS or len({spec.name for spec in self.arrays}) != len(self.arrays):
            raise InvalidParameterError("arrays", f"{len(self.arrays)} arrays", f"1 to {_MAX_ARRAYS}, no name twice")
        validate.more_than(0, norm_bound=self.norm_bound)
        validate.finite(norm_bound=self.norm_bound)
        validate.integer(1, n_features=self.n_features)
        validate.integer(0, n_classes=self.n_classes, expires=self.expires or 0)
        self._check_spec()
        for name in ("law_digest", "graph_digest", "test_digest"):
            if getattr(self, name) or name == "graph_digest":
                decode_hex(getattr(self, name), DIGEST_BYTES, name)
        _ = self.bucket_bytes

    def _check_spec(self) -> None:
        scheme, learning = self.spec.scheme, self.spec.learning
        settled = {"walk": scheme.walk, "dwell": self.spec.timing.dwell_s, "learner": learning.learner}
        for name, value in settled.items():
            if value is None:
                raise InvalidParameterError(name, value, "settled: a manifest leaves nothing open")
        check_recipients(scheme.recipients or 0)
        if not _TEXT.fullmatch(self.learner):
            raise InvalidParameterError("learner", self.learner[:80], "at most 400 printable ASCII characters")
        if (scheme.law is None) == (not self.law_digest):
            raise InvalidParameterError("law", scheme.law, "a rule, or a file named by law_digest, and not both")
        if scheme.law is not None:
            LawRule.parse(scheme.law)
        _ = self.rules

    @cached_property
    def rules(self) -> RunRules:
        """The rules that nodes follow."""
        return RunRules.from_spec(self.spec, self.figures)

    @property
    def learner(self) -> str:
        """The spec of the learner."""
        return str(self.spec.learning.learner)

    @property
    def shape(self) -> dict[str, int]:
        """The shape of everybody's data, for :func:`veilwalk.learning.make_learner`."""
        return {"n_features": self.n_features, "n_classes": self.n_classes}

    @property
    def law(self) -> str:
        """The rule of the destination law; empty where it is a file."""
        return self.spec.scheme.law or ""

    @property
    def recipients(self) -> int:
        """For how many members a message is sealed, the first of whom opens it."""
        return self.spec.scheme.recipients or 1

    @cached_property
    def body_bytes(self) -> int:
        """Length of an encoded model."""
        return sum(array_bytes(self.spec.learning.payload, spec.shape, spec.dtype) for spec in self.arrays)

    @cached_property
    def bucket_bytes(self) -> int:
        """What every body of the run is padded to: the smallest bucket that holds the model, signed as an end."""
        return bucket_for(self.body_bytes + SIGNATURE_BYTES * self.figures.signatures)

    @cached_property
    def message_bytes(self) -> int:
        """Length of every message of the run, in whichever epoch."""
        suite, bucket = self.suite.geometry_name, self.bucket_bytes
        return MessageGeometry(suite=suite, bucket_bytes=bucket, recipients=self.recipients).message_bytes

    @cached_property
    def data(self) -> bytes:
        """Its canonical JSON."""
        return write_record(self, self.form, spec=self.spec.params(MANIFEST))

    def check_follows(self, current: Self | None, name: str) -> None:
        """Refuse a manifest that does not follow ``current``, or changes what messages under way must fit."""
        if current is not None and self.run_id != current.run_id:
            need = "a new run begins with an empty state folder"
            raise ProtocolError(f"{name}: of another run than the one before: {need}")
        SignedDocument.check_follows(self, current, name)
        if current is None:
            return
        held, own = (each.spec.params() | vars(each) for each in (current, self))
        for field in FIXED:
            if own[field] != held[field]:
                raise ProtocolError(f"{name}: version {self.version} has other {field}: that needs a new run")

    def change(self, **changes: Any) -> Manifest:
        """Return the version after this one with some fields changed; what no version may change is refused."""
        changed = replace(self, **changes, version=self.version + 1, prev_digest=self.digest)
        changed.check_follows(self, "manifest")
        return changed


def array_specs(params: Params) -> tuple[ArraySpec, ...]:
    """Return the specs of ``params`` in their order; types of the other byte order are named by their value."""
    return tuple(
        ArraySpec(name=name, shape=tuple(array.shape), dtype=array.dtype.newbyteorder("<").str)
        for name, array in params.items()
    )
