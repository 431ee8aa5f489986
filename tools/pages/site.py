"""The site: pages put together as they lie in the repository, built by Zensical, strictly.

    python -m tools.pages.site

Pages link to each other, to files beside ``docs`` and to code by paths that also work where the repository is browsed.
So what is built is a copy that keeps those paths; a dead link or anchor ends the build.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_BESIDE = ("README.md", "SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "paper/errata.md")
_FOLDERS = ("docs", "examples")
# A page that was opened from a file may start no worker, and the search is one: there a frame does its work.
_WORKER = """
if (location.protocol === "file:") window.Worker = class {
  constructor(url) {
    this.frame = document.body.appendChild(document.createElement("iframe"));
    this.frame.hidden = true;
    this.frame.contentWindow.postMessage = (data) => setTimeout(() => this.onmessage?.({ data }));
    const script = this.frame.contentDocument.createElement("script");
    this.ready = new Promise((done, failed) => { script.onload = done; script.onerror = failed; });
    script.src = url;
    this.frame.contentDocument.body.append(script);
  }
  postMessage(data) {
    const copy = { data: structuredClone(data) };
    this.ready.then(() => this.frame.contentWindow.onmessage(copy), (error) => this.onerror?.(error));
  }
  terminate() { this.frame.remove(); }
};
"""
_LINK = re.compile(r"\]\(([^)#:\s]+)[^)\s]*\)")


def put_together(source: Path) -> list[Path]:
    """Copy all pages, and every file that one of them links to, into ``source``; return the pages."""
    shutil.rmtree(source, ignore_errors=True)
    files = {ROOT / name for name in _BESIDE}
    for folder in _FOLDERS:
        files |= {path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    pages = sorted(path for path in files if path.suffix == ".md")
    for page in pages:
        linked = ((page.parent / name).resolve() for name in _LINK.findall(page.read_text()))
        files |= {path for path in linked if path.is_file() and path.is_relative_to(ROOT)}
    for path in sorted(files):
        target = source / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return [page.relative_to(ROOT) for page in pages]


def in_the_menu() -> set[Path]:
    """Return the pages that the menu lists."""

    def leaves(entry: Any) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        inside = entry.values() if isinstance(entry, dict) else entry
        return [leaf for one in inside for leaf in leaves(one)]

    return set(map(Path, leaves(tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"])))


def build(config: Path = ROOT / "zensical.toml") -> subprocess.CompletedProcess[str]:
    """Build; warnings are errors."""
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file", str(config)]
    return subprocess.run(command, cwd=config.parent, capture_output=True, text=True, check=False)


def cut_off(site: Path) -> None:
    """Take out what the built pages would fetch from other machines, and put in what it did: searching from a file."""
    for page in site.rglob("*.html"):
        page.write_text(
            re.sub(r'<script src="https?://[^>]*></script>', f"<script>{_WORKER}</script>", page.read_text())
        )


def main() -> None:
    """Build the site into out/site."""
    if importlib.util.find_spec("zensical") is None:
        sys.exit("the site is built with zensical, not installed here: pip install 'veilwalk[docs]'")
    put_together(ROOT / "out" / "site-source")
    built = build()
    print(built.stdout + built.stderr, end="")
    if built.returncode:
        sys.exit("the site has errors: see above")
    cut_off(ROOT / "out" / "site")
    print(f"open {ROOT / 'out' / 'site' / 'index.html'}")


if __name__ == "__main__":
    main()
