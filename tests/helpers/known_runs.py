"""What observers may know of a run that was played for a test."""

from __future__ import annotations

from dataclasses import replace

from veilwalk.audit import AuditSettings, Knowledge, make_plan
from veilwalk.audit._attack import grant_knowledge
from veilwalk.audit._play import Run
from veilwalk.design import Scheme


def know(scheme: Scheme, settings: AuditSettings, run: Run) -> Knowledge:
    """Return it, whoever asks."""
    return grant_knowledge(make_plan(scheme, replace(settings, observers="prior")), run)
