"""Compiled Monte Carlo: the whole protocol played out hop by hop, and the paths of its tokens."""

from veilwalk.walks._device import DEVICES
from veilwalk.walks._memory import MemoryMoves, memory_moves_of
from veilwalk.walks._memory_paths import token_paths
from veilwalk.walks._moves import TABLES
from veilwalk.walks._openings import Openings, estimate_openings
from veilwalk.walks._protocol import UPDATE_DTYPE, estimate_memory, iter_protocol
from veilwalk.walks._protocol_jobs import law_digest, run_protocol
from veilwalk.walks._sets import FarRows, LawRows, recipients_of
from veilwalk.walks._trace import Trace, read_trace, write_trace

__all__ = [
    "DEVICES",
    "TABLES",
    "UPDATE_DTYPE",
    "FarRows",
    "LawRows",
    "MemoryMoves",
    "Openings",
    "Trace",
    "estimate_memory",
    "estimate_openings",
    "iter_protocol",
    "law_digest",
    "memory_moves_of",
    "read_trace",
    "recipients_of",
    "run_protocol",
    "token_paths",
    "write_trace",
]
