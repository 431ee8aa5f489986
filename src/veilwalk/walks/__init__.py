"""Plays the protocol hop by hop with compiled kernels, and traces the paths of its tokens."""

from typing import TYPE_CHECKING

from veilwalk.core.rooms import open_room

if TYPE_CHECKING:
    from veilwalk.walks._openings import Openings, estimate_openings
    from veilwalk.walks._protocol import (
        UPDATE_DTYPE,
        estimate_memory,
        iter_protocol,
        join_blank_legs,
        run_protocol,
        split_evenly,
        token_paths,
    )
    from veilwalk.walks._tables import TABLES, ExcludedRows, draw_recipients, law_digest
    from veilwalk.walks._trace import read_trace, write_trace
else:
    __getattr__, __all__ = open_room(__name__)
