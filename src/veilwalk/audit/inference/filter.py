"""The filter: exact Bayes for members who pool everything they see, for one recipient and any walk that is a chain.

What they see are :class:`MemberLog` s: every hop at which the token was with one of them, with times; which ciphertexts
are the same; what they drew themselves; and, where ``counted``, how many updates a message that they open says there
were. Where they do not see the token counts too. A log begins when a member opened a ciphertext and drew the next
recipients, whom it knows, and ends when a member opens one again. At its start the token's state is known for certain,
so what went before tells nothing more: segments are inferred each by itself. One hop costs states * nodes * degree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from veilwalk.audit._settings import AuditSettings
from veilwalk.audit._sightings import Sightings
from veilwalk.chains import States
from veilwalk.core.arrays import BoolArray, FloatArray, IntArray, normalised
from veilwalk.core.progress import Progress, silent
from veilwalk.design import Scheme
from veilwalk.walks import draw_recipients, token_paths

#: All counts are told apart.
EVERY = np.iinfo(np.int64).max
_UNASKED, _UNKNOWN = -2, -1
# Segments that are followed before progress is told.
_BATCH = 64


@dataclass(frozen=True, eq=False)
class MemberLog:
    """One segment as the members saw it: a row each time that one of them held the token.

    Attributes:
        clock: When.
        node: The member.
        came_from: Who handed it over.
        went_to: Whom the member handed it to.
        new: Whether the ciphertext is another than the one they last sent on; not so in the first row.
        drawn: The recipients that the member of the first row drew.
        updates: How many updates there were from that draw to the opening in the last row, as the opened message says.
        row: Which update each ciphertext belongs to: to file answers under, never to infer from.
    """

    clock: IntArray
    node: IntArray
    came_from: IntArray
    went_to: IntArray
    new: BoolArray
    drawn: IntArray
    updates: int
    row: IntArray


def member_log(path: IntArray, clocks: IntArray, drawn: IntArray, member: BoolArray, first_row: int) -> MemberLog:
    """Return what members saw of one segment.

    Args:
        path: Where the token was from the hop before the first opening to the hop after the last.
        clocks: When the updates from the first opening to the last arrived, both included, one a row of the run.
        drawn: The recipients drawn at the first opening.
        member: Who the members are.
        first_row: The row of the run that the first clock belongs to.
    """
    inner = path[1:-1]
    held = np.flatnonzero(member[inner])
    clock = held + clocks[0]
    # Which ciphertext is handed over, and which one leaves: another one at an opening.
    arrives = np.searchsorted(clocks, clock, side="left")
    leaves = np.searchsorted(clocks, clock, side="right")
    new = np.r_[False, arrives[1:] != leaves[:-1]]
    return MemberLog(
        clock=clock,
        node=inner[held].astype(np.int64),
        came_from=path[held].astype(np.int64),
        went_to=path[held + 2].astype(np.int64),
        new=new,
        drawn=drawn,
        updates=len(clocks) - 2,
        row=first_row + arrives,
    )


class Filter:
    """Who made what members saw, by following where the token can be and whom its ciphertext can be for."""

    def __init__(self, states: States, law: sparse.csr_array, *, counted: bool, told_apart: int = EVERY) -> None:
        """Prepare for a walk and a law; ``counted``: opened messages say how many updates there were.

        Then so many of them were not seen. Fewer than ``told_apart`` are told apart, more are only that; each of them
        that is costs as much again.
        """
        ahead = sparse.csr_array(states.transition_matrix)
        back = sparse.csr_array(ahead.T)
        self._states, self._told_apart = states, told_apart if counted else 0
        # Copies: of one type whatever the walk, so that the kernel is compiled once.
        self._node = np.array(states.node, dtype=np.int64)
        self._tables: tuple[Any, ...] = tuple(
            np.array(table, dtype=kind)
            for matrix in (ahead, back, law)
            for table, kind in ((matrix.indptr, np.int64), (matrix.indices, np.int64), (matrix.data, np.float64))
        )

    def opened(self, logs: Sequence[MemberLog], member: BoolArray, progress: Progress = silent) -> FloatArray:
        """Return who made what was opened at the end of each segment, a row a segment; no member may have made it.

        ``member`` is a mask of nodes, the same for all segments or a row each. Given the destination, nothing that is
        seen after the first sight of a ciphertext tells more about its maker: this is all there is to know.
        """
        found = [self._answers(logs, member, at, end=True) for at in batches(logs, progress)]
        return np.concatenate([weights for weights, _ in found])

    def first_sights(
        self, logs: Sequence[MemberLog], member: BoolArray, progress: Progress = silent
    ) -> tuple[FloatArray, IntArray]:
        """Return who made each new ciphertext by all that was known when it was first seen, and the row it belongs to.

        What was seen of it later is not used: it tells about its destination, and through that a little about who made
        it. One that was opened at once is left out: :meth:`opened` answers that.
        """
        if self._told_apart:
            raise ValueError("how many updates there were is known only when a message is opened")
        found = [self._answers(logs, member, at, end=False) for at in batches(logs, progress)]
        return np.concatenate([weights for weights, _ in found]), np.concatenate([rows for _, rows in found])

    def _answers(
        self, logs: Sequence[MemberLog], member: BoolArray, at: slice, *, end: bool
    ) -> tuple[FloatArray, IntArray]:
        mine = logs[at]
        masks = np.atleast_2d(member) if member.ndim == 1 else member[at]
        group = np.zeros(len(mine), dtype=np.int64) if member.ndim == 1 else np.arange(len(mine))
        windows = [self._goals(log, end=end) for log in mine]
        columns: list[Any] = [np.concatenate(column).astype(np.int64) for column in zip(*windows, strict=True)]
        bounds = np.cumsum([0] + [len(log.clock) - 1 for log in mine])
        # How many updates they did not see: so many more than the fewest there may have been at any time.
        unseen = np.array([log.updates - int(log.new.sum()) for log in mine])
        slack, more = np.clip(unseen, 0, self._told_apart), unseen >= self._told_apart
        out = np.zeros((bounds[-1], masks.shape[1]))
        drawn = np.array([log.drawn[0] for log in mine])
        frees = np.ascontiguousarray(~masks[:, self._node])
        from veilwalk.audit.inference._kernels_filter import follow_segments

        segment_tables = (frees, group, bounds, drawn, slack, more)
        follow_segments(*(*self._tables, self._node, *segment_tables, *columns, out))
        asked = columns[-1] != _UNASKED
        return normalised(out[asked]), np.concatenate([log.row[1:] for log in mine])[asked]

    def _goals(self, log: MemberLog, *, end: bool) -> tuple[Any, ...]:
        """What lies between two sightings, and what is asked there."""
        new = log.new[1:]
        goal = np.full(len(new), _UNASKED)
        if end:
            goal[np.flatnonzero(new)[-1:]] = log.node[-1]
        else:
            goal[:-1][new[:-1]] = _UNKNOWN
        return *windows(self._states, log), goal


def windows(states: States, log: MemberLog) -> tuple[npt.NDArray[Any], ...]:
    """Return what lies between two sightings: start, hops, last node, state at the sighting, new or not."""
    start = states.after(log.node[:-1], log.went_to[:-1])
    target = states.after(log.came_from[1:], log.node[1:])
    return start, np.diff(log.clock) - 2, log.came_from[1:], target, log.new[1:]


def segments(
    scheme: Scheme,
    settings: AuditSettings,
    *,
    seen: Sightings,
    lanes: IntArray,
    ends: IntArray,
    member: BoolArray,
) -> list[MemberLog]:
    """Return what members saw from one opening to another, for pairs of rows in which they opened.

    ``member`` is one mask of nodes, or a row a pair.
    """
    masks = np.broadcast_to(member, (len(ends), scheme.graph.n_nodes))
    lane_of, final = lanes[ends[:, 0]], seen.clock[ends[:, 1]]
    drawn = _drawn(scheme, settings, seen, lanes, ends[:, 0])
    logs: dict[int, MemberLog] = {}
    for lane in np.unique(lane_of):
        mine = np.flatnonzero(lane_of == lane)
        path = _walked(scheme, settings, int(lane), int(final[mine].max()) + 1)
        for place in mine:
            first, last = (int(row) for row in ends[place])
            clocks = seen.clock[first : last + 1]
            part = path[clocks[0] - 1 : clocks[-1] + 2]
            logs[int(place)] = member_log(part, clocks, drawn[place], masks[place], first)
    return [logs[place] for place in range(len(ends))]


def _drawn(scheme: Scheme, settings: AuditSettings, seen: Sightings, lanes: IntArray, rows: IntArray) -> IntArray:
    """Return for whom was sealed at the openings in these rows, a row each."""
    if scheme.recipients == 1:
        return seen.destination[rows + 1, np.newaxis]
    return draw_recipients(
        scheme.graph,
        scheme.law.rows,
        scheme.recipients,
        seed=settings.seed,
        lane=lanes[rows],
        source=seen.destination[rows],
        clock=seen.clock[rows],
    )


def _walked(scheme: Scheme, settings: AuditSettings, lane: int, hops: int) -> IntArray:
    paths = token_paths(scheme.graph, hops=hops, lanes=1, seed=settings.seed, walk=scheme.walk, first_lane=lane)
    return np.asarray(paths[0])


def batches(logs: Sequence[MemberLog], progress: Progress) -> Iterator[slice]:
    """Yield some segments after the other, and tell so."""
    for first in range(0, len(logs), _BATCH):
        progress("filtering", first, len(logs), "updates")
        yield slice(first, first + _BATCH)


def straight_back(scheme: Scheme, settings: AuditSettings, *, seen: Sightings, lanes: IntArray) -> float:
    """Return the share of updates after which the token went straight back: who had handed it over knows the maker."""
    back = total = 0
    for lane in np.unique(lanes):
        mine = np.flatnonzero(lanes == lane)
        path = _walked(scheme, settings, int(lane), int(seen.clock[mine[-1]]) + 2)
        clock, giver = seen.clock[mine], seen.last_hop[mine]
        waited = (path[clock + 1] == path[clock]) & (path[clock + 2] == giver)
        back += int(((path[clock + 1] == giver) | waited).sum())
        total += len(mine)
    return back / total
