"""A cluster of one's own as documents, the trail that it leaves, and the page of a single node; no node is run."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veilwalk.core.records import read_lines
from veilwalk.graphs import distances, parse_graph_spec
from veilwalk.node import NodeStatus, load_config
from veilwalk.node.cluster import TRAIL, ClusterStatus, Trail, prepare_or_resume, set_up_cluster
from veilwalk.node.spool import FolderDisk, Spool
from veilwalk.training import CLUSTER
from veilwalk.watch import Feed, NodeSource, open_source

IDLE = NodeStatus(finished=False, in_custody=0, tallies={})


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Trail]:
    """A cluster whose nodes were looked at six times."""
    folder = tmp_path_factory.mktemp("own") / "cluster"
    settings = CLUSTER.defaults.change(
        graph="rrg:10:3:seed=2", law="uniform-node", support="2:2", updates=4, suite="x25519", dwell=0.0
    )
    configs = prepare_or_resume(set_up_cluster(settings), folder)
    trail = Trail(folder, configs, updates=4, evaluate=lambda _: {"loss": 1.0})
    for status in looks():
        trail.add(status)
    return folder, trail


def looks() -> list[ClusterStatus]:
    """First nothing new; a message at 3; updates of 3 and then 5, told in one look; a kill, a lost walk; the end."""
    calm = ClusterStatus(nodes=(IDLE,) * 10, alive=10, restarts=(0,) * 10)
    held = with_node(calm, 3, in_custody=1, tallies={"hops": 0})
    made = with_node(held, 5, tallies={"updates": 1, "hops": 4}, walks=(2,))
    made = with_node(made, 3, in_custody=0, tallies={"updates": 1, "hops": 3}, walks=(1,))
    killed = replace(made, restarts=(0, 0, 1) + (0,) * 7)
    lost = with_node(killed, 7, tallies={"created": 1, "updates": 1}, walks=(3,))
    return [calm, held, made, killed, lost, lost]


def with_node(status: ClusterStatus, index: int, **changes: Any) -> ClusterStatus:
    nodes = list(status.nodes)
    nodes[index] = replace(nodes[index] or IDLE, **changes)
    return replace(status, nodes=tuple(nodes))


def test_a_trail_says_what_is_new_and_is_its_owners_own(prepared: tuple[Path, Trail]) -> None:
    """Only changes are written, those of one look in the order of the updates' counts; others cannot read it."""
    folder, _ = prepared
    lines, end = read_lines(folder / TRAIL)
    assert [line.get("made") for line in lines] == [None, [3, 5], None, [7]]
    assert lines[0]["held"] == [3]
    assert lines[2]["events"] == [["killed", 2, 1]]
    assert lines[3]["events"] == [["created", 7, 1]]
    assert lines[3]["hops"] == 7
    assert stat.S_IMODE((folder / TRAIL).stat().st_mode) == 0o600
    assert read_lines(folder / TRAIL, end) == ([], end)


def test_a_page_of_a_cluster_says_who_opened_and_what_went_wrong(prepared: tuple[Path, Trail]) -> None:
    """Deliveries by who updated, makers by who did before; kill and lost walk are events; the end is the result's."""
    folder, _ = prepared
    source = open_source(folder)
    found = list(source.read_news())
    (rows,) = (one for one in found if one["kind"] == "deliveries")
    assert rows["node"] == [3, 5, 7]
    assert rows["source"] == [-1, 3, 5]
    assert rows["seen"] == [[3], [], []]
    events = [(one["what"], one["node"]) for one in found if one["kind"] == "event"]
    assert events == [("kill", 2), ("lost walk", 7)]
    guesses = list(source.compute() or ())
    assert [(one["row"], one["observer"]) for one in guesses] == [(0, "prior"), (1, "prior"), (2, "prior")]
    # Blind, a receiver knows the law and no more: makers are two hops away here.
    weights = np.array(guesses[0]["weights"])
    away = distances(parse_graph_spec("rrg:10:3:seed=2"))[3]
    assert (weights > 0).tolist() == (away == 2).tolist()
    assert weights.sum() == pytest.approx(1, rel=1e-2)
    assert guesses[1]["before"] is not None
    assert not source.finished
    result = {"hops_per_update_expected_error": 1.0, "hops_per_update_predicted": 9.0, "ended_by": "updates"}
    (folder / "result.json").write_text(json.dumps(result | {"hops_per_update_prediction": "exact"}))
    ended = list(source.read_news())
    assert [one["kind"] for one in ended] == ["price", "event", "state"]
    assert ended[0]["interval"] == [7.0, 11.0]


def test_a_trail_is_bounded_and_goes_on(prepared: tuple[Path, Trail], monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that comes up again adds to it, by the same clock; a full one is left as it is."""
    from veilwalk.node.cluster import _trail

    folder, _ = prepared
    before = (folder / TRAIL).read_bytes()
    configs = sorted(folder.glob("*/node.toml"))
    monkeypatch.setattr(_trail, "_MOST_BYTES", 10)
    for status in looks():
        Trail(folder, configs, updates=4, evaluate=lambda _: {"loss": 1.0}).add(status)
    assert (folder / TRAIL).read_bytes() == before
    with (folder / TRAIL).open("a") as stream:
        stream.write('{"t": 50.0, "half')
    assert len(read_lines(folder / TRAIL)[0]) == 4


def test_a_nodes_page_does_not_say_whether_it_trained(prepared: tuple[Path, Trail]) -> None:
    """Two nodes that differ only in what they did themselves have the same page, unless their operator asks."""
    configs = sorted(prepared[0].glob("*/node.toml"))
    pages, asked = [], []
    for config, trains in zip(configs[:2], (False, True), strict=True):
        spool = Spool(FolderDisk(load_config(config).state))
        with spool.transaction() as register:
            register.count("hops", 7)
            for name in ("updates", "turns", "created", "farewells", "learner_failures") if trains else ():
                register.count(name)
        spool.close()
        pages.append(Feed(NodeSource(config)).gather()[1:])
        asked.append(Feed(NodeSource(config, own=True)).gather()[1:])
    assert pages[0] == pages[1]
    shown = dict(json.loads(pages[0][0])["rows"])
    assert shown["messages handed on"] == "7"
    assert "updates" not in "".join(pages[0])
    assert asked[0] != asked[1]
    assert dict(json.loads(asked[1][0])["rows"])["updates made"] == "1"
