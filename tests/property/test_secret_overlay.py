"""The theorem of docs/explanation/secret-overlay.md by enumeration: interior members are equally likely makers.

Eight members, three links each. Member 0 colludes; its neighbours are 1, 2 and 3. All 553 overlays that agree with its
links are listed, with all ways to deal keys to the others, and every way that the token can take. Nothing of the
package is used. Each condition of the theorem has a mutant that breaks it, and the posterior with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations, permutations

import numpy as np
import pytest

N_NODES, DEGREE, MEMBER = 8, 3, 0
INTERIOR = (4, 5, 6, 7)
#: Seen on a stretch: the neighbour that got the token, the one that gave it back, the nodes on the stretch, and the
#: keys that the coalition had sealed for.
Stretch = tuple[int, int, int, tuple[int, ...]]
Links = tuple[tuple[int, ...], ...]


@cache
def list_overlays(own_links: tuple[int, ...] = (1, 2, 3)) -> tuple[Links, ...]:
    """Return every cubic graph on the members in which member 0 has these neighbours."""

    def complete(edges: list[tuple[int, int]], degrees: list[int]) -> Iterator[Links]:
        open_nodes = [node for node in range(N_NODES) if degrees[node] < DEGREE]
        if not open_nodes:
            links: list[list[int]] = [[] for _ in range(N_NODES)]
            for a, b in edges:
                links[a].append(b)
                links[b].append(a)
            yield tuple(tuple(sorted(row)) for row in links)
            return
        node = open_nodes[0]
        taken = {b for a, b in edges if a == node} | {a for a, b in edges if b == node}
        free = [other for other in open_nodes[1:] if other not in taken]
        for others in combinations(free, DEGREE - degrees[node]):
            left = degrees.copy()
            left[node] = DEGREE
            for other in others:
                left[other] += 1
            yield from complete([*edges, *((node, other) for other in others)], left)

    degrees = [0] * N_NODES
    degrees[MEMBER] = DEGREE
    for node in own_links:
        degrees[node] = 1
    return tuple(complete([(MEMBER, node) for node in own_links], degrees))


def weigh_openers(links: Links, stretch: Stretch, owner: dict[int, int], pace: Callable[[int], float]) -> np.ndarray:
    """Return the likelihood of a stretch on one overlay, by who made the one update on it.

    ``owner[k]`` has key k. The token never turns straight back; the first owner of a chosen key opens and trains, and
    its neighbours are no recipients of what it seals, nor is anybody else before the coalition reads. ``pace(i)`` is
    how likely the times that were seen are where member i hands on.
    """
    first, last, length, keys = stretch
    openers = {owner[key] for key in keys}
    makers = np.zeros(N_NODES)
    stack = [(MEMBER, first, 1, -1, 1.0)]
    while stack:
        before, node, place, maker, weight = stack.pop()
        weight *= pace(node)
        maker = node if maker < 0 and node in openers else maker
        if place == length:
            if node == last and MEMBER in links[node] and maker >= 0:
                makers[maker] += weight / 2
            continue
        stack += [(node, on, place + 1, maker, weight / 2) for on in links[node] if on not in {before, MEMBER}]
    return makers


def deal_keys(unnamed: tuple[int, ...], *, names_keys: bool = False) -> list[dict[int, int]]:
    """Return who has which key, all ways to deal the keys of members without a link to the coalition."""
    named = {node: node for node in range(1, N_NODES) if node not in unnamed}
    deals = [unnamed] if names_keys else list(permutations(unnamed))
    return [named | dict(zip(unnamed, deal, strict=True)) for deal in deals]


def infer_maker(
    stretches: list[Stretch], *, names_keys: bool = False, pace: Callable[[int], float] = lambda _: 1.0
) -> np.ndarray:
    """Return the exact posterior over who made all these updates, known to be by one member, on one kept overlay."""
    total = np.zeros(N_NODES)
    for links in list_overlays():
        for owner in deal_keys(INTERIOR, names_keys=names_keys):
            total += np.prod([weigh_openers(links, seen, owner, pace) for seen in stretches], axis=0)
    return np.asarray(total / total.sum())


def infer_maker_on_fresh_overlays(stretches: list[Stretch]) -> np.ndarray:
    """Return the same where the second update was made on an overlay of its own, in which 0 is linked to 1, 4 and 5."""
    total = np.ones(N_NODES)
    for seen, own_links in zip(stretches, ((1, 2, 3), (1, 4, 5)), strict=True):
        unnamed = tuple(node for node in range(1, N_NODES) if node not in own_links)
        worlds = ((links, owner) for links in list_overlays(own_links) for owner in deal_keys(unnamed))
        total *= sum(weigh_openers(links, seen, owner, lambda _: 1.0) for links, owner in worlds)
    return np.asarray(total / total.sum())


ONE: list[Stretch] = [(1, 2, 4, (4, 5))]
LINKED: list[Stretch] = [(1, 2, 4, (4, 5)), (1, 3, 5, (5, 6)), (2, 2, 5, (1, 5))]


def test_every_overlay_that_agrees_with_the_members_links_is_listed() -> None:
    # 19,355 labelled cubic graphs on eight nodes (OEIS A002829); each of 35 sets of neighbours is equally frequent.
    assert len(list_overlays()) == 19_355 // 35


@pytest.mark.parametrize("stretches", [ONE, LINKED[:2], LINKED], ids=["one update", "two linked", "three linked"])
def test_interior_members_are_equally_likely_makers_whatever_was_seen_and_sealed(stretches: list[Stretch]) -> None:
    posterior = infer_maker(stretches)
    assert posterior[list(INTERIOR)].sum() > 0.1
    np.testing.assert_allclose(posterior[list(INTERIOR)], posterior[list(INTERIOR)].mean(), rtol=1e-12)


@pytest.mark.parametrize(
    "infer",
    [
        lambda: infer_maker(LINKED[:2], names_keys=True),
        lambda: infer_maker(LINKED[:2], pace=lambda node: 1.0 + 0.2 * node),
        lambda: infer_maker_on_fresh_overlays([ONE[0], (1, 4, 4, (6, 7))]),
    ],
    ids=["named keys", "uneven hop times", "a fresh overlay each period"],
)
def test_each_condition_is_needed(infer: Callable[[], np.ndarray]) -> None:
    interior = infer()[list(INTERIOR)]
    assert interior.max() > 1.05 * interior.mean()
