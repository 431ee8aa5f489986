"""Nodes that are wrong on purpose: a campaign that does not catch them proves nothing.

Also hostile members, and nodes that note what they see.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.campaigns import chaos_attackers


def apply(name: str) -> None:
    """Make every node of this process wrong in the way called ``name``, or in several, joined by ``+``."""
    for part in name.split("+"):
        MUTANTS[part]()


def _ack_before_commit() -> None:
    """Say that a message is taken as soon as it is given, and store it after that."""
    from veilwalk.node.link import Ack, Go
    from veilwalk.node.peer._links import InLinks

    original = InLinks._answer

    async def answer(self: Any, peer: str, connection: Any, idle_s: float) -> None:
        receive, send = connection.receive, connection.send

        async def receive_and_acknowledge(timeout_s: float) -> Any:
            frame = await receive(timeout_s)
            if isinstance(frame, Go):
                await send(Ack(frame.key))

                async def nothing(_: Any) -> None:
                    return

                connection.send = nothing
            return frame

        connection.receive = receive_and_acknowledge
        try:
            await original(self, peer, connection, idle_s)
        finally:
            connection.receive, connection.send = receive, send

    InLinks._answer = answer  # type: ignore[method-assign]


def _use_before_given() -> None:
    """Use a message as soon as it is here, though the neighbour may still send it another way."""
    from veilwalk.node.peer._scheduler import Scheduler
    from veilwalk.node.spool import Verdict

    original = Scheduler.hold

    async def hold(self: Any, peer: str, offer: Any, body: Any) -> Any:
        held = await original(self, peer, offer, body)
        if held is Verdict.HELD:
            await self.take(peer, offer.key)
        return held

    Scheduler.hold = hold  # type: ignore[method-assign]


def _set_in_clear() -> None:
    """The hint of a slot is the first byte of its recipient's key, and so the same in every message."""
    from veilwalk.node.sealing import _slots

    module: Any = _slots
    module._hint = lambda *values: values[-1][:1]


def _fixed_order() -> None:
    """Slots stand in the order in which their recipients were drawn, and those of nobody last."""
    from veilwalk.node.sealing import _slots

    module: Any = _slots

    class Unmoved:
        """Shuffles nothing."""

        def shuffle(self, slots: list[bytes]) -> None:
            """Leave them as they are."""
            del slots

    module._dice = Unmoved()


def _unpinned_hop() -> None:
    """Keep the next hop and its key in memory only: after a crash they are drawn anew."""
    from veilwalk.node.peer._custody import Custody

    original = Custody.recover

    def recover(self: Any) -> Any:
        with self.spool.transaction() as register:
            register.execute("UPDATE message SET peer = NULL, key = NULL, given = 0 WHERE end_lane IS NULL")
        return original(self)

    Custody.recover = recover  # type: ignore[method-assign]


def _no_dedup() -> None:
    """Train on whatever opens, however often, also where a later state of the same walk was opened before."""
    from veilwalk.node.peer import _destination
    from veilwalk.node.spool import Register

    module: Any = _destination
    module.is_fork = lambda *_: False

    def is_opened(self: Any, update_id: bytes) -> bool:
        del self, update_id
        return False

    def add_opened(self: Any, update_id: bytes, epoch: int) -> None:
        self._database.execute("INSERT OR IGNORE INTO opened VALUES (?, ?)", (update_id, epoch))

    Register.is_opened = is_opened  # type: ignore[method-assign]
    Register.add_opened = add_opened  # type: ignore[method-assign]


def _hop_counter() -> None:
    """The last of the clear bytes counts hops: whoever relays knows how far a message has come."""
    import hashlib

    from veilwalk.core.geometry import CLEAR_BYTES
    from veilwalk.node.peer._custody import Custody
    from veilwalk.node.sealing import Opener

    hold, open_current = Custody.hold, Opener.open

    def counting(self: Any, peer: str, key: bytes, _digest: bytes, body: Any) -> Any:
        counted = bytearray(body)
        counted[CLEAR_BYTES - 1] = (counted[CLEAR_BYTES - 1] + 1) % 256
        return hold(self, peer, key, hashlib.sha256(counted).digest(), counted)

    def opening(self: Any, message: Any) -> Any:
        clear = next(iter(self._clear))
        return open_current(self, clear + bytes(memoryview(message)[len(clear) :]))

    def accepting(_self: Any, _message: Any) -> bool:
        return True

    Custody.hold, Opener.open = counting, opening  # type: ignore[method-assign,assignment]
    Opener.is_current = accepting  # type: ignore[method-assign,assignment]


def _unpadded() -> None:
    """Messages are as long as what is in them: here a few bytes shorter, each another number."""
    import secrets

    from veilwalk.node.peer import _destination

    module: Any = _destination
    seal = module.seal
    module.seal = lambda *values, **named: seal(*values, **named)[: -1 - secrets.randbelow(64)]


def _replayer() -> None:
    """Send every message that comes by three times, each copy its own way."""
    from veilwalk.node.peer._custody import Custody

    original = Custody.deliver
    known: set[bytes] = set()

    def deliver(self: Any, peer: str, key: bytes) -> None:
        with self.spool.transaction(durable=False) as register:
            row = register.message(peer=peer, key=key)
            fresh = row is not None and row.end_lane is None and row.came_from is not None and row.digest not in known
            if row is not None:
                known.add(row.digest)
        message = self.spool.read(row) if fresh else b""
        original(self, peer, key)
        for _ in range(2 if fresh else 0):
            self.create(message, "replayed")

    Custody.deliver = deliver  # type: ignore[method-assign]


def _garbler() -> None:
    """Send a message that nobody can open twice a second."""
    import asyncio
    import os

    from veilwalk.node.peer._scheduler import Scheduler

    original = Scheduler.recover

    async def recover(self: Any) -> None:
        await original(self)

        async def spoil() -> None:
            clear = next(iter(self.custody.opener._clear))
            with self.custody.spool.transaction(durable=False) as register:
                rows = register.messages()
            size = len(self.custody.spool.read(rows[0])) if rows else 0
            for _ in range(10):
                while not size:
                    await asyncio.sleep(0.1)
                    size = await self.store(_size_of_any, self.custody)
                row = await self.store(self.custody.create, clear + os.urandom(size - len(clear)), "garbage")
                self._settle(row, for_us=False)
                await asyncio.sleep(0.5)

        self._spoiling = asyncio.get_running_loop().create_task(spoil())

    Scheduler.recover = recover  # type: ignore[method-assign]


def _size_of_any(custody: Any) -> int:
    with custody.spool.transaction(durable=False) as register:
        rows = register.messages()
    return len(custody.spool.read(rows[0])) if rows else 0


def _watched() -> None:
    """Nothing is wrong: note what every node sees and does, with the machine's clock, for the attacker and its judge.

    ``seen.log``: digest, from whom, when. ``made.log``: digest of what was sealed here, when, its length; the bytes
    themselves in ``made.bin``. ``created.log``: digest of what began a walk. ``gaps.log``: seconds between taking and
    offering, and whether the node trained.
    """
    import hashlib
    import time
    from pathlib import Path

    from veilwalk.node.peer._custody import Custody

    take, replace, outgoing, create = Custody.take, Custody.replace, Custody.outgoing, Custody.create
    taken_at: dict[int, tuple[float, bool]] = {}

    def note(self: Any, file: str, *words: object) -> None:
        folder = Path(self.spool._disk._files).parents[1]
        with (folder / file).open("a") as stream:
            stream.write(" ".join(str(word) for word in words) + "\n")

    def taking(self: Any, peer: str, key: bytes) -> Any:
        found = take(self, peer, key)
        if found.row is not None:
            note(self, "seen.log", found.row.digest.hex(), peer, time.monotonic_ns(), int(found.for_us))
            taken_at[found.row.id] = (time.monotonic(), False)
        return found

    def creating(self: Any, message: Any, count: str, **options: Any) -> Any:
        note(self, "created.log", hashlib.sha256(message).hexdigest())
        return create(self, message, count, **options)

    def progressing(self: Any, row: Any, done: Any) -> Any:
        made = replace(self, row, done)
        if made is not None and done.message is not None:
            words = hashlib.sha256(done.message).hexdigest(), time.monotonic_ns(), len(done.message)
            note(self, "made.log", *words)
            with (Path(self.spool._disk._files).parents[1] / "made.bin").open("ab") as stream:
                stream.write(done.message)
            taken_at[made.id] = (taken_at.pop(row.id, (time.monotonic(), True))[0], True)
        return made

    def offering(self: Any, peer: str) -> Any:
        found = outgoing(self, peer)
        if found is not None and found[0].id in taken_at:
            since, trained = taken_at.pop(found[0].id)
            note(self, "gaps.log", time.monotonic() - since, int(trained))
        return found

    Custody.take, Custody.replace = taking, progressing  # type: ignore[method-assign,assignment]
    Custody.outgoing, Custody.create = offering, creating  # type: ignore[method-assign]


def _stamps() -> None:
    """Nothing is wrong: the node notes when it does what."""
    from benchmarks.speed import hop

    hop.install()


MUTANTS: dict[str, Callable[[], None]] = {
    "stamps": _stamps,
    "ack-before-commit": _ack_before_commit,
    "unpinned-hop": _unpinned_hop,
    "use-before-given": _use_before_given,
    "set-in-clear": _set_in_clear,
    "fixed-order": _fixed_order,
    "no-dedup": _no_dedup,
    "hop-counter": _hop_counter,
    "unpadded": _unpadded,
    "replayer": _replayer,
    "garbler": _garbler,
    "watched": _watched,
    "flooder": chaos_attackers.flooder,
    "swallower": chaos_attackers.swallower,
    "decoy": chaos_attackers.decoy,
}
