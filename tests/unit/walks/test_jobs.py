"""Independent walks: the same bits however they are run, and the right answers about their paths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numba
import numpy as np
import pytest
from tests.helpers.progress import Heard

from veilwalk import walks
from veilwalk.core.arrays import IntArray, frozen
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.progress import silent
from veilwalk.core.walk import Walk
from veilwalk.graphs import Graph, random_regular
from veilwalk.walks import _jobs, _kernels, _kernels_ragged, _moves
from veilwalk.walks._moves import moves_of

KINDS: list[str] = ["simple", "lazy"]


@pytest.mark.parametrize("walk", KINDS)
def test_walkers_follow_the_documented_rule(any_graph: Graph, walk: str, slow_path: Callable[..., list[int]]) -> None:
    """Compiled walkers of every layout go where a plain Python walker goes."""
    n_nodes, seed, first_job = any_graph.n_nodes, 2**40 + 7, 2**33
    starts = [0, n_nodes - 1]
    paths = [slow_path(any_graph, walk, start, 300, seed=seed, job=first_job + k) for k, start in enumerate(starts)]

    for steps in [0, 1, 2, 15, 63, 64, 65, 131, 300]:
        ends = walks.walk_positions(any_graph, starts, steps, seed=seed, walk=Walk(walk), first_job=first_job)
        assert ends.tolist() == [path[steps] for path in paths]


@pytest.mark.parametrize("walk", KINDS)
def test_times_are_those_of_the_path(any_graph: Graph, walk: str, slow_path: Callable[..., list[int]]) -> None:
    """Hitting and return times are the first visits on the very path the walker takes."""
    rng = np.random.default_rng(5)
    n_jobs, n_steps = 40, 200
    sources, targets = rng.integers(0, any_graph.n_nodes, (2, n_jobs))
    paths = np.array(
        [slow_path(any_graph, walk, int(start), n_steps, seed=3, job=job) for job, start in enumerate(sources)]
    )
    hits = paths == targets[:, None]
    returns = paths[:, 1:] == sources[:, None]

    times = walks.hitting_times(any_graph, sources, targets, seed=3, walk=Walk(walk), max_steps=n_steps)
    back = walks.return_times(any_graph, sources, seed=3, walk=Walk(walk), max_steps=n_steps)

    assert times.tolist() == np.where(hits.any(axis=1), hits.argmax(axis=1), walks.NOT_REACHED).tolist()
    assert back.tolist() == np.where(returns.any(axis=1), returns.argmax(axis=1) + 1, -1).tolist()


def test_threads_chunks_and_parts_do_not_change_a_bit(
    any_graph: Graph, two_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread or two, chunks and batches of any size, whole lists or parts: the same numbers."""
    rng = np.random.default_rng(6)
    sources, targets = rng.integers(0, any_graph.n_nodes, (2, 700))
    options: dict[str, Any] = {"seed": 11, "max_steps": 5000}
    numba.set_num_threads(1)
    times = walks.hitting_times(any_graph, sources, targets, **options)
    ends = walks.walk_positions(any_graph, sources, 333, seed=11)

    numba.set_num_threads(two_threads)
    assert np.array_equal(times, walks.hitting_times(any_graph, sources, targets, **options))
    assert np.array_equal(ends, walks.walk_positions(any_graph, sources, 333, seed=11))

    monkeypatch.setattr(_jobs, "_MAX_FIRST_BATCH", 90)
    monkeypatch.setattr(_jobs, "_CHUNK_JOBS", 17)
    monkeypatch.setattr(_jobs, "_TARGET_CHUNK_JOBS", 19)
    assert np.array_equal(times, walks.hitting_times(any_graph, sources, targets, **options))

    late = walks.hitting_times(any_graph, sources[300:], targets[300:], first_job=300, **options)
    assert np.array_equal(times[300:], late)
    assert np.array_equal(ends[300:], walks.walk_positions(any_graph, sources[300:], 333, seed=11, first_job=300))


def test_double_steps_and_single_steps_agree(petersen: Graph) -> None:
    """The register kernels with double steps give what the lane kernels give."""
    fast = moves_of(petersen, Walk("simple"))
    slow = replace(fast, ends=fast.ends[:0], pairs=fast.pairs[:0])
    starts = frozen(np.arange(500, dtype=np.int32) % 10)
    goals = frozen(np.roll(starts, 3))
    found: list[tuple[IntArray, IntArray]] = []
    for moves in (fast, slow):
        ends = np.empty(500, np.int32)
        head = (moves.table, moves.offsets, moves.ends, 2, np.empty(0, np.int32), *moves.word_arguments())
        _kernels.final_positions(*head, starts, 1001, np.uint64(1), np.uint64(0), ends)
        options: dict[str, Any] = {"seed": 1, "max_steps": None, "first_job": 0, "progress": silent}
        found.append((ends, _jobs._first_hits(moves, starts, goals, **options)))

    assert len(fast.pairs) > 0
    assert np.array_equal(found[0][0], found[1][0])
    assert np.array_equal(found[0][1], found[1][1])


@pytest.mark.parametrize(("degree", "leap"), [(4, 2), (5, 2), (16, 1), (40, 1)])
def test_leaps_change_no_step(degree: int, leap: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One or two moves at a time in registers lead where the lanes lead, with steps left over too."""
    graph = random_regular(900, degree, seed=4)
    starts = np.arange(300) * 3
    assert _moves.leap_moves(moves_of(graph, Walk("simple")))[1] == leap
    for steps in (3, 333):
        fast = walks.walk_positions(graph, starts, steps, seed=5)
        with monkeypatch.context() as patched:
            patched.setattr(_moves, "_MAX_LEAPS", 0)
            assert len(_moves.leap_moves(moves_of(graph, Walk("simple")))[0]) == 0
            assert np.array_equal(walks.walk_positions(graph, starts, steps, seed=5), fast)


def test_steps_in_doubt_are_made_by_the_rule() -> None:
    """On a graph with hubs so large that words are rejected, few states give what lanes give; to never doubt, not."""
    hubs, leaves = 2, 20_001
    edges = [(0, 1)] + [(hub, leaf) for leaf in range(hubs, hubs + leaves) for hub in range(1 + leaf % 2)]
    moves = moves_of(Graph.from_edges(hubs + leaves, np.array(edges)), Walk("simple"))
    rows, doubtful = _moves.ragged_moves(moves)
    # Many walkers, few steps: two that go apart soon meet at a hub.
    n_walkers = 2_000_000
    rest = (frozen(np.arange(n_walkers, dtype=np.int32) % hubs), 3, np.uint64(1), np.uint64(0))
    slow = np.empty(n_walkers, np.int32)
    head = (moves.table, moves.offsets, moves.ends, 2, np.empty(0, np.int32), *moves.word_arguments())
    _kernels.final_positions(*head, *rest, slow)
    found = {}
    for name, mask in {"as made": doubtful, "always": np.uint32(0), "never": np.uint32(2**32 - 1)}.items():
        found[name] = np.empty(n_walkers, np.int32)
        _kernels_ragged.ragged_positions(rows, moves.offsets, mask, *rest, found[name])

    assert np.array_equal(found["as made"], slow)
    assert np.array_equal(found["always"], slow)
    assert not np.array_equal(found["never"], slow)


@pytest.mark.parametrize("degree", [3, 4])
def test_far_moves_change_no_step(degree: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Double steps a cache line apart lead where single steps lead, for an odd number of steps too."""
    graph = random_regular(25_000, degree, seed=4)
    starts = np.arange(300)
    far = _moves.far_moves(moves_of(graph, Walk("simple")), 10**9)
    assert len(far) == 16 * 25_000
    assert far.ctypes.data % 64 == 0
    for steps in (1, 2, 333):
        monkeypatch.setattr(_moves, "_FAR_STEPS", 10**9)
        single = walks.walk_positions(graph, starts, steps, seed=5)
        monkeypatch.setattr(_moves, "_FAR_STEPS", 0)
        assert np.array_equal(walks.walk_positions(graph, starts, steps, seed=5), single)


@pytest.mark.parametrize(
    ("nodes", "degree", "steps"),
    [
        (1000, 4, 10**9),  # 16 bits hold a step
        (25_000, 5, 10**9),  # 25 double steps fill more than a line
        (25_000, 4, 8 * 100_000 - 1),  # too few steps to pay
        (400_000, 4, 10**9),  # 24 MiB would push single steps out of the cache
    ],
)
def test_far_moves_are_made_only_where_they_pay(nodes: int, degree: int, steps: int) -> None:
    """Otherwise there is no such table."""
    assert len(_moves.far_moves(moves_of(random_regular(nodes, degree, seed=4), Walk("simple")), steps)) == 0


def test_times_start_at_zero_and_returns_at_one(petersen: Graph) -> None:
    """A walk that starts at its target has hit it; to return it must first step."""
    assert walks.hitting_times(petersen, [4, 4], 4, seed=1).tolist() == [0, 0]
    assert walks.return_times(petersen, [4] * 50, seed=1).min() >= 2
    assert walks.return_times(petersen, [4] * 50, seed=1, walk=Walk("lazy")).min() == 1


def test_max_steps_is_the_last_step_that_counts(petersen: Graph) -> None:
    """A hit at step max_steps is reported, one a step later is not."""
    times = walks.hitting_times(petersen, [0] * 300, 1, seed=2)
    for limit in (1, 7, 56, 57):
        cut = walks.hitting_times(petersen, [0] * 300, 1, seed=2, max_steps=limit)
        assert np.array_equal(cut, np.where(times <= limit, times, walks.NOT_REACHED))


def test_histogram_counts_what_the_times_are(petersen: Graph) -> None:
    """The streaming histogram is the histogram of the single times."""
    sources, targets = [0, 1, 2, 3], [1, 2, 3, 3]
    counts = walks.hitting_time_histogram(
        petersen, sources, targets, groups=[0, 1, 0, 2], bin_edges=[1, 5, 20], repeats=50, seed=8
    )
    times = walks.hitting_times(petersen, np.tile(sources, 50), np.tile(targets, 50), seed=8)

    assert counts.sum() == 200
    for group in range(3):
        mine = times[np.tile([0, 1, 0, 2], 50) == group]
        expected = [np.sum(mine < 1), np.sum((mine >= 1) & (mine < 5)), np.sum((mine >= 5) & (mine < 20))]
        assert counts[group, :3].tolist() == expected


def test_progress_is_reported(petersen: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress ends at the number of jobs."""
    monkeypatch.setattr(_jobs, "_MAX_FIRST_BATCH", 1000)
    heard = Heard()
    walks.hitting_times(petersen, [0] * 9000, 1, seed=1, progress=heard)

    assert len(heard.steps) > 1
    assert heard.steps[-1] == (9000, 9000)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sources": [0, 10]}, "sources = 10: must be nodes 0..9"),
        ({"sources": [0.5]}, "sources = 'array of shape (1,) and type float64': must be a list of nodes"),
        ({"targets": [1, 2, 3]}, "targets = 'list of 3 nodes': must be one, or as many as sources (2)"),
        ({"seed": -1}, "seed = -1: must be between 0 and 2**64 - 1"),
        ({"seed": 1 << 64}, "seed = 18446744073709551616: must be between 0 and 2**64 - 1"),
        ({"max_steps": 0}, "max_steps = 0: must be >= 1"),
        ({"first_job": -1}, "first_job = -1: must be >= 0"),
    ],
)
def test_bad_input_is_one_clear_line(petersen: Graph, arguments: dict[str, object], message: str) -> None:
    """Messages name the parameter, its value and what is needed."""
    given: dict[str, object] = {"sources": [0, 1], "targets": [2, 3], "seed": 1, **arguments}
    with pytest.raises(InvalidParameterError) as caught:
        walks.hitting_times(petersen, given.pop("sources"), given.pop("targets"), **given)  # type: ignore[arg-type]

    assert str(caught.value) == message


def test_histogram_refuses_what_it_cannot_count(petersen: Graph) -> None:
    """Groups and edges are checked."""
    with pytest.raises(InvalidParameterError, match="groups"):
        walks.hitting_time_histogram(petersen, [0], [1], groups=[-1], bin_edges=[1, 2], repeats=1, seed=1)
    with pytest.raises(InvalidParameterError, match="bin_edges"):
        walks.hitting_time_histogram(petersen, [0], [1], groups=[0], bin_edges=[2, 2], repeats=1, seed=1)


def test_an_interrupt_keeps_the_walks_already_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of finished batches are those of an undisturbed run; the others say that they were not walked."""
    monkeypatch.setattr(_jobs, "_MAX_FIRST_BATCH", 100)
    monkeypatch.setattr(_jobs, "_MIN_FIRST_BATCH", 100)
    graph = Graph.from_edges(6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (0, 3)])
    sources, targets = np.arange(1000) % 6, (np.arange(1000) + 3) % 6
    whole = walks.hitting_times(graph, sources, targets, seed=1)

    def stop(stage: str, done: int = 0, total: int = 0, news: str = "") -> None:
        if done >= 200:
            raise KeyboardInterrupt

    kept = walks.hitting_times(graph, sources, targets, seed=1, progress=stop)
    made = kept != walks.NOT_WALKED
    assert 200 <= made.sum() < 1000
    np.testing.assert_array_equal(kept[made], whole[made])
    assert made[: int(made.sum())].all()


def test_an_interrupt_before_any_walk_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing to keep there is nothing to return."""
    graph = Graph.from_edges(3, [(0, 1), (1, 2), (2, 0)])

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_jobs, "_chunks", interrupted)
    with pytest.raises(KeyboardInterrupt):
        walks.hitting_times(graph, [0], [1], seed=1)
