"""A walk as the simulator knows it: who made and who opened each update, for whom it was sealed, which way it went."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from veilwalk.core.arrays import IntArray
from veilwalk.core.walk import Walk
from veilwalk.design import Scheme
from veilwalk.graphs import Graph
from veilwalk.walks import draw_recipients, token_paths
from veilwalk.watch._documents import Document

# Bounds of what a page is given: deliveries, hops or recipients in all, and rows of one document.
_MOST_DELIVERIES, _MOST_NUMBERS, _AT_ONCE = 20_000, 400_000, 2_000
_FEWEST_HOPS, _MOST_HOPS = 8, 400
# A longer way is not walked again for a picture.
_WALKED_HOPS = 50_000_000


@dataclass(frozen=True, eq=False, kw_only=True)
class Walked:
    """The records of a played walk (``walks.UPDATE_DTYPE``, one replica) in the order in which updates happened.

    Attributes:
        graph: Where it was walked.
        walk: How.
        scheme: Both, with the law; None where the law was given as an object, and is not known.
        records: The updates.
        seed: Seed of the walk.
    """

    graph: Graph
    walk: Walk
    scheme: Scheme | None
    records: npt.NDArray[np.void]
    seed: int

    def __post_init__(self) -> None:
        """Order records as ``learning.trace_of`` does: by hops since each token began, those of one time by token."""
        records = self.records
        clock = records["clock"].astype(np.int64)
        for token in np.unique(records["token"]):
            mine = np.flatnonzero(records["token"] == token)
            clock[mine] -= clock[mine[0]] - records["leg_hops"][mine[0]]
        order = np.lexsort((records["token"], clock))
        object.__setattr__(self, "records", records[order])

    def documents(self) -> Iterator[Document]:
        """Yield the deliveries; of very many every so-manieth, and of long legs the last hops."""
        every = -(-len(self.records) // _MOST_DELIVERIES)
        rows = np.arange(0, len(self.records), every)
        tails, sealed = self._tails(rows), self._sealed(rows)
        for first in range(0, len(rows), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            found = self.records[rows[part]]
            columns = {
                "token": "token", "source": "source", "node": "destination", "last_hop": "last_hop",
                "hops": "leg_hops", "return_time": "return_time",
            }  # fmt: skip
            yield {
                "kind": "deliveries",
                "from": first,
                "every": every,
                "update": (rows[part] + 1).tolist(),
                **{name: found[column].tolist() for name, column in columns.items()},
                "clock": np.cumsum(self.records["leg_hops"], dtype=np.int64)[rows[part]].tolist(),
                "tail": tails[part] if tails else [],
                "recipients": sealed[part] if sealed else [],
            }

    def _tails(self, rows: IntArray) -> list[list[int]]:
        """The way of each leg, its last hops where that would be too much; nothing where it was walked otherwise."""
        records = self.records
        tokens, hops = int(records["token"].max()) + 1, int(records["clock"].max())
        if tokens * hops > _WALKED_HOPS:
            return []
        paths = token_paths(self.graph, hops=hops, lanes=tokens, seed=self.seed, walk=self.walk)
        if not (paths[records["token"], records["clock"]] == records["destination"]).all():
            return []
        longest = int(np.clip(_MOST_NUMBERS // len(rows), _FEWEST_HOPS, _MOST_HOPS))
        found = []
        for token, clock, leg in records[["token", "clock", "leg_hops"]][rows].tolist():
            found.append(paths[token, clock - min(leg, longest) : clock + 1].tolist())
        return found

    def _sealed(self, rows: IntArray) -> list[list[int]]:
        """For whom each update was sealed; nothing where that would be too much."""
        found, scheme = self.records[rows], self.scheme
        if scheme is None:
            return []
        if scheme.recipients == 1:
            return [[node] for node in found["destination"].tolist()]
        if scheme.recipients * len(rows) > _MOST_NUMBERS:
            return []
        sets = draw_recipients(
            scheme.graph,
            scheme.law.rows,
            scheme.recipients,
            seed=self.seed,
            lane=found["token"],
            source=found["source"],
            clock=found["clock"] - found["leg_hops"],
        )
        return [sorted(one) for one in sets.tolist()]
