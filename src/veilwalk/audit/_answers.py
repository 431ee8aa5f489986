"""Observers asked about single updates of a walk that somebody else played: what each of them would say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from veilwalk.audit._feasible import make_plan
from veilwalk.audit._play import Run, Truth, choose_colluders
from veilwalk.audit._scene import Scene
from veilwalk.audit._settings import AuditSettings
from veilwalk.audit._sightings import Sightings
from veilwalk.audit.inference import Inference, inference_of
from veilwalk.audit.inference.rehearsed import rehearse
from veilwalk.audit.observers import OBSERVERS, Observer, Place
from veilwalk.core.arrays import FloatArray, IntArray
from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.progress import Progress, silent
from veilwalk.core.stats import Estimate
from veilwalk.design import Scheme
from veilwalk.engine import one_blas_thread


@dataclass(frozen=True, eq=False, kw_only=True)
class Answer:
    """What one observer says of one update.

    Attributes:
        row: The update, by its place among the records.
        weights: Its posterior over all nodes.
        prior: What it would have said blindly.
        how: How the posterior was obtained.
    """

    row: int
    weights: FloatArray
    prior: FloatArray
    how: str


def answers(
    scheme: Scheme,
    records: npt.NDArray[np.void],
    names: Sequence[str],
    rows: IntArray,
    *,
    settings: AuditSettings | None = None,
    progress: Progress = silent,
) -> Iterator[tuple[str, list[Answer]]]:
    """Yield what each of the observers ``names`` says of the updates ``rows`` of a played walk.

    A coalition answers only for what came to one of it from somebody else: then for the last such update up to each of
    ``rows``. The records must have been played with ``settings``: its seed, and for a coalition its colluders.

    Args:
        scheme: graph, law and walk.
        records: updates of ``walks.UPDATE_DTYPE``, in the order of their lanes, which ``replica`` names.
        names: some of ``OBSERVERS``, that answer for single updates.
        rows: places among the records.
        settings: how hard to look.
        progress: told what is going on.
    """
    plan = make_plan(scheme, replace(settings or AuditSettings(), observers=tuple(names)))
    linking = [name for name in names if OBSERVERS[name].links]
    if plan.looked_up or linking:
        asked = ",".join(linking or names)
        raise InvalidParameterError("observers", asked, "such as answer for single updates, with tables of all pairs")
    colluders = choose_colluders(scheme.graph, plan.colluders, plan.settings.seed, placement=plan.settings.placement)
    scene = Scene(plan, _run(records, colluders))
    scene.progress = progress
    # Destinations that nobody asks about need no tables.
    scene.attacked = np.isin(np.arange(scheme.graph.n_nodes), scene.seen.destination[rows])
    observers = [OBSERVERS[name](scene) for name in names]
    inference = inference_of(plan)(scene) if plan.timed else None
    rehearse(scene, progress)
    for observer in observers:
        mine = np.unique(rows) if observer.alone else _before(observer.rows(), rows)
        with one_blas_thread():
            found = _asked(observer, inference if observer.timed else None, mine)
        yield observer.name, found


def _run(records: npt.NDArray[np.void], colluders: IntArray) -> Run:
    hops = float(records["leg_hops"].mean())
    return Run(
        seen=Sightings.of(records),
        truth=Truth(source=records["source"].astype(np.int64), lane=records["replica"].astype(np.int64)),
        hops_per_update=Estimate(hops, hops, hops),
        colluders=colluders,
        complete=True,
    )


def _before(can: IntArray, rows: IntArray) -> IntArray:
    """Of what an observer can be asked about, ascending, the last up to each row."""
    can = np.sort(can)
    places = np.searchsorted(can, rows, side="right") - 1
    return np.unique(can[places[places >= 0]])


def _asked(observer: Observer, inference: Inference | None, rows: IntArray) -> list[Answer]:
    scene = observer.scene
    found = []
    nodes = np.unique(scene.seen.destination[rows])
    known = inference.at(nodes) if inference is not None else iter([None] * len(nodes))
    for (node, mine), local in zip(scene.by_destination(rows), known, strict=True):
        place = Place(node, mine, scene.seen.at(mine), observer.prior[node], local)
        guess = observer.posterior(place)
        found += [
            Answer(row=int(row), weights=weights, prior=place.prior, how=guess.how)
            for row, weights in zip(mine, guess.weights, strict=True)
        ]
    return sorted(found, key=lambda answer: answer.row)
