"""Starts nodes quickly: everything is imported once, then each node is a fork of its own.

A fork is a process like any other: it has its own memory, files and signals, and dies alone. Reads one JSON object a
line on standard input, ``{"start": CONFIG, "env": {...}, "mutant": NAME}``, and answers ``{"started": PID}``; when a
node ends it says ``{"ended": PID, "status": N}``.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Serve until standard input closes, then kill what is left."""
    # All that a node imports, so that its forks need not.
    for name in (
        "veilwalk.learning",
        "veilwalk.node.peer",
        "tests.campaigns.chaos_mutants",
        "tests.campaigns.chaos_tally",
    ):
        importlib.import_module(name)
    children: set[int] = set()
    buffer = b""
    _say({"ready": os.getpid()})
    while True:
        ready, _, _ = select.select([0], [], [], 0.01)
        if ready:
            data = os.read(0, 65536)
            if not data:
                break
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                order = json.loads(line)
                pid = os.fork()
                if pid == 0:
                    _child(order)
                children.add(pid)
                _say({"started": pid})
        while children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            children.discard(pid)
            _say({"ended": pid, "status": os.waitstatus_to_exitcode(status)})
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _child(order: dict[str, Any]) -> None:
    from tests.campaigns import chaos_mutants
    from veilwalk.node.peer import run_node

    code = 70
    try:
        config = Path(order["start"])
        os.environ.update(order["env"])
        log = os.open(config.parent / "log.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if order["mutant"]:
            chaos_mutants.apply(order["mutant"])
        run_node(config)
        code = 0
    except BaseException as error:  # noqa: BLE001  whatever it is, it is the child's end
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def _say(message: dict[str, int]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main()
