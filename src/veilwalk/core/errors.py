"""Every error the package raises on purpose.

``VeilwalkError``
    ``InvalidParameterError`` (also ``ValueError``)  a parameter is outside what it may be
    ``GraphError`` (also ``ValueError``)             the graph itself is unfit: disconnected, too small
    ``InfeasibleDesignError`` (also ``ValueError``)  no law exists for what was asked
    ``NumericalError`` (also ``ArithmeticError``)    a computation did not reach its accuracy
    ``ResourceLimitError`` (also ``MemoryError``)    the job would need more memory than allowed
    ``InputFileError`` (also ``OSError``)            a file is missing, unreadable or malformed
    ``ConfigError`` (also ``ValueError``)            a configuration names an unknown key or lacks a needed one
    ``TrainingError`` (also ``ArithmeticError``)     training cannot go on: the loss is no longer a number
    ``LearnerError`` (also ``RuntimeError``)         somebody's own learner raised an error or broke its contract
    ``WorkerError`` (also ``RuntimeError``)          workers of an engine died again and again
    ``RecordError`` (also ``ValueError``)            a record cannot be written or read
    ``CryptoError``                                  something sealed or signed was refused; never says why
    ``ProtocolError``                                a peer broke the protocol
    ``TransportError`` (also ``ConnectionError``)    a peer cannot be reached
    ``SpoolError`` (also ``OSError``)                a node's own storage failed

Each class carries the exit code the command line ends with: 1 for a check or a run that failed, 2 for usage and
input, 3 for peers and protocol, 4 for storage, 70 for what can only be our own fault.
"""

from __future__ import annotations

from typing import Any, ClassVar


class VeilwalkError(Exception):
    """Base of every error raised on purpose."""

    exit_code: ClassVar[int] = 2


class InvalidParameterError(VeilwalkError, ValueError):
    """A parameter is outside what it may be; the message names it, its value and what is needed."""

    def __init__(self, name: str, value: object, need: str) -> None:
        text = repr(value)
        # A table takes many lines: its kind says enough.
        text = type(value).__name__ if "\n" in text else text
        super().__init__(f"{name} = {text}: must be {need}")
        self.name = name
        self.value = value
        self.need = need

    def __reduce__(self) -> tuple[Any, ...]:
        # Made again from its parts where it comes from another process.
        return type(self), (self.name, self.value, self.need)


class GraphError(VeilwalkError, ValueError):
    """The graph is unfit: not simple, not connected, too small."""


class InfeasibleDesignError(VeilwalkError, ValueError):
    """No destination law exists for what was asked."""


class NumericalError(VeilwalkError, ArithmeticError):
    """A computation did not reach the accuracy it promises."""

    exit_code = 70


class ResourceLimitError(VeilwalkError, MemoryError):
    """The job would need more memory than it is allowed."""


class InputFileError(VeilwalkError, OSError):
    """A file is missing, unreadable or malformed."""


class RecordError(VeilwalkError, ValueError):
    """A record cannot be written or read."""

    exit_code = 4


class ConfigError(VeilwalkError, ValueError):
    """A configuration names an unknown key, lacks a needed one or contradicts itself."""


class TrainingError(VeilwalkError, ArithmeticError):
    """Training cannot go on: the loss or the parameters are no longer finite."""

    exit_code = 1


class LearnerError(VeilwalkError, RuntimeError):
    """A learner that is not ours raised an error or returned what it must not; the message names its file and line."""

    exit_code = 1


class WorkerError(VeilwalkError, RuntimeError):
    """Workers of an engine died again and again; jobs that were finished are kept where there is a store."""

    exit_code = 1


class CryptoError(VeilwalkError):
    """Something sealed or signed was refused. The message never says why: that would help a forger."""

    exit_code = 3


class ProtocolError(VeilwalkError):
    """A peer broke the protocol."""

    exit_code = 3


class TransportError(VeilwalkError, ConnectionError):
    """A peer cannot be reached, or is not who the roster says."""

    exit_code = 3


class SpoolError(VeilwalkError, OSError):
    """A node's own storage failed or holds what it should not."""

    exit_code = 4
