"""Named places where a node can be told to die, so that tests can kill it where it hurts.

``VEILWALK_FAILPOINTS`` names them with a probability, ``taken.before_commit=0.05,acked=0.1``; ``*`` stands for all.
The process then kills itself with SIGKILL, as a crash would: nothing is flushed, nothing is closed. Without that
variable a failpoint costs a look into an empty dictionary.
"""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Mapping
from pathlib import Path

from veilwalk.core.errors import ConfigError

#: Every failpoint, in the order a message meets them.
FAILPOINTS = (
    "hold.received",
    "hold.stored",
    "take.received",
    "take.before_commit",
    "take.committed",
    "route.before_commit",
    "route.committed",
    "send.before_offer",
    "send.piece",
    "send.offered",
    "send.held",
    "give.before_commit",
    "give.committed",
    "send.given",
    "send.acked",
    "send.before_delete",
    "send.deleted",
    "train.opened",
    "train.updated",
    "train.sealed",
    "train.before_commit",
    "train.committed",
    "finish.before_commit",
    "finish.committed",
)

_VARIABLE = "VEILWALK_FAILPOINTS"
_LOG_VARIABLE = "VEILWALK_FAILPOINT_LOG"
_armed: dict[str, float] = {}
_dice = secrets.SystemRandom()


def arm(environment: Mapping[str, str] | None = None) -> None:
    """Read which failpoints are armed; none unless the environment says so."""
    text = (os.environ if environment is None else environment).get(_VARIABLE, "")
    _armed.clear()
    for part in filter(None, text.split(",")):
        name, _, chance = part.partition("=")
        names = FAILPOINTS if name == "*" else (name,)
        if name not in {"*", *FAILPOINTS}:
            raise ConfigError(f"{_VARIABLE} names {name!r}: not a failpoint")
        try:
            _armed.update(dict.fromkeys(names, float(chance or 1)))
        except ValueError:
            raise ConfigError(f"{_VARIABLE}: {chance!r} is not a probability") from None


def hit(name: str) -> None:
    """Die here, if this failpoint is armed and the dice say so."""
    chance = _armed.get(name)
    if chance is not None and _dice.random() < chance:
        log = os.environ.get(_LOG_VARIABLE)
        if log:
            with Path(log).open("a") as stream:
                stream.write(f"{name}\n")
        os.kill(os.getpid(), signal.SIGKILL)
