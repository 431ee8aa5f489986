"""A bad network: one TCP proxy in front of every node, which delays, cuts, corrupts and stalls what passes.

Runs as a process of its own; reads its settings as one JSON object on standard input and says ``ready``. When standard
input closes it ends, and prints what it did.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

_CHUNK = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Chances for each chunk of up to 16 KB that passes.

    Attributes:
        delay: Chance of a pause, up to ``delay_s`` seconds.
        cut: Chance that the connection is cut.
        flip: Chance that one bit is turned over.
        stall: Chance that nothing passes any more for ``stall_s`` seconds, and then the connection is cut (half-open).
        slow: Chance, for each connection, that it passes 64 KB a second only.
    """

    delay: float = 0.05
    delay_s: float = 0.05
    cut: float = 0.01
    flip: float = 0.005
    stall: float = 0.002
    stall_s: float = 1.0
    slow: float = 0.01


class Proxy:
    """Passes bytes on between neighbours, badly. ``down`` partitions the network: nothing passes at all."""

    def __init__(self, faults: Faults, seed: int) -> None:
        self._faults = faults
        self._dice = random.Random(seed)  # noqa: S311  a test
        self.counts: Counter[str] = Counter()
        self.down: set[int] = set()

    async def serve(self, port: int, target: int) -> asyncio.Server:
        """Listen on ``port`` for connections to ``target``."""

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._connect(reader, writer, target)

        return await asyncio.start_server(accept, "127.0.0.1", port)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: int) -> None:
        self.counts["connections"] += 1
        try:
            if target in self.down:
                raise ConnectionResetError
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            writer.transport.abort()
            return
        rate = 64 * 1024 if self._dice.random() < self._faults.slow else None
        pumps = [
            asyncio.create_task(self._pump(reader, there_writer, rate)),
            asyncio.create_task(self._pump(there_reader, writer, rate)),
        ]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        for end in (writer, there_writer):
            end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rate: int | None) -> None:
        faults, dice = self._faults, self._dice
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                self.counts["chunks"] += 1
                if dice.random() < faults.delay:
                    self.counts["delays"] += 1
                    await asyncio.sleep(dice.uniform(0, faults.delay_s))
                if dice.random() < faults.cut:
                    self.counts["cuts"] += 1
                    return
                if dice.random() < faults.stall:
                    self.counts["stalls"] += 1
                    await asyncio.sleep(faults.stall_s)
                    return
                if dice.random() < faults.flip:
                    self.counts["flips"] += 1
                    data = _flipped(data, dice)
                writer.write(data)
                await writer.drain()
                if rate is not None:
                    await asyncio.sleep(len(data) / rate)


def _flipped(data: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]


async def _main(settings: dict[str, Any]) -> None:
    proxy = Proxy(Faults(**settings["faults"]), settings["seed"])
    servers = [await proxy.serve(port, target) for port, target in settings["ports"]]
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(line)
        proxy.down = set(order["down"])
        if proxy.down:
            proxy.counts["partitions"] += 1
    for server in servers:
        server.close()
    print(json.dumps(proxy.counts), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(json.loads(sys.stdin.readline())))
