r"""A walk on a random regular graph seen from its source: the shell it stands in, and whether it has been there.

The graph is opened shell by shell. With U nodes still outside and s free ends of edges in shell l, such an end meets
another of its own shell with probability h = (s-1)/(s-1 + cU) and a node outside else; an end outside is met with
probability p = s (1-h) / (cU), so that U (1 - (1-p)^c) nodes make the next shell. A node entered from the shell below
has its other c-1 ends there with probability p each; one entered otherwise has at least one of them there.

Of its own trail the walk remembers how it met the node it stands on:

    new        all ways but the one it came by are fresh;
    backed     it turned round on its trail: one way leads on back, the others are fresh;
    followed   it goes along its trail: one way leads on, the others are fresh;
    met        a fresh way ended on the trail: two ways lead along it, the others are fresh.

On a tree, where no fresh way ends on the trail, the simple walk then meets a new node with probability (c-2)/(c-1) a
hop, which is exact; how often one does in a finite graph is said by who asks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import sparse

from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.theory._model import WalkModel

# From which shell a node was entered, seen from the source.
_BELOW, _SAME, _ABOVE = 0, 1, 2
_SIDES = 3
# How it was met.
_NEW, _BACKED, _FOLLOWED, _MET = 0, 1, 2, 3
_KINDS = 4
# Shells end where less than this is left outside; the rest joins the last one.
_REST = 1e-3


@dataclass(frozen=True, eq=False)
class Shells:
    """Mean numbers in a random regular graph seen from one node, by distance from 0 on.

    Attributes:
        sizes: nodes in each shell.
        more_up: chance that another end of a node entered from below leads to the shell below.
        sideways: chance that an end which does not lead below stays in its shell.
        edges: ends of edges of each shell by where they lead: below, same, above.
    """

    sizes: FloatArray
    more_up: FloatArray
    sideways: FloatArray
    edges: FloatArray


@lru_cache(maxsize=64)
def shells(model: WalkModel) -> Shells:
    """Open the graph from one node, in the mean."""
    c, outside, ends = model.degree, float(model.n_nodes - 1), float(model.degree)
    sizes, more_up, sideways, edges = [1.0], [0.0], [0.0], [[0.0, 0.0, ends]]
    while outside > 0.0:
        below = edges[-1][_ABOVE]
        chance = min(below / (c * outside), 1.0)
        # Neighbours of the source are c different nodes: the graph is simple.
        size = float(c) if len(sizes) == 1 else outside * (1.0 - (1.0 - chance) ** c)
        ends = c * size - below
        if outside - size < _REST or ends <= 1.0:
            size, ends = outside, max(c * outside - below, 0.0)
        more_up.append(0.0 if len(sizes) == 1 else chance)
        sizes.append(size)
        outside -= size
        others = max(ends - 1.0, 0.0)
        sideways.append(others / (others + c * outside) if outside > 0.0 else 1.0)
        edges.append([below, ends * sideways[-1], ends * (1.0 - sideways[-1])])
    return Shells(np.array(sizes), np.array(more_up), np.array(sideways), np.array(edges))


@dataclass(frozen=True, eq=False)
class ShellWalk:
    """A walk as a chain on (shell, entered from, how met).

    Attributes:
        along: probabilities of hops along the trail.
        fresh: probabilities of fresh hops, each written as one to a new node.
        shell: of each state.
        side: from where it was entered: below, same, above.
        new: for each state, the same place met as new.
        met: for each state, the same place met on the trail.
        start: the law after the first hop.
    """

    along: sparse.csr_array
    fresh: sparse.csr_array
    shell: IntArray
    side: IntArray
    new: IntArray
    met: IntArray
    start: FloatArray


def _state(shell: int, side: int, kind: int) -> int:
    return (shell * _SIDES + side) * _KINDS + kind


@lru_cache(maxsize=64)
def shell_walk(model: WalkModel, *, backtracking: bool) -> ShellWalk:
    """Return the chain of the simple or the non-backtracking walk."""
    seen, c = shells(model), model.degree
    n_shells = len(seen.sizes)
    size = n_shells * _SIDES * _KINDS
    along, fresh = sparse.lil_array((size, size)), sparse.lil_array((size, size))
    turn = 1.0 / c if backtracking else 0.0
    back = {_BELOW: (-1, _ABOVE), _SAME: (0, _SAME), _ABOVE: (1, _BELOW)}
    moves = ((-1, _ABOVE), (0, _SAME), (1, _BELOW))
    for shell in range(n_shells):
        for side in range(_SIDES):
            ways = _ways(seen, c, shell, side)
            if ways is None:
                continue
            for kind in range(_KINDS):
                here = _state(shell, side, kind)
                if turn:
                    step, entered = back[side]
                    met_as = _FOLLOWED if kind == _BACKED else _BACKED
                    along[here, _state(shell + step, entered, met_as)] += turn
                # The trail begins at the source: nothing leads on back from there.
                known = np.zeros(3) if shell == 0 and kind == _BACKED else _known(ways, kind, c)
                for (step, entered), all_ways, on_trail in zip(moves, ways, known, strict=True):
                    if all_ways > 0.0:
                        there = _BACKED if kind == _BACKED else _FOLLOWED
                        along[here, _state(shell + step, entered, there)] += (1.0 - turn) * on_trail
                        fresh[here, _state(shell + step, entered, _NEW)] += (1.0 - turn) * (all_ways - on_trail)
    states = np.arange(size)
    start = np.zeros(size)
    start[_state(1, _BELOW, _NEW)] = 1.0
    return ShellWalk(
        along=sparse.csr_array(along),
        fresh=sparse.csr_array(fresh),
        shell=states // (_SIDES * _KINDS),
        side=states // _KINDS % _SIDES,
        new=states - states % _KINDS + _NEW,
        met=states - states % _KINDS + _MET,
        start=start,
    )


def _ways(seen: Shells, c: int, shell: int, side: int) -> FloatArray | None:
    """Return where the ways other than the one it came by lead: below, same, above; None for what cannot be."""
    last = shell == len(seen.sizes) - 1
    if (shell == 0 and side != _ABOVE) or (last and side == _ABOVE):
        return None
    up, same = seen.more_up[shell], seen.sideways[shell]
    if shell == 0:
        up = 0.0
    elif side != _BELOW:
        up = up / -math.expm1((c - 1) * math.log1p(-min(up, 1.0 - 1e-12))) if up > 0.0 else 1.0 / (c - 1)
    return np.array([up, (1.0 - up) * same, (1.0 - up) * (1.0 - same)])


def _known(ways: FloatArray, kind: int, c: int) -> FloatArray:
    """Return the part of ``ways`` that lies on the trail: near the source it leads below, or back above."""
    if kind == _NEW:
        return np.zeros(3)
    if kind == _MET:
        return ways * min(2.0 / (c - 1), 1.0)
    share = 1.0 / (c - 1)
    first = 0 if kind == _BACKED else 2
    known = np.zeros(3)
    known[first] = min(ways[first], share)
    others = np.delete(np.arange(3), first)
    rest = ways[others].sum()
    if rest > 0.0:
        known[others] += ways[others] * (share - known[first]) / rest
    return known
