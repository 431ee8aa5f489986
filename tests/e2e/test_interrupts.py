"""Ctrl-C ends any command within two seconds, with its code and one line, wherever the command is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from veilwalk.cli._output import COMPILING

AUDIT = ["audit", "--graph", "rrg:100:3:seed=1", "--updates", "2000000", "--law", "paper"]
GUARDED = """
import sys, time
from veilwalk.cli._interrupt import GUARD
GUARD.start()
GUARD.advise("the test goes on")
"""
KERNEL = """
from veilwalk.engine import njit
@njit()
def count(steps):
    state = 1
    for step in range(steps):
        state = (state * 6364136223846793005 + step) & 0x7FFFFFFFFFFFFFFF
    return state
count(1)
while True:
    try:
        print("ready", flush=True)
        count(10**13)
    except KeyboardInterrupt:
        pass
"""
SWALLOWED = """
while True:
    try:
        print("ready", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        pass
"""
MISTAKEN = """
import time
from veilwalk.cli import _main, main
def app(**_):
    try:
        print("ready", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        raise RuntimeError("no compiled object yet") from None
_main.app = app
main(["audit"])
"""
IN_CODE_FROM_TEXT = """
import os, signal, time
from veilwalk.cli import _main, main
def app(**_):
    exec("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", globals())
_main.app = app
main(["audit"])
"""
IN_AN_IMPORT_BY_C = """
import os, signal, sys, time
class Finder:
    def find_spec(self, name, *_):
        if name == "typer":
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(60)
            except KeyboardInterrupt:
                raise ImportError("could not import module _socket") from None
sys.meta_path.insert(0, Finder())
from veilwalk.cli import main
main(["audit"])
"""
POOL = """
from veilwalk.engine import open_engine
import os
if __name__ == "__main__":
    with open_engine("process:2") as executor:
        worker = executor.submit(os.getpid).result()
        while True:
            try:
                print("ready", worker, flush=True)
                executor.submit(time.sleep, 600).result()
            except KeyboardInterrupt:
                pass
"""


def started(command: list[str], **environment: str) -> subprocess.Popen[str]:
    """Start Python in a process group of its own, as a shell does."""
    return subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env=os.environ | environment,
    )  # fmt: skip


def interrupt(process: subprocess.Popen[str]) -> str:
    """Send Ctrl-C to the whole group and return what is said from then on.

    The end must come within two seconds of a core. On a busy machine a second gives less of one: a thread that does
    nothing but turn says how much.
    """
    ended = threading.Event()
    with ThreadPoolExecutor() as pool:
        turned = pool.submit(turn_until, ended)
        os.killpg(process.pid, signal.SIGINT)
        try:
            code = process.wait(120)
        finally:
            ended.set()
    _, complaint = process.communicate()
    assert code == 130, complaint
    assert "Traceback" not in complaint
    assert turned.result() < 2.0
    return complaint


def turn_until(ended: threading.Event) -> float:
    """Turn without a pause; return how many seconds of a core that took."""
    while not ended.is_set():
        pass
    return time.thread_time()


def read_until(process: subprocess.Popen[str], wanted: Callable[[str], bool]) -> str:
    """Read lines of standard error until one is ``wanted``."""
    assert process.stderr is not None
    for line in process.stderr:
        if wanted(line):
            return line
    pytest.fail("the process ended before it came so far")


def test_nothing_is_imported_before_it_listens() -> None:
    """What is imported above ``main`` is imported while nobody answers Ctrl-C: the package's own four files."""
    code = "import sys; old = set(sys.modules); import veilwalk.cli; print(*sorted(set(sys.modules) - old))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"veilwalk", "veilwalk.cli"} <= set(shown)
    assert set(shown) <= {"__future__", "veilwalk", "veilwalk.cli", "veilwalk.core", "veilwalk.core.version"}


@pytest.mark.parametrize("code", [IN_CODE_FROM_TEXT, IN_AN_IMPORT_BY_C], ids=["text", "import"])
def test_the_code_is_130_wherever_it_comes(code: str, tmp_path: Path) -> None:
    """Not the signal itself, as Python ends where generated code was met; nor a failed import, which C makes of it."""
    (tmp_path / "program.py").write_text(code)
    command = [sys.executable, "-m", "program"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr.count("\n")) == (130, 1), ended.stderr
    assert ended.stderr.startswith("veilwalk: interrupted: ")


@pytest.mark.parametrize("module", ["signal", "typer", "numpy._core.multiarray", "numba.core.types"])
def test_while_it_imports(module: str) -> None:
    """Python says on standard error which module it has just loaded."""
    process = started(["-X", "importtime", "-m", "veilwalk", *AUDIT])
    read_until(process, lambda line: line.split("|")[-1].strip() == module)
    said = [line for line in interrupt(process).splitlines() if not line.startswith("import time:")]
    assert len(said) == 1
    assert said[0].startswith("veilwalk: interrupted: ")
    assert said[0].endswith("run the same command again to start over")


@pytest.mark.parametrize("wait_s", [0.0, 1.0, 3.0])
def test_while_it_compiles(tmp_path: Path, wait_s: float) -> None:
    """With nothing compiled before, a moment after it says so."""
    process = started(["-m", "veilwalk", *AUDIT], NUMBA_CACHE_DIR=str(tmp_path))
    read_until(process, lambda line: line.strip() == COMPILING)
    time.sleep(wait_s)
    assert interrupt(process) == "veilwalk: interrupted: nothing is kept: run the same command again to start over\n"


def test_while_it_walks_for_jobs(tmp_path: Path) -> None:
    """A command that keeps its jobs says where; each of them is there whole."""
    process = started(["-m", "veilwalk", *AUDIT, "--engine", "process:2", "--work", str(tmp_path / "jobs")])
    end = time.monotonic() + 120
    while not list(tmp_path.glob("jobs/[!.]*.npz")):
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)
    said = interrupt(process).splitlines()[-1]
    where = f"finished jobs are in {tmp_path / 'jobs'}"
    assert said == f"veilwalk: interrupted: {where}: run the same command again to resume"


def test_an_error_that_comes_of_the_interrupt_is_not_ours() -> None:
    """A compiler that swallows the interrupt may fail for it a moment later, with an error of its own."""
    process = started(["-c", MISTAKEN])
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert interrupt(process).startswith("veilwalk: interrupted: ")


@pytest.mark.parametrize("code", [KERNEL, SWALLOWED], ids=["a kernel that does not end", "an interrupt that is lost"])
def test_where_python_does_not_come_to_it(code: str) -> None:
    """The guard ends the process by itself; kernels let it."""
    process = started(["-c", GUARDED + code])
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert interrupt(process) == "veilwalk: interrupted: the test goes on\n"


def test_workers_end_with_it(tmp_path: Path) -> None:
    """Where the guard ends the process its workers go too."""
    script = tmp_path / "pool.py"
    script.write_text(GUARDED.replace("GUARD.", "__name__ == '__main__' and GUARD.") + POOL)
    process = started([str(script)])
    assert process.stdout is not None
    worker = int(process.stdout.readline().split()[1])
    assert interrupt(process) == "veilwalk: interrupted: the test goes on\n"
    end = time.monotonic() + 10
    while Path(f"/proc/{worker}/stat").exists() and ") Z " not in Path(f"/proc/{worker}/stat").read_text():
        assert time.monotonic() < end, "a worker outlives the command"
        time.sleep(0.01)
