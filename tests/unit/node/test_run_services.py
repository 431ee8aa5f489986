"""Several runs in one process: faults, stops and news are each run's own."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from veilwalk.core.errors import ConfigError, LearnerError, SpoolError, TransportError
from veilwalk.node import Limits
from veilwalk.node.link import Port
from veilwalk.node.peer import _service
from veilwalk.node.peer._follower import Follower
from veilwalk.node.peer._log import Log
from veilwalk.node.peer._service import RunService
from veilwalk.node.spool import FolderDisk


class Frail:
    """A node that fails as often as told, and then works until it is stopped."""

    def __init__(self, faults: list[Exception]) -> None:
        self._faults = faults
        self.roster = SimpleNamespace(epoch=0)

    async def run(self, stop: asyncio.Event) -> None:
        """Fail, or wait."""
        if self._faults:
            raise self._faults.pop(0)
        await stop.wait()


async def calm(*_: object) -> None:
    await asyncio.Event().wait()


def service(
    monkeypatch: pytest.MonkeyPatch, faults: list[Exception], *, alone: bool = False, at_start: bool = False
) -> tuple[RunService, Any]:
    """A run that fails so often, when it is put together or when it works; and what is logged."""

    def assembled(*_: object, **__: object) -> Any:
        if at_start and faults:
            raise faults.pop(0)
        return SimpleNamespace(disk=None)

    text = io.StringIO()
    monkeypatch.setattr(_service, "membership_files", lambda _: None)
    monkeypatch.setattr(_service, "assemble", assembled)
    monkeypatch.setattr(_service, "Node", lambda *_, **__: Frail(faults))
    monkeypatch.setattr(_service, "drain_when_told", calm)

    async def beat() -> None:
        pass

    monkeypatch.setattr(_service, "HealthWatch", lambda *_: SimpleNamespace(beat=beat))
    config: Any = SimpleNamespace(name="" if alone else "a", state=Path("nowhere"))
    nothing: Any = SimpleNamespace(load=lambda: None, close=lambda: None)
    port = None if alone else Port(limits=Limits(), turned_away=lambda _, **__: None)
    return RunService(config, ring=nothing, worker=nothing, log=Log(text), port=port), text


@pytest.mark.parametrize("fault", [RuntimeError("secret words"), SpoolError("the disk is full")])
@pytest.mark.parametrize("at_start", [True, False])
def test_a_run_that_fails_is_told_of_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, fault: Exception, *, at_start: bool
) -> None:
    """Once for as long as it cannot even start for the same reason; nothing but its kind of what is our own fault."""

    async def main() -> str:
        run, text = service(monkeypatch, [fault, fault], at_start=at_start)
        running = asyncio.create_task(run.run(SimpleNamespace(), was_drained=lambda: None))  # type: ignore[arg-type]
        for _ in range(2):
            while run.node is not None or not run.tried.done():
                await asyncio.sleep(0.01)
            run.try_again()
            await asyncio.sleep(0.05)
        while run.node is None:
            run.try_again()
            await asyncio.sleep(0.05)
        run.leave()
        await asyncio.wait_for(running, 5)
        return str(text.getvalue())

    lines = asyncio.run(main()).splitlines()
    assert len(lines) == (1 if at_start else 2)
    for line in lines:
        assert json.loads(line) | {"why": ""} == {"event": "run_down", "level": "error", "run": "a", "why": ""}
        assert "secret" not in line


def test_a_run_that_is_told_to_leave_while_it_starts_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for whoever loads the data, and complains of nothing."""

    async def main() -> None:
        run, text = service(monkeypatch, [])
        asked, ended = threading.Event(), threading.Event()

        def loading(*_: object, **__: object) -> None:
            asked.set()
            assert ended.wait(10)
            raise LearnerError("the process that trains ended before it began")

        monkeypatch.setattr(_service, "assemble", loading)
        run._worker.close = ended.set  # type: ignore[method-assign]
        running = asyncio.create_task(run.run(SimpleNamespace(), was_drained=lambda: None))  # type: ignore[arg-type]
        while not asked.is_set():
            await asyncio.sleep(0.01)
        run.leave()
        await asyncio.wait_for(running, 5)
        assert (await run.tried, text.getvalue()) == (None, "")

    asyncio.run(main())


def test_a_run_that_was_drained_stays_away_until_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was said while it worked; and its node may end once all its runs are."""

    async def main() -> None:
        run, text = service(monkeypatch, [])
        drained: list[bool] = []
        running = asyncio.create_task(run.run(SimpleNamespace(), was_drained=lambda: drained.append(run.drained)))  # type: ignore[arg-type]
        await run.tried
        run.try_again()
        await asyncio.sleep(0.05)
        run._stop.set()
        await asyncio.sleep(0.1)
        assert (run.node, run.drained, drained) == (None, True, [True])
        run.try_again()
        await asyncio.sleep(0.1)
        assert run.node is not None
        run.begin_anew()
        await asyncio.sleep(0.1)
        assert run.node is not None
        run.leave()
        await asyncio.wait_for(running, 5)
        assert (drained, text.getvalue()) == ([True], "")

    asyncio.run(main())


@pytest.mark.parametrize(("fault", "alone"), [(RuntimeError("a bug"), True), (TransportError("port in use"), False)])
def test_the_only_run_and_the_port_end_the_node(
    monkeypatch: pytest.MonkeyPatch, fault: Exception, *, alone: bool
) -> None:
    async def main() -> None:
        run, _ = service(monkeypatch, [fault], alone=alone)
        await asyncio.wait_for(run.run(SimpleNamespace(), was_drained=lambda: None), 5)  # type: ignore[arg-type]

    with pytest.raises(type(fault), match=str(fault)):
        asyncio.run(main())


def test_a_state_folder_that_could_not_be_opened_is_not_held(tmp_path: Path) -> None:
    """The same process tries again."""
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / "spool.db").mkdir()
    with pytest.raises(SpoolError):
        FolderDisk(tmp_path / "state")
    (tmp_path / "state" / "spool.db").rmdir()
    FolderDisk(tmp_path / "state").close()


def test_a_roster_is_read_once_and_followed_by_every_run_that_can() -> None:
    """Keys too are loaded once; what one run cannot follow is said as its own; who does not run now misses none."""
    done: list[tuple[str, str]] = []
    first = SimpleNamespace(version=1, digest=b"1", epoch=0)
    second = SimpleNamespace(version=2, digest=b"2", epoch=1)

    def run(name: str, *, works: bool = True, able: bool = True) -> Any:
        def noted(what: str) -> Callable[..., None]:
            return lambda *_: done.append((name, what))

        async def follow(roster: Any, keys: Any) -> None:
            if not able:
                raise ConfigError("not for us")
            done.append((name, f"follows with {keys}"))
            node.roster = roster

        scheduler = SimpleNamespace(draining=False)
        node = SimpleNamespace(roster=first, manifest=None, scheduler=scheduler, follow=follow)

        def news(current: Any) -> Any:
            done.append((name, "reads"))
            return second if current is first else None

        files = SimpleNamespace(
            news=news, keep=noted("keeps"), keep_up=noted("keeps up"), has_new_manifest=lambda _: False
        )
        log = Log(text).of_run(name)
        return SimpleNamespace(config=None, files=files, log=log, node=node if works else None)

    text = io.StringIO()
    ring: Any = SimpleNamespace(load=lambda: "keys", delete_before=lambda epoch: done.append(("ring", str(epoch))))
    runs = [run("a"), run("b", able=False), run("c", works=False)]
    follower = Follower(runs, ring, Log(text))
    assert not asyncio.run(follower.look())
    assert done == [
        ("a", "reads"),
        ("c", "keeps up"),
        ("a", "keeps"),
        ("a", "follows with keys"),
        ("b", "keeps"),
    ]
    (line,) = text.getvalue().splitlines()
    assert json.loads(line) == {
        "event": "roster_refused",
        "level": "warning",
        "run": "b",
        "why": "not for us",
    }
    # The keys of the epoch before are still needed.
    assert ("ring", "1") not in done
