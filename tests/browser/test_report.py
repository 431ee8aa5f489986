"""The report as a person sees it: opened in a browser, without network."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from veilwalk.core.records import Record
from veilwalk.report import training_report
from veilwalk.training import Scenario, make_spec, run_training

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((found for name in NAMES if (found := shutil.which(name))), None)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--hide-scrollbars",
)  # fmt: skip
# Whoever looks for another machine finds none.
OFFLINE = ("--host-resolver-rules=MAP * ~NOTFOUND",)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: the report is not looked at")


class Shown(HTMLParser):
    """Text that a browser shows: everything but style sheets and drawing definitions."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        """Hide what follows, or not."""
        self._hidden += tag in {"style", "title", "desc", "metadata", "script"}

    def handle_endtag(self, tag: str) -> None:
        """Show again."""
        self._hidden -= tag in {"style", "title", "desc", "metadata", "script"}

    def handle_data(self, data: str) -> None:
        """Keep what is shown."""
        if not self._hidden:
            self.words.append(data)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> tuple[Record, Path]:
    folder = tmp_path_factory.mktemp("report")
    settings = make_spec(graph="rrg:30:3:seed=1", support="2:3", updates=120, attack=40, evaluations=5)
    record = run_training(Scenario.from_spec(settings)).record()
    return record, training_report(record, folder / "report.html")


def browse(page: Path, *arguments: str) -> str:
    profile = page.parent / f"profile-{len(list(page.parent.iterdir()))}"
    assert CHROMIUM is not None
    shown = subprocess.run(
        [CHROMIUM, *FLAGS, *OFFLINE, f"--user-data-dir={profile}", *arguments, page.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return shown.stdout


def test_a_person_reads_gain_price_and_leak(opened: tuple[Record, Path]) -> None:
    """The numbers of the record, where a reader looks for them."""
    record, page = opened
    dom = browse(page, "--dump-dom")
    shown = Shown()
    shown.feed(dom)
    text = re.sub(r"\s+", " ", " ".join(shown.words))
    private = record.result["algorithms"]["private-walk"]
    once = f"once in {1 / private['anonymity']['hit_ratio']:.{int(private['anonymity']['hit_ratio'] > 0.1)}f}"
    assert f"30 peers learnt digits: {private['accuracy']:.1%} accuracy; the receiver of an update names" in text
    # In words first, each sentence with what kind of number it holds, then the cards, then figures.
    words = text[: text.index("What was gained, what it cost, what leaks")]
    assert f"An update took {private['hops_per_update']:.1f} hops" in words
    assert words.count(once) == 2
    assert "The paper's scheme, sealed for one, took" in words
    for kind in ("measured in this run", private["anonymity"]["kind"]):
        assert kind in words
    assert f"{private['accuracy']:.1%} accuracy on 359 held-out rows" in text
    assert (
        f"{private['anonymity']['hit_ratio']:.2%} of updates: the receiver's first guess at the maker is right" in text
    )
    assert "plain walk" in text
    assert "100.00%" in text
    for heading in (
        "What was gained, what it cost, what leaks",
        "Accuracy against updates, hops and bytes",
        "Who made this update?",
        "What content gives away",
        "Cost ledger",
        "What is and is not protected",
    ):
        assert f">{heading}</h2>" in dom
    # Six figures, with words for who cannot see them; lines of the legend have theirs beside them. The sixth is the
    # loss: a score that the large ones, of accuracy, do not show.
    assert dom.count('role="img"') == dom.count("<desc>") == 6
    assert dom.count('aria-label="Loss against updates.') == 1
    assert dom.count("<svg") == 6 + dom.count('aria-hidden="true"')
    assert "node entropy (nats)" in text
    assert "a peer's share, beside an even one of 3.4%" in text
    assert "nan" not in text.lower().split()
    assert "None" not in text


def test_tables_are_copied_as_they_stand(opened: tuple[Record, Path], tmp_path: Path) -> None:
    """The page's own policy lets its one script make the buttons; pressed, they hand out the whole table as CSV."""
    record, page = opened
    assert browse(page, "--dump-dom").count(">Copy as CSV</button>") == 4
    # A copy without the policy, so that a script of this test may press and look.
    text = re.sub(r"<meta http-equiv.*?>", "", page.read_text())
    press = (
        "navigator.clipboard.writeText = async (text) => {"
        " const shown = document.createElement('pre'); shown.className = 'copied'; shown.textContent = text;"
        " document.body.append(shown); };"
        "for (const button of document.querySelectorAll('button')) button.click();"
    )
    (tmp_path / "pressed.html").write_text(text.replace("</body>", f"<script>{press}</script></body>"))
    dom = browse(tmp_path / "pressed.html", "--dump-dom", "--virtual-time-budget=500")
    copied = [unescape(found) for found in re.findall(r'<pre class="copied">(.*?)</pre>', dom, re.DOTALL)]
    assert len(copied) == 4
    rows = list(csv.DictReader(copied[0].splitlines()))
    private = record.result["algorithms"]["private-walk"]
    assert rows[0]["algorithm"] == "private walk"
    assert len(rows) == len(record.result["algorithms"])
    assert rows[0]["receiver names the maker"] == f"{private['anonymity']['hit_ratio']:.2%}"
    assert None not in rows[0]
    # A cell with a comma of its own stays one cell.
    assert {row["granted"] for row in csv.DictReader(copied[1].splitlines())} >= {"data, model before"}


def test_nothing_vanishes_in_the_dark_nor_on_a_phone(opened: tuple[Record, Path], tmp_path: Path) -> None:
    """Dark: light ink on a dark ground, in the figures too. 360 px wide: nothing stands out at the right."""
    import matplotlib.image as mpl_image

    _, page = opened
    dark = ("--blink-settings=preferredColorScheme=0", "--window-size=1100,2600")
    browse(page, *dark, f"--screenshot={tmp_path / 'dark.png'}")
    pixels = mpl_image.imread(tmp_path / "dark.png")[:, :, :3]
    assert np.median(pixels) < 0.2
    lit = (pixels.min(axis=2) > 0.7).mean(axis=1)
    for part in range(0, 2600, 520):
        assert (lit[part : part + 520] > 0).mean() > 0.1, part
    measure = "document.title = `${innerWidth} ${document.documentElement.scrollWidth}`"
    wide = page.read_text().replace("</body>", f"<script>{measure}</script></body>")
    (tmp_path / "phone.html").write_text(re.sub(r"<meta http-equiv.*?>", "", wide))
    dom = browse(tmp_path / "phone.html", "--window-size=360,800", "--dump-dom")
    found = re.search(r"<title>(\d+) (\d+)</title>", dom)
    assert found is not None
    # The browser may insist on a few more.
    assert int(found[2]) <= int(found[1]) <= 500


def test_the_page_is_painted(opened: tuple[Record, Path], tmp_path: Path) -> None:
    """A screenshot has ink all the way down, not one white sheet."""
    import matplotlib.image as mpl_image

    _, page = opened
    browse(page, "--window-size=1100,2600", f"--screenshot={tmp_path / 'page.png'}")
    pixels = mpl_image.imread(tmp_path / "page.png")[:, :, :3]
    assert pixels.shape[:2] == (2600, 1100)
    inked = (pixels.min(axis=2) < 0.5).mean(axis=1)
    for part in range(0, 2600, 520):
        assert (inked[part : part + 520] > 0).mean() > 0.1, part
