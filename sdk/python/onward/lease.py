"""How long a task is held, as far as this process knows, and keeping it held."""

from __future__ import annotations

import logging
import threading
import time

from .errors import LEASE_LOST, OnwardError, Problem
from .task import Task
from .tasks import Tasks

log = logging.getLogger("onward")

ANSWER_MS_MIN = 1_000
"""An answer to a heartbeat may take as long, however short the lease is."""
NEVER = float("inf")


class Lease:
    """The time for which a task is this worker's. Times are seconds of the monotonic clock."""

    def __init__(self, task: Task, asked: float, now: float) -> None:
        self.task = task
        # The server gave it after it was asked, and counts from then: it is never believed to be held for too long.
        self.until = asked + task.lease_ms / 1_000
        self.over = False
        """Whether the function has ended: there is nothing to hold any more."""
        self.lost = False
        """Whether the result is of no use."""
        self._limit = None if task.timeout_ms is None else now + task.timeout_ms / 1_000

    def extend(self, asked: float) -> None:
        """It is held for another lease since the server was asked; perhaps a little longer."""
        self.until = asked + self.task.lease_ms / 1_000

    def next_beat(self, now: float) -> float:
        """When to ask again: after a third of the lease, so that two may fail; and when the task's time is over."""
        due = now + self.task.lease_ms / 3_000
        return min(due, self._limit) if self._limit is not None and self._limit > now else due

    def lose(self) -> None:
        """It is not this worker's any more: the function is told to stop, and its result is dropped."""
        self.lost = True
        self.task.cancelled.set()


class Heart:
    """Threads that keep leases while their functions run: so many that no heartbeat waits for the answer to another."""

    def __init__(self, tasks: Tasks, count: int) -> None:
        self._tasks = tasks
        self._count = count
        # One thread watches at a time. When it has something to do, the next one does.
        self._watch = threading.Lock()
        self._changed = threading.Condition()
        self._due: dict[Lease, float] = {}
        self._wakes = NEVER
        self._stopped = False

    def start(self) -> None:
        """Begins."""
        for number in range(self._count):
            threading.Thread(target=self._run, name=f"onward-heart-{number}", daemon=True).start()

    def stop(self) -> None:
        """Ends. Leases run out by themselves."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def hold(self, lease: Lease) -> None:
        """Keeps a lease until it is released."""
        with self._changed:
            if lease.over:
                return
            due = self._due[lease] = lease.next_beat(time.monotonic())
            # Most tasks are over long before their first heartbeat: no need to wake anybody for them.
            if due < self._wakes:
                self._changed.notify()

    def release(self, lease: Lease) -> None:
        """Keeps it no longer: the function has ended."""
        with self._changed:
            lease.over = True
            self._due.pop(lease, None)

    def _run(self) -> None:
        while True:
            lease = self._next()
            if lease is None:
                return
            if beat(self._tasks, lease):
                self.hold(lease)

    def _next(self) -> Lease | None:
        """The next lease to keep, when it is due; none when stopped."""
        with self._watch, self._changed:
            while not self._stopped:
                now = time.monotonic()
                lease = min(self._due, key=self._due.__getitem__, default=None)
                self._wakes = NEVER if lease is None else self._due[lease]
                if lease is not None and self._wakes <= now:
                    del self._due[lease]
                    return lease
                self._changed.wait(None if lease is None else self._wakes - now)
        return None


def beat(tasks: Tasks, lease: Lease) -> bool:
    """Asks for another lease. Says whether to ask again later."""
    task, asked = lease.task, time.monotonic()
    try:
        tasks.heartbeat(task, max(task.lease_ms // 3, ANSWER_MS_MIN))
        lease.extend(asked)
        return True
    except OnwardError as error:
        if lease.over:
            return False
        if isinstance(error, Problem) and error.code == LEASE_LOST:
            log.warning("%s: not held any more, so it is told to stop", task)
            lease.lose()
            return False
        log.warning("%s: a heartbeat failed: %s", task, error)
    if time.monotonic() < lease.until:
        return True
    # Nobody said that it is lost, so its result is offered all the same; but somebody else may be at work by now.
    log.warning("%s: the lease ran out, so it is told to stop", task)
    task.cancelled.set()
    return False
