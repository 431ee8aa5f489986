"""Parts of a campaign, each kept as a file as soon as it is there: a second run goes on where the first one stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from veilwalk.core.records import plain, write_atomically
from veilwalk.core.version import __version__


def path_of(work: Path, name: str) -> Path:
    """Return where a part is kept."""
    return work / f"{name.replace(':', '-').replace(' ', '-')}.json"


def kept(work: Path, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return a part from its file, or compute and keep it."""
    path = path_of(work, name)
    if not path.exists():
        start = time.perf_counter()
        found = plain(compute())
        write_atomically(path, json.dumps(found).encode())
        print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)
    return dict(json.loads(path.read_text()))


def refuse_others(work: Path, asked: dict[str, Any]) -> None:
    """Refuse to go on with parts that were computed with other settings, or by another version."""
    wanted = plain(asked | {"veilwalk": __version__})
    if kept(work, "settings", lambda: wanted) != wanted:
        raise SystemExit(f"{work} holds parts of other settings: remove it, or choose another --work")


def sections_of(text: str) -> dict[str, list[str]]:
    """Return the lines of every section of a page by its title."""
    found = {}
    for section in text.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        found[title] = body.strip("\n").split("\n")
    return found
