"""Options by name for editors: the same fields as the values that they fill."""

from __future__ import annotations

from dataclasses import fields
from typing import get_type_hints

import pytest

import veilwalk.audit._observers as observers
from veilwalk.audit._settings import AuditOptions, AuditSettings
from veilwalk.design import LawRequest
from veilwalk.design._design import DesignOptions


@pytest.mark.parametrize(
    ("options", "settings", "apart"),
    [(AuditOptions, AuditSettings, set()), (DesignOptions, LawRequest, {"far", "graph", "support", "walk"})],
)
def test_options_have_the_fields_of_the_settings(options: type, settings: type, apart: set[str]) -> None:
    """With the same types; ``design`` takes what is left apart by parameters of its own."""
    names = vars(observers)
    kinds = get_type_hints(settings, localns=names)
    assert get_type_hints(options, localns=names) == {
        entry.name: kinds[entry.name] for entry in fields(settings) if entry.name not in apart
    }
