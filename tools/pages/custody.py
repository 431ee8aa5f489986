"""The diagram of custody: where a message can be at a node, and what takes it from there.

Run ``python -m tools.pages.custody`` from the checkout. It writes the diagram into
``docs/explanation/node-protocol.md``; a test holds the page to what this would write.
"""

from __future__ import annotations

from pathlib import Path

from veilwalk.core.records import write_atomically
from veilwalk.node.peer._custody import TRANSITIONS, Place

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "node-protocol.md"
_BEGIN, _END = "<!-- custody -->\n", "<!-- /custody -->"


def draw_diagram() -> str:
    """Return the diagram: a line for each row of the table, in its order."""
    width = max(len(_name(place)) for place in (None, *Place))
    lines = [
        f"{_name(place):>{width}} -> {_name(after):<{width}}  {event.value}"
        for (place, event), after in TRANSITIONS.items()
    ]
    return "\n".join(["```text", *lines, "```", ""])


def page_with_diagram(page: str) -> str:
    """Return the page with the diagram of today in its place."""
    before, _, rest = page.partition(_BEGIN)
    return before + _BEGIN + draw_diagram() + _END + rest.partition(_END)[2]


def _name(place: Place | None) -> str:
    return "nowhere" if place is None else place.value


def main() -> None:
    """Write the page."""
    write_atomically(PAGE, page_with_diagram(PAGE.read_text()).encode())


if __name__ == "__main__":
    main()
