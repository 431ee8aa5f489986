"""Compiled Monte Carlo: independent walks, and the whole protocol played out hop by hop."""

from veilwalk.walks._device import DEVICES
from veilwalk.walks._histogram import hitting_time_histogram
from veilwalk.walks._jobs import (
    NOT_REACHED,
    NOT_WALKED,
    hitting_times,
    return_times,
    walk_positions,
)
from veilwalk.walks._memory import MemoryMoves, memory_moves_of
from veilwalk.walks._memory_paths import token_paths
from veilwalk.walks._moves import TABLES
from veilwalk.walks._openings import Openings, estimate_openings
from veilwalk.walks._protocol import UPDATE_DTYPE, estimate_memory, iter_protocol
from veilwalk.walks._protocol_jobs import law_digest, run_protocol
from veilwalk.walks._sets import FarRows, LawRows, recipients_of
from veilwalk.walks._skip_ahead import HittingTail, hitting_tail, skip_ahead_hitting_times
from veilwalk.walks._trace import Trace, read_trace, write_trace

__all__ = [
    "DEVICES",
    "NOT_REACHED",
    "NOT_WALKED",
    "TABLES",
    "UPDATE_DTYPE",
    "FarRows",
    "HittingTail",
    "LawRows",
    "MemoryMoves",
    "Openings",
    "Trace",
    "estimate_memory",
    "estimate_openings",
    "hitting_tail",
    "hitting_time_histogram",
    "hitting_times",
    "iter_protocol",
    "law_digest",
    "memory_moves_of",
    "read_trace",
    "recipients_of",
    "return_times",
    "run_protocol",
    "skip_ahead_hitting_times",
    "token_paths",
    "walk_positions",
    "write_trace",
]
