"""Several hosts on one machine: network namespaces on one switch, each with its own address."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest


def ip(*words: str) -> None:
    """Run ``ip``."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


def within(space: str, *words: str) -> None:
    """Run a command in a namespace."""
    ip("netns", "exec", space, *words)


@contextmanager
def three_hosts(names: Sequence[str] = ()) -> Iterator[list[str]]:
    """Make namespaces with addresses 10.77.0.1 to 3 on a switch of their own; skip where the machine gives none.

    ``names`` are what each is called by all.
    """
    mark = f"vw{os.getpid()}"
    spaces = [f"{mark}-{index}" for index in range(3)]
    switch = f"{mark}-s"
    made: list[str] = []
    # What ``ip netns exec`` puts in the place of /etc/hosts.
    files = [Path("/etc/netns") / space for space in spaces]
    lines = ["127.0.0.1 localhost\n", *(f"10.77.0.{index + 1} {name}\n" for index, name in enumerate(names))]
    try:
        try:
            for space in (switch, *spaces):
                ip("netns", "add", space)
                made.append(space)
            within(switch, "ip", "link", "add", "br0", "type", "bridge")
            within(switch, "ip", "link", "set", "br0", "up")
            for index, space in enumerate(spaces):
                ip("link", "add", "eth0", "netns", space, "type", "veth", "peer", "name", f"p{index}", "netns", switch)
                within(switch, "ip", "link", "set", f"p{index}", "master", "br0", "up")
                within(space, "ip", "addr", "add", f"10.77.0.{index + 1}/24", "dev", "eth0")
                within(space, "ip", "link", "set", "eth0", "up")
                within(space, "ip", "link", "set", "lo", "up")
            for folder in files if names else []:
                folder.mkdir(parents=True)
                (folder / "hosts").write_text("".join(lines))
        except (subprocess.CalledProcessError, OSError) as error:
            pytest.skip(f"this machine gives no network namespaces: {error}")
        yield spaces
    finally:
        for space in made:
            ip("netns", "del", space)
        for folder in files:
            shutil.rmtree(folder, ignore_errors=True)
