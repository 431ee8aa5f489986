"""What observers say of deliveries of a run, as the auditor computes it, and what each of them was given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy import special

from veilwalk.audit import Answer, AuditSettings, answers, choose_colluders
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import VeilwalkError
from veilwalk.design import Scheme
from veilwalk.walks import UPDATE_DTYPE
from veilwalk.watch._documents import Document
from veilwalk.watch._walked import Walked

#: Who can be chosen, the strongest last.
ASKED = ("prior", "return-time", "last-hop", "first-sight")
MOST_NODES = 2_000
# Posteriors of one observer, and the numbers of all of them; of one that is exact each destination costs its own law.
_MOST_ROWS, _FEWEST_ROWS, _NUMBERS = 60, 12, 9_000
_HORIZON_LEGS = 3
# As in the route's summary of a training: some ten seconds.
_REHEARSED_HOPS = 4_000


def guesses(walked: Walked, *, tokens: int, updates: int) -> Iterator[Document]:
    """Yield what observers say of deliveries spread evenly over the run; and once what an update is predicted to cost.

    For the coalition the walk is played once more, to note what it saw: that changes no hop of it.
    """
    scheme = walked.scheme
    if scheme is None:
        yield _note("the law was given as an object: without it no posterior can be computed")
        return
    if scheme.graph.n_nodes > MOST_NODES:
        yield _note(f"posteriors are computed for up to {MOST_NODES} nodes")
        return
    colluders = choose_colluders(scheme.graph, max(round(scheme.graph.n_nodes / 10), 1), walked.seed)
    watching = np.isin(np.arange(scheme.graph.n_nodes), colluders)
    played = scheme.iter_updates(updates=updates, seed=walked.seed, tokens=tokens, replicas=1, colluders=watching)
    seen = replace(walked, records=np.concatenate(list(played))).records
    if not (seen[["token", "clock", "destination"]] == walked.records[["token", "clock", "destination"]]).all():
        yield _note("this version walks otherwise than the one that made the run: posteriors are left out")
        return
    lanes = np.argsort(seen["token"], kind="stable")
    records = seen[lanes]
    records["replica"] = records["token"]
    asked = np.isin(lanes, _spread(len(records), scheme.graph.n_nodes)).nonzero()[0]
    yield from _price(scheme)
    try:
        for name, found in answers(scheme, records, ASKED, asked, settings=_settings(walked, scheme)):
            for answer in found:
                record = records[answer.row]
                given = _given(scheme, name, record, len(colluders))
                yield posterior(name, answer, row=int(lanes[answer.row]), source=int(record["source"]), given=given)
    except VeilwalkError as error:
        yield _note(f"posteriors are left out: {error}")


def _settings(walked: Walked, scheme: Scheme) -> AuditSettings:
    settings = AuditSettings(seed=walked.seed, updates=len(walked.records), replicas=2, rehearsed_hops=_REHEARSED_HOPS)
    if scheme.recipients > 1:
        return settings
    return replace(settings, horizon=max(int(_HORIZON_LEGS * walked.records["leg_hops"].mean()), 1))


def _spread(updates: int, n_nodes: int) -> IntArray:
    rows = int(np.clip(_NUMBERS // n_nodes, _FEWEST_ROWS, _MOST_ROWS))
    return np.unique(np.linspace(0, updates - 1, rows).astype(np.int64))


def _price(scheme: Scheme) -> Iterator[Document]:
    price = scheme.price
    yield {"kind": "price", "hops": price.hops, "how": price.kind, "interval": price.interval}


def posterior(name: str, answer: Answer, *, row: int, source: int | None, given: str) -> Document:
    """Return what an observer says of a delivery; ``source`` is who really made it, where that is known."""
    before = None
    if source is not None:
        true = answer.weights[source]
        # Better guesses than the truth; those as good are before it half of the time.
        before = float((answer.weights > true).sum() + ((answer.weights == true).sum() - 1) / 2)
    return {
        "kind": "posterior",
        "observer": name,
        "row": row,
        "how": answer.how,
        "given": given,
        "weights": _short(answer.weights),
        "entropy_nats": float(special.entr(answer.weights).sum()),
        "blind_entropy_nats": float(special.entr(answer.prior).sum()),
        "top": int(answer.weights.argmax()),
        "before": before,
    }


def blind_answers(scheme: Scheme) -> list[Answer]:
    """Return what each node says blindly of what it opens: it needs to be told of no walk."""
    records = np.zeros(scheme.graph.n_nodes, dtype=UPDATE_DTYPE)
    records["destination"] = np.arange(len(records))
    settings = AuditSettings(updates=len(records), replicas=2)
    ((_, found),) = answers(scheme, records, ("prior",), np.arange(len(records)), settings=settings)
    return found


def _short(weights: FloatArray) -> list[float]:
    """Three digits are all that a shade shows."""
    return [float(f"{weight:.3g}") for weight in weights.tolist()]


def _given(scheme: Scheme, name: str, record: np.void, colluders: int) -> str:
    """Say what the observer was given of this very delivery."""
    label = scheme.graph.label
    chosen = f"node {label(int(record['destination']))} could open it"
    if name == "prior":
        return f"{chosen}; nothing else"
    if name == "first-sight":
        first = f"{label(int(record['first_sight_node']))} was the first of them to hold this ciphertext"
        return f"{colluders} nodes collude; {first}, and had it from {label(int(record['first_sight_from']))}"
    timed = f"{chosen}; the token was last there {int(record['return_time'])} hops before"
    return timed if name == "return-time" else f"{timed}, and came from {label(int(record['last_hop']))}"


def _note(text: str) -> Document:
    return {"kind": "event", "at": 0, "what": "note", "text": text}
