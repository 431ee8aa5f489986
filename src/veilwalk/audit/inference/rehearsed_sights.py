"""Coalitions against any walk: what a rehearsal says of who may have sealed what a colluder sees.

First sight: how often a walk on from node i meets the first colluder by a given arc, times the exact prior. Bridge: how
often a stretch from one colluder to the next passes i, as the way from the first to i and the way from there to the
second, times for whom the first was relaying, and the law. Counts that are thin are held to classes of nodes by
distance. What the law alone decides, such as that no colluder made the update before, is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from veilwalk.audit._sightings import Sightings
from veilwalk.audit.inference._base import Posterior
from veilwalk.audit.inference._kernels_paths import GAP_BINS, bridge_paths, gap_bin, tally_sights
from veilwalk.audit.inference.rehearsal import TOLD_DISTANCES, TRUSTED_VISITS, Lanes, colluder_numbers
from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.core.errors import ResourceLimitError
from veilwalk.graphs import Graph

_BRIDGE_BYTES = 2 << 30
# Hops after which all bins of hops but the last have ended.
_WIDEST = 32 << 8


class RehearsedSights:
    """Counts of what colluders see first, and the posteriors that follow."""

    #: Tables of first sights: all, those of which no colluder had held the ciphertext before, and more of several.
    counts = 2

    def __init__(
        self, graph: Graph, law: FloatArray, colluders: IntArray, sources: FloatArray, *, apart: IntArray
    ) -> None:
        """Prepare for ``law`` and how often each node is one of the ``sources``; bridges are counted only if asked."""
        n_nodes = graph.n_nodes
        self._graph, self._law, self._apart = graph, law, apart.astype(np.int64)
        self._member = colluder_numbers(n_nodes, colluders)
        self._free = self._member < 0
        legs = sources[:, np.newaxis] * law
        self._prior = normalised(np.where(self._free, legs.T, 0.0))
        # Probability, given the source i, that the update before was no colluder's.
        self._untold = legs[self._free].sum(axis=0) / sources
        # Arcs from others into colluders; the entry at either end names them.
        self._heads = np.repeat(np.arange(n_nodes), graph.degrees)
        into = ~self._free[self._heads] & self._free[graph.indices]
        self._arcs = np.flatnonzero(into)
        self._arc_of = np.where(into, np.cumsum(into) - 1, -1)
        self._sights = np.zeros((self.counts, len(self._arcs), n_nodes))
        self._relayed = np.zeros((len(colluders), n_nodes))
        self._starts, self._firsts = np.zeros(len(self._arcs)), np.zeros(n_nodes)
        self._onward, self._toward = np.zeros((2, 0, GAP_BINS, n_nodes))
        self._hops = 0

    def count_bridges(self) -> None:
        """Count the lengths of stretches too, from now on."""
        shape = (len(self._arcs), GAP_BINS, self._graph.n_nodes)
        needed = 4 * 8 * int(np.prod(shape))
        if needed > _BRIDGE_BYTES:
            raise ResourceLimitError(
                f"the bridge observer needs {needed / 2**30:.3g} GiB for {len(self._arcs)} edges of colluders, may use "
                f"{_BRIDGE_BYTES / 2**30:.3g} GiB: leave it out or take fewer colluders"
            )
        self._onward, self._toward = np.zeros(shape), np.zeros(shape)

    def add(self, lanes: Lanes) -> None:
        """Count the stretches between colluders on these lanes."""
        tally = self._tally()
        for path, made in zip(lanes.paths, lanes.made, strict=True):
            tally(
                path,
                made,
                self._member,
                self._graph.indptr,
                self._graph.indices,
                self._arc_of,
                lanes.warm,
                self._sights,
                self._starts,
                self._firsts,
                self._onward,
                self._toward,
            )
        if len(lanes.relayed):
            self._relayed += lanes.relayed
        self._hops += len(lanes.paths) * (lanes.paths.shape[1] - lanes.warm)

    def _tally(self) -> Callable[..., None]:
        """Return the kernel that counts stretches."""
        return tally_sights

    def posterior(self, observer: str, seen: Sightings) -> Posterior:
        """Return the posterior of ``first-sight``, ``bridge`` or ``predecessor``; colluders get exactly zero."""
        into = self._arc_numbers(seen.first_sight_node, seen.first_sight_from)
        weight = self._prior[seen.destination] * self._first_sights[into] * self._opening(seen)
        if observer == "predecessor":
            weight *= self._untold
        elif observer == "bridge":
            before = seen.previous_sight_node >= 0
            weight[~before] *= self._unseen
            weight[before] = self._bridge(seen.at(np.flatnonzero(before)), into[before], weight[before])
        guess = normalised(weight)
        if observer == "predecessor":
            told = np.flatnonzero(seen.told_source >= 0)
            guess[told] = 0.0
            guess[told, seen.told_source[told]] = 1.0
        return Posterior(guess, "rehearsed: counted on walks of its own")

    def _opening(self, seen: Sightings) -> FloatArray:
        """How much the sight changes whom the destination may have been chosen by: not at all."""
        return np.ones((len(seen), 1))

    def _bridge(self, seen: Sightings, into: IntArray, otherwise: FloatArray) -> FloatArray:
        """Weights given also where and when the previous ciphertext was last seen, and whither it went.

        Where the rehearsal knows no such way, ``otherwise`` stands.
        """
        hops = seen.first_sight_clock - seen.previous_sight_clock
        out = self._arc_numbers(seen.previous_sight_node, seen.previous_sight_to)
        passed = np.zeros_like(otherwise)
        bridge_paths(*self._densities, out, into, hops, passed)
        shortest = self._apart[seen.previous_sight_to] + self._apart[seen.first_sight_from] + 2
        weight = np.where(shortest <= hops[:, np.newaxis], passed, 0.0) * self._relayed_for(seen)
        weight *= self._law[:, seen.destination].T
        weight[:, ~self._free] = 0.0
        return np.where(weight.sum(axis=1, keepdims=True) > 0, weight, otherwise)

    def _relayed_for(self, seen: Sightings) -> FloatArray:
        """Whom the colluder that relayed the previous ciphertext had it for, up to a factor."""
        return self._relayed[self._member[seen.previous_sight_node]]

    @cached_property
    def _first_sights(self) -> FloatArray:
        """P(the first colluder is met by arc a | sealed by i), [a, i]."""
        sealed = self._sealed
        return self._held_to_classes(self._sights[0], sealed, TRUSTED_VISITS * sealed.sum() / max(self._hops, 1))

    @property
    def _sealed(self) -> FloatArray:
        """How much was sealed by each node, on all stretches."""
        return np.asarray(self._sights[0].sum(axis=0))

    @cached_property
    def _unseen(self) -> FloatArray:
        """P(no colluder held the ciphertext that ended at i | sealed by i)."""
        sealed, unseen = self._sights[:2].sum(axis=1)
        return np.asarray(np.divide(unseen, sealed, out=np.zeros_like(sealed), where=sealed > 0))

    @cached_property
    def _densities(self) -> tuple[FloatArray, FloatArray]:
        """P(the stretch from arc a first comes to i after so many hops), and P(from i it ends by a after so many)."""
        # A bin of several hops shares its counts among them.
        widths = np.bincount([gap_bin(hops) for hops in range(1, _WIDEST)], minlength=GAP_BINS)
        starts = np.broadcast_to(self._starts[:, np.newaxis], self._onward[:, 0].shape)
        onward, toward = np.empty_like(self._onward), np.empty_like(self._toward)
        for g, width in enumerate(np.maximum(widths, 1)):
            onward[:, g] = self._held_to_classes(self._onward[:, g], starts, TRUSTED_VISITS) / width
            toward[:, g] = self._held_to_classes(self._toward[:, g], self._firsts, TRUSTED_VISITS) / width
        return onward, toward

    def _held_to_classes(self, counts: FloatArray, totals: FloatArray, trust: float) -> FloatArray:
        """Return counts over totals, [arc, node], as if every node had been met ``trust`` times more, as its class is.

        A class is how far a node is from the arc, and whether it is nearer to the colluder's end of it.
        """
        totals = np.broadcast_to(totals, counts.shape)
        away = self._apart[self._graph.indices[self._arcs]]
        classes = 3 * away + np.clip(self._apart[self._heads[self._arcs]] - away, -1, 1) + 1
        won, expected = (
            np.bincount(classes[:, self._free].ravel(), part[:, self._free].ravel(), minlength=classes.max() + 1)
            for part in (counts, totals)
        )
        by_class = np.divide(won, expected, out=np.zeros_like(won), where=expected > 0)
        return np.asarray((counts + trust * by_class[classes]) / (totals + trust))

    def _arc_numbers(self, colluders: IntArray, others: IntArray) -> IntArray:
        """Return the numbers of the arcs between colluders and others."""
        n_nodes = self._graph.n_nodes
        keys = self._heads * n_nodes + self._graph.indices
        return self._arc_of[np.searchsorted(keys, colluders * n_nodes + others)]


class SealedSights(RehearsedSights):
    """The same where there are several recipients, and a ciphertext must come to the colluder unopened.

    Which of the colluders opens what one of them has held depends on the source by the law, and by how many there are
    on the way that it may have chosen too: that is counted by distances.
    """

    counts = 3

    def __init__(
        self,
        graph: Graph,
        law: FloatArray,
        colluders: IntArray,
        sources: FloatArray,
        *,
        apart: IntArray,
        before: FloatArray,
    ) -> None:
        """Prepare as the others do; ``before[i, k]`` says how often what i opens is from k."""
        super().__init__(graph, law, colluders, sources, apart=apart)
        self._untold = before[:, self._free].sum(axis=1)
        self._openers = np.zeros((TOLD_DISTANCES, TOLD_DISTANCES, TOLD_DISTANCES))
        self._told = np.minimum(self._apart, TOLD_DISTANCES - 1)

    def add(self, lanes: Lanes) -> None:
        """Count the stretches between colluders on these lanes, and who of them opens what."""
        super().add(lanes)
        self._openers += lanes.openers

    def _tally(self) -> Callable[..., None]:
        """Return the kernel that counts stretches on which nobody opened too soon."""
        from veilwalk.audit.inference._kernels_sealed import tally_sealed_sights

        return tally_sealed_sights

    @property
    def _sealed(self) -> FloatArray:
        """How much was sealed by each node, whether it came to a colluder or not."""
        return np.asarray(self._sights[2].sum(axis=0))

    def _relayed_for(self, seen: Sightings) -> FloatArray:
        """Who opens on a stretch is counted with its probability; what is left is who opens in the end."""
        return self._opening(seen)

    def _opening(self, seen: Sightings) -> FloatArray:
        """How much likelier than the law has it the destination opens what was first seen there, by source."""
        first, last = seen.first_sight_node, seen.destination
        return self._openings[self._told[first], self._told[first, last][:, np.newaxis], self._told[last]]

    @cached_property
    def _openings(self) -> FloatArray:
        """What colluders open over what the law expects of what they pass on, by distances; see ``openers``."""
        expected = np.zeros_like(self._openers)
        members, heads = np.flatnonzero(~self._free), self._heads[self._arcs]
        for first in members:
            passed = self._sights[0][heads == first].sum(axis=0)
            for last in members:
                classes = (self._told[first], self._told[first, last], self._told[last])
                np.add.at(expected, classes, np.where(self._free, passed * self._law[:, last], 0.0))
        # The scale is of no account: what is opened at once and what later are never weighed against each other.
        expected *= self._openers.sum() / max(expected.sum(), 1e-300)
        trust = TRUSTED_VISITS * self._openers.sum() / max(self._hops, 1)
        return np.asarray((self._openers + trust) / (expected + trust))

    def told(self, seen: Sightings, opened: FloatArray) -> FloatArray:
        """Return posteriors where a colluder drew the set of which the source is one, and who opens it with ``opened``.

        Where the sights contradict every node of the set, which only thin counts can, the set alone is left.
        """
        into = self._arc_numbers(seen.first_sight_node, seen.first_sight_from)
        opened = np.where(self._free, opened, 0.0)
        weight = opened * self._first_sights[into] * self._law[:, seen.destination].T * self._opening(seen)
        return normalised(np.where(weight.sum(axis=1, keepdims=True) > 0, weight, opened))
