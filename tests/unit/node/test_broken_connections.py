"""What connections that broke leave behind: nothing that has to be looked for."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

from tests.helpers.members import greet

from veilwalk.node.link._connection import Connection

_TIMES = 8


def test_a_broken_connection_is_forgotten_at_once(network: Callable[..., Any]) -> None:
    """At both ends; a node keeps the last of each neighbour.

    Left to the collector they add up: a node whose neighbours had come back a hundred times had 10 MB of them.
    """

    async def main() -> int:
        net = network(3, starts=False)
        await net.start("n1")
        gc.collect()
        gc.disable()
        try:
            for _ in range(_TIMES):
                (await greet(net, "n0", "n1")).close()
            await asyncio.sleep(0.3)
            return sum(isinstance(one, Connection) for one in gc.get_objects())
        finally:
            gc.enable()
            await net.stop()

    assert asyncio.run(main()) <= 1
