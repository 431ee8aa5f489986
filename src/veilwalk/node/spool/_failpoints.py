"""Named places where a node can be told to die, so that tests can kill it where it hurts.

``VEILWALK_FAILPOINTS`` names them with a probability, ``take.committed=0.05,send.acked=0.1``; ``*`` stands for all
others. The process then kills itself with SIGKILL, as a crash would: nothing is flushed, nothing is closed. Without
that variable a failpoint costs a look into an empty dictionary.
"""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Mapping
from pathlib import Path

from veilwalk.core.errors import ConfigError

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
        try:
            _armed[name] = float(chance or 1)
        except ValueError:
            raise ConfigError(f"{_VARIABLE}: {chance!r} is not a probability") from None


def hit(name: str) -> None:
    """Die here, if this failpoint is armed and the dice say so."""
    if _armed and _dice.random() < _armed.get(name, _armed.get("*", 0.0)):
        log = os.environ.get(_LOG_VARIABLE)
        if log:
            with Path(log).open("a") as stream:
                stream.write(f"{name}\n")
        os.kill(os.getpid(), signal.SIGKILL)
