"""A worker: it claims tasks, has functions perform them, and tells how they ended."""

from __future__ import annotations

import inspect
import logging
import os
import queue
import socket
import threading
import time
from typing import Any, Callable, TypeVar, overload

from .access import access
from .backoff import wait_ms
from .connections import Connections
from .errors import OnwardError, Problem
from .lease import Heart, Lease
from .outcome import Call, Function, call_of, perform
from .report import give_back, report
from .signals import stopping
from .slots import Slots
from .tasks import Tasks, Wish

log = logging.getLogger("onward")

CLAIM_WAIT_MS = 20_000
"""How long the server waits for a task before it says that there is none, unless that is too long for the lease."""
FINAL_STATUSES = (401, 403, 404)
"""Answers to a claim that stay the same until somebody changes a setting."""

F = TypeVar("F", bound=Function)


class Worker:
    """Performs tasks that workflows call.

    - `server`, `token`: `ONWARD_SERVER` and `ONWARD_TOKEN` unless given; without both, `onward dev` on this machine.
    - `tenant`, `project`, `environment`: what the token says, unless given.
    - `name`: what people see; host and process unless given.
    - `concurrency`: how many tasks it performs at a time, each in a thread.
    - `lease_ms`: how long the server waits for a heartbeat before somebody else gets a task. Heartbeats are automatic.
    - `grace_ms`: how long a worker that stops waits for what it has begun.
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
            raise ValueError("a worker performs at least one task at a time")
        scope = {"tenant": tenant, "project": project, "environment": environment}
        who = access(server, token, scope)
        # Claims have connections of their own: they are broken off when the worker stops.
        self._claims, self._reports = Connections(who), Connections(who)
        self._name = name or f"{socket.gethostname()}:{os.getpid()}"
        self._lease_ms, self._grace_ms = lease_ms, grace_ms
        self._functions: dict[str, Call] = {}
        self._tasks = Tasks(self._reports)
        self._heart = Heart(self._tasks, concurrency)
        self._slots = Slots(concurrency, self._perform)
        self._wish: Wish | None = None
        self._stopping = threading.Event()
        # Of the queues, this one may be filled by a signal handler.
        self._notices: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._ran = False
        self._background: threading.Thread | None = None
        self._error: BaseException | None = None

    @overload
    def task(self, function: F) -> F: ...

    @overload
    def task(self, function: str) -> Callable[[F], F]: ...

    def task(self, function: F | str) -> Any:
        """Has a function perform the tasks of its name: `@worker.task`, or `@worker.task("name")` for another name.

        It is called with the input, and with the `Task` if it has a second parameter (without a default). What it
        returns is the result; what it raises is the failure.
        """
        if isinstance(function, str):
            return lambda it: self._add(function, it)
        return self._add(function.__name__, function)

    def run(self) -> None:
        """Works until SIGINT, SIGTERM or `stop`; then finishes what it has begun, and returns.

        Raises `Problem` if the server will not have this worker: for want of a good token, for example. A second signal
        ends the process as it would without a worker.
        """
        if not self._functions:
            raise ValueError("there is nothing to perform: decorate a function with @worker.task")
        if self._ran:
            raise RuntimeError("a worker runs once: make another")
        self._ran = True
        wish = self._wish = Wish(self._name, list(self._functions), self._lease_ms, claim_wait_ms(self._lease_ms))
        self._slots.start()
        self._heart.start()
        claimer = threading.Thread(target=self._claim_and_tell, args=(wish,), name="onward-claim", daemon=True)
        claimer.start()
        log.info("worker %s performs %s for %s", self._name, ", ".join(self._functions), self._claims.server)
        with stopping(self.stop):
            error = self._notices.get()
        self._stopping.set()
        self._slots.stop()
        self._claims.close()
        claimer.join()
        self._finish()
        if error is not None:
            raise error

    def stop(self) -> None:
        """Has `run` claim nothing more, finish and return. From any thread, or from a signal handler."""
        self._notices.put(None)

    def __enter__(self) -> Worker:
        """Runs in the background, until the end of the `with`."""
        self._background = threading.Thread(target=self._run_and_keep, name="onward-worker", daemon=True)
        self._background.start()
        return self

    def __exit__(self, kind: Any, _error: Any, _trace: Any) -> None:
        self.stop()
        if self._background is not None:
            self._background.join()
        # What went wrong inside the `with` says more.
        if self._error is not None and kind is None:
            raise self._error

    def _add(self, name: str, function: F) -> F:
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"{name} is asynchronous: a task is performed by a plain function, in a thread")
        if name in self._functions:
            raise ValueError(f"{name} has a function already")
        self._functions[name] = call_of(function)
        return function

    def _run_and_keep(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._error = error

    def _claim_and_tell(self, wish: Wish) -> None:
        try:
            self._claim(wish)
        except BaseException as error:
            self._notices.put(error)

    def _claim(self, wish: Wish) -> None:
        tasks = Tasks(self._claims)
        failures = 0
        while True:
            free = self._slots.wait_free()
            if not free:
                return
            asked = time.monotonic()
            try:
                claimed = tasks.claim(wish, free)
            except OnwardError as error:
                if self._stopping.is_set():
                    return
                failures += 1
                self._back_off(error, failures)
                continue
            failures = 0
            for task in claimed:
                if self._stopping.is_set():
                    give_back(self._tasks, task)
                else:
                    self._slots.put(Lease(task, asked, time.monotonic()))

    def _back_off(self, error: OnwardError, failures: int) -> None:
        """Waits until claiming may go well again. Raises what does not pass."""
        if isinstance(error, Problem) and error.status in FINAL_STATUSES:
            raise Problem(error.status, error.code, f"{self._claims.server} gives this worker no tasks: {error.detail}")
        wait = wait_ms(error, failures) / 1_000
        log.warning("no tasks could be claimed, again in %.1f s: %s", wait, error)
        self._stopping.wait(wait)

    def _perform(self, lease: Lease) -> Lease | None:
        """Has a task performed, and tells how it ended. Returns the one that the server has for the same slot then."""
        task = lease.task
        self._heart.hold(lease)
        try:
            outcome = perform(self._functions[task.function], task)
        finally:
            self._heart.release(lease)
        if lease.lost:
            log.info("%s: what it came to is dropped", task)
            return None
        following = report(self._tasks, lease, outcome, self._wanted)
        if following is not None and self._stopping.is_set():
            give_back(self._tasks, following.task)
            return None
        return following

    def _wanted(self) -> Wish | None:
        """What is asked for when a task has ended: nothing by a worker that stops."""
        return None if self._stopping.is_set() else self._wish

    def _finish(self) -> None:
        left = self._slots.finish(self._grace_ms)
        for lease in left:
            log.warning("%s: left unfinished", lease.task)
            lease.lose()
        self._heart.stop()
        self._reports.close()


def claim_wait_ms(lease_ms: int) -> int:
    """How long a claim waits. As a lease is counted from when it was asked for, most of it must be left by then."""
    return min(CLAIM_WAIT_MS, lease_ms // 3)
