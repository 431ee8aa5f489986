"""The worst case: a destination that is granted more than any node sees."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from veilwalk.audit._plan import Plan
from veilwalk.audit._scene import require
from veilwalk.audit.inference import Posterior
from veilwalk.audit.inference.paths import first_updates, from_path
from veilwalk.audit.observers._base import Observer, Place
from veilwalk.core.arrays import IntArray


class Path(Observer):
    """Who knows every hop, but cannot look into a ciphertext, nor see where one ends and the next begins."""

    name, sees = "path", "last hop, and every hop the token made, as who watches all links knows"
    alone = False

    @classmethod
    def unsuited(cls, plan: Plan) -> str | None:
        """Posteriors of all updates are held at a time."""
        n_nodes, most = plan.scheme.graph.n_nodes, plan.settings.path_nodes
        return f"it takes up to {most} nodes, the graph has {n_nodes}" if n_nodes > most else None

    @classmethod
    def in_all(cls, plan: Plan) -> bool:
        """Where no chain on the nodes says how much a path can tell."""
        return plan.without_node_chain

    @classmethod
    def own_bytes(cls, plan: Plan) -> int:
        """Paths of a few tokens, and the posteriors of who knows them."""
        settings = plan.settings
        return (256 << 20) + 4 * 8 * min(settings.updates, settings.scored_by_few) * plan.scheme.graph.n_nodes

    def rows(self) -> IntArray:
        """Return the first updates of every lane."""
        return self._rows

    @cached_property
    def _rows(self) -> IntArray:
        scene = self.scene
        fit = np.flatnonzero(scene.attacked[scene.seen.destination])
        return first_updates(scene.lane, require(fit, "was left to score"), scene.settings.scored_by_few)

    def posterior(self, place: Place) -> Posterior:
        """Return what it infers; all updates are worked out when the first is asked for."""
        places = np.searchsorted(self._rows, place.rows)
        return Posterior(self._guess.weights[places], self._guess.how)

    @cached_property
    def _guess(self) -> Posterior:
        scene = self.scene
        seen, lanes = scene.seen.at(self._rows), scene.lane[self._rows]
        return from_path(scene.scheme, scene.settings, seen=seen, lanes=lanes)
