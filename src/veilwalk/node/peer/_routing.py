"""Where a message goes next, for whom a model is sealed, and where the chance in both comes from.

Chance is the operating system's, and cannot be seeded: the generators of :mod:`veilwalk.core.randomness` are another
type on purpose, so a node cannot be given one by mistake. The walks are those of :mod:`veilwalk.walks`, as one node
plays them: it knows its own neighbours, and which of them brought the message. The destination law is a rule of the
manifest's, or a row of a file.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from veilwalk.core.errors import ConfigError, InputFileError, InvalidParameterError
from veilwalk.core.files import name_os_errors
from veilwalk.core.records import write_atomically
from veilwalk.core.walk import Walk
from veilwalk.node.members import LawRule, Manifest, Roster, canonical_json, node_walk, parse_canonical, read_bounded

_LAW_LIMIT = 16 * 1024 * 1024
_ROW_FILE = "law.json"


@dataclass(frozen=True, slots=True)
class DestinationRow:
    """For whom this node seals: one row of the destination law."""

    members: tuple[str, ...]
    shares: tuple[float, ...]

    @classmethod
    def from_shares(cls, shares: Mapping[str, float]) -> DestinationRow:
        """Return the row with the given probabilities.

        Raises:
            InvalidParameterError: They are no probabilities.
        """
        positive = {member: share for member, share in shares.items() if share != 0}
        if not positive or not all(share > 0 for share in positive.values()) or abs(sum(positive.values()) - 1) > 1e-9:
            raise InvalidParameterError("law", f"row of {len(positive)} members", "probabilities that sum to 1")
        return cls(tuple(positive), tuple(positive.values()))

    def choose(self, draws: OsDraws, count: int = 1) -> tuple[str, ...]:
        """Return the members to seal for: so many different ones, or all there are, drawn one after the other.

        Each draw is in the proportions of those not drawn yet (successive sampling).
        """
        if 1 < count >= len(self.members):
            return self.members
        weights = np.array(self.shares)
        chosen = []
        for _ in range(count):
            sums = weights.cumsum()
            left = np.flatnonzero(weights)
            # Sums of probabilities may end a rounding error below 1.
            place = min(int(np.searchsorted(sums, draws.unit() * sums[-1], side="right")), int(left[-1]))
            weights[place] = 0.0
            chosen.append(self.members[place])
        return tuple(chosen)


def draw_evenly(draws: OsDraws, keys: Sequence[bytes], count: int) -> list[bytes]:
    """Return so many different ones of ``keys``, or all there are, every choice as likely."""
    left = list(keys)
    return [left.pop(draws.below(len(left))) for _ in range(min(count, len(left)))]


@dataclass(frozen=True, slots=True)
class Law:
    """For whom a node seals, under whatever roster.

    Attributes:
        rule: By which the node works it out for itself, under every roster anew; None where it is a row of a file.
        shares: That row, by the names of members.
        names: All the names that the file has; none where that is not known.
    """

    rule: LawRule | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    names: tuple[str, ...] = ()

    def row(self, roster: Roster, node: str) -> DestinationRow:
        """Return the row of ``node`` under ``roster``; of a file those that stay, in the same proportion.

        On an overlay it is empty: who has which key is not known, and all keys but a few are alike.

        Raises:
            ConfigError: There is nobody that it may seal for.
        """
        if roster.is_overlay:
            if self.rule != LawRule(2):
                raise ConfigError("on a secret overlay the law is far:2: members know no distances")
            return DestinationRow((), ())
        if self.rule is not None:
            return DestinationRow.from_shares(self.rule.shares(roster, node))
        members = set(roster.ids)
        left = {member: share for member, share in self.shares.items() if member in members}
        if not left:
            raise ConfigError(f"of those that {node} may seal for, roster version {roster.version} has none: a new law")
        total = 1.0 if len(left) == len(self.shares) else sum(left.values())
        return DestinationRow.from_shares({member: share / total for member, share in left.items()})

    def left_out(self, roster: Roster) -> tuple[str, ...]:
        """Return the members that the file does not name: nobody seals for them. A rule knows every member."""
        return tuple(sorted(set(roster.ids) - set(self.names))) if self.names else ()


def law_of(manifest: Manifest, roster: Roster, node: str, *, file: Path | None, state: Path) -> Law:
    """Return for whom this node seals: by the manifest's rule, or by its row of the law that the manifest names.

    The row is read once and kept under the names of the members: where the law has no names it is numbered by the
    members of the roster of that time, and a later one may have others.
    """
    if manifest.law:
        return Law(rule=LawRule.parse(manifest.law))
    stored = _read_stored(state, manifest)
    if stored is not None:
        return stored
    if file is None:
        raise ConfigError("the manifest names a law in a file: set law to it")
    digest = file_digest(file, "law")
    if digest != manifest.law_digest:
        raise ConfigError(f"law {file}: SHA-256 {digest[:12]}..., the manifest's is {manifest.law_digest[:12]}...")
    law = read_law(file, roster.ids, node)
    write_atomically(
        state / _ROW_FILE, canonical_json({"digest": digest, "names": list(law.names), "shares": dict(law.shares)})
    )
    return law


def members_left_out(state: Path, manifest: Manifest | None, roster: Roster | None) -> tuple[str, ...]:
    """Return the members that nobody seals for, as the node of that folder knows."""
    if manifest is None or roster is None or manifest.law:
        return ()
    stored = _read_stored(state, manifest)
    return () if stored is None else stored.left_out(roster)


def _read_stored(state: Path, manifest: Manifest) -> Law | None:
    path = state / _ROW_FILE
    if not path.exists():
        return None
    content = parse_canonical(read_bounded(path, _LAW_LIMIT), str(path))
    if content["digest"] != manifest.law_digest or "names" not in content:
        return None
    return Law(shares=dict(content["shares"]), names=tuple(content["names"]))


def file_digest(path: Path, name: str) -> str:
    """Return the SHA-256 of a file that the manifest names, hexadecimal."""
    with name_os_errors(InputFileError, f"{name} {path}"):
        return hashlib.sha256(path.read_bytes()).hexdigest()


def read_law(path: Path, members: Sequence[str], node: str) -> Law:
    """Return the row of ``node`` in a destination law written by ``veilwalk design --graph ... --out law.npz``.

    Members are found by name. In a law whose nodes have no names they stand in the order of their names, and must be as
    many. Reads with NumPy alone: a node must start quickly, and needs no more of a law than its row.
    """
    try:
        with np.load(path, allow_pickle=False) as law:
            if str(law["format"]) != "veilwalk-law-1" or str(law["kind"]) != "destination":
                raise InputFileError(f"law {path}: not a destination law; make one with design --graph")
            indptr, indices, data = law["indptr"], law["indices"], law["data"]
            names = tuple(map(str, law["labels"])) if "labels" in law.files else None
    except (OSError, KeyError, ValueError) as error:
        if isinstance(error, InputFileError):
            raise
        raise InputFileError(f"law {path}: not a law file ({error})") from error
    names = _names_of_rows(path, names, len(indptr) - 1, members)
    if node not in names:
        raise ConfigError(f"law {path} does not name {node}: it needs a law of the new members, or one by rule (far:R)")
    index = names.index(node)
    row = slice(indptr[index], indptr[index + 1])
    shares = {names[int(column)]: float(share) for column, share in zip(indices[row], data[row], strict=True)}
    if shares.get(node, 0.0) != 0.0:
        raise InputFileError(f"law {path}: {node} may choose itself")
    # Refuses what is no law.
    DestinationRow.from_shares(shares)
    return Law(shares={member: share for member, share in shares.items() if share}, names=names)


def _names_of_rows(path: Path, names: tuple[str, ...] | None, size: int, members: Sequence[str]) -> tuple[str, ...]:
    # Numbers are names too where members are called so.
    called = tuple(map(str, range(size))) if names is None else names
    if set(called) & set(members):
        return called
    if names is not None or size != len(members):
        raise ConfigError(f"law {path} is for {size} nodes called otherwise: the roster has {len(members)} members")
    return tuple(members)


class OsDraws:
    """Draws from the operating system's source: of the two kinds that a node makes."""

    def below(self, count: int) -> int:
        """Return a whole number from 0 to ``count`` - 1, each as likely."""
        return secrets.randbelow(count)

    def unit(self) -> float:
        """Return a number from 0 to 1, 1 excluded, with 53 random bits."""
        return math.ldexp(secrets.randbits(53), -53)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextHop:
    """The rule of the walk at one node.

    Attributes:
        walk: How messages walk.
        neighbours: This node's neighbours, sorted as in the graph.
    """

    walk: Walk
    neighbours: tuple[str, ...]

    def __post_init__(self) -> None:
        node_walk(self.walk)
        if not self.neighbours:
            raise InvalidParameterError("neighbours", self.neighbours, "at least one")

    def choose(self, draws: OsDraws, *, came_from: str | None, avoid: frozenset[str] = frozenset()) -> str:
        """Return the neighbour a message goes to.

        Args:
            draws: Where chance comes from.
            came_from: The neighbour that brought it; None for a walk made here.
            avoid: Neighbours that do not answer; ignored when there is no other.
        """
        options = [peer for peer in self.neighbours if peer not in avoid] or list(self.neighbours)
        if self.walk.kind == "simple":
            return options[draws.below(len(options))]
        onward = [peer for peer in options if peer != came_from] or options
        return onward[draws.below(len(onward))]
