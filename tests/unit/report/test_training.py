"""The report of a training run: one file, nothing else needed, every number with its name."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veilwalk.core.records import Record
from veilwalk.report import training_report
from veilwalk.report._training import _rings
from veilwalk.training import RunSpec, Scenario, make_spec, run_training

SMALL = make_spec(graph="rrg:30:3:seed=1", support="2:3", updates=120, attack=40, evaluations=5)


class Reader(HTMLParser):
    """Collects text and the attributes that could load something."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.loads: list[str] = []
        self.tags: Counter[str] = Counter()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what is loaded."""
        self.tags[tag] += 1
        self.loads += [value or "" for name, value in attrs if name in {"src", "href", "xlink:href", "data", "action"}]

    def handle_data(self, data: str) -> None:
        """Keep what is read."""
        self.words.append(data)

    @property
    def text(self) -> str:
        """All text, with single spaces."""
        return re.sub(r"\s+", " ", " ".join(self.words))


def read(path: Path) -> Reader:
    reader = Reader()
    reader.feed(path.read_text())
    return reader


def trained(settings: RunSpec) -> Record:
    return run_training(Scenario.from_spec(settings)).record()


@pytest.fixture(scope="module")
def record() -> Record:
    return trained(SMALL)


def test_the_report_reads_well_and_loads_nothing(record: Record, tmp_path: Path) -> None:
    """Headings, the table's numbers, the limits; no script but its own, no link outside the page."""
    page = read(training_report(record, tmp_path / "report.html"))
    private = record.result["algorithms"]["private-walk"]
    for words in (
        "30 peers learnt digits:",
        "the receiver of an update names its maker once in",
        f"{private['accuracy']:.1%}",
        f"{100 * private['anonymity']['hit_ratio']:.2f}%",
        f"{private['anonymity']['node_entropy_nats']:.3f}",
        "receiver names the maker",
        "Accuracy against updates, hops and bytes",
        "Who made this update?",
        "What content gives away",
        "Cost ledger",
        "What is and is not protected",
        "Not protected: colluders.",
        "No noise was added",
        "accuracy on held-out data",
        "return time seen by the receiver (hops)",
    ):
        assert words in page.text, words
    assert all(target.startswith(("#", "data:image/png;base64,")) for target in page.loads)
    # One script of its own, which the page's policy names by its digest and lets run alone; no other does.
    assert page.tags["script"] == 1
    assert "link" not in page.tags
    text = (tmp_path / "report.html").read_text()
    assert "@import" not in text
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'\"" in text
    # No colour that a dark page could not change, and none of alarm.
    assert not re.search(r'style="[^"]*(#[0-9a-f]{6}|red)', text)
    # Names of formats, not places: nothing is fetched from them.
    assert set(re.findall(r"https?://[^\"\s<]+", text)) == {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }


def test_the_same_record_gives_the_same_bytes(record: Record, tmp_path: Path) -> None:
    """So that a resumed run ends with the same report."""
    one, two = (training_report(record, tmp_path / name).read_bytes() for name in ("a.html", "b.html"))
    assert one == two


def changed(record: Record, **result: Any) -> Record:
    return Record(kind="train", params=record.params, seed=7, result=dict(record.result) | result)


def test_names_are_text_and_not_markup(record: Record, tmp_path: Path) -> None:
    """A file name with angle brackets is shown, not run."""
    params = dict(record.params) | {"data": "npz:a<b>alert(1)<b>.npz"}
    page = read(training_report(Record(kind="train", params=params, seed=7, result=record.result), tmp_path / "r.html"))
    assert page.tags["script"] == 1
    assert "a<b>alert(1)<b>.npz" in page.text


@pytest.mark.parametrize(
    ("measure", "shown"), [("accuracy", ("87.5%", "75.0%", "–")), ("loss", ("0.875", "0.750", "–"))]
)
def test_every_site_has_its_score_and_its_own_baseline(
    record: Record, tmp_path: Path, measure: str, shown: tuple[str, ...]
) -> None:
    """Where data come by site; elsewhere there is no such table."""
    sites = [
        {"name": name, "rows": 8, "measure": measure, "score": 0.875, "baseline": baseline}
        for name, baseline in (("Graz <b>", 0.75), ("Linz", None))
    ]
    assert "at each site" not in training_report(record, tmp_path / "a.html").read_text()
    text = training_report(replace(record, result={**record.result, "sites": sites}), tmp_path / "b.html").read_text()
    table = text.partition("at each site")[2].partition("</table>")[0]
    assert "Graz &lt;b&gt;" in table
    assert all(f">{cell}<" in table for cell in (*shown, "8"))


def test_what_was_not_done_is_said(record: Record, tmp_path: Path) -> None:
    """No attack, no sample, no comparison: the page still stands."""
    private = {"private-walk": record.result["algorithms"]["private-walk"]}
    bare = changed(record, content_attack=None, sample=None, algorithms=private, warnings=["begun with other versions"])
    page = read(training_report(bare, tmp_path / "r.html"))
    assert "Not tried in this run." in page.text
    assert "begun with other versions" in page.text
    assert "central SGD" not in page.text


def test_noise_and_walks_have_their_lines(tmp_path: Path) -> None:
    """Epsilon with its case; what several walks do and do not promise."""
    noisy = trained(SMALL.change(noise=1.0, clip=0.2, walks=2, attack=0, compare="plain-walk"))
    page = read(training_report(noisy, tmp_path / "r.html"))
    assert "epsilon" in page.text
    assert "(everybody, sender known)" in page.text
    assert "epsilon stands above, against everybody, sender known." in page.text
    assert "2 walks train a model each" in page.text
    assert "sealed independently" in page.text


def test_a_learner_without_accuracy_is_drawn_by_its_loss(record: Record, tmp_path: Path) -> None:
    """Regression has none."""
    runs = {
        name: dict(run) | {"accuracy": None, "points": [dict(point) | {"accuracy": None} for point in run["points"]]}
        for name, run in record.result["algorithms"].items()
    }
    page = read(training_report(changed(record, algorithms=runs), tmp_path / "r.html"))
    assert "loss on held-out data" in page.text


def test_finding_a10_every_score_of_a_learner_is_drawn(record: Record, tmp_path: Path) -> None:
    """A small figure each, with names of its own and where its curves end; what is no number there is left out."""

    def scored(point: Any) -> dict[str, Any]:
        of = point["update"]
        return dict(point) | {"scores": {"f1": of / 240, "f2": None if of else 0.5, "cost $ <b>": of, "never": None}}

    runs = {
        name: dict(run) | {"points": [scored(point) for point in run["points"]]}
        for name, run in record.result["algorithms"].items()
    }
    page = read(training_report(changed(record, algorithms=runs), tmp_path / "r.html"))
    assert "Every other score of the learner, against updates" in page.text
    plain = read(training_report(record, tmp_path / "plain.html"))
    # One for each of f1, f2 and the cost; the loss has one in both.
    assert page.tags["svg"] == plain.tags["svg"] + 3
    assert "private walk ends at f1 0.500 with 120" in page.text
    assert "private walk ends at loss" in plain.text
    assert "cost $ <b> on held-out data" in page.text
    assert "never on held-out data" not in page.text
    assert "accuracy on held-out data" in page.text
    text = (tmp_path / "r.html").read_text()
    ids = re.findall(r'<clipPath id="([^"]+)"', text)
    assert len(ids) == len(set(ids)) > 5


def test_nodes_stand_on_rings_by_distance(record: Record) -> None:
    """As many rings out as hops from the receiver, and no two at one place."""
    sample = record.to_dict()["sample"]
    places = _rings(sample)
    assert np.hypot(*places.T) == pytest.approx(np.array(sample["hops_away"], dtype=float), abs=1e-9)
    assert len({(round(x, 6), round(y, 6)) for x, y in places}) == 30


def test_a_run_without_an_update_has_a_report(tmp_path: Path) -> None:
    """A byte buys none, not even the plain walk's: there is no price to compare with."""
    settings = SMALL.change(updates=20, max_bytes=1, attack=0, compare="plain-walk")
    page = read(training_report(trained(settings), tmp_path / "report.html"))
    assert "after 0 updates and 0 hops" in page.text
