"""A cluster that is meant to suffer: real processes on loopback, killed and paused while they work."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.campaigns.chaos_checker import Findings, check, holders
from tests.campaigns.chaos_plan import tally_plan
from veilwalk.graphs import parse_graph_spec
from veilwalk.node.cluster import free_ports, node_ids, prepare_cluster
from veilwalk.node.members import Roster, load_root_public_key
from veilwalk.node.peer import load_config
from veilwalk.node.spool import open_read_only

ROOT = Path(__file__).parents[2]
#: This checkout, whatever is installed: what is measured must be what is read.
OWN_CODE = f"{ROOT / 'src'}{os.pathsep}{ROOT}"


class ChaosCluster:
    """The nodes of a prepared cluster, and the means to hurt them. Nodes that die are started again."""

    def __init__(
        self,
        folder: Path,
        spec: str,
        *,
        mutant: str = "",
        hostile: dict[str, str] | None = None,
        failpoints: str = "",
        faults: dict[str, float] | None = None,
        **plan: Any,
    ) -> None:
        """Prepare the cluster in ``folder``, or take up the one there.

        Args:
            folder: For its keys and state.
            spec: The network.
            mutant: What is wrong with every node.
            hostile: What is wrong with single nodes, by name.
            failpoints: Where nodes kill themselves, and how likely.
            faults: Of the network, see :class:`tests.campaigns.chaos_proxy.Faults`; none unless given.
            plan: Further arguments of :func:`.tally_plan`.
        """
        self.folder = folder
        graph = parse_graph_spec(spec)
        self.names = node_ids(graph.n_nodes)
        if not (folder / "roster.json").exists():
            prepare_cluster(folder, tally_plan(graph, **plan))
            if faults is not None:
                self._listen_behind_proxies()
        self._walks = plan.get("walks", 1)
        self._faults = faults
        self._mutant = mutant
        #: What is wrong with single nodes when they are next started.
        self.hostile = hostile or {}
        self.failpoints = failpoints
        self._proxy: subprocess.Popen[str] | None = None
        self._pids: dict[str, int] = {}
        self._paused: dict[int, float] = {}
        self._away: set[str] = set()
        self._buffer = b""
        self.counts: Counter[str] = Counter()

    @property
    def pids(self) -> dict[str, int]:
        """The processes of all nodes that run."""
        return dict(self._pids)

    def __enter__(self) -> Self:
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": OWN_CODE}
        self._zygote = subprocess.Popen(
            [sys.executable, "-m", "tests.campaigns.chaos_zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=environment,
        )
        self._hear("ready")
        os.set_blocking(self._pipe.fileno(), False)
        if self._faults is not None:
            self._start_proxy(self._faults)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._orders.close()
        self._zygote.wait(30)
        self._pipe.close()
        if self._proxy is not None:
            out, _ = self._proxy.communicate(timeout=30)
            self.counts.update({f"network {name}": count for name, count in json.loads(out).items()})

    @property
    def _pipe(self) -> Any:
        return self._zygote.stdout

    @property
    def _orders(self) -> Any:
        return self._zygote.stdin

    def start(self, name: str) -> None:
        """Start a node."""
        log = {"VEILWALK_FAILPOINTS": self.failpoints, "VEILWALK_FAILPOINT_LOG": str(self.folder / "failpoints.log")}
        order = {
            "start": str(self.folder / name / "node.toml"),
            "env": log,
            "mutant": self.hostile.get(name, self._mutant),
        }
        self._orders.write(json.dumps(order).encode() + b"\n")
        self._orders.flush()
        self._pids[name] = self._hear("started")

    def start_all(self) -> None:
        """Start every node that does not run."""
        for name in self.names:
            if name not in self._pids and name not in self._away:
                self.start(name)

    def tend(self) -> None:
        """Wake nodes whose pause is over, and start again those that died."""
        now = time.monotonic()
        for pid in [pid for pid, until in self._paused.items() if now >= until]:
            del self._paused[pid]
            _signal(pid, signal.SIGCONT)
        self._drain()
        self.start_all()

    def kill(self, name: str) -> None:
        """Kill a node where it stands."""
        if name in self._pids:
            self._paused.pop(self._pids[name], None)
            _signal(self._pids[name], signal.SIGKILL)
            self.counts["kills"] += 1

    def kill_all(self) -> None:
        """Kill every node at once, and wait until all are dead."""
        for pid in self._pids.values():
            _signal(pid, signal.SIGKILL)
        self._paused.clear()
        self.counts["whole kills"] += 1
        self._wait_dead()

    def pause(self, name: str, seconds: float) -> None:
        """Stop a node in its tracks for a while."""
        pid = self._pids.get(name)
        if pid is not None and pid not in self._paused:
            _signal(pid, signal.SIGSTOP)
            self._paused[pid] = time.monotonic() + seconds
            self.counts["pauses"] += 1

    def take_down(self, name: str, *, kill: bool = True) -> None:
        """Kill or stop a node until it is brought back."""
        self._away.add(name)
        _signal(self._pids[name], signal.SIGKILL if kill else signal.SIGSTOP)

    def bring_back(self, name: str) -> None:
        """Let a node that was taken down work again."""
        self._away.discard(name)
        if name in self._pids:
            _signal(self._pids[name], signal.SIGCONT)
        self.tend()

    def pid(self, name: str) -> int:
        """Return the process of a node."""
        return self._pids[name]

    def has_walk(self, name: str) -> bool:
        """Return whether a node that stands still has a message that is its own to hand on."""
        return name in holders(self.folder, self.names)

    def stop_all(self) -> None:
        """Ask every node to stop, and wait."""
        for pid in self._pids.values():
            _signal(pid, signal.SIGCONT)
            _signal(pid, signal.SIGTERM)
        self._paused.clear()
        self._wait_dead()

    def begin(self) -> None:
        """Start every node that does not run, and wait until all walks are made and one goes on, or all have ended.

        Before a walk is made none can be lost. A crowded machine is slow to start, and nodes that are killed meanwhile
        never do.
        """
        hops = self.findings(may_fork=True).tallies.get("hops", 0)
        self.start_all()

        def goes_on(found: Findings) -> bool:
            is_made = found.tallies.get("started", 0) >= self._walks
            return is_made and (found.tallies.get("hops", 0) > hops or not found.unfinished)

        if not self.run_until(goes_on, timeout_s=120):
            raise RuntimeError("the nodes made no hop in two minutes")

    def suffer(self, times: int, act: Callable[[random.Random], None], *, every_s: float, seed: int) -> None:
        """Let the cluster work while ``act`` hurts it so many times."""
        dice = random.Random(seed)  # noqa: S311  which node to hurt is no secret
        for _ in range(times):
            time.sleep(every_s * dice.uniform(0.5, 1.5))
            act(dice)
            self.tend()

    def run_until(self, done: Callable[[Findings], bool], *, timeout_s: float) -> bool:
        """Let the cluster work in peace until ``done``; return whether it came to that."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            self.tend()
            time.sleep(0.3)
            if done(self.findings(may_fork=True)):
                return True
        return False

    def findings(self, **options: Any) -> Findings:
        """Return what the checker says; exact only while no node runs."""
        return check(self.folder, self.names, **({"walks": self._walks} | options))

    def holds(self, name: str) -> bool:
        """Return whether a node has messages in its custody, or one was given to it and may be."""
        others = [other for other in self.names if other != name]
        return bool(
            self._ask(name, "SELECT 1 FROM message LIMIT 1")
            or any(self._ask(other, f"SELECT 1 FROM given WHERE peer = '{name}' LIMIT 1") for other in others)  # noqa: S608
        )

    def _ask(self, name: str, query: str) -> list[tuple[int]]:
        database = open_read_only(load_config(self.folder / name / "node.toml").state)
        try:
            return database.execute(query).fetchall()
        finally:
            database.close()

    def failpoint_kills(self) -> Counter[str]:
        """Return how often each failpoint has killed a node."""
        path = self.folder / "failpoints.log"
        return Counter(path.read_text().split()) if path.exists() else Counter()

    def partition(self, names: list[str]) -> None:
        """Let nobody reach these nodes from now on; those who are connected stay so until the next fault."""
        if self._proxy is not None and self._proxy.stdin is not None:
            ports = [target for name, (_, target) in zip(self.names, self._ports(), strict=True) if name in names]
            self._proxy.stdin.write(json.dumps({"down": ports}) + "\n")
            self._proxy.stdin.flush()

    def _listen_behind_proxies(self) -> None:
        """Move every node to a port of its own, so that the roster's is the proxy's."""
        for name, port in zip(self.names, free_ports(len(self.names)), strict=True):
            path = self.folder / name / "node.toml"
            path.write_text(f'listen = "127.0.0.1:{port}"\n' + path.read_text())

    def _ports(self) -> list[tuple[int, int]]:
        """The roster's port and the real one of every node."""
        root = load_root_public_key(self.folder / "root" / "root.pub")
        roster = Roster.read_signed(self.folder / "roster.json", root)
        found = []
        for name in self.names:
            listen = load_config(self.folder / name / "node.toml").listen or ""
            found.append((roster.member(name).port, int(listen.rpartition(":")[2])))
        return found

    def _start_proxy(self, faults: dict[str, float]) -> None:
        settings = {"faults": faults, "seed": 1, "ports": self._ports()}
        self._proxy = subprocess.Popen(
            [sys.executable, "-m", "tests.campaigns.chaos_proxy"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        pipes: Any = self._proxy
        pipes.stdin.write(json.dumps(settings) + "\n")
        pipes.stdin.flush()
        if pipes.stdout.readline().strip() != "ready":
            raise RuntimeError("the proxy did not start")

    def _wait_dead(self) -> None:
        end = time.monotonic() + 20
        while self._pids and time.monotonic() < end:
            self._drain()
            time.sleep(0.005)
        for pid in self._pids.values():
            _signal(pid, signal.SIGKILL)
        while self._pids:
            self._drain()
            time.sleep(0.005)

    def _hear(self, what: str) -> int:
        while True:
            line = self._line()
            if line is None:
                time.sleep(0.002)
                continue
            message = json.loads(line)
            if what in message:
                return int(message[what])
            self._ended(message)

    def _drain(self) -> None:
        while (line := self._line()) is not None:
            self._ended(json.loads(line))

    def _ended(self, message: dict[str, int]) -> None:
        for name, pid in list(self._pids.items()):
            if pid == message.get("ended"):
                del self._pids[name]
                self.counts[f"ended {message['status']}"] += 1

    def _line(self) -> bytes | None:
        while b"\n" not in self._buffer:
            data = self._pipe.read1(65536) if os.get_blocking(self._pipe.fileno()) else self._pipe.read(65536)
            if not data:
                if self._zygote.poll() is not None:
                    raise RuntimeError("the zygote died")
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
