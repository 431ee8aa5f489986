"""The files and commands of a page of the documentation, as a reader would copy them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def write_files(page: str, folder: Path) -> list[str]:
    """Write the blocks of a page that begin with the name of a file into ``folder``; return these names."""
    text = (ROOT / "docs" / "how-to" / f"{page}.md").read_text()
    blocks = re.findall(r"```(?:python|toml)\n# ([\w/]+\.\w+)\n(.*?)```", text, re.DOTALL)
    for name, content in blocks:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return [name for name, _ in blocks]


def list_commands(page: str) -> list[str]:
    """Return the commands of a page that call veilwalk, in order."""
    text = (ROOT / "docs" / "how-to" / f"{page}.md").read_text()
    return re.findall(r"^    (veilwalk .*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)


def run_in(folder: Path, *words: str, timeout_s: float = 300) -> str:
    """Run this package's command line, or a Python file, in ``folder``; return what it writes, if it succeeds."""
    first = ["-m", "veilwalk", *words[1:]] if words[0] == "veilwalk" else list(words)
    ended = subprocess.run(
        [sys.executable, *first], cwd=folder, capture_output=True, text=True, check=False, timeout=timeout_s
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    return ended.stdout
