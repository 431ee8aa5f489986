"""The scheme: how a model gets from one update to the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from veilwalk.chains import Chain, chain_of, token_law
from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.sizes import EXACT_ARCS, LARGE_NODES, TABLE_ENTRIES
from veilwalk.core.stats import estimate_mean
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design._law import DestinationLaw
from veilwalk.graphs import Graph, parse_graph_spec
from veilwalk.walks import Openings, estimate_openings, iter_protocol, run_protocol

# Nodes of all lanes that are played at once.
_LANE_NODES = 4_000_000
_SIMULATED_UPDATES = 20_000
# Legs of which every set is told at once, fewer where one takes very long.
_LEGS, _FEWEST_LEGS, _FOLLOWED_HOPS = 40_000, 64, 2_000_000_000


@dataclass(frozen=True)
class Price:
    """Mean hops between two updates, how they were found, and their 95% interval where they were sampled."""

    hops: float
    kind: str
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, eq=False)
class Scheme:
    """Who is whose neighbour, whom a source may choose, and how its ciphertext walks there.

    Design makes one, the audit attacks one, training and nodes follow one. A source seals for so many ``recipients``,
    drawn from its row of the law without replacement; the first of them that the token meets opens it. One is the
    paper's scheme. ``designed_for`` is the walk that its law was designed for, where that is known.
    """

    graph: Graph
    law: DestinationLaw
    walk: Walk = SIMPLE
    recipients: int = field(default=1, kw_only=True)
    designed_for: Walk | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "graph", parse_graph_spec(self.graph))
        validate.instance(DestinationLaw, "a DestinationLaw; choose_scheme takes names and files", law=self.law)
        object.__setattr__(self, "walk", Walk.parse(self.walk))
        self.law.check_graph(self.graph)
        validate.integer(recipients=self.recipients)
        validate.at_least(1, recipients=self.recipients)
        if self.recipients > 1:
            most = int(self.law.n_choices.min())
            if most < self.recipients:
                node = self.graph.label(int(np.argmin(self.law.n_choices)))
                need = f"at most {most}: node {node} has no more to choose from under the law {self.law.name}"
                raise InvalidParameterError("recipients", self.recipients, need)

    def __repr__(self) -> str:
        network = self.graph.name or f"{self.graph.n_nodes} nodes"
        return f"Scheme({network}, law {self.law.name}, {self.walk} walk, sealed for {self.recipients})"

    @cached_property
    def chain(self) -> Chain:
        """The exact chain of the walk."""
        return chain_of(self.graph, self.walk)

    @property
    def is_large(self) -> bool:
        """Whether tables of all pairs are out of the question."""
        return self.graph.n_nodes >= LARGE_NODES

    @property
    def has_exact_law(self) -> bool:
        """Whether token and destination form a Markov chain, so that exact laws exist: there is one recipient.

        With more, the state of the chain would be a set; everything is estimated. No other place decides this.
        """
        return self.recipients == 1

    @property
    def is_direct(self) -> bool:
        """Whether the model goes unsealed to a neighbour, who knows where it came from: the plain walk."""
        return self.law.support.hi == 1 and self.law.name == "plain"

    @cached_property
    def openings(self) -> Openings:
        """Who opens what whom sealed, by sampled paths with the set summed out; with a fixed seed."""
        eligible = float(self.law.n_choices.mean())
        hops = 20.0 * (2.0 * (eligible + 1) / (self.recipients + 1) + 10.0)
        return estimate_openings(
            self.graph,
            self.law.rows,
            self.recipients,
            walk=self.walk,
            legs=int(min(max(_FOLLOWED_HOPS / hops, _FEWEST_LEGS), _LEGS)),
            joint=len(self.graph.indices) * self.graph.n_nodes <= TABLE_ENTRIES,
        )

    @cached_property
    def source_prior(self) -> FloatArray:
        """How often each node is the source, in the long run; estimated where there are several recipients."""
        if self.recipients == 1:
            return self.law.source_prior
        heads = np.repeat(np.arange(self.graph.n_nodes), self.graph.degrees)
        return np.asarray(np.bincount(heads, weights=self.openings.arrived, minlength=self.graph.n_nodes), np.float64)

    def iter_updates(self, *, updates: int, seed: int, **options: Any) -> Iterator[npt.NDArray[np.void]]:
        """Play the protocol: ``walks.iter_protocol`` with this graph, law, walk and number of recipients."""
        return iter_protocol(self.graph, self.law.rows, updates=updates, seed=seed, **self._walking, **options)

    def run_updates(self, *, updates: int, seed: int, **options: Any) -> npt.NDArray[np.void]:
        """Play the protocol to its end: ``walks.run_protocol`` with the same, on any executor."""
        return run_protocol(self.graph, self.law.rows, updates=updates, seed=seed, **self._walking, **options)

    @property
    def _walking(self) -> dict[str, Any]:
        return {"walk": self.walk, "recipients": self.recipients}

    @cached_property
    def price(self) -> Price:
        """Mean hops between two updates: exact where the graph is not too large for it."""
        if self.is_direct:
            return Price(1.0, "exact")
        if self.recipients > 1 and self.law.is_even:
            found = self.openings
            kind = f"estimated from {found.legs} walks, sets summed out"
            return Price(found.hops, kind, found.hops_interval)
        if self.recipients == 1 and not self.is_large:
            if self.chain.on_nodes is not None or len(self.graph.indices) <= EXACT_ARCS:
                return Price(self.chain.mean_hops(self.law.matrix), "exact")
            hops = self.law.mean_hops(self.chain.mean_hitting_times())
            return Price(hops, "nearly exact: arcs into the source taken for equally likely")
        played = np.concatenate(list(self.iter_updates(updates=_SIMULATED_UPDATES, seed=1)))
        mean = estimate_mean(np.asarray(played["leg_hops"], dtype=np.float64))
        return Price(mean.mean, f"simulated, {mean.count} updates", mean.interval)

    def certain_to_a_relay(self) -> float | None:
        """Return the share of updates whose maker one relay knows for certain; None where that is not known.

        A relay that hands a ciphertext to a neighbour and gets another one straight back knows that this neighbour made
        it; so it does where the token waited one hop there, for there was nowhere else to have been. Who does not turn
        round does so at leaves.
        """
        if self.is_direct:
            return None
        nodes, leaves = self.chain.on_nodes, self.graph.degrees == 1
        if nodes is None:
            # Nobody need be asked how often it updates where there is no leaf.
            return float(self.source_prior[leaves].sum()) if leaves.any() else 0.0
        makers = self.source_prior
        steps = sparse.coo_array(nodes.transition_matrix)
        moves, stays = steps.row != steps.col, nodes.transition_matrix.diagonal()
        here, there = steps.row[moves], steps.col[moves]
        back = steps.data[moves] * (1.0 + stays[here])
        most, least = np.zeros(self.graph.n_nodes), np.ones(self.graph.n_nodes)
        np.maximum.at(most, here, back)
        np.minimum.at(least, here, back)
        if np.allclose(most, least, rtol=1e-12, atol=0.0):
            return float(makers @ most)
        if self.recipients > 1:
            arcs = sparse.csr_array((back, (here, there)), shape=steps.shape)
            arcs.sort_indices()
            return float(self.openings.arrived @ arcs.data)
        if self.is_large:
            return None
        visits = token_law(nodes, self.law.matrix.toarray(), self.chain.mean_hitting_times())
        arrivals = visits * nodes.transition_matrix.toarray()
        return float(arrivals[there, here] @ back)

    def relay_warning(self) -> str | None:
        """Return a line for who lets a single relay be certain; None where none is, or that is not known."""
        share = self.certain_to_a_relay()
        if not share:
            return None
        turns = self.chain.on_nodes is not None
        return relay_warning(share, turns=turns, ring=bool(np.all(self.graph.degrees == 2)))

    @property
    def prior_range(self) -> tuple[float, float]:
        """How often the rarest and the most frequent source update, times the mean."""
        times = self.source_prior * self.graph.n_nodes
        return float(times.min()), float(times.max())

    def remark(self) -> str | None:
        """Return a line for who walks otherwise than the law was designed for; None where there is nothing to say."""
        if self.designed_for is None or self.designed_for == self.walk:
            return None
        return f"the law was designed for the {self.designed_for} walk, and this one is {self.walk}"


def relay_warning(share: float, *, turns: bool, ring: bool = False) -> str:
    """Return a line about a share of updates whose maker one relay knows; ``turns``: the walk may go straight back.

    On a ``ring`` it must: one that never turns goes round for ever.
    """
    if ring:
        cure = "on a ring a walk must turn: take another network"
    else:
        cure = "--walk non-backtracking ends that, but at leaves" if turns else "they come from leaves, with any walk"
    return f"a relay next to the maker knows it for certain in {share:.1%} of updates; {cure}"


def require_destinations(scheme: Scheme) -> Scheme:
    """Return the scheme, or refuse one that hands models on unsealed."""
    if scheme.is_direct:
        need = "a law that seals for somebody; the plain walk is one to compare with"
        raise InvalidParameterError("law", scheme.law.name, need)
    return scheme


def n_parallel_lanes(graph: Graph, updates: int) -> int:
    """Return how many lanes to play at once: each has its table of nodes, which takes longer to fill than to use."""
    return max(min(64, _LANE_NODES // graph.n_nodes, updates), 1)
