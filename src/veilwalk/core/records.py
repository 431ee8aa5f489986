"""Records: the only thing that leaves a computation.

A record holds what was asked (parameters, seed), by which code (version), and what came out. It is plain
data, so that JSON keeps all of it; ``report`` reads nothing else.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from veilwalk.core.errors import RecordError
from veilwalk.core.version import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What was asked, by which code, and what came out."""

    kind: str
    params: Mapping[str, Any]
    result: Mapping[str, Any]
    seed: int | None = None
    version: str = __version__

    def to_dict(self) -> dict[str, Any]:
        """Return provenance and results side by side, as plain data: infinities become None, NaN is refused."""
        about = {"kind": self.kind, "version": self.version, "seed": self.seed, "params": self.params}
        return dict(plain(about | dict(self.result)))

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """Return ``value`` with arrays and NumPy scalars turned into what JSON knows."""
    match value:
        case np.ndarray():
            return plain(value.tolist())
        case np.generic():
            return plain(value.item())
        case float() if math.isnan(value):
            raise RecordError("a result is NaN: refusing to write it as if it were a number")
        case float() if math.isinf(value):
            return None
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _:
            return value


def write_atomically(path: Path, data: bytes | memoryview, *, mode: int = 0o666) -> None:
    """Write ``data`` so that a reader sees the old file or the new one whole; the umask takes rights from ``mode``."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        name = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            name.replace(path)
        except BaseException:
            name.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror or error}") from error


def append_line(path: Path, content: Mapping[str, Any], *, mode: int = 0o666) -> None:
    """Add a line of JSON to a log, which is made where there is none."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, mode)
        with os.fdopen(handle, "w") as stream:
            stream.write(json.dumps(plain(content), separators=(",", ":"), allow_nan=False) + "\n")
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror or error}") from error


def read_lines(path: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """Return the whole lines of a log from a place on, and the place after them; none where there is no such file.

    A last line that a writer has not ended is left for later; one that is no JSON is passed over.
    """
    try:
        with path.open("rb") as stream:
            stream.seek(offset)
            data = stream.read()
    except OSError:
        return [], offset
    whole, lines = data[: data.rfind(b"\n") + 1], []
    for line in whole.splitlines():
        with suppress(ValueError):
            if isinstance(content := json.loads(line), dict):
                lines.append(content)
    return lines, offset + len(whole)


def score_of(point: Mapping[str, Any]) -> tuple[str, float]:
    """Return name and value of the score that tells best how good a model is: accuracy, else ``r2``, else the loss."""
    if point["accuracy"] is not None:
        return "accuracy", point["accuracy"]
    # Records of before have no further scores.
    r2 = point.get("scores", {}).get("r2")
    return ("loss", point["loss"]) if r2 is None else ("r2", r2)


def require_writable(folder: Path) -> None:
    """Refuse a folder that could not be made or written to, before anything is computed; nothing is created."""
    place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise RecordError(f"cannot write into {folder}: {place} is {'not writable' if place.is_dir() else 'a file'}")
