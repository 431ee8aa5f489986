"""Edge lists: text with two labels a line."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from typing import NamedTuple, NoReturn

import numpy as np

from veilwalk.core.arrays import IntArray
from veilwalk.core.errors import InputFileError

# A table indexed by node number pays while it is not much larger than the edge list itself.
_SPARSE_NUMBERS = 8
# No zero in front, since 007 is not 7, and no more digits than int() takes.
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,999}")
_FIELD = re.compile(r'"([^"]*)"|([^ \t\r,;]+)')
_QUOTED = re.compile(r'"[^"]*"')
_ATTRIBUTES = re.compile(r"[\s,;]\{(?:\}$|['\"])")
_IGNORED = "columns after the second are ignored"


class Edges(NamedTuple):
    """What a file says: the two ends of each edge by number, the labels, and what was passed over."""

    pairs: IntArray
    labels: tuple[str, ...] | None = None
    notices: tuple[str, ...] = ()


class _Row(NamedTuple):
    line: int
    text: str
    fields: list[str]

    def refuse(self, need: str) -> NoReturn:
        raise InputFileError(f"line {self.line}: {self.text[:60]!r}: {need}")


def read_edge_list(data: bytes) -> Edges:
    """Read an edge list: compiled where it holds whole numbers, else by label."""
    from veilwalk.graphs import _kernels_text

    text = np.frombuffer(data, dtype=np.uint8)
    numbers = np.empty((data.count(b"\n") + 1, 2), dtype=np.int64)
    size, columns, bad = _kernels_text.parse_pairs(text, numbers)
    notices = []
    if size == 0 and bad >= 0:
        end = data.find(b"\n", bad) + 1 or len(data)
        header = _fields(data[bad:end].decode("utf-8", "replace").strip(), None)
        if len(header) > 1 and not any(map(_WHOLE.fullmatch, header[:2])):
            size, columns, bad = _kernels_text.parse_pairs(text[end:], numbers)
            notices.append(_header_notice(data.count(b"\n", 0, end), header))
    if bad >= 0 or (size == 0 and notices):
        return _by_label(data)
    if size == 0:
        raise InputFileError("has no edges")
    if columns > 2:
        notices.append(_IGNORED)
    used, pairs = renumbered(numbers[:size])
    return Edges(pairs, None if used is None else tuple(map(str, used.tolist())), tuple(notices))


def renumbered(pairs: IntArray) -> tuple[IntArray | None, IntArray]:
    """Return the numbers used in ascending order, None when they are 0, 1, ..., and the pairs by their place."""
    highest = int(pairs.max())
    if highest > _SPARSE_NUMBERS * pairs.size + 1024:
        numbers, inverse = np.unique(pairs, return_inverse=True)
        return numbers, inverse.reshape(pairs.shape)
    used = np.zeros(highest + 1, dtype=np.bool_)
    used[pairs.ravel()] = True
    if used.all():
        return None, pairs
    return np.flatnonzero(used), (np.cumsum(used) - 1)[pairs]


def decoded(data: bytes) -> str:
    """Return ``data`` as text."""
    if b"\0" in data:
        raise InputFileError("is not a text file")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputFileError(f"line {line}: is not text in UTF-8") from error


def content_lines(data: bytes) -> Iterable[tuple[int, str]]:
    """Yield the lines that are neither blank nor comments, with their numbers."""
    for number, line in enumerate(decoded(data).split("\n"), 1):
        bare = line.strip()
        if bare and bare[0] not in "#%":
            yield number, bare


def _by_label(data: bytes) -> Edges:
    rows, notices = _rows(list(content_lines(data))), []
    if not rows:
        raise InputFileError("has no edges")
    header = rows[0]
    others = {label for row in rows[1:] for label in row.fields[:2]}
    # Both fields nowhere else: as an edge the line would be a component of its own.
    if others and not any(field in others or _WHOLE.fullmatch(field) for field in header.fields[:2]):
        del rows[0]
        notices.append(_header_notice(header.line, header.fields))
    if len(rows[0].fields) > 2:
        notices.append(_IGNORED)
    for row in rows:
        if len(row.fields) != len(rows[0].fields):
            row.refuse(f"has {len(row.fields)} columns, the lines before it {len(rows[0].fields)}")
        if row.fields[0] == row.fields[1]:
            row.refuse("is a self-loop, the graph must be simple")
    labels = {label for row in rows for label in row.fields[:2]}
    words = [label for label in labels if not _WHOLE.fullmatch(label)]
    if 0 < len(words) < len(labels):
        notices.append(f"some labels are whole numbers, others such as {min(words)[:60]!r} are not")
    ordered = sorted(labels) if words else sorted(labels, key=int)
    number = {label: index for index, label in enumerate(ordered)}
    ends = [(number[row.fields[0]], number[row.fields[1]]) for row in rows]
    return Edges(np.array(ends, dtype=np.int64), tuple(ordered), tuple(notices))


def _rows(lines: list[tuple[int, str]]) -> list[_Row]:
    """Split lines at the tab, semicolon or comma that all of them have, else at any of these and at blanks."""
    bare = [_without_attributes(line) for _, line in lines]
    unquoted = [_QUOTED.sub("", line) for line in bare]
    delimiter = next((mark for mark in "\t;," if all(mark in line for line in unquoted)), None)
    rows = []
    for (number, line), kept in zip(lines, bare, strict=True):
        row = _Row(number, line, _fields(kept, delimiter))
        if len(row.fields) < 2 or not all(row.fields[:2]):
            row.refuse("need two labels")
        if delimiter is None and number != lines[0][0] and not all(map(_is_number, row.fields[2:])):
            row.refuse("need two labels, and only numbers after them (labels with blanks need commas or tabs)")
        if kept != line:
            row.fields.append(line[len(kept) :])
        rows.append(row)
    return rows


def _without_attributes(line: str) -> str:
    """Return ``line`` without the ``{...}`` that NetworkX puts behind an edge."""
    found = _ATTRIBUTES.search(line) if line.endswith("}") else None
    return line[: found.start()].rstrip(" \t,;") if found else line


def _fields(line: str, delimiter: str | None) -> list[str]:
    if delimiter is None:
        return [quoted.strip() or plain for quoted, plain in _FIELD.findall(line)]
    try:
        row = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True, strict=True))
    except csv.Error:
        return []
    return [field.strip() for field in row]


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _header_notice(line: int, fields: list[str]) -> str:
    return f"line {line} ({', '.join(fields)[:60]}) is taken for a header"
