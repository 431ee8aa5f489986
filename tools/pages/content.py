"""What content gives away, by how an update is made: batch, local steps, momentum, noise.

Run ``python -m tools.pages.content`` from the checkout; a few minutes. It prints a table in Markdown: the share
of deliveries whose maker each attacker names at its first guess, joined with what the route says. Ways to make an
update are jobs, kept in ``--work``; ``--engine`` does them elsewhere.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.pages.campaign import add_engine, engine
from tools.pages.markdown import markdown_table, share_between
from veilwalk.core.records import plain
from veilwalk.training import (
    Scenario,
    attacked_rows,
    content_attack,
    gather_evidence,
    make_spec,
    route_anonymity,
)

COLUMNS = ("route alone", "drop", "count", "step", "gradient")
_STEP = "softmax:learning_rate=0.3"
#: How an update is made: learner, noise and clip.
UPDATES: dict[str, tuple[str, float, float]] = {
    "whole batch": (f"{_STEP}:batch_size=1000", 0.0, 0.0),
    "batch 32": (_STEP, 0.0, 0.0),
    "batch 8": (f"{_STEP}:batch_size=8", 0.0, 0.0),
    "batch 32, 5 local steps": (f"{_STEP}:local_steps=5", 0.0, 0.0),
    "batch 32, momentum 0.9": (f"{_STEP}:momentum=0.9", 0.0, 0.0),
    "network of 64 units, batch 32": ("mlp:learning_rate=0.3", 0.0, 0.0),
    "batch 32, clip 0.1": (_STEP, 0.0, 0.1),
    "batch 32, clip 0.1, noise 0.1": (_STEP, 0.1, 0.1),
    "batch 32, clip 0.1, noise 0.3": (_STEP, 0.3, 0.1),
    "batch 32, clip 0.1, noise 1": (_STEP, 1.0, 0.1),
    "batch 32, clip 0.1, noise 4": (_STEP, 4.0, 0.1),
}


def measured(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return what every attacker finds of one way to make an update, by name.

    The route's posteriors, in which the learner has no part, are found anew in each job: they take a second.
    """
    settings = make_spec(**job)
    scenario = Scenario.from_spec(settings)
    trace = scenario.trace("private-walk")
    rows = attacked_rows(trace, settings.checks.attack)
    route = route_anonymity(scenario.scheme, trace, rows).posteriors
    evidence = gather_evidence(scenario, trace, rows)
    return dict(plain({row["attacker"]: row for row in content_attack(scenario, evidence, route)}))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--graph", default="rrg:30:3:seed=1")
    parser.add_argument("--support", default="2:3")
    parser.add_argument("--partition", default="dirichlet:0.3")
    parser.add_argument("--updates", type=int, default=900)
    parser.add_argument("--attack", type=int, default=300)
    add_engine(parser, Path("out") / "content")
    options = parser.parse_args()
    base = {name: getattr(options, name) for name in ("graph", "support", "partition", "updates", "attack")}
    asked = [base | {"learner": learner, "noise": noise, "clip": clip} for learner, noise, clip in UPDATES.values()]
    with engine(options.engine, options.work) as run:
        parts = run(measured, asked, what={"kind": "content"}, stage="content")
    rows = []
    for name, found in zip(UPDATES, parts, strict=True):
        cells = []
        for column in COLUMNS:
            row = found.get(column) or found[f"route and content: {column}"]
            cells.append(share_between(row["hit_ratio"], *row["hit_ratio_interval"]))
        rows.append([name, *cells])
    print("\n".join(markdown_table(("update", *COLUMNS), rows)))


if __name__ == "__main__":
    main()
