"""Colluders who know which of them first held a ciphertext: exact on a chain on the nodes, else rehearsed.

A rehearsal counts how often a walk on from node i meets the first colluder by a given arc, times the exact prior.
Counts that are thin are held to classes of nodes by distance.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from veilwalk.audit._scene import Scene
from veilwalk.audit._sightings import Sightings
from veilwalk.audit.inference._base import EXACT, Posterior
from veilwalk.audit.inference._kernels_paths import tally_sealed_sights, tally_sights
from veilwalk.audit.inference.rehearsed import TOLD_DISTANCES, TRUSTED_VISITS, Lanes, colluder_numbers
from veilwalk.chains import NodeChain, stationary_law
from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.graphs import Graph


def coalition_of(scene: Scene) -> ColluderPosteriors | RehearsedSights:
    """Return what the colluders of a scene know: exact on a chain on the nodes, unless they are to rehearse."""
    nodes = scene.chain.on_nodes
    if nodes is None or scene.settings.posterior == "rehearsed" or scene.scheme.recipients > 1:
        return scene.once(RehearsedSights, lambda: _rehearsing(scene))
    return scene.once(ColluderPosteriors, lambda: ColluderPosteriors(nodes, scene.matrix, scene.colluders))


def _rehearsing(scene: Scene) -> RehearsedSights:
    known = (scene.graph, scene.matrix, scene.colluders)
    if scene.scheme.recipients == 1:
        sights = RehearsedSights(*known, stationary_law(scene.matrix), apart=scene.apart)
    else:
        sights = SealedSights(*known, scene.scheme.source_prior, apart=scene.apart)
    scene.counters.append(sights)
    return sights


class ColluderPosteriors:
    """Colluders who join their sightings of identical ciphertexts.

    Until the first of them holds a ciphertext the walk avoids all colluders, so everything comes from the chain killed
    on them. The destination is one of them; sources that are colluders themselves are known and not scored.
    """

    def __init__(self, chain: NodeChain, law: FloatArray, colluders: IntArray) -> None:
        """Prepare for ``law``."""
        member = np.zeros(chain.n_nodes, dtype=np.bool_)
        member[colluders] = True
        self._free = np.flatnonzero(~member)
        self._place = np.full(chain.n_nodes, -1)
        self._place[self._free] = np.arange(len(self._free))
        step = chain.transition_matrix.toarray()[np.ix_(self._free, self._free)]
        self._visits = np.linalg.inv(np.eye(len(self._free)) - step)
        legs = stationary_law(law)[:, np.newaxis] * law
        self._prior = normalised(np.ascontiguousarray(legs.T))[:, self._free]

    def posterior(self, seen: Sightings) -> Posterior:
        """Return the posterior given the node from which a colluder first received the ciphertext.

        Which colluder it was adds nothing: from the same node each is reached with the same chance by any source.
        """
        weight = self._prior[seen.destination] * self._visits[:, self._place[seen.first_sight_from]].T
        full = np.zeros((len(weight), len(self._place)))
        full[:, self._free] = normalised(weight)
        return Posterior(full, EXACT)


class RehearsedSights:
    """Counts of what colluders see first, and the posteriors that follow."""

    #: Tables of first sights: one, and of several recipients one more for all that was sealed.
    counts = 1

    def __init__(
        self, graph: Graph, law: FloatArray, colluders: IntArray, sources: FloatArray, *, apart: IntArray
    ) -> None:
        """Prepare for ``law`` and how often each node is one of the ``sources``."""
        n_nodes = graph.n_nodes
        self._graph, self._law, self._apart = graph, law, apart.astype(np.int64)
        self._member = colluder_numbers(n_nodes, colluders)
        self._free = self._member < 0
        legs = sources[:, np.newaxis] * law
        self._prior = normalised(np.where(self._free, legs.T, 0.0))
        # Arcs from others into colluders; the entry at either end names them.
        self._heads = np.repeat(np.arange(n_nodes), graph.degrees)
        into = ~self._free[self._heads] & self._free[graph.indices]
        self._arcs = np.flatnonzero(into)
        self._arc_of = np.where(into, np.cumsum(into) - 1, -1)
        self._sights = np.zeros((self.counts, len(self._arcs), n_nodes))
        self._hops = 0

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
            )
        self._hops += len(lanes.paths) * (lanes.paths.shape[1] - lanes.warm)

    def _tally(self) -> Callable[..., None]:
        """Return the kernel that counts stretches."""
        return tally_sights

    def posterior(self, seen: Sightings) -> Posterior:
        """Return the posterior; colluders get exactly zero."""
        into = self._arc_numbers(seen.first_sight_node, seen.first_sight_from)
        weight = self._prior[seen.destination] * self._first_sights[into] * self._opening(seen)
        return Posterior(normalised(weight), "rehearsed: counted on walks of its own")

    def _opening(self, seen: Sightings) -> FloatArray:
        """How much the sight changes whom the destination may have been chosen by: not at all."""
        return np.ones((len(seen), 1))

    @cached_property
    def _first_sights(self) -> FloatArray:
        """P(the first colluder is met by arc a | sealed by i), [a, i]."""
        sealed = self._sealed
        return self._held_to_classes(self._sights[0], sealed, TRUSTED_VISITS * sealed.sum() / max(self._hops, 1))

    @property
    def _sealed(self) -> FloatArray:
        """How much was sealed by each node, on all stretches."""
        return np.asarray(self._sights[0].sum(axis=0))

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

    counts = 2

    def __init__(
        self, graph: Graph, law: FloatArray, colluders: IntArray, sources: FloatArray, *, apart: IntArray
    ) -> None:
        """Prepare as the others do."""
        super().__init__(graph, law, colluders, sources, apart=apart)
        self._openers = np.zeros((TOLD_DISTANCES, TOLD_DISTANCES, TOLD_DISTANCES))
        self._told = np.minimum(self._apart, TOLD_DISTANCES - 1)

    def add(self, lanes: Lanes) -> None:
        """Count the stretches between colluders on these lanes, and who of them opens what."""
        super().add(lanes)
        self._openers += lanes.openers

    def _tally(self) -> Callable[..., None]:
        """Return the kernel that counts stretches on which nobody opened too soon."""
        return tally_sealed_sights

    @property
    def _sealed(self) -> FloatArray:
        """How much was sealed by each node, whether it came to a colluder or not."""
        return np.asarray(self._sights[1].sum(axis=0))

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
