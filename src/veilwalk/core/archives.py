"""Reads packed files, npz and gzip. One that unpacks to more than its limit is refused before memory is taken for it.

Nothing in a file is executed, and every error names the file.
"""

from __future__ import annotations

import gzip
import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from veilwalk.core.errors import InputFileError
from veilwalk.core.sizes import DEFAULT_MEMORY_BYTES
from veilwalk.core.units import readable_bytes

# Bytes that are unpacked at once.
_CHUNK = 1 << 20


@contextmanager
def name_errors(path: Path, need: str, *errors: type[Exception]) -> Iterator[None]:
    """Turn ``errors``, and those of the operating system, into one line about ``path``."""
    try:
        yield
    except InputFileError:
        raise
    except errors as error:
        raise InputFileError(f"{path}: {need.format(error=' '.join(str(error).split()))}") from error
    except OSError as error:
        raise InputFileError(f"{path}: cannot be read: {error.strerror or error}") from error


def require_size(path: Path, size: int, limit: int = DEFAULT_MEMORY_BYTES) -> None:
    """Refuse a file of which ``size`` bytes unpacked are known, where that is more than ``limit``."""
    if size > limit:
        raise InputFileError(f"{path}: unpacks to {readable_bytes(size)} or more: need at most {readable_bytes(limit)}")


def read_bytes(path: Path, *, limit: int = DEFAULT_MEMORY_BYTES) -> bytes:
    """Return the content of a file, unpacked if its name ends in ``.gz``; refuse one that unpacks beyond ``limit``."""
    with name_errors(path, "is not a complete gzip file", gzip.BadGzipFile, EOFError, zlib.error):
        if path.suffix.lower() != ".gz":
            return path.read_bytes()
        content = bytearray()
        with gzip.open(path) as stream:
            # Memory grows as bytes come.
            while chunk := stream.read(_CHUNK):
                content += chunk
                require_size(path, len(content), limit)
        return bytes(content)


def read_archive(
    path: Path, *, content: bytes | None = None, limit: int = DEFAULT_MEMORY_BYTES, only: str = ""
) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an npz file, or ``only`` one; sizes and shapes are checked before anything is unpacked.

    ``content`` is that of the file, where it is read already.
    """
    errors = (ValueError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)
    with (
        name_errors(path, "is not an npz archive of plain arrays", *errors),
        zipfile.ZipFile(path if content is None else BytesIO(content)) as archive,
    ):
        entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
        require_size(path, sum(entry.file_size for entry in entries.values()), limit)
        return {name: _read_entry(path, archive, entries[name]) for name in ([only] if only in entries else entries)}


def _read_entry(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> npt.NDArray[Any]:
    """Return an array; refuse one whose header announces another size than its entry: NumPy allocates by the header."""
    with archive.open(entry) as stream:
        version = np.lib.format.read_magic(stream)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, kind = read_header(stream)
        if kind.hasobject:
            raise ValueError("an array of objects")
        if math.prod(shape) * kind.itemsize != entry.file_size - stream.tell():
            raise InputFileError(f"{path}: {entry.filename} does not have the size that its header announces")
    with archive.open(entry) as stream:
        return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
