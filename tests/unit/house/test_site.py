"""The site: builds strictly, offline, with every page in its menu; and what its pages say of others holds."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from tools.pages.choices import NETWORKS, PAGE, row
from tools.pages.site import ROOT, build, cut_off, in_the_menu, put_together

DOCS = ROOT / "docs"
needs_zensical = pytest.mark.skipif(
    importlib.util.find_spec("zensical") is None, reason="no zensical here (veilwalk[docs]): the site is not built"
)


@needs_zensical
def test_the_site_builds_strictly_and_asks_nobody(tmp_path: Path) -> None:
    """No dead link or anchor; what is built loads nothing from elsewhere, and opens from a file."""
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    put_together(tmp_path / "out" / "site-source")
    built = build(tmp_path / "zensical.toml")
    assert built.returncode == 0, built.stdout + built.stderr
    site = tmp_path / "out" / "site"
    cut_off(site)
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        text = page.read_text()
        assert not re.search(r"<(script|img|iframe)[^>]*src=\"(https?:)?//", text), page
        assert not re.search(r"<link[^>]*rel=\"(stylesheet|preload|preconnect)\"[^>]*href=\"(https?:)?//", text), page
    # Beside each other as files: a link to a page names it.
    assert 'href="docs/measured/learning.html' in (site / "index.html").read_text()


@needs_zensical
@pytest.mark.parametrize("dead", ["[x](docs/nowhere.md)", "[x](docs/reference/cli.md#no-such-part)"])
def test_a_dead_link_ends_the_build(dead: str, tmp_path: Path) -> None:
    """A page that is not there, or a part of one."""
    source = tmp_path / "out" / "site-source"
    (source / "docs" / "reference").mkdir(parents=True)
    (source / "docs" / "reference" / "cli.md").write_text("# Here\n")
    (source / "README.md").write_text(f"# Start\n\n{dead}\n")
    (tmp_path / "zensical.toml").write_text(
        '[project]\nsite_name = "x"\ndocs_dir = "out/site-source"\nsite_dir = "out/site"\nuse_directory_urls = false\n'
    )
    assert build(tmp_path / "zensical.toml").returncode != 0


def test_every_page_is_in_the_menu(tmp_path: Path) -> None:
    """And the menu lists no other."""
    assert in_the_menu() == set(put_together(tmp_path / "source"))


def test_every_picture_is_shown_and_has_words() -> None:
    """No picture lies about unused; who cannot see a picture is told what it shows."""
    pages = "\n".join(page.read_text() for page in [ROOT / "README.md", *DOCS.rglob("*.md")])
    pictures = {path.name for path in (DOCS / "images").iterdir()}
    assert pictures == {name for name in pictures if f"images/{name})" in pages}
    assert all(re.findall(r"!\[([^\]]*)\]", pages))


@pytest.mark.parametrize("page", ["explanation/faq.md", "measured/comparisons.md"])
def test_numbers_of_answers_are_those_of_the_pages_they_link_to(page: str) -> None:
    """Each number with a point or a percent sign stands on a page of this repository that the answer links to."""
    text = (DOCS / page).read_text().partition("\n## Five published settings")[0]
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        if part.startswith("Systems"):
            continue
        # What others published is theirs, and said to be.
        told = re.sub(r"^What others published.*?(?=^#|\Z)", "", part, flags=re.MULTILINE | re.DOTALL)
        links = re.findall(r"\]\(([^)#:]+\.md)", part)
        linked = "\n".join(((DOCS / page).parent / name).read_text() for name in links)
        for number in re.findall(r"\d+(?:\.\d+)?%|\d+\.\d+", re.sub(r"`[^`]*`|\]\([^)]*\)", "", told)):
            assert re.search(rf"(?<![\d.]){re.escape(number)}", linked), (part.splitlines()[0], number)


def test_the_table_of_choices_is_the_commands() -> None:
    """Every network asked about has its lines, in the form that the command's answer takes."""
    said: dict[str, Any] = {
        "meets_floor": False,
        "design": {
            "recipients": 16, "law": "far:4", "walk": "non-backtracking", "mean_iteration_hops": 21.64,
            "bytes_per_update": 1.11e6, "node_entropy_nats": 5.555, "node_entropy_share": 0.9745,
            "hit_ratio_interval": [0.015, 0.02], "predecessor": {"knows_first_hop": {"mean": 0.103}},
            "read_by_colluders": [{"share": 0.05, "mean": 0.401}, {"share": 0.1, "mean": 0.634}],
        },
    }  # fmt: skip
    heavy = {"design": said["design"] | {"bytes_per_update": 2e8}}
    line = row("rrg:60:4:seed=1", {31_400: said, 10_000_000: heavy})
    scheme = "| 16, `far:4`, non-backtracking | 21.6 | 31 kB: 1.11 MB, 10 MB: 200 MB"
    assert line.endswith(f"{scheme} | 5.55, 97.5% (**less than asked**) | 1.5% to 2.0% | 10% | 63% |")
    with pytest.raises(SystemExit):
        row("rrg:60:4:seed=1", {31_400: said, 10_000_000: {"design": heavy["design"] | {"recipients": 8}}})
    table = PAGE.read_text().partition("<!-- written by python -m tools.pages.choices -->")[2]
    for about in NETWORKS.values():
        assert table.count(f"| {about} |") == 1
    larger = [line for line in table.splitlines() if "**recommended**" in line]
    assert len(larger) == 6
    assert set(larger) <= set((DOCS / "measured" / "routes.md").read_text().splitlines())
