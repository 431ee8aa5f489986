"""Dask through its own executor; only what all jobs share is sent ahead."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from veilwalk.core.errors import ConfigError, TransportError
from veilwalk.engine._engines import WorkerPool

# How often a job is begun again whose worker was lost.
_RETRIES = 10


class DaskExecutor(WorkerPool, Executor):
    """Jobs of the Dask scheduler at ``address``."""

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ModuleNotFoundError as error:
            if error.name not in {"distributed", "dask"}:
                raise
            raise ConfigError("the engine dask needs Dask: pip install 'veilwalk[dask]' brings it") from error
        try:
            self._client = Client(f"tcp://{address}", timeout="10s")
        except OSError as error:
            raise TransportError(f"no Dask scheduler at {address}: {error}") from error
        self._executor = self._client.get_executor(pure=False, retries=_RETRIES)

    @property
    def workers(self) -> int:
        """How many jobs the cluster does at a time, as far as it is known now."""
        return max(int(sum(self._client.nthreads().values())), 1)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Hand out a call."""
        promise: Future[Any] = self._executor.submit(fn, *args, **kwargs)
        return promise

    def share(self, common: tuple[Any, ...]) -> Any:
        """Send what all jobs need to every worker, once."""
        return self._client.scatter([common], broadcast=True, hash=False)[0]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        """Leave the cluster."""
        self._executor.shutdown(wait=wait and not cancel_futures)
        self._client.close()
