"""Defines the scheme: graph, law, walk and number of recipients, with its price."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse import csgraph

from veilwalk.chains import Chain, MeanOpenings, chain_of, find_outside, token_law
from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.sizes import EXACT_ARCS, LARGE_NODES, LISTED_SETS, SMALL_NODES, TABLE_ENTRIES
from veilwalk.core.stats import estimate_mean
from veilwalk.core.walk import SIMPLE, Walk
from veilwalk.design._law import DestinationLaw, far_law
from veilwalk.graphs import Graph, overlay, parse_graph_spec
from veilwalk.walks import Openings, estimate_openings, iter_protocol, join_blank_legs, run_protocol, split_evenly

# Legs of a play with blank ones: as many as are asked for, some at a time.
_ENDLESS, _CHUNK_LEGS = 1 << 60, 65_536
# Nodes of all lanes together.
_LANE_NODES = 4_000_000
_SIMULATED_UPDATES = 20_000
# Multiplications of the systems of all sets that are listed: some two seconds.
_LISTED_WORK = 4e9
# A chain of so many states is inverted in a second.
_POTENTIAL_STATES = 1_500
# A row with so few nodes more than recipients may leave somebody out; checked up to so many nodes.
_CHECKED_NODES = 2_000
# Added to the length of every arc, so that none has no length; and nodes that an error names.
_WAY, _NAMED = 1e-6, 8
# Neighbours of a peer whose subsets of every size are tried, and peers that are looked at.
_MOST_NEIGHBOURS, _WEAKEST = 8, 64
# Legs of an estimate with sets summed out; fewer where one leg takes very long.
_LEGS, _FEWEST_LEGS, _FOLLOWED_HOPS = 40_000, 64, 2_000_000_000
# Hops to play for the price on a large overlay.
_PLAYED_HOPS = 50_000_000


@dataclass(frozen=True)
class Price:
    """Mean hops between two updates, how they were computed, and their 95% interval where they were sampled."""

    hops: float
    kind: str
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, eq=False)
class Scheme:
    """The network, the law of destinations, the walk of ciphertexts and the number of recipients.

    A source seals for ``recipients`` nodes, drawn from its row of the law without replacement; the first of them that
    the token meets opens it. One recipient is the paper's scheme. ``designed_for`` is the walk that the law was
    designed for, where that is known. Design returns a scheme; the audit, training and nodes take one.

    On an overlay members know their own links only. ``key_period`` is the number of updates after which recipient keys
    are renewed there, which are listed without names; 0 where keys have names.

    Two fields are defences. An opener trains with ``train_probability`` and else seals the model again as it is: a
    blank leg. A member that has made ``most_updates`` in a run only seals again; 0 is three times the even share.
    """

    graph: Graph
    law: DestinationLaw
    walk: Walk = SIMPLE
    recipients: int = field(default=1, kw_only=True)
    train_probability: float = field(default=1.0, kw_only=True)
    most_updates: int = field(default=0, kw_only=True)
    key_period: int = field(default=0, kw_only=True)
    designed_for: Walk | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "graph", parse_graph_spec(self.graph))
        validate.instance(DestinationLaw, "a DestinationLaw; choose_scheme takes names and files", law=self.law)
        object.__setattr__(self, "walk", Walk.parse(self.walk))
        self.law.check_graph(self.graph)
        validate.integer(1, recipients=self.recipients)
        validate.integer(0, most_updates=self.most_updates)
        validate.integer(0, key_period=self.key_period)
        if self.graph.is_overlay and not self.is_direct and self.law.far != 2:
            need = "far:2 on an overlay, where members know no distances: all but their neighbours"
            raise InvalidParameterError("law", self.law.name, need)
        if self.key_period and not self.graph.is_overlay:
            need = "0 where members know the graph: keys without names hide little there"
            raise InvalidParameterError("key_period", self.key_period, need)
        validate.finite(train_probability=self.train_probability)
        if not 0.0 < self.train_probability <= 1.0:
            raise InvalidParameterError("train_probability", self.train_probability, "above 0 and at most 1")
        most = int(self.law.n_choices.min())
        if most < self.recipients:
            node = self.graph.label(int(np.argmin(self.law.n_choices)))
            need = f"at most {most}: node {node} has no more to choose from under the law {self.law.name}"
            raise InvalidParameterError("recipients", self.recipients, need)

    def __repr__(self) -> str:
        network = self.graph.name or f"{self.graph.n_nodes} nodes"
        blank = "" if self.train_probability == 1.0 else f", {1 - self.train_probability:.0%} of legs blank"
        return f"Scheme({network}, law {self.law.name}, {self.walk} walk, sealed for {self.recipients}{blank})"

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
    def hides_names(self) -> bool:
        """Whether observers know names only next to themselves: neither map nor keys name anybody else."""
        return self.graph.is_overlay and self.key_period > 0 and not self.is_direct

    def deal_again(self, *, seed: int) -> Scheme:
        """Return the same scheme on another overlay of the same members."""
        graph = overlay(self.graph.n_nodes, int(self.graph.degrees[0]), seed=seed)
        return replace(self, graph=graph, law=far_law(graph, 2))

    @property
    def is_direct(self) -> bool:
        """Whether the model goes unsealed to a neighbour: the plain walk."""
        return self.law.support.hi == 1 and self.law.name == "plain"

    def require_sealed(self) -> Scheme:
        """Return the scheme itself, or refuse one that hands models on unsealed."""
        if self.is_direct:
            need = "a law that seals for somebody; the plain walk is one to compare with"
            raise InvalidParameterError("law", self.law.name, need)
        return self

    @cached_property
    def _lists_sets(self) -> bool:
        """Whether all sets of every source can be listed."""
        graph = self.graph
        if graph.n_nodes > SMALL_NODES or self.is_direct:
            return False
        if self.recipients == 1 and self.chain.lists_one:
            return True
        if not self.has_potentials:
            return False
        sets = [math.comb(int(size), self.recipients) for size in self.law.n_choices]
        width = self.recipients * (2 * graph.n_edges / graph.n_nodes if self.has_arc_states else 1) + 1
        return max(sets) <= LISTED_SETS and sum(sets) * (width**3 + 1_000) <= _LISTED_WORK

    @property
    def has_arc_states(self) -> bool:
        """Whether the walk knows where it came from."""
        return self.walk.kind == "non-backtracking"

    @property
    def has_potentials(self) -> bool:
        """Whether exact chains of any set exist: for few states, and not on a ring that a walk goes round for ever."""
        never_turns = self.has_arc_states and bool(np.all(self.graph.degrees == 2))
        return len(self.chain.state_nodes) <= _POTENTIAL_STATES and not never_turns

    @cached_property
    def exact_openings(self) -> MeanOpenings | None:
        """The exact long run over all sets of recipients; None where they are too many to list."""
        if not self._lists_sets:
            return None
        return self.chain.mean_openings(self.law.matrix, self.recipients, train_probability=self.train_probability)

    @cached_property
    def idle_nodes(self) -> IntArray:
        """Nodes that may never train: those outside the largest set of nodes that sealers never leave."""
        nobody, nodes = np.empty(0, dtype=np.int64), np.arange(self.graph.n_nodes)
        law, spare = self.law, self.law.n_choices - self.recipients
        is_tight = self.recipients > 1 and bool(np.any(spare < law.support.hi - law.support.lo))
        if len(nodes) > _CHECKED_NODES or not is_tight:
            leads_on = law.far is not None and (self.is_large or 2 * int(law.n_choices.min()) > len(nodes))
            return nobody if leads_on else find_outside(law.matrix, nodes)
        if self._lists_sets:
            return self.chain.potentials.find_idle(law.matrix, self.recipients)
        # A node opens first where a way to it meets no more of the others than can stay outside a set.
        heads, tails = self.graph.indices, np.repeat(nodes, self.graph.degrees)
        reach = np.zeros((len(nodes), len(nodes)), dtype=np.bool_)
        for source in nodes.tolist():
            is_eligible = law.matrix[[source]].toarray().ravel() > 0
            lengths: Any = sparse.csr_array((is_eligible[heads] + _WAY, (tails, heads)), shape=reach.shape)
            met = np.floor(csgraph.dijkstra(lengths, indices=[source])[0]) - 1
            reach[source] = is_eligible & (met <= spare[source])
        return find_outside(sparse.csr_array(reach), nodes)

    def require_everybody(self) -> Scheme:
        """Return the scheme itself, or refuse one under which some node may never train, by name."""
        if self.is_direct or not (idle := self.idle_nodes).size:
            return self
        names = ", ".join(self.graph.label(int(node)) for node in idle[:_NAMED]) + (
            " ..." if len(idle) > _NAMED else ""
        )
        many, value = self.recipients > 1, (self.recipients if self.recipients > 1 else self.law.name)
        need = f"{'fewer, or ' * many}another law or a wider support: {names} may never train, because the others seal "
        raise InvalidParameterError("recipients" if many else "law", value, f"{need}only for each other")

    @cached_property
    def openings(self) -> Openings:
        """P(opener, last hop and source), by sampled paths with the set summed out; the seed is fixed."""
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
        """Share of updates by each node in the long run; estimated where there is no exact law."""
        if self.has_exact_law:
            return self.law.source_prior
        if self.hides_names and self.is_large:
            # All have one degree, and nobody has a name.
            return np.full(self.graph.n_nodes, 1.0 / self.graph.n_nodes)
        if self.exact_openings is not None:
            return np.asarray(self.exact_openings.joint.sum(axis=0))
        heads = np.repeat(np.arange(self.graph.n_nodes), self.graph.degrees)
        return np.asarray(np.bincount(heads, weights=self.openings.arrived, minlength=self.graph.n_nodes), np.float64)

    def iter_trained(self, *, updates: int, seed: int, tokens: int = 1) -> Iterator[npt.NDArray[np.void]]:
        """Play one replica until so many updates are made; blank legs belong to the update at their end."""
        options: dict[str, Any] = {"seed": seed, "tokens": tokens, "replicas": 1}
        if self.train_probability == 1.0:
            return self.iter_updates(updates=updates, **options)
        quotas = split_evenly(updates, min(tokens, updates))
        chunk = min(_CHUNK_LEGS, math.ceil(1.2 * updates / self.train_probability) + len(quotas))
        legs = self.iter_updates(updates=_ENDLESS, chunk_updates=chunk, **options | {"tokens": len(quotas)})
        return join_blank_legs(legs, quotas, train_probability=self.train_probability, seed=seed)

    def iter_updates(self, *, updates: int, seed: int, **options: Any) -> Iterator[npt.NDArray[np.void]]:
        """Play the protocol: ``walks.iter_protocol`` with this graph, law, walk and number of recipients.

        Every leg is a row, blank ones too: its source sealed it, and made an update of its own only if it trained.
        """
        if self.graph.is_overlay and options.get("device", "cpu") != "cpu":
            raise InvalidParameterError("device", options["device"], "cpu on an overlay")
        options |= {"updates": updates, "seed": seed, "walk": self.walk, "recipients": self.recipients}
        return iter_protocol(self.graph, self.law.rows, **options)

    def run_updates(self, *, updates: int, seed: int, **options: Any) -> npt.NDArray[np.void]:
        """Play the protocol to its end: ``walks.run_protocol`` with the same, on any executor."""
        options |= {"updates": updates, "seed": seed, "walk": self.walk, "recipients": self.recipients}
        return run_protocol(self.graph, self.law.rows, **options)

    @cached_property
    def price(self) -> Price:
        """Mean hops between two updates: exact where the graph is not too large for it."""
        if self.is_direct:
            return Price(1.0, "exact")
        if self.has_exact_law and not self.is_large:
            kind = "exact"
            if self.chain.on_nodes is not None or len(self.graph.indices) <= EXACT_ARCS:
                hops = self.chain.mean_hops(self.law.matrix)
            elif self.exact_openings is not None:
                hops = self.exact_openings.mean_hops
            else:
                hops = self.law.mean_hops(self.chain.mean_hitting_times())
                kind = "nearly exact: arcs into the source taken for equally likely"
            return self.price_legs(hops, kind)
        if self.exact_openings is not None:
            return self.price_legs(self.exact_openings.mean_hops, "exact")
        if not self.has_exact_law and self.law.is_even and not (self.hides_names and self.is_large):
            kind = f"estimated from {self.openings.legs} simulated walks"
            return self.price_legs(self.openings.hops, kind, self.openings.hops_interval)
        options: dict[str, Any] = {"updates": _SIMULATED_UPDATES}
        if self.hides_names:
            updates = max(_PLAYED_HOPS * self.recipients // self.graph.n_nodes, _FEWEST_LEGS)
            options = {"updates": min(updates, _SIMULATED_UPDATES), "replicas": 4, "burn_in": 1}
        records = np.concatenate(list(self.iter_updates(seed=1, **options)))
        mean = estimate_mean(np.asarray(records["leg_hops"], dtype=np.float64))
        return self.price_legs(mean.mean, f"simulated, {mean.count} updates", mean.interval)

    def price_legs(self, hops: float, kind: str, interval: tuple[float, float] | None = None) -> Price:
        """Return the price of an update whose legs take so many hops each: blank legs make none."""
        legs = 1.0 / self.train_probability
        ends = None if interval is None else (interval[0] * legs, interval[1] * legs)
        return Price(hops * legs, kind, ends)

    def certain_to_a_relay(self) -> float | None:
        """Return the share of updates whose maker one relay knows for certain; None where that is not known.

        A relay that hands a ciphertext to a neighbour and gets another one straight back knows that this neighbour made
        it, also where the token waited one hop there. A walk that never turns back does so at leaves.
        """
        if self.is_direct:
            return None
        nodes, leaves = self.chain.on_nodes, self.graph.degrees == 1
        if nodes is None:
            # Without leaves no prior is needed.
            return float(self.source_prior[leaves].sum()) if leaves.any() else 0.0
        makers = self.source_prior
        # Every arc of the graph has its move, so its head can hand a ciphertext straight back.
        heads = self.graph.indices
        tails = np.repeat(np.arange(self.graph.n_nodes), self.graph.degrees)
        steps, stays = nodes.transition_matrix, nodes.transition_matrix.diagonal()
        back = np.asarray(steps[tails, heads]).ravel() * (1.0 + stays[tails])
        most, least = (extreme.reduceat(back, self.graph.indptr[:-1]) for extreme in (np.maximum, np.minimum))
        if np.allclose(most, least, rtol=1e-12, atol=0.0):
            return float(makers @ most)
        if not self.has_exact_law:
            exact = self.exact_openings
            return float((self.openings.arrived if exact is None else exact.joint.sum(axis=1)) @ back)
        if self.is_large:
            return None
        visits = token_law(nodes, self.law.matrix.toarray(), self.chain.mean_hitting_times())
        arrivals = visits * nodes.transition_matrix.toarray()
        return float(arrivals[heads, tails] @ back)

    @cached_property
    def eclipse_shares(self) -> dict[int, float]:
        """Share of a peer's updates that so many of its neighbours together know for certain, for the weakest peers.

        They know those that come in from one of them and go out to one of them, as other bytes. Weakest are peers with
        the fewest neighbours, and of these the neighbours that see most; all neighbours know everything. It is exact
        but for one thing: an update is taken to come to its maker by any arc as often as the walk does.
        """
        if self.is_direct or self.is_large:
            return {}
        degrees, worst = self.graph.degrees, dict[int, float]()
        least = int(degrees.min())
        sizes = range(1, least + 1) if least <= _MOST_NEIGHBOURS else (1, 2, least)
        for node in np.flatnonzero(degrees == least)[:_WEAKEST]:
            known = self._weigh_turns(int(node))
            for size in sizes:
                chosen = map(list, combinations(range(least), size))
                worst[size] = max(worst.get(size, 0.0), *(float(known[np.ix_(some, some)].sum()) for some in chosen))
        return worst

    def _weigh_turns(self, node: int) -> FloatArray:
        """Return how often a token comes to a node from each neighbour (row) and leaves for each."""
        states, neighbours = self.chain.states, self.graph.neighbours(node).astype(np.int64)
        inward = states.after(neighbours, np.full(len(neighbours), node))
        if states.arrivals is None:
            arrivals = states.shares[neighbours] * states.transition_matrix[neighbours][:, [node]].toarray().ravel()
        else:
            arrivals = states.shares[inward]
        onward = states.after(np.full(len(neighbours), node), neighbours)
        leaves = states.transition_matrix[inward][:, onward].toarray()
        return np.asarray(arrivals[:, np.newaxis] / arrivals.sum() * leaves / leaves.sum(axis=1, keepdims=True))

    def relay_warning(self) -> str | None:
        """Return a warning where a single relay can be certain of the maker; else None."""
        share = self.certain_to_a_relay()
        if not share:
            return None
        ring = bool(np.all(self.graph.degrees == 2))
        return relay_warning(share, turns=self.chain.on_nodes is not None, ring=ring)

    @property
    def prior_range(self) -> tuple[float, float]:
        """Updates of the rarest and of the most frequent source, times the mean."""
        times = self.source_prior * self.graph.n_nodes
        return float(times.min()), float(times.max())

    def remark(self) -> str | None:
        """Return a line where the walk is not the one that the law was designed for; else None."""
        if self.designed_for is None or self.designed_for == self.walk:
            return None
        return f"the law was designed for the {self.designed_for} walk, and this one is {self.walk}"


def relay_warning(share: float, *, turns: bool, ring: bool = False) -> str:
    """Return a warning about a share of updates whose maker one relay knows; ``turns``: the walk may go straight back.

    On a ``ring`` it must: a walk that never turns goes round for ever.
    """
    if ring:
        cure = "on a ring a walk must turn: take another network"
    else:
        cure = "--walk non-backtracking ends that, but at leaves" if turns else "they come from leaves, with any walk"
    return f"a relay next to the maker knows it for certain in {share:.1%} of updates; {cure}"


def n_parallel_lanes(graph: Graph, updates: int) -> int:
    """Return the number of lanes to play together; each has a table of nodes, which takes long to fill."""
    return max(min(64, _LANE_NODES // graph.n_nodes, updates), 1)
