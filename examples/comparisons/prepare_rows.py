"""Prepare rows as the paper on DP random walks does: some classes, smaller images, standard columns, rows of length 1.

    python -m examples.comparisons.prepare_rows mnist:DIR threes-eights.npz --only 3,8 --pool 7

Means and deviations are those of the training part. ``--data npz:threes-eights.npz:scale=none`` reads what it writes.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import numpy as np

from veilwalk.learning import Array, load_data


def pool_images(rows: Array, block: int) -> Array:
    """Return square images made smaller: the mean of every block of ``block`` x ``block`` pixels."""
    side = math.isqrt(rows.shape[1])
    if side**2 != rows.shape[1] or side % block:
        raise SystemExit(f"--pool {block}: needs a divisor of the side of square images ({rows.shape[1]} pixels here)")
    blocks = rows.reshape(len(rows), side // block, block, side // block, block).mean(axis=(2, 4), dtype=np.float32)
    return np.asarray(blocks.reshape(len(rows), -1))


def normalise_rows(train: Array, test: Array) -> list[Array]:
    """Return both parts with columns standardised by the first, and each row at length one."""
    mean, deviation = train.mean(axis=0), train.std(axis=0)
    parts = []
    for rows in (train, test):
        standard = (rows - mean) / np.where(deviation > 0, deviation, 1)
        length = np.linalg.norm(standard, axis=1, keepdims=True)
        parts.append((standard / np.where(length > 0, length, 1)).astype(np.float32))
    return parts


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("data", help="what veilwalk train --data takes")
    parser.add_argument("target", help="an npz file")
    parser.add_argument("--only", default="", help="classes to keep, with commas")
    parser.add_argument("--pool", type=int, default=1, help="side of the blocks of pixels")
    parser.add_argument("--seed", type=int, default=7, help="seed of the held-out part, where the data have none")
    options = parser.parse_args(arguments)
    data, features, labels = load_data(options.data, seed=options.seed), [], []
    for rows in (data.train, data.test):
        names = np.array(data.class_names)[rows.labels]
        chosen = np.isin(names, options.only.split(",")) if options.only else np.ones(len(rows), dtype=np.bool_)
        features.append(pool_images(rows.features[chosen], options.pool))
        labels.append(names[chosen])
    x_train, x_test = normalise_rows(*features)
    np.savez(options.target, x_train=x_train, y_train=labels[0], x_test=x_test, y_test=labels[1])
    print(f"{options.target}: {len(x_train)} training rows, {len(x_test)} held out, {x_train.shape[1]} features")


if __name__ == "__main__":
    main()
