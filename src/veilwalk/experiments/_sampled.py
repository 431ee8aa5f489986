"""Exact chains averaged over sampled random regular graphs: the truth the closed forms approximate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from veilwalk.chains import Chain, chain_of
from veilwalk.core.arrays import FloatArray, IntArray, normalised
from veilwalk.core.progress import Progress, silent
from veilwalk.core.support import DistanceSupport
from veilwalk.core.walk import SIMPLE
from veilwalk.design import covered_return_times, exact_window_likelihood, mean_by_distance
from veilwalk.graphs import distances, random_regular


@dataclass(frozen=True, kw_only=True, eq=False)
class SampledGraphs:
    """Exact quantities on ``n_graphs`` sampled RRG(n_nodes, degree); graph k has seed (seed + k)."""

    n_nodes: int
    degree: int
    n_graphs: int
    seed: int
    progress: Progress = silent

    @cached_property
    def each(self) -> list[tuple[Chain, IntArray]]:
        """The chain and the table of distances of every sampled graph."""
        graphs = [random_regular(self.n_nodes, self.degree, seed=self.seed + k) for k in range(self.n_graphs)]
        return [(chain_of(graph, SIMPLE), distances(graph)) for graph in graphs]

    @property
    def reach(self) -> int:
        """The largest distance at which every sampled graph has a pair."""
        return min(int(apart.max()) for _, apart in self.each)

    def mean_shells(self, support: DistanceSupport) -> FloatArray:
        """Mean number of nodes at each distance of the support."""
        counts = sum(np.bincount(apart.ravel(), minlength=support.hi + 1)[: support.hi + 1] for _, apart in self.each)
        return np.asarray(counts / (self.n_graphs * self.n_nodes))[support.lo :]

    def mean_hitting_times(self, support: DistanceSupport) -> FloatArray:
        """E[T | l] of each graph (row) at each distance of the support; NaN where a graph has no such pair."""
        return np.stack([mean_by_distance(chain.mean_hitting_times(), apart, support) for chain, apart in self.each])

    def truncated_means(self, return_time: float, support: DistanceSupport) -> FloatArray:
        """E[T | l, T <= return_time] of each graph (row), averaged over pairs at each distance."""
        rows = []
        for chain, apart in self.each:
            rows.append(mean_by_distance(chain.truncated_means(return_time), apart, support))
        return np.stack(rows)

    def window_likelihoods(
        self, return_times: FloatArray, *, window_radius: int, support: DistanceSupport
    ) -> FloatArray:
        """Mean chance of a hit within the window, by return time (row) and distance, over all graphs."""
        total = np.zeros((len(return_times), support.size))
        for number, (chain, apart) in enumerate(self.each, start=1):
            for row, seen in enumerate(return_times):
                total[row] += mean_by_distance(
                    exact_window_likelihood(chain, float(seen), window_radius), apart, support
                )
            self.progress(f"degree {self.degree}: exact chains", number, self.n_graphs, "graphs")
        return total / self.n_graphs

    def covered_return_times(self, support: DistanceSupport, shares: FloatArray) -> FloatArray:
        """Mean over graphs of the return time covered with each probability, from exact return laws."""
        found = [covered_return_times(chain, support, list(shares)) for chain, _ in self.each]
        return np.asarray(np.mean(found, axis=0))


def posterior(distance_pmf: FloatArray, shells: FloatArray, likelihood: FloatArray) -> FloatArray:
    """W(l), proportional to p(l)/A(l) times the exact window likelihood of one node at distance l."""
    return normalised(distance_pmf / shells * likelihood)
