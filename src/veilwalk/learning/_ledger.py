"""What training costs: transfers, bytes and modelled seconds, for each update and in total."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.geometry import MessageGeometry, SuiteName
from veilwalk.core.payload import array_bytes
from veilwalk.learning._api import Params

if TYPE_CHECKING:
    from veilwalk.learning._trace import TrainingTrace


def sealed_bytes(params_bytes: int, *, suite: SuiteName = "hybrid", recipients: int = 1) -> int:
    """Return the length of the sealed message that carries parameters of so many bytes: all of a run are equal."""
    return MessageGeometry.for_body(params_bytes, suite=suite, recipients=recipients).message_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """How long things take.

    Attributes:
        bandwidth_bytes_per_s: What a node can send; it sends one message at a time.
        latency_s: From the last byte sent to the first thing done with it.
        compute_s: One update.
    """

    bandwidth_bytes_per_s: float = 1.25e6
    latency_s: float = 0.02
    compute_s: float = 0.01

    def __post_init__(self) -> None:
        validate.finite(bandwidth=self.bandwidth_bytes_per_s, latency=self.latency_s, compute=self.compute_s)
        validate.more_than(0, bandwidth=self.bandwidth_bytes_per_s)
        validate.at_least(0, latency=self.latency_s, compute=self.compute_s)

    def hop_seconds(self, message_bytes: int) -> float:
        """Return how long one message takes to a neighbour."""
        return self.latency_s + message_bytes / self.bandwidth_bytes_per_s


@dataclass(frozen=True, eq=False, kw_only=True)
class Ledger:
    """Running totals after each update of a trace; entry 0 is before the first.

    Attributes:
        message_bytes: Size of every message.
        hops: Transfers of a model from one node to the next.
        sent_bytes: Hops times the size.
        seconds: Modelled; models in flight at once share the time.
    """

    message_bytes: int
    hops: IntArray
    sent_bytes: IntArray
    seconds: FloatArray

    def up_to(self, *, max_hops: float, max_bytes: float) -> int:
        """Return how many updates fit into a budget."""
        fits = (self.hops <= max_hops) & (self.sent_bytes <= max_bytes)
        return int(fits.sum()) - 1


def params_bytes(params: Params, *, payload: str = "fp32") -> int:
    """Return the bytes of the arrays of a model, as ``payload`` says that they travel."""
    return sum(array_bytes(payload, array.shape, array.dtype) for array in map(np.asarray, params.values()))


def ledger(trace: TrainingTrace, cost: CostModel, *, params_bytes: int) -> Ledger:
    """Return the costs of ``trace`` for a model of so many bytes."""
    # Others send the parameters as they are.
    size = sealed_bytes(params_bytes, recipients=trace.recipients) if trace.recipients else params_bytes
    hops = np.concatenate(([0], np.cumsum(trace.hops)))
    return Ledger(
        message_bytes=size,
        hops=hops,
        sent_bytes=hops * size,
        seconds=np.concatenate(([0.0], _seconds(trace, cost, size))),
    )


def _seconds(trace: TrainingTrace, cost: CostModel, size: int) -> FloatArray:
    """Modelled time at which each update is done."""
    if trace.mixing is not None:
        # All update at once; then the node with most neighbours is the last to have sent.
        sending = cost.latency_s + int(trace.hops.max()) * size / cost.bandwidth_bytes_per_s
        return np.asarray(trace.clock * (cost.compute_s + sending))
    own = np.zeros(len(trace))
    for model in range(trace.n_models):
        mine = np.flatnonzero(trace.model == model)
        own[mine] = np.cumsum(trace.hops[mine] * cost.hop_seconds(size) + cost.compute_s)
    # Tokens walk side by side; a row is done when its own token, and all before it, are.
    return np.maximum.accumulate(own)
