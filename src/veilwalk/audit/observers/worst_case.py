"""Worst cases: a destination that is granted more than any node sees."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from veilwalk.audit._plan import Plan
from veilwalk.audit._scene import Scene, require
from veilwalk.audit.inference import Posterior
from veilwalk.audit.inference.paths import first_updates, from_path, from_round
from veilwalk.audit.inference.rehearsed import rehearsed_deliveries
from veilwalk.audit.observers._base import Observer, Place
from veilwalk.core.arrays import FloatArray, IntArray


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
        return first_updates(scene.lane, require(fit, "was left to score"), self._most())

    def _most(self) -> int:
        return self.scene.settings.scored_by_few

    def posterior(self, place: Place) -> Posterior:
        """Return what it infers; all updates are worked out when the first is asked for."""
        places = np.searchsorted(self._rows, place.rows)
        return Posterior(self._guess.weights[places], self._guess.how)

    @cached_property
    def _guess(self) -> Posterior:
        scene = self.scene
        seen, lanes = scene.seen.at(self._rows), scene.lane[self._rows]
        return from_path(scene.scheme, scene.settings, seen=seen, lanes=lanes)


class Round(Path):
    """Who followed the token until it last left, and so knows what every node remembered then."""

    name = "round"
    sees = "last hop, and every hop until the token was last sent on: all that nodes remembered then"

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._counts = rehearsed_deliveries(scene)

    @classmethod
    def unsuited(cls, plan: Plan) -> str | None:
        """Only where nodes remember."""
        if not plan.scheme.walk.remembers:
            return f"nodes of a {plan.scheme.walk.kind} walk remember nothing"
        return super().unsuited(plan)

    @classmethod
    def rehearses(cls, plan: Plan) -> bool:
        """To know what it would believe without memory."""
        del plan
        return True

    def _most(self) -> int:
        return self.scene.settings.scored_by_round

    @cached_property
    def _guess(self) -> Posterior:
        scene, rows = self.scene, self._rows
        seen, lanes = scene.seen.at(rows), scene.lane[rows]
        return from_round(scene.scheme, scene.settings, seen=seen, lanes=lanes, otherwise=self._without_memory(rows))

    def _without_memory(self, rows: IntArray) -> FloatArray:
        """Posteriors from return time and last hop, rehearsed."""
        guess = np.zeros((len(rows), self.scene.graph.n_nodes))
        for node, mine in self.scene.by_destination(rows):
            here = self.scene.seen.at(mine)
            guess[np.searchsorted(rows, mine)] = self._counts.posterior(node, here, use_last_hop=True)
        return guess
