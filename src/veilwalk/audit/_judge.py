"""The judge: the only one who holds what was inferred against the truth."""

from __future__ import annotations

import numpy as np

from veilwalk.audit._play import Truth
from veilwalk.audit._report import Linked, Scored
from veilwalk.audit._scene import Scene
from veilwalk.audit._scores import SCORES, score
from veilwalk.audit.inference import Posterior
from veilwalk.core.arrays import FloatArray, IntArray


class Judge:
    """Scores posteriors of one scene, and says which updates have one source where that is granted."""

    def __init__(self, scene: Scene, truth: Truth) -> None:
        self._scene, self._truth = scene, truth

    def score(self, posterior: Posterior, rows: IntArray, node: int) -> FloatArray:
        """Score posteriors of the given updates, all at one destination."""
        scene = self._scene
        return score(posterior.weights, self._truth.source[rows], scene.apart[node], scene.support)

    def score_each(self, posterior: Posterior, rows: IntArray) -> FloatArray:
        """Score posteriors of the given updates, wherever they went."""
        scores, to = np.zeros((len(rows), len(SCORES))), self._scene.seen.destination[rows]
        for node in np.unique(to):
            mine = np.flatnonzero(to == node)
            scores[mine] = self.score(Posterior(posterior.weights[mine], posterior.how), rows[mine], int(node))
        return scores

    def score_candidates(self, posterior: Posterior, row: int, candidates: IntArray, away: IntArray) -> FloatArray:
        """Score a posterior over ``candidates``, ascending and so far ``away``, of one update."""
        true = np.searchsorted(candidates, self._truth.source[[row]])
        return score(posterior.weights, true, away, self._scene.support)

    def groups(self, rows: IntArray, count: int) -> IntArray:
        """Return places in ``rows`` in groups of so many updates of one source each; what is left over is dropped."""
        source = self._truth.source[rows]
        order = np.argsort(source, kind="stable")
        _, begins, sizes = np.unique(source[order], return_index=True, return_counts=True)
        place = np.arange(len(order)) - np.repeat(begins, sizes)
        return order[place < np.repeat(sizes // count * count, sizes)].reshape(-1, count)

    def scored(
        self, rows: IntArray, scores: FloatArray, how: str, blind: FloatArray, *, sampled: bool = False
    ) -> Scored:
        """Return scored updates with what a blind guess hits."""
        seen = self._scene.seen
        timed = not self._scene.scheme.is_direct
        return Scored(
            how=how,
            sampled=sampled,
            scores=scores,
            blind=blind,
            lanes=self._truth.lane[rows],
            return_time=seen.return_time[rows] if timed else np.zeros(0, dtype=np.int64),
            destination=seen.destination[rows],
            last_hop=seen.last_hop[rows],
        )

    def linked(self, tables: dict[int, list[tuple[FloatArray, IntArray]]], how: str) -> Scored:
        """Return the scores of groups, given for each size as tables of scores and of the first update of each."""
        joined: dict[int, Linked] = {
            count: (np.concatenate([scores for scores, _ in parts]), self._truth.lane[_first(parts)])
            for count, parts in tables.items()
            if parts
        }
        return Scored(how=how, scores=np.zeros((0, len(SCORES))), linked=joined)


def _first(parts: list[tuple[FloatArray, IntArray]]) -> IntArray:
    return np.concatenate([rows for _, rows in parts])
