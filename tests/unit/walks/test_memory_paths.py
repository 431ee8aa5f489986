"""Paths of tokens: the very ways that the protocol goes, hop by hop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest

from veilwalk import walks
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.walk import Walk
from veilwalk.graphs import Graph
from veilwalk.walks import token_paths

KINDS = ("simple", "lazy", "metropolis", "non-backtracking")


def even_law(graph: Graph) -> Any:
    """Return the law that is uniform over all other nodes."""
    return (1.0 - np.eye(graph.n_nodes)) / (graph.n_nodes - 1)


@pytest.mark.parametrize("walk", KINDS)
def test_records_lie_on_the_path(any_graph: Graph, walk: str) -> None:
    """Source, last hop, destination and the visit before are where the path has them; another lane's path has not."""
    law = even_law(any_graph)
    found = walks.run_protocol(any_graph, law, updates=60, seed=3, walk=Walk(walk), replicas=4)
    paths = token_paths(any_graph, hops=int(found["clock"].max()), lanes=4, seed=3, walk=Walk(walk))
    lane, clock = found["replica"], found["clock"]
    for back, column in ((0, "destination"), (1, "last_hop")):
        np.testing.assert_array_equal(paths[lane, clock - back], found[column])
    np.testing.assert_array_equal(paths[lane, clock - found["leg_hops"]], found["source"])
    np.testing.assert_array_equal(paths[lane, clock - found["return_time"]], found["destination"])
    if any_graph.n_nodes > 2:
        assert np.any(paths[(lane + 1) % 4, np.minimum(clock, paths.shape[1] - 1)] != found["destination"])


@pytest.mark.parametrize("walk", ["simple", "lazy"])
def test_table_walks_go_as_the_plain_walker_goes(
    any_graph: Graph, walk: str, slow_path: Callable[..., list[int]]
) -> None:
    """Every hop, over several words of the stream."""
    paths = token_paths(any_graph, hops=300, lanes=3, seed=2**40 + 7, walk=Walk(walk), first_lane=2**33)
    for row in range(3):
        assert paths[row].tolist() == slow_path(
            any_graph, walk, int(paths[row, 0]), 300, seed=2**40 + 7, job=2**33 + row
        )


@pytest.mark.parametrize("walk", KINDS)
def test_lanes_and_threads_do_not_change_a_hop(petersen: Graph, walk: str, two_threads: int) -> None:
    """A lane goes the same way alone, among others, for longer, and on one thread."""
    every = token_paths(petersen, hops=100, lanes=6, seed=2, walk=Walk(walk))
    numba.set_num_threads(1)
    some = token_paths(petersen, hops=250, lanes=2, seed=2, walk=Walk(walk), first_lane=3)
    numba.set_num_threads(two_threads)
    np.testing.assert_array_equal(every[3:5], some[:, :101])
    assert np.any(every[0] != every[3])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hops": 0}, "hops = 0: must be >= 1"),
        ({"lanes": 0}, "lanes = 0: must be >= 1"),
        ({"first_lane": -1}, "first_lane = -1: must be >= 0"),
        ({"seed": -1}, "seed = -1: must be between 0 and 2**64 - 1"),
        ({"seed": 1 << 64}, "seed = 18446744073709551616: must be between 0 and 2**64 - 1"),
    ],
)
def test_bad_input_is_one_clear_line(petersen: Graph, change: dict[str, Any], message: str) -> None:
    """The parameter, its value, what is needed."""
    asked: dict[str, Any] = {"hops": 5, "lanes": 1, "seed": 1}
    with pytest.raises(InvalidParameterError) as caught:
        token_paths(petersen, **asked | change)
    assert message in str(caught.value)
