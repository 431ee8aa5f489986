"""Rosters that are put in place while a node runs: in any order, whatever the password came by."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.followers import NOW, followed, small_cluster, until

from veilwalk.core.errors import SpoolError
from veilwalk.node import load_config
from veilwalk.node.members import KeyRing, changed_roster, new_node_keys, read_password, rotate_node_keys
from veilwalk.node.members._keys import held_epochs
from veilwalk.node.peer import _process
from veilwalk.node.peer._assemble import key_ring


@pytest.mark.parametrize("first", ["roster.json", "roster.json.sig"])
def test_finding_13_roster_and_signature_come_in_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Whichever is there first is refused, once in the log, and both together are followed without a word."""
    monkeypatch.setattr(_process, "_NEWS_S", 0.02)
    configs, root, roster = small_cluster(tmp_path / "c")
    (changed_roster(roster, roster.edges, cards={}, removed=[], now=NOW, days=9)).sign(tmp_path / "roster.json", root)

    async def main() -> str:
        async with followed(configs[1]) as (node, follower, text):
            # Whole at once: half of a file is refused for another reason, which is said too.
            (tmp_path / first).rename(tmp_path / "c" / first)
            await until(lambda: "roster_refused" in text.getvalue())
            await asyncio.sleep(0.2)
            # Also said by /healthz, for as long as it holds.
            assert follower.refused
            assert node.roster.version == 1
            (second,) = tmp_path.glob("roster.json*")
            second.rename(tmp_path / "c" / second.name)
            await until(lambda: node.roster.version == 2 and not follower.refused)
            return str(text.getvalue())

    assert asyncio.run(main()).count("roster_refused") == 1


def test_finding_14_a_password_that_came_by_a_pipe_serves_for_every_later_roster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read once; keys are opened again where a roster asks for it, and not by the thread that serves links."""
    monkeypatch.setattr(_process, "_NEWS_S", 0.02)
    configs, root, roster = small_cluster(tmp_path / "c")
    shutil.rmtree(tmp_path / "c" / "n1" / "keys")
    member = roster.member("n1")
    keys = new_node_keys(
        tmp_path / "c" / "n1" / "keys", node_id="n1", address=member.address, suite=roster.suite, password=b"password"
    )
    now = int(time.time())
    roster = changed_roster(
        roster, roster.edges, cards={"n1": keys.member}, replaced=["n1"], removed=[], now=now, days=9
    )
    roster.sign(tmp_path / "c" / "roster.json", root)
    read, write = os.pipe()
    os.write(write, b"password\n")
    os.close(write)
    ring = key_ring(replace(load_config(configs[1]), password_file=Path(f"/dev/fd/{read}")))
    os.close(read)
    threads: set[str] = set()
    load = KeyRing.load

    def noted(ring: KeyRing) -> Any:
        threads.add(threading.current_thread().name)
        return load(ring)

    monkeypatch.setattr(KeyRing, "load", noted)

    async def main() -> None:
        async with followed(configs[1], ring=ring) as (node, _, text):
            threads.clear()
            following = changed_roster(roster, roster.edges, cards={}, removed=[], now=now, days=9)
            following.sign(tmp_path / "c" / "roster.json", root)
            await until(lambda: node.roster.version == 3)
            assert "roster_refused" not in text.getvalue()

    asyncio.run(main())
    assert threads
    assert threading.main_thread().name not in threads


def test_finding_24_a_loose_password_file_is_named_by_its_own_name(tmp_path: Path) -> None:
    """Not by the descriptor it was handed over as, whose mode nobody can change."""
    path = tmp_path / "password"
    path.write_text("secret\n")
    path.chmod(0o644)
    with path.open() as stream, pytest.raises(SpoolError, match=f"chmod 600 {path}$"):
        read_password(Path(f"/dev/fd/{stream.fileno()}"))


def test_what_nobody_foresaw_does_not_end_the_following_of_rosters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_process, "_NEWS_S", 0.02)
    configs, root, roster = small_cluster(tmp_path / "c")

    async def main() -> str:
        async with followed(configs[1]) as (node, follower, text):
            files = follower.files
            read, faults = files.read, [RuntimeError("never thought of")]
            files.read = lambda *about: (_ for _ in ()).throw(faults.pop()) if faults else read(*about)  # type: ignore[method-assign]
            following = changed_roster(roster, roster.edges, cards={}, removed=[], now=NOW, days=9)
            following.sign(tmp_path / "c" / "roster.json", root)
            await until(lambda: node.roster.version == 2)
            return str(text.getvalue())

    assert "RuntimeError: never thought of" in asyncio.run(main())


def test_a_key_is_deleted_when_its_period_is_two_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock alone, while the node runs: nobody signs anything when a period begins."""
    monkeypatch.setattr(_process, "_NEWS_S", 0.02)
    configs, root, roster = small_cluster(tmp_path / "c")
    folders = {config.parent.name: config.parent / "keys" for config in configs}
    cards = {name: rotate_node_keys(folder, periods=2).member for name, folder in folders.items()}
    following = changed_roster(roster, roster.edges, cards=cards, now=roster.created, days=30)
    following.sign(tmp_path / "c" / "roster.json", root)
    now, passed = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: now() + passed[0])

    def holds_from(oldest: int) -> bool:
        return held_epochs(folders["n1"]) == list(range(oldest, 4))

    async def main() -> None:
        async with followed(configs[1]) as (node, _, _text):
            await until(lambda: node.roster.version == 2)
            for periods, oldest in ((1, 0), (2, 1), (3, 2)):
                passed[0] = periods * roster.period_s
                await until(partial(holds_from, oldest))

    asyncio.run(main())
    assert held_epochs(folders["n2"]) == [0, 1, 2, 3]
