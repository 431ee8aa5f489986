"""Measures what members gain who share keys, cheat, or surround a peer.

Reading is counted on the run that the audit played. Members that cheat change the run, so they play one of their own,
on paths of the same walk: where a token goes does not depend on for whom it is sealed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from veilwalk.audit._kernels_paths import ANYBODY, GUESS, HONESTLY, MAKER, ONE_VICTIM, play_cheating_lane
from veilwalk.audit._knowledge import Knowledge
from veilwalk.audit._members import select_read
from veilwalk.audit._overlay import list_overlay_rows
from veilwalk.audit._score import estimate_over_lanes
from veilwalk.core.arrays import BoolArray, IntArray
from veilwalk.core.randomness import task_generator
from veilwalk.design import Scheme
from veilwalk.walks import draw_recipients, token_paths

# A stream of its own.
_TASK = 0x63686561
# Lanes that cheaters play, about how many updates, and at most so many hops.
_LANES, _UPDATES, _MOST_HOPS = 32, 30_000, 20_000_000
# Sets that a source draws from again and again, and all of them.
_SETS, _ALL_SETS = 64, 40_000

Row = dict[str, Any]


def play_cheaters(
    scheme: Scheme,
    member: BoolArray,
    *,
    aim: int = HONESTLY,
    takes: bool = False,
    victim: int = -1,
    train_probability: float = 1.0,
    updates: int = _UPDATES,
    seed: int = 0,
) -> tuple[IntArray, IntArray]:
    """Return makers and guesses of a run in which members cheat, and the lane of each update."""
    rng, n_nodes = task_generator(seed, _TASK), scheme.graph.n_nodes
    n_sets = max(min(_SETS, _ALL_SETS // n_nodes), 4)
    sources = np.repeat(np.arange(n_nodes), n_sets)
    sets = draw_recipients(
        scheme.graph,
        scheme.law.rows,
        scheme.recipients,
        seed=int(rng.integers(1 << 62)),
        lane=np.zeros_like(sources),
        source=sources,
        clock=np.arange(len(sources)),
    )
    pools, honest = sets.reshape(n_nodes, n_sets, -1), np.flatnonzero(~member)
    # Who is sealed for alone is met after as many hops as there are nodes, about.
    share = 0.0 if aim == HONESTLY else 1.0 if takes else float(member.mean())
    hops = int((scheme.price.hops * (1 - share) + 2.0 * n_nodes * share) * updates / _LANES) + n_nodes
    hops = min(hops, _MOST_HOPS // _LANES)
    paths = token_paths(scheme.graph, hops=hops, lanes=_LANES, seed=int(rng.integers(1 << 62)), walk=scheme.walk)
    tables, lanes = [], []
    for lane, path in enumerate(paths):
        out, draws = np.zeros((updates, 2), dtype=np.int64), rng.random(9_999)
        count = play_cheating_lane(path, pools, member, honest, aim, victim, takes, train_probability, draws, out)
        # The first updates begin anywhere, and what becomes of the last is not known.
        tables.append(out[2 : max(count - 1, 2)])
        lanes.append(np.full(len(tables[-1]), lane))
    return np.concatenate(tables), np.concatenate(lanes)


def measure_members(knowledge: Knowledge) -> list[Row]:
    """Return rows of what the colluders of an audit read, make and know: name, what, of what, share, 95% interval."""
    scheme, member, seed = knowledge.scheme, knowledge.is_colluder, knowledge.settings.seed
    lane, by_member = knowledge.grants.lane, knowledge.grants.by_colluder
    read, opened = select_read(knowledge), member[knowledge.sightings.destination]
    # Of the first update of a lane nobody knows who sealed it.
    honest = ~by_member & np.r_[False, lane[1:] == lane[:-1]]
    before = np.r_[False, (read | by_member)[:-1]]
    of_honest = "of all honest updates"
    counted = (
        ("opens", "a member opens it by the rule", opened),
        ("reads", "members read it, sharing keys", read),
        ("reads-both", "members read the model before it and after it", read & before),
    )
    rows = [_estimate(name, what, of_honest, flags[honest], lane[honest]) for name, what, flags in counted]
    run, lanes = play_cheaters(scheme, member, takes=True, seed=seed)
    what = "members make it, taking over what they read"
    rows.append(_estimate("makes", what, "of all updates", member[run[:, MAKER]], lanes))
    if scheme.hides_names:
        rows += list_overlay_rows(scheme, member, seed=seed)
    else:
        rows += _list_active_rows(scheme, member, of_honest, seed=seed)
    for count, exact_share in scheme.eclipse_shares.items():
        what = f"{count} of {scheme.graph.degrees.min()} neighbours know it for certain"
        row: Row = {"name": f"eclipse-{count}", "what": what, "of": "of a peer's updates"}
        rows.append(row | {"share": exact_share, "interval": None, "updates": 0})
    return rows


def _list_active_rows(scheme: Scheme, member: BoolArray, of_honest: str, *, seed: int) -> list[Row]:
    """Return what members name who choose the next maker, where keys have names."""
    rows: list[Row] = []
    victim = int(np.flatnonzero(~member)[0])
    run, lanes = play_cheaters(scheme, member, aim=ONE_VICTIM, victim=victim, seed=seed)
    is_victim, known = run[:, MAKER] == victim, run[:, GUESS] == victim
    what = "active-maker seals for one victim, and knows the next maker"
    rows.append(_estimate("active-maker", what, "of the victim's updates", known[is_victim], lanes[is_victim]))
    part = _estimate("victim", "active-maker lets its victim make", "of all updates", is_victim, lanes)
    rows.append(part | {"times_share": part["share"] / float(scheme.source_prior[victim])})
    run, lanes = play_cheaters(scheme, member, aim=ANYBODY, takes=True, seed=seed)
    others, known = ~member[run[:, MAKER]], run[:, GUESS] == run[:, MAKER]
    what = "members take over what they read, seal for one peer, and know the next maker"
    rows.append(_estimate("active-coalition", what, of_honest, known[others], lanes[others]))
    return rows


def _estimate(name: str, what: str, of: str, flags: BoolArray, lanes: IntArray) -> Row:
    """Return a row with the share of updates that are so, and its interval."""
    row: Row = {"name": name, "what": what, "of": of, "share": 0.0, "interval": [0.0, 1.0], "updates": len(flags)}
    if not len(flags):
        return row
    mean = estimate_over_lanes(flags.astype(np.float64), lanes, share=True)
    return row | {"share": mean.mean, "interval": [mean.low, mean.high]}
