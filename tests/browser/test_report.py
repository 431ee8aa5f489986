"""The report as a person sees it: opened in a browser, without network."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from veilwalk.core.records import Record
from veilwalk.report import training_report
from veilwalk.training import Scenario, TrainSettings, run_training

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
        self._hidden += tag in {"style", "title", "metadata"}

    def handle_endtag(self, tag: str) -> None:
        """Show again."""
        self._hidden -= tag in {"style", "title", "metadata"}

    def handle_data(self, data: str) -> None:
        """Keep what is shown."""
        if not self._hidden:
            self.words.append(data)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> tuple[Record, Path]:
    folder = tmp_path_factory.mktemp("report")
    settings = TrainSettings(graph="rrg:30:3:seed=1", support="2:3", updates=120, attack=40, evaluations=5)
    record = run_training(Scenario.of(settings), settings).record()
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
    assert "30 peers trained on digits without telling whose update is whose" in text
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
    assert dom.count("<svg") == 3
    assert "node entropy (nats)" in text
    assert "posterior of one node (%)" in text
    assert "nan" not in text.lower().split()
    assert "None" not in text


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
