"""Data sets by a line of text: bundled digits, IDX files (MNIST, Fashion-MNIST), npz archives. Nothing is downloaded.

Features come out as float32 in [0, 1], one flat row an example; labels as whole numbers from 0.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

import numpy as np

from veilwalk.core import validate
from veilwalk.core.errors import InputFileError, InvalidParameterError
from veilwalk.core.randomness import task_generator
from veilwalk.learning._api import Array, Partition
from veilwalk.learning._idx import find_idx, read_idx

DATA_USAGE = "digits, mnist:DIR or npz:FILE"
# A file that unpacks to more is refused before it is unpacked.
_LARGEST_BYTES = 8 << 30
_HELD_OUT = 0.2


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Data:
    """What is trained on and what is held out.

    ``columns`` holds further facts about each row of ``train`` by name (a writer, a hospital), for partitioners.
    """

    name: str
    train: Partition
    test: Partition
    columns: Mapping[str, Array] = field(default_factory=dict)

    @property
    def n_features(self) -> int:
        """Numbers in a row."""
        return int(self.train.features.shape[1])

    @property
    def n_classes(self) -> int:
        """One more than the largest label."""
        return 1 + int(max(self.train.labels.max(), self.test.labels.max()))


def load_data(spec: str, *, seed: int = 0) -> Data:
    """Load what ``spec`` names.

    ``digits``
        1,797 images of 8x8 pixels, bundled: the test part of the Optical Recognition of Handwritten Digits data
        set, E. Alpaydin and C. Kaynak, UCI Machine Learning Repository (1998), doi:10.24432/C50P49, CC BY 4.0.
    ``mnist:DIR``
        The four IDX files of MNIST or Fashion-MNIST in a folder, gzipped or not.
    ``npz:FILE``
        Arrays ``x_train, y_train, x_test, y_test``, or ``features, labels``. An array named ``NAME_train`` (or
        ``NAME`` beside ``features``) with one entry a row becomes the column ``NAME``.

    Where no test part is given, a fifth drawn by ``seed`` is held out. Whole-number pixels of one byte are divided
    by 255; other features outside [0, 1] are scaled each by its least and largest value in the training part.
    """
    kind, _, rest = spec.strip().partition(":")
    match kind:
        case "digits" if not rest:
            return _digits(seed)
        case "mnist" if rest:
            return _mnist(Path(rest))
        case "npz" if rest:
            return _npz(Path(rest), seed)
        case _:
            raise InvalidParameterError("data", spec, DATA_USAGE)


def checked_partition(name: str, features: Array, labels: Array) -> Partition:
    """Return rows and labels as a partition, flat and float32; refuse what no learner could use."""
    if features.ndim < 2 or labels.ndim != 1 or len(features) != len(labels):
        need = "one row of features for each label"
        raise InputFileError(f"{name}: features have shape {features.shape}, labels {labels.shape}: need {need}")
    if not len(labels):
        raise InputFileError(f"{name}: has no rows")
    if features.dtype.kind not in "biuf":
        raise InputFileError(f"{name}: features have type {features.dtype}: need numbers")
    flat = features.reshape(len(features), math.prod(features.shape[1:]))
    flat = flat / np.float32(255) if flat.dtype == np.uint8 else flat.astype(np.float32)
    if not np.isfinite(flat).all():
        row = int(np.flatnonzero(~np.isfinite(flat).all(axis=1))[0])
        raise InputFileError(f"{name}: features of row {row} are not finite")
    return Partition(np.ascontiguousarray(flat), _checked_labels(name, labels))


def _checked_labels(name: str, labels: Array) -> Array:
    whole = labels.dtype.kind in "iu" or (labels.dtype.kind == "f" and bool(np.all(labels == np.floor(labels))))
    if not whole:
        raise InputFileError(f"{name}: labels are missing or of type {labels.dtype}: need whole numbers from 0")
    low, high = labels.min(), labels.max()
    if low < 0 or high >= max(len(labels), 2):
        raise InputFileError(f"{name}: labels run from {low} to {high}: need 0 to fewer than the {len(labels)} rows")
    return labels.astype(np.int64)


def _digits(seed: int) -> Data:
    with resources.files("veilwalk.learning").joinpath("digits.npz").open("rb") as stream:
        archive = np.load(stream, allow_pickle=False)
        pixels, labels = archive["pixels"], archive["labels"]
    # Pixels run from 0 to 16.
    rows = checked_partition("digits", pixels.astype(np.float32) / 16, labels)
    return _split("digits", rows, {}, seed)


def _split(name: str, rows: Partition, columns: Mapping[str, Array], seed: int) -> Data:
    """Hold out a fifth of the rows, drawn by ``seed``."""
    validate.at_least(5, rows=len(rows))
    order = task_generator(seed).permutation(len(rows))
    test, train = np.split(order, [round(_HELD_OUT * len(rows))])
    return _scaled(
        Data(
            name=name,
            train=Partition(rows.features[train], rows.labels[train]),
            test=Partition(rows.features[test], rows.labels[test]),
            columns={key: column[train] for key, column in columns.items()},
        )
    )


def _scaled(data: Data) -> Data:
    """Bring features into [0, 1] by the range of the training part, where they are not there already."""
    train, test = data.train.features, data.test.features
    if train.shape[1] != test.shape[1]:
        raise InputFileError(f"{data.name}: rows have {train.shape[1]} features in training, {test.shape[1]} in test")
    if min(train.min(), test.min()) >= 0 and max(train.max(), test.max()) <= 1:
        return data
    low, high = train.min(axis=0), train.max(axis=0)
    width = np.where(high > low, high - low, np.float32(1))
    scaled = [Partition(np.clip((part.features - low) / width, 0, 1), part.labels) for part in (data.train, data.test)]
    return Data(name=data.name, train=scaled[0], test=scaled[1], columns=data.columns)


def _npz(path: Path, seed: int) -> Data:
    arrays = _archive(path)
    if "features" in arrays:
        rows = checked_partition(str(path), arrays.pop("features"), _labels(path, arrays, "labels"))
        return _split(str(path), rows, _columns(arrays, len(rows), ""), seed)
    if "x_train" not in arrays or "x_test" not in arrays:
        raise InputFileError(f"{path}: need arrays x_train, y_train, x_test, y_test, or features, labels")
    test = checked_partition(f"{path}, x_test", arrays.pop("x_test"), _labels(path, arrays, "y_test"))
    train = checked_partition(f"{path}, x_train", arrays.pop("x_train"), _labels(path, arrays, "y_train"))
    columns = _columns(arrays, len(train), "_train")
    return _scaled(Data(name=str(path), train=train, test=test, columns=columns))


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


def _archive(path: Path) -> dict[str, Array]:
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
        parts[part] = checked_partition(f"{folder}, {part}", images, labels)
    return _scaled(Data(name=str(folder), train=parts["train"], test=parts["test"]))
