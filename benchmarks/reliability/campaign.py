"""The reliability campaign: kills, pauses, power cuts, bad networks, fuzzing, hostile members, mutants.

    python -m benchmarks.reliability.campaign                 everything; hours on two cores; can be stopped and resumed
    python -m benchmarks.reliability.campaign --share 0.01    a hundredth of each count
    python -m benchmarks.reliability.campaign --only T1,T4 --minutes 10
    python -m benchmarks.reliability.campaign --recipients 16 --share 0.01    the same, sealed for sixteen

Counts and faults are kept in ``out/campaign/state.json`` after every slice, so that the next run goes on; those of runs
sealed for several in ``state-16.json``. The page ``docs/reference/reliability.md`` is written from them at the end,
misses as well as passes; each number of recipients has its own section.
"""

from __future__ import annotations

import argparse
import json
import platform
import sqlite3
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cryptography

from benchmarks.reliability import campaign_attacks, campaign_crashes
from benchmarks.reliability.campaign_counts import Counts
from veilwalk.core.records import write_atomically
from veilwalk.core.version import __version__

ROOT = Path(__file__).parents[2]
TITLES = {
    "T1": "crashes: SIGKILL from outside and at named failpoints",
    "T2": "the whole cluster killed at once",
    "T3": "pauses of 0.05 to 3 s (SIGSTOP), patience 0.5 s",
    "T4": "power cuts, simulated disk that forgets unsynced writes",
    "T5": "bad network: delays, cuts, flipped bits, half-open, slow, partitions",
    "T6": "parsers fuzzed, coverage-guided",
    "T8": "anonymity regression on real nodes",
    "T9": "hostile members: garbage, replay, Pac-Man",
    "T12": "stored messages damaged while a node is down",
    "T13": "mutants that the same checks must catch",
}
_PREFACE = (
    "Real processes on loopback unless it says simulated; ten nodes with four neighbours each and hybrid sealing, "
    "where nothing else is said. The model counts every node's updates; a checker that shares no code with the node "
    "compares it with what each node committed, and counts the messages that are on their way. Counts add up over "
    "several sessions, misses included."
)
ALIKE = ("seconds", "faults", "slices", "seed", "recipients", "at_each_failpoint")
_SECTION = "## Sealed for "
#: Name, what it is, the stage, what it counts towards, and how much of it the whole campaign wants.
STAGES: dict[str, tuple[Callable[[Counts, Path, int], None], str, float]] = {
    "T1": (campaign_crashes.kills, "kills", 10_000),
    "T2": (campaign_crashes.whole_kills, "whole_kills", 500),
    "T3": (campaign_crashes.pauses, "pauses", 2_000),
    "T4": (campaign_crashes.power, "cuts", 100_000),
    "T5": (campaign_crashes.network, "hops", 100_000),
    "T6": (campaign_attacks.fuzz, "executions", 10_000_000),
    "T8": (campaign_attacks.anonymity, "runs", 1),
    "T9": (campaign_attacks.hostile, "runs", 3),
    "T12": (campaign_crashes.damage, "damaged", 20),
    "T13": (campaign_attacks.mutants, "runs", 1),
}


def main() -> None:
    """Run what is missing, and write the page."""
    parser = argparse.ArgumentParser(description="The reliability campaign.")
    parser.add_argument("--share", type=float, default=1.0, help="of the full counts")
    parser.add_argument("--only", default=",".join(STAGES), help="stages, separated by commas")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin nothing new after so long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--recipients", type=int, default=1, help="for how many messages are sealed")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "campaign")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    options = parser.parse_args()
    several = options.recipients > 1
    state_file = options.out / (f"state-{options.recipients}.json" if several else "state.json")
    settings = {"recipients": options.recipients, "at_each_failpoint": max(1, 200 * options.share)} if several else {}
    state: dict[str, Counts] = json.loads(state_file.read_text()) if state_file.exists() else {}
    end = time.monotonic() + 60 * options.minutes
    try:
        for name in options.only.split(","):
            counts = state.setdefault(name, {"seed": options.seed} | settings)
            _run_stage(name, counts, options, end, lambda: _save(state_file, state))
    finally:
        _save(state_file, state)
        page = options.docs / "reference" / "reliability.md"
        text = page.read_text() if page.exists() else ""
        write_atomically(page, placed(text, state, options.recipients).encode())
        print(f"written: {page}")


def _run_stage(name: str, counts: Counts, options: argparse.Namespace, end: float, save: Any) -> None:
    stage, unit, full = STAGES[name]
    target = max(1, full * options.share)
    while counts.get(unit, 0) < target and time.monotonic() < end:
        begin = time.monotonic()
        counts["slices"] = counts.get("slices", 0) + 1
        stage(counts, options.out, counts["seed"] + counts["slices"])
        counts["seconds"] = round(counts.get("seconds", 0) + time.monotonic() - begin, 1)
        save()
        faults = len(counts.get("faults", []))
        done = f"{counts.get(unit, 0):.0f} of {target:.0f} {unit}"
        print(f"{name}: {done}, {faults} faults, {counts['seconds']:.0f} s", flush=True)
        if faults > 20:
            print(f"{name}: too many faults, going on with the next", flush=True)
            return


def _save(path: Path, state: dict[str, Counts]) -> None:
    write_atomically(path, json.dumps(state, indent=1).encode() + b"\n")


def placed(page: str, state: dict[str, Counts], recipients: int) -> str:
    """Return the page with what it says about runs sealed for so many put in its place; the rest stays."""
    first, *sections = page.split(f"\n{_SECTION}")
    kept = {int(text.split()[0]): text for text in sections}
    if recipients == 1:
        first = render(state)
    else:
        kept[recipients] = section(state, recipients)
    return f"\n{_SECTION}".join([first.rstrip("\n") + "\n", *(kept[number] for number in sorted(kept))])


def section(state: dict[str, Counts], recipients: int) -> str:
    """Return what is said about runs sealed for several, from the number on."""
    about = (
        f"{recipients}\n\nThe same stages in short, every message sealed for {recipients}. Networks of 24 nodes with "
        "three neighbours each, recipients drawn evenly from the twenty at distance 2 or more; where a stage takes a "
        "smaller network (rings of four: T1 in training and cancelling, T8's times; eight nodes: one of two in T5) the "
        "slots left over are nobody's. T4 has three recipients among five nodes in every second world. With several "
        "recipients a copy of a message is a second walk, so nothing may be copied: a walk too many, or an update that "
        "the newest model lacks, would show one. T8's predictions are those of one recipient and are not made here; "
        "the places and hints of slots are judged instead, with everybody's keys.\n"
    )
    return "\n".join([about, *_table(state), "", *_counted(state), *_faults(state), ""])


def render(state: dict[str, Counts]) -> str:
    """Return the page."""
    versions = (
        f"veilwalk {__version__}, Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, "
        f"{ssl.OPENSSL_VERSION}, cryptography {cryptography.__version__}, {platform.system()} {platform.machine()}"
    )
    lines = [
        "# Reliability: what the nodes were put through",
        "",
        f"Written by `make campaign` with {versions}. {_PREFACE}",
        "",
        *_table(state),
        "",
        "## Counts",
        "",
        *_counted(state),
        "## Faults",
        "",
        *_faults(state),
        "",
    ]
    return "\n".join(lines)


def _table(state: dict[str, Counts]) -> list[str]:
    lines = [
        "| id | what | done | goal | lost | doubled | faults | minutes |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, (_, unit, full) in STAGES.items():
        counts = state.get(name, {})
        done = f"{counts.get(unit, 0):,.0f} {unit.replace('_', ' ')}"
        checked = f"{counts.get('lost', '')} | {counts.get('doubled', '')} | {len(counts.get('faults', []))}"
        minutes = f"{counts.get('seconds', 0) / 60:.1f}"
        lines.append(f"| {name} | {TITLES[name]} | {done} | {full:,.0f} | {checked} | {minutes} |")
    return lines


def _counted(state: dict[str, Counts]) -> list[str]:
    lines = []
    for name in STAGES:
        counts = {key: value for key, value in state.get(name, {}).items() if key not in ALIKE}
        if counts:
            lines += [f"**{name}** {_words(counts)}", ""]
    return lines


def _faults(state: dict[str, Counts]) -> list[str]:
    return [f"- {name}: {fault}" for name in STAGES for fault in state.get(name, {}).get("faults", [])] or ["None."]


def _words(counts: Counts) -> str:
    parts = []
    for key, value in counts.items():
        if isinstance(value, dict):
            inner = ", ".join(f"{inner_key} {_word(inner_value)}" for inner_key, inner_value in value.items())
            parts.append(f"{key}: {inner}")
        else:
            parts.append(f"{key} {_word(value)}")
    return "; ".join(parts).replace("_", " ") + "."


def _word(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return f"{value:,}"
        case list():
            return ", ".join(_word(one) for one in value)
    return str(value)


if __name__ == "__main__":
    main()
