"""Finished jobs as files: a stopped computation goes on where it was, on whatever engine.

A file is called by the digest of what is computed and of the job, so that neither the engine nor the number of workers
has a say in it. It is a NumPy archive: the arrays of the result, and its shape as JSON; nothing in it is ever executed.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from veilwalk.core.errors import InvalidParameterError, RecordError
from veilwalk.core.records import plain, require_writable, write_atomically
from veilwalk.core.version import __version__

_TREE = "tree"
# What a damaged file makes NumPy, zipfile and JSON say.
_DAMAGED = (ValueError, KeyError, IndexError, EOFError, TypeError, zipfile.BadZipFile, NotImplementedError)


class JobStore:
    """A folder of finished jobs; any number of computations may share one.

    Example:
        >>> import tempfile
        >>> store = JobStore(tempfile.mkdtemp())
        >>> store.save({"sum": "of squares"}, 3, {"value": 9})
        >>> store.load({"sum": "of squares"}, 3), store.load({"sum": "of squares"}, 4)
        ({'value': 9}, None)
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        require_writable(self.folder)

    def path(self, what: Mapping[str, Any], job: Any) -> Path:
        """Return where the result of a job is kept; ``what`` and ``job`` are plain data."""
        named = json.dumps([plain(what), plain(job), __version__], sort_keys=True, allow_nan=False)
        return self.folder / f"{hashlib.sha256(named.encode()).hexdigest()}.npz"

    def load(self, what: Mapping[str, Any], job: Any) -> Any:
        """Return the result of a job, None where it is not there or its file is damaged: it is then done again."""
        try:
            return decode_result(self.path(what, job).read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RecordError(f"cannot read {self.path(what, job)}: {error.strerror or error}") from error
        except _DAMAGED:
            return None

    def save(self, what: Mapping[str, Any], job: Any, result: Any) -> None:
        """Keep the result of a job: the file is there whole, or not at all."""
        write_atomically(self.path(what, job), encode_result(result))


def encode_result(result: Any) -> bytes:
    """Return a result as the bytes of its file: equal results give equal bytes.

    Results are mappings with text for keys, lists, tuples, numbers, text, truth values, None and arrays of numbers.
    """
    arrays: dict[str, Any] = {}
    tree = json.dumps(_split(result, arrays))
    stream = io.BytesIO()
    arrays[_TREE] = np.frombuffer(tree.encode(), dtype=np.uint8)
    np.savez(stream, allow_pickle=False, **arrays)
    return stream.getvalue()


def decode_result(data: bytes) -> Any:
    """Return the result whose bytes these are."""
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        return _join(json.loads(archive[_TREE].tobytes()), archive)


def _split(value: Any, arrays: dict[str, Any]) -> Any:
    """Return ``value`` as JSON has it; arrays are put aside by number, tuples and mappings are marked as such."""
    match value:
        case np.ndarray():
            if value.dtype.hasobject:
                raise InvalidParameterError("result", f"array of {value.dtype}", "an array of numbers or text")
            name = f"array{len(arrays)}"
            # A read-only view, such as a worker's result may be, is written as any other.
            arrays[name] = value
            return {"array": name}
        case np.generic():
            return _split(value.item(), arrays)
        case Mapping():
            if not all(isinstance(key, str) for key in value):
                raise InvalidParameterError("result", value, "a mapping with text for keys")
            return {"mapping": [[key, _split(item, arrays)] for key, item in value.items()]}
        case tuple():
            return {"tuple": [_split(item, arrays) for item in value]}
        case list():
            return [_split(item, arrays) for item in value]
        case None | bool() | int() | float() | str():
            return value
    raise InvalidParameterError("result", type(value).__name__, "plain data: mappings, lists, numbers, text, arrays")


def _join(tree: Any, archive: Any) -> Any:
    match tree:
        case {"array": name}:
            return archive[name]
        case {"mapping": items}:
            return {key: _join(item, archive) for key, item in items}
        case {"tuple": items}:
            return tuple(_join(item, archive) for item in items)
        case list():
            return [_join(item, archive) for item in tree]
    return tree
