"""The page: its parts as the server gives them out one by one, or all in one file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from veilwalk.core.records import write_atomically

#: In the order in which they are run.
SCRIPTS = ("state.js", "map.js", "charts.js", "words.js", "main.js")
STYLE = "page.css"
_HTML = "page.html"
#: Nothing but our own files, no word to anybody else.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


def part(name: str) -> str:
    """Return one file of the page."""
    return resources.files("veilwalk.watch").joinpath("page", name).read_text()


def served() -> str:
    """Return the page as the server gives it out: its scripts and style are files beside it."""
    scripts = "\n".join(f'<script src="{name}" defer></script>' for name in SCRIPTS)
    return part(_HTML).replace("<!-- head -->", f'<link rel="stylesheet" href="{STYLE}">\n{scripts}')


def alone(lines: Sequence[str]) -> str:
    """Return the page with its documents, as one file; its policy allows the very texts in it and nothing else."""
    style, script = part(STYLE), "\n".join(part(name) for name in SCRIPTS)
    own = f"script-src {_hash(script)}; style-src {_hash(style)}; img-src data:"
    policy = f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"
    # A document may say anything; only "<" could end the element it stands in.
    data = "[" + ",".join(lines).replace("<", "\\u003c") + "]"
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>'
    tail = f'<script type="application/json" id="documents">{data}</script>\n<script>{script}</script>'
    return part(_HTML).replace("<!-- head -->", head).replace("<!-- tail -->", tail)


def export_page(lines: Sequence[str], path: Path) -> Path:
    """Write the page with its documents to ``path`` and return it."""
    write_atomically(path, alone(lines).encode())
    return path


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}'"
