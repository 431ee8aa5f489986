"""The ``veilwalk`` command: verbs, exit codes, and one line for anything that goes wrong.

Exit codes: 0 all is well; 1 the check asked for failed; 2 usage, parameters or input files; 3 peer or protocol;
4 storage; 70 a fault of ours (the only case that shows a traceback); 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from itertools import pairwise
from typing import Annotated, Any

import typer

from veilwalk.cli import _audit, _cluster, _design, _doctor, _figures, _keys, _models, _node, _roster, _train
from veilwalk.cli._interrupt import GUARD, INTERRUPTED
from veilwalk.cli._output import help_without_verb
from veilwalk.core.errors import InvalidParameterError, VeilwalkError
from veilwalk.core.validate import MOVED_FLAGS
from veilwalk.core.version import __version__

# A disk that is full refuses a write to a file that is open, too, and then names none.
_FULL = {errno.ENOSPC: 4, errno.EDQUOT: 4}
# What a system refuses of a path that it is given, each with its exit code: that is nobody's fault here.
_REFUSED_PATHS = {errno.EACCES: 2, errno.ENAMETOOLONG: 2, errno.ELOOP: 2, errno.EROFS: 4, **_FULL}
#: What a flag needs, by a word of the library that reads it.
_NEEDS = {"integer": "a whole number", "number": "a number", "boolean": "true or false"}
# What libraries add to a message: NumPy's advice to load a file unsafely, and a place that is named already.
_NOISE = re.compile(r"(: | \()This file contains pickled.*|( \([^()]+\))(?=\2)", re.DOTALL)
# Typer's base of all usage errors has no public name of its own.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="veilwalk",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_VERBS = (
    *(_train.demo, _train.init, _doctor.doctor, _design.recommend, _design.design, _figures.frontier, _audit.audit),
    *(_train.train, _figures.sweep, _models.export, _models.predict, _models.watch),
)
for verb in _VERBS:
    app.command(verb.__name__)(verb)
_GROUPS = {"cluster": _cluster, "graph": _design, "keys": _keys, "node": _node, "paper": _figures, "roster": _roster}
for name, module in _GROUPS.items():
    app.add_typer(module.app, name=name)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Train a model across a network of peers so that a receiver can hardly tell whose update it got.

    demo shows it on data that come with the package; init writes settings for your own; doctor looks at this machine.

    train learns over a simulated network and shows what was gained, what it cost and what leaks; recommend says what
    to use on your network; design makes a law for it, with its guarantee and its price; frontier compares laws; audit
    attacks a scheme and reports what really leaks; sweep does these over a grid of settings; watch shows a run in the
    browser; export writes a trained model to a file; predict applies it to rows; graph describes a network; paper has
    the paper's law, figures and claims, printed and corrected.

    cluster runs many real nodes on this machine; node runs one among real peers; keys makes and renews a member's
    keys; roster is the signed list of members.

    Exit codes: 0 all is well; 1 the check asked for failed; 2 usage, parameters or input files; 3 peer or protocol;
    4 storage; 70 a fault of ours; 130 interrupted.
    """
    if version:
        typer.echo(f"veilwalk {__version__}")
        raise typer.Exit
    help_without_verb(context)


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit code; an error is one line on standard error."""
    try:
        code = app(args=arguments, standalone_mode=False)
        # Typer makes this code of an interrupt, and says nothing; nobody else ends with it.
        if code == INTERRUPTED:
            code = GUARD.report()
    except InvalidParameterError as error:
        value = "is not given" if error.value is None else f"= {error.value!r}"
        code = _complain(f"{_flag(error.name, arguments)} {value}: must be {error.need}", error.exit_code)
    except VeilwalkError as error:
        code = _complain(str(error), error.exit_code)
    except _UsageError as error:
        code = _complain(_describe_usage(error, arguments), 2)
    except (typer.Abort, KeyboardInterrupt):
        code = GUARD.report()
    except BrokenPipeError:
        # The reader (head, less) went away: that is its right. Keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except MemoryError:
        code = _complain("not enough memory for this graph; try a smaller one", 2)
    except Exception as error:  # noqa: BLE001  whatever is left is our own fault, and its traceback is for us
        code = GUARD.report() if GUARD.is_signalled else _unforeseen(error)
    return code if isinstance(code, int) else 0


def _unforeseen(error: Exception) -> int:
    if isinstance(error, OSError) and error.errno in _REFUSED_PATHS and (error.filename or error.errno in _FULL):
        where = f"{error.filename}: " if error.filename else ""
        return _complain(f"{where}{error.strerror}", _REFUSED_PATHS[error.errno])
    if isinstance(error, RuntimeError) and "cannot cache function" in str(error):
        # As in a read-only container without a home.
        return _complain("numba has nowhere to keep compiled kernels: set NUMBA_CACHE_DIR to a writable folder", 4)
    traceback.print_exception(error)
    return _complain("this is a fault in veilwalk; please report it with the lines above", 70)


def _describe_usage(error: Any, arguments: list[str]) -> str:
    """Return our own words for a usage error; the library's where we have none."""
    moved, parameter = MOVED_FLAGS.get(error.ctx.info_name if error.ctx else "", {}), getattr(error, "param", None)
    flag = getattr(error, "option_name", None) or next((word for word in arguments if word in moved), None)
    if flag in moved:
        return f"{flag} {moved[flag]}"
    # Its own formatting names the parameter; str() does not.
    message = str(getattr(error, "format_message", error.__str__)())
    need = next((need for word, need in _NEEDS.items() if word in message), None)
    if parameter is None or (need is None and not message.startswith("Missing")):
        return f"{message[0].lower()}{message[1:].removesuffix('.')} (--help says more)"
    name = parameter.opts[-1] if parameter.param_type_name == "option" else parameter.metavar or parameter.name
    if need is None:
        return f"{name} is not given (--help says more)"
    texts = [after for word, after in pairwise([*arguments, ""]) if word in parameter.opts]
    texts += [word.partition("=")[2] for word in arguments if word.partition("=")[0] in parameter.opts and "=" in word]
    if texts and f"{name} {texts[-1]}" in moved:
        return f"{name} {texts[-1]} {moved[f'{name} {texts[-1]}']}"
    return f"{name}{f' = {texts[-1]!r}' if texts else ''}: must be {need}"


def _flag(parameter: str, arguments: list[str]) -> str:
    """Return the flag that sets a parameter of the verb that was called, or the parameter where there is none."""
    command: Any = typer.main.get_command(app)
    for word in arguments:
        command = getattr(command, "commands", {}).get(word, command)
    known = {flag for each in command.params for flag in each.opts}
    # A parameter may say more than its flag: n_nodes, dwell_s, window_radius, support lo.
    words = parameter.replace("_", " ").split()
    candidates = (f"--{'-'.join(part)}" for part in (words, words[:-1], words[1:]))
    return next((flag for flag in candidates if flag in known), parameter)


def _complain(message: str, code: int) -> int:
    # One line, whatever the message held.
    typer.echo("veilwalk: " + " ".join(_NOISE.sub("", message).split()), err=True)
    return code
