"""Learning by the clock, measured: decay to the end, local steps, walks that meet, seconds beside gossip and FedAvg.

Run ``python -m tools.pages.clock`` from the checkout, with MNIST's four files in ``../shared/data/mnist`` or where
``--data`` says: some half hour of one core. It writes the section *By the clock* of ``docs/measured/learning.md``.
Jobs are kept under ``--work``; ``--results FILE`` takes those of another machine, a line of JSON each.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from tools.pages.campaign import add_engine, engine, sections_of
from tools.pages.markdown import markdown_table, mean_share, paragraph
from tools.pages.rows import write_page
from veilwalk.core.units import readable_bytes, readable_seconds
from veilwalk.core.version import __version__
from veilwalk.design import choose_scheme
from veilwalk.graphs import parse_graph_spec
from veilwalk.learning import LINES, Data, Protection, load_data, sealed_bytes, train
from veilwalk.training import PRIVATE, Scenario, make_spec

TITLE = "By the clock"
SEEDS = (1, 2, 3)
# Of the private walk, whose first touch of an accuracy varies much.
MANY_SEEDS = tuple(range(1, 11))
#: For how many an update is sealed, where only the way to 80% is watched: so many updates, with twice as many seeds.
SEALED_FOR, SOON = (16, 24, 32), 80
GRAPH = "rrg:300:3:seed=1"
RECIPIENTS = 16
SOFTMAX, MLP, PAPER = "softmax", "mlp:hidden=128", "paper-walk"
# Walks are cut from one of so many updates.
_WALKED, _WALKS = 4_000, (PRIVATE, PAPER, "plain-walk")
# Parameters of a model in bytes, and the seconds that an update takes.
_SOFTMAX_BYTES = 31_400
_MODELS = {_SOFTMAX_BYTES: 0.01, 1_000_000: 0.05, 50_000_000: 1.0}
#: Of comparisons: the best of step sizes 0.1 to 3, 10 or 50 steps, decay or none, on rows held back, seed 0.
TUNED = {
    PRIVATE: (1, 10, "linear"),
    PAPER: (1, 10, "linear"),
    "plain-walk": (0.1, 10, "linear"),
    "gossip": (1, 50, "none"),
    "gossip-matching": (1, 50, "none"),
    "gossip-push": (1, 50, "none"),
    "fedavg": (1, 50, "none"),
    "central": (1, 10, "linear"),
}
#: Of networks: step sizes, local steps and rows of one walk; and of several: walks, meetings, local steps, decay.
ONE = (
    *((MLP, 0.3, steps, part) for steps in (10, 50) for part in ("dirichlet:0.1", "dirichlet:0.3")),
    *((SOFTMAX, 1, steps, "dirichlet:0.3") for steps in (10, 50)),
)
MEET = {
    MLP: (
        *((4, meet, steps, "linear") for meet, steps in ((20, 10), (5, 50), (20, 50))),
        (4, 20, 50, "fade:100"),
        *((walks, meet, 50, "linear") for walks, meet in ((4, 50), (16, 20))),
    ),
    SOFTMAX: tuple((*one, "linear") for one in ((4, 0, 10), (4, 0, 50), (4, 20, 50), (16, 0, 10), (16, 0, 50))),
}
Job = dict[str, Any]


def list_jobs() -> list[Job]:
    """Return every job."""
    jobs = []
    for name, (rate, steps, decay) in TUNED.items():
        learner = f"{SOFTMAX}:learning_rate={rate}:local_steps={steps}"
        about = {"k": "cmp", "alg": name, "U": 3000, "learner": learner, "decay": decay}
        jobs += [about | {"seed": seed} for seed in (MANY_SEEDS if name == PRIVATE else SEEDS)]
    jobs += [{"k": "soon", "K": count, "seed": seed} for count in SEALED_FOR for seed in range(1, 21)]
    for (model, rate, steps, part), decay, seed in itertools.product(ONE, ("linear", "fade:100"), SEEDS):
        learner = f"{model}:learning_rate={rate}:local_steps={steps}"
        jobs.append({"k": "one", "seed": seed, "U": 1000, "learner": learner, "decay": decay, "part": part})
    for model, several in MEET.items():
        for (walks, meet, steps, decay), seed in itertools.product(several, SEEDS):
            learner = f"{model}:learning_rate=0.3:local_steps={steps}"
            updates = min(300 * walks, _WALKED) if model == MLP else 250 * walks
            about = {"k": "meet", "W": walks, "R": meet, "U": updates, "learner": learner, "decay": decay}
            jobs.append(about | {"seed": seed} | ({"part": "dirichlet:0.1"} if model == MLP else {}))
    return jobs


@cache
def read_rows(spec: str) -> Data:
    """Load data once for the jobs that follow."""
    return load_data(spec)


def do(data: str, job: Job) -> Job:
    """Train once; return the job with its evaluations: updates, hops of one walk, transfers, accuracy."""
    if job["k"] == "soon":
        return job | {"points": watch_start(data, job["K"], job["seed"])}
    usual: Job = {"alg": PRIVATE, "W": 1, "R": 0, "part": "dirichlet:0.3", "decay": "linear"}
    about, name = usual | job, job.get("alg", PRIVATE)
    scheme = choose_scheme(parse_graph_spec(GRAPH), "far:4", walk="non-backtracking", recipients=RECIPIENTS)
    is_walk, updates = name in _WALKS, about["U"]
    spec = make_spec(seed=about["seed"], updates=_WALKED if is_walk else updates, walks=about["W"])
    parts: dict[str, Any] = {"data": read_rows(data), "partition": about["part"], "learner": about["learner"]}
    scenario = Scenario.build(scheme, spec, **parts)
    trace = scenario.trace(name).first(updates) if is_walk else scenario.trace(name)
    trace = trace.add_meetings(scheme.graph, about["R"])
    rule, _, fade = about["decay"].partition(":")
    ages = {"decay": -(-updates // trace.n_models)} if rule == "linear" else {"fade": float(fade or 0)}
    run = train(replace(scenario.task(name), mod=Protection(**ages).mod()), trace, evaluations=200)
    own = [float(scenario.learner.evaluate(model, scenario.data.test)["accuracy"]) for model in run.models[::20]]
    return job | {
        "final": run.points[-1].accuracy,
        "own": float(np.mean(own)) if name.startswith("gossip") else None,
        "points": [(point.update, point.clock, point.hops, point.accuracy) for point in run.points],
    }


def watch_start(data: str, recipients: int, seed: int) -> list[tuple[int, int, int, float | None]]:
    """Return the evaluations after each of the first updates of 1,000: updates, hops, transfers, accuracy."""
    scheme = choose_scheme(parse_graph_spec(GRAPH), "far:4", walk="non-backtracking", recipients=recipients)
    parts: dict[str, Any] = {"data": read_rows(data), "learner": f"{SOFTMAX}:learning_rate=1:local_steps=10"}
    scenario = Scenario.build(scheme, make_spec(seed=seed, updates=1000), partition="dirichlet:0.3", **parts)
    run = train(scenario.task(PRIVATE), scenario.trace(PRIVATE).first(SOON), evaluations=2 * SOON)
    return [(point.update, point.clock, point.hops, point.accuracy) for point in run.points]


def reach(run: Job, target: float, column: int) -> float:
    """Return where accuracy is first at a target: between evaluations of a walk, after whole rounds of others."""
    is_walk = run.get("alg", PRIVATE) in {*_WALKS, "central"}
    for last, point in itertools.pairwise(run["points"]):
        if point[3] >= target:
            share = (target - last[3]) / (point[3] - last[3]) if is_walk else 1.0
            return float(last[column] + share * (point[column] - last[column]))
    return np.inf


def write_section(runs: Sequence[Job]) -> list[str]:
    """Return the lines of the section."""
    about = paragraph(
        f"Run of veilwalk {__version__}, `python -m tools.pages.clock`. MNIST, {GRAPH}, sealed for {RECIPIENTS}, law "
        f"`far:4`, non-backtracking walk; means over seeds {', '.join(map(str, SEEDS))} [least-largest]. Hops and "
        "transfers *to* an accuracy are those after which a model is there for the first time; it may fall back."
    )
    return [about, "", *_compare(runs), "", *_list_seconds(runs), "", *_decay(runs), "", *_meet(runs)]


def _compare(runs: Sequence[Job]) -> list[str]:
    rows, transfers = [], {}
    for name, (rate, steps, decay) in TUNED.items():
        learner = f"{SOFTMAX}:learning_rate={rate}:local_steps={steps}"
        group = _select(runs, k="cmp", alg=name, learner=learner, decay=decay)
        sealed = {PRIVATE: RECIPIENTS, PAPER: 1}.get(name, 0)
        size = sealed_bytes(_SOFTMAX_BYTES, recipients=sealed) if sealed else _SOFTMAX_BYTES
        own = "–" if group[0]["own"] is None else f"{np.mean([run['own'] for run in group]):.1%}"
        reached = [reach(run, 0.8, 2) for run in group]
        transfers[name] = float(np.mean(reached))
        sent = ("–", "–") if name == "central" else (_range(reached), readable_bytes(transfers[name] * size))
        final = mean_share([run["final"] for run in group])
        rows.append((name, f"{rate:g}, {steps}, {decay}", *sent, final, own))
    head = (
        *("algorithm", "step, local steps, decay", "transfers to 80%", "bytes"),
        *("accuracy after 3,000 updates", "own models"),
    )
    walk, sparsest = transfers[PRIVATE], min(transfers["gossip-matching"], transfers["gossip-push"])
    soon = [_interval([reach(run, 0.8, 2) for run in _select(runs, k="soon", K=count)]) for count in SEALED_FOR]
    about = (
        f"**Beside gossip and FedAvg**, softmax, dirichlet:0.3; {len(MANY_SEEDS)} seeds of the private walk. The "
        "sealed walks and central training have what is usual; every other algorithm has the best of the steps 0.1, "
        "0.3, 1 and 3, with 10 or 50 local steps and decay or none, by rows held back, seed 0. Gossip's accuracy is "
        "that of the average of all models, which no peer holds; FedAvg has a server. To 80% the private walk needs "
        f"{_interval([reach(run, 0.8, 2) for run in _select(runs, k='cmp', alg=PRIVATE)])} hops (95% interval of the "
        f"mean): {walk / sparsest:.1f} times the transfers of the sparsest gossip, {walk / transfers['fedavg']:.1f} "
        f"times those of FedAvg, {walk / transfers['plain-walk']:.0f} times those of a plain walk. Of 1,000 updates, "
        f"20 seeds, sealed for {', '.join(map(str, SEALED_FOR))}: {', '.join(soon)} hops. *paper-walk*: sealed for "
        "one, as in the paper."
    )
    return [paragraph(about), "", *markdown_table(head, rows)]


def _interval(values: Sequence[float]) -> str:
    """Return the mean with its 95% interval."""
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):,.0f} ± {half:,.0f}"


def _list_seconds(runs: Sequence[Job]) -> list[str]:
    """Return modelled seconds to 80%: the hops of the softmax stand for those of larger models."""

    def mean(column: int, **wanted: Any) -> float:
        return float(np.mean([reach(run, 0.8, column) for run in _select(runs, **wanted)]))

    walks = {1: mean(1, k="cmp", alg=PRIVATE)}
    for count in (4, 16):
        walks[count] = mean(1, k="meet", W=count, R=0, learner=f"{SOFTMAX}:learning_rate=0.3:local_steps=10")
    rounds = mean(1, k="cmp", alg="fedavg")
    rows, slower = [], []
    for size, compute_s in _MODELS.items():
        for line, cost in LINES.items():
            sealed, bare = (
                wire / cost.bandwidth_bytes_per_s for wire in (sealed_bytes(size, recipients=RECIPIENTS), size)
            )
            hop_s = cost.latency_s + sealed + replace(cost, compute_s=compute_s).settled_dwell_s
            times = [hops * hop_s for hops in walks.values()]
            times += [compute_s + cost.latency_s + sends * bare for sends in (3, 1)]
            times.append(rounds * (compute_s + 2 * cost.latency_s + 6 * bare))
            slower.append((times[0] / times[3], times[0] / times[-1]))
            rows.append((readable_bytes(size), line, readable_seconds(compute_s), *map(readable_seconds, times)))
    head = ("model", "line, latency", "update", "1 walk", "4 walks", "16 walks", "gossip", "gossip-push", "FedAvg")
    gossip, server = (
        [f"{float(f'{end(ratios):.2g}'):g}" for end in (min, max)] for ratios in zip(*slower, strict=True)
    )
    about = (
        "**Seconds to 80%**, modelled, dwell and all that waits counted; a server has ten times a peer's line. Counts "
        f"are those of the softmax above, for all sizes. One walk is {gossip[0]} to {gossip[1]} times slower than a "
        f"round of gossip, whose average nobody holds, and {server[0]} to {server[1]} times than FedAvg: one update "
        "follows the other, and each waits for its hops."
    )
    return [paragraph(about), "", *markdown_table(head, rows)]


def _decay(runs: Sequence[Job]) -> list[str]:
    rows = []
    for model, rate, steps, part in ONE:
        learner = f"{model}:learning_rate={rate}:local_steps={steps}"
        groups = [
            _select(runs, k="one", U=1000, learner=learner, decay=decay, part=part) for decay in ("fade:100", "linear")
        ]
        reached = [_range([reach(run, 0.9, 1) for run in group]) for group in groups]
        cells = (mean_share([run["final"] for run in group]) for group in groups)
        rows.append((model.partition(":")[0], f"{rate:g}, {steps}", part, *cells, *reached))
    head = (
        *("learner", "step, local steps", "rows", "fade:100", "linear"),
        *("hops to 90%, fade:100", "hops to 90%, linear"),
    )
    about = (
        "**Decay to the announced end**, one walk, accuracy after 1,000 updates; mlp: 128 units. Linear decay ends "
        "higher, but reaches what it passes on its way later. A run that is to stop at a target therefore fades."
    )
    return [paragraph(about), "", *markdown_table(head, rows)]


def _meet(runs: Sequence[Job]) -> list[str]:
    rows, sooner, base = [], list[str](), f"{MLP}:learning_rate=0.3:local_steps=10"
    for decay in ("fade:100", "linear"):
        group = _select(runs, k="one", U=1000, learner=base, part="dirichlet:0.1", decay=decay)
        rows.append(("mlp", "1", "–", f"10, {decay}", "1,000", *_list_ends(group, (0.9, 0.93), 0.93)))
        fast = _select(runs, k="meet", W=4, R=20, learner=f"{MLP}:learning_rate=0.3:local_steps=50", decay=decay)
        one, four = (np.mean([reach(run, 0.93, 1) for run in each]) for each in (group, fast))
        sooner.append(f"{one / four:.1f} with {decay}")
    for model, targets in ((MLP, (0.9, 0.93)), (SOFTMAX, (0.8, 0.9))):
        for walks, meet, steps, decay in MEET[model]:
            learner = f"{model}:learning_rate=0.3:local_steps={steps}"
            group = _select(runs, k="meet", W=walks, R=meet, learner=learner, decay=decay)
            cells = (str(walks), str(meet or "never"), f"{steps}, {decay}", f"{group[0]['U']:,}")
            rows.append((model.partition(":")[0], *cells, *_list_ends(group, targets, targets[1])))
    head = (
        "model",
        "walks",
        "meet every",
        "local steps, decay",
        "updates",
        "accuracy",
        "hops of one walk",
        "transfers",
    )
    about = (
        "**Several walks that meet.** mlp: dirichlet:0.1, hops to 90% and 93%, transfers to 93%; softmax: "
        "dirichlet:0.3, hops to 80% and 90%, transfers to 90%; step size 0.3. *Hops of one walk* are time; *transfers* "
        "count all walks and the flood of every meeting. Recommended: walks of a linear model never meet "
        "(`--meet 0`), networks every 20 updates (`--walks 4 --meet 20`) and with 50 local steps; a meeting costs 601 "
        "transfers a walk. Four such walks are at 93% sooner than one of ten steps, by a factor of "
        f"{', '.join(sooner)}."
    )
    return [paragraph(about), "", *markdown_table(head, rows)]


def _list_ends(group: Sequence[Job], targets: Iterable[float], paid: float) -> tuple[str, ...]:
    hops = "; ".join(_range([reach(run, target, 1) for run in group]) for target in targets)
    return mean_share([run["final"] for run in group]), hops, _range([reach(run, paid, 2) for run in group])


def _select(runs: Sequence[Job], **wanted: Any) -> list[Job]:
    return [run for run in runs if all(run.get(key) == value for key, value in wanted.items())]


def _range(values: Sequence[float]) -> str:
    if not np.isfinite(values).all():
        return "not by all"
    return f"{np.mean(values):,.0f} [{min(values):,.0f}-{max(values):,.0f}]"


def main() -> None:
    """Run the campaign, and write its section."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", default="mnist:../shared/data/mnist")
    parser.add_argument("--results", type=Path, nargs="*", help="results of another machine")
    add_engine(parser, Path("out/clock"))
    options = parser.parse_args()
    if options.results:
        runs = [json.loads(line) for path in options.results for line in path.read_text().splitlines()]
    else:
        with engine(options.engine, options.work) as run:
            what = {"kind": "clock", "data": options.data}
            runs = run(partial(do, options.data), list_jobs(), what=what, stage="clock")
    path = Path(__file__).parents[2] / "docs" / "measured" / "learning.md"
    write_page(path, insert_section(path.read_text(), write_section(runs)))


def insert_section(page: str, lines: Sequence[str]) -> str:
    """Return the page with the section in place of the old one, or before the second."""
    head, sections = page.partition("\n## ")[0], sections_of(page)
    titles = list(dict.fromkeys([next(iter(sections)), TITLE, *sections]))
    every: Mapping[str, Sequence[str]] = sections | {TITLE: list(lines)}
    return head + "".join(f"\n## {title}\n\n" + "\n".join(every[title]) + "\n" for title in titles)


if __name__ == "__main__":
    main()
