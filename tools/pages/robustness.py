"""What poisoners do to a model, and what tests of received models are worth: T10 of the test campaign.

Run ``make robustness``, with MNIST's four files in ``../shared/data/mnist`` or where ``--data`` says. It writes
``docs/measured/robustness.md``. Every run is a job, kept in ``--work`` and not trained again; ``--engine`` does them
elsewhere. The ratios that are tested with come from rehearsals in which nobody poisons and the test rows are not read.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tools.pages import markdown
from tools.pages.campaign import add_engine, engine
from tools.pages.rows import write_page
from tools.pages.tuning import TUNING_SEED, without_test_rows
from veilwalk.core.errors import TrainingError
from veilwalk.learning import Acceptance, Poison, TrainingTrace, load_data, train
from veilwalk.training import Scenario, make_spec

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "measured" / "robustness.md"
LEARNER = make_spec().learner
GRAPH, UPDATES, SHARE, LAST = "rrg:300:3:seed=1", 3000, 0.1, 10
PARTITIONS = ("iid", "dirichlet:0.3")
RATIOS = (1.1, 1.25, 1.5, 2.0, 3.0)
#: Honest models that a rehearsal may refuse, of all.
REFUSED = 0.01
POISONS = {
    "none": "nobody",
    "nan": "NaN",
    "random:1": "random numbers, deviation 1",
    "sign-flip:10": "sign-flip, ten times",
    "drift:1": "drift",
}
SEEDS = (1, 2, 3)
#: What members that share keys do with a walk that any of them can open.
SEIZED = {"law": "seal by the law", "each other": "seal for each other only"}
SEIZED_POISONS = ("sign-flip:10", "drift:1")

Job = dict[str, Any]
#: Jobs with what came of them.
Found = Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]

HEAD = (
    (
        "Written by `make robustness`: {data} over {graph}, the recommended scheme, `{learner}` (the default), "
        "{updates} updates, one token. {percent} of the nodes, drawn by the seed, spoil every model they get; all "
        "others make updates, and test what they receive by the rule beside each partition, or by none. Accuracy on "
        "held-out data is the mean over the last {last} of 60 evaluations of what the last honest node made{seeds}. "
        "Everything is measured in simulation; nodes apply the same rule (`--accept`, or `max_loss_ratio` of "
        "`node.toml`)."
    ),
    (
        "The ratio of each partition is the least of {ratios} that refuses no more than {refused} of the models in "
        "a rehearsal where nobody poisons: seed {tuning}, which is none of those reported, and the training rows "
        "alone, a fifth of them held back. By how much a refusal raises what is compared with (a tenth, a quarter "
        "or a half) was chosen on such rows too, with sign-flips and NaN, seeds 0 and 100. The test rows had no "
        "part in either. `robustness.json` beside this page has random numbers as a poison too."
    ),
)
FOOT = """
## What is tested
- **finite**: NaN and infinities are refused, always where anything is tested; so is a model of another shape or type,
  by its length.
- **loss:RATIO**: a model is refused where its loss on the node's own rows is more than RATIO times the least of the
  models accepted there before. So a little worse each time does not add up unnoticed. Each refusal raises that least
  loss by a half: a node that was lucky once does not refuse for ever.
- **norm:STEP**: a model is refused where it is farther (Euclidean norm) from the node's own last model than STEP for
  each update that the header says lies between. With `--clip STEP` no honest model is ever refused. It says little
  about one spoilt step among hundreds of updates, but bounds how far one token can be moved, and goes together with
  noise.

## What a node does that refuses
The node goes on with its own last model, and says truthfully how many updates that one has had; the next node that
holds a newer one goes on with that (*newer held*). So the model is set back by about as many updates as there are
nodes, and the next nodes win part of that back. *Updates* is how many the model has really had at the end, of {updates}
made. A real run ends after so many updates kept, and takes as many times longer as these are fewer: ask for fewer where
poisoners are feared.

Choose RATIO by an honest rehearsal: `veilwalk train --accept loss:1.25 --compare none` says how many honest models are
refused. The more the data of nodes differ, and the larger the steps, the more honest models look bad to some. Steps
that fade fast allow a sharper ratio, but a small step backwards is then not seen.

Where data differ, more is lost to setting back than to poison that passes: NaN, which is always refused, costs as much
as sign-flips.

## What is not caught
- **Drift.** Poisoners who agree on a direction and push no farther than an honest update would look like honest nodes
  with odd data: nearly all their models are accepted. Here the direction is random; a chosen one can do more, for
  instance a back door. Nothing here bounds it but `--clip`, which only honest nodes keep to.
- **Nodes whose data differ much.** The same honest model looks good to one and bad to another, so the ratio has to be
  larger, and less of a sign-flip shows. Other partitions, models and shares of poisoners were not measured.
- **Lies about age.** A model whose header says too many updates is taken for newer, and where learners fade it learns
  less from then on.
- **Poisoners among the first.** A node that holds nothing yet compares with the run's first model.
- **The end.** Which finished model members believe is said in [node protocol](../explanation/node-protocol.md).

## Nobody can be blamed
Routing hides the maker of a model from honest receivers too. A node that refuses a model knows which neighbour handed
it over, and that neighbour most likely only carried it. No reputation can be kept. To exclude members who poison takes
another protocol.

## With noise
A test by loss depends on the node's own rows and changes what it sends on; the noise on its update does not cover that.
So `loss` together with `--noise` is refused. `norm` and `finite` look only at models that others have seen.
"""


SEIZED_HEAD = (
    "A tenth of the members who *share keys* need not wait to be met first. Whichever of them holds a message opens "
    "it if any of them is a recipient. They then seal as others do, or only for each other. One run each, seed {seed}; "
    "the walk is played for this page. Where they seal for each other, drift ends at the same accuracy."
)
SEIZED_FOOT = (
    "So the tables above are about members who spoil what they are given, and not about a coalition. With a test by "
    "loss honest members refuse its sign-flips, and a fifth to a quarter of its drift; each refusal sets the model "
    "back, so that little is learnt. Where it seals only for itself no honest member receives anything, and no test "
    "helps. A share (`--most-updates`) binds honest members only. "
    "**Blank legs make it worse**: with q = 1/2 honest members make half as many updates at each opening, and the "
    "coalition makes {blank:.0%} of all instead of {plain:.0%}."
)


def seized_trace(
    scenario: Scenario, coalition: frozenset[int], way: str, seed: int, train_probability: float = 1.0
) -> TrainingTrace:
    """Play a walk that members who share keys take over wherever they can; a row is an update."""
    scheme, rng = scenario.scheme, np.random.default_rng(seed)
    near = [scheme.graph.neighbours(node).tolist() for node in range(scheme.graph.n_nodes)]
    eligible = [np.flatnonzero(scheme.law.matrix[[node]].toarray()[0]) for node in range(scheme.graph.n_nodes)]
    node, came, clock, source = int(rng.integers(len(near))), -1, 0, 0
    visits: dict[int, int] = {}
    rows: list[tuple[int, ...]] = []
    while len(rows) < UPDATES:
        sealed_at, sealer = clock, node
        chosen = set(rng.choice(eligible[node], scheme.recipients, replace=False).tolist())
        if way == "each other" and node in coalition:
            chosen = set(coalition - {node})
        while True:
            ways = [other for other in near[node] if other != came] or near[node]
            came, node = node, ways[int(rng.integers(len(ways)))]
            clock += 1
            returned = clock - visits.get(node, clock + 1)
            visits[node] = clock
            if node in chosen or (node in coalition and node != sealer and chosen & coalition):
                break
        if node in coalition or rng.random() < train_probability:
            rows.append((node, clock - sealed_at, clock, source, came, returned))
            source = node
    columns = np.array(rows, dtype=np.int64).T
    names = ("node", "hops", "clock", "source", "last_hop", "return_time")
    return TrainingTrace(
        algorithm="private-walk",
        n_nodes=len(near),
        n_models=1,
        model=np.zeros(UPDATES, dtype=np.int64),
        recipients=scheme.recipients,
        **dict(zip(names, columns, strict=True)),
    )


def seized_section(found: Found, shares: Mapping[str, float]) -> list[str]:
    """Return the section on members that share keys; ``shares`` of all updates are theirs, by what they do."""
    lines = ["## Members that share keys", "", markdown.paragraph(SEIZED_HEAD.format(seed=found[0][0]["seed"])), ""]
    lines += [
        "| partition, poison | what they do then | updates of theirs | tested | accuracy | spoilt refused |",
        "|---|---|---:|---|---:|---|",
    ]
    for job, one in found:
        accuracy = "lost" if one["accuracy"] is None else f"{one['accuracy']:.1%}"
        counts = one["received"]
        spoilt = counts.get("refused_poisoned", 0) + counts.get("accepted_poisoned", 0)
        refused = f"{counts['refused_poisoned'] / spoilt:.0%} of {spoilt}" if spoilt else "-"
        cells = [f"{job['partition']}, {POISONS[job['poison']]}", SEIZED[job["seized"]], f"{shares[job['seized']]:.0%}"]
        lines.append("| " + " | ".join([*cells, job["accept"].replace("none", "no"), accuracy, refused]) + " |")
    foot = SEIZED_FOOT.format(blank=shares["blank"], plain=shares["law"])
    return [*lines, "", markdown.paragraph(foot), ""]


@cache
def _scenario(data: str, partition: str, seed: int, *, rehearsed: bool) -> tuple[Scenario, TrainingTrace]:
    spec = make_spec(graph=GRAPH, data=data, partition=partition, learner=LEARNER, updates=UPDATES, seed=seed)
    scenario = Scenario.from_spec(spec)
    if rehearsed:
        rows = without_test_rows(load_data(data, seed=seed))
        scenario = Scenario.build(scenario.scheme, spec, data=rows, partition=partition, learner=LEARNER)
    return scenario, scenario.trace("private-walk")


def trained(data: str, job: Mapping[str, Any]) -> dict[str, Any]:
    """Do one job: train with these poisoners and this test; a run that cannot go on says after how many updates."""
    scenario, trace = _scenario(data, job["partition"], job["seed"], rehearsed=job.get("rehearsed", False))
    task = scenario.task("private-walk")
    if "seized" in job:
        coalition = Poison(kind="drift", scale=1.0, share=SHARE).select_nodes(scenario.graph.n_nodes, seed=job["seed"])
        trace = seized_trace(scenario, coalition, job["seized"], job["seed"])
        task = replace(task, most_updates=0)
    rules: dict[str, Any] = {
        "acceptance": Acceptance.parse(job["accept"]),
        "poison": Poison.parse(job["poison"], SHARE),
    }
    task = replace(task, **rules)
    done = 0

    def count(made: int, _total: int, _point: Any) -> None:
        nonlocal done
        done = made

    try:
        run = train(task, trace, evaluations=60, tell=count)
    except TrainingError:
        return {"accuracy": None, "stopped_after": done, "received": {}}
    scores = [point.accuracy for point in run.points[-LAST:] if point.accuracy is not None]
    return {"accuracy": float(np.mean(scores)), "stopped_after": None, "received": dict(run.received)}


def rehearsals(partitions: Sequence[str]) -> list[Job]:
    """Return the runs that ratios are chosen by: every ratio, nobody poisons."""
    return [
        {"partition": partition, "poison": "none", "accept": f"loss:{ratio:g}", "seed": TUNING_SEED, "rehearsed": True}
        for partition in partitions
        for ratio in RATIOS
    ]


def chosen(found: Found, partition: str) -> str:
    """Return the sharpest test that refuses few honest models; the least sharp where all refuse more."""
    refused: dict[str, int] = {
        job["accept"]: one["received"]["refused_honest"] for job, one in found if job["partition"] == partition
    }
    return next((accept for accept, count in refused.items() if count <= REFUSED * UPDATES), list(refused)[-1])


def jobs(rules: Mapping[str, str], seeds: Sequence[int]) -> list[Job]:
    """Return all runs: each partition, with each poison, tested by its rule and not."""
    return [
        {"partition": partition, "poison": poison, "accept": accept, "seed": seed}
        for partition, rule in rules.items()
        for poison in POISONS
        for accept in ("none", rule)
        for seed in seeds
    ]


def seized_jobs(rules: Mapping[str, str], seed: int) -> list[Job]:
    """Return the runs with members that share keys: each partition, poison and way, tested by its rule and not."""
    return [
        {"partition": partition, "poison": poison, "accept": accept, "seed": seed, "seized": way}
        for partition, rule in rules.items()
        for poison in SEIZED_POISONS
        for way in SEIZED
        for accept in ("none", rule)
    ]


def seized_shares(data: str, seed: int) -> dict[str, float]:
    """Return the share of updates that members who share keys make, by what they do, and with half of legs blank."""
    scenario, _ = _scenario(data, PARTITIONS[0], seed, rehearsed=False)
    coalition = Poison(kind="drift", scale=1.0, share=SHARE).select_nodes(scenario.graph.n_nodes, seed=seed)
    traces = {way: seized_trace(scenario, coalition, way, seed) for way in SEIZED}
    traces["blank"] = seized_trace(scenario, coalition, "law", seed, 0.5)
    return {way: float(np.isin(trace.node, list(coalition)).mean()) for way, trace in traces.items()}


def page(
    rehearsed: Found, found: Found, seized: list[str], rules: Mapping[str, str], *, seeds: Sequence[int], data: str
) -> str:
    """Return the page; ``seized`` is its section on members that share keys."""
    over = f" of one run each, seed {seeds[0]}"
    if len(seeds) > 1:
        over = f", and over seeds {', '.join(map(str, seeds[:-1]))} and {seeds[-1]}, with the least and the largest"
    shown: dict[str, Any] = {"data": data, "graph": GRAPH, "learner": LEARNER, "updates": UPDATES, "last": LAST}
    shown |= {"ratios": ", ".join(f"{ratio:g}" for ratio in RATIOS), "refused": f"{REFUSED:.0%}", "tuning": TUNING_SEED}
    lines = ["# Poisoned models: what tests of received models are worth", ""]
    for paragraph in HEAD:
        text = paragraph.format(**shown, percent=f"{SHARE:.0%}", seeds=over)
        lines += [markdown.paragraph(text), ""]
    for partition, rule in rules.items():
        tried = [
            f"{one['received']['refused_honest']} with {job['accept'].removeprefix('loss:')}"
            for job, one in rehearsed
            if job["partition"] == partition
        ]
        lines += [f"## {partition}, tests `{rule}`", ""]
        lines += [f"Refused in the rehearsals, of {UPDATES}: {', '.join(tried)}.", ""]
        lines += [
            "| poison | tested | accuracy | below clean | spoilt refused | honest refused | newer held | updates |",
            "|---|---|---|---|---|---|---|---|",
        ]
        clean = _mean([one["accuracy"] for job, one in found if _is(job, partition, "none", "none")])
        for poison, name in POISONS.items():
            for accept in ("none", rule):
                runs = [one for job, one in found if _is(job, partition, poison, accept)]
                lines.append(_row(name, accept, runs, clean))
        lines.append("")
    lines += seized
    return "\n".join(lines) + FOOT.format(updates=UPDATES)


def _is(job: Mapping[str, Any], partition: str, poison: str, accept: str) -> bool:
    return (job["partition"], job["poison"], job["accept"]) == (partition, poison, accept)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _row(name: str, accept: str, runs: Sequence[Mapping[str, Any]], clean: float) -> str:
    tested = "no" if accept == "none" else "yes"
    lost = [one["stopped_after"] for one in runs if one["accuracy"] is None]
    if lost:
        after = f"{min(lost)} to {max(lost)}" if min(lost) < max(lost) else f"{lost[0]}"
        return f"| {name} | {tested} | lost after {after} updates | - | - | - | - | - |"
    scores = [one["accuracy"] for one in runs]
    below = f"{100 * (clean - _mean(scores)):.1f} points"
    shown = f"{_mean(scores):.1%}" + (f" ({min(scores):.1%} to {max(scores):.1%})" if len(scores) > 1 else "")
    if tested == "no":
        return f"| {name} | no | {shown} | {below} | - | - | - | {UPDATES} |"
    tallies = {key: _mean([one["received"][key] for one in runs]) for key in runs[0]["received"]}
    spoilt = tallies["refused_poisoned"] + tallies["accepted_poisoned"]
    refused = f"{tallies['refused_poisoned'] / spoilt:.0%} of {spoilt:.0f}" if spoilt else "-"
    rest = f"{tallies['refused_honest']:.0f} | {tallies['newer_held']:.0f} | {tallies['age']:.0f}"
    return f"| {name} | yes | {shown} | {below} | {refused} | {rest} |"


def main() -> None:
    """Train what is missing and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="mnist:../shared/data/mnist")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--partitions", nargs="+", choices=PARTITIONS, default=list(PARTITIONS))
    parser.add_argument("--out", type=Path, default=PAGE)
    add_engine(parser, Path("out/robustness"))
    options = parser.parse_args()
    what = {"kind": "robustness", "data": options.data, "graph": GRAPH, "learner": LEARNER, "updates": UPDATES}
    what |= {"share": SHARE, "last": LAST}
    with engine(options.engine, options.work) as run:

        def done(asked: list[Job]) -> Found:
            return list(zip(asked, run(trained, asked, common=(options.data,), what=what), strict=True))

        rehearsed = done(rehearsals(options.partitions))
        rules = {partition: chosen(rehearsed, partition) for partition in options.partitions}
        found = done(jobs(rules, options.seeds))
        shared = done(seized_jobs(rules, options.seeds[0]))
    seized = seized_section(shared, seized_shares(options.data, options.seeds[0]))
    name = "MNIST" if options.data.startswith("mnist:") else options.data
    write_page(options.out, page(rehearsed, found, seized, rules, seeds=options.seeds, data=name))


if __name__ == "__main__":
    main()
