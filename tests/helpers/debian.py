"""A Debian of its own, in a folder: made by debootstrap, booted by systemd-nspawn, with its own /tmp and network.

Nothing is installed on this machine: a program that it lacks is unpacked from its Debian package into the folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
_MIRROR = "http://deb.debian.org/debian"
_RELEASE, _PYTHON = "bookworm", "3.11"
_PACKAGES = "python3,python3-venv,python3-pip,systemd,systemd-sysv,dbus"


def must(*words: object, **options: Any) -> str:
    """Run a command on this machine and return what it prints; where it fails, what is tested cannot be, and why."""
    try:
        done = subprocess.run(
            [str(word) for word in words], capture_output=True, text=True, check=False, timeout=600, **options
        )
    except OSError as error:
        pytest.skip(f"{words[0]}: {error.strerror}")
    if done.returncode:
        pytest.skip(f"{' '.join(map(str, words))[:200]}: {(done.stderr or done.stdout).strip()[-500:]}")
    return str(done.stdout)


def remove(folder: Path) -> None:
    """Remove a folder, and nothing that is mounted in it."""
    subprocess.run(["rm", "-rf", "--one-file-system", str(folder)], check=False)


def tool(folder: Path, name: str, package: str) -> Path:
    """Return a program: this machine's, or else unpacked from its Debian package."""
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    unpacked = folder / "tools" / package
    if not unpacked.exists():
        parts = unpacked.with_suffix(".part")
        remove(parts)
        parts.mkdir(parents=True)
        must("apt-get", "download", package, cwd=parts)
        (archive,) = parts.glob("*.deb")
        must("dpkg", "-x", archive, parts)
        parts.rename(unpacked)
    return next(path for path in unpacked.rglob(name) if path.is_file() and os.access(path, os.X_OK))


def debian_root(folder: Path) -> Path:
    """Return a Debian with Python and systemd; made once, some minutes."""
    root = folder / "root"
    if not root.exists():
        parts = folder / "root.part"
        remove(parts)
        program = tool(folder, "debootstrap", "debootstrap")
        # Where it was unpacked its scripts are beside it.
        scripts = program.parents[2] / "usr" / "share" / "debootstrap"
        environment = os.environ | ({"DEBOOTSTRAP_DIR": str(scripts)} if scripts.exists() else {})
        must(program, "--variant=minbase", f"--include={_PACKAGES}", _RELEASE, parts, _MIRROR, env=environment)
        (parts / "etc" / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")
        parts.rename(root)
    return root


def wheels(folder: Path) -> Path:
    """Return a folder with this checkout as a wheel, and everything it needs to be installed without a network."""
    found = folder / "wheels"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    for old in found.glob("veilwalk-*.whl"):
        old.unlink()
    must(*pip, "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", found, ROOT)
    (own,) = found.glob("veilwalk-*.whl")
    if not (found / "complete").exists():
        must(
            *pip, "download", "--only-binary", ":all:", "--python-version", _PYTHON, "--dest", found,
            "--constraint", ROOT / "constraints.txt", "hatchling", "editables", own,
        )  # fmt: skip
        (found / "complete").touch()
    return found


class Machine:
    """A Debian that may be booted."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.root = root
        self._nspawn = tool(folder, "systemd-nspawn", "systemd-container")
        self._log = folder / "boot.log"
        self._leader = 0

    def prepare(self, command: str, *binds: str) -> None:
        """Run a shell command in it without booting."""
        with _own_cgroups() as enter:
            must(
                *self._words(), "--quiet", *binds, "/bin/sh", "-ec", command, preexec_fn=enter, stdin=subprocess.DEVNULL
            )

    @contextmanager
    def booted(self) -> Iterator[None]:
        """Boot it, and shut it down at the end."""
        with _own_cgroups() as enter, self._log.open("wb") as log:
            process = subprocess.Popen(
                [*self._words(), "--console=pipe", "--boot"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=enter,  # noqa: PLW1509  no threads here
            )  # fmt: skip
            try:
                self._leader = self._first_child(process)
                self.until(lambda: self.say("systemctl", "is-system-running").strip() in {"running", "degraded"})
                yield
            finally:
                process.terminate()
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
                    process.wait(30)

    def say(self, *words: str) -> str:
        """Run a command in the booted machine; return all that it prints."""
        done = subprocess.run(
            ["nsenter", "--target", str(self._leader), "--all", *words],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=60,
        )  # fmt: skip
        return done.stdout

    def until(self, done: Callable[[], Any], timeout_s: float = 120) -> None:
        """Wait for something."""
        end = time.monotonic() + timeout_s
        while not done():
            assert time.monotonic() < end, self.say("journalctl", "--no-pager", "--lines=80")
            time.sleep(0.3)

    def _words(self) -> list[str]:
        # Under a systemd it is a scope of that; without one it is in the groups that it is started in.
        keep = [] if Path("/run/systemd/system").exists() else ["--keep-unit"]
        return [str(self._nspawn), "--directory", str(self.root), "--register=no", "--private-network", *keep]

    def _first_child(self, process: subprocess.Popen[bytes]) -> int:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        end = time.monotonic() + 30
        while time.monotonic() < end and process.poll() is None:
            if found := children.read_text().split():
                return int(found[0])
            time.sleep(0.1)
        pytest.skip(f"systemd-nspawn cannot boot here: {self._log.read_text()[-500:]}")


@contextmanager
def _own_cgroups() -> Iterator[Callable[[], None]]:
    """Make control groups for what is booted, and take them away; yield what moves a process there."""
    top = Path("/sys/fs/cgroup")
    hierarchies: Sequence[Path] = [top] if (top / "cgroup.procs").exists() else sorted(top.glob("*/"))
    groups = [hierarchy / f"veilwalk-{os.getpid()}" for hierarchy in hierarchies if not hierarchy.is_symlink()]
    for group in groups:
        with contextlib.suppress(OSError):
            group.mkdir()

    def enter() -> None:
        for group in groups:
            with contextlib.suppress(OSError):
                (group / "cgroup.procs").write_text(str(os.getpid()))

    try:
        yield enter
    finally:
        for group in groups:
            for path in (*sorted(group.rglob("*/"), reverse=True), group):
                with contextlib.suppress(OSError):
                    path.rmdir()
