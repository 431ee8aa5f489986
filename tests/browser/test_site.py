"""The site as it is opened from a file: searched, without network."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.pages.site import ROOT, build, cut_off, put_together

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: the site is not looked at")
CHROMIUM = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: the site is not looked at"),
    pytest.mark.skipif(importlib.util.find_spec("zensical") is None, reason="no zensical here: the site is not built"),
]


#: By how much the page, its widest table and its widest block of code or output reach beyond their place.
OVERHANG = """() => {
  const tables = [...document.querySelectorAll("article table:not([class])")];
  const beyond = tables.map((table) => table.scrollWidth - table.parentElement.clientWidth);
  const blocks = [...document.querySelectorAll("article pre > code")];
  const cut = blocks.map((block) => block.scrollWidth - block.clientWidth);
  return [document.documentElement.scrollWidth - innerWidth, Math.max(0, ...beyond), Math.max(0, ...cut)];
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as ``make docs`` builds it."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(ROOT / "zensical.toml", folder)
    put_together(folder / "out" / "site-source")
    assert build(folder / "zensical.toml").returncode == 0
    cut_off(folder / "out" / "site")
    return folder / "out" / "site"


@pytest.fixture
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_no_page_is_wider_than_the_screen(site: Path, browser: Any, width: int) -> None:
    """Nor a table, nor what the front page shows of a terminal; on a phone both may scroll."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri())
        beyond, table, block = page.evaluate(OVERHANG)
        assert beyond <= 0, path.name
        assert table == 0 or width < 700, path.name
        assert block == 0 or width < 700 or path != site / "index.html"


def test_the_site_is_searched_from_a_file(site: Path, browser: Any) -> None:
    """Pages that hold the word are listed, and lead there; nothing is asked of another machine, nothing complains."""
    complaints, asked = [], []
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
    assert not complaints
    assert asked
    assert all(url.startswith((site.as_uri(), "data:")) for url in asked)
