"""What noise costs, and what it buys: MNIST over 300 peers at epsilon 8 and 1, one record or a whole node protected.

Run ``python -m tools.pages.noise`` from the checkout, with MNIST's four files in ``../shared/data/mnist`` or
where ``--data`` says. It renews the section *Noise* of ``docs/measured/learning.md``. Every run is a job, kept in
``--work``: run it again to go on. ``--tune`` tries noise budgets and gradient norms on public data, prints what it
finds and leaves the page alone: what is best stands in :mod:`veilwalk.learning._mechanism`.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any

from tools.pages import noise_jobs
from tools.pages.campaign import Run, add_engine, engine
from tools.pages.markdown import markdown_table, mean_share, paragraph, share_between
from tools.pages.noise_jobs import DELTA, GRAPH, WATCHED
from tools.pages.rows import write_page
from veilwalk.core.version import __version__
from veilwalk.learning import NOISE_BUDGET, USUAL_GRADIENT

PAGE = Path(__file__).parents[2] / "docs" / "measured" / "learning.md"
UNITS, EPSILONS, PARTITIONS = ("record", "node"), (8.0, 1.0), ("iid", "dirichlet:0.3")
SEEDS, UPDATES, TUNING_UPDATES = (1, 2, 3), 3000, 600
BUDGETS = {"record": (0.3, 0.6, 1.2), "node": (0.12, 0.25, 0.5)}
GRADIENTS = {"record": (1.0, 3.0), "node": (0.2, 0.6)}
#: A small network, so that every candidate's update can be held against the one made.
SMALL = {"graph": "rrg:30:3:seed=1", "support": "2:3", "partition": "dirichlet:0.3", "updates": 900, "attack": 300}
#: Updates whose noise an update takes part of back.
BAND = 16
COLUMNS = ("route alone", "drop", "count", "step", "gradient")
Job = dict[str, Any]


def tuning_jobs(updates: int) -> list[Job]:
    """Every budget at the usual gradient norm, then every gradient norm at the usual budget."""
    jobs: list[Job] = []
    for unit, epsilon in itertools.product(UNITS, EPSILONS):
        at: Job = {"do": "tried", "unit": unit, "epsilon": epsilon, "updates": updates}
        pairs = [(budget, USUAL_GRADIENT[unit]) for budget in BUDGETS[unit]]
        pairs += [(NOISE_BUDGET[unit], gradient) for gradient in GRADIENTS[unit]]
        jobs += [at | {"budget": budget, "gradient": gradient} for budget, gradient in dict.fromkeys(pairs)]
    return jobs


def training_jobs(data: str) -> list[Job]:
    """Every unit, epsilon, partition and seed."""
    return [
        {"do": "trained", "data": data, "unit": unit, "epsilon": epsilon, "partition": partition, "seed": seed}
        | {"updates": UPDATES}
        for seed, unit, epsilon, partition in itertools.product(SEEDS, UNITS, EPSILONS, PARTITIONS)
    ]


def leak_jobs() -> list[Job]:
    """One run without noise, and each protection."""
    plain: Job = {"do": "leaked", "unit": "node", "epsilon": 0.0, "learner": "softmax:learning_rate=1:batch_size=0"}
    noisy = [
        {"do": "leaked", "unit": unit, "epsilon": epsilon, "learner": None}
        for unit, epsilon in itertools.product(UNITS, EPSILONS)
    ]
    return [job | {"base": SMALL} for job in (plain, *noisy)]


def correlated_jobs(data: str) -> list[Job]:
    """Every unit and epsilon with noise that is correlated along the walk, one seed."""
    return [
        {"do": "correlated", "data": data, "unit": unit, "epsilon": epsilon, "seed": SEEDS[0]}
        | {"updates": UPDATES, "band": BAND}
        for unit, epsilon in itertools.product(UNITS, EPSILONS)
    ]


def cost_lines(jobs: list[Job], found: list[Job]) -> list[str]:
    """The table of accuracies."""
    columns = (
        "protected",
        "epsilon asked",
        "counted",
        "partition",
        "updates a node",
        "noise / clip",
        "clip",
        "accuracy",
    )
    rows = []
    for unit, epsilon, partition in itertools.product(UNITS, EPSILONS, PARTITIONS):
        same = {"unit": unit, "epsilon": epsilon, "partition": partition}
        runs = [one for job, one in zip(jobs, found, strict=True) if same.items() <= job.items()]
        accuracy = [run["accuracy"] for run in runs]
        counted = max(run["epsilon"] for run in runs)
        first = runs[0]
        noise = (str(first["most_updates"]), f"{first['noise']:.4g}", f"{first['clip']:.3g}")
        rows.append((unit, f"{epsilon:g}", f"{counted:.3f}", partition, *noise, mean_share(accuracy)))
    return markdown_table(columns, rows)


def leak_lines(jobs: list[Job], found: list[Job]) -> list[str]:
    """The table of what is given away."""
    columns = ("protected", "accuracy", *COLUMNS, "membership AUC")
    rows = []
    for job, one in zip(jobs, found, strict=True):
        name = f"{job['unit']}, epsilon {job['epsilon']:g}" if job["epsilon"] else "nothing"
        cells = [name, f"{one['accuracy']:.1%}"]
        for column in COLUMNS:
            row = one["attackers"].get(column) or one["attackers"][f"route and content: {column}"]
            cells.append(share_between(row["hit_ratio"], *row["hit_ratio_interval"]))
        auc, low, high = one["membership"]
        rows.append((*cells, f"{auc:.3f} [{low:.3f}-{high:.3f}]"))
    return markdown_table(columns, rows)


def correlated_lines(jobs: list[Job], found: list[Job]) -> list[str]:
    """What noise that is correlated along the walk gives."""
    cells = [
        f"{job['unit']}, epsilon {job['epsilon']:g}: {one['accuracy']:.1%}"
        for job, one in zip(jobs, found, strict=True)
    ]
    text = (
        f"**Noise correlated along the walk**, each update taking part of the noise of {BAND - 1} before it "
        f"back: the "
        "same runs on pixels, iid, seed "
        f"{SEEDS[0]}, against whoever is *no member*, for members share the secret that noise is drawn from "
        f"([where that is sound](../explanation/privacy-accounting.md)). Accuracy: {'; '.join(cells)}."
    )
    return [paragraph(text)]


def section(cost: list[str], shared: list[str], leak: list[str]) -> str:
    """The section of the page."""
    about = (
        f"Run of veilwalk {__version__}, `python -m tools.pages.noise`. MNIST over {GRAPH}, the scheme that is "
        f"recommended for it, {UPDATES} updates, made as `veilwalk train --data mnist:DIR --partition iid --protect "
        "record --epsilon 8` makes them. *Record*: one row of one node, on the scattering of the images; *node*: all "
        "rows of one node, on pixels. Step and clip are by the rule of [privacy "
        "accounting](../explanation/privacy-accounting.md#step-and-clip): for pixels no private row had a part in it; "
        "for scattering a fifth of MNIST's training rows, held back, had, which epsilon does not count; no test row "
        "had. On pixels (0.2.0) records had 90.0% and 83.4%. Computed apart "
        "from this code: a trusted curator of the same scattering, record, 96.9% and 95.0%; DP-FedAvg with a trusted "
        f"sum, node, pixels, 90.6% and 87.5%. Delta {DELTA:g}; epsilon holds against everybody together, sender known. "
        f"Means over seeds {', '.join(map(str, SEEDS))} [least-largest]."
    )
    bought = (
        f"**What each protection buys.** Pixels of digits over {SMALL['graph']}, {SMALL['partition']}, "
        f"{SMALL['updates']} updates, one seed, {SMALL['attack']} deliveries: how often the maker is named at the "
        "first guess, by route and content together, with 95% intervals, by "
        "[attackers](../reference/training.md#the-attackers). *Membership AUC*: how well a threshold on the loss of a "
        "model just made tells its maker's rows from those that nobody trained on (0.5: not at all), mean of the last "
        f"{WATCHED} updates of one run with its 95% interval. A maker's classes are not those held out, which by "
        "itself moves it a few hundredths. With few peers and few rows noise costs much more accuracy than above."
    )
    return "\n".join((paragraph(about), "", *cost, "", *shared, "", paragraph(bought), "", *leak))


def renewed(page: str, text: str) -> str:
    """Return the page with another section on noise."""
    before, title, rest = page.partition("## Noise\n")
    _, heading, after = rest.partition("\n## ")
    return f"{before}{title}\n{text}\n{heading}{after}"


def main() -> None:
    """Run what is not done yet; print the tuning, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", default="mnist:../shared/data/mnist")
    parser.add_argument("--tune", action="store_true", help="try budgets on public data instead")
    add_engine(parser, Path("out") / "noise")
    options = parser.parse_args()
    with engine(options.engine, options.work) as run:
        if options.tune:
            print_tuning(run)
            return
        cost, shared, leak = training_jobs(options.data), correlated_jobs(options.data), leak_jobs()
        what = {"kind": "noise", "budget": NOISE_BUDGET, "gradient": USUAL_GRADIENT}
        found = run(noise_jobs.do, cost, what=what, stage="noise")
        members = run(noise_jobs.do, shared, what=what, stage="correlated")
        leaks = run(noise_jobs.do, leak, what=what, stage="leaks")
    text = section(cost_lines(cost, found), correlated_lines(shared, members), leak_lines(leak, leaks))
    write_page(PAGE, renewed(PAGE.read_text(), text))
    print(f"wrote {PAGE}")


def print_tuning(run: Run) -> None:
    """Print the accuracy on public rows of everything tried."""
    jobs = tuning_jobs(TUNING_UPDATES)
    found = run(noise_jobs.do, jobs, what={"kind": "noise tuning"}, stage="tuning")
    rows = [
        (job["unit"], *(f"{job[key]:g}" for key in ("epsilon", "budget", "gradient")), f"{accuracy:.1%}")
        for job, accuracy in zip(jobs, found, strict=True)
    ]
    print("\n".join(markdown_table(("protected", "epsilon", "noise budget", "gradient norm", "accuracy"), rows)))


if __name__ == "__main__":
    main()
