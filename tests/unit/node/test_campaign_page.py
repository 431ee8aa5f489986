"""The page of the reliability campaign: counts are renewed, what people wrote stays."""

from __future__ import annotations

from typing import Any

from tests.campaigns.campaign import placed


def counted(kills: int) -> dict[str, Any]:
    return {"rules": {"text": "The rules."}, "T1": {"kills": kills, "lost": 0, "doubled": 0}}


def test_renewed_counts_leave_what_people_wrote() -> None:
    """Under "How these runs went" and "Earlier figures", whichever section is renewed."""
    page = placed("", counted(10), 1)
    page = page.replace("## What was done\n", "## How these runs went\n\nBusy.\n\n## What was done\n", 1)
    page += "\n## Earlier figures\n\nOf old.\n"
    page = placed(placed(page, counted(777), 16), counted(333), 1)
    assert "333 kills" in page
    assert "777 kills" in page
    assert "10 kills" not in page
    assert page.index("Busy.") < page.index("333 kills") < page.index("## Sealed for 16") < page.index("Of old.")
    assert placed(placed(page, counted(777), 16), counted(333), 1) == page
