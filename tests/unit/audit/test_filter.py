"""The filter against a twin that carries every possible story of a token along, one dictionary entry a story."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from tests.helpers.known_runs import know
from tests.helpers.token_stories import GRAPH, LAW, Twin, members

from veilwalk.audit import AuditSettings
from veilwalk.audit._filter import EVERY, ExactFilter, MemberLog, record_log, record_segments
from veilwalk.audit._play import Run, play_updates
from veilwalk.core.arrays import BoolArray, IntArray
from veilwalk.core.walk import Walk
from veilwalk.design import Scheme
from veilwalk.walks import token_paths

SETTINGS = AuditSettings(updates=1200, replicas=8, seed=5)
WALKS = ("simple", "lazy", "metropolis", "non-backtracking")


def openings(run: Run, member: BoolArray, *, longest: int, most: int) -> IntArray:
    """Return pairs of openings that follow each other, not too far apart, with two updates by others between them."""
    lanes, clock = run.truth.lane, run.sightings.clock
    rows = np.flatnonzero(member[run.sightings.destination])
    pairs = [
        (first, last)
        for first, last in pairwise(rows)
        if lanes[first] == lanes[last] and last > first + 2 and clock[last] - clock[first] <= longest
    ]
    return np.array(pairs[:most])


def scheme(kind: str) -> Scheme:
    """Return the uneven law under one walk."""
    return Scheme(GRAPH, LAW, Walk(kind))


def watched(kind: str, member: BoolArray, *, longest: int = 40, most: int = 8) -> list[MemberLog]:
    """Return what members saw of some segments of a run."""
    run = play_updates(scheme(kind), SETTINGS)
    ends = openings(run, member, longest=longest, most=most)
    return record_segments(know(scheme(kind), SETTINGS, run), ends, member)


def make_filter(kind: str, *, counted: bool, distinct_counts: int = EVERY) -> ExactFilter:
    """Return the filter of a walk."""
    return ExactFilter(scheme(kind), distinct_counts=distinct_counts if counted else 0)


@pytest.mark.parametrize(("counted", "distinct_counts"), [(True, EVERY), (True, 1), (False, EVERY)])
@pytest.mark.parametrize("nodes", [(2, 8), (4,)])
@pytest.mark.parametrize("kind", WALKS)
def test_the_filter_is_exact(kind: str, nodes: tuple[int, ...], counted: bool, distinct_counts: int) -> None:
    """Of what is opened: with known counts, without, and with such as are known up to a number."""
    member = members(*nodes)
    logs = watched(kind, member)
    assert any(log.updates > log.new.sum() for log in logs)
    found = make_filter(kind, counted=counted, distinct_counts=distinct_counts).infer_opened(logs, member)
    for weights, log in zip(found, logs, strict=True):
        told = Twin(kind, LAW, counted=counted, distinct_counts=distinct_counts).answers(log, member)[0]
        np.testing.assert_allclose(weights, told, atol=1e-12)


@pytest.mark.parametrize("kind", WALKS)
def test_first_sights_are_exact(kind: str) -> None:
    """Of what is not opened: whom it is for is not known, but for who holds it and who held it before."""
    member = members(2, 8)
    logs = watched(kind, member)
    found, rows = make_filter(kind, counted=False).infer_first_sights(logs, member)
    wanted = [weights for log in logs for weights in Twin(kind, LAW).answers(log, member)[1]]
    assert len(wanted) == len(rows) > 0
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    with pytest.raises(ValueError, match="opened"):
        make_filter(kind, counted=True).infer_first_sights(logs, member)


def test_members_of_their_own_for_every_segment() -> None:
    """A mask a segment gives what one mask gives for each."""
    one, other = members(2, 8), members(4)
    logs = [*watched("simple", one, most=3), *watched("simple", other, most=3)]
    filtered = make_filter("simple", counted=True)
    together = filtered.infer_opened(logs, np.stack([one] * 3 + [other] * 3))
    apart = np.concatenate((filtered.infer_opened(logs[:3], one), filtered.infer_opened(logs[3:], other)))
    np.testing.assert_array_equal(together, apart)


def test_what_members_do_not_see_is_not_read() -> None:
    """Hops away from members and their hand-overs may be anything; those with members may not."""
    member, first = members(2, 8), 40
    path = token_paths(GRAPH, hops=400, lanes=1, seed=3)[0].astype(np.int64)
    clocks, drawn = np.array([first, 120, 190, 260]), np.array([5])
    log = record_log(path[first - 1 : 262], clocks, drawn, member, 0)
    near = np.zeros(len(path), dtype=np.bool_)
    for shift in (-1, 0, 1):
        near |= np.roll(member[path], shift)
    scrambled = np.where(near, path, np.random.default_rng(1).choice(np.flatnonzero(~member), len(path)))
    assert (scrambled != path).sum() > 50
    again = record_log(scrambled[first - 1 : 262], clocks, drawn, member, 0)
    for name in ("clock", "node", "came_from", "went_to", "new", "row"):
        np.testing.assert_array_equal(getattr(again, name), getattr(log, name))
    moved = np.where(member[path], 2, path)
    assert (record_log(moved[first - 1 : 262], clocks, drawn, member, 0).node != log.node).any()
