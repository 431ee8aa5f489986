"""News for a node of several runs, which each of them follows by itself."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from veilwalk.core.errors import ConfigError
from veilwalk.node.peer._follower import Follower
from veilwalk.node.peer._log import Log


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
