"""Tokens of ciphertexts that are sealed for one, between two calls of the kernel."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from veilwalk.core.arrays import BoolArray, IntArray
from veilwalk.walks._law import AliasRows
from veilwalk.walks._memory import MemoryMoves
from veilwalk.walks._moves import Moves


class Lanes(ABC):
    """The tokens of every replica, between two calls of the kernel."""

    def __init__(self, n_nodes: int, law: AliasRows, watching: BoolArray, *, tokens: int, key: np.uint64) -> None:
        self._n_nodes = n_nodes
        self._law = law
        self._watching = watching
        self._tokens = tokens
        self._key = key
        self._state = np.empty((0, 0), dtype=np.int64)
        self._visits = np.empty(0, dtype=np.int64)

    def start(self, lanes: range) -> None:
        """Put the tokens of these lanes on their first nodes."""
        from veilwalk.walks import _kernels_protocol as kernels
        from veilwalk.walks import _kernels_records as records

        self._state = np.empty((len(lanes), records.N_COLUMNS), dtype=np.int64)
        self._visits = np.full(len(lanes) * self._n_nodes, -1, dtype=np.int64)
        n_nodes, first = np.uint64(self._n_nodes), np.uint64(lanes.start)
        kernels.start_lanes(n_nodes, *self._law.arguments(), self._key, first, self._state, self._visits)

    @abstractmethod
    def play(self, quotas: IntArray, out: npt.NDArray[np.void]) -> None:
        """Let each lane make its quota of updates, recorded one lane after the other in ``out`` unless empty."""

    def unvisited(self) -> BoolArray:
        """Return which lanes' tokens have not been everywhere yet."""
        return np.asarray((self._visits.reshape(len(self._state), self._n_nodes) < 0).any(axis=1))


class TableLanes(Lanes):
    """Tokens whose walk is a table of moves."""

    def __init__(self, moves: Moves, law: AliasRows, watching: BoolArray, *, tokens: int, key: np.uint64) -> None:
        super().__init__(moves.n_nodes, law, watching, tokens=tokens, key=key)
        self._moves = moves

    def play(self, quotas: IntArray, out: npt.NDArray[np.void]) -> None:
        """Let each lane make its quota of updates."""
        from veilwalk.walks import _kernels_protocol as kernels

        if len(quotas) == 1 and self._moves.width and not len(self._watching):
            kernels.run_lane(
                self._moves.table,
                *self._moves.word_arguments(),
                *self._law.arguments(),
                self._tokens,
                self._key,
                self._state,
                self._visits,
                int(quotas[0]),
                out,
            )
            return
        kernels.run_lanes(
            self._moves.table,
            self._moves.offsets,
            *self._moves.word_arguments(),
            np.uint64(self._n_nodes),
            *self._law.arguments(),
            self._watching,
            self._tokens,
            self._key,
            self._state,
            self._visits,
            quotas,
            np.cumsum(quotas) - quotas,
            out,
        )


class MemoryLanes(Lanes):
    """Tokens whose walk needs to know where they came from, or a coin."""

    def __init__(self, moves: MemoryMoves, law: AliasRows, watching: BoolArray, *, tokens: int, key: np.uint64) -> None:
        super().__init__(moves.n_nodes, law, watching, tokens=tokens, key=key)
        self._moves = moves
        self._backs = np.empty(0, dtype=np.int64)

    def start(self, lanes: range) -> None:
        """Put the tokens of these lanes on their first nodes."""
        super().start(lanes)
        self._backs = np.full(len(lanes), -1, dtype=np.int64)

    def play(self, quotas: IntArray, out: npt.NDArray[np.void]) -> None:
        """Let each lane make its quota of updates."""
        from veilwalk.walks import _kernels_memory as kernels

        kernels.run_memory_lanes(
            *self._moves.arguments(),
            np.uint64(self._n_nodes),
            *self._law.arguments(),
            self._watching,
            self._tokens,
            self._key,
            self._state,
            self._backs,
            self._visits,
            quotas,
            np.cumsum(quotas) - quotas,
            out,
        )
