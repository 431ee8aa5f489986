"""``veilwalk design --recipients``: sealed for several. What that costs and hides, and for how many to seal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from veilwalk.cli._output import drawn_or_kept, live_progress, print_table, say
from veilwalk.core.errors import ConfigError, InvalidParameterError
from veilwalk.core.records import plain
from veilwalk.core.units import nats_and_bits, readable_bytes
from veilwalk.core.walk import Walk

if TYPE_CHECKING:
    from veilwalk.core.records import Record
    from veilwalk.core.stats import Estimate
    from veilwalk.core.support import DistanceSupport
    from veilwalk.design import Sealing, Several
    from veilwalk.graphs import Graph

_SUFFIXES = {".json", ".npz"}


def design_recipients(
    graph: Graph,
    *,
    recipients: str | None,
    keep: float | None,
    law: str | None,
    walk: str | None,
    support: DistanceSupport | None,
    sealing: Sealing,
    out: Path | None,
    as_json: bool,
) -> None:
    """Look at one number of recipients, or choose it."""
    if recipients == "auto":
        if law is not None or support is not None:
            raise ConfigError("--recipients auto chooses among the laws far:R: leave --law and --support out")
        _choose(graph, keep, walk, sealing, out, as_json=as_json)
        return
    if keep is not None:
        raise ConfigError("--keep is the floor of --recipients auto")
    asked = {"recipients": _count(recipients), "walk": walk, "support": support, "sealing": sealing}
    _look(graph, law, asked, out, as_json=as_json)


def _count(recipients: str | None) -> int | None:
    if recipients is None:
        return None
    try:
        return int(recipients)
    except ValueError:
        raise InvalidParameterError("recipients", recipients, "a number of recipients, or auto") from None


def _look(graph: Graph, law: str | None, asked: dict[str, Any], out: Path | None, *, as_json: bool) -> None:
    from veilwalk.design import design_several, save_scheme

    with live_progress() as progress:
        progress("walking")
        found = design_several(graph, law, **asked)
    if out is not None:
        save_scheme(out, found.scheme)
    if as_json:
        typer.echo(json.dumps(plain(found.to_dict()), indent=2, allow_nan=False))
        return
    print_several(found)
    if out is not None:
        typer.echo(f"wrote {out}")
    if warning := found.scheme.relay_warning():
        say(f"warning: {warning}")


def _choose(
    graph: Graph, keep: float | None, walk: str | None, sealing: Sealing, out: Path | None, *, as_json: bool
) -> None:
    from veilwalk.design import KEEP, look_at, recipients_frontier, save_scheme

    walks = None if walk is None else [Walk.parse(kind) for kind in walk.split(",")]
    floor = KEEP if keep is None else keep
    with live_progress() as progress:
        found = recipients_frontier(graph, keep=floor, walks=walks, sealing=sealing, progress=progress)
        progress("the best of them, at length")
        best = look_at(found.best.scheme, sealing)
    record = found.record()
    written: list[Path] = []
    if out is not None:
        alone = out.suffix in _SUFFIXES
        place = out if alone else out / "scheme.npz"
        save_scheme(place, best.scheme)
        written = [place]
        if not alone:
            written += drawn_or_kept("recipients_files", record, out / "frontier.json")
    if as_json:
        content = record.to_dict() | {"design": best.to_dict()}
        typer.echo(json.dumps(plain(content), indent=2, allow_nan=False))
        return
    print_recipients(record)
    print_several(best)
    for path in written:
        typer.echo(f"wrote {path}")


def print_several(found: Several) -> None:
    """Print what is known about a scheme that seals for several."""
    scheme, hidden, sealing = found.scheme, found.hidden, found.sealing
    few, many = int(scheme.law.n_choices.min()), int(scheme.law.n_choices.max())
    title = (
        f"sealed for {scheme.recipients}, law {scheme.law.name}, {scheme.walk} walk, {scheme.graph.n_nodes} nodes, "
        f"{few if few == many else f'{few} to {many}'} eligible"
    )
    length = sealing.message_bytes(scheme.recipients)
    last, alone = hidden.last_hop_nats, hidden.opener_nats
    interval = hidden.price.interval
    range_kind = "of all nodes" if alone is not None else "of classes by degree"
    rows = [
        ("price", f"{hidden.price.hops:.2f} hops per update", f"{_to(interval, '.2f')}{hidden.price.kind}"),
        (
            "",
            f"{readable_bytes(found.bytes_per_update)} per update",
            f"{length} bytes a hop: {sealing.suite}, a model of {sealing.model_bytes}",
        ),
        ("updates of one node", "{:.2f} to {:.2f}".format(*hidden.update_range), f"times the mean, {range_kind}"),
        (
            "node entropy",
            nats_and_bits(last.mean),
            f"opener with last hop, {_to(last.interval, '.4f')}{hidden.kind}",
        ),
        ("", f"{found.kept:.2%}", "of the log of all other nodes"),
    ]
    if alone is not None:
        rows.append(("", nats_and_bits(alone.mean), f"opener alone, {_to(alone.interval, '.4f')}estimated"))
    guesses = (
        ("opener's best guess", hidden.top_posterior, "opener with last hop, mean"),
        ("", hidden.worst_percent, "on the leakiest arcs that see 1% of deliveries"),
        ("", hidden.worst_arc, "on the leakiest arc"),
    )
    rows += [(what, f"{pair[0]:.2%} to {pair[1]:.2%}", who) for what, pair, who in guesses if pair is not None]
    if found.predecessor is not None:
        ahead = found.predecessor
        rows.append(("predecessor's best guess", _share(ahead.knows_set), "the source, of who opens: knows its set"))
        rows.append(("", _share(ahead.knows_first_hop), f"and to whom it handed the message; {ahead.kind}"))
    if (certain := scheme.certain_to_a_relay()) is not None:
        rows.append(("certain to a relay", f"{certain:.2%}", "of updates"))
    print_table(title, ("what", ">value", "kind"), rows)
    _print_colluders(found)


def _print_colluders(found: Several) -> None:
    print_table(
        "colluders at first sight: the first to get a message names who handed it over",
        (">collude", ">named", ">95% interval", ">times the floor"),
        [
            (
                f"{one.share:.1%}",
                f"{one.named.mean:.2%}",
                _range(one.named),
                f"{one.times_floor:.2f}",
            )
            for one in found.colluders
        ],
    )
    if found.hidden.top_posterior is not None:
        say(
            "best guesses: fitted on other walks, too low; and on the same, too high. Entropies are told less their "
            "bias of first order, by the jackknife."
        )
    say(
        "no routing keeps colluders below their share; first sight is the cheapest of their attacks: veilwalk audit "
        "has the strongest."
    )


def print_recipients(record: Record) -> None:
    """Print every choice that was looked at, and say which is best."""
    params, best = record.params, record.result["best"]
    print_table(
        f"sealed for several: {params['graph']}, floor {params['keep']:g} of log(N - 1), {params['suite']}, a model of "
        f"{params['model_bytes']} bytes",
        ("walk", "law", ">recipients", ">hops", ">bytes", ">entropy", ">kept", ""),
        [
            (
                row["walk"],
                row["law"],
                str(row["recipients"]),
                f"{row['mean_iteration_hops']:.1f}",
                readable_bytes(row["bytes_per_update"]),
                f"{row['node_entropy_nats']:.3f}",
                f"{row['node_entropy_kept']:.2%}",
                _mark(row, best),
            )
            for row in record.result["rows"]
        ],
    )
    what = f"sealed for {best['recipients']}, {best['law']}, {best['walk']}"
    if record.result["kept"]:
        say(f"best: {what}: the least bytes, up to a tenth, that keep the floor")
    else:
        say(
            f"nothing keeps {params['keep']:g} of log(N - 1): the network is too small or too badly connected; the "
            f"nearest, {what}, keeps {best['node_entropy_kept']:.1%}"
        )


def _mark(row: dict[str, Any], best: dict[str, Any]) -> str:
    same = all(row[name] == best[name] for name in ("walk", "law", "recipients"))
    return "best" if same else "keeps" if row["keeps"] else ""


def _to(interval: tuple[float, float] | None, form: str) -> str:
    return "" if interval is None else f"{interval[0]:{form}} to {interval[1]:{form}}, "


def _share(one: Estimate) -> str:
    return f"{one.mean:.2%} ({_range(one)})"


def _range(one: Estimate) -> str:
    """The interval of a share, which no share can lie outside of."""
    return f"{max(one.low, 0.0):.2%} to {min(one.high, 1.0):.2%}"
