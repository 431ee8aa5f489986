"""Coalitions against any walk: what a rehearsal says of who may have sealed what a colluder sees.

First sight: how often a walk on from node i meets the first colluder by a given arc, times the exact prior. Bridge: how
often a stretch from one colluder to the next passes i, as the way from the first to i and the way from there to the
second, times for whom the first was relaying, and the law. Counts that are thin are held to classes of nodes by
distance. What the law alone decides, such as that no colluder made the update before, is exact.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from veilwalk.audit._sightings import Sightings
from veilwalk.audit.inference._base import Posterior
from veilwalk.audit.inference._kernels_paths import GAP_BINS, bridge_paths, gap_bin, tally_sights
from veilwalk.audit.inference.rehearsal import TRUSTED_VISITS, Lanes, colluder_numbers
from veilwalk.chains import stationary_law
from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.core.errors import ResourceLimitError
from veilwalk.graphs import Graph

_BRIDGE_BYTES = 2 << 30
# Hops after which all bins of hops but the last have ended.
_WIDEST = 32 << 8


class RehearsedSights:
    """Counts of what colluders see first, and the posteriors that follow."""

    def __init__(self, graph: Graph, law: FloatArray, colluders: IntArray, *, apart: IntArray) -> None:
        """Prepare for ``law``; bridges are counted only if asked for."""
        n_nodes = graph.n_nodes
        self._graph, self._law, self._apart = graph, law, apart.astype(np.int64)
        self._member = colluder_numbers(n_nodes, colluders)
        self._free = self._member < 0
        sources = stationary_law(law)
        legs = sources[:, np.newaxis] * law
        self._prior = normalised(np.where(self._free, legs.T, 0.0))
        # Probability, given the source i, that the update before was no colluder's.
        self._untold = legs[self._free].sum(axis=0) / sources
        # Arcs from others into colluders; the entry at either end names them.
        self._heads = np.repeat(np.arange(n_nodes), graph.degrees)
        into = ~self._free[self._heads] & self._free[graph.indices]
        self._arcs = np.flatnonzero(into)
        self._arc_of = np.where(into, np.cumsum(into) - 1, -1)
        self._sights = np.zeros((2, len(self._arcs), n_nodes))
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
                f"the bridge observer needs {needed / 2**30:.1f} GiB for {len(self._arcs)} edges of colluders, may use "
                f"{_BRIDGE_BYTES / 2**30:.1f} GiB: leave it out or take fewer colluders"
            )
        self._onward, self._toward = np.zeros(shape), np.zeros(shape)

    def add(self, lanes: Lanes) -> None:
        """Count the stretches between colluders on these lanes."""
        for path, made in zip(lanes.paths, lanes.made, strict=True):
            tally_sights(
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
        self._relayed += lanes.relayed
        self._hops += len(lanes.paths) * (lanes.paths.shape[1] - lanes.warm)

    def posterior(self, observer: str, seen: Sightings) -> Posterior:
        """Return the posterior of ``first-sight``, ``bridge`` or ``predecessor``; colluders get exactly zero."""
        into = self._arc_numbers(seen.first_sight_node, seen.first_sight_from)
        weight = self._prior[seen.destination] * self._first_sights[into]
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

    def _bridge(self, seen: Sightings, into: IntArray, otherwise: FloatArray) -> FloatArray:
        """Weights given also where and when the previous ciphertext was last seen, and whither it went.

        Where the rehearsal knows no such way, ``otherwise`` stands.
        """
        hops = seen.first_sight_clock - seen.previous_sight_clock
        out = self._arc_numbers(seen.previous_sight_node, seen.previous_sight_to)
        passed = np.zeros_like(otherwise)
        bridge_paths(*self._densities, out, into, hops, passed)
        shortest = self._apart[seen.previous_sight_to] + self._apart[seen.first_sight_from] + 2
        relayed = self._relayed[self._member[seen.previous_sight_node]]
        weight = np.where(shortest <= hops[:, np.newaxis], passed, 0.0) * relayed * self._law[:, seen.destination].T
        weight[:, ~self._free] = 0.0
        return np.where(weight.sum(axis=1, keepdims=True) > 0, weight, otherwise)

    @cached_property
    def _first_sights(self) -> FloatArray:
        """P(the first colluder is met by arc a | sealed by i), [a, i]."""
        sealed = self._sights[0].sum(axis=0)
        return self._held_to_classes(self._sights[0], sealed, TRUSTED_VISITS * sealed.sum() / max(self._hops, 1))

    @cached_property
    def _unseen(self) -> FloatArray:
        """P(no colluder held the ciphertext that ended at i | sealed by i)."""
        sealed, unseen = self._sights.sum(axis=1)
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
