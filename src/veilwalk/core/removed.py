"""Names of version 0.2 that are gone, and what to use instead of each."""

from __future__ import annotations

from veilwalk.core.errors import InvalidParameterError

#: What the parameter needs instead, by parameter and removed name.
REMOVED: dict[str, dict[str, str]] = {
    "kind": {
        "routes": "train, learn, audit or design; routes are compared by `python -m tools.rivals.sweep` in a checkout"
    },
    "law": {"equalised": "paper-exact or optimal"},
    "observers": {
        "bridge": "coalition, which uses all that colluders saw",
        "predecessor": "coalition, which knows what colluders drew",
        "round": "path, which knows every hop",
    },
    "posterior": {"estimated": "auto, which is exact at some destinations up to 2000 nodes and rehearsed beyond"},
    "walk": {"least-recent": "non-backtracking, with several recipients (--recipients) for fewer hops"},
}


def refuse_removed(parameter: str, name: str) -> None:
    """Refuse a name that version 0.2 had, and say what replaces it; do nothing for any other name.

    Args:
        parameter: What the caller calls it, for example ``walk``.
        name: The name that was given.

    Raises:
        InvalidParameterError: The name was removed.
    """
    replacement = REMOVED.get(parameter, {}).get(name)
    if replacement is not None:
        raise InvalidParameterError(parameter, name, f"{replacement} ({name} was removed in version 0.3)")
