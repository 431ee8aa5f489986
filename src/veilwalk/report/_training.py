"""The report of a training run: one HTML file that needs nothing else, drawn from the run's record."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from veilwalk.core.records import Record, score_of, write_atomically
from veilwalk.core.units import readable_bytes
from veilwalk.report._training_figures import accuracy_svg, entropy_svg, posterior_svg

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
    source = resources.files("veilwalk.report").joinpath("training.html").read_text()
    page = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    labels = found.get("labels")
    filters: dict[str, Callable[..., str]] = {
        "peer": lambda node: str(node) if labels is None else labels[node],
        "share": _share,
        "score": _score,
        "size": readable_bytes,
        "count": _count,
        "time": _time,
        "epsilon": _epsilon,
    }
    page.filters |= filters
    sample = found["sample"]
    text = page.from_string(source).render(
        run=found,
        names=_NAMES,
        gain=score_of(found["algorithms"]["private-walk"]["points"][-1])[0],
        private=found["algorithms"]["private-walk"],
        figures={
            "accuracy": accuracy_svg(found["algorithms"]),
            "entropy": entropy_svg(found["algorithms"]["private-walk"]["anonymity"]),
            "posterior": posterior_svg(sample) if sample is not None else None,
        },
    )
    write_atomically(path, text.encode())
    return path


def _share(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{100 * value:.{digits}f}%"


def _score(found: Mapping[str, Any], hops: float = math.inf) -> str:
    """What the last model of an algorithm is good for, or the last within so many hops."""
    name, value = score_of([point for point in found["points"] if point["hops"] <= hops][-1])
    return _share(value) if name == "accuracy" else f"{value:.3f}"


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
