"""The pictures of the live page, in the docs: a run is trained, its page exported, and looked at by a browser.

Run ``make watch-pictures``; a minute or two on two cores. It writes ``docs/images/watch*.png``. Needs the extra ``dev``
and a chromium.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from veilwalk.training import Scenario, make_spec, run_training
from veilwalk.watch import Feed, export_page, open_source

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SETTINGS = make_spec(graph="rrg:100:3:seed=1", updates=1500, attack=20, compare="paper-walk,plain-walk,gossip")
# Name of the picture, width, height, colours, pixels of the picture for one of the page.
_LOOKS = (
    ("watch.png", 1280, 1480, "light", 1),
    ("watch-dark.png", 1280, 1480, "dark", 1),
    ("watch-phone.png", 360, 1480, "light", 2),
)
# A node to be asked, at a delivery in the middle that observers are asked about.
_NODE = 17
_SHOWN = "node => { const of = run.posteriors['last-hop']; go(of[of.length >> 1].row + 1); choose(node); }"


def main() -> int:
    """Train, export, look."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.stderr.write("chromium is missing\n")
        return 1
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        run_training(Scenario.from_spec(SETTINGS), out=folder)
        page = export_page(Feed(open_source(folder)).gather(), Path(place) / "page.html")
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            for look in _LOOKS:
                _look(browser, page.as_uri(), look)
            browser.close()
    return 0


def _look(browser: Browser, address: str, look: tuple[str, int, int, str, int]) -> None:
    name, width, height, colours, ratio = look
    context = browser.new_context(
        viewport={"width": width, "height": height},
        device_scale_factor=ratio,
        color_scheme="dark" if colours == "dark" else "light",
    )
    page = context.new_page()
    page.goto(address)
    page.wait_for_timeout(500)
    page.evaluate(_SHOWN, _NODE)
    page.wait_for_timeout(500)
    page.screenshot(path=IMAGES / name)
    context.close()


if __name__ == "__main__":
    sys.exit(main())
