"""Every error the package raises on purpose.

``VeilwalkError``
    ``InvalidParameterError`` (also ``ValueError``)  a parameter is outside what it may be
    ``GraphError`` (also ``ValueError``)             the graph itself is unfit: disconnected, too small
    ``InfeasibleDesignError`` (also ``ValueError``)  no law exists for what was asked
    ``NumericalError`` (also ``ArithmeticError``)    a computation did not reach its accuracy
    ``ResourceLimitError`` (also ``MemoryError``)    the job would need more memory than allowed
    ``InputFileError`` (also ``OSError``)            a file is missing, unreadable or malformed
    ``RecordError`` (also ``ValueError``)            a record cannot be written or read

Each class carries the exit code the command line ends with: 2 for usage and input, 4 for storage,
70 for what can only be our own fault.
"""

from __future__ import annotations

from typing import ClassVar


class VeilwalkError(Exception):
    """Base of every error raised on purpose."""

    exit_code: ClassVar[int] = 2


class InvalidParameterError(VeilwalkError, ValueError):
    """A parameter is outside what it may be; the message names it, its value and what is needed."""

    def __init__(self, name: str, value: object, need: str) -> None:
        super().__init__(f"{name} = {value!r}: must be {need}")
        self.name = name
        self.value = value
        self.need = need


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
