"""Ray as an executor: it has none of its own. Ray schedules, retries and moves data; this only hands out."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from veilwalk.core.errors import ConfigError, TransportError
from veilwalk.engine._engines import WorkerPool
from veilwalk.engine._worker import ONE_THREAD

# How often a job is begun again whose worker or machine was lost: any number of times is right, for ever is not.
_RETRIES = 10


class RayExecutor(WorkerPool, Executor):
    """Jobs on a Ray cluster: the one at ``address``, the one that runs here, or one made for this purpose.

    A cluster that this process is already connected to is used as it is, and left as it was.
    """

    def __init__(self, address: str | None = None) -> None:
        self._ray = ray = _import_ray()
        self._is_own = not ray.is_initialized()
        if self._is_own:
            try:
                ray.init(
                    address=address,
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level="ERROR",
                    runtime_env={"env_vars": ONE_THREAD},
                )
            except (ConnectionError, RuntimeError, ValueError) as error:
                reason = str(error).splitlines()[0]
                raise TransportError(f"no Ray cluster at {address or 'this machine'}: {reason}") from error
        self._remote = ray.remote(num_cpus=1, max_retries=_RETRIES)(_call)
        self._refs: dict[Future[Any], Any] = {}

    @property
    def workers(self) -> int:
        """How many jobs the cluster does at a time, as far as it is known now."""
        return max(int(self._ray.cluster_resources().get("CPU", 1)), 1)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Hand out a call; what was shared is fetched by the worker."""
        ref = self._remote.remote(fn, *args, **kwargs)
        promise: Future[Any] = Future()
        self._refs[promise] = ref
        promise.set_running_or_notify_cancel()
        ref.future().add_done_callback(lambda remote: self._pass_on(promise, remote))
        return promise

    def _pass_on(self, promise: Future[Any], remote: Future[Any]) -> None:
        self._refs.pop(promise, None)
        error = remote.exception()
        if error is None:
            promise.set_result(remote.result())
        else:
            # What the job itself raised, without Ray's wrapping of it.
            promise.set_exception(getattr(error, "cause", None) or error)

    def give_up(self, promise: Future[Any]) -> None:
        """Let the cluster drop a job that nobody waits for any more."""
        ref = self._refs.get(promise)
        if ref is not None:
            self._ray.cancel(ref, force=True)

    def share(self, common: tuple[Any, ...]) -> Any:
        """Put what all jobs need into the cluster, once."""
        return self._ray.put(common)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        """Leave the cluster; jobs in hand are given up."""
        del wait, cancel_futures
        if self._is_own:
            self._ray.shutdown()


def _call(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    return function(*arguments, **named)


def _import_ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise ConfigError("the engine ray needs Ray: pip install 'veilwalk[ray]' brings it") from error
    return ray
