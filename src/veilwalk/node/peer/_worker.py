"""Training in a process of its own, at low priority: whoever asks a node something cannot tell whether it trains.

A thread would not do: it holds Python's lock while it computes, and answers to PING come late. The process gets and
gives plain bytes over a pipe; what a peer sent is arrays there as everywhere, never objects. It loads the learner and
the data, and the node need not. It is forked before the node has keys, threads or sockets; where it dies it is started
anew as a program, for by then a fork would copy all these. One that gives no answer in time is ended and replaced: a
learner that hangs would keep every walk that opens here. What a learner prints is thrown away, for the system's log
would say when a node trained.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, NoReturn

from veilwalk.core.errors import ConfigError, LearnerError, ProtocolError, VeilwalkError
from veilwalk.node.members import Manifest, decode_params
from veilwalk.node.peer._assemble import load_task
from veilwalk.node.peer._config import load_config
from veilwalk.node.peer._trainer import OUT_OF_TIME, Learnt, Lesson, Task

_NICENESS = 10
# Where memory runs out the kernel is to end this process, and not the node.
_OOM_SCORE = 500
_LEAST_LOADING_S = 600.0
_PR_SET_PDEATHSIG = 1
_START = "from veilwalk.node.peer._worker import main; main()"

# Held while a pipe's end is there for the next program to inherit: of two runs, each has its own only.
_spawning = threading.Lock()
Answer = tuple[dict[str, Any], list[bytes]]


class Worker:
    """A :class:`.Trainer` whose work is done by another process."""

    def __init__(self, config: Path, run: str = "", *, others: Sequence[Worker] = ()) -> None:
        """Start it for that run of the configuration; ``others`` are those that other runs have got before."""
        self._arguments = config, run
        self._manifest: Manifest | None = None
        self._index = 0
        self._first = b""
        self._limit_s: float | None = None
        self._closed = False
        self.pipe, theirs = Pipe()
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            # What it has of its node's other pipes, it has only for being a copy.
            for worker in (self, *others):
                worker.pipe.close()
            _serve_and_exit(config, run, theirs, parent)
        theirs.close()

    def begin(self, manifest: Manifest, index: int, *, limit_s: float | None = None) -> None:
        """Load learner and data; an update may take ``limit_s`` from now on, or as long as it likes.

        Raises:
            VeilwalkError: They do not fit; the message says how.
        """
        self._manifest, self._index, self._limit_s = manifest, index, limit_s
        if self._closed:
            # The node begins anew, under another manifest.
            self._closed = False
            self._start()
        try:
            _, (self._first,) = self._begin()
        except TimeoutError:
            raise LearnerError(f"learner and data are not loaded after {self._loading_s:g} s (training_s)") from None
        except (OSError, EOFError):
            raise LearnerError("the process that trains ended before it began") from None

    def first(self) -> bytes:
        """Return the model that the run starts from, encoded."""
        return self._first

    def update(self, lesson: Lesson) -> Learnt:
        """Make an update; where the process dies of it, or takes too long, of this node's own model.

        Where noise protects the node, its second update is of the same model but without data: nobody may see that the
        data made the first one fail.
        """
        late: list[str] = []
        again = replace(lesson, without_data=True) if self._has_noise else replace(lesson, received=None)
        for attempt in (lesson, again):
            try:
                learnt = self._update(attempt)
            except (OSError, EOFError, VeilwalkError) as error:
                late += [OUT_OF_TIME] if isinstance(error, TimeoutError) else []
                self._replace()
            else:
                if attempt is lesson or learnt.state is not None:
                    return replace(learnt, counts=(*learnt.counts, *late))
        unchanged = next(model for model in (lesson.received, lesson.own, self._first) if self._is_model(model))
        return Learnt(model=unchanged or self._first, counts=("learner_failures", *late))

    def reaches_target(self, model: bytes) -> bool:
        """Return whether a model is as good as the run asks for, by the public test set."""
        try:
            found, _ = self._ask({"do": "reaches_target"}, model, limit_s=self._limit_s)
        except (OSError, EOFError, VeilwalkError):
            self._replace()
            return False
        return bool(found["reaches"])

    def close(self) -> None:
        """Stop; an update that is being made is given up."""
        self._closed = True
        self._end()

    @property
    def _has_noise(self) -> bool:
        return self._manifest is not None and self._manifest.rules.noise > 0

    @property
    def _loading_s(self) -> float | None:
        """How long loading may take: more than an update where those are short."""
        return None if self._limit_s is None else max(self._limit_s, _LEAST_LOADING_S)

    def _begin(self) -> Answer:
        if self._manifest is None:
            raise LearnerError("the process that trains was not told what")
        head = {"do": "begin", "index": self._index}
        return self._ask(head, self._manifest.data, limit_s=self._loading_s)

    def _update(self, lesson: Lesson) -> Learnt:
        names = list(lesson.state)
        head = {
            "do": "update",
            "iteration": lesson.iteration,
            "step": lesson.step,
            "lane": lesson.lane,
            "own_iteration": lesson.own_iteration,
            "without_data": lesson.without_data,
            "received": lesson.received is not None,
            "own": lesson.own is not None,
            "state": names,
        }
        found, (model, *state) = self._ask(
            head,
            lesson.received or b"",
            lesson.own or b"",
            *(lesson.state[name] for name in names),
            limit_s=self._limit_s,
        )
        return Learnt(
            model=model,
            state=None if found["state"] is None else dict(zip(found["state"], state, strict=True)),
            moved=found["moved"],
            reached=found["reached"],
            counts=tuple(found["counts"]),
            own=found["own"],
        )

    def _ask(self, head: Mapping[str, Any], *parts: bytes, limit_s: float | None) -> Answer:
        _send(self.pipe, head, parts)
        if not self.pipe.poll(limit_s):
            # Now: an answer that comes late is none to what is asked next.
            self._end()
            raise TimeoutError
        found, answer = _receive(self.pipe)
        if "error" in found:
            raise (ConfigError if found["code"] == ConfigError.exit_code else LearnerError)(found["error"])
        return found, answer

    def _is_model(self, model: bytes | None) -> bool:
        try:
            return model is not None and self._manifest is not None and bool(decode_params(self._manifest, model))
        except ProtocolError:
            return False

    def _replace(self) -> None:
        """Start another in the place of one that died."""
        self._end()
        with contextlib.suppress(OSError, EOFError, VeilwalkError):
            if not self._closed:
                self._start()
                self._begin()

    def _start(self) -> None:
        self.pipe, theirs = Pipe()
        with _spawning, theirs:
            os.set_inheritable(theirs.fileno(), True)  # noqa: FBT003  that is its signature
            config, run = self._arguments
            arguments = [sys.executable, "-c", _START, str(config), run, str(theirs.fileno()), str(os.getpid())]
            self.pid = os.posix_spawn(sys.executable, arguments, os.environ)

    def _end(self) -> None:
        if self.pid:
            pid, self.pid = self.pid, 0
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        # Last: whoever waits for an answer has got its end by now.
        self.pipe.close()


def main() -> None:
    """Serve the node that started this program: configuration, run, pipe, its process id."""
    config, run, handle, parent = sys.argv[1:]
    _serve_and_exit(Path(config), run, Connection(int(handle)), int(parent))


def _serve_and_exit(config: Path, run: str, pipe: Connection, parent: int) -> NoReturn:
    try:
        # Whoever kills the node, however hard, ends this process too; a clean stop is the node's to order.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        _say_nothing(pipe)
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE))
        if os.getppid() == parent:
            # While the node reads its keys.
            importlib.import_module("veilwalk.learning")
            _serve(config, run, pipe)
    finally:
        os._exit(0)


def _say_nothing(pipe: Connection) -> None:
    """Send to nowhere what is printed here, by whatever library."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    # Where a node is started without such streams the pipe may have got their numbers.
    for stream in {1, 2} - {pipe.fileno()}:
        os.dup2(nowhere, stream)
    os.close(nowhere)


def _serve(config: Path, run: str, pipe: Connection) -> None:
    tasks: list[Task] = []
    while True:
        try:
            head, parts = _receive(pipe)
            _send(pipe, *_answer((config, run), tasks, head, parts))
        except (EOFError, OSError):
            return


def _answer(settings: tuple[Path, str], tasks: list[Task], head: dict[str, Any], parts: list[bytes]) -> Answer:
    """Return the answer to a request; the first is what to work on, and is kept in ``tasks``."""
    try:
        match head["do"]:
            case "begin":
                manifest = Manifest.parse(parts[0], "manifest")
                config = load_config(settings[0], settings[1] or None)
                tasks[:] = [load_task(config, manifest, index=head["index"])]
                # From now on: a start that others wait for is not to wait itself.
                lower = os.getpriority(os.PRIO_PROCESS, os.getppid()) + _NICENESS
                os.setpriority(os.PRIO_PROCESS, 0, lower)
                return {}, [tasks[0].first()]
            case "reaches_target":
                return {"reaches": tasks[0].reaches_target(parts[0])}, []
            case _:
                return _updated(tasks[0], head, parts)
    except VeilwalkError as error:
        return {"error": str(error), "code": error.exit_code}, []
    except Exception as error:  # noqa: BLE001  a learner may be anybody's code; the node says what it was
        return {"error": f"the learner cannot be made: {error!r}", "code": LearnerError.exit_code}, []


def _updated(task: Task, head: dict[str, Any], parts: list[bytes]) -> Answer:
    received, own, *state = parts
    learnt = task.update(
        Lesson(
            received=received if head["received"] else None,
            own=own if head["own"] else None,
            iteration=head["iteration"],
            step=head["step"],
            lane=head["lane"],
            own_iteration=head["own_iteration"],
            without_data=head["without_data"],
            state=dict(zip(head["state"], state, strict=True)),
        )
    )
    names = None if learnt.state is None else list(learnt.state)
    found: dict[str, Any] = {"state": names, "moved": learnt.moved, "reached": learnt.reached}
    found |= {"counts": learnt.counts, "own": learnt.own}
    return found, [learnt.model, *(learnt.state or {}).values()]


def _send(pipe: Connection, head: Mapping[str, Any], parts: Sequence[bytes]) -> None:
    pipe.send_bytes(json.dumps({**head, "parts": len(parts)}).encode())
    for part in parts:
        pipe.send_bytes(part)


def _receive(pipe: Connection) -> Answer:
    head = json.loads(pipe.recv_bytes())
    return head, [pipe.recv_bytes() for _ in range(head.pop("parts"))]
