"""Hours of work: does a node grow? Memory, open files and disk of real nodes are sampled while some are killed.

Nodes of the first half are never hurt, so that what they take can be followed; one of the others is killed now and
then. What was measured is kept beside the cluster, and a soak that was interrupted goes on.

    python -m tests.campaigns.soak --hours 8 --folder soak
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.campaigns.chaos import ChaosCluster

_SAMPLE_S = 10.0
_KILL_S = 30.0
# The first minutes are those in which caches fill.
_WARM_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one node took at one moment, some seconds of soaking after the first start."""

    session: int
    at_s: float
    node: str
    rss_kb: int
    files: int
    disk_bytes: int


def take_samples(cluster: ChaosCluster, watched: list[str], session: int, at_s: float) -> list[Sample]:
    """Look at every watched node."""
    found = []
    for name, pid in cluster.pids.items():
        if name not in watched:
            continue
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{pid}/status").read_text()
            rss = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
            state = cluster.folder / name / "state"
            disk = sum(path.stat().st_size for path in state.rglob("*") if path.is_file())
            files = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208  no path is wanted
            found.append(
                Sample(session=session, at_s=round(at_s, 1), node=name, rss_kb=rss, files=files, disk_bytes=disk)
            )
    return found


def growth(samples: list[Sample]) -> dict[str, float]:
    """Return the growth of memory, files and disk in the longest session, after it was warm: last quarter over first.

    One for each, the largest of all watched nodes; 0.05 is five in a hundred.
    """
    sessions = {sample.session for sample in samples}
    spans = {session: [s for s in samples if s.session == session] for session in sessions}
    longest = max(spans.values(), key=lambda of: max(s.at_s for s in of) - min(s.at_s for s in of))
    begun = min(sample.at_s for sample in longest)
    warm = [sample for sample in longest if sample.at_s - begun >= _WARM_S] or longest
    worst: dict[str, float] = {}
    for node in {sample.node for sample in warm}:
        mine = [sample for sample in warm if sample.node == node]
        quarter = max(1, len(mine) // 4)
        for field in ("rss_kb", "files", "disk_bytes"):
            first = statistics.median(getattr(sample, field) for sample in mine[:quarter])
            last = statistics.median(getattr(sample, field) for sample in mine[-quarter:])
            worst[field] = max(worst.get(field, -1.0), last / first - 1)
    return worst


def soak(folder: Path, seconds: float) -> list[Sample]:
    """Let a cluster work until it has done so for so long, in this session and those before."""
    record = folder / "soak.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    kept = [Sample(**json.loads(line)) for line in record.read_text().splitlines()] if record.exists() else []
    session = max((sample.session for sample in kept), default=-1) + 1
    before_s = max((sample.at_s for sample in kept), default=0.0)
    dice = random.Random(session)  # noqa: S311  whom to kill is no secret
    with ChaosCluster(folder / "cluster", "rrg:6:3:seed=1", updates=10**9, padding=1000) as cluster:
        half = len(cluster.names) // 2
        begun = sampled = killed = time.monotonic()
        cluster.start_all()
        while before_s + time.monotonic() - begun < seconds:
            time.sleep(0.5)
            now = time.monotonic()
            if now - killed > _KILL_S:
                cluster.kill(dice.choice(list(cluster.names[half:])))
                killed = now
            cluster.tend()
            if now - sampled > _SAMPLE_S:
                fresh = take_samples(cluster, list(cluster.names[:half]), session, before_s + now - begun)
                with record.open("a") as stream:
                    stream.writelines(json.dumps(asdict(sample)) + "\n" for sample in fresh)
                kept += fresh
                sampled = now
        cluster.stop_all()
        findings = cluster.findings()
    print(f"kills in this session: {cluster.counts['kills']}; {findings}")
    return kept


def main() -> None:
    """Soak, and print what grew."""
    parser = argparse.ArgumentParser(description="Whether nodes grow in hours of work.")
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--folder", type=Path, default=Path("soak"))
    options = parser.parse_args()
    samples = soak(options.folder, 3600 * options.hours)
    hours = max(sample.at_s for sample in samples) / 3600
    worst = growth(samples)
    print(f"{hours:.2f} hours, {len(samples)} samples of {len({sample.node for sample in samples})} nodes")
    for field, share in worst.items():
        values = [getattr(sample, field) for sample in samples]
        print(f"  {field}: {min(values)} to {max(values)}, grown by {100 * share:+.1f} %")


if __name__ == "__main__":
    main()
