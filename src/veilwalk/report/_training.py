"""The report of a training run: one HTML file that needs nothing else, drawn from the run's record."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from veilwalk.core.records import Record, score_of, write_atomically
from veilwalk.core.units import readable_bytes
from veilwalk.report._training_figures import accuracy_svgs, curve_looks, entropy_svg, posterior_svg, score_svgs
from veilwalk.report._training_words import PRIVATE_SCHEMES, findings, headline, percent, score, summary

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
        "time": _time,
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
                {name: algorithms[name]["anonymity"] for name in PRIVATE_SCHEMES if name in algorithms}
            ),
            "posterior": posterior_svg(sample) if sample is not None else None,
        },
    )
    write_atomically(path, text.encode())
    return path


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def _time(seconds: float) -> str:
    for least, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if seconds >= least:
            return f"{seconds / least:.3g} {unit}"
    return f"{1000 * seconds:.3g} ms"


def _epsilon(value: float | None) -> str:
    # Records keep infinities as None.
    return "∞" if value is None else f"{value:.3g}"
