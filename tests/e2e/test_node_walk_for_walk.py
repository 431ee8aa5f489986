"""The real network and the simulator, with the same draws, end in the same model, bit for bit."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.helpers.draws import RecordedDraws
from tests.helpers.manifests import FIGURES, settled_spec

from veilwalk.core.support import DistanceSupport
from veilwalk.design import DistanceLaw, Scheme, choose_scheme
from veilwalk.graphs import Graph, parse_graph_spec
from veilwalk.learning import (
    Protection,
    Stopping,
    TrainingTask,
    load_data,
    make_learner,
    make_partitions,
    parse_partition_spec,
    trace_of,
    train,
)
from veilwalk.node import ClusterPlan, Node, load_config, node_status, prepare_cluster
from veilwalk.node.cluster import node_ids
from veilwalk.node.cluster._manifest import settle_run
from veilwalk.node.members import Deal, Roster, deal_path
from veilwalk.node.members._encoding import decode_params
from veilwalk.node.peer import _node
from veilwalk.node.peer._assemble import assemble
from veilwalk.walks import draw_recipients, join_blank_legs, run_protocol, token_paths

SEED = 5
UPDATES = 40
EVALUATIONS = 30
# Momentum stays at its node between visits, so the order of a node's own updates matters too.
# Longer than the test: periods begin when the replayed walk says so.
PERIOD_S = 1000
LEARNER = "softmax:learning_rate=0.2:momentum=0.5:batch_size=8:local_steps=2"


def recorded(graph: Graph, law: Any, played: Any) -> dict[int, list[float]]:
    """Every draw each node makes, in the order it makes them."""
    path = token_paths(graph, hops=int(played["clock"][-1]), lanes=1, seed=SEED)[0].tolist()
    assert path[0] == played["source"][0]
    goals = dict(zip(played["clock"].tolist(), played["destination"].tolist(), strict=True))
    legs = [*played["destination"].tolist(), None]
    draws: dict[int, list[float]] = {node: [] for node in range(graph.n_nodes)}

    def seal_for(node: int, goal: int) -> None:
        row = law.matrix[[node], :].toarray()[0]
        before = row[:goal].sum()
        draws[node].append(float(before + row[goal] / 2))

    seal_for(path[0], legs[0])
    made = 0
    for hop, node in enumerate(path[:-1]):
        if hop in goals:
            assert node == goals[hop]
            made += 1
            seal_for(node, legs[made])
        draws[node].append(graph.neighbours(node).tolist().index(path[hop + 1]))
    return draws


@pytest.mark.parametrize(
    ("spec", "target"), [("rrg:10:3:seed=2", None), ("ba:12:2:seed=1", None), ("rrg:10:3:seed=2", 0.6)]
)
def test_the_same_draws_give_the_same_model(tmp_path: Path, spec: str, target: float | None) -> None:
    """Same hops, same updates in the same order, same parameters; on a regular graph and on one that is not.

    Also where a target ends the run: after the same update in both.
    """
    graph = parse_graph_spec(spec)
    law = DistanceLaw(DistanceSupport(2, 2), np.ones(1)).place_on(graph)
    data = load_data("digits", seed=SEED)
    parts = make_partitions(parse_partition_spec("dirichlet:0.5", graph=graph, seed=SEED), data)
    learner = make_learner(LEARNER, n_features=data.n_features, n_classes=data.n_classes)
    played = run_protocol(graph, law.matrix, updates=UPDATES, seed=SEED, replicas=1, burn_in=0)
    # What a node changes counts by the age of the model, which the header says.
    protection = Protection(fade=20.0) if target else Protection(decay=UPDATES)
    task = TrainingTask(learner=learner, partitions=parts, held_out=data.test, seed=SEED, mod=protection.mod())
    stopping = Stopping(target_accuracy=target)
    trained = train(task, trace_of(graph, played), evaluations=EVALUATIONS, stopping=stopping)
    simulated, updates = trained.params, trained.updates
    assert (updates < UPDATES) == (target is not None)

    plan = ClusterPlan(
        graph=graph,
        law=law,
        partitions=parts,
        learner=learner,
        n_classes=data.n_classes,
        spec=settled_spec(learner=LEARNER, updates=UPDATES, target_accuracy=target, evaluations=EVALUATIONS, seed=SEED),
        figures=replace(FIGURES, decay=protection.decay, fade=protection.fade),
        test=None if target is None else data.test,
    )
    configs = prepare_cluster(tmp_path, plan)
    draws = recorded(graph, law, played)
    start = int(played["source"][0])
    asyncio.run(_run(configs, draws, start))

    statuses = [node_status(load_config(path).state, with_models=True) for path in configs]
    manifest = assemble_manifest(tmp_path)
    for status in statuses:
        assert len(status.models) == 1
        assert status.iteration == updates
        real = decode_params(manifest, status.models[0])
        for name, expected in simulated.items():
            assert np.array_equal(real[name], expected), name
    assert sum(status.tallies.get("hops", 0) for status in statuses) == int(played["clock"][updates - 1])
    made = np.bincount(played["destination"][:updates], minlength=graph.n_nodes)
    assert [status.tallies.get("updates", 0) for status in statuses] == made.tolist()


def assemble_manifest(folder: Path) -> Any:
    from veilwalk.node.members import Manifest, load_root_public_key

    return Manifest.load(folder / "manifest.json", load_root_public_key(folder / "root" / "root.pub"))


@pytest.mark.parametrize(("walk", "payload"), [("simple", "fp32"), ("non-backtracking", "int8")])
def test_the_same_sets_give_the_same_model(tmp_path: Path, walk: str, payload: str) -> None:
    """Sealed for four: whoever of them the simulator's token meets first trains, and the nodes make the same of it.

    Also where every update is rounded at random on its way.
    """
    graph = parse_graph_spec("rrg:12:3:seed=2")
    scheme = choose_scheme(graph, "far:2", walk=walk, recipients=4)
    data = load_data("digits", seed=SEED)
    parts = make_partitions(parse_partition_spec("dirichlet:0.5", graph=graph, seed=SEED), data)
    learner = make_learner(LEARNER, n_features=data.n_features, n_classes=data.n_classes)
    (played,) = scheme.iter_updates(updates=UPDATES, seed=SEED, replicas=1, burn_in=0)
    task = TrainingTask(learner=learner, partitions=parts, held_out=data.test, seed=SEED, payload=payload)
    simulated = train(task, trace_of(graph, played, recipients=4), evaluations=EVALUATIONS).params
    plan = ClusterPlan(
        graph=graph,
        law=scheme.law,
        partitions=parts,
        learner=learner,
        n_classes=data.n_classes,
        spec=settled_spec(learner=LEARNER, updates=UPDATES, walk=walk, recipients=4, payload=payload, seed=SEED),
        figures=FIGURES,
    )
    configs = prepare_cluster(tmp_path, plan)
    asyncio.run(_run(configs, recorded_for_several(scheme, played), int(played["source"][0])))

    statuses = [node_status(load_config(path).state, with_models=True) for path in configs]
    manifest = assemble_manifest(tmp_path)
    for status in statuses:
        assert len(status.models) == 1
        real = decode_params(manifest, status.models[0])
        for name, expected in simulated.items():
            assert np.array_equal(real[name], expected), name
    assert sum(status.tallies.get("hops", 0) for status in statuses) == int(played["clock"][-1])
    made = np.bincount(played["destination"], minlength=graph.n_nodes)
    assert [status.tallies.get("updates", 0) for status in statuses] == made.tolist()


def test_the_same_coins_give_the_same_model(tmp_path: Path) -> None:
    """Half of the legs blank, by a law file that says so, and a share that some members have made before the end."""
    graph = parse_graph_spec("rrg:12:3:seed=2")
    scheme = choose_scheme(graph, "far:2", walk="non-backtracking", recipients=4, train_probability=0.5)
    data = load_data("digits", seed=SEED)
    parts = make_partitions(parse_partition_spec("dirichlet:0.5", graph=graph, seed=SEED), data)
    learner = make_learner(LEARNER, n_features=data.n_features, n_classes=data.n_classes)
    (legs,) = scheme.iter_updates(updates=4 * UPDATES, seed=SEED, replicas=1, burn_in=0, chunk_updates=4 * UPDATES)
    options: dict[str, Any] = {"train_probability": 0.5, "seed": SEED}
    (played,) = join_blank_legs([legs], np.array([UPDATES]), **options)
    legs = legs[legs["clock"] <= played["clock"][-1]]
    task = TrainingTask(learner=learner, partitions=parts, held_out=data.test, seed=SEED, most_updates=3)
    simulated = train(task, trace_of(graph, played, recipients=4), evaluations=EVALUATIONS).params
    spec = settled_spec(learner=LEARNER, updates=UPDATES, recipients=4, seed=SEED, dwell_s=0.05)
    protection = Protection(most_updates=3)
    spec, figures = settle_run(scheme, spec, learner, protection=protection, trial=parts[0], law="far:2")
    assert (figures.train_probability, figures.most_updates) == (0.5, 3)
    plan = ClusterPlan(
        graph=graph,
        law=scheme.law,
        partitions=parts,
        learner=learner,
        n_classes=data.n_classes,
        spec=spec.change(dwell_s=0.0),
        figures=replace(FIGURES, train_probability=figures.train_probability, most_updates=figures.most_updates),
    )
    configs = prepare_cluster(tmp_path, plan)
    trains = set(played["clock"].tolist())
    coins = {clock: 0.25 if clock in trains else 0.75 for clock in legs["clock"].tolist()}
    asyncio.run(_run(configs, recorded_for_several(scheme, legs, coins), int(played["source"][0])))

    statuses = [node_status(load_config(path).state, with_models=True) for path in configs]
    manifest = assemble_manifest(tmp_path)
    for status in statuses:
        assert status.iteration == UPDATES
        real = decode_params(manifest, status.models[0])
        for name, expected in simulated.items():
            assert np.array_equal(real[name], expected), name
    assert sum(status.tallies.get("hops", 0) for status in statuses) == int(legs["clock"][-1])
    opened, counted = (np.bincount(rows["destination"], minlength=graph.n_nodes) for rows in (legs, played))
    made = np.minimum(counted, 3)
    assert (made < counted).any()
    assert [status.tallies.get("updates", 0) for status in statuses] == made.tolist()
    assert [status.tallies.get("passed_on", 0) for status in statuses] == (opened - made).tolist()


def recorded_for_several(
    scheme: Scheme, played: Any, coins: Mapping[int, float] = MappingProxyType({})
) -> dict[int, list[float]]:
    """Every draw each node makes for one walk, in order: coins by clock, members of the simulator's sets, next hops."""
    graph, clocks, token = scheme.graph, played["clock"].tolist(), int(played["token"][0])
    path = token_paths(graph, hops=clocks[-1], lanes=token + 1, seed=SEED, walk=scheme.walk)[token]
    sealed_at = [0, *clocks[:-1]]
    sets = draw_recipients(
        graph, scheme.law.rows, 4, seed=SEED, lane=played["token"], source=played["source"], clock=sealed_at
    )
    drawn = dict(zip(sealed_at, sets.tolist(), strict=True))
    draws: dict[int, list[float]] = {node: [] for node in range(graph.n_nodes)}
    rows = scheme.law.matrix.toarray()
    for hop, node in enumerate(path[:-1].tolist()):
        left = rows[node].copy()
        draws[node] += [coins[hop]] if hop in coins else []
        for goal in drawn.get(hop, []):
            draws[node].append(float((left[:goal].sum() + left[goal] / 2) / left.sum()))
            left[goal] = 0.0
        came_from = path[hop - 1] if hop and scheme.walk.kind == "non-backtracking" else None
        onward = [peer for peer in graph.neighbours(node).tolist() if peer != came_from]
        draws[node].append(onward.index(path[hop + 1]))
    draws[int(path[-1])] += [coins[clocks[-1]]] if coins else []
    return draws


class DrawsByWalk(RecordedDraws):
    """Draws of one node for several walks, whose order in time is not given: each walk has its own."""

    #: Which walk a message is of, by its digest, as whoever sealed it knows.
    walks: ClassVar[dict[bytes, int]] = {}

    def __init__(self, draws: Mapping[int, list[float]], node: Node) -> None:
        self._by_walk = {walk: RecordedDraws(own) for walk, own in draws.items()}
        self._now = threading.local()
        destination: Any = node._destination
        custody: Any = node.scheduler.custody
        destination._draws = custody._draws = self
        seal, draw_next = destination._seal, custody._draw_next

        def seal_one(roster: Any, about: Any, body: bytes) -> bytes:
            self._now.walk = about.walk_tag[0] % len(draws)
            message: bytes = seal(roster, about, body)
            self.walks[hashlib.sha256(message).digest()] = self._now.walk
            return message

        def draw_one(row: Any, **options: Any) -> str:
            self._now.walk = self.walks[row.digest]
            return str(draw_next(row, **options))

        destination._seal, custody._draw_next = seal_one, draw_one

    def _next(self) -> int | float:
        return self._by_walk[self._now.walk]._next()


@pytest.mark.parametrize("payload", ["fp32", "int8"])
def test_walks_that_meet_give_the_same_models(tmp_path: Path, payload: str) -> None:
    """Two walks that meet twice: the same hops, updates and models, though nobody but the ends' signers made a mean."""
    updates, meet, walks = 101, 20, 2
    scheme = choose_scheme(parse_graph_spec("rrg:12:3:seed=2"), "far:2", walk="non-backtracking", recipients=4)
    graph, data = scheme.graph, load_data("digits", seed=SEED)
    parts = make_partitions(parse_partition_spec("dirichlet:0.5", graph=graph, seed=SEED), data)
    # A node may train in both walks between two meetings: its updates must not depend on which was first.
    spec = "softmax:learning_rate=0.2:batch_size=0:local_steps=2"
    learner = make_learner(spec, n_features=data.n_features, n_classes=data.n_classes)
    (played,) = scheme.iter_updates(updates=updates, seed=SEED, tokens=walks, replicas=1, burn_in=0)
    trace = trace_of(graph, played, recipients=4).add_meetings(graph, meet)
    assert [rows.stop for rows in trace.rounds()] == [40, 80, 101]
    protection = Protection(decay=51)
    options: dict[str, Any] = {"seed": SEED, "payload": payload, "mod": protection.mod()}
    task = TrainingTask(learner=learner, partitions=parts, held_out=data.test, **options)
    simulated = train(task, trace, evaluations=EVALUATIONS).models
    said: dict[str, Any] = {"updates": updates, "walks": walks, "meet": meet, "recipients": 4, "payload": payload}
    plan = ClusterPlan(
        graph=graph,
        law=scheme.law,
        partitions=parts,
        learner=learner,
        n_classes=data.n_classes,
        spec=settled_spec(learner=spec, walk="non-backtracking", seed=SEED, hop_s=0.005, **said),
        figures=replace(FIGURES, decay=51, signatures=3),
    )
    configs = prepare_cluster(tmp_path, plan)
    by_walk = [played[played["token"] == walk] for walk in range(walks)]
    draws = [recorded_for_several(scheme, rows) for rows in by_walk]
    starts = [int(rows["source"][0]) for rows in by_walk]

    async def begin(nodes: list[Node]) -> None:
        for index, node in enumerate(nodes):
            DrawsByWalk({walk: draws[walk][index] for walk in range(walks)}, node)
        for walk, start in enumerate(starts):
            await nodes[start].scheduler.create(first=True, walks=[walk])

    asyncio.run(_run(configs, {index: [] for index in range(graph.n_nodes)}, -1, begin=begin))

    statuses = [node_status(load_config(path).state, with_models=True) for path in configs]
    manifest = assemble_manifest(tmp_path)
    for status in statuses:
        assert (status.walks, len(status.ends)) == ((51, 50), 2)
        for model, expected in zip(status.models, simulated, strict=True):
            real = decode_params(manifest, model)
            assert all(np.array_equal(real[name], expected[name]) for name in expected)
    hops = sum(int(rows["clock"][-1]) for rows in by_walk)
    assert sum(status.tallies.get("hops", 0) for status in statuses) == hops
    made = np.bincount(played["destination"], minlength=graph.n_nodes)
    assert [status.tallies.get("updates", 0) for status in statuses] == made.tolist()
    assert sum(status.tallies.get("started", 0) for status in statuses) == 3 * walks
    assert all(status.tallies.get(name, 0) == 0 for status in statuses for name in ("created", "merged", "retired"))


class ReplayedDraws(RecordedDraws):
    """Draws given beforehand, some of them with the moment that it is after them."""

    def __init__(self, draws: list[tuple[float, int | None]], arrive_at: Callable[[int], None]) -> None:
        super().__init__(draws)  # type: ignore[arg-type]
        self._arrive_at = arrive_at

    def _next(self) -> int | float:
        pair: Any = super()._next()
        draw: int | float = pair[0]
        if pair[1] is not None:
            self._arrive_at(pair[1])
        return draw


@pytest.mark.parametrize("suite", ["x25519", "hybrid"])
def test_an_overlay_with_periods_gives_the_same_model(
    tmp_path: Path, suite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys change when the simulator changes them: after so many updates, which the clock of the wall replays."""
    scheme = choose_scheme("overlay:12:3:seed=2", recipients=4, key_period=13)
    graph = scheme.graph
    data = load_data("digits", seed=SEED)
    parts = make_partitions(parse_partition_spec("dirichlet:0.5", graph=graph, seed=SEED), data)
    learner = make_learner(LEARNER, n_features=data.n_features, n_classes=data.n_classes)
    (played,) = scheme.iter_updates(updates=UPDATES, seed=SEED, replicas=1, burn_in=0)
    task = TrainingTask(learner=learner, partitions=parts, held_out=data.test, seed=SEED)
    simulated = train(task, trace_of(graph, played, recipients=4), evaluations=EVALUATIONS).params
    plan = ClusterPlan(
        graph=graph,
        law=scheme.law,
        partitions=parts,
        learner=learner,
        n_classes=data.n_classes,
        spec=settled_spec(
            learner=LEARNER, updates=UPDATES, walk=scheme.walk.kind, recipients=4, suite=suite, seed=SEED
        ),
        figures=FIGURES,
        period_s=PERIOD_S,
        periods=4,
    )
    configs = prepare_cluster(tmp_path, plan)
    real, period = time.time, [0]
    monkeypatch.setattr(time, "time", lambda: real() + PERIOD_S * period[0])
    # A model makes a period's updates in less time than a node looks at its clock.
    monkeypatch.setattr(_node, "_WATCH_S", 0.01)

    def arrive_at(moment: int) -> None:
        assert moment in {period[0], period[0] + 1}
        period[0] = moment

    draws = recorded_for_keys(scheme, played, tmp_path / "roster.json")
    asyncio.run(_run(configs, draws, int(played["source"][0]), lambda given: ReplayedDraws(given, arrive_at)))

    assert period[0] == 3
    statuses = [node_status(load_config(path).state, with_models=True) for path in configs]
    manifest = assemble_manifest(tmp_path)
    for status in statuses:
        assert len(status.models) == 1
        found = decode_params(manifest, status.models[0])
        for name, expected in simulated.items():
            assert np.array_equal(found[name], expected), name
    assert sum(status.tallies.get("hops", 0) for status in statuses) == int(played["clock"][-1])
    made = np.bincount(played["destination"], minlength=graph.n_nodes)
    assert [status.tallies.get("updates", 0) for status in statuses] == made.tolist()


def recorded_for_keys(scheme: Scheme, played: Any, path: Path) -> dict[int, list[Any]]:
    """Every draw each node makes: places of keys in the list of the period of that update, and next hops."""
    graph, clocks = scheme.graph, played["clock"].tolist()
    (walk,) = token_paths(graph, hops=clocks[-1], lanes=1, seed=SEED, walk=scheme.walk)
    sealed_at = [0, *clocks[:-1]]
    sets = draw_recipients(
        graph, scheme.law.rows, 4, seed=SEED, lane=played["replica"], source=played["source"], clock=sealed_at
    )
    drawn = dict(zip(sealed_at, enumerate(sets.tolist()), strict=True))
    roster = Roster.read_draft(path)
    members = Deal.read(deal_path(path), roster).members
    draws: dict[int, list[Any]] = {node: [] for node in range(graph.n_nodes)}
    for hop, node in enumerate(walk[:-1].tolist()):
        number, goals = drawn.get(hop, (0, []))
        period = number // scheme.key_period
        near = {members[other].kem[period] for other in (node, *graph.neighbours(node).tolist())}
        left = [key for key in roster.keys[period] if key not in near]
        for goal in goals:
            place = left.index(members[goal].kem[period])
            left.pop(place)
            draws[node].append((place, (number + 1) // scheme.key_period if goal == goals[-1] else None))
        came_from = walk[hop - 1] if hop else None
        onward = [peer for peer in graph.neighbours(node).tolist() if peer != came_from]
        draws[node].append((onward.index(walk[hop + 1]), None))
    return draws


async def _run(
    configs: list[Path],
    draws: dict[int, list[Any]],
    start: int,
    make_draws: Callable[[list[Any]], RecordedDraws] = RecordedDraws,
    *,
    begin: Callable[[list[Node]], Awaitable[None]] | None = None,
) -> None:
    stop = asyncio.Event()
    nodes = []
    for index, path in enumerate(configs):
        nodes.append(Node(replace(assemble(load_config(path)), draws=make_draws(draws[index]), starts=index == start)))
        # By chance a neighbour may look slow on a busy machine: what is passed by then is another test's.
        setattr(nodes[-1].neighbours, "select_avoided", lambda _: frozenset())  # noqa: B010
    runs = [asyncio.create_task(node.run(stop)) for node in nodes]
    if begin is not None:
        await begin(nodes)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        await asyncio.sleep(0.1)
        for run in runs:
            if run.done():
                run.result()
        found = [node_status(load_config(path).state) for path in configs]
        if all(status.finished and not status.in_custody for status in found):
            break
    stop.set()
    await asyncio.gather(*runs)
    assert [node.id for node in nodes] == node_ids(len(configs))


def test_draws_that_were_not_recorded_are_refused(tmp_path: Path) -> None:
    """So that the test above could not pass by drawing from somewhere else."""
    from veilwalk.core.errors import InvalidParameterError

    source = RecordedDraws([0, 0.5])
    assert source.below(2) == 0
    assert source.unit() == 0.5
    with pytest.raises(InvalidParameterError, match="one more"):
        source.below(2)
    with pytest.raises(InvalidParameterError, match="below 2"):
        RecordedDraws([2]).below(2)
