"""Reports the outcome of a task to the server, with retries until the lease expires."""

from __future__ import annotations

import logging
import time
from typing import Callable

from .backoff import retry_delay_ms
from .errors import NotJson, OnwardError, Problem, Unreachable, is_lease_lost
from .lease import Lease
from .outcome import Outcome, failed
from .task import Task
from .task_client import ClaimRequest, TaskClient

log = logging.getLogger("onward")


INVALID_CONTENT_STATUSES = (400, 413, 422)
"""Statuses that reject the content of a report: a retry would be rejected again."""


def report_outcome(
    tasks: TaskClient,
    lease: Lease,
    outcome: Outcome,
    next_request: Callable[[], ClaimRequest | None],
) -> Lease | None:
    """Reports the outcome of a task, and retries until it is recorded or the lease expires.

    Returns the next task of the workflow if it was requested and the response contains one.
    """
    task, failures = lease.task, 0
    while True:
        requested_at = time.monotonic()
        try:
            following = tasks.report(task, outcome, next_request())
            if following is None:
                return None
            return Lease(following, requested_at, time.monotonic())
        except OnwardError as error:
            if is_invalid_content(error) and not outcome.is_failure:
                outcome = rejected_result(task, error)
                continue
            if not is_retryable(error):
                log_dropped_outcome(task, error, failures)
                return None
            failures += 1
            delay_ms = retry_delay_ms(error, failures)
            if lease.lost or time.monotonic() + delay_ms / 1_000 >= lease.expires_at:
                log.error("%s: outcome not reported before the lease expired: %s", task, error)
                return None
            log.warning("%s: report failed, retrying in %d ms: %s", task, delay_ms, error)
        time.sleep(delay_ms / 1_000)


def release_task(tasks: TaskClient, task: Task) -> None:
    """Releases a task that was not started, so that another worker need not wait for its lease."""
    try:
        tasks.release(task)
    except OnwardError as error:
        log.warning(
            "%s: release failed, the task stays claimed until its lease expires: %s", task, error
        )


def rejected_result(task: Task, error: OnwardError) -> Outcome:
    """A non-retryable failure for a rejected result: the next attempt would return the same."""
    log.error("%s: result rejected, reporting a failure instead: %s", task, error)
    code = error.code if isinstance(error, Problem) else "invalid_payload"
    return failed(f"the result was rejected: {error}", code, retryable=False)


def log_dropped_outcome(task: Task, error: OnwardError, failures: int) -> None:
    """Logs why the outcome is not reported."""
    if not is_lease_lost(error):
        log.error("%s: outcome rejected, not retrying: %s", task, error)
    elif failures:
        log.info("%s: lease lost, or an earlier report was recorded without a response", task)
    else:
        log.warning("%s: lease lost, dropping the outcome", task)


def is_invalid_content(error: OnwardError) -> bool:
    """Whether the server, or the encoder, rejected the content of the report."""
    is_rejected = isinstance(error, Problem) and error.status in INVALID_CONTENT_STATUSES
    return is_rejected or isinstance(error, NotJson)


def is_retryable(error: OnwardError) -> bool:
    """Whether a retry of the same request may succeed."""
    is_transient = isinstance(error, Problem) and error.is_transient
    return is_transient or isinstance(error, Unreachable)
