"""Writes what the container image installs, each file with its SHA-256: ``python -m tools.image_requirements``.

The versions are those of ``constraints.txt``; the hashes are the package index's, for Linux on x86-64 and ARM.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "examples" / "deploy" / "requirements.txt"
_FITS = re.compile(
    r"-(py3|py2\.py3)-none-any\.whl$|-(cp311-cp311|cp311-abi3|cp\d+-abi3)-manylinux\S*_(x86_64|aarch64)\.whl$"
)


def list_packages() -> list[tuple[str, str]]:
    """Return what pip would install, with versions: the dependencies of the package and what builds it."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    words = ["install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    words += ["--constraint", str(ROOT / "constraints.txt"), "hatchling", "editables", *needed]
    report = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True, check=True).stdout
    packages: list[dict[str, Any]] = json.loads(report)["install"]
    return sorted((package["metadata"]["name"].lower(), package["metadata"]["version"]) for package in packages)


def read_hashes(name: str, version: str) -> list[str]:
    """Return the SHA-256 of every file of a package that fits the image."""
    with urllib.request.urlopen(f"https://pypi.org/simple/{name.replace('_', '-')}/", timeout=60) as answer:
        links = re.findall(r"([^/\"]+\.whl)#sha256=([0-9a-f]{64})", answer.read().decode())
    start = f"{name.replace('-', '_')}-{version}-"
    return sorted(digest for file, digest in set(links) if file.lower().startswith(start) and _FITS.search(file))


def main() -> None:
    """Write the file."""
    lines = ["# What the image installs; python -m tools.image_requirements writes it anew."]
    for name, version in list_packages():
        lines.append(
            " \\\n    ".join(
                [f"{name}=={version}", *(f"--hash=sha256:{digest}" for digest in read_hashes(name, version))]
            )
        )
    TARGET.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
