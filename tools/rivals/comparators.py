"""Routes of others and our own before the same observer: one case of a sweep of kind ``routes``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tools.rivals.mixnets import Mixnet
from tools.rivals.spies import SpyScores, batches_of, expected_scores, score_batches
from tools.rivals.stems import RULES, out_edges, per_message_blame, stem_blame
from veilwalk.audit import choose_colluders, parse_colluders
from veilwalk.core import validate
from veilwalk.core.arrays import BoolArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.design import Scheme, choose_scheme, evaluate_scheme
from veilwalk.graphs import Graph, parse_graph_spec

LAST_HOP, FIRST_SPY = "last-hop", "first-spy"
OURS, _MIXNET, _STEM = "veilwalk", "mixnet", "stem"
_USAGE = f"{OURS}, {_MIXNET}:K with the most relays, or {_STEM}: and one of {', '.join(RULES)}"
# Updates that the source of a played walk has forgotten its start by.
_BURN_IN = 8


@dataclass(frozen=True, kw_only=True)
class RouteSettings:
    """One way to bring a message on, and who looks at it.

    Attributes:
        route: ``veilwalk`` as law, support, walk and recipients say; ``mixnet:K``, 0 to K relays among all peers;
            ``stem:RULE``, the stems of Dandelion++.
        observer: ``last-hop``: a receiver who knows who handed it the message. ``first-spy``: ``colluders`` who lay
            each message at the door of whoever first handed it to one of them.
        graph: The network; of a mixnet, where everybody reaches everybody, its nodes only.
        law: Of ``veilwalk``, as an audit takes it; so are the next three.
        support: Distances of the law.
        walk: How the message walks.
        recipients: For how many it is sealed.
        colluders: How many spy, a number or a share such as ``10%``.
        updates: Messages to draw or play.
        fragments: Numbers of fragments known to be of one maker, separated by commas; of a mixnet.
        seed: Of messages and of who spies.
    """

    route: str
    observer: str = LAST_HOP
    graph: str = "rrg:100:4:seed=1"
    law: str | None = None
    support: str | None = None
    walk: str | None = None
    recipients: int | None = None
    colluders: str = "10%"
    updates: int = 100_000
    fragments: str = "1"
    seed: int = 1

    def __post_init__(self) -> None:
        validate.integer(updates=self.updates, seed=self.seed)
        validate.at_least(1, updates=self.updates)
        if self.observer not in {LAST_HOP, FIRST_SPY}:
            raise InvalidParameterError("observer", self.observer, f"{LAST_HOP} or {FIRST_SPY}")
        kind, value = self.parts
        known = {OURS: not value, _MIXNET: value.isdecimal(), _STEM: value in RULES}
        if not known.get(kind, False):
            raise InvalidParameterError("route", self.route, _USAGE)
        if kind == {LAST_HOP: _STEM, FIRST_SPY: _MIXNET}[self.observer]:
            raise InvalidParameterError("observer", self.observer, f"the other one for {self.route}")
        _ = self.linked

    @property
    def parts(self) -> tuple[str, str]:
        """The kind of route, and what it is given."""
        kind, _, value = self.route.partition(":")
        return kind, value

    @property
    def linked(self) -> tuple[int, ...]:
        """The numbers of linked fragments."""
        parts = [part.strip() for part in self.fragments.split(",")]
        if not all(part.isdecimal() and int(part) for part in parts):
            raise InvalidParameterError("fragments", self.fragments, "numbers from 1, separated by commas")
        return tuple(int(part) for part in parts)


def compared(asked: RouteSettings) -> list[dict[str, Any]]:
    """Return rows of what the observer makes of the route: exact where it can be, and drawn beside it."""
    graph, (kind, value) = parse_graph_spec(asked.graph), asked.parts
    if kind == _MIXNET:
        return _mixed(Mixnet(nodes=graph.n_nodes, relays=int(value)), asked)
    if asked.observer == LAST_HOP:
        return [_received(_scheme(graph, asked), asked)]
    (count,) = parse_colluders(asked.colluders, graph.n_nodes, single=True, least=1, most=graph.n_nodes - 1)
    spies = np.zeros(graph.n_nodes, dtype=np.bool_)
    spies[choose_colluders(graph, count, asked.seed)] = True
    if kind == OURS:
        return [_spied(_scheme(graph, asked), spies, asked)]
    out = out_edges(graph, seed=asked.seed)
    batches = max(asked.updates // int((~spies).sum()), 1)
    blamed, hops = stem_blame(out, spies, rule=value, batches=batches, seed=asked.seed)
    row = _scored(score_batches(blamed, spies)) | {"hops_per_update": hops}
    if value == "per-message":
        exact = expected_scores(per_message_blame(out, spies), spies)
        row |= {"recall_exact": exact.recall, "precision_exact": exact.precision}
    return [row]


def _scheme(graph: Graph, asked: RouteSettings) -> Scheme:
    return choose_scheme(graph, asked.law, support=asked.support, walk=asked.walk, recipients=asked.recipients)


def _scored(found: SpyScores) -> dict[str, Any]:
    return {
        "observer": FIRST_SPY,
        "recall": found.recall,
        "precision": found.precision,
        "recall_floor": found.recall_floor,
        "precision_floor": found.precision_floor,
    }


def _spied(scheme: Scheme, spies: BoolArray, asked: RouteSettings) -> dict[str, Any]:
    """Play our own: spies see a ciphertext that any of them carries or opens."""
    chunks = list(scheme.iter_updates(updates=asked.updates, seed=asked.seed, colluders=spies, burn_in=_BURN_IN))
    played = np.concatenate(chunks)
    honest = played[~spies[played["source"]]]
    source, blamed = (honest[name].astype(np.int64) for name in ("source", "first_sight_from"))
    found = score_batches(batches_of(source, blamed, spies), spies)
    return _scored(found) | {"hops_per_update": float(played["leg_hops"].mean())}


def _received(scheme: Scheme, asked: RouteSettings) -> dict[str, Any]:
    """Ask of our own what a receiver knows who has seen the last hop alone; estimated, a little in its favour."""
    design = evaluate_scheme(scheme, colluders=None)
    exposure = design.exposure
    if exposure.hit_ratio is None:
        raise InvalidParameterError("graph", asked.graph, "small enough for tables of last hops by sources")
    row = {"observer": LAST_HOP, "hit_ratio": exposure.hit_ratio.high, "node_entropy_nats": exposure.node_entropy.mean}
    return row | {"hops_per_update": design.price.hops}


def _mixed(mixnet: Mixnet, asked: RouteSettings) -> list[dict[str, Any]]:
    """Give closed forms of a mixnet, and the same counted on drawn paths."""
    rows = []
    for fragments in asked.linked:
        maker, last, hops = mixnet.drawn(asked.updates // fragments * fragments, seed=asked.seed)
        row: dict[str, Any] = {"observer": LAST_HOP, "linked": fragments}
        if fragments == 1:
            row |= {"hit_ratio": mixnet.hit_ratio, "node_entropy_nats": mixnet.node_entropy_nats}
            row |= {"last_hop_is_maker_drawn": float((maker == last).mean())}
        else:
            row |= {"hit_ratio": mixnet.linked_hit_ratio(fragments)}
            row |= {"last_hop_is_maker_drawn": _commonest(maker, last, fragments)}
        rows.append(row | {"hops_per_update": mixnet.hops, "hops_drawn": float(hops.mean())})
    return rows


def _commonest(maker: IntArray, last: IntArray, fragments: int) -> float:
    """Return how often the commonest last hop of fragments of one maker is it, ties broken evenly."""
    order = np.argsort(maker, kind="stable")
    hits = []
    for mine in np.split(order, np.flatnonzero(np.diff(maker[order])) + 1):
        groups = last[mine[: len(mine) // fragments * fragments]].reshape(-1, fragments)
        counts = (groups[:, :, np.newaxis] == np.arange(last.max() + 1)).sum(axis=1)
        most = counts == counts.max(axis=1, keepdims=True)
        hits.append(most[:, maker[mine[0]]] / most.sum(axis=1))
    return float(np.concatenate(hits).mean())
