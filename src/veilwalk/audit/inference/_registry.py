"""Every way to read return times, one line each."""

from __future__ import annotations

from veilwalk.audit._settings import Plan
from veilwalk.audit.inference._base import Inference
from veilwalk.audit.inference.by_class import ByClass
from veilwalk.audit.inference.exact import Direct, Estimated, Exact
from veilwalk.audit.inference.rehearsed import Rehearsed

#: Every way to read return times, in the order in which ``auto`` tries them; the last is left to large graphs.
INFERENCES: dict[str, type[Inference]] = {kind.name: kind for kind in (Exact, Estimated, Rehearsed, ByClass)}


def inference_of(plan: Plan) -> type[Inference]:
    """Return how return times are read; nothing is sealed in a plain walk, and its last hop tells all."""
    return Direct if plan.scheme.is_direct else INFERENCES[plan.posterior]
