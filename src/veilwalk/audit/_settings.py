"""Settings of an audit, checked by themselves, and the plan that they come to for a scheme."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from veilwalk.core import validate
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.memory import DEFAULT_MEMORY_BYTES
from veilwalk.core.sizes import EXACT_NODES, LARGE_NODES
from veilwalk.design import Scheme

#: The inference that looks candidates up around each destination: it needs no tables of all pairs.
BY_CLASS = "by-class"
#: How colluders are chosen.
PLACEMENTS = ("random", "spread")
_COUNTS = {
    "updates": 1,
    "replicas": 2,
    "seed": 0,
    "window_radius": 0,
    "horizon": 0,
    "memory_bytes": 1,
    "exact_nodes": 0,
    "path_nodes": 0,
    "large_nodes": 0,
    "sampled_destinations": 1,
    "scored_by_few": 1,
    "scored_by_filter": 0,
    "rehearsed_hops": 1,
}


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """What to audit and how hard to look.

    Attributes:
        observers: Names of observers, as a tuple or separated by commas; ``all`` is all that suit the scheme.
        updates: Updates to play.
        seed: Seed of walks and colluders.
        colluders: How many nodes pool what they see; None is a tenth of them.
        placement: Who they are: ``random`` nodes, or ``spread`` out, each as far as can be from those before.
        posterior: How return times are read: ``exact`` (from chains; at a sample of destinations beyond
            ``exact_nodes``), ``rehearsed`` (learnt from simulated walks; any walk, 1 to 9% of the hits lost on the five
            graphs of decision 5), ``by-class`` (candidates looked up, calibrated on half of the lanes, scored on the
            others; any walk and size, 4 to 17% lost there), or ``auto``: the first that can be.
        window_radius: Half-width of the window observer's window, in hops.
        replicas: Independent lanes.
        horizon: Longest return time told apart; 0 picks one that about 98% of deliveries stay below, or less where
            memory does not allow.
        memory_bytes: An audit predicted to take more is refused.
        exact_nodes: Largest graph attacked at every destination: exact posteriors cost horizon * nodes^3 * degree.
        path_nodes: Largest graph for observers that know where the token went.
        large_nodes: From here on tables of all pairs are out of the question: candidates are looked up.
        sampled_destinations: Destinations that are attacked on larger graphs.
        scored_by_few: Updates that coalitions and path are scored on; on large graphs everybody.
        scored_by_filter: Updates that those are scored on who use all that they saw; 0 is as many as take about a
            minute, from 64 to 1,000.
        rehearsed_hops: Hops of a rehearsal that are enough for each node.
    """

    observers: tuple[str, ...] | str = "all"
    updates: int = 500_000
    seed: int = 7
    colluders: int | None = None
    placement: str = "random"
    posterior: str = "auto"
    window_radius: int = 5
    replicas: int = 64
    horizon: int = 0
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    exact_nodes: int = EXACT_NODES
    path_nodes: int = 2_000
    large_nodes: int = LARGE_NODES
    sampled_destinations: int = 64
    scored_by_few: int = 20_000
    scored_by_filter: int = 0
    rehearsed_hops: int = 200_000

    def __post_init__(self) -> None:
        for name, least in _COUNTS.items():
            validate.integer(**{name: getattr(self, name)})
            validate.at_least(least, **{name: getattr(self, name)})
        if self.colluders is not None:
            validate.integer(colluders=self.colluders)
            validate.at_least(0, colluders=self.colluders)
        if self.placement not in PLACEMENTS:
            raise InvalidParameterError("placement", self.placement, f"one of {', '.join(PLACEMENTS)}")
        validate.instance((str, list, tuple), "names of observers, or all", observers=self.observers)
        validate.instance(str, "auto, or the name of an inference", posterior=self.posterior)
        for name in self.observers:
            validate.instance(str, "names of observers, or all", observers=name)
        if isinstance(self.observers, str) and not self.takes_all:
            object.__setattr__(self, "observers", tuple(name.strip() for name in self.observers.split(",")))

    @property
    def takes_all(self) -> bool:
        """Whether the observers are all that suit, and not some that were asked for by name."""
        return self.observers == "all"


def parse_colluders(text: str, n_nodes: int) -> tuple[int, ...]:
    """Read how many nodes collude: one or more numbers or shares, ``30`` or ``1%,5%,10%``; a share is at least one.

    Example:
        >>> parse_colluders("1%,5%,30", 300)
        (3, 15, 30)
    """
    counts = []
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)|(\d+(?:\.\d+)?)%", part.strip())
        if found is None:
            raise InvalidParameterError("colluders", text, "numbers or shares of the nodes, such as 30 or 1%,5%,10%")
        share = float(found[2] or 0.0)
        counts.append(int(found[1]) if found[1] else max(round(share / 100 * n_nodes), 1 if share else 0))
    return tuple(counts)


def parse_coalition(text: str, n_nodes: int, *, least: int = 0, most: int | None = None) -> int:
    """Read how many nodes collude where there is one coalition, of so many at ``least`` and at ``most``."""
    counts, most = parse_colluders(text, n_nodes), n_nodes if most is None else most
    if len(counts) != 1 or not least <= counts[0] <= most:
        raise InvalidParameterError("colluders", text, f"one number or share of the nodes, {least} to {most} of them")
    return counts[0]


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """What will be attacked, by whom, and how they infer; made by ``make_plan``.

    Attributes:
        scheme: What is attacked.
        settings: As they were given.
        posterior: How return times are read, ``auto`` decided.
        looked_up: Candidates are looked up around each destination: the graph is too large for tables of all pairs.
        observers: Their names, ``all`` decided.
        timed: Whether any of them reads return times.
        colluders: How many nodes collude; 0 where no observer is a coalition.
        horizon: Longest return time told apart; 0 where none is needed.
        left_out: Of ``all``, observers that a reader would miss and that are not asked, each with the reason.
    """

    scheme: Scheme
    settings: AuditSettings
    posterior: str
    looked_up: bool
    observers: tuple[str, ...] = ()
    timed: bool = False
    colluders: int = 0
    horizon: int = 0
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def without_node_chain(self) -> bool:
        """Whether the walk is no chain on the nodes: it knows where it came from."""
        return self.scheme.chain.on_nodes is None

    @property
    def samples_destinations(self) -> bool:
        """Whether some destinations stand for all: one law costs seconds on a large graph."""
        has_tables = self.timed and not self.looked_up and not self.scheme.is_direct
        return has_tables and self.scheme.graph.n_nodes > self.settings.exact_nodes

    @property
    def calibrates(self) -> bool:
        """Whether every other lane is for calibration and not scored."""
        return self.timed and self.posterior == BY_CLASS
