"""``veilwalk doctor``: checks of this machine. Each tries the thing itself where that is quick, and else reads it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from veilwalk.cli import _rooms as rooms
from veilwalk.cli._options import AsJson, option
from veilwalk.cli._output import show_result
from veilwalk.core.errors import VeilwalkError
from veilwalk.core.findings import Finding
from veilwalk.core.sizes import machine_bytes
from veilwalk.core.units import readable_bytes

#: Optional packages: the module that shows each is there, and what it is for.
EXTRAS = {
    "report": ("matplotlib", "figures and pages"),
    "torch": ("torch", "torch modules as learners"),
    "flower": ("flwr", "Flower apps"),
    "peft": ("peft", "adapters of large models"),
    "dp": ("dp_accounting", "epsilon of noisy updates"),
    "networkx": ("networkx", "graphs in GraphML, GML and node-link JSON"),
    "parquet": ("pyarrow", "Parquet tables"),
    "export": ("onnx", "models as ONNX and safetensors"),
    "watch": ("starlette", "the live page"),
    "tensorboard": ("tensorboardX", "evaluations in TensorBoard"),
    "ray": ("ray", "work on many machines, by Ray"),
    "cuda": ("cupy", "walks on a graphics card"),
}
_SYNCS, _SYNC_BYTES = 20, 4096
# A hop waits for one sync: beyond this it is the disk that sets the pace of a node.
_SLOW_SYNC_S = 0.02
_LITTLE_DISK_BYTES = 1 << 30
_LITTLE_MEMORY_BYTES = 2 << 30
#: File systems that do for simulations, and not for a node.
_UNFIT = dict.fromkeys(("tmpfs", "ramfs"), "all is lost at power-off")
_UNFIT |= dict.fromkeys(("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p"), "on another machine")


def doctor(
    *,
    state: Annotated[Path, option("A folder on the disk that runs or a node will use.", "DIR", "here")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Check this machine, and say what is wrong with it.

    Python, where compiled kernels are kept, threads, memory, disk and how long it takes to sync, TLS and sealing as
    nodes use them, and optional packages: a line each. ok is as it should be; note works, but slower or with less;
    fails must be mended, and the line says how. Nothing is sent, and nothing is left behind.

    Example: veilwalk doctor --state /var/lib/veilwalk

    A node's own files are looked at by veilwalk node check.

    Exit code 1 where something fails; notes are no failure.
    """
    show_findings(run_checks(state), as_json=as_json)


def show_findings(findings: Iterable[Finding], *, as_json: bool) -> None:
    """Print findings as they come, or all as JSON; exit with 1 where one fails."""
    rows = []
    for finding in findings:
        rows.append(asdict(finding))
        if not as_json:
            words = "; ".join(filter(None, (" ".join(finding.what.split()), finding.cure)))
            typer.echo(f"{finding.state:5}  {finding.name}: {words}")
    fails = any(row["state"] == "fails" for row in rows)
    show_result({"ok": not fails, "findings": rows}, lambda: None, as_json=as_json)
    if fails:
        raise typer.Exit(1)


def run_checks(folder: Path) -> Iterator[Finding]:
    """Run every check in turn; one that raises an error fails with its words, and the others still run."""
    checks: dict[str, Callable[[], Finding]] = {
        "Python": lambda: Finding("ok", f"{'.'.join(map(str, sys.version_info[:3]))} at {sys.executable}"),
        "compiled kernels": kernels,
        "threads": threads,
        "memory": memory,
        "disk": lambda: disk(folder),
        "disk sync": lambda: disk_sync(folder),
        "TLS": tls,
        "sealing": sealing,
        "extras": extras,
    }
    for name, check in checks.items():
        try:
            finding = check()
        except (OSError, ImportError, RuntimeError, VeilwalkError) as error:
            finding = Finding("fails", str(error) or type(error).__name__)
        yield replace(finding, name=name)


def kernels() -> Finding:
    """Where compiled kernels are kept: without a place every start compiles for half a minute, or ends."""
    cure = "set NUMBA_CACHE_DIR to a folder that you may write to"
    try:
        # A kernel that nobody calls is not compiled, and its place is that of all others.
        place = Path(str(rooms.engine.njit(cache=True)(lambda: None).stats.cache_path)).parent
    except RuntimeError as error:
        return Finding("fails", f"numba has no place to keep them ({error})", cure)
    folder = _existing(place)
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding("note", f"{folder} cannot be written: every start compiles again", cure)
    count = len(list(place.glob("*/*.nbc")))
    text = f"{count} kept in {place}" if count else f"none yet in {place}: the first run compiles for half a minute"
    return Finding("ok", text)


def threads() -> Finding:
    """Threads of kernels against cores that this process may use."""
    import numba

    allowed, quota = len(os.sched_getaffinity(0)), _quota()
    cores = allowed if quota is None else max(1, min(allowed, round(quota)))
    used = numba.get_num_threads()
    limit = f" (a quota of {quota:g} cores)" if quota is not None and quota < allowed else ""
    text = f"kernels use {used} of {allowed} cores{limit}"
    if used > cores:
        return Finding("note", f"{text}: they wait for each other", f"set NUMBA_NUM_THREADS={cores}")
    if used < cores:
        return Finding("note", f"{text}: the rest idle", "unset NUMBA_NUM_THREADS unless that is meant")
    return Finding("ok", text)


def _quota() -> float | None:
    """Cores that a container grants; None where it grants all."""
    with contextlib.suppress(OSError, ValueError):
        most, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return int(most) / int(period)
    return None


def memory() -> Finding:
    """Memory of the machine, or of the container."""
    whole = machine_bytes()
    if whole < _LITTLE_MEMORY_BYTES:
        return Finding("note", f"{readable_bytes(whole)}: designs of large networks are refused")
    return Finding("ok", readable_bytes(whole))


def disk(folder: Path) -> Finding:
    """Whether the folder may be written, how much is free, and whether the disk remembers."""
    place = _existing(folder)
    kind, free = _file_system(place), shutil.disk_usage(place).free
    text = f"{readable_bytes(free)} free at {place} ({kind})"
    if not os.access(place, os.W_OK | os.X_OK):
        return Finding("fails", f"{place} cannot be written", "choose another folder, or chown it to yourself")
    if kind in _UNFIT:
        return Finding("note", f"{text}: {_UNFIT[kind]}", "keep a node's state on a local disk that remembers")
    if free < _LITTLE_DISK_BYTES:
        return Finding("note", text, "make room: a run keeps checkpoints, a node messages on their way")
    return Finding("ok", text)


def disk_sync(folder: Path) -> Finding:
    """How long a small write takes to be safe: every hop of a node waits for it."""
    times = []
    with tempfile.NamedTemporaryFile(dir=_existing(folder), prefix=".veilwalk-doctor-") as file:
        for _ in range(_SYNCS):
            begun = time.perf_counter()
            os.pwrite(file.fileno(), bytes(_SYNC_BYTES), 0)
            os.fsync(file.fileno())
            times.append(time.perf_counter() - begun)
    middle, worst = statistics.median(times), max(times)
    text = f"{1000 * middle:.2g} ms for 4 KiB (measured: median of {_SYNCS}, longest {1000 * worst:.2g} ms)"
    if middle > _SLOW_SYNC_S:
        cure = "put a node's state on a local disk or an SSD; simulations do not mind"
        return Finding("note", f"{text}: every hop of a node waits as long", cure)
    return Finding("ok", text)


def tls() -> Finding:
    """A handshake in memory between two members who have just made their keys, with the contexts that nodes use."""
    from veilwalk.node.link import dialing_context, listening_context

    with tempfile.TemporaryDirectory(prefix="veilwalk-doctor-") as folder:
        near, far = (
            rooms.members.new_node_keys(Path(folder) / name, node_id=name, address="127.0.0.1:1")
            for name in ("near", "far")
        )
    trusted = "".join(ssl.DER_cert_to_PEM_cert(keys.member.certificate) for keys in (near, far))
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        listening = listening_context(far, trusted).wrap_bio(there, back, server_side=True)
        dialing = dialing_context(near, trusted).wrap_bio(back, there)
        for end in (dialing, listening, dialing):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
        listening.do_handshake()
    except OSError as error:
        return Finding("fails", f"{ssl.OPENSSL_VERSION}: {error}", "nodes need TLS 1.3 with Ed25519 certificates")
    return Finding("ok", f"{dialing.version()} between two members, {ssl.OPENSSL_VERSION}")


def sealing() -> Finding:
    """A message sealed and opened in every suite."""
    from cryptography import __version__ as version

    from veilwalk.core.geometry import SMALLEST_BUCKET
    from veilwalk.node import sealing as room

    for suite in room.Suite:
        context = room.SealContext(run_id=bytes(16), epoch=0, suite=suite, bucket_bytes=SMALLEST_BUCKET)
        secret = room.new_kem_secret(suite)
        slots = [room.kem_public_bytes(suite, secret)]
        message = room.seal(context, slots, walk_tag=bytes(8), iteration=0, body=b"model")
        opened = room.Opener([(context, room.kem_private_key(suite, secret))], accepted=[]).open(message)
        if opened is None or room.open_body(opened, message) != b"model":
            cure = "install cryptography anew: pip install --force-reinstall cryptography"
            return Finding("fails", f"{suite.name.lower()}: a sealed message does not open", cure)
    return Finding("ok", f"{' and '.join(suite.name.lower() for suite in room.Suite)}, cryptography {version}")


def extras() -> Finding:
    """Which optional packages are there; none of them has to be."""
    there = [name for name, (module, _) in EXTRAS.items() if importlib.util.find_spec(module)]
    missing = ", ".join(f"{name} ({about})" for name, (_, about) in EXTRAS.items() if name not in there)
    text = f"{', '.join(there) or 'none'} installed"
    if not missing:
        return Finding("ok", text)
    return Finding("ok", f"{text}; not {missing}", "pip install 'veilwalk[NAME]' brings one")


def _existing(folder: Path) -> Path:
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())


def _file_system(folder: Path) -> str:
    """Return the type of the file system that ``folder`` is on, by the longest mount point that leads to it."""
    best, kind = -1, "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, mounted, *_ = line.split()
        if folder.resolve().is_relative_to(where.replace("\\040", " ")) and len(where) > best:
            best, kind = len(where), mounted
    return kind
