"""Finished jobs as files: what comes back is what was kept, and nothing in a file is ever executed."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veilwalk.core.errors import InvalidParameterError
from veilwalk.engine import JobStore
from veilwalk.engine._store import decode_result, encode_result

WHAT = {"kind": "test", "seed": 3}
RECORDS = np.array([(1, 2.5)], dtype=[("clock", np.int64), ("weight", np.float64)])


@pytest.mark.parametrize(
    "result",
    [
        {"a": [1, 2.5, "text", True, None], "b": (1, (2,))},
        [float("inf"), 0.1 + 0.2, 2**70],
        {"array": "a name that looks like a mark", "tuple": [1]},
    ],
)
def test_plain_results_come_back_the_same(result: Any) -> None:
    """Kinds included, and words that stand in the file's own notation."""
    assert decode_result(encode_result(result)) == result


def test_arrays_come_back_with_type_and_bits() -> None:
    """Records and empty arrays too."""
    given = {"records": RECORDS, "none": np.zeros((0, 3), dtype=np.int32), "of": [np.array([0.1, np.nan])]}
    found = decode_result(encode_result(given))
    assert found["records"].dtype == RECORDS.dtype
    assert found["records"].tobytes() == RECORDS.tobytes()
    assert found["none"].shape == (0, 3)
    assert found["none"].dtype == np.int32
    assert found["of"][0].tobytes() == given["of"][0].tobytes()  # type: ignore[index]
    assert encode_result(given) == encode_result(found)


@pytest.mark.parametrize("result", [object(), {1: "key"}, np.array([object()])])
def test_what_is_not_plain_is_refused(result: Any) -> None:
    """Nothing is pickled."""
    with pytest.raises(InvalidParameterError, match="result"):
        encode_result(result)


def test_a_file_is_named_by_what_and_job(tmp_path: Path) -> None:
    """And by nothing else: neither the folder nor who asks."""
    store = JobStore(tmp_path / "a")
    names = {store.path(WHAT, 1).name, store.path(WHAT, 2).name, store.path(WHAT | {"seed": 4}, 1).name}
    assert len(names) == 3
    assert JobStore(tmp_path / "b").path(dict(reversed(WHAT.items())), 1).name in names


@pytest.mark.parametrize("damage", ["cut", "flipped", "pickle", "empty"])
def test_a_damaged_file_counts_as_missing(tmp_path: Path, damage: str) -> None:
    """It is done again; a pickle planted there is not opened."""
    store = JobStore(tmp_path)
    store.save(WHAT, 1, {"values": np.arange(1000.0)})
    path, data = store.path(WHAT, 1), bytearray(store.path(WHAT, 1).read_bytes())
    data[len(data) // 2] ^= 255
    evil = pickle.dumps(_Evil(str(tmp_path / "ran")))
    path.write_bytes({"cut": bytes(data[:500]), "flipped": bytes(data), "pickle": evil, "empty": b""}[damage])
    assert store.load(WHAT, 1) is None
    assert not (tmp_path / "ran").exists()


class _Evil:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)
