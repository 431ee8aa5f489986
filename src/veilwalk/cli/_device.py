"""Options of verbs that can play the protocol on a graphics card."""

from __future__ import annotations

from typing import Annotated

import typer

DeviceOption = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="cpu|cuda",
        help="Where the protocol is played; cuda is a graphics card, to the same updates. It has no say in the result.",
    ),
]
ReplicasOption = Annotated[
    int, typer.Option("--replicas", help="Independent lanes that share the updates; a graphics card wants thousands.")
]
