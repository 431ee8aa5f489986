"""The site as it is opened from a file: searched, without network."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest
from tools.pages.site import ROOT, build, cut_off, put_together

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: the site is not looked at")
CHROMIUM = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: the site is not looked at"),
    pytest.mark.skipif(importlib.util.find_spec("zensical") is None, reason="no zensical here: the site is not built"),
]


def test_the_site_is_searched_from_a_file(tmp_path: Path) -> None:
    """Pages that hold the word are listed, and lead there; nothing is asked of another machine, nothing complains."""
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    put_together(tmp_path / "out" / "site-source")
    assert build(tmp_path / "zensical.toml").returncode == 0
    site = tmp_path / "out" / "site"
    cut_off(site)
    complaints, asked = [], []
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "docs" / "how-to" / "operate-nodes.html").as_uri())
        page.locator(".md-search__button").first.click()
        box = page.get_by_role("combobox")
        box.press_sequentially("sandwich")
        found = page.locator("a[href*='what-really-leaks.html']").filter(has_text="andwich").first
        found.wait_for(timeout=20_000)
        assert box.input_value() == "sandwich"
        found.click()
        page.wait_for_url("**/docs/explanation/what-really-leaks.html*")
        browser.close()
    assert not complaints
    assert asked
    assert all(url.startswith((site.as_uri(), "data:")) for url in asked)
