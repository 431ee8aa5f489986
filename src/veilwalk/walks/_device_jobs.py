"""Independent walks on a device; :mod:`veilwalk.walks._jobs` checks what it is given and cuts it into batches."""

from __future__ import annotations

from typing import Any

from veilwalk.core.arrays import IntArray
from veilwalk.walks._device import Device
from veilwalk.walks._moves import Moves


class DeviceMoves:
    """The tables of a walk, kept on a device."""

    def __init__(self, device: Device, moves: Moves) -> None:
        self._device, self._moves = device, moves
        self._table, self._offsets = device.put(moves.table), device.put(moves.offsets)
        self._ends, self._pairs = device.put(moves.ends), device.put(moves.pairs)

    def final_positions(self, starts: Any, steps: int, key: Any, job: Any) -> Any:
        """Return where walkers are after ``steps`` steps; starts and result are the device's arrays."""
        out = self._device.full(len(starts), -1, "int32")
        rest = (*self._moves.word_arguments(), starts, len(starts), steps, key, job, out)
        if len(self._moves.ends):
            self._device.launch(
                "final_positions_by_doubles", len(starts), self._table, self._ends, len(self._moves.ends), *rest
            )
        else:
            self._device.launch("final_positions", len(starts), self._table, self._offsets, *rest)
        return out

    def first_hits(self, sources: Any, targets: Any, max_steps: int, key: Any, job: Any) -> Any:
        """Return the first step from 1 on at which each job meets its target, -1 after ``max_steps``."""
        out = self._device.full(len(sources), -1, "int64")
        rest = (*self._moves.word_arguments(), sources, targets, len(sources), max_steps, key, job, out)
        if len(self._moves.pairs):
            self._device.launch("first_hits_by_doubles", len(sources), self._pairs, len(self._moves.pairs), *rest)
        else:
            self._device.launch("first_hits", len(sources), self._table, self._offsets, *rest)
        return out

    def positions_of(self, starts: IntArray, steps: int, key: Any, job: Any) -> IntArray:
        """As :meth:`final_positions`, from arrays here to arrays here."""
        return self._device.fetch(self.final_positions(self._device.put(starts), steps, key, job))

    def hits_of(self, sources: IntArray, targets: IntArray, max_steps: int, key: Any, job: Any) -> IntArray:
        """As :meth:`first_hits`, from arrays here to arrays here."""
        sources, targets = self._device.put(sources), self._device.put(targets)
        return self._device.fetch(self.first_hits(sources, targets, max_steps, key, job))
