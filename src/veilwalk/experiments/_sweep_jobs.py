"""One case of a sweep: settings as files have them, to tidy rows of what came out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from veilwalk.audit import AuditSettings, audit, parse_coalition
from veilwalk.core.config import decode, key_of
from veilwalk.core.errors import ConfigError, InvalidParameterError
from veilwalk.core.records import plain
from veilwalk.design import Request, choose_scheme, design
from veilwalk.experiments._comparators import RouteSettings, compared
from veilwalk.graphs import parse_graph_spec
from veilwalk.training import PRIVATE, Scenario, TrainSettings, membership, privacy, run_training, task_of, train_by

Settings = Mapping[str, Any]
Rows = list[dict[str, Any]]
_GRAPH = "rrg:300:3:seed=1"
# What the files that a case names hold, among its settings; no verb has such a key.
_FILES = "files"
_SCHEME = ("graph", "law", "support", "walk", "recipients")
_MEASURES = ("node_entropy_nats", "hit_ratio", "blind_hit_ratio", "distance_entropy_nats", "times_floor")


def trained(settings: Settings) -> Rows:
    """Train, and return a row an algorithm."""
    asked = TrainSettings.of(settings)
    result = run_training(Scenario.of(asked), asked).record().result
    noisy = result["privacy"] or {"algorithms": {}}
    rows = []
    for name, found in result["algorithms"].items():
        row = {"algorithm": name, "accuracy": found["accuracy"], "loss": found["loss"]} | found["scores"]
        row |= {key: found[key] for key in ("hops_per_update", "bytes_per_update", "accuracy_at_equal_hops")}
        row |= {key: found["anonymity"][key] for key in ("node_entropy_nats", "hit_ratio")}
        epsilon = noisy["algorithms"].get(name, {}).get("epsilon_sender_known")
        row |= {} if epsilon is None else {"epsilon": epsilon}
        inferred = (result["membership"] or {}).get(name)
        rows.append(row | ({} if inferred is None else {"membership_auc": inferred["auc"]}))
    return rows


def learnt(settings: Settings) -> Rows:
    """Train, and return a row an algorithm with what it learnt alone: where its update came from is asked of nobody.

    The same models as ``train`` gives. A sweep over noise or step sizes need not attack the same route every time.
    """
    asked = TrainSettings.of(settings)
    scenario = Scenario.of(asked)
    planned, rows = {}, []
    for name in (PRIVATE, *asked.comparisons):
        made = train_by(scenario, asked, name)
        planned[name], last = made.planned, made.training.points[-1]
        row = {"algorithm": name, "accuracy": last.accuracy, "loss": last.loss, **last.scores}
        row |= {"hops_per_update": last.hops / max(made.training.updates, 1)}
        count, task = asked.membership, task_of(scenario, asked, name)
        inferred = membership(scenario, made.trace, count, task=task) if count else None
        rows.append(row | ({} if inferred is None else {"membership_auc": inferred["auc"]}))
    noisy = privacy(scenario, planned, delta=asked.delta) or {"algorithms": {}}
    known = {name: found["epsilon_sender_known"] for name, found in noisy["algorithms"].items()}
    return [row | ({"epsilon": known[row["algorithm"]]} if row["algorithm"] in known else {}) for row in rows]


def audited(settings: Settings) -> Rows:
    """Audit, and return a row an observer; of one that joins updates, a row a number of them."""
    known = {key_of(field): field.name for field in fields(AuditSettings)} | dict.fromkeys(_SCHEME)
    _refuse_unknown(settings, known)
    graph = parse_graph_spec(settings.get("graph", _GRAPH))
    scheme = choose_scheme(graph, **{key: settings[key] for key in _SCHEME[1:] if key in settings})
    asked = {name: settings[key] for key, name in known.items() if name is not None and key in settings}
    if isinstance(asked.get("colluders"), str):
        asked["colluders"] = parse_coalition(asked["colluders"], graph.n_nodes)
    found = audit(scheme, AuditSettings(**asked))
    rows = []
    for one in found.rows():
        if one["part"] != "return time":
            linked = {"linked": one["linked"]} if "linked" in one else {}
            measures = {key: one[key] for key in _MEASURES if one.get(key) is not None}
            rows.append(
                {"observer": one["observer"]} | linked | measures | {"hops_per_update": found.hops_per_update.mean}
            )
    return rows


def designed(settings: Settings) -> Rows:
    """Design, and return one row."""
    options = {key_of(field): field.name for field in fields(Request) if field.name not in _SCHEME}
    _refuse_unknown(settings, options | dict.fromkeys(_SCHEME[:-1]))
    asked = {name: settings[key] for key, name in options.items() if key in settings}
    asked |= {key: settings[key] for key in ("law", "support", "walk") if key in settings}
    found = design(parse_graph_spec(settings.get("graph", _GRAPH)), **asked)
    row = {"hops_per_update": found.price.hops, "blind_node_entropy_nats": found.blind_node_entropy_nats}
    if found.exposure is not None:
        row |= {"node_entropy_nats": found.exposure.node_entropy_nats, "hit_ratio": found.exposure.hit_ratio}
    return [row]


def routed(settings: Settings) -> Rows:
    """Put one route before one observer, and return what it makes of it."""
    return compared(decode(RouteSettings, settings))


#: What can be swept, by the verb that does one case of it; learn and routes are of sweeps only.
KINDS: dict[str, Callable[[Settings], Rows]] = {
    "train": trained,
    "learn": learnt,
    "audit": audited,
    "design": designed,
    "routes": routed,
}
#: What the numbers of each verb are.
MEANINGS = {
    "learn": "Accuracy and loss on held-out rows; epsilon against everybody, sender known, for the node worst off.",
    "train": "Node entropy (nats) and hit ratio are the receiver's, by what the route tells it, as `train` has them.",
    "audit": "Node entropy (nats) and hit ratio are of each observer, exact or estimated as `audit` says.",
    "design": "Node entropy (nats) and hit ratio are the opener's, exact or estimated as `design` says.",
    "routes": "Hit ratio and node entropy (nats) of a mixnet are exact, of veilwalk estimated; what is drawn, "
    "and recall and precision of first-spy, are means over messages; floors are p and p^2.",
}
#: Columns that say which part of a case a row is of.
PARTS = ("algorithm", "observer", "linked")


def check_case(kind: str, settings: Settings) -> None:
    """Refuse keys that the verb does not know, before anything is run."""
    decoded: dict[str, Any] = {"train": TrainSettings, "learn": TrainSettings, "routes": RouteSettings}
    if kind in decoded:
        decode(decoded[kind], settings)
        return
    kinds: dict[str, Any] = {"audit": AuditSettings, "design": Request}
    _refuse_unknown(settings, {key_of(field): "" for field in fields(kinds[kind])} | dict.fromkeys(_SCHEME))


def run_case(kind: str, job: Settings) -> Rows:
    """Run one case; what comes back is plain data."""
    if kind not in KINDS:
        raise InvalidParameterError("kind", kind, f"one of {', '.join(KINDS)}")
    return list(plain(KINDS[kind]({key: value for key, value in job.items() if key != _FILES})))


def jobs_of(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return cases as jobs: one that names files also says what they hold, so that other content is another job."""
    known: dict[Path, str] = {}
    jobs = []
    for case in cases:
        found = {}
        for key, value in case.items():
            for path in _files(value):
                if path not in known:
                    with path.open("rb") as stream:
                        known[path] = hashlib.file_digest(stream, "sha256").hexdigest()
                found[f"{key}: {path.name}"] = known[path]
        jobs.append(case | ({_FILES: found} if found else {}))
    return jobs


def _files(value: Any) -> list[Path]:
    """Return the files that a setting names: a file, alone or after a word, or a folder of files after a word."""
    if not isinstance(value, str):
        return []
    after = value.partition(":")[2]
    for name in (value, after, after.partition(":")[0]):
        if name and Path(name).is_file():
            return [Path(name)]
        if name and name != value and Path(name).is_dir():
            return sorted(path for path in Path(name).iterdir() if path.is_file())
    return []


def _refuse_unknown(settings: Settings, known: Mapping[str, Any]) -> None:
    for key in settings:
        if key not in known:
            raise ConfigError(f"unknown key {key!r}: must be one of {', '.join(sorted(known))}")
