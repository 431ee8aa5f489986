"""Colluders against a walk that is a chain on the nodes: what joined sightings of one ciphertext tell, exactly."""

from __future__ import annotations

import numpy as np

from veilwalk.audit._scene import Scene
from veilwalk.audit._sightings import Sightings
from veilwalk.audit.inference._base import EXACT, Posterior
from veilwalk.audit.inference.rehearsed_sights import RehearsedSights, SealedSights
from veilwalk.chains import WalkChain, stationary_law
from veilwalk.core.arrays import FloatArray, IntArray, normalised


def coalition_of(scene: Scene) -> ColluderPosteriors | RehearsedSights:
    """Return what the colluders of a scene know: exact on a chain on the nodes, unless they are to rehearse."""
    nodes = scene.scheme.chain.on_nodes if scene.scheme.chain is not None else None
    if nodes is None or scene.plan.posterior == "rehearsed" or scene.scheme.recipients > 1:
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

    def __init__(self, chain: WalkChain, law: FloatArray, colluders: IntArray) -> None:
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
