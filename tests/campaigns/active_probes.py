"""T8, active: what a member can tell that does not only look, but asks.

One real node, as a process of its own, between two members that are played here: the attacker, and one that takes
whatever it is given. The attacker brings the node messages that are for it, on which it trains, and messages for the
other, which it relays, and probes it by everything the protocol lets a neighbour do: PING while the node works, offers
that it must refuse, TLS handshakes, and the same bytes again and again, of which both members see how often they come
out. Each probe gives a number; how well that number tells training from relaying is its AUC. Beside the handshakes
stands a control, in which nobody trains at all: what that one tells is of the measurement, not of the node.

    python -m tests.campaigns.active_probes FOLDER --seconds 600 --nodes 4
    python -m tests.campaigns.active_probes FOLDER --seconds 600 --nodes 4 --ask handshake

Several nodes at once, each with its own attacker, narrow the interval: one trial takes some fourteen dwells.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.campaigns.campaign_anonymity import auc_of
from tests.campaigns.chaos import ROOT
from tests.campaigns.played_members import LIMITS, Played
from tests.helpers.manifests import FIGURES, settled_spec
from veilwalk.core.errors import TransportError
from veilwalk.core.support import DistanceSupport
from veilwalk.design import DistanceLaw
from veilwalk.graphs import parse_graph_spec
from veilwalk.learning import init_generator, load_data, make_learner, make_partitions, parse_partition_spec
from veilwalk.node import ClusterPlan, load_config, prepare_cluster
from veilwalk.node.link import Offer
from veilwalk.node.link._connection import Connection
from veilwalk.node.link._wire import Ack, Go, Ping
from veilwalk.node.members import encode_params
from veilwalk.node.peer import MembershipFiles
from veilwalk.node.sealing import seal

ATTACKER, NODE, SINK = "n0", "n1", "n2"
#: What is asked while the node works; a control of handshakes goes with them.
QUESTIONS = ("ping", "refused offer", "handshake")
_CONTROL = "handshake without training"
Scores = dict[str, dict[bool, list[float]]]


def probe(
    folder: Path,
    number: int = 0,
    *,
    seconds: float,
    dwell_s: float,
    local_steps: int,
    seed: int,
    questions: Sequence[str] = QUESTIONS,
) -> Scores:
    """Return what each probe measured, for messages the node trained on and for those it relayed."""
    work = _probe(
        folder / str(number),
        seconds=seconds,
        dwell_s=dwell_s,
        local_steps=local_steps,
        seed=seed + 1000 * number,
        questions=questions,
    )
    # A plain dictionary: what comes back from another process must not name a function.
    return dict(asyncio.run(work))


def probe_several(folder: Path, *, nodes: int, **how: Any) -> list[Scores]:
    """Probe several nodes at once, each by an attacker in a process of its own, as :func:`probe` does."""
    one = partial(probe, folder, **how)
    with ProcessPoolExecutor(nodes) as pool:
        return list(pool.map(one, range(nodes)))


def summary(scores: Sequence[Scores]) -> dict[str, Any]:
    """Return the AUC of every probe, the mean over nodes, with half of its 95% interval, and of how many messages."""
    found = {}
    for name in sorted(scores[0]):
        judged = [auc_of(of[name][True], of[name][False]) for of in scores]
        found[name] = {
            "auc": round(float(np.mean([auc for auc, _ in judged])), 3),
            "half_of_95%_interval": round(
                1.96 * float(np.linalg.norm([error for _, error in judged])) / len(judged), 3
            ),
            "trained": sum(len(of[name][True]) for of in scores),
            "relayed": sum(len(of[name][False]) for of in scores),
        }
    return found


def add_row(counts: dict[str, Any], folder: Path, seed: int, *, seconds: float = 600.0) -> None:
    """Add the row of the active attacker to T8: the AUC of every probe; one that tells more than 0.52 is a fault."""
    scores = probe(folder / "active", seconds=seconds, dwell_s=0.4, local_steps=3000, seed=seed)
    counts["active_probes"] = summary([scores])
    for name, found in counts["active_probes"].items():
        if abs(found["auc"] - 0.5) - found["half_of_95%_interval"] > 0.02:
            counts.setdefault("faults", []).append(f"active probe, {name}: AUC {found['auc']}, seed {seed}")


class _Attack:
    """The attacker's side of its link to the node."""

    def __init__(self, me: Played, connection: Connection, model: bytes, dwell_s: float, came: Counter[bytes]) -> None:
        self._me, self._connection, self._model, self._dwell_s, self._came = me, connection, model, dwell_s, came
        self._made = 0
        self.scores: Scores = defaultdict(_nothing_yet)

    async def trial(self, *, trains: bool, how: str) -> None:
        """Bring one message, probe while the node has it, and bring its bytes again when it is gone.

        A control is relayed in any case, and noted as if it were not. Handshakes are probed alone: there are many more
        trials for it.
        """
        self._made += 1
        opens = trains and how != _CONTROL
        message = seal(
            self._me.context,
            [self._me.roster.kem_key(NODE if opens else SINK, self._me.context.epoch)],
            walk_tag=b"walktag1",
            iteration=self._made,
            body=self._model,
        )
        offered, given, _ = await self._bring(message)
        questions = {"ping": self._ping, "refused offer": self._refused_offer}
        waits = await self._ask(self._dwell_s, questions.get(how, self._shake_hands))
        self._note(f"{how}, slowest", trains, max(waits))
        self._note(f"{how}, mean", trains, float(np.mean(waits)))
        await asyncio.sleep(1.5 * self._dwell_s)
        if how not in questions:
            return
        self._note("first offer", trains, offered)
        self._note("first give", trains, given)
        digest = hashlib.sha256(message).digest()
        before = self._came[digest]
        found = [await self._bring(message) for _ in range(LIMITS.quota + 1)]
        self._note("replay, taken", trains, sum(taken for *_, taken in found))
        self._note("replay, offer", trains, float(np.mean([offered for offered, *_ in found])))
        given_s = [given for _, given, taken in found if taken]
        if given_s:
            self._note("replay, give", trains, float(np.mean(given_s)))
        await asyncio.sleep(2.5 * self._dwell_s)
        self._note("replay, comes out", trains, self._came.pop(digest, 0) - before)

    def _note(self, name: str, trains: bool, value: float) -> None:
        self.scores[name][trains].append(value)

    async def _ask(self, seconds: float, question: Any) -> list[float]:
        end, waits = time.monotonic() + seconds, []
        while time.monotonic() < end:
            waits.append(await question())
        return waits

    async def _ping(self) -> float:
        return (await self._timed(Ping()))[0]

    async def _shake_hands(self) -> float:
        """Connect as anybody can, and say nothing."""
        begin = time.monotonic()
        connection = await self._me.shake_hands(NODE)
        took = time.monotonic() - begin
        connection.close()
        return took

    async def _refused_offer(self) -> float:
        """Offer bytes that are not what is announced: the node must look at them, and nothing stays."""
        return (await self._timed(Offer(os.urandom(16), self._me.manifest.message_bytes, bytes(32)), self._bytes()))[0]

    def _bytes(self) -> bytes:
        return self._me.context.clear + bytes(self._me.manifest.message_bytes - len(self._me.context.clear))

    async def _bring(self, message: bytes) -> tuple[float, float, bool]:
        """Offer and give a message; return how long the two answers took, and whether it was taken."""
        digest = hashlib.sha256(message).digest()
        key = os.urandom(16)
        offered, answer = await self._timed(Offer(key, len(message), digest), message)
        if not isinstance(answer, Ack):
            return offered, 0.0, False
        given, answer = await self._timed(Go(key))
        return offered, given, isinstance(answer, Ack)

    async def _timed(self, frame: Any, body: bytes = b"") -> tuple[float, Any]:
        begin = time.monotonic()
        await self._connection.send(frame, body)
        answer = await self._connection.receive(10)
        return time.monotonic() - begin, answer


def _nothing_yet() -> dict[bool, list[float]]:
    return {True: [], False: []}


async def _probe(
    folder: Path, *, seconds: float, dwell_s: float, local_steps: int, seed: int, questions: Sequence[str]
) -> Scores:
    model = _prepare(folder, dwell_s=dwell_s, local_steps=local_steps)
    dice = random.Random(seed)  # noqa: S311  the order of the trials is no secret
    came = Counter[bytes]()
    async with _running(folder, came) as (attacker, sink):
        connection = await attacker.dial(NODE)
        attack = _Attack(attacker, connection, model, dwell_s, came)
        end = time.monotonic() + seconds
        # What is imported, and how fast the processor runs, is settled after a few.
        for _ in range(4):
            await attack.trial(trains=True, how=questions[0])
        attack.scores.clear()
        # A node that once does not answer for ten seconds, on a busy disk, ends its own trials and no more.
        with contextlib.suppress(TransportError):
            while time.monotonic() < end:
                asked = [*questions, *([_CONTROL] if "handshake" in questions else [])]
                kinds = [(trains, how) for trains in (True, False) for how in asked]
                dice.shuffle(kinds)
                for trains, how in kinds:
                    await attack.trial(trains=trains, how=how)
        connection.close()
        await sink.stop()
    return attack.scores


@contextlib.asynccontextmanager
async def _running(folder: Path, came: Counter[bytes]) -> AsyncIterator[tuple[Played, Played]]:
    """Run the node, and both members beside it."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
    command = [sys.executable, "-m", "veilwalk", "node", "run", "--config", str(folder / NODE / "node.toml")]
    attacker, sink = Played(folder, ATTACKER, came), Played(folder, SINK, came)
    await attacker.listen()
    await sink.listen()
    with (folder / "log.jsonl").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=ROOT)
    try:
        while (folder / "log.jsonl").read_text().count("link_up") < 2:
            if process.poll() is not None:
                raise RuntimeError((folder / "log.jsonl").read_text())
            await asyncio.sleep(0.1)
        yield attacker, sink
    finally:
        process.terminate()
        process.wait(20)
        await attacker.stop()


def _prepare(folder: Path, *, dwell_s: float, local_steps: int) -> bytes:
    """Write a network of three, and return a model for it."""
    shutil.rmtree(folder, ignore_errors=True)
    graph = parse_graph_spec("ring:3")
    data = load_data("digits", seed=1)
    spec = f"softmax:learning_rate=0.01:batch_size=32:local_steps={local_steps}"
    learner = make_learner(spec, n_features=data.n_features, n_classes=data.n_classes)
    plan = ClusterPlan(
        graph=graph,
        law=DistanceLaw(DistanceSupport(1, 1, allow_neighbours=True), np.ones(1)).place_on(graph),
        partitions=make_partitions(parse_partition_spec("iid", graph=graph, seed=1), data),
        learner=learner,
        n_classes=data.n_classes,
        spec=settled_spec(updates=10**6, dwell_s=dwell_s, learner=spec, seed=1),
        figures=FIGURES,
        limits=LIMITS,
    )
    prepare_cluster(folder, plan)
    manifest = MembershipFiles(load_config(folder / SINK / "node.toml")).load().manifest
    return encode_params(manifest, learner.init_params(init_generator(1)))


def main() -> None:
    """Probe for a while and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--dwell", type=float, default=0.4)
    parser.add_argument("--local-steps", type=int, default=3000)
    parser.add_argument("--nodes", type=int, default=1, help="how many nodes are probed at once")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ask", nargs="+", choices=QUESTIONS, default=QUESTIONS, help="while the node works")
    asked = parser.parse_args()
    how = {"seconds": asked.seconds, "dwell_s": asked.dwell, "local_steps": asked.local_steps, "seed": asked.seed}
    scores = probe_several(asked.folder, nodes=asked.nodes, questions=asked.ask, **how)
    print(json.dumps(summary(scores), indent=1))


if __name__ == "__main__":
    main()
