"""Colluders against a walk that is a chain on the nodes: what joined sightings of one ciphertext tell, exactly."""

from __future__ import annotations

import numpy as np

from veilwalk.audit._scene import Scene
from veilwalk.audit._sightings import Sightings
from veilwalk.audit.inference._base import EXACT, Posterior
from veilwalk.audit.inference.rehearsed_sights import RehearsedSights, SealedSights
from veilwalk.chains import WalkChain, stationary_law, token_law
from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.core.errors import ResourceLimitError


def coalition_of(scene: Scene) -> ColluderPosteriors | RehearsedSights:
    """Return what the colluders of a scene know: exact on a chain on the nodes, unless they are to rehearse."""
    nodes = scene.chain.on_nodes
    if nodes is None or scene.plan.posterior == "rehearsed" or scene.scheme.recipients > 1:
        return scene.once(RehearsedSights, lambda: _rehearsing(scene))
    return scene.once(ColluderPosteriors, lambda: _exact(scene, nodes))


def _exact(scene: Scene, chain: WalkChain) -> ColluderPosteriors:
    visits = token_law(chain, scene.matrix, scene.chain.mean_hitting_times())
    return ColluderPosteriors(chain, scene.matrix, scene.colluders, visits)


def _rehearsing(scene: Scene) -> RehearsedSights:
    known = (scene.graph, scene.matrix, scene.colluders)
    if scene.scheme.recipients == 1:
        sights = RehearsedSights(*known, stationary_law(scene.matrix), apart=scene.apart)
    else:
        sights = SealedSights(*known, scene.scheme.source_prior, apart=scene.apart, before=scene.prior)
    scene.counters.append(sights)
    return sights


class ColluderPosteriors:
    """Colluders who join their sightings of identical ciphertexts.

    Between two sightings the walk avoids all colluders, so everything comes from the chain killed on them. The
    destination is one of them; sources that are colluders themselves are known and not scored. What colluders did
    not see tells them something too, and is counted.
    """

    def __init__(
        self,
        chain: WalkChain,
        law: FloatArray,
        colluders: IntArray,
        token_visits: FloatArray,
        *,
        memory_bytes: int = 4 << 30,
    ) -> None:
        """Prepare for ``law``; ``token_visits`` is ``chains.token_law`` of chain and law."""
        member = np.zeros(chain.n_nodes, dtype=np.bool_)
        member[colluders] = True
        self._free = np.flatnonzero(~member)
        self._place = np.full(chain.n_nodes, -1)
        self._place[self._free] = np.arange(len(self._free))
        step = chain.transition_matrix.toarray()
        self._step = step[np.ix_(self._free, self._free)]
        self._visits = np.linalg.inv(np.eye(len(self._free)) - self._step)
        self._law = law
        self._memory_bytes = memory_bytes
        sources = stationary_law(law)
        legs = sources[:, np.newaxis] * law
        self._prior = normalised(np.ascontiguousarray(legs.T))[:, self._free]
        # Probabilities, given the source i, that the update before was no colluder's, and that its ciphertext passed
        # no colluder on its way to i.
        self._untold = legs[self._free].sum(axis=0)[self._free] / sources[self._free]
        reach = self._visits / np.diag(self._visits)
        unseen = np.empty((chain.n_nodes, len(self._free)))
        unseen[self._free] = reach
        unseen[member] = step[np.ix_(np.flatnonzero(member), self._free)] @ reach
        self._unseen = (legs[:, self._free] * unseen).sum(axis=0) / sources[self._free]
        # Whom a colluder that relays, and does not seal, has the ciphertext for.
        self._relayed = np.maximum(token_visits - legs, 0.0)[:, self._free]

    def count_bridges(self) -> None:
        """Nothing is to be counted: powers of the chain tell how long bridges are."""

    def posterior(self, observer: str, seen: Sightings) -> Posterior:
        """Return the posterior of ``first-sight``, ``bridge`` or ``predecessor``."""
        weight = first = self._first_sight(seen)
        if observer == "bridge":
            before = seen.previous_sight_node >= 0
            weight = first * self._unseen
            if before.any():
                weight[before] = self._bridge(seen.at(np.flatnonzero(before)))
        elif observer == "predecessor":
            weight = first * self._untold
        # On two nodes colluders seal all they send, and before the first update nothing is known: first sight is left.
        weight = np.where(weight.sum(axis=1, keepdims=True) > 0, weight, first)
        full = np.zeros((len(weight), len(self._place)))
        full[:, self._free] = normalised(weight)
        if observer == "predecessor":
            told = np.flatnonzero(seen.told_source >= 0)
            full[told] = 0.0
            full[told, seen.told_source[told]] = 1.0
        return Posterior(full, EXACT)

    def _first_sight(self, seen: Sightings) -> FloatArray:
        """Weights given the node from which a colluder first received the ciphertext.

        Which colluder it was adds nothing: from the same node each is reached with the same chance by any source.
        """
        weight: FloatArray = self._prior[seen.destination] * self._visits[:, self._place[seen.first_sight_from]].T
        return weight

    def _bridge(self, seen: Sightings) -> FloatArray:
        """Weights given also where and when the previous ciphertext was last seen, and whither it went.

        The walk went from that node x to the node y of the first sight in t hops, through its destination i,
        avoiding all colluders: P = sum over s of (first hit of i at s) (from i to y in t - s). The colluder u that
        sent it on was relaying for i with probability proportional to sigma(u, i), its own sealings left out.
        """
        hops = seen.first_sight_clock - seen.previous_sight_clock - 2
        start, stop = self._place[seen.previous_sight_to], self._place[seen.first_sight_from]
        powers = self._powers(int(hops.max()))
        weight = np.empty((len(seen), len(self._free)))
        for x in np.unique(start):
            rows = np.flatnonzero(start == x)
            first = _first_hits(powers, int(x), int(hops[rows].max()))
            for row in rows:
                t = int(hops[row])
                weight[row] = np.einsum("si,si->i", first[: t + 1], powers[t::-1, :, stop[row]])
        sealed_for = self._law[np.ix_(self._free, seen.destination)].T
        return np.asarray(weight * self._relayed[seen.previous_sight_node] * sealed_for)

    def _powers(self, hops: int) -> FloatArray:
        size = len(self._free)
        needed = 8 * (hops + 1) * size**2
        if needed > self._memory_bytes:
            raise ResourceLimitError(
                f"the bridge observer needs {needed / 2**30:.3g} GiB for gaps of up to {hops} hops, may use "
                f"{self._memory_bytes / 2**30:.3g} GiB: leave it out or take more colluders"
            )
        powers = np.empty((hops + 1, size, size))
        powers[0] = np.eye(size)
        for t in range(1, hops + 1):
            np.matmul(powers[t - 1], self._step, out=powers[t])
        return powers


def _first_hits(powers: FloatArray, start: int, hops: int) -> FloatArray:
    """P(first at i after s hops | from ``start``, killed chain) for s up to ``hops``, by renewal."""
    back = np.einsum("tii->ti", powers)
    first = np.empty((hops + 1, powers.shape[1]))
    for t in range(hops + 1):
        first[t] = powers[t, start] - np.einsum("si,si->i", first[:t], back[t:0:-1])
    return np.maximum(first, 0.0)
