r"""The non-backtracking walk as a chain on arcs, edges with a direction: where it is and where it came from.

From node y, reached from x, the walk goes to a uniform neighbour of y other than x; at a leaf it goes back. Every arc
is entered with total probability one, so on any graph all arcs are equally likely in the long run, and a node's share
is its degree over the number of arcs, as for the simple walk. A walk that starts at a node without a past goes to a
uniform neighbour; so does one that came there by a uniform arc.

In the protocol the token keeps its past when it is opened and sealed again: after an update too it does not go
straight back. That is what ``walks.run_protocol(walk="non-backtracking")`` does. The next leg depends on the arc by
which the token came to the source: sources alone are no Markov chain, the pairs (source, arc into it) are. An arc names
its source, so that the pair is the arc a; with nu and T as in :mod:`veilwalk.chains._openings`, for the set of one
node, and P the destination law, the next pair is q with probability

    P(source of a, source of q) nu_a(q),

and the stationary law rho of that chain, summed over the arcs into each node, is the stationary law of P. It is unique
where P is irreducible and the graph is no ring: a leaf has one arc into it, and two tokens sealed alike at a node with
three neighbours may leave it alike, wherever they came from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from veilwalk.chains import _kernels_arcs as kernels
from veilwalk.chains._chain import Chain, States
from veilwalk.chains._columns import EPS, TAIL_TOLERANCE, Columns, GeometricTail, iter_batches, split_targets
from veilwalk.chains._deliveries import Tokens, stationary_law
from veilwalk.chains._limits import Nodes, chosen_horizon, chosen_targets, require_law, require_memory
from veilwalk.chains._node_chain import NodeChain
from veilwalk.chains._openings import MeanOpenings, SetPotentials
from veilwalk.chains._single import ArcDeliveries, is_reducible
from veilwalk.core.arrays import FloatArray, IntArray, frozen, normalised
from veilwalk.core.sizes import DEFAULT_MEMORY_BYTES
from veilwalk.core.walk import Walk
from veilwalk.graphs import Graph

# Targets whose laws are held at a time.
_BLOCK = 8
_FIRST_LOOK = 32
# Beyond this many times its own mean a geometric tail is below rounding.
_TAIL_MEANS = 60.0
_SOME_STEPS = 512
# A multiplication of LAPACK's is this much cheaper than one of a step, or more.
_DENSE_GAIN = 8


@dataclass(frozen=True, eq=False)
class ArcUpdates:
    """The protocol in the long run under one destination law.

    Attributes:
        sources: P(an update is made at ``heads[a]``, the token having come by arc a), for each arc.
        entries: ``entries[a, q]``, P(a walk from arc a first enters ``heads[q]`` on arc q).
        visits: ``visits[s, d]``, expected visits to arc s, start included, on a leg sealed for d; sums to the hops.
        mean_hops: mean hops between two updates.
    """

    sources: FloatArray
    entries: FloatArray
    visits: FloatArray
    mean_hops: float


@dataclass(frozen=True, eq=False)
class ArcChain(Chain):
    """The non-backtracking walk on a connected graph: a Markov chain on its arcs.

    Arc ``s`` leads from node ``graph.indices[s]`` into node ``heads[s]``: the arcs into node i are
    ``graph.indptr[i]:graph.indptr[i+1]``, in the order of the neighbours they come from.
    """

    graph: Graph

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return self.graph.n_nodes

    @property
    def n_arcs(self) -> int:
        """Number of arcs, two for each edge."""
        return len(self.graph.indices)

    @cached_property
    def heads(self) -> IntArray:
        """The node that each arc leads into."""
        return frozen(np.repeat(np.arange(self.n_nodes), self.graph.degrees))

    @cached_property
    def reverse(self) -> IntArray:
        """The arc of the same edge the other way."""
        # Sorted by where they come from, ties by where they lead to, arcs stand in the order of their reverses.
        return frozen(np.argsort(self.graph.indices, kind="stable"))

    @cached_property
    def stationary(self) -> FloatArray:
        """Share of time on each arc: the same for all."""
        return frozen(np.full(self.n_arcs, 1.0 / self.n_arcs))

    @cached_property
    def transition_matrix(self) -> sparse.csr_array:
        """The transition probabilities between arcs."""
        degrees, starts = self.graph.degrees[self.heads], self.graph.indptr[self.heads]
        before = np.repeat(np.arange(self.n_arcs), degrees)
        along = np.arange(len(before)) - np.repeat(np.cumsum(degrees) - degrees, degrees) + np.repeat(starts, degrees)
        allowed = (along != before) | (degrees[before] == 1)
        before, along = before[allowed], along[allowed]
        chances = 1.0 / np.maximum(degrees[before] - 1, 1)
        return sparse.csr_array((chances, (before, self.reverse[along])), shape=(self.n_arcs, self.n_arcs))

    @property
    def node_shares(self) -> FloatArray:
        """Share of its time that the walk spends on each node: as the simple walk."""
        return self.graph.stationary_distribution

    @property
    def products_per_hop(self) -> float:
        """Multiplications of one hop of all delivery laws."""
        degrees = self.graph.degrees
        return float(self.n_nodes) ** 2 * float(degrees @ np.maximum(degrees - 1, 1))

    @cached_property
    def mixing_rate(self) -> float:
        """That of the simple walk: the chain on arcs is not reversible."""
        return NodeChain.simple(self.graph).mixing_rate

    @property
    def states(self) -> States:
        """The walk hop by hop."""
        return States(self.transition_matrix, self.stationary, self.heads, self.graph)

    @property
    def arcs(self) -> kernels.Arcs:
        """The arcs as the kernels take them."""
        return kernels.Arcs(self.graph.indptr, self.graph.indices, self.reverse)

    @property
    def state_nodes(self) -> IntArray:
        """The node that each arc leads into."""
        return self.heads

    def mean_hitting_times(self, targets: Nodes = None, *, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> FloatArray:
        """Return E[T_ij], the mean hops from each node, come to by a uniform arc, to each target.

        Relative error about 1e-12. Where the tail does not settle (poor mixing, a period of three or more) a dense
        solve over all arcs takes over.
        """
        chosen = chosen_targets(self.n_nodes, targets)
        require_memory("mean hitting times", self.n_arcs * len(chosen), memory_bytes)
        means = np.empty((self.n_nodes, len(chosen)))
        potentials: SetPotentials | None = None
        for part in iter_batches(self.n_arcs, len(chosen)):
            # No more steps than cost as much as the dense solve, but some for tiny graphs.
            reach = self.n_arcs**2 // (_DENSE_GAIN * len(chosen[part])) + _SOME_STEPS
            columns = self._start_columns(chosen[part], n_sums=2)
            tail = self._settle(columns, reach)
            if tail is None:
                potentials = potentials or SetPotentials(self.states, memory_bytes=memory_bytes)
                times = np.stack([potentials.solve_hits(int(node))[0] for node in chosen[part]], axis=1)
            else:
                until = tail.time + 2.0 * np.ceil(_TAIL_MEANS / tail.gap)
                times = columns.total(1) + tail.moment(until)
            means[:, part] = self._average_by_node(times)
        return means

    def hitting_laws(
        self, horizon: int, targets: Nodes = None, *, memory_bytes: int = DEFAULT_MEMORY_BYTES
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """Yield targets and P(T_ij = t) for them, for sources come to by a uniform arc."""
        chosen, last = chosen_targets(self.n_nodes, targets), chosen_horizon(horizon)
        require_memory("hitting laws", 2 * (last + 1) * self.n_arcs * min(_BLOCK, len(chosen)), memory_bytes)
        for start in range(0, len(chosen), _BLOCK):
            part = chosen[start : start + _BLOCK]
            laws = np.empty((last + 1, self.n_arcs, len(part)))
            laws[0] = self.graph.indices[:, np.newaxis] == part
            kernels.record_arcs(self.arcs, part, laws)
            by_arc = np.moveaxis(laws[:, self.reverse], 1, 0)
            yield part, np.moveaxis(self._average_by_node(by_arc), 0, 1)

    @cached_property
    def lists_one(self) -> bool:
        """Whether the equations of one recipient leave one a node: no two neighbours have two neighbours each."""
        return is_reducible(self.graph)

    def _open_one(self, law: sparse.csr_array, train_probability: float) -> MeanOpenings | None:
        return ArcDeliveries(self.graph, law).solve(train_probability) if self.lists_one else None

    def mean_hops(self, law: sparse.csr_array) -> float:
        """Return the exact mean hops between two updates under a destination law."""
        return self.solve_updates(law.toarray()).mean_hops

    def solve_updates(self, law: FloatArray, *, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> ArcUpdates:
        """Return the exact long run of the protocol; ``law`` is as for :meth:`deliveries`. Rings are refused.

        Cost: two dense factorisations over all arcs: half a second for 900 arcs on two cores, ten for 3000.
        """
        n_nodes, n_arcs = self.n_nodes, self.n_arcs
        require_law(law, n_nodes)
        # Measured: 6.8 tables of arcs by arcs at most, while the stationary law is solved for.
        require_memory("the update chain on arcs", 7 * n_arcs**2 + 3 * n_arcs * n_nodes, memory_bytes)
        potentials = SetPotentials(self.states, memory_bytes=memory_bytes)
        entries, means = np.empty((n_arcs, n_arcs)), np.empty((n_arcs, n_nodes))
        for node in range(n_nodes):
            means[:, node], entries[:, self.arcs_into(node)] = potentials.solve_hits(node)
        drawn = law[self.heads]
        sources = stationary_law(drawn[:, self.heads] * entries)
        legs = sources[:, np.newaxis] * drawn
        hops = (legs * means).sum(axis=0)
        # Legs start on their arcs and end on those into their goal; summed over legs the ends are the sources again.
        balance = legs.copy()
        balance[np.arange(n_arcs), self.heads] -= sources
        visits = np.maximum(potentials.matrix.T @ balance + hops / n_arcs, 0.0)
        # A destination is left at once: rounding must not leave a trace of it.
        visits[np.arange(n_arcs), self.heads] = 0.0
        return ArcUpdates(sources=sources, entries=entries, visits=visits, mean_hops=float(hops.sum()))

    def arcs_into(self, node: int) -> slice:
        """Return the places of the arcs into ``node``."""
        return slice(int(self.graph.indptr[node]), int(self.graph.indptr[node + 1]))

    def sum_by_node(self, values: FloatArray) -> FloatArray:
        """Return the sum of ``values``, one row an arc, over the arcs into each node."""
        return np.asarray(np.add.reduceat(values, self.graph.indptr[:-1], axis=0))

    def _average_by_node(self, values: FloatArray) -> FloatArray:
        """Return the mean over arrivals by a uniform arc: the long run, and the law of a walk without a past."""
        weights = 1.0 / self.graph.degrees[self.heads]
        return self.sum_by_node(weights.reshape(-1, *[1] * (values.ndim - 1)) * values)

    def _start_columns(self, targets: IntArray, *, n_sums: int = 0, of_returns: bool = False) -> ArcColumns:  # noqa: ARG002
        return ArcColumns(self, targets, n_sums=n_sums)

    @property
    def _n_entries(self) -> IntArray:
        return self.graph.degrees

    def _token_floats(self, batch: int, widest: int) -> int:
        return batch * 2 * self.n_arcs * (self.n_nodes + widest)

    def _solve_tokens(self, law: FloatArray, memory_bytes: int) -> ArcTokens:
        return ArcTokens(self, law, memory_bytes)

    @property
    def _first_look(self) -> int:
        return _FIRST_LOOK

    def __repr__(self) -> str:
        return f"ArcChain(n_nodes={self.n_nodes}, n_arcs={self.n_arcs})"


class ArcColumns(Columns):
    """Killed columns on the arcs.

    Row f of a block is the answer of a walk that has just gone along entry f, as the kernels have it; what leaves by
    :meth:`join_blocks` is numbered by arcs. All arcs are equally likely in the long run, so a column loses in each step
    exactly what arrives on the arcs into its target: the decay of the tail is a ratio of sums of non-negative numbers,
    and the sum of a column over the degree is the survival of the return time. The chain is not reversible: how fast
    the other modes die is seen from one look to the next, not from a spectrum.
    """

    def __init__(self, chain: ArcChain, targets: IntArray, *, n_sums: int) -> None:
        blocks = split_targets(targets)
        # One on the arcs into the target, that is along the reverses of the target's own entries.
        state = np.ascontiguousarray(
            (chain.graph.indices[np.newaxis, :, np.newaxis] == blocks[:, np.newaxis, :]).astype(np.float64)
        )
        super().__init__(targets, state, np.zeros_like(state), np.zeros((len(blocks), n_sums, *state.shape[1:])))
        self._chain = chain
        # What arrived on the arcs into each target in the last step.
        self._arrivals = np.zeros((1, *blocks.shape))
        self._last_look: tuple[int, float] | None = None

    def _step(self, first: int, last: int) -> None:
        now = (self._chain.arcs, self._targets, self._state, self._spare)
        if self._windows is None:
            kernels.advance_arcs(*now, self._totals, self._arrivals, first, last)
        else:
            kernels.advance_arc_windows(*now, *self._windows, self._arrivals, first, last)

    def total(self, kind: int) -> FloatArray:
        """Return the (n_arcs, n_targets) sum over times 0 to now of ``t**kind`` times the column."""
        total = self.join_blocks(self._totals[:, kind])
        # On arcs into the target the walk is over at time 0; what came back later is a return.
        total[self._chain.heads[:, np.newaxis] == self._named_targets()] = 1.0 if kind == 0 else 0.0
        return total

    def return_survival(self) -> FloatArray:
        """Return P(return time > t) at the time now, one number a target."""
        return np.asarray(self._state.sum(axis=1).ravel()[: self._n_targets] / self._degrees())

    def survival_ends(self, tail: GeometricTail) -> tuple[FloatArray, FloatArray]:
        """Return P(return time > t) one step before the time of ``tail``, and at it."""
        return tail.earlier.sum(axis=0) / self._degrees(), tail.last.sum(axis=0) / self._degrees()

    def split_rows(self, columns: FloatArray) -> FloatArray:
        """Return (n_arcs, n_targets) columns as blocks by entry."""
        return super().split_rows(columns[self._chain.reverse])

    def join_blocks(self, blocks: FloatArray) -> FloatArray:
        """Return blocks by entry as a new (n_arcs, n_targets) array."""
        return super().join_blocks(blocks)[self._chain.reverse]

    def _degrees(self) -> IntArray:
        return np.asarray(self._chain.graph.degrees[self._named_targets()])

    def tail(self) -> GeometricTail | None:
        """Return the tail, or None while some entry has not settled."""
        ahead, spare = self._state.copy(), np.empty_like(self._state)
        lost = np.zeros((2, *self._targets.shape))
        kernels.advance_arcs(self._chain.arcs, self._targets, ahead, spare, self._totals[:, :0], lost, 1, 2)
        masses = (self._spare.sum(axis=1) + self._state.sum(axis=1))[:, np.newaxis]
        # Two steps from each of the last two times: a column of a bipartite graph is empty at every other step.
        losses = (self._arrivals[0] + 2.0 * lost[1] + lost[0])[:, np.newaxis]
        gaps = np.clip(np.divide(losses, masses, out=np.ones_like(masses), where=masses > 0.0), EPS, 1.0 - EPS)
        worst = 0.0
        negligible = TAIL_TOLERANCE / (self.time / gaps + 2.0 / gaps**2)
        for before, after in ((self._spare, spare), (self._state, ahead)):
            off = np.abs(after - (1.0 - gaps) * before)
            share = np.divide(off, before, out=np.zeros_like(off), where=before > negligible)
            worst = max(worst, float(share.max()))
        if worst > self._allowed(worst):
            return None
        return self._geometric_tail(gaps)

    def _allowed(self, worst: float) -> float:
        """Return how far off an entry may be: what is left of other modes is more the slower they die."""
        before, self._last_look = self._last_look, (self.time, worst)
        rounding = EPS * (8.0 + float(self._chain.graph.degrees.max()))
        if before is None or not 0.0 < worst < before[1]:
            return rounding
        decay = math.exp(2.0 * math.log(worst / before[1]) / (self.time - before[0]))
        return max(TAIL_TOLERANCE * (1.0 - decay), rounding)


class ArcTokens(Tokens):
    """The token of a non-backtracking walk: in state (arc it came by, destination)."""

    def __init__(self, chain: ArcChain, law: FloatArray, memory_bytes: int) -> None:
        self._chain, self._law = chain, law
        self._updates = chain.solve_updates(law, memory_bytes=memory_bytes)
        self._sources = stationary_law(law)

    def follow(self, nodes: IntArray, columns: IntArray, arrivals: FloatArray) -> None:
        """Follow the token from a visit to each of ``nodes`` until it is back."""
        graph = self._chain.graph
        sealed_for = np.zeros((len(nodes), arrivals.shape[2], self._chain.n_nodes))
        for row, node in enumerate(nodes):
            sealed_for[row, : graph.degrees[node]] = self._updates.visits[self._chain.arcs_into(int(node))]
        kernels.deliver_on_arcs(self._chain.arcs, self._law, nodes, columns, sealed_for, arrivals)

    def scale_arrivals(self, node: int, arrivals: FloatArray) -> FloatArray:
        """Return the weights as probabilities: a leg has as many such visits as are followed, and mu_j deliveries."""
        return np.asarray(arrivals / self._sources[node])

    def last_hops(self, node: int) -> tuple[IntArray, FloatArray]:
        """Return the neighbours of ``node`` and P(last hop, source | a delivery)."""
        chain, updates, into = self._chain, self._updates, self._chain.arcs_into(node)
        sealed = (updates.sources * self._law[chain.heads, node])[:, np.newaxis]
        whole = np.ascontiguousarray(chain.sum_by_node(sealed * normalised(updates.entries[:, into])).T)
        return chain.graph.neighbours(node), whole / self._sources[node]


#: How the chain of each kind of walk is made.
CHAINS: dict[str, Callable[[Graph], Chain]] = {
    "simple": NodeChain.simple,
    "lazy": NodeChain.lazy,
    "metropolis": NodeChain.metropolis,
    "non-backtracking": ArcChain,
}


def chain_of(graph: Graph, walk: Walk) -> Chain:
    """Return the exact chain of ``walk`` on ``graph``."""
    return CHAINS[walk.kind](graph)
