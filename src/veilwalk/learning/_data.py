"""Data sets by a line of text: bundled digits, IDX files (MNIST), npz archives, tables. Nothing is downloaded.

Features come out as float32, one flat row an example, as the file has them unless a scaling is asked for; labels as
whole numbers from 0 or, where they are real numbers to be fitted, as float32.
"""

from __future__ import annotations

import gzip
import math
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import IO, cast

import numpy as np
from numpy.typing import ArrayLike

from veilwalk.core import validate
from veilwalk.core.errors import InputFileError, InvalidParameterError
from veilwalk.core.randomness import task_generator
from veilwalk.learning._api import Array, Partition
from veilwalk.learning._labels import as_classes, checked_labels, is_real
from veilwalk.learning._scaling import Scaler, scale_data
from veilwalk.learning._table import parse_table_spec, read_arff, read_csv, read_parquet, roles

DATA_USAGE = "digits, mnist:DIR, npz:FILE, csv:FILE, arff:FILE or parquet:FILE with [:label=COLUMN], or ratings:FILE"
# A file that unpacks to more is refused before it is unpacked.
_LARGEST_BYTES = 8 << 30
_HELD_OUT = 0.2
# Whole numbers up to here are themselves in float32, as which rows are kept.
_MOST_TOKENS = 1 << 24
# Magic number and dimensions of what we read.
_IDX_KINDS = {"images": (0x803, 3), "labels": (0x801, 1)}
# A file that announces more is refused.
_LARGEST_IDX_BYTES = 4 << 30


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Data:
    """What is trained on and what is held out.

    Attributes:
        name: Where it comes from.
        train: Rows to be dealt out to nodes.
        test: Rows nobody trains on.
        columns: Further facts about each row of ``train`` by name (a writer, a hospital), for partitioners.
        class_names: What each class was called, in the order of their numbers; empty where nobody said.
        scaler: How features were scaled; it scales other rows alike.
        target_range: Least and largest real label, where labels were scaled by them to [0, 1].
        scaling_open: Whether a training run may still scale them: it does for the package's own learners.
        type_range: Least and largest value that the type of the features allows, where that is a byte.
        owner: Which feature says whose row it is (the user of a rating), where one does.
    """

    name: str
    train: Partition
    test: Partition
    columns: Mapping[str, Array] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()
    scaler: Scaler = field(default_factory=Scaler)
    target_range: tuple[float, float] | None = None
    scaling_open: bool = False
    type_range: tuple[float, float] | None = None
    owner: int | None = None

    @property
    def n_features(self) -> int:
        """Numbers in a row."""
        return int(self.train.features.shape[1])

    @property
    def is_regression(self) -> bool:
        """Whether labels are real numbers to be fitted, not classes."""
        return is_real(self.train.labels)

    @property
    def n_classes(self) -> int:
        """How many classes there are; 0 for regression."""
        if self.is_regression:
            return 0
        return len(self.class_names) or 1 + int(max(self.train.labels.max(), self.test.labels.max()))


def load_data(spec: str, *, seed: int = 0) -> Data:
    """Load what ``spec`` names.

    ``digits``
        1,797 images of 8x8 pixels, bundled: the test part of the Optical Recognition of Handwritten Digits data
        set, E. Alpaydin and C. Kaynak, UCI Machine Learning Repository (1998), doi:10.24432/C50P49, CC BY 4.0.
    ``mnist:DIR``
        The four IDX files of MNIST or Fashion-MNIST in a folder, gzipped or not.
    ``npz:FILE``
        Arrays ``x_train, y_train, x_test, y_test``, or ``features, labels``. An array named ``NAME_train`` (or
        ``NAME`` beside ``features``) with one entry a row becomes the column ``NAME``. Instead of ``features`` there
        may be ``tokens``, rows of whole numbers from 0, which stay what they are; they need no ``labels``.
    ``csv:FILE[:label=COLUMN]``, ``arff:FILE[:label=COLUMN]``, ``parquet:FILE[:label=COLUMN]``
        A table of numbers. Labels are the column named, or one called ``label``, or the last; ``target=COLUMN``
        instead fits the numbers there. ``group=COLUMN``, as often as need be, is no feature but a column for
        partitioners. Columns of a CSV file without names are called ``c1``, ``c2`` and so on.
    ``ratings:FILE``
        MovieLens' ``ratings.csv``: rows are a user's and an item's number, labels the ratings, for the learner
        ``factorisation``. Of every user's ratings 30% are held out; ``user`` is a column for partitioners.

    Behind any of them ``:only=A,B`` keeps these classes and ``:pool=P`` takes means of blocks of pixels, in the order
    given. Last comes ``:scale=``, of features and of real labels: ``none`` leaves them as they are; ``range`` brings
    them to [0, 1] by their least and largest value in the training part, bytes by 255; ``rows`` then standardises
    features and brings each row to length one. Where nothing is said, a training run scales by ``range`` for the
    package's own learners, and not at all for others. Pixels of ``digits`` and ``mnist`` always lie in [0, 1].

    Labels may be names or any whole numbers: classes are numbered from 0 in sorted order. Real numbers make it
    regression. Where no test part is given, a fifth drawn by ``seed`` is held out.
    """
    from veilwalk.learning._prepare import prepare_data, take_options

    bare, options = take_options(spec.strip())
    return prepare_data(_loaded(spec, bare, seed), options, spec)


def _loaded(spec: str, bare: str, seed: int) -> Data:
    """Load what ``bare`` names, without the options that ``spec`` has."""
    kind, _, rest = bare.partition(":")
    match kind:
        case "digits" if not rest:
            return _digits(seed)
        case "mnist" if rest:
            return _mnist(Path(rest))
        case "npz" if rest:
            return _npz(Path(rest), seed)
        case "csv" | "arff" | "parquet" if rest:
            return _table(spec, kind, rest, seed)
        case "ratings" if rest:
            from veilwalk.learning._ratings import read_ratings

            return read_ratings(Path(rest), seed=seed)
        case _:
            raise InvalidParameterError("data", spec, DATA_USAGE)


def data_of(
    features: ArrayLike,
    labels: ArrayLike,
    *,
    columns: Mapping[str, Array] | None = None,
    seed: int = 0,
    name: str = "arrays",
    scale: str | None = None,
) -> Data:
    """Return rows and labels that are in memory as :func:`load_data` would from a file; a fifth is held out."""
    given = np.asarray(labels)
    # Text in a table of pandas comes as objects.
    given = np.array(given.tolist()) if given.dtype == np.object_ else given
    rows = np.asarray(features)
    data = _split(name, checked_partition(name, rows, given), columns or {}, seed)
    data = replace(data, type_range=_type_range(rows))
    return data if scale is None else scale_data(data, scale)


def checked_partition(name: str, features: Array, labels: Array) -> Partition:
    """Return rows and labels as a partition, flat and float32; refuse what no learner could use.

    Labels come out as text, as whole numbers or, for regression, as real ones; classes are not numbered yet.
    """
    if features.ndim < 2 or labels.ndim != 1 or len(features) != len(labels):
        need = "one row of features for each label"
        raise InputFileError(f"{name}: features have shape {features.shape}, labels {labels.shape}: need {need}")
    if not len(labels):
        raise InputFileError(f"{name}: has no rows")
    if features.dtype.kind not in "biuf":
        raise InputFileError(f"{name}: features have type {features.dtype}: need numbers")
    flat = features.reshape(len(features), math.prod(features.shape[1:]))
    flat = flat.astype(np.float32)
    if not np.isfinite(flat).all():
        row = int(np.flatnonzero(~np.isfinite(flat).all(axis=1))[0])
        raise InputFileError(f"{name}: features of row {row} are not finite")
    return Partition(np.ascontiguousarray(flat), checked_labels(name, labels))


def require_fit(data: Partition, *, n_features: int, n_classes: int, name: str) -> None:
    """Refuse rows that a learner made for ``n_features`` and ``n_classes`` (0: real labels) could not be given.

    A node asks this of its own file when it starts: in its first update it would fail with the model in its hands.
    """
    rows, labels = data.features, data.labels
    if (
        rows.ndim != 2
        or labels.shape != (len(rows),)
        or rows.dtype.kind not in "biuf"
        or labels.dtype.kind not in "iuf"
    ):
        need = "rows of numbers with one number as label each"
        raise InputFileError(f"{name}: features have shape {rows.shape}, labels {labels.shape}: need {need}")
    if rows.shape[1] != n_features:
        raise InputFileError(f"{name}: rows have {rows.shape[1]} features: need {n_features}, as the learner was made")
    if n_classes and labels.dtype.kind == "f":
        raise InputFileError(f"{name}: labels have type {labels.dtype}: need whole numbers, classes from 0")
    bad = ~np.isfinite(rows).all(axis=1) | ~np.isfinite(labels)
    if bad.any():
        raise InputFileError(f"{name}: row {int(bad.argmax())} is not finite")
    unknown = (labels < 0) | (labels >= n_classes) if n_classes else np.zeros(0, dtype=np.bool_)
    if unknown.any():
        row = int(unknown.argmax())
        raise InputFileError(
            f"{name}: label {labels[row]} in row {row}: need 0 to {n_classes - 1}, the learner's classes"
        )


def _digits(seed: int) -> Data:
    with resources.files("veilwalk.learning").joinpath("digits.npz").open("rb") as stream:
        archive = np.load(stream, allow_pickle=False)
        pixels, labels = archive["pixels"], archive["labels"]
    # Pixels run from 0 to 16.
    rows = checked_partition("digits", pixels.astype(np.float32) / 16, labels)
    return _split("digits", rows, {}, seed)


def _type_range(*parts: Array) -> tuple[float, float] | None:
    """Return the least and the largest value that the type allows, where all parts are bytes."""
    return (0.0, 255.0) if all(part.dtype == np.uint8 for part in parts) else None


def _split(name: str, rows: Partition, columns: Mapping[str, Array], seed: int, *, scaling_open: bool = True) -> Data:
    """Hold out a fifth of the rows, drawn by ``seed``."""
    validate.at_least(5, rows=len(rows))
    order = task_generator(seed).permutation(len(rows))
    test, train = np.split(order, [round(_HELD_OUT * len(rows))])
    return _finished(
        Data(
            name=name,
            train=Partition(rows.features[train], rows.labels[train]),
            test=Partition(rows.features[test], rows.labels[test]),
            columns={key: column[train] for key, column in columns.items()},
            scaling_open=scaling_open,
        )
    )


def _finished(data: Data) -> Data:
    """Number the classes."""
    train, test = data.train.features, data.test.features
    if train.shape[1] != test.shape[1]:
        raise InputFileError(f"{data.name}: rows have {train.shape[1]} features in training, {test.shape[1]} in test")
    *labels, names = as_classes(data.name, data.train.labels, data.test.labels)
    return replace(data, train=Partition(train, labels[0]), test=Partition(test, labels[1]), class_names=names)


def _npz(path: Path, seed: int) -> Data:
    arrays = read_archive(path)
    if "tokens" in arrays:
        return _tokens(path, arrays.pop("tokens"), arrays, seed)
    if "features" in arrays:
        features, labels = arrays.pop("features"), _labels(path, arrays, "labels")
        return data_of(features, labels, columns=_columns(arrays, labels.size, ""), seed=seed, name=str(path))
    if "x_train" not in arrays or "x_test" not in arrays:
        need = "arrays x_train, y_train, x_test, y_test, or features, labels, or tokens"
        raise InputFileError(f"{path}: need {need}")
    test_rows, train_rows = arrays.pop("x_test"), arrays.pop("x_train")
    test = checked_partition(f"{path}, x_test", test_rows, _labels(path, arrays, "y_test"))
    train = checked_partition(f"{path}, x_train", train_rows, _labels(path, arrays, "y_train"))
    return _finished(
        Data(
            name=str(path),
            train=train,
            test=test,
            columns=_columns(arrays, len(train), "_train"),
            scaling_open=True,
            type_range=_type_range(train_rows, test_rows),
        )
    )


def _tokens(path: Path, tokens: Array, arrays: dict[str, Array], seed: int) -> Data:
    whole = tokens.ndim == 2 and tokens.dtype.kind in "iu" and tokens.size > 0
    if not whole or tokens.min() < 0 or tokens.max() >= _MOST_TOKENS:
        need = f"rows of whole numbers from 0 to below {_MOST_TOKENS}"
        raise InputFileError(f"{path}: tokens have shape {tokens.shape} and type {tokens.dtype}: need {need}")
    labels = arrays.pop("labels", np.zeros(len(tokens), dtype=np.int64))
    rows = checked_partition(str(path), tokens.astype(np.float32), labels)
    return _split(str(path), rows, _columns(arrays, len(rows), ""), seed, scaling_open=False)


def _table(spec: str, kind: str, rest: str, seed: int) -> Data:
    asked = parse_table_spec(spec, rest)
    read = {"csv": read_csv, "arff": read_arff, "parquet": read_parquet}[kind]
    features, labels, columns = roles(read(asked.file), asked)
    rows = checked_partition(str(asked.file), features, labels)
    if asked.target:
        rows = Partition(rows.features, labels.astype(np.float32))
    return _split(str(asked.file), rows, columns, seed)


def _columns(arrays: Mapping[str, Array], n_rows: int, ending: str) -> dict[str, Array]:
    return {
        name.removesuffix(ending): array
        for name, array in arrays.items()
        if name.endswith(ending) and array.shape == (n_rows,)
    }


def _labels(path: Path, arrays: dict[str, Array], name: str) -> Array:
    if name not in arrays:
        raise InputFileError(f"{path}: has no labels: need an array {name}")
    return arrays.pop(name)


def read_archive(path: Path) -> dict[str, Array]:
    """Return the arrays of an npz file; one that unpacks to too much is refused before it is unpacked."""
    try:
        with zipfile.ZipFile(path) as file:
            size = sum(entry.file_size for entry in file.infolist())
        if size <= _LARGEST_BYTES:
            with np.load(path, allow_pickle=False) as archive:
                # An entry that is no array comes back as bytes; as an array of text it fails the checks to come.
                return {name: np.asarray(archive[name]) for name in archive.files}
    except OSError as error:
        raise InputFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise InputFileError(f"{path}: is not an npz archive of plain arrays") from error
    raise InputFileError(f"{path}: unpacks to {size >> 20} MiB: need at most {_LARGEST_BYTES >> 20}")


def _mnist(folder: Path) -> Data:
    if not folder.is_dir():
        raise InputFileError(f"{folder}: no such folder")
    parts = {}
    for part, start in (("train", "train"), ("test", "t10k")):
        images, labels = (read_idx(find_idx(folder, start, what), what) for what in ("images", "labels"))
        # Pixels run from 0 to 255.
        parts[part] = checked_partition(f"{folder}, {part}", images / np.float32(255), labels)
    return _finished(Data(name=str(folder), train=parts["train"], test=parts["test"], scaling_open=True))


def find_idx(folder: Path, start: str, what: str) -> Path:
    """Return the file of ``what`` (images or labels) in ``folder``, gzipped or not, under either common name."""
    ending = f"idx{_IDX_KINDS[what][1]}-ubyte"
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
    magic, dimensions = _IDX_KINDS[what]
    start = stream.read(4 + 4 * dimensions)
    if len(start) != 4 + 4 * dimensions or int.from_bytes(start[:4], "big") != magic:
        raise InputFileError(f"{path}: is not an IDX file of {what}")
    shape = tuple(int(length) for length in np.frombuffer(start, dtype=">u4")[1:])
    size = math.prod(shape)
    if size > _LARGEST_IDX_BYTES:
        raise InputFileError(f"{path}: its header announces {size} bytes: need at most {_LARGEST_IDX_BYTES}")
    # One byte more than announced shows a packed file that is too long.
    fits = file_bytes is None or file_bytes == size + len(start)
    body = stream.read(size + 1) if fits else b""
    if not fits or len(body) != size:
        raise InputFileError(f"{path}: is cut short or too long: its header announces {shape}")
    return np.frombuffer(body, dtype=np.uint8).reshape(shape)
