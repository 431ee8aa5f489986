"""What owners call their nodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from veilwalk.core.errors import InvalidParameterError

_SHOWN_CHARACTERS = 60
# Line breaks, control characters and half characters would break the one line that names a node.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def checked_labels(labels: Sequence[str] | None, n_nodes: int) -> tuple[str, ...] | None:
    """Return ``labels`` if they are texts of one line, one a node and all different."""
    if labels is None:
        return None
    names: tuple[Any, ...] = tuple(labels)
    if len(names) != n_nodes:
        raise InvalidParameterError("labels", f"{len(names)} labels", f"one for each of the {n_nodes} nodes")
    for name in names:
        if not isinstance(name, str) or not name or _UNPRINTABLE.search(name):
            raise InvalidParameterError("labels", cut(name), "texts of one line, none of them empty")
    if len(set(names)) < n_nodes:
        raise InvalidParameterError("labels", cut(Counter(names).most_common(1)[0][0]), "different for each node")
    return none_if_numbers(names)


def none_if_numbers(labels: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return None where each label is the number of its node, so that there is one way to say so."""
    if labels is None or all(label == str(node) for node, label in enumerate(labels)):
        return None
    return labels


def cut(label: object) -> object:
    """Return ``label`` short enough for a message."""
    return label[:_SHOWN_CHARACTERS] if isinstance(label, str) else label


def shown(node: int, labels: tuple[str, ...] | None) -> object:
    """Return what a message should call ``node``."""
    return node if labels is None else cut(labels[node])
