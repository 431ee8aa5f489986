"""A node as a process: how it starts, begins anew, leaves and fails."""

from __future__ import annotations

import asyncio
import io
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from veilwalk.core.errors import ConfigError, LearnerError, SpoolError, TransportError
from veilwalk.node.peer import _process
from veilwalk.node.peer._observe import Log
from veilwalk.node.peer._process import NodeProcess
from veilwalk.node.spool import FolderDisk


class PlayedNode:
    """A node that fails as often as it was told to, and then works until it is stopped."""

    def __init__(self, faults: list[Exception]) -> None:
        self._faults = faults
        self.roster = SimpleNamespace(is_overlay=False, open_epochs=lambda _: range(2))

    async def run(self, stop: asyncio.Event) -> None:
        """Fail, or wait."""
        if self._faults:
            raise self._faults.pop(0)
        await stop.wait()


async def wait_for_ever(*_: object) -> None:
    await asyncio.Event().wait()


class Process:
    """A process whose parts are played; ``starts`` are the faults of its next starts, ``faults`` of its next nodes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, starts: list[Any], faults: list[Exception]) -> None:
        self.began = 0

        def assemble(*_: object, **__: object) -> Any:
            self.began += 1
            fault = starts.pop(0) if starts else None
            if fault is not None:
                raise fault
            return SimpleNamespace(disk=SimpleNamespace(close=lambda: None))

        async def beat() -> None:
            pass

        ring: Any = SimpleNamespace(load=lambda: None, delete_before=lambda _: None)
        monkeypatch.setattr(_process, "MembershipFiles", lambda _: None)
        monkeypatch.setattr(_process, "key_ring", lambda _: ring)
        monkeypatch.setattr(_process, "assemble", assemble)
        monkeypatch.setattr(_process, "Node", lambda _: PlayedNode(faults))
        monkeypatch.setattr(_process, "drain_on_order", wait_for_ever)
        monkeypatch.setattr(_process, "HealthWatch", lambda *_: SimpleNamespace(beat=beat, run=wait_for_ever))
        config: Any = SimpleNamespace(state=Path("nowhere"), metrics=None)
        worker: Any = SimpleNamespace(close=lambda: None)
        self.worker = worker
        self.process = NodeProcess(config, worker=worker, log=Log(io.StringIO()))

    async def until_it_works(self, began: int = 1) -> None:
        """Wait until a node works, so many times after the process began."""
        async with asyncio.timeout(5):
            while self.process.node is None or self.began < began:
                await asyncio.sleep(0)


def test_a_process_begins_anew_and_ends_when_its_node_is_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        played = Process(monkeypatch, starts=[], faults=[])
        working = asyncio.create_task(played.process.work())
        await played.until_it_works()
        played.process.begin_anew()
        await played.until_it_works(began=2)
        # As by the order to drain.
        played.process._stop.set()
        await asyncio.wait_for(working, 5)
        assert (played.process.node, played.process.watch, played.began) == (None, None, 2)

    asyncio.run(main())


def test_a_process_that_is_told_to_leave_while_it_starts_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait until the data are loaded, and complains of nothing."""

    async def main() -> None:
        played = Process(monkeypatch, starts=[], faults=[])
        is_loading, is_closed = threading.Event(), threading.Event()

        def load(*_: object, **__: object) -> None:
            is_loading.set()
            assert is_closed.wait(10)
            raise LearnerError("the process that trains ended before it began")

        monkeypatch.setattr(_process, "assemble", load)
        played.worker.close = is_closed.set
        working = asyncio.create_task(played.process.work())
        await asyncio.to_thread(is_loading.wait, 10)
        played.process.leave()
        await asyncio.wait_for(working, 5)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("starts", "faults", "ends_with"),
    [
        # At the first start the operator is told what is wrong; later nobody may turn a fault into a wrong setting.
        ([ConfigError("no such file")], [], ConfigError),
        ([None, ConfigError("no such file")], [], RuntimeError),
        ([], [ConfigError("a number too large")], RuntimeError),
        ([], [TransportError("port in use")], TransportError),
        ([], [KeyError("ours")], KeyError),
    ],
)
def test_what_a_process_ends_with(
    monkeypatch: pytest.MonkeyPatch, starts: list[Any], faults: list[Exception], ends_with: type[Exception]
) -> None:
    async def main() -> None:
        played = Process(monkeypatch, starts=starts, faults=faults)
        working = asyncio.create_task(played.process.work())
        if len(starts) == 2:
            await played.until_it_works()
            played.process.begin_anew()
        with pytest.raises(ends_with) as caught:
            await asyncio.wait_for(working, 5)
        assert type(caught.value) is ends_with

    asyncio.run(main())


def test_a_state_folder_that_could_not_be_opened_is_not_held(tmp_path: Path) -> None:
    """The same process may try again."""
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / "spool.db").mkdir()
    with pytest.raises(SpoolError):
        FolderDisk(tmp_path / "state")
    (tmp_path / "state" / "spool.db").rmdir()
    FolderDisk(tmp_path / "state").close()
