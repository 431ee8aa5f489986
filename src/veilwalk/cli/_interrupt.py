"""Ends the process soon after Ctrl-C, with exit code 130 and one line that says how to go on.

Python raises KeyboardInterrupt only between two of its own instructions. A compiler, a kernel or an import may run for
long before the next one, and may swallow the exception. So a thread of its own reads the signal as it arrives, waits
for the normal end, and ends the process where that does not come. Kernels and LLVM release the interpreter's lock
while they run; results that are stored are whole files, so that none is lost. A compiler is not interrupted at all, but
ended with the process: an exception in the middle of LLVM can crash it. This module imports nothing heavy.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

#: The exit code of an interrupted command.
INTERRUPTED = 130
NOTHING_KEPT = "nothing is kept: run the same command again to start over"
_START_OVER = "run the same command again to start over"
# A normal end takes a fraction of this; a user who waits longer believes the process dead.
_GRACE_S = 1.0
# The thread that reads the signal has it before KeyboardInterrupt is raised, and needs a moment to say so.
_NOTICE_S = 0.2
_SHOW_CURSOR = "\r\x1b[K\x1b[?25h"


class InterruptGuard:
    """Watches for SIGINT from :meth:`start` to :meth:`stop`."""

    def __init__(self) -> None:
        self._advice: str | Callable[[], str] = _START_OVER
        self._is_armed = False
        self._writer = -1
        self._hook = sys.unraisablehook
        self._signalled = threading.Event()
        self._line = threading.Lock()
        self._compiling = 0

    def start(self) -> None:
        """Watch from now on; outside the main thread, where no signal arrives, do nothing."""
        self._advice, self._signalled, self._line = _START_OVER, threading.Event(), threading.Lock()
        if self._is_armed or threading.current_thread() is not threading.main_thread():
            return
        reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, self._interrupt)
        self._hook, sys.unraisablehook = sys.unraisablehook, self._ignore
        self._is_armed = True
        threading.Thread(target=self._watch, args=(reader, self._signalled), name="interrupts", daemon=True).start()

    @property
    def is_signalled(self) -> bool:
        """Whether Ctrl-C has come: an error after it comes of the interrupt, as where a compiler swallows it."""
        return self._is_armed and self._signalled.wait(_NOTICE_S)

    def stop(self) -> None:
        """Watch no more: what follows ends by its own rules."""
        if self._is_armed and threading.current_thread() is threading.main_thread():
            self._is_armed = False
            signal.set_wakeup_fd(-1)
            if signal.getsignal(signal.SIGINT) == self._interrupt:
                signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.unraisablehook = self._hook
            os.close(self._writer)

    def finish(self, code: int) -> None:
        """Stop before a normal end; after a signal go on watching, so that the interpreter's own end is in time."""
        if code != INTERRUPTED or not self._signalled.is_set():
            self.stop()

    def advise(self, advice: str | Callable[[], str]) -> None:
        """Set what the line says about going on; a function is called when the line is printed."""
        self._advice = advice

    def begin_compiling(self) -> None:
        """A compiler is at work from now on; it may call for another one."""
        self._compiling += 1

    def end_compiling(self) -> None:
        """The compiler that began last is done."""
        self._compiling -= 1

    def report(self) -> int:
        """Print the line, unless it is printed already, and return the exit code; another Ctrl-C changes nothing."""
        if self._is_armed and self._signalled.wait(_NOTICE_S):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        if self._line.acquire(blocking=False):
            print(self._message(), file=sys.stderr, flush=True)
        return INTERRUPTED

    def _message(self) -> str:
        advice = self._advice if isinstance(self._advice, str) else self._advice()
        return f"veilwalk: interrupted: {' '.join(advice.split())}"

    def _watch(self, reader: int, signalled: threading.Event) -> None:
        while numbers := os.read(reader, 64):
            if signal.SIGINT in numbers:
                signalled.set()
                time.sleep(0.0 if self._compiling else _GRACE_S)
                if self._is_armed and signalled is self._signalled:
                    self._end()
        os.close(reader)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._compiling:
            # The thread that reads signals ends the process meanwhile.
            time.sleep(_GRACE_S)
        signal.default_int_handler(number, frame)

    def _ignore(self, event: sys.UnraisableHookArgs) -> None:
        """Print nothing where C code such as LLVM swallows KeyboardInterrupt, or is torn down in the middle of work."""
        if not isinstance(event.exc_value, KeyboardInterrupt) and not self._signalled.is_set():
            sys.__unraisablehook__(event)

    def _end(self) -> None:
        """End this process and its workers at once."""
        try:
            if self._line.acquire(blocking=False):
                # Not through sys.stderr, whose lock the main thread may hold.
                os.write(2, f"{_SHOW_CURSOR if os.isatty(2) else ''}{self._message()}\n".encode())
            _terminate_children()
            _release_semaphores()
        finally:
            os._exit(INTERRUPTED)


GUARD = InterruptGuard()


def _release_semaphores() -> None:
    """Release the semaphores of process pools, so that Python's tracker of them has nothing to warn about."""
    if utilities := sys.modules.get("multiprocessing.util"):
        release = threading.Thread(target=utilities._run_finalizers, args=(0,), daemon=True)  # noqa: SLF001
        release.start()
        release.join(_NOTICE_S)


def _terminate_children() -> None:
    for listing in Path("/proc/self/task").glob("*/children"):
        for pid in listing.read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGTERM)
