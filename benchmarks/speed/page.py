"""How smooth the live page is: milliseconds for a frame of what moves, beside one in which all is painted.

Run ``python -m benchmarks.speed.page``; half a minute. Needs the extra ``dev`` and a chromium.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from veilwalk.graphs import parse_graph_spec
from veilwalk.walks import token_paths
from veilwalk.watch import draw_network, export_page, to_line

SIZES = (100, 500, 2_000, 5_000)
_ROWS, _HOPS, _FRAMES = 40, 20, 60
_TIMES = (
    "frames => { const time = work => { const began = performance.now(); for (let k = 0; k < frames; k += 1) work();"
    "maps.truth.canvas.getContext('2d').getImageData(0, 0, 1, 1); return (performance.now() - began) / frames; };"
    "go(20); return [time(paintTruth), time(() => { maps.truth.base(null); paintTruth(); })]; }"
)


def many_nodes(path: Path, n_nodes: int) -> Path:
    """Write the page of a network of so many nodes with a token that walks; return its path."""
    graph = parse_graph_spec(f"rrg:{n_nodes}:3:seed=1")
    way = token_paths(graph, hops=_ROWS * _HOPS, lanes=1, seed=1)[0].tolist()
    legs = [way[row * _HOPS : (row + 1) * _HOPS + 1] for row in range(_ROWS)]
    columns = {
        "update": list(range(1, _ROWS + 1)),
        "token": [0] * _ROWS,
        "source": [leg[0] for leg in legs],
        "node": [leg[-1] for leg in legs],
        "last_hop": [leg[-2] for leg in legs],
        "hops": [_HOPS] * _ROWS,
        "return_time": [-1] * _ROWS,
        "clock": [_HOPS * row for row in range(1, _ROWS + 1)],
        "tail": legs,
        "recipients": [[leg[-1]] for leg in legs],
    }
    about = {"kind": "about", "what": "cluster", "title": f"{n_nodes} nodes", "observers": [], "facts": []}
    told = (about, draw_network(graph), {"kind": "deliveries"} | columns)
    return export_page([to_line(one) for one in told], path)


def main() -> None:
    """Measure and print."""
    print("nodes   what moves, ms   everything, ms")
    with tempfile.TemporaryDirectory() as place, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        for size in SIZES:
            page.goto(many_nodes(Path(place) / "page.html", size).as_uri())
            page.wait_for_timeout(500)
            moving, everything = page.evaluate(_TIMES, _FRAMES)
            print(f"{size:5d}   {moving:14.2f}   {everything:14.2f}")
        browser.close()


if __name__ == "__main__":
    main()
