"""Playing the protocol for an audit: what is kept, and what an interrupt leaves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from veilwalk.audit import AuditSettings, audit
from veilwalk.audit._play import play_updates
from veilwalk.design import choose_scheme
from veilwalk.graphs import random_regular
from veilwalk.walks import iter_protocol

SCHEME = choose_scheme(random_regular(30, 3, seed=1), "uniform-node", support=(2, 4))
SETTINGS = AuditSettings(observers=("prior",), updates=4000, replicas=8)


def interrupted_after(chunks: int) -> Any:
    """The protocol in chunks of 400 updates, with Ctrl-C after so many."""

    def played(*arguments: Any, **options: Any) -> Iterator[Any]:
        for number, chunk in enumerate(iter_protocol(*arguments, **options, chunk_updates=400)):
            if number == chunks:
                raise KeyboardInterrupt
            yield chunk

    return played


def test_an_interrupt_keeps_what_was_played(monkeypatch: pytest.MonkeyPatch) -> None:
    """The updates so far are those of the whole run, and the record says that it is not complete."""
    whole = play_updates(SCHEME, SETTINGS)
    monkeypatch.setattr("veilwalk.design._scheme.iter_protocol", interrupted_after(3))
    kept = play_updates(SCHEME, SETTINGS)
    assert (whole.complete, len(whole.sightings)) == (True, 4000)
    assert (kept.complete, len(kept.sightings)) == (False, 1200)
    for lane in range(8):
        mine = kept.truth.lane == lane
        np.testing.assert_array_equal(
            kept.truth.source[mine], whole.truth.source[whole.truth.lane == lane][: mine.sum()]
        )
    found = audit(SCHEME, SETTINGS)
    assert (found.complete, found.updates) == (False, 1200)
    assert found.record().result["complete"] is False


def test_an_interrupt_before_the_first_chunk_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to audit yet."""
    monkeypatch.setattr("veilwalk.design._scheme.iter_protocol", interrupted_after(0))
    with pytest.raises(KeyboardInterrupt):
        play_updates(SCHEME, SETTINGS)
