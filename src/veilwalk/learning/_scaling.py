"""Scales features and real labels by the training part, and keeps how, so that rows to predict are scaled alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from veilwalk.core.errors import InvalidParameterError
from veilwalk.learning._api import Array, Partition

if TYPE_CHECKING:
    from veilwalk.learning._data import Data

#: How features can be scaled.
SCALES = ("none", "range", "rows")
Ends = tuple[Array, Array]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Scaler:
    """How the features of a training part were scaled.

    Attributes:
        feature_range: Least and largest value of each feature. They become 0 and 1, and values beyond are cut off.
        feature_moments: Mean and standard deviation of each feature after that. Each feature is standardised by them,
            and each row is brought to length one.
    """

    feature_range: Ends | None = None
    feature_moments: Ends | None = None

    @classmethod
    def fit(cls, train: Array, test: Array, *, kind: str, type_range: tuple[float, float] | None = None) -> Self:
        """Return the scaler of a training part.

        Args:
            train: Rows that say the range.
            test: Rows held out: if all rows lie in [0, 1], the range is left alone.
            kind: ``range`` or ``rows``.
            type_range: The range of every feature, where their type says it.
        """
        ends = _range_outside_unit(train, test)
        if type_range is not None:
            low, high = (np.full(train.shape[1], end, dtype=np.float32) for end in type_range)
            ends = low, high
        by_range = cls(feature_range=ends)
        if kind == "range":
            return by_range
        rows = by_range.apply(train)
        mean, deviation = rows.mean(axis=0), rows.std(axis=0)
        return replace(by_range, feature_moments=(mean, np.where(deviation > 0, deviation, 1)))

    @property
    def kind(self) -> str:
        """``rows``, ``range``, or ``none`` where rows stay as they are."""
        if self.feature_moments is not None:
            return "rows"
        return "none" if self.feature_range is None else "range"

    def apply(self, rows: Array) -> Array:
        """Return rows scaled."""
        if self.feature_range is not None:
            rows = np.clip(_to_unit(rows, self.feature_range), 0, 1)
        if self.feature_moments is not None:
            mean, deviation = self.feature_moments
            rows = (rows - mean) / deviation
            length = np.linalg.norm(rows, axis=1, keepdims=True)
            rows = np.asarray(rows / np.where(length > 0, length, 1), dtype=np.float32)
        return rows

    def to_facts(self) -> dict[str, Ends]:
        """Return what a record keeps; :meth:`from_facts` reads it."""
        facts = {"feature_range": self.feature_range, "feature_moments": self.feature_moments}
        return {name: ends for name, ends in facts.items() if ends is not None}

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """Return the scaler that a record keeps among what it says of the data."""
        kept = {name: facts[name] for name in ("feature_range", "feature_moments") if facts.get(name)}
        return cls(**{name: (_float32(low), _float32(high)) for name, (low, high) in kept.items()})


def scale_data(data: Data, kind: str) -> Data:
    """Return data with features, and real labels, scaled by ``kind``: ``none``, ``range`` or ``rows``.

    ``none`` leaves both alone. ``range`` brings both to [0, 1], unless they lie there. ``rows`` then standardises
    features and brings each row to length one.

    Raises:
        InvalidParameterError: There is no such scaling, or the data were scaled before.
    """
    if kind not in SCALES:
        raise InvalidParameterError("scale", kind, f"one of {', '.join(SCALES)}")
    if not data.scaling_open:
        if kind == data.scaler.kind:
            return data
        raise InvalidParameterError("scale", kind, f"{data.scaler.kind} for {data.name}, or left out")
    if kind == "none":
        return replace(data, scaling_open=False)
    rows, labels = ([getattr(part, field) for part in (data.train, data.test)] for field in ("features", "labels"))
    scaler = Scaler.fit(rows[0], rows[1], kind=kind, type_range=data.type_range)
    rows = [scaler.apply(part) for part in rows]
    ends = _range_outside_unit(*labels) if data.is_regression else None
    if ends is not None:
        labels = [_to_unit(part, ends) for part in labels]
    return replace(
        data,
        train=Partition(rows[0], labels[0]),
        test=Partition(rows[1], labels[1]),
        scaler=scaler,
        target_range=None if ends is None else (float(ends[0]), float(ends[1])),
        scaling_open=False,
    )


def scale_like(rows: Partition, data: Data) -> Partition:
    """Return rows that were dealt out before ``data`` were scaled, scaled alike."""
    labels = rows.labels
    if data.target_range is not None:
        low, high = (np.float32(end) for end in data.target_range)
        labels = _to_unit(labels, (np.asarray(low), np.asarray(high)))
    return Partition(data.scaler.apply(rows.features), labels)


def describe_scaling(data: Data) -> str:
    """Return one line on how data were scaled; empty where they were not."""
    said = {
        "range": "features are scaled to [0, 1] by their range in the training part",
        "rows": "features are standardised by the training part, and each row is brought to length one",
    }
    if data.type_range is not None:
        said["range"] = f"features are divided by {data.type_range[1]:g}, the largest value of their type"
    lines = [said[data.scaler.kind]] if data.scaler.kind in said else []
    if data.target_range is not None:
        lines.append("labels are scaled to [0, 1] by their range, {:g} to {:g}".format(*data.target_range))
    return f"{'; '.join(lines)} (:scale=none leaves all as it is)" if lines else ""


def _range_outside_unit(train: Array, test: Array) -> Ends | None:
    """Return the least and the largest value of each column of ``train``; None where all values lie in [0, 1]."""
    parts = [part for part in (train, test) if part.size]
    if min(part.min() for part in parts) >= 0 and max(part.max() for part in parts) <= 1:
        return None
    return train.min(axis=0), train.max(axis=0)


def _to_unit(values: Array, ends: Ends) -> Array:
    low, high = ends
    return np.asarray((values - low) / np.where(high > low, high - low, np.float32(1)))


def _float32(numbers: Any) -> Array:
    return np.asarray(numbers, dtype=np.float32)
