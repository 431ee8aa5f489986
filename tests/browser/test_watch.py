"""The page of a run as a person uses it: live while it trains, replayed, by mouse and by keyboard, offline."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from benchmarks.speed.page import many_nodes

from veilwalk.graphs import parse_graph_spec
from veilwalk.learning import read_progress
from veilwalk.training import RunFolder, Scenario, make_spec, run_training
from veilwalk.watch import Feed, draw_network, export_page, open_source, to_line

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: the page is not looked at")
CHROMIUM = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: the page is not looked at")

SETTINGS = make_spec(
    graph="rrg:20:3:seed=1", law="uniform-node", support="2:3", walk="simple", updates=200, attack=0,
    evaluations=10, compare="plain-walk",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as driver:
        # Whoever looks for another machine finds none.
        flags = ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        found = driver.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield found
        found.close()


@contextmanager
def opened(browser: Any, address: str, **options: Any) -> Iterator[Any]:
    """A page, which must neither complain nor ask for anything but its own parts."""
    context = browser.new_context(**options)
    page = context.new_page()
    complaints: list[str] = []
    asked: list[str] = []
    page.on("console", lambda said: complaints.append(said.text) if said.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    yield page
    context.close()
    assert not complaints
    own = address if address.startswith("http") else address.rpartition("/")[0]
    assert asked
    assert all(url.startswith((own, "data:")) for url in asked), asked


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """``veilwalk watch`` as a process of its own; its address."""
    command = [sys.executable, "-m", "veilwalk", "watch", str(folder), "--wait"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"})
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.communicate(timeout=20)


def shown(page: Any, text: str) -> None:
    """Wait until the page says so."""
    page.wait_for_function("text => document.body.innerText.includes(text)", arg=text, timeout=120_000)


@pytest.fixture(scope="module")
def followed(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A run that a page was opened for before it began; what the page said half way, and at the end."""
    folder = tmp_path_factory.mktemp("watch") / "run"
    said: list[str] = []
    with served(folder) as address, opened(browser, address) as page:
        shown(page, "Waiting for a run")

        def look(stage: str, done: int = 0, total: int = 0, news: str = "") -> None:
            """Hold training up until there is a checkpoint of its midst, and then until the page has heard of it."""
            if said or stage != "private-walk" or not 0 < done < total:
                return
            kept = read_progress(RunFolder(folder).checkpoint("private-walk"))
            if kept is None or not kept.done:
                # Checkpoints are half a second apart at least.
                time.sleep(0.6)
                return
            shown(page, f"of {kept.done}")
            said.append(page.inner_text("body"))

        run_training(Scenario.from_spec(SETTINGS), out=folder, progress=look)
        shown(page, "of 200")
        page.wait_for_function("() => document.getElementById('mode').textContent === 'replay'", timeout=120_000)
        said.append(page.inner_text("body"))
    return folder, said


def test_a_page_follows_a_run_while_it_trains(followed: tuple[Path, list[str]]) -> None:
    """Opened before it begins, live half way, a replay at its end; and it says what such a map is."""
    _, (half, end) = followed
    assert "live" in half.split("\n")[0]
    assert "20 peers learn digits" in half
    update = re.search(r"update (\d+) of (\d+)", half)
    assert update is not None
    assert update[1] == update[2], "a live page shows the latest"
    assert 0 < int(update[1]) < 200
    assert "replay" in end.split("\n")[0]
    assert "update 200 of 200" in end
    assert re.search(r"After 200 updates, [\d.]+ hops each; accuracy [\d.]+% on held-out data", end)
    assert "the very observer that the scheme gives no protection against" in half


@pytest.fixture(scope="module")
def exported(followed: tuple[Path, list[str]], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "page.html"
    return export_page(Feed(open_source(followed[0])).gather(), path).as_uri()


def test_the_same_run_is_replayed_from_one_file(browser: Any, exported: str) -> None:
    """Slider, observer, axis and a click: what is shown follows; words and picture are of the same delivery."""
    with opened(browser, exported, viewport={"width": 1200, "height": 900}) as page:
        shown(page, "update 200 of 200")
        tops = page.evaluate(
            "['truth', 'belief'].map(name => document.getElementById(name).getBoundingClientRect().top)"
        )
        assert tops[0] == tops[1]
        # The number of the line at the top of the entropies: a guess among all nodes.
        assert page.evaluate("Math.log(run.network.nodes).toFixed(1)") in page.inner_text("#hidden-chart")
        rows = page.evaluate("run.rows")
        page.locator("#at").evaluate("one => { one.value = 50; one.dispatchEvent(new Event('input')); }")
        shown(
            page,
            f"Update 50: Made by node {rows['source'][49]}, sealed for one node, opened by node {rows['node'][49]}",
        )
        shown(page, "After 50 updates")
        before = page.inner_text("#belief-words")
        page.select_option("#observer", "first-sight")
        shown(page, "nodes collude;")
        assert page.inner_text("#belief-words") != before
        page.check("input[value=hops]")
        page.wait_for_selector('#gain-chart svg[aria-label^="accuracy against hops"]')
        # Where a node stands on the canvas is where a click finds it.
        x, y = page.evaluate("[maps.truth.x[7] / maps.truth.ratio, maps.truth.y[7] / maps.truth.ratio]")
        page.click("#truth", position={"x": x, "y": y})
        shown(page, "Node 7")
        opened_by_7 = rows["node"][:50].count(7)
        said = page.inner_text("#node-body")
        assert (f"{opened_by_7} updates" if opened_by_7 else "nothing yet") in said
        held = sum(way[1:].count(7) for way in rows["tail"][:50])
        assert f"when it held the token: {held} times so far" in said
        page.focus("#truth")
        page.keyboard.press("ArrowRight")
        shown(page, "Node 8")
        page.focus("#at")
        page.keyboard.press("ArrowRight")
        shown(page, "update 51 of 200")


def test_it_plays_and_who_wants_no_motion_gets_none(browser: Any, exported: str) -> None:
    """With motion the token is seen on its way; without, each delivery stands as it is."""
    for motion in ("no-preference", "reduce"):
        with opened(browser, exported, reduced_motion=motion) as page:
            shown(page, "update 200 of 200")
            page.click("#play")
            assert page.get_attribute("#play", "aria-pressed") == "true"
            page.wait_for_function("() => view.at >= 2")
            ways = page.evaluate(
                "new Promise(done => { const seen = new Set(), trail = GraphMap.prototype.trail;"
                "GraphMap.prototype.trail = function (pen, way, upto) { seen.add(upto === way.length - 1);"
                "return trail.call(this, pen, way, upto); }; setTimeout(() => done([...seen]), 700); })"
            )
            assert (False in ways) == (motion == "no-preference")
            page.click("#play")
            assert page.get_attribute("#play", "aria-pressed") == "false"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_legible_on_a_phone_and_in_the_dark(browser: Any, exported: str, scheme: str, tmp_path: Path) -> None:
    """Nothing is wider than 360 px, no text is small, text stands out from its ground; both maps have ink."""
    size = {"width": 360, "height": 740}
    with opened(browser, exported, viewport=size, color_scheme=scheme) as page:
        shown(page, "update 200 of 200")
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        sizes = page.evaluate(
            "[...document.querySelectorAll('p, td, th, li, text, label')].filter(one => one.textContent.trim())"
            ".map(one => parseFloat(getComputedStyle(one).fontSize))"
        )
        assert min(sizes) >= 12
        pairs = page.evaluate(
            "['ink', 'quiet', 'token', 'trail', 'source', 'recipient', 'guess'].map(name => [name, "
            "maps.truth.colour(name), maps.truth.colour('card')])"
        )
        for name, colour, ground in pairs:
            assert contrast(colour, ground) >= (4.5 if name in {"ink", "quiet"} else 3.0), name
        for canvas in ("truth", "belief"):
            inked = page.evaluate(
                "name => { const c = document.getElementById(name);"
                "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
                "let n = 0; for (let k = 3; k < d.length; k += 4) n += d[k] > 0; return n / d.length * 4 }",
                canvas,
            )
            assert inked > 0.01, canvas


def test_a_map_of_few_nodes_has_their_names(browser: Any, tmp_path: Path) -> None:
    """Names of forty nodes are written, long ones shortened; without names, or of more nodes, nothing is."""
    for count, named, names in ((8, True, 8), (8, False, 0), (60, True, 0)):
        graph = parse_graph_spec(f"ring:{count}")
        labels = [f"a hospital in town {node}" for node in range(count)] if named else None
        documents = [{"kind": "about", "what": "train", "title": "Peers learn"}, draw_network(graph, labels)]
        path = export_page([to_line(document) for document in documents], tmp_path / "page.html")
        with opened(browser, path.as_uri(), viewport={"width": 1200, "height": 900}) as page:
            page.wait_for_function("() => maps.truth.painted")
            written = page.evaluate("maps.truth.names")
            assert len(written) == names
            assert all(len(name) <= 14 for name in written)


def contrast(one: str, other: str) -> float:
    """WCAG's ratio of two colours."""
    bright = sorted(map(_luminance, (one, other)), reverse=True)
    return (bright[0] + 0.05) / (bright[1] + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_of_two_thousand_nodes_only_what_moves_is_painted(browser: Any, tmp_path: Path) -> None:
    """Nodes and edges are painted once, however many frames follow (how long these take: benchmarks.speed.page)."""
    page_file = many_nodes(tmp_path / "many.html", 2_000)
    with opened(browser, page_file.as_uri(), viewport={"width": 1200, "height": 900}) as page:
        shown(page, "update 40 of 40")
        page.evaluate(
            "() => { window.painted = { base: 0, begin: 0 }; for (const name of Object.keys(painted)) {"
            "const before = GraphMap.prototype[name]; GraphMap.prototype[name] = function (...all) {"
            "painted[name] += 1; return before.apply(this, all); }; } }"
        )
        page.click("#play")
        page.wait_for_function("() => painted.begin >= 5 && view.at < 40")
        assert page.evaluate("painted.base") == 0
