"""Write MovieLens' ``ratings.csv`` (userId,movieId,rating,timestamp) as npz, for the learner of ``factorisation.py``.

    python examples/comparisons/ratings_to_npz.py ratings.csv ratings.npz NODES [SEED]

Rows are a user's and an item's number, each from 0 in the order of their names; labels are the ratings as they stand.
Of every user's ratings 30% drawn by the seed are held out. ``node`` deals users to nodes in their order, as many to
each or one more: ``--partition natural:node``.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

from veilwalk.core.randomness import task_generator
from veilwalk.learning import Array

# Held out of what each user rated; DecentralizePy's share.
_HELD_OUT = 0.3
_RATINGS_TASK = 0x72617465


def read_ratings(path: Path) -> tuple[Array, Array, Array]:
    """Return the number of the user, the number of the item, and the rating."""
    with path.open(encoding="utf-8-sig", newline="") as stream:
        rows = list(csv.DictReader(stream))
    lacking = [name for name in ("userId", "movieId", "rating") if not rows or name not in rows[0]]
    if lacking:
        sys.exit(f"{path}: has no column {lacking[0]}: need userId,movieId,rating,timestamp, and rows")
    users, items = (
        np.unique([int(row[name]) for row in rows], return_inverse=True)[1] for name in ("userId", "movieId")
    )
    try:
        ratings = np.array([float(row["rating"]) for row in rows], dtype=np.float32)
    except ValueError as error:
        sys.exit(f"{path}: column rating: {error}")
    return users, items, ratings


def select_held_out(users: Array, seed: int) -> Array:
    """Return which ratings are held out: the share of each user's, rounded down, but one of two."""
    shuffled = task_generator(seed, _RATINGS_TASK).permutation(len(users))
    order = shuffled[np.argsort(users[shuffled], kind="stable")]
    counts = np.bincount(users)
    place = np.arange(len(users)) - np.repeat(np.cumsum(counts) - counts, counts)
    chosen = np.zeros(len(users), dtype=np.bool_)
    most = np.maximum((_HELD_OUT * counts).astype(np.int64), counts > 1)
    chosen[order] = place < np.repeat(most, counts)
    return chosen


def group_users(users: Array, n_nodes: int) -> Array:
    """Return the node of every rating: users in their order, as many for each node, or one more."""
    n_users = int(users.max()) + 1
    if n_users < n_nodes:
        sys.exit(f"{n_nodes} nodes: need at most {n_users}, the number of users")
    sizes = np.full(n_nodes, n_users // n_nodes)
    sizes[: n_users % n_nodes] += 1
    return np.repeat(np.arange(n_nodes), sizes)[users]


def main(source: str, target: str, nodes: str, seed: str = "1") -> None:
    """Write the file."""
    users, items, ratings = read_ratings(Path(source))
    held_out = select_held_out(users, int(seed))
    if not held_out.any():
        sys.exit(f"{source}: no user has two ratings: none can be held out")
    features, node = np.column_stack((users, items)), group_users(users, int(nodes))
    np.savez(
        target,
        x_train=features[~held_out],
        y_train=ratings[~held_out],
        x_test=features[held_out],
        y_test=ratings[held_out],
        node_train=node[~held_out],
    )
    print(f"{target}: {users.max() + 1} users, {items.max() + 1} items, {len(ratings)} ratings, {nodes} nodes")


if __name__ == "__main__":
    main(*sys.argv[1:5])
