"""What models cost on their way, measured: payloads, adapters, and ten million parameters.

Run ``python -m tools.pages.payloads`` from the checkout, with MNIST's four files in ``../shared/data/mnist`` or
where ``--data`` says. It writes the section Payloads of ``docs/measured/learning.md``. Everything is jobs, kept under
``--work``: run it again to go on where it stopped. ``--small`` is a smoke test that leaves the docs alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tools.pages.campaign import add_engine, engine, sections_of
from tools.pages.markdown import markdown_table, mean_share, paragraph
from tools.pages.rows import write_page
from veilwalk.core.payload import PAYLOADS
from veilwalk.core.units import readable_bytes
from veilwalk.core.version import __version__
from veilwalk.design import choose_scheme
from veilwalk.graphs import parse_graph_spec
from veilwalk.learning import Data, Training, TrainingTrace, load_data, train
from veilwalk.training import Scenario, make_spec

PRIVATE = "private-walk"
TITLE = "Payloads"
#: The same models, tuned as the page's other tables are (softmax) or by hand (mlp), without a look at payloads.
LEARNERS = {
    "softmax": "softmax:learning_rate=1:local_steps=10",
    "mlp": "mlp:hidden=64:learning_rate=0.3:local_steps=5",
}
Job = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How much to do."""

    seeds: tuple[int, ...] = (1, 2, 3)
    graph: str = "rrg:300:3:seed=1"
    law: str = "far:4"
    recipients: int = 16
    updates: int = 2000
    large_updates: int = 12
    adapters: tuple[int, int, int] = (64, 400, 150)


PROFILES = {
    "full": Profile(),
    "small": Profile(seeds=(1,), graph="rrg:40:3:seed=1", law="far:2", recipients=4, updates=40, adapters=(16, 10, 10)),
}


@cache
def rows(spec: str) -> Data:
    """Load data once for the jobs that follow."""
    return load_data(spec)


def do(name: str, data: str, job: Job) -> Job:
    """Do one job."""
    profile = PROFILES[name]
    match job["do"]:
        case "payload":
            return _trained(profile, data, LEARNERS[job["learner"]], job["payload"], job["seed"])
        case "adapters":
            return _adapters(*profile.adapters, **job["what"])
        case _:
            told = ("--payload", job["payload"], "--updates", str(profile.large_updates))
            shown = subprocess.run(
                [sys.executable, "-m", "benchmarks.speed.large_model", *told],
                check=True,
                capture_output=True,
                text=True,
            )
            return dict(json.loads(shown.stdout))


def _trained(profile: Profile, data: str, learner: str, payload: str, seed: int) -> Job:
    scheme = choose_scheme(
        parse_graph_spec(profile.graph), profile.law, walk="non-backtracking", recipients=profile.recipients
    )
    spec = make_spec(seed=seed, updates=profile.updates, payload=payload)
    scenario = Scenario.build(scheme, spec, data=rows(data), partition="dirichlet:0.3", learner=learner)
    # Along the walk and no more: what the route gives away does not depend on the payload.
    return _told(train(scenario.task(PRIVATE), _walk(scenario), evaluations=8))


_WALKS: dict[tuple[int, int], TrainingTrace] = {}


def _walk(scenario: Scenario) -> TrainingTrace:
    """Return the walk of a seed, the same for every learner and payload."""
    key = (scenario.spec.end.updates, scenario.spec.seed)
    if key not in _WALKS:
        _WALKS[key] = scenario.trace(PRIVATE)
    return _WALKS[key]


def _adapters(width: int, steps: int, updates: int, *, train_only: str, payload: str) -> Job:
    from examples.adapters import learner_of, pretrained, walked

    run = walked(learner_of(pretrained(width, steps), width, train_only), payload, updates)
    return _told(run.trainings[PRIVATE])


def _told(training: Training) -> Job:
    first, last = training.points[0], training.points[-1]
    return {
        "numbers": sum(array.size for array in training.params.values()),
        "message_bytes": training.costs.message_bytes,
        "bytes_per_update": last.sent_bytes / training.updates,
        "accuracy": last.accuracy,
        "loss": [first.loss, last.loss],
    }


def jobs_of(profile: Profile) -> list[Job]:
    """Return every job, the quick ones first."""
    asked: list[Job] = [
        {"do": "payload", "learner": learner, "payload": payload, "seed": seed}
        for learner in LEARNERS
        for payload in PAYLOADS
        for seed in profile.seeds
    ]
    whats = [("*", "fp32"), ("*.adapter.*", "fp32"), ("*.adapter.*", "int8")]
    asked += [{"do": "adapters", "what": {"train_only": names, "payload": payload}} for names, payload in whats]
    return asked + [{"do": "large", "payload": payload} for payload in ("fp32", "int8")]


def section(profile: Profile, asked: Sequence[Job], found: Sequence[Job]) -> list[str]:
    """Return the lines of the page's section."""
    of: dict[str, list[tuple[Job, Job]]] = {}
    for job, result in zip(asked, found, strict=True):
        of.setdefault(job["do"], []).append((job, result))
    about = (
        f"Run of veilwalk {__version__}: `python -m tools.pages.payloads`. MNIST over {profile.graph}, "
        f"dirichlet:0.3, sealed for {profile.recipients}, law `{profile.law}`, non-backtracking walk, "
        f"{profile.updates} updates, seeds {', '.join(map(str, profile.seeds))}: means, with the least and the largest "
        "in brackets. What each payload is, and what it does to exactness, stands "
        "[here](../explanation/what-travels.md)."
    )
    tables = (
        _payload_table(of["payload"]),
        _adapter_table(profile, of["adapters"]),
        _large_table(of["large"]),
    )
    return [paragraph(about), *(line for table in tables for line in ("", *table))]


def _by(found: Sequence[tuple[Job, Job]], *keys: str) -> dict[tuple[Any, ...], list[Job]]:
    groups: dict[tuple[Any, ...], list[Job]] = {}
    for job, result in found:
        groups.setdefault(tuple(job[key] for key in keys), []).append(result)
    return groups


def _payload_table(found: Sequence[tuple[Job, Job]]) -> list[str]:
    rows = []
    for (learner, payload), runs in _by(found, "learner", "payload").items():
        each = readable_bytes(float(np.mean([run["bytes_per_update"] for run in runs])))
        sizes = (f"{runs[0]['numbers']:,}", f"{runs[0]['message_bytes']:,}", each)
        rows.append((f"`{LEARNERS[learner]}`", payload, *sizes, mean_share([run["accuracy"] for run in runs])))
    head = ("learner", "payload", "numbers", "bytes of a message", "bytes an update", "accuracy")
    return markdown_table(head, rows)


def _adapter_table(profile: Profile, found: Sequence[tuple[Job, Job]]) -> list[str]:
    width, steps, updates = profile.adapters
    about = (
        f"Adapters of a small transformer (`python examples/adapters.py --width {width} --pretrain {steps} --updates "
        f"{updates}`; one seed; the loss is that of held-out rows; the whole model has the adapters in it, too, and "
        "Adam's steps of 0.0005 where adapters have 0.002, neither tuned):"
    )
    rows = []
    for job, run in found:
        what = "the whole model" if job["what"]["train_only"] == "*" else "adapters"
        first, last = run["loss"]
        sizes = (f"{run['numbers']:,}", f"{run['message_bytes']:,}")
        rows.append((what, job["what"]["payload"], *sizes, f"{first:.3f}", f"{last:.3f}"))
    head = ("what travels", "payload", "numbers", "bytes of a message", "loss before, nats a letter", "after")
    return [paragraph(about), "", *markdown_table(head, rows)]


def _large_table(found: Sequence[tuple[Job, Job]]) -> list[str]:
    about = (
        "Ten million parameters in torch (`python -m benchmarks.speed.large_model`, twenty simulated peers, plain "
        "descent, one thread; seconds are the processor's, an update's with rounding, evaluation and checkpoints; "
        "silence is wall time between two words of progress, on a busy machine):"
    )
    columns = (
        *("payload", "parameters", "bytes of a message", "an update", "of it, rounding", "peak memory"),
        *("of it, libraries", "checkpoint", "longest silence", "interrupted after", "resumed to the same bits"),
    )
    rows = [
        (
            run["payload"],
            f"{run['parameters']:,}",
            f"{run['message_bytes']:,}",
            f"{run['update_cpu_s']:.2f} s",
            f"{run['coding_cpu_s']:.2f} s",
            readable_bytes(run["peak_bytes"]),
            readable_bytes(run["empty_bytes"]),
            readable_bytes(run["checkpoint_bytes"]),
            f"{run['longest_silence_s']:.1f} s",
            f"{run['interrupted_after']} of {run['updates']}",
            "yes" if run["same_model"] else "no",
        )
        for _, run in found
    ]
    return [paragraph(about), "", *markdown_table(columns, rows)]


def main() -> None:
    """Run all jobs and write the section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", default="mnist:../shared/data/mnist")
    parser.add_argument("--small", action="store_true", help="a smoke test, printed")
    parser.add_argument("--only", nargs="+", help="do these jobs only, and write nothing")
    add_engine(parser, Path("out") / "payloads")
    options = parser.parse_args()
    name = "small" if options.small else "full"
    profile = PROFILES[name]
    asked = [job for job in jobs_of(profile) if options.only is None or job["do"] in options.only]
    what: Mapping[str, Any] = {"kind": "payloads", "profile": name, "learners": LEARNERS}
    with engine(options.engine, options.work) as run:
        found = run(do, asked, common=(name, options.data), what=what, stage="payloads")
    if options.only:
        return
    lines = section(profile, asked, found)
    if options.small:
        print("\n".join(lines))
        return
    path = Path(__file__).parents[2] / "docs" / "measured" / "learning.md"
    write_page(path, replaced(path.read_text(), lines))


def replaced(page: str, lines: list[str]) -> str:
    """Return the page with this section renewed, or behind all others where there was none."""
    head = page.partition("\n## ")[0]
    sections = sections_of(page) | {TITLE: lines}
    return (
        head.rstrip("\n") + "".join(f"\n\n## {title}\n\n" + "\n".join(body) for title, body in sections.items()) + "\n"
    )


if __name__ == "__main__":
    main()
