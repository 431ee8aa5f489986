"""The pictures of pages in docs/images, taken with the installed Chromium.

python -m tools.pages.screenshots out/demo
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from veilwalk.core.records import Record
from veilwalk.report import training_report

IMAGES = Path(__file__).parents[2] / "docs" / "images"
# Name of the picture, its size, and what else the browser is told.
SHOTS = {
    "report.png": ("1100,1630", ()),
    "report-dark.png": ("1100,1060", ("--blink-settings=preferredColorScheme=0",)),
}
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-background-networking")


def page_of(run: Path, folder: Path) -> Path:
    """Draw the report of a finished run anew, as this version does."""
    kept = json.loads((run / "record.json").read_text())
    about = {key: kept.pop(key) for key in ("kind", "version", "seed", "params")}
    record = Record(kind=about["kind"], params=about["params"], seed=about["seed"], result=kept)
    return training_report(record, folder / "report.html")


def main() -> None:
    """Take all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="folder of a finished run")
    run: Path = parser.parse_args().run
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("pictures are taken with chromium, which is missing: apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        page = page_of(run, Path(folder))
        for name, (size, more) in SHOTS.items():
            told = (*_FLAGS, *more, f"--user-data-dir={folder}/profile", f"--window-size={size}")
            subprocess.run(
                [chromium, *told, f"--screenshot={IMAGES / name}", page.as_uri()], check=True, capture_output=True
            )
            print(f"wrote {IMAGES / name}")


if __name__ == "__main__":
    main()
