"""Which kind of folder it is: of a run, a sweep or a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from veilwalk.core.errors import ConfigError
from veilwalk.watch._documents import Document, Source


def open_source(folder: Path, *, wait: bool = False) -> Source:
    """Return the documents of a run, a sweep or a cluster; ``wait``: of one that may begin later.

    Raises:
        ConfigError: There is none.
    """
    found = _found(folder)
    if found is None and not wait:
        raise ConfigError(f"{folder} holds no run, sweep or cluster")
    return found or _Late(folder)


def _found(folder: Path) -> Source | None:
    # Imported here: a folder of one kind needs nothing of the others.
    if (folder / "run.json").exists():
        from veilwalk.watch._run import RunSource

        return RunSource(folder)
    if (folder / "cluster.json").exists():
        from veilwalk.watch._cluster import ClusterSource

        return ClusterSource(folder)
    if (folder / "plan.json").exists():
        from veilwalk.watch._sweep import SweepSource

        return SweepSource(folder)
    return None


class _Late:
    """A folder in which something will begin."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: Source | None = None

    @property
    def finished(self) -> bool:
        return self._found is not None and self._found.finished

    @property
    def ready(self) -> bool:
        return self._found is not None and self._found.ready

    def look(self) -> Iterable[Document]:
        if self._found is None:
            self._found = _found(self._folder)
        return [] if self._found is None else self._found.look()

    def study(self) -> Iterable[Document]:
        return [] if self._found is None else self._found.study()
