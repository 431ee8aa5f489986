"""The moving picture of the README: two updates of a real run, from their making to what their openers can infer.

Run ``make watch-pictures``; it writes ``docs/images/walk.gif``. Everything drawn is a document of the live page of that
run: places, the way of the ciphertext, for whom it was sealed, and the posterior of the one who opened it.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from PIL import Image

from veilwalk.training import Scenario, make_spec, run_training
from veilwalk.watch import Feed, open_source

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "walk.gif"
SETTINGS = make_spec(
    graph="rrg:100:3:seed=1", updates=60, attack=0, compare="", law="far:4", recipients=6, walk="non-backtracking"
)
# Legs that can be followed by eye, and told in a quarter of a minute each.
_FEWEST_HOPS, _MOST_HOPS = 7, 16
_HOP, _PAUSE, _LOOK = 350, 2500, 4000
_BLUE, _GREEN, _ORANGE, _GREY, _INK = "#0072b2", "#00795a", "#b35900", "#c4c8cf", "#16181d"


class Drawing:
    """The network, and one picture after the other."""

    def __init__(self, network: dict[str, Any]) -> None:
        """Draw what stays."""
        self.x, self.y = np.array(network["x"]), -np.array(network["y"])
        self.figure, self.axes = plt.subplots(figsize=(7.6, 4.4), dpi=100)
        self.figure.subplots_adjust(0.01, 0.01, 0.99, 0.88)
        self.axes.set_axis_off()
        ends = np.array(network["edges"]).reshape(-1, 2)
        self.axes.plot(self.x[ends.T], self.y[ends.T], color=_GREY, lw=0.8, zorder=1)
        self.peers = self.axes.scatter(self.x, self.y, s=34, c="white", edgecolors="#7a828e", lw=0.8, zorder=2)
        self.title = self.figure.suptitle("", x=0.02, y=0.97, ha="left", va="top", fontsize=11, color=_INK)
        self.frames: list[Image.Image] = []
        self.lasting: list[int] = []

    def show(self, text: str, milliseconds: int, *, peers: Any = "white", **marks: Any) -> None:
        """Keep one picture: what is said, how peers are filled, and the marks that go again."""
        self.title.set_text(text)
        self.peers.set_facecolor(peers)
        drawn = [self._mark(kind, nodes) for kind, nodes in marks.items()]
        self.figure.canvas.draw()
        self.frames.append(Image.fromarray(np.asarray(self.figure.canvas.buffer_rgba())).convert("RGB"))  # type: ignore[attr-defined]
        self.lasting.append(milliseconds)
        for artist in drawn:
            artist.remove()

    def _mark(self, kind: str, nodes: Any) -> Any:
        if kind == "way":
            return self.axes.plot(self.x[nodes], self.y[nodes], color=_BLUE, lw=2.4, zorder=3)[0]
        looks: dict[str, dict[str, Any]] = {
            "sealed": {"s": 170, "facecolors": "none", "edgecolors": _ORANGE, "linewidths": 2},
            "maker": {"s": 110, "marker": "D", "color": _GREEN},
            "token": {"s": 80, "color": _BLUE},
            "opener": {"s": 110, "marker": "s", "color": _INK},
        }
        return self.axes.scatter(self.x[nodes], self.y[nodes], zorder=4, **looks[kind])

    def save(self, path: Path) -> None:
        """All pictures as one that moves, with one palette."""
        every = Image.fromarray(np.concatenate([np.asarray(self.frames[k]) for k in (1, -2, -1)]))
        palette = every.quantize(96, Image.Quantize.MAXCOVERAGE)
        frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in self.frames]
        frames[0].save(path, save_all=True, append_images=frames[1:], duration=self.lasting, loop=0, optimize=True)


def main() -> None:
    """Train, take two legs that follow each other, and draw them."""
    mpl.use("Agg")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        run_training(Scenario.from_spec(SETTINGS), out=folder)
        documents = [json.loads(text) for text in Feed(open_source(folder)).gather()]
    kinds = {each["kind"]: each for each in documents}
    guesses = {each["row"]: each for each in documents if each.get("observer") == "last-hop"}
    legs = kinds["deliveries"]
    hops = np.array(legs["hops"])
    fit = (hops >= _FEWEST_HOPS) & (hops <= _MOST_HOPS)
    first = next(k for k in range(len(fit) - 1) if fit[k] and fit[k + 1] and k in guesses and k + 1 in guesses)
    drawing = Drawing(kinds["network"])
    for row in (first, first + 1):
        _leg(drawing, {name: legs[name][row] for name in ("tail", "recipients", "hops")}, guesses[row])
    drawing.save(PICTURE)


def _leg(drawing: Drawing, leg: dict[str, Any], guess: dict[str, Any]) -> None:
    way, sealed = leg["tail"], leg["recipients"]
    maker, opener = way[0], way[-1]
    told = f"A peer (green) updates the model and seals it for {len(sealed)} far peers,"
    drawing.show(told + "\ndrawn at random. Only it knows which.", _PAUSE, sealed=sealed, maker=[maker])
    for hop in range(1, len(way)):
        told = f"The ciphertext walks at random until it meets one of them.\nWho relays it cannot open it. Hop {hop}."
        drawing.show(told, _HOP, sealed=sealed, maker=[maker], way=way[: hop + 1], token=[way[hop]])
    weights = np.array(guess["weights"])
    shade = plt.get_cmap("Blues")(np.clip(weights * len(weights) / 6, 0, 1))
    alike = np.exp(guess["entropy_nats"])
    told = (
        f"One of them (black) opens it after {leg['hops']} hops. Who made it? From return time and last hop\n"
        f"its best guess has {weights.max():.1%}: as uncertain as among {alike:.0f} equal suspects of {len(weights)}."
    )
    drawing.show(told, _LOOK, peers=shade, opener=[opener], maker=[maker])


if __name__ == "__main__":
    main()
