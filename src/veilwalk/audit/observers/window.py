"""The paper's notion, as if it were an observer."""

from __future__ import annotations

import numpy as np

from veilwalk.audit._plan import Plan
from veilwalk.audit._scene import Scene
from veilwalk.audit._sightings import Sightings
from veilwalk.audit.inference import Posterior
from veilwalk.audit.observers._base import Observer, Place
from veilwalk.chains import Chain
from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.core.bins import geometric_edges
from veilwalk.design import exact_window_likelihood


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
