"""What a training run will take, before it starts: ``train --dry-run``, and a word where checkpoints will be large."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from veilwalk.cli._output import print_table, say
from veilwalk.core.units import readable_bytes

if TYPE_CHECKING:
    from veilwalk.training import Scenario, TrainSettings

_LARGE = 500_000_000


def print_plan(settings: TrainSettings, out: Path | None) -> None:
    """Read and check everything that settings name, and print what the run will take."""
    from veilwalk.training import Scenario, plan_run

    scenario = Scenario.of(settings)
    plan = plan_run(scenario, settings)
    print_table(
        f"{settings.data} over {settings.graph} ({scenario.graph.n_nodes} peers), {scenario.learner_spec}",
        ("algorithm", ">updates", ">checkpoint, at most"),
        [(name, str(settings.updates), readable_bytes(size)) for name, size in plan.checkpoint_bytes.items()],
    )
    for note in scenario.notes:
        say(f"note: {note}")
    sizes = {"model": plan.model_bytes, "sealed message": plan.message_bytes, "kept by a node": plan.state_bytes}
    say(", ".join(f"{name} {readable_bytes(size)}" for name, size in sizes.items()))
    say(
        f"one update took {plan.update_s:.3g} s here: those of each algorithm take about "
        f"{plan.update_s * settings.updates:.3g} s (estimated from one), without evaluations and attacks"
    )
    alarm = None if out is None else _alarm(plan.total_bytes, out)
    if alarm:
        say(f"note: {alarm}")


def large_checkpoints(scenario: Scenario, settings: TrainSettings, out: Path) -> str | None:
    """Return a remark where checkpoints will be so large that one wants to know before."""
    from veilwalk.training import plan_run

    if plan_run(scenario, settings, trial=False).total_bytes < _LARGE:
        return None
    return _alarm(plan_run(scenario, settings).total_bytes, out)


def _alarm(total: int, out: Path) -> str | None:
    there = next(path for path in (out, *out.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    if total < _LARGE and total < free / 4:
        return None
    return (
        f"checkpoints will take up to {readable_bytes(total)} in {out}, where {readable_bytes(free)} are free, and the "
        "largest as much again in memory while it is written; --compare without gossip takes less"
    )
