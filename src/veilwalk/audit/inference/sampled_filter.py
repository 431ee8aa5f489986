"""The filter by sampled paths: Bayes for members who pool everything, for any number of recipients, estimated.

Where the token was between two sightings is sampled, exactly given the sightings; when it was opened is summed out
along each path. Posteriors are those of the exact filter but for the noise of so many paths. Where no sampled path
explains what was seen, nothing is said: the guess is then blind, and the share of such answers is told (``lost``).

A hop costs 0.25 microseconds a path and 3 nanoseconds for each time at which the ciphertext may have been sealed: on
RRG(300, 3) with 30 members and 16 recipients 30 ms an answer with 400 paths. What caps it: of a gap in which the
ciphertext changed, openings are followed on the last eight mean legs only, and segments begin no more than about eight
before their end, where updates are not counted: what was sealed before is forgotten but for about e^-8. Updates are
counted where up to eight of them passed unseen; beyond, the count is not used. Levels of a bridge are held up to four
million entries; beyond, hops more make no difference. Of laws that are not even, the chance that a node opens is
Rosen's for several recipients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from veilwalk.audit.inference.filter import MemberLog, batches, windows
from veilwalk.chains import States
from veilwalk.core.arrays import BoolArray, FloatArray, IntArray, normalised
from veilwalk.core.progress import Progress, silent
from veilwalk.core.randomness import task_generator
from veilwalk.design import Scheme

# What is asked at a sighting; as in the kernel.
_UNASKED, _HELD, _OPENED = 0, 1, 2
#: Legs after which what was sealed before is forgotten.
LEGS = 8
_COUNTED = 8
# Up to so many nodes the law is looked up in a table.
_TABLED = 1_500
# Entries of the levels of one bridge.
_LEVELS = 4_000_000
#: What bridges take on one thread.
LEVEL_BYTES = 2 * 8 * _LEVELS
_KINDS = (np.int64, np.int64, np.float64)
# A stream of its own.
_TASK = 0x70617468

# What is asked at each sighting but the first.
Ask = Callable[[MemberLog], IntArray]


class SampledFilter:
    """Who made what members saw, by paths of the token that explain what they saw."""

    def __init__(
        self,
        scheme: Scheme,
        states: States,
        *,
        counted: bool,
        particles: int,
        seed: int = 0,
        own_draws: bool = True,
    ) -> None:
        """Prepare for a scheme and its walk.

        Args:
            scheme: Graph, law and number of recipients.
            states: The walk, hop by hop.
            counted: Opened messages say how many updates there were.
            particles: How many paths to sample at a time.
            seed: Of paths.
            own_draws: Whether members remember for whom they sealed.
        """
        from veilwalk.walks.compiled import set_rows

        ahead = sparse.csr_array(states.transition_matrix)
        rows = set_rows(scheme.graph, scheme.law.rows, scheme.recipients)
        far = not len(rows.weights)
        table = scheme.law.matrix.toarray().T if scheme.graph.n_nodes <= _TABLED else np.empty((0, 0))
        # As the kernels read far laws, all weights are alike.
        table = (table > 0.0).astype(np.float64) if far else table
        tables = (rows.offsets, rows.columns, rows.weights, *rows.followed_by(), table)
        self._law = tuple(np.array(table) for table in tables)
        self._steps = tuple(
            tuple(
                np.array(table, dtype=kind) for table, kind in zip((m.indptr, m.indices, m.data), _KINDS, strict=True)
            )
            for m in (ahead, sparse.csr_array(ahead.T))
        )
        self._states, self._node = states, np.array(states.node, dtype=np.int64)
        self._recipients, self._counted, self._own_draws = scheme.recipients, counted, own_draws
        self._longest = math.ceil(LEGS * scheme.price.hops)
        self._seed, self._calls = seed, 0
        self.particles = particles
        self._answered = self._lost = 0

    @property
    def lost(self) -> float:
        """The share of answers so far of which nothing could be said."""
        return self._lost / max(self._answered, 1)

    def opened(self, logs: Sequence[MemberLog], member: BoolArray, progress: Progress = silent) -> FloatArray:
        """Return who made what was opened at the end of each segment, a row a segment; no member may have made it."""
        return self._all(logs, member, progress, _opened)[0]

    def first_sights(
        self, logs: Sequence[MemberLog], member: BoolArray, progress: Progress = silent
    ) -> tuple[FloatArray, IntArray]:
        """Return who made each new ciphertext by all that was known when it was first seen, and the row it belongs to.

        One that was opened at once is left out.
        """
        return self._all(logs, member, progress, _first_held)

    def held(
        self, logs: Sequence[MemberLog], member: BoolArray, progress: Progress = silent
    ) -> tuple[FloatArray, IntArray]:
        """Return who made each new ciphertext by all that was known when it was last held or opened, and its row."""
        return self._all(logs, member, progress, _last_held)

    def _all(
        self, logs: Sequence[MemberLog], member: BoolArray, progress: Progress, ask: Ask
    ) -> tuple[FloatArray, IntArray]:
        found = [self._answers(logs, member, at, ask) for at in batches(logs, progress)]
        return np.concatenate([weights for weights, _ in found]), np.concatenate([rows for _, rows in found])

    def _answers(
        self, logs: Sequence[MemberLog], member: BoolArray, at: slice, ask: Ask
    ) -> tuple[FloatArray, IntArray]:
        from veilwalk.audit.inference._kernels_sampled import sample_segments

        mine = logs[at]
        masks = np.atleast_2d(member) if member.ndim == 1 else member[at]
        group = np.zeros(len(mine), dtype=np.int64) if member.ndim == 1 else np.arange(len(mine))
        slack = np.array([log.updates - int(log.new.sum()) for log in mine])
        climbs = (slack <= _COUNTED) & self._counted
        late = [ask is _opened and not counts for counts in climbs]
        begins = np.array([self._begin(log) if may else 0 for log, may in zip(mine, late, strict=True)])
        parts = [self._windows(log, ask, begin) for log, begin in zip(mine, begins, strict=True)]
        bounds, table = np.cumsum([0] + [len(part) for part in parts]), np.concatenate(parts)
        wanted = table[:, 5] != _UNASKED
        table[:, 7] = np.cumsum(wanted) - 1
        out, worth = np.zeros((int(wanted.sum()), masks.shape[1])), np.zeros(len(table))
        rng = task_generator(self._seed, _TASK, self._calls)
        self._calls += 1
        arguments: tuple[Any, ...] = (
            *self._steps,
            self._law,
            self._recipients,
            self._node,
            np.ascontiguousarray(~masks[:, self._node]),
            group,
            bounds,
            np.array([log.node[begin] for log, begin in zip(mine, begins, strict=True)]),
            np.stack([log.drawn for log in mine]),
            (begins == 0) & self._own_draws,
            np.where(climbs, slack, 0),
            climbs.astype(np.int64),
            table,
            self.particles,
            self._longest,
            _LEVELS // len(self._node),
            rng.integers(1 << 63, size=len(mine), dtype=np.uint64),
            out,
            worth,
        )
        sample_segments(*arguments)
        missing = ~(out.sum(axis=1) > 0.0)
        self._answered += len(out)
        self._lost += int(missing.sum())
        segment = np.searchsorted(bounds, np.flatnonzero(wanted)[missing], side="right") - 1
        out[missing] = ~masks[group[segment]]
        rows = np.concatenate([log.row[1:][begin:] for log, begin in zip(mine, begins, strict=True)])
        return normalised(out), rows[wanted]

    def _windows(self, log: MemberLog, ask: Ask, begin: int) -> IntArray:
        """Return the windows of a segment from some sighting on; the last column is filled in later."""
        when = log.clock[:-1] - log.clock[begin]
        columns = (*windows(self._states, log), ask(log), when, np.zeros_like(when))
        return np.stack(columns, axis=1)[begin:].astype(np.int64)

    def _begin(self, log: MemberLog) -> int:
        """Return from which sighting on a segment is followed."""
        early = np.flatnonzero(log.clock[-1] - log.clock >= self._longest)
        return int(early[-1]) if len(early) else 0


def _opened(log: MemberLog) -> IntArray:
    kinds = np.full(len(log.clock) - 1, _UNASKED)
    kinds[-1] = _OPENED
    return kinds


def _first_held(log: MemberLog) -> IntArray:
    kinds = np.where(log.new[1:], _HELD, _UNASKED)
    kinds[-1] = _UNASKED
    return kinds


def _last_held(log: MemberLog) -> IntArray:
    """The last sighting of each ciphertext but for the one that was there at first."""
    new = log.new[1:]
    changes = np.r_[new[1:], True]
    kinds = np.where(changes & (np.cumsum(new) > 0), _HELD, _UNASKED)
    kinds[-1] = _OPENED
    return kinds
