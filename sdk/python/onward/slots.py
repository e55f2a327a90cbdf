"""Concurrency limit of a worker: a fixed number of threads, one task in each at a time."""

from __future__ import annotations

import logging
import queue
import threading
from typing import Callable

from .lease import Lease


log = logging.getLogger("onward")


class Slots:
    """The slots of a worker. The number of free slots limits how many tasks it claims.

    `execute` returns the next task of the workflow, if there is one: it runs in the same thread,
    which stays occupied in between.
    """

    def __init__(self, count: int, execute: Callable[[Lease], Lease | None]) -> None:
        self._execute = execute
        self._count = count
        self._queue: queue.SimpleQueue[Lease | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._occupied: set[Lease] = set()
        self._stopped = False

    def start(self) -> None:
        """Starts the threads."""
        for number in range(self._count):
            name = f"onward-task-{number}"
            threading.Thread(target=self._run, name=name, daemon=True).start()

    def wait_for_free(self) -> int:
        """Waits until a slot is free, and returns the number of free slots; 0 if stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or len(self._occupied) < self._count)
            return 0 if self._stopped else self._count - len(self._occupied)

    def put(self, lease: Lease) -> None:
        """Executes a task, and the tasks that follow it, in a free slot."""
        with self._changed:
            self._occupied.add(lease)
        self._queue.put(lease)

    def stop(self) -> None:
        """Accepts no more tasks. Tasks in flight continue."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def drain(self, grace_ms: int) -> set[Lease]:
        """Waits for the tasks in flight; returns those unfinished after the grace period."""
        with self._changed:
            self._changed.wait_for(lambda: not self._occupied, grace_ms / 1_000)
            unfinished = set(self._occupied)
        for _ in range(self._count):
            self._queue.put(None)
        return unfinished

    def _run(self) -> None:
        while True:
            lease = self._queue.get()
            if lease is None:
                return
            while lease is not None:
                lease = self._execute_one(lease)

    def _execute_one(self, lease: Lease) -> Lease | None:
        following = None
        try:
            following = self._execute(lease)
        except Exception:
            # The thread must survive: the slot is used by later tasks.
            log.exception("%s: outcome not reported: unexpected error", lease.task)
        finally:
            with self._changed:
                self._occupied.discard(lease)
                if following is None:
                    self._changed.notify_all()
                else:
                    self._occupied.add(following)
        return following
