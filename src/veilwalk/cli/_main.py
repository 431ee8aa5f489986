"""The ``veilwalk`` command: verbs, exit codes, and one line for anything that goes wrong.

Exit codes: 0 all is well; 1 the check asked for failed; 2 usage, parameters or input files; 3 peer or protocol;
4 storage; 70 a fault of ours (the only case that shows a traceback); 130 interrupted.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Annotated

import typer

from veilwalk import __version__
from veilwalk.cli import _audit, _cluster, _design, _graph, _keys, _node, _paper, _roster, _train
from veilwalk.cli._output import help_without_verb
from veilwalk.core.errors import VeilwalkError

# Typer's base of all usage errors has no public name of its own.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(name="veilwalk", add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
app.command("design")(_design.design)
app.command("audit")(_audit.audit)
app.command("train")(_train.train)
app.add_typer(_cluster.app, name="cluster")
app.add_typer(_graph.app, name="graph")
app.add_typer(_keys.app, name="keys")
app.add_typer(_node.app, name="node")
app.add_typer(_paper.app, name="paper")
app.add_typer(_roster.app, name="roster")


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Train a model across a network of peers so that no receiver can tell whose update it got.

    train learns over a simulated network and shows what was gained, what it cost and what leaks; design chooses how
    destinations are drawn, and says what that guarantees and costs; audit attacks a design and reports what really
    leaks; graph looks at a network; paper has the paper's figures and claims, printed and corrected.

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
    except VeilwalkError as error:
        code = _complain(str(error), error.exit_code)
    except _UsageError as error:
        # Its own formatting names the parameter; str() does not.
        message = getattr(error, "format_message", error.__str__)()
        code = _complain(f"{message} (--help says more)", 2)
    except (typer.Abort, KeyboardInterrupt):
        code = _complain("interrupted", 130)
    except BrokenPipeError:
        # The reader (head, less) went away: that is its right. Keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except MemoryError:
        code = _complain("not enough memory for this graph; try a smaller one", 2)
    except Exception:  # noqa: BLE001  whatever is left is our own fault, and its traceback is for us
        traceback.print_exc()
        code = _complain("this is a fault in veilwalk; please report it with the lines above", 70)
    return code if isinstance(code, int) else 0


def _complain(message: str, code: int) -> int:
    # One line, whatever the message held.
    typer.echo("veilwalk: " + " ".join(message.split()), err=True)
    return code
