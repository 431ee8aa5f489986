"""CSV and Parquet: which column is what, and one line for every cell that is not what it should be."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from veilwalk.core.errors import ConfigError, InputFileError, InvalidParameterError
from veilwalk.graphs import parse_graph_spec
from veilwalk.learning import load_data, make_partitions, parse_partition_spec


def write(folder: Path, text: str) -> str:
    (folder / "mine.csv").write_text(text)
    return f"csv:{folder / 'mine.csv'}"


def rows(count: int, line: str) -> str:
    """Lines with their number in place of N, and their number modulo 2 and 3 in place of A and B."""
    return "".join(
        line.replace("N", str(n)).replace("A", "ab"[n % 2]).replace("B", str(n % 3)) + "\n" for n in range(count)
    )


def test_ids_too_long_for_a_double_stay_apart(tmp_path: Path) -> None:
    """Neighbouring ids of 18 digits are one double: as groups they would be one owner, as labels one class."""
    ids = [100_000_000_000_000_001 + row % 2 for row in range(40)]
    spec = write(tmp_path, "x,owner\n" + "".join(f"{row % 7},{one}\n" for row, one in enumerate(ids)))
    labelled = load_data(f"{spec}:label=owner")
    assert labelled.class_names == ("100000000000000001", "100000000000000002")
    more = write(tmp_path, "x,owner,label\n" + "".join(f"{row % 7},{one},{row % 3}\n" for row, one in enumerate(ids)))
    assert len(np.unique(load_data(f"{more}:group=owner").columns["owner"])) == 2


def test_names_labels_groups_and_numbers(tmp_path: Path) -> None:
    """Text labels become classes; a group is a column and no feature; rows stay together."""
    spec = write(tmp_path, "hospital,age,kind\n" + rows(30, "hB,N,A"))
    data = load_data(f"{spec}:label=kind:group=hospital:scale=range", seed=1)
    assert (data.n_features, data.class_names, len(data.train), len(data.test)) == (1, ("a", "b"), 24, 6)
    assert data.scaler.feature_range is not None
    low, high = data.scaler.feature_range
    ages = np.rint(data.train.features[:, 0] * (high - low) + low).astype(int)
    assert np.array_equal(ages % 2, data.train.labels)
    assert data.columns["hospital"].tolist() == [f"h{age % 3}" for age in ages]
    parts = make_partitions(parse_partition_spec("natural:hospital", graph=parse_graph_spec("ring:3"), seed=0), data)
    assert [set(np.rint(p.features[:, 0] * (high - low) + low).astype(int) % 3) for p in parts] == [{0}, {1}, {2}]


@pytest.mark.parametrize(
    ("text", "options", "label"),
    [
        ("x,label,y\n" + rows(9, "N,B,0.5"), "", "label"),
        ("x,y,z\n" + rows(9, "N,0.5,B"), "", "the last"),
        ("x;y;z\n" + rows(9, "N;B;0.5"), ":label=y", "y"),
        ("x\ty\tz\r\n" + rows(9, "N\tB\t0.5"), ":label=y", "y"),
        ("﻿x,y,z\n\n" + rows(9, 'N,"B",0.5\n'), ":label=y", "y, with a mark of byte order and empty lines"),
        (rows(9, "N,0.5,B"), "", "the last, without a line of names"),
        (rows(9, "N,B,0.5"), ":label=c2", "c2, by the name it gets"),
        ("x, y ,z\n" + rows(9, "N, B, 0.5"), ":label=y", "y, with blanks about"),
    ],
)
def test_the_label_is_found(tmp_path: Path, text: str, options: str, label: str) -> None:
    """By name, as the column called label, or as the last."""
    data = load_data(write(tmp_path, text) + options)
    assert (data.n_features, data.class_names) == (2, ("0", "1", "2")), label
    assert len(data.train) + len(data.test) == 9


def test_a_first_line_that_is_a_row_stays_one(tmp_path: Path) -> None:
    """Names of classes in it make no line of names of it."""
    data = load_data(write(tmp_path, rows(10, "N,N,A")))
    assert (len(data.train) + len(data.test), data.class_names) == (10, ("a", "b"))


def test_numbers_of_classes_are_sorted_as_numbers(tmp_path: Path) -> None:
    """10 comes after 9."""
    data = load_data(write(tmp_path, "x,y\n" + "".join(f"{n},{8 + n % 3}\n" for n in range(30))))
    assert data.class_names == ("8", "9", "10")


def test_targets_are_fitted_even_where_all_are_whole(tmp_path: Path) -> None:
    """A price is no class; real numbers need not be told apart."""
    spec = write(tmp_path, "x,price\n" + rows(10, "0,N"))
    assert load_data(f"{spec}:label=price").n_classes == 10
    data = load_data(f"{spec}:target=price:scale=range")
    assert data.is_regression
    assert data.target_range is not None
    assert load_data(write(tmp_path, "x,price\n" + rows(10, "0,N.5"))).is_regression


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("x,y\n1,0\nred,1\n", "", ", line 3, column x: 'red' is not a number; a column that only groups rows"),
        ("x,y\n1,0\n,1\n", "", ", line 3, column x: is missing"),
        ("x,y\n1,0\n2,\n", "", ", line 3, column y: is missing"),
        ("x,y\n1,0\nnan,1\n", "", ", line 3, column x: nan is not a finite number"),
        ('x,y\n1,"a\nb"\ninf,c\n', "", ", line 4, column x: inf is not a finite number"),
        ("x,y\n1,0\n2\n", "", ", line 3: has 1 columns, line 1 has 2"),
        ("x,y\n1,0\n2,n/a\n", ":target=y", ", line 3, column y: 'n/a' is not a number$"),
        ("x,y\n1,0\n", ":label=z", ": has no column z: it has x, y"),
        ("x,y\n1,0\n", ":group=z", ": has no column z: it has x, y"),
        ("x,y\n1,0\n", ":label=x:group=x", ": column x cannot be both label and group"),
        ("x,y\n1,0\n", ":group=x", ": has no features beside the column y"),
        (",y\n1,0\n", "", ", line 1: column 1 has no name"),
        ("x,x\n1,0\n", "", ", line 1: two columns are called x"),
        ("x,y\n", "", ": has no rows"),
        ("", "", ": has no rows"),
        ('x,y\n"1,0\n', "", ": is not a CSV file in UTF-8"),
        ("x,id\n" + rows(60, "0,N"), "", ": labels have 60 different values in 60 rows"),
    ],
)
def test_what_is_wrong_is_named_by_file_line_and_column(tmp_path: Path, text: str, options: str, says: str) -> None:
    """In one line."""
    with pytest.raises(InputFileError, match=f"mine.csv{says}") as caught:
        load_data(write(tmp_path, text) + options)
    assert "\n" not in str(caught.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    """Missing, or of bytes."""
    with pytest.raises(InputFileError, match="No such file"):
        load_data(f"csv:{tmp_path / 'none.csv'}")
    (tmp_path / "bytes.csv").write_bytes(b"x,y\n\xff\xfe,1\n")
    with pytest.raises(InputFileError, match="is not a CSV file"):
        load_data(f"csv:{tmp_path / 'bytes.csv'}")


@pytest.mark.parametrize("options", ["lable=y", "label=", "label=x:label=y", "label=x:target=y"])
def test_options_that_are_none_are_refused(options: str) -> None:
    """With those there are."""
    with pytest.raises(InvalidParameterError, match=r"^data = 'csv:mine.csv"):
        load_data(f"csv:mine.csv:{options}")


def test_parquet_without_pyarrow_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, with the command."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"pip install 'veilwalk\[parquet\]'"):
        load_data("parquet:mine.parquet")


def test_parquet_is_read_as_csv_is(tmp_path: Path) -> None:
    """Text, numbers and groups; a missing cell is named."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    spec = write(tmp_path, "hospital,age,kind\n" + rows(30, "hB,N,A"))
    columns: dict[str, list[object]] = {
        "hospital": [f"h{n % 3}" for n in range(30)],
        "age": list(range(30)),
        "kind": ["ab"[n % 2] for n in range(30)],
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "mine.parquet")
    ours, theirs = (
        load_data(f"{start}:label=kind:group=hospital") for start in (spec, f"parquet:{tmp_path / 'mine.parquet'}")
    )
    assert np.array_equal(ours.train.features, theirs.train.features)
    assert np.array_equal(ours.train.labels, theirs.train.labels)
    assert np.array_equal(ours.columns["hospital"], theirs.columns["hospital"])
    assert ours.class_names == theirs.class_names
    columns["age"] = [None if n == 3 else n for n in range(30)]
    parquet.write_table(pyarrow.table(columns), tmp_path / "mine.parquet")
    with pytest.raises(InputFileError, match="row 3, column age: is missing"):
        load_data(f"parquet:{tmp_path / 'mine.parquet'}")
    (tmp_path / "mine.parquet").write_text("hello")
    with pytest.raises(InputFileError, match="cannot be read"):
        load_data(f"parquet:{tmp_path / 'mine.parquet'}")
