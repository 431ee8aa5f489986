"""A walk that somebody copies has branches; where they meet, all but one end."""

from __future__ import annotations

import pytest
from tests.campaigns import branches

from veilwalk.design import choose_scheme
from veilwalk.graphs import parse_graph_spec
from veilwalk.node.peer._destination import is_fork
from veilwalk.node.sealing import Header
from veilwalk.node.spool import SeenWalk

TAG = b"walktag1"


@pytest.mark.parametrize(("iteration", "behind"), [(6, True), (7, False), (8, False)])
def test_who_is_behind(iteration: int, behind: bool) -> None:
    """A node that made update 7 of a walk has opened it after update 6: the same again is another branch."""
    header = Header(update_id=bytes(16), walk_tag=TAG, iteration=iteration, body_length=0)
    assert is_fork(header, {TAG: SeenWalk(iteration=7, first_turn=1, last_turn=1)}) is behind
    assert not is_fork(header, {b"another1": SeenWalk(iteration=9, first_turn=1, last_turn=2)})
    assert not is_fork(header, {})


def test_branches_are_few_and_become_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a member copies everything, and when it stops; without the rule, the mutant, they multiply."""
    graph = parse_graph_spec("rrg:12:3:seed=1")
    law = choose_scheme(graph, "far:2", recipients=6).law.matrix.toarray()
    for seed in range(3):
        live, after = branches.measure(graph, law, recipients=6, hops=200, seed=seed)
        assert 1 < max(live) < 30
        assert 0 <= after < 500
    monkeypatch.setattr(branches, "is_fork", lambda *_: False)
    world = branches.Branches(graph, law, recipients=6, copier=3, seed=1)
    for _ in range(200):
        world.hop()
        if len(world.live) > 300:
            break
    assert len(world.live) > 300
