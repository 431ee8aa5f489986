"""What comes by too often waits; honest ciphertexts do not come that often."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from veilwalk.core.walk import SIMPLE
from veilwalk.graphs import parse_graph_spec
from veilwalk.node.peer._custody import Custody
from veilwalk.node.peer._draws import OsDraws
from veilwalk.node.peer._repeats import Visits, allowed_visits
from veilwalk.node.peer._routing import NextHop
from veilwalk.node.spool._disk import FolderDisk
from veilwalk.node.spool._handover import Taken, Verdict
from veilwalk.node.spool._spool import Spool


class Opener:
    """Opens nothing."""

    def is_current(self, message: Any) -> bool:
        """Return that all is current."""
        del message
        return True

    def open(self, message: Any) -> None:
        """Return nothing."""
        del message


def graph_of(spec: str) -> tuple[Any, list[str], list[tuple[str, str]]]:
    graph = parse_graph_spec(spec)
    names = [f"n{node}" for node in range(graph.n_nodes)]
    edges = [(names[a], names[int(b)]) for a in range(graph.n_nodes) for b in graph.neighbours(a) if a < b]
    return graph, names, edges


@pytest.mark.parametrize("spec", ["rrg:10:4:seed=1", "ring:8"])
def test_honest_walks_seldom_come_that_often(spec: str) -> None:
    """Exact visits of an absorbed walk, for every destination; one visit less would be too often for some."""
    graph, names, edges = graph_of(spec)
    allowed = allowed_visits(names, edges, "n0")
    step = np.zeros((graph.n_nodes, graph.n_nodes))
    for node in range(graph.n_nodes):
        step[node, graph.neighbours(node)] = 1 / graph.degrees[node]
    chances = []
    for goal in range(1, graph.n_nodes):
        left = [node for node in range(graph.n_nodes) if node != goal]
        visits = np.linalg.inv(np.eye(len(left)) - step[np.ix_(left, left)])[0, 0]
        chances.append((1 - 1 / visits) ** allowed)
    assert max(chances) <= 1e-4 < max(chances) ** ((allowed - 1) / allowed)


def test_a_network_in_two_parts_has_no_limit() -> None:
    assert allowed_visits(["a", "b", "c", "d"], [("a", "b"), ("c", "d")], "a") == 10**9


def test_the_wait_grows_and_is_bounded() -> None:
    visits = Visits(3, pause_s=0.5)
    waits = [visits.wait_s(b"garbage") for _ in range(300)]
    assert waits[:5] == [0, 0, 0, 0.5, 1.0]
    assert waits[-1] == 100
    assert visits.wait_s(b"another") == 0


def take(custody: Custody, seq: int, body: bytes) -> Taken:
    assert custody.hold("a", seq, hashlib.sha256(body).digest(), body) is Verdict.HELD
    return custody.take("a", seq)


def test_what_came_too_often_is_kept_waits_and_blocks_nobody(tmp_path: Path) -> None:
    """It is not pinned, counts towards no quota, and goes on when its time has come."""
    custody = Custody(
        Spool(FolderDisk(tmp_path)),
        opener=cast("Any", Opener()),
        next_hop=NextHop(walk=SIMPLE, neighbours=("a", "b")),
        draws=OsDraws(),
        quota=2,
        dwells=False,
        visits=Visits(1, pause_s=1.0),
    )
    garbage = b"garbage"
    first = take(custody, 1, garbage)
    assert first.row is not None
    custody.delivered(str(first.row.peer), first.row.seq or 0)
    resting = [take(custody, seq, garbage) for seq in (2, 3)]
    assert [taken.wait_s for taken in resting] == [1.0, 2.0]
    assert all(taken.row is not None and taken.row.peer is None for taken in resting)
    for seq, body in ((4, b"honest"), (5, b"too")):
        assert take(custody, seq, body).verdict is Verdict.TAKEN
    assert custody.hold("a", 6, hashlib.sha256(b"much").digest(), b"much") is Verdict.BUSY
    assert resting[0].row is not None
    moved = custody.pin(resting[0].row.id)
    assert moved is not None
    assert moved.peer is not None
    assert custody.statistics()[0]["rested"] == 2
    custody.spool.close()
