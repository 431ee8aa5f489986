"""The tutorials as notebooks: each script in ``examples/tutorials`` has one beside it, with the same cells.

Run ``python -m tools.pages.notebooks`` from the checkout; a test holds the notebooks to what this would write, and runs
their cells.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from veilwalk.core.records import write_atomically

FOLDER = Path(__file__).parents[2] / "examples" / "tutorials"
_CELL = re.compile(r"^# %%( \[markdown\])?\n", re.MULTILINE)
_ABOUT = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def make_notebook(script: str) -> str:
    """Return a notebook with the cells of a script, in which ``# %%`` begins a cell."""
    _, *parts = _CELL.split(script)
    cells: list[dict[str, Any]] = []
    for number, (mark, text) in enumerate(zip(parts[::2], parts[1::2], strict=True), start=1):
        body = text.strip("\n")
        cell: dict[str, Any] = {"cell_type": "code", "id": f"cell-{number}", "metadata": {}}
        if mark:
            cell["cell_type"] = "markdown"
            body = re.sub(r"^# ?", "", body, flags=re.MULTILINE)
        else:
            cell |= {"execution_count": None, "outputs": []}
        cells.append(cell | {"source": body.splitlines(keepends=True)})
    content = {"cells": cells, "metadata": _ABOUT, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write all of them."""
    for script in sorted(FOLDER.glob("*.py")):
        path = script.with_suffix(".ipynb")
        write_atomically(path, make_notebook(script.read_text()).encode())
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
