"""Health and metrics on loopback."""

from __future__ import annotations

import asyncio
import io
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

import veilwalk.node.peer
from veilwalk.core.errors import InvalidParameterError, TransportError
from veilwalk.core.walk import SIMPLE
from veilwalk.node import Node, RunRules
from veilwalk.node.cluster import free_ports
from veilwalk.node.peer import METRICS, describe_tallies
from veilwalk.node.peer._observe import BEAT_S, QUIET_S, HealthWatch, Log, MetricsServer, read_neighbours


async def ask(port: int, request: bytes) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer.decode()


def process(watch: HealthWatch | None, log: Log, refused: str = "") -> Any:
    """What the server asks of a process."""
    return SimpleNamespace(log=log, watch=watch, refused=refused)


async def watching(node: Node, state: Path, log: Log) -> MetricsServer:
    """What tells of a node that works."""
    watch = HealthWatch(node, state)
    await watch.beat()
    return MetricsServer(process(watch, log))


def test_health_and_metrics_are_served(network: Callable[..., Any]) -> None:
    """Prometheus text with every public tally; unwell while no neighbour answers; nonsense is turned away."""

    async def main() -> tuple[str, ...]:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=5, late_hops=1e9))
        await net.start("n0")
        (port,) = free_ports(1)
        server = await watching(net.nodes["n0"], net.folder, net.parts["n0"].log)
        await server.start("127.0.0.1", port)
        alone = await ask(port, b"GET /healthz HTTP/1.1\r\n\r\n")
        await net.start("n1", "n2", "n3")
        await net.until(net.finished)
        answers = [
            await ask(port, f"{request} HTTP/1.1\r\n\r\n".encode())
            for request in ("GET /healthz", "GET /metrics", "GET /else", "POST /metrics")
        ]
        long = await ask(port, b"GET /" + b"x" * 5000)
        with pytest.raises(TransportError, match=str(port)):
            await MetricsServer(process(None, Log())).start("127.0.0.1", port)
        server.close()
        await net.stop()
        return (alone, *answers, long)

    alone, health, metrics, elsewhere, posted, long = asyncio.run(main())
    assert alone.startswith("HTTP/1.1 503")
    assert health.startswith("HTTP/1.1 200")
    assert elsewhere.startswith("HTTP/1.1 404")
    assert posted.startswith("HTTP/1.1 404")
    assert long == ""
    names = set(re.findall(r"^veilwalk_(\w+) \d+$", metrics, re.MULTILINE))
    counted = {f"{metric.name}_total" for metric in METRICS if metric.source != "gauge" and metric.is_public}
    # The manifest of this run does not end.
    gauges = {metric.name for metric in METRICS if metric.source == "gauge"} - {"manifest_days_left"}
    assert counted | gauges == names
    assert re.search(r"^veilwalk_links_up 2$", metrics, re.MULTILINE)


async def nothing(work: Any, *values: Any) -> Any:
    return [] if work is None else False


def test_metrics_ask_the_node_and_nothing_behind_it(tmp_path: Path) -> None:
    """One snapshot is all that is shown."""

    class Counting:
        links_up = 2
        events: ClassVar = {"storage_troubles": 0}
        roster = SimpleNamespace(expires=time.time() + 3.5 * 86400)
        manifest = SimpleNamespace(expires=time.time() + 5.5 * 86400)
        scheduler = SimpleNamespace(
            store=nothing,
            custody=SimpleNamespace(spool=SimpleNamespace(tables=SimpleNamespace(messages=None, is_finished=1))),
        )

        async def statistics(self) -> dict[str, dict[str, int]]:
            return {
                "tally": {"hops": 7},
                "event": {"turned_away": 1, "storage_troubles": 0, "link_losses": 3, "link_faults": 0},
                "gauge": {"in_custody": 5, "links_up": 2, "roster_version": 4},
            }

    async def main() -> list[str]:
        (port,) = free_ports(1)
        server = await watching(cast("Node", Counting()), tmp_path, Log())
        await server.start("127.0.0.1", port)
        answers = [await ask(port, f"GET /{what} HTTP/1.1\r\n\r\n".encode()) for what in ("metrics", "healthz")]
        server.close()
        return answers

    shown, health = asyncio.run(main())
    # What ends soon is said before it has ended, and is no reason to start the node anew.
    assert health.startswith("HTTP/1.1 200")
    assert health.endswith("\r\n\r\nok\nnote: the roster ends in 3.5 days\nnote: the manifest ends in 5.5 days\n")
    for line in (
        "hops_total 7",
        "taken_total 0",
        "link_losses_total 3",
        "in_custody 5",
        "roster_version 4",
        "roster_days_left 3",
        "manifest_days_left 5",
    ):
        assert f"\nveilwalk_{line}\n" in shown


@pytest.mark.parametrize(
    ("host", "code"),
    [("127.0.0.1:9100", 503), ("LOCALHOST", 503), ("[::1]:9100", 503), ("evil.example:9100", 403), ("", 403)],
)
def test_finding_17_a_page_of_somebody_else_reads_nothing(host: str, code: int) -> None:
    """A name of its own that points at this machine is no name of it (DNS rebinding)."""

    async def main() -> str:
        server, (port,) = MetricsServer(process(None, Log())), free_ports(1)
        await server.start("127.0.0.1", port)
        try:
            return await ask(port, f"GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        finally:
            server.close()

    assert asyncio.run(main()).startswith(f"HTTP/1.1 {code} ")


def test_statistics_are_of_one_moment(network: Callable[..., Any]) -> None:
    """What happens later does not change them."""

    async def main() -> Any:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=5, late_hops=1e9))
        await net.start()
        await net.until(net.finished)
        before = await net.nodes["n0"].statistics()
        net.nodes["n0"].turned_away("a test")
        after = await net.nodes["n0"].statistics()
        await net.stop()
        return before, after

    before, after = asyncio.run(main())
    assert after["event"]["turned_away"] == before["event"]["turned_away"] + 1
    assert before["tally"]["taken"] > 0
    assert before["gauge"]["roster_version"] == 1


def test_what_a_node_did_itself_is_not_a_metric() -> None:
    """Tallies that differ between destination and relay are for the operator's own eyes."""
    public = {metric.name for metric in METRICS if metric.source == "tally" and metric.is_public}
    own = {metric.name for metric in METRICS if metric.source == "tally" and not metric.is_public}
    assert public == {"taken", "hops", "rerouted", "expired", "crowded_out", "damaged", "rested", "outlived"}
    tallies = dict.fromkeys(public | own, 1)
    assert {metric.name for metric, _ in describe_tallies(tallies, with_own=False)} == public
    assert {metric.name for metric, _ in describe_tallies(tallies, with_own=True)} == public | own


def test_every_count_of_a_node_stands_in_the_table() -> None:
    """What is counted anywhere in a node has its words, once."""
    source = Path(veilwalk.node.peer.__file__).parent
    text = "".join(path.read_text() for path in source.glob("*.py") if path.name != "_observe.py")
    counted = set(re.findall(r'(?:\.count\(|count=|counts=\()"([a-z_]+)"', text))
    assert {"taken", "hops", "updates", "retired"} <= counted
    names = [(metric.source == "gauge", metric.name) for metric in METRICS]
    assert len(names) == len(set(names))
    assert counted <= {name for is_gauge, name in names if not is_gauge}


def test_neighbours_are_written_down_for_status(network: Callable[..., Any], tmp_path: Path) -> None:
    """Who is connected, how long each takes, what it brings, who is slow; without the time of the look."""

    async def main() -> Any:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=5, late_hops=1e9))
        await net.start()
        await net.until(net.finished)
        node = net.nodes["n0"]
        watch = HealthWatch(node, tmp_path)
        for peer, seconds in (("n3", 0.1), ("n1", 80.0)):
            node.neighbours.on_handed(peer, seconds)
        watch._write_neighbours()
        expected = node.describe_neighbours()
        await net.stop()
        return expected

    expected = asyncio.run(main())
    assert expected.keys() == {"n1", "n3"}
    assert read_neighbours(tmp_path) == expected
    assert expected["n1"]["up"]
    assert (expected["n1"]["remark"], expected["n3"]["remark"]) == ("slow", "")
    assert expected["n1"]["seconds"] > 0
    assert (tmp_path / "neighbours.json").stat().st_mtime == 0
    assert read_neighbours(tmp_path / "nowhere") == {}


def test_health_says_what_is_wrong(network: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A roster that has ended, a disk that is full or fails, no neighbour: each by name; well again when it is gone."""

    async def main() -> list[tuple[str, ...]]:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=5, late_hops=1e9))
        await net.start()
        await net.until(lambda: net.nodes["n0"].links_up == 2)
        node, said = net.nodes["n0"], []
        watch = HealthWatch(node, net.folder)
        await watch.beat()
        said.append(watch.describe().troubles)
        watch.now = lambda: time.time() + 7200
        said.append(watch.describe().troubles)
        watch.now = time.time
        node.events["storage_troubles"] += 3
        await watch.beat()
        said.append(watch.describe().troubles)
        await watch.beat()
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
        said.append(watch.describe().troubles)
        monkeypatch.undo()
        await net.stop("n1", "n3")
        await net.until(lambda: node.links_up == 0)
        said.append(watch.describe().troubles)
        await net.stop()
        return said

    assert asyncio.run(main()) == [
        (),
        ("the roster has ended",),
        ("storage fails",),
        ("the disk is full",),
        ("no neighbour can be reached",),
    ]


def test_health_notes_what_will_be_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest that has ended is trouble; what waits, little room and a refused roster are noted, well or not."""
    node = SimpleNamespace(
        links_up=1,
        events={"storage_troubles": 0},
        roster=SimpleNamespace(expires=20 * 86400),
        manifest=SimpleNamespace(expires=86400),
    )
    watch = HealthWatch(cast("Node", node), tmp_path, now=lambda: 2 * 86400, clock=lambda: 100.0)
    watch._pinned = {(1, "b"): 10.0, (2, "b"): 90.0}
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1_500_000_000))
    answers = [MetricsServer(process(watch, Log(), refused))._health() for refused in ("", "n0 is no member")]
    waits = "note: 1 messages have waited for one neighbour for more than a minute\n"
    said = "the manifest has ended\nnote: the disk is nearly full\n" + waits
    assert answers[0] == ("503 Service Unavailable", said)
    assert answers[1][1] == said + "note: a roster or manifest that was put in place is refused: n0 is no member\n"
    assert watch.describe().gauges["manifest_days_left"] == -1
    node.manifest.expires = None
    assert "manifest_days_left" not in watch.describe().gauges


def test_what_tells_of_trainings_is_told_once_a_day(network: Callable[..., Any]) -> None:
    """Over-runs and lost updates stand as they were when the day began, however often somebody looks."""

    async def main() -> list[tuple[int, int, tuple[str, ...]]]:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=50_000, late_hops=1e9))
        await net.start("n0")
        node, said, day = net.nodes["n0"], [], 86400
        at = [0]
        watch = HealthWatch(node, net.folder, now=lambda: at[0])
        for moment, name in (
            (0, "dwell_overruns"),
            (day - 1, "discarded"),
            (day, "discarded"),
            (2 * day, "hops"),
            (3 * day, "hops"),
        ):
            at[0] = moment
            await watch.beat()
            health = watch.describe()
            notes = tuple(note for note in health.notes if "day before" in note)
            said.append((health.gauges["dwell_overruns"], health.gauges["discarded"], notes))
            with node.scheduler.custody.spool.transaction() as register:
                register.count(name)
        await net.stop()
        return said

    first, later, second, third, fourth = asyncio.run(main())
    assert first == later == (0, 0, ())
    outlasted = "1 trainings outlasted the dwell on the day before: the dwell is too short for this machine"
    assert second == (1, 1, (outlasted, "about 1 updates were lost here with walks on the day before"))
    assert third == (1, 2, ("about 1 updates were lost here with walks on the day before",))
    assert fourth == (1, 2, ())


def test_what_waits_for_one_neighbour_is_counted_and_silence_told_in_steps(network: Callable[..., Any]) -> None:
    """A minute by the watch's own clock; times between the steps are not told apart."""

    async def main() -> tuple[list[int], list[int]]:
        net = network(4, rules=RunRules(walk=SIMPLE, updates=50_000, late_hops=1e9), starts=True)
        # Alone: its walk is pinned to a neighbour that is not there.
        await net.start("n0")
        await net.until(lambda: any(row.peer for row in net.look("n0")["messages"]))
        watch, at = HealthWatch(net.nodes["n0"], net.folder), [0.0]
        watch.clock = lambda: at[0]
        stuck, quiet = [], []
        for moment in (0.0, BEAT_S, 61.0, 599.0, 601.0, 90_000.0):
            at[0] = moment
            await watch.beat()
            stuck.append(watch.describe().gauges["stuck"])
            quiet.append(watch.describe().gauges["quiet_s"])
        await net.stop()
        return stuck, quiet

    stuck, quiet = asyncio.run(main())
    assert stuck == [0, 0, 1, 1, 1, 1]
    assert quiet == [0, 0, 60, 60, 600, QUIET_S[-1]]


def test_logs_have_levels_and_one_line_an_event(capsys: pytest.CaptureFixture[str]) -> None:
    """What a peer says cannot begin a line of its own; what is below the level is counted all the same."""
    stream = io.StringIO()
    log = Log(stream, level="warning", form="text")
    log.event("started", node="a")
    log.event("turned_away", why="x\nerror: storage_trouble")
    assert stream.getvalue() == 'warning: turned_away why="x\\nerror: storage_trouble"\n'
    assert (log.counts["started"], log.counts["turned_away"]) == (1, 1)
    Log().event("storage_trouble", times=3)
    assert json.loads(capsys.readouterr().err) == {"event": "storage_trouble", "level": "error", "times": 3}
    with pytest.raises(InvalidParameterError, match="log_level = 'loud'"):
        Log(level="loud")
    with pytest.raises(InvalidParameterError, match="log = 'xml'"):
        Log(form="xml")


def test_a_log_that_cannot_be_written_ends_nothing() -> None:
    """As on a full disk; it is counted all the same, and written again when there is room."""

    class Full(io.StringIO):
        is_full = True

        def flush(self) -> None:
            if self.is_full:
                raise OSError(28, "No space left on device")

    stream = Full()
    log = Log(stream)
    log.event("link_down", peer="b")
    stream.is_full = False
    log.event("link_up", peer="b")
    assert log.counts == {"link_down": 1, "link_up": 1}
    assert "link_up" in stream.getvalue()
