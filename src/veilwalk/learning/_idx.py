"""IDX files, the format of MNIST and Fashion-MNIST: a short header that says how many bytes must follow."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import IO, cast

import numpy as np

from veilwalk.core.errors import InputFileError
from veilwalk.learning._api import Array

# Magic number and dimensions of what we read.
_KINDS = {"images": (0x803, 3), "labels": (0x801, 1)}
# A file that announces more is refused.
_LARGEST_BYTES = 4 << 30


def find_idx(folder: Path, start: str, what: str) -> Path:
    """Return the file of ``what`` (images or labels) in ``folder``, gzipped or not, under either common name."""
    ending = f"idx{_KINDS[what][1]}-ubyte"
    names = [f"{start}-{what}{mark}{ending}{packed}" for mark in "-." for packed in ("", ".gz")]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise InputFileError(f"{folder}: has no file {names[0]} or {names[1]}")


def read_idx(path: Path, what: str) -> Array:
    """Read ``what`` (images or labels); the size must be what the header says, found out before memory is taken."""
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rb") as packed:
                # It reads as any binary stream does, though its type does not say so.
                return _read(path, cast("IO[bytes]", packed), what, None)
        with path.open("rb") as stream:
            return _read(path, stream, what, path.stat().st_size)
    except InputFileError:
        raise
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputFileError(f"{path}: is not a complete gzip file") from error
    except OSError as error:
        raise InputFileError(f"{path}: cannot be read: {error.strerror or error}") from error


def _read(path: Path, stream: IO[bytes], what: str, file_bytes: int | None) -> Array:
    magic, dimensions = _KINDS[what]
    start = stream.read(4 + 4 * dimensions)
    if len(start) != 4 + 4 * dimensions or int.from_bytes(start[:4], "big") != magic:
        raise InputFileError(f"{path}: is not an IDX file of {what}")
    shape = tuple(int(length) for length in np.frombuffer(start, dtype=">u4")[1:])
    size = math.prod(shape)
    if size > _LARGEST_BYTES:
        raise InputFileError(f"{path}: its header announces {size} bytes: need at most {_LARGEST_BYTES}")
    # One byte more than announced shows a packed file that is too long.
    fits = file_bytes is None or file_bytes == size + len(start)
    body = stream.read(size + 1) if fits else b""
    if not fits or len(body) != size:
        raise InputFileError(f"{path}: is cut short or too long: its header announces {shape}")
    return np.frombuffer(body, dtype=np.uint8).reshape(shape)
