"""Learning over a network of 300 peers, measured: MNIST, two partitions, two models, five algorithms, attacks.

Run ``python -m tools.pages.learning`` from the checkout, with MNIST's four files in ``../shared/data/mnist`` or
where ``--data`` says. It writes ``docs/measured/learning.md`` and ``docs/images/learning.png``. Everything but the
speed is jobs (:mod:`tools.pages.learning_jobs`), kept under ``--work``: run it again to go on where it stopped,
with ``--engine`` on several cores or machines. ``--only softmax`` renews one section and leaves the others as they were
written. ``--profile reduced`` is a smoke test of a few minutes that leaves the docs alone.

Every algorithm is tuned by one rule (:mod:`tools.pages.tuning`), for both models; the attacks have step size
0.1 and one step an update. What noise costs is :mod:`tools.pages.noise`'s to say.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.speed.learning import speed_lines

from tools.pages import learning_jobs, local_steps
from tools.pages.campaign import Run, add_engine, engine
from tools.pages.learning_figure import learning_figure
from tools.pages.learning_jobs import (
    ALGORITHMS,
    ATTACKED,
    GRIDS,
    MODELS,
    PARTITIONS,
    PROFILES,
)
from tools.pages.learning_page import page
from tools.pages.tuning import Setting, Tried, best
from veilwalk.core.records import Record, plain, write_atomically

PARTS = (*MODELS, "steps", "attack", "speed")
Job = dict[str, Any]


class Plan:
    """The jobs of a profile, and what comes of them."""

    def __init__(self, name: str, data: str, parts: Sequence[str], run: Run) -> None:
        self.profile, self._parts, self._run = PROFILES[name], parts, run
        self._common = (name, data)
        # Without what jobs say themselves: more seeds are more jobs, not other ones.
        named = {"seeds", "attack_seeds", "speed"}
        told = {key: value for key, value in asdict(self.profile).items() if key not in named}
        self._what = told | {"kind": "learning", "data": data, "models": MODELS}
        self._do = partial(run, learning_jobs.do, common=self._common, what=self._what)

    def record(self) -> Record:
        """Do every job that is not done yet."""
        params = asdict(self.profile) | {"data": "MNIST", "models": MODELS}
        params["grids"] = {model: [asdict(setting) for setting in grid] for model, grid in GRIDS.items()}
        cells = self.trained() + self.attacked()
        return Record(kind="learning", params=params, result={"cells": cells} | self.steps() | self.speed())

    def trained(self) -> list[Job]:
        """Tune every algorithm, then train it with every seed."""
        models = [model for model in MODELS if model in self._parts]
        chosen = self._chosen(models)
        asked: list[Job] = [
            {"model": model, "partition": partition, "seed": seed}
            for seed in self.profile.seeds
            for partition in PARTITIONS
            for model in models
        ]
        jobs = [
            {"do": "train"} | one | {"algorithm": name, "setting": chosen[one["model"], one["partition"], name]}
            for one in asked
            for name in ALGORITHMS
        ]
        found = iter(self._do(jobs, stage="training"))
        cells = []
        for one in asked:
            runs: Job = {}
            for _ in ALGORITHMS:
                runs |= next(found)
            cells.append({"kind": "train"} | one | {"found": runs})
        return cells

    def _chosen(self, models: Sequence[str]) -> dict[tuple[str, ...], Job]:
        """Try the whole grid for every model, partition and algorithm; return what is best for each."""
        jobs: list[Job] = [
            {"do": "tune", "model": model, "partition": partition, "algorithm": name, "setting": asdict(setting)}
            for model in models
            for partition in PARTITIONS
            for name in ALGORITHMS
            for setting in GRIDS[model]
        ]
        tried: dict[tuple[str, ...], list[Tried]] = {}
        for job, accuracy in zip(jobs, self._do(jobs, stage="tuning"), strict=True):
            one = Tried(setting=Setting(**job["setting"]), accuracy=accuracy)
            tried.setdefault((job["model"], job["partition"], job["algorithm"]), []).append(one)
        return {key: asdict(best(every)) for key, every in tried.items()}

    def attacked(self) -> list[Job]:
        """Attack what is sent, beside what the route tells."""
        seeds = self.profile.attack_seeds if "attack" in self._parts else ()
        routes = dict(
            zip(seeds, self._do([{"do": "route", "seed": seed} for seed in seeds], stage="routes"), strict=True)
        )
        asked = [{"partition": partition, "seed": seed} for seed in seeds for partition in ATTACKED]
        common, what = (*self._common, routes), self._what | {"kind": "learning, attacked"}
        found = self._run(learning_jobs.attack, asked, common=common, what=what, stage="attacks")
        return [{"kind": "attack"} | one | {"found": result} for one, result in zip(asked, found, strict=True)]

    def steps(self) -> Job:
        """Try numbers of local steps."""
        if "steps" not in self._parts:
            return {}
        jobs, seeds = local_steps.jobs(("MNIST", "digits")), list(self.profile.seeds)
        asked = [{"do": "steps", "seeds": seeds} | job for job in jobs] + [{"do": "leak", "seed": seeds[0]}]
        *tried, leak = self._do(asked, stage="local steps")
        return {"steps": {"rows": local_steps.table(jobs, tried), "leak": leak}}

    def speed(self) -> Job:
        """Time an update, here: other machines and busy cores would tell another time."""
        if "speed" not in self._parts:
            return {}
        (found,) = self._run(timed, [list(self.profile.speed)], what=self._what, executor=None, stage="speed")
        return dict(found)


def timed(size: Sequence[int]) -> Job:
    """Time updates, so many, so many times."""
    lines, medians = speed_lines(*size)
    return dict(plain({"speed": [asdict(line) for line in lines], "microseconds": medians}))


def main() -> None:
    """Run the campaign and write its page and figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", default="mnist:../shared/data/mnist")
    parser.add_argument("--profile", choices=sorted(PROFILES), default="full")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="sections to renew")
    parser.add_argument("--docs", type=Path, help="where to write; the checkout's docs for the full profile")
    add_engine(parser, None)
    options = parser.parse_args()
    work = options.work or Path("out") / f"learning-{options.profile}"
    docs = options.docs or (Path(__file__).parents[2] / "docs" if options.profile == "full" else work / "docs")
    start = time.perf_counter()
    with engine(options.engine, work) as run:
        record = Plan(options.profile, options.data, options.only, run).record()
    path = docs / "measured" / "learning.md"
    write_atomically(path, page(record, before=path.read_text() if path.exists() else "").encode())
    if any(cell["kind"] == "train" for cell in record.result["cells"]):
        write_atomically(docs / "images" / "learning.png", learning_figure(record))
    print(f"wrote {path} after {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
