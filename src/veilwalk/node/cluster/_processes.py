"""Many nodes on one machine: real processes, started together, watched from outside, stopped together.

A cluster can also be seen, and ended, from another terminal, or after a restart of the machine.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from veilwalk.core.errors import ConfigError, ProtocolError, SpoolError
from veilwalk.core.files import is_locked, lock_file, name_os_errors
from veilwalk.node.peer import NodeStatus, is_running, load_config, node_status

#: File with the number of a node's process, beside its configuration.
PID = "pid"
STOP_S = 10.0
#: A folder that has this file is a whole cluster.
SETTINGS = "cluster.json"
_LOCK = "up.lock"
_LOOK_S = 0.5
_RESTARTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """All nodes at one look."""

    nodes: tuple[NodeStatus | None, ...]
    alive: int
    #: How often each was started again; empty where that is not known.
    restarts: tuple[int, ...] = ()

    @property
    def finished(self) -> int:
        """Nodes that have the finished model and nothing more to do."""
        return sum(node is not None and node.finished and node.in_custody == 0 for node in self.nodes)

    @property
    def iteration(self) -> int:
        """Updates that the newest model has had; of several walks, the newest of each."""
        return sum(self.walks)

    @property
    def walks(self) -> tuple[int, ...]:
        """Updates that the newest model of each walk has had."""
        return tuple(map(max, itertools.zip_longest(*(node.walks for node in self.nodes if node), fillvalue=0)))

    def total(self, name: str) -> int:
        """Return a tally summed over all nodes."""
        return sum(node.tallies.get(name, 0) for node in self.nodes if node is not None)


class Cluster:
    """The processes of a prepared cluster. Leaving the context stops them all."""

    def __init__(self, configs: Sequence[Path], *, environment: dict[str, str] | None = None) -> None:
        self._configs = list(configs)
        self._states = [load_config(path).state for path in configs]
        self._environment = {**os.environ, **(environment or {})}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._restarts = [0] * len(configs)

    def __enter__(self) -> Self:
        for state, path in zip(self._states, self._configs, strict=True):
            if is_running(state):
                raise ConfigError(f"{path.parent} runs already: veilwalk cluster down --out {path.parents[1]} stops it")
        try:
            for path in self._configs:
                self._processes.append(self._launch(path))
        except BaseException:
            # A Ctrl-C between two of them: nobody else knows of those that run.
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def observe(self) -> ClusterStatus:
        """Return how far the cluster is; a node that died is started again, a few times.

        Raises:
            ProtocolError: A node dies again and again; the message is its last line.
        """
        for index, process in enumerate(self._processes):
            if process.poll() is None:
                continue
            self._restarts[index] += 1
            if self._restarts[index] > _RESTARTS:
                raise ProtocolError(
                    f"{self._configs[index].parent.name} ends again and again: {self._last_line(index)}"
                )
            self._processes[index] = self._launch(self._configs[index])
        alive = sum(process.poll() is None for process in self._processes)
        return ClusterStatus(
            nodes=tuple(read_status(state) for state in self._states), alive=alive, restarts=tuple(self._restarts)
        )

    def watch(self, tell: Callable[[ClusterStatus], None], *, timeout_s: float) -> ClusterStatus:
        """Look again and again until every node has the finished model.

        Raises:
            ProtocolError: Not in that time.
        """
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            status = self.observe()
            tell(status)
            if status.finished == len(self._states):
                return status
            time.sleep(_LOOK_S)
        raise ProtocolError(f"not finished after {timeout_s:g} s; run the same again to go on")

    def stop(self) -> None:
        """Stop all nodes cleanly, and those that do not listen less so; what they hold stays on disk."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        end = time.monotonic() + STOP_S
        for process in self._processes:
            try:
                process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _launch(self, config: Path) -> subprocess.Popen[bytes]:
        log = config.parent / "log.jsonl"
        with log.open("ab") as stream:
            # Its own group: a Ctrl-C at the keyboard is for the cluster, which then stops its nodes in order.
            process = subprocess.Popen(  # noqa: S603  our own program
                # In full: whoever stops it from elsewhere knows it by this.
                [sys.executable, "-m", "veilwalk.node", str(config.resolve())],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env=self._environment,
                start_new_session=True,
            )
        (config.parent / PID).write_text(f"{process.pid}\n")
        return process

    def _last_line(self, index: int) -> str:
        with contextlib.suppress(OSError, IndexError):
            return (self._configs[index].parent / "log.jsonl").read_text().splitlines()[-1]
        return "no log"


def read_status(state: Path) -> NodeStatus | None:
    """Return the status of a node; None where there is none yet."""
    # Not there yet, or in the middle of being made.
    with contextlib.suppress(SpoolError):
        return node_status(state)
    return None


def run_cluster(configs: list[Path], tell: Callable[[ClusterStatus], None], *, timeout_s: float) -> ClusterStatus:
    """Run the nodes until all have the finished model; leaving early in any way stops them all.

    So do SIGTERM and SIGHUP: nodes have sessions of their own, and would outlive a terminal that was closed with nobody
    to start them again. Under nohup, which ignores SIGHUP, it stays ignored.
    """
    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        with Cluster(configs) as cluster:
            return cluster.watch(tell, timeout_s=timeout_s)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# ---- from another terminal -----------------------------------------------------------------------------------------


def cluster_configs(folder: Path) -> list[Path]:
    """Return the configurations of the nodes of the cluster in ``folder``."""
    if not (folder / SETTINGS).exists():
        raise ConfigError(f"{folder} holds no cluster")
    return sorted(folder.glob("*/node.toml"))


def look_at_cluster(folder: Path) -> ClusterStatus:
    """Return how far the cluster in ``folder`` is, whoever runs it, or nobody."""
    states = [load_config(path).state for path in cluster_configs(folder)]
    return ClusterStatus(nodes=tuple(read_status(state) for state in states), alive=sum(map(is_running, states)))


@contextlib.contextmanager
def watching(folder: Path) -> Iterator[None]:
    """Be the one process that runs the cluster in ``folder``."""
    with name_os_errors(SpoolError, folder / _LOCK):
        try:
            handle = lock_file(folder / _LOCK)
        except BlockingIOError:
            need = f"a cluster up runs there already; veilwalk cluster down --out {folder}"
            raise ConfigError(f"{folder}: {need}") from None
    try:
        os.truncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode("ascii"))
        yield
    finally:
        os.close(handle)


def stop_cluster(folder: Path) -> int:
    """Stop whoever runs the cluster in ``folder``, and nodes that outlived it; return how many nodes were running.

    Raises:
        ProtocolError: A process does not end.
    """
    running = [path for path in cluster_configs(folder) if is_running(load_config(path).state)]
    # Whoever watches the nodes would start them again: it goes first, and stops them itself.
    _end("cluster up", folder / _LOCK, lambda _: is_locked(folder / _LOCK), STOP_S * 2)
    for path in running:
        _end(path.parent.name, path.parent / PID, partial(_is_node, path), STOP_S)
    left = [path.parent.name for path in running if is_running(load_config(path).state)]
    if left:
        raise ProtocolError(f"{', '.join(left)} still run: somebody else started them, and must stop them")
    return len(running)


def _end(name: str, pid_file: Path, is_there: Callable[[int], bool], seconds: float) -> None:
    """Ask the process whose number is in a file to end, as long as it is what it was, and wait for it."""
    try:
        pid = int(pid_file.read_text())
    except (OSError, ValueError):
        return
    if not is_there(pid):
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + seconds
    while is_there(pid):
        if time.monotonic() > end:
            raise ProtocolError(f"{name} does not stop: look at process {pid}")
        time.sleep(0.1)


def _is_node(config: Path, pid: int) -> bool:
    # Numbers of processes are given anew: only one that was started for this configuration is meant.
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return b"veilwalk.node" in words and str(config.resolve()).encode() in words
    return False
