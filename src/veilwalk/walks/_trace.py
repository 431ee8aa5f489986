"""Traces: the updates of a run in one compact file, to be replayed.

A trace is a ZIP archive: ``header.json``, then ``updates-000000.npy`` and so on, one per chunk, compressed.
NumPy alone can read it (``np.load``). It is written beside its place and renamed into it when complete.
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from veilwalk.core.errors import InputFileError, RecordError
from veilwalk.core.records import plain
from veilwalk.core.version import __version__
from veilwalk.graphs import Graph
from veilwalk.walks._protocol import UPDATE_DTYPE, Updates

_HEADER = "header.json"
_FORMAT = "veilwalk-trace-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A trace on disk, with what its header says; a run that was interrupted is not ``complete``."""

    path: Path
    graph_digest: str
    seed: int
    version: str
    params: Mapping[str, Any]
    n_updates: int
    n_chunks: int
    complete: bool

    def chunks(self) -> Iterator[Updates]:
        """Yield the updates, chunk by chunk as they were written."""
        try:
            with zipfile.ZipFile(self.path) as archive:
                for number in range(self.n_chunks):
                    with archive.open(_member(number)) as stream:
                        updates = np.lib.format.read_array(stream, allow_pickle=False)
                    if updates.dtype != UPDATE_DTYPE:
                        raise InputFileError(f"{self.path}: chunk {number} does not hold updates")
                    yield updates
        except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
            if isinstance(error, InputFileError):
                raise
            raise InputFileError(f"cannot read trace {self.path}: {error}") from error


def write_trace(path: Path, chunks: Iterable[Updates], *, graph: Graph, seed: int, params: Mapping[str, Any]) -> Trace:
    """Write a run's updates as they come, and return the trace.

    When the run is interrupted from the keyboard, what it had made is kept, marked incomplete, and the
    interruption goes on its way.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror or error}") from error
    draft = Path(name)
    interruption: KeyboardInterrupt | None = None
    try:
        with os.fdopen(handle, "wb") as stream:
            with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                n_chunks = n_updates = 0
                try:
                    for chunk in chunks:
                        with archive.open(_member(n_chunks), "w", force_zip64=True) as member:
                            np.lib.format.write_array(member, chunk, allow_pickle=False)
                        n_chunks, n_updates = n_chunks + 1, n_updates + len(chunk)
                except KeyboardInterrupt as error:
                    interruption = error
                trace = Trace(
                    path=path,
                    graph_digest=graph.digest,
                    seed=seed,
                    version=__version__,
                    params=params,
                    n_updates=n_updates,
                    n_chunks=n_chunks,
                    complete=interruption is None,
                )
                header = {name: value for name, value in asdict(trace).items() if name != "path"}
                archive.writestr(_HEADER, json.dumps(plain({"format": _FORMAT, **header}), indent=2))
            stream.flush()
            os.fsync(stream.fileno())
        draft.chmod(0o644)
        draft.replace(path)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        # It is gone already where it has got its name.
        draft.unlink(missing_ok=True)
    if interruption is not None:
        raise interruption
    return trace


def read_trace(path: Path, *, graph: Graph | None = None) -> Trace:
    """Open a trace; with ``graph``, refuse one that was made on another graph."""
    try:
        with zipfile.ZipFile(path) as archive:
            header = json.loads(archive.read(_HEADER))
        if header.pop("format") != _FORMAT:
            raise InputFileError(f"{path} is not a trace that this version reads")
        trace = Trace(path=path, **header)
    except (OSError, KeyError, ValueError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        if isinstance(error, InputFileError):
            raise
        raise InputFileError(f"cannot read trace {path}: {error}") from error
    if graph is not None and graph.digest != trace.graph_digest:
        raise InputFileError(
            f"{path} is a trace on graph {trace.graph_digest[:12]}: not on {graph.digest[:12]} as asked"
        )
    return trace


def _member(number: int) -> str:
    return f"updates-{number:06d}.npy"
