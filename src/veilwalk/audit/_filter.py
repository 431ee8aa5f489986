"""Infers makers by Bayes for members who pool everything they see: exactly, or by sampled paths.

Members see :class:`MemberLog` s: every hop at which one of them held the token, with times; which ciphertexts are the
same; their own draws; and, where ``counted``, the update counts of the messages that they open. Where they do not see
the token counts too. A log begins when a member opened a ciphertext and drew the next recipients, and ends when a
member opens one again. At its start the token's state is known for certain, so each segment is inferred by itself.

The exact filter serves one recipient and any walk that is a chain; one hop costs states * nodes * degree. The sampled
filter serves any number of recipients: where the token was between two sightings is sampled, exactly given the
sightings, and the opening times are summed out along each path. Its posteriors are those of the exact filter but for
the noise of so many paths. Where no sampled path explains the sightings, the answer is blind, and ``lost`` counts it.
It also smooths: each update of a segment is judged by all that members saw in it, before and afterwards.

Members that share keys (only in the sampled filter) know which of them are recipients of each ciphertext that one of
them holds. Where one of them is, they read it, and its number.

Limits of the sampled filter. In a gap in which the ciphertext changed, openings are followed on the last eight mean
legs only, and segments begin no more than about eight before their end, where updates are not counted: older sealings
matter by about e^-8. Counts are used where up to 24 updates passed unseen; beyond, an update that nobody held is
guessed blindly. Levels of a bridge are held up to four million entries; longer gaps make no difference. For uneven laws
the chance that a node opens is Rosen's.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from veilwalk.audit._kernels_exact import follow_segments
from veilwalk.audit._kernels_filter import HELD, OPENED, SMOOTHED, UNASKED, reach_members, sample_segments
from veilwalk.audit._knowledge import Knowledge
from veilwalk.audit._sampled import SetLaw
from veilwalk.core.arrays import BoolArray, FloatArray, IntArray, normalised
from veilwalk.core.progress import Progress, silent
from veilwalk.core.randomness import task_generator
from veilwalk.design import Scheme
from veilwalk.walks import draw_recipients

#: Every count is distinguished.
EVERY = np.iinfo(np.int64).max
# Goals of windows in the exact kernel: no question, or a destination that nobody knows.
_NO_GOAL, _UNKNOWN = -2, -1
# Segments between two progress messages.
_BATCH = 64
#: Legs after which an older sealing is forgotten.
LEGS = 8
# Most unseen updates that the sampled filter counts.
_COUNTED = 24
# Up to so many nodes the law is looked up in a table.
_TABLE_NODES = 1_500
# Entries of the levels of one bridge, and the bytes that bridges take on one thread.
_LEVELS = 4_000_000
LEVEL_BYTES = 2 * 8 * _LEVELS
# A stream of its own.
_TASK = 0x70617468

# The question at each sighting but the first: none, the maker of what is held, or of what is opened.
Question = Callable[["MemberLog"], IntArray]
# Pairs of rows: an opening by a member, and the next opening by a member.
Ends = IntArray
# Weights of makers, and the update that each row of them is about.
Answers = tuple[FloatArray, IntArray]


@dataclass(frozen=True, eq=False)
class MemberLog:
    """One segment as the members saw it: a row for each time that a member held the token.

    Attributes:
        clock: The time.
        node: The member.
        came_from: The neighbour that handed the token over.
        went_to: The neighbour that received it from the member.
        new: Whether the ciphertext differs from the one they last sent on; never in the first row.
        recipients: The recipients that the member of the first row drew.
        updates: Updates from that draw to the opening in the last row, as the opened message states.
        row: The update that each ciphertext belongs to: a label for answers, never an input.
        shared: Members that each ciphertext is for, padded with -1; no columns where keys are not shared.
    """

    clock: IntArray
    node: IntArray
    came_from: IntArray
    went_to: IntArray
    new: BoolArray
    recipients: IntArray
    updates: int
    row: IntArray
    shared: IntArray

    @property
    def number(self) -> IntArray:
        """The number of each ciphertext in the segment, whose first is 0: known for those that they read."""
        return np.asarray(self.row - self.row[0] - 1)


def record_log(
    path: IntArray,
    clocks: IntArray,
    recipients: IntArray,
    member: BoolArray,
    first_row: int,
    *,
    drawn: IntArray | None = None,
) -> MemberLog:
    """Return what members saw of one segment.

    Args:
        path: Positions of the token from the hop before the first opening to the hop after the last.
        clocks: Arrival times of the updates from the first opening to the last, both included.
        recipients: The recipients drawn at the first opening.
        member: The mask of members.
        first_row: The row of the run that the first clock belongs to.
        drawn: For members that share keys, the recipients of each ciphertext of the segment, a row each.
    """
    inner = path[1:-1]
    held = np.flatnonzero(member[inner])
    clock = held + clocks[0]
    # The ciphertext that arrives and the one that leaves differ at an opening.
    arrives = np.searchsorted(clocks, clock, side="left")
    leaves = np.searchsorted(clocks, clock, side="right")
    new = np.r_[False, arrives[1:] != leaves[:-1]]
    shared = np.zeros((len(held), 0), dtype=np.int64)
    if drawn is not None:
        # Members first, the others as -1.
        among = -np.sort(-np.where(member[drawn], drawn, -1), axis=1)
        shared = among[np.maximum(arrives - 1, 0)]
    return MemberLog(
        clock=clock,
        node=inner[held].astype(np.int64),
        came_from=path[held].astype(np.int64),
        went_to=path[held + 2].astype(np.int64),
        new=new,
        recipients=recipients,
        updates=len(clocks) - 2,
        row=first_row + arrives,
        shared=shared,
    )


class Filter(ABC):
    """Infers makers from logs; ``member`` is a mask of nodes, the same for all segments or a row each."""

    def __init__(self, scheme: Scheme) -> None:
        self._states = scheme.chain.states
        self._node = np.array(self._states.node, dtype=np.int64)
        ahead = sparse.csr_array(self._states.transition_matrix)
        self._steps = (_copy_rows(ahead), _copy_rows(sparse.csr_array(ahead.T)))

    def infer_opened(self, logs: Sequence[MemberLog], member: BoolArray, progress: Progress = silent) -> FloatArray:
        """Return the makers of what was opened at the end of each segment, a row a segment; members have zero."""
        return self.infer(logs, member, _ask_opened, progress)[0]

    def infer_first_sights(self, logs: Sequence[MemberLog], member: BoolArray, progress: Progress = silent) -> Answers:
        """Return the makers of each new ciphertext by everything known at its first sight, and its row.

        Later sightings are not used. A ciphertext that was opened at once is left out: :meth:`infer_opened` answers it.
        """
        return self.infer(logs, member, _ask_first_held, progress)

    def infer(self, logs: Sequence[MemberLog], member: BoolArray, question: Question, progress: Progress) -> Answers:
        """Answer a question, a few segments at a time."""
        answers = []
        for first in range(0, len(logs), _BATCH):
            progress("filtering", first, len(logs), "updates")
            segments = logs[first : first + _BATCH]
            masks = np.atleast_2d(member) if member.ndim == 1 else member[first : first + _BATCH]
            group = np.zeros(len(segments), dtype=np.int64) if member.ndim == 1 else np.arange(len(segments))
            answers.append(self._answer(segments, ~masks, group, question))
        return np.concatenate([weights for weights, _ in answers]), np.concatenate([rows for _, rows in answers])

    @abstractmethod
    def _answer(self, segments: Sequence[MemberLog], others: BoolArray, group: IntArray, question: Question) -> Answers:
        """Answer for some segments; ``others`` are masks of nodes that are no members, ``group`` the mask of each."""

    def _windows(self, log: MemberLog, *columns: IntArray) -> IntArray:
        """Return the windows between sightings: start, hops, last node, state at the sighting, new or not, and more."""
        start = self._states.after(log.node[:-1], log.went_to[:-1])
        target = self._states.after(log.came_from[1:], log.node[1:])
        windows = (start, np.diff(log.clock) - 2, log.came_from[1:], target, log.new[1:], *columns)
        return np.stack(windows, axis=1).astype(np.int64)


class ExactFilter(Filter):
    """Infers makers by following every possible position of the token and destination of its ciphertext."""

    def __init__(self, scheme: Scheme, *, distinct_counts: int = 0) -> None:
        """Prepare for a scheme; numbers of unseen updates below ``distinct_counts`` are distinguished.

        Opened messages state how many updates there were. Each number that is distinguished costs as much again.
        """
        super().__init__(scheme)
        self._law, self._distinct_counts = _copy_rows(scheme.law.matrix), distinct_counts

    def _answer(self, segments: Sequence[MemberLog], others: BoolArray, group: IntArray, question: Question) -> Answers:
        if self._distinct_counts and question is _ask_first_held:
            raise ValueError("the update count is known only when a message is opened")
        tables = [self._windows(log, self._goals(log, question)) for log in segments]
        bounds, windows = np.cumsum([0] + [len(part) for part in tables]), np.concatenate(tables)
        # Updates that they did not see: so many more than the fewest that explain the sightings.
        unseen = np.array([log.updates - int(log.new.sum()) for log in segments])
        slack, more = np.clip(unseen, 0, self._distinct_counts), unseen >= self._distinct_counts
        out = np.zeros((bounds[-1], others.shape[1]))
        drawn, frees = np.array([log.recipients[0] for log in segments]), others.take(self._node, axis=1)
        follow_segments(*self._steps, self._law, self._node, frees, group, bounds, drawn, slack, more, windows, out)
        answered = windows[:, -1] != _NO_GOAL
        return normalised(out[answered]), np.concatenate([log.row[1:] for log in segments])[answered]

    def _goals(self, log: MemberLog, question: Question) -> IntArray:
        """Return the goal of each window.

        Given the destination, sightings after the first one of a ciphertext add nothing about its maker.
        """
        questions = question(log)
        goal = np.where(questions == HELD, _UNKNOWN, _NO_GOAL)
        if questions[-1] == OPENED:
            goal[np.flatnonzero(log.new[1:])[-1:]] = log.node[-1]
        return goal


class SampledFilter(Filter):
    """Infers makers by sampled paths of the token that explain the sightings."""

    def __init__(
        self,
        scheme: Scheme,
        *,
        counted: bool,
        particles: int,
        seed: int = 0,
        own_draws: bool = True,
        shares_keys: bool = False,
    ) -> None:
        """Prepare for a scheme, with so many ``particles`` (paths) at a time.

        ``counted``: opened messages state how many updates there were. ``own_draws``: members remember their own
        recipients. ``shares_keys``: they open with each other's keys, and logs say who of them is a recipient.
        """
        super().__init__(scheme)
        self._shares_keys, self._prior = shares_keys, scheme.source_prior
        self._law = SetLaw.from_scheme(scheme, has_table=scheme.graph.n_nodes <= _TABLE_NODES)
        self._counted, self._own_draws = counted, own_draws
        self._longest = math.ceil(LEGS * scheme.price.hops)
        self._seed, self._calls = seed, 0
        self.particles = particles
        self._answered = self._lost = 0

    @property
    def lost(self) -> float:
        """The share of answers so far that no sampled path explains."""
        return self._lost / max(self._answered, 1)

    def infer_all(self, logs: Sequence[MemberLog], member: BoolArray, progress: Progress = silent) -> Answers:
        """Return the makers of all updates of each segment by everything seen in it, before and after; and their rows.

        The first update of a segment is a member's own, and left out. An update that somebody held is named by its
        ciphertext, any other by its number.
        """
        return self.infer(logs, member, _ask_all, progress)

    def _answer(self, segments: Sequence[MemberLog], others: BoolArray, group: IntArray, question: Question) -> Answers:
        slack = np.array([log.updates - int(log.new.sum()) for log in segments])
        climbs = (slack <= _COUNTED) & self._counted
        late = [question is _ask_opened and not counts for counts in climbs]
        begins = np.array([self._first_followed(log) if may else 0 for log, may in zip(segments, late, strict=True)])
        parts = [self._lay_out(log, question, begin) for log, begin in zip(segments, begins, strict=True)]
        tables, labels, unheld = (list(column) for column in zip(*parts, strict=True))
        bounds, windows = np.cumsum([0] + [len(part) for part in tables]), np.concatenate(tables)
        places = np.cumsum([0] + [len(part) for part in labels])
        is_unheld = np.concatenate(unheld)
        out = np.zeros((int(places[-1]), others.shape[1]))
        rng = task_generator(self._seed, _TASK, self._calls)
        self._calls += 1
        seeds = rng.integers(1 << 63, size=len(segments), dtype=np.uint64)
        starters = np.array([log.node[begin] for log, begin in zip(segments, begins, strict=True)])
        drawn = (np.stack([log.recipients for log in segments]), (begins == 0) & self._own_draws)
        counts = (np.where(climbs, slack, 0), climbs.astype(np.int64))
        shared = np.concatenate([log.shared[1 + begin :] for log, begin in zip(segments, begins, strict=True)])
        keys = (self._shares_keys, reach_members(self._law, ~others), shared)
        effort = (self.particles, self._longest, _LEVELS // len(self._node))
        chain = (*self._steps, self._law, self._node, others.take(self._node, axis=1))
        tables_of_segments = (group, bounds, starters, *drawn, *counts, windows)
        arguments: tuple[Any, ...] = (*chain, *tables_of_segments, *keys, *effort, seeds, places, is_unheld, out)
        sample_segments(*arguments)
        # Differences of equal weights may be rounded to less than nothing.
        np.maximum(out, 0.0, out=out)
        missing = ~(out.sum(axis=1) > 0.0)
        self._answered += int((~is_unheld).sum())
        self._lost += int((missing & ~is_unheld).sum())
        segment = np.searchsorted(places, np.flatnonzero(missing), side="right") - 1
        out[missing] = np.where(others[group[segment]], self._prior, 0.0)
        return normalised(out), np.concatenate(labels)

    def _lay_out(self, log: MemberLog, question: Question, begin: int) -> tuple[IntArray, IntArray, BoolArray]:
        """Return the windows of a segment, the rows of its answers, and which of these nobody held."""
        table = self._windows_from(log, question, begin)
        if question is _ask_all:
            rows = log.row[0] + 2 + np.arange(log.updates)
            table[:, 7] = np.where(log.new[1:], log.number[1:] - 1, -1)
            return table, rows, ~np.isin(rows, log.row)
        answered = table[:, 5] != UNASKED
        table[:, 7], rows = np.cumsum(answered) - 1, log.row[1:][begin:][answered]
        return table, rows, np.zeros(len(rows), dtype=np.bool_)

    def _windows_from(self, log: MemberLog, question: Question, begin: int) -> IntArray:
        """Return the windows of a segment from some sighting on; the row of the answer is filled in later."""
        when, new = log.clock[:-1] - log.clock[begin], log.new[1:]
        read = (log.shared[1:] >= 0).any(axis=1) & new
        pin = np.where(read, log.number[1:] - np.cumsum(new), -1)
        return self._windows(log, question(log), when, np.zeros_like(when), pin, log.node[1:])[begin:]

    def _first_followed(self, log: MemberLog) -> int:
        """Return the sighting from which a segment is followed."""
        early = np.flatnonzero(log.clock[-1] - log.clock >= self._longest)
        return int(early[-1]) if len(early) else 0


def _copy_rows(matrix: sparse.csr_array) -> tuple[IntArray, IntArray, FloatArray]:
    """Return the rows of a matrix as kernels read them: copies of one type for every walk, compiled once."""
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data.astype(np.float64)


def _ask_opened(log: MemberLog) -> IntArray:
    questions = np.full(len(log.clock) - 1, UNASKED)
    questions[-1] = OPENED
    return questions


def _ask_first_held(log: MemberLog) -> IntArray:
    questions = np.where(log.new[1:], HELD, UNASKED)
    questions[-1] = UNASKED
    return questions


def _ask_all(log: MemberLog) -> IntArray:
    questions = np.full(len(log.clock) - 1, UNASKED)
    questions[-1] = SMOOTHED
    return questions


def record_segments(
    knowledge: Knowledge, ends: Ends, member: BoolArray, *, shares_keys: bool = False
) -> list[MemberLog]:
    """Return what members saw from one opening to another, for pairs of rows at which they opened.

    ``member`` is one mask of nodes, or a row a pair. Members that share keys see which of them are recipients.
    """
    clock = knowledge.sightings.clock
    masks = np.broadcast_to(member, (len(ends), knowledge.graph.n_nodes))
    lane_of, final = knowledge.grants.lane[ends[:, 0]], clock[ends[:, 1]]
    recipients, drawn = draw_own_recipients(knowledge, ends[:, 0]), None
    if shares_keys:
        sizes = ends[:, 1] - ends[:, 0]
        starts = np.cumsum(sizes) - sizes
        drawn = draw_own_recipients(knowledge, np.arange(sizes.sum()) + np.repeat(ends[:, 0] - starts, sizes))
    logs: dict[int, MemberLog] = {}
    for lane in np.unique(lane_of):
        places = np.flatnonzero(lane_of == lane)
        (path,) = knowledge.replay_paths(int(lane), hops=int(final[places].max()) + 1)
        for place in places:
            first, last = (int(row) for row in ends[place])
            clocks = clock[first : last + 1]
            stretch = path[clocks[0] - 1 : clocks[-1] + 2]
            sets = None if drawn is None else drawn[starts[place] : starts[place] + sizes[place]]
            logs[int(place)] = record_log(stretch, clocks, recipients[place], masks[place], first, drawn=sets)
    return [logs[place] for place in range(len(ends))]


def draw_own_recipients(knowledge: Knowledge, rows: IntArray) -> IntArray:
    """Return the recipients that the opener of each of these rows drew for its own update, a row each."""
    scheme, sightings = knowledge.scheme, knowledge.sightings
    if scheme.recipients == 1:
        return sightings.destination[rows + 1, np.newaxis]
    return draw_recipients(
        scheme.graph,
        scheme.law.rows,
        scheme.recipients,
        seed=knowledge.settings.seed,
        lane=knowledge.grants.lane[rows],
        source=sightings.destination[rows],
        clock=sightings.clock[rows],
    )


def measure_turns(knowledge: Knowledge) -> float:
    """Return the share of updates after which the token went straight back: that relay knows the maker."""
    back, sightings, lanes = 0, knowledge.sightings, knowledge.grants.lane
    for lane in np.unique(lanes):
        rows = np.flatnonzero(lanes == lane)
        clock, giver = sightings.clock[rows], sightings.last_hop[rows]
        (path,) = knowledge.replay_paths(int(lane), hops=int(clock[-1]) + 2)
        waited = (path[clock + 1] == path[clock]) & (path[clock + 2] == giver)
        back += int(((path[clock + 1] == giver) | waited).sum())
    return back / len(lanes)
