"""What can be said exactly about a walk that is a Markov chain, on the nodes or on the arcs.

The laws here are written once, over the columns of :mod:`veilwalk.chains._columns`. Each is the transient, step by
step, plus the geometric tail once it has settled, so that its cost does not depend on how late the asked time is. Where
the tail has not settled (poor mixing) the steps go on. Sums of non-negative numbers keep their digits.

A non-backtracking walk is a chain on arcs. Where a question is about nodes, the token is taken to have come to the
source by any of its arcs alike, as it does in the long run of the walk; mean hitting times of a law are then right to
one part in 10^5 on regular graphs and to a few in 10^4 on small ones with hubs (measured). Delivery laws and
:meth:`Chain.mean_hops`, which follow the arcs, are exact.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy import sparse

from veilwalk.chains._columns import Columns, GeometricTail, iter_batches
from veilwalk.chains._deliveries import DeliveryLaw, Tokens, iter_deliveries
from veilwalk.chains._kernels_nodes import thread_count
from veilwalk.chains._limits import Nodes, chosen_horizon, chosen_targets, require_law, require_memory
from veilwalk.chains._openings import MeanOpenings, SetPotentials, find_makers
from veilwalk.core import validate
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError, NumericalError
from veilwalk.core.sizes import DEFAULT_MEMORY_BYTES
from veilwalk.graphs import Graph

if TYPE_CHECKING:
    from veilwalk.chains._node_chain import NodeChain

# Each look at the tail is this much later than the one before.
_LATER = 1.2


@dataclass(frozen=True, eq=False)
class States:
    """A walk as a chain hop by hop: its states are the nodes, or the arcs that lead into them.

    ``shares`` are of the time, and ``node`` is where the token stands in each state. ``arrivals`` are the neighbours
    that each node's states come from, as a graph; None where states are nodes.
    """

    transition_matrix: sparse.csr_array
    shares: FloatArray
    node: IntArray
    arrivals: Graph | None = None

    def after(self, came_from: IntArray, node: IntArray) -> IntArray:
        """Return the state of a token that has gone from one node to another."""
        if self.arrivals is None:
            return np.asarray(node, dtype=np.int64)
        graph, n_nodes = self.arrivals, self.arrivals.n_nodes
        keys = self.node * n_nodes + graph.indices
        return np.searchsorted(keys, np.asarray(node, dtype=np.int64) * n_nodes + came_from)


class Chain(ABC):
    """The exact laws of one walk on one connected graph.

    Methods take the targets to answer for, all nodes when none are named, and refuse what needs more than
    ``memory_bytes``. Answers about pairs have one row a source and one column a target.
    """

    @property
    @abstractmethod
    def n_nodes(self) -> int:
        """Number of nodes."""

    @property
    @abstractmethod
    def node_shares(self) -> FloatArray:
        """Share of its time that the walk spends on each node."""

    @property
    @abstractmethod
    def products_per_hop(self) -> float:
        """Multiplications of one hop of all delivery laws."""

    @property
    @abstractmethod
    def mixing_rate(self) -> float:
        """Largest modulus of an eigenvalue that dies out, of the simple walk for one on arcs."""

    @property
    def on_nodes(self) -> NodeChain | None:
        """The chain on the nodes, for what needs its transition matrix; None where the walk is one on arcs."""
        return None

    @property
    @abstractmethod
    def states(self) -> States:
        """The walk hop by hop."""

    @property
    @abstractmethod
    def state_nodes(self) -> IntArray:
        """Where the token stands in each state."""

    @abstractmethod
    def mean_hitting_times(self, targets: Nodes = None, *, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> FloatArray:
        """Return E[T_ij], the mean hops from each node to each target; 0 where they meet."""

    @abstractmethod
    def hitting_laws(
        self, horizon: int, targets: Nodes = None, *, memory_bytes: int = DEFAULT_MEMORY_BYTES
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """Yield targets and P(T_ij = t) for them, as (time, source, target), some targets at a time.

        Times go from 0 to ``horizon``; T is 0 where source and target meet. The array may be overwritten by the next
        step of the iteration. Relative error: about t times the unit rounding.
        """

    @abstractmethod
    def mean_hops(self, law: sparse.csr_array) -> float:
        """Return the exact mean hops between two updates under a destination law."""

    def truncated_means(
        self, kappa: float, targets: Nodes = None, *, memory_bytes: int = DEFAULT_MEMORY_BYTES
    ) -> FloatArray:
        """Return E[T_ij | T_ij <= kappa], infinite where that cannot be.

        For ``kappa = math.inf`` it is the mean hitting time. Relative error at most 1e-10, 1e-12 where the chain mixes
        well. NumericalError: the tail is not geometric by four times the time at which it should be.
        """
        validate.at_least(0, kappa=kappa)
        if kappa == math.inf:
            return self.mean_hitting_times(targets, memory_bytes=memory_bytes)
        chosen, last = chosen_targets(self.n_nodes, targets), math.floor(kappa)
        require_memory("truncated means", len(self.state_nodes) * len(chosen), memory_bytes)
        means = np.empty((self.n_nodes, len(chosen)))
        for part in iter_batches(len(self.state_nodes), len(chosen)):
            columns = self._start_columns(chosen[part], n_sums=2)
            tail = self._settle(columns, last)
            mass, moment = columns.total(0), columns.total(1)
            if tail is not None:
                mass += tail.mass(tail.time, last)
                moment += tail.moment(last)
            mass, moment = self._average_by_node(mass), self._average_by_node(moment)
            means[:, part] = np.divide(moment, mass, out=np.full_like(mass, math.inf), where=mass > 0.0)
        return means

    def window_masses(
        self, lo: npt.ArrayLike, hi: npt.ArrayLike, targets: Nodes = None, *, memory_bytes: int = DEFAULT_MEMORY_BYTES
    ) -> FloatArray:
        """Return P(lo_ij <= T_ij <= hi_ij); 0 for an empty window.

        Only probabilities inside the window are summed, so that a rare one keeps its digits. In the far tail the
        relative error grows as the time times 1e-16, and a pair cut off from the rest of the network by its target has
        an absolute error of at most 1e-12 times the gap. Raises as :meth:`truncated_means`.

        ``lo`` and ``hi`` are whole numbers that broadcast to (n_nodes, targets).
        """
        chosen = chosen_targets(self.n_nodes, targets)
        require_memory("window masses", 3 * len(self.state_nodes) * len(chosen), memory_bytes)
        masses = np.empty((self.n_nodes, len(chosen)))
        first, last = _window_ends("lo", lo, masses.shape), _window_ends("hi", hi, masses.shape)
        for part in iter_batches(len(self.state_nodes), len(chosen)):
            window = first[self.state_nodes, part], last[self.state_nodes, part]
            masses[:, part] = self._average_by_node(self._sum_windows(chosen[part], *window))
        return masses

    def _sum_windows(self, targets: IntArray, lo: FloatArray, hi: FloatArray) -> FloatArray:
        """Return the masses of one batch, one row a state."""
        columns = self._start_columns(targets)
        columns.gather_windows(lo, hi)
        tail = self._settle(columns, max(int(hi.max()), 0))
        masses = columns.window_masses()
        if tail is not None:
            after = np.maximum(lo - 1.0, tail.time)
            masses += tail.mass(after, np.maximum(hi, after))
        on_target = self.state_nodes[:, np.newaxis] == targets
        return np.where(on_target, ((lo <= 0.0) & (hi >= 0.0)).astype(np.float64), masses)

    def return_survival(self, times: Sequence[int] | IntArray, nodes: Nodes = None) -> FloatArray:
        """Return P(R_j > t) for each time (row) and node: the transient, then the geometric tail.

        R is the first time after 0 at which the walk is back where it started. Relative error about t times 1e-16.
        Raises NumericalError as :meth:`truncated_means`.
        """
        chosen, requested = chosen_targets(self.n_nodes, nodes), np.asarray(times)
        if (
            requested.ndim != 1
            or requested.size == 0
            or not np.issubdtype(requested.dtype, np.integer)
            or requested.min() < 0
        ):
            raise InvalidParameterError("times", times, "a sequence of whole numbers >= 0")
        survival = np.ones((len(requested), len(chosen)))
        for part in iter_batches(len(self.state_nodes), len(chosen)):
            columns, tail = self._start_columns(chosen[part], of_returns=True), None
            for time, is_look in self._iter_stops(requested.tolist()):
                columns.advance(time)
                survival[requested == time, part] = columns.return_survival()
                tail = columns.tail() if is_look else None
                if tail is not None:
                    late = requested > time
                    # Whole rounds of two lead back to one of the last two times.
                    rounds, odd = np.divmod(requested[late, np.newaxis] - time + 1, 2)
                    start = np.where(odd == 0, *columns.survival_ends(tail))
                    survival[late, part] = start * np.exp(rounds * np.log1p(-tail.gap))
                    break
            self._require_settled(columns, tail, int(requested.max()))
        return survival

    def deliveries(
        self, law: FloatArray, horizon: int, nodes: Nodes = None, *, memory_bytes: int = DEFAULT_MEMORY_BYTES
    ) -> Iterator[DeliveryLaw]:
        """Yield the exact :class:`DeliveryLaw` of each destination in turn, all of them unless told which.

        Cost: O(n^2 degree) a hop and destination for walks on the nodes, about ``degree`` times that for walks on
        arcs; destinations are independent and run on all threads. Error: rounding only; return times, last hops and
        sources that cannot come together have exactly zero within the horizon.

        ``law`` is dense, irreducible, zero on the diagonal; return times past ``horizon`` are pooled in ``beyond``.
        """
        chosen, hops = chosen_targets(self.n_nodes, nodes), chosen_horizon(horizon)
        require_law(law, self.n_nodes)
        widest = int((law[:, chosen] > 0).sum(axis=0).max())
        batch = thread_count()
        tables = (hops + 1) * int(self._n_entries[chosen].max()) * widest
        require_memory("delivery laws", batch * tables + self._token_floats(batch, widest), memory_bytes)
        return iter_deliveries(self._solve_tokens(law, memory_bytes), law, hops, chosen, batch)

    @property
    def lists_one(self) -> bool:
        """Whether the long run of a protocol that seals for one needs no matrix larger than the nodes."""
        return True

    @cached_property
    def potentials(self) -> SetPotentials:
        """What the fundamental matrix of the walk says about sets of recipients."""
        return SetPotentials(self.states)

    def mean_openings(
        self,
        law: sparse.csr_array,
        recipients: int,
        *,
        n_sets: int | None = None,
        seed: int = 0,
        train_probability: float = 1.0,
    ) -> MeanOpenings:
        """Return the long run of a protocol that seals for several; from all sets, or some drawn for each source.

        An opener that does not train seals again; guesses are then of who trains next.
        """
        if recipients == 1 and n_sets is None and (single := self._open_one(law, train_probability)) is not None:
            return single
        openings = self.potentials.mean_over_sets(law, recipients, n_sets, seed)
        if train_probability == 1.0:
            return openings
        makers = train_probability, find_makers(openings.by_node, train_probability)
        return self.potentials.mean_over_sets(law, recipients, n_sets, seed, makers)

    def _open_one(self, law: sparse.csr_array, train_probability: float) -> MeanOpenings | None:  # noqa: ARG002
        """Return the long run of a protocol that seals for one, where there is a quicker road than potentials."""
        return None

    @abstractmethod
    def _start_columns(self, targets: IntArray, *, n_sums: int = 0, of_returns: bool = False) -> Columns:
        """Return columns at time 0 that gather sums of ``t**kind`` for each kind below ``n_sums``.

        Columns ``of_returns`` are those that :meth:`Columns.return_survival` is asked of.
        """

    @property
    @abstractmethod
    def _n_entries(self) -> IntArray:
        """How many last hops lead into each node, a self-loop included."""

    @abstractmethod
    def _token_floats(self, batch: int, widest: int) -> int:
        """Return the floats that ``batch`` deliveries at a time need beside their tables."""

    @abstractmethod
    def _solve_tokens(self, law: FloatArray, memory_bytes: int) -> Tokens:
        """Return the token of the protocol in its long run under ``law``."""

    @property
    @abstractmethod
    def _first_look(self) -> int:
        """The time at which to look first whether the tail has settled."""

    @property
    def _give_up(self) -> float:
        """The time by which a tail that has not settled never will."""
        return math.inf

    def _average_by_node(self, values: FloatArray) -> FloatArray:
        """Return the mean of ``values``, one row a state, over the states of each node."""
        return values

    def _iter_stops(self, times: Sequence[int]) -> Iterator[tuple[int, bool]]:
        """Yield the times to stop at, in order, and whether to look there if the tail has settled."""
        reach, looks, next_look = min(max(times), self._give_up), set(), float(self._first_look)
        while next_look < reach:
            looks.add(math.ceil(next_look))
            next_look *= _LATER
        for time in sorted(looks | {time for time in times if 0 < time <= reach}):
            yield time, time in looks

    def _settle(self, columns: Columns, last: int) -> GeometricTail | None:
        """Advance until the tail has settled, or to the time ``last``."""
        tail = None
        for time, is_look in self._iter_stops([last]):
            columns.advance(time)
            tail = columns.tail() if is_look else None
            if tail is not None:
                break
        self._require_settled(columns, tail, last)
        return tail

    def _require_settled(self, columns: Columns, tail: GeometricTail | None, last: int) -> None:
        if tail is None and columns.time < last:
            raise NumericalError(f"hitting times of {self!r}: the tail is not geometric by time {columns.time}")


def _window_ends(name: str, ends: npt.ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    given = np.asarray(ends)
    if not np.issubdtype(given.dtype, np.integer):
        raise InvalidParameterError(name, f"array of {given.dtype}", "whole numbers")
    try:
        return np.broadcast_to(given.astype(np.float64), shape)
    except ValueError:
        raise InvalidParameterError(name, f"array of shape {given.shape}", f"of shape {shape}") from None
