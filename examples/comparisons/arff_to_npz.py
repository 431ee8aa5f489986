"""Write an ARFF file of numbers and nominal values, as OpenML has them, as npz with ``features`` and ``labels``.

    python examples/comparisons/arff_to_npz.py houses.arff houses.npz [LABEL]

LABEL is the column of labels, or else ``label``, or else the last. ``--data npz:houses.npz`` reads what it writes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from scipy.io import arff


def main(source: str, target: str, label: str = "") -> None:
    """Write the file."""
    try:
        with Path(source).open(encoding="utf-8-sig") as stream:
            table, meta = arff.loadarff(stream)
    except (OSError, ValueError, NotImplementedError, StopIteration, arff.ArffError) as error:
        sys.exit(f"{source}: is not an ARFF file of numbers and nominal values ({' '.join(str(error).split())})")
    names = meta.names()
    label = label or ("label" if "label" in names else names[-1])
    if label not in names:
        sys.exit(f"{source}: has no column {label}: it has {', '.join(names)}")
    columns = {name: table[name] for name in names}
    nominal = [name for name in names if name != label and columns[name].dtype.kind not in "biuf"]
    if nominal:
        sys.exit(f"{source}: column {nominal[0]} holds names: need numbers beside the labels")
    labels = columns.pop(label)
    labels = np.char.decode(labels, "utf-8") if labels.dtype.kind == "S" else labels
    if "?" in labels:
        sys.exit(f"{source}: column {label}: a label is missing")
    np.savez(target, features=np.stack(list(columns.values()), axis=1), labels=labels)
    print(f"{target}: {len(labels)} rows, {len(columns)} features")


if __name__ == "__main__":
    main(*sys.argv[1:4])
