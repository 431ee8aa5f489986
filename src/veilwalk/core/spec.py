"""Parses a one-line specification: a name, arguments and options, separated by colons.

``csv:rows.csv:label=y`` has the name ``csv``, the argument ``rows.csv`` and the option ``label``. Every fault raises
:class:`InvalidParameterError` with the parameter, the whole text and what is needed.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Self, TypeVar

from veilwalk.core.errors import InvalidParameterError
from veilwalk.core.validate import instance, refuse_removed

_OPTION = re.compile(r"(\w+)=(.*)", re.DOTALL)
_KINDS = {int: "whole number", float: "number"}
_Value = TypeVar("_Value", bound=int | float | str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """A parsed specification: its ``name``, its ``arguments`` up to the first option, and its ``options``.

    ``parameter`` is what the caller calls it, for errors; ``text`` is the whole. A key may occur twice.
    """

    parameter: str
    text: str
    name: str
    arguments: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str, *, parameter: str, files: Collection[str] = ()) -> Self:
        """Parse ``text``; a part after the first option must be an option.

        After a name in ``files`` comes a file, whose name is no option, whatever it holds.
        """
        instance(str, "text", **{parameter: text})
        name, *parts = text.strip().split(":")
        refuse_removed(parameter, name)
        is_option = [(place > 0 or name not in files) and _OPTION.fullmatch(part) for place, part in enumerate(parts)]
        first = next((place for place, match in enumerate(is_option) if match), len(parts))
        spec = cls(parameter=parameter, text=text, name=name, arguments=tuple(parts[:first]))
        options = []
        for part in parts[first:]:
            match = _OPTION.fullmatch(part)
            if match is None or not match[2]:
                raise spec.refuse(f"followed by name=value (not {part!r})")
            options.append((match[1], match[2]))
        return cls(parameter=parameter, text=text, name=name, arguments=spec.arguments, options=tuple(options))

    @property
    def argument(self) -> str:
        """All arguments as one text; a file name may hold colons."""
        return ":".join(self.arguments)

    def refuse(self, need: str) -> InvalidParameterError:
        """Return the error that names the parameter, the text and the need."""
        return InvalidParameterError(self.parameter, self.text, need)

    def convert(self, value: str, kind: type[_Value], usage: str) -> _Value:
        """Return ``value`` as ``kind``, which is ``int``, ``float`` or ``str``."""
        try:
            return kind(value)
        except ValueError:
            raise self.refuse(f"{usage} ({value!r} is not a {_KINDS.get(kind, 'value')})") from None

    def require_options(self, known: Collection[str]) -> None:
        """Refuse an option that is not one of ``known``."""
        for key, _ in self.options:
            if key not in known:
                refuse_removed(self.parameter, key)
                options = f"with options among {', '.join(known)}" if known else "without options"
                raise self.refuse(f"{self.name} {options} (not {key})")

    def option(self, key: str) -> str | None:
        """Return the value of an option, or None; refuse one that is given twice."""
        values = self.option_values(key)
        if len(values) > 1:
            raise self.refuse(f"with one {key}= (not {' and '.join(values)})")
        return values[0] if values else None

    def option_values(self, key: str) -> tuple[str, ...]:
        """Return every value of an option, in the order given."""
        return tuple(value for name, value in self.options if name == key)
