"""Validation, supports, records, random sources."""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path

import numpy as np
import pytest

from veilwalk.core import errors, validate
from veilwalk.core.errors import InvalidParameterError, RecordError, VeilwalkError
from veilwalk.core.randomness import task_generator
from veilwalk.core.records import Record, write_atomically
from veilwalk.core.support import DistanceSupport


def test_checks_name_the_parameter_its_value_and_the_need() -> None:
    """The message is built from the caller's own keyword."""
    with pytest.raises(InvalidParameterError) as caught:
        validate.at_least(3, degree=2)
    assert str(caught.value) == "degree = 2: must be >= 3"


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (lambda x: validate.at_least(1, x=x), math.nan),
        (lambda x: validate.more_than(1, x=x), 1),
        (lambda x: validate.more_than(1, x=x), math.nan),
        (lambda x: validate.finite(x=x), math.inf),
        (lambda x: validate.finite(x=x), math.nan),
        (lambda x: validate.probability(x=x), 1.0),
        (lambda x: validate.probability(x=x), math.nan),
        (lambda x: validate.integer(x=x), 1.0),
        (lambda x: validate.integer(x=x), True),
    ],
)
def test_checks_refuse(check: object, value: float) -> None:
    """Ends excluded where they should be, and NaN everywhere."""
    assert callable(check)
    with pytest.raises(InvalidParameterError, match="x = "):
        check(value)


def test_checks_accept_what_is_in_range() -> None:
    """NumPy integers are whole numbers too."""
    validate.integer(x=np.int64(3))
    validate.at_least(3, x=3)
    validate.more_than(2, x=3)
    validate.finite(x=3.5)
    validate.probability(x=0.5)


def test_every_error_is_ours_with_a_documented_exit_code() -> None:
    """And says so in the module's docstring."""
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, VeilwalkError)]
    assert len(classes) > 5
    for cls in classes:
        assert cls.exit_code in {1, 2, 3, 4, 70}
        assert cls.__name__ in (errors.__doc__ or "")


def test_supports_parse_and_refuse() -> None:
    """LO:HI with 2 <= LO <= HI; neighbours only on purpose."""
    support = DistanceSupport.parse("2:6")
    assert (support.size, str(support), list(support.distances)) == (5, "2:6", [2, 3, 4, 5, 6])
    assert DistanceSupport.parse("1:3", allow_neighbours=True).lo == 1
    for text in ("1:3", "3:2", "2", "a:b", "2:6:8", "-2:3", "2.5:6"):
        with pytest.raises(InvalidParameterError, match="support"):
            DistanceSupport.parse(text)
    with pytest.raises(InvalidParameterError, match="support"):
        DistanceSupport(0, 3, allow_neighbours=True)


def test_records_are_plain_and_refuse_nan() -> None:
    """Arrays become lists, infinities null; NaN would pass for a number."""
    record = Record(kind="k", params={"a": np.float64(1.5)}, seed=3, result={"x": np.array([1.0, math.inf])})
    content = json.loads(record.to_json())
    assert content["params"] == {"a": 1.5}
    assert content["x"] == [1.0, None]
    with pytest.raises(RecordError, match="NaN"):
        Record(kind="k", params={}, result={"x": math.nan}).to_json()


def test_writing_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails half-way leaves the old file and no debris."""
    path = tmp_path / "deep" / "file"
    write_atomically(path, b"old")

    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(RecordError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in path.parent.iterdir()] == ["file"]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_who_may_read_what_is_written_is_the_users_affair(tmp_path: Path, umask: int, mode: int) -> None:
    """As of any new file: a model written under a strict umask is nobody else's."""
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "model.npz", b"arrays")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "model.npz").stat().st_mode) == mode


def test_tasks_have_their_own_streams() -> None:
    """Named by seed and task: repeatable, and different from each other."""
    draws = {key: task_generator(*key).integers(2**60) for key in ((1, 0), (1, 1), (2, 0), (1, 0, 0))}
    assert len(set(draws.values())) == 4
    assert task_generator(1, 0).integers(2**60) == draws[1, 0]
    for seed in (-1, 0.5):
        with pytest.raises(InvalidParameterError, match="seed"):
            task_generator(seed)  # type: ignore[arg-type]
