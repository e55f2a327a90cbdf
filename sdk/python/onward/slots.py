"""Threads that perform tasks, one each at a time."""

from __future__ import annotations

import logging
import queue
import threading
from typing import Callable

from .lease import Lease


log = logging.getLogger("onward")


class Slots:
    """So many threads. Whoever claims asks how many are free first.

    `perform` returns the task that follows, if there is one: it has the same thread, which is not free in between.
    """

    def __init__(self, count: int, perform: Callable[[Lease], Lease | None]) -> None:
        self._perform = perform
        self._count = count
        self._waiting: queue.SimpleQueue[Lease | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._held: set[Lease] = set()
        self._stopped = False

    def start(self) -> None:
        """Begins."""
        for number in range(self._count):
            threading.Thread(target=self._run, name=f"onward-task-{number}", daemon=True).start()

    def wait_free(self) -> int:
        """How many tasks can be performed now; waits until one can. 0 when stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or len(self._held) < self._count)
            return 0 if self._stopped else self._count - len(self._held)

    def put(self, lease: Lease) -> None:
        """Has a task performed."""
        with self._changed:
            self._held.add(lease)
        self._waiting.put(lease)

    def stop(self) -> None:
        """Takes nothing more. What is under way goes on."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def finish(self, grace_ms: int) -> set[Lease]:
        """Waits for what is under way, and returns what is left of it after a while."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held, grace_ms / 1_000)
            left = set(self._held)
        for _ in range(self._count):
            self._waiting.put(None)
        return left

    def _run(self) -> None:
        while True:
            lease = self._waiting.get()
            if lease is None:
                return
            while lease is not None:
                lease = self._work(lease)

    def _work(self, lease: Lease) -> Lease | None:
        following = None
        try:
            following = self._perform(lease)
        except Exception:
            # The slot goes on: others need it.
            log.exception("%s: what became of it could not be told", lease.task)
        finally:
            with self._changed:
                self._held.discard(lease)
                if following is None:
                    self._changed.notify_all()
                else:
                    self._held.add(following)
        return following
