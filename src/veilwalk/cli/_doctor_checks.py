"""What ``veilwalk doctor`` looks at: each check tries the thing itself where that is quick, and reads it otherwise."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import ssl
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from veilwalk.core.errors import VeilwalkError
from veilwalk.core.memory import machine_bytes
from veilwalk.core.units import readable_bytes

#: Optional packages: the module that shows each is there, and what it is for.
EXTRAS = {
    "report": ("matplotlib", "figures and pages"),
    "torch": ("torch", "torch modules as learners"),
    "sklearn": ("sklearn", "scikit-learn models"),
    "dp": ("dp_accounting", "epsilon of noisy updates"),
    "networkx": ("networkx", "graphs in GraphML, GML and node-link JSON"),
    "parquet": ("pyarrow", "Parquet tables"),
    "export": ("onnx", "models as ONNX and safetensors"),
    "watch": ("starlette", "the live page"),
    "tensorboard": ("tensorboardX", "evaluations in TensorBoard"),
    "ray": ("ray", "work on many machines, by Ray"),
    "dask": ("distributed", "work on many machines, by Dask"),
    "cuda": ("cupy", "walks on a graphics card"),
}
_SYNCS, _SYNC_BYTES = 20, 4096
# A hop waits for one sync: beyond this it is the disk that sets the pace of a node.
_SLOW_SYNC_S = 0.02
_PATIENCE_S = 10.0
_LITTLE_DISK_BYTES = 1 << 30
_LITTLE_MEMORY_BYTES = 2 << 30
_FORGETFUL = {"tmpfs", "ramfs"}
_FAR = {"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: ``ok``, ``note`` or ``fails``; how it is; and what to do, if anything."""

    name: str
    state: str
    what: str
    cure: str = ""


def looked_at(folder: Path) -> Iterator[Finding]:
    """Look at everything, one by one; what raises an error fails with its words, and the rest is still looked at."""
    checks: dict[str, Callable[[], Finding]] = {
        "Python": python,
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
            yield check()
        except (OSError, ImportError, RuntimeError, VeilwalkError) as error:
            yield Finding(name, "fails", str(error) or type(error).__name__)


def python() -> Finding:
    """The version; what does not even start cannot say so."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.maxsize <= 2**32:
        return Finding("Python", "fails", f"{version}, 32 bits", "install a Python of 64 bits")
    return Finding("Python", "ok", f"{version} at {sys.executable}")


def kernels() -> Finding:
    """Where compiled kernels are kept: without a place every start compiles for half a minute, or ends."""
    cure = "set NUMBA_CACHE_DIR to a folder that you may write to"
    try:
        from veilwalk.graphs import _kernels
    except RuntimeError as error:
        return Finding("compiled kernels", "fails", f"numba has no place to keep them ({error})", cure)
    place = Path(str(_kernels.pair_up.stats.cache_path))
    folder = next(path for path in (place, *place.parents) if path.exists())
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding("compiled kernels", "note", f"{folder} cannot be written: every start compiles again", cure)
    there = len(list(place.glob("*.nbc"))) if place.exists() else 0
    told = f"{there} kept in {place}" if there else f"none yet in {place}: the first run compiles for half a minute"
    return Finding("compiled kernels", "ok", told)


def threads() -> Finding:
    """Threads of kernels against cores that this process may use."""
    import numba

    allowed, quota = len(os.sched_getaffinity(0)), _quota()
    cores = allowed if quota is None else max(1, min(allowed, round(quota)))
    used = numba.get_num_threads()
    limit = f" (a quota of {quota:g} cores)" if quota is not None and quota < allowed else ""
    told = f"kernels use {used} of {allowed} cores{limit}"
    if used > cores:
        return Finding("threads", "note", f"{told}: they wait for each other", f"set NUMBA_NUM_THREADS={cores}")
    if used < cores:
        return Finding("threads", "note", f"{told}: the rest idle", "unset NUMBA_NUM_THREADS unless that is meant")
    return Finding("threads", "ok", told)


def _quota() -> float | None:
    """Cores that a container grants; None where it grants all."""
    try:
        most, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return int(most) / int(period)
    except (OSError, ValueError):
        return None


def memory() -> Finding:
    """What the machine, or the container, has."""
    whole = machine_bytes()
    if whole < _LITTLE_MEMORY_BYTES:
        return Finding("memory", "note", f"{readable_bytes(whole)}: designs of large networks are refused")
    return Finding("memory", "ok", readable_bytes(whole))


def disk(folder: Path) -> Finding:
    """Whether the folder may be written, how much is free, and whether the disk remembers."""
    place = _existing(folder)
    kind, free = _file_system(place), shutil.disk_usage(place).free
    told = f"{readable_bytes(free)} free at {place} ({kind})"
    if not os.access(place, os.W_OK | os.X_OK):
        return Finding("disk", "fails", f"{place} cannot be written", "choose another folder, or chown it to yourself")
    if kind in _FORGETFUL:
        return Finding("disk", "note", f"{told}: all is lost at power-off", "keep a node's state on a real disk")
    if kind in _FAR:
        return Finding("disk", "note", f"{told}: on another machine", "keep a node's state on a local disk")
    if free < _LITTLE_DISK_BYTES:
        return Finding("disk", "note", told, "make room: a run keeps checkpoints, a node messages on their way")
    return Finding("disk", "ok", told)


def disk_sync(folder: Path) -> Finding:
    """How long a small write takes to be safe: what every hop of a node waits for."""
    times = []
    with tempfile.NamedTemporaryFile(dir=_existing(folder), prefix=".veilwalk-doctor-") as file:
        for _ in range(_SYNCS):
            begun = time.perf_counter()
            os.pwrite(file.fileno(), bytes(_SYNC_BYTES), 0)
            os.fsync(file.fileno())
            times.append(time.perf_counter() - begun)
    middle, worst = 1000 * statistics.median(times), 1000 * max(times)
    told = f"{middle:.2g} ms for 4 KiB (measured: median of {_SYNCS}, longest {worst:.2g} ms)"
    if middle > 1000 * _SLOW_SYNC_S:
        cure = "put a node's state on a local disk or an SSD; simulations do not mind"
        return Finding("disk sync", "note", f"{told}: every hop of a node waits as long", cure)
    return Finding("disk sync", "ok", told)


def tls() -> Finding:
    """A handshake between two members who have just made their keys, with the contexts that nodes use."""
    from veilwalk.node.link import dialing_context, listening_context
    from veilwalk.node.members import new_node_keys

    with tempfile.TemporaryDirectory(prefix="veilwalk-doctor-") as folder:
        one, other = (
            new_node_keys(Path(folder) / name, node_id=name, address="127.0.0.1:1") for name in ("one", "other")
        )
    trusted = "".join(ssl.DER_cert_to_PEM_cert(keys.member.certificate) for keys in (one, other))
    try:
        version = _handshake(dialing_context(one, trusted), listening_context(other, trusted))
    except OSError as error:
        cure = "nodes need TLS 1.3 with Ed25519 certificates"
        return Finding("TLS", "fails", f"{ssl.OPENSSL_VERSION}: {error}", cure)
    return Finding("TLS", "ok", f"{version} between two members, {ssl.OPENSSL_VERSION}")


def _handshake(dialing: ssl.SSLContext, listening: ssl.SSLContext) -> str | None:
    """Return the version of TLS that the two agree upon."""
    near, far = socket.socketpair()

    def answer() -> None:
        # What goes wrong here goes wrong at the other end too, and is told there.
        with contextlib.suppress(OSError), listening.wrap_socket(far, server_side=True) as secured:
            secured.sendall(b"!")

    with near, far:
        near.settimeout(_PATIENCE_S)
        far.settimeout(_PATIENCE_S)
        helper = threading.Thread(target=answer)
        helper.start()
        try:
            with dialing.wrap_socket(near) as secured:
                secured.recv(1)
                return secured.version()
        finally:
            helper.join()


def sealing() -> Finding:
    """A message sealed and opened in every suite."""
    from cryptography import __version__ as version

    from veilwalk.core.geometry import SMALLEST_BUCKET
    from veilwalk.node.sealing import (
        Opener,
        SealContext,
        Suite,
        kem_private_key,
        kem_public_bytes,
        new_kem_secret,
        open_body,
        seal,
    )

    for suite in Suite:
        context = SealContext(run_id=bytes(16), epoch=0, suite=suite, bucket_bytes=SMALLEST_BUCKET)
        secret = new_kem_secret(suite)
        message = seal(context, [kem_public_bytes(suite, secret)], walk_tag=bytes(8), iteration=0, body=b"model")
        opened = Opener([(context, kem_private_key(suite, secret))], accepted=[]).open(message)
        if opened is None or open_body(opened, message) != b"model":
            cure = "install cryptography anew: pip install --force-reinstall cryptography"
            return Finding("sealing", "fails", f"{suite.name.lower()}: what was sealed does not open", cure)
    return Finding("sealing", "ok", f"{' and '.join(suite.name.lower() for suite in Suite)}, cryptography {version}")


def extras() -> Finding:
    """Which optional packages are there; none of them has to be."""
    there = [name for name, (module, _) in EXTRAS.items() if importlib.util.find_spec(module)]
    missing = {name: about for name, (_, about) in EXTRAS.items() if name not in there}
    told = f"{', '.join(there) or 'none'} installed"
    if not missing:
        return Finding("extras", "ok", told)
    left = ", ".join(f"{name} ({about})" for name, about in missing.items())
    return Finding("extras", "ok", f"{told}; not {left}", "pip install 'veilwalk[NAME]' brings one")


def _existing(folder: Path) -> Path:
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())


def _file_system(folder: Path) -> str:
    """Return the type of the file system that ``folder`` is on, by the longest mount point that leads to it."""
    best, kind = -1, "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, found, *_ = line.split()
        if folder.resolve().is_relative_to(where.replace("\\040", " ")) and len(where) > best:
            best, kind = len(where), found
    return kind
