"""Observers that judge each update by one sighting: a destination, colluders at first sight, and a worst case."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from veilwalk.audit._scene import Scene, require
from veilwalk.audit._settings import Plan
from veilwalk.audit._sightings import Sightings
from veilwalk.audit.inference import Posterior
from veilwalk.audit.inference.first_sight import coalition_of
from veilwalk.audit.inference.paths import first_updates, from_path
from veilwalk.audit.observers._base import Observer, Place
from veilwalk.chains import Chain
from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.core.stats import geometric_edges
from veilwalk.design import exact_window_likelihood


class Prior(Observer):
    """The prior over sources: the stationary law of the update chain times the law, or who opens of several."""

    name, sees = "prior", "that it was chosen"
    of_plain = looks_up = True

    def posterior(self, place: Place) -> Posterior:
        """Return the prior."""
        return Posterior(np.tile(place.prior, (len(place.rows), 1)), self._how())

    def _how(self) -> str:
        scheme = self.scene.scheme
        if scheme.recipients == 1:
            return "exact"
        if self.scene.plan.looked_up or not len(scheme.openings.joint):
            return "estimated: as often as each draws it, whoever is met first"
        return "estimated: sampled paths, sets summed out"


class WindowPosteriors:
    """The paper's window notion as an adversary: P_ij times the window likelihood at the return time seen.

    The likelihood is computed exactly at the median of each of up to 40 geometric bins of return times. It is not
    the best observer.
    """

    BINS = 40

    def __init__(self, chain: Chain, law: FloatArray, return_times: IntArray, *, window_radius: int) -> None:
        self._law = law
        ends = geometric_edges(return_times.min(), return_times.max(), self.BINS + 1)
        index = np.searchsorted(ends[1:-1], return_times, side="right")
        middles = np.array([np.median(return_times[index == b]) for b in np.unique(index)])
        # Halfway between medians, on the scale the bins are cut on.
        self._edges = np.sqrt(middles[1:] * middles[:-1])
        tables = [np.ascontiguousarray((law * exact_window_likelihood(chain, m, window_radius)).T) for m in middles]
        self._weights = np.stack(tables)

    def at(self, destination: int, seen: Sightings) -> Posterior:
        """Return the notion's posterior for sightings at ``destination``."""
        index = np.searchsorted(self._edges, seen.return_time, side="right")
        weight = self._weights[index, destination]
        # The middle of a bin may be too short for every candidate; then the notion has nothing to say.
        silent = weight.sum(axis=1) == 0
        guess = normalised(np.where(silent[:, np.newaxis], self._law[:, destination], weight))
        how = f"the paper's notion; exact likelihoods at the medians of up to {self.BINS} return-time bins"
        return Posterior(guess, how)


class Window(Observer):
    """The window notion on the return time; not the best observer."""

    name, sees = "window", "the paper's notion: a window on the return time"

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        times, radius = scene.seen.return_time, scene.settings.window_radius
        self._window = WindowPosteriors(scene.chain, scene.matrix, times, window_radius=radius)

    @classmethod
    def unsuited(cls, plan: Plan) -> str | None:
        """The notion is about hitting times of a chain on the nodes, to one destination."""
        if plan.scheme.recipients > 1:
            return f"the notion is of one destination, the scheme seals for {plan.scheme.recipients}"
        return f"the notion is not for the {plan.scheme.walk.kind} walk" if plan.without_node_chain else None

    def posterior(self, place: Place) -> Posterior:
        """Return what the notion says."""
        return self._window.at(place.node, place.seen)


class ReturnTime(Observer):
    """Who counts the hops since the token last passed."""

    name, sees = "return-time", "hops since the token last passed, whole law"
    timed = looks_up = True

    def posterior(self, place: Place) -> Posterior:
        """Return what the law of return times tells."""
        return place.timing.posterior(place.seen, use_last_hop=self.use_last_hop)


class LastHop(ReturnTime):
    """Who also sees which neighbour it came from."""

    name, sees = "last-hop", "return time, and the neighbour it came from"
    of_plain = use_last_hop = True


class FirstSight(Observer):
    """Who know which of them first held the ciphertext."""

    name, sees = "first-sight", "colluders share which of them first held the ciphertext, and from whom"
    colluding, alone = True, False

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._coalition = coalition_of(scene)

    @classmethod
    def rehearses(cls, plan: Plan) -> bool:
        """Where no chain on the nodes tells, of several recipients none does, or where the settings ask for it."""
        return plan.without_node_chain or plan.settings.posterior == "rehearsed" or plan.scheme.recipients > 1

    @property
    def prior(self) -> FloatArray:
        """None of themselves: their own updates they know."""
        return self.scene.honest_prior

    def rows(self) -> IntArray:
        """Return updates that went to a colluder and came from somebody else."""
        scene = self.scene
        rows = np.flatnonzero(scene.member[scene.seen.destination] & ~scene.own)
        rows = rows[:: -(-len(rows) // scene.settings.scored_by_few) or 1]
        return require(rows, "went to a colluder from somebody else")

    def posterior(self, place: Place) -> Posterior:
        """Return what they infer together."""
        return self._coalition.posterior(place.seen)


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
    def reason_to_skip(cls, plan: Plan) -> str | None:
        """Only where no chain on the nodes says how much a path can tell."""
        return None if plan.without_node_chain else "a chain on the nodes says how much a path can tell"

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
