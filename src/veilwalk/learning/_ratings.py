"""Ratings of items by users, in MovieLens' file format: ``userId,movieId,rating,timestamp``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from veilwalk.core.errors import InputFileError
from veilwalk.core.randomness import task_generator
from veilwalk.learning._api import Array, Partition
from veilwalk.learning._data import Data
from veilwalk.learning._table import read_csv

#: The column that a partitioner groups ratings by.
USER = "user"
_NAMES = ("userId", "movieId", "rating")
# Held out of what each user rated; DecentralizePy's share.
_HELD_OUT = 0.3
_RATINGS = 0x72617465
# Whole numbers up to here are told apart by a float32, which features are.
_MOST = 2**24


def read_ratings(path: Path, *, seed: int = 0) -> Data:
    """Return ratings as rows of two numbers, user and item, each numbered from 0 in the order of their names.

    Labels are the ratings as they stand. Of every user's ratings 30% drawn by ``seed`` are held out, but of one alone
    none.
    """
    table = read_csv(path)
    for name in _NAMES:
        if name not in table.columns:
            raise InputFileError(f"{path}: has no column {name}: need userId,movieId,rating,timestamp")
    users, items = (_numbered(table.values(name), path, name) for name in _NAMES[:2])
    ratings = table.numbers("rating", why="").astype(np.float32)
    held_out = _held_out(users, seed)
    features = np.column_stack((users, items)).astype(np.float32)
    train, test = (Partition(features[part], ratings[part]) for part in (~held_out, held_out))
    if not len(test):
        raise InputFileError(f"{path}: no user has two ratings: none can be held out")
    return Data(name=str(path), train=train, test=test, columns={USER: users[~held_out]}, owner=0)


def _numbered(values: Array, path: Path, name: str) -> Array:
    known, numbers = np.unique(values, return_inverse=True)
    if len(known) > _MOST:
        raise InputFileError(f"{path}: column {name} has {len(known)} values: need at most {_MOST}")
    return numbers


def _held_out(users: Array, seed: int) -> Array:
    """Return which ratings are held out: the share of each user's, rounded down."""
    shuffled = task_generator(seed, _RATINGS).permutation(len(users))
    order = shuffled[np.argsort(users[shuffled], kind="stable")]
    counts = np.bincount(users)
    place = np.arange(len(users)) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen = np.zeros(len(users), dtype=np.bool_)
    # Of two one: a user of whom nothing is held out cannot be asked about.
    most = np.maximum((_HELD_OUT * counts).astype(np.int64), counts > 1)
    chosen[order] = place < np.repeat(most, counts)
    return chosen
