"""A training run as documents: what they say is what was walked, learnt and inferred."""

from __future__ import annotations

import itertools
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.watch.conftest import SETTINGS

from veilwalk.audit import AuditSettings, iter_answers
from veilwalk.core.errors import ConfigError
from veilwalk.core.units import readable_data
from veilwalk.design import choose_scheme
from veilwalk.graphs import parse_graph_spec
from veilwalk.learning import trace_of
from veilwalk.training import Scenario, make_spec, route_anonymity
from veilwalk.walks import read_trace
from veilwalk.watch import Feed, open_source

Documents = list[dict[str, Any]]


def of(documents: Documents, kind: str) -> Documents:
    return [one for one in documents if one["kind"] == kind]


def test_the_way_goes_over_edges_from_maker_to_opener(documents: Documents) -> None:
    """The trail is the walk's own: its hops are edges, its ends who sealed and who opened."""
    (found,) = of(documents, "deliveries")
    (net,) = of(documents, "network")
    pairs = {frozenset(pair) for pair in np.reshape(net["edges"], (-1, 2)).tolist()}
    assert found["update"] == list(range(1, SETTINGS.end.updates + 1))
    for way, source, node, hops, last in zip(
        *(found[name] for name in ("tail", "source", "node", "hops", "last_hop")), strict=True
    ):
        assert (way[0], way[-1], way[-2], len(way) - 1) == (source, node, last, hops)
        assert all(frozenset(hop) in pairs for hop in itertools.pairwise(way))
    # The chain of makers: whoever opens seals the next.
    assert found["source"][1:] == found["node"][:-1]
    assert found["clock"] == np.cumsum(found["hops"]).tolist()
    assert found["recipients"] == [[node] for node in found["node"]]


def test_recipients_are_those_that_were_drawn(tmp_path: Path) -> None:
    """Sealed for several: the opener is among them, and is the first of them on the way; never the maker."""
    from veilwalk.watch import PlayedWalk

    scheme = choose_scheme(parse_graph_spec("rrg:20:3:seed=1"), "far:2", walk="non-backtracking", recipients=3)
    records = np.concatenate(list(scheme.iter_updates(updates=90, seed=5, tokens=3, replicas=1)))
    spec = make_spec(walk="non-backtracking", seed=5)
    walked = PlayedWalk(graph=scheme.graph, spec=spec, scheme=scheme, records=records)
    (found,) = walked.documents()
    trace = trace_of(scheme.graph, records, recipients=3)
    assert found["node"] == trace.node.tolist()
    assert found["token"] == trace.model.tolist()
    for way, to, node, source in zip(*(found[name] for name in ("tail", "recipients", "node", "source")), strict=True):
        assert len(set(to)) == 3
        assert source not in to
        assert [hop for hop in way[1:] if hop in to] == [node]
    other = replace(walked, spec=spec.change(seed=6))
    assert next(iter(other.documents()))["tail"] == [], "another seed's way was drawn"


def test_posteriors_are_the_auditors(documents: Documents, run_folder: Path) -> None:
    """The receiver's is the one that training computes by itself, and the prior of a blind one the law's."""
    scheme = Scenario.from_spec(SETTINGS).scheme
    records = read_trace(run_folder / "trace.npz", graph=scheme.graph)
    trace = trace_of(scheme.graph, records)
    found = {(one["observer"], one["row"]): one for one in of(documents, "posterior")}
    assert {name for name, _ in found} == {"prior", "return-time", "last-hop", "first-sight"}
    rows = np.array(sorted(row for name, row in found if name == "last-hop"))
    assert len(rows) == 60
    # Return times beyond the horizon are told apart there only as such.
    near = rows[trace.return_time[rows] < 3 * trace.hops.mean() - 1]
    exact = route_anonymity(scheme, trace, near).posteriors
    for row, weights in zip(near.tolist(), exact, strict=True):
        one = found["last-hop", row]
        assert one["weights"] == pytest.approx(weights, rel=6e-3, abs=1e-12)
        assert one["entropy_nats"] == pytest.approx(-(weights[weights > 0] * np.log(weights[weights > 0])).sum())
        assert f"{trace.return_time[row]} hops before, and came from {trace.last_hop[row]}" in one["given"]
        blind = scheme.law.matrix.toarray()[:, trace.node[row]] * scheme.source_prior
        assert found["prior", row]["weights"] == pytest.approx(blind / blind.sum(), rel=6e-3, abs=1e-12)
    # Two nodes collude here; they are asked only about what came to one of them.
    openers = {int(trace.node[row]) for name, row in found if name == "first-sight"}
    assert len(openers) <= 2


def test_an_observer_that_joins_updates_is_not_asked_about_one(run_folder: Path) -> None:
    """It has nothing to say of a single one."""
    scheme = Scenario.from_spec(SETTINGS).scheme
    records = read_trace(run_folder / "trace.npz", graph=scheme.graph)
    with pytest.raises(ValueError, match="repeated"):
        list(iter_answers(scheme, records, ("repeated",), np.arange(3), settings=AuditSettings(updates=120)))


def test_curves_and_means_are_those_of_the_record(documents: Documents, run_folder: Path) -> None:
    """What the page draws against updates, hops and bytes is what the record says; it ends with the end."""
    record = json.loads((run_folder / "record.json").read_text())
    for one in of(documents, "points"):
        assert one["points"] == record["algorithms"][one["algorithm"]]["points"]
    (result,) = of(documents, "result")
    private = result["anonymity"]["private-walk"]
    assert private["hit_ratio"] == record["algorithms"]["private-walk"]["anonymity"]["hit_ratio"]
    assert private["kind"].startswith("exact")
    states = of(documents, "state")
    assert states[-1]["finished"]
    assert states[-1]["stages"]["plain-walk"]["done"] == SETTINGS.end.updates
    (price,) = of(documents, "price")
    assert price["how"] == "exact"
    assert math.isclose(price["hops"], Scenario.from_spec(SETTINGS).scheme.price.hops)
    assert "gives no protection against" in of(documents, "about")[0]["map"]


def test_a_run_is_followed_while_it_is_made(run_folder: Path, tmp_path: Path) -> None:
    """A folder that fills: nothing, then the network, then the walk, then how far it is; nothing is said twice."""
    folder = tmp_path / "run"
    source = open_source(folder, wait=True)
    assert list(source.read_news()) == []
    ready, finished = [source.compute() is not None], [source.finished]
    folder.mkdir()
    for name in ("config.toml", "run.json"):
        shutil.copy(run_folder / name, folder)
    assert [one["kind"] for one in source.read_news()] == ["about", "network"]
    shutil.copy(run_folder / "trace.npz", folder)
    assert [one["kind"] for one in source.read_news()] == ["deliveries"]
    ready.append(source.compute() is not None)
    shutil.copytree(run_folder / "checkpoints", folder / "checkpoints")
    assert [one["kind"] for one in source.read_news()] == ["points", "points", "state"]
    assert list(source.read_news()) == []
    finished.append(source.finished)
    before = {path.name for path in folder.iterdir()}
    shutil.copy(run_folder / "record.json", folder)
    assert [one["kind"] for one in source.read_news()] == ["event", "event", "result", "state"]
    finished.append(source.finished)
    assert (ready, finished) == ([False, True], [False, False, True])
    assert {path.name for path in folder.iterdir()} == before | {"record.json"}, "watching has written something"


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    """In one line."""
    with pytest.raises(ConfigError, match="holds no run"):
        open_source(tmp_path)


def test_a_fault_while_looking_is_said_once_and_looked_at_again(run_folder: Path, tmp_path: Path) -> None:
    """A damaged checkpoint does not end the page."""
    folder = tmp_path / "run"
    shutil.copytree(run_folder, folder)
    good = (folder / "checkpoints" / "private-walk.npz").read_bytes()
    (folder / "checkpoints" / "private-walk.npz").write_bytes(b"no archive")
    (folder / "record.json").unlink()
    source = open_source(folder)
    feed = Feed(source)
    for _ in range(3):
        feed._take_safely(source.read_news())
    notes = [line for line in feed.lines if "cannot be read" in line]
    assert len(notes) == 1
    (folder / "checkpoints" / "private-walk.npz").write_bytes(good)
    feed._take_safely(source.read_news())
    assert any('"algorithm":"private-walk"' in line for line in feed.lines)


def test_a_sweep_has_no_page_of_its_own(tmp_path: Path) -> None:
    """One line says where its results are, at once and when waited for."""
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(ConfigError, match="veilwalk sweep"):
        open_source(tmp_path)
    late = open_source(tmp_path / "later", wait=True)
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "plan.json").write_text("{}")
    feed = Feed(late)
    feed.start()
    feed.stopped.set()
    assert "veilwalk sweep" in feed.lines[0]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("digits", "digits"),
        ("csv:data/all.csv:label=outcome:group=site", "from all.csv"),
        ("csv:sites/*.csv", "from the files in sites"),
        ("csv:mine/sites:label=kind", "from the files in sites"),
    ],
)
def test_a_title_says_what_is_learnt(spec: str, words: str) -> None:
    """In words, not as a specification."""
    assert readable_data(spec) == words
