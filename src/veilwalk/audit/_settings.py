"""What to audit and how hard to look, checked before anything is run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import get_args

import numpy as np

from veilwalk.audit._sightings import COLLUDING, OBSERVERS, WORST_CASES
from veilwalk.chains import ArcChain, WalkChain, arc_updates, mean_hitting_times
from veilwalk.core import validate
from veilwalk.core.errors import InvalidParameterError, ResourceLimitError
from veilwalk.design import DestinationLaw
from veilwalk.graphs import Graph
from veilwalk.walks import UPDATE_DTYPE, WalkKind, estimate_memory

#: Largest graph on which the exact return-time observers finish in minutes: they cost horizon * nodes^3 * degree.
EXACT_NODES = 500
#: From this size on tables of all pairs are out of the question, and this is what can be asked.
LARGE_NODES = 10_000
LARGE_OBSERVERS = ("prior", "return-time", "last-hop")
TIMED = ("return-time", "last-hop", "repeated")
#: exact: from chains. estimated: laws of every candidate from transforms, exact but for one correlation of order 1/n.
#: by-class: the prior, calibrated by classes on half of the lanes. rehearsed: the prior and likelihoods by finer
#: classes, from walks that the observer plays itself.
POSTERIORS = ("exact", "estimated", "by-class", "rehearsed")
#: Destinations at which estimated posteriors are learnt and scored.
SAMPLED_DESTINATIONS = 64
#: Walks that are Markov chains on the nodes; the others remember. Against these coalitions rehearse.
CHAINED = ("simple", "lazy", "metropolis")
#: How return times can be read where the walk is no such chain; the non-backtracking walk is a chain on arcs.
WITHOUT_CHAIN = {
    "non-backtracking": ("exact", "by-class", "rehearsed"),
    "least-recent": ("by-class", "rehearsed"),
}
#: Updates that coalitions and worst cases are scored on.
SCORED_BY_FEW = 20_000
#: Largest graph for observers that know where the token went.
PATH_NODES = 2000
# (1 + x) e^-x = 0.02: two legs' worth of exponential waiting stay below x means in 98% of deliveries.
_HORIZON_LEGS = 5.83
_TRANSFORM_BYTES = 512 << 20


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """What to audit and how hard to look.

    ``mix`` is the share of plain non-backtracking steps of a least-recent walk. ``posterior`` is ``exact`` (from
    chains; graphs of up to 500 nodes), ``estimated`` (from transforms, at up to 64 destinations), ``by-class``
    (calibrated on half of the lanes, scored on the others; cruder, any walk) or ``rehearsed`` (learnt from simulated
    walks; any walk). ``horizon`` is the longest return time told apart; 0 picks one that about 98% of deliveries stay
    below, or less where memory does not allow. An audit predicted to take more than ``memory_bytes`` is refused.
    """

    observers: tuple[str, ...] = OBSERVERS
    updates: int = 500_000
    seed: int = 7
    walk: WalkKind = "simple"
    mix: float = 0.0
    colluders: int = 30
    posterior: str = "exact"
    window_radius: int = 5
    replicas: int = 64
    horizon: int = 0
    memory_bytes: int = 16 << 30

    def __post_init__(self) -> None:
        validate.integer(updates=self.updates, seed=self.seed, colluders=self.colluders, replicas=self.replicas)
        validate.integer(window=self.window_radius, horizon=self.horizon)
        validate.at_least(1, updates=self.updates)
        validate.at_least(2, replicas=self.replicas)
        validate.at_least(0, seed=self.seed, colluders=self.colluders, window=self.window_radius, horizon=self.horizon)
        known = (*OBSERVERS, *WORST_CASES)
        if not self.observers or any(name not in known for name in self.observers):
            raise InvalidParameterError("observers", ",".join(self.observers), f"among {', '.join(known)}, or all")
        if self.walk not in get_args(WalkKind):
            raise InvalidParameterError("walk", self.walk, f"one of {', '.join(get_args(WalkKind))}")
        if self.posterior not in POSTERIORS:
            raise InvalidParameterError("posterior", self.posterior, f"one of {', '.join(POSTERIORS)}")
        if self.posterior not in {"exact", "rehearsed"} and "repeated" in self.observers:
            raise InvalidParameterError("observers", "repeated", "left out: it needs exact or rehearsed posteriors")

    @property
    def colluding(self) -> tuple[str, ...]:
        """The observers that are coalitions."""
        return tuple(name for name in self.observers if name in COLLUDING)

    @property
    def worst_cases(self) -> tuple[str, ...]:
        """The observers that know where the token went."""
        return tuple(name for name in self.observers if name in WORST_CASES)

    @property
    def rehearsing(self) -> bool:
        """Whether any of the observers plays walks of its own."""
        by_chain = self.walk in CHAINED and self.posterior != "rehearsed"
        timed = self.posterior == "rehearsed" and bool(self.timed)
        return timed or "round" in self.observers or (bool(self.colluding) and not by_chain)

    @property
    def timed(self) -> tuple[str, ...]:
        """The observers that use the law of the return time."""
        return tuple(name for name in self.observers if name in TIMED)


def all_observers(walk: str, posterior: str) -> tuple[str, ...]:
    """Return what ``all`` stands for: for a walk that remembers all that can be asked, the worst cases included."""
    if walk not in WITHOUT_CHAIN:
        return OBSERVERS
    left_out = {"window"} | (set() if posterior in {"exact", "rehearsed"} else {"repeated"})
    worst = WORST_CASES if walk == "least-recent" else ("path",)
    return tuple(name for name in (*OBSERVERS, *worst) if name not in left_out)


def check_large(settings: AuditSettings) -> None:
    """Refuse what needs tables of all pairs."""
    if settings.posterior != "by-class" or any(name not in LARGE_OBSERVERS for name in settings.observers):
        need = f"--posterior by-class and --observers {','.join(LARGE_OBSERVERS)} from {LARGE_NODES} nodes on"
        raise InvalidParameterError("posterior", settings.posterior, need)


def check_colluders(graph: Graph, count: int) -> None:
    """Refuse a coalition of nobody or of everybody."""
    if not 1 <= count < graph.n_nodes:
        raise InvalidParameterError("colluders", count, f"from 1 to {graph.n_nodes - 1}, fewer than the nodes")


def check(graph: Graph, law: DestinationLaw, settings: AuditSettings) -> None:
    """Refuse what cannot be audited, before a hop is walked."""
    law.check_graph(graph)
    _check_walk(settings)
    if graph.n_nodes >= LARGE_NODES:
        check_large(settings)
    if settings.colluding:
        check_colluders(graph, settings.colluders)
    if settings.timed and settings.posterior == "exact" and graph.n_nodes > EXACT_NODES:
        raise ResourceLimitError(
            f"exact {', '.join(settings.timed)} observers take up to {EXACT_NODES} nodes, the graph has "
            f"{graph.n_nodes}: ask for --posterior estimated, or for other --observers"
        )
    if settings.worst_cases and graph.n_nodes > PATH_NODES:
        raise ResourceLimitError(
            f"the {' and '.join(settings.worst_cases)} observers take up to {PATH_NODES} nodes, the graph has "
            f"{graph.n_nodes}: ask for other --observers"
        )


def _check_walk(settings: AuditSettings) -> None:
    """Refuse observers and posteriors that the kind of walk cannot have."""
    if "round" in settings.observers and settings.walk != "least-recent":
        raise InvalidParameterError("observers", "round", f"left out: nodes of a {settings.walk} walk remember nothing")
    if settings.walk in CHAINED:
        return
    if "window" in settings.observers:
        raise InvalidParameterError("observers", "window", f"left out: the notion is not for the {settings.walk} walk")
    possible = WITHOUT_CHAIN[settings.walk]
    if settings.timed and settings.posterior not in possible:
        need = f"{' or '.join(possible)} for the {settings.walk} walk: it is no chain on the nodes"
        raise InvalidParameterError("posterior", settings.posterior, need)


def walked_chain(graph: Graph, walk: WalkKind) -> WalkChain | ArcChain | None:
    """Return the exact chain of ``walk``: on the nodes, on the arcs, or None."""
    if walk in CHAINED:
        return WalkChain.of(graph, walk)
    return ArcChain(graph) if walk == "non-backtracking" else None


def predicted_hops(chain: WalkChain | ArcChain, law: DestinationLaw) -> float:
    """Return the exact mean hops per update."""
    if isinstance(chain, ArcChain):
        return arc_updates(chain, law.matrix.toarray()).mean_hops
    return law.mean_hops(mean_hitting_times(chain))


def chosen_horizon(chain: WalkChain | ArcChain, law: DestinationLaw, settings: AuditSettings) -> int:
    """Return the horizon asked for, or the one that leaves about 2% of deliveries beyond it."""
    if settings.horizon or settings.posterior in {"by-class", "rehearsed"}:
        return settings.horizon
    whole = math.ceil(_HORIZON_LEGS * predicted_hops(chain, law))
    if settings.posterior == "exact" or isinstance(chain, ArcChain):
        return whole
    # Transforms of one destination's laws; longer return times tell sources apart less and less.
    widest = int(np.diff(chain.indptr).max()) + 1
    return min(whole, max(64, _TRANSFORM_BYTES // (8 * 6 * chain.n_nodes * widest)))


def predicted_memory(graph: Graph, law: DestinationLaw, settings: AuditSettings) -> int:
    """Return the bytes the audit will take, to within a small factor: records, tables and one batch of laws."""
    check(graph, law, settings)
    if graph.n_nodes >= LARGE_NODES:
        return _predicted(graph, law, settings, 0)
    chain = walked_chain(graph, settings.walk)
    return _predicted(graph, law, settings, 0 if chain is None else chosen_horizon(chain, law, settings))


def require_memory(graph: Graph, law: DestinationLaw, settings: AuditSettings, horizon: int) -> None:
    """Refuse an audit that would take more memory than it may."""
    needed = _predicted(graph, law, settings, horizon)
    if needed > settings.memory_bytes:
        raise ResourceLimitError(
            f"the audit would take about {needed / 2**30:.1f} GiB, may take {settings.memory_bytes / 2**30:.1f} GiB: "
            "ask for fewer --updates or --observers"
        )


def _predicted(graph: Graph, law: DestinationLaw, settings: AuditSettings, horizon: int) -> int:
    walking = estimate_memory(
        graph, law.matrix, updates=settings.updates, replicas=settings.replicas, walk=settings.walk, collect=True
    )
    scores = settings.updates * (len(settings.observers) * 7 * 8 + UPDATE_DTYPE.itemsize)
    # All pairs, or on a large graph the law once more by columns.
    tables = 20 * 8 * graph.n_nodes**2 if graph.n_nodes < LARGE_NODES else 2 * 12 * law.matrix.nnz
    laws = 0
    if settings.timed and settings.posterior == "exact":
        laws = 2 * 8 * (2 * (horizon + 1) * int(graph.degrees.max()) * graph.n_nodes + 4 * graph.n_nodes**2)
        if settings.walk == "non-backtracking":
            laws += 8 * (4 * len(graph.indices) ** 2 + 8 * len(graph.indices) * graph.n_nodes)
    # Paths of a few tokens, and what is followed along them; posteriors of who knows them.
    if settings.rehearsing:
        laws += max(1_000_000, 8 * 220 * graph.n_nodes) * 20
    if settings.worst_cases:
        laws += (256 << 20) + 4 * 8 * min(settings.updates, SCORED_BY_FEW) * graph.n_nodes
    return walking + scores + tables + laws
