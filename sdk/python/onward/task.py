"""The task that a function receives, and the failure that it may raise."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Task:
    """One attempt of a task, claimed by this worker."""

    id: str
    """Id of the attempt."""
    function: str
    """The name by which the workflow calls the function."""
    execution: str
    """Id of the execution that called it."""
    promise: str
    """Id of the call, equal for every attempt: use it as the idempotency key of side effects."""
    attempt: int
    """Number of the attempt, starting at 1."""
    input: Any
    """The input of the call."""
    delivery: str
    """`at-least-once`, or `at-most-once`: whether the task may be retried when the outcome of an
    attempt is unknown."""
    timeout_ms: int | None
    """Timeout of the attempt, if the workflow set one."""
    lease_ms: int
    """Duration of the lease: without a heartbeat for this time the task is reassigned."""
    token: str = field(repr=False)
    """The claim token, which proves that this worker holds the task."""
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)
    """Set when the result is no longer needed: the execution was cancelled, the timeout has passed,
    or the lease is lost. The function should stop and clean up; its result is dropped."""

    def __str__(self) -> str:
        return f"{self.function}, attempt {self.attempt}"

    @staticmethod
    def from_document(document: dict[str, Any]) -> Task:
        """Builds a task from the document that the server sends."""
        return Task(
            id=document["task"],
            function=document["function"],
            execution=document["execution"],
            promise=document["promise"],
            attempt=document["attempt"],
            input=document.get("input"),
            delivery=document["delivery"],
            timeout_ms=document.get("timeoutMs"),
            lease_ms=document["leaseMs"],
            token=document["token"],
        )


class Failure(Exception):
    """Raised by a function to fail with a code: `Failure("declined", code="card_declined")`."""

    def __init__(self, message: str, *, code: str | None = None, retryable: bool = True) -> None:
        super().__init__(message)
        self.message = message
        """Human-readable description of the failure."""
        self.code = code
        """Error code: the workflow receives it as the error kind; its retry policy can match it."""
        self.retryable = retryable
        """False if a retry cannot succeed; overrides the retry policy."""
