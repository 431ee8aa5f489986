"""A dry start: everything a node needs, looked at one by one, and nothing started."""

from __future__ import annotations

import shutil
import socket
import ssl
import stat
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from veilwalk.core.errors import ConfigError, CryptoError, ProtocolError, SpoolError, TransportError, VeilwalkError
from veilwalk.core.findings import Finding
from veilwalk.node.cluster._manifest import check_members, measured_dwell
from veilwalk.node.link import dialing_context
from veilwalk.node.members import Member, NodeKeys, make_private_directory, spki_sha256
from veilwalk.node.peer import (
    MembershipFiles,
    NodeConfig,
    check_own_entry,
    host_and_port,
    is_owned,
    is_running,
    key_ring,
    law_of,
    learner_of,
    load_config,
    own_data,
    protection_of,
    public_test,
)
from veilwalk.node.spool import check_storage

if TYPE_CHECKING:
    from veilwalk.node.peer import Membership

T = TypeVar("T")

_DAY_S = 86400
# Room besides messages: the database, its log, and the models.
_ROOM_BYTES = 64 << 20
# A listener that does not know this node hangs up at once; one that does waits for what it has to say.
_TURNED_AWAY_S = 0.5


def check_node(path: Path, *, peers: bool = True, whole: bool = True) -> Iterator[Finding]:
    """Check everything that the node of ``node.toml`` needs, in the order of a start; most is checked in any case.

    With ``peers`` also whether its neighbours answer, by a TLS handshake with each. With ``whole`` also its run as a
    whole: whether everybody trains, and the dwell that this machine needs.
    """
    config = yield from _check("settings", lambda: load_config(path), lambda _: str(path))
    if config is None:
        return
    keys = yield from _check("keys", lambda: key_ring(config).load(), lambda loaded: f"of {loaded.id}")
    yield from _check("state", lambda: _check_state(config), lambda runs: "a node runs with it" if runs else "free")
    membership = yield from _check(
        "roster and manifest",
        lambda: MembershipFiles(config).load(),
        lambda read: f"roster version {read.roster.version}, {len(read.roster.ids)} members",
    )
    yield from _check("files", lambda: _refuse_loose(config), lambda _: "nobody else can read the data")
    if membership is None:
        return
    yield from _check_work(config, membership)
    if whole:
        yield from _check_run(config, membership)
    if keys is None:
        return
    opened = yield from _check("own entry", partial(_open_entry, config, keys, membership), lambda _: "as in the keys")
    if opened is None:
        return
    membership, entry = opened, opened.roster.member(keys.id)
    yield from _check("law", lambda: _count_targets(config, membership, keys.id), lambda n: f"seals for {n} members")
    yield from _check("disk", lambda: _find_room(config, membership, keys.id), lambda free: f"{free >> 20} MiB free")
    own = (entry.host, entry.port) if config.listen is None else host_and_port("listen", config.listen)
    ports = {"port": own} | ({} if config.metrics is None else {"metrics": host_and_port("metrics", config.metrics)})
    if own == ports.get("metrics"):
        yield Finding("fails", f"{config.metrics} is the address that neighbours call", name="metrics")
    for name, where in ports.items():
        yield from _check(name, partial(_check_port, *where, runs=is_running(config.state)), str)
    if peers:
        yield from _check_neighbours(keys, membership, config.limits.connect_s)


def _check(name: str, work: Callable[[], T], what: Callable[[T], str]) -> Generator[Finding, None, T | None]:
    """Yield the finding of one check, and return its result; None where it failed."""
    try:
        result = work()
    except VeilwalkError as error:
        yield Finding("fails", str(error), name=name)
        return None
    except OSError as error:
        # What the system refuses, as to look into somebody else's folder.
        yield Finding("fails", f"{error.filename}: {error.strerror}", name=name)
        return None
    yield Finding("ok", what(result), name=name)
    return result


def _check_work(config: NodeConfig, membership: Membership) -> Iterator[Finding]:
    """What is learnt: the signed learner, and data that fit it."""
    manifest, ends = membership.manifest, {"roster": membership.roster.expires, "manifest": membership.manifest.expires}
    days = {name: (end - time.time()) / _DAY_S for name, end in ends.items() if end is not None}
    ends_in = ", ".join(f"the {name} ends in {left:.1f} days" for name, left in days.items())
    yield Finding("ok" if min(days.values()) > 0 else "fails", f"by it {ends_in}", name="clock")
    yield from _check("learner", lambda: learner_of(manifest, consent=config.learner), lambda _: manifest.learner)
    yield from _check("data", lambda: own_data(config, manifest), lambda data: f"{len(data)} rows that fit")
    if manifest.test_digest:
        yield from _check("test set", lambda: public_test(config, manifest, manifest.rules), lambda _: "the signed one")


def _check_run(config: NodeConfig, membership: Membership) -> Iterator[Finding]:
    """Check the run as a whole: its network, and whether this machine keeps its pace."""
    manifest = membership.manifest
    try:
        idle, crowd = check_members(manifest, membership.roster, config.law)
        state, what = ("fails", idle) if idle else ("note", crowd) if crowd else ("ok", "everybody trains")
        yield Finding(state, what, "tell the keeper" if idle else "", name="network")
        rules, learner = manifest.rules, learner_of(manifest, consent=config.learner)
        protection, data = protection_of(rules), own_data(config, manifest)
        needed = measured_dwell(learner, data, protection, tested=rules.max_loss_ratio > 0)
    except VeilwalkError as error:
        yield Finding("fails", str(error), name="run")
        return
    what = f"this machine needs {needed:g} s for its data, the run has {rules.dwell_s:g} s"
    if not rules.dwell_s:
        yield Finding("note", f"{what}: who trained shows in the time it takes", name="dwell")
    else:
        # No fault: a trial on a busy machine takes longer, and what does not fit is counted.
        cure = "" if needed <= rules.dwell_s else f"tell the keeper (--dwell {needed:g})"
        yield Finding("note" if cure else "ok", what, cure, name="dwell")


def _check_state(config: NodeConfig) -> bool:
    make_private_directory(config.state)
    check_storage(config.state)
    return is_running(config.state)


def _open_entry(config: NodeConfig, keys: NodeKeys, membership: Membership) -> Membership:
    is_owned(config.state, keys.id)
    opened = membership.open_row(keys)
    check_own_entry(keys, opened.roster)
    return opened


def _count_targets(config: NodeConfig, membership: Membership, node: str) -> int:
    roster = membership.roster
    law = law_of(membership.manifest, roster, node, file=config.law, state=config.state)
    left_out = law.left_out(roster)
    if left_out:
        raise ConfigError(
            f"the law does not name {', '.join(left_out)}: nobody seals for them; sign one by rule (far:R)"
        )
    row = law.row(roster, node)
    return len(roster.foreign_keys(roster.epoch_at(time.time())) if roster.is_overlay else row.members)


def _refuse_loose(config: NodeConfig) -> None:
    """Refuse data that others on this machine may read; keys refuse that themselves."""
    mode = stat.S_IMODE(config.data.stat().st_mode)
    if mode & 0o077:
        raise SpoolError(f"data {config.data}: mode {mode:03o} lets others in; do: chmod 600 {config.data}")


def _find_room(config: NodeConfig, membership: Membership, node: str) -> int:
    """Return the bytes free on the disk of the state: enough for as many messages as neighbours may bring."""
    message = membership.manifest.message_bytes
    need = _ROOM_BYTES + 2 * config.limits.quota * (len(membership.roster.neighbours(node)) + 1) * message
    free = shutil.disk_usage(config.state).free
    if free < need:
        raise SpoolError(f"{config.state}: {free >> 20} MiB free, {need >> 20} may be needed")
    return free


def _check_port(host: str, port: int, *, runs: bool) -> str:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
    except OSError as error:
        if runs:
            return f"{host}:{port} in use, as by a node that runs"
        raise TransportError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    if runs:
        raise TransportError(f"a node runs, and does not listen on {host}:{port}")
    return f"{host}:{port} free"


def _check_neighbours(keys: NodeKeys, membership: Membership, timeout_s: float) -> Iterator[Finding]:
    roster = membership.roster
    members = [roster.member(name) for name in roster.neighbours(keys.id)]
    with ThreadPoolExecutor(max(1, len(members))) as pool:
        answers = [
            pool.submit(_shake_hands, dialing_context(keys, roster.trust_anchors([member.id])), member, timeout_s)
            for member in members
        ]
        for member, answer in zip(members, answers, strict=True):
            yield from _check(f"neighbour {member.id}", answer.result, str)


def _shake_hands(context: ssl.SSLContext, member: Member, timeout_s: float) -> str:
    """Shake hands as a link would, and go away without a word."""
    try:
        with (
            socket.create_connection((member.host, member.port), timeout=timeout_s) as plain,
            context.wrap_socket(plain) as secured,
        ):
            if spki_sha256(secured.getpeercert(binary_form=True) or b"") != member.tls_spki_sha256:
                raise ProtocolError(f"{member.address} shows another TLS key than the roster's")
            secured.settimeout(_TURNED_AWAY_S)
            try:
                if not secured.recv(1):
                    raise ProtocolError(f"{member.address} does not know this node: has it the same roster?")
            except TimeoutError:
                pass
    except (OSError, CryptoError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise TransportError(f"{member.address}: {reason}") from None
    return f"{member.address} answers"
