"""The worker: claims tasks, runs their functions, and reports the outcomes."""

from __future__ import annotations

import inspect
import logging
import os
import queue
import socket
import threading
import time
from typing import Any, Callable, TypeVar, overload

from .backoff import retry_delay_ms
from .errors import OnwardError, Problem
from .http_client import HttpClient
from .lease import HeartbeatScheduler, Lease
from .options import connection_options
from .outcome import TaskFunction, TaskHandler, bind_arguments, run_task
from .report import release_task, report_outcome
from .signals import stop_on_signals
from .slots import Slots
from .task_client import ClaimRequest, TaskClient

log = logging.getLogger("onward")

MAX_CLAIM_WAIT_MS = 20_000
"""Maximum time that a claim waits on the server; a short lease shortens it."""
PERMANENT_STATUSES = (401, 403, 404)
"""Responses to a claim that no retry changes: the configuration must change first."""

F = TypeVar("F", bound=TaskFunction)


class Worker:
    """Executes tasks that workflows call.

    - `server`: URL of the server; default: `ONWARD_SERVER`, else `http://127.0.0.1:7400`.
    - `token`: bearer token; default: `ONWARD_TOKEN`, else none.
    - `tenant`, `project`, `environment`: default: those of the token.
    - `name`: name of the worker in listings; default: host name and process id.
    - `concurrency`: maximum number of tasks in flight, each in a thread; default: 8.
    - `lease_ms`: lease of a task: without a heartbeat for this time it is reassigned. Default:
      30000. The worker sends the heartbeats.
    - `grace_ms`: how long a stopping worker waits for the tasks in flight; default: 30000.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        tenant: str | None = None,
        project: str | None = None,
        environment: str | None = None,
        name: str | None = None,
        concurrency: int = 8,
        lease_ms: int = 30_000,
        grace_ms: int = 30_000,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"invalid concurrency {concurrency}: must be at least 1")
        scope = {"tenant": tenant, "project": project, "environment": environment}
        options = connection_options(server, token, scope)
        # Claims have connections of their own, because a stopping worker interrupts them.
        self._claim_http, self._report_http = HttpClient(options), HttpClient(options)
        self._name = name or f"{socket.gethostname()}:{os.getpid()}"
        self._lease_ms, self._grace_ms = lease_ms, grace_ms
        self._handlers: dict[str, TaskHandler] = {}
        self._tasks = TaskClient(self._report_http)
        self._heartbeats = HeartbeatScheduler(self._tasks, concurrency)
        self._slots = Slots(concurrency, self._execute)
        self._request: ClaimRequest | None = None
        self._stopping = threading.Event()
        # The reason to stop: an error, or None. Signal handlers may only use this kind of queue.
        self._stop_reasons: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._has_run = False
        self._background: threading.Thread | None = None
        self._error: BaseException | None = None

    @overload
    def task(self, function: F) -> F: ...

    @overload
    def task(self, function: str) -> Callable[[F], F]: ...

    def task(self, function: F | str) -> Any:
        """Registers the function that executes the tasks of a name.

        `@worker.task` registers it by its own name, `@worker.task("name")` by another one.

        It receives the input, and the `Task` if it has a second parameter without a default. Its
        return value is the result; what it raises is the failure.
        """
        if isinstance(function, str):
            return lambda it: self._register(function, it)
        return self._register(function.__name__, function)

    def run(self) -> None:
        """Claims and executes tasks until SIGINT, SIGTERM or `stop`.

        Then finishes the tasks in flight and returns. A second signal has its default effect:
        SIGINT raises `KeyboardInterrupt`, SIGTERM ends the process.

        Raises `Problem` if the server rejects the claims permanently, for example because the token
        is invalid.
        """
        if not self._handlers:
            raise ValueError("no tasks registered: decorate a function with @worker.task")
        if self._has_run:
            raise RuntimeError("the worker has already run: create a new Worker")
        self._has_run = True
        functions = list(self._handlers)
        wait_ms = claim_wait_ms(self._lease_ms)
        request = ClaimRequest(self._name, functions, self._lease_ms, wait_ms)
        self._request = request
        self._slots.start()
        self._heartbeats.start()
        claimer = threading.Thread(
            target=self._claim_until_stopped, args=(request,), name="onward-claim", daemon=True
        )
        claimer.start()
        server = self._claim_http.server
        log.info("worker %s executes %s for %s", self._name, ", ".join(functions), server)
        with stop_on_signals(self.stop):
            error = self._stop_reasons.get()
        self._stopping.set()
        self._slots.stop()
        self._claim_http.close()
        claimer.join()
        self._drain()
        if error is not None:
            raise error

    def stop(self) -> None:
        """Makes `run` finish the tasks in flight and return.

        May be called from any thread, or from a signal handler.
        """
        self._stop_reasons.put(None)

    def __enter__(self) -> Worker:
        """Runs the worker in the background until the end of the `with` block."""
        self._background = threading.Thread(
            target=self._run_in_background, name="onward-worker", daemon=True
        )
        self._background.start()
        return self

    def __exit__(self, kind: Any, _error: Any, _trace: Any) -> None:
        self.stop()
        if self._background is not None:
            self._background.join()
        # An error inside the `with` block takes precedence.
        if self._error is not None and kind is None:
            raise self._error

    def _register(self, name: str, function: F) -> F:
        if inspect.iscoroutinefunction(function):
            raise TypeError(
                f"task {name} is an async function: a worker runs synchronous functions in threads"
            )
        if name in self._handlers:
            raise ValueError(f"task {name} is already registered: each name takes one function")
        self._handlers[name] = bind_arguments(function)
        return function

    def _run_in_background(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._error = error

    def _claim_until_stopped(self, request: ClaimRequest) -> None:
        try:
            self._claim(request)
        except BaseException as error:
            self._stop_reasons.put(error)

    def _claim(self, request: ClaimRequest) -> None:
        tasks = TaskClient(self._claim_http)
        failures = 0
        while True:
            free = self._slots.wait_for_free()
            if not free:
                return
            requested_at = time.monotonic()
            try:
                claimed = tasks.claim(request, free)
            except OnwardError as error:
                if self._stopping.is_set():
                    return
                failures += 1
                self._back_off(error, failures)
                continue
            failures = 0
            for task in claimed:
                if self._stopping.is_set():
                    release_task(self._tasks, task)
                else:
                    self._slots.put(Lease(task, requested_at, time.monotonic()))

    def _back_off(self, error: OnwardError, failures: int) -> None:
        """Waits before the next claim. Raises errors that no retry can resolve."""
        if isinstance(error, Problem) and error.status in PERMANENT_STATUSES:
            detail = f"claim rejected by {self._claim_http.server}: {error.detail}"
            raise Problem(error.status, error.code, detail)
        delay_ms = retry_delay_ms(error, failures)
        log.warning("claim failed, retrying in %d ms: %s", delay_ms, error)
        self._stopping.wait(delay_ms / 1_000)

    def _execute(self, lease: Lease) -> Lease | None:
        """Runs a task and reports its outcome. Returns the next task for the same slot, if any."""
        task = lease.task
        self._heartbeats.add(lease)
        try:
            outcome = run_task(self._handlers[task.function], task)
        finally:
            self._heartbeats.remove(lease)
        if lease.lost:
            log.info("%s: lease lost, dropping the outcome", task)
            return None
        following = report_outcome(self._tasks, lease, outcome, self._next_request)
        if following is not None and self._stopping.is_set():
            release_task(self._tasks, following.task)
            return None
        return following

    def _next_request(self) -> ClaimRequest | None:
        """The request for the next task of the workflow; none if the worker is stopping."""
        return None if self._stopping.is_set() else self._request

    def _drain(self) -> None:
        for lease in self._slots.drain(self._grace_ms):
            log.warning(
                "%s: unfinished after grace_ms (%d ms), cancelling the task",
                lease.task,
                self._grace_ms,
            )
            lease.lose()
        self._heartbeats.stop()
        self._report_http.close()


def claim_wait_ms(lease_ms: int) -> int:
    """How long a claim waits. The lease counts from the request, so most of it must remain then."""
    return min(MAX_CLAIM_WAIT_MS, lease_ms // 3)
