"""An audit before it starts: a scheme, and what of the settings it comes to."""

from __future__ import annotations

from dataclasses import dataclass

from veilwalk.audit._settings import AuditSettings
from veilwalk.design import Scheme


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """What will be attacked, by whom, and how they infer; made by ``_feasible.plan``.

    Attributes:
        scheme: What is attacked.
        settings: As they were given.
        posterior: How return times are read, ``auto`` decided.
        looked_up: Candidates are looked up around each destination: the graph is too large for tables of all pairs.
        observers: Their names, ``all`` decided.
        timed: Whether any of them reads return times.
        colluders: How many nodes collude; 0 where no observer is a coalition.
        horizon: Longest return time told apart; 0 where none is needed.
    """

    scheme: Scheme
    settings: AuditSettings
    posterior: str
    looked_up: bool
    observers: tuple[str, ...] = ()
    timed: bool = False
    colluders: int = 0
    horizon: int = 0

    @property
    def without_node_chain(self) -> bool:
        """Whether the walk is no chain on the nodes: it knows where it came from."""
        return self.scheme.chain.on_nodes is None

    @property
    def samples_destinations(self) -> bool:
        """Whether some destinations stand for all: one law costs seconds on a large graph."""
        large = self.posterior == "rehearsed" and self.scheme.graph.n_nodes > self.settings.exact_nodes
        return self.timed and (self.posterior == "estimated" or large)

    @property
    def calibrates(self) -> bool:
        """Whether every other lane is for calibration and not scored."""
        return self.timed and self.posterior == "by-class"
