"""Every inference that has tables of all pairs, one line each."""

from __future__ import annotations

from veilwalk.audit._settings import Plan
from veilwalk.audit.inference._base import Inference
from veilwalk.audit.inference.exact import Direct, Exact
from veilwalk.audit.inference.rehearsed import Rehearsed

#: Inferences in the order in which ``auto`` tries them; where none fits, candidates are looked up (``BY_CLASS``).
INFERENCES: dict[str, type[Inference]] = {kind.name: kind for kind in (Exact, Rehearsed)}


def inference_of(plan: Plan) -> type[Inference]:
    """Return how return times are read; nothing is sealed in a plain walk, and its last hop tells all."""
    return Direct if plan.scheme.is_direct else INFERENCES[plan.posterior]
