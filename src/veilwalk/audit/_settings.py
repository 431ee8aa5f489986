"""Checks the settings of an audit, and holds the plan that they come to for a scheme."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

from veilwalk.core import validate
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.sizes import DEFAULT_MEMORY_BYTES, EXACT_NODES
from veilwalk.design import Scheme

if TYPE_CHECKING:
    from veilwalk.audit._observers import Observer

#: Names of the ways to read return times; ``BY_CLASS`` looks candidates up and needs no tables of all pairs.
EXACT, REHEARSED, BY_CLASS = "exact", "rehearsed", "by-class"
#: How colluders are chosen.
PLACEMENTS = ("random", "spread")
#: Destinations attacked on graphs too large for exact laws at all of them.
SAMPLED_DESTINATIONS = 64
#: Updates on which first-sight and path are scored; where candidates are looked up, every observer.
SCORED_BY_FEW = 20_000
# The least value of each count.
_LEAST = {"updates": 1, "replicas": 2, "memory_bytes": 1, "rehearsed_hops": 1} | dict.fromkeys(
    ("seed", "colluders", "window_radius", "horizon", "exact_nodes", "scored_by_filter"), 0
)


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """Settings of an audit: the observers, and the effort.

    Attributes:
        observers: Names, or observers of your own (instances or classes), or names separated by commas; ``all`` takes
            every built-in observer that suits the scheme.
        updates: Updates to play.
        seed: Seed of walks and colluders.
        colluders: How many nodes pool what they see; None is a tenth of the nodes.
        placement: Which nodes collude: ``random`` ones, or ``spread`` out, each as far as possible from the others.
        posterior: How return times are read: ``exact`` (from chains; at a sample of destinations beyond
            ``exact_nodes``), ``rehearsed`` (learnt from simulated walks; any walk, 1 to 9% of the hits lost on the five
            graphs of decision 5), ``by-class`` (candidates looked up, calibrated on half of the lanes, scored on the
            others; any walk and size, 4 to 17% lost there), or ``auto``: the first that is possible.
        window_radius: Half-width of the window observer's window, in hops.
        replicas: Independent lanes.
        horizon: Longest return time that is distinguished; 0 picks one that about 98% of deliveries stay below, or less
            where memory does not allow it.
        memory_bytes: An audit predicted to take more is refused.
        exact_nodes: Largest graph attacked at every destination: exact posteriors cost horizon * nodes^3 * degree.
        scored_by_filter: Updates on which the filter observers are scored; 0 is as many as take about a minute, from 64
            to 1,000.
        rehearsed_hops: Most hops of a rehearsal for each node.
    """

    observers: Sequence[str | Observer | type[Observer]] = "all"
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
    scored_by_filter: int = 0
    rehearsed_hops: int = 200_000

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            if name != "colluders" or self.colluders is not None:
                validate.integer(least, **{name: getattr(self, name)})
        if self.placement not in PLACEMENTS:
            raise InvalidParameterError("placement", self.placement, f"one of {', '.join(PLACEMENTS)}")
        validate.instance((str, list, tuple), "names of observers, observers, or all", observers=self.observers)
        validate.instance(str, "auto, or the name of an inference", posterior=self.posterior)
        if not self.takes_all:
            entries = self.observers.split(",") if isinstance(self.observers, str) else self.observers
            names = tuple(entry.strip() if isinstance(entry, str) else entry for entry in entries)
            object.__setattr__(self, "observers", names)

    @property
    def takes_all(self) -> bool:
        """Whether the observers are all that suit, not some chosen by name."""
        return self.observers == "all"


class AuditOptions(TypedDict, total=False):
    """The fields of :class:`AuditSettings` as keywords, for type checkers and editors."""

    observers: Sequence[str | Observer | type[Observer]]
    updates: int
    seed: int
    colluders: int | None
    placement: str
    posterior: str
    window_radius: int
    replicas: int
    horizon: int
    memory_bytes: int
    exact_nodes: int
    scored_by_filter: int
    rehearsed_hops: int


def parse_colluders(
    text: str, n_nodes: int, *, single: bool = False, least: int = 0, most: int | None = None
) -> tuple[int, ...]:
    """Read how many nodes collude: numbers or shares of the nodes, ``30`` or ``1%,5%,10%``; a share is at least one.

    On a small network several shares are one number: each number comes once.

    ``single`` refuses more than one number, and a number below ``least`` or above ``most``.

    Example:
        >>> parse_colluders("1%,5%,30", 300)
        (3, 15, 30)
        >>> parse_colluders("1%,5%,10%,2", 12)
        (1, 2)
    """
    counts = []
    for word in text.split(","):
        match = re.fullmatch(r"(\d+)|(\d+(?:\.\d+)?)%", word.strip())
        if match is None:
            raise InvalidParameterError("colluders", text, "numbers or shares of the nodes, such as 30 or 1%,5%,10%")
        share = float(match[2] or 0.0)
        counts.append(int(match[1]) if match[1] else max(round(share / 100 * n_nodes), 1 if share else 0))
    most = n_nodes if most is None else most
    if single and (len(counts) != 1 or not least <= counts[0] <= most):
        raise InvalidParameterError("colluders", text, f"one number or share of the nodes, {least} to {most} of them")
    return tuple(dict.fromkeys(counts))


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """The scheme to attack, the observers that attack it, and the inference they use; ``make_plan`` makes it.

    Attributes:
        scheme: The scheme to attack.
        settings: The settings, unchanged.
        posterior: How return times are read, ``auto`` resolved.
        looked_up: Whether candidates are looked up around each destination: tables of all pairs do not fit.
        observers: The observers, ``all`` resolved.
        timed: Whether any of them reads return times.
        colluders: How many nodes collude; 0 where no observer is a coalition.
        horizon: Longest return time that is distinguished; 0 where none is needed.
        predicted_bytes: The memory that the audit takes, to within a small factor.
        left_out: Observers of ``all`` that do not run, each with the reason, where a reader would miss them.
        sampling: Whether filters sample paths also where they could be exact.
    """

    scheme: Scheme
    settings: AuditSettings
    posterior: str
    looked_up: bool
    observers: tuple[Observer, ...] = ()
    timed: bool = False
    colluders: int = 0
    horizon: int = 0
    predicted_bytes: int = 0
    left_out: Mapping[str, str] = field(default_factory=dict)
    sampling: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the observers."""
        return tuple(observer.name for observer in self.observers)

    @property
    def without_node_chain(self) -> bool:
        """Whether the walk is no chain on the nodes: its next hop depends on the last."""
        return self.scheme.chain.on_nodes is None

    @property
    def n_states(self) -> int:
        """States of the walk's chain: nodes, or arcs."""
        graph = self.scheme.graph
        return len(graph.indices) if self.without_node_chain else graph.n_nodes

    def reads_by(self, posterior: str) -> bool:
        """Return whether an observer reads return times in this way; by-class calibrates on every other lane."""
        return self.timed and self.posterior == posterior

    @property
    def samples_destinations(self) -> bool:
        """Whether a sample of destinations represents all: one law takes seconds on a large graph."""
        has_tables = self.timed and not self.looked_up and not self.scheme.is_direct
        return has_tables and self.scheme.graph.n_nodes > self.settings.exact_nodes

    @property
    def samples_paths(self) -> bool:
        """Whether filters sample paths: for several recipients, and on graphs too large for the exact filter."""
        is_large = self.scheme.graph.n_nodes > self.settings.exact_nodes
        return self.sampling or is_large or not self.scheme.has_exact_law
