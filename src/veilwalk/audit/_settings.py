"""What to audit and how hard to look, checked before anything is run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import get_args

import numpy as np

from veilwalk.audit._sightings import COLLUDING, OBSERVERS
from veilwalk.chains import WalkChain, mean_hitting_times
from veilwalk.core import validate
from veilwalk.core.errors import InvalidParameterError, ResourceLimitError
from veilwalk.design import DestinationLaw
from veilwalk.graphs import Graph
from veilwalk.walks import UPDATE_DTYPE, WalkKind, estimate_memory

#: Largest graph on which the exact return-time observers finish in minutes: they cost horizon * nodes^3 * degree.
EXACT_NODES = 500
TIMED = ("return-time", "last-hop", "repeated")
#: exact: from chains. estimated: laws of every candidate from transforms, exact but for one correlation of order 1/n.
#: by-class: the prior, calibrated by classes on half of the lanes, for walks that have no chain.
POSTERIORS = ("exact", "estimated", "by-class")
#: Destinations at which estimated posteriors are learnt and scored.
SAMPLED_DESTINATIONS = 64
#: Walks that are Markov chains on the nodes; the others remember, and have no exact observer here.
CHAINED = ("simple", "lazy", "metropolis")
#: What can be asked about a walk that is no such chain.
WITHOUT_CHAIN = ("prior", "return-time", "last-hop")
# (1 + x) e^-x = 0.02: two legs' worth of exponential waiting stay below x means in 98% of deliveries.
_HORIZON_LEGS = 5.83
_TRANSFORM_BYTES = 512 << 20


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """What to audit and how hard to look.

    ``mix`` is the share of plain non-backtracking steps of a least-recent walk. ``posterior`` is ``exact`` (from
    chains; graphs of up to 500 nodes), ``estimated`` (from transforms, at up to 64 destinations) or ``by-class``
    (calibrated on half of the lanes, scored on the others; cruder, any walk). ``horizon`` is the longest return time
    told apart; 0 picks one that about 98% of deliveries stay below, or less where memory does not allow. An audit
    predicted to take more than ``memory_bytes`` is refused.
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
        if not self.observers or any(name not in OBSERVERS for name in self.observers):
            raise InvalidParameterError("observers", ",".join(self.observers), f"among {', '.join(OBSERVERS)}, or all")
        if self.walk not in get_args(WalkKind):
            raise InvalidParameterError("walk", self.walk, f"one of {', '.join(get_args(WalkKind))}")
        if self.posterior not in POSTERIORS:
            raise InvalidParameterError("posterior", self.posterior, f"one of {', '.join(POSTERIORS)}")
        if self.posterior != "exact" and "repeated" in self.observers:
            raise InvalidParameterError("observers", "repeated", "left out: it needs exact posteriors")

    @property
    def colluding(self) -> tuple[str, ...]:
        """The observers that are coalitions."""
        return tuple(name for name in self.observers if name in COLLUDING)

    @property
    def timed(self) -> tuple[str, ...]:
        """The observers that use the law of the return time."""
        return tuple(name for name in self.observers if name in TIMED)


def check_colluders(graph: Graph, count: int) -> None:
    """Refuse a coalition of nobody or of everybody."""
    if not 1 <= count < graph.n_nodes:
        raise InvalidParameterError("colluders", count, f"from 1 to {graph.n_nodes - 1}, fewer than the nodes")


def check(graph: Graph, law: DestinationLaw, settings: AuditSettings) -> None:
    """Refuse what cannot be audited, before a hop is walked."""
    law.check_graph(graph)
    if settings.walk not in CHAINED:
        beyond = [name for name in settings.observers if name not in WITHOUT_CHAIN]
        if settings.posterior != "by-class" or beyond:
            need = f"with --posterior by-class and --observers {','.join(WITHOUT_CHAIN)}: it is no chain on the nodes"
            raise InvalidParameterError("walk", settings.walk, need)
    if settings.colluding:
        check_colluders(graph, settings.colluders)
    if settings.timed and settings.posterior == "exact" and graph.n_nodes > EXACT_NODES:
        raise ResourceLimitError(
            f"exact {', '.join(settings.timed)} observers take up to {EXACT_NODES} nodes, the graph has "
            f"{graph.n_nodes}: ask for --posterior estimated, or for other --observers"
        )


def chosen_horizon(chain: WalkChain, law: DestinationLaw, settings: AuditSettings) -> int:
    """Return the horizon asked for, or the one that leaves about 2% of deliveries beyond it."""
    if settings.horizon or settings.posterior == "by-class":
        return settings.horizon
    whole = math.ceil(_HORIZON_LEGS * law.mean_hops(mean_hitting_times(chain)))
    if settings.posterior == "exact":
        return whole
    # Transforms of one destination's laws; longer return times tell sources apart less and less.
    widest = int(np.diff(chain.indptr).max()) + 1
    return min(whole, max(64, _TRANSFORM_BYTES // (8 * 6 * chain.n_nodes * widest)))


def predicted_memory(graph: Graph, law: DestinationLaw, settings: AuditSettings) -> int:
    """Return the bytes the audit will take, to within a small factor: records, tables and one batch of laws."""
    check(graph, law, settings)
    horizon = 0
    if settings.walk in CHAINED:
        horizon = chosen_horizon(WalkChain.of(graph, settings.walk), law, settings)
    return _predicted(graph, law, settings, horizon)


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
    tables = 20 * 8 * graph.n_nodes**2
    laws = 0
    if settings.timed and settings.posterior == "exact":
        laws = 2 * 8 * (2 * (horizon + 1) * int(graph.degrees.max()) * graph.n_nodes + 4 * graph.n_nodes**2)
    return walking + scores + tables + laws
