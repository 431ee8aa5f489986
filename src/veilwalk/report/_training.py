"""The report of a training run: one HTML file that needs nothing else, with its numbers in words and figures."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from veilwalk.core.records import Record, score_of, write_atomically
from veilwalk.core.units import readable_bytes, readable_seconds
from veilwalk.report._training_figures import accuracy_svgs, curve_looks, entropy_svg, posterior_svg, score_svgs

#: The algorithms whose receivers are meant not to know.
_PRIVATE_SCHEMES = ("private-walk", "paper-walk")
_MEASURED = "measured in this run"
_NAMES = {
    "private-walk": "private walk",
    "paper-walk": "the paper's walk",
    "plain-walk": "plain walk",
    "gossip": "gossip (D-PSGD)",
    "central": "central SGD",
}


def training_report(record: Record, path: Path) -> Path:
    """Write the report of ``record`` to ``path`` and return it."""
    found: Mapping[str, Any] = record.to_dict()
    source, script = (
        resources.files("veilwalk.report").joinpath(name).read_text() for name in ("training.html", "tables.js")
    )
    page = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    labels = found.get("labels")
    filters: dict[str, Callable[..., str]] = {
        "peer": lambda node: str(node) if labels is None else labels[node],
        "share": percent,
        "score": score,
        "size": readable_bytes,
        "count": _count,
        "time": readable_seconds,
        "epsilon": _epsilon,
    }
    page.filters |= filters
    algorithms, sample = found["algorithms"], found["sample"]
    gain = score_of(algorithms["private-walk"]["points"][-1])[0]
    drawn = "accuracy" if gain == "accuracy" else "loss"
    text = page.from_string(source).render(
        run=found,
        names=_NAMES,
        gain=gain,
        private=algorithms["private-walk"],
        headline=headline(found),
        summary=summary(found),
        findings=findings(found),
        curves=curve_looks(algorithms),
        script=script,
        # Of all scripts only this one may run, whatever the record holds.
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        figures={
            "accuracy": accuracy_svgs(algorithms, drawn),
            "scores": score_svgs(algorithms, drawn),
            "entropy": entropy_svg(
                {name: algorithms[name]["anonymity"] for name in _PRIVATE_SCHEMES if name in algorithms}
            ),
            "posterior": posterior_svg(sample) if sample is not None else None,
        },
    )
    write_atomically(path, text.encode())
    return path


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def _epsilon(value: float | None) -> str:
    # Records keep infinities as None.
    return "∞" if value is None else f"{value:.3g}"


def headline(run: Mapping[str, Any]) -> str:
    """Return what came of it, in one line."""
    private = run["algorithms"]["private-walk"]
    named = chance(private["anonymity"]["hit_ratio"])
    return (
        f"{run['network']['nodes']} peers trained on {run['params']['data']} to {reached(private)}; "
        f"who receives an update names its maker {named}"
    )


def summary(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return sentences with what kind of number is in each: measured, exact or estimated."""
    algorithms = run["algorithms"]
    private, kind = algorithms["private-walk"], algorithms["private-walk"]["anonymity"]["kind"]
    leak, sealed = private["anonymity"], run["network"]["recipients"]
    opened = "one peer" if sealed == 1 else f"{sealed} peers, of whom the first met opens it"
    gained = (
        f"{run['network']['nodes']} peers trained on {run['params']['data']}: {reached(private)} on "
        f"{run['data']['held_out_rows']} rows that nobody trained on, after {private['updates']:,} updates"
    )
    paid = (
        f"An update took {hops(private)} and {readable_bytes(private['bytes_per_update'])}, sealed for {opened}; "
        "a plain walk takes one hop, and hides nothing."
    )
    left = (
        f"The peer that received it is right {chance(leak['hit_ratio'])} with its best guess at who made it; "
        f"guessing without looking, {chance(leak['blind_hit_ratio'])}. It is left with "
        f"{leak['node_entropy_nats']:.2f} nats of node entropy, as among {math.exp(leak['node_entropy_nats']):.0f} "
        "equally likely peers."
    )
    told = [
        (f"{gained}{_beside(algorithms)}.", _MEASURED),
        (paid, f"{_MEASURED}, means over updates"),
        (left, kind),
    ]
    if "paper-walk" in algorithms:
        paper = algorithms["paper-walk"]
        held = paper["anonymity"]
        beside = (
            f"The paper's scheme, sealed for one, took {hops(paper)} for an update on the same network; its receivers "
            f"are right {chance(held['hit_ratio'])}, and left with {held['node_entropy_nats']:.2f} nats of it."
        )
        told.append((beside, f"hops {_MEASURED}; the rest {held['kind']}"))
    return told


def findings(run: Mapping[str, Any]) -> dict[str, str]:
    """Return what each figure shows, as its heading."""
    algorithms = run["algorithms"]
    private, leak = algorithms["private-walk"], algorithms["private-walk"]["anonymity"]
    learning = f"{reached(private)} after {private['updates']:,} updates and {private['hops']:,} hops"
    plain = algorithms.get("plain-walk")
    # A budget may have allowed it no update, and then it has no price.
    if plain is not None and plain["updates"]:
        learning = (
            f"Update for update {score(private)} against the plain walk's {score(plain)}; "
            f"hop for hop {private['hops_per_update'] / plain['hops_per_update']:.0f} times the price"
        )
    found = {"learning": learning}
    sample = run["sample"]
    if sample is not None:
        given = sample["posterior"][sample["source"]]
        found["posterior"] = f"Of one update the receiver gives its true maker {percent(given, 2)}"
    rows = [row for row in leak["by_return_time"] if row["share"] > 0]
    first = rows[0]
    found["entropy"] = (
        f"Short returns give most away: {first['node_entropy_nats']:.2f} nats of node entropy are left at the shortest "
        f"({percent(first['share'])} of deliveries), {leak['node_entropy_nats']:.2f} on average"
    )
    attacks = run["content_attack"]
    if attacks:
        worst = attacks[0]
        found["content"] = (
            f"Who is granted {worst.get('granted', 'nothing')} names the maker by content "
            f"in {percent(worst['hit_ratio'])} of updates"
        )
    return found


def chance(share: float | None) -> str:
    """Return a probability as people count: once in so many."""
    if not share:
        return "never"
    if share > 1 / 2:
        return "always" if share == 1.0 else percent(share) + " of the time"
    return f"once in {1 / share:.{1 if share > 0.1 else 0}f}"


def hops(found: Mapping[str, Any]) -> str:
    """Return hops of an update, as a mean."""
    return f"{found['hops_per_update']:.{0 if found['hops_per_update'] >= 100 else 1}f} hops"


def percent(value: float | None, digits: int = 1) -> str:
    """Return a share in percent; a dash where there is none."""
    return "–" if value is None else f"{100 * value:.{digits}f}%"


def score(found: Mapping[str, Any], most_hops: float = math.inf) -> str:
    """Return what the last model of an algorithm is good for, or the last within so many hops."""
    name, value = score_of([point for point in found["points"] if point["hops"] <= most_hops][-1])
    return percent(value) if name == "accuracy" else f"{value:.3f}"


def reached(found: Mapping[str, Any]) -> str:
    """Return the same with its name: 96.7% accuracy, loss 0.123."""
    name, _ = score_of(found["points"][-1])
    return f"{score(found)} accuracy" if name == "accuracy" else f"{name} {score(found)}"


def _beside(algorithms: Mapping[str, Any]) -> str:
    return f" (central training: {score(algorithms['central'])})" if "central" in algorithms else ""
