"""Packed files: what unpacks to more than its limit is refused before memory is taken for it."""

from __future__ import annotations

import gzip
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from veilwalk.core.archives import read_archive, read_bytes
from veilwalk.core.errors import InputFileError
from veilwalk.graphs import read_graph
from veilwalk.learning import load_model

LIMIT = 8 << 20


def write_entry(path: Path, shape: tuple[int, ...], size: int) -> None:
    """Write an archive with an array ``edges`` whose header announces ``shape``, and ``size`` bytes of nought."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("edges.npy", "w") as stream:
        kind = np.lib.format.dtype_to_descr(np.dtype(np.int64))
        np.lib.format.write_array_header_1_0(stream, {"descr": kind, "fortran_order": False, "shape": shape})
        for _ in range(size >> 20):
            stream.write(bytes(1 << 20))


def test_a_gzip_file_is_unpacked_up_to_its_limit(tmp_path: Path) -> None:
    """A small file that becomes 64 MB is refused once the limit is passed; up to it nothing is lost."""
    path = tmp_path / "zeros.txt.gz"
    path.write_bytes(gzip.compress(bytes(64 << 20)))
    tracemalloc.start()
    with pytest.raises(InputFileError, match="unpacks to") as refused:
        read_bytes(path, limit=LIMIT)
    assert str(refused.value).startswith(str(path))
    assert tracemalloc.get_traced_memory()[1] < 4 * LIMIT
    tracemalloc.stop()
    assert read_bytes(path, limit=64 << 20) == bytes(64 << 20)
    with pytest.raises(InputFileError, match="unpacks to"):
        read_bytes(path, limit=(64 << 20) - 1)


@pytest.mark.parametrize("read", [read_archive, read_graph, load_model])
def test_an_archive_whose_header_lies_is_refused(tmp_path: Path, read: object) -> None:
    """NumPy would take the petabyte that the header announces: in archives of data, graphs and models."""
    path = tmp_path / "liar.npz"
    write_entry(path, (1 << 47,), 1 << 20)
    tracemalloc.start()
    with pytest.raises(InputFileError, match="size that its header announces") as refused:
        read(path)  # type: ignore[operator]
    assert tracemalloc.get_traced_memory()[1] < LIMIT
    tracemalloc.stop()
    assert str(refused.value).startswith(f"{path}: liar") or str(refused.value).startswith(f"{path}: edges")


def test_an_archive_is_refused_by_the_size_that_it_announces(tmp_path: Path) -> None:
    """Before anything of it is unpacked."""
    write_entry(tmp_path / "bomb.npz", (8 << 20,), 64 << 20)
    assert (tmp_path / "bomb.npz").stat().st_size < 1 << 20
    tracemalloc.start()
    with pytest.raises(InputFileError, match="unpacks to"):
        read_archive(tmp_path / "bomb.npz", limit=LIMIT)
    assert tracemalloc.get_traced_memory()[1] < LIMIT
    tracemalloc.stop()
    assert read_archive(tmp_path / "bomb.npz")["edges"].shape == (8 << 20,)
