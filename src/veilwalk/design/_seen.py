"""What two others see when it is sealed for several: who sealed it, of who will open; and colluders on the way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from veilwalk.chains import Chain
from veilwalk.core.arrays import IntArray
from veilwalk.core.randomness import task_generator
from veilwalk.design._sampled import SampledMean, sampled_mean, side_by_side
from veilwalk.design._scheme import Scheme

#: Shares of colluders that a design is asked about.
SHARES = (0.01, 0.05, 0.1, 0.2)
_SETS, _WALKS, _FEWEST_WALKS = 256, 2_000, 200
# Chains of so many states are inverted in a second.
_EXACT_NODES, _EXACT_ARCS = 1_000, 1_500
_PLACEMENTS, _UPDATES = 8, 40_000
_HOPS = 200_000_000
# Walks that a kernel knows which starts them from any node.
_WALKED = {"simple": False, "non-backtracking": True}
_COLLUDERS, _DRAWN = 0x66697273, 0x70726564


@dataclass(frozen=True, kw_only=True)
class Predecessor:
    """How often who sealed a message names who will open it, knowing for whom it is: a mean over drawn sets.

    Attributes:
        knows_set: Its best guess from the set alone.
        knows_first_hop: And from whom it handed the message to.
        kind: How the law of openers was found for each set.
    """

    knows_set: SampledMean
    knows_first_hop: SampledMean
    kind: str


@dataclass(frozen=True, kw_only=True)
class FirstSight:
    """How often colluders name an honest source, if the first of them to get a message names who handed it over.

    Attributes:
        share: p, the share of the nodes that collude: what no routing can do better than.
        named: Share of the messages of honest sources; a mean over random placements.
    """

    share: float
    named: SampledMean

    @property
    def times_floor(self) -> float:
        """How many times the floor p that is."""
        return self.named.mean / self.share


def predecessor_guess(scheme: Scheme, *, hops: float, seed: int = 1) -> Predecessor | None:
    """Return how well a source can tell who will open; None for walks that no kernel starts at will.

    For each drawn set the law of who opens is exact where the walk's chain is small. Else walks are counted by who
    opened, and the best guess is chosen by one half of them and scored by the other, so that it is not better than it
    can be. ``hops`` is about what a message walks.
    """
    from veilwalk.design import _kernels_seen as kernels

    if scheme.graph.n_nodes <= _EXACT_NODES and len(scheme.graph.indices) <= _EXACT_ARCS:
        return _exact(scheme, scheme.chain, seed)
    if scheme.walk.kind not in _WALKED:
        return None
    walks = int(min(max(_HOPS / (hops * _SETS), _FEWEST_WALKS), _WALKS)) // 2 * 2
    sets = int(min(max(_HOPS / (hops * walks), 16), _SETS))
    graph, rng = scheme.graph, task_generator(seed, _DRAWN)
    played = scheme.play(updates=sets, seed=seed, replicas=side_by_side(graph, sets), burn_in=8)
    sources = np.concatenate([chunk["source"] for chunk in played]).astype(np.int64)
    counts = np.zeros((sets, 2, int(graph.degrees.max()), scheme.recipients))
    chosen = _drawn_sets(scheme, sources, seed)
    kernels.count_openers(
        graph.indptr,
        graph.indices,
        _WALKED[scheme.walk.kind],
        sources,
        chosen,
        walks // 2,
        np.uint64(rng.integers(2**63)),
        counts,
    )
    fitted, scored = counts[:, 0], counts[:, 1]
    guess = fitted.sum(axis=1).argmax(axis=1)
    by_set = scored.sum(axis=1)[np.arange(sets), guess] / (walks // 2)
    guesses = fitted.argmax(axis=2)
    by_hop = np.take_along_axis(scored, guesses[:, :, np.newaxis], axis=2).sum(axis=(1, 2)) / (walks // 2)
    kind = f"{sets} sets, {walks} walks each; too low rather than too high"
    return Predecessor(knows_set=sampled_mean(by_set), knows_first_hop=sampled_mean(by_hop), kind=kind)


def _exact(scheme: Scheme, chain: Chain, seed: int) -> Predecessor:
    each = max(_SETS // scheme.graph.n_nodes, 2)
    found = chain.mean_openings(scheme.law.matrix, scheme.recipients, n_sets=each, seed=seed)
    sets = each * scheme.graph.n_nodes

    def told(mean: float, half: float) -> SampledMean:
        return SampledMean(sets, mean, mean - half, mean + half)

    return Predecessor(
        knows_set=told(found.predecessor_guess, found.predecessor_error),
        knows_first_hop=told(found.sender_guess, found.sender_error),
        kind=f"{sets} sets, exact for each",
    )


def _drawn_sets(scheme: Scheme, sources: IntArray, seed: int) -> IntArray:
    from veilwalk.walks import recipients_of

    order = np.arange(len(sources))
    return recipients_of(
        scheme.graph,
        scheme.law.draws,
        scheme.recipients,
        seed=seed,
        lane=np.zeros(len(sources), dtype=np.int64),
        source=sources,
        clock=order,
    )


def first_sights(
    scheme: Scheme,
    shares: Sequence[float] = SHARES,
    *,
    hops: float,
    placements: int = _PLACEMENTS,
    updates: int = _UPDATES,
    seed: int = 1,
) -> tuple[FirstSight, ...]:
    """Return how often colluders name the source at first sight, for each share of colluders, placed at random.

    The cheapest attack of several that share what they saw, and a lower bound on what they can do; the audit has the
    strongest one. ``hops`` is about what a message walks.
    """
    # To draw a set takes as long as to look through it once for each of its members.
    each = int(min(updates, _HOPS / (hops + scheme.recipients**2 / 4))) // placements
    return tuple(_first_sight(scheme, share, placements, max(each, 256), seed) for share in shares)


def _first_sight(scheme: Scheme, share: float, placements: int, updates: int, seed: int) -> FirstSight:
    n_nodes = scheme.graph.n_nodes
    count = min(max(round(share * n_nodes), 1), n_nodes - 1)
    named = np.empty(placements)
    for placement in range(placements):
        colluders = np.zeros(n_nodes, dtype=np.bool_)
        rng = task_generator(seed, _COLLUDERS, round(share * 1e6), placement)
        colluders[rng.choice(n_nodes, size=count, replace=False)] = True
        played = np.concatenate(
            list(
                scheme.play(
                    updates=updates,
                    seed=seed + placement,
                    replicas=side_by_side(scheme.graph, updates),
                    colluders=colluders,
                    burn_in=8,
                )
            )
        )
        honest = played[~colluders[played["source"]]]
        named[placement] = np.mean(honest["first_sight_from"] == honest["source"]) if len(honest) else 0.0
    half = float(stats.t.ppf(0.975, placements - 1)) * float(named.std(ddof=1)) / math.sqrt(placements)
    mean = float(named.mean())
    return FirstSight(share=count / n_nodes, named=SampledMean(placements * updates, mean, mean - half, mean + half))
