"""The ``veilwalk`` command: verbs, exit codes, and one line for anything that goes wrong.

Exit codes: 0 all is well; 1 the check asked for failed; 2 usage, parameters or input files; 3 peer or protocol;
4 storage; 70 a fault of ours (the only case that shows a traceback); 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from typing import Annotated, Any

import typer

from veilwalk.cli import (
    _audit,
    _cluster_care,
    _design,
    _doctor,
    _export,
    _first,
    _graph,
    _keys,
    _node_care,
    _paper,
    _predict,
    _roster_changes,
    _sweep,
    _train,
    _watch,
)
from veilwalk.cli._output import help_without_verb
from veilwalk.core.errors import InvalidParameterError, VeilwalkError
from veilwalk.core.version import __version__

_INTERRUPTED = 130
# A disk that is full refuses a write to a file that is open, too, and then names none.
_FULL = {errno.ENOSPC: 4, errno.EDQUOT: 4}
# What a system refuses of a path that it is given, each with its exit code: that is nobody's fault here.
_REFUSED_PATHS = {errno.EACCES: 2, errno.ENAMETOOLONG: 2, errno.ELOOP: 2, errno.EROFS: 4, **_FULL}
# Parameters whose flags have other names.
_FLAGS = {
    "window_radius": "window",
    "tail_probability": "tail",
    "support lo": "support",
    "memory_bytes": "memory",
    "n_nodes": "nodes",
    "n_features": "features",
    "n_classes": "classes",
    "dwell_s": "dwell",
    "hop_s": "hop",
    "away_s": "away",
    "spare_s": "spare",
}
# Typer's base of all usage errors has no public name of its own.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="veilwalk",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(_first.demo)
app.command("init")(_first.init)
app.command("doctor")(_doctor.doctor)
app.command("design")(_design.design)
app.command("audit")(_audit.audit)
app.command("train")(_train.train)
app.command("sweep")(_sweep.sweep)
app.command("export")(_export.export)
app.command("predict")(_predict.predict)
app.command("watch")(_watch.watch)
app.add_typer(_cluster_care.app, name="cluster")
app.add_typer(_graph.app, name="graph")
app.add_typer(_keys.app, name="keys")
app.add_typer(_node_care.app, name="node")
app.add_typer(_paper.app, name="paper")
app.add_typer(_roster_changes.app, name="roster")


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Train a model across a network of peers so that no receiver can tell whose update it got.

    demo shows it on data that come with the package; init writes settings for your own; doctor looks at this machine.

    train learns over a simulated network and shows what was gained, what it cost and what leaks; design chooses how
    destinations are drawn, and says what that guarantees and costs; audit attacks a design and reports what really
    leaks; sweep does any of these over a grid of settings; watch shows a run in the browser, live or afterwards; export
    writes a trained model to a file; predict says what it makes of rows; graph looks at a network; paper has the
    paper's figures and claims, printed and corrected.

    cluster runs many real nodes on this machine; node runs one among real peers; keys makes and renews a member's
    keys; roster says, signed, who belongs.

    Exit codes: 0 all is well; 1 the check asked for failed; 2 usage, parameters or input files; 3 peer or protocol;
    4 storage; 70 a fault of ours; 130 interrupted.
    """
    if version:
        typer.echo(f"veilwalk {__version__}")
        raise typer.Exit
    help_without_verb(context)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with a documented code."""
    sys.exit(_run(arguments))


def _run(arguments: list[str] | None) -> int:
    try:
        code = app(args=arguments, standalone_mode=False)
        # Typer makes this code of an interrupt, and says nothing; nobody else ends with it.
        if code == _INTERRUPTED:
            code = _complain("interrupted", _INTERRUPTED)
    except InvalidParameterError as error:
        given = "is not given" if error.value is None else f"= {error.value!r}"
        code = _complain(f"{_flag(error.name, arguments)} {given}: must be {error.need}", error.exit_code)
    except VeilwalkError as error:
        code = _complain(str(error), error.exit_code)
    except _UsageError as error:
        # Its own formatting names the parameter; str() does not.
        message = getattr(error, "format_message", error.__str__)()
        code = _complain(f"{message} (--help says more)", 2)
    except (typer.Abort, KeyboardInterrupt):
        code = _complain("interrupted", _INTERRUPTED)
    except BrokenPipeError:
        # The reader (head, less) went away: that is its right. Keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except MemoryError:
        code = _complain("not enough memory for this graph; try a smaller one", 2)
    except Exception as error:  # noqa: BLE001  whatever is left is our own fault, and its traceback is for us
        code = _unforeseen(error)
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


def _flag(parameter: str, arguments: list[str] | None) -> str:
    """Return the flag that sets a parameter of the verb that was called, or the parameter where there is none."""
    command: Any = typer.main.get_command(app)
    for word in sys.argv[1:] if arguments is None else arguments:
        command = getattr(command, "commands", {}).get(word, command)
    known = {option for each in command.params for option in each.opts}
    name = _FLAGS.get(parameter, parameter)
    flag = "--" + name.replace("_", "-").replace(" ", "-")
    return flag if flag in known else parameter


def _complain(message: str, code: int) -> int:
    # One line, whatever the message held.
    typer.echo("veilwalk: " + " ".join(message.split()), err=True)
    return code
