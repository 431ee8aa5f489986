"""Training in a process of its own, at low priority: no answer of the node tells whether it trains.

A thread would not do: it holds Python's lock while it computes, and answers to PING come late. The process loads the
learner and the data, and the node need not; they exchange jobs and outcomes, which hold numbers and plain bytes, over a
pipe of their own. A process that dies, or gives no answer in time, is replaced: a learner that hangs would keep every
walk that opens here. What a learner prints is thrown away, for the system's log would say when a node trained.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import subprocess
import sys
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from veilwalk.core.errors import ConfigError, LearnerError, VeilwalkError
from veilwalk.node.members import Manifest
from veilwalk.node.peer._assemble import load_task
from veilwalk.node.peer._config import load_config
from veilwalk.node.peer._trainer import OUT_OF_TIME, Task, TrainingJob, TrainingOutcome, try_decode

_NICENESS = 10
# Where memory runs out the kernel is to end this process, and not the node.
_OOM_SCORE = 500
_LEAST_LOADING_S = 600.0
_PR_SET_PDEATHSIG = 1
_START = "from veilwalk.node.peer._worker import main; main()"


class Worker:
    """Makes updates as a :class:`.Task` does, in another process."""

    def __init__(self, config: Path) -> None:
        """Start it for the node of that configuration."""
        self._config = config
        # Learner and data by manifest and number, and the first model.
        self._task: tuple[Manifest, int] | None = None
        self._first = b""
        self._limit_s: float | None = None
        self._closed = False
        self._start()

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def begin(self, manifest: Manifest, index: int, *, limit_s: float | None = None) -> None:
        """Load learner and data; an update may take ``limit_s`` from now on, or as long as it likes.

        Raises:
            VeilwalkError: They do not fit; the message says how.
        """
        self._task, self._limit_s = (manifest, index), limit_s
        if self._closed:
            # The node begins anew, under another manifest.
            self._closed = False
            self._start()
        try:
            self._first = self._begin()
        except TimeoutError:
            loading_s = max(limit_s or 0.0, _LEAST_LOADING_S)
            raise LearnerError(f"learner and data are not loaded after {loading_s:g} s (training_s)") from None
        except (OSError, EOFError):
            raise LearnerError("the process that trains ended before it began") from None

    def first(self) -> bytes:
        """Return the model that the run starts from, encoded."""
        return self._first

    def update(self, job: TrainingJob) -> TrainingOutcome:
        """Make an update; where the process dies of it, or takes too long, of this node's own model.

        Where noise protects the node, its second update is of the same model but without data: nobody may see that the
        data made the first one fail.
        """
        if self._task is None:
            raise LearnerError("the process that trains was not told what")
        late: list[str] = []
        manifest, models = self._task[0], (job.received, job.own)
        again = replace(job, without_data=True) if manifest.rules.noise else replace(job, received=None)
        for attempt in (job, again):
            try:
                outcome: TrainingOutcome = self._ask(attempt)
            except (OSError, EOFError, VeilwalkError) as error:
                late += [OUT_OF_TIME] if isinstance(error, TimeoutError) else []
                self._replace()
            else:
                if attempt is job or outcome.state is not None:
                    return replace(outcome, counts=(*outcome.counts, *late))
        usable = (model for model in models if try_decode(manifest, model) is not None)
        return TrainingOutcome(model=next(usable, None) or self._first, counts=("learner_failures", *late))

    def reaches_target(self, model: bytes) -> bool:
        """Return whether a model is as good as the run asks for, by the public test set."""
        try:
            return bool(self._ask(model))
        except (OSError, EOFError, VeilwalkError):
            self._replace()
            return False

    def close(self) -> None:
        """Stop; an update that is being made is given up."""
        self._closed = True
        self._end()

    def _begin(self) -> bytes:
        """Load learner and data, which may take longer than an update where those are short; return the first model."""
        assert self._task is not None  # noqa: S101  it was told what
        manifest, index = self._task
        first: bytes = self._ask((manifest.data, index), least_s=_LEAST_LOADING_S)
        return first

    def _ask(self, request: object, *, least_s: float = 0.0) -> Any:
        self._pipe.send(request)
        if not self._pipe.poll(None if self._limit_s is None else max(self._limit_s, least_s)):
            # Now: an answer that comes late is none to the next question.
            self._end()
            raise TimeoutError
        answer = self._pipe.recv()
        if isinstance(answer, VeilwalkError):
            raise answer
        return answer

    def _replace(self) -> None:
        """Start another in the place of one that died."""
        self._end()
        with contextlib.suppress(OSError, EOFError, VeilwalkError):
            if not self._closed:
                self._start()
                self._begin()

    def _start(self) -> None:
        self._pipe, child_end = Pipe()
        with child_end:
            arguments = [str(self._config), str(child_end.fileno()), str(os.getpid())]
            self._process = subprocess.Popen(  # noqa: S603  this program, and paths of ours
                [sys.executable, "-c", _START, *arguments],
                pass_fds=[child_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        # Last: a thread that waits for an answer has got its end by now.
        self._pipe.close()


def main() -> None:
    """Serve the node that started this program: configuration, pipe, its process id."""
    config, handle, parent = sys.argv[1:]
    # A node that is killed, however hard, ends this process too; a clean stop is the node's to order.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE))
    if os.getppid() == int(parent):
        # While the node reads its keys.
        importlib.import_module("veilwalk.learning")
        serve(Path(config), Connection(int(handle)))


def serve(config: Path, pipe: Connection) -> None:
    """Answer the requests of the node of that configuration until it closes the pipe."""
    task: Task | None = None
    while True:
        try:
            request = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            if isinstance(request, tuple):
                data, index = request
                task = load_task(load_config(config), Manifest.parse(data, "manifest"), index=index)
                # From now on: a start that others wait for is not to wait itself.
                os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, os.getppid()) + _NICENESS)
                answer: object = task.first()
            elif task is None:
                return
            else:
                answer = task.update(request) if isinstance(request, TrainingJob) else task.reaches_target(request)
        except VeilwalkError as error:
            # As plain words: an error of a learner's may be of a class that the node does not have.
            answer = (ConfigError if error.exit_code == ConfigError.exit_code else LearnerError)(str(error))
        except Exception as error:  # noqa: BLE001  a learner may be anybody's code; the node says what it was
            answer = LearnerError(f"the learner cannot be made: {error!r}")
        pipe.send(answer)
