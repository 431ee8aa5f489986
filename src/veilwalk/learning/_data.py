"""Loads and scales data sets: bundled digits, IDX files (MNIST), npz archives, tables; one file, or one file a site.

Features come out as float32, one flat row an example, as the file has them unless a scaling is asked for; labels as
whole numbers from 0 or, where they are real numbers to be fitted, as float32. Nothing is downloaded.
"""

from __future__ import annotations

import glob
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from veilwalk.core.arrays import IntArray
from veilwalk.core.errors import InputFileError, InvalidParameterError
from veilwalk.core.randomness import task_generator
from veilwalk.core.spec import Spec
from veilwalk.learning._contract import Array, Partition
from veilwalk.learning._features import FEATURES, image_side, scatter
from veilwalk.learning._files import WHOLE, RawRows, read_rows

DATA_USAGE = (
    "digits, mnist:DIR, npz:FILE, or csv:FILE or parquet:FILE with [:label=COLUMN]; "
    "a folder or a pattern instead of FILE holds one file a site"
)
#: The column that names the site of each row, where data come as one file a site.
SITE = "site"
_TABLES = ("csv", "parquet")
_FILES = (*_TABLES, "npz")
_HELD_OUT = 0.2
_FEWEST_ROWS = 5
_SITE_TASK = 0x73697465
# More different labels than this, and than half the rows, are no classes but ids or amounts.
_MANY_CLASSES = 20
_SCALES = ("none", "range")
_LARGEST_BYTE = np.float32(255)
Ends = tuple[Array, Array]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Scaler:
    """How the features of a training part were scaled.

    Attributes:
        feature_range: Least and largest value of each feature. They become 0 and 1, and values beyond are cut off.
        features: ``scatter`` where rows are the scattering of images.
    """

    feature_range: Ends | None = None
    features: str = "none"

    @property
    def kind(self) -> str:
        """``range``, or ``none`` where rows stay as they are."""
        return "none" if self.feature_range is None else "range"

    def apply(self, rows: Array) -> Array:
        """Return rows scaled."""
        rows = scatter(rows) if self.features == "scatter" else rows
        return rows if self.feature_range is None else np.clip(_to_unit(rows, self.feature_range), 0, 1)

    def to_facts(self) -> dict[str, Any]:
        """Return what a record keeps; :meth:`from_facts` reads it."""
        ends = {} if self.feature_range is None else {"feature_range": self.feature_range}
        return ends if self.features == "none" else ends | {"feature_kind": self.features}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """Return the scaler that a record keeps among what it says of the data."""
        features = facts.get("feature_kind", "none")
        if not (ends := facts.get("feature_range")):
            return cls(features=features)
        low, high = (np.asarray(end, dtype=np.float32) for end in ends)
        return cls(feature_range=(low, high), features=features)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Sites:
    """Sites that bring their own rows.

    Attributes:
        names: Of the sites: the stems of their files, or keys.
        test: Number of the site of each held-out row.
        is_named: Whether names are the sites' own; sites of a list have numbers only.
    """

    names: tuple[str, ...]
    test: IntArray
    is_named: bool = True


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Data:
    """Rows to train on, and rows that are held out.

    Attributes:
        name: Where it comes from.
        train: Rows to be dealt out to nodes.
        test: Rows nobody trains on.
        columns: Further facts about each row of ``train`` by name (a writer, a hospital), for partitioners.
        class_names: What each class was called, in the order of their numbers; empty where nobody said.
        scaler: How features were scaled; it scales other rows alike.
        target_range: Least and largest real label, where labels were scaled by them to [0, 1].
        scaling_open: Whether a training run may still scale them: it does for the package's own learners.
        is_bytes: Whether the features are bytes, whose range their type says.
        is_image: Whether rows are square images, and nobody has chosen features of them.
        sites: The sites that rows come from, where each brings its own; ``columns`` then has ``site``.
        has_labels: Whether labels mean anything; tokens may have none.
    """

    name: str
    train: Partition
    test: Partition
    columns: Mapping[str, Array] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()
    scaler: Scaler = field(default_factory=Scaler)
    target_range: tuple[float, float] | None = None
    scaling_open: bool = False
    is_bytes: bool = False
    is_image: bool = False
    sites: Sites | None = None
    has_labels: bool = True

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

    @property
    def commonest_class_share(self) -> float | None:
        """Share of held-out rows of the commonest training class; None for regression, or without labels."""
        if not self.n_classes or not self.has_labels or not len(self.test):
            return None
        return baseline_score(self.train.labels, self.test.labels)

    @property
    def class_remark(self) -> str:
        """A line that says that all labels are of one class; empty where they are not."""
        if self.n_classes != 1 or not self.has_labels:
            return ""
        return f"all labels are of one class, {(*self.class_names, '0')[0]}: a model can learn nothing from them"


def load_data(spec: str, *, seed: int = 0) -> Data:
    """Load what ``spec`` names.

    ``digits``
        1,797 images of 8x8 pixels, bundled: the test part of the Optical Recognition of Handwritten Digits data
        set, E. Alpaydin and C. Kaynak, UCI Machine Learning Repository (1998), doi:10.24432/C50P49, CC BY 4.0.
    ``mnist:DIR``
        The four IDX files of MNIST or Fashion-MNIST in a folder, gzipped or not.
    ``npz:FILE``
        Arrays ``x_train, y_train, x_test, y_test``, or ``features, labels``, or ``tokens``: rows of whole numbers from
        0, which are never scaled and need no labels. ``NAME_train`` (or ``NAME``) with one entry a row is a column.
    ``csv:FILE``, ``parquet:FILE``
        A table of numbers. Labels are the column ``:label=COLUMN``, or ``label``, or the last; ``:target=COLUMN`` fits
        numbers instead. ``:group=COLUMN`` is a column for partitioners. Columns without names are ``c1``, ``c2``, ...

    A folder, or a pattern such as ``csv:sites/*.csv``, holds one file a site: the stem of a file names the site.
    Behind any of them ``:scale=`` scales as :func:`scale_data` says; a training run does it where it is left out.
    ``:features=scatter`` replaces square images by their scattering (:func:`scatter_data`).

    Labels may be names or any whole numbers: classes are numbered from 0 in sorted order. Real numbers make it
    regression. Where no test part is given, a fifth drawn by ``seed`` is held out, of each site where there are some.
    """
    parsed = _parse_spec(spec)
    sites = _find_sites(parsed)
    files = {parsed.argument: Path(parsed.argument)} if sites is None else sites
    rows = {stem: read_rows(parsed, str(file)) for stem, file in files.items()}
    name, scale = parsed.argument or parsed.name, parsed.option("scale")
    is_target = parsed.option("target") is not None
    data = _assemble(name, rows, seed, is_target=is_target, by_site=sites is not None, scale=None)
    if features := parsed.option("features"):
        data = scatter_data(data) if features == "scatter" else replace(data, is_image=False)
    return data if scale is None else scale_data(data, scale)


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
    return _assemble(name, {name: _read_pair(name, (features, labels), columns or {})}, seed, scale=scale)


def data_of_sites(
    sites: Mapping[str, tuple[ArrayLike, ArrayLike]] | Sequence[tuple[ArrayLike, ArrayLike]],
    *,
    seed: int = 0,
    scale: str | None = None,
) -> Data:
    """Return several sites, by name or in the order of nodes, as one data set; a fifth of each is held out."""
    is_named, width = isinstance(sites, Mapping), len(str(len(sites)))
    pairs = dict(sites) if isinstance(sites, Mapping) else {f"{k:0{width}}": pair for k, pair in enumerate(sites)}
    rows = {str(name): _read_pair(f"site {name}", pair, {}) for name, pair in pairs.items()}
    return _assemble("arrays", dict(sorted(rows.items())), seed, by_site=True, is_named=is_named, scale=scale)


def load_rows(
    spec: str, *, n_features: int, seed: int = 0, scaler: Scaler | None = None, trained_on: str = ""
) -> tuple[Array, Array | None]:
    """Return rows for a model of so many features, and their labels where the file has any.

    A file gives all its rows; ``digits``, ``mnist:DIR`` and an archive with ``x_test`` give the test part, held out by
    the ``seed`` of the run. The ``scaler`` is that of the model's training rows; None takes rows as they are. A table
    that says nothing of its columns has the labels and groups of ``trained_on``, the spec of those rows.

    Raises:
        InvalidParameterError: The spec names no such rows, or asks for another scaling than the model had.
    """
    parsed, scaler = _parse_spec(spec), scaler or Scaler()
    if parsed.option("scale") not in {None, scaler.kind}:
        raise parsed.refuse(f"with scale={scaler.kind}, as in training, or without scale=")
    if parsed.option("features") not in {None, scaler.features}:
        raise parsed.refuse(f"with features={scaler.features}, as in training, or without features=")
    files = _find_sites(parsed) or {"": Path(parsed.argument)}
    is_open = parsed.name in _TABLES and not parsed.options
    like = Spec.parse(trained_on, parameter="data", files=_FILES) if is_open else None
    raw = [read_rows(parsed, str(file), n_features=n_features, like=like) for file in files.values()]
    if parsed.name not in _FILES:
        test = _assemble(parsed.name, {parsed.name: raw[0]}, seed).test
        return scaler.apply(test.features), test.labels
    pairs = [rows.test or (rows.features, rows.labels) for rows in raw]
    has_labels = all(labels is not None for _, labels in pairs)
    parts = [
        check_rows(rows.name, features, labels if has_labels else None)
        for rows, (features, labels) in zip(raw, pairs, strict=True)
    ]
    rows = join_parts(parts)
    # Another width is refused by name where the model is known.
    is_fit = rows.features.shape[1] == n_features or (scaler.features == "scatter" and image_side(rows.features) > 0)
    features = scaler.apply(rows.features) if is_fit else rows.features
    return features, rows.labels if has_labels else None


def _parse_spec(text: str) -> Spec:
    """Return a parsed specification of data; refuse an unknown name, option, or file that is missing in it."""
    spec = Spec.parse(text, parameter="data", files=(*_FILES, "mnist"))
    if spec.name not in {"digits", "mnist", *_FILES} or bool(spec.argument) == (spec.name == "digits"):
        raise spec.refuse(DATA_USAGE)
    spec.require_options((*(("label", "target", "group") if spec.name in _TABLES else ()), "scale", "features"))
    if (features := spec.option("features")) not in {None, *FEATURES}:
        raise spec.refuse(f"with features= one of {', '.join(FEATURES)} (not {features!r})")
    if spec.option("label") and spec.option("target"):
        raise spec.refuse("given one label or one target")
    if (kind := spec.option("scale")) not in {None, *_SCALES}:
        raise spec.refuse(f"with scale= one of {', '.join(_SCALES)} (not {kind!r})")
    return spec


def _find_sites(spec: Spec) -> dict[str, Path] | None:
    """Return the file of each site by its stem, in sorted order; None where the argument is one file."""
    if spec.name not in _FILES:
        return None
    path = Path(spec.argument)
    if path.is_dir():
        files = [file for file in path.iterdir() if file.suffix == f".{spec.name}"]
    elif glob.has_magic(spec.argument) and not path.exists():
        files = [Path(name) for name in glob.glob(spec.argument)]  # noqa: PTH207 - a pattern may be absolute
    else:
        return None
    if len(files) < 2:
        raise spec.refuse(f"a folder or pattern of two or more .{spec.name} files, one a site (not {len(files)})")
    by_stem: dict[str, Path] = {}
    for file in sorted(files):
        if file.stem in by_stem:
            raise InputFileError(f"{file}: {by_stem[file.stem]} names the same site, {file.stem}")
        by_stem[file.stem] = file
    return dict(sorted(by_stem.items()))


def _read_pair(name: str, pair: Sequence[ArrayLike], columns: Mapping[str, Array]) -> RawRows:
    """Return features and labels that are in memory; text in a table of pandas comes as objects."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise InvalidParameterError("data", f"{name}: {type(pair).__name__}", "a pair of features and labels")
    labels = np.asarray(pair[1])
    labels = np.array(labels.tolist()) if labels.dtype == np.object_ else labels
    return RawRows(name=name, features=np.asarray(pair[0]), labels=labels, columns=columns)


def _assemble(
    name: str,
    rows: Mapping[str, RawRows],
    seed: int,
    *,
    is_target: bool = False,
    by_site: bool = False,
    is_named: bool = True,
    scale: str | None = None,
) -> Data:
    """Return the rows of one file or of all sites as data: classes numbered, a fifth held out."""
    if by_site and len(rows) < 2:
        raise InvalidParameterError("data", f"{len(rows)} sites", "two sites or more")
    parts: list[tuple[Partition, Partition, IntArray]] = []
    spelling: dict[str, str] = {}
    first = next(iter(rows.values()))
    for site, raw in rows.items():
        stream = (seed, _SITE_TASK, zlib.crc32(site.encode())) if by_site else (seed,)
        parts.append(_hold_out(raw, task_generator(*stream), is_target=is_target))
        if by_site:
            _check_site(raw, parts[-1][0], first, parts[0][0], spelling)
    train, test = join_parts([part[0] for part in parts]), join_parts([part[1] for part in parts])
    of_train, of_test = (np.repeat(np.arange(len(rows)), [len(part[k]) for part in parts]) for k in range(2))
    if by_site:
        columns = {SITE: np.array([*rows])[of_train]}
    else:
        whole = {key: column for key, column in first.columns.items() if column.shape == (len(first.features),)}
        columns = {key: column[parts[0][2]] for key, column in whole.items()}
    if train.features.shape[1] != test.features.shape[1]:
        widths = f"{train.features.shape[1]} features in training, {test.features.shape[1]} in test"
        raise InputFileError(f"{name}: rows have {widths}")
    *labels, names = number_classes(name, train.labels, test.labels)
    is_token = any(raw.is_token for raw in rows.values())
    bytes_only = all(part.dtype == np.uint8 for raw in rows.values() for part in (raw.features, *(raw.test or ())[:1]))
    data = Data(
        name=name,
        train=Partition(train.features, labels[0]),
        test=Partition(test.features, labels[1]),
        columns=columns,
        class_names=names,
        # Digits and MNIST lie in [0, 1]: scaling them by their range changes nothing.
        scaling_open=not is_token,
        is_bytes=bytes_only and not is_token,
        is_image=not is_token and all(raw.is_image for raw in rows.values()) and image_side(train.features) > 0,
        sites=Sites(names=(*rows,), test=of_test, is_named=is_named) if by_site else None,
        has_labels=all(raw.labels is not None for raw in rows.values()),
    )
    return data if scale is None else scale_data(data, scale)


def _hold_out(raw: RawRows, rng: np.random.Generator, *, is_target: bool) -> tuple[Partition, Partition, IntArray]:
    """Return the training and the held-out part of a file's rows, and the row numbers of the first."""
    if raw.test is not None:
        train = check_rows(f"{raw.name}, x_train", raw.features, raw.labels)
        return train, check_rows(f"{raw.name}, x_test", *raw.test), np.arange(len(train))
    rows = check_rows(raw.name, raw.features, raw.labels)
    if is_target and raw.labels is not None:
        rows = Partition(rows.features, raw.labels.astype(np.float32))
    if len(rows) < _FEWEST_ROWS:
        raise InvalidParameterError("rows", len(rows), f"at least {_FEWEST_ROWS} in {raw.name}: a fifth is held out")
    test_rows, train_rows = np.split(rng.permutation(len(rows)), [round(_HELD_OUT * len(rows))])
    return rows.take(train_rows), rows.take(test_rows), train_rows


def join_parts(parts: Sequence[Partition]) -> Partition:
    """Return several parts one after the other; a single one is not copied."""
    if len(parts) == 1:
        return parts[0]
    return Partition(*(np.concatenate([getattr(part, of) for part in parts]) for of in ("features", "labels")))


def _check_site(raw: RawRows, rows: Partition, first: RawRows, model: Partition, spelling: dict[str, str]) -> None:
    """Refuse a site whose columns or labels are of another kind than the first's, or with classes spelt otherwise."""
    if raw.feature_names != first.feature_names:
        differing = sorted({*raw.feature_names} ^ {*first.feature_names}) or ["their order"]
        raise InputFileError(f"{raw.name}: has other columns than {first.name}: {', '.join(differing)}")
    if rows.features.shape[1] != model.features.shape[1]:
        widths = f"{rows.features.shape[1]} features, {first.name} has {model.features.shape[1]}"
        raise InputFileError(f"{raw.name}: rows have {widths}")
    kinds = [{"U": "names", "f": "real numbers"}.get(part.labels.dtype.kind, "whole numbers") for part in (rows, model)]
    if kinds[0] != kinds[1]:
        raise InputFileError(f"{raw.name}: labels are {kinds[0]}, those of {first.name} are {kinds[1]}")
    if kinds[0] == "names":
        for label in np.unique(rows.labels).tolist():
            other = spelling.setdefault(" ".join(label.casefold().split()), label)
            if other != label:
                raise InputFileError(f"{raw.name}: has the class {label!r}, another site spells it {other!r}")


def is_real(labels: Array) -> bool:
    """Return whether labels are real numbers, to be fitted, rather than classes."""
    return bool(labels.dtype.kind == "f")


def baseline_score(train: Array, test: Array) -> float:
    """Return the accuracy of always saying the commonest class of ``train``, or the squared error of its mean."""
    if is_real(train):
        return float(np.square(test - train.mean(dtype=np.float64)).mean())
    return float((test == np.bincount(train).argmax()).mean())


def check_rows(name: str, features: Array, labels: Array | None) -> Partition:
    """Return rows and labels (text, whole or real numbers), flat and float32; refuse what no learner could use."""
    labels = np.zeros(len(features), dtype=np.int64) if labels is None else labels
    if features.ndim < 2 or labels.ndim != 1 or len(features) != len(labels):
        need = "one row of features for each label"
        raise InputFileError(f"{name}: features have shape {features.shape}, labels {labels.shape}: need {need}")
    if not len(labels):
        raise InputFileError(f"{name}: has no rows")
    if features.dtype.kind not in "biuf":
        raise InputFileError(f"{name}: features have type {features.dtype}: need numbers")
    flat = features.reshape(len(features), math.prod(features.shape[1:])).astype(np.float32)
    if not np.isfinite(flat).all():
        row = int(np.flatnonzero(~np.isfinite(flat).all(axis=1))[0])
        raise InputFileError(f"{name}: features of row {row} are not finite")
    kind, need = labels.dtype.kind, "whole numbers or names for classes, or real numbers for regression"
    if kind not in "biufUS":
        raise InputFileError(f"{name}: labels are missing or of type {labels.dtype}: need {need}")
    if kind in "US":
        labels = labels.astype(np.str_)
    missing = labels == "" if kind in "US" else ~np.isfinite(labels)
    if missing.any():
        raise InputFileError(f"{name}: the label of row {int(missing.argmax())} is missing: need {need}")
    if kind not in "US":
        whole = kind != "f" or bool(np.all(labels == np.floor(labels)) and np.abs(labels).max() < WHOLE)
        labels = labels.astype(np.int64 if whole else np.float32)
    return Partition(np.ascontiguousarray(flat), labels)


def number_classes(name: str, train: Array, test: Array) -> tuple[Array, Array, tuple[str, ...]]:
    """Number the classes of checked labels from 0 in sorted order, and return their names; none of real labels."""
    if is_real(train) or is_real(test):
        if "U" in train.dtype.kind + test.dtype.kind:
            raise InputFileError(f"{name}: labels are names in one part and real numbers in the other")
        return train.astype(np.float32), test.astype(np.float32), ()
    values, numbers = np.unique(np.concatenate((train, test)), return_inverse=True)
    if len(values) > max(_MANY_CLASSES, len(numbers) // 2):
        raise InputFileError(
            f"{name}: labels have {len(values)} different values in {len(numbers)} rows: need fewer for classes; "
            f"for regression, real numbers or a column given as target="
        )
    numbers = numbers.astype(np.int64)
    return numbers[: len(train)], numbers[len(train) :], tuple(str(value) for value in values)


def require_fit(data: Partition, *, n_features: int, n_classes: int, name: str) -> None:
    """Refuse rows that a learner made for ``n_features`` and ``n_classes`` (0: real labels) could not be given.

    A node asks this of its own file when it starts: in its first update it would fail with the model in its hands.
    """
    if data.features.ndim != 2 or data.labels.dtype.kind not in "iuf":
        need = "rows of numbers with one number as label each"
        shapes = f"features have shape {data.features.shape}, labels have type {data.labels.dtype}"
        raise InputFileError(f"{name}: {shapes}: need {need}")
    rows = check_rows(name, data.features, data.labels) if len(data) else data
    if data.features.shape[1] != n_features:
        width = f"rows have {data.features.shape[1]} features"
        raise InputFileError(f"{name}: {width}: need {n_features}, as the learner was made")
    if n_classes and is_real(data.labels):
        raise InputFileError(f"{name}: labels are of type {data.labels.dtype}: need whole numbers, classes from 0")
    unknown = np.flatnonzero((rows.labels < 0) | (rows.labels >= n_classes)) if n_classes else rows.labels[:0]
    if len(unknown):
        what = f"label {rows.labels[unknown[0]]} in row {unknown[0]}"
        raise InputFileError(f"{name}: {what}: need 0 to {n_classes - 1}, the learner's classes")


def scale_data(data: Data, kind: str) -> Data:
    """Return data with features, and real labels, scaled by ``kind``: ``none`` or ``range``.

    ``none`` leaves both alone. ``range`` brings both to [0, 1], unless they lie there: bytes by 255, others by their
    least and largest value in the training part.

    Raises:
        InvalidParameterError: There is no such scaling, or the data were scaled before.
    """
    if kind not in _SCALES:
        raise InvalidParameterError("scale", kind, f"one of {', '.join(_SCALES)}")
    if not data.scaling_open:
        if kind == data.scaler.kind:
            return data
        raise InvalidParameterError("scale", kind, f"{data.scaler.kind} for {data.name}, or left out")
    if kind == "none":
        return replace(data, scaling_open=False)
    train, test = data.train, data.test
    if data.is_bytes:
        low, high = (np.full(data.n_features, end, dtype=np.float32) for end in (0, _LARGEST_BYTE))
        scaler = replace(data.scaler, feature_range=(low, high))
    else:
        # Scattering has a range of its own.
        ends = None if data.scaler.features == "scatter" else _range_outside_unit(train.features, test.features)
        scaler = replace(data.scaler, feature_range=ends)
    ends = _range_outside_unit(train.labels, test.labels) if data.is_regression else None
    target_range = None if ends is None else (float(ends[0]), float(ends[1]))
    data = replace(data, scaler=scaler, target_range=target_range, scaling_open=False)
    # Features that were computed of images are as they shall be: only their range is left.
    scaled = replace(data, scaler=replace(data.scaler, features="none"))
    return replace(data, train=scale_like(train, scaled), test=scale_like(test, scaled))


def scatter_data(data: Data) -> Data:
    """Return data whose square images are replaced by their first-order scattering; rows that are none are refused."""
    train, test = (Partition(scatter(part.features), part.labels) for part in (data.train, data.test))
    scaler = replace(data.scaler, features="scatter")
    return replace(data, train=train, test=test, scaler=scaler, is_bytes=False, is_image=False)


def scale_like(rows: Partition, data: Data) -> Partition:
    """Return rows that were dealt out before ``data`` were scaled, scaled alike."""
    labels = rows.labels
    if data.target_range is not None:
        low, high = (np.asarray(end, dtype=np.float32) for end in data.target_range)
        labels = _to_unit(labels, (low, high))
    return Partition(data.scaler.apply(rows.features), labels)


def describe_scaling(data: Data) -> str:
    """Return one line on how data were scaled; empty where they were not."""
    parts = []
    if data.scaler.features == "scatter":
        parts.append(f"features are the scattering of images, {data.n_features} numbers a row (:features=none: pixels)")
    if data.scaler.kind == "range":
        divided = f"features are divided by {_LARGEST_BYTE:g}, the largest value of their type"
        parts.append(divided if data.is_bytes else "features are scaled to [0, 1] by their range in the training part")
    if data.target_range is not None:
        parts.append("labels are scaled to [0, 1] by their range, {:g} to {:g}".format(*data.target_range))
    is_scaled = data.scaler.kind == "range" or data.target_range is not None
    return "; ".join(parts) + (" (:scale=none leaves all as it is)" if is_scaled else "")


def _range_outside_unit(train: Array, test: Array) -> Ends | None:
    """Return the least and the largest value of each column of ``train``; None where all values lie in [0, 1]."""
    parts = [part for part in (train, test) if part.size]
    if min(part.min() for part in parts) >= 0 and max(part.max() for part in parts) <= 1:
        return None
    return train.min(axis=0), train.max(axis=0)


def _to_unit(values: Array, ends: Ends) -> Array:
    low, high = ends
    return np.asarray((values - low) / np.where(high > low, high - low, np.float32(1)))
