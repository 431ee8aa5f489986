"""A design that seals for several: what it costs in hops and bytes, and what it leaves hidden from whom."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from veilwalk.core import validate
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.geometry import MessageGeometry, SuiteName
from veilwalk.core.records import Record
from veilwalk.core.stats import Estimate
from veilwalk.core.support import DistanceSupport
from veilwalk.core.tables import html_table
from veilwalk.core.walk import Walk
from veilwalk.design._files import choose_scheme
from veilwalk.design._hidden import FirstSight, Hidden, Predecessor, first_sights, predecessor_guess, what_is_hidden
from veilwalk.design._law import DestinationLaw
from veilwalk.design._scheme import Scheme, require_destinations
from veilwalk.graphs import Graph

#: Bytes of the model that prices are told for, unless another is named: softmax regression on MNIST, in float32.
MODEL_BYTES = 31_400
_SUITES: tuple[SuiteName, ...] = ("hybrid", "x25519")


@dataclass(frozen=True, kw_only=True)
class Sealing:
    """What is sealed, and how: what a hop costs in bytes follows."""

    model_bytes: int = MODEL_BYTES
    suite: SuiteName = "hybrid"

    def __post_init__(self) -> None:
        validate.integer(model_bytes=self.model_bytes)
        validate.at_least(1, model_bytes=self.model_bytes)
        if self.suite not in _SUITES:
            raise InvalidParameterError("suite", self.suite, "hybrid or x25519")

    def message_bytes(self, recipients: int) -> int:
        """Return the length of a message that is sealed for so many."""
        return MessageGeometry.for_body(self.model_bytes, suite=self.suite, recipients=recipients).message_bytes


@dataclass(frozen=True, kw_only=True, eq=False)
class Several:
    """A scheme that seals for several, and what is known about it.

    Attributes:
        scheme: Graph, law, walk and number of recipients.
        sealing: What a message carries.
        hidden: What who opens can tell of the source.
        predecessor: What the source can tell of who will open; None where its walk cannot be started at will.
        colluders: How often colluders name the source at first sight, a row a share of colluders.
    """

    scheme: Scheme
    sealing: Sealing
    hidden: Hidden
    predecessor: Predecessor | None
    colluders: tuple[FirstSight, ...]

    @property
    def bytes_per_update(self) -> float:
        """Mean hops times the length of a message."""
        return self.hidden.price.hops * self.sealing.message_bytes(self.scheme.recipients)

    @property
    def kept(self) -> float:
        """Node entropy left to an opener with its last hop, as a share of the log of all other nodes."""
        return self.hidden.last_hop_nats.mean / math.log(max(self.scheme.graph.n_nodes - 1, 2))

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain data under its stable JSON keys."""
        scheme, hidden, law = self.scheme, self.hidden, self.scheme.law
        content: dict[str, Any] = {
            "law": law.name,
            "walk": str(scheme.walk),
            "recipients": scheme.recipients,
            "n_nodes": scheme.graph.n_nodes,
            "graph_digest": law.graph_digest,
            "eligible": [int(law.choices.min()), int(law.choices.max())],
            "mean_iteration_hops": hidden.price.hops,
            "mean_iteration_hops_interval": hidden.price.interval,
            "mean_iteration_hops_kind": hidden.price.kind,
            "model_bytes": self.sealing.model_bytes,
            "suite": self.sealing.suite,
            "message_bytes": self.sealing.message_bytes(scheme.recipients),
            "bytes_per_update": self.bytes_per_update,
            "node_entropy_nats": hidden.last_hop_nats.mean,
            "node_entropy_interval": hidden.last_hop_nats.interval,
            "node_entropy_kind": hidden.kind,
            "node_entropy_kept": self.kept,
            "update_range": hidden.update_range,
            "certain_to_a_relay": scheme.certain_to_a_relay(),
        }
        if hidden.opener_nats is not None:
            content["opener_node_entropy_nats"] = hidden.opener_nats.mean
            content["opener_node_entropy_interval"] = hidden.opener_nats.interval
            content["top_posterior"] = hidden.top_posterior
            content["top_posterior_worst_percent"] = hidden.worst_percent
            content["top_posterior_worst_arc"] = hidden.worst_arc
        if self.predecessor is not None:
            content["predecessor"] = {
                "knows_set": _mean(self.predecessor.knows_set),
                "knows_first_hop": _mean(self.predecessor.knows_first_hop),
                "kind": self.predecessor.kind,
            }
        content["colluders_first_sight"] = [
            {"share": one.share, "named": _mean(one.named), "times_floor": one.times_floor} for one in self.colluders
        ]
        return content if scheme.graph.labels is None else content | {"labels": list(scheme.graph.labels)}

    def record(self) -> Record:
        """Return what was asked, by which code, and what came out."""
        scheme = self.scheme
        params = {"graph": scheme.graph.name, "law": scheme.law.name, "walk": str(scheme.walk)}
        return Record(kind="design", params=params | {"recipients": scheme.recipients}, seed=1, result=self.to_dict())

    def _repr_html_(self) -> str:
        hidden = self.hidden
        shown = {
            "law": self.scheme.law.name,
            "walk": str(self.scheme.walk),
            "recipients": str(self.scheme.recipients),
            "hops per update": f"{hidden.price.hops:.1f} ({hidden.price.kind})",
            "node entropy, nats": f"{hidden.last_hop_nats.mean:.4f} ({hidden.kind})",
        }
        return html_table([{"": name, "value": value} for name, value in shown.items()])


def design_several(
    graph: Graph,
    law: str | DestinationLaw = "far:4",
    *,
    recipients: int | None = None,
    walk: Walk | str | None = None,
    support: DistanceSupport | tuple[int, int] | str | None = None,
    sealing: Sealing | None = None,
) -> Several:
    """Say what a scheme that seals for several costs and leaves hidden; sampled, with a fixed seed.

    Args:
        graph: any connected graph.
        law: a law, its name or its file.
        recipients: for how many a source seals; by default as the file says, or one.
        walk: how ciphertexts walk; by default as the file says, or the simple walk.
        support: distances of a law given by name that takes any.
        sealing: what is sealed, for prices in bytes.

    Example:
        >>> from veilwalk.graphs import random_regular
        >>> found = design_several(random_regular(30, 3, seed=1), "far:3", recipients=2, walk="non-backtracking")
        >>> round(found.hidden.price.hops), found.scheme.recipients
        (18, 2)
    """
    scheme = require_destinations(choose_scheme(graph, law, support=support, walk=walk, recipients=recipients))
    return look_at(scheme, sealing or Sealing())


def look_at(scheme: Scheme, sealing: Sealing) -> Several:
    """Return all that is known about ``scheme``."""
    hidden = what_is_hidden(scheme)
    hops = hidden.price.hops
    return Several(
        scheme=scheme,
        sealing=sealing,
        hidden=hidden,
        predecessor=predecessor_guess(scheme, hops=hops),
        colluders=first_sights(scheme, hops=hops),
    )


def _mean(one: Estimate) -> dict[str, Any]:
    return {"mean": one.mean, "interval": one.interval}
