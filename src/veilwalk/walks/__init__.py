"""Compiled Monte Carlo: the whole protocol played out hop by hop, and the paths of its tokens."""

from veilwalk.walks._device import DEVICES
from veilwalk.walks._laws import ExcludedRows, LawRows, draw_recipients, law_digest
from veilwalk.walks._moves import TABLES
from veilwalk.walks._openings import Openings, estimate_openings
from veilwalk.walks._paths import token_paths
from veilwalk.walks._protocol import UPDATE_DTYPE, estimate_memory, iter_protocol, run_protocol
from veilwalk.walks._trace import Trace, read_trace, write_trace

__all__ = [
    "DEVICES",
    "TABLES",
    "UPDATE_DTYPE",
    "ExcludedRows",
    "LawRows",
    "Openings",
    "Trace",
    "draw_recipients",
    "estimate_memory",
    "estimate_openings",
    "iter_protocol",
    "law_digest",
    "read_trace",
    "run_protocol",
    "token_paths",
    "write_trace",
]
