"""The reliability campaign: kills, pauses, power cuts, bad networks, fuzzing, hostile members, mutants.

    python -m tests.campaigns.campaign                 everything; hours on two cores; can be stopped and resumed
    python -m tests.campaigns.campaign --share 0.01    a hundredth of each count
    python -m tests.campaigns.campaign --only T1,T4 --minutes 10
    python -m tests.campaigns.campaign --recipients 16 --share 0.01    the same, sealed for sixteen
    python -m tests.campaigns.campaign --recipients 16 --share 0.1 --only T15,T19    a short one of messages that dwell

Counts and faults are kept after every slice, so that the next run goes on, on any machine: beside the page, in
``docs/measured/reliability-1.json``, those of runs sealed for several in ``reliability-16.json``. With them is kept
under which rules they were counted: others are not added to them. The page ``docs/measured/reliability.md`` is written
from them at the end, misses as well as passes; each number of recipients has its own section, and what people wrote on
it stays: "How these runs went" and "Earlier figures".
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

from tests.campaigns import campaign_attacks, campaign_churn, campaign_crashes, campaign_members, chaos_plan
from tests.campaigns.campaign_counts import IMPATIENT, QUICK, SPEC, WIDE_SPEC, Counts
from veilwalk.core.records import write_atomically
from veilwalk.core.version import __version__
from veilwalk.node import Limits
from veilwalk.node.cluster import AWAY_S

ROOT = Path(__file__).parents[2]
TITLES = {
    "T1": "crashes: SIGKILL from outside and at named failpoints",
    "T2": "the whole cluster killed at once",
    "T3": "pauses of 0.05 to 3 s (SIGSTOP), patience 0.5 s",
    "T4": "power cuts, simulated disk that forgets unsynced writes",
    "T5": "bad network: delays, cuts, flipped bits, half-open, slow, partitions",
    "T6": "parsers fuzzed, coverage-guided",
    "T8": "anonymity regression on real nodes",
    "T9": "hostile members: garbage, replay and copies",
    "T11": "rosters change while the network works; forged, rolled back and expired ones between",
    "T12": "stored messages damaged while a node is down",
    "T13": "mutants that the same checks must catch",
    "T14": "flood: a member hands on garbage as fast as it is taken, then stops",
    "T15": "messages dwell, outages: a member away for 20 s, killed or stopped, disk kept",
    "T16": "one member down",
    "T17": "Pac-Man: one member of thirty swallows all, with and without decoys",
    "T18": "messages of 10 MiB in files: kills, pauses, bad network",
    "T19": "messages dwell: kills, pauses",
}
_PREFACE = (
    "Real processes on loopback unless it says simulated; ten nodes with four neighbours each and hybrid sealing, "
    "where nothing else is said. The model counts every node's updates; a checker that shares no code with the node "
    "compares it with what each node committed, and counts the messages that are on their way. Counts add up over "
    "several sessions, misses included; `lost` are updates that a node committed and the newest model lacks, `walks "
    "made` are walks begun because one seemed lost, `crowded out` are messages thrown away because a neighbour brought "
    "too many."
)
ALIKE = ("seconds", "faults", "slices", "seed", "recipients", "at_each_failpoint")
_TOLD = "## How these runs went\n"
_DONE = "## What was done\n"
_SECTION = "## Sealed for "
_EARLIER = "\n## Earlier figures"
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
    "T11": (campaign_churn.churn, "rosters", 80),
    "T12": (campaign_crashes.damage, "damaged", 20),
    "T13": (campaign_attacks.mutants, "runs", 1),
    "T14": (campaign_members.flood, "runs", 1),
    "T15": (campaign_members.outages, "outages", 30),
    "T16": (campaign_members.one_down, "runs", 3),
    "T17": (campaign_members.pac_man, "runs", 1),
    "T18": (campaign_members.large, "runs", 10),
    "T19": (campaign_members.dwelling, "runs", 10),
}


def main() -> None:
    """Run what is missing, and write the page."""
    parser = argparse.ArgumentParser(description="The reliability campaign.")
    parser.add_argument("--share", type=float, default=1.0, help="of the full counts")
    parser.add_argument("--only", default=",".join(STAGES), help="stages, separated by commas")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin nothing new after so long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--recipients", type=int, default=1, help="for how many messages are sealed")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "campaign", help="where the nodes live")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="where page and counts are")
    options = parser.parse_args()
    state_file = options.docs / "measured" / f"reliability-{options.recipients}.json"
    state_file.parent.mkdir(parents=True, exist_ok=True)
    settings = {"recipients": options.recipients, "at_each_failpoint": max(1, 200 * options.share)}
    rules = rules_text(options.recipients)
    state: dict[str, Counts] = json.loads(state_file.read_text()) if state_file.exists() else {}
    if state.setdefault("rules", {"text": rules})["text"] != rules:
        raise SystemExit(f"{state_file} holds counts made under other rules: remove it, or choose another --docs")
    end = time.monotonic() + 60 * options.minutes
    try:
        for name in options.only.split(","):
            counts = state.setdefault(name, {"seed": options.seed} | settings)
            _run_stage(name, counts, options, end, lambda: _save(state_file, state))
    finally:
        _save(state_file, state)
        page = options.docs / "measured" / "reliability.md"
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


def rules_text(recipients: int) -> str:
    """Return under which rules the stages run: what a run's manifest and its nodes' settings say."""
    specs = (SPEC if recipients == 1 else WIDE_SPEC, "rrg:30:3:seed=1")
    late = "; ".join(chaos_plan.rules_in_words(spec, recipients) for spec in specs)
    large = chaos_plan.rules_in_words("rrg:6:3:seed=1", recipients, padding=campaign_members.TEN_MIB)
    patience = "; ".join(
        f"{name}: pin_s {limits.pin_s:g}, connect_s {limits.connect_s:g}, answer_s {limits.answer_s:g}, "
        f"ping_s {limits.ping_s:g}, retry_s {limits.retry_s:g}, quota {limits.quota}"
        for name, limits in {"as shipped": Limits(), "quick": QUICK, "impatient": IMPATIENT}.items()
    )
    return (
        "Walks are non-backtracking and believed lost as `cluster up` believes it (one false alarm in "
        f"{chaos_plan.ALARM_HOPS:g} hops, {chaos_plan.HOP_S} s a hop, a member may be away for {AWAY_S:.0f} s): "
        f"{late}; with 10 MiB {large}. Nodes' limits are {patience}. T16 runs as shipped, T3 and the pauses of T18 and "
        "T19 impatient, T1's cancelling more so, the others quick, which meets more faults a minute. T12 alone takes "
        "walks for lost after 1.2 s, for it loses many. Messages dwell in T8, and for 0.05 s in T14 (half of it), "
        "T15, T17 and T19; elsewhere not."
    )


def placed(page: str, state: dict[str, Counts], recipients: int) -> str:
    """Return the page with what it says about runs sealed for so many put in its place; the rest stays."""
    page, _, earlier = page.partition(_EARLIER)
    first, *sections = page.split(f"\n{_SECTION}")
    kept = {int(text.split()[0]): text for text in sections}
    if recipients == 1:
        told = first[first.index(_TOLD) : first.index(_DONE)] if _TOLD in first else ""
        first = render(state).replace(_DONE, told + _DONE, 1)
    else:
        kept[recipients] = section(state, recipients)
    parts = [first.rstrip("\n") + "\n", *(kept[number].rstrip("\n") + "\n" for number in sorted(kept))]
    return f"\n{_SECTION}".join(parts) + (_EARLIER + earlier if earlier else "")


def section(state: dict[str, Counts], recipients: int) -> str:
    """Return what is said about runs sealed for several, from the number on."""
    about = (
        f"{recipients}\n\nThe same stages in short, every message sealed for {recipients}. Networks of 24 nodes with "
        "three neighbours each, recipients drawn evenly from the twenty at distance 2 or more; in smaller networks the "
        "slots left over are nobody's. With several recipients a copy of a message is a second walk, so nothing may be "
        "copied: a walk too many, or an update that the newest model lacks, would show one.\n"
    )
    return "\n".join([about, state["rules"]["text"], "", *_table(state), "", *_counted(state), *_faults(state), ""])


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
        "## Rules",
        "",
        state["rules"]["text"],
        "",
        _DONE,
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
        if not counts:
            continue
        done = f"{counts.get(unit, 0):,.0f} {unit.replace('_', ' ')}"
        checked = f"{counts.get('lost', '')} | {counts.get('doubled', '')} | {len(counts.get('faults', []))}"
        minutes = f"{counts.get('seconds', 0) / 60:.1f}"
        lines.append(f"| {name} | {TITLES[name]} | {done} | {full:,.0f} | {checked} | {minutes} |")
    missing = [name for name in STAGES if not state.get(name)]
    return [*lines, *(["", f"Not run yet: {', '.join(missing)}."] if missing else [])]


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
        parts.append(f"{key}: {_word(value)}" if isinstance(value, dict) else f"{key} {_word(value)}")
    return "; ".join(parts).replace("_", " ") + "."


def _word(value: Any) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return f"{value:,}"
        case dict():
            return ", ".join(f"{key} {_word(inner)}" for key, inner in value.items())
        case list():
            return ", ".join(_word(one) for one in value)
    return str(value)


if __name__ == "__main__":
    main()
