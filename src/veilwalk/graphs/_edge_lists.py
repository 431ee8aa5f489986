"""Edge lists: text with two labels a line."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from typing import NamedTuple, NoReturn

import numpy as np

from veilwalk.core.arrays import IntArray
from veilwalk.core.errors import InputFileError

_SEPARATORS = b" \t,;\r\n"
_SEPARATORS_TO_BLANKS = bytes.maketrans(b",;\r", b"   ")
_COMMENT = re.compile(rb"^[ \t\r,;]*[#%].*$", re.MULTILINE)
# Digits behind a zero are a code, since 007 is not 7; more than 18 digits may not fit into an integer.
_DIGITS_OF_A_LABEL = re.compile(rb"(?<![0-9])0[0-9]|[0-9]{19}")
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
    """Read an edge list: as a table where it holds whole numbers only, else by label."""
    body = _COMMENT.sub(b"", data) if b"#" in data or b"%" in data else data
    numbers, notices = _parse_whole_numbers(body), []
    if numbers is None:
        start = len(body) - len(body.lstrip())
        end = body.find(b"\n", start) + 1 or len(body)
        header = _fields(body[start:end].decode("utf-8", "replace").strip(), None)
        if len(header) > 1 and not any(map(_WHOLE.fullmatch, header[:2])):
            numbers = _parse_whole_numbers(body[end:])
            notices.append(_header_notice(body.count(b"\n", 0, start) + 1, header))
    if numbers is None or numbers.shape[1] < 2 or bool(np.any(numbers[:, 0] == numbers[:, 1])):
        # What is wrong there is said with its line.
        return _read_by_label(data)
    if numbers.shape[1] > 2:
        notices.append(_IGNORED)
    used, places = np.unique(numbers[:, :2], return_inverse=True)
    labels = None if used[-1] == len(used) - 1 else tuple(map(str, used.tolist()))
    return Edges(places.reshape(-1, 2), labels, tuple(notices))


def _parse_whole_numbers(text: bytes) -> IntArray | None:
    """Return the table of a text that holds whole numbers only, as many on each line; None for any other text."""
    if (
        not text.strip(_SEPARATORS)
        or text.translate(None, b"0123456789" + _SEPARATORS)
        or _DIGITS_OF_A_LABEL.search(text)
    ):
        return None
    try:
        return np.loadtxt(text.translate(_SEPARATORS_TO_BLANKS).decode().split("\n"), dtype=np.int64, ndmin=2)
    except ValueError:
        # Lines of different lengths.
        return None


def decode_text(data: bytes) -> str:
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
    for number, line in enumerate(decode_text(data).split("\n"), 1):
        bare = line.strip()
        if bare and bare[0] not in "#%":
            yield number, bare


def _read_by_label(data: bytes) -> Edges:
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
