"""Writes measured pages with their main rows; all rows of a shortened table go into a JSON file beside the page.

Tools call :func:`write_page` with every row that they have measured. ``python -m tools.pages.rows`` shortens the pages
that are there, after a change of what is shown; nothing is measured, and a page that is short already stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from veilwalk.core.records import write_atomically

MEASURED = Path(__file__).parents[2] / "docs" / "measured"
#: Whether a row is left out, by its number in the table and its cells.
Rule = Callable[[int, Sequence[str]], bool]


class Table(TypedDict):
    """A table as it is stored."""

    columns: list[str]
    rows: list[list[str]]


def _linked_and_spread(_: int, row: Sequence[str]) -> bool:
    return "linked" in row[1] and row[2] == "spread" and row[3] != "4"


def _of_60_peers(_: int, row: Sequence[str]) -> bool:
    return row[1] in {"`prior`", "`repeated`", "`linked-coalition`"} or row[2] == "spread" or row[3] in {"2", "4"}


def _law_but_the_papers(_: int, row: Sequence[str]) -> bool:
    return row[0] not in {"plain", "paper"} and row[2] != "last-hop"


def _route(_: int, row: Sequence[str]) -> bool:
    few = row[0].endswith("far:2, non-backtracking") and row[0].split(",")[0] in {"K = 2", "K = 8", "K = 32"}
    simple = row[0].endswith("simple") and row[0].split(",")[0] in {"K = 4", "K = 64"}
    return row[0].endswith("far:2, simple") or simple or few


def _of_later_graphs(_: int, row: Sequence[str]) -> bool:
    return not row[0].startswith("rrg") and (row[2] == "uniform-node" or row[1:3] == ["simple", "optimal"])


def _later_return_times(number: int, row: Sequence[str]) -> bool:
    return number > 4 and row[0] != "all"


_MANY_SIZES = {"RRG(1000, 3)", "RRG(1000, 4)", "RRG(1000, 8)", "RRG(10⁴, 3)", "RRG(10⁴, 8)", "torus 100 × 100"}
_MORE_REGULAR = {"RRG(1000, 3), 2:6", "RRG(300, 4), 2:4", "RRG(300, 8), 2:3"}
#: By page, and by the heading above the table with its number there.
LEFT_OUT: Mapping[str, Mapping[str, Rule]] = {
    "audit": {
        "The strongest attackers, RRG(300, 3)": _linked_and_spread,
        "The strongest attackers, RRG(60, 3)": _of_60_peers,
        "What a destination learns, by law": _law_but_the_papers,
        "The shortest return times, law `paper`": lambda _, row: row[2] in {"7.0%", "10.0%"},
    },
    "sealed-attackers": {
        "K = 16, non-backtracking": lambda _, row: row[2] == "spread" and row[3] != "1" and not row[3].startswith("4"),
        "Of all honest updates, K = 16, non-backtracking": lambda _, row: (
            row[0] == "and without its own draws" and row[1] != "all honest updates"
        ),
    },
    "routes": {"RRG(300, 3)": _route, "Six graphs": lambda _, row: row[1].startswith("K = ")},
    "graphs": {
        "Graphs, walks and laws": _of_later_graphs,
        "The laws attacked, at equal hops": lambda _, row: row[0].startswith(("er", "ba", "torus")),
    },
    "walks": {
        "Node entropy in nats, last-hop observer": _later_return_times,
        "Node entropy lost to the return-time observer, in nats, exact": _later_return_times,
        "Node entropy lost to the last-hop observer, in nats, exact": _later_return_times,
        "Other graphs: what is hidden": lambda _, row: row[0] in _MORE_REGULAR,
        "Other degrees, sizes and graphs: what an update costs": lambda _, row: row[0] in _MANY_SIZES,
    },
    "robustness": {
        "iid, tests `loss:1.25`": lambda _, row: row[0].startswith("random"),
        "dirichlet:0.3, tests `loss:2`": lambda _, row: row[0].startswith("random"),
        "Members that share keys": lambda _, row: "drift" in row[0] and row[1].endswith("for each other only"),
    },
    "learning": {
        "By the clock 2": lambda _, row: row[1].endswith("100 ms"),
        "By the clock 4": lambda _, row: row[0] == "softmax" and (row[3].startswith("10,") or row[2] == "20"),
    },
    "speed": {
        "The protocol, on a processor": lambda _, row: row[0].endswith("threads=1"),
        "Beside version 0.2": lambda _, row: row[0].endswith("rows"),
        "A frontier on a million nodes": lambda _, row: row[1] in {"32", "512"},
    },
}


def write_page(path: Path, text: str) -> None:
    """Write a page without the rows that :data:`LEFT_OUT` names; every row of such a table goes to its JSON file."""
    stored_path = path.with_suffix(".json")
    stored: dict[str, Table] = {}
    if path.stem in LEFT_OUT and stored_path.exists():
        stored = json.loads(stored_path.read_text())
    lines, kept = text.split("\n"), dict[str, Table]()
    for title, first, last in reversed(list(_iter_tables(lines))):
        rule = LEFT_OUT.get(path.stem, {}).get(title)
        if rule is None:
            continue
        columns, rows = _cells(lines[first]), [_cells(line) for line in lines[first + 2 : last]]
        before = stored.get(title, Table(columns=columns, rows=[]))
        # A section that was written earlier is short already, by this rule or another; its rows are in the file.
        is_short = before["columns"] == columns and all(row in before["rows"] for row in rows)
        kept[title] = before if is_short else Table(columns=columns, rows=rows)
        lines[first + 2 : last] = [f"| {' | '.join(row)} |" for row in _shown(kept[title]["rows"], rule)]
    write_atomically(path, "\n".join(lines).encode())
    if kept:
        write_atomically(stored_path, _as_json(dict(reversed(list(kept.items())))).encode())


def _shown(rows: Sequence[list[str]], rule: Rule) -> list[list[str]]:
    return [row for number, row in enumerate(rows) if not rule(number, row)]


def _iter_tables(lines: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Yield the title of every table, its first line and the line after its last; from the second on with a number."""
    heading, count, start = "", 0, None
    for number, line in enumerate([*lines, ""]):
        if line.startswith("#"):
            heading, count = line.lstrip("# "), 0
        if line.startswith("| ") and start is None:
            start, count = number, count + 1
        elif not line.startswith("|") and start is not None:
            yield heading if count == 1 else f"{heading} {count}", start, number
            start = None


def _cells(line: str) -> list[str]:
    return line.removeprefix("| ").removesuffix(" |").split(" | ")


def _as_json(tables: Mapping[str, Table]) -> str:
    """Return the tables with one row on a line."""
    parts = []
    for title, table in tables.items():
        rows = ",\n    ".join(json.dumps(row, ensure_ascii=False) for row in table["rows"])
        columns = json.dumps(table["columns"], ensure_ascii=False)
        parts.append(f'  {json.dumps(title)}: {{\n   "columns": {columns},\n   "rows": [\n    {rows}\n   ]\n  }}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    """Shorten the pages that are there."""
    for name in LEFT_OUT:
        path = MEASURED / f"{name}.md"
        write_page(path, path.read_text())


if __name__ == "__main__":
    main()
