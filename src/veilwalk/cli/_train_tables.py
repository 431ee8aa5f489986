"""What ``veilwalk train`` prints: what was gained, what it cost, what leaks, and what became of spoilt models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from veilwalk.cli._output import print_table, say
from veilwalk.core.units import readable_bytes

if TYPE_CHECKING:
    from veilwalk.core.records import Record


def print_training(record: Record) -> None:
    """Print one table of what was gained, what it cost and what leaks; then the attacks, and what is not protected."""
    from veilwalk.core.records import score_of

    result, params = record.result, record.params
    noisy = result["privacy"]
    rows = [_algorithm_row(name, found, noisy, result["equal_hops"]) for name, found in result["algorithms"].items()]
    print_table(
        f"{params['data']} over {params['graph']} ({result['network']['nodes']} peers), {params['partition']}, "
        f"{params['learner']}",
        (
            "algorithm",
            f">{score_of(result['algorithms']['private-walk']['points'][-1])[0]}",
            f">at {result['equal_hops']} hops",
            ">hops/update",
            ">bytes/update",
            ">entropy, nats",
            ">named (blind)",
            *([f">epsilon ({noisy['against']})"] if noisy else []),
        ),
        rows,
    )
    route = result["algorithms"]["private-walk"]["anonymity"]
    bits = route["node_entropy_bits"]
    say(
        f"Node entropy ({bits:.3f} bits for the private walk) of the receiver's posterior over who made the update, "
        f"and how often its first guess names the maker: {route['kind']}; "
        f"sealed for {params['recipients']}, law {params['law']}, {params['walk']} walk."
    )
    told = (_ended(result), _baseline(result), _received(result, params), _gossip(result), _privacy(result))
    for line in (*told, _membership(result), _tokens(result, params)):
        if line:
            say(line)
    say()
    if result["content_attack"]:
        _print_content(result["content_attack"], params["partition"])
    for warning in result["warnings"]:
        say(f"warning: {warning}")


def _algorithm_row(name: str, found: dict[str, Any], noisy: dict[str, Any] | None, hops: int) -> tuple[str, ...]:
    leak = found["anonymity"]
    epsilon = []
    if noisy:
        known = noisy["algorithms"].get(name, {}).get("epsilon_sender_known")
        epsilon = ["-" if known is None else f"{known:.3g}"]
    return (
        name,
        _score(found["points"][-1]),
        _score([point for point in found["points"] if point["hops"] <= hops][-1]) if found["hops"] else "-",
        f"{found['hops_per_update']:.1f}",
        readable_bytes(found["bytes_per_update"]),
        f"{leak['node_entropy_nats']:.3f}",
        f"{_share(leak['hit_ratio'], 2)} ({_share(leak['blind_hit_ratio'], 2)})",
        *epsilon,
    )


def _ended(result: Mapping[str, Any]) -> str:
    """Say why runs ended, unless they just made all their updates."""
    early = {name: found["reason"] for name, found in result["algorithms"].items()}
    told = [f"{name} after {result['algorithms'][name]['updates']} updates: {why}" for name, why in early.items()]
    return "" if set(early.values()) == {"all updates made"} else "Ended: " + "; ".join(told) + "."


def _baseline(result: Mapping[str, Any]) -> str:
    # Records of before do not say it.
    share = result["data"].get("commonest_class_share")
    return "" if share is None else f"Always saying the commonest class would be right for {_share(share)}."


def _received(result: Mapping[str, Any], params: Mapping[str, Any]) -> str:
    """Say what nodes that test what they receive have refused."""
    found = result["algorithms"]["private-walk"].get("received")
    if not found:
        return ""
    poison = params.get("poison", "none")
    who = "" if poison == "none" else f"{_share(params.get('poisoners', 0.1), 0)} of the nodes send {poison}. "
    spoilt = found["refused_poisoned"] + found["accepted_poisoned"]
    of_spoilt = f"{found['refused_poisoned']} of {spoilt} spoilt models and " if spoilt else ""
    return (
        f"{who}Tests ({params.get('accept', 'none')}) of the private walk refused {of_spoilt}{found['refused_honest']} "
        f"honest ones; {found['newer_held']} times a node went on with a newer model that it held. The model has had "
        f"{found['age']} updates. Walks only: gossip and central training are neither tested nor spoilt."
    )


def _gossip(result: Mapping[str, Any]) -> str:
    found = result["algorithms"].get("gossip")
    if not found or not found["single_models"]:
        return ""
    single = found["single_models"]["mean_accuracy"]
    return f"Gossip's accuracy is that of the average of all models, which no peer holds; single ones: {single:.1%}."


def _privacy(result: Mapping[str, Any]) -> str:
    found = result["privacy"]
    return str(found["sentence"]) if found else ""


def _membership(result: Mapping[str, Any]) -> str:
    """Say how well a threshold on the loss tells rows that a maker trained on from rows held out."""
    found = {name: one for name, one in (result.get("membership") or {}).items() if one is not None}
    told = [f"{name} {one['auc']:.3f} ({one['updates']} models)" for name, one in found.items()]
    return (
        f"Membership inference by a threshold on the loss, mean area under the curve: {', '.join(told)}."
        if told
        else ""
    )


def _tokens(result: Mapping[str, Any], params: Mapping[str, Any]) -> str:
    if params["tokens"] == 1:
        return ""
    from veilwalk.core.records import score_of

    found = result["algorithms"]["private-walk"]
    single = found["single_models"]
    last = found["points"][-1]
    alone, chosen = _share(single["mean_accuracy"] if single else None), last["chosen"]
    return (
        f"{params['tokens']} tokens train each for itself. Of their ends and their mean the one with the least loss on "
        f"the held-out rows is handed out: {'the mean' if chosen == 'mean' else chosen}, {score_of(last)[0]} "
        f"{_score(last)} (single ones on average {alone}). "
        f"{found['seconds_modelled_per_update']:.2f} modelled seconds per update. "
        f"Entropy is {found['anonymity']['tokens']}."
    )


def _print_content(rows: list[dict[str, Any]], partition: str) -> None:
    print_table(
        f"what content gives away ({rows[0]['deliveries']} deliveries; {partition})",
        ("attacker", ">names maker", ">95% interval", ">entropy, nats", "granted"),
        [
            (
                row["attacker"],
                f"{row['hit_ratio']:.2%}",
                "{:.2%} to {:.2%}".format(*row["hit_ratio_interval"]),
                f"{row['node_entropy_nats']:.3f}",
                row.get("granted", "-"),
            )
            for row in rows
        ],
    )
    say(
        "Strongest first; data: every candidate's. gradient: the very update, held against the one each candidate"
        " would have made; that takes the model before it, which its predecessor holds, and whoever colludes with"
        " it. step: how far each candidate's loss fell, with the same grant. count: how often each candidate took"
        " part since the receiver's own last model, with drop; the receiver can do it alone. drop: how far the "
        "loss fell since then. loss: of the received model, lowest first."
    )


def _score(point: Mapping[str, Any]) -> str:
    from veilwalk.core.records import score_of

    name, value = score_of(point)
    return _share(value) if name == "accuracy" else f"{value:.3f}"


def _share(value: float | None, digits: int = 1) -> str:
    if value is None:
        return "-"
    return "100%" if value == 1.0 else f"{value:.{digits}%}"
