"""Telling the server how a task ended, also when the server does not hear at once."""

from __future__ import annotations

import logging
import time
from typing import Callable

from .backoff import wait_ms
from .errors import LEASE_LOST, NotJson, OnwardError, Problem, Unreachable
from .lease import Lease
from .outcome import Outcome, failed
from .task import Task
from .tasks import Tasks, Wish

log = logging.getLogger("onward")


CONTENT_STATUSES = (400, 413, 422)
"""Answers that are about what was told: telling the same again gives the same answer."""


def report(tasks: Tasks, lease: Lease, outcome: Outcome, wanted: Callable[[], Wish | None]) -> Lease | None:
    """Tells how a task ended, again and again until the server has heard it or the lease is gone.

    Returns the task that came with the answer, if one is wanted and there is one.
    """
    task, failures = lease.task, 0
    while True:
        asked = time.monotonic()
        try:
            following = tasks.tell(task, outcome, wanted())
            return None if following is None else Lease(following, asked, time.monotonic())
        except OnwardError as error:
            if is_content(error) and not outcome.is_failure:
                outcome = refused(task, error)
                continue
            if not may_pass(error):
                log_end(task, error, failures)
                return None
            failures += 1
            wait = wait_ms(error, failures) / 1_000
            if lease.lost or time.monotonic() + wait >= lease.until:
                log.error("%s: its end could not be told before the lease ran out: %s", task, error)
                return None
            log.warning("%s: its end could not be told, again in %.1f s: %s", task, wait, error)
        time.sleep(wait)


def give_back(tasks: Tasks, task: Task) -> None:
    """Gives a task back that was not begun, so that nobody has to wait until its lease is gone."""
    try:
        tasks.release(task)
    except OnwardError as error:
        log.warning("%s: could not be given back, so its lease runs out: %s", task, error)


def refused(task: Task, error: OnwardError) -> Outcome:
    """A result that cannot be told is a failure, for good: the next attempt would return the same."""
    log.error("%s: its result is not taken: %s", task, error)
    code = error.code if isinstance(error, Problem) else "invalid_payload"
    return failed(f"the result is not taken: {error}", code, retryable=False)


def log_end(task: Task, error: OnwardError, failures: int) -> None:
    """Says why nothing more is told."""
    if not (isinstance(error, Problem) and error.code == LEASE_LOST):
        log.error("%s: its end cannot be told: %s", task, error)
    elif failures:
        log.info("%s: not held any more; perhaps an earlier try to tell its end was heard", task)
    else:
        log.warning("%s: not held any more, so what it came to is dropped", task)


def is_content(error: OnwardError) -> bool:
    """Whether what was told is the trouble."""
    return isinstance(error, NotJson) or (isinstance(error, Problem) and error.status in CONTENT_STATUSES)


def may_pass(error: OnwardError) -> bool:
    """Whether telling the same again may help."""
    return isinstance(error, Unreachable) or (isinstance(error, Problem) and error.is_transient)
