"""What connections that broke leave behind: nothing that has to be looked for."""

from __future__ import annotations

import asyncio
import gc
import socket
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from typing import Any

import pytest
from tests.helpers.members import greet

from veilwalk.node.link._connection import Connection

_TIMES = 8


@pytest.mark.parametrize("breaks", [False, True])
def test_a_broken_connection_is_forgotten_at_once(network: Callable[..., Any], *, breaks: bool) -> None:
    """At both ends, also of a neighbour that breaks the protocol; a node keeps the last of each neighbour.

    Left to the collector they add up: a node whose neighbours had come back a hundred times had 10 MB of them.
    """

    async def main() -> int:
        net = network(3, starts=False)
        await net.start("n1")
        gc.collect()
        gc.disable()
        try:
            for _ in range(_TIMES):
                connection = await greet(net, "n0", "n1")
                if breaks:
                    connection._transport.write(b"\xff" * 64)  # type: ignore[union-attr]
                    await asyncio.sleep(0.05)
                connection.close()
            del connection
            await asyncio.sleep(0.3)
            return sum(type(one) is Connection for one in gc.get_objects())
        finally:
            gc.enable()
            await net.stop()

    assert asyncio.run(main()) <= 1


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.0\r\n\r\n"])
def test_strangers_leave_no_buffers_behind(network: Callable[..., Any], said: bytes) -> None:
    """Who breaks a handshake off, or speaks something else, is forgotten at once: with 256 KiB each time."""

    async def main() -> int:
        net = network(3, starts=False)
        await net.start("n1")
        member = net.roster.member("n1")
        gc.collect()
        gc.disable()
        try:
            for _ in range(_TIMES):
                with socket.create_connection((member.host, member.port)) as stranger:
                    stranger.sendall(said)
                    await asyncio.sleep(0.05)
            await asyncio.sleep(0.3)
            return sum(type(one) is SSLProtocol for one in gc.get_objects())
        finally:
            gc.enable()
            await net.stop()

    assert asyncio.run(main()) == 0
