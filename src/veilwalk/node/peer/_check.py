"""A dry start: everything a node needs, looked at one by one, and nothing started."""

from __future__ import annotations

import shutil
import socket
import ssl
import stat
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from veilwalk.core.errors import ConfigError, CryptoError, ProtocolError, SpoolError, TransportError, VeilwalkError
from veilwalk.node.link import dialing_context
from veilwalk.node.members import Member, NodeKeys, make_private_directory, spki_sha256
from veilwalk.node.peer._assemble import (
    check_own_entry,
    is_owned,
    key_ring,
    learner_of,
    membership_files,
    own_data,
    public_test,
)
from veilwalk.node.peer._config import NodeConfig, host_and_port, load_config, load_configs
from veilwalk.node.peer._drain import is_running
from veilwalk.node.peer._law_files import law_of
from veilwalk.node.peer._membership import Membership
from veilwalk.node.spool import check_storage

T = TypeVar("T")

_DAY_S = 86400
# Room besides messages: the database, its log, and the models.
_ROOM_BYTES = 64 << 20
# A listener that does not know this node hangs up at once; one that does waits for what it has to say.
_TURNED_AWAY_S = 0.5


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: whether it is as it must be, and how it is."""

    name: str
    ok: bool
    what: str


def check_node(path: Path, *, run: str | None = None, peers: bool = True) -> Iterator[Finding]:
    """Look at everything that the node of ``node.toml`` needs, in the order of a start; most is looked at in any case.

    Args:
        path: ``node.toml``.
        run: Only what this one of its runs needs.
        peers: Also whether its neighbours answer, by a TLS handshake with each.
    """
    configs = yield from _look("settings", lambda: _settings(path, run), lambda _: str(path))
    if configs is None:
        return
    keys = yield from _look("keys", lambda: key_ring(configs[0]).load(), lambda found: f"of {found.id}")
    fits = None
    for config in configs:
        fits = (yield from _named(config.name, _check_run(config, keys))) or fits
    if keys is None or fits is None:
        return
    # All runs have the same port and neighbours; a node is up if any of its runs is.
    entry, listen, metrics = fits.roster.member(keys.id), configs[0].listen, configs[0].metrics
    own = (entry.host, entry.port) if listen is None else host_and_port("listen", listen)
    ports = {"port": own} | ({} if metrics is None else {"metrics": host_and_port("metrics", metrics)})
    runs = any(is_running(one.state) for one in load_configs(path))
    if metrics is not None and own == ports["metrics"]:
        yield Finding("metrics", ok=False, what=f"{metrics} is the address that neighbours call")
    for name, where in ports.items():
        yield from _look(name, partial(_free_port, *where, runs=runs), lambda what: what)
    if peers:
        yield from _neighbours(keys, fits, configs[0].limits.connect_s)


def _settings(path: Path, run: str | None) -> tuple[NodeConfig, ...]:
    return load_configs(path) if run is None else (load_config(path, run),)


def _named(run: str, findings: Generator[Finding, None, T]) -> Generator[Finding, None, T]:
    """Say of which run these are, where it has a name."""
    while True:
        try:
            found = next(findings)
        except StopIteration as end:
            value: T = end.value
            return value
        yield replace(found, name=f"{run}: {found.name}") if run else found


def _check_run(config: NodeConfig, keys: NodeKeys | None) -> Generator[Finding, None, Membership | None]:
    """Look at what one run needs; return its signed files, if this node has its place in them."""
    yield from _look("state", lambda: _state(config), lambda runs: "a node runs with it" if runs else "free")
    membership = yield from _look("roster and manifest", lambda: membership_files(config).load(), _versions)
    yield from _look("files", lambda: _private(config), lambda _: "nobody else can read the data")
    if membership is None:
        return None
    yield from _work(config, membership)
    if keys is None:
        return None
    entry = yield from _look("own entry", lambda: _entry(config, keys, membership), lambda _: "keys and roster agree")
    if entry is None:
        return None
    yield from _look("law", lambda: _law(config, membership, keys.id), lambda reach: f"seals for {reach} members")
    yield from _look("disk", lambda: _room(config, membership, keys.id), lambda free: f"{free >> 20} MiB free")
    return membership


def _look(name: str, work: Callable[[], T], what: Callable[[T], str]) -> Generator[Finding, None, T | None]:
    try:
        found = work()
    except VeilwalkError as error:
        yield Finding(name, ok=False, what=str(error))
        return None
    except OSError as error:
        # What the system refuses, as to look into somebody else's folder.
        yield Finding(name, ok=False, what=f"{error.filename}: {error.strerror}")
        return None
    yield Finding(name, ok=True, what=what(found))
    return found


def _work(config: NodeConfig, membership: Membership) -> Iterator[Finding]:
    """What is learnt: the signed learner, and data that fit it."""
    manifest, ends = membership.manifest, {"roster": membership.roster.expires, "manifest": membership.manifest.expires}
    days = {name: (end - time.time()) / _DAY_S for name, end in ends.items() if end is not None}
    told = ", ".join(f"the {name} ends in {left:.1f} days" for name, left in days.items())
    rules = manifest.rules
    yield Finding("clock", ok=min(days.values()) > 0, what=f"by it {told}")
    yield from _look("learner", lambda: learner_of(manifest, consent=config.learner), lambda _: manifest.learner)
    yield from _look("data", lambda: own_data(config, manifest), lambda data: f"{len(data)} rows that fit")
    if manifest.test_digest:
        yield from _look("test set", lambda: public_test(config, manifest, rules), lambda _: "the signed one")


def _versions(membership: Membership) -> str:
    roster = membership.roster
    return f"roster version {roster.version}, epoch {roster.epoch}, {len(roster.members)} members"


def _state(config: NodeConfig) -> bool:
    make_private_directory(config.state)
    check_storage(config.state)
    return is_running(config.state)


def _entry(config: NodeConfig, keys: NodeKeys, membership: Membership) -> Member:
    is_owned(config.state, keys.id)
    check_own_entry(keys, membership.roster)
    return membership.roster.member(keys.id)


def _law(config: NodeConfig, membership: Membership, node: str) -> int:
    roster = membership.roster
    law = law_of(membership.manifest, roster, node, file=config.law, state=config.state)
    left_out = law.left_out(roster)
    if left_out:
        raise ConfigError(
            f"the law does not name {', '.join(left_out)}: nobody seals for them; sign one by rule (far:R)"
        )
    return len(law.on(roster, node).members)


def _private(config: NodeConfig) -> None:
    """Refuse data that others on this machine may read; keys refuse that themselves."""
    try:
        mode = config.data.stat().st_mode
    except OSError as error:
        raise SpoolError(f"data {config.data}: {error.strerror or error}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise SpoolError(
            f"data {config.data}: mode {stat.S_IMODE(mode):03o} lets others in; do: chmod 600 {config.data}"
        )


def _room(config: NodeConfig, membership: Membership, node: str) -> int:
    """Return the bytes free on the disk of the state: enough for as many messages as neighbours may bring."""
    message = membership.roster.seal_context(membership.manifest).message_bytes
    need = _ROOM_BYTES + 2 * config.limits.quota * (len(membership.roster.neighbours(node)) + 1) * message
    free = shutil.disk_usage(config.state).free
    if free < need:
        raise SpoolError(f"{config.state}: {free >> 20} MiB free, {need >> 20} may be needed")
    return free


def _free_port(host: str, port: int, *, runs: bool) -> str:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(address)
    except OSError as error:
        if runs:
            return f"{host}:{port} in use, as by a node that runs"
        raise TransportError(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    if runs:
        raise TransportError(f"a node runs, and does not listen on {host}:{port}")
    return f"{host}:{port} free"


def _neighbours(keys: NodeKeys, membership: Membership, timeout_s: float) -> Iterator[Finding]:
    roster = membership.roster
    members = [roster.member(name) for name in roster.neighbours(keys.id)]
    with ThreadPoolExecutor(max(1, len(members))) as pool:
        answers = [
            pool.submit(_handshake, dialing_context(keys, roster.trust_anchors([one.id])), one, timeout_s)
            for one in members
        ]
        for one, answer in zip(members, answers, strict=True):
            yield from _look(f"neighbour {one.id}", answer.result, lambda what: what)


def _handshake(context: ssl.SSLContext, member: Member, timeout_s: float) -> str:
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
