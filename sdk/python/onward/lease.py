"""The lease of a claimed task, as this process computes it, and the heartbeats that renew it."""

from __future__ import annotations

import logging
import threading
import time

from .errors import OnwardError, is_lease_lost
from .task import Task
from .task_client import TaskClient

log = logging.getLogger("onward")

MIN_HEARTBEAT_TIMEOUT_MS = 1_000
"""Lower limit of the response timeout of a heartbeat, for short leases."""
NEVER = float("inf")


class Lease:
    """The lease of one task. Times are seconds of the monotonic clock."""

    def __init__(self, task: Task, requested_at: float, now: float) -> None:
        self.task = task
        # The server starts the lease after the request was sent, so this is never later than its
        # end.
        self.expires_at = requested_at + task.lease_ms / 1_000
        self.finished = False
        """Whether the function has returned: the lease needs no further heartbeats."""
        self.lost = False
        """Whether the server has given the task up: its outcome is not reported."""
        self._task_deadline = None if task.timeout_ms is None else now + task.timeout_ms / 1_000

    def renew(self, requested_at: float) -> None:
        """Renews the lease, counted from when the heartbeat was sent."""
        self.expires_at = requested_at + self.task.lease_ms / 1_000

    def next_heartbeat(self, now: float) -> float:
        """When to send the next heartbeat.

        After a third of the lease, so that two heartbeats may fail; and when the task reaches its
        timeout.
        """
        due = now + self.task.lease_ms / 3_000
        if self._task_deadline is not None and self._task_deadline > now:
            return min(due, self._task_deadline)
        return due

    def lose(self) -> None:
        """Marks the lease as lost: cancels the task, and its outcome is not reported."""
        self.lost = True
        self.task.cancelled.set()


class HeartbeatScheduler:
    """Threads that send the heartbeats of all leases.

    There is one thread for each slot, so that a slow response to one heartbeat delays no other.
    """

    def __init__(self, tasks: TaskClient, count: int) -> None:
        self._tasks = tasks
        self._count = count
        # One thread at a time waits for the next heartbeat. While it sends, another one waits.
        self._waiting = threading.Lock()
        self._changed = threading.Condition()
        self._due: dict[Lease, float] = {}
        self._wakes_at = NEVER
        self._stopped = False

    def start(self) -> None:
        """Starts the threads."""
        for number in range(self._count):
            name = f"onward-heartbeat-{number}"
            threading.Thread(target=self._run, name=name, daemon=True).start()

    def stop(self) -> None:
        """Stops the threads. Leases that remain expire."""
        with self._changed:
            self._stopped = True
            self._changed.notify()

    def add(self, lease: Lease) -> None:
        """Sends heartbeats for a lease until it is removed."""
        with self._changed:
            if lease.finished:
                return
            due = self._due[lease] = lease.next_heartbeat(time.monotonic())
            # Most tasks end long before their first heartbeat: they need not wake a thread.
            if due < self._wakes_at:
                self._changed.notify()

    def remove(self, lease: Lease) -> None:
        """Stops the heartbeats of a lease: its function has returned."""
        with self._changed:
            lease.finished = True
            self._due.pop(lease, None)

    def _run(self) -> None:
        while True:
            lease = self._next_due()
            if lease is None:
                return
            if send_heartbeat(self._tasks, lease):
                self.add(lease)

    def _next_due(self) -> Lease | None:
        """Waits until a heartbeat is due, and returns its lease; none if stopped."""
        with self._waiting, self._changed:
            while not self._stopped:
                now = time.monotonic()
                lease = min(self._due, key=self._due.__getitem__, default=None)
                self._wakes_at = NEVER if lease is None else self._due[lease]
                if lease is not None and self._wakes_at <= now:
                    del self._due[lease]
                    return lease
                self._changed.wait(None if lease is None else self._wakes_at - now)
        return None


def send_heartbeat(tasks: TaskClient, lease: Lease) -> bool:
    """Sends one heartbeat. Returns whether to send another one later."""
    task, requested_at = lease.task, time.monotonic()
    try:
        tasks.heartbeat(task, max(task.lease_ms // 3, MIN_HEARTBEAT_TIMEOUT_MS))
        lease.renew(requested_at)
        return True
    except OnwardError as error:
        if lease.finished:
            return False
        if is_lease_lost(error):
            log.warning("%s: lease lost, cancelling the task", task)
            lease.lose()
            return False
        log.warning("%s: heartbeat failed: %s", task, error)
    if time.monotonic() < lease.expires_at:
        return True
    # The server has not confirmed the loss, so the outcome is still reported; but another worker
    # may already hold the task.
    log.warning("%s: lease expired without a successful heartbeat, cancelling the task", task)
    task.cancelled.set()
    return False
