"""The CUDA text gives the integers of the processor's kernels: tried here as C++, by one thread that is the grid."""

from __future__ import annotations

import builtins
import sys
from typing import Any

import numpy as np
import pytest
from tests.helpers.host_device import HostDevice, host_device

from veilwalk import walks
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.walk import Walk
from veilwalk.graphs import Graph, barabasi_albert, random_regular
from veilwalk.walks import ExcludedRows, _device, _protocol

SEED = 2**40 + 7
WALKS = ("simple", "lazy", "metropolis", "non-backtracking")
GRAPHS = {"regular": random_regular(40, 3, seed=2), "irregular": barabasi_albert(50, 2, seed=3)}


@pytest.fixture(scope="session")
def on_host(tmp_path_factory: pytest.TempPathFactory) -> HostDevice:
    """Return the text compiled for this machine."""
    return host_device(tmp_path_factory.mktemp("cuda"))


@pytest.fixture
def card(on_host: HostDevice, monkeypatch: pytest.MonkeyPatch) -> HostDevice:
    """Let ``device="cuda"`` be this machine."""
    monkeypatch.setattr(_protocol, "open_cuda", lambda: on_host)
    return on_host


def far_law(graph: Graph) -> Any:
    """Return an uneven law over the nodes that are no neighbours."""
    apart = 1.0 - graph.adjacency.toarray() - np.eye(graph.n_nodes)
    uneven = apart * np.arange(1, graph.n_nodes + 1)
    return uneven / uneven.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize("recipients", [1, 4])
def test_the_protocol_is_played_record_for_record(card: HostDevice, graph: Graph, walk: str, recipients: int) -> None:
    """Any walk, any number of recipients, colluders watching, chunks that stop lanes in the middle of their words."""
    watching = np.zeros(graph.n_nodes, dtype=np.bool_)
    watching[::7] = True
    for law in (far_law(graph), ExcludedRows.nearer_than(graph, 2)):
        for colluders in (None, watching):
            options: dict[str, Any] = {"walk": Walk.parse(walk), "recipients": recipients, "colluders": colluders}
            options |= {"updates": 210, "replicas": 5, "seed": SEED, "chunk_updates": 33}
            ours = walks.run_protocol(graph, law, **options)
            theirs = walks.run_protocol(graph, law, device="cuda", **options)
            assert np.array_equal(ours, theirs)


def test_several_tokens_share_a_replica_as_on_the_processor(card: HostDevice) -> None:
    options: dict[str, Any] = {"updates": 60, "seed": 1, "tokens": 3, "replicas": 2, "burn_in": 1}
    law = far_law(GRAPHS["regular"])
    ours = walks.run_protocol(GRAPHS["regular"], law, **options)
    assert np.array_equal(ours, walks.run_protocol(GRAPHS["regular"], law, device="cuda", **options))


@pytest.mark.parametrize("recipients", [1, 4])
def test_some_lanes_alone_do_what_they_do_in_the_whole_run(card: HostDevice, recipients: int) -> None:
    graph = GRAPHS["regular"]
    options: dict[str, Any] = {"updates": 90, "seed": 1, "tokens": 2, "replicas": 5, "recipients": recipients}
    ours = walks.run_protocol(graph, far_law(graph), only=range(3, 7), **options)
    assert np.array_equal(ours, walks.run_protocol(graph, far_law(graph), only=range(3, 7), device="cuda", **options))


def test_sets_that_take_all_or_nearly_all_are_drawn_alike(card: HostDevice) -> None:
    """So many recipients that what is left of a row is weighed anew."""
    law = far_law(GRAPHS["regular"]) ** 3
    law /= law.sum(axis=1, keepdims=True)
    options: dict[str, Any] = {"updates": 200, "seed": 5, "replicas": 4, "recipients": 34, "burn_in": 0}
    ours = walks.run_protocol(GRAPHS["regular"], law, **options)
    assert np.array_equal(ours, walks.run_protocol(GRAPHS["regular"], law, device="cuda", **options))


def test_the_exponential_is_right_to_the_last_digits() -> None:
    from veilwalk.walks._kernels_laws import decay

    for x in (0.0, 1e-300, 1e-9, 0.1, 0.34, 0.35, 1.0, 17.3, 700.0, 745.0, 800.0, np.inf):
        assert decay(x) == pytest.approx(np.exp(-x), rel=4e-16, abs=1e-320)


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match=r"^device = 'tpu'"):
        walks.iter_protocol(GRAPHS["regular"], far_law(GRAPHS["regular"]), updates=3, seed=1, device="tpu")


def test_without_cupy_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name == "cupy":
            raise ImportError("No module named 'cupy'")
        return real(name, *rest)

    _device.open_cuda.cache_clear()
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(InvalidParameterError, match=r"veilwalk\[cuda\]"):
        walks.iter_protocol(GRAPHS["regular"], far_law(GRAPHS["regular"]), updates=3, seed=1, device="cuda")


def test_the_text_is_one_program() -> None:
    text = _device.load_program()
    for kernel in ("start_lanes", "run_lanes"):
        assert f" {kernel}(" in text
