"""A cluster seen from another terminal, or after a restart of the machine: who runs, how far it is, and an end."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from veilwalk.core.errors import ConfigError, ProtocolError, SpoolError
from veilwalk.core.locks import lock_file
from veilwalk.node.cluster._processes import PID, STOP_S, ClusterStatus, look_at
from veilwalk.node.cluster._settings import SETTINGS
from veilwalk.node.peer import is_running, load_config

_LOCK = "up.lock"


def cluster_configs(folder: Path) -> list[Path]:
    """Return the configurations of the nodes of the cluster in ``folder``."""
    if not (folder / SETTINGS).exists():
        raise ConfigError(f"{folder} holds no cluster")
    return sorted(folder.glob("*/node.toml"))


def look_at_cluster(folder: Path) -> ClusterStatus:
    """Return how far the cluster in ``folder`` is, whoever runs it, or nobody."""
    states = [load_config(path).state for path in cluster_configs(folder)]
    return ClusterStatus(nodes=tuple(look_at(state) for state in states), alive=sum(map(is_running, states)))


@contextlib.contextmanager
def watching(folder: Path) -> Iterator[None]:
    """Be the one process that runs the cluster in ``folder``."""
    try:
        handle = lock_file(folder / _LOCK)
    except BlockingIOError:
        raise ConfigError(f"{folder}: a cluster up runs there already; veilwalk cluster down --out {folder}") from None
    except OSError as error:
        raise SpoolError(f"{folder / _LOCK}: {error.strerror or error}") from None
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
    _end("cluster up", folder / _LOCK, lambda _: _is_watched(folder), STOP_S * 2)
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


def _is_watched(folder: Path) -> bool:
    try:
        os.close(lock_file(folder / _LOCK))
    except BlockingIOError:
        return True
    return False


def _is_node(config: Path, pid: int) -> bool:
    # Numbers of processes are given anew: only one that was started for this configuration is meant.
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return b"veilwalk.node" in words and str(config.resolve()).encode() in words
    return False
