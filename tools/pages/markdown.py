"""Pieces of Markdown that several pages share: tables, paragraphs, numbers with their intervals."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tools.pages.rows import write_page


def write_section(page: Path, command: str, text: str) -> None:
    """Replace what a page has between the mark of a command and the next end mark."""
    begin, end = f"<!-- written by python -m {command} -->", "<!-- end -->"
    section = re.compile(f"{re.escape(begin)}.*?{end}", re.DOTALL)
    written = section.sub(lambda _: f"{begin}\n\n{text.strip()}\n\n{end}", page.read_text())
    write_page(page, written)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table."""
    first, *others = (f"| {' | '.join(row)} |" for row in (head, *rows))
    return [first, "|---" * len(head) + "|", *others]


def paragraph(text: str) -> str:
    """Return a paragraph in lines of 120 characters; words and what has hyphens stay whole."""
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def plus_minus(row: Mapping[str, Any], score: str, digits: int) -> str:
    """Return a mean with half of its interval."""
    low, high = row[f"{score}_interval"]
    return f"{row[score]:.{digits}f} ± {(high - low) / 2:.{digits}f}"


def percent(row: Mapping[str, Any]) -> str:
    """Return a hit ratio in percent with half of its interval."""
    low, high = row["hit_ratio_interval"]
    return f"{100 * row['hit_ratio']:.1f} ± {50 * (high - low):.1f}"


def share_between(share: float, low: float, high: float) -> str:
    """Return a share with the ends of its interval."""
    return f"{share:.1%} [{low:.1%}-{high:.1%}]"


def mean_share(shares: Sequence[float]) -> str:
    """Return the mean of shares with the least and the largest."""
    return share_between(float(np.mean(shares)), min(shares), max(shares))
